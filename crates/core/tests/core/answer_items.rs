//! The items that a response id stands for: those of the answer, however it comes, and those of the next body.

use antiphon_core::wire::{
    ContinuedBody, Format, ItemChain,
    watch::{EVENT_BYTES_MAX, Framing, Watcher},
};
use serde_json::{Value, json};

fn body(store: bool, input: &[Value]) -> String {
    json!({"model": "m", "store": store, "input": input}).to_string()
}

fn chain(body: &str) -> Option<ItemChain> {
    ContinuedBody::read(body.as_bytes())?.chain(None)
}

/// Returns the chain of an answer to a body, read in pieces of this many bytes.
fn answer_chain(body: &str, framing: Framing, answer: &str, piece: usize) -> Option<ItemChain> {
    let mut watcher = Watcher::new(Some(Format::OpenAiResponses), framing).noting_items();
    for bytes in answer.as_bytes().chunks(piece) {
        watcher.push(bytes);
    }
    watcher.finish();
    assert!(watcher.facts().is_complete(Format::OpenAiResponses));
    let mut chain = chain(body)?;
    watcher
        .facts()
        .items
        .in_order()?
        .into_iter()
        .for_each(|item| chain.push_item(item));
    Some(chain)
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn done(index: usize, item: &Value) -> String {
    event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))
}

fn end(output: &[&Value]) -> String {
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "output": output});
    event(&json!({"type": "response.completed", "response": response}))
}

fn message(words: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": words, "annotations": [], "logprobs": []}]})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "status": "completed", "call_id": id, "name": "f", "arguments": "{}"})
}

#[test]
fn every_form_of_an_answer_has_the_same_items() {
    let asked = body(true, &[json!({"role": "user", "content": "go"})]);
    let (first, second) = (message("so"), call("c"));
    let whole = json!({"id": "resp_1", "object": "response", "status": "completed", "output": [first, second]});
    let wanted = answer_chain(&asked, Framing::Values, &whole.to_string(), 9999).expect("a chain");
    let streams = [
        // Items end in another order than they began; the last event repeats all, or nothing.
        done(1, &second) + &done(0, &first) + &end(&[&first, &second]),
        done(0, &first) + &done(1, &second) + &end(&[]),
        // Only the last event has them.
        end(&[&first, &second]),
    ];
    for stream in streams {
        for piece in [1, 7, 9999] {
            assert_eq!(
                answer_chain(&asked, Framing::Events, &stream, piece),
                Some(wanted),
                "{stream}"
            );
        }
    }
    let input = [
        json!({"role": "user", "content": "go"}),
        message("so"),
        call("c"),
        json!({"role": "user", "content": "on"}),
    ];
    let begins = |input: &[Value]| {
        ContinuedBody::read(body(true, input).as_bytes())
            .unwrap()
            .begins_with(wanted)
    };
    assert!(begins(&input) && begins(&input[..3]));
    assert!(!begins(&input[..2]) && !begins(&input[1..]));
}

#[test]
fn an_answer_that_was_not_read_as_a_whole_has_no_items() {
    let asked = body(true, &[]);
    let (first, second) = (message("so"), call("c"));
    let long = message(&"x".repeat(EVENT_BYTES_MAX));
    let whole =
        |item: &Value| json!({"id": "r", "object": "response", "status": "completed", "output": [item]}).to_string();
    for (framing, answer) in [
        // An item is missing: by its index, by the last event, or because it is too long to be read.
        (Framing::Events, done(1, &second) + &end(&[])),
        (Framing::Events, done(0, &first) + &end(&[&first, &second])),
        (Framing::Events, done(0, &first) + &done(0, &second) + &end(&[])),
        (Framing::Events, done(0, &long) + &end(&[])),
        (Framing::Events, end(&[&long])),
        (Framing::Values, whole(&long)),
    ] {
        assert_eq!(answer_chain(&asked, framing, &answer, 9999), None, "{}", &answer[..99]);
    }
    // The last event may be too long, if the items came before.
    let pieces = done(0, &first) + &end(&[&first, &long]);
    assert!(answer_chain(&asked, Framing::Events, &pieces, 9999).is_some());
}

/// Reasoning that is neither stored nor encrypted is nothing that a client could send back.
#[test]
fn reasoning_counts_if_a_client_can_send_it_back() {
    let user = json!({"role": "user", "content": "go"});
    let reasoning = |content: Option<&str>| {
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}],
            "encrypted_content": content})
    };
    for (store, content, may_be_missing) in [
        (true, None, false),
        (true, Some("gAAA"), false),
        (false, None, true),
        (false, Some("gAAA"), false),
    ] {
        let (with, without) = (
            [user.clone(), reasoning(content), message("so")],
            [user.clone(), message("so")],
        );
        let known = chain(&body(store, &with)).unwrap();
        let begins = |input: &[Value]| {
            ContinuedBody::read(body(true, input).as_bytes())
                .unwrap()
                .begins_with(known)
        };
        assert_eq!(
            (begins(&with), begins(&without)),
            (true, may_be_missing),
            "{store} {content:?}"
        );
    }
}

#[test]
fn a_body_with_unknown_items_has_no_chain() {
    for (body, is_known) in [
        (r#"{"input":[{"role":"user","content":"go"}]}"#, true),
        (r#"{"input":"go","conversation":null,"background":false}"#, true),
        (r#"{"input":"go","conversation":{"id":"conv_1"}}"#, false),
        (r#"{"input":"go","background":true}"#, false),
        (r#"{"input":"go","prompt":{"id":"pmpt_1"}}"#, false),
        (r#"{"input":[{"type":"item_reference","id":"msg_1"}]}"#, false),
        (r#"{"input":[{"role":"user","content":"go"},{"id":"msg_1"}]}"#, false),
        (r#"{"input":"go","previous_response_id":"resp_0"}"#, false),
        (r#"{"input":"go","input":"on"}"#, false),
        (r#"{"input":[1"#, false),
        (r#"{"input":3}"#, false),
        ("[]", false),
    ] {
        assert_eq!(chain(body).is_some(), is_known, "{body}");
    }
    // A text is the message of a user.
    let texts = [
        r#"{"input":"g\u006f"}"#,
        r#"{"input":[{"role":"user","content":"go"}]}"#,
    ];
    assert_eq!(chain(texts[0]), chain(texts[1]));
    // Neither items that are no JSON, nor deep ones, nor lone surrogates are a reason to fail.
    let deep = format!(r#"{{"input":[{}1{}]}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(chain(&deep).is_some());
    assert!(chain(r#"{"input":[{"role":"user","content":"\ud800"}]}"#).is_some());
}
