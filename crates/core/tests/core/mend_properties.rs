//! Mends of any histories: those of the rows, generated ones, and both after damage.

use std::collections::HashMap;

use antiphon_core::{
    mend::{Mend, meet_demand, mend_body},
    repair::{RepairPolicy, repair},
    wire::{Format, MendKind, Wire, json},
};
use bytes::Bytes;
use serde_json::{Value, json as value};

use crate::support::{
    bodies::{self, Rng},
    refusals::{REFUSALS, ROWS, RowRepair, TABLE},
    seed,
};

/// The mends of all rows, with words of kinds that no row teaches as a rule.
fn taught_mends() -> Vec<Mend> {
    let none = |_: &[u8; 32]| false;
    let mut mends = Vec::new();
    for row in ROWS.iter().filter(|row| row.mend.is_some()) {
        let Some(repair) = &row.repair else { continue };
        let text = &REFUSALS.iter().find(|known| known.row == row.name).unwrap().text;
        let refusal = TABLE.read(text.as_bytes()).unwrap().refusal;
        let (demand, wire): (_, Wire) = (refusal.demand.unwrap(), repair.wire.parse().unwrap());
        let mended = meet_demand(&repair.before.clone().into(), wire, &demand, &refusal.ids, &none).unwrap();
        for (mend, _) in mended.made {
            // Of blocks that were refused before there are none here.
            mends.push(Mend {
                only_refused: false,
                ..mend
            });
        }
    }
    mends.push(Mend::new(MendKind::LoneSurrogates, "").unwrap());
    mends.sort();
    mends.dedup();
    mends
}

/// Histories of the rows, and generated ones: 6 of each format, or `STEPS`.
fn histories(rng: &mut Rng) -> Vec<(Wire, String)> {
    // Half of a character is no value that can be damaged.
    let is_value = |repair: &&RowRepair| serde_json::from_str::<Value>(&repair.before).is_ok();
    let of_rows = ROWS.iter().filter_map(|row| row.repair.as_ref()).filter(is_value);
    let mut all: Vec<(Wire, String)> = of_rows
        .map(|repair| (repair.wire.parse().unwrap(), repair.before.clone()))
        .collect();
    for name in ["anthropic", "openai-chat", "openai-responses", "gemini"] {
        let wire: Wire = name.parse().unwrap();
        for _ in 0..seed::number("STEPS").unwrap_or(6) {
            let body = bodies::healthy(rng.next(), wire).bytes();
            all.push((wire, String::from_utf8(body).unwrap()));
        }
    }
    all
}

/// Damages a value: a random node goes, or becomes something else.
fn damage(rng: &mut Rng, value: &mut Value, depth: usize) {
    let other = |rng: &mut Rng| match rng.below(7) {
        0 => Value::Null,
        1 => "".into(),
        2 => Value::Array(Vec::new()),
        3 => Value::Object(serde_json::Map::new()),
        4 => 7.into(),
        5 => " ".into(),
        _ => true.into(),
    };
    match value {
        Value::Object(members) if !members.is_empty() && (depth == 0 || rng.chance(80)) => {
            let at = rng.below(members.len());
            let key = members.keys().nth(at).unwrap().clone();
            if rng.chance(15) && depth > 0 {
                members.remove(&key);
            } else {
                damage(rng, &mut members[&key], depth + 1);
            }
        }
        Value::Array(elements) if !elements.is_empty() && rng.chance(90) => {
            let at = rng.below(elements.len());
            if rng.chance(10) {
                elements.remove(at);
            } else {
                damage(rng, &mut elements[at], depth + 1);
            }
        }
        _ => *value = other(rng),
    }
}

/// Returns what no mend may change: tools, and the ids of calls and results.
fn untouchable(body: &Value) -> (Vec<Value>, Vec<String>) {
    let tools = ["tools", "tool_choice", "response_format", "output_config"].map(|key| body[key].clone());
    let mut ids = Vec::new();
    collect_ids(body, &mut ids);
    (tools.into(), ids)
}

fn collect_ids(value: &Value, ids: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if ["tool_use_id", "tool_call_id", "call_id"].contains(&key.as_str()) {
                    ids.extend(value.as_str().map(str::to_owned));
                }
                collect_ids(value, ids);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect_ids(element, ids)),
        _ => {}
    }
}

#[test]
fn mends_are_made_once_and_leave_calls_and_tools_alone() {
    let (mends, seed) = (taught_mends(), seed::seed());
    let mut rng = Rng::new(seed);
    let none = |_: &[u8; 32]| false;
    let (mut made, mut tried) = (0, 0);
    for (wire, history) in histories(&mut rng) {
        for round in 0..5 {
            let mut value: Value = serde_json::from_str(&history).unwrap();
            for _ in 0..round.min(4) {
                damage(&mut rng, &mut value, 0);
            }
            let body: Bytes = if round == 0 { history.clone() } else { value.to_string() }.into();
            let one = rng.below(mends.len());
            let other = rng.below(mends.len());
            let mut pair = vec![mends[one].clone(), mends[other].clone()];
            pair.sort();
            for chosen in [&mends[one..=one], &pair, &mends] {
                let told = || format!("seed {seed}: {chosen:?}\n{}", String::from_utf8_lossy(&body));
                let once =
                    mend_body(&body, wire, chosen, &none).unwrap_or_else(|fault| panic!("{fault:?}: {}", told()));
                json::validate(&once.body).unwrap_or_else(|fault| panic!("{fault:?}: {}", told()));
                let again = mend_body(&once.body, wire, chosen, &none).unwrap();
                assert_eq!(again.body, once.body, "{}", told());
                let (before, after): (Value, Value) = (
                    serde_json::from_slice(&body).unwrap(),
                    serde_json::from_slice(&once.body).unwrap(),
                );
                let (mut before, mut after) = (untouchable(&before), untouchable(&after));
                // A quoted pair of a foreign server tool is no pair any more.
                if chosen.iter().any(|mend| *mend.word == *"server_pair") {
                    before.1.retain(|id| after.1.contains(id));
                }
                before.1.sort();
                after.1.sort();
                assert_eq!(after, before, "{}", told());
                // What is mended needs no more repair than before.
                let policy = RepairPolicy::default();
                let findings = |body: &Bytes| repair(body, wire, &policy).map(|done| done.report.findings);
                // Reasoning goes only if it was refused: others need it.
                let takes_reasoning = chosen.iter().any(|mend| mend.kind == MendKind::DropReasoning);
                if let (Ok(before), Ok(after)) = (findings(&body), findings(&once.body))
                    && before.is_empty()
                    && !takes_reasoning
                {
                    assert_eq!(after, [], "{}", told());
                }
                made += usize::from(!once.made.is_empty());
                tried += 1;
            }
        }
    }
    assert!(made * 20 > tried, "{made} of {tried}");
}

/// Members whose texts the model or a tool reads.
const READ_MEMBERS: [&str; 9] = [
    "text",
    "content",
    "thinking",
    "reasoning_content",
    "arguments",
    "input",
    "args",
    "output",
    "response",
];

/// Returns the words of all texts below `value`; `is_read` is `true` inside of a member that is read.
fn words_of<'v>(value: &'v Value, is_read: bool, words: &mut Vec<&'v str>) {
    match value {
        Value::String(text) if is_read => words.extend(text.split_whitespace()),
        Value::Array(elements) => elements.iter().for_each(|element| words_of(element, is_read, words)),
        Value::Object(members) => {
            for (key, member) in members {
                // The kind of an object is no word of it.
                let is_kind = ["type", "role", "id", "name", "signature", "media_type"].contains(&key.as_str());
                let is_read = (is_read || READ_MEMBERS.contains(&key.as_str())) && !is_kind;
                words_of(member, is_read, words);
            }
        }
        _ => {}
    }
}

/// Returns the words of the first text that are not in the second.
fn lost_words<'v>(before: &'v Value, after: &'v Value) -> Vec<&'v str> {
    let (mut had, mut has) = (Vec::new(), Vec::new());
    words_of(before, false, &mut had);
    words_of(after, false, &mut has);
    let mut left: HashMap<&str, usize> = HashMap::new();
    for word in has {
        *left.entry(word).or_default() += 1;
    }
    had.retain(|word| match left.get_mut(word) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    had
}

#[test]
fn only_mends_that_say_so_lose_words() {
    let (mends, seed) = (taught_mends(), seed::seed());
    let mut rng = Rng::new(seed);
    let none = |_: &[u8; 32]| false;
    let mut made = 0;
    for (wire, history) in histories(&mut rng) {
        for round in 0..4 {
            let mut value: Value = serde_json::from_str(&history).unwrap();
            (0..round).for_each(|_| damage(&mut rng, &mut value, 0));
            let body: Bytes = value.to_string().into();
            for mend in mends.iter().filter(|mend| !mend.kind.loses_content()) {
                let mended = mend_body(&body, wire, std::slice::from_ref(mend), &none).unwrap();
                let after: Value = serde_json::from_slice(&mended.body).unwrap();
                let lost = lost_words(&value, &after);
                assert!(lost.is_empty(), "seed {seed}: {mend:?} lost {lost:?}\n{value}\n{after}");
                made += usize::from(!mended.made.is_empty());
            }
        }
    }
    assert!(made > 50, "{made}");
}

/// Returns a history with an answer and a question more. `None` if it has no list of messages.
fn grown(wire: Wire, body: &Value, text: &str) -> Option<Value> {
    let (key, answer, question) = match wire.format {
        Format::Anthropic => (
            "messages",
            value!({"role": "assistant", "content": [{"type": "text", "text": text}]}),
            value!({"role": "user", "content": [{"type": "text", "text": "go on"}]}),
        ),
        Format::OpenAiChat => (
            "messages",
            value!({"role": "assistant", "content": text}),
            value!({"role": "user", "content": "go on"}),
        ),
        Format::OpenAiResponses => (
            "input",
            value!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}),
            value!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}),
        ),
        Format::Gemini => (
            "contents",
            value!({"role": "model", "parts": [{"text": text}]}),
            value!({"role": "user", "parts": [{"text": "go on"}]}),
        ),
    };
    let mut body = body.clone();
    body.get_mut(key)?.as_array_mut()?.extend([answer, question]);
    Some(body)
}

#[test]
fn mended_bytes_stay_while_the_history_grows() {
    let (mends, seed) = (taught_mends(), seed::seed());
    let mut rng = Rng::new(seed);
    let none = |_: &[u8; 32]| false;
    let (first, second) = ("the first answer after it", "the second answer after it");
    let mut made = 0;
    for (wire, history) in histories(&mut rng) {
        for round in 0..4 {
            let mut value: Value = serde_json::from_str(&history).unwrap();
            (0..round).for_each(|_| damage(&mut rng, &mut value, 0));
            // What is about the end of a history, and what its user has just said, is behind it in both.
            let Some(before) = grown(wire, &value, first) else {
                continue;
            };
            let Some(later) = grown(wire, &before, second) else {
                continue;
            };
            let one = rng.below(mends.len());
            for chosen in [&mends[one..=one], &mends] {
                let mut prefix = |body: &Value| {
                    let mended = mend_body(&body.to_string().into(), wire, chosen, &none).unwrap();
                    made += usize::from(!mended.made.is_empty());
                    let text = String::from_utf8(mended.body.to_vec()).unwrap();
                    let end = text.find(first).unwrap();
                    text[..end].to_owned()
                };
                assert_eq!(prefix(&before), prefix(&later), "seed {seed}: {chosen:?}\n{before}");
            }
        }
    }
    assert!(made > 50, "{made}");
}
