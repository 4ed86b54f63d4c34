//! Later steps on the whole body of a large request have a place in heavy work too, and wait for it in their turn.
//!
//! Each provider takes ten seconds for its answer. Meanwhile other clients take all places, so that the step which
//! follows the answer has to wait for one.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    auth::{AwsKeys, Credential, Profile, Secret},
    ledger::Ledger,
    provider::ProviderKind,
    server::budget::{BodyPass, BodyShare, BudgetClient},
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::ledger::{pinned_results, switchable::SwitchableLedger};
use crate::support::{
    app::{gzipped, post_with},
    kept::durable,
    late::{self, ID, MESSAGES, says},
    pool::{self, strangers},
    still::{self, Answer, Step, World, assert_at, secs},
    wire::spawn,
};

const FINE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
/// A refusal of the pairing. Nothing in the bodies of these tests deserves it.
const UNPAIRED: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next message."}}"#;

/// Takes a place in heavy work for a client, or waits for one. Dropping the result frees it.
fn hold_place(world: &World, last: u8) -> AbortOnDropHandle<()> {
    let (work, client) = (world.heavy_work.clone(), IpAddr::from([198, 51, 100, last]));
    AbortOnDropHandle::new(spawn(async move {
        let _place = work
            .take_place(BudgetClient::Address(client), BodyPass::First)
            .await
            .unwrap();
        std::future::pending::<()>().await;
    }))
}

/// Takes every place in heavy work. Dropping the result frees them.
async fn occupy(world: &World) -> Vec<AbortOnDropHandle<()>> {
    // One client takes half of the places at most.
    let held = [1, 1, 2, 2].map(|last| hold_place(world, last));
    world.settle().await;
    held.into()
}

/// Returns these steps of a provider, ten seconds later.
fn late(steps: Vec<Step>) -> Vec<Step> {
    [vec![Step::Wait(secs(10))], steps].concat()
}

/// Returns a message of the user with this many bytes.
fn long(bytes: usize) -> Value {
    says(&"word ".repeat(bytes / 5))
}

/// Returns a body in the Messages format.
fn body_of(messages: &[Value]) -> String {
    json!({"model": "m", "max_tokens": 16, "messages": messages}).to_string()
}

/// Sends a request, asserts that it waits for a place after the provider's answer, and frees all places.
async fn answer_behind(world: &World, request: Vec<u8>) -> Answer {
    let began = world.now();
    let mut client = world.client();
    client.send(request).await;
    world.until(began + secs(5)).await;
    let held = occupy(world).await;
    assert_eq!(world.heavy_work.waiting(), 0, "not before the answer");
    world.until(began + secs(15)).await;
    assert_eq!(world.heavy_work.waiting(), 1, "it must wait for a place");
    drop(held);
    let answer = client.answer().await;
    assert_at(answer.head_at, began + secs(15));
    answer
}

/// An error with a sentence that the client may have written: the whole body is searched for it.
#[tokio::test(start_paused = true)]
async fn a_large_body_is_searched_for_the_words_of_an_error_as_heavy_work() {
    let credit = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.";
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": credit}}).to_string();
    let body = body_of(&[long(400_000)]);
    for (fields, body) in [
        (&[][..], body.clone().into_bytes()),
        (&[("content-encoding", "gzip")], gzipped(&body)),
    ] {
        let world = pool::world(&strangers("ab"));
        world.otherwise(|_| still::json(200, FINE));
        world.script(late(still::json(400, &error)));
        let answer = answer_behind(&world, post_with(MESSAGES, fields, &body)).await;
        assert_eq!((answer.status(), &*pool::keys(&world.requests())), (200, "ab"));
    }
}

/// Takes all memory of request bodies for another client. Dropping the result frees it.
fn fill_memory(world: &World) -> BodyShare {
    let client = BudgetClient::Address(IpAddr::from([198, 51, 100, 9]));
    let mut share = world.body_memory.open_scratch(client);
    share.add(world.body_memory.memory_use().bytes_max.try_into().unwrap());
    share
}

/// The copies that a search and a resend make are counted, and wait while others fill the memory.
#[tokio::test(start_paused = true)]
async fn steps_after_an_answer_wait_for_memory() {
    let credit = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.";
    let credit = json!({"type": "error", "error": {"type": "invalid_request_error", "message": credit}}).to_string();
    let body = body_of(&[long(400_000)]);
    for (error, fields, body) in [
        (&*credit, &[][..], body.clone().into_bytes()),
        (&*credit, &[("content-encoding", "gzip")], gzipped(&body)),
        (UNPAIRED, &[], body.clone().into_bytes()),
        (UNPAIRED, &[("content-encoding", "gzip")], gzipped(&body)),
    ] {
        let world = pool::world(&strangers("ab"));
        world.otherwise(|_| still::json(200, FINE));
        world.script(late(still::json(400, error)));
        let began = world.now();
        let mut client = world.client();
        client.send(post_with(MESSAGES, fields, &body)).await;
        world.until(began + secs(5)).await;
        let share = fill_memory(&world);
        world.until(began + secs(12)).await;
        assert_eq!(
            world.body_memory.memory_use().waiting,
            1,
            "{error}: it must wait for memory"
        );
        drop(share);
        let answer = client.answer().await;
        assert_at(answer.head_at, began + secs(12));
        world.settle().await;
        assert_eq!(world.body_memory.memory_use().bytes, 0);
    }
}

/// A body that waits for memory leaves the places to those that may free it.
#[tokio::test(start_paused = true)]
async fn a_body_that_waits_for_memory_has_no_place() {
    let messages = vec![json!({}); 20_000];
    let packed = gzipped(&body_of(&[long(400_000)]));
    for (fields, body) in [
        (&[][..], body_of(&messages).into_bytes()),
        (&[("content-encoding", "gzip")], packed),
    ] {
        let world = World::new();
        world.otherwise(|_| still::json(200, FINE));
        let mut client = world.client();
        let request = post_with(MESSAGES, fields, &body);
        let last = request.len() - 1;
        client.send(&request[..last]).await;
        world.settle().await;
        let share = fill_memory(&world);
        client.send(&request[last..]).await;
        world.settle().await;
        assert_eq!(world.body_memory.memory_use().waiting, 1);
        let held = occupy(&world).await;
        assert_eq!(world.heavy_work.waiting(), 0, "all places are free");
        drop((share, held));
        assert_eq!(client.answer().await.status(), 200);
    }
}

/// A body that waits for the ledger leaves its place to others.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_does_not_answer_takes_no_places() {
    let switched = SwitchableLedger::new();
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&switched);
    let messages = |bytes| format!("{},{}", long(bytes), pinned_results::hurry());
    let before = pinned_results::over(&kept);
    before.otherwise(|_| still::json(200, FINE));
    for _ in 0..2 {
        assert_eq!(pinned_results::ask(&before, &messages(100)).await.status(), 200);
    }
    before.settle().await;
    // After a restart only the ledger knows how the call was answered before.
    let world = pinned_results::over(&kept);
    world.otherwise(|_| still::json(200, FINE));
    assert_eq!(pinned_results::ask(&world, &long(100).to_string()).await.status(), 200);
    world.settle().await;
    switched.stalls.store(true, Ordering::Relaxed);
    let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{}]}}"#, messages(400_000));
    let mut stalled = Vec::new();
    for last in [1, 1, 2, 2] {
        let mut client = world.client_from(last);
        client
            .send(post_with(MESSAGES, &[("x-api-key", "sk-one")], body.as_bytes()))
            .await;
        stalled.push(client);
    }
    world.settle().await;
    let began = world.now();
    let mut other = world.client_from(3);
    other
        .send(post_with(MESSAGES, &[], body_of(&[long(400_000)]).as_bytes()))
        .await;
    let answer = other.answer().await;
    assert_eq!(answer.status(), 200);
    assert!(
        answer.head_at <= began + Duration::from_millis(50),
        "{:?}",
        answer.head_at
    );
    for mut client in stalled {
        let answer = client.answer().await;
        assert_eq!(answer.status(), 200);
        assert!(
            answer.head_at >= began + Duration::from_millis(200),
            "it did not wait for the ledger: {:?}",
            answer.head_at
        );
    }
}

/// The lifetime of the provider's cache, which the body names, decides whether a lane returns to its first profile.
#[tokio::test(start_paused = true)]
async fn a_large_body_is_searched_for_the_lifetime_of_its_cache_as_heavy_work() {
    let world = pool::world(&strangers("ab"));
    world.otherwise(|_| still::json(200, FINE));
    let ask = |bytes| pool::of_session("s1", MESSAGES, &[], &body_of(&[long(bytes)]));
    assert_eq!(world.ask(ask(100)).await.status(), 200);
    world.until(secs(600)).await;
    let mut held = occupy(&world).await;
    let mut client = world.client();
    client.send(ask(400_000)).await;
    world.settle().await;
    // It gets the place after the first plan of that body, and before the search.
    held.push(hold_place(&world, 3));
    world.settle().await;
    assert_eq!(world.heavy_work.waiting(), 2);
    drop(held.remove(0));
    world.settle().await;
    assert_eq!(world.heavy_work.waiting(), 1, "it must wait for a place");
    assert_eq!(world.requests().len(), 1);
    drop(held);
    assert_eq!(client.answer().await.status(), 200);
}

/// The size of a compressed body is that of its text.
#[tokio::test(start_paused = true)]
async fn the_resend_of_a_compressed_body_is_planned_as_heavy_work() {
    let world = World::new();
    world.script(late(still::json(400, UNPAIRED)));
    let (fields, body) = ([("content-encoding", "gzip")], gzipped(&body_of(&[long(100_000)])));
    let answer = answer_behind(&world, post_with(MESSAGES, &fields, &body)).await;
    assert_eq!(answer.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_resend_without_a_posted_result_is_planned_as_heavy_work() {
    let world = late::world_over(&durable(), |_| ());
    late::ask(&world, "s1", &[says("hello")]).await;
    late::script_call(&world, &late::calls(ID));
    let mut log = vec![long(100_000)];
    late::ask(&world, "s1", &log).await;
    log.extend([late::calls(ID), says("is it done?")]);
    assert_eq!(late::post(&world, ID, &json!("POISON")).await.status(), 200);
    let words = "messages.2.content.0.tool_result.content: Input should be a valid string";
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
    world.script(late(still::json(400, &error.to_string())));
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = late::messages_body(&log).to_string();
    let answer = answer_behind(&world, post_with(MESSAGES, &fields, body.as_bytes())).await;
    assert_eq!(answer.status(), 200);
    assert!(!late::last_body(&world).contains("POISON"));
}

/// A world with two accounts of DeepSeek, and a conversation whose client has dropped its reasoning.
async fn moved_conversation(total: u64) -> (World, Vec<u8>) {
    const PATH: &str = "/x/v1/chat/completions";
    let world = World::with(|builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = ProviderKind::DeepSeek;
        let profiles = [("a", "org-x", 1_000_000_000), ("b", "org-y", 1)];
        let profiles = profiles.map(|(label, organisation, weight)| pool::profile(label, Some(organisation), weight));
        builder.profiles.insert("x".to_owned(), profiles.to_vec());
        builder.proxy.timeouts.total = secs(total);
    });
    let calls = json!([{"id": "call_aB3dE5fG7hJ9kL1mN3pQ5rS7", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}]);
    let turn = json!({"role": "assistant", "content": null, "reasoning_content": "thought", "tool_calls": calls});
    let choice = json!({"index": 0, "finish_reason": "tool_calls", "message": turn});
    let answer = json!({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}).to_string();
    world.otherwise(move |_| still::json(200, &answer));
    let body = |messages: &[Value]| json!({"model": "deepseek-v4-pro", "messages": messages}).to_string();
    let fields = [("authorization", "Bearer k")];
    let go = long(100_000);
    let first = world
        .ask(post_with(PATH, &fields, body(std::slice::from_ref(&go)).as_bytes()))
        .await;
    assert_eq!(first.status(), 200);
    let mut dropped = turn;
    dropped.as_object_mut().unwrap().remove("reasoning_content");
    let result = json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "done"});
    let limit = json!({"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit"}});
    world.script(late(still::json(429, &limit.to_string())));
    (world, post_with(PATH, &fields, body(&[go, dropped, result]).as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn values_of_another_account_are_taken_out_as_heavy_work() {
    let (world, request) = moved_conversation(3600).await;
    let answer = answer_behind(&world, request).await;
    assert_eq!((answer.status(), &*pool::keys(&world.requests())), (200, "aab"));
    let has_reasoning = |place: usize| world.request_at(place).text().contains("reasoning_content");
    assert_eq!((has_reasoning(1), has_reasoning(2)), (true, false));
}

/// They must not reach the other account, so the exchange ends with its time limit.
#[tokio::test(start_paused = true)]
async fn values_that_cannot_be_taken_out_in_time_are_not_sent() {
    let (world, request) = moved_conversation(60).await;
    let began = world.now();
    let mut client = world.client();
    client.send(request).await;
    world.until(began + secs(5)).await;
    let held = occupy(&world).await;
    let answer = tokio::time::timeout(secs(120), client.answer()).await.unwrap();
    assert_eq!(answer.status(), 504, "{}", answer.text());
    assert_at(answer.head_at, began + secs(60));
    assert_eq!(pool::keys(&world.requests()), "aa");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_large_body_is_signed_as_heavy_work() {
    let secret = |text: &str| Secret::new(text.to_owned());
    let keys = AwsKeys {
        access_key_id: secret("id"),
        secret_access_key: secret("key"),
        session_token: None,
        region: "us-east-1".to_owned(),
        service: "bedrock".to_owned(),
    };
    let profile = Profile {
        credential: Credential::Aws(keys),
        ..pool::profile("a", None, 1)
    };
    let world = World::with(|builder| pool::pooled(builder, &[profile]));
    world.otherwise(|_| still::json(200, FINE));
    world.script(late(still::json(500, pool::BROKEN)));
    let path = "/bedrock/model/anthropic.claude/invoke";
    let body = json!({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 16, "messages": [long(400_000)]});
    let answer = answer_behind(&world, post_with(path, &[], body.to_string().as_bytes())).await;
    assert_eq!((answer.status(), world.requests().len()), (200, 2));
}

/// The items of an accepted request are hashed, for the case that the provider loses its response.
#[tokio::test(start_paused = true)]
async fn the_items_of_a_large_request_are_hashed_as_heavy_work() {
    let world = World::new();
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "output": []});
    world.script(late(still::json(200, &response.to_string())));
    let body = json!({"model": "m", "input": [long(400_000)]}).to_string();
    let fields = [("authorization", "Bearer sk-one")];
    let answer = answer_behind(&world, post_with(pool::RESPONSES, &fields, body.as_bytes())).await;
    assert_eq!(answer.status(), 200);
}

/// The results of an accepted request are recorded for later requests that lack them.
#[tokio::test(start_paused = true)]
async fn a_large_last_turn_is_recorded_as_heavy_work() {
    for (bytes, waiting) in [(400_000, 1), (100, 0)] {
        let world = World::new();
        world.script(late(still::json(200, FINE)));
        // Only the last turn counts.
        let result = late::brings(ID, &json!("x".repeat(bytes)));
        let history = [long(400_000), late::replies("yes"), says("go"), late::calls(ID), result];
        let mut client = world.client();
        let fields = [("x-api-key", "sk-one")];
        client
            .send(post_with(MESSAGES, &fields, body_of(&history).as_bytes()))
            .await;
        world.until(secs(5)).await;
        let held = occupy(&world).await;
        world.until(secs(15)).await;
        assert_eq!(world.heavy_work.waiting(), waiting, "{bytes}");
        drop(held);
        assert_eq!(client.answer().await.status(), 200);
    }
}

/// A body without a history may name objects of the provider, wherever they stand.
#[tokio::test(start_paused = true)]
async fn a_large_body_is_searched_for_ids_of_objects_as_heavy_work() {
    let world = pool::world(&strangers("ab"));
    let conversation = json!({"id": "conv_68f0aB3dE5fG7hJ9kL1mN3pQ5rS7", "object": "conversation"}).to_string();
    world.otherwise(move |_| still::json(200, &conversation));
    let create = |items: Vec<Value>| {
        let body = json!({"items": items}).to_string();
        let fields = [("authorization", "Bearer sk-one")];
        post_with("/openai/v1/conversations", &fields, body.as_bytes())
    };
    assert_eq!(world.ask(create(Vec::new())).await.status(), 200);
    let held = occupy(&world).await;
    let mut client = world.client();
    client.send(create(vec![long(400_000)])).await;
    world.settle().await;
    assert_eq!(world.heavy_work.waiting(), 1, "it must wait for a place");
    drop(held);
    assert_eq!(client.answer().await.status(), 200);
}

/// A refusal is the client's answer if no resend could be planned in the time of the exchange.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_place_ends_with_the_time_of_the_exchange() {
    let world = World::with(|builder| builder.proxy.timeouts.total = secs(60));
    world.script(late(still::json(400, UNPAIRED)));
    let mut client = world.client();
    let body = body_of(&[long(100_000)]);
    client.send(post_with(MESSAGES, &[], body.as_bytes())).await;
    world.until(secs(5)).await;
    let held = occupy(&world).await;
    let answer = tokio::time::timeout(secs(120), client.answer()).await.unwrap();
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert_at(answer.head_at, secs(60));
    assert_eq!(world.heavy_work.waiting(), 0);
    drop(held);
}

/// A client that leaves while its request waits is not counted any more, though no place has become free.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_does_not_wait_for_a_place_any_more() {
    let world = World::new();
    let held = occupy(&world).await;
    let mut client = world.client();
    let body = body_of(&[long(400_000)]);
    client.send(post_with(MESSAGES, &[], body.as_bytes())).await;
    world.settle().await;
    assert_eq!(world.heavy_work.waiting(), 1);
    drop(client);
    world.settle().await;
    assert_eq!(world.heavy_work.waiting(), 0);
    drop(held);
}

/// A request that finds no place is no request of its lane: the calls of the lane stay as they were for the next one.
#[tokio::test(start_paused = true)]
async fn a_request_that_finds_no_place_leaves_no_lane_behind() {
    let world = World::new();
    world.otherwise(|_| still::json(200, FINE));
    let call = |n: usize| late::calls(&late::numbered_id(n));
    let messages: Vec<Value> = (0..200).flat_map(|n| [call(n), says("go")]).collect();
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let request = post_with(MESSAGES, &fields, body_of(&messages).as_bytes());
    let held = occupy(&world).await;
    let answer = world.ask(&request).await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    assert_at(answer.head_at, secs(5));
    let lanes = || world.shared.sessions.lane_totals(tokio::time::Instant::now()).lanes;
    assert_eq!(lanes(), 0);
    drop(held);
    assert_eq!(world.ask(&request).await.status(), 200);
    assert_eq!(lanes(), 1);
}
