//! Intents that two calls, two keys or two reporters share: a result, an outcome and a decision are never overwritten.

use std::time::Duration;

use antiphon::{
    clock::unix_time,
    late::{
        ClaimOutcome, ClaimSubject, IntentClaim, IntentId, IntentState, Resolution, ResolveOutcome, matching::NamedCall,
    },
};
use serde_json::{Value, json};

use super::{
    api::{ANN, OTHER, STRONG, TOOLS, ask, get, owner},
    intents::{SECOND, Shop, T0, claim, is_problem, record, world},
};
use crate::support::{app::App, kept::durable, wire::Message};

const HOUR: Duration = Duration::from_secs(3_600);

fn of_call(app: &App, id: &str) -> Value {
    json!({"call_id": id, "owner": owner(app, "ann")})
}

async fn post(app: &App, id: &str, content: &str, is_error: bool) {
    let body = json!({"content": content, "is_error": is_error}).to_string();
    let posted = ask(app, &format!("calls/{id}/result"), TOOLS, &body).await;
    assert_eq!(posted.status(), 200, "{}", posted.text());
}

async fn withdraw(app: &App, id: &str) {
    let withdrawn = ask(app, &format!("calls/{id}/withdraw"), TOOLS, "{}").await;
    assert_eq!(withdrawn.status(), 200, "{}", withdrawn.text());
}

async fn intent(app: &App, id: &str) -> Value {
    get(app, &format!("intents/{id}"), ANN).await.json()
}

/// Claims a call as of an hour ago, with a lease that has ended since. Returns the intent.
async fn claimed_an_hour_ago(app: &App, id: &str) -> IntentId {
    let service = app.late.services()[0].clone();
    let named = NamedCall {
        service: &service,
        call_id: id.as_bytes(),
        owner: None,
        session: None,
        described: None,
    };
    let claim = IntentClaim {
        subject: ClaimSubject::Call { named, input: None },
        chosen_key: None,
        tier: None,
        window: None,
        lease: Some(SECOND * 60),
        run_again: false,
        retry_failed: false,
    };
    let outcome = app
        .late
        .intents()
        .claim(&claim, unix_time().saturating_sub(HOUR))
        .await
        .unwrap();
    let ClaimOutcome::Granted(granted) = outcome else {
        panic!("{outcome:?}")
    };
    granted.intent
}

/// Two calls of two conversations with one intent.
async fn two_calls(tool: &str) -> (crate::support::wire::Upstream, App) {
    let (upstream, app) = world(durable()).await;
    for (session, id) in [("s1", STRONG), ("s2", OTHER)] {
        record(&app.late, "ann", session, id, tool, &json!({"to": "prod"})).await;
    }
    // A reader of its outstanding results is a surface.
    assert_eq!(get(&app, "outstanding", ANN).await.status(), 200);
    (upstream, app)
}

#[tokio::test]
async fn the_result_of_another_call_replaces_no_success() {
    let (_upstream, app) = two_calls("deploy").await;
    let granted = claim(&app, &of_call(&app, STRONG)).await.json();
    let id = granted["intent"].as_str().unwrap();
    post(&app, STRONG, "deployed", false).await;
    let before = intent(&app, id).await;
    // The service posts what it was told for the second call, and another one reports an error.
    for (content, is_error) in [("deployed", false), ("no such host", true)] {
        post(&app, OTHER, content, is_error).await;
        assert_eq!(intent(&app, id).await, before, "after {content}");
        withdraw(&app, OTHER).await;
        assert_eq!(intent(&app, id).await, before, "after {content} was withdrawn");
    }
}

#[tokio::test]
async fn a_withdrawn_result_leaves_its_holder_a_new_lease() {
    let (_upstream, app) = two_calls("mail").await;
    let id = claimed_an_hour_ago(&app, STRONG).await.to_string();
    assert_eq!(intent(&app, &id).await["state"], "unknown");
    post(&app, STRONG, "sent", false).await;
    assert_eq!(intent(&app, &id).await["state"], "settled");
    withdraw(&app, STRONG).await;
    assert_eq!(intent(&app, &id).await["state"], "claimed");
    is_problem(&claim(&app, &of_call(&app, OTHER)).await, 409, "in-flight");
}

#[tokio::test]
async fn an_unknown_outcome_is_not_resolved_by_the_result_of_another_call() {
    let (_upstream, app) = two_calls("mail").await;
    let id = claimed_an_hour_ago(&app, STRONG).await.to_string();
    post(&app, OTHER, "sent", false).await;
    assert_eq!(intent(&app, &id).await["state"], "unknown");
}

#[tokio::test]
async fn a_decision_of_a_person_is_not_denied_by_a_failure_and_survives_a_withdrawal() {
    let (_upstream, app) = two_calls("mail").await;
    let id = claimed_an_hour_ago(&app, STRONG).await;
    let resolved = app
        .late
        .intents()
        .resolve(id, Resolution::Done, unix_time())
        .await
        .unwrap();
    assert_eq!(resolved, ResolveOutcome::Resolved(IntentState::Settled));
    post(&app, STRONG, "timed out", true).await;
    assert_eq!(intent(&app, &id.to_string()).await["state"], "settled");
    withdraw(&app, STRONG).await;
    let replayed = claim(&app, &of_call(&app, OTHER)).await;
    assert_eq!(
        (replayed.status(), &replayed.json()["state"]),
        (200, &json!("settled")),
        "{}",
        replayed.text()
    );
    // The result of the run itself says more than the person.
    post(&app, STRONG, "sent", false).await;
    assert_eq!(intent(&app, &id.to_string()).await["result"]["content"], "sent");
    withdraw(&app, STRONG).await;
    is_problem(&claim(&app, &of_call(&app, OTHER)).await, 409, "in-flight");
}

#[tokio::test]
async fn a_call_has_one_intent_whatever_keys_its_service_chooses() {
    let (_upstream, app) = two_calls("deploy").await;
    let with_key = async |id: &str, key: &str| -> Message {
        let fields = [TOOLS[0], ("idempotency-key", key)];
        ask(&app, "intents", &fields, &of_call(&app, id).to_string()).await
    };
    let granted = with_key(STRONG, "k1").await;
    assert_eq!(granted.status(), 201, "{}", granted.text());
    is_problem(&with_key(STRONG, "k2").await, 422, "payload-mismatch");
    is_problem(&with_key(STRONG, "k1").await, 409, "in-flight");
    // Without a key the claim is about the same run.
    is_problem(&claim(&app, &of_call(&app, STRONG)).await, 409, "in-flight");
    let held = granted.json();
    let path = format!("intents/{}/cancel", held["intent"].as_str().unwrap());
    let cancelled = ask(&app, &path, TOOLS, &json!({"claim": held["claim"]}).to_string()).await;
    assert_eq!(cancelled.status(), 200, "{}", cancelled.text());
    // The tool did not run, so another key is free.
    assert_eq!(with_key(STRONG, "k2").await.status(), 201);
}

#[tokio::test]
async fn a_failure_of_a_one_way_tool_is_repeated_only_with_its_own_flag() {
    let shop = Shop::new();
    let first = shop.claim("mail", SECOND, T0).await;
    shop.settle(&first, true, T0).await;
    let again = shop
        .claim_with("mail", SECOND, T0, |claim| claim.run_again = true)
        .await;
    assert!(matches!(again, ClaimOutcome::Replayed(_)), "{again:?}");
    let again = shop
        .claim_with("mail", SECOND, T0, |claim| claim.retry_failed = true)
        .await;
    assert!(matches!(again, ClaimOutcome::Granted(_)), "{again:?}");
}

#[tokio::test]
async fn a_result_is_stored_for_the_longest_window_that_a_claim_asks_for() {
    let shop = Shop::new();
    let first = shop.claim("deploy", SECOND, T0).await;
    shop.settle(&first, false, T0).await;
    for now in [T0 + SECOND, T0 + HOUR * 50] {
        let longer = shop
            .claim_with("deploy", SECOND, now, |claim| claim.window = Some(HOUR * 72))
            .await;
        let ClaimOutcome::Replayed(replayed) = longer else {
            panic!("{longer:?}")
        };
        assert_eq!(replayed.content.as_deref(), Some("1"));
    }
}
