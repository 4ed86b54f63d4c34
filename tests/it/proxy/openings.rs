//! Histories that have lost their user's message: refused directly, opened after the server's own words, and opened at
//! once from then on.

use antiphon::provider::ProviderKind;
use serde_json::{Value, json};

use crate::{
    proxy::{
        refusal_resends::{answer, notes, refused},
        refused_ids::app_as,
    },
    support::{
        app::{App, post_with},
        judge::{self, NoUserWords, ServerRules},
        provider::Provider,
        wire::Upstream,
    },
};

/// An id that belongs to one conversation, unlike a counter.
pub(crate) const ID: &str = "call_aB3dE5fG7hJ9kL1mN3pQ5rS7";

pub(crate) fn history(id: &str) -> Vec<Value> {
    vec![
        json!({"role": "system", "content": "be brief"}),
        json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}]}),
        json!({"role": "tool", "tool_call_id": id, "content": "ok"}),
    ]
}

pub(crate) fn grown(id: &str) -> Vec<Value> {
    let mut grown = history(id);
    grown.push(json!({"role": "assistant", "content": "hm"}));
    grown.push(json!({"role": "user", "content": "on"}));
    grown
}

/// Sends one history. Returns status, number of sends and repair.
async fn ask(app: &App, secret: &str, history: &[Value]) -> (u16, String, String) {
    let bearer = format!("Bearer {secret}");
    let body = json!({"model": "m", "messages": history}).to_string();
    let head = [("Authorization", bearer.as_str())];
    let request = post_with("/x/v1/chat/completions", &head, body.as_bytes());
    let answer = app.ask(request).await;
    let (status, sends, repair) = notes(&answer);
    (status, sends.to_owned(), repair.to_owned())
}

fn outcome(status: u16, sends: &str, repair: &str) -> (u16, String, String) {
    (status, sends.to_owned(), repair.to_owned())
}

#[tokio::test]
async fn a_history_without_a_user_gets_an_opening() {
    let wire = "openai-chat-compatible".parse().unwrap();
    for words in [NoUserWords::LmStudio, NoUserWords::Glm] {
        let rules = ServerRules {
            no_user: Some(words),
            ..ServerRules::default()
        };
        let (format, dialect) = judge::reading(wire);
        let body = json!({"messages": history(ID)});
        judge::judge_with(format, dialect, &rules, &judge::ServerMemory::default(), &body)
            .expect_err("the server refuses it directly");
        let provider = Provider::ruled(&[wire], rules).await;
        let app = app_as(provider.address(), ProviderKind::Compatible).await;
        assert_eq!(ask(&app, "a", &history(ID)).await, outcome(200, "2", "opened=1"));
        let first = provider.last().body;
        // At once from now on, with the same bytes before the new messages.
        assert_eq!(ask(&app, "a", &grown(ID)).await, outcome(200, "1", "opened=1"));
        let next = provider.last().body;
        let shared = first.iter().zip(&next).take_while(|(one, other)| one == other).count();
        assert!(first.len() - shared <= 2, "{}", String::from_utf8_lossy(&next));
        let opened: Value = serde_json::from_slice(&next).unwrap();
        let roles: Vec<_> = opened["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| &message["role"])
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
        // Another caller's request teaches itself.
        assert_eq!(ask(&app, "b", &history(ID)).await, outcome(200, "2", "opened=1"));
        // After a restart one more send, with the same bytes.
        let again = app_as(provider.address(), ProviderKind::Compatible).await;
        assert_eq!(ask(&again, "a", &history(ID)).await, outcome(200, "2", "opened=1"));
        assert_eq!(provider.last().body, first);
    }
}

/// A conversation that was accepted without an opening keeps its beginning, which may be cached.
#[tokio::test]
async fn an_accepted_conversation_keeps_its_beginning() {
    const NEWER: &str = "call_bC4eF6gH8iK0lM2nO4qR6sT8";
    let accepted = answer(200, "application/json", "{}");
    let refusal = refused("No user query found in messages.");
    let answers = [accepted.clone(), refusal, accepted.clone(), accepted.clone(), accepted];
    let upstream = Upstream::answering_each(answers).await;
    let app = app_as(upstream.address, ProviderKind::Compatible).await;
    assert_eq!(ask(&app, "a", &history(ID)).await, outcome(200, "1", "none"));
    assert_eq!(ask(&app, "a", &history(NEWER)).await, outcome(200, "2", "opened=1"));
    assert_eq!(ask(&app, "a", &grown(ID)).await, outcome(200, "1", "none"));
    assert_eq!(ask(&app, "a", &grown(NEWER)).await, outcome(200, "1", "opened=1"));
}

/// llama.cpp reports an exception of a template with status 500.
#[tokio::test]
async fn a_template_may_refuse_with_another_status() {
    let error = json!({"error": {"code": 500, "message": "Jinja Exception: No user query found in messages."}});
    let failed = answer(500, "application/json", &error.to_string());
    let upstream = Upstream::answering_each([failed, answer(200, "application/json", "{}")]).await;
    let app = app_as(upstream.address, ProviderKind::Compatible).await;
    assert_eq!(ask(&app, "a", &history(ID)).await, outcome(200, "2", "opened=1"));
}

/// The words of an orphan's refusal teach nothing about the beginning.
#[tokio::test]
async fn another_refusal_opens_nothing() {
    let orphan = refused("messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.");
    let upstream = Upstream::answering_each([orphan]).await;
    let app = app_as(upstream.address, ProviderKind::Compatible).await;
    assert_eq!(ask(&app, "a", &history(ID)).await, outcome(400, "1", "none"));
}
