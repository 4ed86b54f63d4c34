//! What the system says of this process, under the names that every Prometheus client library uses. Read when the page is,
//! on Linux; elsewhere nothing is said.

use std::fs;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

/// Ticks a second in which the kernel tells a process's time: part of its interface, the same on every machine.
const TICKS: f64 = 100.0;

/// Series that the page has of it.
pub(super) const SERIES: usize = 6;

/// Writes the metrics.
#[derive(Debug)]
struct Process;

/// The metrics, on a registry without our prefix.
#[derive(Debug)]
pub(super) struct ProcessPage(Registry);

impl ProcessPage {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        Self(registry)
    }

    pub(super) fn write(&self, page: &mut String) -> Result<(), std::fmt::Error> {
        text::encode_registry(page, &self.0)
    }
}

/// What `/proc` says; none of it where it cannot be read.
#[derive(Debug, Default)]
struct Facts {
    cpu_seconds: Option<f64>,
    start_seconds: Option<f64>,
    resident_bytes: Option<i64>,
    virtual_bytes: Option<i64>,
    open_files: Option<i64>,
    files_max: Option<i64>,
}

impl Facts {
    fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program stands in parentheses and may hold anything: fields are counted from behind it.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok().map(|ticks| ticks / TICKS);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kibibytes = |name: &str| Some(value_of(&status, name)?.parse::<i64>().ok()? * 1024);
        let system = fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted = value_of(&system, "btime").and_then(|seconds| seconds.parse::<f64>().ok());
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        // The folder is itself open while it is read.
        let open = fs::read_dir("/proc/self/fd")
            .ok()
            .map(|files| files.count().saturating_sub(1));
        Self {
            cpu_seconds: ticks(11).zip(ticks(12)).map(|(user, system)| user + system),
            start_seconds: booted.zip(ticks(19)).map(|(booted, since)| booted + since),
            resident_bytes: kibibytes("VmRSS:"),
            virtual_bytes: kibibytes("VmSize:"),
            open_files: open.and_then(|files| i64::try_from(files).ok()),
            files_max: value_of(&limits, "Max open files").and_then(|files| files.parse().ok()),
        }
    }
}

/// The first word behind `name`, which begins a line.
fn value_of<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()
}

impl Collector for Process {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> std::fmt::Result {
        let facts = Facts::read();
        if let Some(seconds) = facts.cpu_seconds {
            let help = "User and system time of the process.";
            let unit = Some(&Unit::Seconds);
            let counter = page.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(counter)?;
        }
        if let Some(seconds) = facts.start_seconds {
            let help = "When the process began, in seconds since 1970.";
            let unit = Some(&Unit::Seconds);
            let gauge = page.encode_descriptor("process_start_time", help, unit, MetricType::Gauge)?;
            ConstGauge::new(seconds).encode(gauge)?;
        }
        for (name, help, unit, value) in [
            (
                "process_resident_memory",
                "Memory that the process has in use.",
                Some(Unit::Bytes),
                facts.resident_bytes,
            ),
            (
                "process_virtual_memory",
                "Memory that the process has addresses for.",
                Some(Unit::Bytes),
                facts.virtual_bytes,
            ),
            (
                "process_open_fds",
                "File descriptors that the process has open.",
                None,
                facts.open_files,
            ),
            (
                "process_max_fds",
                "File descriptors that the process may have open.",
                None,
                facts.files_max,
            ),
        ] {
            if let Some(value) = value {
                let gauge = page.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
                ConstGauge::new(value).encode(gauge)?;
            }
        }
        Ok(())
    }
}
