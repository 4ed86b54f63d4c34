//! The turns with tool results were never stored, so every resume sends calls without results. The tools ran, and their
//! service still has the results.

use std::{io, time::Duration};

use http::StatusCode;
use serde_json::json;
use strict_provider::{Reply, ToolCall};

use super::{messages, received_results, send_with, send_without, show_short_refusal, user};
use crate::{
    demo::{client::Ask, stage::Stage},
    wire::Format,
};

pub(super) const KEY: &str = "demo-unsaved";
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
    stage.tell.open_story(
        "2. The process dies before it saves the tools' results",
        "garrytan/gbrain#2273",
        "Three tools were called, and only the calls were saved. Two tools finish later, and post their results to \
         Antiphon.",
    )?;
    let mut log = vec![user("Lint, test and package it.")];
    let calls = CALLS.map(|(id, tool, _)| ToolCall::new(id, tool, json!({"of": "main"})));
    stage.provider.reply_to(KEY, Reply::Calls(calls.into()));
    let called = send_with(stage, Format::Anthropic, HEADERS, &messages(&log)).await?;
    let content = called.json()["content"].clone();
    let owner = called.header("x-antiphon-owner").to_owned();
    for (id, _, result) in CALLS {
        if let Some(result) = result {
            post_result(stage, id, result, &owner).await?;
        }
    }
    log.push(json!({"role": "assistant", "content": content}));
    log.push(user("Go on, please."));
    let body = messages(&log);
    let ids = CALLS.map(|(id, ..)| id);
    let direct = send_without(stage, Format::Anthropic, HEADERS, &body).await?;
    let failed = show_short_refusal(stage, &direct, &ids)?;
    let answer = send_with(stage, Format::Anthropic, HEADERS, &body).await?;
    let words = "Antiphon adds the two results that were posted, and a placeholder for the third:";
    stage.tell.with(answer.status.as_str(), words)?;
    let results = received_results(stage, KEY, &ids);
    for ((_, tool, _), result) in CALLS.iter().zip(&results) {
        stage.tell.add_detail(&format!("{tool}: {}", cut_text(result)))?;
    }
    let posted = CALLS.iter().filter_map(|(.., result)| *result);
    stage.expect_true(results.len() == CALLS.len() && posted.zip(&results).all(|(posted, got)| posted == got));
    let is_repaired = answer.header("x-antiphon-repair") == "restored=2, placeholder=1";
    stage.count_story(failed, answer.status == StatusCode::OK && is_repaired);
    Ok(())
}

/// Returns the text up to its first semicolon: the rest of a placeholder was shown before.
fn cut_text(text: &str) -> String {
    match text.split_once(';') {
        Some((start, _)) => format!("{start} …]"),
        None => text.to_owned(),
    }
}

/// Posts a result as the tool service. The owner says whose call it is, so that the result settles at once.
async fn post_result(stage: &mut Stage, id: &str, result: &str, owner: &str) -> io::Result<()> {
    let path = format!("/ledger/v1/calls/{id}/result");
    let bearer = format!("Bearer {}", stage.tokens.service);
    let body = json!({"content": result, "owner": owner}).to_string();
    let mut status = StatusCode::ACCEPTED;
    for _ in 0..TRIES {
        let posted = Ask::post(stage.proxy_at, &path, &[("authorization", &bearer)], &body)
            .send()
            .await?;
        status = posted.status;
        if status != StatusCode::ACCEPTED {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    stage.expect_true(status == StatusCode::OK);
    Ok(())
}
