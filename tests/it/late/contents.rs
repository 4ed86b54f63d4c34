//! Posted contents of any shape: the provider accepts every request of the conversation.

use std::sync::Arc;

use antiphon::late::LateSettings;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    judge,
    kept::durable,
    late,
    still::{self, Answer, Step, World},
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;

/// Returns the steps of a provider that refuses what the judge refuses.
fn strict(body: &[u8]) -> Vec<Step> {
    let read = serde_json::from_slice::<Value>(body).map_err(|error| error.to_string());
    match read.and_then(|body| judge::anthropic(&body).map_err(|refusal| refusal.message)) {
        Ok(()) => still::json(200, GOOD),
        Err(words) => {
            let error = json!({"type": "invalid_request_error", "message": words});
            still::json(400, &json!({"type": "error", "error": error}).to_string())
        }
    }
}

async fn world() -> World {
    let ledger = durable();
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(&ledger);
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
    });
    world.otherwise(|message| strict(&message.body));
    ask(&world, "s0", &[says("hello")]).await;
    world
}

async fn ask(world: &World, session: &str, log: &[Value]) -> Answer {
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", session)];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let path = "/anthropic/v1/messages";
    let answer = world.ask(post_with(path, &fields, body.as_bytes())).await;
    world.settle().await;
    answer
}

async fn post(world: &World, id: &str, content: &str) -> u16 {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/result");
    let body = format!(r#"{{"content":{content}}}"#);
    world.ask(post_with(&path, &service, body.as_bytes())).await.status()
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

/// Returns the messages of the last request upstream, without the closing bracket.
fn sent(world: &World) -> String {
    let body = String::from_utf8(world.requests().pop().unwrap().message.body).unwrap();
    let messages = body.split_once(r#""messages":["#).unwrap().1;
    messages
        .split_once("],\"model\"")
        .map_or(messages, |(messages, _)| messages)
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn posted_content_of_any_shape_is_accepted_by_the_provider() {
    let contents = [
        (
            r#"{"status": "done", "url": "https://e.com"}"#,
            r#""{\"status\":\"done\",\"url\":\"https://e.com\"}""#,
        ),
        ("null", r#""null""#),
        (r#""a\ud800""#, r#""a\ufffd""#),
        (
            r#"[{"type":"image","data":"iVBORw0K","mimeType":"image/png","annotations":{"priority":1}}]"#,
            r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}]"#,
        ),
        (
            r#"[{"type":"text","text":"done","cache_control":{"type":"ephemeral"}}]"#,
            r#"[{"type":"text","text":"done"}]"#,
        ),
    ];
    let world = world().await;
    for (number, (content, wanted)) in contents.into_iter().enumerate() {
        let (session, id) = (format!("s{}", number + 1), format!("toolu_01AbC9dE3fG7hJ{number}"));
        let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
        let answer = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"});
        world.script(still::json(200, &answer.to_string()));
        let mut log = vec![says("go")];
        assert_eq!(ask(&world, &session, &log).await.status(), 200);
        assert_eq!(post(&world, &id, content).await, 200, "{content}");

        log.extend([json!({"role": "assistant", "content": [call]}), says("is it done?")]);
        let restored = ask(&world, &session, &log).await;
        assert_eq!(restored.header("x-antiphon-repair"), Some("restored=1"));
        assert_eq!(restored.status(), 200, "{content}: {}", restored.text());
        let first = sent(&world);
        assert!(
            first.contains(&format!(r#""content":{wanted}}}"#)),
            "{content}: {first}"
        );

        // Every later request must contain the same bytes there.
        log.extend([json!({"role": "assistant", "content": "yes"}), says("thanks")]);
        let later = ask(&world, &session, &log).await;
        assert_eq!(later.status(), 200, "{content}: {}", later.text());
        let history = first.strip_suffix("]}").unwrap_or(&first);
        assert!(sent(&world).starts_with(history), "{first}\n{}", sent(&world));
    }
}

/// The provider has already received a placeholder, so the result is appended to the user's message.
#[tokio::test(start_paused = true)]
async fn an_appended_result_of_any_content_is_accepted_by_the_provider() {
    let world = world().await;
    for (number, content) in [r#""a\ud800""#, r#"{"a":"\udc00"}"#, "null", r#"[{"type":"new"}]"#]
        .into_iter()
        .enumerate()
    {
        let (session, id) = (format!("s{}", number + 1), format!("toolu_01AbC9dE3fG7hJ{number}"));
        let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
        let mut log = vec![
            says("go"),
            json!({"role": "assistant", "content": [call]}),
            says("hurry"),
        ];
        assert_eq!(ask(&world, &session, &log).await.status(), 200);
        assert_eq!(post(&world, &id, content).await, 200, "{content}");
        // Different words per round: equal words would give equal anchors.
        log.extend([json!({"role": "assistant", "content": "fine"}), says(&id)]);
        for _ in 0..2 {
            let answer = ask(&world, &session, &log).await;
            assert_eq!(answer.status(), 200, "{content}: {}", answer.text());
            assert_eq!(answer.header("x-antiphon-repair"), Some("placeholder=1, appended=1"));
        }
    }
}
