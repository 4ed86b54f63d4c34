//! Properties of repair for servers that are stricter than their format: every mangled body is accepted after repair,
//! nothing is lost, a second repair adds no edit, and the next request begins with the earlier one.
//!
//! `SEED=` replays one body.
#![expect(clippy::disallowed_methods, reason = "the seed comes from the environment")]

use antiphon_core::{
    conversation::rules::WordsPlace,
    repair::{LearnedRules, Repaired},
    wire::Wire,
};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    cases::repair_learned,
    support::{
        bodies::{self, Rng},
        judge::{self, ArgumentReader, BridgeWords, ServerMemory, ServerRules},
    },
};

/// Bodies of each row.
const CASES: u64 = 150;

/// A kind of server, and the rules that its refusals teach.
struct Row {
    wire: &'static str,
    rules: ServerRules,
    learned: LearnedRules,
}

fn rows() -> Vec<Row> {
    let strict = LearnedRules {
        strict_calls: true,
        ..LearnedRules::NONE
    };
    let words = |place| LearnedRules {
        words: Some(place),
        ..LearnedRules::NONE
    };
    let reads = |wire, reader, learned| Row {
        wire,
        rules: ServerRules::reading(reader),
        learned,
    };
    let calls_last = ServerRules {
        calls_last: true,
        ..ServerRules::default()
    };
    let mut rows = vec![
        reads("openai-chat-compatible", ArgumentReader::Vllm, strict),
        reads("openai-chat-compatible", ArgumentReader::Sglang, strict),
        reads("openai-chat-compatible", ArgumentReader::NearAi, strict),
        reads("openai-chat-compatible", ArgumentReader::LlamaCpp, strict),
        reads("openai-chat-compatible", ArgumentReader::Codegraff, strict),
        reads("openai-responses-compatible", ArgumentReader::Qwen, strict),
        reads("openai-chat-minimax", ArgumentReader::MiniMax, LearnedRules::NONE),
        reads("gemini", ArgumentReader::Gemini, LearnedRules::NONE),
    ];
    rows.extend(["anthropic", "anthropic-bedrock"].map(|wire| Row {
        wire,
        rules: calls_last,
        learned: words(WordsPlace::BeforeCalls),
    }));
    rows.push(Row {
        wire: "anthropic-compatible",
        rules: ServerRules {
            only_results: true,
            ..ServerRules::default()
        },
        learned: words(WordsPlace::ApartFromResults),
    });
    rows.push(Row {
        wire: "openai-chat-compatible",
        rules: ServerRules {
            bridge: Some(BridgeWords::Plain),
            ..ServerRules::default()
        },
        learned: words(WordsPlace::Bridged),
    });
    rows
}

/// Returns arguments of a kind that some server refuses. `tag` is in all that have words.
fn bad_arguments(rng: &mut Rng, tag: &str) -> Value {
    match rng.below(7) {
        0 => json!(""),
        1 => json!(format!("{{\"path\": \"{tag}")),
        2 => json!(format!("{{\"a\":\"{tag}\"}}{{\"b\":1}}")),
        3 => json!(format!("[\"{tag}\"]")),
        4 => json!(json!({ "path": tag }).to_string().replace('{', "\\{")),
        5 => json!(json!(json!({ "path": tag }).to_string()).to_string()),
        _ => json!({ "path": tag }),
    }
}

/// Spoils some calls of a body. Returns the words that must not be lost.
fn spoil_calls(body: &mut Value, rng: &mut Rng) -> Vec<String> {
    let mut tags = Vec::new();
    let mut spoil = |owner: &mut Value, key: &str| {
        if owner.get(key).is_some() && rng.chance(40) {
            let tag = format!("spoilt{}x", tags.len());
            owner[key] = bad_arguments(rng, &tag);
            if owner[key].to_string().contains(&tag) {
                tags.push(tag);
            }
        }
    };
    let lists = ["messages", "input", "contents"];
    for key in lists {
        for message in body.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            if message["type"] == "function_call" {
                spoil(message, "arguments");
            }
            // Only an assistant's calls are calls.
            if message["role"] == "assistant" {
                for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                    if let Some(function) = call.get_mut("function") {
                        spoil(function, "arguments");
                    }
                }
            }
            if message["role"] == "model" {
                for part in message["parts"].as_array_mut().into_iter().flatten() {
                    for name in ["functionCall", "function_call"] {
                        if let Some(call) = part.get_mut(name) {
                            spoil(call, "args");
                        }
                    }
                }
            }
        }
    }
    tags
}

fn parsed(done: &Repaired) -> Value {
    serde_json::from_slice(&done.body.to_vec()).expect("valid JSON out")
}

/// Returns the body with the assistant's next message and the user's.
fn grown(body: &Value) -> Value {
    let mut next = body.clone();
    let (key, more) = if body.get("contents").is_some() {
        let turn = |role: &str| json!({"role": role, "parts": [{"text": format!("more of {role}")}]});
        ("contents", [turn("model"), turn("user")])
    } else {
        let key = if body.get("input").is_some() {
            "input"
        } else {
            "messages"
        };
        let turn = |role: &str| json!({"role": role, "content": format!("more of {role}")});
        (key, [turn("assistant"), turn("user")])
    };
    if let Some(list) = next[key].as_array_mut() {
        list.extend(more);
    }
    next
}

#[test]
fn a_body_that_a_strict_server_refuses_is_accepted_after_repair() {
    let only: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    for (index, row) in rows().iter().enumerate() {
        let wire: Wire = row.wire.parse().expect("a wire");
        let (format, dialect) = judge::reading(wire);
        let memory = ServerMemory::default();
        let (mut refused, mut compared) = (0_u64, 0_u64);
        for seed in only.map_or(0..CASES, |seed| seed..seed + 1) {
            let (talk, _) = bodies::mangle(seed, wire);
            let mut body: Value = serde_json::from_slice(&talk.bytes()).expect("valid JSON in");
            let tags = spoil_calls(&mut body, &mut Rng::new(seed ^ 0x0005_9011));
            let sent = Bytes::from(body.to_string());
            let done = repair_learned(&sent, wire, row.learned).expect("a readable body");
            let after = parsed(&done);
            let told = format!("SEED={seed} row {index}, {wire}\n{body}\n{after}");
            let judged = |body: &Value| judge::judge_with(format, dialect, &row.rules, &memory, body);
            refused += u64::from(judged(&body).is_err());
            if done.report.unrepairable > 0 || judge::of(wire)(&after).is_err() {
                // The pairing itself cannot be repaired, which other properties judge.
                continue;
            }
            compared += 1;
            judged(&after).unwrap_or_else(|refusal| panic!("{}\n{told}", refusal.message));
            let text = after.to_string();
            for tag in tags {
                assert!(text.contains(&tag), "lost {tag}\n{told}");
            }
            let again = repair_learned(&done.body.to_vec().into(), wire, row.learned).expect("a readable body");
            assert!(again.body.is_original(), "S1: {}\n{told}", parsed(&again));
            if done.report.deferred == 0 {
                let next = Bytes::from(grown(&body).to_string());
                let next = parsed(&repair_learned(&next, wire, row.learned).expect("a readable body"));
                let (blocks, more) = (judge::blocks(&after), judge::blocks(&next));
                let ends_with_user = |list: &Value| {
                    list.as_array()
                        .and_then(|list| list.last())
                        .is_some_and(|last| last["role"] == "user")
                };
                let open_end = !["messages", "input", "contents"]
                    .iter()
                    .any(|key| ends_with_user(&body[*key]));
                assert!(open_end || more.starts_with(&blocks), "S2: {next}\n{told}");
            }
        }
        if only.is_none() {
            assert!(refused * 4 > CASES, "row {index}: {refused} refused, too few");
            assert!(compared * 2 > CASES, "row {index}: {compared} compared, too few");
        }
    }
}
