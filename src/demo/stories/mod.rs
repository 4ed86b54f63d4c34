//! The reported failures. Each is played against the provider itself and through the proxy, and the output reports
//! what was observed.

mod aborted;
mod closed;
#[cfg(unix)]
mod given_up;
mod killed;
mod repeated;
mod slow;
mod unsaved;

use std::io;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    client::{Answer, Ask},
    setup::TEAM_KEYS,
    stage::Stage,
};
use crate::{provider::next_turn_path, wire::Format};

/// Every credential of the stories.
pub(super) const KEYS: &[&str] = &[
    killed::KEY,
    unsaved::KEY,
    aborted::KEY,
    closed::ANN,
    closed::BEN,
    repeated::KEY,
    #[cfg(unix)]
    given_up::KEY,
    TEAM_KEYS[0].1,
    TEAM_KEYS[1].1,
];

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
    closed::tell(stage).await?;
    stage.pause().await;
    repeated::tell(stage).await?;
    // The wrapper of MCP servers runs on Unix only.
    #[cfg(unix)]
    {
        stage.pause().await;
        given_up::tell(stage).await?;
    }
    Ok(())
}

type Headers<'h> = &'h [(&'h str, &'h str)];

fn user(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

fn messages(messages: &[Value]) -> String {
    json!({"model": "claude-opus-4-7", "max_tokens": 1024, "messages": messages}).to_string()
}

/// Sends a request to the provider, which should refuse it.
async fn send_without(stage: &Stage, format: Format, headers: Headers<'_>, body: &str) -> io::Result<Answer> {
    let path = next_turn_path(format, "demo");
    Ask::post(stage.provider_at, &path, headers, body).send().await
}

/// Sends a request through the proxy, which should be answered.
async fn send_with(stage: &Stage, format: Format, headers: Headers<'_>, body: &str) -> io::Result<Answer> {
    let name = match format {
        Format::Anthropic => "anthropic",
        Format::OpenAiChat | Format::OpenAiResponses => "openai",
        Format::Gemini => "gemini",
    };
    let path = format!("/{name}{}", next_turn_path(format, "demo"));
    Ask::post(stage.proxy_at, &path, headers, body).send().await
}

/// Prints the provider's refusal. Returns `true` if it is one.
fn show_refusal(stage: &mut Stage, answer: &Answer) -> io::Result<bool> {
    stage.tell.without(answer.status.as_str(), &answer.words())?;
    Ok(answer.status == StatusCode::BAD_REQUEST)
}

/// Prints the beginning of a refusal whose kind was shown before: it ends where the ids begin. Returns `true` if it is
/// a refusal that names all of `ids`.
fn show_short_refusal(stage: &mut Stage, answer: &Answer, ids: &[&str]) -> io::Result<bool> {
    let words = answer.words();
    let start = words.split_once(": toolu").map_or(words.as_str(), |(start, _)| start);
    stage.tell.without(answer.status.as_str(), &format!("{start}: …"))?;
    Ok(answer.status == StatusCode::BAD_REQUEST && ids.iter().all(|id| words.contains(id)))
}

/// Returns the text of each result of `ids` that the provider has received with this credential, in the order of `ids`.
fn received_results(stage: &Stage, key: &str, ids: &[&str]) -> Vec<String> {
    let body: Value = serde_json::from_slice(&stage.provider.last_body(key)).unwrap_or_default();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let blocks: Vec<&Value> = messages.iter().flat_map(message_blocks).collect();
    let result_of = |id: &&str| {
        let names = |block: &&&Value| {
            let named = block.get("tool_use_id").or_else(|| block.get("tool_call_id"));
            named.and_then(Value::as_str) == Some(id)
        };
        let block = blocks.iter().find(names)?;
        Some(content_text(&block["content"]).to_owned())
    };
    ids.iter().filter_map(result_of).collect()
}

/// Returns the blocks of a message. A message without blocks is one block.
fn message_blocks(message: &Value) -> Vec<&Value> {
    match message["content"].as_array() {
        Some(blocks) => blocks.iter().collect(),
        None => vec![message],
    }
}

/// Returns the text of a content: a string, or the first text of its blocks.
fn content_text(content: &Value) -> &str {
    content
        .as_str()
        .or_else(|| content[0]["text"].as_str())
        .unwrap_or_default()
}
