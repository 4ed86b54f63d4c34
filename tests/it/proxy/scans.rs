//! A body is scanned once, and once more if something was inserted into it, whatever and however much that is.

use antiphon::{provider::ProviderKind, work};
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late::{
        FILM, FINE, ID, MESSAGES, ask, brings, calls, copies, last_body, messages_body, numbered_id, post, replies,
        says, send, world_over,
    },
    still::{self, Step, World},
};

const RESPONSES: &str = "/openai/v1/responses";

/// Returns the number of scans during `asked`, which one thread does.
async fn scans(asked: impl Future<Output = ()>) -> u64 {
    let before = work::parses();
    asked.await;
    work::parses() - before
}

#[tokio::test(start_paused = true)]
async fn a_body_is_scanned_once_and_again_with_a_late_result() {
    let world = world_over(&durable(), |_| ());
    let mut log = vec![says("go")];
    let asked = async |log: &[Value]| scans(async { drop(ask(&world, "s1", log).await) }).await;
    assert_eq!(asked(&log).await, 1, "healthy");
    log.push(calls(ID));
    log.push(says("and now?"));
    assert_eq!(asked(&log).await, 1, "repaired");
    log.insert(2, brings(ID, &json!("Job started")));
    log.push(replies("not yet"));
    assert_eq!(post(&world, ID, &json!(FILM)).await.status(), 200);
    log.push(says("and now?"));
    assert_eq!(asked(&log).await, 2, "with a late result");
    assert_eq!(copies(&world, FILM), 1);
}

/// Returns a call as a client of Gemini writes it, which drops the signature, and its result.
fn turn(id: &str) -> [Value; 2] {
    let call = json!({"functionCall": {"id": id, "name": "render", "args": {}}});
    let result = json!({"functionResponse": {"id": id, "name": "render", "response": {"output": "Job started: 42"}}});
    [
        json!({"role": "model", "parts": [call]}),
        json!({"role": "user", "parts": [result]}),
    ]
}

/// Returns an answer with a call and its signature.
fn signed(id: &str, signature: &str) -> Vec<Step> {
    let mut content = turn(id)[0].clone();
    content["parts"][0]["thoughtSignature"] = signature.into();
    let candidate = json!({"content": content, "finishReason": "STOP"});
    still::json(200, &json!({"candidates": [candidate]}).to_string())
}

/// Values and late results of one body cost one more scan together. Each value goes into its own message, although a late
/// result before it is a message more.
#[tokio::test(start_paused = true)]
async fn late_results_and_values_are_inserted_together() {
    let world = world_over(&durable(), |builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = ProviderKind::Gemini;
        builder.late.delivers_in_loops = true;
    });
    let mut log = vec![json!({"role": "user", "parts": [{"text": "go"}]})];
    for (number, scanned) in [1, 2, 2, 2].into_iter().enumerate() {
        let id = [ID.to_owned(), numbered_id(number)][usize::from(number > 0)].clone();
        world.script(signed(&id, &format!("signature {number}")));
        if number == 2 {
            assert_eq!(post(&world, ID, &json!(FILM)).await.status(), 200);
        }
        assert_eq!(scans(asked(&world, &log)).await, scanned, "{number}");
        log.extend(turn(&id));
    }
    let body: Value = serde_json::from_str(&last_body(&world)).unwrap();
    let shown: Vec<String> = body["contents"].as_array().unwrap().iter().map(show).collect();
    let wanted = [
        "user",
        "signature 0",
        "user",
        "signature 1",
        "user",
        "user: film",
        "signature 2",
        "user",
    ];
    assert_eq!(shown, wanted, "{body:#}");
}

async fn asked(world: &World, contents: &[Value]) {
    let body = json!({"contents": contents, "tools": [{"functionDeclarations": [{"name": "render"}]}]});
    let path = "/x/v1beta/models/gemini-3-pro:generateContent";
    let answer = send(world, path, &[("x-antiphon-session", "s1")], &body).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Returns the role of a message, or its signature if it has one, and a mark if it has the late result.
fn show(message: &Value) -> String {
    let film = if message.to_string().contains(FILM) {
        ": film"
    } else {
        ""
    };
    let signature = message.pointer("/parts/0/thoughtSignature");
    format!(
        "{}{film}",
        signature.unwrap_or_else(|| &message["role"]).as_str().unwrap()
    )
}

/// The user that a body names must be known before the body is read: the scan for that is the only one.
#[tokio::test(start_paused = true)]
async fn a_body_that_names_its_user_is_scanned_once_too() {
    let world = world_over(&durable(), |builder| builder.proxy.principals.trust_body_user = true);
    let text = "No tool output found for function call call_9AbC12dE34.";
    let refused = json!({"error": {"message": text, "type": "invalid_request_error"}}).to_string();
    let fine = json!({"id": "resp_1", "object": "response", "status": "completed", "output": []}).to_string();
    let body = |more: Value| {
        let mut body = json!({"model": "m", "safety_identifier": "u-1", "input": [says("hello")]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let asked = async |body: String| {
        let fields = [("authorization", "Bearer sk-one")];
        let answer = world.ask(post_with(RESPONSES, &fields, body.as_bytes())).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        world.settle().await;
    };
    let continued = body(json!({"previous_response_id": "resp_1"}));
    world.script(still::json(200, &fine));
    asked(body(json!({}))).await;
    // The refusal teaches a fact about the user.
    world.script(still::json(400, &refused));
    world.script(still::json(200, &fine));
    asked(continued.clone()).await;
    world.script(still::json(200, &fine));
    assert_eq!(scans(asked(continued)).await, 1);
    assert!(last_body(&world).contains("call_9AbC12dE34"), "the fact is used");
    world.script(still::json(200, FINE));
    let messages = messages_body(&[says("go")]).to_string();
    let named = messages.replacen('{', r#"{"metadata":{"user_id":"u-1"},"#, 1);
    let other = async {
        let answer = world
            .ask(post_with(MESSAGES, &[("x-api-key", "sk-one")], named.as_bytes()))
            .await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    };
    assert_eq!(scans(other).await, 1);
}
