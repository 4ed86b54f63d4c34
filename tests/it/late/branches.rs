//! Delivery by body: a result reaches every branch of its conversation once, and outranks an early answer of the client.

use std::sync::Arc;

use antiphon::late::LateSettings;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late,
    still::{self, Answer, Step, World, events::anthropic, say, sse},
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;
const FILM: &str = "https://e.com/film.mp4";

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
    world.settle().await;
    assert_eq!(answer.status(), 200);
    answer
}

async fn post(world: &World, id: &str, content: &str) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/result");
    let body = json!({"content": content}).to_string();
    world.ask(post_with(&path, &service, body.as_bytes())).await
}

async fn outstanding(world: &World) -> Value {
    let request = "GET /ledger/v1/outstanding HTTP/1.1\r\nHost: localhost\r\nx-api-key: sk-one\r\n\r\n";
    world.ask(request).await.json()["outstanding"].clone()
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn calls(id: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "render", "input": {}}]})
}

fn brings(id: &str, content: &Value) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]})
}

fn answered() -> Value {
    json!({"role": "assistant", "content": "fine"})
}

/// Returns how often the film stands in the last request upstream.
fn films(world: &World) -> usize {
    let body = String::from_utf8(world.requests().pop().unwrap().message.body).unwrap();
    body.matches(FILM).count()
}

fn id(number: usize) -> String {
    format!("toolu_01AbC9dE3fG7hJ2kL4mN6p{number:02}")
}

/// H1: the client has answered the call already, with a text that says nothing about the result.
#[tokio::test(start_paused = true)]
async fn a_posted_result_outranks_an_early_answer_of_the_client() {
    let world = world().await;
    let early = [
        json!("Job started: 42"),
        json!("Command running in background with ID: bash_1"),
        json!("Tool execution timed out after 120 s"),
        json!("[Request interrupted by user for tool use]"),
        json!("Operation aborted"),
        json!([{"type": "text", "text": "queued"}]),
    ];
    for (number, answer) in early.iter().enumerate() {
        let (id, session) = (id(number), format!("s{}", number + 1));
        let mut log = vec![says("go"), calls(&id)];
        ask(&world, &session, &log).await;
        log.push(brings(&id, answer));
        ask(&world, &session, &log).await;
        let posted = post(&world, &id, FILM).await;
        assert_eq!(
            (posted.status(), &posted.json()["state"]),
            (200, &json!("settled")),
            "{answer}"
        );
        assert_eq!(outstanding(&world).await.as_array().unwrap().len(), 1, "{answer}");
        log.extend([answered(), says(&format!("is it done? {number}"))]);
        ask(&world, &session, &log).await;
        assert_eq!(films(&world), 1, "{answer}");
        log.extend([answered(), says("thanks")]);
        ask(&world, &session, &log).await;
        assert_eq!(films(&world), 1, "{answer}");
        assert_eq!(outstanding(&world).await, json!([]), "{answer}");
    }
}

/// The client's own answer is the posted result, or contains it: nothing is appended, and nothing waits.
#[tokio::test(start_paused = true)]
async fn a_posted_result_in_the_clients_answer_is_not_appended() {
    let world = world().await;
    let answers = [
        json!(FILM),
        json!(format!("done, see {FILM}\nbye")),
        json!([{"type": "text", "text": FILM}]),
        json!([{"type": "text", "text": json!({"url": FILM}).to_string()}]),
    ];
    for (number, answer) in answers.iter().enumerate() {
        for posted_first in [false, true] {
            let (id, session) = (
                id(number * 2 + usize::from(posted_first)),
                format!("s{number}{posted_first}"),
            );
            let mut log = vec![says("go"), calls(&id)];
            ask(&world, &session, &log).await;
            if posted_first {
                assert_eq!(post(&world, &id, FILM).await.status(), 200);
            }
            log.push(brings(&id, answer));
            ask(&world, &session, &log).await;
            assert_eq!(post(&world, &id, FILM).await.status(), 200);
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
    let world = world().await;
    let call = id(0);
    let mut log = vec![says("go"), calls(&call), says("hurry")];
    ask(&world, "s1", &log).await;
    assert_eq!(post(&world, &call, FILM).await.status(), 200);
    log.push(answered());
    let branch = |words: &str| [&log[..], &[says(words)]].concat();
    let mut first = branch("is it done?");
    ask(&world, "s1", &first).await;
    assert_eq!(films(&world), 1);
    first.extend([answered(), says("thanks")]);
    ask(&world, "s1", &first).await;
    assert_eq!(
        (films(&world), outstanding(&world).await),
        (1, json!([])),
        "it is acknowledged"
    );
    for words in ["is it ready?", "and in another tab?"] {
        let mut other = branch(words);
        ask(&world, "s2", &other).await;
        assert_eq!(films(&world), 1, "{words}");
        other.extend([answered(), says("thanks")]);
        ask(&world, "s2", &other).await;
        assert_eq!(films(&world), 1, "{words}");
    }
    ask(&world, "s1", &first).await;
    assert_eq!(films(&world), 1);
}

/// H8: conversations of one caller with the same last words, as cron agents and canned texts have.
#[tokio::test(start_paused = true)]
async fn equal_words_do_not_hide_the_result_of_another_conversation() {
    let world = world().await;
    for number in 0..4 {
        let (id, session) = (id(number), format!("s{}", number + 1));
        let mut log = vec![says("go"), calls(&id), says("hurry")];
        ask(&world, &session, &log).await;
        assert_eq!(post(&world, &id, FILM).await.status(), 200);
        log.extend([
            json!({"role": "assistant", "content": "It is still running."}),
            says("is it done?"),
        ]);
        for _ in 0..2 {
            ask(&world, &session, &log).await;
            assert_eq!(films(&world), 1, "conversation {number}");
        }
    }
}

/// M4: the client leaves in the middle of the answer to a restored result, and never comes back.
#[tokio::test(start_paused = true)]
async fn a_restored_result_is_delivered_once_its_answer_is_complete() {
    let world = world().await;
    let call = id(0);
    world.script(still::json(
        200,
        &json!({"id": "msg_2", "type": "message", "role": "assistant", "content": calls(&call)["content"], "stop_reason": "tool_use"}).to_string(),
    ));
    let mut log = vec![says("go")];
    ask(&world, "s1", &log).await;
    assert_eq!(post(&world, &call, FILM).await.status(), 200);
    log.extend([calls(&call), says("is it done?")]);
    // The provider's stream breaks behind its first words.
    let start = anthropic::start() + &anthropic::text_start(0) + &anthropic::text(0, "it is");
    world.script(vec![sse(), say(start), Step::Break]);
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "max_tokens": 99, "stream": true, "messages": log}).to_string();
    drop(
        world
            .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
            .await,
    );
    world.settle().await;
    assert_eq!(films(&world), 1);
    assert_eq!(outstanding(&world).await.as_array().unwrap().len(), 1);
    ask(&world, "s1", &log).await;
    assert_eq!((films(&world), outstanding(&world).await), (1, json!([])));
}

/// A short result stands in many other texts. The client's answer contains it only as a whole line or value.
#[tokio::test(start_paused = true)]
async fn a_short_result_is_not_taken_for_a_part_of_another_text() {
    let world = world().await;
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
        let (id, session) = (id(number), format!("s{}", number + 1));
        let mut log = vec![says("go"), calls(&id)];
        ask(&world, &session, &log).await;
        log.push(brings(&id, &json!(answer)));
        ask(&world, &session, &log).await;
        assert_eq!(post(&world, &id, posted).await.status(), 200);
        log.extend([answered(), says(&format!("is it done? {number}"))]);
        let done = ask(&world, &session, &log).await;
        let wanted = if is_contained { "none" } else { "appended=1" };
        assert_eq!(done.header("x-antiphon-repair"), Some(wanted), "{answer} {posted}");
    }
}
