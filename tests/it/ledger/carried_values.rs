//! Values that answers carried, over a ledger that is slow or fails: one deadline, and no request.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::ledger::Ledger;
use serde_json::json;

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::post_with,
        still::{World, json},
    },
};

const PATH: &str = "/gemini/v1beta/models/gemini-3-pro:generateContent";
const ANSWER: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":1},"id":"call_aB3dE5fG7hJ9"},"thoughtSignature":"CiQB1234"}]},"finishReason":"STOP"}]}"#;
const FINE: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"fine"}]},"finishReason":"STOP"}]}"#;
const MISSING: &str = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;

fn over(ledger: &Arc<SwitchableLedger>) -> World {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    World::with(|builder| builder.ledger = ledger)
}

/// Sends a request. Returns status, repair header, the time it took, and the body that was sent upstream last.
async fn ask(world: &World, body: &str) -> (u16, String, Duration, String) {
    let began = world.now();
    let answer = world
        .ask(post_with(PATH, &[("x-goog-api-key", "one")], body.as_bytes()))
        .await;
    let sent = world.requests().pop().unwrap().message;
    let repair = answer.header("x-antiphon-repair").unwrap_or("-").to_owned();
    let took = world.now().saturating_sub(began);
    (answer.status(), repair, took, String::from_utf8(sent.body).unwrap())
}

fn go() -> String {
    json!({"contents": [{"role": "user", "parts": [{"text": "go"}]}]}).to_string()
}

/// Returns the history with the call, whose signature the client has dropped.
fn dropped() -> String {
    let call = json!({"functionCall": {"name": "f", "args": {"a": 1}, "id": "call_aB3dE5fG7hJ9"}});
    let response =
        json!({"functionResponse": {"name": "f", "id": "call_aB3dE5fG7hJ9", "response": {"output": "done"}}});
    let user = |part| json!({"role": "user", "parts": [part]});
    let history = [
        user(json!({"text": "go"})),
        json!({"role": "model", "parts": [call]}),
        user(response),
    ];
    json!({"contents": history}).to_string()
}

/// A ledger that does not answer costs one deadline. What was accepted without the value stays without it, until the
/// provider wants it.
#[tokio::test(start_paused = true)]
async fn a_slow_ledger_costs_one_deadline_and_no_request() {
    for (stalls, fails) in [(true, false), (false, true)] {
        let ledger = SwitchableLedger::new();
        let first = over(&ledger);
        first.script(json(200, ANSWER));
        assert_eq!(ask(&first, &go()).await.0, 200);
        // Written in the background.
        first.until(Duration::from_secs(1)).await;

        let world = over(&ledger);
        ledger.stalls.store(stalls, Ordering::Relaxed);
        ledger.fails.store(fails, Ordering::Relaxed);
        world.script(json(200, FINE));
        let (status, repair, took, sent) = ask(&world, &dropped()).await;
        assert_eq!((status, &*repair, &*sent), (200, "none", &*dropped()));
        assert!(took <= Duration::from_millis(251), "{took:?}");

        ledger.stalls.store(false, Ordering::Relaxed);
        ledger.fails.store(false, Ordering::Relaxed);
        world.script(json(200, FINE));
        let (status, repair, _, sent) = ask(&world, &dropped()).await;
        assert_eq!(
            (status, &*repair, &*sent),
            (200, "none", &*dropped()),
            "a prefix that was accepted changed"
        );
        world.script(json(400, MISSING));
        world.script(json(200, FINE));
        let (status, repair, _, sent) = ask(&world, &dropped()).await;
        assert_eq!((status, &*repair), (200, "continued=1"));
        assert!(sent.contains(r#""thoughtSignature":"CiQB1234""#), "{sent}");
        // From then on at once.
        world.script(json(200, FINE));
        let (status, repair, took, again) = ask(&world, &dropped()).await;
        assert_eq!((status, &*repair, &*again), (200, "continued=1", &*sent));
        assert!(took < Duration::from_millis(2), "{took:?}");
    }
}

/// A provider that goes on refusing teaches nothing, and nothing stays pinned.
#[tokio::test(start_paused = true)]
async fn a_refusal_alone_teaches_nothing() {
    let world = over(&SwitchableLedger::new());
    world.script(json(200, FINE));
    ask(&world, &go()).await;
    for _ in 0..2 {
        world.script(json(400, MISSING));
        world.script(json(400, MISSING));
        let before = world.requests().len();
        let (status, repair, ..) = ask(&world, &dropped()).await;
        assert_eq!((status, &*repair), (400, "continued=1"));
        let sent: Vec<_> = world.requests().split_off(before);
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].message.text(), dropped());
        assert!(sent[1].message.text().contains("skip_thought_signature_validator"));
    }
}

/// The words of the phrase inside a text that echoes the client lead to no resend.
#[tokio::test(start_paused = true)]
async fn an_echo_of_the_phrase_is_no_refusal() {
    let world = over(&SwitchableLedger::new());
    let echo = MISSING.replace("Function", "Invalid value at contents[0]: Function");
    world.script(json(400, &echo));
    let (status, repair, _, sent) = ask(&world, &dropped()).await;
    assert_eq!((status, &*repair, &*sent), (400, "none", &*dropped()));
    assert_eq!(world.requests().len(), 1);
}
