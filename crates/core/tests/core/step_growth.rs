//! The steps of a body grow no faster than its bytes: every kind of block with every fault, in every wire.
//!
//! Steps are counted (`crates/core/src/work.rs`), so nothing here depends on the machine. The default walk takes some of the
//! histories of each wire, and small ones, since debug builds are slow. `ANTIPHON_WALK=1` takes the same at a mebibyte
//! each, `ANTIPHON_WALK=all` every history of that size. `SEED=` chooses others.
#![cfg(debug_assertions)]
#![expect(clippy::disallowed_methods, reason = "the environment asks for the larger walk")]

use std::env;

use antiphon_core::{
    conversation::Outline,
    repair::{
        ContinuityKind, KnownResults, PairingContext, PlaceOptions, RefusalReading, RepairPolicy, client_results,
        continuity_gaps, late_places, lost_values, parse, plan, possible_findings, thinking_blocks,
    },
    wire::{Refusal, RefusalKind, Wire, detect_wire, plainly_other_format},
    work::measure,
};
use bytes::Bytes;

use crate::support::{
    bodies::Rng,
    faulty::{FaultyHistory, all_histories},
    seed::seed,
    shapes::{Layout, Shape, pieces},
};

/// Size of the larger body, in multiples of the smaller.
const TIMES: usize = 8;
/// Largest allowed steps of the larger body, in multiples of those of the smaller.
const RATIO_MAX: u64 = 12;
/// Steps that do not count: a list of a bounded length may just begin to fill in the smaller body.
const SLACK: u64 = 4_000;

/// Extent of a walk.
struct Walk {
    /// Bytes of the larger body.
    bytes: usize,
    /// Histories of each wire.
    histories: usize,
    /// One of this many histories goes through the uses besides the repair.
    used: usize,
}

impl Walk {
    fn chosen() -> Self {
        let walk = env::var("ANTIPHON_WALK").unwrap_or_default();
        let is_whole = walk == "all";
        Self {
            bytes: if walk.is_empty() { 32 * 1024 } else { 1024 * 1024 },
            histories: if is_whole { usize::MAX } else { 84 },
            used: if is_whole { 1 } else { 21 },
        }
    }
}

/// Returns the steps of each stage of the repair.
fn repair_steps(body: &Bytes, wire: Wire) -> Vec<(&'static str, u64)> {
    let policy = RepairPolicy::default();
    let (reading, parsed) = measure(|| parse(body, wire));
    let mut stages = vec![("parse", reading)];
    let Ok(parsed) = parsed else { return stages };
    let (pairing, paired) = measure(|| parsed.pair(PairingContext::new(&policy)));
    let (planning, plan) = measure(|| plan(&paired, &KnownResults::default(), &policy));
    stages.extend([("pair", pairing), ("plan", planning)]);
    if let Ok(plan) = plan {
        let splicing = measure(|| plan.splice(&paired, body).map(|done| done.to_vec())).0;
        stages.push(("splice", splicing));
    }
    stages
}

/// Returns the steps of the other uses of a body: what `check` reports, and what the proxy reads and resends.
fn use_steps(body: &Bytes, wire: Wire) -> Vec<(&'static str, u64)> {
    let policy = RepairPolicy::default();
    let mut uses = vec![
        ("check", measure(|| antiphon_core::check(body, wire, &policy)).0),
        (
            "possible findings",
            measure(|| possible_findings(body, wire, &policy)).0,
        ),
        ("lost values", measure(|| lost_values(body, wire, &policy)).0),
        ("detect", measure(|| detect_wire(body)).0),
        ("other format", measure(|| plainly_other_format(body, wire)).0),
    ];
    let Ok(parsed) = parse(body, wire) else { return uses };
    let (references, _) = measure(|| (parsed.remote_references(), parsed.thinking_hashes()));
    let (outlining, outline) = measure(|| parsed.outline());
    let paired = parsed.pair(PairingContext::new(&policy));
    let options = PlaceOptions {
        in_loops: true,
        before_turns: true,
    };
    uses.extend([
        ("references", references),
        ("outline", outlining),
        (
            "client results",
            measure(|| client_results(body, wire.format, &outline, true)).0,
        ),
        ("all calls", measure(|| paired.all_calls()).0),
        ("thinking", measure(|| thinking_blocks(&paired)).0),
        (
            "gaps",
            measure(|| continuity_gaps(&paired, &ContinuityKind::ALL, None)).0,
        ),
        ("places", measure(|| late_places(&paired, options)).0),
        ("refusal", measure(|| repair_refused(body, wire)).0),
    ]);
    uses
}

/// Repairs what a provider's 400 names, by both readings.
fn repair_refused(body: &Bytes, wire: Wire) {
    let policy = RepairPolicy::default();
    let own = (0..6).map(|index| format!("call_{index}"));
    let ids: Vec<String> = own.chain(["a".into(), "t 1!".into()]).collect();
    for kind in [
        RefusalKind::Unanswered,
        RefusalKind::Duplicate,
        RefusalKind::RepeatedItem,
    ] {
        let refusal = Refusal {
            row: "row".into(),
            kind,
            ids: ids.clone(),
            demand: None,
        };
        for reading in RefusalReading::ALL {
            let Ok(parsed) = parse(body, wire) else { return };
            let _ = parsed.is_blameless(&refusal);
            let paired = parsed.pair_refused(PairingContext::new(&policy), &refusal, reading);
            if let Ok(plan) = plan(&paired, &KnownResults::default(), &policy) {
                let _ = reading.is_met(&refusal, &plan.report.findings);
                drop(plan.splice(&paired, body));
            }
        }
    }
}

/// Returns the work that grows faster than the body of `count` blocks. `uses` adds the uses besides the repair.
fn find_growth(name: &str, wire: Wire, count: usize, body: impl Fn(usize) -> String, uses: bool) -> Vec<String> {
    let [small, large] = [count / TIMES, count].map(|count| Bytes::from(body(count)));
    let steps = |body: &Bytes| {
        let mut steps = repair_steps(body, wire);
        if uses {
            steps.extend(use_steps(body, wire));
        }
        steps
    };
    let pairs = steps(&small).into_iter().zip(steps(&large));
    let grown = pairs.filter(|((_, less), (_, more))| *more > RATIO_MAX * less + SLACK);
    let told =
        |((work, less), (_, more))| format!("{name}: {work}: {less}, then {more} steps in {} bytes", large.len());
    grown.map(told).collect()
}

/// Returns the number of blocks with which the body has about this many bytes: a multiple of [`TIMES`].
fn count_of(bytes: usize, body: impl Fn(usize) -> String) -> usize {
    let each = body(64).len().div_ceil(64);
    (bytes / each).max(TIMES).next_multiple_of(TIMES)
}

/// Walks the histories of every dialect of a format.
fn walk(format: &str) {
    let (walk, seed) = (Walk::chosen(), seed());
    println!("SEED={seed}");
    let mut faults = Vec::new();
    for (_, wire) in Wire::NAMES.iter().filter(|(name, _)| name.starts_with(format)) {
        let mut histories: Vec<FaultyHistory> = all_histories(*wire).collect();
        assert!(histories.len() >= 80, "{wire} has {} histories", histories.len());
        // A walk of a part takes each kind and each fault several times.
        let mut rng = Rng::new(seed);
        for at in 0..histories.len().min(walk.histories) {
            let other = at + rng.below(histories.len() - at);
            histories.swap(at, other);
        }
        for (index, history) in histories.iter().take(walk.histories).enumerate() {
            let body = |count| history.body(count);
            let uses = index.is_multiple_of(walk.used);
            faults.extend(find_growth(
                &history.name(),
                *wire,
                count_of(walk.bytes, body),
                body,
                uses,
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "{} kinds of work grow too fast:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn histories_of_messages() {
    walk("anthropic");
}

#[test]
fn histories_of_chats() {
    walk("openai-chat");
}

#[test]
fn histories_of_items() {
    walk("openai-responses");
}

#[test]
fn histories_of_contents() {
    walk("gemini");
}

/// Each piece, alone or with another one.
#[test]
fn histories_of_two_pieces() {
    let walk = Walk::chosen();
    let mut faults = Vec::new();
    for wire in [Wire::ANTHROPIC, Wire::OPENAI_CHAT, Wire::OPENAI_RESPONSES, Wire::GEMINI] {
        let pieces = pieces(wire.format);
        let seconds: Vec<_> = pieces.iter().filter(|piece| !piece.is_large()).collect();
        for (index, first) in pieces.iter().enumerate() {
            // Every layout occurs with every kind of piece, but not each with each.
            let (second, layout) = match index % 3 {
                0 => (index, Layout::Together),
                1 => (index * 7 + 3, Layout::Apart),
                _ => (index * 5 + 1, Layout::Mixed),
            };
            let shape = Shape {
                wire,
                first: *first,
                second: *seconds[second % seconds.len()],
                layout,
            };
            let body = |count| shape.body(count);
            let uses = index.is_multiple_of(walk.used);
            faults.extend(find_growth(&shape.name(), wire, count_of(walk.bytes, body), body, uses));
        }
    }
    assert!(
        faults.is_empty(),
        "{} kinds of work grow too fast:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Calls of two messages that alternate in the results: each of them is named together with a long message before it.
#[test]
fn results_of_two_long_messages() {
    let calls = |name: &str| {
        let call = |index| format!(r#"{{"type":"tool_use","id":"{name}{index}","name":"f","input":{{}}}}"#);
        let calls = (0..120).map(call).collect::<Vec<_>>().join(",");
        format!(r#"{{"role":"assistant","content":[{calls}]}}"#)
    };
    let result = |id: String| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"r"}}"#);
    let results = (0..120).flat_map(|index| ["a", "b"].map(|name| result(format!("{name}{index}"))));
    let results = results.collect::<Vec<_>>().join(",");
    let long = "x".repeat(200_000);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"{long}"}},{},{},{{"role":"user","content":[{results}]}}]}}"#,
        calls("a"),
        calls("b")
    );
    let outline: Outline = parse(body.as_bytes(), Wire::ANTHROPIC).unwrap().outline();
    let (steps, found) = measure(|| client_results(body.as_bytes(), Wire::ANTHROPIC.format, &outline, true));
    assert_eq!(found.len(), 240);
    assert!(steps < 8 * body.len() as u64, "{steps} steps for {} bytes", body.len());
}

/// Returns the steps of `work` with `count` blocks and with eight times as many, and fails if they grow too fast.
fn assert_grows_linearly(name: &str, count: usize, work: impl Fn(usize) -> u64) {
    let (less, more) = (work(count), work(count * TIMES));
    assert!(more <= RATIO_MAX * less, "{name}: {less}, then {more} steps");
}

/// Two calls a turn have one id of lone surrogates. All such ids become the same letters, so that each needs a number.
#[test]
fn ids_that_look_alike_in_many_turns() {
    let wire: Wire = "openai-responses-deepseek".parse().unwrap();
    assert_grows_linearly("ids of lone surrogates", 50, |turns| {
        let call = |id: &str| format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}}"#);
        let turn = |index: usize| {
            let id = format!("\\u{:04x}\\u{:04x}", 0xD800 + index / 1024, 0xD800 + index % 1024);
            format!(r#"{},{},{{"role":"user","content":"x"}}"#, call(&id), call(&id))
        };
        let body = format!(
            r#"{{"input":[{}]}}"#,
            (0..turns).map(turn).collect::<Vec<_>>().join(",")
        );
        let steps = repair_steps(&Bytes::from(body), wire);
        assert_eq!(steps.len(), 4, "the repair did not reach its last stage");
        steps.iter().map(|(_, steps)| steps).sum()
    });
}

/// Each finding of the dialect is compared with each one that a stricter server might have.
#[test]
fn possible_findings_beside_many_others() {
    assert_grows_linearly("possible findings", 50, |turns| {
        let call = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{}}"#;
        let turn = format!(
            r#"{{"role":"assistant","content":[{call},{{"type":"text","text":"x"}}]}},{{"role":"user","content":"x"}}"#
        );
        let turns = vec![turn; turns].join(",");
        let body = format!(r#"{{"messages":[{{"role":"user","content":"go"}},{turns}]}}"#);
        let (steps, found) = measure(|| possible_findings(body.as_bytes(), Wire::ANTHROPIC, &RepairPolicy::default()));
        assert!(!found.unwrap().is_empty());
        steps
    });
}

/// The message of an offset is searched for each result of a refused body.
#[test]
fn messages_are_found_by_their_offsets() {
    let message = r#"{"role":"user","content":"x"}"#;
    let body = format!(r#"{{"messages":[{}]}}"#, vec![message; 1000].join(", "));
    let policy = RepairPolicy::default();
    let paired = parse(body.as_bytes(), Wire::ANTHROPIC)
        .unwrap()
        .pair(PairingContext::new(&policy));
    let mut wanted = body.match_indices(message).enumerate();
    assert!(wanted.all(|(index, (at, _))| {
        let ends = [at, at + message.len() - 1];
        ends.iter().all(|at| paired.message_at(*at) == Some(index)) && paired.message_at(at + message.len()).is_none()
    }));
    assert_eq!((paired.message_at(0), paired.message_at(body.len())), (None, None));
}
