//! Posted results in strict mode, which edits nothing else.

use std::sync::{Arc, atomic::Ordering};

use antiphon::{ledger::Ledger, proxy::OnOutage, repair::Applicability};
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::post_with,
        kept::durable,
        late::{FINE, answered, ask, brings, calls, last_body, outstanding, post, says, service, world_over},
        still::{self, Answer, World},
    },
};

const FIRST: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const SECOND: &str = "toolu_01ZzC9dE3fG7hJ2kL4mN6pQ8";
const FILM: &str = "https://e.com/film.mp4";

async fn send(world: &World, log: &[Value]) -> Answer {
    let fields = [
        ("x-api-key", "sk-one"),
        ("x-antiphon-session", "s1"),
        ("x-antiphon-mode", "strict"),
    ];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
    let answer = world.ask(request).await;
    world.settle().await;
    answer
}

/// Sends a history in strict mode, and lets the model call a tool.
async fn emits(world: &World, id: &str, log: &[Value]) {
    let called = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": calls(id)["content"],
        "stop_reason": "tool_use"});
    world.script(still::json(200, &called.to_string()));
    assert_eq!(send(world, log).await.status(), 200);
}

/// A result that a tool service has posted is the tool's own: strict mode invents nothing by restoring it.
#[tokio::test(start_paused = true)]
async fn strict_mode_restores_posted_results_and_nothing_else() {
    let ledger = durable();
    let mut world = world_over(&ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    let mut log = vec![says("go")];
    emits(&world, FIRST, &log).await;
    log.extend([calls(FIRST), says("is it done?")]);
    let refused = send(&world, &log).await;
    assert_eq!(
        (refused.status(), refused.header("x-antiphon-repair")),
        (400, Some("rejected"))
    );
    assert_eq!(post(&world, FIRST, &json!(FILM)).await.json()["state"], "settled");
    let mut calls_two = calls(FIRST);
    calls_two["content"]
        .as_array_mut()
        .unwrap()
        .push(calls(SECOND)["content"][0].clone());
    let both = [says("go"), calls_two, says("is it done?")];
    assert_eq!(send(&world, &both).await.status(), 400, "the second call has no result");
    for round in 0..2 {
        if round == 1 {
            world = world_over(&ledger, |_| ());
        }
        let filled = send(&world, &log).await;
        assert_eq!(
            (filled.status(), filled.header("x-antiphon-repair")),
            (200, Some("restored=1"))
        );
        assert_eq!(last_body(&world).matches(FILM).count(), 1);
        assert_eq!(outstanding(&world).await, json!([]));
        log.extend([answered(), says("thanks")]);
    }
    let dropped = [&log[..2], &[brings(SECOND, &json!("x"))]].concat();
    assert_eq!(send(&world, &dropped).await.status(), 400, "a second finding");
}

/// A rejected request has no effect: the service may still withdraw its result, and nothing counts as delivered.
#[tokio::test(start_paused = true)]
async fn a_request_that_strict_mode_rejects_has_no_effect() {
    let ledger = durable();
    let world = world_over(&ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    for id in [FIRST, SECOND] {
        emits(&world, id, &[says("go"), says(id)]).await;
    }
    assert_eq!(post(&world, FIRST, &json!(FILM)).await.status(), 200);
    let log = [says("go"), calls(FIRST), says("hm"), calls(SECOND), says("is it done?")];
    assert_eq!(send(&world, &log).await.status(), 400);
    let path = format!("/ledger/v1/calls/{FIRST}/withdraw");
    let request = post_with(&path, &[("authorization", "Bearer token of tools")], b"{}");
    let withdrawn = world.ask(request).await;
    assert_eq!(withdrawn.status(), 200, "{}", withdrawn.text());
}

/// Another call has an early answer, and a result that would be appended: strict mode leaves that out.
#[tokio::test(start_paused = true)]
async fn strict_mode_completes_a_body_without_appending_to_it() {
    let ledger = durable();
    let world = world_over(&ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    let mut log = vec![says("go")];
    emits(&world, FIRST, &log).await;
    log.extend([calls(FIRST), brings(FIRST, &json!("Job started: 1"))]);
    emits(&world, SECOND, &log).await;
    log.extend([calls(SECOND), says("is it done?")]);
    for id in [FIRST, SECOND] {
        assert_eq!(post(&world, id, &json!(format!("{FILM}?{id}"))).await.status(), 200);
    }
    let filled = send(&world, &log).await;
    assert_eq!(
        (filled.status(), filled.header("x-antiphon-repair")),
        (200, Some("restored=1"))
    );
    assert_eq!(last_body(&world).matches(FILM).count(), 1, "{}", last_body(&world));
}

/// No repair is allowed that could answer the call, so nothing is mended: the body is rejected all the same.
#[tokio::test(start_paused = true)]
async fn strict_mode_sends_no_body_with_findings_whatever_repairs_are_allowed() {
    let ledger = durable();
    let kept = Arc::clone(&ledger);
    let world = World::with(|builder| {
        builder.ledger = kept;
        builder.late.services = vec![service("tools", None, None)];
        builder.proxy.policy.least_safe = Applicability::Lossless;
    });
    world.otherwise(|_| still::json(200, FINE));
    ask(&world, "s0", &[says("hello")]).await;
    assert_eq!(
        send(&world, &[says("go"), calls(FIRST), says("hm")]).await.status(),
        400
    );
}

/// A slow ledger does not say whether the body is complete: a rejection would be final.
#[tokio::test(start_paused = true)]
async fn strict_mode_asks_again_later_if_the_ledger_is_away() {
    for (on_outage, wanted) in [(OnOutage::Wait, 503), (OnOutage::Refuse, 503), (OnOutage::Degrade, 400)] {
        let ledger = SwitchableLedger::new();
        let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
        let world = World::with(|builder| {
            builder.ledger = kept;
            builder.late.services = vec![service("tools", None, None)];
            builder.proxy.on_outage = on_outage;
        });
        world.otherwise(|_| still::json(200, FINE));
        ask(&world, "s0", &[says("hello")]).await;
        ledger.stalls.store(true, Ordering::Relaxed);
        let log = [says("go"), calls(FIRST), says("hm"), answered(), says("is it done?")];
        assert_eq!(send(&world, &log).await.status(), wanted, "{on_outage:?}");
    }
}

/// The result was read, but is not marked as sent: another replica may let its service withdraw it. It is no finding.
#[tokio::test(start_paused = true)]
async fn strict_mode_asks_again_later_if_the_ledger_cannot_mark_a_result_as_sent() {
    for (on_outage, wanted) in [(OnOutage::Wait, 503), (OnOutage::Refuse, 503), (OnOutage::Degrade, 400)] {
        let ledger = SwitchableLedger::shared(true);
        let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
        let world = world_over(&kept, |builder| builder.proxy.on_outage = on_outage);
        ask(&world, "s0", &[says("hello")]).await;
        emits(&world, FIRST, &[says("go")]).await;
        assert_eq!(post(&world, FIRST, &json!(FILM)).await.json()["state"], "settled");
        let log = [says("go"), calls(FIRST), says("is it done?")];
        let sends = world.requests().len();
        ledger.fails_commits.store(true, Ordering::Relaxed);
        let refused = send(&world, &log).await;
        assert_eq!(refused.status(), wanted, "{on_outage:?}: {}", refused.text());
        let is_rejected = refused.header("x-antiphon-repair") == Some("rejected");
        assert_eq!(is_rejected, wanted == 400, "{on_outage:?}: a refusal names no finding");
        assert_eq!(world.requests().len(), sends, "{on_outage:?}: nothing is sent");
        ledger.fails_commits.store(false, Ordering::Relaxed);
        let filled = send(&world, &log).await;
        assert_eq!(
            (filled.status(), filled.header("x-antiphon-repair")),
            (200, Some("restored=1")),
            "{on_outage:?}"
        );
    }
}
