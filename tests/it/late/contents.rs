//! Posted contents of any shape: the provider accepts every request of the conversation.

use serde_json::{Value, json};

use crate::support::{
    judge,
    kept::durable,
    late::{FINE, answered, ask, calls, last_body, numbered_id, post_body, replies, says, script_call, verified_world},
    still::{self, Step, World},
};

/// Returns the steps of a provider that refuses what the judge refuses.
fn strict(body: &[u8]) -> Vec<Step> {
    let read = serde_json::from_slice::<Value>(body).map_err(|error| error.to_string());
    match read.and_then(|body| judge::anthropic(&body).map_err(|refusal| refusal.message)) {
        Ok(()) => still::json(200, FINE),
        Err(words) => {
            let error = json!({"type": "invalid_request_error", "message": words});
            still::json(400, &json!({"type": "error", "error": error}).to_string())
        }
    }
}

async fn world() -> World {
    let world = verified_world(&durable()).await;
    world.otherwise(|message| strict(&message.body));
    world
}

/// Posts a content as its JSON text, which may be one that no [`Value`] can represent.
async fn post_text(world: &World, id: &str, content: &str) -> u16 {
    post_body(world, id, &format!(r#"{{"content":{content}}}"#))
        .await
        .status()
}

/// Returns the messages of the last request upstream, without the closing bracket.
fn sent(world: &World) -> String {
    let body = last_body(world);
    let messages = body.split_once(r#""messages":["#).unwrap().1;
    messages
        .split_once("],\"tools\"")
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
        let (session, id) = (format!("s{}", number + 1), numbered_id(number));
        script_call(&world, &calls(&id));
        let mut log = vec![says("go")];
        ask(&world, &session, &log).await;
        assert_eq!(post_text(&world, &id, content).await, 200, "{content}");

        log.extend([calls(&id), says("is it done?")]);
        let restored = ask(&world, &session, &log).await;
        assert_eq!(restored.header("x-antiphon-repair"), Some("restored=1"), "{content}");
        let first = sent(&world);
        assert!(
            first.contains(&format!(r#""content":{wanted}}}"#)),
            "{content}: {first}"
        );

        // Every later request must contain the same bytes there.
        log.extend([replies("yes"), says("thanks")]);
        ask(&world, &session, &log).await;
        assert!(sent(&world).starts_with(&first), "{first}\n{}", sent(&world));
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
        let (session, id) = (format!("s{}", number + 1), numbered_id(number));
        let mut log = vec![says("go"), calls(&id), says("hurry")];
        ask(&world, &session, &log).await;
        assert_eq!(post_text(&world, &id, content).await, 200, "{content}");
        // Different words per round: equal words would give equal anchors.
        log.extend([answered(), says(&id)]);
        for _ in 0..2 {
            let answer = ask(&world, &session, &log).await;
            let repair = answer.header("x-antiphon-repair");
            assert_eq!(repair, Some("placeholder=1, appended=1"), "{content}");
        }
    }
}
