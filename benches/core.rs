//! The repair core by format and size: read, pair, check, plan, splice, repair. `serde_json`, memchr and memcpy for
//! comparison.
//!
//! Each figure is the best of many short batches. A wrong result ends the bench, a slow one never does.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

#[path = "../tests/support/bodies/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the tests use more of it")]
mod bodies;
mod support;

use std::{collections::BTreeMap, hint::black_box};

use antiphon_core::{
    check,
    conversation::pairing::pair_history,
    repair,
    repair::{KnownResults, PairingContext, RepairPolicy, parse, plan},
    wire::Format,
};
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Value;

use bodies::{Shape, sized};
use support::{Options, SIZES, Table, Work, best, number, wire};

/// Seconds by the name of the measured step.
type Times = BTreeMap<&'static str, f64>;

/// A body, timed in its three shapes.
struct Row {
    name: String,
    bytes: usize,
    balanced: Times,
    orphan: Times,
    displaced: Times,
}

// The allocator of the binary: the core allocates little, but small bodies show the difference.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let Some(options) = Options::read() else { return };
    options.introduce(
        "core",
        "best of many batches of 0.1 ms and more; bodies are text, 10 to 20 bytes from escape to escape",
    );
    let sizes: &[(&str, usize)] = if options.quick { &SIZES[..3] } else { &SIZES };
    let mut rows = Vec::new();
    for format in Format::ALL {
        for (size, bytes) in sizes {
            let times = |shape| measure(options.quick, format, shape, *bytes);
            rows.push(Row {
                name: format!("{} {size}", format.label()),
                bytes: *bytes,
                balanced: times(Shape::Balanced),
                orphan: times(Shape::Orphan),
                displaced: times(Shape::Displaced),
            });
        }
    }
    print(options, &rows);
    options.conclude();
}

/// Creates a body, checks its output, and times the steps.
fn measure(quick: bool, format: Format, shape: Shape, bytes: usize) -> Times {
    let (wire, policy) = (wire(format), RepairPolicy::default());
    let body = Bytes::from(sized(format, shape, bytes));
    verify(&body, format, shape);
    let rules = wire.pairing_rules();
    let conversation = wire.read(&body).unwrap();
    let paired = parse(&body, wire).unwrap().pair(PairingContext::new(&policy));
    let known = KnownResults::default();
    let planned = plan(&paired, &known, &policy).unwrap();
    let mut copy = vec![0; body.len()];
    let mut works: Vec<Work<'_>> = vec![
        (
            "check",
            Box::new(|| drop(black_box(check(black_box(&body), wire, &policy)))),
        ),
        (
            "repair",
            Box::new(|| drop(black_box(repair(black_box(&body), wire, &policy)))),
        ),
        ("plan", Box::new(|| drop(black_box(plan(&paired, &known, &policy))))),
    ];
    if shape == Shape::Balanced {
        let more: [Work<'_>; 7] = [
            ("read", Box::new(|| drop(black_box(wire.read(black_box(&body)))))),
            (
                "pair",
                Box::new(|| drop(black_box(pair_history(black_box(&conversation), rules)))),
            ),
            (
                "memcpy",
                Box::new(|| {
                    copy.copy_from_slice(black_box(&body));
                    black_box(&mut copy);
                }),
            ),
            (
                "memchr",
                Box::new(|| assert_eq!(memchr::memchr(0, black_box(&body)), None)),
            ),
            (
                "skim",
                Box::new(|| {
                    black_box(serde_json::from_slice::<IgnoredAny>(black_box(&body)).unwrap());
                }),
            ),
            (
                "value",
                Box::new(|| drop(black_box(serde_json::from_slice::<Value>(black_box(&body)).unwrap()))),
            ),
            (
                "print",
                Box::new(|| {
                    let value: Value = serde_json::from_slice(black_box(&body)).unwrap();
                    drop(black_box(serde_json::to_vec(&value).unwrap()));
                }),
            ),
        ];
        works.extend(more);
    } else {
        let splice = || {
            drop(black_box(planned.splice(&paired, &body)));
        };
        works.push(("splice", Box::new(splice)));
    }
    let times = best(quick, &mut works);
    works.iter().map(|(name, _)| *name).zip(times).collect()
}

/// Checks that healthy bodies come out unchanged, and that broken ones are repaired once and completely.
fn verify(body: &Bytes, format: Format, shape: Shape) {
    let (wire, policy) = (wire(format), RepairPolicy::default());
    let findings = check(body, wire, &policy).unwrap();
    let done = repair(body, wire, &policy).unwrap();
    if shape == Shape::Balanced {
        assert!(findings.is_empty(), "a healthy body has findings");
        assert!(
            done.body.is_original() && done.body.parts() == [body.clone()],
            "a healthy body was touched"
        );
        return;
    }
    assert!(!findings.is_empty(), "a broken body has no findings");
    let mended = Bytes::from(done.body.to_vec());
    assert_ne!(mended, *body, "a broken body was not mended");
    assert!(
        check(&mended, wire, &policy).unwrap().is_empty(),
        "a mended body has findings"
    );
    let again = repair(&mended, wire, &policy).unwrap();
    assert!(again.body.is_original(), "a mended body is mended again");
}

fn print(options: Options, rows: &[Row]) {
    let head = &[
        "ratios",
        "check : IgnoredAny",
        "check : Value",
        "repair : Value + to_vec",
        "memcpy : check",
        "orphan",
        "displaced",
    ];
    let title = "How many times as fast as the control; for broken bodies, times as long as a healthy one";
    let mut ratios = Table::new(title, head);
    for row in rows {
        let healthy = &row.balanced;
        let figures = [
            healthy["skim"] / healthy["check"],
            healthy["value"] / healthy["check"],
            healthy["print"] / healthy["repair"],
            healthy["check"] / healthy["memcpy"],
            row.orphan["repair"] / healthy["repair"],
            row.displaced["repair"] / healthy["repair"],
        ];
        ratios.row(&row.name, figures.map(number));
    }
    ratios.print(options.markdown);

    let names = ["memcpy", "memchr", "skim", "value", "print", "read", "check", "repair"];
    let head = &[
        "GB/s, healthy",
        "memcpy",
        "memchr",
        "IgnoredAny",
        "Value",
        "Value + to_vec",
        "read",
        "check",
        "repair",
    ];
    let mut speeds = Table::new("Throughput", head);
    let mut times = Table::new("Time", &[&["µs, healthy"], &head[1..]].concat());
    for row in rows {
        let seconds = names.map(|name| row.balanced[name]);
        speeds.row(&row.name, seconds.map(|time| number(row.bytes as f64 / time / 1e9)));
        times.row(&row.name, seconds.map(|time| number(time * 1e6)));
    }
    speeds.print(options.markdown);
    times.print(options.markdown);

    let head = &[
        "µs",
        "pair",
        "plan",
        "orphan: plan",
        "splice",
        "repair",
        "displaced: plan",
        "splice",
        "repair",
    ];
    let mut steps = Table::new("After the reading: pairing, planning, splicing", head);
    for row in rows {
        let broken = |times: &Times| ["plan", "splice", "repair"].map(|name| times[name]);
        let seconds = [row.balanced["pair"], row.balanced["plan"]];
        let seconds = seconds
            .into_iter()
            .chain(broken(&row.orphan))
            .chain(broken(&row.displaced));
        steps.row(&row.name, seconds.map(|time| number(time * 1e6)));
    }
    steps.print(options.markdown);
}
