//! Late results over a ledger in memory: the store alone, and whole conversations in the Messages format.

use std::{collections::BTreeSet, sync::Arc};

use antiphon::{
    auth::TokenHash,
    callers::Callers,
    late::{LateSettings, LateStore, LateWorker, ServiceSettings},
    ledger::{Ledger, LedgerSettings, MemoryLedger, WriteBehindWorker, write_behind},
    telemetry::Telemetry,
};
use serde_json::{Value, json};

use super::{
    app::{get_with, post_with},
    still::{self, Answer, World},
};

/// The model's whole answer to every request, unless a test scripts another.
pub const FINE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;

/// Returns an empty ledger in memory.
pub fn memory() -> Arc<dyn Ledger> {
    Arc::new(MemoryLedger::new(LedgerSettings::default(), [9; 32]))
}

/// Returns the late-result store over a ledger, and its background workers.
pub fn over(
    ledger: &Arc<dyn Ledger>,
    settings: LateSettings,
    telemetry: Telemetry,
) -> (LateStore, WriteBehindWorker, LateWorker) {
    let (writes, writer) = write_behind(Arc::clone(ledger), Arc::default());
    let callers = Callers::new(Arc::clone(ledger), writes);
    let (late, keeper) = LateStore::new(Arc::clone(ledger), callers, settings, telemetry);
    (late, writer, keeper)
}

/// As [`over`], with both workers running.
pub fn running(ledger: &Arc<dyn Ledger>, settings: LateSettings) -> LateStore {
    let (late, writer, keeper) = over(ledger, settings, Telemetry::default());
    drop(super::wire::spawn(writer.run()));
    drop(super::wire::spawn(keeper.run()));
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
    }
}

/// Returns a world over a ledger. The service `tools` may answer every call.
pub fn world_over(ledger: &Arc<dyn Ledger>, change: impl FnOnce(&mut LateSettings)) -> World {
    let ledger = Arc::clone(ledger);
    let world = World::with(|builder| {
        builder.ledger = ledger;
        builder.late = LateSettings {
            services: vec![service("tools", None, None)],
            ..LateSettings::default()
        };
        change(&mut builder.late);
    });
    world.otherwise(|_| still::json(200, FINE));
    world
}

/// Sends a history as the caller `sk-one`, and waits until everything about it is stored.
pub async fn ask(world: &World, session: &str, log: &[Value]) -> Answer {
    ask_with(world, &[("x-antiphon-session", session)], log).await
}

/// As [`ask`], with other headers.
pub async fn ask_with(world: &World, fields: &[(&str, &str)], log: &[Value]) -> Answer {
    let fields = [&[("x-api-key", "sk-one")], fields].concat();
    let body = json!({"model": "m", "max_tokens": 99, "messages": log, "tools": tools()}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    world.settle().await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer
}

/// Returns the tools that the conversations declare.
pub fn tools() -> Value {
    json!([{"name": "render", "input_schema": {"type": "object"}}])
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
pub async fn post_body(world: &World, id: &str, body: &Value) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/result");
    world.ask(post_with(&path, &service, body.to_string().as_bytes())).await
}

/// Returns the results that wait for the caller `sk-one`.
pub async fn outstanding(world: &World) -> Value {
    let request = get_with("/ledger/v1/outstanding", &[("x-api-key", "sk-one")]);
    world.ask(&request).await.json()["outstanding"].clone()
}

/// Returns the last body that the provider received.
pub fn last_body(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

/// Returns the user's message.
pub fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

/// Returns the model's call of the tool `render`.
pub fn calls(id: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "render", "input": {}}]})
}

/// Returns the client's own result of a call.
pub fn brings(id: &str, content: &Value) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]})
}

/// Returns the model's answer in words.
pub fn answered() -> Value {
    json!({"role": "assistant", "content": "fine"})
}
