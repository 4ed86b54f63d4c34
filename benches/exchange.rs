//! Whole exchanges over loopback: the shipped proxy against a bare hyper pass-through, with the same client and
//! provider.
//!
//! It measures processor time per request, also on two cores, added latency, memory and start-up. A body that does not arrive as expected
//! ends the bench, a slow one never does. Needs Linux: process figures come from `/proc`.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

#[path = "../tests/support/bodies/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the tests use more of it")]
mod bodies;
mod loopback;
mod support;

use std::{
    process::Command,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use antiphon::{repair, repair::RepairPolicy, wire::Format};
use bytes::Bytes;

use bodies::{Shape, sized};
use loopback::{Child, Client, Stage, Who, child::other_binary, cost_of, request, settle, unread, upstream};
use support::{Options, SIZES, Table, median, number, quantile, wire};

/// Number of streams held open at once, below the usual limit of 1024 files.
const STREAMS: usize = 400;

const MIB: f64 = (1 << 20) as f64;

fn main() {
    if loopback::play() {
        return;
    }
    let Some(options) = Options::read() else { return };
    let workers = std::env::var("TOKIO_WORKER_THREADS").unwrap_or_else(|_| "one a core".to_owned());
    let log = std::env::var("ANTIPHON_LOG").unwrap_or_else(|_| "info".to_owned());
    let settings = format!(
        "plain HTTP/1.1, four connections, worker threads {workers}, log level {log}, medians of interleaved rounds"
    );
    options.introduce("exchange", &settings);
    if let Some(binary) = other_binary() {
        println!("binary: {}", binary.display());
    }
    if !cfg!(target_os = "linux") {
        println!("skipped: processor time and memory of a process are read from /proc");
        return;
    }
    let stage = Stage::start();
    processor(options, &stage);
    latency(options, &stage);
    drop(stage);
    cores(options);
    memory(options);
    start(options);
    options.conclude();
}

/// A column of the processor time table.
#[derive(Clone, Copy, Debug)]
enum Column {
    Floor,
    WorkingFloor,
    /// The proxy, on a path whose bodies are not read.
    Unread,
    /// The proxy, with bodies read and repaired.
    Read(Shape),
    /// The proxy with profiles, with bodies read.
    Keys,
    /// The proxy with a tool service, whose calls are recorded.
    Service,
}

const COLUMNS: [Column; 8] = [
    Column::Floor,
    Column::WorkingFloor,
    Column::Unread,
    Column::Read(Shape::Balanced),
    Column::Read(Shape::Orphan),
    Column::Read(Shape::Displaced),
    Column::Keys,
    Column::Service,
];

impl Column {
    /// Returns the target and the request, after a check that it arrives as expected.
    fn prepare(self, stage: &Stage, format: Format, bytes: usize) -> (Who, Vec<u8>) {
        let (who, shape) = match self {
            Self::Floor => (Who::Floor, Shape::Balanced),
            Self::WorkingFloor => (Who::WorkingFloor, Shape::Balanced),
            Self::Unread => (Who::Ours, Shape::Balanced),
            Self::Read(shape) => (Who::Ours, shape),
            Self::Keys => (Who::Keys, Shape::Balanced),
            Self::Service => (Who::Service, Shape::Balanced),
        };
        let body = sized(format, shape, bytes);
        verify(stage, who, format, shape, &body);
        let request = match self {
            Self::Unread => unread(format, &body),
            _ => request(who, format, upstream::TAKE, &body),
        };
        (who, request)
    }
}

fn processor(options: Options, stage: &Stage) {
    let head = &[
        "ratios",
        "ours : floor",
        "ours : working floor",
        "ours unread : floor",
        "orphan : healthy",
        "displaced : healthy",
        "with profiles : without",
        "with a service : without",
    ];
    let title = "Processor time of a request: times as long as the floor, or as a healthy one";
    let mut ratios = Table::new(title, head);
    let head = &[
        "µs a request",
        "floor",
        "working floor",
        "ours unread",
        "ours healthy",
        "orphan",
        "displaced",
        "with profiles",
        "with a service",
    ];
    let mut times = Table::new("Processor time of a request", head);
    let (rounds, sizes) = if options.quick {
        (3, &SIZES[..3])
    } else {
        (9, &SIZES[..])
    };
    for format in Format::ALL {
        for (size, bytes) in sizes {
            eprintln!("exchange: {} {size}", format.label());
            let count = ((128 << 20) / bytes).clamp(32, 1000) / if options.quick { 2 } else { 1 };
            let requests = COLUMNS.map(|column| column.prepare(stage, format, *bytes));
            let mut costs: [Vec<f64>; COLUMNS.len()] = Default::default();
            for round in 0..rounds {
                // Every second round runs in reverse order, so that no column is always first.
                for step in 0..COLUMNS.len() {
                    let column = if round % 2 == 0 { step } else { COLUMNS.len() - 1 - step };
                    let (who, request) = &requests[column];
                    costs[column].push(stage.cost(*who, request, upstream::ANSWER, count).seconds);
                }
            }
            let ratio = |(one, other): (usize, usize)| {
                let pairs = costs[one].iter().zip(&costs[other]);
                number(median(pairs.map(|(one, other)| one / other).collect()))
            };
            let name = format!("{} {size}", format.label());
            ratios.row(
                &name,
                [(3, 0), (3, 1), (2, 0), (4, 3), (5, 3), (6, 3), (7, 3)].map(ratio),
            );
            times.row(&name, costs.map(|costs| number(median(costs) * 1e6)));
        }
    }
    ratios.print(options.markdown);
    times.print(options.markdown);
}

/// Checks that healthy bodies arrive unchanged, and broken ones as the core repairs them.
fn verify(stage: &Stage, who: Who, format: Format, shape: Shape, body: &[u8]) {
    let arrived = stage.arrived(who, format, body);
    if shape == Shape::Balanced {
        assert!(arrived == body, "{who:?}: the body has changed on its way");
        return;
    }
    let mended = repair(&Bytes::copy_from_slice(body), wire(format), &RepairPolicy::default()).unwrap();
    assert!(
        !mended.body.is_original() && arrived == mended.body.to_vec(),
        "the body was not mended as it should"
    );
}

/// Measures one request at a time: without a proxy, through the floor, and through the proxy.
fn latency(options: Options, stage: &Stage) {
    let head = &[
        "µs, 10th percentile",
        "added, ours : floor",
        "direct",
        "added by the floor",
        "added by ours",
        "by ours, displaced",
        "by ours, profiles",
    ];
    let mut table = Table::new("Latency, one request at a time (a busy machine blurs it)", head);
    let format = Format::Anthropic;
    for (size, bytes) in if options.quick { &SIZES[..2] } else { &SIZES[..] } {
        let body = sized(format, Shape::Balanced, *bytes);
        let broken = sized(format, Shape::Displaced, *bytes);
        let (floor, ours) = (stage.floor.address, stage.ours.address);
        let plain = request(Who::Floor, format, upstream::TAKE, &body);
        let ways = [
            (stage.upstream.address, plain.clone()),
            (floor, plain),
            (ours, request(Who::Ours, format, upstream::TAKE, &body)),
            (ours, request(Who::Ours, format, upstream::TAKE, &broken)),
            (ours, request(Who::Keys, format, upstream::TAKE, &body)),
        ];
        let mut clients = ways.map(|(address, request)| (Client::connect(address), request, Vec::new()));
        for _ in 0..if options.quick { 50 } else { 300 } {
            for (client, request, times) in &mut clients {
                let begin = Instant::now();
                assert_eq!(client.ask(request), upstream::ANSWER);
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        let [direct, floor, ours, mended, keys] = clients.map(|(_, _, times)| quantile(times, 10));
        let figures = [
            (ours - direct) / (floor - direct),
            direct,
            floor - direct,
            ours - direct,
            mended - direct,
            keys - direct,
        ];
        table.row(*size, figures.map(number));
    }
    table.print(options.markdown);
}

/// Measures one process on two cores against two processes of one core each.
fn cores(options: Options) {
    if Command::new("taskset").arg("--version").output().is_err() {
        println!("skipped: two cores: taskset is not installed");
        return;
    }
    let upstream = Child::upstream();
    let on = |cores: &str| {
        let program = ["taskset", "-c", cores].map(str::to_owned);
        Child::antiphon_under(upstream.address, &program)
    };
    let (both, first, second) = (on("0,1"), on("0"), on("1"));
    let head = &[
        "two cores",
        "one process : two",
        "one process, µs a request",
        "two processes",
    ];
    let mut table = Table::new("Processor time of a request on two cores", head);
    for (size, bytes) in &SIZES[..2] {
        let body = sized(Format::Anthropic, Shape::Balanced, *bytes);
        let request = request(Who::Ours, Format::Anthropic, upstream::TAKE, &body);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..if options.quick { 5 } else { 15 } {
            one.push(cost_of(&[&both], &request, upstream::ANSWER, 2000).seconds);
            two.push(cost_of(&[&first, &second], &request, upstream::ANSWER, 2000).seconds);
        }
        let ratio = median(one.iter().zip(&two).map(|(one, two)| one / two).collect());
        table.row(*size, [ratio, median(one) * 1e6, median(two) * 1e6].map(number));
    }
    table.print(options.markdown);
}

/// Measures each figure in its own process, since allocators seldom return memory.
fn memory(options: Options) {
    let head = &["memory", "floor", "ours", "ours : floor"];
    let mut table = Table::new("Memory", head);
    let mut row = |name: &str, measure: &dyn Fn(&Child, Who) -> f64| {
        let [floor, ours] = [Who::Floor, Who::Ours].map(|who| {
            let stage = Stage::start();
            warm(&stage, who);
            measure(stage.child(who), who)
        });
        table.row(name, [floor, ours, ours / floor].map(number));
    };
    row("resident after one request, MiB", &|child, _| child.resident() / MIB);
    for (name, shape) in [("healthy", Shape::Balanced), ("displaced", Shape::Displaced)] {
        let name = format!("peak over the bodies, four of 4 MiB at once, {name}");
        row(&name, &|child, who| peak(child, who, shape));
    }
    row("kB an idle stream after a request of 64 KiB", &idle);
    table.print(options.markdown);
}

fn warm(stage: &Stage, who: Who) {
    let body = sized(Format::Anthropic, Shape::Balanced, 4 << 10);
    let request = request(who, Format::Anthropic, upstream::TAKE, &body);
    Client::connect(stage.child(who).address).ask(&request);
    settle();
}

/// Returns the peak memory above idle with four bodies that end at the same moment, per byte of body.
fn peak(child: &Child, who: Who, shape: Shape) -> f64 {
    let body = sized(Format::Anthropic, shape, 4 << 20);
    let request = request(who, Format::Anthropic, upstream::TAKE, &body);
    let idle = child.resident();
    child.forget_peak();
    let barrier = Barrier::new(4);
    let together = || {
        barrier.wait();
        // The bytes sent so far are read meanwhile.
        thread::sleep(Duration::from_millis(200));
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            let ask = || Client::connect(child.address).ask_late(&request, together);
            scope.spawn(move || assert_eq!(ask(), upstream::ANSWER));
        }
    });
    (child.peak() - idle) / (4 * body.len()) as f64
}

/// Returns the memory of a stream that waits for its next event.
fn idle(child: &Child, who: Who) -> f64 {
    let body = sized(Format::Anthropic, Shape::Balanced, 64 << 10);
    let request = request(who, Format::Anthropic, upstream::IDLE, &body);
    let before = child.resident();
    let mut clients: Vec<Client> = (0..STREAMS).map(|_| Client::connect(child.address)).collect();
    for client in &mut clients {
        client.open(&request);
    }
    thread::sleep(Duration::from_millis(200));
    (child.resident() - before) / STREAMS as f64 / 1e3
}

/// Measures the time from the start of the process to its first connection.
fn start(options: Options) {
    let provider = Child::upstream();
    let (mut floor, mut ours, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if options.quick { 5 } else { 20 } {
        floor.push(Child::floor(provider.address).start.as_secs_f64() * 1e3);
        let child = Child::antiphon(provider.address);
        ours.push(child.start.as_secs_f64() * 1e3);
        settle();
        resident.push(child.resident() / MIB);
    }
    let mut table = Table::new("Start", &["start", "floor", "ours"]);
    table.row("start to listening, ms", [median(floor), median(ours)].map(number));
    table.row("resident when idle, MiB", ["-".to_owned(), number(median(resident))]);
    table.print(options.markdown);
}
