//! The outline of a body, format by format: everything it says besides pairing.

use antiphon_core::{
    conversation::{BodyField, Outline, outline::IDS_MAX},
    repair::parse,
    wire::Wire,
};
use bytes::Bytes;

use Wire as W;

fn outline(wire: Wire, body: &str) -> Outline {
    let body = Bytes::copy_from_slice(body.as_bytes());
    parse(&body, wire).unwrap().outline()
}

fn texts(ids: &[impl AsRef<[u8]>]) -> Vec<&str> {
    ids.iter().map(|id| std::str::from_utf8(id.as_ref()).unwrap()).collect()
}

/// Returns a history that ends with this message.
fn asking(asks: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":"ok"}},{asks}]}}"#)
}

/// Name, wire, flag, body, and the expected value of the flag.
type Row = (&'static str, Wire, fn(&Outline) -> bool, &'static str, bool);

const STREAM: fn(&Outline) -> bool = |outline| outline.stream;
const HELD: fn(&Outline) -> bool = |outline| outline.names_remote_state;
const BOUND: fn(&Outline) -> bool = |outline| outline.has_signed_reasoning;
const MAY_COMPACT: fn(&Outline) -> bool = |outline| outline.may_compact;

const FLAGS: &[Row] = &[
    ("stream", W::ANTHROPIC, STREAM, r#"{"stream":true,"messages":[]}"#, true),
    (
        "no stream",
        W::OPENAI_CHAT,
        STREAM,
        r#"{"messages":[],"stream":false}"#,
        false,
    ),
    (
        "a text",
        W::OPENAI_CHAT,
        STREAM,
        r#"{"messages":[],"stream":"true"}"#,
        false,
    ),
    (
        "the last counts",
        W::OPENAI_CHAT,
        STREAM,
        r#"{"stream":false,"messages":[],"stream" : true }"#,
        true,
    ),
    (
        "created",
        W::ANTHROPIC,
        HELD,
        r#"{"thread":{"type":"create"},"messages":[]}"#,
        false,
    ),
    (
        "continued",
        W::ANTHROPIC,
        HELD,
        r#"{"thread":{"type":"continue","previous_message_id":"msg_1"},"messages":[]}"#,
        true,
    ),
    (
        "container",
        W::ANTHROPIC,
        HELD,
        r#"{"messages":[],"container":"container_1"}"#,
        true,
    ),
    (
        "container by id",
        W::ANTHROPIC,
        HELD,
        r#"{"messages":[],"container":{"id":"c","skills":[]}}"#,
        true,
    ),
    (
        "new container",
        W::ANTHROPIC,
        HELD,
        r#"{"messages":[],"container":{"skills":[{"type":"anthropic"}]}}"#,
        false,
    ),
    (
        "no container",
        W::ANTHROPIC,
        HELD,
        r#"{"messages":[],"container":null}"#,
        false,
    ),
    (
        "response",
        W::OPENAI_RESPONSES,
        HELD,
        r#"{"input":[],"previous_response_id":"resp_1"}"#,
        true,
    ),
    (
        "no response",
        W::OPENAI_RESPONSES,
        HELD,
        r#"{"input":[],"previous_response_id":null}"#,
        false,
    ),
    (
        "conversation",
        W::OPENAI_RESPONSES,
        HELD,
        r#"{"conversation":{"id":"conv_1"},"input":"hi"}"#,
        true,
    ),
    (
        "background",
        W::OPENAI_RESPONSES,
        HELD,
        r#"{"background":true,"input":[]}"#,
        true,
    ),
    (
        "foreground",
        W::OPENAI_RESPONSES,
        HELD,
        r#"{"background":false,"input":[]}"#,
        false,
    ),
    (
        "reference",
        W::OPENAI_RESPONSES,
        HELD,
        r#"{"input":[{"type":"item_reference","id":"msg_1"}]}"#,
        true,
    ),
    (
        "cached",
        W::GEMINI,
        HELD,
        r#"{"cachedContent":"cachedContents/1","contents":[]}"#,
        true,
    ),
    ("not cached", W::GEMINI, HELD, r#"{"contents":[]}"#, false),
    (
        "thinking",
        W::ANTHROPIC,
        BOUND,
        r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"}]}]}"#,
        true,
    ),
    (
        "words",
        W::ANTHROPIC,
        BOUND,
        r#"{"messages":[{"role":"assistant","content":[{"type":"text","text":"thinking"}]}]}"#,
        false,
    ),
    (
        "encrypted",
        W::OPENAI_RESPONSES,
        BOUND,
        r#"{"input":[{"type":"reasoning","id":"rs_1","encrypted_content":"x"}]}"#,
        true,
    ),
    (
        "summary",
        W::OPENAI_RESPONSES,
        BOUND,
        r#"{"input":[{"type":"compaction","encrypted_content":"x"}]}"#,
        true,
    ),
    (
        "signed",
        W::GEMINI,
        BOUND,
        r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"},"thoughtSignature":"s"}]}]}"#,
        true,
    ),
    (
        "unsigned",
        W::GEMINI,
        BOUND,
        r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]}"#,
        false,
    ),
    (
        "edits",
        W::ANTHROPIC,
        MAY_COMPACT,
        r#"{"context_management":{"edits":[{"type":"compact_20260112"}]},"messages":[]}"#,
        true,
    ),
    (
        "other edits",
        W::ANTHROPIC,
        MAY_COMPACT,
        r#"{"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},"messages":[]}"#,
        false,
    ),
    (
        "threshold",
        W::OPENAI_RESPONSES,
        MAY_COMPACT,
        r#"{"context_management":[{"type":"compaction","compact_threshold":1000}],"input":[]}"#,
        true,
    ),
];

#[test]
fn flags_are_read_from_the_body() {
    for (name, wire, flag, body, expected) in FLAGS {
        assert_eq!(flag(&outline(*wire, body)), *expected, "{name}: {body}");
    }
}

#[test]
fn a_compaction_is_recognized_by_its_last_message() {
    let text = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\\n\\nYour task is to create a detailed summary of \
        the conversation. Give an <analysis> block followed by a <summary> block.";
    let user = |content: &str| format!(r#"{{"role":"user","content":{content}}}"#);
    let blocks = |text: &str| user(&format!(r#"[{{"type":"text","text":"{text}"}}]"#));
    let padded = format!("{}{text}", "x".repeat(100_000));
    for (name, last, expected) in [
        ("a string", user(&format!("\"{text}\"")), true),
        ("a block", blocks(text), true),
        ("after much else", blocks(&padded), true),
        ("half of it", blocks(&text[..60]), false),
        (
            "a result that says so",
            user(&format!(
                r#"[{{"type":"tool_result","tool_use_id":"t","content":"{text}"}}]"#
            )),
            false,
        ),
        (
            "the assistant's",
            format!(r#"{{"role":"user","content":"?"}},{{"role":"assistant","content":"{text}"}}"#),
            false,
        ),
    ] {
        assert_eq!(outline(W::ANTHROPIC, &asking(&last)).compaction, expected, "{name}");
    }
    for (items, expected) in [
        (r#"{"role":"user","content":"go"},{"type":"compaction_trigger"}"#, true),
        (r#"{"type":"compaction_trigger"},{"role":"user","content":"go"}"#, false),
        (r#"{"role":"user","content":"go"}"#, false),
    ] {
        assert_eq!(
            outline(W::OPENAI_RESPONSES, &format!(r#"{{"input":[{items}]}}"#)).compaction,
            expected,
            "{items}"
        );
    }
}

/// Name, wire, body, calls of the last turn, and the results after it.
type Ended = (
    &'static str,
    Wire,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const ENDS: &[Ended] = &[
    ("nothing", W::ANTHROPIC, r#"{"messages":[]}"#, &[], &[]),
    (
        "blocks",
        W::ANTHROPIC,
        r#"{"messages":[{"role":"user","content":"go"},
            {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"b","name":"f","input":{}},{"type":"tool_use","id":"c","name":"f","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"3"},{"type":"tool_result","tool_use_id":"b","content":"2"}]}]}"#,
        &["b", "c"],
        &["c", "b"],
    ),
    (
        "results alone",
        W::ANTHROPIC,
        r#"{"thread":{"type":"continue"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}"#,
        &[],
        &["a"],
    ),
    (
        "chat",
        W::OPENAI_CHAT,
        r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"1"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"b","content":"2"},{"role":"user","content":"and?"}]}"#,
        &["b"],
        &["b"],
    ),
    (
        "items after reasoning",
        W::OPENAI_RESPONSES,
        r#"{"input":[{"type":"reasoning","id":"r1"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":""},
            {"type":"reasoning","id":"r2"},{"type":"function_call","call_id":"b","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"b","output":""},
            {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":""}]}"#,
        &["b", "c"],
        &["b", "c"],
    ),
    (
        "words after items",
        W::OPENAI_RESPONSES,
        r#"{"input":[{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":""},{"role":"user","content":"and?"}]}"#,
        &["a"],
        &["a"],
    ),
    (
        "names in place of ids",
        W::GEMINI,
        r#"{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]},
            {"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}]}"#,
        &["f"],
        &["f"],
    ),
];

#[test]
fn the_last_calls_and_results_are_listed() {
    for (name, wire, body, asked, answers) in ENDS {
        let found = outline(*wire, body);
        let results_of: Vec<&[u8]> = found.last_results.iter().map(|answer| &*answer.id).collect();
        let asked_of: Vec<&[u8]> = found.last_calls.iter().map(|call| &*call.id).collect();
        let named = (texts(&asked_of), texts(&results_of));
        assert_eq!(named, (asked.to_vec(), answers.to_vec()), "{name}");
    }
}

#[test]
fn long_lists_and_long_ids_are_cut() {
    let result = |id: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}"}}"#);
    let results: Vec<String> = (0..400)
        .map(|n| result(&format!("toolu_{n:03}{}", "x".repeat(400))))
        .collect();
    let body = format!(
        r#"{{"thread":{{"type":"continue"}},"messages":[{{"role":"user","content":[{}]}}]}}"#,
        results.join(",")
    );
    let found = outline(W::ANTHROPIC, &body);
    assert_eq!(found.last_results.len(), IDS_MAX);
    assert!(found.last_results.iter().all(|answer| answer.id.len() == 128));
    assert!(found.last_results.last().unwrap().id.starts_with(b"toolu_399"));
}

#[test]
fn spans_point_at_their_fields() {
    let body = r#"{"model":"m-1","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"user","content":"v"}],"tools":[1],"metadata":{"a":1},"model":"m-2"}"#;
    let found = outline(W::OPENAI_CHAT, body);
    let at = |field| found.field(field).map(|span| &body[span.range()]);
    assert_eq!(at(BodyField::Model), Some("\"m-2\""));
    assert_eq!(at(BodyField::Tools), Some("[1]"));
    assert_eq!(at(BodyField::Metadata), Some(r#"{"a":1}"#));
    assert_eq!(at(BodyField::PromptCacheKey), None);
    let message = |span: Option<antiphon_core::splice::Span>| &body[span.unwrap().range()];
    assert_eq!(message(found.system), r#"{"role":"system","content":"s"}"#);
    assert_eq!(message(found.first_user), r#"{"role":"user","content":"u"}"#);
    assert_eq!(found.messages, 3);
}

#[test]
fn a_batch_has_no_outline() {
    let body = r#"{"model":"m","requests":[{"custom_id":"1","params":{"model":"m","messages":[{"role":"user","content":"go"}]}}]}"#;
    assert_eq!(outline(W::ANTHROPIC, body), Outline::default());
}
