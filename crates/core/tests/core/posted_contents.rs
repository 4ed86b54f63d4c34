//! Contents that tool services post: any JSON becomes a valid tool result of each format.

use antiphon_core::{
    repair::{CallKey, KnownResults, PairingContext, PinnedResult, RealResult, RepairPolicy, parse, repair_with},
    wire::{Format, Wire},
};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::Value;

use crate::{deepseek_referee::referee, support::judge};

const WIRES: [Wire; 4] = [Wire::ANTHROPIC, Wire::OPENAI_CHAT, Wire::OPENAI_RESPONSES, Wire::GEMINI];

/// A content, and the expected content in Messages, Chat Completions, Responses and Gemini.
type Row = (&'static str, [&'static str; 4]);

const ROWS: [Row; 20] = [
    (
        r#""done""#,
        [r#""done""#, r#""done""#, r#""done""#, r#"{"result":"done"}"#],
    ),
    (r#""""#, [r#""""#, r#""""#, r#""""#, r#"{"result":""}"#]),
    (
        r#"{ "status": "done", "url": "https://e.com/\u0072" }"#,
        [
            r#""{\"status\":\"done\",\"url\":\"https://e.com/r\"}""#,
            r#""{\"status\":\"done\",\"url\":\"https://e.com/r\"}""#,
            r#""{ \"status\": \"done\", \"url\": \"https://e.com/\\u0072\" }""#,
            r#"{ "status": "done", "url": "https://e.com/\u0072" }"#,
        ],
    ),
    ("42", [r#""42""#, r#""42""#, r#""42""#, r#"{"result":42}"#]),
    ("null", [r#""null""#, r#""null""#, r#""null""#, r#"{"result":null}"#]),
    ("true", [r#""true""#, r#""true""#, r#""true""#, r#"{"result":true}"#]),
    ("[]", ["[]", r#""""#, "[]", r#"{"result":[]}"#]),
    (
        r#"[ {"text":"\u0061","type":"text"}, {"type":"text","text":"b"}]"#,
        [
            r#"[ {"text":"\u0061","type":"text"}, {"type":"text","text":"b"}]"#,
            r#"[ {"text":"\u0061","type":"text"}, {"type":"text","text":"b"}]"#,
            r#"[{"type":"input_text","text":"\u0061"},{"type":"input_text","text":"b"}]"#,
            r#"{"result":[ {"text":"\u0061","type":"text"}, {"type":"text","text":"b"}]}"#,
        ],
    ),
    (
        r#"[{"type":"text","text":""}]"#,
        [
            r#""""#,
            r#"[{"type":"text","text":""}]"#,
            r#""""#,
            r#"{"result":[{"type":"text","text":""}]}"#,
        ],
    ),
    (
        r#"[{"type":"weather","sky":"fair"}]"#,
        [
            r#""[{\"type\":\"weather\",\"sky\":\"fair\"}]""#,
            r#""[{\"type\":\"weather\",\"sky\":\"fair\"}]""#,
            r#""[{\"type\":\"weather\",\"sky\":\"fair\"}]""#,
            r#"{"result":[{"type":"weather","sky":"fair"}]}"#,
        ],
    ),
    (
        r#"["a", "b"]"#,
        [
            r#""[\"a\",\"b\"]""#,
            r#""[\"a\",\"b\"]""#,
            r#""[\"a\",\"b\"]""#,
            r#"{"result":["a", "b"]}"#,
        ],
    ),
    (
        "[1, 2.50]",
        [
            r#""[1,2.50]""#,
            r#""[1,2.50]""#,
            r#""[1,2.50]""#,
            r#"{"result":[1, 2.50]}"#,
        ],
    ),
    (
        r#"[{"type":"resource","resource":{"uri":"file:///r","text":"\u00e9"}}]"#,
        [
            r#""[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///r\",\"text\":\"é\"}}]""#,
            r#""[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///r\",\"text\":\"é\"}}]""#,
            r#""[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///r\",\"text\":\"é\"}}]""#,
            r#"{"result":[{"type":"resource","resource":{"uri":"file:///r","text":"\u00e9"}}]}"#,
        ],
    ),
    (
        r#"[{"type":"image","data":"iVBORw0K","mimeType":"image/png"}]"#,
        [
            r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}]"#,
            r#""(image: image/png, 6 bytes)""#,
            r#"[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0K"}]"#,
            r#"{"result":[{"type":"text","text":"(image: image/png, 6 bytes)"}]}"#,
        ],
    ),
    (
        r#"[{"type":"text","text":"a","score":0.5}]"#,
        [
            r#""[{\"type\":\"text\",\"text\":\"a\",\"score\":0.5}]""#,
            r#""[{\"type\":\"text\",\"text\":\"a\",\"score\":0.5}]""#,
            r#""[{\"type\":\"text\",\"text\":\"a\",\"score\":0.5}]""#,
            r#"{"result":[{"type":"text","text":"a","score":0.5}]}"#,
        ],
    ),
    (
        r#""a\ud800b\ud83d\ude00""#,
        [
            r#""a\ufffdb\ud83d\ude00""#,
            r#""a\ufffdb\ud83d\ude00""#,
            r#""a\ufffdb\ud83d\ude00""#,
            r#"{"result":"a\ufffdb\ud83d\ude00"}"#,
        ],
    ),
    (
        r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}]"#,
        [
            r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}]"#,
            r#""(image: image/png, 6 bytes)""#,
            r#"[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0K"}]"#,
            r#"{"result":[{"type":"text","text":"(image: image/png, 6 bytes)"}]}"#,
        ],
    ),
    (
        r#"["a",{"type":"text","text":"b"}]"#,
        [
            r#""[\"a\",{\"type\":\"text\",\"text\":\"b\"}]""#,
            r#""[\"a\",{\"type\":\"text\",\"text\":\"b\"}]""#,
            r#""[\"a\",{\"type\":\"text\",\"text\":\"b\"}]""#,
            r#"{"result":["a",{"type":"text","text":"b"}]}"#,
        ],
    ),
    (
        r#"[{"type":"text","text":"a \"b\"","annotations":{"audience":["user"]}},{"type":"image","data":"iVBORw0K","mimeType":"image/jpg"},{"type":"resource_link","uri":"x:"}]"#,
        [
            r#"[{"type":"text","text":"a \"b\""},{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"iVBORw0K"}},{"type":"text","text":"{\"type\":\"resource_link\",\"uri\":\"x:\"}"}]"#,
            r#""a \"b\"\n(image: image/jpeg, 6 bytes)\n{\"type\":\"resource_link\",\"uri\":\"x:\"}""#,
            r#"[{"type":"input_text","text":"a \"b\""},{"type":"input_image","image_url":"data:image/jpeg;base64,iVBORw0K"},{"type":"input_text","text":"{\"type\":\"resource_link\",\"uri\":\"x:\"}"}]"#,
            r#"{"result":[{"type":"text","text":"a \"b\"","annotations":{"audience":["user"]}},{"type":"text","text":"(image: image/jpeg, 6 bytes)"},{"type":"resource_link","uri":"x:"}]}"#,
        ],
    ),
    (
        r#"[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://e.com/a.png","detail":"low"}]"#,
        [
            r#"[{"type":"text","text":"a"},{"type":"text","text":"{\"type\":\"input_image\",\"image_url\":\"https://e.com/a.png\",\"detail\":\"low\"}"}]"#,
            r#""a\n{\"type\":\"input_image\",\"image_url\":\"https://e.com/a.png\",\"detail\":\"low\"}""#,
            r#"[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://e.com/a.png","detail":"low"}]"#,
            r#"{"result":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://e.com/a.png","detail":"low"}]}"#,
        ],
    ),
];

/// Known answers with one result for every call, either posted or pinned by an earlier request.
struct Memory {
    result: RealResult,
    is_pinned: bool,
}

impl Memory {
    /// Returns this answer for every open call.
    fn known(&self, body: &Bytes, wire: Wire) -> KnownResults {
        let policy = RepairPolicy::default();
        let paired = parse(body, wire).unwrap().pair(PairingContext::new(&policy));
        let keys: Vec<CallKey> = paired.open_calls().map(|call| call.key).collect();
        let mut known = KnownResults::default();
        for key in keys {
            if self.is_pinned {
                known.pinned.insert(key, PinnedResult::Result(self.result.clone()));
            } else {
                known.results.insert(key, self.result.clone());
            }
        }
        known
    }
}

/// Returns a history in which the call `call_1AbC9dE3fG7hJ2` of the tool `run` is open.
fn open(format: Format) -> Bytes {
    Bytes::from(match format {
        Format::Anthropic => {
            r#"{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"call_1AbC9dE3fG7hJ2","name":"run","input":{}}]},{"role":"user","content":"hurry"}]}"#
        }
        Format::OpenAiChat => {
            r#"{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1AbC9dE3fG7hJ2","type":"function","function":{"name":"run","arguments":"{}"}}]},{"role":"user","content":"hurry"}]}"#
        }
        Format::OpenAiResponses => {
            r#"{"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"call_1AbC9dE3fG7hJ2","name":"run","arguments":"{}"},{"role":"user","content":"hurry"}]}"#
        }
        Format::Gemini => {
            r#"{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"id":"call_1AbC9dE3fG7hJ2","name":"run","args":{}}}]},{"role":"user","parts":[{"text":"hurry"}]}]}"#
        }
    })
}

/// Returns the bytes before and after the content in the inserted result.
const fn around(format: Format, failed: bool) -> (&'static str, &'static str) {
    match (format, failed) {
        (Format::Anthropic, false) => (
            r#"{"type":"tool_result","tool_use_id":"call_1AbC9dE3fG7hJ2","content":"#,
            "}",
        ),
        (Format::Anthropic, true) => (
            r#"{"type":"tool_result","tool_use_id":"call_1AbC9dE3fG7hJ2","content":"#,
            r#","is_error":true}"#,
        ),
        (Format::OpenAiChat, _) => (r#"{"role":"tool","tool_call_id":"call_1AbC9dE3fG7hJ2","content":"#, "}"),
        (Format::OpenAiResponses, _) => (
            r#"{"type":"function_call_output","call_id":"call_1AbC9dE3fG7hJ2","output":"#,
            "}",
        ),
        (Format::Gemini, _) => (
            r#"{"functionResponse":{"id":"call_1AbC9dE3fG7hJ2","name":"run","response":"#,
            "}}",
        ),
    }
}

/// Returns the body with the inserted result. `Err` is the judge's refusal.
fn restored(body: &Bytes, wire: Wire, content: &str, failed: bool) -> Result<String, String> {
    let put_in = |is_pinned| {
        let result = RealResult::Content {
            content: content.to_owned(),
            failed,
        };
        let memory = Memory { result, is_pinned };
        let done = repair_with(body, wire, &RepairPolicy::default(), &memory.known(body, wire)).unwrap();
        String::from_utf8(done.body.to_vec()).unwrap()
    };
    let out = put_in(false);
    assert_eq!(put_in(true), out, "what was put in once is put in again");
    let value: Value = serde_json::from_str(&out).map_err(|error| format!("no JSON: {error}"))?;
    judge::of(wire)(&value).map_err(|refusal| refusal.message)?;
    Ok(out)
}

#[test]
fn every_content_becomes_a_valid_result() {
    let mut failures = Vec::new();
    for (content, wanted) in ROWS {
        for (wire, wanted) in WIRES.into_iter().zip(wanted) {
            let (before, after) = around(wire.format, false);
            match restored(&open(wire.format), wire, content, false) {
                Err(words) => failures.push(format!("{wire} {content}: {words}")),
                Ok(out) if !out.contains(&format!("{before}{wanted}{after}")) => {
                    failures.push(format!("{wire} {content}:\n  wanted {wanted}\n  in {out}"));
                }
                Ok(_) => {}
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// An error result of Anthropic contains only text, and is never empty.
#[test]
fn an_error_result_has_text() {
    let nothing = r#""[antiphon: the tool reported an error without a text.]""#;
    let picture = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}"#;
    let as_text =
        r#"{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"iVBORw0K\"}}"#;
    let text = r#"{"type":"text","text":"a"}"#;
    let rows = [
        (r#""no""#.to_owned(), r#""no""#.to_owned()),
        (r#""""#.to_owned(), nothing.to_owned()),
        ("[]".to_owned(), nothing.to_owned()),
        (r#"[{"type":"text","text":" "}]"#.to_owned(), nothing.to_owned()),
        ("null".to_owned(), r#""null""#.to_owned()),
        (format!("[{text}]"), format!("[{text}]")),
        (format!("[{picture}]"), format!("\"[{as_text}]\"")),
        (
            format!("[{text},{picture}]"),
            format!(r#"[{text},{{"type":"text","text":"{as_text}"}}]"#),
        ),
    ];
    let (before, after) = around(Format::Anthropic, true);
    for (content, wanted) in rows {
        let out = restored(&open(Format::Anthropic), Wire::ANTHROPIC, &content, true).expect(&content);
        assert!(out.contains(&format!("{before}{wanted}{after}")), "{content}: {out}");
    }
    for (content, _) in ROWS {
        for wire in WIRES {
            restored(&open(wire.format), wire, content, true)
                .unwrap_or_else(|words| panic!("{wire} {content}: {words}"));
        }
    }
    let failed = restored(&open(Format::Gemini), Wire::GEMINI, "[1]", true).unwrap();
    assert!(failed.contains(r#""response":{"error":[1]}"#), "{failed}");
}

/// The result of a call from the provider's code execution contains only text.
#[test]
fn a_result_for_code_execution_is_text() {
    let body = Bytes::from_static(
        br#"{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{}},{"type":"tool_use","id":"call_1AbC9dE3fG7hJ2","name":"run","input":{},"caller":{"type":"code_execution_20250825","tool_id":"srvtoolu_1"}}]}]}"#,
    );
    let content = r#"[{"type":"text","text":"a"},{"type":"image","data":"iVBORw0K","mimeType":"image/png"}]"#;
    let out = restored(&body, Wire::ANTHROPIC, content, false).unwrap();
    let wanted = r#""content":[{"type":"text","text":"a"},{"type":"text","text":"{\"type\":\"image\",\"data\":\"iVBORw0K\",\"mimeType\":\"image/png\"}"}]}"#;
    assert!(out.contains(wanted), "{out}");
}

/// Contents that a provider accepts, in odd spellings. Their bytes must not change, since prefixes contain them.
const TAKEN: &[(&str, &str)] = &[
    ("anthropic", r#""\u0041\/ \ud83d\ude00 é""#),
    ("anthropic", r#""  ""#),
    ("anthropic", "[ ]"),
    ("anthropic", r#"[{"type":"text","text":"a","citations":null}]"#),
    (
        "anthropic",
        r#"[ {"type":"text", "text":"a","citations":[{"type":"char_location","cited_text":"a","document_index":0,"document_title":null,"start_char_index":0,"end_char_index":1}]}]"#,
    ),
    (
        "anthropic",
        r#"[{"source":{"url":"https://e.com/a.png","type":"url"},"type":"image"},{"type":"image","source":{"type":"file","file_id":"file_1"}},{"type":"image","source":{"type":"base64","media_type":"image\/webp","data":"UklGRg=="}}]"#,
    ),
    (
        "anthropic",
        r#"[{"type":"document","title":null,"context":"c","citations":{"enabled":true},"source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"}]}},{"type":"document","source":{"type":"url","url":"https://e.com/a.pdf"}}]"#,
    ),
    (
        "anthropic",
        r#"[{"type":"search_result","source":"https://e.com","title":"t","content":[{"type":"text","text":"a"}],"citations":{"enabled":false}}]"#,
    ),
    ("anthropic", r#"[{"type":"tool_reference","tool_name":"f"}]"#),
    ("openai-chat", r#""\u0041\/ é""#),
    ("openai-chat", r#"[ {"text" : " ","type":"text"} ]"#),
    (
        "openai-chat",
        r#"[{"type":"text","text":"a","prompt_cache_breakpoint":{"mode":"explicit"}}]"#,
    ),
    (
        "openai-chat-compatible",
        r#"[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0K","detail":"low"}}]"#,
    ),
    ("openai-responses", r#""\u0041\/ é""#),
    (
        "openai-responses",
        r#"[ {"text":"","type":"input_text"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0K","detail":null},{"type":"input_image","file_id":"file-1"}]"#,
    ),
    (
        "openai-responses",
        r#"[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="},{"type":"input_file","file_url":"https://e.com/a.pdf"}]"#,
    ),
    ("gemini", r#"{ "a" : [ 1.50, {"b":null} ], "a":"\u0041" }"#),
];

#[test]
fn valid_content_is_sent_as_posted() {
    for (name, content) in TAKEN {
        let wire: Wire = name.parse().unwrap();
        let (before, after) = around(wire.format, false);
        let out =
            restored(&open(wire.format), wire, content, false).unwrap_or_else(|words| panic!("{content}: {words}"));
        assert!(out.contains(&format!("{before}{content}{after}")), "{content}\n{out}");
    }
}

/// The provider would refuse blocks that are almost valid.
#[test]
fn an_almost_valid_block_becomes_text() {
    let nearly = [
        r#"{"type":"text"}"#,
        r#"{"type":"text","text":7}"#,
        r#"{"type":"text","text":"a","citations":[{"type":"char_location","at":{}}]}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"iVBORw0K"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"no base-64!"}}"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}"#,
        r#"{"type":"image","source":{"type":"url","url":"http://e.com/a.png"}}"#,
        r#"{"type":"image","source":{"type":"url","url":"https://e.com/a.png","title":"t"}}"#,
        r#"{"type":"image","data":"iVBORw0K","mimeType":"image/svg+xml"}"#,
        r#"{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"JVBERi0="}}"#,
        r#"{"type":"document","source":{"type":"content","content":[]}}"#,
        r#"{"type":"search_result","source":"s","title":"t","content":[]}"#,
        r#"{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}"#,
        r#"{"type":"tool_reference","tool_name":""}"#,
        r#"{"type":"input_text"}"#,
        r#"{"type":"input_image","image_url":"a.png"}"#,
        r#"{"type":"input_image","image_url":"https://e.com/a.png","file_id":"file-1"}"#,
        r#"{"type":"input_file","filename":"a.pdf"}"#,
        r#"{"type":"image_url","image_url":{"url":"https://e.com/a.png"}}"#,
        r#"{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"}"#,
        r#"{"type":["text"],"text":"a"}"#,
    ];
    for block in nearly {
        let quoted = serde_json::to_string(&format!("[{block}]")).unwrap();
        for wire in WIRES {
            let content = format!("[{block}]");
            let out =
                restored(&open(wire.format), wire, &content, false).unwrap_or_else(|words| panic!("{block}: {words}"));
            let wanted = if wire == Wire::GEMINI { content } else { quoted.clone() };
            assert!(out.contains(&wanted), "{wire} {block}\n{out}");
        }
    }
}

/// Content that is deeper than today's limit, from older records.
#[test]
fn too_deep_content_becomes_text() {
    let deep = |open: &str, close: &str, levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    for content in [deep("[", "]", 100_000), deep(r#"{"a":"#, "}", 65), deep("[", "]", 65)] {
        let text = serde_json::to_string(&content).unwrap();
        for wire in WIRES {
            let out =
                restored(&open(wire.format), wire, &content, false).unwrap_or_else(|words| panic!("{wire}: {words}"));
            assert!(out.contains(&text), "{wire}");
        }
    }
    for content in [deep(r#"{"a":"#, "}", 64), deep("[", "]", 64)] {
        let out = restored(&open(Format::Gemini), Wire::GEMINI, &content, false).unwrap();
        assert!(out.contains(&content), "{out}");
    }
    let huge = restored(&open(Format::Gemini), Wire::GEMINI, r#"{"a":[1e400]}"#, false).unwrap();
    assert!(huge.contains(r#""response":{"result":"{\"a\":[1e400]}"}"#), "{huge}");
}

/// Responses calls whose outputs have another shape.
#[test]
fn outputs_of_other_calls_contain_text() {
    let list = r#"[ {"type":"text","text":"a"}]"#;
    let text = r#""[ {\"type\":\"text\",\"text\":\"a\"}]""#;
    let parts = r#"[{"type":"input_text","text":"a"}]"#;
    let rows = [
        (
            r#"{"type":"custom_tool_call","call_id":"call_1AbC9dE3fG7hJ2","name":"run","input":""}"#,
            format!(r#""output":{parts}}}"#),
        ),
        (
            r#"{"type":"local_shell_call","call_id":"call_1AbC9dE3fG7hJ2","action":{"type":"exec"},"status":"completed"}"#,
            format!(r#""output":{parts}}}"#),
        ),
        (
            r#"{"type":"shell_call","call_id":"call_1AbC9dE3fG7hJ2","action":{"commands":[]}}"#,
            format!(r#""output":[{{"stdout":{text},"stderr":"""#),
        ),
        (
            r#"{"type":"apply_patch_call","call_id":"call_1AbC9dE3fG7hJ2","operation":{}}"#,
            format!(r#""status":"completed","output":{text}}}"#),
        ),
    ];
    for (call, wanted) in rows {
        let body =
            format!(r#"{{"input":[{{"role":"user","content":"go"}},{call},{{"role":"user","content":"hurry"}}]}}"#);
        let out = restored(&Bytes::from(body), Wire::OPENAI_RESPONSES, list, false)
            .unwrap_or_else(|words| panic!("{call}: {words}"));
        assert!(out.contains(&wanted), "{wanted}\n{out}");
    }
}

/// DeepSeek's own converter accepts the inserted results, in its three formats.
#[test]
fn the_deepseek_referee_accepts_every_content() {
    for name in [
        "anthropic-deepseek",
        "openai-chat-deepseek",
        "openai-responses-deepseek",
    ] {
        let wire: Wire = name.parse().unwrap();
        for (content, _) in ROWS {
            let out =
                restored(&open(wire.format), wire, content, false).unwrap_or_else(|words| panic!("{content}: {words}"));
            let body = serde_json::from_str(&out).unwrap();
            referee(&body, wire.format).unwrap_or_else(|words| panic!("{wire} {content}: {words}\n{out}"));
        }
    }
}

/// Generates strings that may be blank or end in a lone surrogate.
fn strings() -> impl Strategy<Value = String> {
    let rows = vec![
        r#""""#,
        r#"" ""#,
        r#""\ud800""#,
        r#""a\udc00\u0062""#,
        r#""\\ud800 é\n""#,
        r#""iVBORw0K""#,
        r#""image/png""#,
    ];
    select(rows).prop_map(str::to_owned)
}

/// Generates JSON that resembles content blocks.
fn contents() -> impl Strategy<Value = String> {
    let types = [
        "text",
        "input_text",
        "output_text",
        "image",
        "document",
        "search_result",
        "tool_reference",
        "resource",
        "input_image",
        "input_file",
        "image_url",
        "base64",
        "url",
        "content",
        "new",
    ];
    let keys = [
        "type",
        "type",
        "text",
        "text",
        "data",
        "mimeType",
        "media_type",
        "source",
        "url",
        "image_url",
        "content",
        "title",
        "tool_name",
        "annotations",
        "cache_control",
        "citations",
        "prompt_cache_breakpoint",
        "detail",
        "file_id",
        "extra",
    ];
    let leaf = prop_oneof![
        4 => strings(),
        2 => select(types.to_vec()).prop_map(|kind| format!("\"{kind}\"")),
        1 => select(vec!["null", "true", "-1.5e3", "1e400", "[]", "{}"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let block = (
            select(types.to_vec()),
            vec((select(keys.to_vec()), inner.clone()), 0..4),
        )
            .prop_map(|(kind, members)| {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!(",\"{key}\": {value}"))
                    .collect();
                let members = members.concat();
                format!("{{\"type\":\"{kind}\"{members}}}")
            });
        prop_oneof![
            3 => block,
            2 => vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            1 => (select(keys.to_vec()), inner).prop_map(|(key, value)| format!("{{\"{key}\":{value}}}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn random_content_is_accepted(content in contents(), failed in any::<bool>()) {
        for wire in WIRES {
            let out = restored(&open(wire.format), wire, &content, failed);
            prop_assert!(out.is_ok(), "{wire} {content}: {out:?}");
        }
    }
}
