//! The user aborts in the middle of a tool, and the next request fails.

use std::io;

use http::StatusCode;
use serde_json::json;

use super::{received_results, send_with, send_without, show_refusal, user};
use crate::{demo::stage::Stage, wire::Format};

pub(super) const KEY: &str = "demo-aborted";
const ABORTED: &str = "call_Gx7Kp2Lm9Qr4St8Vw3Yz";

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.open_story(
        "3. The user stops a tool and asks for something else",
        "alchemiststudiosDOTai/tunacode#246",
        "The same fault in OpenAI's Chat Completions.",
    )?;
    let function = json!({"name": "bash", "arguments": "{\"command\":\"sleep 600\"}"});
    let call = json!({"id": ABORTED, "type": "function", "function": function});
    let log = [
        user("Wait for the build."),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        user("Never mind. What is the time?"),
    ];
    let body = json!({"model": "gpt-5.5", "messages": log}).to_string();
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let direct = send_without(stage, Format::OpenAiChat, &headers, &body).await?;
    let failed = show_refusal(stage, &direct)?;
    let answer = send_with(stage, Format::OpenAiChat, &headers, &body).await?;
    let repair = answer.header("x-antiphon-repair");
    let words = format!("Every answer of Antiphon reports its repairs: x-antiphon-repair: {repair}");
    stage.tell.with(answer.status.as_str(), &words)?;
    stage.expect_true(received_results(stage, KEY, &[ABORTED]).len() == 1);
    stage.count_story(failed, answer.status == StatusCode::OK && repair == "placeholder=1");
    Ok(())
}
