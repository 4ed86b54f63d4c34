//! A client is killed in the middle of a tool. It repairs only the end of its log, so an earlier call stays open.

use std::{fmt::Write as _, io};

use http::StatusCode;

use super::{send_with, send_without, show_refusal};
use crate::{
    demo::stage::Stage,
    wire::{Format, Wire},
};

pub(super) const KEY: &str = "demo-killed";
const LOST: &str = "toolu_01Bash4kP2sT6vX8zA3d";
/// Rounds before the kill, of four messages each.
const ROUNDS: usize = 116;
/// Lines of the diff around the change.
const CONTEXT: usize = 1;

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    let body = saved_body();
    stage.tell.open_story(
        "1. The agent is killed while a tool runs",
        "github/copilot-cli#3183",
        "The saved conversation has a tool call without a result. Every request from now on contains it.",
    )?;
    let headers = [("x-api-key", KEY)];
    let direct = send_without(stage, Format::Anthropic, &headers, &body).await?;
    let failed = show_refusal(stage, &direct)?;
    let answer = send_with(stage, Format::Anthropic, &headers, &body).await?;
    let got = stage.provider.last_body(KEY);
    let unchanged = unchanged_bytes(body.as_bytes(), &got);
    let words = format!(
        "Antiphon adds the missing result: a placeholder, which says that none is known. {unchanged} of {} bytes are \
         sent as they came; this changes:",
        body.len(),
    );
    stage.tell.with(answer.status.as_str(), &words)?;
    let lines = (stage.diff)(Wire::ANTHROPIC, body.as_bytes(), &got, CONTEXT);
    stage.tell.show_diff(&lines)?;
    let went_on = answer.status == StatusCode::OK && answer.header("x-antiphon-repair") == "placeholder=1";
    stage.expect_true(unchanged + 64 > body.len() && lines.iter().any(|line| line.starts_with('+')));
    stage.count_story(failed, went_on);
    Ok(())
}

/// Returns the request, in the order of members that clients use.
fn saved_body() -> String {
    let mut text = r#"{"model":"claude-opus-4-7","max_tokens":1024,"messages":["#.to_owned();
    // Writing into a String cannot fail.
    for round in 0..ROUNDS {
        let id = format!("toolu_01Read{round:04}5mQ7rS9tU2vW");
        let _ = write!(
            text,
            r#"{{"role":"user","content":"What is in part {round}?"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"read_file","input":{{"path":"src/part_{round}.rs"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"fn part_{round}() {{}}\n"}}]}},{{"role":"assistant","content":"A function, and nothing else."}},"#
        );
    }
    let _ = write!(
        text,
        r#"{{"role":"user","content":"Run the tests."}},{{"role":"assistant","content":[{{"type":"tool_use","id":"{LOST}","name":"bash","input":{{"command":"cargo test"}}}}]}},{{"role":"user","content":"Are you there?"}},{{"role":"assistant","content":"Yes. What next?"}},{{"role":"user","content":"Did they pass?"}}]}}"#
    );
    text
}

/// Returns the number of bytes before and after the change.
fn unchanged_bytes(sent: &[u8], got: &[u8]) -> usize {
    let equal = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let front = sent.iter().zip(got).take_while(equal).count();
    let back = sent.iter().rev().zip(got.iter().rev()).take_while(equal).count();
    front + back.min(sent.len() - front)
}
