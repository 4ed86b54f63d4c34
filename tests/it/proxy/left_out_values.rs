//! Values that a provider did not need: a conversation that was accepted without one goes on without it.

use std::sync::Arc;

use antiphon::{ledger::Ledger, provider::ProviderKind};
use serde_json::{Value, json};

use crate::{
    proxy::refusal_resends::{answer, notes, refused},
    support::{
        app::{App, before, post_with},
        kept,
        wire::Upstream,
    },
};

/// A model whose name does not show that it wants signatures.
const PATH: &str = "/x/v1beta/models/gemini-flash-latest:generateContent";
const MISSING: &str = "Function call is missing a thought_signature in functionCall parts.";

fn call(id: &str, signature: Option<&str>) -> Value {
    let mut part = json!({"functionCall": {"id": id, "name": "f", "args": {}}});
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.into();
    }
    json!({"role": "model", "parts": [part]})
}

fn answer_with_call(id: &str) -> Vec<u8> {
    let content = call(id, Some("c2lnbmVk"));
    let body = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    answer(200, "application/json", &body.to_string())
}

fn user(words: &str) -> Value {
    json!({"role": "user", "parts": [{"text": words}]})
}

/// Returns the history in which the client has dropped the signature of the call.
fn dropped(id: &str) -> Vec<Value> {
    let response = json!({"id": id, "name": "f", "response": {"output": "done"}});
    vec![
        user("go"),
        call(id, None),
        json!({"role": "user", "parts": [{"functionResponse": response}]}),
    ]
}

async fn start(upstream: &Upstream, ledger: &Arc<dyn Ledger>) -> App {
    before(upstream.address)
        .with(|builder| {
            builder.upstreams.truncate(1);
            builder.upstreams[0].name.replace_range(.., "x");
            builder.upstreams[0].kind = ProviderKind::Gemini;
            builder.ledger = Arc::clone(ledger);
        })
        .start()
        .await
}

async fn ask(app: &App, history: &[Value]) -> (u16, String) {
    let body = json!({"contents": history}).to_string();
    let answer = app
        .ask(post_with(PATH, &[("x-goog-api-key", "k")], body.as_bytes()))
        .await;
    let (status, sends, _) = notes(&answer);
    (status, sends.to_owned())
}

#[tokio::test]
async fn what_was_left_out_stays_out_through_a_restart() {
    const ONE: &str = "fc-aB3dE5fG7hJ9kL1mN3pQ5rS7";
    const TWO: &str = "fc-bC4eF6gH8iK0lM2nO4qR6sT8";
    let fine = || answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([
        answer_with_call(ONE),
        fine(),
        answer_with_call(TWO),
        refused(MISSING),
        fine(),
        fine(),
    ])
    .await;
    let ledger = kept::durable();
    let app = start(&upstream, &ledger).await;
    let once = (200, "1".to_owned());
    assert_eq!(ask(&app, &[user("go")]).await, once);
    assert_eq!(ask(&app, &dropped(ONE)).await, once, "accepted without the signature");
    assert!(!upstream.requests()[1].text().contains("thoughtSignature"));

    app.running.drain().await;
    let app = start(&upstream, &ledger).await;
    // Another conversation teaches the rule.
    assert_eq!(ask(&app, &[user("go")]).await, once);
    assert_eq!(ask(&app, &dropped(TWO)).await, (200, "2".to_owned()));
    assert!(
        upstream.requests()[4].text().contains("c2lnbmVk"),
        "put back for the other one"
    );
    // The provider has accepted the first one without the signature: its prefix stays.
    assert_eq!(ask(&app, &dropped(ONE)).await, once);
    assert!(!upstream.requests()[5].text().contains("thoughtSignature"));
}
