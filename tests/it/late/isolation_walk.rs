//! The whole proxy with late results, by chance and on paused time: nobody is ever given what is another's.
//!
//! Each result is a canary that says whose it is; every request upstream and every answer of `/ledger/v1` is searched for
//! those of others. `STEPS=` sets how long it goes on, `SEED=<n>` replays another walk, `SEED=random` takes a new one.

use std::{collections::BTreeMap, time::Instant};

use crate::support::{
    crowd::{Counts, Run},
    kept::{blind, lasting},
    search::{Habits, Wrong},
    seed::seed,
};

const STEPS: u64 = 4_000;
/// Steps over one ledger.
const ROUND: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

type Found = BTreeMap<Wrong, Vec<String>>;

/// Runs of a seed: how often what happened, and what is wrong.
async fn runs(seed: u64, steps: u64, habits: Habits) -> (Counts, Found) {
    let (mut counts, mut wrong) = (Counts::new(), Found::new());
    for round in 0..steps.div_ceil(ROUND) {
        let seed = seed + round;
        let mut run = Run::new(lasting(), seed, habits).await;
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

async fn nothing_is_wrong(steps: u64, habits: Habits) -> Counts {
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
async fn nobody_is_ever_given_what_is_anothers() {
    let counts = nothing_is_wrong(STEPS, Habits::default()).await;
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
async fn an_id_that_comes_again_is_no_address_even_with_its_owner() {
    let habits = Habits {
        weak_owners: true,
        ..Habits::default()
    };
    nothing_is_wrong(2_000, habits).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_said_again_is_another_place() {
    let habits = Habits {
        repeats: true,
        ..Habits::default()
    };
    nothing_is_wrong(2_000, habits).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_again_is_another_call() {
    let habits = Habits {
        same_inputs: true,
        ..Habits::default()
    };
    nothing_is_wrong(2_000, habits).await;
}

/// The same run finds a ledger that does not tell callers apart.
#[tokio::test(start_paused = true)]
async fn a_ledger_without_principals_is_found_out() {
    let mut run = Run::new(blind(), 1, Habits::default()).await;
    for step in 0..2_000 {
        run.step().await;
        if let Some((_, told)) = run.wrong.iter().find(|(kind, _)| *kind == Wrong::Crossing) {
            println!("found at step {step}: {told}");
            return;
        }
    }
    panic!("no crossing was found: {:?}", run.counts);
}
