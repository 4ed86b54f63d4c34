//! Answers after which nothing is sent again, and resends that do not end in a success.

use std::sync::{Arc, Mutex};

use antiphon::provider::ProviderKind;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    proxy::refusal_resends::{answer, notes, refused, refused_again, second_repairs},
    proxy::refused_ids::{MESSAGES, RESPONSES, app_as, call_item, calls, input, messages, output_item, results, user},
    support::{
        app::{before, gzipped, post},
        wire::{Conn, Upstream, chunk, spawn},
    },
};

const NAMES_CALL_9: &str = "No tool output found for function call call_9.";
const HELD: &str = r#"{"model":"m","previous_response_id":"resp_1","input":"wait"}"#;

fn refusal(tail: &str) -> String {
    json!({"error": {"message": NAMES_CALL_9}, "tail": tail}).to_string()
}

/// Returns first answers that allow no resend, and the status for the client.
fn final_answers() -> Vec<(&'static str, Vec<u8>, u16)> {
    let json = "application/json";
    let long = refusal(&"x".repeat(65 * 1024));
    let mut packed = b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n".to_vec();
    let body = gzipped(&refusal(""));
    packed.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
    packed.extend(body);
    let torn = |head: &str| format!("HTTP/1.1 400 Bad\r\ncontent-type: {json}\r\n{head}\r\n\r\n").into_bytes();
    let half = &refusal("")[..30];
    vec![
        ("large", answer(400, json, &long), 400),
        (
            "large, in chunks",
            [torn("transfer-encoding: chunked"), chunk(&long), b"0\r\n\r\n".to_vec()].concat(),
            400,
        ),
        ("no text", answer(400, "image/png", &refusal("")), 400),
        ("coded", packed, 400),
        (
            "about something else",
            answer(400, json, r#"{"error":{"message":"max_tokens: too large"}}"#),
            400,
        ),
        (
            "in a user's words",
            answer(
                400,
                json,
                &json!({"error": {"message": format!("input: {NAMES_CALL_9}")}}).to_string(),
            ),
            400,
        ),
        ("empty", answer(400, json, ""), 400),
        ("401", answer(401, json, &refusal("")), 401),
        ("404", answer(404, json, &refusal("")), 404),
        ("409", answer(409, json, &refusal("")), 409),
        ("422", answer(422, json, &refusal("")), 422),
        ("429", answer(429, json, &refusal("")), 429),
        ("500", answer(500, json, &refusal("")), 500),
        ("529", answer(529, json, &refusal("")), 529),
        ("a success", answer(200, json, &refusal("")), 200),
        (
            "a stream that fails",
            answer(
                200,
                "text/event-stream",
                &format!("event: error\ndata: {}\n\n", refusal("")),
            ),
            200,
        ),
        ("broken off", [torn("content-length: 500"), half.into()].concat(), 502),
        (
            "broken off in a chunk",
            [torn("transfer-encoding: chunked"), b"fff\r\n".to_vec(), half.into()].concat(),
            502,
        ),
    ]
}

/// Starts an upstream that gives the answers in turn and closes after each.
async fn closing_after_each(answers: Vec<Vec<u8>>) -> (Upstream, Arc<Mutex<usize>>) {
    let count = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&count);
    let upstream = Upstream::script(move |mut conn: Conn, _| {
        let (answers, seen) = (answers.clone(), Arc::clone(&seen));
        async move {
            conn.request().await;
            let number = {
                let mut seen = seen.lock().unwrap();
                *seen += 1;
                *seen - 1
            };
            conn.send(&answers[number.min(answers.len() - 1)]).await;
            conn.finish().await;
        }
    })
    .await;
    (upstream, count)
}

#[tokio::test]
async fn final_answers_cause_no_resend() {
    for (name, said, status) in final_answers() {
        let (upstream, count) = closing_after_each(vec![said.clone()]).await;
        let app = before(upstream.address).start().await;
        let got = app.ask(post("/openai/v1/responses", HELD)).await;
        assert_eq!(
            (got.status(), got.header("x-antiphon-attempts")),
            (status, Some("1")),
            "{name}: {got:?}"
        );
        assert_eq!(*count.lock().unwrap(), 1, "{name}");
        assert_eq!(second_repairs(&app, "pairing"), "0", "{name}");
        if status == 502 {
            assert_eq!(
                (got.header("x-antiphon-phase"), got.header("x-antiphon-fault")),
                (Some("body"), Some("network")),
                "{name}"
            );
        } else {
            assert!(
                said.ends_with(&got.body) || name == "large, in chunks" && got.complete,
                "{name}: {}",
                got.text()
            );
        }
    }
}

/// Second answers, and the answer that the client gets.
#[tokio::test]
async fn a_failed_resend_returns_a_provider_answer() {
    let json = "application/json";
    let first = refused(NAMES_CALL_9);
    let torn =
        "HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"error\":".as_bytes();
    let other = refused("max_output_tokens: too small");
    let rows: [(&str, Vec<u8>, &[u8], u16); 9] = [
        ("refused again in the same words", first.clone(), &first, 400),
        ("refused otherwise", other.clone(), &other, 400),
        ("limited", answer(429, json, "slow"), b"slow", 429),
        ("failed", answer(500, json, "oh"), b"oh", 500),
        ("no credit", answer(401, json, "who?"), b"who?", 401),
        ("taken", answer(200, json, "{}"), b"{}", 200),
        ("broken off", torn.to_vec(), &first, 400),
        ("no answer", Vec::new(), &first, 400),
        ("no HTTP", b"what?\r\n\r\n".to_vec(), &first, 400),
    ];
    for (name, said, wanted, status) in rows {
        let (upstream, count) = closing_after_each(vec![first.clone(), said, b"never".to_vec()]).await;
        let app = before(upstream.address).start().await;
        let got = app.ask(post("/openai/v1/responses", HELD)).await;
        assert_eq!(
            (got.status(), got.header("x-antiphon-attempts")),
            (status, Some("2")),
            "{name}: {got:?}"
        );
        assert!(
            wanted.ends_with(&got.body) && !got.body.is_empty(),
            "{name}: {}",
            got.text()
        );
        assert_eq!(*count.lock().unwrap(), 2, "{name}");
        assert_eq!(second_repairs(&app, "pairing"), "1", "{name}");
        let refused = if status == 400 { "1" } else { "0" };
        assert_eq!(refused_again(&app, "pairing"), refused, "{name}");
        assert_eq!(got.header("x-antiphon-fault"), None, "{name}");
    }
}

#[tokio::test]
async fn a_vanished_provider_leaves_its_first_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(listener);
        let mut conn = Conn::over(stream);
        conn.request().await;
        conn.send(refused(NAMES_CALL_9)).await;
        conn.finish().await;
    });
    let app = before(address).start().await;
    let got = app.ask(post("/openai/v1/responses", HELD)).await;
    assert_eq!(notes(&got), (400, "2", "none"));
    assert_eq!(got.json()["error"]["message"], NAMES_CALL_9);
    task.await.unwrap();
}

/// Refusals that name nothing repairable.
#[tokio::test]
async fn refusals_without_a_repair_are_final() {
    let thinks = json!({"type": "thinking", "thinking": "hm", "signature": "EqQBCgIYAg=="});
    let half = json!({"type": "oracle_tool_use", "id": "srvtoolu_1", "name": "oracle", "input": {}});
    let under_thinking = json!([user("go"), {"role": "assistant", "content": [thinks, half, {"type": "text", "text": "b"}]}, user("on")]);
    let whole = json!([user("go"), call_item("call_1"), output_item("call_1")]);
    let paired = json!([user("go"), calls(&["toolu_1"]), results(&["toolu_1"])]);
    let rows = [
        (
            MESSAGES,
            messages(&under_thinking),
            "`oracle` tool use with id `srvtoolu_1` was found without a corresponding `oracle_tool_result` block",
        ),
        (
            MESSAGES,
            messages(&paired),
            "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
        ),
        (
            MESSAGES,
            messages(&paired),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
        ),
        (
            MESSAGES,
            messages(&paired),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_9.",
        ),
        (
            MESSAGES,
            messages(&paired),
            "messages.1.content.0: `tool_use` ids must be unique",
        ),
        (
            RESPONSES,
            input(&whole),
            "No tool output found for function call call_9.",
        ),
        (
            RESPONSES,
            input(&whole),
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        ),
        (
            RESPONSES,
            input(&whole),
            "Duplicate item found with id fc_9. Remove duplicate items from your input and try again.",
        ),
    ];
    for (path, body, words) in rows {
        let upstream = Upstream::answering(refused(words)).await;
        let app = app_as(
            upstream.address,
            if path == MESSAGES {
                ProviderKind::Anthropic
            } else {
                ProviderKind::OpenAi
            },
        )
        .await;
        let got = app.ask(post(path, &body)).await;
        assert_eq!(notes(&got), (400, "1", "none"), "{words}");
        assert_eq!(got.json()["error"]["message"], words);
        assert_eq!(upstream.request().text(), body);
        assert_eq!(second_repairs(&app, "pairing"), "0");
    }
}
