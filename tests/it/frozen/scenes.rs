//! Conversations that leave every kind of record in a ledger: callers, histories and the model's calls.

use serde_json::json;

use crate::support::provider::{Reply, ToolCall};

/// A caller and its path.
pub(crate) struct Asker {
    pub(crate) path: &'static str,
    pub(crate) fields: &'static [(&'static str, &'static str)],
}

const MESSAGES: &str = "/anthropic/v1/messages";
const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";
const GEMINI: &str = "/gemini/v1beta/models/m:generateContent";

/// A caller with an API key, in a named session.
pub(crate) const ANN: Asker = Asker {
    path: MESSAGES,
    fields: &[("x-api-key", "sk-ann"), ("x-antiphon-session", "one")],
};
/// An agent within the session of `ANN`.
pub(crate) const AGENT: Asker = Asker {
    path: MESSAGES,
    fields: &[
        ("x-api-key", "sk-ann"),
        ("x-antiphon-session", "one"),
        ("x-claude-code-agent-id", "sub"),
    ],
};
/// Another session of the same caller.
pub(crate) const MOVED: Asker = Asker {
    path: MESSAGES,
    fields: &[("x-api-key", "sk-ann"), ("x-antiphon-session", "three")],
};
/// A session whose provider never answers.
pub(crate) const SILENT: Asker = Asker {
    path: "/silent/v1/messages",
    fields: &[("x-api-key", "sk-ann"), ("x-antiphon-session", "five")],
};
/// The same session at a provider that answers.
pub(crate) const ANSWERED: Asker = Asker {
    path: MESSAGES,
    ..SILENT
};
/// A Chat Completions caller that loses results which it has brought.
pub(crate) const BEN: Asker = Asker {
    path: CHAT,
    fields: &[("authorization", "Bearer sk-ben"), ("x-antiphon-session", "two")],
};
/// A caller with a client token.
pub(crate) const CAROL: Asker = Asker {
    path: RESPONSES,
    fields: &[
        ("x-antiphon-client-token", "token of ci"),
        ("authorization", "Bearer sk-up"),
        ("x-antiphon-session", "seven"),
    ],
};
/// A user within the same client token.
pub(crate) const DAVE: Asker = Asker {
    path: RESPONSES,
    fields: &[
        ("x-antiphon-client-token", "token of ci"),
        ("authorization", "Bearer sk-up"),
        ("x-antiphon-session", "eight"),
        ("x-user", "dave"),
    ],
};
/// A caller whose calls have no ids.
pub(crate) const GEM: Asker = Asker {
    path: GEMINI,
    fields: &[("x-goog-api-key", "sk-gem"), ("x-antiphon-session", "nine")],
};
/// A caller without a session name.
pub(crate) const ERIN: Asker = Asker {
    path: MESSAGES,
    fields: &[("x-api-key", "sk-erin")],
};
/// Callers of a proxy in single-principal mode.
pub(crate) const FRANK: Asker = Asker {
    path: MESSAGES,
    fields: &[("x-api-key", "sk-frank"), ("x-antiphon-session", "ten")],
};
pub(crate) const OTHER: Asker = Asker {
    path: MESSAGES,
    fields: &[("x-api-key", "sk-other"), ("x-antiphon-session", "ten")],
};

pub(crate) const KEEP_ID: &str = "toolu_01Ke9pA1bC2dE3f";
pub(crate) const FAIL_ID: &str = "toolu_01Fa8iL2bC3dE4f";
pub(crate) const READ_ID: &str = "toolu_01Re7aD3bC4dE5f";
pub(crate) const SEND_ID: &str = "toolu_01Se6nD4bC5dE6f";
pub(crate) const LAST_ID: &str = "toolu_01La5sT5bC6dE7f";
pub(crate) const AGENT_ID: &str = "toolu_01Ag4eN6bC7dE8f";
pub(crate) const SEEN_ID: &str = "call_9aB3xY7zQ2wE5r";
pub(crate) const CAROL_ID: &str = "call_Rs7Xk29LmQ4tU6v";
pub(crate) const DAVE_ID: &str = "call_Dv5Wq81NpZ3sT7u";
pub(crate) const ERIN_ID: &str = "toolu_01Er3iN8bC9dE0f";
pub(crate) const PARKED_ID: &str = "toolu_01Pa2rK9bC0dE1f";
pub(crate) const OWNED_ID: &str = "toolu_01Ow1nD0bC1dE2f";
pub(crate) const FRANK_ID: &str = "toolu_01Fr0aN1bC2dE3g";

#[rustfmt::skip]
pub(crate) const ANN_LOG: &[&str] = &[
    r#"{"role":"user","content":"hello"}"#,
    r#"{"role":"assistant","content":[{"type":"text","text":"hi"}]}"#,
    r#"{"role":"user","content":"use four tools"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Ke9pA1bC2dE3f","name":"keeps","input":{"n":1}},{"type":"tool_use","id":"toolu_01Fa8iL2bC3dE4f","name":"reverts","input":{"n":1}},{"type":"tool_use","id":"toolu_01Re7aD3bC4dE5f","name":"reads","input":{"n":1}},{"type":"tool_use","id":"toolu_01Se6nD4bC5dE6f","name":"sends","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"go on"}"#,
    r#"{"role":"assistant","content":"working"}"#,
    r#"{"role":"user","content":"anything new?"}"#,
    r#"{"role":"assistant","content":[{"type":"text","text":"yes"}]}"#,
    r#"{"role":"user","content":[{"type":"text","text":"thanks"}]}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01La5sT5bC6dE7f","name":"keeps","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"never mind"}"#,
    r#"{"role":"assistant","content":"fine"}"#,
    r#"{"role":"user","content":"is it done?"}"#,
    r#"{"role":"assistant","content":"it is"}"#,
    r#"{"role":"user","content":"great"}"#,
];

#[rustfmt::skip]
pub(crate) const AGENT_LOG: &[&str] = &[
    r#"{"role":"user","content":"sub task"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Ag4eN6bC7dE8f","name":"keeps","input":{"n":1}},{"type":"tool_use","id":"call_0","name":"keeps","input":{"z":[null,true,false,1.5,-0.0,1e3,"\u00e9 \"q\"",[]],"a":{"b":{}}}}]}"#,
    r#"{"role":"user","content":"and?"}"#,
    r#"{"role":"assistant","content":"well"}"#,
    r#"{"role":"user","content":"so?"}"#,
];

#[rustfmt::skip]
pub(crate) const MOVED_LOG: &[&str] = &[
    r#"{"role":"user","content":"go"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Mo9vE2bC3dE4h","name":"keeps","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"hurry"}"#,
    r#"{"role":"assistant","content":"waiting"}"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01Mo9vE2bC3dE4h","content":"moved result"},{"type":"text","text":"on"}]}"#,
];

/// The user message in place of the lost message with the result.
pub(crate) const MOVED_LOST: &str = r#"{"role":"user","content":"on"}"#;

#[rustfmt::skip]
pub(crate) const SILENT_LOG: &[&str] = &[
    r#"{"role":"user","content":"go"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Te8nT3bC4dE5i","name":"keeps","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"on"}"#,
];

#[rustfmt::skip]
pub(crate) const BEN_LOG: &[&str] = &[
    r#"{"role":"user","content":"hello"}"#,
    r#"{"role":"assistant","content":"hi"}"#,
    r#"{"role":"user","content":"read it"}"#,
    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_9aB3xY7zQ2wE5r","type":"function","function":{"name":"reads","arguments":"{\"n\":1}"}}]}"#,
    r#"{"role":"tool","tool_call_id":"call_9aB3xY7zQ2wE5r","content":"seen result"}"#,
    r#"{"role":"assistant","content":"done"}"#,
    r#"{"role":"user","content":"again"}"#,
    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_0","type":"function","function":{"name":"reads","arguments":"{\"n\": 2}"}}]}"#,
    r#"{"role":"tool","tool_call_id":"call_0","content":"weak result"}"#,
    r#"{"role":"assistant","content":"ok"}"#,
    r#"{"role":"user","content":"once more"}"#,
    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"reads","arguments":"{\"n\":3}"}}]}"#,
    r#"{"role":"user","content":"forget it"}"#,
    r#"{"role":"assistant","content":"fine"}"#,
    r#"{"role":"user","content":"so?"}"#,
    r#"{"role":"assistant","content":"well"}"#,
    r#"{"role":"user","content":"now?"}"#,
];

#[rustfmt::skip]
pub(crate) const CAROL_LOG: &[&str] = &[
    r#"{"role":"user","content":"hello"}"#,
    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}"#,
    r#"{"role":"user","content":"run"}"#,
    r#"{"type":"custom_tool_call","call_id":"call_Rs7Xk29LmQ4tU6v","name":"keeps","input":"*** no JSON"}"#,
    r#"{"role":"user","content":"go on"}"#,
    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]}"#,
    r#"{"role":"user","content":"more"}"#,
];

#[rustfmt::skip]
pub(crate) const DAVE_LOG: &[&str] = &[
    r#"{"role":"user","content":"hello"}"#,
    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}"#,
    r#"{"role":"user","content":"run"}"#,
    r#"{"type":"function_call","call_id":"call_Dv5Wq81NpZ3sT7u","name":"keeps","arguments":"{\"n\":1}"}"#,
    r#"{"role":"user","content":"go on"}"#,
];

#[rustfmt::skip]
pub(crate) const GEM_LOG: &[&str] = &[
    r#"{"role":"user","parts":[{"text":"hello"}]}"#,
    r#"{"role":"model","parts":[{"text":"hi"}]}"#,
    r#"{"role":"user","parts":[{"text":"read"}]}"#,
    r#"{"role":"model","parts":[{"functionCall":{"name":"reads","args":{"n":1}}}]}"#,
    r#"{"role":"user","parts":[{"functionResponse":{"name":"reads","response":{"result":"seen response"}}}]}"#,
    r#"{"role":"model","parts":[{"text":"ok"}]}"#,
    r#"{"role":"user","parts":[{"text":"keep"}]}"#,
    r#"{"role":"model","parts":[{"functionCall":{"name":"keeps","args":{"n":2}}}]}"#,
    r#"{"role":"user","parts":[{"text":"go on"}]}"#,
    r#"{"role":"model","parts":[{"text":"fine"}]}"#,
    r#"{"role":"user","parts":[{"text":"so?"}]}"#,
];

/// The content in place of the lost response.
pub(crate) const GEM_LOST: &str = r#"{"role":"user","parts":[{"text":"hm"}]}"#;

#[rustfmt::skip]
pub(crate) const ERIN_LOG: &[&str] = &[
    r#"{"role":"user","content":"hello from erin"}"#,
    r#"{"role":"assistant","content":"hi"}"#,
    r#"{"role":"user","content":"keep it"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Er3iN8bC9dE0f","name":"keeps","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"and?"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Pa2rK9bC0dE1f","name":"keeps","input":{"n":1}},{"type":"tool_use","id":"toolu_01Ow1nD0bC1dE2f","name":"keeps","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"so?"}"#,
];

#[rustfmt::skip]
pub(crate) const FRANK_LOG: &[&str] = &[
    r#"{"role":"user","content":"hello"}"#,
    r#"{"role":"assistant","content":"hi"}"#,
    r#"{"role":"user","content":"keep it"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01Fr0aN1bC2dE3g","name":"keeps","input":{"n":1}}]}"#,
    r#"{"role":"user","content":"on"}"#,
    r#"{"role":"assistant","content":"ok"}"#,
    r#"{"role":"user","content":"so?"}"#,
];

/// Returns the body of a history in the format of its caller.
pub(crate) fn body(asker: &Asker, log: &[&str]) -> String {
    let log = log.join(",");
    match asker.path {
        RESPONSES => format!(r#"{{"model":"m","input":[{log}]}}"#),
        GEMINI => format!(r#"{{"contents":[{log}]}}"#),
        CHAT => format!(r#"{{"model":"m","messages":[{log}]}}"#),
        _ => format!(r#"{{"model":"m","max_tokens":9,"messages":[{log}]}}"#),
    }
}

/// Returns a history without some of its entries.
pub(crate) fn without(log: &[&'static str], gone: &[usize]) -> Vec<&'static str> {
    let kept = log.iter().enumerate().filter(|(at, _)| !gone.contains(at));
    kept.map(|(_, entry)| *entry).collect()
}

/// A reply with text.
pub(crate) fn words() -> Reply {
    Reply::Text("fine".to_owned())
}

/// A reply with one tool call.
pub(crate) fn one(id: &str, name: &str) -> Reply {
    Reply::call(id, name, json!({"n": 1}))
}

/// A reply with several tool calls.
pub(crate) fn several(calls: &[(&str, &str)]) -> Reply {
    let call = |(id, name): &(&str, &str)| ToolCall::new(id, name, json!({"n": 1}));
    Reply::Calls(calls.iter().map(call).collect())
}
