//! Tests of the judge for Responses and Gemini.

use antiphon_core::wire::Wire;
use serde_json::{Value, json};

use crate::judge_cases::{Row, check};
use crate::support::judge::{self, Kind};

/// Builds a Responses history from a short notation. Items are separated by `|`: `u`, `a`, `call 1`, `out 1`, and so
/// on, see [`item`]. A first word with `!` sets the state at the server.
pub(crate) fn responses(short: &str) -> Value {
    let mut body = json!({"model": "gpt-5"});
    let mut rest = short;
    if let Some((held, items)) = short.strip_prefix('!').and_then(|short| short.split_once(' ')) {
        match held {
            "previous" => body["previous_response_id"] = "resp_1".into(),
            "conversation" => body["conversation"] = "conv_1".into(),
            "object" => body["conversation"] = json!({"id": "conv_1"}),
            "null" => body["previous_response_id"] = Value::Null,
            other => panic!("{other}"),
        }
        rest = items;
    }
    let items: Vec<Value> = rest
        .split('|')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(item)
        .collect();
    body["input"] = items.into();
    body
}

fn item(short: &str) -> Value {
    let parts: Vec<&str> = short.split_whitespace().collect();
    let output = |kind: &str, id: &str| json!({"type": kind, "call_id": id, "output": format!("result of {id}")});
    match parts.as_slice() {
        ["u"] => json!({"role": "user", "content": "u"}),
        ["U"] => json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]}),
        ["d"] => json!({"role": "developer", "content": "d"}),
        ["t"] => json!({"role": "tool", "content": "t"}),
        ["a"] => json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}),
        ["think"] => json!({"type": "reasoning", "summary": []}),
        ["think", id] => json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "gAAA"}),
        ["call", id] => json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}),
        ["call", id, own] => json!({"type": "function_call", "id": own, "call_id": id, "name": "f", "arguments": "{}"}),
        ["unnamed", id] => json!({"type": "function_call", "call_id": id, "name": "", "arguments": "{}"}),
        ["nameless", id] => json!({"type": "function_call", "call_id": id, "arguments": "{}"}),
        ["said", "input"] => json!({"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}),
        ["out", id] => output("function_call_output", id),
        ["mute", id] => json!({"type": "function_call_output", "call_id": id}),
        ["patchmute", id] => json!({"type": "apply_patch_call_output", "call_id": id}),
        ["shellmute", id] => json!({"type": "shell_call_output", "call_id": id, "output": "r"}),
        ["noid"] => json!({"type": "function_call_output", "output": "r"}),
        ["standalone"] => json!({"type": "function_call_output", "name": "automation", "output": "r"}),
        ["empty"] => json!({"type": "function_call_output", "call_id": "", "output": "r"}),
        ["custom", id] => json!({"type": "custom_tool_call", "call_id": id, "name": "f", "input": "x"}),
        ["customout", id] => output("custom_tool_call_output", id),
        ["patch", id] => json!({"type": "apply_patch_call", "call_id": id, "status": "completed",
            "operation": {"type": "delete_file", "path": "p"}}),
        ["patchout", id] => json!({"type": "apply_patch_call_output", "call_id": id, "status": "completed"}),
        ["shell", id] => json!({"type": "shell_call", "call_id": id, "action": {"commands": ["ls"]}}),
        ["shellout", id] => json!({"type": "shell_call_output", "call_id": id, "output":
            [{"stdout": format!("result of {id}"), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        ["local", id] => json!({"type": "local_shell_call", "id": format!("lsh_{id}"), "call_id": id,
            "action": {"type": "exec", "command": ["ls"]}}),
        ["localout", id] => json!({"type": "local_shell_call_output", "id": id, "output": "r"}),
        ["computer", id] => json!({"type": "computer_call", "call_id": id, "action": {"type": "screenshot"}}),
        ["screen", id] => json!({"type": "computer_call_output", "call_id": id,
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}}),
        ["search", "server"] => json!({"type": "tool_search_call", "execution": "server", "call_id": null,
            "arguments": {}}),
        ["found", "server"] => json!({"type": "tool_search_output", "execution": "server", "call_id": null,
            "tools": []}),
        ["searchtext", id] => json!({"type": "tool_search_call", "execution": "client", "call_id": id,
            "arguments": "{\"query\":\"mail\"}"}),
        ["search", id] => json!({"type": "tool_search_call", "execution": "client", "call_id": id, "arguments": {}}),
        ["found", id] => json!({"type": "tool_search_output", "execution": "client", "call_id": id, "tools": []}),
        ["program", id] => json!({"type": "program", "id": "prog_1", "call_id": id, "code": "1", "fingerprint": "f"}),
        ["ran", id] => json!({"type": "program_output", "call_id": id, "result": "1"}),
        ["web"] => json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
        ["ask", id] => json!({"type": "mcp_approval_request", "id": id, "server_label": "s", "name": "n",
            "arguments": "{}"}),
        ["allow", id] => json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": true}),
        ["ref", id] => json!({"type": "item_reference", "id": id}),
        ["bareref", id] => json!({"id": id}),
        ["compaction"] => json!({"type": "compaction", "encrypted_content": "gAAA"}),
        ["future"] => json!({"type": "dream", "id": "dr_1"}),
        other => panic!("{other:?}"),
    }
}

/// Builds a Gemini history from a short notation. Contents are separated by `|`, parts by `;`: `u "words"`,
/// `m call f#1 g`, `u res f`.
///
/// A call is `name`, `name#id`, or `name+` if it is signed. A prefix `3:` means a model that signs, `_` the proto
/// spelling.
pub(crate) fn gemini(short: &str) -> Value {
    let (model, rest) = match short.strip_prefix("3:") {
        Some(rest) => ("models/gemini-3-pro-preview", rest),
        None => ("models/gemini-2.5-pro", short),
    };
    let (snake, rest) = match rest.trim().strip_prefix('_') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let contents: Vec<Value> = rest
        .split('|')
        .map(|content| content_of(content.trim(), snake))
        .collect();
    json!({"model": model, "contents": contents})
}

fn content_of(short: &str, snake: bool) -> Value {
    let (who, rest) = short.split_once(' ').unwrap_or((short, ""));
    let parts: Vec<Value> = rest
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .flat_map(|part| parts_of(part, snake))
        .collect();
    match who {
        "u" => json!({"role": "user", "parts": parts}),
        "m" => json!({"role": "model", "parts": parts}),
        "f" => json!({"role": "function", "parts": parts}),
        "-" => json!({"parts": parts}),
        other => json!({"role": other, "parts": parts}),
    }
}

fn parts_of(short: &str, snake: bool) -> Vec<Value> {
    if let Some(words) = short.strip_prefix('"') {
        return vec![json!({"text": words.trim_end_matches('"')})];
    }
    match short {
        "empty" => return vec![json!({})],
        "null" => return vec![json!({"text": null})],
        "mark" => return vec![json!({"thoughtSignature": "QUFB"})],
        _ => {}
    }
    let (kind, names) = short.split_once(' ').unwrap_or((short, ""));
    let key = match (kind, snake) {
        ("call", false) => "functionCall",
        ("call", true) => "function_call",
        ("res", false) => "functionResponse",
        ("res", true) => "function_response",
        other => panic!("{other:?}"),
    };
    let of = |word: &str| {
        let (word, signed) = word.strip_suffix('+').map_or((word, false), |word| (word, true));
        let (name, id) = word.split_once('#').map_or((word, None), |(name, id)| (name, Some(id)));
        let mut inner = json!({"name": name});
        if let Some(id) = id {
            inner["id"] = id.into();
        }
        if kind == "res" {
            let mute = word.starts_with("mute");
            inner["response"] = if mute {
                "r".into()
            } else {
                json!({"result": format!("result of {word}")})
            };
        }
        let mut part = json!({key: inner});
        if signed {
            part[if snake { "thought_signature" } else { "thoughtSignature" }] = "QUFB".into();
        }
        part
    };
    names.split_whitespace().map(of).collect()
}

const OPEN: &str = "No tool output found for ";
const STRAY: &str = "No tool call found for ";
const FOLLOW: &str = "of type 'reasoning' was provided without its required following item.";

const RESPONSES: &[Row] = &[
    ("responses", "u", &[]),
    ("responses", "d | U | call 1 | out 1 | a | u", &[]),
    ("responses", "u | call 1 | call 2 | out 2 | out 1", &[]),
    ("responses", "u | call 1 | u | out 1", &[]),
    ("responses", "u | out 1 | call 1", &[]),
    ("responses", "u | call 1 | out 1 | u | call 1 | out 1", &[]),
    (
        "responses",
        "u | call 1 | u",
        &["No tool output found for function call 1."],
    ),
    (
        "responses",
        "u | call 1",
        &["No tool output found for function call 1."],
    ),
    (
        "responses",
        "u | call 1 | call 2 | out 2 | u",
        &["No tool output found for function call 1."],
    ),
    (
        "responses",
        "u | custom 1 | u",
        &["No tool output found for custom tool call 1."],
    ),
    (
        "responses",
        "u | patch 1 | u",
        &["No tool output found for apply patch call 1."],
    ),
    (
        "responses",
        "u | shell 1 | u",
        &["No tool output found for shell call 1."],
    ),
    (
        "responses",
        "u | local 1 | u",
        &["No tool output found for local shell call 1."],
    ),
    (
        "responses",
        "u | computer 1 | u",
        &["No tool output found for computer call 1."],
    ),
    (
        "responses",
        "u | search 1 | u",
        &["No tool output found for tool search call 1."],
    ),
    (
        "responses",
        "u | custom 1 | customout 1 | patch 2 | patchout 2 | shell 3 | shellout 3",
        &[],
    ),
    (
        "responses",
        "u | local 1 | localout 1 | local 2 | out 2 | computer 3 | screen 3 | search 4 | found 4",
        &[],
    ),
    (
        "responses",
        "u | out 1",
        &["No tool call found for function call output with call_id 1."],
    ),
    (
        "responses",
        "u | customout 1",
        &["No tool call found for custom tool call output with call_id 1."],
    ),
    (
        "responses",
        "u | think rs_1 | a | out 1 | u",
        &[STRAY, "function call output with call_id 1."],
    ),
    (
        "responses",
        "u | custom 1 | out 1",
        &["No tool call found for function call output with call_id 1."],
    ),
    ("responses", "u | call 1 | customout 1", &[STRAY]),
    ("responses", "u | shell 1 | out 1", &[STRAY]),
    ("responses", "u | call 1 | localout 1", &[STRAY]),
    ("responses", "u | call 1 | out 1 | out 1", &[]),
    ("responses", "u | call 1 | out 1 | u | out 1", &[]),
    ("responses", "u | call 1 | call 1 | out 1", &[]),
    ("responses", "u | call 1 | out 1 | standalone", &[]),
    ("responses-compatible", "u | call 1 | out 1 | out 1", &[]),
    (
        "responses-compatible",
        "u | call 1 | call 1 | out 1",
        &["Duplicate 'call_id': 1."],
    ),
    (
        "responses-compatible",
        "u | call 1 | out 1 | standalone",
        &["Invalid Value: 'input.call_id'. Function call output requires call_id."],
    ),
    ("responses", "u | call 1 | out 1 | call 1 | u", &[OPEN]),
    (
        "responses",
        "u | call 1 | noid",
        &["Missing required parameter: 'input[2].call_id'."],
    ),
    (
        "responses",
        "u | call 1 | empty",
        &["Invalid 'input[2].call_id': empty string."],
    ),
    (
        "responses",
        "u | call 1 | mute 1",
        &["Missing required parameter: 'input[2].output'."],
    ),
    (
        "responses",
        "u | patch 1 | patchmute 1",
        &["Missing required parameter: 'input[2].status'."],
    ),
    (
        "responses",
        "u | shell 1 | shellmute 1",
        &["Missing required parameter: 'input[2].output'."],
    ),
    (
        "responses",
        "u | call 12345678901234567890123456789012345678901234567890123456789012345 \
         | out 12345678901234567890123456789012345678901234567890123456789012345",
        &[
            "'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with length 65",
        ],
    ),
    (
        "responses-compatible",
        "u | call 12345678901234567890123456789012345678901234567890123456789012345 \
         | out 12345678901234567890123456789012345678901234567890123456789012345",
        &[],
    ),
    ("responses-compatible", "u | call 1 | u", &[OPEN]),
    ("responses", "u | call 1 fc_1 | out 1 | call 2 fc_2 | out 2", &[]),
    (
        "responses",
        "u | call 1 fc_1 | out 1 | call 2 fc_1 | out 2",
        &["Duplicate item found with id fc_1. Remove"],
    ),
    (
        "responses",
        "u | call 1 call_1 | out 1",
        &["Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'."],
    ),
    ("responses", "u | t", &["Invalid value: 'tool'."]),
    (
        "responses",
        "u | unnamed 1 | out 1",
        &["Invalid 'input[1].name': empty string. Expected a string with minimum length 1"],
    ),
    (
        "responses",
        "u | nameless 1 | out 1",
        &["Missing required parameter: 'input[1].name'."],
    ),
    ("responses-compatible", "u | unnamed 1 | out 1", &[]),
    (
        "responses-compatible",
        "u | nameless 1 | out 1",
        &["Missing required parameter: 'input[1].name'."],
    ),
    (
        "responses",
        "u | said input | u",
        &["Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."],
    ),
    ("responses-compatible", "u | said input | u", &[]),
    (
        "responses",
        "u | searchtext 1 | found 1",
        &["Invalid type for 'input[1].arguments': expected an object, but got a string instead."],
    ),
];

const HELD: &[Row] = &[
    ("responses", "!previous out 1 | out 2", &[]),
    ("responses", "!conversation out 1", &[]),
    ("responses", "!object out 1", &[]),
    ("responses", "!previous u", &[]),
    ("responses", "!null out 1", &[STRAY]),
    ("responses", "u | ref fc_server | out 1", &[]),
    ("responses", "u | bareref fc_server | out 1", &[]),
    ("responses", "compaction | u", &[]),
    ("responses", "compaction | out 1 | u", &[]),
    ("responses", "!previous u | call 1 | u", &[OPEN]),
    ("responses", "u | ref fc_server | call 1 | u", &[OPEN]),
    ("responses", "!previous out 1 | out 1", &[]),
    ("responses", "u | search server | found server | call 1 | out 1", &[]),
    ("responses", "u | ask mcpr_1 | allow mcpr_1", &[]),
    ("responses", "u | web | a | u", &[]),
    ("responses", "u | program 1 | call 2 | out 2", &[]),
    ("responses", "u | program 1 | call 2 | out 2 | ran 1 | a", &[]),
    ("responses", "u | program 1 | call 2 | u", &[OPEN]),
    (
        "responses",
        "u | ran 1",
        &["No tool call found for program output with call_id 1."],
    ),
    ("responses", "u | future | u", &[]),
];

const REASONING: &[Row] = &[
    ("responses", "u | think rs_1 | call 1 | out 1 | think rs_2 | a", &[]),
    ("responses", "u | think rs_1 | think rs_2 | a", &[]),
    ("responses", "u | think rs_1 | web | a", &[]),
    ("responses", "u | think rs_1", &["Item 'rs_1' ", FOLLOW]),
    ("responses", "u | think rs_1 | u", &["Item 'rs_1' ", FOLLOW]),
    (
        "responses",
        "u | call 1 | think rs_1 | out 1 | a",
        &["Item 'rs_1' ", FOLLOW],
    ),
    ("responses", "u | think | u", &[]),
];

const DEEPSEEK: &[Row] = &[
    ("responses-deepseek", "u | call 1 | call 2 | out 2 | out 1 | u", &[]),
    ("responses-deepseek", "u | call 1 | out 1 | call 2 | out 2", &[]),
    (
        "responses-deepseek",
        "u | call 1 | u | out 1",
        &["No tool output found for tool call 1."],
    ),
    (
        "responses-deepseek",
        "u | call 1 | think | out 1",
        &["No tool output found for tool call 1."],
    ),
    (
        "responses-deepseek",
        "u | call 1",
        &["No tool output found for tool call 1."],
    ),
    (
        "responses-deepseek",
        "u | out 1",
        &["No tool call found for tool output with call_id 1."],
    ),
    (
        "responses-deepseek",
        "!previous out 1",
        &["No tool call found for tool output with call_id 1."],
    ),
    (
        "responses-deepseek",
        "u | call 1 | out 1 | out 1",
        &["Duplicate tool output for call_id: 1."],
    ),
    (
        "responses-deepseek",
        "u | call 1 | out 1 | u | call 1 | out 1",
        &["Duplicate 'call_id': 1."],
    ),
    ("responses-deepseek", "u | custom 1 | out 1", &[]),
    ("responses-deepseek", "u | shell 1 | u", &[]),
    ("responses-deepseek", "u | call 1 | shell 2 | out 1", &[]),
    ("responses-deepseek", "u | call 1 | mute 1", &["missing field `output`"]),
    ("responses-deepseek", "u | noid", &[]),
    ("responses-deepseek", "u | said input | u", &[]),
    ("responses-deepseek", "u | unnamed 1 | out 1", &[]),
    (
        "responses-deepseek",
        "u | nameless 1 | out 1",
        &["missing field `name`"],
    ),
    ("responses-deepseek", "u | searchtext 1 | found 1", &["expected a map"]),
    (
        "responses-deepseek",
        "u | call 1 | noid",
        &["No tool output found for tool call 1."],
    ),
];

const G1: &str =
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
const G2: &str = "Please ensure that function response turn comes immediately after a function call turn.";
const G3: &str = "Please ensure that the number of function response parts is equal to the number of function call parts \
                  of the function call turn.";
const G6: &str = "Function call is missing a thought_signature in functionCall parts.";

const GEMINI: &[Row] = &[
    ("gemini", "u \"go\"", &[]),
    ("gemini", "- \"go\" | m call f | u res f", &[]),
    (
        "gemini",
        "u \"go\" | m \"so\"; call f g | u res g f | m \"x\" | u \"on\"",
        &[],
    ),
    ("gemini", "u \"go\" | m call f | f res f", &[]),
    ("gemini", "_ u \"go\" | m call f | u res f", &[]),
    ("gemini", "u \"go\" | m call f#1 f#2 | u res f#2 f#1", &[]),
    ("gemini", "u \"go\" | m call f f | u res f f", &[]),
    ("gemini", "u \"go\" | m call f | u res f | m call g | u res g", &[]),
    ("gemini", "u \"go\" | m call f", &[]),
    ("gemini", "u \"go\" | u \"and\" | m call f | u res f; \"words\"", &[]),
    ("gemini", "u \"go\" | m \"x\" | m \"y\" | u \"on\"", &[]),
    ("gemini", "u \"go\" | m call f#1 | u res f", &[]),
    ("gemini", "m call f | u res f", &[G1]),
    ("gemini", "u \"go\" | m \"x\" | m call f | u res f", &[G1]),
    ("gemini", "u \"go\" | m call f | m call g | u res f g", &[G3]),
    ("gemini", "u \"go\"; call f", &[G1]),
    (
        "gemini",
        "u res f | m \"x\"",
        &[G2, "Got function response with name 'f'."],
    ),
    ("gemini", "u \"go\" | m \"x\" | u res f", &[G2]),
    ("gemini", "u \"go\" | m call f | u res f | u res f", &[G2]),
    ("gemini", "u \"go\" | m call f; res f", &[G2]),
    ("gemini", "u \"go\" | m call f g | u res f", &[G3]),
    ("gemini", "u \"go\" | m call f | u res f g", &[G3]),
    ("gemini", "u \"go\" | m call f | u \"hurry\"", &[G3]),
    ("gemini", "u \"go\" | m call f | u \"hurry\" | u res f", &[G3]),
    ("gemini", "u \"go\" | m call f g | u res f | u res g", &[G3]),
    ("gemini", "_ u \"go\" | m call f | u \"hurry\"", &[G3]),
    ("gemini", "u \"go\" | m call f | m \"x\"", &[G3]),
    ("gemini", "u \"go\" | m call f | u res g", &[G2, "name 'g'"]),
    ("gemini", "u \"go\" | m call f#1 | u res f#2", &[G2]),
    (
        "gemini",
        "u \"go\" | assistant \"x\"",
        &["Please use a valid role: user, model."],
    ),
    (
        "gemini",
        "u \"go\" | m call mute | u res mute",
        &["contents[2].parts[0].function_response.response' (type.googleapis.com/google.protobuf.Struct)"],
    ),
    (
        "gemini",
        "u \"go\" | m call f | u res #1",
        &["contents[2].parts[0].function_response.name: Name cannot be empty."],
    ),
    (
        "gemini",
        "u \"go\" | m | u \"on\"",
        &["contents[1].parts: contents.parts must not be empty."],
    ),
    (
        "gemini",
        "u \"go\" | m empty; \"x\" | u \"on\"",
        &["contents[1].parts[0].data: required oneof field 'data' must have one initialized field"],
    ),
    ("gemini", "u \"go\"; null | m \"x\"", &["contents[0].parts[1].data: "]),
    ("gemini", "u \"go\" | m \"x\"; mark | u \"on\"", &[]),
];

const SIGNED: &[Row] = &[
    (
        "gemini",
        "3: u \"go\" | m call f+ g | u res f g | m call f+ | u res f",
        &[],
    ),
    ("gemini", "3:_ u \"go\" | m call f+ | u res f", &[]),
    ("gemini", "3: u \"go\" | m call f | u res f | m \"x\" | u \"on\"", &[]),
    (
        "gemini",
        "3: u \"go\" | m call f | u res f",
        &[G6, "`default_api:f`, position 2."],
    ),
    ("gemini", "3: u \"go\" | m call f g+ | u res f g", &[G6]),
    (
        "gemini",
        "3: u \"go\" | m call f+ | u res f | m call g | u res g",
        &[G6, "`default_api:g`, position 4."],
    ),
];

/// The rows of both formats, for the other judges' tests.
pub(crate) const TABLES: [&[Row]; 6] = [RESPONSES, HELD, REASONING, DEEPSEEK, GEMINI, SIGNED];

#[test]
fn items_of_responses() {
    check(RESPONSES);
    check(REASONING);
}

#[test]
fn calls_at_the_server() {
    check(HELD);
}

#[test]
fn responses_as_deepseek_reads_them() {
    check(DEEPSEEK);
}

#[test]
fn contents_of_gemini() {
    check(GEMINI);
    check(SIGNED);
}

/// Bodies that are no history are refused without a panic.
#[test]
fn malformed_histories_are_refused() {
    let rows = [
        "[]",
        r#"{"input":null}"#,
        r#"{"input":{}}"#,
        r#"{"input":[null,1,"x",[],{}]}"#,
        r#"{"input":[{"type":3},{"role":5},{"type":"message"},{"type":"function_call"}]}"#,
        r#"{"input":[{"type":"function_call","call_id":7},{"type":"reasoning","id":[]}]}"#,
        r#"{"contents":{}}"#,
        r#"{"contents":[null,1,"x",[],{}]}"#,
        r#"{"contents":[{"role":7,"parts":[]},{"parts":{}}]}"#,
        r#"{"contents":[{"parts":[null,1,"x",[],{},{"functionCall":7},{"functionResponse":[]}]}]}"#,
        r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":{},"id":7}}]},{"parts":[{"functionResponse":{}}]}]}"#,
        r#"{"requests":[1,{"params":null},{"params":{"messages":7}}],"request":[],"generateContentRequest":5}"#,
        r#"{"batch":{"inputConfig":{"requests":{"requests":[1,{"request":null},{"request":{"contents":[{}]}}]}}}}"#,
    ];
    for row in rows {
        let body: Value = serde_json::from_str(row).expect("JSON");
        for (name, wire) in Wire::NAMES {
            judge::of(*wire)(&body).expect_err(name);
        }
        assert_eq!(judge::lost(&body, &body), [], "{row}");
        drop(judge::blocks(&body));
    }
}

#[test]
fn an_input_string_is_accepted() {
    let body = json!({"model": "gpt-5", "input": "go"});
    judge::openai_responses(&body).expect("a string");
    judge::deepseek_responses(&body).expect("a string");
    judge::openai_responses(&json!({"input": 5})).expect_err("a number");
    assert_eq!(judge::texts(&body).get(&(Kind::User, "go".into())), Some(&1));
}

#[test]
fn a_gemini_history_may_be_wrapped() {
    let (good, bad) = (
        gemini("u \"go\" | m call f | u res f"),
        gemini("u \"go\" | m call f | u \"x\""),
    );
    let wraps: [fn(&Value) -> Value; 4] = [
        Value::clone,
        |request| json!({"generateContentRequest": request}),
        |request| json!({"model": "gemini-2.5-pro", "project": "p", "request": request}),
        |request| json!({"batch": {"inputConfig": {"requests": {"requests": [{"request": request}]}}}}),
    ];
    for wrap in wraps {
        judge::gemini(&wrap(&good)).unwrap_or_else(|refusal| panic!("{refusal:?}: {}", wrap(&good)));
        let refusal = judge::gemini(&wrap(&bad)).expect_err("an open call");
        assert_eq!(
            (refusal.message.as_str(), refusal.ids.as_slice()),
            (G3, &["f".to_owned()][..])
        );
        assert_eq!(
            judge::lost(&wrap(&good), &wrap(&bad)),
            [(Kind::Result, "result of f".into())]
        );
        assert_eq!(judge::blocks(&wrap(&good)).len(), 3);
    }
    judge::gemini_signed(&good).expect_err("no signature, though the model of the path wants one");
}

#[test]
fn texts_and_lost_texts_of_items_are_found() {
    let before = responses("u | call 1 | shell 2 | out 1 | shellout 2");
    let after = responses("u | call 1 | shell 2 | out 1");
    let texts = judge::texts(&before);
    assert_eq!(texts.get(&(Kind::Result, "result of 1".into())), Some(&1));
    assert_eq!(texts.get(&(Kind::Input, "ls".into())), Some(&1));
    assert_eq!(judge::lost(&before, &before), []);
    assert_eq!(judge::lost(&before, &after), [(Kind::Result, "result of 2".into())]);
    // The result is quoted as the JSON that it was.
    let mut quoted = after;
    let inner = json!([{"stdout": "result of 2"}]);
    quoted["input"][0]["content"] = format!("[note]\n{inner}\n[end]").into();
    assert_eq!(judge::lost(&before, &quoted), []);
    let escaped = json!({"input": [{"type": "function_call_output", "call_id": "1", "output": "a \"b\"\n"}]});
    let quoted =
        json!({"input": [{"role": "user", "content": "[note]\n{\"output\":\"a \\u0022b\\u0022\\n\"}\n[end]"}]});
    assert_eq!(judge::lost(&escaped, &quoted), []);
}
