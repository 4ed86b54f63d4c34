//! The `OpenAPI` document of `/ledger/v1`, compared with the API's own answers. `tests/admin/ledger.py` compares more.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    late::api::{self, ANN, STRONG, TOOLS, WEAK},
    support::{
        app::before,
        wire::{Message, Upstream},
    },
};

/// Returns the names of all documented members of a schema.
fn documented_members(document: &Value, schema: &Value) -> BTreeSet<String> {
    if let Some(place) = schema["$ref"].as_str() {
        return documented_members(document, document.pointer(&place[1..]).unwrap());
    }
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let mut members: BTreeSet<String> = parts.flat_map(|part| documented_members(document, part)).collect();
    members.extend(
        schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone()),
    );
    members
}

/// Checks that an object has exactly the members of a schema.
#[track_caller]
fn has_members(document: &Value, schema: &str, object: &Value) {
    let documented = documented_members(document, &document["components"]["schemas"][schema]);
    let actual: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
    assert_eq!(actual, documented, "{schema}: {object}");
}

#[tokio::test]
async fn the_document_needs_no_credential_and_may_be_cached() {
    let (_upstream, app) = api::world().await;
    let answer = api::get(&app, "openapi.json", &[]).await;
    let kind = (answer.header("content-type"), answer.header("cache-control"));
    assert_eq!(
        (answer.status(), kind),
        (200, (Some("application/json"), Some("public, max-age=300")))
    );
    assert!(answer.json()["openapi"].as_str().unwrap().starts_with("3.1"));
}

/// Without a service the API does not exist.
#[tokio::test]
async fn without_a_service_there_is_no_document() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    assert_eq!(api::get(&app, "openapi.json", &[]).await.status(), 404);
}

#[tokio::test]
async fn answers_have_exactly_the_documented_members() {
    let (_upstream, app) = api::world().await;
    let document = api::get(&app, "openapi.json", &[]).await.json();
    for id in [STRONG, WEAK] {
        api::record(&app, "ann", id).await;
    }
    let check = |schema: &str, answer: &Message| {
        assert!(answer.status() < 300, "{}", answer.text());
        has_members(&document, schema, &answer.json());
        answer.json()
    };
    let beat = format!("calls/{STRONG}/heartbeat");
    check("Extended", &api::ask(&app, &beat, TOOLS, "").await);
    let open = check("OutstandingPage", &api::get(&app, "outstanding?state=open", ANN).await);
    has_members(&document, "OpenCall", &open["outstanding"][0]);
    let result = json!({"content": "done"});
    check("Settled", &api::post(&app, STRONG, TOOLS, &result).await);
    check("Parked", &api::post(&app, "toolu_01C9xx2r7k4", TOOLS, &result).await);
    let page = check("OutstandingPage", &api::get(&app, "outstanding", ANN).await);
    has_members(&document, "PostedCall", &page["outstanding"][0]);
    let found = api::ask(&app, "lookup", ANN, &json!({"call_ids": [STRONG]}).to_string()).await;
    let found = check("LookupAnswer", &found);
    has_members(&document, "FoundResult", &found["results"][0]);
    check("Me", &api::get(&app, "me", ANN).await);
    let taken = format!("calls/{STRONG}/withdraw");
    check("Withdrawn", &api::ask(&app, &taken, TOOLS, "").await);
    check("Settled", &api::post(&app, STRONG, TOOLS, &result).await);
    let delivery = format!(
        "deliveries/{}/ack",
        page["outstanding"][0]["delivery"].as_str().unwrap()
    );
    check("Acked", &api::ask(&app, &delivery, ANN, "").await);
    check("Closed", &api::ask(&app, "sessions/s/close", ANN, "").await);
    let refused = api::get(&app, "me", &[]).await.json();
    let required: BTreeSet<&str> = refused.as_object().unwrap().keys().map(String::as_str).collect();
    let problem = &document["components"]["schemas"]["Problem"];
    let documented = problem["required"].as_array().unwrap().iter();
    assert_eq!(required, documented.map(|name| name.as_str().unwrap()).collect());
}

/// The proxy refuses some heads before the API reads them. Programs find the code in the same place.
#[tokio::test]
async fn a_refused_head_has_a_code_whatever_the_credential() {
    let (_upstream, app) = api::world().await;
    for credential in [
        "x-antiphon-client-token",
        "x-api-key",
        "x-goog-api-key",
        "anthropic-version",
    ] {
        let answer = api::ask(&app, "sessions/a%2Fb/close", &[(credential, "ann")], "").await;
        assert_eq!(
            (answer.status(), &answer.json()["code"]),
            (400, &json!("path")),
            "{credential}"
        );
    }
}

#[tokio::test]
async fn a_key_in_the_query_identifies_the_caller_of_a_list() {
    let (_upstream, app) = api::world().await;
    assert_eq!(api::get(&app, "outstanding?limit=5&key=ann", &[]).await.status(), 200);
    assert_eq!(api::get(&app, "outstanding?limit=5&key=wrong", &[]).await.status(), 404);
}
