//! Learned facts at their edges: several requests at once, a slow ledger, long histories, and no notifications.

use std::{collections::HashSet, sync::atomic::Ordering, time::Duration};

use antiphon::{ledger::Ledger as _, provider::ProviderKind, wire::Format, work};
use serde_json::{Value, json};

use super::{
    learned_facts::DISPUTES,
    pair::{Replicas, only_upstream},
};
use crate::{
    proxy::{
        foreign_thinking::{self, history, judge, turn},
        refused_histories::{call, goes_on, messages, request, result, text},
    },
    support::{
        app::post_with,
        provider::Settings,
        still::{self, secs},
    },
};

const MESSAGES: &str = "/x/v1/messages";
const OLDER: &str = "toolu_01A09q90qw90lq917835lq9";
const NEWER: &str = "toolu_01B19q90qw90lq917835lq9";
const THIRD: &str = "toolu_01C29q90qw90lq917835lq9";
const FOURTH: &str = "toolu_01D39q90qw90lq917835lq9";

fn wire(path: &str, body: &str) -> Vec<u8> {
    let fields = [("authorization", "Bearer sk-one"), ("x-api-key", "sk-one")];
    post_with(path, &fields, body.as_bytes())
}

/// Both requests are read before the verdict is.
#[tokio::test(start_paused = true)]
async fn two_requests_at_once_keep_an_accepted_shape_after_a_restart() {
    let mut wrong = Vec::new();
    for dispute in DISPUTES {
        let mut replicas = Replicas::durable(Settings::default(), only_upstream(dispute.kind));
        replicas.judge_by(|_| None);
        replicas.send(0, dispute.path, (dispute.body)(OLDER, &[])).await;
        replicas.refuse_next(dispute.refusal);
        let taught = replicas.send(0, dispute.path, (dispute.body)(NEWER, &[])).await;
        assert_eq!(taught.notes(), (200, "2", dispute.repair), "{}", dispute.name);
        replicas.restart();
        let world = replicas.world(0);
        world.until(world.now() + secs(2)).await;
        replicas.ledger(0).slow_down(Duration::from_millis(20));
        let older = (dispute.body)(OLDER, &goes_on()).to_string();
        let scans = work::parses();
        let (one, two) = tokio::join!(
            world.ask(wire(dispute.path, &older)),
            world.ask(wire(dispute.path, &older))
        );
        // What the ledger tells changes the pairing alone.
        assert_eq!(work::parses() - scans, 2, "{}", dispute.name);
        for answer in [one, two] {
            if answer.header("x-antiphon-repair") != Some("none") {
                wrong.push((dispute.name, answer.header("x-antiphon-repair").map(str::to_owned)));
            }
        }
    }
    assert!(wrong.is_empty(), "an accepted prefix was edited: {wrong:#?}");
}

/// The same for thinking that the provider has refused.
#[tokio::test(start_paused = true)]
async fn two_requests_at_once_leave_out_refused_thinking_after_a_restart() {
    let mut replicas = Replicas::durable(Settings::default(), |_| ());
    replicas.answer_by(judge);
    let mut messages = history([turn(1, "EqQBother")]);
    let path = "/anthropic/v1/messages";
    let taught = replicas.send(0, path, foreign_thinking::body(&messages)).await;
    assert_eq!(taught.notes(), (200, "2", "dropped=2"), "{taught:#?}");
    messages.extend(turn(2, foreign_thinking::OWN));
    replicas.restart();
    let world = replicas.world(0);
    world.until(world.now() + secs(2)).await;
    replicas.ledger(0).slow_down(Duration::from_millis(20));
    let body = foreign_thinking::body(&messages);
    let scans = work::parses();
    let (one, two) = tokio::join!(world.ask(wire(path, &body)), world.ask(wire(path, &body)));
    assert_eq!(work::parses() - scans, 2, "one a request");
    let sends = [&one, &two].map(|answer| answer.header("x-antiphon-attempts").unwrap_or("-").to_owned());
    assert_eq!(sends, ["1", "1"]);
}

/// The request waits for the verdict, or goes without an edit.
#[tokio::test(start_paused = true)]
async fn an_unread_verdict_changes_no_accepted_prefix() {
    use antiphon::proxy::OnOutage;
    let mut wrong = Vec::new();
    for on_outage in [OnOutage::Refuse, OnOutage::Wait] {
        for dispute in DISPUTES {
            let replicas = Replicas::new(Settings::default(), move |builder| {
                only_upstream(dispute.kind)(builder);
                builder.proxy.on_outage = on_outage;
            });
            replicas.judge_by(|_| None);
            replicas.send(0, dispute.path, (dispute.body)(OLDER, &[])).await;
            replicas.refuse_next(dispute.refusal);
            replicas.send(1, dispute.path, (dispute.body)(NEWER, &[])).await;
            let older = (dispute.body)(OLDER, &goes_on()).to_string();
            replicas.ledger(1).slow_down(Duration::from_millis(300));
            let sent = replicas.send(1, dispute.path, &older).await;
            replicas.ledger(1).slow_down(Duration::ZERO);
            let after = replicas.send(1, dispute.path, &older).await;
            wrong.push((on_outage, dispute.name, sent.status, sent.repair, after.repair));
        }
    }
    wrong.retain(|(.., status, during, _)| *status == 200 && during != "none");
    assert!(
        wrong.is_empty(),
        "edited while the ledger was slow, and after it: {wrong:#?}"
    );
}

/// Returns a conversation with text behind its call and beside its result.
fn disputed(id: &str, more: &[Value]) -> Value {
    let history = messages(&[call(id), text("behind")], &[result(id), text("beside")]);
    request(Format::Anthropic, "m", &history, more)
}

const ANY_FAULT: &str = "The messages parameter is illegal. Please check the documentation";

fn unanswered(id: &str) -> String {
    format!("messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {id}")
}

/// Two replicas learn different places of text at once, and each keeps its own: the prefix changes with the replica.
#[tokio::test(start_paused = true)]
async fn replicas_agree_on_the_place_of_text() {
    let replicas = Replicas::new(Settings::default(), only_upstream(ProviderKind::Anthropic));
    let mut refused = HashSet::new();
    replicas.answer_by(move |request| {
        let body = String::from_utf8(request.body.clone()).unwrap();
        let words = [(OLDER, unanswered(OLDER)), (NEWER, ANY_FAULT.to_owned())];
        let found = words.into_iter().find(|(id, _)| body.contains(id));
        match found.filter(|(id, _)| refused.insert(*id)) {
            Some((_, words)) => still::json(
                400,
                &json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}}).to_string(),
            ),
            None => still::json(200, "{}"),
        }
    });
    let (one, two) = tokio::join!(
        replicas.send(0, MESSAGES, disputed(OLDER, &[])),
        replicas.send(1, MESSAGES, disputed(NEWER, &[]))
    );
    assert_eq!((&*one.sends, &*two.sends), ("2", "2"), "{one:#?} {two:#?}");
    let mut bodies = Vec::new();
    for at in [0, 1, 0, 1] {
        let sent = replicas.send(at, MESSAGES, disputed(THIRD, &[])).await;
        assert_eq!((sent.status, &*sent.sends), (200, "1"), "{sent:#?}");
        bodies.push(sent.last_body);
    }
    assert_eq!(bodies[0], bodies[1], "the bytes depend on the replica");
}

/// A server returns to an earlier rule.
#[tokio::test(start_paused = true)]
async fn the_latest_lesson_counts_after_a_restart() {
    let mut replicas = Replicas::durable(Settings::default(), only_upstream(ProviderKind::Anthropic));
    replicas.judge_by(|_| None);
    // Accepted before there is a rule, so that each can be refused in its own shape.
    for id in [NEWER, THIRD] {
        replicas.send(0, MESSAGES, disputed(id, &[])).await;
    }
    for (id, words) in [
        (OLDER, unanswered(OLDER)),
        (NEWER, ANY_FAULT.to_owned()),
        (THIRD, unanswered(THIRD)),
    ] {
        replicas.refuse_next(&words);
        let sent = replicas.send(0, MESSAGES, disputed(id, &[])).await;
        assert_eq!((sent.status, &*sent.sends), (200, "2"), "{sent:#?}");
    }
    let before = replicas.send(0, MESSAGES, disputed(FOURTH, &[])).await;
    replicas.restart();
    let after = replicas.send(0, MESSAGES, disputed(FOURTH, &goes_on())).await;
    assert_eq!((&*before.sends, &*after.sends), ("1", "1"));
    after.assert_continues(&before, "after the restart");
}

/// A rule that 1,024 later facts have pushed out becomes the latest again.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_taught_again_is_kept_again() {
    let dispute = &DISPUTES[1];
    let mut replicas = Replicas::durable(Settings::default(), only_upstream(dispute.kind));
    replicas.judge_by(|_| None);
    let body = |model: &str, id: &str| {
        let mut body = (dispute.body)(id, &[]);
        body["model"] = model.into();
        body
    };
    for number in 0..=1024 {
        replicas.refuse_next(dispute.refusal);
        let sent = replicas.send(0, dispute.path, body(&format!("m{number}"), NEWER)).await;
        assert_eq!(sent.sends, "2");
    }
    let mut sends = Vec::new();
    for id in [OLDER, THIRD] {
        replicas.restart();
        replicas.judge_by(|body| {
            (body["messages"].as_array().unwrap().len() == 4 && body["model"] == "m0")
                .then_some("Unexpected role 'user' after role 'tool'")
        });
        sends.push(replicas.send(0, dispute.path, body("m0", id)).await.sends);
    }
    assert_eq!(sends, ["2", "1"], "the rule is taught once more, and then kept");
}

/// Nothing is asked for the values of a caller that has none.
#[tokio::test(start_paused = true)]
async fn a_healthy_history_asks_a_shared_ledger_nothing() {
    let mut costs = Vec::new();
    for is_shared in [false, true] {
        let start = if is_shared { Replicas::new } else { Replicas::durable };
        let replicas = start(
            Settings::default(),
            Box::new(only_upstream(ProviderKind::Compatible)) as Box<dyn Fn(&mut _)>,
        );
        replicas.judge_by(|_| None);
        let mut list = vec![json!({"role": "user", "content": "go"})];
        for number in 0..2000 {
            let id = format!("call_{number:020}");
            list.push(json!({"role": "assistant", "content": null, "tool_calls":
                [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}));
            list.push(json!({"role": "tool", "tool_call_id": id, "content": "done"}));
        }
        let body = json!({"model": "m", "messages": list}).to_string();
        let ledger = replicas.ledger(0);
        for _ in 0..3 {
            replicas.send(0, "/x/v1/chat/completions", &body).await;
        }
        let before = (
            ledger.questions.load(Ordering::Relaxed),
            ledger.keys.load(Ordering::Relaxed),
        );
        let sent = replicas.send(0, "/x/v1/chat/completions", &body).await;
        assert_eq!(sent.notes(), (200, "1", "none"), "{}", sent.answer);
        let asked = ledger.questions.load(Ordering::Relaxed) - before.0;
        let keys = ledger.keys.load(Ordering::Relaxed) - before.1;
        ledger.stalls.store(true, Ordering::Relaxed);
        let mut waits = Vec::new();
        for _ in 0..3 {
            let world = replicas.world(0);
            let began = world.now();
            world.ask(wire("/x/v1/chat/completions", &body)).await;
            waits.push(world.now().saturating_sub(began).as_millis());
        }
        costs.push((is_shared, asked, keys, waits));
    }
    assert!(
        costs.iter().all(|(_, asked, ..)| *asked == 0),
        "shared, reads, keys, ms with a stalled ledger: {costs:?}"
    );
}

/// Returns a history of this many answered calls, and one whose result may be missing.
fn long_history(calls: usize, has_result: bool) -> String {
    let mut list = vec![json!({"role": "user", "content": "go"})];
    for number in (0..calls)
        .map(|number| format!("call_{number:020}"))
        .chain([OLDER.to_owned()])
    {
        list.push(json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": number, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}));
        if has_result || number != OLDER {
            list.push(json!({"role": "tool", "tool_call_id": number, "content": "done"}));
        }
    }
    list.push(json!({"role": "user", "content": "on"}));
    json!({"model": "m", "messages": list}).to_string()
}

/// The look-up of values leaves time for that of results.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_long_history_does_not_lose_its_result() {
    let mut repairs = Vec::new();
    for calls in [10, 2000] {
        let replicas = Replicas::new(Settings::default(), |builder| {
            only_upstream(ProviderKind::Compatible)(builder);
            builder.keeps_seen = true;
        });
        replicas.judge_by(|_| None);
        let path = "/x/v1/chat/completions";
        replicas.send(0, path, long_history(0, true)).await;
        replicas
            .send(
                1,
                path,
                json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
            )
            .await;
        replicas.ledger(1).slow_down(Duration::from_millis(40));
        let sent = replicas.send(1, path, long_history(calls, false)).await;
        repairs.push((calls, sent.repair));
    }
    assert_eq!(
        repairs,
        [(10, "restored=1".to_owned()), (2000, "restored=1".to_owned())]
    );
}

/// The first response of the conversation was never watched.
#[tokio::test(start_paused = true)]
async fn a_parent_that_no_process_knows_is_not_read_again_and_again() {
    let mut reads = Vec::new();
    let replicas = Replicas::durable(Settings::default(), |_| ());
    let mut number = 0;
    replicas.answer_by(move |_| {
        number += 1;
        let answer = json!({"id": format!("resp_{number}"), "object": "response", "status": "completed", "output":
            [{"type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
              "content": [{"type": "output_text", "text": "ok", "annotations": []}]}]});
        still::json(200, &answer.to_string())
    });
    let path = crate::proxy::dead_responses::PATH;
    for turn in 0..5 {
        let before = replicas.ledger(0).questions.load(Ordering::Relaxed);
        let body = json!({"model": "m", "previous_response_id": format!("resp_{}", if turn == 0 { 777 } else { turn }),
            "input": [{"role": "user", "content": "on"}]});
        let sent = replicas.send(0, path, body).await;
        assert_eq!(sent.status, 200, "{sent:#?}");
        let world = replicas.world(0);
        world.until(world.now() + secs(10)).await;
        reads.push(replicas.ledger(0).questions.load(Ordering::Relaxed) - before);
    }
    println!("reads of each turn: {reads:?}");
    assert!(reads[2..].iter().all(|reads| *reads == 0), "{reads:?}");
}

/// Accepted thinking is stored by any replica, since another one may have to keep it.
#[tokio::test(start_paused = true)]
async fn accepted_thinking_stays_without_notifications() {
    let mut wrong = Vec::new();
    for is_told in [true, false] {
        let replicas = if is_told {
            Replicas::new(Settings::default(), |_| ())
        } else {
            Replicas::untold(Settings::default(), |_| ())
        };
        replicas.answer_by(judge);
        let path = "/anthropic/v1/messages";
        let mut messages = history([turn(1, "EqQBother")]);
        let taught = replicas.send(0, path, foreign_thinking::body(&messages)).await;
        assert_eq!(taught.notes(), (200, "2", "dropped=2"), "{taught:#?}");
        messages.extend(turn(2, foreign_thinking::OWN));
        let accepted = replicas.send(1, path, foreign_thinking::body(&messages)).await;
        assert_eq!(accepted.notes(), (200, "1", "dropped=2"), "{accepted:#?}");
        messages.extend(turn(3, "EqQBthird"));
        let next = replicas.send(0, path, foreign_thinking::body(&messages)).await;
        if !next
            .last_body
            .starts_with(foreign_thinking::prefix_of(&accepted.last_body))
        {
            wrong.push((is_told, next.sends, next.repair));
        }
    }
    assert!(wrong.is_empty(), "the prefix has changed: {wrong:?}");
}

/// A conversation that was accepted by the rule keeps to it without another look.
#[tokio::test(start_paused = true)]
async fn a_caller_with_a_rule_does_not_read_with_every_request() {
    let mut reads = Vec::new();
    let dispute = &DISPUTES[0];
    let replicas = Replicas::new(Settings::default(), only_upstream(dispute.kind));
    replicas.judge_by(|_| None);
    replicas.refuse_next(dispute.refusal);
    replicas.send(0, dispute.path, (dispute.body)(NEWER, &[])).await;
    let ledger = replicas.ledger(0);
    for _ in 0..4 {
        let before = ledger.questions.load(Ordering::Relaxed);
        replicas.send(0, dispute.path, (dispute.body)(THIRD, &goes_on())).await;
        reads.push(ledger.questions.load(Ordering::Relaxed) - before);
    }
    ledger.stalls.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let world = replicas.world(0);
        let began = world.now();
        world
            .ask(wire(dispute.path, &(dispute.body)(THIRD, &goes_on()).to_string()))
            .await;
        waits.push(world.now().saturating_sub(began).as_millis());
    }
    assert_eq!(
        (reads[3], waits[3]),
        (0, 0),
        "reads {reads:?}, ms with a stalled ledger: {waits:?}"
    );
}

/// A caller that continues by ids cannot fill the ledger with them.
#[tokio::test(start_paused = true)]
async fn the_chains_of_one_caller_are_bounded() {
    const TURNS: u64 = 6_000;
    let replicas = Replicas::durable(Settings::default(), |_| ());
    let mut number = 0;
    replicas.answer_by(move |_| {
        number += 1;
        let answer = json!({"id": format!("resp_{number}"), "object": "response", "status": "completed", "output":
            [{"type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
              "content": [{"type": "output_text", "text": "ok", "annotations": []}]}]});
        still::json(200, &answer.to_string())
    });
    let path = crate::proxy::dead_responses::PATH;
    replicas
        .send(
            0,
            path,
            json!({"model": "m", "input": [{"role": "user", "content": "go"}]}),
        )
        .await;
    let before = replicas.ledger(0).usage().await.unwrap();
    let world = replicas.world(0);
    for turn in 1..=TURNS {
        let body = json!({"model": "m", "previous_response_id": format!("resp_{turn}"),
            "input": [{"role": "user", "content": "on"}]});
        world.ask(wire(path, &body.to_string())).await;
    }
    world.until(world.now() + secs(10)).await;
    let after = replicas.ledger(0).usage().await.unwrap();
    assert!(
        after.records - before.records < 5_100,
        "{} records, {} bytes for {TURNS} healthy turns",
        after.records - before.records,
        after.bytes - before.bytes
    );
}

/// Returns the words in which an updated server refuses a repair.
fn refuses_repairs(body: &Value) -> Option<&'static str> {
    let is_repaired = body.to_string().contains("[antiphon:");
    is_repaired.then_some("this model accepts no such message")
}

/// The server was updated: it accepts the shape again, and refuses the repair.
#[tokio::test(start_paused = true)]
async fn a_rule_that_no_longer_holds_is_forgotten() {
    for dispute in &DISPUTES[1..] {
        let mut replicas = Replicas::durable(Settings::default(), only_upstream(dispute.kind));
        replicas.judge_by(|_| None);
        replicas.refuse_next(dispute.refusal);
        let taught = replicas.send(0, dispute.path, (dispute.body)(OLDER, &[])).await;
        assert_eq!(taught.notes(), (200, "2", dispute.repair));
        replicas.judge_by(refuses_repairs);
        replicas.restart();
        for (id, sends) in [(NEWER, "2"), (THIRD, "1")] {
            let sent = replicas.send(0, dispute.path, (dispute.body)(id, &[])).await;
            assert_eq!(sent.notes(), (200, sends, "none"), "{}", dispute.name);
            replicas.restart();
        }
    }
}

/// A refusal of anything else is that of the first send, and the rule stays.
#[tokio::test(start_paused = true)]
async fn a_rule_survives_refusals_of_something_else() {
    for dispute in DISPUTES {
        let replicas = Replicas::new(Settings::default(), only_upstream(dispute.kind));
        replicas.judge_by(|_| None);
        replicas.refuse_next(dispute.refusal);
        let taught = replicas.send(0, dispute.path, (dispute.body)(OLDER, &[])).await;
        assert_eq!(taught.notes(), (200, "2", dispute.repair));
        replicas.judge_by(|_| Some("max_tokens is too large"));
        for at in [0, 1] {
            let sent = replicas.send(at, dispute.path, (dispute.body)(NEWER, &[])).await;
            assert_eq!((sent.status, &*sent.repair), (400, dispute.repair), "{}", dispute.name);
            assert!(sent.answer.contains("max_tokens is too large"), "{}", sent.answer);
        }
        replicas.judge_by(|_| None);
        for at in [0, 1] {
            let sent = replicas.send(at, dispute.path, (dispute.body)(NEWER, &[])).await;
            assert_eq!(sent.notes(), (200, "1", dispute.repair), "{}", dispute.name);
        }
    }
}
