//! Properties of the invariant over generated histories, for every wire. The engine and the strict provider judge them.
//!
//! `CASES=` sets the number of histories, `SEED=` replays one. A failure prints its seed.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cases and the seed come from the environment"
)]

use std::collections::BTreeMap;

use antiphon_core::{
    Invariant,
    conversation::{Finding, FindingKind},
    repair::{Placeholder, RepairPolicy},
    wire::{Format, Wire},
    work,
};
use serde_json::{Value, json};

use crate::support::{bodies, bodies::Rng, judge};

/// Number of histories.
const CASES: u64 = 450;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Returns the seeds to try, each with a wire. The wires alternate.
fn seeds() -> impl Iterator<Item = (u64, Wire)> {
    let count = number("CASES").unwrap_or(CASES);
    let range = number("SEED").map_or(0..count, |seed| seed..seed + 1);
    range.map(|seed| (seed, Wire::NAMES[usize::try_from(seed).unwrap() % Wire::NAMES.len()].1))
}

const fn history_key(wire: Wire) -> &'static str {
    match wire.format {
        Format::Anthropic | Format::OpenAiChat => "messages",
        Format::OpenAiResponses => "input",
        Format::Gemini => "contents",
    }
}

/// A body that has nothing but its history.
fn body_of(wire: Wire, history: &[Value]) -> Value {
    json!({ history_key(wire): history })
}

/// Returns the messages of a body. `None` if they are not in a list at its top.
fn history_of(wire: Wire, body: &[u8]) -> Option<Vec<Value>> {
    let body: Value = serde_json::from_slice(body).unwrap();
    body.get(history_key(wire))?.as_array().cloned()
}

fn load(wire: Wire, history: &[Value]) -> Invariant {
    let messages = history.iter().map(Value::to_string);
    Invariant::load(wire, messages).unwrap_or_else(|error| panic!("{wire}: {error}: {history:?}"))
}

fn check(wire: Wire, history: &[Value]) -> Vec<Finding> {
    let body = body_of(wire, history).to_string();
    antiphon_core::check(body.as_bytes(), wire, &RepairPolicy::default()).unwrap()
}

fn story(seed: u64, wire: Wire, history: &[Value]) -> String {
    let lines: Vec<String> = history.iter().map(Value::to_string).collect();
    format!("SEED={seed} wire {wire}\n{}\n", lines.join("\n"))
}

/// The kinds of findings, as a sorted list.
fn kinds(findings: &[Finding]) -> Vec<&'static str> {
    let mut kinds: Vec<_> = findings.iter().map(|finding| finding.kind.code()).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn a_healthy_history_is_sound_after_each_answered_turn() {
    let mut calls = 0;
    for (seed, wire) in seeds() {
        let Some(history) = history_of(wire, &bodies::healthy(seed, wire).bytes()) else {
            continue;
        };
        if !check(wire, &history).is_empty() {
            // Its body refers to calls at the provider, which the history alone does not.
            continue;
        }
        let mut invariant = Invariant::new(wire);
        for message in &history {
            invariant.observe(message.to_string().as_bytes()).unwrap();
            calls += invariant.open_calls().len();
        }
        invariant
            .before_persist()
            .map_err(|broken| kinds(&broken.findings))
            .unwrap_or_else(|kinds| panic!("{kinds:?}\n{}", story(seed, wire, &history)));
    }
    assert!(calls > 200 || number("SEED").is_some(), "only {calls} open calls");
}

/// Counts what a run has seen, so that it cannot pass without having tried anything.
#[derive(Debug, Default)]
struct Seen {
    sound: usize,
    broken: usize,
    closed: usize,
    refused: BTreeMap<String, usize>,
}

/// Says what the engine says about every prefix of a mangled history.
#[test]
fn the_guard_agrees_with_the_engine() {
    let (mut seen, mut failures) = (Seen::default(), Vec::new());
    for (seed, wire) in seeds() {
        let Some(history) = history_of(wire, &bodies::mangle(seed, wire).0.bytes()) else {
            continue;
        };
        let mut invariant = Invariant::new(wire);
        for (index, message) in history.iter().enumerate() {
            invariant.observe(message.to_string().as_bytes()).unwrap();
            let prefix = &history[..=index];
            let found = check(wire, prefix);
            let broken = invariant.before_persist().map_err(|broken| broken.findings).err();
            let told = broken.unwrap_or_default();
            seen.sound += usize::from(told.is_empty());
            seen.broken += usize::from(!told.is_empty());
            if found.is_empty() != told.is_empty() && !is_stricter(wire, prefix, &told) {
                let story = story(seed, wire, prefix);
                failures.push(format!("engine {:?}, guard {:?}\n{story}", kinds(&found), kinds(&told)));
                break;
            }
        }
    }
    println!("{seen:?}");
    assert!(
        number("SEED").is_some() || (seen.sound > 500 && seen.broken > 500),
        "{seen:?}"
    );
    assert!(
        failures.is_empty(),
        "{} failed\n{}",
        failures.len(),
        failures[..failures.len().min(4)].join("\n")
    );
}

/// Returns `true` if the guard may refuse what the engine takes: an end that breaks with the next message.
fn is_stricter(wire: Wire, prefix: &[Value], told: &[Finding]) -> bool {
    let last = prefix.len() - 1;
    let is_open_end = |finding: &Finding| {
        let open = finding.kind == FindingKind::Unanswered && wire.format == Format::Gemini;
        (open || finding.detail == Some("empty_message")) && finding.message == last
    };
    !told.is_empty() && told.iter().all(is_open_end)
}

/// Cuts a history anywhere, closes it, and asks the strict provider.
#[test]
fn a_closed_history_is_accepted() {
    let (mut seen, mut failures) = (Seen::default(), Vec::new());
    for (seed, wire) in seeds() {
        let mut rng = Rng::new(seed ^ 0x1A7E);
        let talk = if rng.chance(50) {
            bodies::healthy(seed, wire)
        } else {
            bodies::mangle(seed, wire).0
        };
        let Some(mut history) = history_of(wire, &talk.bytes()) else {
            continue;
        };
        history.truncate(rng.within(1, history.len().max(1)));
        if let Err(words) = check_closed(wire, &mut history, &mut seen) {
            failures.push(format!("{words}\n{}", story(seed, wire, &history)));
        }
    }
    println!("{seen:?}");
    let is_vacuous = seen.closed < 60 || seen.sound < 200 || seen.broken < 60;
    assert!(number("SEED").is_some() || !is_vacuous, "{seen:?}");
    assert!(
        failures.is_empty(),
        "{} failed\n{}",
        failures.len(),
        failures[..failures.len().min(4)].join("\n")
    );
}

/// Closes one history, and checks everything that holds afterwards.
fn check_closed(wire: Wire, history: &mut Vec<Value>, seen: &mut Seen) -> Result<(), String> {
    let mut invariant = load(wire, history);
    let open = invariant.open_calls();
    let closable = open.iter().filter(|call| call.can_be_closed).count();
    let results = invariant.close(Placeholder::OutcomeUnknown);
    let text = Placeholder::OutcomeUnknown.text();
    let written: usize = results.iter().map(|result| result.matches(text).count()).sum();
    let searches = results
        .iter()
        .filter(|result| result.contains("tool_search_output"))
        .count();
    if written + searches != closable {
        return Err(format!("{closable} calls can be closed, {written} were"));
    }
    seen.closed += usize::from(!results.is_empty());
    history.extend(
        results
            .iter()
            .map(|result| serde_json::from_str::<Value>(result).unwrap()),
    );
    if !invariant.close(Placeholder::OutcomeUnknown).is_empty() {
        return Err("closed twice".into());
    }
    if invariant.open_calls().iter().any(|call| call.can_be_closed) {
        return Err("calls are open after all were closed".into());
    }
    let told = invariant
        .before_persist()
        .map_err(|broken| broken.findings)
        .err()
        .unwrap_or_default();
    let again = load(wire, history)
        .before_persist()
        .map_err(|broken| broken.findings)
        .err()
        .unwrap_or_default();
    if told != again {
        return Err(format!(
            "told {:?}, and of the loaded history {:?}",
            kinds(&told),
            kinds(&again)
        ));
    }
    if !told.is_empty() {
        seen.broken += 1;
        return Ok(());
    }
    seen.sound += 1;
    // A false "sound" is the worst fault: what the guard lets pass must not be refused.
    match judge::of(wire)(&body_of(wire, history)) {
        Ok(()) => Ok(()),
        Err(refusal) if BESIDE.iter().any(|words| refusal.message.contains(words)) => {
            *seen
                .refused
                .entry(refusal.message.chars().take(40).collect())
                .or_default() += 1;
            Ok(())
        }
        Err(refusal) => Err(format!("refused: {}", refusal.message)),
    }
}

/// Refusals that are not about calls and results. The cut may leave reasoning without the item after it.
const BESIDE: [&str; 1] = ["required following item"];

/// Steps grow no faster than the history, with a check before each save.
#[test]
fn the_work_grows_with_the_history() {
    if !cfg!(debug_assertions) {
        return;
    }
    for (_, wire) in Wire::NAMES {
        let steps = |seed: u64, times: usize| {
            let Some(turns) = history_of(*wire, &bodies::healthy(seed, *wire).bytes()) else {
                return 0;
            };
            let (steps, ()) = work::measure(|| {
                let mut invariant = Invariant::new(*wire);
                for message in turns.iter().cycle().take(turns.len() * times) {
                    invariant.observe(message.to_string().as_bytes()).unwrap();
                    drop(invariant.before_persist());
                }
            });
            steps
        };
        let (few, many) = (steps(1, 10), steps(1, 40));
        assert!(many <= few * 5, "{wire}: {few} steps for 10 times, {many} for 40 times");
    }
}
