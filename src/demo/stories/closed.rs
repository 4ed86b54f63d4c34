//! F5: a tool finishes after the conversation was closed. Its result reaches its owner once, and no other caller.

use std::io;

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};

use super::{messages, through, user, without};
use crate::{
    demo::{
        client::{Answer, Ask},
        stage::Stage,
    },
    wire::Format,
};

const RENDER: &str = "toolu_01Rndr5tY7uI9oP2aS4d";
const RESULT: &str = "rendered: harbour.mp4, 214 MB";
const ANN: &str = "demo-ann";
const BEN: &str = "demo-ben";
const BOTH: [(&str, &str); 2] = [("Ann", ANN), ("Ben", BEN)];

/// A user and the history that her client has stored.
struct Log<'u> {
    key: &'u str,
    messages: Vec<Value>,
}

impl Log<'_> {
    fn headers(&self) -> [(&str, &str); 2] {
        [("x-api-key", self.key), ("x-antiphon-session", "studio")]
    }

    /// Sends text through the proxy and stores the answer.
    async fn says(&mut self, stage: &Stage, words: &str) -> io::Result<Answer> {
        self.messages.push(user(words));
        let answer = through(stage, Format::Anthropic, &self.headers(), &messages(&self.messages)).await?;
        self.messages
            .push(json!({"role": "assistant", "content": answer.json()["content"]}));
        Ok(answer)
    }
}

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.title(
        "F5",
        "finished after the conversation was closed",
        "Tian Pan, \"The Async Tool Call That Resolved After the User Already Closed the Conversation\"",
    )?;
    stage.tell.says(
        "Ann and Ben each start a render; by chance both calls have the same id and both sessions the same name. \
         Neither waits. \
         Ann closes the conversation, and then her render finishes.",
    )?;
    let mut logs = Vec::new();
    let mut owner = String::new();
    for (_, key) in BOTH {
        let mut log = Log {
            key,
            messages: Vec::new(),
        };
        let call = ToolCall::new(RENDER, "render", json!({"scene": "harbour"}));
        stage.provider.reply_to(key, Reply::Calls(vec![call]));
        let called = log.says(stage, "Render the harbour.").await?;
        if key == ANN {
            called.header("x-antiphon-owner").clone_into(&mut owner);
        }
        logs.push(log);
    }
    let [ann, ben] = logs.as_mut_slice() else { return Ok(()) };
    let mut tail = ann.messages.clone();
    tail.push(user("Never mind, later."));
    without(stage, Format::Anthropic, &ann.headers(), &messages(&tail)).await?;
    for log in [&mut *ann, &mut *ben] {
        log.says(stage, "Never mind, later.").await?;
    }
    let close = "/ledger/v1/sessions/studio/close";
    Ask::post(stage.proxy_at, close, &ann.headers(), "{}").send().await?;
    finished(stage, &owner).await?;
    asked(stage, ben, "Ben asks", "Is it done?", 0).await?;
    asked(stage, ann, "Ann comes back", "Is it done?", 1).await?;
    asked(stage, ann, "Ann goes on", "Great, thank you.", 1).await
}

/// Posts the result as the tool service. Without an owner it could belong to two calls.
async fn finished(stage: &mut Stage, owner: &str) -> io::Result<()> {
    let path = format!("/ledger/v1/calls/{RENDER}/result");
    let bearer = format!("Bearer {}", stage.token);
    let headers = [("authorization", bearer.as_str())];
    for (who, body, wanted) in [
        ("whose it is not said", json!({"content": RESULT}), StatusCode::CONFLICT),
        (
            "with Ann's x-antiphon-owner",
            json!({"content": RESULT, "owner": owner}),
            StatusCode::OK,
        ),
    ] {
        let answer = Ask::post(stage.proxy_at, &path, &headers, &body.to_string())
            .send()
            .await?;
        let body = answer.json();
        let code = body
            .pointer("/error/code")
            .or_else(|| body.get("code"))
            .or_else(|| body.get("state"));
        let code = code.and_then(Value::as_str).unwrap_or("-");
        let line = format!(
            "    service  {}  the render is posted, {who}: {code}",
            answer.status.as_str()
        );
        stage.tell.line(&line)?;
        stage.expects(answer.status == wanted);
    }
    Ok(())
}

/// Sends text, and reports how often and where the provider received the result.
async fn asked(stage: &mut Stage, log: &mut Log<'_>, who: &str, words: &str, wanted: usize) -> io::Result<()> {
    let key = log.key.to_owned();
    let answer = log.says(stage, words).await?;
    let line = format!("{who}; x-antiphon-repair: {}", answer.header("x-antiphon-repair"));
    stage.tell.with(answer.status.as_str(), &line)?;
    let body = stage.provider.last_body(&key);
    let count = String::from_utf8_lossy(&body).matches(RESULT).count();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let list = body["messages"].as_array().cloned().unwrap_or_default();
    let at = list.iter().position(|message| message.to_string().contains(RESULT));
    let times = match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let place = at.map_or_else(String::new, |at| {
        format!(", in messages.{at} of {} messages", list.len())
    });
    stage
        .tell
        .more(&format!("the provider received the render {times}{place}"))?;
    stage.expects(count == wanted && answer.status == StatusCode::OK);
    Ok(())
}
