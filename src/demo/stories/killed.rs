//! F1: a client is killed in the middle of a tool. It repairs only the end of its log, so an earlier call stays open.

use std::io;

use serde_json::{Value, json};

use super::{assistant, both, messages, received, tool_use, user};
use crate::{demo::stage::Stage, wire::Format};

const KEY: &str = "demo-f1";
const LOST: &str = "toolu_01Bash4kP2sT6vX8zA3d";
/// Rounds before the kill, of four messages each.
const ROUNDS: usize = 116;

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage
        .tell
        .title("F1", "killed in the middle of a tool", "github/copilot-cli#3183")?;
    let log = log();
    let body = messages(&log);
    let words = format!(
        "The agent was killed while `bash` ran, two turns ago. Its log of {} messages keeps that call, and no result \
         of it. Every \
         request from now on carries it.",
        log.len()
    );
    stage.tell.says(&words)?;
    both(stage, Format::Anthropic, &[("x-api-key", KEY)], &body).await?;
    received(stage, KEY, &[LOST])?;
    same_bytes(stage, &body)
}

fn log() -> Vec<Value> {
    let mut log = Vec::new();
    for round in 0..ROUNDS {
        let id = format!("toolu_01Read{round:04}5mQ7rS9tU2vW");
        let call = tool_use(&id, "read_file", &json!({"path": format!("src/part_{round}.rs")}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": format!("fn part_{round}() {{}}\n")});
        log.push(user(&format!("What is in part {round}?")));
        log.push(json!({"role": "assistant", "content": [call]}));
        log.push(json!({"role": "user", "content": [result]}));
        log.push(assistant("A function, and nothing else."));
    }
    log.push(user("Run the tests."));
    let call = tool_use(LOST, "bash", &json!({"command": "cargo test"}));
    log.push(json!({"role": "assistant", "content": [call]}));
    log.push(user("Are you there?"));
    log.push(assistant("Yes. What next?"));
    log.push(user("Did they pass?"));
    log
}

/// Reports how much of the body was sent unchanged.
fn same_bytes(stage: &mut Stage, sent: &str) -> io::Result<()> {
    let got = stage.provider.last_body(KEY);
    let equal = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let front = sent.as_bytes().iter().zip(got.iter()).take_while(equal).count();
    let back = sent
        .as_bytes()
        .iter()
        .rev()
        .zip(got.iter().rev())
        .take_while(equal)
        .count();
    let back = back.min(sent.len() - front);
    let added = got.len().saturating_sub(front + back);
    let words = format!(
        "of the {} bytes that were sent, the first {front} and the last {back} arrived unchanged; {added} bytes replace \
         the {} between them",
        sent.len(),
        sent.len().saturating_sub(front + back)
    );
    stage.tell.more(&words)?;
    stage.expects(added < 1024);
    Ok(())
}
