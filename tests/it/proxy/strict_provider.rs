//! Self-test of the strict provider: refusals in the provider's shape, plausible answers, and a record of every byte.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::provider::{Provider, Reply};

/// Sends one request over its own socket. Returns the status and the bytes after the head.
pub(crate) async fn post(provider: &Provider, path: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(provider.address()).await.expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.expect("the head");
    socket.write_all(body.as_bytes()).await.expect("the body");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
    (
        head.split(' ').nth(1).expect("a status").parse().expect("a number"),
        rest.to_owned(),
    )
}

#[tokio::test]
async fn messages_are_judged_answered_and_recorded() {
    let provider = Provider::start().await;
    let body = "{\"model\" : \"m\",\r\n \"messages\": [ {\"role\":\"user\",\"content\":\"go\"} ]}";
    let (status, answer) = post(&provider, "/v1/messages?beta=true", body).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(
        (status, &answer["type"], &answer["model"]),
        (200, &json!("message"), &json!("m"))
    );
    let seen = provider.last();
    assert_eq!(
        (seen.path.as_str(), &seen.body[..]),
        ("/v1/messages?beta=true", body.as_bytes())
    );

    let (status, answer) = post(&provider, "/v1/messages/count_tokens", body).await;
    assert_eq!(status, 200);
    assert!(answer.contains("input_tokens"), "{answer}");

    let call = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{}}"#;
    let broken = format!(
        r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":[{call}]}}],"stream":true}}"#
    );
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let (status, answer) = post(&provider, path, &broken).await;
        let answer: Value = serde_json::from_str(&answer).expect("JSON, though a stream was asked for");
        assert_eq!(
            (status, &answer["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
        assert!(
            answer["error"]["message"]
                .as_str()
                .expect("words")
                .contains("immediately after: toolu_1.")
        );
    }
}

#[tokio::test]
async fn streams_contain_every_event() {
    let provider = Provider::start().await;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}"#;
    provider.reply(Reply::call("toolu_9", "f", json!({"a": 1})));
    let (status, answer) = post(&provider, "/v1/messages", body).await;
    assert_eq!(status, 200);
    let parts = [
        "event: message_start\n",
        "toolu_9",
        "input_json_delta",
        "\"tool_use\"",
        "event: message_stop\n",
    ];
    for part in parts {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let (status, answer) = post(&provider, "/v1/chat/completions", body).await;
    assert_eq!(status, 200);
    assert!(
        answer.contains("chat.completion.chunk") && answer.ends_with("data: [DONE]\n\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn chat_is_judged_and_the_rest_is_not_found() {
    let provider = Provider::start().await;
    let broken =
        r#"{"model":"m","messages":[{"role":"user","content":"go"},{"role":"tool","tool_call_id":"x","content":"r"}]}"#;
    let (status, answer) = post(&provider, "/v1/chat/completions", broken).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 400);
    assert!(
        answer["error"]["message"]
            .as_str()
            .expect("words")
            .contains("preceeding message with 'tool_calls'")
    );
    assert_eq!(post(&provider, "/v1/chat/completions", "{").await.0, 400);
    assert_eq!(post(&provider, "/v1/embeddings", "{}").await.0, 404);
    provider.reply(Reply::Status(429, json!({"error": {"message": "slow down"}})));
    let body = r#"{"model":"m","messages":[{"role":"user","content":"go"}]}"#;
    assert_eq!(post(&provider, "/v1/chat/completions", body).await.0, 429);
    assert_eq!(post(&provider, "/v1/chat/completions", body).await.0, 200);
    assert_eq!(provider.seen().len(), 5);
}

const RESPONSES: &str = r#"{"model":"m","input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}OUTPUT]STREAM}"#;
const GEMINI: &str = r#"{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}SIGNATURE}]},{"role":"user","parts":[ANSWER]}]}"#;

/// Returns a Responses body whose call is answered or not.
fn responses(answered: bool, streams: bool) -> String {
    let output = r#",{"type":"function_call_output","call_id":"call_1","output":"r"}"#;
    let stream = if streams { r#","stream":true"# } else { "" };
    RESPONSES
        .replace("OUTPUT", if answered { output } else { "" })
        .replace("STREAM", stream)
}

/// Returns a Gemini body whose call is answered or not, and signed or not.
fn gemini(answered: bool, signed: bool) -> String {
    let answer = r#"{"functionResponse":{"name":"f","response":{}}}"#;
    let signature = if signed { r#","thoughtSignature":"QUFB""# } else { "" };
    GEMINI
        .replace("ANSWER", if answered { answer } else { r#"{"text":"hurry"}"# })
        .replace("SIGNATURE", signature)
}

#[tokio::test]
async fn responses_are_judged_at_every_path() {
    let provider = Provider::start().await;
    let paths = [
        ("/v1/responses", "\"object\":\"response\""),
        ("/v1/responses/compact", "output"),
        ("/v1/responses/input_tokens", "input_tokens"),
    ];
    for (path, part) in paths {
        let (status, answer) = post(&provider, path, &responses(true, false)).await;
        assert_eq!(status, 200, "{path}: {answer}");
        assert!(answer.contains(part), "{path}: {answer}");
        let (status, answer) = post(&provider, path, &responses(false, true)).await;
        let answer: Value = serde_json::from_str(&answer).expect("JSON, though a stream was asked for");
        let wanted = json!({"message": "No tool output found for function call call_1.",
            "type": "invalid_request_error", "param": "input", "code": null});
        assert_eq!((status, &answer["error"]), (400, &wanted), "{path}");
    }
    let lone = r#"{"items":[{"type":"function_call_output","call_id":"call_1","output":"r"}]}"#;
    assert_eq!(post(&provider, "/v1/conversations/conv_1/items", lone).await.0, 200);
    let open = r#"{"items":[{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}]}"#;
    assert_eq!(post(&provider, "/v1/conversations/conv_1/items", open).await.0, 400);

    provider.reply(Reply::call("call_9", "f", json!({"a": 1})));
    let (status, answer) = post(&provider, "/v1/responses", &responses(true, true)).await;
    assert_eq!(status, 200);
    let parts = [
        "event: response.created\n",
        "response.function_call_arguments.delta",
        "\"call_id\":\"call_9\"",
        "event: response.completed\n",
    ];
    for part in parts {
        assert!(answer.contains(part), "{part} in {answer}");
    }
}

#[tokio::test]
async fn responses_may_be_read_as_another_server_reads_them() {
    let provider = Provider::reading(&["openai-responses-deepseek".parse().expect("a wire")]).await;
    let (status, answer) = post(&provider, "/v1/responses", &responses(false, false)).await;
    assert_eq!(status, 400);
    assert!(
        answer.contains("No tool output found for tool call call_1."),
        "{answer}"
    );
}

#[tokio::test]
async fn gemini_is_judged_at_every_path() {
    let provider = Provider::start().await;
    let model = "/v1beta/models/gemini-2.5-pro";
    let vertex = "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro";
    let paths = [
        (format!("{model}:generateContent"), "candidates"),
        (format!("{vertex}:generateContent"), "candidates"),
        (format!("{model}:streamGenerateContent"), "candidates"),
        (format!("{model}:countTokens"), "totalTokens"),
    ];
    for (path, part) in &paths {
        let (status, answer) = post(&provider, path, &gemini(true, false)).await;
        assert_eq!(status, 200, "{path}: {answer}");
        assert!(answer.contains(part), "{path}: {answer}");
        let (status, answer) = post(&provider, path, &gemini(false, false)).await;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let error = &answer["error"];
        assert_eq!(
            (status, &error["code"], &error["status"]),
            (400, &json!(400), &json!("INVALID_ARGUMENT")),
            "{path}"
        );
        let words = error["message"].as_str().expect("words");
        assert!(
            words.contains("the number of function response parts"),
            "{path}: {words}"
        );
    }
    let counted = |answered| format!(r#"{{"generateContentRequest":{}}}"#, gemini(answered, false));
    let assist = |answered| format!(r#"{{"model":"gemini-2.5-pro","request":{}}}"#, gemini(answered, false));
    let batch = |answered| {
        let entry = gemini(answered, false);
        format!(r#"{{"batch":{{"inputConfig":{{"requests":{{"requests":[{{"request":{entry}}}]}}}}}}}}"#)
    };
    let wraps: [(String, &dyn Fn(bool) -> String); 3] = [
        (format!("{model}:countTokens"), &counted),
        ("/v1internal:generateContent".to_owned(), &assist),
        (format!("{model}:batchGenerateContent"), &batch),
    ];
    for (path, wrap) in wraps {
        assert_eq!(post(&provider, &path, &wrap(true)).await.0, 200, "{path}");
        assert_eq!(post(&provider, &path, &wrap(false)).await.0, 400, "{path}");
    }
    assert_eq!(post(&provider, &format!("{model}:embedContent"), "{}").await.0, 404);
}

#[tokio::test]
async fn the_model_in_the_path_requires_signatures() {
    let provider = Provider::start().await;
    let path = "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse";
    let (status, answer) = post(&provider, path, &gemini(true, false)).await;
    assert_eq!(status, 400);
    assert!(answer.contains("missing a thought_signature"), "{answer}");
    let (status, answer) = post(&provider, path, &gemini(true, true)).await;
    assert_eq!(status, 200);
    assert!(
        answer.starts_with("data: {") && answer.contains("finishReason"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_batch_is_judged_entry_by_entry() {
    let provider = Provider::start().await;
    let batch = |blocks: &str| {
        format!(
            r#"{{"requests":[{{"custom_id":"c","params":{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":{blocks}}}]}}}}]}}"#
        )
    };
    let call = r#"[{"type":"tool_use","id":"toolu_1","name":"f","input":{}}]"#;
    assert_eq!(post(&provider, "/v1/messages/batches", &batch("\"done\"")).await.0, 200);
    let (status, answer) = post(&provider, "/v1/messages/batches", &batch(call)).await;
    assert_eq!(status, 400);
    assert!(answer.contains("immediately after: toolu_1."), "{answer}");
}

/// The call is in no request, only in the earlier answer. Only the refusal names it.
#[tokio::test]
async fn a_remote_call_requires_its_output() {
    let provider = Provider::start().await;
    provider.reply(Reply::call("call_9", "f", json!({})));
    let (_, answer) = post(&provider, "/v1/responses", r#"{"model":"m","input":"go"}"#).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let next = |input: Value| json!({"model": "m", "previous_response_id": answer["id"], "input": input}).to_string();
    let words = json!({"role": "user", "content": "wait"});
    let output = json!({"type": "function_call_output", "call_id": "call_9", "output": "r"});
    for input in [json!("wait"), json!([words])] {
        let (status, answer) = post(&provider, "/v1/responses", &next(input)).await;
        assert_eq!(status, 400);
        assert!(
            answer.contains("No tool output found for function call call_9."),
            "{answer}"
        );
    }
    let (status, _) = post(&provider, "/v1/responses", &next(json!([output, words]))).await;
    assert_eq!(status, 200);
}
