//! Results that come before their call, and results without an owner for a call that was recorded a moment ago.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal},
    clock,
    late::{LateSettings, PostOutcome, PostTerms, matching::NamedCall},
    ledger::{CommitStep, Ledger, RecordKind},
};
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::post_with,
        kept::durable,
        late::{
            FILM, ID, MESSAGES, ask_as, calls, copies, counted, memory, owner, post_body, running, says, script_call,
            service, world_over,
        },
        still::{Answer, Step, World, events::anthropic, say, sse},
        wire::spawn,
    },
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Lets the model answer the caller with the call. Returns the owner of the call.
async fn emits(world: &World, key: &str) -> String {
    script_call(world, &calls(ID));
    owner(&ask_as(world, key, "s1", &[says("go")]).await)
}

async fn post_film(world: &World, owner: Option<&str>) -> Answer {
    let answer = post_body(world, ID, &json!({"content": FILM, "owner": owner})).await;
    world.settle().await;
    answer
}

/// Asks on after the call. Returns `true` if the request upstream contains the result.
async fn gets_film(world: &World, key: &str) -> bool {
    ask_as(world, key, "s1", &[says("go"), calls(ID), says("is it done?")]).await;
    copies(world, FILM) > 0
}

/// H2: two callers hold a call of one id, and the post follows at once. It reaches neither by chance.
#[tokio::test(start_paused = true)]
async fn an_ownerless_result_settles_only_if_its_match_stays_unique() {
    for has_second in [false, true] {
        let ledger = durable();
        let world = world_over(&ledger, |_| ());
        for key in ["sk-ann", "sk-ben"] {
            ask_as(&world, key, "s1", &[says("hello")]).await;
        }
        emits(&world, "sk-ann").await;
        let posted = post_film(&world, None).await;
        assert_eq!((posted.status(), &posted.json()["state"]), (202, &json!("parked")));
        let owner = if has_second {
            Some(emits(&world, "sk-ben").await)
        } else {
            None
        };
        assert_eq!(counted(&world, "ambiguous"), u64::from(has_second));
        // The settling time is over, and the process was restarted in it.
        drop(world);
        let world = world_over(&ledger, |builder| builder.late.settling = Duration::ZERO);
        world.until(world.now() + Duration::from_secs(1)).await;
        assert_eq!(gets_film(&world, "sk-ann").await, !has_second);
        if let Some(owner) = owner {
            assert_eq!(post_film(&world, Some(&owner)).await.status(), 200);
            assert!(gets_film(&world, "sk-ben").await);
            assert!(!gets_film(&world, "sk-ann").await);
        }
    }
}

/// The proxy itself settles the result once the time is over, without another post or request.
#[tokio::test(start_paused = true)]
async fn an_ownerless_result_settles_by_itself() {
    let world = world_over(&durable(), |builder| builder.late.settling = Duration::from_millis(50));
    for key in ["sk-ann", "sk-ben"] {
        ask_as(&world, key, "s1", &[says("hello")]).await;
    }
    emits(&world, "sk-ann").await;
    assert_eq!(post_film(&world, None).await.status(), 202);
    for _ in 0..100_000 {
        if counted(&world, "attached") == 1 {
            break;
        }
        world.settle().await;
    }
    assert!(gets_film(&world, "sk-ann").await);
}

/// A call that is older than the settling time, and the only caller there is: no wait.
#[tokio::test(start_paused = true)]
async fn an_ownerless_result_of_an_old_call_or_of_the_only_caller_settles_at_once() {
    let world = world_over(&durable(), |builder| builder.late.settling = Duration::ZERO);
    for key in ["sk-ann", "sk-ben"] {
        ask_as(&world, key, "s1", &[says("hello")]).await;
    }
    emits(&world, "sk-ann").await;
    assert_eq!(post_film(&world, None).await.status(), 200);

    let world = world_over(&durable(), |_| ());
    ask_as(&world, "sk-ann", "s1", &[says("hello")]).await;
    emits(&world, "sk-ann").await;
    assert_eq!(post_film(&world, None).await.status(), 200);
}

/// H3: a 202 is kept for `ledger.ttl`, says until when, and its expiry is counted and stored.
#[tokio::test(start_paused = true)]
async fn a_parked_result_waits_for_the_ttl_and_expires_aloud() {
    let ledger = durable();
    let world = world_over(&ledger, |_| ());
    ask_as(&world, "sk-ann", "s1", &[says("hello")]).await;
    let posted = post_film(&world, None).await;
    assert_eq!(posted.status(), 202);
    let expires_at = Duration::from_secs(posted.json()["expires_at"].as_u64().unwrap());
    let wait = expires_at.saturating_sub(clock::unix_time());
    assert!(wait > 6 * DAY && wait <= 7 * DAY, "{wait:?}");
    let service = *world.shared.late.services()[0].principal.as_bytes();
    let now = clock::unix_time();
    let count = async |kind| ledger.list_records(kind, service, 9, now).await.unwrap().len();
    for (ttl, unclaimed) in [(7 * DAY, 0), (Duration::ZERO, 1)] {
        let world = world_over(&ledger, |builder| builder.late.ttl = ttl);
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
    let world = world_over(&ledger, |_| ());
    ask_as(&world, "sk-ann", "s1", &[says("hello")]).await;
    assert_eq!(post_film(&world, None).await.status(), 202);
    drop(world);
    let world = world_over(&ledger, |_| ());
    ask_as(&world, "sk-ann", "s1", &[says("hello")]).await;
    emits(&world, "sk-ann").await;
    world.until(world.now() + Duration::from_secs(1)).await;
    assert!(gets_film(&world, "sk-ann").await);
}

/// Another replica has removed a parked result, and the news of it was lost: the next search forgets the result.
#[tokio::test(start_paused = true)]
async fn a_parked_result_that_another_replica_has_removed_is_forgotten() {
    let ledger = memory();
    let settings = LateSettings {
        services: vec![service("tools", None, None)],
        ..LateSettings::default()
    };
    let late = running(&ledger, settings);
    let caller = Caller::of_account(Principal::of_token(late.principal_key(), "ann"));
    let named = NamedCall {
        service: &late.services()[0],
        call_id: ID.as_bytes(),
        owner: Some(late.owner_of(caller)),
        session: None,
        described: None,
    };
    let posted = late
        .calls()
        .post_result(&named, "1".to_owned(), false, PostTerms::default())
        .await
        .unwrap();
    assert!(matches!(posted, PostOutcome::Parked { .. }), "{posted:?}");
    assert!(late.calls().awaited_calls(caller).has_call(ID.as_bytes()));
    let (principal, now) = (*named.service.principal.as_bytes(), clock::unix_time());
    let parked = ledger.list_after(RecordKind::Parked, principal, 0, 9, now).await;
    let (_, record) = parked.unwrap().remove(0);
    let remove = CommitStep::Remove {
        key: record.key,
        version: record.version,
    };
    ledger.commit(vec![remove], now).await.unwrap();
    drop(spawn(late.clone().run_upkeep()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(late.calls().awaited_calls(caller).is_empty());
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
            let world = world_over(&shared, |_| ());
            ask_as(&world, "sk-ann", "s1", &[says("hello")]).await;
            ledger.slow_down(Duration::from_millis(slow.unwrap_or(0)));
            let steps = if is_whole {
                vec![sse(), say(front.clone() + &last), Step::End]
            } else {
                vec![sse(), say(front.clone()), say(last.clone()), Step::End]
            };
            world.script(steps);
            let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", "s1")];
            let body = json!({"model": "m", "max_tokens": 99, "stream": true, "messages": [says("go")]}).to_string();
            let request = post_with(MESSAGES, &fields, body.as_bytes());
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
                let now = clock::unix_time();
                let callers = shared.list_principals(RecordKind::Call, None, 9).await.unwrap();
                assert_eq!(callers.len(), 1, "recorded");
                let calls = shared.list_records(RecordKind::Call, callers[0], 9, now).await.unwrap();
                assert_eq!(calls.len(), 1);
            }
        }
    }
}
