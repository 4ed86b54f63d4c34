//! Gaps in a body: where they are found, and how a value is written there. And what a watcher notes of an answer.

use antiphon_core::{
    repair::{ContinuityKind, ContinuityRules, Insertions, PairingContext, RepairPolicy, continuity_gaps, parse},
    wire::{
        Format, Wire,
        watch::{CARRIED_BYTES_MAX, Framing, Watcher},
    },
};
use bytes::Bytes;

/// Fills every gap of a body with `value`. Returns the number of gaps and the body.
fn filled(wire: &str, body: &str, value: &str) -> (usize, String) {
    let (wire, body): (Wire, Bytes) = (wire.parse().unwrap(), body.to_owned().into());
    // A server that wants none of the values stands for one that wants all of its format.
    let kinds = match (ContinuityRules { wire, is_google: false }).kinds() {
        [] => &ContinuityKind::ALL,
        kinds => kinds,
    };
    let policy = RepairPolicy::default();
    let paired = parse(&body, wire).unwrap().pair(PairingContext::new(&policy));
    let gaps = continuity_gaps(&paired, kinds, None);
    let values: Vec<_> = gaps.iter().map(|gap| (gap.message, gap.kind, value)).collect();
    let insertions = Insertions {
        texts: &[],
        values: &values,
    };
    let filled = insertions.put_into(&paired, &body).unwrap();
    let text = String::from_utf8(filled.to_vec()).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
    // A filled body has no gap.
    let again = parse(&filled, wire).unwrap().pair(PairingContext::new(&policy));
    assert_eq!(continuity_gaps(&again, kinds, None), []);
    (gaps.len(), text)
}

const CALL: &str = r#"{"id":"call_00_aB3dE5fG7hJ9","function":{"name":"f","arguments":"{}"}}"#;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn values_are_written_where_they_are_missing() {
    let chat = |message: &str| format!(r#"{{"messages":[{{"role":"user","content":"go"}},{message}]}}"#);
    let signed = r#""extra_content":{"google":{"thought_signature":"S"}},"#;
    let call = CALL.strip_prefix('{').unwrap();
    for (wire, body, count, wanted) in [
        // Both values of Chat Completions, in front of the other members.
        (
            "openai-chat",
            chat(&format!(r#"{{"role":"assistant","tool_calls":[{CALL}]}}"#)),
            2,
            r#"{"reasoning_content":"V\"","role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"V\""}},"id""#,
        ),
        // Null is missing, an empty text is not.
        (
            "openai-chat",
            chat(&format!(r#"{{ "reasoning_content" : null , "role":"assistant","tool_calls":[{{{signed}{call}]}}"#)),
            1,
            r#"{ "reasoning_content" : "V\"" , "role""#,
        ),
        (
            "openai-chat",
            chat(&format!(r#"{{"reasoning_content":"","role":"assistant","tool_calls":[{{{signed}{call}]}}"#)),
            0,
            r#"{"reasoning_content":"","role""#,
        ),
        // What else the client stores there stays.
        (
            "openai-chat",
            chat(&format!(
                r#"{{"reasoning_content":"","role":"assistant","tool_calls":[{{"extra_content":{{"a":1}},{call}]}}"#
            )),
            1,
            r#""extra_content":{"google":{"thought_signature":"V\""},"a":1}"#,
        ),
        // A turn without calls has no gap, and neither has a call that was made without thinking.
        ("openai-chat", chat(r#"{"role":"assistant","content":"hi"}"#), 0, "hi"),
        (
            "openai-chat",
            chat(&format!(
                r#"{{"role":"assistant","tool_calls":[{{{signed}{}]}}"#,
                call.replace("call_00_a", "call_00_ET_a")
            )),
            0,
            "ET_",
        ),
        // An id that is not unique names no call.
        (
            "openai-chat",
            chat(&format!(
                r#"{{"role":"assistant","tool_calls":[{CALL}]}},{{"role":"assistant","tool_calls":[{CALL}]}}"#
            )),
            0,
            "call_00",
        ),
        // The first call of a step, and of the first of two contents in a row.
        (
            "gemini",
            r#"{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"text":"a"},{"functionCall":{"name":"f"}},{"functionCall":{"name":"g"}}]},{"role":"model","parts":[{"functionCall":{"name":"h"}}]}]}"#
                .to_owned(),
            1,
            r#"{"text":"a"},{"thoughtSignature":"V\"","functionCall":{"name":"f"}},{"functionCall":{"name":"g"}}"#,
        ),
        (
            "gemini",
            r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"},"thought_signature":""}]}]}"#.to_owned(),
            1,
            r#""thought_signature":"V\"""#,
        ),
        // The container, and an object that names skills only.
        (
            "anthropic",
            r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}}]}]}"#
                .to_owned(),
            1,
            r#"{"container":"V\"","messages""#,
        ),
        (
            "anthropic",
            r#"{"container":{"skills":[]},"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}}]}]}"#
                .to_owned(),
            1,
            r#""container":{"id":"V\"","skills":[]}"#,
        ),
        // Code that has ended waits for nothing, and the client's own container stays.
        (
            "anthropic",
            r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}},{"type":"code_execution_tool_result","tool_use_id":"srv"}]}]}"#
                .to_owned(),
            0,
            "srv",
        ),
        (
            "anthropic",
            r#"{"container":"c","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}}]}]}"#
                .to_owned(),
            0,
            r#"{"container":"c","#,
        ),
    ] {
        let (gaps, text) = filled(wire, &body, "V\"");
        assert_eq!(gaps, count, "{body}");
        assert!(text.contains(wanted), "{text}\nlacks {wanted}");
        if count == 0 {
            assert_eq!(text, body);
        }
    }
}

/// A message of the assistant in Messages, with these blocks.
fn assistant(blocks: &str) -> String {
    format!(r#"{{"role":"assistant","content":[{blocks}]}}"#)
}

#[test]
fn thinking_is_written_in_front_of_its_message() {
    const USE: &str = r#"{"type":"tool_use","id":"call_0","name":"f","input":{}}"#;
    const THOUGHT: &str = r#"{"type":"thinking","thinking":"t","signature":""}"#;
    let value = r#"{"type":"thinking","thinking":"V\"","signature":"s"},{"type":"thinking","thinking":"W"}"#;
    let empty = r#"{"type":"thinking","thinking":"","signature":""}"#;
    let words = r#"{"type":"text","text":"so"}"#;
    let body = |wire, messages: &[String], value| {
        let user = r#"{"role":"user","content":"go"}"#;
        let body = format!(r#"{{"messages":[{user},{}]}}"#, messages.join(","));
        let (gaps, text) = filled(wire, &body, value);
        let text = text
            .strip_prefix(r#"{"messages":[{"role":"user","content":"go"},"#)
            .unwrap();
        (gaps, text.strip_suffix("]}").unwrap().to_owned())
    };
    let plain = assistant(&format!("{words},{USE}"));
    for (wire, messages, value, count, wanted) in [
        (
            "anthropic-deepseek",
            vec![plain.clone()],
            value,
            1,
            assistant(&format!("{value},{words},{USE}")),
        ),
        (
            "anthropic-compatible",
            vec![plain.clone()],
            value,
            1,
            assistant(&format!("{value},{words},{USE}")),
        ),
        // Without a value an empty block.
        (
            "anthropic-deepseek",
            vec![plain.clone()],
            "",
            1,
            assistant(&format!("{empty},{words},{USE}")),
        ),
        // Anthropic signs its thinking, and gets none back.
        ("anthropic", vec![plain.clone()], value, 0, plain),
    ] {
        assert_eq!(body(wire, &messages, value), (count, wanted), "{wire}");
    }
    // Thinking that is there stays alone, and so does a message without calls.
    let thought = assistant(&format!("{THOUGHT},{USE}"));
    let said = assistant(words);
    for (wire, messages) in [
        ("anthropic-deepseek", vec![thought.clone()]),
        ("anthropic-compatible", vec![thought]),
        ("anthropic-deepseek", vec![said.clone()]),
        // Where messages combine, the thinking of a step may stand in an earlier one.
        ("anthropic-compatible", vec![assistant(THOUGHT), assistant(USE)]),
        (
            "anthropic-deepseek",
            vec![assistant(&USE.replace("call_0", "call_00_ET_x"))],
        ),
    ] {
        assert_eq!(body(wire, &messages, value), (0, messages.join(",")), "{wire}");
    }
    // The first call of a step may stand in a later message of it.
    let wanted = [said.clone(), assistant(&format!("{value},{USE}"))].join(",");
    assert_eq!(
        body("anthropic-compatible", &[said, assistant(USE)], value),
        (1, wanted)
    );
}

#[test]
fn a_value_that_is_no_json_is_not_written() {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"go"}},{}]}}"#,
        assistant(r#"{"type":"tool_use","id":"a","name":"f","input":{}}"#)
    );
    let body = Bytes::from(body);
    let wire: Wire = "anthropic-deepseek".parse().unwrap();
    let policy = RepairPolicy::default();
    let paired = parse(&body, wire).unwrap().pair(PairingContext::new(&policy));
    let values = [(1, ContinuityKind::Reasoning, r#"{"type":"thinking"}]"#)];
    let insertions = Insertions {
        texts: &[],
        values: &values,
    };
    assert_eq!(insertions.put_into(&paired, &body).unwrap(), body);
}

/// Returns what a watcher notes of a Messages answer: reasoning, and id and arguments of the first call.
fn noted_messages(framing: Framing, answer: &str, size: usize) -> (Option<String>, Option<(String, String)>) {
    let mut watcher = Watcher::new(Some(Format::Anthropic), framing).noting_reasoning();
    answer.as_bytes().chunks(size).for_each(|piece| watcher.push(piece));
    watcher.finish();
    let carried = &watcher.facts().carried;
    let shown = format!("{watcher:?}");
    assert!(!shown.contains("secret"), "content in Debug: {shown}");
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    let call = carried.call().map(|call| (text(&call.id), text(&call.arguments)));
    (carried.reasoning().map(str::to_owned), call)
}

#[test]
fn a_watcher_notes_thinking_with_its_first_call() {
    use serde_json::json;
    let event = |data: serde_json::Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let start = |index, block: serde_json::Value| {
        event(json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let delta =
        |index, delta: serde_json::Value| event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    let stop = |index| event(json!({"type": "content_block_stop", "index": index}));
    let thinking = |index, ends| {
        let mut events = start(index, json!({"type": "thinking", "thinking": "", "signature": ""}));
        for words in ["se", "cret \"", "\u{1f600}\n"] {
            events += &delta(index, json!({"type": "thinking_delta", "thinking": words}));
        }
        events += &delta(index, json!({"type": "signature_delta", "signature": "sig"}));
        events + &if ends { stop(index) } else { String::new() }
    };
    let call = |index, id: &str| {
        let block = json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
        let pieces = ["{\"a\"", ":1}"].map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        let pieces = pieces.map(|piece| delta(index, piece)).concat();
        start(index, block) + &pieces + &stop(index)
    };
    let words = start(1, json!({"type": "text", "text": ""}))
        + &delta(1, json!({"type": "text_delta", "text": "hello"}))
        + &stop(1);
    let end = event(json!({"type": "message_stop"}));
    let block = r#"{"type":"thinking","thinking":"secret \"😀\n","signature":"sig"}"#;
    let first = Some(("call_1".to_owned(), "{\"a\":1}".to_owned()));
    for (stream, reasoning) in [
        (
            thinking(0, true) + &words + &call(2, "call_1") + &call(3, "call_2") + &end,
            block.to_owned(),
        ),
        // A server that does not end the block.
        (thinking(0, false) + &call(2, "call_1") + &end, block.to_owned()),
        (
            thinking(0, true) + &thinking(1, true) + &call(2, "call_1") + &end,
            format!("{block},{block}"),
        ),
    ] {
        for size in [1, 7, 64, 4096] {
            let noted = noted_messages(Framing::Events, &stream, size);
            assert_eq!(noted, (Some(reasoning.clone()), first.clone()), "{size}");
        }
    }
    let whole = json!({"type": "message", "id": "msg_1", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "thinking", "thinking": "secret \"\u{1f600}\n", "signature": "sig"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_2", "name": "f", "input": {"a": 2}},
    ]});
    let noted = noted_messages(Framing::Values, &whole.to_string(), 7);
    assert_eq!(noted, (Some(block.to_owned()), first));
    // Thinking that cannot be written again in the same way, or that is too long, is not noted at all.
    let lone = whole.to_string().replace("secret", "\\ud83d");
    assert_eq!(
        noted_messages(Framing::Values, &lone, 4096),
        (Some(String::new()), None)
    );
    let piece = delta(0, json!({"type": "thinking_delta", "thinking": "x".repeat(1000)}));
    let long = start(0, json!({"type": "thinking", "thinking": ""}))
        + &piece.repeat(CARRIED_BYTES_MAX / 1000 + 1)
        + &stop(0)
        + &call(1, "call_1");
    assert_eq!(
        noted_messages(Framing::Events, &long, 4096),
        (Some(String::new()), None)
    );
}

/// Returns what a watcher notes of a Chat Completions stream in pieces of `size` bytes.
fn noted(stream: &str, size: usize) -> (Option<String>, Option<String>, Option<String>) {
    let mut watcher = Watcher::new(Some(Format::OpenAiChat), Framing::Events).noting_reasoning();
    stream.as_bytes().chunks(size).for_each(|piece| watcher.push(piece));
    watcher.finish();
    let carried = &watcher.facts().carried;
    assert!(!format!("{:?}", watcher.facts()).contains("secret"), "content in Debug");
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    (
        carried.reasoning().map(str::to_owned),
        carried.call().map(|call| text(&call.arguments)),
        carried.call().map(|call| text(&call.signature)),
    )
}

fn chunk(delta: &serde_json::Value) -> String {
    format!(
        "data: {}\n\n",
        serde_json::json!({"choices": [{"index": 0, "delta": delta}]})
    )
}

#[test]
fn a_watcher_notes_the_same_however_the_answer_is_cut() {
    use serde_json::json;
    let mut stream = chunk(&json!({"role": "assistant", "content": null}));
    for words in ["se", "cret ", "\u{1f600}\n", "end"] {
        stream += &chunk(&json!({"reasoning_content": words}));
    }
    stream += &chunk(&json!({"tool_calls": [
        {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""},
            "extra_content": {"google": {"thought_signature": "sig"}}},
        {"index": 1, "id": "call_2", "function": {"name": "g", "arguments": "{\"b\":2}"}}]}));
    for words in ["{\"a\"", ":1", "}"] {
        stream += &chunk(&json!({"tool_calls": [{"index": 0, "function": {"arguments": words}}]}));
        stream += &chunk(&json!({"tool_calls": [{"index": 1, "function": {"arguments": "x"}}]}));
    }
    stream += "data: [DONE]\n\n";
    let wanted = (
        Some("secret \u{1f600}\nend".to_owned()),
        Some("{\"a\":1}".to_owned()),
        Some("sig".to_owned()),
    );
    for size in [1, 2, 7, 64, 4096] {
        assert_eq!(noted(&stream, size), wanted, "{size}");
    }
    // Of a longer answer nothing is noted: half a value must not be put back.
    let piece = "x".repeat(1000);
    let long = chunk(&json!({"reasoning_content": piece})).repeat(CARRIED_BYTES_MAX / 1000 + 1);
    assert_eq!(noted(&(long + &stream), 4096), (Some(String::new()), None, None));
}
