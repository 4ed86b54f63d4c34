//! A ledger that is slow or away: nothing that a conversation was given is contradicted, and healthy bodies never wait.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{ledger::Ledger, proxy::OnOutage};
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        late::{
            FILM, ID, MESSAGES, answered, ask, brings, calls, last_body, messages_body, post, says, script_call, send,
            world_over,
        },
        still::World,
    },
};

const PLACEHOLDER: &str = "no result was recorded";

fn world(ledger: &Arc<SwitchableLedger>, on_outage: OnOutage, services: bool) -> World {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    world_over(&ledger, |builder| {
        builder.proxy.on_outage = on_outage;
        if !services {
            builder.late.services.clear();
        }
    })
}

/// A conversation whose call got a result: restored in its place, or at the end of a later message.
async fn conversation(ledger: &Arc<SwitchableLedger>, is_appended: bool) -> Vec<Value> {
    let world = world(ledger, OnOutage::Wait, true);
    let mut log = vec![says("hello")];
    ask(&world, "s1", &log).await;
    log.extend([answered(), says("go")]);
    script_call(&world, &calls(ID));
    ask(&world, "s1", &log).await;
    log.extend([calls(ID), says("hurry")]);
    if is_appended {
        ask(&world, "s1", &log).await;
        log.extend([answered(), says("is it done?")]);
    }
    assert_eq!(post(&world, ID, &json!(FILM)).await.status(), 200);
    ask(&world, "s1", &log).await;
    assert!(last_body(&world).contains(FILM), "{}", last_body(&world));
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
            ask(&world, "s1", &log).await;
            let took = world.now().saturating_sub(began);
            assert!(
                last_body(&world).contains(FILM),
                "appended {is_appended}: {}",
                last_body(&world)
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
            let answer = send(&world, MESSAGES, &[("x-antiphon-session", "s1")], &messages_body(&log)).await;
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
                    assert!(last_body(&world).contains(PLACEHOLDER), "{}", last_body(&world));
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
            ask(&world, "s1", &log).await;
            assert!(
                last_body(&world).contains(FILM),
                "{mode:?} {is_appended}: {}",
                last_body(&world)
            );
            assert_eq!(
                last_body(&world).contains(PLACEHOLDER),
                is_appended,
                "{}",
                last_body(&world)
            );
        }
    }
}

/// Bodies without an unanswered call after a turn of the assistant never wait for a dead ledger.
#[tokio::test(start_paused = true)]
async fn a_healthy_body_never_waits_for_a_dead_ledger() {
    let ledger = SwitchableLedger::new();
    let first = world(&ledger, OnOutage::Wait, true);
    let healthy = [
        says("go"),
        calls(ID),
        brings(ID, &json!("done")),
        answered(),
        says("thanks"),
    ];
    ask(&first, "s1", &healthy).await;
    drop(first);
    let world = world(&ledger, OnOutage::Wait, true);
    // The callers with records were read at the start, and this one has none that matter.
    ask(&world, "s1", &healthy[..1]).await;
    ledger.stalls.store(true, Ordering::Relaxed);
    let began = world.now();
    ask(&world, "s1", &healthy).await;
    let took = world.now().saturating_sub(began);
    assert!(took < Duration::from_millis(2), "{took:?}");
}

/// A caller with results in the file, of whom the process knows nothing yet: one request waits for the fact that the
/// caller is verified, one for the results, and no other.
#[tokio::test(start_paused = true)]
async fn a_dead_ledger_delays_the_first_healthy_requests_of_a_caller_alone() {
    let ledger = SwitchableLedger::new();
    let first = world(&ledger, OnOutage::Wait, true);
    ask(&first, "s1", &[says("hello")]).await;
    ask(&first, "s1", &[says("go"), calls(ID), says("hurry")]).await;
    assert_eq!(post(&first, ID, &json!(FILM)).await.status(), 200);
    drop(first);
    let world = world(&ledger, OnOutage::Wait, true);
    world.settle().await;
    ledger.stalls.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let began = world.now();
        ask(&world, "s1", &[says("hello")]).await;
        waits.push(world.now().saturating_sub(began) > Duration::from_millis(2));
    }
    assert_eq!(waits, [true, true, false, false]);
}
