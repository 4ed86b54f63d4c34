//! The modes on a broken history, seen from both ends of the wire.

use std::io::Write;

use antiphon::repair::Mode;
use serde_json::{Value, json};

use crate::support::{
    app::{before, post, post_with},
    pool,
    wire::{Message, Upstream},
};

/// A call without a result, followed by user text.
const ANTHROPIC: &str = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"go"},
 {"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"ls","input":{}}]},
 {"role":"user","content":"are you there?"}]}"#;
const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"go"},
 {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"ls","arguments":"{}"}}]},
 {"role":"user","content":"are you there?"}]}"#;

#[tokio::test]
async fn a_call_without_a_result_gets_a_placeholder() {
    for (path, body, id) in [
        ("/anthropic/v1/messages", ANTHROPIC, "toolu_1"),
        ("/openai/v1/chat/completions", CHAT, "call_1"),
    ] {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).start().await;
        let answer = app.ask(post(path, body)).await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-repair")),
            (200, Some("placeholder=1")),
            "{answer:?}"
        );
        let request = upstream.request();
        assert_eq!(
            request.header("content-length"),
            Some(request.body.len().to_string().as_str())
        );
        assert_eq!(request.text().matches(id).count(), 2, "{}", request.text());
        assert_eq!(request.text()[..60], body[..60]);
        assert_eq!(request.json()["messages"][0], json!({"role": "user", "content": "go"}));
    }
}

#[tokio::test]
async fn an_edited_body_is_sent_without_its_content_coding() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(ANTHROPIC.as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let answer = app.ask([head.as_bytes(), &body].concat()).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("placeholder=1"));
    let request = upstream.request();
    assert_eq!(request.header("content-encoding"), None);
    assert_eq!(request.text().matches("toolu_1").count(), 2);
}

#[tokio::test]
async fn a_strict_route_lists_every_finding_in_the_providers_shape() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).mode(Mode::Strict).start().await;
    let strict = |answer: &Message| {
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-repair")),
            (400, Some("rejected")),
            "{answer:?}"
        );
        assert_eq!(answer.header("x-antiphon-fault"), Some("client"));
        answer.json()
    };
    let error = strict(&app.ask(post("/anthropic/v1/messages", ANTHROPIC)).await);
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&json!("error"), &json!("invalid_request_error"))
    );
    let message = "messages[1].content[0]: the tool call has no result where one is due (toolu_1)";
    assert_eq!(error["error"]["message"], message);
    let finding = json!({"kind": "unanswered", "within": "", "message": 1, "part": 0, "id": "toolu_1", "detail": null});
    assert_eq!(error["antiphon"]["findings"], json!([finding]));
    let error = strict(&app.ask(post("/openai/v1/chat/completions", CHAT)).await);
    assert_eq!(error["error"]["code"], "rejected");
    let message = "messages[1].tool_calls[0]: the tool call has no result where one is due (call_1)";
    assert_eq!(error["error"]["message"], message);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn observed_and_signed_bodies_are_not_changed() {
    let signed = "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=x\r\n\r\n";
    for (mode, line, repair) in [
        (Mode::Observe, "\r\n\r\n", "observed"),
        (Mode::Repair, signed, "observed; reason=signed"),
    ] {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).mode(mode).start().await;
        let answer = app
            .ask(post("/anthropic/v1/messages", ANTHROPIC).replacen("\r\n\r\n", line, 1))
            .await;
        assert_eq!(answer.header("x-antiphon-repair"), Some(repair));
        assert_eq!(upstream.request().text(), ANTHROPIC);
    }
}

/// Every scheme that signs the body. `Authorization` and the query are those of the client.
#[tokio::test]
async fn a_body_with_any_signature_is_not_changed() {
    let amazon = "Credential=x, SignedHeaders=host, Signature=y";
    let in_query = "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=x&X-Amz-Signature=y";
    let many_regions = "?X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Signature=y";
    let oracle = r#"version="1",headers="date (request-target) host x-content-sha256",signature="y""#;
    for (query, fields) in [
        ("", vec![("Authorization", format!("AWS4-HMAC-SHA256 {amazon}"))]),
        ("", vec![("Authorization", format!("AWS4-ECDSA-P256-SHA256 {amazon}"))]),
        ("", vec![("authorization", format!("aws4-ecdsa-p256-sha256 {amazon}"))]),
        (in_query, vec![]),
        (many_regions, vec![]),
        ("?x=1&x-amz-signature=y", vec![]),
        ("?X%2DAmz%2DSignature=y", vec![]),
        ("", vec![("Authorization", format!("Signature {oracle}"))]),
        (
            "",
            vec![
                ("Signature-Input", "a=(\"content-digest\")".to_owned()),
                ("Signature", "a=:y:".to_owned()),
            ],
        ),
    ] {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).start().await;
        let path = format!("/anthropic/v1/messages{query}");
        let answer = app.ask(post_with(&path, &fields, ANTHROPIC.as_bytes())).await;
        let words = answer.header("x-antiphon-repair");
        assert_eq!(words, Some("observed; reason=signed"), "{query} {fields:?}");
        assert_eq!(upstream.request().text(), ANTHROPIC);
    }
    // Neither a name that only looks like one nor a bearer token is a signature.
    for (query, value) in [
        ("?X-Amz-Date=y&signature=z", "Bearer AWS4-HMAC-SHA256"),
        ("?max-amz-signature=y", "AWS4x"),
        ("", "Signatures a"),
    ] {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).start().await;
        let path = format!("/anthropic/v1/messages{query}");
        let answer = app
            .ask(post_with(&path, &[("authorization", value)], ANTHROPIC.as_bytes()))
            .await;
        assert_eq!(
            answer.header("x-antiphon-repair"),
            Some("placeholder=1"),
            "{query} {value}"
        );
    }
}

/// A profile of the proxy replaces a signature in `Authorization` by its own. What else the client has signed stays.
#[tokio::test]
async fn with_a_profile_only_an_ordinary_signature_is_replaced() {
    let ordinary = "AWS4-HMAC-SHA256 Credential=x, Signature=y";
    let many_regions = "AWS4-ECDSA-P256-SHA256 Credential=x, Signature=y";
    for (query, value, words) in [
        ("", ordinary, "placeholder=1"),
        ("", many_regions, "observed; reason=signed"),
        (
            "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=y",
            "",
            "observed; reason=signed",
        ),
    ] {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).with(|builder| {
            builder.profiles.insert("anthropic".to_owned(), pool::strangers("a"));
        });
        let app = app.start().await;
        let path = format!("/anthropic/v1/messages{query}");
        let answer = app
            .ask(post_with(&path, &[("authorization", value)], ANTHROPIC.as_bytes()))
            .await;
        assert_eq!(answer.header("x-antiphon-repair"), Some(words), "{query} {value}");
        assert_eq!(upstream.request().text() == ANTHROPIC, words.starts_with("observed"));
        assert_eq!(
            pool::key(&upstream.request()),
            "a",
            "the client's own signature is not sent"
        );
    }
}

#[tokio::test]
async fn a_rejection_of_ten_thousand_findings_stays_short() {
    let calls: Vec<Value> = (0..10_000)
        .map(|number| json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": "ls", "input": {}}))
        .collect();
    let body = json!({"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": calls}]});
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).mode(Mode::Strict).start().await;
    let answer = app.ask(post("/anthropic/v1/messages", &body.to_string())).await;
    let error = answer.json();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("; and 9950 more"), "{message}");
    assert_eq!(error["antiphon"]["findings"].as_array().unwrap().len(), 1000);
}

/// Two calls of one id, each with its result. The second id gets replaced.
const TWICE: &str = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"go"},
 {"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"a","input":{}},{"type":"tool_use","id":"toolu_1","name":"b","input":{}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x"},{"type":"tool_result","tool_use_id":"toolu_1","content":"y"}]}]}"#;

#[tokio::test]
async fn a_400_about_a_replaced_id_names_the_clients_own() {
    for (kind, mapped) in [("application/json", true), ("text/plain", true), ("image/png", false)] {
        let upstream = Upstream::script(move |mut conn, _| async move {
            while conn.is_open().await {
                let request = conn.request().await.json();
                let ids = request["messages"][1]["content"][1]["id"].as_str().unwrap().to_owned();
                assert_ne!(ids, "toolu_1");
                let body =
                    json!({"type": "error", "error": {"message": format!("messages.1: {ids} is odd")}}).to_string();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 400 Bad Request\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
                conn.send(head + &body).await;
            }
        })
        .await;
        let app = before(upstream.address).start().await;
        let answer = app.ask(post("/anthropic/v1/messages", TWICE)).await;
        assert_eq!(answer.status(), 400);
        assert!(
            answer
                .header("x-antiphon-repair")
                .is_some_and(|repair| repair.contains("renamed=1")),
            "{answer:?}"
        );
        assert_eq!(
            answer.text().contains("messages.1: toolu_1 is odd"),
            mapped,
            "{}",
            answer.text()
        );
    }
}

/// One message lists every finding by its place in the original body, in each format's error shape.
#[tokio::test]
async fn a_strict_route_names_places_in_every_format() {
    let rows = [
        (
            "/anthropic/v1/messages/batches",
            r#"{"requests":[{"custom_id":"a","params":{"messages":[]}},{"custom_id":"b","params":{"messages":[{"role":"user","content":"go"},
             {"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"a","input":{}}]}]}}]}"#,
            "requests[1].params.messages[1].content[0]: the tool call has no result where one is due (toolu_1)",
        ),
        (
            "/openai/v1/responses",
            r#"{"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"call_1","name":"a","arguments":"{}"}]}"#,
            "input[1]: the tool call has no result where one is due (call_1)",
        ),
        (
            "/gemini/v1beta/models/m:countTokens",
            r#"{"generateContentRequest":{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"a"}}]},
             {"role":"user","parts":[{"text":"hurry"}]}]}}"#,
            "generateContentRequest.contents[1].parts[0]: the tool call has no result where one is due",
        ),
    ];
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).mode(Mode::Strict).start().await;
    for (path, body, wanted) in rows {
        let answer = app.ask(post(path, body)).await;
        assert_eq!(answer.status(), 400, "{path}");
        let error = answer.json();
        assert_eq!(error["error"]["message"], wanted, "{path}: {error}");
        assert_eq!(error["antiphon"]["findings"].as_array().unwrap().len(), 1, "{path}");
    }
}
