//! Single cases from the walk in `isolation_walk`: results that reached their owner but the wrong call.

use std::sync::Arc;

use antiphon::late::LateSettings;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late,
    still::{self, Answer, Step, World},
    wire::Message,
};

const STRONG: &str = "toolu_01AbC9dE3fG7hJ2";
const RESULT: &str = "what the tool said";
const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;

/// Starts a proxy whose caller is verified.
async fn world() -> World {
    let ledger = durable();
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

/// Returns the body of the last request upstream.
fn sent(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

fn times(world: &World) -> usize {
    sent(world).matches(RESULT).count()
}

/// Asserts the number of copies of the result in the last request upstream.
#[track_caller]
fn assert_copies_of_result(world: &World, wanted: usize) {
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

/// The client itself answered the call of one session, so no call is recorded there. The service posts a result anyway.
#[tokio::test(start_paused = true)]
async fn a_result_of_one_session_does_not_reach_another() {
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

/// A weak id must not address an older recorded call, so a service cannot post for it.
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

/// The user repeats the same words after an error or a missing answer.
#[tokio::test(start_paused = true)]
async fn repeated_words_append_a_late_result_once() {
    let world = world().await;
    let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
}

/// Another conversation of the same caller, with one short equal exchange.
#[tokio::test(start_paused = true)]
async fn equal_words_in_another_conversation_append_nothing() {
    let world = world().await;
    let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    ask(&world, "s2", &[says("something else"), said("fine"), says("and now?")]).await;
    assert_copies_of_result(&world, 0);
}

/// The user goes back and says something else. The model makes a call with the same id, whose result has not come.
#[tokio::test(start_paused = true)]
async fn an_abandoned_branch_gives_no_result_to_another() {
    let world = world().await;
    let call = || calls("call_0", &json!({"command": "date"}));
    ask(&world, "s1", &[says("go"), call(), brings("call_0", RESULT)]).await;
    ask(&world, "s1", &[says("go, but slowly"), call(), says("hurry")]).await;
    assert_copies_of_result(&world, 0);
}

/// The client had its own text in place of the result and then loses it: `SEED=5019` of the walk.
#[tokio::test(start_paused = true)]
async fn an_appended_result_is_not_restored_too() {
    let world = world().await;
    let lost = brings(STRONG, "[Tool execution was interrupted]");
    let mut log = vec![says("go"), calls(STRONG, &json!({})), lost, said("fine")];
    let owner = ask(&world, "s1", &log[..3]).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    log[2] = says("never mind");
    log.extend([said("well"), says("go on")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
}

/// The result was restored in one branch. Then the user repeats words there that carried it in another:
/// `SEED=897692778`.
#[tokio::test(start_paused = true)]
async fn a_restored_result_is_not_appended_too() {
    let world = world().await;
    let lost = brings(STRONG, "[Tool execution was interrupted]");
    let mut log = vec![says("go on"), calls(STRONG, &json!({})), lost, says("go on")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    log.truncate(2);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    log.push(says("go on"));
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
}

fn bound() -> Vec<Step> {
    let message = "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.";
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    still::json(400, &error.to_string())
}

/// A posted result precedes thinking that was generated without it. The provider refuses, and a placeholder replaces
/// it.
#[tokio::test(start_paused = true)]
async fn a_result_replaced_by_a_placeholder_is_appended_later() {
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

/// Results that a client brings are recorded even in modes that change nothing.
#[tokio::test(start_paused = true)]
async fn a_result_brought_in_strict_or_observe_mode_is_not_pending() {
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

/// Two conversations with an equal beginning, from a client that names no session.
#[tokio::test(start_paused = true)]
async fn a_guessed_lane_gives_no_result_to_a_repeated_weak_id() {
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
    assert_copies_of_result(&world, 0);
}

/// Token counts must contain appended results too.
#[tokio::test(start_paused = true)]
async fn an_appended_result_is_in_token_counts() {
    let world = world().await;
    let mut log = vec![says("go"), calls(STRONG, &json!({})), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post(&world, STRONG, &owner).await.status(), 200);
    log.extend([said("fine"), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "messages": log}).to_string();
    world
        .ask(post_with(
            "/anthropic/v1/messages/count_tokens",
            &fields,
            body.as_bytes(),
        ))
        .await;
    assert_copies_of_result(&world, 1);
}
