//! Single cases from the walk in `isolation_walk`: results that reached their owner but the wrong call.

use serde_json::json;

use crate::support::{
    kept::durable,
    late::{
        ID, answered, ask, ask_with, brings, calls, calls_with, copies, last_body, outstanding, owner, post_body,
        post_to, replies, says, script_call, send, verified_world,
    },
    still::{self, Answer, Step, World},
};

const RESULT: &str = "what the tool said";

/// Posts the result of a call. The owner is that of an answer.
async fn post_result(world: &World, id: &str, answer: &Answer) -> Answer {
    post_to(world, id, &owner(answer), &json!(RESULT)).await
}

/// Asserts the number of copies of the result in the last request upstream.
#[track_caller]
fn assert_copies_of_result(world: &World, wanted: usize) {
    assert_eq!(copies(world, RESULT), wanted, "{}", last_body(world));
}

/// The client itself answered the call of one session, so no call is recorded there. The service posts a result anyway.
#[tokio::test(start_paused = true)]
async fn a_result_of_one_session_does_not_reach_another() {
    let world = verified_world(&durable()).await;
    let one = [
        says("go"),
        calls_with("call_0", &json!({"n": 1})),
        brings("call_0", &json!("done")),
    ];
    ask(&world, "s1", &one).await;
    let mut other = vec![says("go"), calls_with("call_0", &json!({"n": 2})), says("hurry")];
    let owner = ask(&world, "s2", &other).await;
    let answer = post_result(&world, "call_0", &owner).await;
    other.extend([answered(), says("and now?")]);
    ask(&world, "s2", &other).await;
    assert_eq!(
        (copies(&world, RESULT), answer.status()),
        (0, 409),
        "{}",
        last_body(&world)
    );
}

/// A weak id must not address an older recorded call, so a service cannot post for it.
#[tokio::test(start_paused = true)]
async fn the_same_call_made_twice_is_two_calls() {
    let world = verified_world(&durable()).await;
    let input = json!({"command": "date"});
    let mut log = vec![says("go"), calls_with("call_0", &input), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(
        post_result(&world, "call_0", &owner).await.status(),
        409,
        "such an id is no address"
    );
    log.extend([calls_with("call_0", &input), says("again")]);
    ask(&world, "s1", &log).await;
    let restored = format!(r#""content":"{RESULT}""#);
    assert!(!last_body(&world).contains(&restored), "{}", last_body(&world));
}

/// The user repeats the same words after an error or a missing answer.
#[tokio::test(start_paused = true)]
async fn repeated_words_append_a_late_result_once() {
    let world = verified_world(&durable()).await;
    let mut log = vec![says("go"), calls(ID), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
    log.extend([answered(), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
}

/// Another conversation of the same caller, with one short equal exchange.
#[tokio::test(start_paused = true)]
async fn equal_words_in_another_conversation_append_nothing() {
    let world = verified_world(&durable()).await;
    let mut log = vec![says("go"), calls(ID), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
    log.extend([answered(), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    ask(&world, "s2", &[says("something else"), answered(), says("and now?")]).await;
    assert_copies_of_result(&world, 0);
}

/// The user goes back and says something else. The model makes a call with the same id, whose result has not come.
#[tokio::test(start_paused = true)]
async fn an_abandoned_branch_gives_no_result_to_another() {
    let world = verified_world(&durable()).await;
    let call = || calls_with("call_0", &json!({"command": "date"}));
    ask(&world, "s1", &[says("go"), call(), brings("call_0", &json!(RESULT))]).await;
    ask(&world, "s1", &[says("go, but slowly"), call(), says("hurry")]).await;
    assert_copies_of_result(&world, 0);
}

/// The client had its own text in place of the result and then loses it: `SEED=5019` of the walk.
#[tokio::test(start_paused = true)]
async fn an_appended_result_is_not_restored_too() {
    let world = verified_world(&durable()).await;
    let lost = brings(ID, &json!("[Tool execution was interrupted]"));
    let mut log = vec![says("go"), calls(ID), lost, answered()];
    let owner = ask(&world, "s1", &log[..3]).await;
    assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
    log.push(says("and now?"));
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    log[2] = says("never mind");
    log.extend([replies("well"), says("go on")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
}

/// The result was restored in one branch. Then the user repeats words there that carried it in another:
/// `SEED=897692778`.
#[tokio::test(start_paused = true)]
async fn a_restored_result_is_not_appended_too() {
    let world = verified_world(&durable()).await;
    let lost = brings(ID, &json!("[Tool execution was interrupted]"));
    let mut log = vec![says("go on"), calls(ID), lost, says("go on")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
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
    let world = verified_world(&durable()).await;
    let call = calls(ID);
    script_call(&world, &call);
    let owner = ask(&world, "s1", &[says("go")]).await;
    assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
    let thought = json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "", "signature": "c2ln"}, {"type": "text", "text": "waiting"}]});
    let mut log = vec![says("go"), call, says("hurry"), thought, says("next")];
    world.script(bound());
    let answer = ask(&world, "s1", &log).await;
    assert!(
        !last_body(&world).contains(&format!(r#""content":"{RESULT}""#)),
        "{}",
        last_body(&world)
    );
    let early = copies(&world, RESULT);
    log.extend([answered(), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_eq!(
        (early.max(copies(&world, RESULT)), answer.status()),
        (1, 200),
        "{}",
        last_body(&world)
    );
}

/// Results that a client brings are recorded even in modes that change nothing.
#[tokio::test(start_paused = true)]
async fn a_result_brought_in_strict_or_observe_mode_is_not_pending() {
    for mode in ["strict", "observe"] {
        let world = verified_world(&durable()).await;
        let mut log = vec![says("go"), calls(ID), says("hurry")];
        let owner = ask(&world, "s1", &log).await;
        assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
        log.truncate(2);
        log.push(brings(ID, &json!(RESULT)));
        let fields = [("x-antiphon-session", "s1"), ("x-antiphon-mode", mode)];
        for pending in [Some("1"), None] {
            let answer = ask_with(&world, &fields, &log).await;
            assert_eq!(answer.header("x-antiphon-pending-results"), pending, "{mode}");
        }
    }
}

/// Two conversations with an equal beginning, from a client that names no session.
#[tokio::test(start_paused = true)]
async fn a_guessed_lane_gives_no_result_to_a_repeated_weak_id() {
    let world = verified_world(&durable()).await;
    let one = [says("run the tests"), calls("call_0"), brings("call_0", &json!(RESULT))];
    let other = [says("run the tests"), calls("call_0"), says("hurry")];
    for log in [&one, &other] {
        ask_with(&world, &[], log).await;
    }
    assert_copies_of_result(&world, 0);
}

/// Token counts must contain appended results too.
#[tokio::test(start_paused = true)]
async fn an_appended_result_is_in_token_counts() {
    let world = verified_world(&durable()).await;
    let mut log = vec![says("go"), calls(ID), says("hurry")];
    let owner = ask(&world, "s1", &log).await;
    assert_eq!(post_result(&world, ID, &owner).await.status(), 200);
    log.extend([answered(), says("and now?")]);
    ask(&world, "s1", &log).await;
    assert_copies_of_result(&world, 1);
    let (path, session) = ("/anthropic/v1/messages/count_tokens", [("x-antiphon-session", "s1")]);
    send(&world, path, &session, &json!({"model": "m", "messages": log})).await;
    assert_copies_of_result(&world, 1);
}

/// Ids that differ in other characters than letters and digits are two ids, whichever of them comes first.
#[tokio::test(start_paused = true)]
async fn ids_with_the_same_letters_and_digits_are_two_ids() {
    const PAIRS: [[&str; 2]; 3] = [
        ["mZx7_Kq2Wv9R", "mZx7Kq2Wv9R"],
        ["mZx7Kq2Wv9R", "mZx7_Kq2Wv9R"],
        ["mZx7-Kq2Wv9R", "mZx7_Kq2Wv9R"],
    ];
    for inputs in [[1, 2], [1, 1]] {
        for ids in PAIRS {
            let world = verified_world(&durable()).await;
            let call =
                |at: usize| json!({"type": "tool_use", "id": ids[at], "name": "render", "input": {"n": inputs[at]}});
            let both = json!({"role": "assistant", "content": [call(0), call(1)]});
            script_call(&world, &both);
            let owner = owner(&ask(&world, "s1", &[says("go")]).await);
            for at in [1, 0] {
                let content = json!(format!("result {at}."));
                let posted = post_to(&world, ids[at], &owner, &content).await;
                assert_eq!(posted.status(), 200, "{ids:?} {inputs:?} {at}: {}", posted.text());
            }
            ask(&world, "s1", &[says("go"), both]).await;
            let body: serde_json::Value = serde_json::from_str(&last_body(&world)).unwrap();
            let answers = body["messages"][2]["content"].as_array().unwrap();
            for (at, id) in ids.iter().enumerate() {
                let answer = answers.iter().find(|answer| answer["tool_use_id"] == *id).unwrap();
                assert_eq!(answer["content"], format!("result {at}."), "{ids:?} {inputs:?}: {body}");
            }
        }
    }
}

/// A call of another session has the same id and input, and its result stands under this call, too. That is no receipt of
/// this call's own result.
#[tokio::test(start_paused = true)]
async fn a_result_is_received_only_once_a_body_contains_it() {
    const SHARED: &str = "mZx7Kq2Wv9R";
    let world = verified_world(&durable()).await;
    let call = calls_with(SHARED, &json!({"n": 1}));
    let log = [says("go"), call.clone()];
    for (session, result) in [("s1", "the first film"), ("s2", "the second film")] {
        script_call(&world, &call);
        let owner = owner(&ask(&world, session, &log[..1]).await);
        let body = json!({"owner": owner, "session": session, "content": result});
        let posted = post_body(&world, SHARED, &body).await;
        assert_eq!(posted.status(), 200, "{}", posted.text());
        ask(&world, session, &log).await;
        let is_lost = copies(&world, result) == 0 && !outstanding(&world).await.to_string().contains(SHARED);
        assert!(!is_lost, "{session}: {}", last_body(&world));
    }
    let mut log = log.to_vec();
    log.extend([answered(), says("and?")]);
    ask(&world, "s2", &log).await;
    assert_eq!(copies(&world, "the second film"), 1, "{}", last_body(&world));
    log.extend([answered(), says("thanks")]);
    ask(&world, "s2", &log).await;
    assert_eq!(copies(&world, "the second film"), 1, "{}", last_body(&world));
    assert_eq!(outstanding(&world).await, json!([]));
}
