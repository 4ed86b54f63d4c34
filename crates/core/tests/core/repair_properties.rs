//! Properties of repair over generated and mangled bodies, for every wire.
//!
//! `CASES=` sets the number of bodies, `SEED=` replays one. A failure prints its seed.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cases and the seed come from the environment"
)]

use std::collections::BTreeMap;

use antiphon_core::repair::{Mode, RepairPolicy, RepairReport, Repaired};
use antiphon_core::wire::{Dialect, Format, Wire};
use bytes::Bytes;
use serde_json::{Value, value::RawValue};

use crate::judge_cases;
use crate::support::{
    bodies::{self, Break, Conversation, Rng, Role, Shape},
    judge::{self, Kind},
};

/// Number of mangled bodies. Healthy bodies are extra, half as many.
const CASES: u64 = 3400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Returns the seeds to try, each with a wire. The wires alternate.
fn seeds(count: u64) -> impl Iterator<Item = (u64, Wire)> {
    let only = number("SEED");
    let count = number("CASES").unwrap_or(CASES) * count / CASES;
    let range = only.map_or(0..count, |seed| seed..seed + 1);
    let wire = |seed: u64| Wire::NAMES[usize::try_from(seed).unwrap() % Wire::NAMES.len()].1;
    range.map(move |seed| (seed, wire(seed)))
}

fn mend(body: &[u8], wire: Wire) -> Repaired {
    let body = Bytes::copy_from_slice(body);
    antiphon_core::repair(&body, wire, &RepairPolicy::default()).expect("a readable body")
}

fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)))
}

/// Returns the text of a failure: the replay seed, the damage, and the body before and after.
fn story(seed: u64, wire: Wire, kinds: &[Break], before: &[u8], after: &[u8]) -> String {
    format!(
        "SEED={seed} wire {wire} breaks {kinds:?}\n--- in\n{}\n--- out\n{}\n",
        String::from_utf8_lossy(before),
        String::from_utf8_lossy(after)
    )
}

#[test]
fn a_healthy_body_keeps_its_buffer() {
    for (seed, wire) in seeds(1700) {
        let body = Bytes::from(bodies::healthy(seed, wire).bytes());
        let told = story(seed, wire, &[], &body, &[]);
        judge::of(wire)(&parse(&body)).unwrap_or_else(|refusal| panic!("generator: {refusal:?}\n{told}"));
        let out = antiphon_core::repair(&body, wire, &RepairPolicy::default()).expect("a readable body");
        assert_eq!(out.report, RepairReport::default(), "{told}");
        assert!(out.body.is_original(), "{told}");
        assert_eq!(out.body.len(), body.len(), "{told}");
        assert_eq!(out.body.parts().len(), 1, "{told}");
        assert_eq!(out.body.parts()[0].as_ptr(), body.as_ptr(), "{told}");
        assert_eq!(
            antiphon_core::check(&body, wire, &RepairPolicy::default()),
            Ok(Vec::new()),
            "{told}"
        );
    }
}

/// Healthy bodies that a JSON tree could not represent.
#[test]
fn a_healthy_body_with_odd_json_is_unchanged() {
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    for odd in [
        r#""\ud83d""#,
        "1e400",
        "-0",
        "123456789012345678901234567890",
        deep.as_str(),
        r#"{"a":1,"a":2}"#,
    ] {
        let anthropic = format!(
            r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":[{{"type":"tool_use",
            "id":"toolu_1","name":"f","input":{{"x":{odd}}}}}]}},{{"role":"user","content":[{{"type":"tool_result",
            "tool_use_id":"toolu\u005f1","content":"ok"}}]}}]}}"#
        );
        let chat = format!(
            r#"{{"messages":[{{"role":"user","content":"go","x":{odd}}},{{"role":"assistant","content":null,
            "tool_calls":[{{"id":"call_1","type":"function","function":{{"name":"f","arguments":"{{"}}}}]}},
            {{"role":"tool","tool_call_id":"call\u005f1","content":"ok"}}]}}"#
        );
        let responses = format!(
            r#"{{"input":[{{"role":"user","content":"go","x":{odd}}},{{"type":"function_call","call_id":"call_1",
            "name":"f","arguments":"{{"}},{{"type":"function_call_output","call_id":"call\u005f1","output":"ok",
            "x":{odd}}}]}}"#
        );
        let gemini = format!(
            r#"{{"contents":[{{"parts":[{{"text":"go"}}]}},{{"role":"model","parts":[{{"functionCall":{{"name":"f_1",
            "args":{{"x":{odd}}}}}}}]}},{{"role":"user","parts":[{{"functionResponse":{{"name":"f\u005f1",
            "response":{{"x":{odd}}}}}}}]}}]}}"#
        );
        for (body, wire) in [
            (anthropic, Wire::ANTHROPIC),
            (chat, Wire::OPENAI_CHAT),
            (responses, Wire::OPENAI_RESPONSES),
            (gemini, Wire::GEMINI),
        ] {
            let out = mend(body.as_bytes(), wire);
            assert!(out.body.is_original(), "{wire}: {odd:.40}");
            assert_eq!(out.report, RepairReport::default(), "{wire}: {odd:.40}");
        }
    }
}

/// Counts over a run.
#[derive(Debug, Default)]
struct Tally {
    bodies: usize,
    refused: usize,
    unrepairable: usize,
    deferred: usize,
    kinds: BTreeMap<Break, (usize, usize)>,
}

impl Tally {
    /// Guards against a vacuous test: mangling must break most bodies, and every kind of damage must break some.
    fn check(&self) {
        println!("{self:?}");
        if number("SEED").is_some() {
            return;
        }
        assert!(self.refused * 2 > self.bodies, "mangling breaks too little");
        assert!(self.unrepairable * 10 < self.bodies, "too much is given up");
        assert!(self.deferred * 10 < self.bodies, "too much is left out");
        if self.bodies < 2000 {
            return;
        }
        for kind in Break::ALL {
            let (done, refused) = self.kinds.get(&kind).copied().unwrap_or_default();
            assert!(done > 0, "{kind:?} was never done");
            assert!(refused > 0, "{kind:?} was never refused");
        }
    }
}

#[test]
fn a_mangled_body_is_accepted_after_repair_without_loss() {
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for (seed, wire) in seeds(CASES) {
        let (talk, kinds) = bodies::mangle(seed, wire);
        let body = talk.bytes();
        let refused = judge::of(wire)(&parse(&body)).is_err();
        tally.bodies += 1;
        tally.refused += usize::from(refused);
        for kind in &kinds {
            let entry = tally.kinds.entry(*kind).or_default();
            *entry = (entry.0 + 1, entry.1 + usize::from(refused));
        }
        if let Err(words) = check_repaired(&talk, &body, refused, &mut tally) {
            *failed
                .entry(format!("{wire} {}", words.split(':').next().unwrap_or_default()))
                .or_default() += 1;
            if failures.len() < 5 {
                let out = mend(&body, wire).body.to_vec();
                failures.push(format!("{words}\n{}", story(seed, wire, &kinds, &body, &out)));
            }
        }
    }
    tally.check();
    assert!(failures.is_empty(), "{failed:#?}\n{}", failures.join("\n"));
}

/// Checks one mangled body after repair.
fn check_repaired(talk: &Conversation, body: &[u8], refused: bool, tally: &mut Tally) -> Result<(), String> {
    let wire = talk.wire;
    let first = mend(body, wire);
    let out = first.body.to_vec();
    let (before, after): (Value, Value) = match serde_json::from_slice(&out) {
        Ok(after) => (parse(body), after),
        Err(error) => return Err(format!("invalid JSON: {error}")),
    };
    if first.body.is_original() != (out == body) {
        return Err("bytes changed without a word of it, or the reverse".into());
    }
    if !refused && first.report.findings.is_empty() && !first.body.is_original() {
        return Err("an edit without a finding".into());
    }
    // If the provider's rules are known, an accepted body must pass byte for byte.
    let known = matches!(
        wire.dialect,
        Dialect::Standard | Dialect::Bedrock | Dialect::DeepSeek | Dialect::MiniMax
    );
    if known && !refused && !first.body.is_original() {
        return Err("an accepted body was edited".into());
    }
    tally.deferred += usize::from(first.report.deferred > 0);
    match judge::of(wire)(&after) {
        _ if first.report.unrepairable > 0 => tally.unrepairable += 1,
        Err(refusal) if is_field_under_thinking(talk, &refusal.message) => tally.unrepairable += 1,
        Err(refusal) => return Err(format!("still refused: {}", refusal.message)),
        Ok(()) => {}
    }
    let again = mend(&out, wire);
    if !again.body.is_original() {
        let twice = String::from_utf8(again.body.to_vec()).unwrap();
        return Err(format!("not stable (S1): a second repair gives {twice}"));
    }
    let lost = judge::lost(&before, &after);
    let results = lost.iter().filter(|(kind, _)| *kind == Kind::Result).count();
    // A deferred result contains three texts at most.
    let left_out = results.min(3 * first.report.deferred);
    if lost.len() > left_out {
        return Err(format!("lost: {lost:?}"));
    }
    check_outside_history(body, &out)
}

/// Reports whether a refusal is about a field in a body with signed thinking, whose turn must not be edited.
fn is_field_under_thinking(talk: &Conversation, words: &str) -> bool {
    let field = [
        "tool_use.input: ",
        "text content blocks must",
        "must have non-empty content",
    ];
    talk.messages.iter().any(bodies::Message::thinks) && field.iter().any(|known| words.contains(known))
}

/// Refusals that repair may leave: not about tool calls, or not repairable without loss. Each is part of the refusal or
/// of the row.
const BESIDE: [&str; 21] = [
    "toolset_name",
    "Unexpected role 'system'",
    "cache_control",
    "blocks can only be in `assistant` messages",
    "`system` message must follow",
    ".role",
    "may hold only `tool_result` blocks",
    "can have a name",
    "More tool messages than open tool calls",
    "required following item",
    "Duplicate item found with id",
    "Expected an ID that begins with",
    "missing a thought_signature",
    "u \"go\"; call f",
    "Invalid value: 'tool'",
    "Please use a valid role",
    "contents.parts must not be empty",
    "Name cannot be empty",
    "google.protobuf.Struct",
    "missing field `output`",
    "mute",
];

/// Hand-written bodies of the judge's tests: accepted bodies stay unchanged, refused bodies are repaired.
#[test]
fn hand_written_bodies_are_unchanged_or_repaired() {
    let mut failures = Vec::new();
    for (wire, short, value, accepted) in judge_cases::rows() {
        let body = value.to_string().into_bytes();
        let out = mend(&body, wire);
        if accepted {
            if !out.body.is_original() || !out.report.findings.is_empty() {
                failures.push(format!("{wire}: accepted, but edited or found fault with: {short}"));
            }
            continue;
        }
        let written = out.body.to_vec();
        let after = parse(&written);
        let before = judge::of(wire)(&value).expect_err("a refused row").message;
        let exempt = out.report.unrepairable > 0
            || BESIDE
                .iter()
                .any(|words| before.contains(words) || short.contains(words));
        if let Err(refusal) = judge::of(wire)(&after)
            && !exempt
        {
            failures.push(format!("{wire}: still refused: {short}: {}", refusal.message));
        }
        if !mend(&written, wire).body.is_original() {
            failures.push(format!("{wire}: not stable: {short}"));
        }
        let lost = judge::lost(&value, &after);
        if !lost.is_empty() && out.report.deferred == 0 {
            failures.push(format!("{wire}: lost {lost:?}: {short}"));
        }
    }
    assert!(failures.is_empty(), "{} rows:\n{}", failures.len(), failures.join("\n"));
}

/// Returns the members of an object and the key of the one with the history: a format's key or one of Gemini's
/// wrappers.
fn members(body: &[u8]) -> (BTreeMap<String, &RawValue>, String) {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap();
    let keys = ["messages", "input", "contents", "request", "generateContentRequest"];
    let key = keys.iter().find(|key| members.contains_key(**key)).expect("a history");
    (members, (*key).to_owned())
}

/// Returns the bytes before and after the history.
fn frame(body: &[u8]) -> (&[u8], &[u8]) {
    let mut inner = body;
    loop {
        let (members, key) = members(inner);
        let value = members[&key].get();
        inner = value.as_bytes();
        if !value.starts_with('{') {
            break;
        }
    }
    let start = inner.as_ptr() as usize - body.as_ptr() as usize;
    (&body[..start], &body[start + inner.len()..])
}

/// Returns the bytes of each member beside the history.
fn beside(body: &[u8]) -> Vec<(String, String)> {
    let (members, history) = members(body);
    let others = members.into_iter().filter(|(key, _)| *key != history);
    others.map(|(key, value)| (key, value.get().to_owned())).collect()
}

/// Checks that everything outside the history keeps its bytes.
fn check_outside_history(before: &[u8], after: &[u8]) -> Result<(), String> {
    if beside(before) != beside(after) || frame(before) != frame(after) {
        return Err("bytes outside the history changed".into());
    }
    Ok(())
}

/// The output shares the input's bytes, and new bytes are few.
#[test]
fn a_repair_writes_few_new_bytes() {
    for (format, wire) in [
        (Format::Anthropic, Wire::ANTHROPIC),
        (Format::OpenAiChat, Wire::OPENAI_CHAT),
        (Format::OpenAiResponses, Wire::OPENAI_RESPONSES),
        (Format::Gemini, Wire::GEMINI),
    ] {
        for shape in [Shape::Orphan, Shape::Displaced] {
            let body = Bytes::from(bodies::sized(format, shape, 200_000));
            // Responses accepts an output at any place.
            let legal = shape == Shape::Displaced && format == Format::OpenAiResponses;
            assert_eq!(judge::of(wire)(&parse(&body)).is_ok(), legal, "{wire} {shape:?}");
            let out = antiphon_core::repair(&body, wire, &RepairPolicy::default())
                .expect("a readable body")
                .body;
            judge::of(wire)(&parse(&out.to_vec())).expect("a mended body");
            let inside = |part: &Bytes| body.as_ptr_range().contains(&part.as_ptr());
            let own: usize = out.parts().iter().filter(|part| !inside(part)).map(Bytes::len).sum();
            assert!(own < 2000, "{wire} {shape:?}: {own} bytes written for one finding");
        }
        let balanced = bodies::sized(format, Shape::Balanced, 200_000);
        assert!(mend(&balanced, wire).body.is_original(), "{wire}");
    }
}

/// Stability from one request to the next (S2), if the client fills no gap in between.
#[test]
fn the_next_output_begins_with_the_earlier_one() {
    stable(false);
}

/// S2 for requests that end with the model's own message. Its open calls get answers after it, so the model's next
/// message is a new turn. The client's log has two assistant messages in a row there.
#[test]
fn a_trailing_call_keeps_its_first_answer() {
    stable(true);
}

/// Checks S2 over bodies that end with an assistant message, or over all others.
fn stable(trailing: bool) {
    let (mut compared, mut exempt) = (0, 0);
    let mut failures = Vec::new();
    for (seed, wire) in seeds(2000) {
        let (talk, kinds) = bodies::mangle(seed, wire);
        if talk
            .messages
            .last()
            .is_some_and(|message| message.role == Role::Assistant)
            != trailing
        {
            continue;
        }
        let grown = bodies::grow(&talk, seed);
        let (body, next) = (talk.bytes(), grown.bytes());
        let (one, two) = (mend(&body, wire), mend(&next, wire));
        let unsent = one.report.unrepairable > 0 || judge::of(wire)(&parse(&one.body.to_vec())).is_err();
        if unsent || kinds.contains(&Break::ServerHalf) {
            exempt += 1;
            continue;
        }
        compared += 1;
        let (early, late) = (one.body.to_vec(), two.body.to_vec());
        let (sent, now) = (judge::blocks(&parse(&early)), judge::blocks(&parse(&late)));
        if !now.starts_with(&sent) {
            let at = sent.iter().zip(&now).take_while(|(a, b)| a == b).count();
            if failures.len() < 3 {
                failures.push(format!(
                    "differs at block {at}\n{}",
                    story(seed, wire, &kinds, &next, &late)
                ));
            }
        }
    }
    println!("compared {compared}, exempt {exempt}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(number("SEED").is_some() || compared > exempt, "too few bodies compared");
}

/// Equal body, wire and policy give equal bytes.
#[test]
fn repair_is_deterministic() {
    for (seed, wire) in seeds(200) {
        let body = bodies::mangle(seed, wire).0.bytes();
        let (one, two) = (mend(&body, wire), mend(&body, wire));
        assert_eq!(one.body.to_vec(), two.body.to_vec(), "SEED={seed}");
        assert_eq!(one.report, two.report, "SEED={seed}");
    }
}

/// Arbitrary bytes never panic, and a readable body comes out as valid JSON.
#[test]
fn arbitrary_bytes_are_harmless() {
    for (seed, wire) in seeds(1700) {
        let mut rng = Rng::new(seed ^ 0xA5A5);
        let whole = bodies::mangle(seed, wire).0.bytes();
        let body = match rng.below(4) {
            0 => (0..rng.below(200))
                .map(|_| *rng.pick(b"{}[]\",:\\ \nmesagrolcnt_ui0123456789eE-+.ulfa\xff\xc3"))
                .collect(),
            1 => whole[..rng.below(whole.len() + 1)].to_vec(),
            2 => {
                let mut body = whole;
                for _ in 0..rng.within(1, 8) {
                    let at = rng.below(body.len());
                    body[at] = *rng.pick(b"{}[]\",:\\ 0nt\x00\xff");
                }
                body
            }
            _ => {
                let mut body = whole;
                let (a, b) = (rng.below(body.len()), rng.below(body.len()));
                body.drain(a.min(b)..a.max(b));
                body
            }
        };
        harmless(seed, &body, wire);
    }
}

/// JSON that is no conversation, or hardly one.
#[test]
fn odd_shapes_are_harmless() {
    let rows = [
        "",
        " ",
        "null",
        "[]",
        "{}",
        "\"messages\"",
        "0",
        "{\"messages\":null}",
        "{\"messages\":[]}",
        "{\"messages\":{}}",
        r#"{"messages":[null,1,"x",[],{}]}"#,
        r#"{"messages":[{"role":1,"content":2}]}"#,
        r#"{"messages":[{"role":"user"},{"role":"assistant"},{"role":"tool"}]}"#,
        r#"{"messages":[{"role":"assistant","content":[null,1,"x",[],{},{"type":3},{"type":"tool_use"}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":5}]}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":{}},{"role":"assistant","tool_calls":[null,{},{"id":7}]}]}"#,
        r#"{"messages":[{"role":"user","content":"a"}],"messages":[{"role":"tool","content":"b"}]}"#,
        "\u{feff}{\"messages\":[]}",
        r#"{"messages":[{"role":"assistant","role":"user","content":"x","content":[{"type":"tool_use","id":"a","id":"b"}]}]}"#,
        r#"{"input":null}"#,
        r#"{"input":[]}"#,
        r#"{"input":"go"}"#,
        r#"{"input":[null,1,"x",[],{},{"type":3},{"type":"function_call"},{"type":"function_call_output","call_id":7}]}"#,
        r#"{"input":[],"input":[{"type":"function_call","call_id":"a"}]}"#,
        r#"{"input":[{"type":"function_call","type":"function_call_output","call_id":"a","call_id":"b"}]}"#,
        r#"{"input":[{"type":"shell_call","call_id":"a"},{"type":"computer_call","call_id":null}],"conversation":5}"#,
        r#"{"contents":null}"#,
        r#"{"contents":[]}"#,
        r#"{"contents":{"parts":[{"text":"go"}]}}"#,
        r#"{"contents":[null,1,"x",[],{},{"parts":null},{"parts":{}},{"parts":[null,1,"x",[],{}]}]}"#,
        r#"{"contents":[{"role":"model","parts":[{"functionCall":null},{"functionCall":[]},{"function_call":{"id":7}}]}]}"#,
        r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"a"},"function_call":{"name":"b"}}]}]}"#,
        r#"{"contents":[],"generateContentRequest":{"contents":[{"role":"model","parts":[{"functionCall":{}}]}]}}"#,
        r#"{"request":5,"generateContentRequest":[],"batch":{"inputConfig":{"requests":{"requests":[1,{"request":2}]}}}}"#,
        r#"{"requests":[1,{"params":{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}]}}]}"#,
        // Invalid JSON at places that are only parsed before an edit.
        r#"{"input":[{"type":"function_call_output","call_id":"x","output":[{"type"x}]}]}"#,
        r#"{"input":[{"type":"reasoning","summary":[{"text"x}]},{"type":"computer_call","call_id":"x"}]}"#,
        r#"{"contents":[{"parts":[{"functionResponse":{"name":"x","response":{"a"x},"parts":[{]}}]}]}"#,
        r#"{"requests":[{"params":{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","input":{x}}]}]}},
            {"params":{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","input":{}}]}]}}]}"#,
    ];
    for row in rows {
        for (_, wire) in Wire::NAMES {
            harmless(0, row.as_bytes(), *wire);
        }
    }
}

fn harmless(seed: u64, body: &[u8], wire: Wire) {
    let shared = Bytes::copy_from_slice(body);
    let out = antiphon_core::repair(&shared, wire, &RepairPolicy::default());
    let checked = antiphon_core::check(body, wire, &RepairPolicy::default());
    assert_eq!(
        out.is_ok(),
        checked.is_ok(),
        "SEED={seed}: repair and check read differently"
    );
    let Ok(out) = out else { return };
    if out.body.is_original() {
        assert_eq!(out.body.to_vec(), body, "SEED={seed}");
        return;
    }
    let written = out.body.to_vec();
    let valid = serde_json::from_slice::<&RawValue>(&written).is_ok();
    assert!(
        valid,
        "SEED={seed} wire {wire}: an edit broke the JSON\n{}",
        String::from_utf8_lossy(&written)
    );
}

/// Number of elements in a large body, times five with `ANTIPHON_WALK=1`. How the work grows with them is counted by
/// `step_growth.rs`, and timed by `linear_work.rs`.
const COUNT: usize = 20_000;

/// Returns `count` items, or five times as many, separated by commas.
fn many(count: usize, item: &dyn Fn(usize) -> String) -> String {
    let times = if std::env::var_os("ANTIPHON_WALK").is_some() {
        5
    } else {
        1
    };
    (0..count * times).map(item).collect::<Vec<_>>().join(",")
}

/// Returns a body with these messages after a first one.
fn body(messages: impl std::fmt::Display) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"go"}},{messages}]}}"#)
}

fn finishes(name: &str, body: &str, wire: Wire) {
    let out = mend(body.as_bytes(), wire);
    println!(
        "{name}: {} bytes in, {} out, {:?}",
        body.len(),
        out.body.len(),
        out.report.actions
    );
}

/// Large and degenerate bodies finish. There is no time limit, so that a slow machine does not fail the test.
#[test]
fn large_bodies_finish() {
    let call = |n: usize| format!(r#"{{"type":"tool_use","id":"toolu_{n}","name":"f","input":{{}}}}"#);
    let result = |n: usize| format!(r#"{{"type":"tool_result","tool_use_id":"toolu_{n}","content":"r"}}"#);
    let turn = |role: &str, blocks: String| format!(r#"{{"role":"{role}","content":[{blocks}]}}"#);
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let rows = [
        (
            "deep",
            body(turn("assistant", format!(r#"{{"type":"text","text":"a","x":{deep}}}"#))),
        ),
        (
            "deep result",
            body(turn(
                "user",
                format!(r#"{{"type":"tool_result","tool_use_id":"a","content":{deep}}}"#),
            )),
        ),
        ("calls in one message", body(turn("assistant", many(COUNT, &call)))),
        ("equal calls", body(turn("assistant", many(COUNT, &|_| call(1))))),
        ("equal results", body(turn("user", many(COUNT, &|_| result(1))))),
        (
            "answered",
            body(format!(
                "{},{}",
                turn("assistant", many(COUNT, &call)),
                turn("user", many(COUNT, &result))
            )),
        ),
        ("messages", body(many(COUNT, &|n| turn("assistant", call(n))))),
        (
            "messages with equal ids",
            body(many(COUNT, &|n| {
                if n % 2 == 0 {
                    turn("assistant", call(1))
                } else {
                    turn("user", result(1))
                }
            })),
        ),
        (
            "all late",
            body(format!(
                "{},{}",
                many(COUNT / 4, &|n| turn("assistant", call(n))
                    + r#",{"role":"user","content":"x"}"#),
                turn("user", many(COUNT / 4, &result))
            )),
        ),
    ];
    for (name, body) in rows {
        finishes(name, &body, Wire::ANTHROPIC);
    }
}

#[test]
fn large_chat_bodies_finish() {
    let call =
        |n: usize| format!(r#"{{"id":"call_{n}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}"#);
    let asks = |calls: String| format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#);
    let tool = |n: usize| format!(r#"{{"role":"tool","tool_call_id":"call_{n}","content":"r"}}"#);
    for body in [
        body(asks(many(COUNT, &call))),
        body(asks(many(COUNT, &|_| call(1)))),
        body(many(COUNT, &|_| tool(1))),
        body(format!("{},{}", asks(many(COUNT, &call)), many(COUNT, &tool))),
        body(format!(
            "{},{}",
            many(COUNT / 4, &|n| asks(call(n))),
            many(COUNT / 4, &tool)
        )),
    ] {
        finishes("chat", &body, Wire::OPENAI_CHAT);
    }
}

#[test]
fn large_responses_bodies_finish() {
    let call = |n: usize| format!(r#"{{"type":"function_call","call_id":"call_{n}","name":"f","arguments":"{{}}"}}"#);
    let output = |n: usize| format!(r#"{{"type":"function_call_output","call_id":"call_{n}","output":"r"}}"#);
    let body = |items: String| format!(r#"{{"input":[{{"role":"user","content":"go"}},{items}]}}"#);
    for body in [
        body(many(COUNT, &call)),
        body(many(COUNT, &|_| call(1))),
        body(many(COUNT, &output)),
        body(many(COUNT, &|_| output(1))),
        body(format!("{},{}", many(COUNT, &call), many(COUNT, &output))),
        body(format!("{},{}", many(COUNT, &output), many(COUNT, &call))),
        body(many(COUNT, &|n| {
            call(n) + r#",{"type":"reasoning","id":"rs","summary":[]},{"role":"user","content":"x"}"#
        })),
    ] {
        for wire in [Wire::OPENAI_RESPONSES, RESPONSES_IN_ORDER] {
            finishes("responses", &body, wire);
        }
    }
}

const RESPONSES_IN_ORDER: Wire = Wire {
    format: Format::OpenAiResponses,
    dialect: Dialect::DeepSeek,
};

#[test]
fn large_gemini_bodies_finish() {
    let call = |n: usize| format!(r#"{{"functionCall":{{"name":"f","args":{{}},"id":"c{n}"}}}}"#);
    let bare = |_: usize| r#"{"functionCall":{"name":"f"}}"#.to_owned();
    let response = |n: usize| format!(r#"{{"functionResponse":{{"name":"f","response":{{}},"id":"c{n}"}}}}"#);
    let unnamed = |_: usize| r#"{"functionResponse":{"name":"f","response":{}}}"#.to_owned();
    let turn = |role: &str, parts: String| format!(r#"{{"role":"{role}","parts":[{parts}]}}"#);
    let body = |contents: String| format!(r#"{{"contents":[{{"parts":[{{"text":"go"}}]}},{contents}]}}"#);
    for body in [
        body(turn("model", many(COUNT, &call))),
        body(turn("model", many(COUNT, &bare))),
        body(turn("user", many(COUNT, &response))),
        body(turn("user", many(COUNT, &unnamed))),
        body(turn("model", many(COUNT, &call)) + "," + &turn("user", many(COUNT, &response))),
        body(turn("model", many(COUNT, &bare)) + "," + &turn("user", many(COUNT, &unnamed))),
        body(many(COUNT, &|n| turn("model", call(n)))),
        body(many(COUNT / 4, &|_| {
            turn("model", bare(0)) + "," + &turn("user", unnamed(0))
        })),
        body(many(COUNT / 4, &|n| turn("model", call(n))) + "," + &turn("user", many(COUNT / 4, &response))),
    ] {
        finishes("gemini", &body, Wire::GEMINI);
    }
}

/// Repair is the default mode, and every wire has a judge.
#[test]
fn every_wire_is_judged() {
    assert_eq!(Mode::default().label(), "repair");
    for (name, wire) in Wire::NAMES {
        let talk = bodies::healthy(7, *wire);
        judge::of(*wire)(&parse(&talk.bytes())).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        assert!(wire.dialect != Dialect::Mistral || wire.format == Format::OpenAiChat);
    }
}
