//! Results that reach their owner and the wrong call of his: what the walk of `late_isolation` found, each by itself.

use std::sync::Arc;

use antiphon::late::LateSettings;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::lasting,
    late,
    still::{self, Answer, Step, World},
    wire::Message,
};

const STRONG: &str = "toolu_01AbC9dE3fG7hJ2";
const RESULT: &str = "what the tool said";
const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;

/// A proxy whose caller was answered once.
async fn world() -> World {
    let ledger = lasting();
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(&ledger);
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
    });
    world.otherwise(|_| still::json(200, GOOD));
    ask(&world, "s0", &[says("hello")]).await;
    world
}

async fn ask(world: &World, session: &str, log: &[Value]) -> Answer {
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", session)];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    world.settle().await;
    answer
}

async fn post(world: &World, id: &str, owner: &Answer) -> Message {
    let owner = owner.header("x-antiphon-owner").unwrap();
    let body = json!({"content": RESULT, "owner": owner}).to_string();
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/result");
    world.ask(post_with(&path, &service, body.as_bytes())).await.message
}

/// What went up, the last time.
fn sent(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

fn times(world: &World) -> usize {
    sent(world).matches(RESULT).count()
}

/// How often the result stands in what went up, the last time.
#[track_caller]
fn is_told(world: &World, wanted: usize) {
    assert_eq!(times(world), wanted, "{}", sent(world));
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn said(words: &str) -> Value {
    json!({"role": "assistant", "content": words})
}

fn calls(id: &str, input: &Value) -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "bash", "input": input}]})
}

fn brings(id: &str, content: &str) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]})
}

/// The call of one session was answered by its client, so that nothing is recorded of it; its service posts all the same.
#[tokio::test(start_paused = true)]
async fn a_result_of_one_session_does_not_land_in_another() {
    let world = world().await;
    let one = [says("go"), calls("call_0", &json!({"n": 1})), brings("call_0", "done")];
    ask(&world, "s1", &one).await;
    let mut other = vec![says("go"), calls("call_0", &json!({"n": 2})), says("hurry")];
    let owner = ask(&world, "s2", &other).await;
    let answer = post(&world, "call_0", &owner).await;
    other.extend([said("fine"), says("and now?")]);
    ask(&world, "s2", &other).await;
    assert_eq!((times(&world), answer.status()), (0, 409), "{}", sent(&world));
}

/// Until a request has shown it, a call of such an id is not recorded: an older one is taken for it.
#[tokio::test(start_paused = true)]
async fn the_same_call_made_twice_is_two_calls() {
    let world = world().await;
    let input = json!({"command": "date"});
    let mut log = vec![says("go"), calls("call_0", &input), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(
        post(&world, "call_0", &owner).await.status(),
        409,
        "such an id is no address"
    );
    log.extend([calls("call_0", &input), says("again")]);
    ask(&world, "s1", &log).await;
    let restored = format!(r#""content":"{RESULT}""#);
    assert!(!sent(&world).contains(&restored), "{}", sent(&world));
}

/// The user says the same once more: behind an error, or since nothing came.
#[tokio::test(start_paused = true)]
async fn words_said_again_bring_a_late_result_once() {
    let world = world().await;
    let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
}

/// Another conversation of the same caller, which has nothing but one short exchange in common.
#[tokio::test(start_paused = true)]
async fn the_same_words_elsewhere_bring_nothing() {
    let world = world().await;
    let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
    ask(&world, "s2", &[says("something else"), said("fine"), says("and now?")]).await;
    is_told(&world, 0);
}

/// The user goes back and says something else; the model makes a call of the same id, and nothing of it has come yet.
#[tokio::test(start_paused = true)]
async fn a_branch_that_was_left_gives_nothing_to_another() {
    let world = world().await;
    let call = || calls("call_0", &json!({"command": "date"}));
    ask(&world, "s1", &[says("go"), call(), brings("call_0", RESULT)]).await;
    ask(&world, "s1", &[says("go, but slowly"), call(), says("hurry")]).await;
    is_told(&world, 0);
}

/// The client had a text of its own in place of the result, and loses that text too: `SEED=5019` of the walk.
#[tokio::test(start_paused = true)]
async fn what_was_put_at_the_end_is_not_restored_too() {
    let world = world().await;
    let lost = brings(STRONG, "[Tool execution was interrupted]");
    let mut log = vec![says("go"), calls(STRONG, &json!({})), lost, said("fine")];
    let owner = ask(&world, "s1", &log[..3]).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
    log[2] = says("never mind");
    log.extend([said("well"), says("go on")]);
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
}

/// A branch was given the result where its call stands; then the user says there what was said in another: `SEED=897692778`.
#[tokio::test(start_paused = true)]
async fn what_was_restored_is_not_put_at_the_end_too() {
    let world = world().await;
    let lost = brings(STRONG, "[Tool execution was interrupted]");
    let mut log = vec![says("go on"), calls(STRONG, &json!({})), lost, says("go on")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
    log.truncate(2);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
    log.push(says("go on"));
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
}

fn bound() -> Vec<Step> {
    let message = "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.";
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    still::json(400, &error.to_string())
}

/// A posted result is put in front of a thought that never saw it; the provider will not have that, and gets a placeholder.
#[tokio::test(start_paused = true)]
async fn a_result_that_made_way_for_a_placeholder_is_still_owed() {
    let world = world().await;
    let call = calls(STRONG, &json!({}));
    let answer = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": call["content"],
        "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
    let owner = ask(&world, "s1", &[says("go")]).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    let thought = json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "", "signature": "c2ln"}, {"type": "text", "text": "waiting"}]});
    let mut log = vec![says("go"), call, says("hurry"), thought, says("next")];
    world.script(bound());
    let answer = ask(&world, "s1", &log).await;
    assert!(
        !sent(&world).contains(&format!(r#""content":"{RESULT}""#)),
        "{}",
        sent(&world)
    );
    let told = times(&world);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_eq!((told.max(times(&world)), answer.status()), (1, 200), "{}", sent(&world));
}

/// Where nothing may be mended, what a client brings is noted all the same.
#[tokio::test(start_paused = true)]
async fn what_a_client_brings_where_nothing_is_mended_is_owed_no_more() {
    for mode in ["strict", "observe"] {
        let world = world().await;
        let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
        let owner = ask(&world, "s1", &log).await;
        assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
        log.truncate(2);
        log.push(brings(STRONG, RESULT));
        let fields = [
            ("x-api-key", "sk-one"),
            ("x-antiphon-session", "s1"),
            ("x-antiphon-mode", mode),
        ];
        let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
        for pending in [Some("1"), None] {
            let answer = world
                .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
                .await;
            assert_eq!(answer.header("x-antiphon-pending-results"), pending, "{mode}");
            world.settle().await;
        }
    }
}

/// Two conversations that begin alike, of a client that names no session.
#[tokio::test(start_paused = true)]
async fn a_lane_that_was_only_guessed_gives_no_result_to_a_call_whose_id_comes_again() {
    let world = world().await;
    let fields = [("x-api-key", "sk-one")];
    let one = [
        says("run the tests"),
        calls("call_0", &json!({})),
        brings("call_0", RESULT),
    ];
    let other = [says("run the tests"), calls("call_0", &json!({})), says("hurry")];
    for log in [&one, &other] {
        let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
        world
            .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
            .await;
        world.settle().await;
    }
    is_told(&world, 0);
}

/// What was told once stands in counts and compactions too: the summary must know it.
#[tokio::test(start_paused = true)]
async fn what_was_told_is_counted_and_summed_up() {
    let world = world().await;
    let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    is_told(&world, 1);
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "messages": log}).to_string();
    world
        .ask(post_with(
            "/anthropic/v1/messages/count_tokens",
            &fields,
            body.as_bytes(),
        ))
        .await;
    is_told(&world, 1);
}
