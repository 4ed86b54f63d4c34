//! F4: a tool is slow, and a gateway blames the keys for it, one after the other, until none is left.

use std::{io, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::Reply;

use super::user;
use crate::{
    demo::{
        KEYS_OF_TEAM,
        client::{Answer, Ask},
        stage::Stage,
    },
    provider::next_turn_path,
    wire::Format,
};

/// Timeout of the imitated gateway.
const IMPATIENCE: Duration = Duration::from_millis(250);

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.title(
        "F4",
        "a slow tool, and healthy keys that pay for it",
        "openclaw/openclaw#16554",
    )?;
    stage.tell.says(
        "Two keys; a web search that runs at the provider and does not come back. Here a gateway that blames the key \
         is \
         imitated in a few lines: on a timeout it lets the key rest and takes the next one.",
    )?;
    blaming(stage).await?;
    search(stage).await?;
    silence(stage).await?;
    // Replies for the key that was not used are no longer needed.
    both_will(stage, &[]);
    let answer = team(stage, &plain()).await?;
    let words = format!(
        "the next request: x-antiphon-profile: {}",
        answer.header("x-antiphon-profile")
    );
    stage.tell.with(answer.status.as_str(), &words)?;
    stage.expects(answer.status == StatusCode::OK);
    Ok(())
}

fn plain() -> String {
    json!({"model": "claude-opus-4-7", "max_tokens": 1024, "messages": [user("Hello?")]}).to_string()
}

fn asks() -> String {
    let tools = json!([{"type": "web_search_20260209", "name": "web_search"}]);
    let ask = user("What is new today?");
    json!({"model": "claude-opus-4-7", "max_tokens": 1024, "stream": true, "tools": tools, "messages": [ask]})
        .to_string()
}

/// Imitates a gateway that puts the key into cooldown.
async fn blaming(stage: &mut Stage) -> io::Result<()> {
    let path = next_turn_path(Format::Anthropic, "");
    let mut rested = Vec::new();
    for (name, key) in KEYS_OF_TEAM {
        stage.provider.reply_to(key, Reply::EndlessSearch);
        let (headers, body) = ([("x-api-key", key)], asks());
        let ask = Ask::post(stage.provider_at, &path, &headers, &body);
        let answer = Ask {
            patience: IMPATIENCE,
            ..ask
        }
        .send()
        .await;
        if answer.map_or(true, |answer| !answer.is_whole) {
            rested.push(name);
        }
    }
    let left = KEYS_OF_TEAM.len() - rested.len();
    let words = format!(
        "{} rest, though nothing is wrong with them; keys that are left: {left}",
        rested.join(" and ")
    );
    stage.tell.without("---", &words)?;
    let mut healthy = Vec::new();
    for (name, key) in KEYS_OF_TEAM {
        let (headers, body) = ([("x-api-key", key)], plain());
        let answer = Ask::post(stage.provider_at, &path, &headers, &body).send().await?;
        healthy.push(format!("{name}: {}", answer.status.as_str()));
        stage.expects(answer.status == StatusCode::OK);
    }
    stage
        .tell
        .more(&format!("the same keys, asked by hand: {}", healthy.join(", ")))?;
    stage.expects(left == 0);
    Ok(())
}

async fn team(stage: &Stage, body: &str) -> io::Result<Answer> {
    let path = format!("/team{}", next_turn_path(Format::Anthropic, ""));
    Ask::post(stage.proxy_at, &path, &[], body).send().await
}

/// Sets the next replies of both keys, because either may be used.
fn both_will(stage: &Stage, replies: &[Reply]) {
    for (_, key) in KEYS_OF_TEAM {
        stage.provider.clear_replies(key);
        for reply in replies {
            stage.provider.reply_to(key, reply.clone());
        }
    }
}

/// Plays a search that never ends, in an answer that has begun.
async fn search(stage: &mut Stage) -> io::Result<()> {
    both_will(stage, &[Reply::EndlessSearch]);
    let answer = team(stage, &asks()).await?;
    let words = format!(
        "x-antiphon-profile: {}; the search has a clock of its own",
        answer.header("x-antiphon-profile")
    );
    stage.tell.with(answer.status.as_str(), &words)?;
    let event = answer.last_event();
    let message = event.pointer("/error/message").and_then(Value::as_str).unwrap_or("-");
    stage
        .tell
        .more(&format!("the stream ends with an error event: {message}"))?;
    stage.expects(answer.status == StatusCode::OK && event["type"] == "error");
    standing(stage).await
}

/// Plays an answer that never begins: the proxy's own error names the side at fault.
async fn silence(stage: &mut Stage) -> io::Result<()> {
    both_will(stage, &[Reply::Silence]);
    let answer = team(stage, &asks()).await?;
    let words = format!(
        "an answer that never begins: x-antiphon-fault: {}, x-antiphon-phase: {}, x-antiphon-attempts: {}",
        answer.header("x-antiphon-fault"),
        answer.header("x-antiphon-phase"),
        answer.header("x-antiphon-attempts"),
    );
    stage.tell.with(answer.status.as_str(), &words)?;
    stage.expects(answer.header("x-antiphon-fault") == "provider");
    standing(stage).await
}

/// Reports the states of the keys from the admin listener.
async fn standing(stage: &mut Stage) -> io::Result<()> {
    let page = Ask::get(stage.admin_at, "/admin/v1/profiles").send().await?.json();
    let profiles = page["profiles"].as_array().cloned().unwrap_or_default();
    let shown = |profile: &Value| {
        format!(
            "{} {}",
            profile["profile"].as_str().unwrap_or("-"),
            profile["state"].as_str().unwrap_or("-")
        )
    };
    let words: Vec<String> = profiles.iter().map(shown).collect();
    stage.tell.more(&format!("/admin/v1/profiles: {}", words.join(", ")))?;
    stage.expects(profiles.len() == KEYS_OF_TEAM.len() && profiles.iter().all(|profile| profile["state"] == "ready"));
    Ok(())
}
