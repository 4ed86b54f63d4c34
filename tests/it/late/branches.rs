//! Delivery by body: a result reaches every branch of its conversation once, and outranks an early answer of the client.

use serde_json::json;

use crate::support::{
    kept::durable,
    late::{
        FILM, MESSAGES, answered, ask, brings, calls, copies, messages_body, numbered_id, outstanding, post, replies,
        says, script_call, send, verified_world,
    },
    still::{Step, events::anthropic, say, sse},
};

/// H1: the client has answered the call already, with a text that says nothing about the result.
#[tokio::test(start_paused = true)]
async fn a_posted_result_outranks_an_early_answer_of_the_client() {
    let world = verified_world(&durable()).await;
    let early = [
        json!("Job started: 42"),
        json!("Command running in background with ID: bash_1"),
        json!("Tool execution timed out after 120 s"),
        json!("[Request interrupted by user for tool use]"),
        json!("Operation aborted"),
        json!([{"type": "text", "text": "queued"}]),
    ];
    for (number, answer) in early.iter().enumerate() {
        let (id, session) = (numbered_id(number), format!("s{}", number + 1));
        let mut log = vec![says("go"), calls(&id)];
        ask(&world, &session, &log).await;
        log.push(brings(&id, answer));
        ask(&world, &session, &log).await;
        let posted = post(&world, &id, &json!(FILM)).await;
        assert_eq!(
            (posted.status(), &posted.json()["state"]),
            (200, &json!("settled")),
            "{answer}"
        );
        assert_eq!(outstanding(&world).await.as_array().unwrap().len(), 1, "{answer}");
        log.extend([answered(), says(&format!("is it done? {number}"))]);
        ask(&world, &session, &log).await;
        assert_eq!(copies(&world, FILM), 1, "{answer}");
        log.extend([answered(), says("thanks")]);
        ask(&world, &session, &log).await;
        assert_eq!(copies(&world, FILM), 1, "{answer}");
        assert_eq!(outstanding(&world).await, json!([]), "{answer}");
    }
}

/// The client's own answer is the posted result, or contains it: nothing is appended, and nothing waits.
#[tokio::test(start_paused = true)]
async fn a_posted_result_in_the_clients_answer_is_not_appended() {
    let world = verified_world(&durable()).await;
    let answers = [
        json!(FILM),
        json!(format!("done, see {FILM}\nbye")),
        json!([{"type": "text", "text": FILM}]),
        json!([{"type": "text", "text": json!({"url": FILM}).to_string()}]),
    ];
    for (number, answer) in answers.iter().enumerate() {
        for posted_first in [false, true] {
            let (id, session) = (
                numbered_id(number * 2 + usize::from(posted_first)),
                format!("s{number}{posted_first}"),
            );
            let mut log = vec![says("go"), calls(&id)];
            ask(&world, &session, &log).await;
            if posted_first {
                assert_eq!(post(&world, &id, &json!(FILM)).await.status(), 200);
            }
            log.push(brings(&id, answer));
            ask(&world, &session, &log).await;
            assert_eq!(post(&world, &id, &json!(FILM)).await.status(), 200);
            log.extend([answered(), says("is it done?")]);
            let done = ask(&world, &session, &log).await;
            assert_eq!(done.header("x-antiphon-repair"), Some("none"), "{answer}");
            assert_eq!(outstanding(&world).await, json!([]), "{answer}");
        }
    }
}

/// H5: a user edits the message that got the result, or opens a second tab from before it. The acknowledgement in one
/// branch does not end the delivery to the others.
#[tokio::test(start_paused = true)]
async fn every_branch_gets_the_result_once() {
    let world = verified_world(&durable()).await;
    let call = numbered_id(0);
    let mut log = vec![says("go"), calls(&call), says("hurry")];
    ask(&world, "s1", &log).await;
    assert_eq!(post(&world, &call, &json!(FILM)).await.status(), 200);
    log.push(answered());
    let branch = |words: &str| [&log[..], &[says(words)]].concat();
    let mut first = branch("is it done?");
    ask(&world, "s1", &first).await;
    assert_eq!(copies(&world, FILM), 1);
    first.extend([answered(), says("thanks")]);
    ask(&world, "s1", &first).await;
    assert_eq!(
        (copies(&world, FILM), outstanding(&world).await),
        (1, json!([])),
        "it is acknowledged"
    );
    for words in ["is it ready?", "and in another tab?"] {
        let mut other = branch(words);
        ask(&world, "s2", &other).await;
        assert_eq!(copies(&world, FILM), 1, "{words}");
        other.extend([answered(), says("thanks")]);
        ask(&world, "s2", &other).await;
        assert_eq!(copies(&world, FILM), 1, "{words}");
    }
    ask(&world, "s1", &first).await;
    assert_eq!(copies(&world, FILM), 1);
}

/// H8: conversations of one caller with the same last words, as cron agents and canned texts have.
#[tokio::test(start_paused = true)]
async fn equal_words_do_not_hide_the_result_of_another_conversation() {
    let world = verified_world(&durable()).await;
    for number in 0..4 {
        let (id, session) = (numbered_id(number), format!("s{}", number + 1));
        let mut log = vec![says("go"), calls(&id), says("hurry")];
        ask(&world, &session, &log).await;
        assert_eq!(post(&world, &id, &json!(FILM)).await.status(), 200);
        log.extend([replies("It is still running."), says("is it done?")]);
        for _ in 0..2 {
            ask(&world, &session, &log).await;
            assert_eq!(copies(&world, FILM), 1, "conversation {number}");
        }
    }
}

/// M4: the client leaves in the middle of the answer to a restored result, and never comes back.
#[tokio::test(start_paused = true)]
async fn a_restored_result_is_delivered_once_its_answer_is_complete() {
    let world = verified_world(&durable()).await;
    let call = numbered_id(0);
    script_call(&world, &calls(&call));
    let mut log = vec![says("go")];
    ask(&world, "s1", &log).await;
    assert_eq!(post(&world, &call, &json!(FILM)).await.status(), 200);
    log.extend([calls(&call), says("is it done?")]);
    // The provider's stream breaks after its first words.
    let start = anthropic::start() + &anthropic::text_start(0) + &anthropic::text(0, "it is");
    world.script(vec![sse(), say(start), Step::Break]);
    let mut body = messages_body(&log);
    body["stream"] = json!(true);
    send(&world, MESSAGES, &[("x-antiphon-session", "s1")], &body).await;
    assert_eq!(copies(&world, FILM), 1);
    assert_eq!(outstanding(&world).await.as_array().unwrap().len(), 1);
    ask(&world, "s1", &log).await;
    assert_eq!((copies(&world, FILM), outstanding(&world).await), (1, json!([])));
}

/// A short result stands in many other texts. The client's answer contains it only as a whole line or value.
#[tokio::test(start_paused = true)]
async fn a_short_result_is_not_taken_for_a_part_of_another_text() {
    let world = verified_world(&durable()).await;
    for (number, (answer, posted, is_contained)) in [
        ("Job started: 42", "42", false),
        ("the run is not done yet", "done", false),
        ("queued", "", false),
        ("exit code\n42", "42", true),
        ("42", "42", true),
    ]
    .into_iter()
    .enumerate()
    {
        let (id, session) = (numbered_id(number), format!("s{}", number + 1));
        let mut log = vec![says("go"), calls(&id)];
        ask(&world, &session, &log).await;
        log.push(brings(&id, &json!(answer)));
        ask(&world, &session, &log).await;
        assert_eq!(post(&world, &id, &json!(posted)).await.status(), 200);
        log.extend([answered(), says(&format!("is it done? {number}"))]);
        let done = ask(&world, &session, &log).await;
        let wanted = if is_contained { "none" } else { "appended=1" };
        assert_eq!(done.header("x-antiphon-repair"), Some(wanted), "{answer} {posted}");
    }
}
