//! The five reported failures. Each is played against the provider itself and through the proxy, and the output reports
//! what was observed.

mod aborted;
mod closed;
mod killed;
mod slow;
mod unsaved;

use std::io;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    client::{Answer, Ask},
    stage::Stage,
};
use crate::{provider::next_turn_path, wire::Format};

/// Plays all stories.
pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    killed::tell(stage).await?;
    stage.pause().await;
    unsaved::tell(stage).await?;
    stage.pause().await;
    aborted::tell(stage).await?;
    stage.pause().await;
    slow::tell(stage).await?;
    stage.pause().await;
    closed::tell(stage).await
}

type Headers<'h> = &'h [(&'h str, &'h str)];

fn user(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn assistant(words: &str) -> Value {
    json!({"role": "assistant", "content": words})
}

fn tool_use(id: &str, tool: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": tool, "input": input})
}

fn messages(messages: &[Value]) -> String {
    json!({"model": "claude-opus-4-7", "max_tokens": 1024, "messages": messages}).to_string()
}

/// Sends the same request to the provider and through the proxy.
async fn both(stage: &mut Stage, format: Format, headers: Headers<'_>, body: &str) -> io::Result<(Answer, Answer)> {
    let direct = without(stage, format, headers, body).await?;
    let through = with(stage, format, headers, body).await?;
    Ok((direct, through))
}

/// Sends a request to the provider, which should refuse it.
async fn without(stage: &mut Stage, format: Format, headers: Headers<'_>, body: &str) -> io::Result<Answer> {
    let path = next_turn_path(format, "demo");
    let answer = Ask::post(stage.provider_at, &path, headers, body).send().await?;
    stage.tell.without(answer.status.as_str(), &answer.words())?;
    stage.expects(answer.status == StatusCode::BAD_REQUEST);
    Ok(answer)
}

/// Sends a request through the proxy, which should be answered.
async fn with(stage: &mut Stage, format: Format, headers: Headers<'_>, body: &str) -> io::Result<Answer> {
    let answer = through(stage, format, headers, body).await?;
    let repair = format!("x-antiphon-repair: {}", answer.header("x-antiphon-repair"));
    stage.tell.with(answer.status.as_str(), &repair)?;
    if answer.status != StatusCode::OK {
        stage.tell.more(&answer.words())?;
    }
    stage.expects(answer.status == StatusCode::OK);
    Ok(answer)
}

async fn through(stage: &Stage, format: Format, headers: Headers<'_>, body: &str) -> io::Result<Answer> {
    let name = if format == Format::Anthropic {
        "anthropic"
    } else {
        "openai"
    };
    let path = format!("/{name}{}", next_turn_path(format, "demo"));
    Ask::post(stage.proxy_at, &path, headers, body).send().await
}

/// Reports what the provider received as results of `ids`: the text of each block.
fn received(stage: &mut Stage, key: &str, ids: &[&str]) -> io::Result<()> {
    let body: Value = serde_json::from_slice(&stage.provider.last_body(key)).unwrap_or_default();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let mut told = 0;
    for (index, message) in messages.iter().enumerate() {
        for block in blocks(message) {
            let id = block.get("tool_use_id").or_else(|| block.get("tool_call_id"));
            let Some(id) = id.and_then(Value::as_str).filter(|id| ids.contains(id)) else {
                continue;
            };
            let words = said(&block["content"]);
            stage.tell.more(&format!(
                "the provider received, in messages.{index}, for {id}: {words:?}"
            ))?;
            told += 1;
        }
    }
    stage.expects(told == ids.len());
    Ok(())
}

/// Returns the blocks of a message. A message without blocks is one block.
fn blocks(message: &Value) -> Vec<&Value> {
    match message["content"].as_array() {
        Some(blocks) => blocks.iter().collect(),
        None => vec![message],
    }
}

/// Returns the text of a content: a string, or the first text of its blocks.
fn said(content: &Value) -> &str {
    content
        .as_str()
        .or_else(|| content[0]["text"].as_str())
        .unwrap_or_default()
}
