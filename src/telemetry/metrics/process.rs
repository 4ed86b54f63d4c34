//! Metrics of the process, under the names that Prometheus client libraries share.
//!
//! They are read from `/proc` on each scrape. Only Linux has them.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

/// Clock ticks per second in `/proc`: part of the kernel's interface, the same on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// One metric of the process.
struct ProcessRow {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    /// `None` if the system does not report it.
    value: Option<ProcessValue>,
}

/// The value of a row, with its type.
enum ProcessValue {
    CounterSeconds(f64),
    GaugeSeconds(f64),
    Gauge(i64),
}

/// The part of the page about the process. Its names have no `antiphon` prefix.
#[derive(Debug)]
pub(super) struct ProcessPage(Registry);

impl ProcessPage {
    /// Number of series.
    pub(super) const SERIES_MAX: usize = 6;

    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector));
        Self(registry)
    }

    /// Writes every row as OpenMetrics text, without the end marker.
    pub(super) fn write(&self, text: &mut String) -> fmt::Result {
        text::encode_registry(text, &self.0)
    }
}

/// The collector of all rows.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        for row in process_rows() {
            // A missing series is better than a zero, which would look like a measured value.
            let Some(value) = row.value else { continue };
            let kind = match value {
                ProcessValue::CounterSeconds(_) => MetricType::Counter,
                ProcessValue::GaugeSeconds(_) | ProcessValue::Gauge(_) => MetricType::Gauge,
            };
            let encoder = page.encode_descriptor(row.name, row.help, row.unit.as_ref(), kind)?;
            match value {
                ProcessValue::CounterSeconds(seconds) => ConstCounter::new(seconds).encode(encoder)?,
                ProcessValue::GaugeSeconds(seconds) => ConstGauge::new(seconds).encode(encoder)?,
                ProcessValue::Gauge(count) => ConstGauge::new(count).encode(encoder)?,
            }
        }
        Ok(())
    }
}

/// Reads every row from `/proc`.
fn process_rows() -> [ProcessRow; ProcessPage::SERIES_MAX] {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name is in parentheses and may contain anything, so fields are counted from its end.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    // In proc(5) these fields have other numbers: index 0 here is field 3, the state.
    let seconds = |at: usize| {
        fields
            .get(at)?
            .parse::<f64>()
            .ok()
            .map(|ticks| ticks / TICKS_PER_SECOND)
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // The kernel reports kibibytes.
    let bytes = |name: &str| Some(first_word_after(&status, name)?.parse::<i64>().ok()? * 1024);
    let system = fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = first_word_after(&system, "btime").and_then(|seconds| seconds.parse::<f64>().ok());
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    // Reading the folder opens one descriptor, which is not counted.
    let open = fs::read_dir("/proc/self/fd").map(|files| files.count().saturating_sub(1));
    let cpu = seconds(11).zip(seconds(12)).map(|(user, system)| user + system);
    let started = booted.zip(seconds(19)).map(|(booted, since)| booted + since);
    let open_files = open.ok().and_then(|files| i64::try_from(files).ok());
    let files_max = first_word_after(&limits, "Max open files").and_then(|files| files.parse().ok());
    [
        ProcessRow {
            name: "process_cpu",
            help: "User and system CPU time of the process.",
            unit: Some(Unit::Seconds),
            value: cpu.map(ProcessValue::CounterSeconds),
        },
        ProcessRow {
            name: "process_start_time",
            help: "Time when the process started, in seconds since 1970.",
            unit: Some(Unit::Seconds),
            value: started.map(ProcessValue::GaugeSeconds),
        },
        ProcessRow {
            name: "process_resident_memory",
            help: "Resident memory of the process.",
            unit: Some(Unit::Bytes),
            value: bytes("VmRSS:").map(ProcessValue::Gauge),
        },
        ProcessRow {
            name: "process_virtual_memory",
            help: "Virtual memory of the process.",
            unit: Some(Unit::Bytes),
            value: bytes("VmSize:").map(ProcessValue::Gauge),
        },
        ProcessRow {
            name: "process_open_fds",
            help: "Open file descriptors.",
            unit: None,
            value: open_files.map(ProcessValue::Gauge),
        },
        ProcessRow {
            name: "process_max_fds",
            help: "Limit of open file descriptors.",
            unit: None,
            value: files_max.map(ProcessValue::Gauge),
        },
    ]
}

/// Returns the first word after `name` on the line that starts with it.
fn first_word_after<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()
}
