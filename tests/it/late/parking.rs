//! Results that come before their call, and results without an owner for a call that was recorded a moment ago.

use std::{sync::Arc, time::Duration};

use antiphon::{
    late::LateSettings,
    ledger::{Ledger, RecordKind},
};
use serde_json::{Value, json};

use crate::{
    ledger::pinned_answers::SwitchableLedger,
    support::{
        app::post_with,
        kept::durable,
        late,
        still::{self, Answer, Step, World, events::anthropic, say, sse},
    },
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;
const ID: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn world_over(ledger: &Arc<dyn Ledger>) -> World {
    world_with(ledger, |_| {})
}

/// A world with other times: records keep the time of the system, which no test can pause.
fn world_with(ledger: &Arc<dyn Ledger>, change: impl FnOnce(&mut LateSettings)) -> World {
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(ledger);
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
        change(&mut builder.late);
    });
    world.otherwise(|_| still::json(200, GOOD));
    world
}

async fn ask(world: &World, key: &str, log: &[Value]) -> Answer {
    let fields = [("x-api-key", key), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    world.settle().await;
    assert_eq!(answer.status(), 200);
    answer
}

/// The model answers the caller with the call.
async fn emits(world: &World, key: &str) -> String {
    let answer = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": calls()["content"], "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
    let answer = ask(world, key, &[says("go")]).await;
    answer.header("x-antiphon-owner").unwrap().to_owned()
}

async fn post(world: &World, owner: Option<&str>) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{ID}/result");
    let body = json!({"content": "THE FILM", "owner": owner}).to_string();
    let answer = world.ask(post_with(&path, &service, body.as_bytes())).await;
    world.settle().await;
    answer
}

async fn gets_it(world: &World, key: &str) -> bool {
    ask(world, key, &[says("go"), calls(), says("is it done?")]).await;
    String::from_utf8(world.requests().pop().unwrap().message.body)
        .unwrap()
        .contains("THE FILM")
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn calls() -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": ID, "name": "render", "input": {}}]})
}

fn counted(world: &World, event: &str) -> u64 {
    let page = world.shared.telemetry.encode_metrics();
    let name = format!("antiphon_late_results_total{{event=\"{event}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
    line.parse().unwrap()
}

/// H2: two callers hold a call of one id, and the post follows at once. It reaches neither by chance.
#[tokio::test(start_paused = true)]
async fn an_ownerless_result_settles_only_if_its_match_stays_unique() {
    for has_second in [false, true] {
        let ledger = durable();
        let world = world_over(&ledger);
        for key in ["sk-ann", "sk-ben"] {
            ask(&world, key, &[says("hello")]).await;
        }
        emits(&world, "sk-ann").await;
        let posted = post(&world, None).await;
        assert_eq!((posted.status(), &posted.json()["state"]), (202, &json!("parked")));
        let owner = if has_second {
            Some(emits(&world, "sk-ben").await)
        } else {
            None
        };
        assert_eq!(counted(&world, "ambiguous"), u64::from(has_second));
        // The settling time is over, and the process was restarted in it.
        drop(world);
        let world = world_with(&ledger, |settings| settings.settling = Duration::ZERO);
        world.until(world.now() + Duration::from_secs(1)).await;
        assert_eq!(gets_it(&world, "sk-ann").await, !has_second);
        if let Some(owner) = owner {
            assert_eq!(post(&world, Some(&owner)).await.status(), 200);
            assert!(gets_it(&world, "sk-ben").await);
            assert!(!gets_it(&world, "sk-ann").await);
        }
    }
}

/// The proxy itself settles the result once the time is over, without another post or request.
#[tokio::test(start_paused = true)]
async fn an_ownerless_result_settles_by_itself() {
    let world = world_with(&durable(), |settings| settings.settling = Duration::from_millis(50));
    for key in ["sk-ann", "sk-ben"] {
        ask(&world, key, &[says("hello")]).await;
    }
    emits(&world, "sk-ann").await;
    assert_eq!(post(&world, None).await.status(), 202);
    for _ in 0..100_000 {
        if counted(&world, "attached") == 1 {
            break;
        }
        world.settle().await;
    }
    assert!(gets_it(&world, "sk-ann").await);
}

/// A call that is older than the settling time, and the only caller there is: no wait.
#[tokio::test(start_paused = true)]
async fn an_ownerless_result_of_an_old_call_or_of_the_only_caller_settles_at_once() {
    let world = world_with(&durable(), |settings| settings.settling = Duration::ZERO);
    for key in ["sk-ann", "sk-ben"] {
        ask(&world, key, &[says("hello")]).await;
    }
    emits(&world, "sk-ann").await;
    assert_eq!(post(&world, None).await.status(), 200);

    let world = world_over(&durable());
    ask(&world, "sk-ann", &[says("hello")]).await;
    emits(&world, "sk-ann").await;
    assert_eq!(post(&world, None).await.status(), 200);
}

/// H3: a 202 is kept for `ledger.ttl`, says until when, and its expiry is counted and stored.
#[tokio::test(start_paused = true)]
async fn a_parked_result_waits_for_the_ttl_and_expires_aloud() {
    let ledger = durable();
    let world = world_over(&ledger);
    ask(&world, "sk-ann", &[says("hello")]).await;
    let posted = post(&world, None).await;
    assert_eq!(posted.status(), 202);
    let expires_at = Duration::from_secs(posted.json()["expires_at"].as_u64().unwrap());
    let wait = expires_at.saturating_sub(antiphon::clock::unix_time());
    assert!(wait > 6 * DAY && wait <= 7 * DAY, "{wait:?}");
    let service = *world.shared.late.services()[0].principal.as_bytes();
    let now = antiphon::clock::unix_time();
    let count = async |kind| ledger.list_records(kind, service, 9, now).await.unwrap().len();
    for (ttl, unclaimed) in [(7 * DAY, 0), (Duration::ZERO, 1)] {
        let world = world_with(&ledger, |settings| settings.ttl = ttl);
        world.until(world.now() + Duration::from_secs(700)).await;
        assert_eq!(counted(&world, "unclaimed"), unclaimed);
        let left = 1 - usize::try_from(unclaimed).unwrap();
        let found = (count(RecordKind::Parked).await, count(RecordKind::RefusedResult).await);
        assert_eq!(found, (left, 1 - left));
    }
}

/// A parked result meets its call after a restart.
#[tokio::test(start_paused = true)]
async fn a_parked_result_meets_its_call_after_a_restart() {
    let ledger = durable();
    let world = world_over(&ledger);
    ask(&world, "sk-ann", &[says("hello")]).await;
    assert_eq!(post(&world, None).await.status(), 202);
    drop(world);
    let world = world_over(&ledger);
    ask(&world, "sk-ann", &[says("hello")]).await;
    emits(&world, "sk-ann").await;
    world.until(world.now() + Duration::from_secs(1)).await;
    assert!(gets_it(&world, "sk-ann").await);
}

/// Returns the events of an answer with a call: all but the last, and the last.
fn streamed_call() -> (String, String) {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let block = json!({"type": "tool_use", "id": ID, "name": "render", "input": {}});
    let front = [
        anthropic::start(),
        event(json!({"type": "content_block_start", "index": 0, "content_block": block})),
        anthropic::stop(0),
        event(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}})),
    ];
    (front.concat(), event(json!({"type": "message_stop"})))
}

/// H3, M3: the call is in the ledger before the client has the last event, however the stream is cut. A ledger that is
/// slow holds nothing but that event, for 50 ms.
#[tokio::test(start_paused = true)]
async fn a_call_is_recorded_before_the_last_event_of_its_answer() {
    let (front, last) = streamed_call();
    for is_whole in [true, false] {
        for slow in [None, Some(20), Some(3000)] {
            let ledger = SwitchableLedger::new();
            let shared: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
            let world = world_over(&shared);
            ask(&world, "sk-ann", &[says("hello")]).await;
            ledger.slow_down(Duration::from_millis(slow.unwrap_or(0)));
            let steps = if is_whole {
                vec![sse(), say(front.clone() + &last), Step::End]
            } else {
                vec![sse(), say(front.clone()), say(last.clone()), Step::End]
            };
            world.script(steps);
            let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", "s1")];
            let body = json!({"model": "m", "max_tokens": 99, "stream": true, "messages": [says("go")]}).to_string();
            let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
            let began = world.now();
            let answer = world.ask(&request).await;
            assert_eq!(answer.message.body, (front.clone() + &last).as_bytes());
            let with = |words: &str| {
                let mut pieces = answer.pieces.iter();
                let piece = pieces.find(|piece| piece.text.contains(words)).unwrap();
                piece.at.saturating_sub(began)
            };
            assert!(
                with("tool_use") < Duration::from_millis(10),
                "text and calls are never held"
            );
            let took = with("message_stop");
            let wanted = Duration::from_millis(slow.map_or(0, |slow| slow.min(50)));
            assert!(took >= wanted && took < wanted + Duration::from_millis(10), "{took:?}");
            assert_eq!(counted(&world, "unrecorded"), u64::from(slow == Some(3000)));
            if slow != Some(3000) {
                let now = antiphon::clock::unix_time();
                let callers = shared.list_principals(RecordKind::Call, None, 9).await.unwrap();
                assert_eq!(callers.len(), 1, "recorded");
                let calls = shared.list_records(RecordKind::Call, callers[0], 9, now).await.unwrap();
                assert_eq!(calls.len(), 1);
            }
        }
    }
}
