//! Helpers of the benches: arguments, machine facts, the timing loop, tables.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "each bench uses a part of it; times are never below zero"
)]

mod table;

use std::{
    fs,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use antiphon::wire::{Dialect, Format, Wire};

pub use table::{Table, number};

/// Sizes of bodies, with their names.
pub const SIZES: [(&str, usize); 4] = [
    ("4 KiB", 4 << 10),
    ("64 KiB", 64 << 10),
    ("512 KiB", 512 << 10),
    ("4 MiB", 4 << 20),
];

const HELP: &str = "\
usage: cargo benches NAME -- [--quick] [--markdown]
       cargo bench --bench ledger -- [--quick] [--markdown]
  --quick      fewer sizes and shorter rounds: a look, not a measurement
  --markdown   tables as docs/performance.md has them";

/// Options of a bench.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `true` for fewer sizes and shorter rounds.
    pub quick: bool,
    /// `true` for tables in Markdown.
    pub markdown: bool,
}

impl Options {
    /// Reads the arguments. `None`, after a message, if the bench must not run.
    pub fn read() -> Option<Self> {
        let mut options = Self::default();
        for argument in std::env::args().skip(1) {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--markdown" => options.markdown = true,
                // Arguments that cargo adds.
                "--bench" => {}
                _ => {
                    println!("{HELP}");
                    return None;
                }
            }
        }
        Some(options)
    }

    /// Prints the facts that the figures depend on.
    pub fn introduce(self, bench: &str, settings: &str) {
        let item = if self.markdown { "* " } else { "" };
        println!(
            "{item}bench: {bench}{}, {}",
            if self.quick { " (quick)" } else { "" },
            date()
        );
        println!("{item}machine: {}", machine());
        println!("{item}commit: {}", commit());
        println!("{item}settings: {settings}");
    }

    /// Prints the facts that may have changed during the run.
    pub fn conclude(self) {
        println!(
            "{}load average at the end: {}",
            if self.markdown { "\n* " } else { "\n" },
            load()
        );
    }
}

/// Returns the wire of a format as its author reads it. Responses is read as `DeepSeek` does, since `OpenAI` accepts a
/// result at any place.
pub fn wire(format: Format) -> Wire {
    match format {
        Format::Anthropic => Wire::ANTHROPIC,
        Format::OpenAiChat => Wire::OPENAI_CHAT,
        Format::OpenAiResponses => Wire {
            format,
            dialect: Dialect::DeepSeek,
        },
        Format::Gemini => Wire::GEMINI,
    }
}

/// A timed function with its name.
pub type Work<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Returns the best time of each of `works`, in seconds: the minimum over many short batches. The works take turns, so
/// that other load on the machine affects all of them alike.
pub fn best(quick: bool, works: &mut [Work<'_>]) -> Vec<f64> {
    let (turns, budget) = if quick {
        (3, Duration::from_millis(4))
    } else {
        (8, Duration::from_millis(12))
    };
    let batch = Duration::from_micros(100);
    let mut times = vec![f64::INFINITY; works.len()];
    for _ in 0..turns {
        for ((_, work), time) in works.iter_mut().zip(&mut times) {
            let once = timed(1, work).max(1e-9);
            let count = (batch.as_secs_f64() / once).clamp(1.0, 1e5) as u32;
            let begin = Instant::now();
            while begin.elapsed() < budget {
                *time = time.min(timed(count, work));
            }
        }
    }
    times
}

/// Returns the seconds of one of `count` runs.
fn timed(count: u32, work: &mut dyn FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..count {
        work();
    }
    begin.elapsed().as_secs_f64() / f64::from(count)
}

/// Returns the median. For an even number, the lower of the two middle values.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 50)
}

/// Returns the value below which `percent` of a hundred lie.
pub fn quantile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = values.len().saturating_sub(1) * percent / 100;
    values.get(index).copied().unwrap_or(f64::NAN)
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    format!(
        "{model}, {cores} cores, {}, load average {}",
        std::env::consts::OS,
        load()
    )
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<&str> = load.split(' ').take(3).collect();
    if load.is_empty() {
        "unknown".to_owned()
    } else {
        three.join(" ")
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let ran = Command::new("git")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .ok()?;
        ran.status
            .success()
            .then(|| String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|list| !list.is_empty());
    format!("{commit}{}", if changed { ", with changes" } else { "" })
}

/// Returns today's date in UTC, as `YYYY-MM-DD` (Howard Hinnant's `civil_from_days`).
fn date() -> String {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let rest = day - (365 * year + year / 4 - year / 100);
    let month = (5 * rest + 2) / 153;
    let (day, month) = (rest - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    format!("{}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}
