//! Texts that clients write for lost results, in every format.

use antiphon_core::{
    conversation::{
        Outline, PartId,
        lost_results::{LOST_BYTES_MAX, LOST_RESULTS, LostText, is_lost},
    },
    repair::{Placeholder, parse},
    wire::Wire,
};
use bytes::Bytes;

use Wire as W;

/// Texts as clients wrote them, complete or as far as they were reported.
const SEEN: &[&str] = &[
    "[Tool call interrupted: the session ended before this call's result was recorded, so its outcome is unknown; check]",
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "aborted",
    "Wall time: 3.0 seconds\naborted by user",
    "Tool execution result was not recorded \u{2014} likely interrupted by a crash",
    "Tool execution was interrupted before a result was recorded. Its effects may be absent, partial or complete.",
    "[Tool execution was interrupted]",
    "No result provided",
    "[openclaw] missing tool result in session history; inserted synthetic error result for transcript repair.",
    "[Result unavailable \u{2014} see context summary above]",
    Placeholder::ReadInterrupted.text(),
    Placeholder::OutcomeUnknown.text(),
];

/// Texts that real tools may print.
const REAL: &[&str] = &[
    "",
    "ok",
    "the build was aborted",
    "aborted: 3 files",
    "No result provided by the server",
    "Wall time: 3.0 seconds\nall good",
    "Wall time: 3.0 seconds\nrm: aborted\nWall time: 4 seconds\naborted by user",
    "log: [Tool execution was interrupted]",
    "[antiphon: the tool reported an error without a text.]",
];

fn outline(wire: Wire, body: &str) -> Outline {
    let body = Bytes::copy_from_slice(body.as_bytes());
    parse(&body, wire).unwrap().outline()
}

/// Returns histories with one call whose result is the JSON `content`, in each place that a format allows.
fn histories(content: &str) -> Vec<(Wire, String)> {
    let anthropic = |content: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"f","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","is_error":true,"content":{content}}}]}}]}}"#
        )
    };
    let chat = |content: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","tool_calls":[{{"id":"a","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","content":{content},"tool_call_id":"a"}}]}}"#
        )
    };
    let responses = |kind: &str, argument: &str, content: &str| {
        format!(
            r#"{{"input":[{{"type":"{kind}","call_id":"a","name":"f","{argument}":"{{}}"}},{{"type":"{kind}_output","call_id":"a","output":{content}}}]}}"#
        )
    };
    let gemini = |name: &str, key: &str| {
        format!(
            r#"{{"contents":[{{"role":"user","parts":[{{"text":"go"}}]}},{{"role":"model","parts":[{{"functionCall":{{"name":"f","args":{{}}}}}}]}},{{"role":"user","parts":[{{"{name}":{{"name":"f","response":{{"{key}":{content}}}}}}}]}}]}}"#
        )
    };
    let block = |kind: &str| format!(r#"[{{"type":"{kind}","text":{content}}}]"#);
    vec![
        (W::ANTHROPIC, anthropic(content)),
        (W::ANTHROPIC, anthropic(&block("text"))),
        (W::OPENAI_CHAT, chat(content)),
        (W::OPENAI_CHAT, chat(&block("text"))),
        (W::OPENAI_RESPONSES, responses("function_call", "arguments", content)),
        (
            W::OPENAI_RESPONSES,
            responses("function_call", "arguments", &block("input_text")),
        ),
        (W::OPENAI_RESPONSES, responses("custom_tool_call", "input", content)),
        (W::GEMINI, gemini("functionResponse", "result")),
        (W::GEMINI, gemini("functionResponse", "output")),
        (W::GEMINI, gemini("function_response", "error")),
    ]
}

/// Reports whether a history counts its only result as lost.
fn says_lost(wire: Wire, body: &str) -> bool {
    let outline = outline(wire, body);
    assert_eq!(outline.last_results.len(), 1, "{wire} {body}");
    outline.last_results[0].lost
}

#[test]
fn lost_texts_are_recognized_in_every_format() {
    for (texts, lost) in [(SEEN, true), (REAL, false)] {
        for text in texts {
            assert_eq!(is_lost(text.as_bytes()), lost, "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            let escaped: Vec<String> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            for content in [json, format!("\"{}\"", escaped.concat())] {
                for (wire, body) in histories(&content) {
                    assert_eq!(says_lost(wire, &body), lost, "{wire} {body}");
                }
            }
        }
    }
}

#[test]
fn every_row_has_an_observed_text() {
    for row in LOST_RESULTS {
        let says = |text: &&&str| match row.text {
            LostText::Whole(whole) => **text == whole,
            LostText::Begins(begin) => text.starts_with(begin),
            LostText::Between(begin, end) => text.starts_with(begin) && text.ends_with(end),
        };
        assert!(SEEN.iter().any(|text| says(&text)), "{row:?}");
        assert!(!row.client.is_empty() && !row.since.is_empty(), "{row:?}");
    }
}

#[test]
fn a_result_with_more_than_one_text_is_not_lost() {
    let result = |content: &str| {
        format!(
            r#"{{"thread":{{"type":"continue"}},"messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a"{content}}}]}}]}}"#
        )
    };
    let two = r#","content":[{"type":"text","text":"aborted"},{"type":"text","text":"aborted"}]"#;
    let image = r#","content":[{"type":"image","text":"aborted"}]"#;
    let long = format!(r#","content":"No result provided{}""#, " ".repeat(LOST_BYTES_MAX));
    for content in [two, image, "", r#","content":null"#, r#","content":["aborted"]"#, &long] {
        assert!(!says_lost(W::ANTHROPIC, &result(content)), "{content}");
    }
    assert!(says_lost(W::ANTHROPIC, &result(r#","content":" aborted\n""#)));
    let gemini = |response: &str| {
        format!(
            r#"{{"cachedContent":"c","contents":[{{"role":"user","parts":[{{"functionResponse":{{"name":"f","response":{response}}}}}]}}]}}"#
        )
    };
    for response in [
        r#"{"error":"aborted","code":1}"#,
        r#"{"text":"aborted"}"#,
        r#""aborted""#,
        "{}",
    ] {
        assert!(!says_lost(W::GEMINI, &gemini(response)), "{response}");
    }
    assert!(says_lost(W::GEMINI, &gemini(r#"{"error":"aborted"}"#)));
}

#[test]
fn the_text_of_a_result_is_decoded() {
    for (wire, body) in histories(r#""4\u0032 \"x\"""#) {
        let conversation = wire.read(body.as_bytes()).unwrap();
        let last = conversation.parts.len() - 1;
        assert_eq!(
            conversation.plain_text(PartId::new(last)).as_deref(),
            Some(&b"42 \"x\""[..]),
            "{wire}"
        );
        assert_eq!(conversation.plain_text(PartId::default()), None, "{wire}: no result");
    }
}

#[test]
fn user_text_at_the_end_is_distinguished_from_results() {
    let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}"#;
    let result = r#"{"type":"tool_result","tool_use_id":"a","content":"1"}"#;
    let text = r#"{"type":"text","text":"hurry"}"#;
    let anthropic = |last: &str| format!(r#"{{"messages":[{{"role":"user","content":"go"}},{call},{last}]}}"#);
    let user = |blocks: &str| anthropic(&format!(r#"{{"role":"user","content":[{blocks}]}}"#));
    let chat_call = r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"}"#;
    let chat = |more: &str| format!(r#"{{"messages":[{chat_call}{more}]}}"#);
    let item = r#"{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"1"}"#;
    let items = |more: &str| format!(r#"{{"input":[{item}{more}]}}"#);
    let gemini = |parts: &str| {
        format!(
            r#"{{"contents":[{{"role":"model","parts":[{{"functionCall":{{"name":"f"}}}}]}},{{"role":"user","parts":[{parts}]}}]}}"#
        )
    };
    let response = r#"{"functionResponse":{"name":"f","response":{}}}"#;
    for (wire, body, speaks) in [
        (W::ANTHROPIC, user(result), false),
        (W::ANTHROPIC, user(&format!("{result},{text}")), true),
        (W::ANTHROPIC, user(text), true),
        (W::ANTHROPIC, user(""), false),
        (W::ANTHROPIC, anthropic(r#"{"role":"user","content":"hurry"}"#), true),
        (W::ANTHROPIC, anthropic(r#"{"role":"user","content":""}"#), false),
        (
            W::ANTHROPIC,
            anthropic(r#"{"role":"assistant","content":"yes"}"#),
            false,
        ),
        (
            W::ANTHROPIC,
            anthropic(r#"{"role":"user","content":"hurry"},{"role":"system","content":"s"}"#),
            true,
        ),
        (W::OPENAI_CHAT, chat(""), false),
        (W::OPENAI_CHAT, chat(r#",{"role":"user","content":"hurry"}"#), true),
        (
            W::OPENAI_CHAT,
            chat(r#",{"role":"user","content":[{"type":"text","text":"x"}]}"#),
            true,
        ),
        (W::OPENAI_CHAT, chat(r#",{"role":"assistant","content":"x"}"#), false),
        (W::OPENAI_RESPONSES, items(""), false),
        (
            W::OPENAI_RESPONSES,
            items(r#",{"role":"user","content":"hurry"}"#),
            true,
        ),
        (W::OPENAI_RESPONSES, r#"{"input":"go"}"#.to_owned(), true),
        (W::OPENAI_RESPONSES, r#"{"input":null}"#.to_owned(), false),
        (W::GEMINI, gemini(response), false),
        (W::GEMINI, gemini(&format!(r#"{response},{{"text":"hurry"}}"#)), true),
        (W::GEMINI, gemini(r#"{"text":"hurry"}"#), true),
        (W::GEMINI, r#"{"contents":[]}"#.to_owned(), false),
    ] {
        assert_eq!(outline(wire, &body).ends_with_user_text, speaks, "{wire} {body}");
    }
}
