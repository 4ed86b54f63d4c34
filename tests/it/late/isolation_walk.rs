//! Random walk over the whole proxy on paused time: no caller ever receives another caller's result.
//!
//! Each result is a canary that names its owner. Every request upstream and every answer of `/ledger/v1` is searched
//! for foreign canaries.
//!
//! `STEPS=` sets the number of steps, `SEED=<n>` replays another walk, `SEED=random` takes a new one.

use std::{collections::BTreeMap, time::Instant};

use crate::ledger::switchable::durable;
use crate::support::{
    crowd::{Counts, Run},
    kept::without_principals,
    search::{Habits, Wrong},
    seed::seed,
};

const STEPS: u64 = 4_000;
/// Steps with one ledger.
const ROUND: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub(crate) type Found = BTreeMap<Wrong, Vec<String>>;

/// Plays the runs of a seed. Returns the event counts and everything that went wrong.
pub(crate) async fn runs(seed: u64, steps: u64, habits: Habits) -> (Counts, Found) {
    let (mut counts, mut wrong) = (Counts::new(), Found::new());
    for round in 0..steps.div_ceil(ROUND) {
        let seed = seed + round;
        let mut run = Run::new(durable(), seed, habits).await;
        for step in 0..ROUND {
            let before = run.wrong.len();
            run.step().await;
            for (kind, told) in &run.wrong[before..] {
                let told = format!("SEED={seed} STEPS={ROUND} step {step}: {told}");
                wrong.entry(*kind).or_default().push(told);
            }
        }
        for (what, times) in run.counts {
            *counts.entry(what).or_default() += times;
        }
    }
    (counts, wrong)
}

async fn check_walk(steps: u64, habits: Habits) -> Counts {
    let seed = seed();
    let (steps, began) = (number("STEPS").unwrap_or(steps), Instant::now());
    println!("SEED={seed} STEPS={steps}");
    let (counts, wrong) = runs(seed, steps, habits).await;
    println!("{:?}: {counts:?}", began.elapsed());
    for (kind, found) in &wrong {
        println!("{kind:?}: {} times, first {}", found.len(), found[0]);
    }
    assert!(wrong.is_empty(), "SEED={seed}: {:?}", wrong.keys());
    counts
}

#[tokio::test(start_paused = true)]
async fn no_caller_receives_another_callers_result() {
    let counts = check_walk(STEPS, Habits::default()).await;
    let wanted = [
        "restored",
        "appended",
        "came back",
        "ambiguous",
        "prefixes",
        "restarts",
        "due",
    ];
    for what in wanted
        .iter()
        .chain(&["restored in chat", "appended in chat", "replayed", "moved"])
    {
        let is_short = counts["exchanges"] < 1_000;
        assert!(is_short || counts.contains_key(what), "nothing {what}: {counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn weak_ids_with_an_owner_select_no_call() {
    let habits = Habits {
        weak_owners: true,
        ..Habits::default()
    };
    check_walk(2_000, habits).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_words_are_separate_anchors() {
    let habits = Habits {
        repeats: true,
        ..Habits::default()
    };
    check_walk(2_000, habits).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_with_equal_input_are_separate_calls() {
    let habits = Habits {
        same_inputs: true,
        ..Habits::default()
    };
    check_walk(2_000, habits).await;
}

/// The same walk detects a ledger that ignores principals.
#[tokio::test(start_paused = true)]
async fn a_ledger_without_principals_is_detected() {
    let mut run = Run::new(without_principals(), 1, Habits::default()).await;
    for step in 0..2_000 {
        run.step().await;
        if let Some((_, told)) = run.wrong.iter().find(|(kind, _)| *kind == Wrong::Crossing) {
            println!("found at step {step}: {told}");
            return;
        }
    }
    panic!("no crossing was found: {:?}", run.counts);
}
