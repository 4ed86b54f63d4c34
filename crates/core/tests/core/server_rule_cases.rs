//! Tests of the judge's further rules: each refusal in the server's exact words, and a control that it accepts.

use antiphon_core::wire::Wire;
use serde_json::{Value, json};

use crate::support::judge::{self, ArgumentReader, NoUserWords, ReasoningRule, ServerMemory, ServerRules, judge_with};

/// Name of the row, wire, rules, body, and the exact words. No words mean that the body is accepted.
type Row = (&'static str, Wire, ServerRules, Value, &'static str);

fn verdict(wire: Wire, rules: &ServerRules, memory: &ServerMemory, body: &Value) -> judge::Verdict {
    let (format, dialect) = judge::reading(wire);
    judge_with(format, dialect, rules, memory, body)
}

fn check(rows: &[Row]) {
    for (name, wire, rules, body, words) in rows {
        let own = verdict(*wire, rules, &memory(), body);
        let message = own.as_ref().err().map_or("", |refusal| refusal.message.as_str());
        assert_eq!(message, *words, "{name}");
        // Without the rule, the same body passes: the row is about the rule alone.
        let plain = verdict(*wire, &ServerRules::default(), &memory(), body);
        assert!(plain.is_ok(), "{name}: {plain:?}");
    }
}

/// Returns a server that signed `own`, stored `resp_own`, and has `warm` in its cache.
fn memory() -> ServerMemory {
    let mut memory = ServerMemory::default();
    memory.add_seal("own");
    memory.add_response("resp_own");
    memory.add_cached("warm");
    memory
}

const CHAT: Wire = Wire::OPENAI_CHAT;

fn wire(name: &str) -> Wire {
    name.parse().expect("a wire")
}

fn user(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn chat(messages: impl Into<Value>) -> Value {
    json!({"model": "m", "messages": messages.into()})
}

/// Returns a chat history with one answered call and these arguments.
fn chat_arguments(arguments: impl Into<Value>) -> Value {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments.into()}});
    chat(json!([
        user("go"),
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "r"},
    ]))
}

/// Returns a Messages history with this assistant content, and a result for each id.
fn messages(content: &Value, ids: &[&str]) -> Value {
    let results: Vec<Value> = ids
        .iter()
        .map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "r"}))
        .collect();
    chat(json!([user("go"), {"role": "assistant", "content": content}, {"role": "user", "content": results}]))
}

fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn gemini(call: &Value, signature: Option<&str>) -> Value {
    let mut part = json!({"functionCall": call});
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.into();
    }
    json!({"contents": [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [part]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"r": 1}}}]},
    ]})
}

const MINIMAX_CALL: &str = "invalid params, invalid function arguments json string, tool_call_id: call_1 (2013)";
const QWEN: &str = "<400> InternalError.Algo.InvalidParameter: The \"function.arguments\" parameter of the code model \
                    must be in JSON format.";
const NEAR: &str = "Assistant tool call function.arguments must be valid JSON.";
const CODEGRAFF: &str = "invalid_prompt: Invalid request: messages.1.tool_calls.0.function.arguments: arguments must be \
                         a valid JSON object string";
const CUT: &str = "{\"command\": \"cd /x && git";

#[test]
fn arguments_that_a_server_cannot_read() {
    let fixed = [
        (ArgumentReader::MiniMax, MINIMAX_CALL),
        (ArgumentReader::Qwen, QWEN),
        (ArgumentReader::NearAi, NEAR),
        (ArgumentReader::Codegraff, CODEGRAFF),
    ];
    let bad = [json!(CUT), json!(""), json!("[1]"), json!("{}{}"), json!({"a": 1})];
    for (reader, words) in fixed {
        let rules = ServerRules::reading(reader);
        for arguments in &bad {
            check(&[("bad", CHAT, rules, chat_arguments(arguments.clone()), words)]);
        }
        check(&[("control", CHAT, rules, chat_arguments("{\"a\": [1]}"), "")]);
    }
    // A server that passes arguments on as a text refuses none of them.
    for arguments in bad {
        for rules in [ServerRules::OPENAI, ServerRules::MISTRAL_ELSEWHERE] {
            check(&[("accepted", CHAT, rules, chat_arguments(arguments.clone()), "")]);
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn arguments_in_the_words_of_local_servers() {
    let lead = "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at line 1, \
                column";
    let quote = format!(
        "{lead} 26: syntax error while parsing value - invalid string: missing closing quote; last \
                         read: '\"cd /x && git'"
    );
    let end = format!(
        "{lead} 1: syntax error while parsing value - unexpected end of input; expected '[', '{{', or a \
                       literal"
    );
    let rows: [(ArgumentReader, Value, &str); 22] = [
        (
            ArgumentReader::Vllm,
            json!(CUT),
            "Unterminated string starting at: line 1 column 13 (char 12)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{\"a\": 1"),
            "Expecting ',' delimiter: line 1 column 8 (char 7)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{\"a\":\n"),
            "Expecting value: line 2 column 1 (char 6)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{}{}"),
            "Extra data: line 1 column 3 (char 2)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{\"a\": \"\n\"}"),
            "Invalid control character at: line 1 column 8 (char 7)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{'a'"),
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{\"a\":1,}"),
            "Expecting property name enclosed in double quotes: line 1 column 8 (char 7)",
        ),
        (
            ArgumentReader::Vllm,
            json!("{\"a\":\"\\x\"}"),
            "Invalid \\escape: line 1 column 7 (char 6)",
        ),
        (
            ArgumentReader::Vllm,
            json!("-"),
            "Expecting value: line 1 column 1 (char 0)",
        ),
        (
            ArgumentReader::Vllm,
            json!("[1]"),
            "Can only get item pairs from a mapping.",
        ),
        (ArgumentReader::Vllm, json!({"a": 1}), "Input should be a valid string"),
        (ArgumentReader::Vllm, json!(""), ""),
        (ArgumentReader::Vllm, json!(" {\"a\": [1.5e3, null, \"\\u00e4\"]} "), ""),
        (
            ArgumentReader::Sglang,
            json!(CUT),
            "unexpected end of data: line 1 column 26 (char 25)",
        ),
        (
            ArgumentReader::Sglang,
            json!("\"x\""),
            "'str object' has no attribute 'items'",
        ),
        (
            ArgumentReader::Sglang,
            json!(""),
            "Input is a zero-length, empty document: line 1 column 1 (char 0)",
        ),
        (
            ArgumentReader::Sglang,
            json!("{}{}"),
            "unexpected content after document: line 1 column 3 (char 2)",
        ),
        (ArgumentReader::Sglang, json!("{}"), ""),
        (ArgumentReader::LlamaCpp, json!(CUT), &quote),
        (ArgumentReader::LlamaCpp, json!(""), &end),
        (ArgumentReader::LlamaCpp, json!({"a": 1}), ""),
        (ArgumentReader::LlamaCpp, json!("{}"), ""),
    ];
    for (reader, arguments, words) in rows {
        let body = chat_arguments(arguments);
        let own = verdict(CHAT, &ServerRules::reading(reader), &memory(), &body);
        let message = own.as_ref().err().map_or("", |refusal| refusal.message.as_str());
        assert_eq!(message, words, "{reader:?} {body}");
        if let Err(refusal) = own {
            // llama.cpp alone calls it a failure of its own.
            assert_eq!(
                refusal.status,
                if reader == ArgumentReader::LlamaCpp { 500 } else { 400 }
            );
        }
    }
}

#[test]
fn arguments_of_the_other_formats() {
    let item = |arguments: Value| {
        json!({"model": "m", "input": [
            {"type": "message", "role": "user", "content": "go"},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": arguments},
            {"type": "function_call_output", "call_id": "call_1", "output": "r"},
        ]})
    };
    let input = |input: Value| {
        messages(
            &json!([{"type": "tool_use", "id": "call_1", "name": "f", "input": input}]),
            &["call_1"],
        )
    };
    let args = "Invalid value at 'contents[1].parts[0].function_call.args' (type.googleapis.com/google.protobuf.Struct), \
                \"{\"";
    let responses = wire("openai-responses-compatible");
    // DeepSeek's converter accepts any input, so that only the further rule can refuse it.
    let lenient = wire("anthropic-deepseek");
    let minimax = ServerRules::reading(ArgumentReader::MiniMax);
    let own = ServerRules::reading(ArgumentReader::Gemini);
    check(&[
        ("item", responses, minimax, item(json!("{")), MINIMAX_CALL),
        ("item control", responses, minimax, item(json!("{}")), ""),
        ("input text", lenient, minimax, input(json!("{}")), MINIMAX_CALL),
        ("input list", lenient, minimax, input(json!([])), MINIMAX_CALL),
        ("input control", lenient, minimax, input(json!({"a": 1})), ""),
        (
            "args text",
            Wire::GEMINI,
            own,
            gemini(&json!({"name": "f", "args": "{"}), None),
            args,
        ),
        (
            "args missing",
            Wire::GEMINI,
            own,
            gemini(&json!({"name": "f"}), None),
            "",
        ),
        (
            "args object",
            Wire::GEMINI,
            own,
            gemini(&json!({"name": "f", "args": {}}), None),
            "",
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn names_outside_the_pattern() {
    let named = |name: &str| {
        let mut body = chat_arguments("{}");
        body["messages"][1]["tool_calls"][0]["function"]["name"] = name.into();
        body
    };
    let used = |name: &str| {
        messages(
            &json!([{"type": "tool_use", "id": "1", "name": name, "input": {}}]),
            &["1"],
        )
    };
    let long = "n".repeat(201);
    let names = |names| ServerRules {
        names: Some(names),
        ..ServerRules::default()
    };
    let openai = names(judge::NameReader::OpenAi);
    let anthropic = names(judge::NameReader::Anthropic);
    let bedrock = names(judge::NameReader::Bedrock);
    let claude = Wire::ANTHROPIC;
    check(&[
        (
            "blank",
            CHAT,
            openai,
            named("a b"),
            "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern. Expected a string that \
             matches the pattern '^[a-zA-Z0-9_-]+$'.",
        ),
        (
            "empty",
            wire("openai-chat-compatible"),
            openai,
            named(""),
            "Invalid 'messages[1].tool_calls[0].function.name': empty string. Expected a string with minimum length 1, \
             but got an empty string instead.",
        ),
        (
            "long",
            CHAT,
            openai,
            named(&long),
            "Invalid 'messages[1].tool_calls[0].function.name': string too long. Expected a string with maximum length \
             64, but got a string with length 201 instead.",
        ),
        ("control", CHAT, openai, named("a_b-9"), ""),
        (
            "control character",
            claude,
            anthropic,
            used("a\u{0}b"),
            "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            "empty",
            claude,
            anthropic,
            used(""),
            "messages.1.content.0.tool_use.name: String should have at least 1 character",
        ),
        (
            "long",
            claude,
            anthropic,
            used(&long),
            "messages.1.content.0.tool_use.name: String should have at most 200 characters",
        ),
        ("control", claude, anthropic, used("mcp__a-b"), ""),
        (
            "colon",
            wire("anthropic-bedrock"),
            bedrock,
            used("a:b"),
            "1 validation error detected: Value 'a:b' at 'messages.1.member.content.0.member.toolUse.name' failed to \
             satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
        ),
        ("control", wire("anthropic-bedrock"), bedrock, used("a_b"), ""),
    ]);
}

#[test]
fn ids_that_are_null() {
    let rules = ServerRules {
        null_ids: true,
        ..ServerRules::default()
    };
    let mut called = chat_arguments("{}");
    called["messages"][1]["tool_calls"][0]["id"] = Value::Null;
    let mut answered = chat_arguments("{}");
    answered["messages"][2]["tool_call_id"] = Value::Null;
    let mut used = messages(&json!([tool_use("1")]), &["1"]);
    used["messages"][1]["content"][0]["id"] = Value::Null;
    let mut item = json!({"input": [{"type": "function_call", "call_id": null, "name": "f", "arguments": "{}"}]});
    let rows = [
        (
            CHAT,
            &called,
            "Invalid type for 'messages[1].tool_calls[0].id': expected a string, but got null instead.",
        ),
        (
            CHAT,
            &answered,
            "Invalid type for 'messages[2].tool_call_id': expected a string, but got null instead.",
        ),
        (
            Wire::ANTHROPIC,
            &used,
            "messages.1.content.0.tool_use.id: Input should be a valid string",
        ),
        (
            Wire::OPENAI_RESPONSES,
            &item,
            "Invalid type for 'input[0].call_id': expected a string, but got null instead.",
        ),
    ];
    for (wire, body, words) in rows {
        let refusal = verdict(wire, &rules, &memory(), body).expect_err("null");
        assert_eq!(refusal.message, words);
    }
    item["input"] = json!([{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "r"}]);
    verdict(Wire::OPENAI_RESPONSES, &rules, &memory(), &item).expect("an id");
    verdict(CHAT, &rules, &memory(), &chat_arguments("{}")).expect("an id");
    let null = gemini(&json!({"name": "f", "id": null}), None);
    verdict(Wire::GEMINI, &rules, &memory(), &null).expect("no id is needed");
}

#[test]
fn blocks_after_calls_and_beside_results() {
    let open = "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: 1, 2. Each \
                `tool_use` block must have a corresponding `tool_result` block in the next message.";
    let mixed = "invalid params, tool call result does not follow tool call (2013)";
    let text = json!({"type": "text", "text": "so"});
    let thought = json!({"type": "thinking", "thinking": "t", "signature": "own"});
    let body = |content: Value| messages(&content, &["1", "2"]);
    let last = ServerRules::CALLS_LAST;
    for wire in [Wire::ANTHROPIC, wire("anthropic-bedrock"), wire("anthropic-compatible")] {
        check(&[
            (
                "between",
                wire,
                last,
                body(json!([tool_use("1"), text, tool_use("2")])),
                open,
            ),
            (
                "after",
                wire,
                last,
                body(json!([tool_use("1"), tool_use("2"), text])),
                open,
            ),
            (
                "thought",
                wire,
                last,
                body(json!([tool_use("1"), thought, tool_use("2")])),
                open,
            ),
            (
                "control",
                wire,
                last,
                body(json!([thought, text, tool_use("1"), tool_use("2")])),
                "",
            ),
        ]);
    }
    let mut beside = messages(&json!([tool_use("1")]), &["1"]);
    let control = beside.clone();
    beside["messages"][2]["content"]
        .as_array_mut()
        .expect("a list")
        .push(text);
    // The same words from a host that nobody knows.
    let unknown = wire("anthropic-compatible");
    check(&[
        ("beside", unknown, ServerRules::MINIMAX, beside, mixed),
        ("control", unknown, ServerRules::MINIMAX, control, ""),
    ]);
}

#[test]
fn a_user_message_after_a_tool_message() {
    let words = "Unexpected role 'user' after role 'tool'";
    let mut bare = chat_arguments("{}");
    bare["messages"].as_array_mut().expect("a list").push(user("on"));
    let mut bridged = chat_arguments("{}");
    let list = bridged["messages"].as_array_mut().expect("a list");
    list.extend([json!({"role": "assistant", "content": "Understood."}), user("on")]);
    let compatible = wire("openai-chat-compatible");
    for rules in [ServerRules::MISTRAL_ELSEWHERE, ServerRules::MISTRAL_CODED] {
        check(&[
            ("bare", compatible, rules, bare.clone(), words),
            ("bridged", compatible, rules, bridged.clone(), ""),
        ]);
    }
    let coded = verdict(compatible, &ServerRules::MISTRAL_CODED, &memory(), &bare).expect_err("bare");
    assert_eq!(
        (coded.kind, coded.code),
        (Some("invalid_request_message_order"), Some("3230"))
    );
}

#[test]
fn a_history_without_a_user_message() {
    let template = "Error rendering prompt with jinja template: \"No user query found in messages.\".\n\nThis is usually \
                    an issue with the model's prompt template.";
    let glm = "The messages parameter is illegal. Please check the documentation.";
    let mut bare = chat_arguments("{}");
    bare["messages"].as_array_mut().expect("a list").remove(0);
    let mut later = bare.clone();
    later["messages"].as_array_mut().expect("a list").push(user("on"));
    let compatible = wire("openai-chat-compatible");
    for (words, text) in [(NoUserWords::LmStudio, template), (NoUserWords::Glm, glm)] {
        let rules = ServerRules {
            no_user: Some(words),
            ..ServerRules::default()
        };
        check(&[
            ("bare", compatible, rules, bare.clone(), text),
            ("control", compatible, rules, later.clone(), ""),
        ]);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn thinking_that_another_server_made() {
    let rules = ServerRules {
        made_here: true,
        ..ServerRules::default()
    };
    let thought = |signature: &str| {
        let block = json!({"type": "thinking", "thinking": "t", "signature": signature});
        messages(&json!([block, tool_use("1")]), &["1"])
    };
    let redacted = messages(
        &json!([{"type": "redacted_thinking", "data": "x"}, tool_use("1")]),
        &["1"],
    );
    let item = |content: &str| {
        json!({"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content},
            {"type": "message", "role": "assistant", "content": "so"}]})
    };
    let next = |id: &str| json!({"previous_response_id": id, "input": "on"});
    let extra = |signature: &str| {
        let mut body = chat_arguments("{}");
        let extra = json!({"google": {"thought_signature": signature}});
        body["messages"][1]["tool_calls"][0]["extra_content"] = extra;
        body
    };
    let call = json!({"name": "f", "args": {}});
    let responses = Wire::OPENAI_RESPONSES;
    check(&[
        (
            "foreign",
            Wire::ANTHROPIC,
            rules,
            thought("gAAAAA"),
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        (
            "redacted",
            Wire::ANTHROPIC,
            rules,
            redacted,
            "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
        ),
        ("own", Wire::ANTHROPIC, rules, thought("own"), ""),
        (
            "encrypted",
            responses,
            rules,
            item("rRZE5678st"),
            "The encrypted content rRZE...78st could not be verified. Reason: Encrypted content could not be decrypted \
             or parsed.",
        ),
        ("own", responses, rules, item("own"), ""),
        ("plain", responses, rules, item(""), ""),
        (
            "previous",
            responses,
            rules,
            next("resp_dead"),
            "Previous response with id 'resp_dead' not found.",
        ),
        ("own", responses, rules, next("resp_own"), ""),
        (
            "part",
            Wire::GEMINI,
            rules,
            gemini(&call, Some("bad")),
            "Corrupted thought signature.",
        ),
        ("own", Wire::GEMINI, rules, gemini(&call, Some("own")), ""),
        (
            "substitute",
            Wire::GEMINI,
            rules,
            gemini(&call, Some("skip_thought_signature_validator")),
            "",
        ),
        ("extra", CHAT, rules, extra("bad"), "Corrupted thought signature."),
        ("own", CHAT, rules, extra("own"), ""),
    ]);
    let code = |body: &Value| verdict(responses, &rules, &memory(), body).expect_err("foreign").code;
    assert_eq!(code(&item("foreign")), Some("invalid_encrypted_content"));
    assert_eq!(code(&next("resp_dead")), Some("previous_response_not_found"));
}

#[test]
fn reasoning_that_the_client_lost() {
    let called = |id: &str, reasoning: Value| {
        let mut body = chat_arguments("{}");
        body["messages"][1]["tool_calls"][0]["id"] = id.into();
        body["messages"][2]["tool_call_id"] = id.into();
        if !reasoning.is_null() {
            body["messages"][1]["reasoning_content"] = reasoning;
        }
        body
    };
    let off = |mut body: Value| {
        body["thinking"] = json!({"type": "disabled"});
        body
    };
    let plain = chat(json!([user("go"), {"role": "assistant", "content": "so"}, user("on")]));
    let used = messages(&json!([tool_use("cold")]), &["cold"]);
    let thought = messages(
        &json!([{"type": "thinking", "thinking": "", "signature": "s"}, tool_use("cold")]),
        &["cold"],
    );
    let deepseek = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    let kimi = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1";
    let (deep, moon) = (ServerRules::DEEPSEEK, ServerRules::KIMI);
    let (chat_wire, claude_wire) = (wire("openai-chat-deepseek"), wire("anthropic-deepseek"));
    let compatible = wire("openai-chat-compatible");
    check(&[
        ("cold", chat_wire, deep, called("cold", Value::Null), deepseek),
        ("warm", chat_wire, deep, called("warm", Value::Null), ""),
        ("empty", chat_wire, deep, called("cold", json!("")), ""),
        ("marked", chat_wire, deep, called("call_00_ET_1", Value::Null), ""),
        ("off", chat_wire, deep, off(called("cold", Value::Null)), ""),
        ("no call", chat_wire, deep, plain.clone(), ""),
        (
            "messages",
            claude_wire,
            deep,
            used.clone(),
            "The `content[].thinking` in the thinking mode must be passed back to the API.",
        ),
        ("thought", claude_wire, deep, thought.clone(), ""),
        ("kimi", compatible, moon, called("warm", Value::Null), kimi),
        ("kimi has it", compatible, moon, called("warm", json!("t")), ""),
        ("kimi off", compatible, moon, off(called("warm", Value::Null)), ""),
        ("kimi without calls", compatible, moon, plain, ""),
        ("kimi's Messages", wire("anthropic-compatible"), moon, used, kimi),
        (
            "kimi's Messages have it",
            wire("anthropic-compatible"),
            moon,
            thought,
            "",
        ),
    ]);
}

#[test]
fn signatures_that_the_client_lost() {
    let missing = "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
                   work correctly, and missing thought_signature may lead to degraded model performance. Additional \
                   data, function call `default_api:f`, position 2.";
    let vertex = "Unable to submit request because function call `default_api:f` in the 2. content block is missing a \
                  `thought_signature`.";
    let rule = |reasoning| ServerRules {
        reasoning: Some(reasoning),
        ..ServerRules::default()
    };
    let (gem, ver) = (rule(ReasoningRule::Gemini), rule(ReasoningRule::Vertex));
    let call = json!({"name": "f", "args": {}});
    let mut signed = chat_arguments("{}");
    signed["messages"][1]["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": "s"}});
    let mut earlier = chat_arguments("{}");
    let list = earlier["messages"].as_array_mut().expect("a list");
    list.extend([json!({"role": "assistant", "content": "so"}), user("on")]);
    check(&[
        ("native", Wire::GEMINI, gem, gemini(&call, None), missing),
        ("signed", Wire::GEMINI, gem, gemini(&call, Some("s")), ""),
        ("vertex", Wire::GEMINI, ver, gemini(&call, None), vertex),
        ("chat", CHAT, gem, chat_arguments("{}"), missing),
        ("chat vertex", CHAT, ver, chat_arguments("{}"), vertex),
        ("chat signed", CHAT, gem, signed, ""),
        ("an earlier turn", CHAT, gem, earlier, ""),
    ]);
}

#[test]
fn a_container_of_pending_calls() {
    let words = "container_id is required when there are pending tool uses generated by code execution with tools.";
    let run = json!({"type": "server_tool_use", "id": "srv", "name": "code_execution", "input": {}});
    let by = json!({"type": "tool_use", "id": "1", "name": "f", "input": {},
        "caller": {"type": "code_execution_20260120", "tool_id": "srv"}});
    let direct = json!({"type": "tool_use", "id": "1", "name": "f", "input": {}, "caller": {"type": "direct"}});
    let pending = messages(&json!([run, by]), &["1"]);
    let mut held = pending.clone();
    held["container"] = "cont_1".into();
    let rules = ServerRules {
        container: true,
        ..ServerRules::default()
    };
    let mut done = pending.clone();
    let ran = json!({"type": "code_execution_tool_result", "tool_use_id": "srv", "content": {}});
    let list = done["messages"].as_array_mut().expect("a list");
    list.extend([json!({"role": "assistant", "content": [ran]}), user("on")]);
    check(&[
        ("pending", Wire::ANTHROPIC, rules, pending, words),
        ("held", Wire::ANTHROPIC, rules, held, ""),
        ("direct", Wire::ANTHROPIC, rules, messages(&json!([direct]), &["1"]), ""),
        ("done", Wire::ANTHROPIC, rules, done, ""),
    ]);
}
