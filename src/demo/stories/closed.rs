//! A tool finishes after the conversation was closed. Its result reaches its owner once, and no other caller.

use std::io;

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};

use super::{messages, send_with, send_without, show_short_refusal, user};
use crate::{
    demo::{
        client::{Answer, Ask},
        stage::Stage,
    },
    wire::Format,
};

const RENDER: &str = "toolu_01Rndr5tY7uI9oP2aS4d";
const RESULT: &str = "rendered: harbour.mp4, 214 MB";
pub(super) const ANN: &str = "demo-ann";
pub(super) const BEN: &str = "demo-ben";

/// A user and the history that the user's client has stored.
struct Log<'u> {
    key: &'u str,
    messages: Vec<Value>,
}

impl Log<'_> {
    fn headers(&self) -> [(&str, &str); 2] {
        [("x-api-key", self.key), ("x-antiphon-session", "studio")]
    }

    /// Sends text through the proxy and stores the answer.
    async fn send_text(&mut self, stage: &Stage, words: &str) -> io::Result<Answer> {
        self.messages.push(user(words));
        let answer = send_with(stage, Format::Anthropic, &self.headers(), &messages(&self.messages)).await?;
        self.messages
            .push(json!({"role": "assistant", "content": answer.json()["content"]}));
        Ok(answer)
    }

    /// Starts the render, and returns the owner of its call.
    async fn start_render(&mut self, stage: &Stage) -> io::Result<String> {
        let call = ToolCall::new(RENDER, "render", json!({"scene": "harbour"}));
        stage.provider.reply_to(self.key, Reply::Calls(vec![call]));
        let called = self.send_text(stage, "Render the harbour.").await?;
        Ok(called.header("x-antiphon-owner").to_owned())
    }

    /// Sends text. Returns the answer, and the number of times that the provider received the result.
    async fn count_results(&mut self, stage: &Stage, words: &str) -> io::Result<(Answer, usize)> {
        let key = self.key.to_owned();
        let answer = self.send_text(stage, words).await?;
        let body = stage.provider.last_body(&key);
        let count = String::from_utf8_lossy(&body).matches(RESULT).count();
        Ok((answer, count))
    }
}

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.open_story(
        "5. A tool ends after its conversation was closed",
        "Tian Pan: \"The Async Tool Call That Resolved After the User Already Closed the Conversation\"",
        "Ann and Ben both render a film, and both calls have the same id. Ann closes her conversation before \
         her render ends.",
    )?;
    let log = |key| Log {
        key,
        messages: Vec::new(),
    };
    let (mut ann, mut ben) = (log(ANN), log(BEN));
    let owner = ann.start_render(stage).await?;
    ben.start_render(stage).await?;
    let mut tail = ann.messages.clone();
    tail.push(user("Never mind, later."));
    let direct = send_without(stage, Format::Anthropic, &ann.headers(), &messages(&tail)).await?;
    let failed = show_short_refusal(stage, &direct, &[RENDER])?;
    for log in [&mut ann, &mut ben] {
        log.send_text(stage, "Never mind, later.").await?;
    }
    let close = "/ledger/v1/sessions/studio/close";
    Ask::post(stage.proxy_at, close, &ann.headers(), "{}").send().await?;
    post_render(stage, &owner).await?;
    let (other, leaked) = ben.count_results(stage, "Is it done?").await?;
    let (answer, first) = ann.count_results(stage, "Is it done?").await?;
    let (later, again) = ann.count_results(stage, "Great, thank you.").await?;
    let times = |count: usize| match count {
        0 => "nothing".to_owned(),
        1 => format!("{RESULT:?} once"),
        count => format!("{RESULT:?} {count} times"),
    };
    let words = format!("Ann comes back: her request contains {}.", times(first));
    stage.tell.with(answer.status.as_str(), &words)?;
    let words = format!("Ben asks too: his request contains {} of it.", times(leaked));
    stage.tell.with(other.status.as_str(), &words)?;
    let all_answered = [&other, &answer, &later]
        .iter()
        .all(|answer| answer.status == StatusCode::OK);
    stage.count_story(failed, all_answered && (leaked, first, again) == (0, 1, 1));
    Ok(())
}

/// Posts the result as the tool service. Without an owner it could belong to two calls.
async fn post_render(stage: &mut Stage, owner: &str) -> io::Result<()> {
    let path = format!("/ledger/v1/calls/{RENDER}/result");
    let bearer = format!("Bearer {}", stage.tokens.service);
    let headers = [("authorization", bearer.as_str())];
    for (body, wanted) in [
        (json!({"content": RESULT}), StatusCode::CONFLICT),
        (json!({"content": RESULT, "owner": owner}), StatusCode::OK),
    ] {
        let posted = Ask::post(stage.proxy_at, &path, &headers, &body.to_string())
            .send()
            .await?;
        stage.expect_true(posted.status == wanted);
    }
    Ok(())
}
