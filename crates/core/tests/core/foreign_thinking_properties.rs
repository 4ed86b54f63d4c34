//! Properties of the removal of foreign thinking from mangled bodies: the server that refused it accepts the rest, no
//! thinking of its own is lost, a second repair adds no edit, and the next request begins with the earlier one.
//!
//! `SEED=` replays one body.
#![expect(clippy::disallowed_methods, reason = "the seed comes from the environment")]

use std::collections::HashSet;

use antiphon_core::{
    repair::{KnownResults, PairingContext, RepairPolicy, Repaired, ThinkingHash, parse, plan, thinking_blocks},
    wire::Wire,
};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::{
    bodies::{self, Rng},
    judge::{self, ServerMemory, ServerRules},
};

/// Bodies of each wire.
const CASES: u64 = 300;
/// Part of every signature that another provider made.
const FOREIGN: &str = "Rm9yZWlnbiB0aG91Z2h0";

/// Puts thinking of another provider into some turns of the assistant. Returns the number of blocks.
fn add_foreign(body: &mut Value, rng: &mut Rng) -> usize {
    let mut count = 0;
    let mut signature = || {
        count += 1;
        format!("{FOREIGN}{count:04}")
    };
    for message in body
        .get_mut("messages")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if message["role"] != "assistant" || !rng.chance(40) {
            continue;
        }
        if let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) {
            let block = if rng.chance(70) {
                json!({"type": "thinking", "thinking": "elsewhere", "signature": signature()})
            } else {
                json!({"type": "redacted_thinking", "data": signature()})
            };
            blocks.insert(0, block);
        }
    }
    for content in body
        .get_mut("contents")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let is_models = content["role"] == "model";
        for part in content
            .get_mut("parts")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            // A misplaced response is not what the model said, and never signed.
            let others = [
                "thoughtSignature",
                "thought_signature",
                "functionResponse",
                "function_response",
            ];
            let is_taken = others.iter().any(|key| part.get(*key).is_some());
            if is_models && part.is_object() && !is_taken && rng.chance(30) {
                part["thoughtSignature"] = signature().into();
            }
        }
    }
    if let Some(items) = body.get_mut("input").and_then(Value::as_array_mut) {
        let mut index = 0;
        while index < items.len() {
            let item = &items[index];
            let is_models = item["role"] == "assistant" || item["type"] == "function_call";
            if is_models && rng.chance(40) {
                let id = format!("rs_f{index}");
                let item = json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": signature()});
                items.insert(index, item);
                index += 1;
            }
            index += 1;
        }
    }
    count
}

/// Adds every signature of `value` to the memory of the server that made them.
fn add_own_seals(memory: &mut ServerMemory, value: &Value) {
    let keys = [
        "signature",
        "data",
        "encrypted_content",
        "thoughtSignature",
        "thought_signature",
    ];
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if let Some(seal) = member.as_str().filter(|_| keys.contains(&key.as_str())) {
                    memory.add_seal(seal);
                }
                add_own_seals(memory, member);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| add_own_seals(memory, element)),
        _ => {}
    }
}

fn bytes_of(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// Repairs a body whose provider has refused these blocks.
fn repair_without(body: &Bytes, wire: Wire, refused: &[ThinkingHash]) -> Repaired {
    let policy = RepairPolicy::default();
    let context = PairingContext {
        refused_thinking: refused,
        ..PairingContext::new(&policy)
    };
    let paired = parse(body, wire).expect("a readable body").pair(context);
    let plan = plan(&paired, &KnownResults::default(), &policy).expect("a plan");
    Repaired {
        body: plan.splice(&paired, body).expect("a body"),
        report: plan.report,
    }
}

/// Returns the hashes of a body's foreign thinking, and `true` if some of it is in an open tool loop.
fn foreign_blocks(body: &Bytes, own: &Bytes, wire: Wire) -> (Vec<ThinkingHash>, bool) {
    let policy = RepairPolicy::default();
    let hashes = |body: &Bytes| {
        let parsed = parse(body, wire).expect("a readable body");
        let paired = parsed.pair(PairingContext::new(&policy));
        thinking_blocks(&paired)
    };
    let own: HashSet<ThinkingHash> = hashes(own).into_iter().map(|block| block.hash).collect();
    let foreign: Vec<_> = hashes(body)
        .into_iter()
        .filter(|block| !own.contains(&block.hash))
        .collect();
    let is_open = foreign.iter().any(|block| block.is_current);
    (foreign.into_iter().map(|block| block.hash).collect(), is_open)
}

/// Returns the body with the assistant's next message and the user's.
fn grown(body: &Value) -> Value {
    let mut next = body.clone();
    for key in ["messages", "input", "contents"] {
        let Some(list) = next.get_mut(key).and_then(Value::as_array_mut) else {
            continue;
        };
        list.extend(["assistant", "user"].map(|role| match key {
            "contents" => json!({"role": role.replace("assistant", "model"), "parts": [{"text": "more"}]}),
            _ => json!({"role": role, "content": format!("more of {role}")}),
        }));
    }
    next
}

#[test]
fn the_server_that_refused_foreign_thinking_accepts_the_rest() {
    let only: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    let rules = ServerRules {
        made_here: true,
        ..ServerRules::default()
    };
    for name in ["anthropic", "anthropic-bedrock", "openai-responses", "gemini"] {
        let wire: Wire = name.parse().expect("a wire");
        let (format, dialect) = judge::reading(wire);
        let (mut refused, mut compared) = (0_u64, 0_u64);
        for seed in only.map_or(0..CASES, |seed| seed..seed + 1) {
            let (talk, _) = bodies::mangle(seed, wire);
            let own: Value = serde_json::from_slice(&talk.bytes()).expect("valid JSON in");
            let mut memory = ServerMemory::default();
            memory.add_response("resp_held");
            add_own_seals(&mut memory, &own);
            let mut body = own.clone();
            if add_foreign(&mut body, &mut Rng::new(seed ^ 0x0f0e_1901)) == 0 {
                continue;
            }
            let sent = bytes_of(&body);
            let (blocks, is_open) = foreign_blocks(&sent, &bytes_of(&own), wire);
            let done = repair_without(&sent, wire, &blocks);
            let after: Value = serde_json::from_slice(&done.body.to_vec()).expect("valid JSON out");
            let told = format!("SEED={seed} {wire}\n{body}\n{after}");
            let judged = |body: &Value| judge::judge_with(format, dialect, &rules, &memory, body);
            refused += u64::from(judged(&body).is_err());
            let again = repair_without(&done.body.to_vec().into(), wire, &blocks);
            assert!(
                again.body.is_original(),
                "S1: {}\n{told}",
                String::from_utf8_lossy(&again.body.to_vec())
            );
            // An open tool loop keeps its thinking, and what the pairing leaves broken others judge.
            if is_open || done.report.unrepairable > 0 || judge::of(wire)(&after).is_err() {
                continue;
            }
            compared += 1;
            judged(&after).unwrap_or_else(|refusal| panic!("{}\n{told}", refusal.message));
            assert!(!after.to_string().contains(FOREIGN), "{told}");
            if done.report.deferred == 0 {
                let next = repair_without(&bytes_of(&grown(&body)), wire, &blocks);
                let next: Value = serde_json::from_slice(&next.body.to_vec()).expect("valid JSON out");
                let ends_with_user = |key: &str| {
                    let last = body[key].as_array().and_then(|list| list.last());
                    last.is_some_and(|last| last["role"] == "user")
                };
                let is_closed = ["messages", "input", "contents"].iter().any(|key| ends_with_user(key));
                let (blocks, more) = (judge::blocks(&after), judge::blocks(&next));
                assert!(!is_closed || more.starts_with(&blocks), "S2: {next}\n{told}");
            }
        }
        if only.is_none() {
            assert!(refused * 2 > CASES, "{name}: {refused} refused, too few");
            assert!(compared * 4 > CASES, "{name}: {compared} compared, too few");
        }
    }
}
