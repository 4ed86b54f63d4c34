//! F3: the user aborts in the middle of a tool, and the next request fails.

use std::io;

use serde_json::json;

use super::{both, received, user};
use crate::{demo::stage::Stage, wire::Format};

const KEY: &str = "demo-f3";
const ABORTED: &str = "call_Gx7Kp2Lm9Qr4St8Vw3Yz";

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.title(
        "F3",
        "aborted in the middle of a tool",
        "alchemiststudiosDOTai/tunacode#246",
    )?;
    stage.tell.says(
        "The user presses Escape while `bash` runs, and asks for something else. On Chat Completions, this time.",
    )?;
    let function = json!({"name": "bash", "arguments": "{\"command\":\"sleep 600\"}"});
    let call = json!({"id": ABORTED, "type": "function", "function": function});
    let log = [
        user("Wait for the build."),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        user("Never mind. What is the time?"),
    ];
    let body = json!({"model": "gpt-5.5", "messages": log}).to_string();
    both(
        stage,
        Format::OpenAiChat,
        &[("authorization", &format!("Bearer {KEY}"))],
        &body,
    )
    .await?;
    received(stage, KEY, &[ABORTED])
}
