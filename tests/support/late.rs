//! Late results over a ledger in memory: the store alone, and whole conversations in the Messages format.

use std::{collections::BTreeSet, fmt::Display, sync::Arc, time::Duration};

use antiphon::{
    auth::{TokenHash, WebhookKey},
    late::{LateSettings, LateStore, ServiceSettings, ToolSettings},
    ledger::{Ledger, LedgerSettings, MemoryLedger},
    repair::Tier,
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::{WriterTask, writer},
};
use serde_json::{Value, json};

use super::{
    app::{Builder, get_with, post_with},
    still::{self, Answer, World},
};

/// A call id that no other call has.
pub const ID: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
/// The content of most posted results.
pub const FILM: &str = "https://e.com/film.mp4";
/// The path of requests in the Messages format.
pub const MESSAGES: &str = "/anthropic/v1/messages";

/// The model's whole answer to every request, unless a test scripts another.
pub const FINE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;

/// Returns an empty ledger in memory.
pub fn memory() -> Arc<dyn Ledger> {
    Arc::new(MemoryLedger::new(LedgerSettings::default(), [9; 32]))
}

/// Returns the late-result store over a ledger, and the task of its background writer.
pub fn over(ledger: &Arc<dyn Ledger>, settings: LateSettings, telemetry: Telemetry) -> (LateStore, WriterTask) {
    let (writer, task) = writer(Arc::clone(ledger), telemetry.clone());
    let parts = TableParts::new(ledger, &writer, Telemetry::default());
    let callers = VerifiedCallers::new(&parts);
    (LateStore::new(&parts, callers, settings, telemetry), task)
}

/// As [`over`], with the task running.
pub fn running(ledger: &Arc<dyn Ledger>, settings: LateSettings) -> LateStore {
    let (late, task) = over(ledger, settings, Telemetry::default());
    drop(super::wire::spawn(task.run()));
    late
}

/// Returns a service with the token `token of NAME`.
pub fn service(name: &str, principals: Option<&[&str]>, tools: Option<&[&str]>) -> ServiceSettings {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    ServiceSettings {
        name: name.to_owned(),
        token: Some(TokenHash::hash_token(format!("token of {name}").as_bytes())),
        key: None,
        principals: principals.map(set),
        tools: tools.map(set),
        on_behalf: false,
    }
}

/// Returns settings in which the service `booking` can undo the tool `hold`, and results settle at once.
pub fn undoing() -> LateSettings {
    let hold = ToolSettings {
        tier: Tier::Revertible,
        cancel_url: Some("http://127.0.0.1:9/cancel".to_owned()),
        ..ToolSettings::default()
    };
    LateSettings {
        settling: Duration::ZERO,
        services: vec![ServiceSettings {
            key: Some(WebhookKey::parse("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap()),
            ..service("booking", None, None)
        }],
        tools: [("hold".to_owned(), hold)].into(),
        ..LateSettings::default()
    }
}

/// Returns a world over a ledger. The service `tools` may answer every call.
pub fn world_over(ledger: &Arc<dyn Ledger>, change: impl FnOnce(&mut Builder)) -> World {
    let ledger = Arc::clone(ledger);
    let world = World::with(|builder| {
        builder.ledger = ledger;
        builder.late.services = vec![service("tools", None, None)];
        change(builder);
    });
    world.otherwise(|_| still::json(200, FINE));
    world
}

/// As [`world_over`]. The caller `sk-one` is verified.
pub async fn verified_world(ledger: &Arc<dyn Ledger>) -> World {
    let world = world_over(ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    world
}

/// Sends a history as the caller `sk-one`, and waits until everything about it is stored.
pub async fn ask(world: &World, session: &str, log: &[Value]) -> Answer {
    ask_with(world, &[("x-antiphon-session", session)], log).await
}

/// As [`ask`], with other headers.
pub async fn ask_with(world: &World, fields: &[(&str, &str)], log: &[Value]) -> Answer {
    accepted(send(world, MESSAGES, fields, &messages_body(log)).await)
}

/// As [`ask`], as another caller.
pub async fn ask_as(world: &World, key: &str, session: &str, log: &[Value]) -> Answer {
    let fields = [("x-api-key", key), ("x-antiphon-session", session)];
    accepted(send_with(world, MESSAGES, &fields, &messages_body(log)).await)
}

fn accepted(answer: Answer) -> Answer {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer
}

/// Sends any body as the caller `sk-one`, and waits until everything about it is stored.
pub async fn send(world: &World, path: &str, fields: &[(&str, &str)], body: &Value) -> Answer {
    let fields = [&[("x-api-key", "sk-one")], fields].concat();
    send_with(world, path, &fields, body).await
}

async fn send_with(world: &World, path: &str, fields: &[(&str, &str)], body: &Value) -> Answer {
    let request = post_with(path, fields, body.to_string().as_bytes());
    let answer = world.ask(request).await;
    world.settle().await;
    answer
}

/// Returns the body of a request with this history.
pub fn messages_body(log: &[Value]) -> Value {
    json!({"model": "m", "max_tokens": 99, "messages": log, "tools": tools()})
}

/// Returns the tools that the conversations declare.
pub fn tools() -> Value {
    json!([{"name": "render", "input_schema": {"type": "object"}}])
}

/// Scripts the model's next answer: this message, which calls a tool.
pub fn script_call(world: &World, call: &Value) {
    let answer = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": call["content"],
        "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
}

/// Returns the owner that an answer names.
pub fn owner(answer: &Answer) -> String {
    answer.header("x-antiphon-owner").unwrap().to_owned()
}

/// Posts a result as the service `tools`, without an owner.
pub async fn post(world: &World, id: &str, content: &Value) -> Answer {
    post_body(world, id, &json!({"content": content})).await
}

/// Posts a result of an owner's call as the service `tools`.
pub async fn post_to(world: &World, id: &str, owner: &str, content: &Value) -> Answer {
    post_body(world, id, &json!({"owner": owner, "content": content})).await
}

/// Posts this body as the service `tools`.
pub async fn post_body(world: &World, id: &str, body: &impl Display) -> Answer {
    operate(world, id, "result", body).await
}

/// Asks for an operation on a call as the service `tools`.
pub async fn operate(world: &World, id: &str, operation: &str, body: &impl Display) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/{operation}");
    world.ask(post_with(&path, &service, body.to_string().as_bytes())).await
}

/// Reads from the ledger API as the caller `sk-one`.
pub async fn get(world: &World, path: &str) -> Answer {
    let request = get_with(&format!("/ledger/v1/{path}"), &[("x-api-key", "sk-one")]);
    world.ask(request).await
}

/// Returns the results that wait for the caller `sk-one`.
pub async fn outstanding(world: &World) -> Value {
    get(world, "outstanding").await.json()["outstanding"].clone()
}

/// Returns the last body that the provider received.
pub fn last_body(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

/// Returns how often the last body that the provider received contains a text.
pub fn copies(world: &World, text: &str) -> usize {
    last_body(world).matches(text).count()
}

/// Returns how often an event of a world was counted.
pub fn counted(world: &World, event: &str) -> u64 {
    counted_by(&world.shared.telemetry, event)
}

/// Returns how often an event was counted.
pub fn counted_by(telemetry: &Telemetry, event: &str) -> u64 {
    let page = telemetry.encode_metrics();
    let name = format!("antiphon_late_results_total{{event=\"{event}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
    line.parse().unwrap()
}

/// Returns a call id that no other call has.
pub fn numbered_id(number: usize) -> String {
    format!("toolu_01AbC9dE3fG7hJ2kL4m{number:05}")
}

/// Returns the user's message.
pub fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

/// Returns the model's call of the tool `render`.
pub fn calls(id: &str) -> Value {
    calls_with(id, &json!({}))
}

/// As [`calls`], with an input.
pub fn calls_with(id: &str, input: &Value) -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "render", "input": input}]})
}

/// Returns the client's own result of a call.
pub fn brings(id: &str, content: &Value) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]})
}

/// Returns the model's answer in words.
pub fn replies(words: &str) -> Value {
    json!({"role": "assistant", "content": words})
}

/// Returns the model's answer `fine`.
pub fn answered() -> Value {
    replies("fine")
}
