//! A toy server of the Model Context Protocol, on standard input and output. Its one tool takes longer than its client
//! waits.

use std::{io, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Stdout},
    time::{Instant, sleep_until},
};

use crate::clock;

/// The name that the server tells of itself.
const NAME: &str = "toy";
/// The time of a run.
const RUN_TIME: Duration = Duration::from_millis(800);
/// Most bytes that are read.
const INPUT_BYTES_MAX: u64 = 1024 * 1024;
/// The result of the tool.
pub(super) const REPORT: &str = "report: 41 pages, report.pdf";

/// Serves one client until the end of its input. A cancel ends the run.
pub async fn serve_toy() -> io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin().take(INPUT_BYTES_MAX)).lines();
    let mut out = tokio::io::stdout();
    // The id of the call that runs, and the time of its end.
    let mut run: Option<(Value, Instant)> = None;
    loop {
        let ends_at = run.as_ref().map_or_else(clock::now, |(_, at)| *at);
        tokio::select! {
            line = lines.next_line() => {
                let Some(line) = line? else {
                    return Ok(());
                };
                let message: Value = serde_json::from_str(&line).unwrap_or_default();
                match message["method"].as_str() {
                    Some("tools/call") => run = Some((message["id"].clone(), clock::now() + RUN_TIME)),
                    Some("notifications/cancelled") => run = None,
                    Some("initialize") => {
                        let result = json!({
                            "protocolVersion": message["params"]["protocolVersion"],
                            "capabilities": {"tools": {}},
                            "serverInfo": {"name": NAME, "version": "1"},
                        });
                        answer(&mut out, &message["id"], &result).await?;
                    }
                    _ => {}
                }
            }
            () = sleep_until(ends_at), if run.is_some() => {
                if let Some((id, _)) = run.take() {
                    let result = json!({"content": [{"type": "text", "text": REPORT}]});
                    answer(&mut out, &id, &result).await?;
                }
            }
        }
    }
}

async fn answer(out: &mut Stdout, id: &Value, result: &Value) -> io::Result<()> {
    let line = json!({"jsonrpc": "2.0", "id": id, "result": result});
    out.write_all(format!("{line}\n").as_bytes()).await?;
    out.flush().await
}
