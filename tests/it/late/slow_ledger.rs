//! A ledger that is slow or away: nothing that a conversation was given is contradicted, and healthy bodies never wait.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{late::LateSettings, ledger::Ledger, proxy::OnOutage};
use serde_json::{Value, json};

use crate::{
    ledger::pinned_answers::SwitchableLedger,
    support::{
        app::post_with,
        late,
        still::{self, Answer, World},
    },
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;
const ID: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const PLACEHOLDER: &str = "no result was recorded";

fn world(ledger: &Arc<SwitchableLedger>, on_outage: OnOutage, services: bool) -> World {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(&ledger);
        builder.proxy.on_outage = on_outage;
        if services {
            builder.late = LateSettings {
                services: vec![late::service("tools", None, None)],
                ..LateSettings::default()
            };
        }
    });
    world.otherwise(|_| still::json(200, GOOD));
    world
}

async fn ask(world: &World, log: &[Value]) -> Answer {
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    world.settle().await;
    answer
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn calls() -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": ID, "name": "render", "input": {}}]})
}

fn answered() -> Value {
    json!({"role": "assistant", "content": "fine"})
}

fn sent(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

/// A conversation whose call got a result: restored in its place, or at the end of a later message.
async fn conversation(ledger: &Arc<SwitchableLedger>, is_appended: bool) -> Vec<Value> {
    let world = world(ledger, OnOutage::Wait, true);
    let mut log = vec![says("hello")];
    ask(&world, &log).await;
    log.extend([answered(), says("go")]);
    let calls = calls();
    let emitted = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": calls["content"], "stop_reason": "tool_use"});
    world.script(still::json(200, &emitted.to_string()));
    ask(&world, &log).await;
    log.extend([calls, says("hurry")]);
    if is_appended {
        ask(&world, &log).await;
        log.extend([answered(), says("is it done?")]);
    }
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{ID}/result");
    let posted = world
        .ask(post_with(&path, &service, br#"{"content":"the film"}"#))
        .await;
    assert_eq!(posted.status(), 200);
    ask(&world, &log).await;
    assert!(sent(&world).contains("the film"), "{}", sent(&world));
    log.extend([answered(), says("thanks")]);
    log
}

/// C3: a slow read turned results that a conversation had been given into "outcome unknown", and that stayed.
#[tokio::test(start_paused = true)]
async fn a_slow_read_after_a_restart_contradicts_nothing() {
    for is_appended in [false, true] {
        for (services, mode) in [
            (true, OnOutage::Wait),
            (false, OnOutage::Wait),
            (true, OnOutage::Refuse),
        ] {
            let ledger = SwitchableLedger::new();
            let log = conversation(&ledger, is_appended).await;
            let world = world(&ledger, mode, services);
            world.settle().await;
            ledger.slow_down(Duration::from_secs(1));
            let began = world.now();
            assert_eq!(ask(&world, &log).await.status(), 200);
            let took = world.now().saturating_sub(began);
            assert!(
                sent(&world).contains("the film"),
                "appended {is_appended}: {}",
                sent(&world)
            );
            assert!(took < Duration::from_millis(4500), "{took:?}");
        }
    }
}

/// A dead ledger: a placeholder goes up, or the request is refused. What the ledger knows counts again afterwards.
#[tokio::test(start_paused = true)]
async fn an_answer_given_on_a_missed_read_is_never_remembered() {
    for is_appended in [false, true] {
        for mode in [OnOutage::Wait, OnOutage::Refuse, OnOutage::Degrade] {
            let ledger = SwitchableLedger::new();
            let log = conversation(&ledger, is_appended).await;
            let world = world(&ledger, mode, true);
            world.settle().await;
            ledger.stalls.store(true, Ordering::Relaxed);
            let began = world.now();
            let answer = ask(&world, &log).await;
            let took = world.now().saturating_sub(began);
            match mode {
                OnOutage::Refuse => {
                    assert_eq!(answer.status(), 503);
                    assert_eq!(answer.header("retry-after"), Some("2"));
                    assert_eq!(answer.header("x-antiphon-fault"), Some("proxy"));
                    assert!(world.requests().is_empty(), "nothing was sent");
                }
                OnOutage::Wait | OnOutage::Degrade => {
                    assert_eq!(answer.status(), 200);
                    assert!(sent(&world).contains(PLACEHOLDER), "{}", sent(&world));
                    let counted = world.shared.telemetry.encode_metrics();
                    let unread = "antiphon_frozen_answers_total{row=\"unread\"} 1";
                    assert!(counted.contains(unread), "{counted}");
                }
            }
            let longest = if mode == OnOutage::Degrade { 250 } else { 5000 };
            let longest = Duration::from_millis(longest);
            assert!(took <= longest + Duration::from_millis(2), "{mode:?}: {took:?}");
            ledger.stalls.store(false, Ordering::Relaxed);
            world.until(world.now() + Duration::from_secs(6)).await;
            assert_eq!(ask(&world, &log).await.status(), 200);
            assert!(
                sent(&world).contains("the film"),
                "{mode:?} {is_appended}: {}",
                sent(&world)
            );
            assert_eq!(sent(&world).contains(PLACEHOLDER), is_appended, "{}", sent(&world));
        }
    }
}

/// Bodies without an unanswered call behind a turn of the assistant never wait for a dead ledger.
#[tokio::test(start_paused = true)]
async fn a_healthy_body_never_waits_for_a_dead_ledger() {
    let ledger = SwitchableLedger::new();
    let first = world(&ledger, OnOutage::Wait, true);
    let healthy = [
        says("go"),
        calls(),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": ID, "content": "done"}]}),
        answered(),
        says("thanks"),
    ];
    ask(&first, &healthy).await;
    drop(first);
    let world = world(&ledger, OnOutage::Wait, true);
    // The callers with records were read at the start, and this one has none that matter.
    ask(&world, &healthy[..1]).await;
    ledger.stalls.store(true, Ordering::Relaxed);
    let began = world.now();
    assert_eq!(ask(&world, &healthy).await.status(), 200);
    let took = world.now().saturating_sub(began);
    assert!(took < Duration::from_millis(2), "{took:?}");
}

/// A caller with results in the file, of whom the process knows nothing yet: one request waits for the fact that the
/// caller is verified, one for the results, and no other.
#[tokio::test(start_paused = true)]
async fn a_dead_ledger_delays_the_first_healthy_requests_of_a_caller_alone() {
    let ledger = SwitchableLedger::new();
    let first = world(&ledger, OnOutage::Wait, true);
    ask(&first, &[says("hello")]).await;
    ask(&first, &[says("go"), calls(), says("hurry")]).await;
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{ID}/result");
    assert_eq!(
        first
            .ask(post_with(&path, &service, br#"{"content":"x"}"#))
            .await
            .status(),
        200
    );
    drop(first);
    let world = world(&ledger, OnOutage::Wait, true);
    world.settle().await;
    ledger.stalls.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let began = world.now();
        assert_eq!(ask(&world, &[says("hello")]).await.status(), 200);
        waits.push(world.now().saturating_sub(began) > Duration::from_millis(2));
    }
    assert_eq!(waits, [true, true, false, false]);
}
