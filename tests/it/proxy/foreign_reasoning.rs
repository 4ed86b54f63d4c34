//! Encrypted reasoning of another organisation, in Responses and Gemini bodies.

use antiphon::policy::OnOrganisationChange;
use serde_json::{Value, json};

use crate::support::{
    pool::{family, key, keys, of_session, pooled, strangers},
    still::{Answer, Step, World, json as reply},
    wire::Message,
};

/// Encrypted content and signatures of the provider of these tests begin with this text.
const OWN: &str = "b3du";

/// Returns the words in which OpenAI refuses an input. `None` if it accepts it.
fn responses_refusal(input: &[Value]) -> Option<String> {
    let mut has_reasoning = false;
    for item in input {
        let (kind, id) = (item["type"].as_str().unwrap_or("message"), item["id"].as_str());
        match kind {
            "reasoning" => {
                has_reasoning = true;
                let content = item["encrypted_content"].as_str().unwrap_or(OWN);
                if !content.starts_with(OWN) {
                    return Some(format!(
                        "The encrypted content {}...{} could not be verified. Reason: Encrypted content could not be \
                         decrypted or parsed.",
                        &content[..4],
                        &content[content.len() - 4..]
                    ));
                }
            }
            "function_call_output" => has_reasoning = false,
            "message" if item["role"] != "assistant" => has_reasoning = false,
            _ => {
                if let Some(id) = id.filter(|_| !has_reasoning) {
                    return Some(format!(
                        "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: 'rs_1'."
                    ));
                }
            }
        }
    }
    None
}

fn judge_responses(request: &Message) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    match responses_refusal(body["input"].as_array().unwrap()) {
        Some(words) => {
            let error = json!({"error": {"message": words, "type": "invalid_request_error", "param": null,
                "code": "invalid_encrypted_content"}});
            reply(400, &error.to_string())
        }
        None => reply(
            200,
            r#"{"id":"resp_1","object":"response","status":"completed","output":[]}"#,
        ),
    }
}

/// Returns the output of one answer with two calls, their results, the last text, and words of the user.
fn turn(number: usize, content: &str) -> Vec<Value> {
    let name = |kind: &str, at: usize| format!("{kind}_{number}{at}");
    let call = |at| {
        json!({"type": "function_call", "id": name("fc", at), "call_id": name("call", at), "name": "f",
            "arguments": "{}"})
    };
    let output = |at| json!({"type": "function_call_output", "call_id": name("call", at), "output": "r"});
    let thought = |at| json!({"type": "reasoning", "id": name("rs", at), "summary": [], "encrypted_content": format!("{content}{at}==")});
    let text = json!({"type": "message", "id": name("msg", 1), "role": "assistant",
        "content": [{"type": "output_text", "text": "done"}]});
    let user = json!({"role": "user", "content": "go on"});
    vec![
        thought(1),
        call(1),
        call(2),
        output(1),
        output(2),
        thought(2),
        text,
        user,
    ]
}

fn input(turns: impl IntoIterator<Item = Vec<Value>>) -> Vec<Value> {
    let first = json!({"role": "user", "content": "go"});
    std::iter::once(first).chain(turns.into_iter().flatten()).collect()
}

fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-one\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn ask(world: &World, input: &[Value]) -> Answer {
    let body = json!({"model": "m", "input": input}).to_string();
    world.ask(request("/openai/v1/responses", &body)).await
}

/// Returns status, number of sends, and the repair header.
fn notes(answer: &Answer) -> (u16, &str, &str) {
    let note = |name| answer.header(name).unwrap_or("-");
    (answer.status(), note("x-antiphon-attempts"), note("x-antiphon-repair"))
}

/// Returns the last body upstream.
fn sent(world: &World) -> String {
    String::from_utf8(world.requests().pop().unwrap().message.body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn encrypted_reasoning_goes_with_the_ids_that_need_it() {
    let world = World::new();
    world.otherwise(judge_responses);
    let mut items = input([turn(1, "gAAAother")]);
    assert!(responses_refusal(&items).is_some(), "refused directly");
    assert_eq!(notes(&ask(&world, &items).await), (200, "2", "dropped=2"));
    let mended: Value = serde_json::from_str(&sent(&world)).unwrap();
    let mut wanted = items.clone();
    wanted.retain(|item| item["type"] != "reasoning");
    for at in [1, 2, 5] {
        wanted[at].as_object_mut().unwrap().remove("id");
    }
    assert_eq!(mended["input"], Value::from(wanted));
    // The session goes on with the organisation's own reasoning and the same bytes before it.
    let before = sent(&world);
    items.extend(turn(2, OWN));
    assert_eq!(notes(&ask(&world, &items).await), (200, "1", "dropped=2"));
    let after = sent(&world);
    assert!(after.starts_with(before.strip_suffix("]}").unwrap()), "{after}");
    assert!(after.contains("rs_21") && after.contains("fc_21"), "{after}");
}

#[tokio::test(start_paused = true)]
async fn encrypted_reasoning_of_an_open_loop_stays() {
    let world = World::new();
    world.otherwise(judge_responses);
    let mut items = input([]);
    items.extend_from_slice(&turn(1, "gAAAother")[..5]);
    let answer = ask(&world, &items).await;
    assert_eq!(notes(&answer), (400, "1", "none"));
    assert!(answer.text().contains("could not be verified"), "{}", answer.text());
    // Reasoning without encrypted content names what the provider has stored: it is never removed.
    let mut items = input([turn(1, "gAAAother")]);
    items[6].as_object_mut().unwrap().remove("encrypted_content");
    assert_eq!(notes(&ask(&world, &items).await), (200, "2", "dropped=1"));
    assert!(sent(&world).contains("rs_12") && sent(&world).contains("msg_11"));
}

/// Returns the words in which Gemini refuses contents. `None` if it accepts them.
fn gemini_refusal(contents: &[Value]) -> Option<&'static str> {
    let parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap());
    for part in parts {
        let signature = part["thoughtSignature"]
            .as_str()
            .or_else(|| part["thought_signature"].as_str());
        let is_known = |signature: &str| signature.starts_with(OWN) || signature == "skip_thought_signature_validator";
        if signature.is_some_and(|signature| !is_known(signature)) {
            return Some("Corrupted thought signature.");
        }
        if part["functionCall"].is_object() && signature.is_none() {
            return Some("Function call is missing a thought_signature in functionCall parts.");
        }
    }
    None
}

fn judge_gemini(request: &Message) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    match gemini_refusal(body["contents"].as_array().unwrap()) {
        Some(words) => {
            let error = json!({"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}});
            reply(400, &error.to_string())
        }
        None => reply(
            200,
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"ok"}]},"finishReason":"STOP"}]}"#,
        ),
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_thought_signatures_are_replaced_or_removed() {
    let world = World::new();
    world.otherwise(judge_gemini);
    let user = |text: &str| json!({"role": "user", "parts": [{"text": text}]});
    let response = json!({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "r"}}}]});
    let turn = |signature: &str| {
        vec![
            json!({"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": signature}]}),
            response.clone(),
            json!({"role": "model", "parts": [
                {"text": "done", "thought_signature": signature},
                {"text": "", "thoughtSignature": signature},
            ]}),
            user("go on"),
        ]
    };
    let ask = async |contents: &[Value]| {
        let body = json!({"contents": contents}).to_string();
        world
            .ask(request("/gemini/v1beta/models/gemini-3-pro:generateContent", &body))
            .await
    };
    let mut contents = vec![user("go")];
    contents.extend(turn("Zm9yZWlnbg=="));
    assert!(gemini_refusal(&contents).is_some(), "refused directly");
    assert_eq!(notes(&ask(&contents).await), (200, "2", "fixed=3"));
    let mended: Value = serde_json::from_str(&sent(&world)).unwrap();
    let mut wanted = contents.clone();
    wanted[1]["parts"][0]["thoughtSignature"] = "skip_thought_signature_validator".into();
    wanted[3]["parts"][0]
        .as_object_mut()
        .unwrap()
        .remove("thought_signature");
    // A part without text exists for its signature alone.
    wanted[3]["parts"][1]["thoughtSignature"] = "skip_thought_signature_validator".into();
    assert_eq!(mended["contents"], Value::from(wanted));
    let before = sent(&world);
    contents.extend(turn(OWN));
    assert_eq!(notes(&ask(&contents).await), (200, "1", "fixed=3"));
    assert!(sent(&world).starts_with(before.strip_suffix("]}").unwrap()));
    // In an open loop the provider has the last word.
    let mut contents = vec![user("go")];
    contents.extend_from_slice(&turn("b3RoZXI=")[..2]);
    assert_eq!(notes(&ask(&contents).await), (400, "1", "none"));
}

/// A lane that may leave its organisation goes on without the reasoning that the other one cannot read.
#[tokio::test(start_paused = true)]
async fn a_move_to_another_organisation_removes_its_reasoning() {
    let [a, _, c] = family().try_into().unwrap();
    for (change, profiles, wanted) in [
        (OnOrganisationChange::Move, vec![a, c], ("acc", 200, "dropped=2")),
        // With unknown organisations the lane may move, but its reasoning is not given up unless configured.
        (OnOrganisationChange::Surface, strangers("ac"), ("ac", 400, "none")),
    ] {
        let world = World::with(|builder| {
            pooled(builder, &profiles);
            builder.proxy.rotation.on_organisation_change = change;
        });
        world.otherwise(|_| reply(200, "{}"));
        let items = input([turn(1, "gAAAofA")]);
        let body = json!({"model": "m", "input": items}).to_string();
        let request = of_session("s1", "/openai/v1/responses", &[], &body);
        assert_eq!(world.ask(&request).await.status(), 200, "the first profile can read it");
        world.otherwise(|request| match key(request).as_str() {
            "a" => reply(401, r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#),
            _ => judge_responses(request),
        });
        let before = world.requests().len();
        let answer = world.ask(&request).await;
        let requests = world.requests();
        let repair = answer.header("x-antiphon-repair").unwrap();
        assert_eq!(
            (keys(&requests[before..]).as_str(), answer.status(), repair),
            wanted,
            "{change:?}"
        );
    }
}
