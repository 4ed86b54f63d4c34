//! A tool is slow, and a gateway blames the keys for it, one after the other, until none is left.

use std::{io, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::Reply;

use super::user;
use crate::{
    demo::{
        client::{Answer, Ask},
        setup::{CLIENTS, TEAM, TEAM_KEYS},
        stage::Stage,
    },
    provider::next_turn_path,
    wire::Format,
};

/// Timeout of the imitated gateway.
const IMPATIENCE: Duration = Duration::from_millis(250);

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.open_story(
        "4. A tool hangs, and healthy API keys get the blame",
        "openclaw/openclaw#16554",
        "Two keys, and a web search at the provider that never ends.",
    )?;
    let failed = blame_keys(stage).await?;
    let event = search_through(stage).await?;
    let is_error = stage.expect_true(event["type"] == "error");
    let ready = ready_keys(stage).await?;
    // Replies for the key that was not used are no longer needed.
    set_replies(stage, &[]);
    let next = ask_team(stage, &plain_request()).await?;
    let message = event.pointer("/error/message").and_then(Value::as_str).unwrap_or("-");
    let words = format!(
        "The search has its own timeout: {ready} of {} keys stay in use, for the next request.",
        TEAM_KEYS.len()
    );
    stage.tell.with(next.status.as_str(), &words)?;
    // The rest names the search with its id.
    let start = message.split_once(" (").map_or(message, |(start, _)| start);
    let detail = format!("The stream of the search ended with an error event: {start} …");
    stage.tell.add_detail(&detail)?;
    let went_on = is_error && ready == TEAM_KEYS.len() && next.status == StatusCode::OK;
    stage.count_story(failed, went_on);
    Ok(())
}

fn plain_request() -> String {
    json!({"model": "claude-opus-4-7", "max_tokens": 1024, "messages": [user("Hello?")]}).to_string()
}

fn search_request() -> String {
    let tools = json!([{"type": "web_search_20260209", "name": "web_search"}]);
    let ask = user("What is new today?");
    json!({"model": "claude-opus-4-7", "max_tokens": 1024, "stream": true, "tools": tools, "messages": [ask]})
        .to_string()
}

/// Imitates a gateway that stops using a key after a timeout. Returns `true` if no key is left, although all work.
async fn blame_keys(stage: &mut Stage) -> io::Result<bool> {
    let path = next_turn_path(Format::Anthropic, "");
    let mut left = TEAM_KEYS.len();
    for (_, key) in TEAM_KEYS {
        stage.provider.reply_to(key, Reply::EndlessSearch);
        let (headers, body) = ([("x-api-key", key)], search_request());
        let ask = Ask::post(stage.provider_at, &path, &headers, &body);
        let answer = Ask {
            patience: IMPATIENCE,
            ..ask
        }
        .send()
        .await;
        left -= usize::from(answer.map_or(true, |answer| !answer.is_whole));
    }
    let mut healthy = 0;
    for (_, key) in TEAM_KEYS {
        let (headers, body) = ([("x-api-key", key)], plain_request());
        let answer = Ask::post(stage.provider_at, &path, &headers, &body).send().await?;
        healthy += usize::from(answer.status == StatusCode::OK);
    }
    let all = TEAM_KEYS.len();
    let words = format!(
        "A gateway that blames the key for each timeout (imitated here) has {left} of {all} keys left, although \
         {healthy} of {all} still work."
    );
    stage.tell.without("", &words)?;
    Ok(stage.expect_true(left == 0 && healthy == all))
}

/// Sends a request to the upstream with two keys.
async fn ask_team(stage: &Stage, body: &str) -> io::Result<Answer> {
    let path = format!("/{TEAM}{}", next_turn_path(Format::Anthropic, ""));
    let headers = [("x-api-key", stage.tokens.of_client(CLIENTS[0]))];
    Ask::post(stage.proxy_at, &path, &headers, body).send().await
}

/// Sets the next replies of both keys, because either may be used.
fn set_replies(stage: &Stage, replies: &[Reply]) {
    for (_, key) in TEAM_KEYS {
        stage.provider.clear_replies(key);
        for reply in replies {
            stage.provider.reply_to(key, reply.clone());
        }
    }
}

/// Sends a search that never ends, and returns the last event of its stream.
async fn search_through(stage: &mut Stage) -> io::Result<Value> {
    set_replies(stage, &[Reply::EndlessSearch]);
    let answer = ask_team(stage, &search_request()).await?;
    stage.expect_true(answer.status == StatusCode::OK);
    Ok(answer.last_event())
}

/// Returns the number of keys that the proxy still uses, from the admin listener.
async fn ready_keys(stage: &Stage) -> io::Result<usize> {
    let page = Ask::get(stage.admin_at, "/admin/v1/profiles").send().await?.json();
    let profiles = page["profiles"].as_array().cloned().unwrap_or_default();
    let is_ready = |profile: &&Value| profile["upstream"] == TEAM && profile["state"] == "ready";
    Ok(profiles.iter().filter(is_ready).count())
}
