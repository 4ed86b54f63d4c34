//! Posted results that a provider refuses, that are too long, or that their service corrects.

use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late::{
        FILM, FINE, ID, MESSAGES, answered, ask, calls, copies, counted, last_body, messages_body, outstanding,
        post_body, says, script_call, send, world_over,
    },
    still::{self, Answer, Step, World},
};

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
        None => still::json(200, FINE),
    }
}

async fn world() -> World {
    let world = world_over(&durable(), |builder| builder.proxy.inspect_bytes_max = 16 * 1024 * 1024);
    world.otherwise(|message| strict(&message.body));
    ask(&world, "s1", &[says("hello")]).await;
    world
}

/// Returns a conversation whose call is recorded. With `hurried` a placeholder answers it already.
async fn conversation(world: &World, hurried: bool) -> Vec<Value> {
    script_call(world, &calls(ID));
    let mut log = vec![says("go")];
    ask(world, "s1", &log).await;
    log.extend([calls(ID), says("is it done?")]);
    if hurried {
        ask(world, "s1", &log).await;
        log.extend([answered(), says("and now?")]);
    }
    log
}

/// Posts a result, or a correction of the result with this digest.
async fn post(world: &World, content: &str, replaces: Option<&str>) -> Answer {
    post_body(world, ID, &json!({"content": content, "replaces": replaces})).await
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
        ask(&world, "s1", &log).await;
        assert!(!last_body(&world).contains(POISON) && last_body(&world).contains("no result was recorded"));
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
            ask(&world, "s1", &log).await;
            assert_eq!(world.requests().len(), before + 1);
            assert!(!last_body(&world).contains(POISON));
        }
        // Another content needs the digest of the one that it corrects.
        assert_eq!(post(&world, FILM, None).await.status(), 409);
        assert_eq!(post(&world, FILM, Some(&"0".repeat(64))).await.status(), 409);
        let corrected = post(&world, FILM, Some(&digest)).await;
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
            ask(&world, "s1", &log).await;
            assert_eq!(copies(&world, FILM), 1, "{words}");
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
        ask(&world, "s1", &log).await;
        assert_eq!(counted(&world, "withheld"), 1);
    }
}

/// A refusal about something else is the client's, and costs the result nothing.
#[tokio::test(start_paused = true)]
async fn a_refusal_about_something_else_withholds_nothing() {
    for hurried in [false, true] {
        let world = world().await;
        let log = conversation(&world, hurried).await;
        assert_eq!(post(&world, FILM, None).await.status(), 200);
        let before = world.requests().len();
        let mut body = messages_body(&log);
        body["max_tokens"] = json!(0);
        let answer = send(&world, MESSAGES, &[("x-antiphon-session", "s1")], &body).await;
        assert_eq!(
            (answer.status(), world.requests().len()),
            (400, before + 1),
            "{}",
            answer.text()
        );
        ask(&world, "s1", &log).await;
        assert_eq!(
            (last_body(&world).contains(FILM), counted(&world, "withheld")),
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
            ask(&world, "s1", &log).await;
            let sent = last_body(&world);
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
