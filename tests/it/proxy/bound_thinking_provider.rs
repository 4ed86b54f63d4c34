//! Self-test of the provider that binds thinking: grown bodies are accepted, edits before a thinking block are not.

use serde_json::{Value, json};

use crate::support::provider::{Provider, Reply, binding};

/// Name and function of a body change.
type Change = (&'static str, fn(&mut Value));

/// Returns a session with three thinking blocks: before a call, after its result, and in the next answer.
fn session() -> Value {
    let mut body = json!({
        "system": "rules",
        "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"name": "g", "input_schema": {}}],
        "messages": [{"role": "user", "content": "go"}],
    });
    let turns = [
        (
            json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}),
            json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]),
        ),
        (json!({"type": "text", "text": "done"}), json!("and now?")),
        (json!({"type": "text", "text": "nothing"}), json!("fine")),
    ];
    for (number, (block, next)) in turns.into_iter().enumerate() {
        let thought = binding::thinking(&body, &format!("thought {number}"));
        let messages = body["messages"].as_array_mut().expect("messages");
        messages.push(json!({"role": "assistant", "content": [thought, block]}));
        messages.push(json!({"role": "user", "content": next}));
    }
    body
}

fn messages(body: &mut Value) -> &mut Vec<Value> {
    body["messages"].as_array_mut().expect("messages")
}

const LEGAL: &[Change] = &[
    ("nothing", |_| {}),
    ("more at the end", |body| {
        messages(body).push(json!({"role": "user", "content": "more"}));
    }),
    ("the first thought gone", |body| {
        body["messages"][1]["content"].as_array_mut().expect("blocks").remove(0);
    }),
    ("all thoughts gone, and an edit", |body| {
        for at in [1, 3, 5] {
            body["messages"][at]["content"]
                .as_array_mut()
                .expect("blocks")
                .remove(0);
        }
        body["messages"][0]["content"] = "stop".into();
    }),
    ("a cache marker", |body| {
        body["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
        body["tools"][1]["cache_control"] = json!({"type": "ephemeral"});
    }),
    ("a string as a block", |body| {
        body["messages"][0]["content"] = json!([{"type": "text", "text": "go"}]);
        body["system"] = json!([{"type": "text", "text": "rules"}]);
    }),
    ("another parameter", |body| {
        body["max_tokens"] = 5.into();
    }),
    ("an edit after the last thought", |body| {
        body["messages"][6]["content"] = "oh".into();
    }),
    ("a mismatch that is to be dropped", |body| {
        body["messages"][0]["content"] = "stop".into();
        body["thinking"] = json!({"block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    }),
    ("a signature of another make", |body| {
        body["messages"][0]["content"] = "stop".into();
        for at in [1, 3, 5] {
            body["messages"][at]["content"][0]["signature"] = "EqQBCgIYAg==".into();
        }
    }),
];

/// Name, place that the refusal names, and function of an illegal change.
type Offence = (&'static str, &'static str, fn(&mut Value));

const ILLEGAL: &[Offence] = &[
    ("the first words", "messages.1.content.0", |body| {
        body["messages"][0]["content"] = "stop".into();
    }),
    ("a result", "messages.3.content.0", |body| {
        body["messages"][2]["content"][0]["content"] = "other".into();
    }),
    ("an input", "messages.3.content.0", |body| {
        body["messages"][1]["content"][1]["input"]["a"] = 2.into();
    }),
    ("words added to an earlier turn", "messages.3.content.0", |body| {
        let blocks = body["messages"][2]["content"].as_array_mut().expect("blocks");
        blocks.push(json!({"type": "text", "text": "by the way"}));
    }),
    ("a message gone", "messages.0.content.0", |body| {
        messages(body).remove(0);
    }),
    ("messages of another order", "messages.2.content.0", |body| {
        messages(body).swap(1, 2);
    }),
    ("the system prompt", "messages.1.content.0", |body| {
        body["system"] = "other".into();
    }),
    ("a tool gone", "messages.1.content.0", |body| {
        body["tools"].as_array_mut().expect("tools").remove(1);
    }),
    ("a thought of the middle gone", "messages.5.content.0", |body| {
        body["messages"][3]["content"].as_array_mut().expect("blocks").remove(0);
    }),
    ("the thought itself", "messages.5.content.0", |body| {
        body["messages"][5]["content"][0]["thinking"] = "other".into();
    }),
];

#[test]
fn content_before_thinking_must_not_change() {
    for (name, change) in LEGAL {
        let mut body = session();
        change(&mut body);
        binding::check(&body, true).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
    }
    for (name, place, change) in ILLEGAL {
        let mut body = session();
        change(&mut body);
        let refusal = binding::check(&body, true).expect_err(name);
        let words = "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove \
                     the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".";
        assert_eq!(
            (refusal.status, refusal.message),
            (400, format!("{place}: {words}")),
            "{name}"
        );
    }
}

#[test]
fn a_batch_drops_thinking_and_a_refusal_mentions_the_header() {
    let mut body = session();
    body["messages"][0]["content"] = "stop".into();
    let refusal = binding::check(&body, false).expect_err("an edit");
    assert!(refusal.message.contains(binding::CONTROLS), "{refusal:?}");
    binding::check(&json!({"requests": [{"custom_id": "c", "params": body}]}), false).expect("a batch");
}

/// Over a socket: each answer contains thinking, and is accepted again only after its own prefix.
#[tokio::test]
async fn the_provider_refuses_edited_prefixes() {
    let provider = Provider::binding().await;
    let mut body = json!({"model": "claude-opus-5-5", "messages": [{"role": "user", "content": "go"}]});
    for round in 0..3 {
        if round == 1 {
            provider.reply(Reply::call("toolu_1", "f", json!({})));
        }
        let (status, answer) = crate::proxy::strict_provider::post(&provider, "/v1/messages", &body.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["content"][0]["type"], "thinking");
        let next = if round == 1 {
            json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}])
        } else {
            json!("go on")
        };
        messages(&mut body).push(json!({"role": "assistant", "content": answer["content"]}));
        messages(&mut body).push(json!({"role": "user", "content": next}));
    }
    body["stream"] = true.into();
    let (status, answer) = crate::proxy::strict_provider::post(&provider, "/v1/messages", &body.to_string()).await;
    assert_eq!(status, 200);
    assert!(
        answer.contains("signature_delta") && answer.contains("\"index\":1"),
        "{answer}"
    );
    body["messages"][2]["content"] = "go on, please".into();
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let (status, answer) = crate::proxy::strict_provider::post(&provider, path, &body.to_string()).await;
        assert_eq!(status, 400);
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let words = answer["error"]["message"].as_str().expect("words");
        assert!(
            words.starts_with("messages.3.content.0: Invalid `signature`"),
            "{words}"
        );
    }
    body["thinking"] = json!({"block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    assert_eq!(
        crate::proxy::strict_provider::post(&provider, "/v1/messages", &body.to_string())
            .await
            .0,
        200
    );
}
