//! Resends after a refusal: one more send if the 400 names something repairable, none otherwise.

use antiphon::{proxy::OnBindingError, repair::Mode};
use serde_json::{Value, json};

use crate::support::{
    app::{App, before, gzipped, post, post_with},
    provider::{Provider, Reply, Seen},
    wire::{Message, Upstream},
};

/// Headers of the client, including a credential.
const FIELDS: &[(&str, &str)] = &[
    ("Authorization", "Bearer sk-canary"),
    ("OpenAI-Organization", "org-1"),
    ("X-Stainless-Retry-Count", "0"),
];
const PLACEHOLDER: &str = "[antiphon: no result was recorded for this tool call; its outcome is unknown. The tool may \
                           have run: check before running it again.]";

/// Returns the count of resends for this reason.
pub(crate) fn second_repairs(app: &App, why: &str) -> String {
    counted(app, "second_repairs", why)
}

/// Returns the count of resends that the provider refused again.
pub(crate) fn refused_again(app: &App, why: &str) -> String {
    counted(app, "second_repairs_refused", why)
}

fn counted(app: &App, name: &str, why: &str) -> String {
    let line = format!("antiphon_{name}_total{{why=\"{why}\"}} ");
    let page = app.telemetry.encode_metrics();
    let found = page.lines().find_map(|known| known.strip_prefix(&line));
    found.expect("the counter").to_owned()
}

/// Returns status, number of sends, and the repair header.
pub(crate) fn notes(answer: &Message) -> (u16, &str, &str) {
    let note = |name| answer.header(name).unwrap_or("-");
    (answer.status(), note("x-antiphon-attempts"), note("x-antiphon-repair"))
}

/// Returns the headers except those that describe the body.
fn fields(seen: &Seen) -> Vec<(String, Vec<u8>)> {
    let fields = seen.headers.iter();
    let others = fields.filter(|(name, _)| !["content-length", "content-encoding"].contains(&name.as_str()));
    others
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect()
}

/// Starts a provider with an open call, and returns a body in which the user talks instead of answering it.
async fn open_call(input: &Value, streams: bool) -> (Provider, String) {
    let provider = Provider::start().await;
    provider.reply(Reply::call("call_9", "f", json!({})));
    let app = before(provider.address()).start().await;
    let answer = app
        .ask(post("/openai/v1/responses", r#"{"model":"m","input":"go"}"#))
        .await;
    let body = json!({"model": "m", "previous_response_id": answer.json()["id"], "input": input, "stream": streams});
    (provider, body.to_string())
}

/// Sequence 11.
#[tokio::test]
async fn a_remote_call_is_answered_after_the_refusal_names_it() {
    let words = json!([{"role": "user", "content": "wait"}, {"role": "user", "content": "now"}]);
    for input in [json!("wait \"now\""), words, json!([])] {
        for (streams, coded) in [(false, false), (true, false), (false, true), (true, true)] {
            let (provider, body) = open_call(&input, streams).await;
            let app = before(provider.address()).start().await;
            let (mut sent, mut head) = (body.clone().into_bytes(), FIELDS.to_vec());
            if coded {
                sent = gzipped(&body);
                head.push(("Content-Encoding", "gzip"));
            }
            let answer = app.ask(post_with("/openai/v1/responses", &head, &sent)).await;
            assert_eq!(notes(&answer), (200, "2", "placeholder=1"), "{}", answer.text());
            assert_eq!(answer.all("x-antiphon-request-id").len(), 1);
            assert_eq!(
                answer.text().contains("event: response.completed\n"),
                streams,
                "{}",
                answer.text()
            );
            assert_eq!(
                (second_repairs(&app, "pairing"), second_repairs(&app, "binding")),
                ("1".into(), "0".into())
            );
            assert_eq!(refused_again(&app, "pairing"), "0");
            let page = app.telemetry.encode_metrics();
            for line in [
                "antiphon_repairs_total{action=\"placeholder\",format=\"openai_responses\"} 1",
                "antiphon_findings_total{kind=\"unanswered\",format=\"openai_responses\"} 1",
                "antiphon_overhead_seconds_count 1",
                "antiphon_upstream_duration_seconds_count{phase=\"headers\"} 1",
                "antiphon_upstream_duration_seconds_count{phase=\"first_byte\"} 1",
                "antiphon_inflight_requests 0",
            ] {
                assert!(page.lines().any(|known| known == line), "{line}\n{page}");
            }
            let unconnected = "antiphon_upstream_duration_seconds_count{phase=\"connect\"} 0";
            assert!(!page.contains(unconnected), "{page}");

            let seen = provider.seen();
            let [_, first, second] = seen.as_slice() else {
                panic!("{} requests", seen.len())
            };
            assert_eq!((first.status.as_u16(), second.status.as_u16()), (400, 200));
            assert_eq!(first.body, sent, "the first send is what came");
            assert_eq!((fields(first), &first.path), (fields(second), &second.path));
            assert_eq!(second.headers["authorization"], "Bearer sk-canary");
            assert!(!second.headers.contains_key("content-encoding"));
            assert_eq!(second.headers["content-length"], second.body.len().to_string());
            let mut wanted: Value = serde_json::from_str(&body).unwrap();
            let output = json!({"type": "function_call_output", "call_id": "call_9", "output": PLACEHOLDER});
            let user = json!([{"type": "message", "role": "user", "content": input}]);
            let rest = if input.is_string() { &user } else { &input };
            wanted["input"] = [vec![output], rest.as_array().unwrap().clone()].concat().into();
            assert_eq!(serde_json::from_slice::<Value>(&second.body).unwrap(), wanted);
        }
    }
}

#[tokio::test]
async fn strict_observed_and_signed_requests_are_not_resent() {
    let signed = ("Authorization", "AWS4-HMAC-SHA256 Credential=x");
    for (mode, field) in [
        (Mode::Strict, FIELDS[0]),
        (Mode::Observe, FIELDS[0]),
        (Mode::Repair, signed),
    ] {
        for streams in [false, true] {
            let (provider, body) = open_call(&json!("wait"), streams).await;
            let app = before(provider.address()).mode(mode).start().await;
            let answer = app
                .ask(post_with("/openai/v1/responses", &[field], body.as_bytes()))
                .await;
            let error = answer.json();
            assert_eq!(
                (answer.status(), answer.header("x-antiphon-attempts")),
                (400, Some("1"))
            );
            assert_eq!(
                error["error"]["message"], "No tool output found for function call call_9.",
                "{error}"
            );
            assert_eq!(provider.seen().len(), 2, "{}", mode.label());
            assert_eq!(provider.last().body, body);
            assert_eq!(second_repairs(&app, "pairing"), "0");
        }
    }
}

/// A policy without inventions inserts no placeholder after a refusal either.
#[tokio::test]
async fn without_inventions_a_remote_call_is_not_resent() {
    let (provider, body) = open_call(&json!("wait"), false).await;
    let app = before(provider.address())
        .with(|builder| builder.proxy.policy.least_safe = antiphon::repair::Applicability::Salvage)
        .start()
        .await;
    let answer = app.ask(post("/openai/v1/responses", &body)).await;
    assert_eq!(notes(&answer), (400, "1", "none"));
    assert_eq!(provider.seen().len(), 2);
}

/// Sequence 10, and refusals of threads that are not about pairing.
#[tokio::test]
async fn a_continued_thread_is_sent_once_and_unchanged() {
    let body = r#"{"model":"m","max_tokens":9,"thread":{"type":"continue","previous_message_id":"msg_1"},
      "messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"r"}]}]}"#;
    let taken = answer(200, "application/json", r#"{"type":"message"}"#);
    let gone = |code: &str| {
        let words = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "thread",
            "details": {"error_code": code}}});
        answer(400, "application/json", &words.to_string())
    };
    let rows = [
        taken,
        gone("thread_already_continued"),
        gone("thread_not_found"),
        gone("thread_continue_in_flight"),
    ];
    for said in rows {
        let upstream = Upstream::answering(said.clone()).await;
        let app = before(upstream.address).start().await;
        let got = app.ask(post("/anthropic/v1/messages", body)).await;
        assert_eq!(upstream.request().text(), body);
        assert!(said.ends_with(&got.body) && !got.body.is_empty());
        assert_eq!(
            (got.header("x-antiphon-attempts"), got.header("x-antiphon-repair")),
            (Some("1"), Some("none"))
        );
    }
}

/// Returns an answer with a body.
pub(crate) fn answer(status: u16, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Returns a 400 in OpenAI's words.
pub(crate) fn refused(words: &str) -> Vec<u8> {
    let error = json!({"error": {"message": words, "type": "invalid_request_error", "param": "input", "code": null}});
    answer(400, "application/json", &error.to_string())
}

/// Returns a body with one id for the calls of two turns, which some providers refuse.
pub(crate) fn twice(id: &str) -> String {
    let turn = |text: &str| {
        json!([{"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}])
    };
    let turns: Vec<Value> = [turn("one"), turn("two")]
        .iter()
        .flat_map(|turn| turn.as_array().unwrap().clone())
        .collect();
    let messages = [vec![json!({"role": "user", "content": "go"})], turns].concat();
    json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string()
}

fn ids(request: &Message) -> Vec<String> {
    let body = request.json();
    let id = |at: usize, key: &str| body["messages"][at]["content"][0][key].as_str().unwrap().to_owned();
    vec![id(1, "id"), id(2, "tool_use_id"), id(3, "id"), id(4, "tool_use_id")]
}

#[tokio::test]
async fn an_upstream_that_requires_unique_ids_is_remembered() {
    let minds = refused("messages.3.content.0: `tool_use` ids must be unique");
    let taken = answer(200, "application/json", "{}");
    let odd = refused("messages.3: toolu_1_2 is odd, toolu_1 is not");
    let upstream = Upstream::answering_each([minds, taken.clone(), taken.clone(), odd]).await;
    let easy = Upstream::answering(taken).await;
    let app = before(upstream.address)
        .with(|builder| {
            let mut other = builder.upstreams[0].clone();
            other.name = "easy".to_owned();
            other.authority = easy.address.to_string().parse().unwrap();
            builder.upstreams.push(other);
            builder.proxy.on_binding_error = OnBindingError::Surface;
        })
        .start()
        .await;
    let first = app.ask(post("/anthropic/v1/messages", &twice("toolu_1"))).await;
    assert_eq!(notes(&first), (200, "2", "renamed=1"), "{first:?}");
    let second = app.ask(post("/anthropic/v1/messages", &twice("toolu_1"))).await;
    assert_eq!(notes(&second), (200, "1", "renamed=1"));
    let third = app.ask(post("/anthropic/v1/messages", &twice("toolu_1"))).await;
    // Once more without the rule, and the upstream has no other answer to that.
    assert_eq!(notes(&third), (400, "2", "renamed=1"));
    assert_eq!(
        third.json()["error"]["message"],
        "messages.3: toolu_1 is odd, toolu_1 is not"
    );
    let seen = upstream.requests();
    assert_eq!(seen.len(), 5);
    for request in [&seen[0], &seen[4]] {
        assert_eq!(request.text(), twice("toolu_1"));
    }
    for request in &seen[1..4] {
        assert_eq!(ids(request), ["toolu_1", "toolu_1", "toolu_1_2", "toolu_1_2"]);
    }
    assert_eq!(seen[1].body, seen[2].body, "the same body goes up in the same bytes");
    let other = app.ask(post("/easy/v1/messages", &twice("toolu_1"))).await;
    assert_eq!(notes(&other), (200, "1", "none"));
    assert_eq!(easy.request().text(), twice("toolu_1"));
}

/// Providers quote unknown member names, so a client could forge the words of a refusal.
#[tokio::test]
async fn a_forged_refusal_does_not_affect_other_requests() {
    let echo = refused("messages.0.x: tool_use ids must be unique: Extra inputs are not permitted");
    let taken = answer(200, "application/json", "{}");
    let upstream = Upstream::answering_each([echo, taken]).await;
    let app = before(upstream.address).start().await;
    let sent = twice("toolu_1").replacen(
        "\"content\":\"go\"",
        "\"content\":\"go\",\"x: tool_use ids must be unique\":1",
        1,
    );
    assert_ne!(sent, twice("toolu_1"));
    let poisoned = app.ask(post("/anthropic/v1/messages", &sent)).await;
    assert_eq!(
        (poisoned.status(), poisoned.header("x-antiphon-attempts")),
        (400, Some("1"))
    );
    let innocent = app.ask(post("/anthropic/v1/messages", &twice("toolu_1"))).await;
    assert_eq!(notes(&innocent), (200, "1", "none"));
    assert_eq!(upstream.requests()[1].text(), twice("toolu_1"));
}
