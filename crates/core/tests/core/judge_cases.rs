//! Tests of the judge: small hand-written bodies from the providers' rules, each with its verdict.

use antiphon_core::wire::{Format, Wire};
use serde_json::{Value, json};

use crate::judge_item_cases;
use crate::support::{
    bodies,
    judge::{self, Kind},
};

/// Builds a history from a short notation. Messages are `role: blocks`, separated by `|`, and blocks by `;`.
/// `a use 1 2` are calls, `u res 1 2` results, `u "words"` text, and so on: see [`block`].
fn anthropic(short: &str) -> Value {
    let messages: Vec<Value> = short
        .split('|')
        .map(|message| {
            let (who, rest) = message.trim().split_once(' ').unwrap_or_else(|| (message.trim(), ""));
            let role = match who {
                "u" => "user",
                "a" => "assistant",
                _ => "system",
            };
            let blocks: Vec<Value> = rest
                .split(';')
                .map(str::trim)
                .filter(|b| !b.is_empty())
                .flat_map(block)
                .collect();
            json!({"role": role, "content": blocks})
        })
        .collect();
    json!({"model": "claude-opus-4-5", "messages": messages})
}

fn block(short: &str) -> Vec<Value> {
    if let Some(words) = short.strip_prefix('"') {
        return vec![json!({"type": "text", "text": words.trim_end_matches('"')})];
    }
    let mut parts = short.split_whitespace();
    let kind = parts.next().unwrap_or_default();
    let of = |id: &str| match kind {
        "use" => json!({"type": "tool_use", "id": id, "name": "f", "input": {}}),
        "res" => json!({"type": "tool_result", "tool_use_id": id, "content": format!("result of {id}")}),
        "srv" => json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}),
        "got" => json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}),
        "mcp" => json!({"type": "mcp_tool_use", "id": id, "name": "f", "server_name": "s", "input": {}}),
        "mcpgot" => json!({"type": "mcp_tool_result", "tool_use_id": id, "content": []}),
        "run" => json!({"type": "server_tool_use", "id": id, "name": "code_execution", "input": {}}),
        "ran" => json!({"type": "code_execution_tool_result", "tool_use_id": id, "content": {}}),
        "by" => json!({"type": "tool_use", "id": format!("c_{id}"), "name": "f", "input": {},
            "caller": {"type": "code_execution_20260120", "tool_id": id}}),
        "blank" => json!({"type": "text", "text": " \n\t"}),
        "query_tool_use" => json!({"type": kind, "id": id}),
        "null" => json!({"type": "tool_use", "id": id, "name": "f", "input": null}),
        "list" => json!({"type": "tool_use", "id": id, "name": "f", "input": []}),
        "raw" => json!({"type": "tool_use", "id": id, "name": "f", "input": "{\"a\""}),
        "bare" => json!({"type": "tool_result", "tool_use_id": id}),
        "failed" => json!({"type": "tool_result", "tool_use_id": id, "is_error": true, "content": ""}),
        "noid" => json!({"type": "tool_result", "content": id}),
        "set" => json!({"type": "tool_use", "id": id, "name": "click", "input": {}, "toolset_name": "browser"}),
        "setres" => json!({"type": "tool_result", "tool_use_id": id, "toolset_name": "browser", "content": "r"}),
        "think" => json!({"type": "thinking", "thinking": id, "signature": "s"}),
        "unsigned" => json!({"type": "thinking", "thinking": id}),
        "compaction" => json!({"type": "compaction", "content": id}),
        "mark" => json!({"type": "text", "text": id, "cache_control": {"type": "ephemeral"}}),
        other => json!({"type": other, "id": id}),
    };
    parts.map(of).collect()
}

/// Builds a chat history from a short notation: `u`, `s`, `a` with calls, `t` with the answered id. `f` is the legacy
/// pair.
fn chat(short: &str) -> Value {
    let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{"}});
    let messages: Vec<Value> = short
        .split('|')
        .map(|message| {
            let parts: Vec<&str> = message.split_whitespace().collect();
            match parts.as_slice() {
                ["u", ..] => json!({"role": "user", "content": "u"}),
                ["s", ..] => json!({"role": "system", "content": "s"}),
                ["d", ..] => json!({"role": "developer", "content": "d"}),
                ["a"] => json!({"role": "assistant", "content": "a"}),
                ["a", "null"] => json!({"role": "assistant", "content": null}),
                ["a", "refusal"] => json!({"role": "assistant", "content": null, "refusal": "no"}),
                ["a", "empty"] => json!({"role": "assistant", "content": "a", "tool_calls": []}),
                ["a", "custom", id] => json!({"role": "assistant", "content": null, "tool_calls":
                    [{"id": id, "type": "custom", "custom": {"name": "f", "input": "x"}}]}),
                ["a", "unnamed", id] => json!({"role": "assistant", "content": null, "tool_calls":
                    [{"id": id, "type": "function", "function": {"name": "", "arguments": "{}"}}]}),
                ["a", "nameless", id] => json!({"role": "assistant", "content": null, "tool_calls":
                    [{"id": id, "type": "function", "function": {"arguments": "{}"}}]}),
                ["a", "legacy"] => json!({"role": "assistant", "content": null, "function_call":
                    {"name": "f", "arguments": "{}"}}),
                ["a", ids @ ..] => {
                    let calls: Vec<Value> = ids.iter().map(call).collect();
                    json!({"role": "assistant", "content": null, "tool_calls": calls})
                }
                ["t"] => json!({"role": "tool", "content": "r"}),
                ["t", "named", id] => json!({"role": "tool", "tool_call_id": id, "name": "f", "content": "r"}),
                ["t", "object", id] => json!({"role": "tool", "tool_call_id": id, "content": {"address": "r"}}),
                ["t", "data", id] => json!({"role": "tool", "tool_call_id": id, "content": [{"id": "r"}]}),
                ["t", "parts", id] => json!({"role": "tool", "tool_call_id": id, "content":
                    [{"type": "text", "text": "r"}]}),
                ["t", id] => json!({"role": "tool", "tool_call_id": id, "content": "r"}),
                ["f"] => json!({"role": "function", "name": "f", "content": "r"}),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    json!({"model": "gpt-4.1", "messages": messages})
}

const MISSING: &str = "`tool_use` ids were found without `tool_result` blocks immediately after: ";
const MIXED: &str = "tool call result does not follow tool call (2013)";
const STRAY: &str = "unexpected `tool_use_id` found in `tool_result` blocks: ";
const TWICE: &str = "each tool_use must have a single result. Found multiple `tool_result` blocks with id: ";
const UNIQUE: &str = "`tool_use` ids must be unique";
const OPENING: &str = "messages: first message must use the \"user\" role";

/// Wire of the judge, history, and the expected parts of the refusal. No parts mean that the body is accepted.
pub(crate) type Row = (&'static str, &'static str, &'static [&'static str]);

const PAIRS: &[Row] = &[
    ("anthropic", "u \"go\"", &[]),
    ("anthropic", "u \"go\" | a use 1 | u res 1", &[]),
    ("anthropic", "u \"go\" | a use 1 2 | u res 2 1", &[]),
    ("anthropic", "u \"go\" | a use 1 | u res 1; \"and\"", &[]),
    ("anthropic", "u \"go\" | a use 1 | u bare 1", &[]),
    ("anthropic", "u \"go\" | a use 1; \"so\" | u res 1", &[]),
    ("anthropic", "u \"go\" | a \"pre\"", &[]),
    (
        "anthropic",
        "u \"go\" | a use 1 | u \"hurry\"",
        &["messages.1: ", MISSING, ": 1. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 2 | u res 1",
        &["messages.1: ", MISSING, ": 2. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 2",
        &["messages.1: ", MISSING, ": 1, 2. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u \"hurry\"; res 1",
        &["messages.1: ", MISSING, ": 1. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 2 | u res 1; \"x\"; res 2",
        &["messages.1: ", MISSING, ": 2. Each"],
    ),
    (
        "anthropic",
        "u res 1; \"go\"",
        &["messages.0.content.0: ", STRAY, ": 1. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a \"x\" | u res 1",
        &["messages.2.content.0: ", STRAY],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u res 1 2",
        &["messages.2.content.1: ", STRAY, ": 2. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u res 1 | a \"x\" | u res 1",
        &["messages.4.content.0: ", STRAY],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u res 1 1",
        &["messages.2.content.1: ", TWICE, ": 1"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u res 1 | u res 1",
        &["messages.3.content.0: ", TWICE],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 1 | u res 1",
        &["messages.1.content.1: ", UNIQUE],
    ),
    ("anthropic", "u \"go\" | a use 1 | u res 1 | a use 1 | u res 1", &[]),
    (
        "anthropic",
        "u \"go\"; use 1",
        &["messages.0: `tool_use` blocks can only be in `assistant` messages"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1; res 1",
        &["messages.1: `tool_result` blocks can only be in `user` messages"],
    ),
    (
        "anthropic",
        "u \"go\"; srv s",
        &["messages.0: `server_tool_use` blocks can only be in `assistant`"],
    ),
    (
        "anthropic",
        "u \"go\"; got s",
        &["messages.0: `web_search_tool_result` blocks can only be in `assistant`"],
    ),
    (
        "anthropic",
        "u \"go\" | a use f:0 | u res f:0",
        &["messages.1.content.0.tool_use.id: String should match"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u noid r",
        &["messages.2.content.0.tool_result.tool_use_id: Field required"],
    ),
    ("compatible", "u \"go\" | a use f:0 | u res f:0", &[]),
    (
        "anthropic",
        "u \"go\" | a null 1 | u res 1",
        &["messages.1.content.0.tool_use.input: Input should be"],
    ),
    (
        "anthropic",
        "u \"go\" | a list 1 | u res 1",
        &["messages.1.content.0.tool_use.input: Input should be"],
    ),
    (
        "anthropic",
        "u \"go\" | a raw 1 | u res 1",
        &["messages.1.content.0.tool_use.input: Input should be"],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u failed 1",
        &["content cannot be empty if `is_error` is true"],
    ),
    ("anthropic", "a \"hello\" | u \"go\"", &[OPENING]),
    ("anthropic", "s \"rules\" | u \"go\"", &["`system` message must follow"]),
    (
        "anthropic",
        "u \"go\" | a | u \"on\"",
        &["messages.1: all messages must have non-empty content except"],
    ),
    ("anthropic", "u \"go\" | a", &[]),
    (
        "anthropic",
        "u \"go\"; \"\"",
        &["text content blocks must be non-empty"],
    ),
    ("anthropic", "u \"go\"; blank 1", &["must contain non-whitespace text"]),
    ("anthropic", "u \"go\" | a set 1 | u res 1", &["toolset_name"]),
    ("anthropic", "u \"go\" | a set 1 | u setres 1", &[]),
    ("anthropic", "u mark 1 2 3 4", &[]),
    (
        "anthropic",
        "u mark 1 2 3 4 5",
        &["A maximum of 4 blocks with cache_control may be provided. Found 5."],
    ),
    ("anthropic", "u \"go\" | a future 1 | u \"x\"", &[]),
    ("anthropic", "u \"go\" | a think hm; \"x\" | u \"on\"", &[]),
    (
        "anthropic",
        "u \"go\" | a unsigned hm; \"x\" | u \"on\"",
        &["messages.1.content.0.thinking.signature: Field required"],
    ),
    (
        "bedrock",
        "u \"go\" | a unsigned hm; \"x\" | u \"on\"",
        &["messages.1.content.0.thinking.signature: Field required"],
    ),
    ("deepseek", "u \"go\" | a unsigned hm; \"x\" | u \"on\"", &[]),
    ("compatible", "u \"go\" | a unsigned hm; \"x\" | u \"on\"", &[]),
];

const TURNS: &[Row] = &[
    ("anthropic", "u \"go\" | a use 1 2 | u res 1 | u res 2", &[]),
    ("anthropic", "u \"go\" | a use 1 | a use 2 | u res 1 2", &[]),
    (
        "anthropic",
        "u \"go\" | a use 1 2 | u res 1 | u \"x\" | u res 2",
        &[MISSING, ": 2. Each"],
    ),
    (
        "bedrock",
        "u \"go\" | a use 1 2 | u res 1 | u res 2",
        &["messages.1: ", MISSING, ": 2. Each"],
    ),
    (
        "bedrock",
        "u \"go\" | a use 1 | a use 2 | u res 1 2",
        &["messages.1: ", MISSING, ": 1. Each"],
    ),
    ("bedrock", "u \"go\" | a use 1 2 | u res 1 2 | u \"x\"", &[]),
    ("deepseek", "u \"go\" | a use 1 2 | u res 1 | u res 2", &[MISSING]),
    ("deepseek", "u \"go\" | a use 1; \"so\" | u res 1", &[MISSING]),
    (
        "deepseek",
        "u \"go\" | a \"one\"; use 1; \"two\"; use 2 | u res 1 2",
        &["messages.1: ", MISSING, ": 1, 2. Each"],
    ),
    ("deepseek", "u \"go\" | a \"one\"; \"two\"; use 1 2 | u res 1 2", &[]),
    ("deepseek", "u \"go\" | a use f:0 | u res f:0", &[]),
    ("minimax", "u \"go\" | a use 1 2 | u res 1 2 | u \"x\"", &[]),
    ("minimax", "u \"go\" | a use 1 2 | u res 1 | u res 2", &[]),
    ("minimax", "u \"go\" | a use f:0 | u res f:0", &[]),
    ("minimax", "u \"go\" | a use 1; \"so\" | u res 1", &[]),
    ("minimax", "u \"go\" | a use 1 | u res 1; \"x\"", &[MIXED]),
    ("minimax", "u \"go\" | a use 1 2 | u res 1 | u res 2; \"x\"", &[MIXED]),
    ("minimax", "u \"go\" | a use 1 | u \"x\"; res 1", &[MISSING]),
    ("minimax", "u \"go\" | a use 1 | u \"x\"", &[MISSING]),
    ("deepseek", "u \"go\" | a use 1 | s \"x\" | u res 1", &[MISSING]),
    ("deepseek", "a \"hello\" | u \"go\"", &[]),
    ("anthropic", "u \"go\" | s \"x\" | a use 1 | u res 1 | s \"y\"", &[]),
    (
        "anthropic",
        "u \"go\" | a use 1 | s \"x\" | u res 1",
        &["messages.1: ", MISSING],
    ),
    (
        "anthropic",
        "u \"go\" | a use 1 | u \"x\" | a \"y\" | u res 1",
        &["messages.1: ", MISSING],
    ),
    (
        "anthropic",
        "u \"a\" | a use 1 | u \"b\" | a compaction c | u \"d\"",
        &[],
    ),
    (
        "anthropic",
        "u \"a\" | a use 1 | u \"b\" | a compaction c; use 2 | u \"d\"",
        &[MISSING, ": 2. Each"],
    ),
    ("anthropic", "u \"a\" | a use 1; compaction c | u res 1", &[]),
];

const SERVERS: &[Row] = &[
    ("anthropic", "u \"go\" | a srv s; got s; \"x\" | u \"on\"", &[]),
    ("anthropic", "u \"go\" | a mcp m; mcpgot m; \"x\" | u \"on\"", &[]),
    ("anthropic", "u \"go\" | a \"x\"; srv s", &[]),
    ("anthropic", "u \"go\" | a srv s | a got s; \"x\" | u \"on\"", &[]),
    (
        "anthropic",
        "u \"go\" | a srv s; \"x\" | u \"on\"",
        &[
            "messages.1: `web_search` tool use with id `s` was found without a corresponding `web_search_tool_result` block",
        ],
    ),
    (
        "anthropic",
        "u \"go\" | a \"x\"; got s | u \"on\"",
        &[
            "messages.1.content.1: unexpected `tool_use_id` found in `web_search_tool_result` blocks: s. \
         Each `web_search_tool_result` block must have a corresponding `server_tool_use` block before it.",
        ],
    ),
    (
        "anthropic",
        "u \"go\" | a srv s | u res s",
        &["messages.2.content.0: ", STRAY, ": s. Each"],
    ),
    (
        "anthropic",
        "u \"go\" | a srv s | u \"x\"",
        &["`web_search` tool use with id `s`"],
    ),
    (
        "anthropic",
        "u \"go\" | a srv s; got s | u res s",
        &["messages.2.content.0: ", STRAY, ": s. Each"],
    ),
    ("anthropic", "u \"go\" | a query_tool_use q; \"x\" | u \"on\"", &[]),
    ("anthropic", "u \"go\" | a srv s; use 1 | u res 1", &[]),
    (
        "anthropic",
        "u \"go\" | a srv s; use 1 | u res 1 | a got s; \"x\" | u \"on\"",
        &[],
    ),
    (
        "anthropic",
        "u \"go\" | a srv s; use 1 | u res 1; \"and\"",
        &["`web_search` tool use with id `s`"],
    ),
    (
        "anthropic",
        "u \"go\" | a srv s; use 1 | u res 1 | a \"x\" | u \"on\"",
        &["`web_search` tool use with id `s`"],
    ),
    (
        "anthropic",
        "u \"go\" | a srv s; use 1 | u \"x\"",
        &[MISSING, ": 1. Each"],
    ),
    ("anthropic", "u \"go\" | a run x; by x | u res c_x", &[]),
    (
        "anthropic",
        "u \"go\" | a run x; by x | u res c_x | a ran x; \"x\" | u \"on\"",
        &[],
    ),
    (
        "anthropic",
        "u \"go\" | a run x; by x | u res c_x; \"what\"",
        &["may hold only `tool_result` blocks"],
    ),
    (
        "anthropic",
        "u \"go\" | a run x; ran x; by x | u res c_x | a \"y\" | u \"on\"",
        &[],
    ),
];

const C1: &str =
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.";
const C2: &str = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";

const CHAT: &[Row] = &[
    ("openai", "s | u | a 1 2 | t 2 | t 1 | a | u", &[]),
    ("openai", "u | a 1 | t 1 | u | a 1 | t 1", &[]),
    ("openai", "u | a", &[]),
    ("openai", "u | a 1 | u", &[C1, "did not have response messages: 1"]),
    (
        "openai",
        "u | a 1 2 | t 1 | u",
        &[C1, "did not have response messages: 2"],
    ),
    ("openai", "u | a 1 2", &[C1, "did not have response messages: 1, 2"]),
    (
        "openai",
        "u | a 1 | s | t 1",
        &[C1, "did not have response messages: 1"],
    ),
    (
        "openai",
        "u | a 1 | a 2 | t 1 | t 2",
        &[C1, "did not have response messages: 1"],
    ),
    ("openai", "s | t 1 | a | u", &[C2]),
    ("openai", "u | t 1 | a 1 | u", &[C2]),
    ("openai", "u | a 1 | t 1 | u | t 1", &[C2]),
    (
        "openai",
        "u | a 1 | t 1 | t 2",
        &["'tool_call_id' of '2' not found in 'tool_calls' of previous message."],
    ),
    (
        "openai",
        "u | a 1 | t 1 | t 1",
        &["Duplicate value for 'tool_call_id' of 1 in message[3]"],
    ),
    (
        "openai",
        "u | a 1 1 | t 1",
        &["Duplicate value for 'tool_call_id' of 1 in message[1]"],
    ),
    ("openai", "u | a 1 | t", &["Missing parameter 'tool_call_id'"]),
    (
        "openai",
        "u | a empty",
        &["Invalid 'messages[1].tool_calls': empty array."],
    ),
    (
        "openai",
        "u | a null | u",
        &["Invalid value for 'content': expected a string, got null."],
    ),
    ("openai", "u | a 1 | t parts 1 | a", &[]),
    (
        "openai",
        "u | a 1 | t data 1 | a",
        &["Missing required parameter: 'messages[2].content[0].type'."],
    ),
    (
        "chat-compatible",
        "u | a 1 | t object 1 | a",
        &["Input should be a valid dictionary [type=dict_type, input_value='address', input_type=str]"],
    ),
    (
        "chat-deepseek",
        "u | a 1 | t object 1 | a",
        &["content should be a string or a list"],
    ),
    ("chat-deepseek", "u | a 1 | t data 1 | a", &["missing field `type`"]),
    (
        "openai",
        "u | a unnamed 1 | t 1 | a",
        &["Invalid 'messages[1].tool_calls[0].function.name': empty string."],
    ),
    (
        "openai",
        "u | a nameless 1 | t 1 | a",
        &["Missing required parameter: 'messages[1].tool_calls[0].function.name'."],
    ),
    ("chat-deepseek", "u | a unnamed 1 | t 1 | a", &[]),
    ("chat-deepseek", "u | a nameless 1 | t 1 | a", &["missing field `name`"]),
    (
        "mistral",
        "u | a unnamed aaaaaaaa1 | t aaaaaaaa1 | a",
        &["Function name was  but must be a-z, A-Z, 0-9"],
    ),
    ("openai", "u | a refusal | u", &[]),
    ("openai", "u | a custom 1 | t 1", &[]),
    ("openai", "u | a custom 1 | u", &[C1]),
    ("openai", "u | a legacy | f | a | u", &[]),
    (
        "openai",
        "d | u | a 1234567890123456789012345678901234567890x | t 1234567890123456789012345678901234567890x",
        &["string too long. Expected a string with maximum length 40, but got a string with length 41 instead."],
    ),
    (
        "chat-compatible",
        "u | a 1234567890123456789012345678901234567890x | t 1234567890123456789012345678901234567890x",
        &[],
    ),
    (
        "chat-deepseek",
        "u | a 1 2 | t 1 | u",
        &[C1, "(insufficient tool messages following tool_calls message)"],
    ),
    (
        "chat-deepseek",
        "u | t 1",
        &["must be a response to a preceding message with 'tool_calls'"],
    ),
    ("chat-deepseek", "u | a null", &["content or tool_calls must be set"]),
    ("chat-deepseek", "d | u", &["messages[0].role"]),
    ("xai", "u | a 1 2 | t | t", &[]),
    ("xai", "u | a 1 2 | t 2 | t", &[]),
    ("xai", "u | a 1 2 | t", &[C1]),
    ("xai", "u | a 1 | t | t", &["More tool messages"]),
    (
        "xai",
        "u | a 1 | t named 1",
        &["Only messages of role 'user' can have a name."],
    ),
    ("mistral", "s | u | a aaaaaaaa1 | t aaaaaaaa1 | a | u", &[]),
    ("mistral", "u | a aaaaaaaa1 | t aaaaaaaa1 | u", &[]),
    (
        "mistral",
        "u | a aaaaaaaa1 aaaaaaaa2 | t aaaaaaaa1 | a",
        &["Not the same number of function calls and responses"],
    ),
    (
        "mistral",
        "u | t aaaaaaaa1",
        &["Unexpected role 'tool' after role 'user'"],
    ),
    (
        "mistral",
        "u | a call_1 | t call_1",
        &["Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."],
    ),
    (
        "mistral",
        "u | a aaaaaaaa1 | t aaaaaaaa2",
        &["Unexpected tool call id aaaaaaaa2 in tool results"],
    ),
    (
        "mistral",
        "u | a aaaaaaaa1 | t aaaaaaaa1 | t aaaaaaaa1",
        &["Duplicate tool call id aaaaaaaa1 in tool results"],
    ),
    (
        "mistral",
        "u | a aaaaaaaa1 aaaaaaaa1 | t aaaaaaaa1",
        &["Duplicate tool call id aaaaaaaa1 in assistant message"],
    ),
    (
        "mistral",
        "u | a | s",
        &["Unexpected role 'system' after role 'assistant'"],
    ),
];

/// Returns the wire for a name in the rows.
fn named(name: &str) -> Wire {
    let whole = match name {
        "anthropic" => "anthropic",
        "bedrock" => "anthropic-bedrock",
        "deepseek" => "anthropic-deepseek",
        "minimax" => "anthropic-minimax",
        "compatible" => "anthropic-compatible",
        "openai" => "openai-chat",
        "chat-deepseek" => "openai-chat-deepseek",
        "chat-compatible" => "openai-chat-compatible",
        "xai" => "openai-chat-xai",
        "mistral" => "openai-chat-mistral",
        "responses" => "openai-responses",
        "responses-deepseek" => "openai-responses-deepseek",
        "responses-compatible" => "openai-responses-compatible",
        "gemini" => "gemini",
        other => panic!("no wire {other}"),
    };
    whole.parse().expect("a wire")
}

/// Returns every row as a body, with its wire and whether it is accepted.
pub(crate) fn rows() -> impl Iterator<Item = (Wire, &'static str, Value, bool)> {
    [PAIRS, TURNS, SERVERS, CHAT]
        .into_iter()
        .chain(judge_item_cases::TABLES)
        .flatten()
        .map(|(name, short, wanted)| {
            let wire = named(name);
            (wire, *short, body(wire.format, short), wanted.is_empty())
        })
}

fn body(format: Format, short: &str) -> Value {
    match format {
        Format::Anthropic => anthropic(short),
        Format::OpenAiChat => chat(short),
        Format::OpenAiResponses => judge_item_cases::responses(short),
        Format::Gemini => judge_item_cases::gemini(short),
    }
}

pub(crate) fn check(rows: &[Row]) {
    for (name, short, wanted) in rows {
        let wire = named(name);
        let body = body(wire.format, short);
        match judge::of(wire)(&body) {
            Ok(()) => assert!(wanted.is_empty(), "{name} accepts {short}, wanted {wanted:?}"),
            Err(refusal) => {
                assert!(!wanted.is_empty(), "{name} refuses {short}: {refusal:?}");
                for words in *wanted {
                    assert!(
                        refusal.message.contains(words),
                        "{name} {short}: {refusal:?}, wanted {words}"
                    );
                }
                assert_eq!(refusal.status, 400);
            }
        }
    }
}

#[test]
fn calls_and_results() {
    check(PAIRS);
}

#[test]
fn turns_systems_and_compaction() {
    check(TURNS);
}

#[test]
fn server_tools() {
    check(SERVERS);
}

#[test]
fn chat_completions_and_its_dialects() {
    check(CHAT);
}

#[test]
fn a_continued_thread_keeps_its_calls_on_the_server() {
    let mut body = anthropic("u res 1");
    judge::anthropic(&body).expect_err("no call");
    body["thread"] = json!({"type": "continue", "previous_message_id": "msg_1"});
    judge::anthropic(&body).expect("the call is on the server");
    body["thread"] = json!({"type": "create"});
    judge::anthropic(&body).expect_err("a new thread has no call");
}

#[test]
fn a_body_without_history_is_refused() {
    let bodies = [
        json!({}),
        json!({"messages": []}),
        json!({"messages": 5}),
        json!(null),
        json!({"input": []}),
        json!({"contents": []}),
        json!({"requests": []}),
    ];
    for body in bodies {
        for (_, wire) in Wire::NAMES {
            judge::of(*wire)(&body).expect_err("no history");
        }
    }
    judge::anthropic(&json!({"messages": [{"role": "user", "content": ""}]})).expect_err("empty");
    judge::anthropic(&json!({"messages": [{"role": "user", "content": "go"}]})).expect("a string");
}

#[test]
fn the_entries_of_a_batch_are_judged_one_by_one() {
    let (good, bad) = (
        anthropic("u \"go\" | a use 1 | u res 1"),
        anthropic("u \"go\" | a use 2"),
    );
    let batch = |entries: &[&Value]| {
        let entry = |params: &&Value| json!({"custom_id": "c", "params": params});
        json!({"requests": entries.iter().map(entry).collect::<Vec<_>>()})
    };
    judge::anthropic(&batch(&[&good, &good])).expect("the same ids in two entries");
    let refusal = judge::anthropic(&batch(&[&good, &bad])).expect_err("an open call");
    assert!(
        refusal.message.starts_with("requests.1.params.messages.1: "),
        "{refusal:?}"
    );
    assert_eq!(refusal.ids, ["2"]);
    let lost = judge::lost(&batch(&[&good, &good]), &batch(&[&bad, &bad]));
    assert_eq!(lost, [(Kind::Result, "result of 1".into())]);
}

#[test]
fn texts_and_lost_texts_are_found() {
    let before = anthropic("u \"one\" | a \"two\"; use 1 | u res 1; \"three\"");
    let texts = judge::texts(&before);
    assert_eq!(texts.get(&(Kind::User, "one".into())), Some(&1));
    assert_eq!(texts.get(&(Kind::Assistant, "two".into())), Some(&1));
    assert_eq!(texts.get(&(Kind::Result, "result of 1".into())), Some(&1));
    assert_eq!(judge::lost(&before, &before), []);
    let after = anthropic("u \"one\" | a \"two\"");
    assert_eq!(
        judge::lost(&before, &after),
        [(Kind::User, "three".into()), (Kind::Result, "result of 1".into())]
    );
    let quoted = anthropic("u \"one\" | a \"two\" | u \"[note] result of 1 [end]\nthree");
    assert_eq!(judge::lost(&before, &quoted), []);
}

/// Healthy bodies and their grown versions are accepted. Most mangled bodies are refused.
#[test]
fn generated_bodies_get_the_expected_verdicts() {
    let read = |talk: &bodies::Conversation| serde_json::from_slice::<Value>(&talk.bytes()).expect("JSON");
    for (name, wire) in Wire::NAMES {
        let (mut refused, count) = (0, 150);
        for seed in 0..count {
            let healthy = bodies::healthy(seed, *wire);
            for talk in [&healthy, &bodies::grow(&healthy, seed)] {
                let body = read(talk);
                judge::of(*wire)(&body).unwrap_or_else(|refusal| panic!("SEED={seed} {name}: {refusal:?}\n{body:#}"));
                assert_eq!(judge::lost(&body, &body), [], "SEED={seed} {name}");
                assert!(
                    !judge::texts(&body).is_empty() && !judge::blocks(&body).is_empty(),
                    "SEED={seed} {name}"
                );
            }
            let mangled = read(&bodies::mangle(seed, *wire).0);
            refused += usize::from(judge::of(*wire)(&mangled).is_err());
        }
        println!("{name}: {refused} of {count} mangled bodies refused");
        // Responses accepts further outputs and shared ids, so the least is 2 of 5.
        assert!(
            u64::try_from(refused).unwrap() * 5 > count * 2,
            "{name}: mangling breaks too little"
        );
    }
}

#[test]
fn sized_bodies_get_the_expected_verdicts() {
    use bodies::Shape;
    for format in Format::ALL {
        let wire = match format {
            Format::Anthropic => Wire::ANTHROPIC,
            Format::OpenAiChat => Wire::OPENAI_CHAT,
            Format::OpenAiResponses => Wire::OPENAI_RESPONSES,
            Format::Gemini => Wire::GEMINI,
        };
        for size in [4_000, 64_000, 1_000_000] {
            for shape in [Shape::Balanced, Shape::Orphan, Shape::Displaced] {
                let body = bodies::sized(format, shape, size);
                let off = body.len().abs_diff(size);
                assert!(off < 8, "{format:?} {shape:?}: {} bytes for {size}", body.len());
                let value = serde_json::from_slice(&body).expect("JSON");
                // Responses accepts an output at any place.
                let legal =
                    shape == Shape::Balanced || (shape == Shape::Displaced && format == Format::OpenAiResponses);
                assert_eq!(judge::of(wire)(&value).is_ok(), legal, "{format:?} {shape:?}");
            }
        }
    }
}
