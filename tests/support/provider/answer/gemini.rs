//! What a model answers on Gemini: one JSON, or the chunks of a stream.

use serde_json::{Value, json};

use super::{Reply, halves};

fn chunk(number: usize, model: &str, parts: &Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({
        "candidates": [candidate], "modelVersion": model, "responseId": format!("resp-{number:08}"),
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 4, "totalTokenCount": 16},
    })
}

fn part(reply: &Reply) -> Value {
    match reply {
        Reply::Text(words) => json!({"text": words}),
        Reply::Call { id, name, input } => json!({
            "functionCall": {"id": id, "name": name, "args": input}, "thoughtSignature": "QUFB",
        }),
        Reply::Status(..) | Reply::Calls(_) => Value::Null,
    }
}

/// A `generateContent` answer.
pub(crate) fn candidates(number: usize, model: &str, reply: &Reply) -> Value {
    chunk(number, model, &json!([part(reply)]), Some("STOP"))
}

/// The chunks of a `streamGenerateContent` answer.
pub(crate) fn candidate_chunks(number: usize, model: &str, reply: &Reply) -> Vec<Value> {
    let Reply::Text(words) = reply else {
        return vec![candidates(number, model, reply)];
    };
    let mut chunks: Vec<Value> = halves(words)
        .map(|half| chunk(number, model, &json!([{"text": half}]), None))
        .collect();
    if let Some(last) = chunks.last_mut().and_then(|last| last.pointer_mut("/candidates/0")) {
        last["finishReason"] = "STOP".into();
    }
    chunks
}
