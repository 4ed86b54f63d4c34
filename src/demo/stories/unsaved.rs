//! F2: the turns with tool results were never stored, so every resume sends calls without results. The tools ran, and
//! their
//! service still has the results.

use std::{io, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};

use super::{both, messages, received, through, user};
use crate::{
    demo::{client::Ask, stage::Stage},
    wire::Format,
};

const KEY: &str = "demo-f2";
const HEADERS: &[(&str, &str)] = &[("x-api-key", KEY), ("x-antiphon-session", "nightly")];
/// The calls, their tools, and the results that their service has.
const CALLS: [(&str, &str, Option<&str>); 3] = [
    ("toolu_01Lint7dE3fG7hJ2kQ9w", "lint", Some("0 warnings")),
    (
        "toolu_01Test8eF4gH6jK3mR5x",
        "test",
        Some("212 passed, 1 failed: parses_dates"),
    ),
    ("toolu_01Pack9fG5hJ5kL4nS6y", "package", None),
];
/// Number of tries for a call that is not in the ledger yet, and the pause between them.
const TRIES: usize = 100;
const AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.title(
        "F2",
        "results that were never written down",
        "garrytan/gbrain#2273, #2274",
    )?;
    let mut log = vec![user("Lint, test and package it.")];
    let calls = CALLS.map(|(id, tool, _)| ToolCall::new(id, tool, json!({"of": "main"})));
    stage.provider.reply_to(KEY, Reply::Calls(calls.into()));
    let answer = through(stage, Format::Anthropic, HEADERS, &messages(&log)).await?;
    let content = answer.json()["content"].clone();
    let owner = answer.header("x-antiphon-owner").to_owned();
    let count = content.as_array().map_or(0, Vec::len);
    let words = format!(
        "The model calls {count} tools at once. Then the worker dies; what it saves of the conversation has the \
         calls, and none \
         of the results. The service that runs its tools lives on and posts what it has."
    );
    stage.tell.says(&words)?;
    for (id, _, result) in CALLS {
        if let Some(result) = result {
            post(stage, id, result, &owner).await?;
        }
    }
    log.push(json!({"role": "assistant", "content": content}));
    log.push(user("Go on, please."));
    let (_, through) = both(stage, Format::Anthropic, HEADERS, &messages(&log)).await?;
    stage.expects(through.header("x-antiphon-repair") == "restored=2, placeholder=1");
    received(stage, KEY, &CALLS.map(|(id, ..)| id))
}

/// Posts a result as the tool service. The owner says whose call it is, so that the result settles at once.
async fn post(stage: &mut Stage, id: &str, result: &str, owner: &str) -> io::Result<()> {
    let path = format!("/ledger/v1/calls/{id}/result");
    let bearer = format!("Bearer {}", stage.token);
    let body = json!({"content": result, "owner": owner}).to_string();
    let mut status = StatusCode::ACCEPTED;
    let mut state = Value::Null;
    for _ in 0..TRIES {
        let answer = Ask::post(stage.proxy_at, &path, &[("authorization", &bearer)], &body)
            .send()
            .await?;
        (status, state) = (answer.status, answer.json()["state"].take());
        if status != StatusCode::ACCEPTED {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    let state = state.as_str().unwrap_or("-");
    stage
        .tell
        .line(&format!("    service  {}  POST {path}: {state}", status.as_str()))?;
    stage.expects(status == StatusCode::OK);
    Ok(())
}
