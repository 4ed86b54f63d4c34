//! Posted results that a provider refuses, that are too long, or that their service corrects.

use std::sync::Arc;

use antiphon::late::LateSettings;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late,
    still::{self, Answer, Step, World},
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;
const ID: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const POISON: &str = "POISON";
/// Bytes of a request that the provider takes.
const PROMPT_MAX: usize = 400_000;

/// A provider that refuses results with a word in them by their place, and long requests.
fn strict(body: &[u8]) -> Vec<Step> {
    let read: Value = serde_json::from_slice(body).unwrap();
    let messages = read["messages"].as_array().unwrap();
    let poisoned = messages
        .iter()
        .position(|message| message["content"].to_string().contains(POISON));
    let refusal = match poisoned {
        Some(at) => Some(format!(
            "messages.{at}.content.0.tool_result.content: Input should be a valid string"
        )),
        None if body.len() > PROMPT_MAX => Some("prompt is too long: 250000 tokens > 200000 maximum".to_owned()),
        None if read["max_tokens"] == json!(0) => Some("max_tokens: must be greater than 0".to_owned()),
        None => None,
    };
    match refusal {
        Some(words) => {
            let error = json!({"type": "invalid_request_error", "message": words});
            still::json(400, &json!({"type": "error", "error": error}).to_string())
        }
        None => still::json(200, GOOD),
    }
}

async fn world() -> World {
    let ledger = durable();
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(&ledger);
        builder.proxy.inspect_bytes_max = 16 * 1024 * 1024;
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
    });
    world.otherwise(|message| strict(&message.body));
    ask(&world, &[says("hello")]).await;
    world
}

async fn ask(world: &World, log: &[Value]) -> Answer {
    ask_with(world, log, 99).await
}

async fn ask_with(world: &World, log: &[Value], max_tokens: u32) -> Answer {
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "max_tokens": max_tokens, "messages": log}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    world.settle().await;
    answer
}

/// Returns a conversation whose call is recorded. With `hurried` a placeholder answers it already.
async fn conversation(world: &World, hurried: bool) -> Vec<Value> {
    let call = json!({"type": "tool_use", "id": ID, "name": "render", "input": {}});
    let answer =
        json!({"id": "msg_2", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
    let mut log = vec![says("go")];
    ask(world, &log).await;
    log.extend([json!({"role": "assistant", "content": [call]}), says("is it done?")]);
    if hurried {
        ask(world, &log).await;
        log.extend([answered(), says("and now?")]);
    }
    log
}

async fn post(world: &World, content: &str, replaces: Option<&str>) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{ID}/result");
    let body = json!({"content": content, "replaces": replaces}).to_string();
    world.ask(post_with(&path, &service, body.as_bytes())).await
}

async fn outstanding(world: &World) -> Value {
    let request = "GET /ledger/v1/outstanding HTTP/1.1\r\nHost: localhost\r\nx-api-key: sk-one\r\n\r\n";
    world.ask(request).await.json()["outstanding"].clone()
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn answered() -> Value {
    json!({"role": "assistant", "content": "fine"})
}

fn sent(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

fn counted(world: &World, event: &str) -> u64 {
    let page = world.shared.telemetry.encode_metrics();
    let name = format!("antiphon_late_results_total{{event=\"{event}\"}} ");
    page.lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap()
        .parse()
        .unwrap()
}

/// C1: a result that the provider refuses bricked its conversation for good.
#[tokio::test(start_paused = true)]
async fn a_refused_result_is_withheld_until_its_service_corrects_it() {
    for (hurried, content) in [
        (false, POISON.to_owned()),
        (true, POISON.to_owned()),
        (false, "word ".repeat(50_000) + POISON),
    ] {
        let world = world().await;
        let mut log = conversation(&world, hurried).await;
        let posted = post(&world, &content, None).await;
        assert_eq!(posted.status(), 200);
        let digest = posted.json()["digest"].as_str().unwrap().to_owned();
        let answer = ask(&world, &log).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert!(!sent(&world).contains(POISON) && sent(&world).contains("no result was recorded"));
        assert_eq!(counted(&world, "withheld"), 1);
        let waiting = outstanding(&world).await;
        assert_eq!(
            (&waiting[0]["withheld"], &waiting[0]["state"]),
            (&json!(true), &json!("settled")),
            "{waiting}"
        );
        // No later request gets it, and none costs a second send.
        for words in ["and now?", "and now again?"] {
            log.extend([answered(), says(words)]);
            let before = world.requests().len();
            assert_eq!(ask(&world, &log).await.status(), 200);
            assert_eq!(world.requests().len(), before + 1);
            assert!(!sent(&world).contains(POISON));
        }
        // Another content needs the digest of the one that it corrects.
        assert_eq!(post(&world, "THE FILM", None).await.status(), 409);
        assert_eq!(post(&world, "THE FILM", Some(&"0".repeat(64))).await.status(), 409);
        let corrected = post(&world, "THE FILM", Some(&digest)).await;
        assert_eq!(corrected.status(), 200, "{}", corrected.text());
        assert_eq!(
            (
                counted(&world, "corrected"),
                outstanding(&world).await[0]["withheld"].clone()
            ),
            (1, json!(false))
        );
        for words in ["is it ready?", "thanks"] {
            log.extend([answered(), says(words)]);
            assert_eq!(ask(&world, &log).await.status(), 200);
            assert_eq!(sent(&world).matches("THE FILM").count(), 1, "{words}");
        }
        // What a request contains is not corrected any more.
        let late = post(&world, "OTHER", corrected.json()["digest"].as_str()).await;
        assert_eq!(late.status(), 409);
    }
}

/// C1: a refusal about the length of a request that gets a result for the first time.
#[tokio::test(start_paused = true)]
async fn a_result_that_makes_the_request_too_long_is_withheld() {
    for hurried in [false, true] {
        let world = world().await;
        let mut log = conversation(&world, hurried).await;
        log[0] = says(&"words ".repeat(PROMPT_MAX / 6 - 10_000));
        assert_eq!(post(&world, &"x".repeat(200_000), None).await.status(), 200);
        let answer = ask(&world, &log).await;
        assert_eq!(
            (answer.status(), counted(&world, "withheld")),
            (200, 1),
            "{}",
            answer.text()
        );
    }
}

/// A refusal about something else is the client's, and costs the result nothing.
#[tokio::test(start_paused = true)]
async fn a_refusal_about_something_else_withholds_nothing() {
    for hurried in [false, true] {
        let world = world().await;
        let log = conversation(&world, hurried).await;
        assert_eq!(post(&world, "THE FILM", None).await.status(), 200);
        let before = world.requests().len();
        let answer = ask_with(&world, &log, 0).await;
        assert_eq!(
            (answer.status(), world.requests().len()),
            (400, before + 1),
            "{}",
            answer.text()
        );
        assert_eq!(ask(&world, &log).await.status(), 200);
        assert_eq!(
            (sent(&world).contains("THE FILM"), counted(&world, "withheld")),
            (true, 0)
        );
    }
}

/// A result above the cap goes in as its beginning, its end, its size and the way to read the rest.
#[tokio::test(start_paused = true)]
async fn a_long_result_is_shortened_in_requests_and_whole_in_lookups() {
    for hurried in [false, true] {
        let world = world().await;
        let mut log = conversation(&world, hurried).await;
        let content = format!("BEGIN {}END", "row ".repeat(2_000_000 / 4));
        assert_eq!(post(&world, &content, None).await.status(), 200);
        let mut first = String::new();
        for words in ["", "thanks"] {
            if !words.is_empty() {
                log.extend([answered(), says(words)]);
            }
            assert_eq!(ask(&world, &log).await.status(), 200);
            let sent = sent(&world);
            assert!(
                sent.len() < 300_000 && sent.contains("BEGIN row") && sent.contains("row END"),
                "{}",
                sent.len()
            );
            assert!(
                sent.contains("2000009 bytes of this result are left out here"),
                "{hurried}"
            );
            let at = sent.find("BEGIN").unwrap();
            let inserted = sent[at..sent.find("row END").unwrap()].to_owned();
            assert!(first.is_empty() || first == inserted);
            first = inserted;
        }
        let asked = json!({"call_ids": [ID]}).to_string();
        let found = world
            .ask(post_with(
                "/ledger/v1/lookup",
                &[("x-api-key", "sk-one")],
                asked.as_bytes(),
            ))
            .await;
        assert_eq!(found.json()["results"][0]["content"], json!(content));
    }
}
