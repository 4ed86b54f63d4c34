//! Instructions per byte under callgrind, independent of the load of the machine.
//!
//! The bench starts itself under valgrind, twice for each task with different numbers of runs. The difference is the
//! cost of the runs. Without valgrind it prints a note and ends.
//!
//! Whole exchanges are counted too, and compared with committed figures: `exchange_gate`.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::format_push_string,
    reason = "a bench looks around, speaks, and may panic"
)]

#[path = "../tests/support/bodies/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the tests use more of it")]
mod bodies;
#[path = "support/exchange_gate.rs"]
mod exchange_gate;
mod loopback;
mod support;

use std::{
    hint::black_box,
    process::{Command, ExitCode},
};

use antiphon::{check, repair, repair::RepairPolicy, wire::Format};
use bytes::Bytes;
use serde::de::IgnoredAny;

use bodies::{Shape, sized};
use support::{Options, SIZES, Table, number, wire};

/// Marks the arguments of the run under valgrind.
const INSIDE: &str = "--inside";

/// Names of the counted tasks.
const TASKS: [&str; 5] = ["skim", "check", "repair", "repair-orphan", "repair-displaced"];

fn main() -> ExitCode {
    if loopback::play() {
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [inside, task, format, bytes, runs] = arguments.as_slice()
        && inside == INSIDE
    {
        let format = Format::ALL.into_iter().find(|known| known.label() == format).unwrap();
        work(task, format, bytes.parse().unwrap(), runs.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let Some(options) = Options::read() else {
        return ExitCode::SUCCESS;
    };
    options.introduce("instructions", "callgrind, the difference between 4 runs and 1");
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        println!("skipped: valgrind cannot be started ({error})");
        return ExitCode::SUCCESS;
    }
    if !exchange_gate::count_exchanges(options) {
        return ExitCode::FAILURE;
    }
    let sizes: &[(&str, usize)] = if options.quick { &SIZES[..2] } else { &SIZES[..3] };
    let head = &[
        "instructions",
        "IgnoredAny : check",
        "repair, orphan : healthy",
        "displaced : healthy",
        "a byte: IgnoredAny",
        "check",
        "repair",
        "orphan",
        "displaced",
    ];
    let mut table = Table::new("Instructions: ratios, then per byte of body", head);
    let formats = if options.quick {
        &Format::ALL[..1]
    } else {
        &Format::ALL[..]
    };
    for format in formats.iter().copied() {
        for (name, bytes) in sizes {
            let counts = TASKS.map(|task| count(task, format, *bytes, 4) - count(task, format, *bytes, 1));
            let [skim, check, repair, orphan, displaced] = counts.map(|count| count / 3.0 / *bytes as f64);
            let figures = [
                skim / check,
                orphan / repair,
                displaced / repair,
                skim,
                check,
                repair,
                orphan,
                displaced,
            ];
            table.row(format!("{} {name}", format.label()), figures.map(number));
        }
    }
    table.print(options.markdown);
    options.conclude();
    ExitCode::SUCCESS
}

/// Returns the instructions of this program for one task, including its start.
fn count(task: &str, format: Format, bytes: usize, runs: u32) -> f64 {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args([INSIDE, task, format.label(), &bytes.to_string(), &runs.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "under valgrind: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .expect("callgrind's count")
}

/// Runs one task this many times.
fn work(task: &str, format: Format, bytes: usize, runs: u32) {
    let (wire, policy) = (wire(format), RepairPolicy::default());
    let shape = match task {
        "repair-orphan" => Shape::Orphan,
        "repair-displaced" => Shape::Displaced,
        _ => Shape::Balanced,
    };
    let body = Bytes::from(sized(format, shape, bytes));
    for _ in 0..runs {
        let body = black_box(&body);
        match task {
            "skim" => drop(black_box(serde_json::from_slice::<IgnoredAny>(body).unwrap())),
            "check" => assert_eq!(black_box(check(body, wire, &policy)).unwrap(), []),
            _ => {
                let done = black_box(repair(body, wire, &policy).unwrap());
                assert_eq!(
                    done.body.is_original(),
                    shape == Shape::Balanced,
                    "mended exactly where broken"
                );
            }
        }
    }
}
