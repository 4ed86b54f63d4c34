//! Ids that a 400 names, per dialect: one resend repairs these and nothing else.

use antiphon::provider::ProviderKind;
use serde_json::{Value, json};

use crate::{
    proxy::refusal_resends::{answer, notes, refused},
    support::{
        app::{App, before, gzipped, post, post_with},
        judge,
        wire::Upstream,
    },
};

/// Starts an app before an upstream of this kind, under `/x`.
pub(crate) async fn app_as(address: std::net::SocketAddr, kind: ProviderKind) -> App {
    let one = |builder: &mut crate::support::app::Builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = kind;
    };
    before(address).with(one).start().await
}

pub(crate) fn messages(list: &Value) -> String {
    json!({"model": "m", "max_tokens": 9, "messages": list}).to_string()
}

pub(crate) fn input(list: &Value) -> String {
    json!({"model": "m", "input": list}).to_string()
}

pub(crate) fn calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    json!({"role": "assistant", "content": ids.iter().map(call).collect::<Vec<_>>()})
}

pub(crate) fn results(ids: &[&str]) -> Value {
    let result = |id: &&str| json!({"type": "tool_result", "tool_use_id": id, "content": format!("result of {id}")});
    json!({"role": "user", "content": ids.iter().map(result).collect::<Vec<_>>()})
}

pub(crate) fn user(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

pub(crate) fn call_item(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

pub(crate) fn output_item(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": format!("result of {id}")})
}

/// A refusal with facts that only the server could know.
struct Said {
    name: &'static str,
    path: &'static str,
    body: String,
    words: &'static str,
    done: &'static str,
    /// JSON pointers into the second body, and the expected values.
    wanted: Vec<(&'static str, Value)>,
}

pub(crate) const MESSAGES: &str = "/x/v1/messages";
pub(crate) const RESPONSES: &str = "/x/v1/responses";

fn of_messages() -> Vec<Said> {
    let compacted = json!([user("go"), calls(&["toolu_1"]), user("hurry"),
        {"role": "assistant", "content": [{"type": "compaction", "content": "so far"}, {"type": "text", "text": "ok"}]}, user("on")]);
    let twice = json!([
        user("go"),
        calls(&["toolu_1"]),
        results(&["toolu_1"]),
        calls(&["toolu_1"]),
        results(&["toolu_1"])
    ]);
    let half = json!([user("go"),
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "oracle_tool_use", "id": "srvtoolu_1", "name": "oracle", "input": {}}, {"type": "text", "text": "b"}]},
        user("on")]);
    let thread = json!({"model": "m", "max_tokens": 9, "thread": {"type": "continue", "previous_message_id": "msg_1"},
        "messages": [user("hurry")]});
    vec![
        Said {
            name: "a call after a compaction",
            path: MESSAGES,
            body: messages(&compacted),
            words: "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            done: "placeholder=1",
            wanted: vec![
                ("/messages/2/content/0/tool_use_id", "toolu_1".into()),
                ("/messages/2/content/1/text", "hurry".into()),
                ("/messages/4", user("on")),
            ],
        },
        Said {
            name: "an id of two turns",
            path: MESSAGES,
            body: messages(&twice),
            words: "messages.3.content.0: `tool_use` ids must be unique",
            done: "renamed=1",
            wanted: vec![
                ("/messages/1/content/0/id", "toolu_1".into()),
                ("/messages/3/content/0/id", "toolu_1_2".into()),
                ("/messages/4/content/0/tool_use_id", "toolu_1_2".into()),
            ],
        },
        Said {
            name: "a server call of a kind to come",
            path: MESSAGES,
            body: messages(&half),
            words: "messages.1: `oracle` tool use with id `srvtoolu_1` was found without a corresponding `oracle_tool_result` block",
            done: "dropped=1",
            wanted: vec![(
                "/messages/1/content",
                json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            )],
        },
        Said {
            name: "a call on the server",
            path: MESSAGES,
            body: thread.to_string(),
            words: "messages.0: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_7. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            done: "placeholder=1",
            wanted: vec![
                ("/messages/0/content/0/tool_use_id", "toolu_7".into()),
                ("/messages/1", user("hurry")),
            ],
        },
    ]
}

fn of_responses() -> Vec<Said> {
    let reasoning = |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "QQ=="});
    let named = |id: &str, call: &str| json!({"type": "function_call", "id": id, "call_id": call, "name": "f", "arguments": "{}"});
    let repeated = json!([
        user("go"),
        reasoning("rs_1"),
        named("fc_1", "call_1"),
        output_item("call_1"),
        reasoning("rs_2"),
        named("fc_1", "call_2"),
        output_item("call_2")
    ]);
    let without = json!([
        user("go"),
        named("fc_1", "call_1"),
        output_item("call_1"),
        named("fc_2", "call_2"),
        output_item("call_2")
    ]);
    let late = json!({"model": "m", "previous_response_id": "resp_2", "input": [output_item("call_9"), user("on")]});
    let both = json!({"model": "m", "conversation": "conv_1", "input": "on"});
    vec![
        Said {
            name: "an item id that comes again under reasoning",
            path: RESPONSES,
            body: input(&repeated),
            words: "Duplicate item found with id fc_1. Remove duplicate items from your input and try again.",
            done: "fixed=1",
            wanted: vec![
                ("/input/2/id", "fc_1".into()),
                ("/input/5", call_item("call_2")),
                ("/input/4", reasoning("rs_2")),
            ],
        },
        Said {
            name: "an item without the reasoning it was made with",
            path: RESPONSES,
            body: input(&without),
            words: "Item 'fc_2' of type 'function_call' was provided without its required 'reasoning' item: 'rs_2'.",
            done: "fixed=1",
            wanted: vec![("/input/1/id", "fc_1".into()), ("/input/3", call_item("call_2"))],
        },
        Said {
            name: "a result that comes after its call was answered otherwise",
            path: RESPONSES,
            body: late.to_string(),
            words: "No tool call found for function call output with call_id call_9.",
            done: "quoted=1",
            wanted: vec![("/input/0/role", "user".into()), ("/input/1", user("on"))],
        },
        Said {
            name: "calls of a conversation",
            path: RESPONSES,
            body: both.to_string(),
            words: "No tool output found for custom tool call call_8.",
            done: "placeholder=1",
            wanted: vec![("/input/0/call_id", "call_8".into()), ("/input/1/content", "on".into())],
        },
    ]
}

fn of_chat() -> Vec<Said> {
    let call = || json!({"role": "assistant", "content": null, "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let tool = |text: &str| json!({"role": "tool", "tool_call_id": "call_0", "content": text});
    let twice = json!([user("go"), call(), tool("a"), call(), tool("b")]);
    vec![Said {
        name: "an id of two turns",
        path: "/x/v1/chat/completions",
        body: messages(&twice),
        words: "invalid tool call provided in messages[3]: cannot have duplicate tool ids call_0",
        done: "renamed=1",
        wanted: vec![
            ("/messages/2/tool_call_id", "call_0".into()),
            ("/messages/3/tool_calls/0/id", "call_0_2".into()),
            ("/messages/4/tool_call_id", "call_0_2".into()),
        ],
    }]
}

/// Returns the wrappings in which a server's words may arrive.
fn wrapped(words: &str) -> [String; 6] {
    let plain =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}, "request_id": "r"});
    [
        plain.to_string(),
        json!({"error": {"message": words, "type": "invalid_request_error", "param": "input", "code": null}})
            .to_string(),
        json!({"message": format!("The model returned the following errors: {words}")}).to_string(),
        json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": plain.to_string()}}})
            .to_string(),
        json!({"error": {"message": format!("litellm.BadRequestError: AnthropicException - {plain}")}}).to_string(),
        json!({"detail": words}).to_string(),
    ]
}

/// The second body is right for every wrapping and for coded requests. After a second refusal nothing is sent.
#[tokio::test]
async fn only_the_named_fault_is_repaired() {
    for said in [of_messages(), of_responses(), of_chat()].concat_all() {
        for (number, wrapping) in wrapped(said.words).into_iter().enumerate() {
            for taken in [true, false] {
                let first = answer(400, "application/json", &wrapping);
                let last = if taken {
                    answer(200, "application/json", "{}")
                } else {
                    first.clone()
                };
                let upstream = Upstream::answering_each([first, last]).await;
                let kind = if said.path == MESSAGES {
                    ProviderKind::Anthropic
                } else {
                    ProviderKind::OpenAi
                };
                let app = app_as(upstream.address, kind).await;
                let sent = if number == 1 {
                    post_with(said.path, &[("Content-Encoding", "gzip")], &gzipped(&said.body))
                } else {
                    post(said.path, &said.body).into_bytes()
                };
                let got = app.ask(sent).await;
                let told = format!("{}, wrapping {number}: {}", said.name, got.text());
                let status = if taken { 200 } else { 400 };
                assert_eq!(notes(&got), (status, "2", said.done), "{told}");
                assert!(taken || !got.text().contains("antiphon"), "{told}");
                let seen = upstream.requests();
                assert_eq!(seen.len(), 2, "{told}");
                assert_eq!(seen[1].header("content-encoding"), None, "{told}");
                let second = seen[1].json();
                for (pointer, wanted) in &said.wanted {
                    assert_eq!(second.pointer(pointer), Some(wanted), "{told}: {pointer}\n{second}");
                }
                let before: Value = serde_json::from_str(&said.body).unwrap();
                let lost = judge::lost(&before, &second);
                assert!(lost.is_empty() || said.done == "dropped=1", "{told}: {lost:?}");
            }
        }
    }
}

trait ConcatAll<T> {
    fn concat_all(self) -> Vec<T>;
}

impl<T, const N: usize> ConcatAll<T> for [Vec<T>; N] {
    fn concat_all(self) -> Vec<T> {
        self.into_iter().flatten().collect()
    }
}

/// The first send was edited elsewhere, and the provider refuses a balanced part: the resend is the client's original
/// body.
#[tokio::test]
async fn a_refused_balanced_part_is_resent_as_the_client_wrote_it() {
    let body = format!(
        "{{\"messages\" :  {},\r\n \"model\":\"m\"}}",
        json!([
            user("go"),
            calls(&["toolu_1"]),
            results(&["toolu_1"]),
            results(&["toolu_0"]),
            user("on")
        ])
    );
    let words = "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next message.";
    for coded in [false, true] {
        for taken in [true, false] {
            let last = if taken {
                answer(200, "application/json", "{}")
            } else {
                refused(words)
            };
            let upstream = Upstream::answering_each([refused(words), last]).await;
            let app = app_as(upstream.address, ProviderKind::Anthropic).await;
            let sent = if coded {
                post_with(MESSAGES, &[("Content-Encoding", "gzip")], &gzipped(&body))
            } else {
                post(MESSAGES, &body).into_bytes()
            };
            let got = app.ask(sent).await;
            assert_eq!(notes(&got), (if taken { 200 } else { 400 }, "2", "none"));
            let seen = upstream.requests();
            assert_eq!(seen.len(), 2);
            assert_ne!(seen[0].text(), body);
            assert_eq!(seen[1].text(), body);
            assert_eq!(seen[1].header("content-encoding"), None);
            assert_eq!(seen[1].header("content-length"), Some(body.len().to_string().as_str()));
        }
    }
}
