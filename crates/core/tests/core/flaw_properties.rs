//! Properties of histories with fields that their provider refuses for certain: one repair makes them acceptable, a second
//! adds no edit, nothing is lost, and a longer history begins like a shorter one.
//!
//! `SEED=` replays one body.
#![expect(clippy::disallowed_methods, reason = "the seed comes from the environment")]

use antiphon_core::{
    conversation::FindingKind,
    repair::{RepairPolicy, Repaired, repair},
    wire::{Dialect, Format, Wire},
};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::{
    bodies::{self, Rng},
    judge,
};

/// Number of bodies for each wire.
const COUNT: u64 = 60;

/// Places of the history in bodies of any format.
const HISTORIES: [&str; 5] = [
    "/messages",
    "/input",
    "/contents",
    "/request/contents",
    "/generateContentRequest/contents",
];

/// Returns the seeds of `count` bodies, or the one of the environment.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    one.map_or(0..count, |seed| seed..seed + 1)
}

/// Adds such fields to the history of `body`.
fn add_flaws(body: &mut Value, wire: Wire, rng: &mut Rng) {
    let path = HISTORIES
        .iter()
        .find(|path| body.pointer(path).is_some_and(Value::is_array));
    let Some(Value::Array(history)) = path.and_then(|path| body.pointer_mut(path)) else {
        return;
    };
    for message in history.iter_mut() {
        match wire.format {
            Format::Anthropic => unsign_thinking(message, wire.dialect, rng),
            Format::OpenAiChat => {
                spoil_content(message, rng);
                for call in list_of(message, "tool_calls") {
                    let takes_empty = !matches!(wire.dialect, Dialect::Standard | Dialect::Mistral);
                    if let Some(function) = call.get_mut("function") {
                        take_name(function, takes_empty, rng);
                    }
                }
            }
            Format::OpenAiResponses => {
                if message["type"] == "function_call" {
                    take_name(message, wire.dialect != Dialect::Standard, rng);
                } else if message["role"] == "assistant" && wire.dialect == Dialect::Standard {
                    for part in list_of(message, "content") {
                        if part["type"] == "output_text" && rng.chance(40) {
                            part["type"] = "input_text".into();
                        }
                    }
                }
            }
            Format::Gemini => {
                let parts = message.get_mut("parts").and_then(Value::as_array_mut);
                if let Some(parts) = parts.filter(|_| rng.chance(30)) {
                    let at = rng.below(parts.len() + 1);
                    parts.insert(at, rng.pick(&[json!({}), json!({"text": null})]).clone());
                }
            }
        }
    }
    if wire.format == Format::Gemini {
        for _ in 0..rng.below(4) {
            let empty = [
                json!({"role": "model", "parts": []}),
                json!({"role": "user", "parts": []}),
                json!({"role": "model"}),
                json!({"role": "user", "parts": [{}]}),
            ];
            let at = rng.below(history.len() + 1);
            history.insert(at, rng.pick(&empty).clone());
        }
    }
}

/// Returns the elements of a list in `message`.
fn list_of<'v>(message: &'v mut Value, key: &str) -> impl Iterator<Item = &'v mut Value> {
    let list = message.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn unsign_thinking(message: &mut Value, dialect: Dialect, rng: &mut Rng) {
    let is_verified = matches!(dialect, Dialect::Standard | Dialect::Bedrock);
    for block in list_of(message, "content").filter(|block| block["type"] == "thinking") {
        if is_verified && rng.chance(40) {
            block.as_object_mut().unwrap().remove("signature");
        }
    }
}

/// Makes an object or a list of data of the content of a tool message.
fn spoil_content(message: &mut Value, rng: &mut Rng) {
    if message["role"] == "tool" && rng.chance(40) {
        let said = message["content"].take();
        message["content"] = match rng.below(3) {
            0 => json!({"said": said}),
            1 => json!([{"said": said}, {"more": 1}]),
            _ => json!([{"type": "text", "text": "first"}, {"said": said}]),
        };
    }
}

/// Takes the name from a call. `takes_empty` is `true` if the provider accepts an empty one.
fn take_name(call: &mut Value, takes_empty: bool, rng: &mut Rng) {
    if !rng.chance(30) {
        return;
    }
    match rng.below(if takes_empty { 2 } else { 3 }) {
        0 => drop(call.as_object_mut().unwrap().remove("name")),
        1 => call["name"] = Value::Null,
        _ => call["name"] = "".into(),
    }
}

fn mend(body: &Value, wire: Wire) -> Repaired {
    repair(&Bytes::from(body.to_string()), wire, &RepairPolicy::default()).unwrap()
}

fn value_of(repaired: &Repaired) -> Value {
    serde_json::from_slice(&repaired.body.to_vec()).unwrap()
}

#[test]
fn histories_with_refused_fields_are_accepted_after_one_repair() {
    let mut mended = 0;
    for (name, wire) in Wire::NAMES {
        for seed in seeds(COUNT) {
            let talk = if seed % 2 == 0 {
                bodies::healthy(seed, *wire)
            } else {
                bodies::mangle(seed, *wire).0
            };
            let mut body: Value = serde_json::from_slice(&talk.bytes()).unwrap();
            add_flaws(&mut body, *wire, &mut Rng::new(seed));
            let once = mend(&body, *wire);
            let out = value_of(&once);
            let twice = mend(&out, *wire);
            assert_eq!(value_of(&twice), out, "SEED={seed} {name}: {body:#}");
            assert_eq!(judge::lost(&body, &out), [], "SEED={seed} {name}: {body:#}");
            // An open tool loop keeps its thinking.
            if once.report.unrepairable == 0 {
                let verdict = judge::of(*wire)(&out);
                verdict.unwrap_or_else(|refusal| panic!("SEED={seed} {name}: {refusal:?}\n{body:#}\n{out:#}"));
                mended += usize::from(!once.body.is_original());
            }
        }
    }
    println!("{mended} bodies were mended");
    assert!(
        mended > 400 || seeds(COUNT).count() == 1,
        "only {mended} bodies were mended"
    );
}

/// A longer history begins with what a shorter one became, as prompt caches require.
#[test]
fn a_longer_history_begins_like_the_shorter_one() {
    let mut compared = 0;
    for (name, wire) in Wire::NAMES {
        for seed in seeds(COUNT / 2) {
            let mut body: Value = serde_json::from_slice(&bodies::healthy(seed, *wire).bytes()).unwrap();
            add_flaws(&mut body, *wire, &mut Rng::new(seed));
            let path = HISTORIES
                .iter()
                .find(|path| body.pointer(path).is_some_and(Value::is_array));
            let Some(path) = path else { continue };
            let whole = judge::blocks(&value_of(&mend(&body, *wire)));
            for length in 1..body.pointer(path).and_then(Value::as_array).unwrap().len() {
                let mut short = body.clone();
                short
                    .pointer_mut(path)
                    .and_then(Value::as_array_mut)
                    .unwrap()
                    .truncate(length);
                let once = mend(&short, *wire);
                // Calls that are open at the end get answers, which only a memory of them keeps.
                let is_field = |kind| matches!(kind, FindingKind::Field | FindingKind::MalformedCall);
                if once.report.findings.iter().all(|finding| is_field(finding.kind)) {
                    compared += 1;
                    let blocks = judge::blocks(&value_of(&once));
                    assert!(
                        whole.starts_with(&blocks),
                        "SEED={seed} {name} {length}: {blocks:#?}\n{whole:#?}"
                    );
                }
            }
        }
    }
    println!("{compared} histories were compared");
    assert!(
        compared > 1_000 || seeds(COUNT).count() == 1,
        "only {compared} histories were compared"
    );
}
