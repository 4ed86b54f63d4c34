//! Repairs that need more than one request: the proxy remembers what it has seen before.

use std::{io, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};

use super::{
    agents::{Agent, COMPANY_AGENT, DEEPSEEK, THINKING},
    history::call_id,
};
use crate::{
    demo::{
        client::{Answer, Ask},
        stage::Stage,
    },
    wire::Format,
};

/// Number of conversations.
pub(super) const COUNT: usize = 6;
/// Rounds whose late results and calls wait for ever, so that they stay few.
const WAITING_ROUNDS: usize = 2;
/// Number of tries for a call that is not in the ledger yet, and the pause between them.
const TRIES: usize = 50;
const AGAIN: Duration = Duration::from_millis(20);

/// A client with a conversation of its own at Anthropic.
const STUDIO: Agent = Agent {
    session: "render-trailer",
    product: "Anthropic/JS 0.71.0",
    upstream: "anthropic",
    key: "demo-live-5",
    client: "",
    ..COMPANY_AGENT
};

/// Plays one conversation to its end.
pub(super) async fn play_conversation(stage: &Stage, turn: usize, number: usize, round: usize) -> io::Result<()> {
    match turn {
        0 => lose_reasoning(stage, number).await,
        1 => lose_result(stage, number).await,
        2 => finish_late(stage, number, true).await,
        3 if round < WAITING_ROUNDS => finish_late(stage, number, false).await,
        4 => rewrite_history(stage).await,
        5 if round < WAITING_ROUNDS => leave_running(stage, number).await,
        _ => Ok(()),
    }
}

fn user(words: &str) -> Value {
    json!({"role": "user", "content": words})
}

/// A growing conversation in a session of its own.
struct GrowingLog<'a> {
    stage: &'a Stage,
    agent: Agent,
    session: String,
    messages: Vec<Value>,
}

impl<'a> GrowingLog<'a> {
    fn new(stage: &'a Stage, agent: Agent, number: usize) -> Self {
        Self {
            stage,
            session: format!("{}-{number}", agent.session),
            agent,
            messages: Vec::new(),
        }
    }

    /// Appends a message and sends the conversation.
    async fn send_with(&mut self, message: Value) -> io::Result<Answer> {
        self.messages.push(message);
        let mut body = json!({"model": self.agent.model, "messages": self.messages});
        match self.agent.format {
            Format::Anthropic => body["max_tokens"] = 64.into(),
            // No agent of the others has such a conversation.
            Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini => {
                let function = json!({"name": "read_file", "parameters": {"type": "object"}});
                body["tools"] = json!([{"type": "function", "function": function}]);
            }
        }
        let (body, session) = (body.to_string(), &self.session);
        Box::pin(self.agent.send_body(self.stage, session, &body, None)).await
    }

    /// Sends a text and appends the answer.
    async fn say(&mut self, words: &str) -> io::Result<Answer> {
        let answer = self.send_with(user(words)).await?;
        self.messages
            .push(json!({"role": "assistant", "content": answer.json()["content"]}));
        Ok(answer)
    }

    /// Lets the model call a render. Returns the call's id and the answer.
    async fn start_render(&mut self, number: usize) -> io::Result<(String, Answer)> {
        let id = call_id(Format::Anthropic, number, 0);
        let call = ToolCall::new(&id, "render", json!({"scene": "harbour"}));
        self.stage.provider.reply_to(self.agent.key, Reply::Calls(vec![call]));
        let called = self.say("Render the trailer.").await?;
        Ok((id, called))
    }
}

/// Lets a tool run for ever: its call stays in flight.
async fn leave_running(stage: &Stage, number: usize) -> io::Result<()> {
    let mut log = GrowingLog::new(stage, STUDIO, number);
    log.start_render(number).await?;
    Ok(())
}

/// Lets a client drop the reasoning that its provider wants back: the proxy continues it.
async fn lose_reasoning(stage: &Stage, number: usize) -> io::Result<()> {
    let mut log = GrowingLog::new(stage, DEEPSEEK, number);
    let answer = log.send_with(user("Clean up the table.")).await?;
    let message = answer.json()["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    log.messages
        .push(json!({"role": "assistant", "content": null, "tool_calls": message["tool_calls"]}));
    log.send_with(json!({"role": "tool", "tool_call_id": id, "content": "12 rows"}))
        .await?;
    Ok(())
}

/// Lets a client lose a result that it has sent before: the proxy restores it.
async fn lose_result(stage: &Stage, number: usize) -> io::Result<()> {
    let mut log = GrowingLog::new(stage, STUDIO, number);
    let id = call_id(Format::Anthropic, number, 0);
    let call = ToolCall::new(&id, "read_file", json!({"path": "cut.edl"}));
    stage.provider.reply_to(STUDIO.key, Reply::Calls(vec![call]));
    log.say("Read the cut list.").await?;
    let result = json!({"type": "tool_result", "tool_use_id": id, "content": "14 cuts"});
    log.send_with(json!({"role": "user", "content": [result]})).await?;
    // The result is not saved, so the next request is without it.
    log.messages.pop();
    log.say("How many cuts are there?").await?;
    Ok(())
}

/// Lets a tool finish after the user has gone on. Its result is appended to the next message, or waits for one.
async fn finish_late(stage: &Stage, number: usize, comes_back: bool) -> io::Result<()> {
    let mut log = GrowingLog::new(stage, STUDIO, number);
    let (id, called) = log.start_render(number).await?;
    let owner = called.header("x-antiphon-owner").to_owned();
    log.say("Never mind, later.").await?;
    post_late(stage, &id, &owner).await?;
    if comes_back {
        log.say("Is it done?").await?;
    }
    Ok(())
}

/// Posts a result as the tool service.
async fn post_late(stage: &Stage, id: &str, owner: &str) -> io::Result<()> {
    let path = format!("/ledger/v1/calls/{id}/result");
    let bearer = format!("Bearer {}", stage.tokens.service);
    let body = json!({"content": "rendered: trailer.mp4, 96 MB", "owner": owner}).to_string();
    for _ in 0..TRIES {
        let headers = [("authorization", bearer.as_str())];
        let posted = Ask::post(stage.proxy_at, &path, &headers, &body).send().await?;
        if posted.status != StatusCode::ACCEPTED {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

/// Lets a client change the beginning of a conversation whose thinking is bound to it: the provider may drop that.
async fn rewrite_history(stage: &Stage) -> io::Result<()> {
    let mut log = GrowingLog::new(stage, THINKING, 0);
    log.say("Prove the lemma.").await?;
    if let Some(first) = log.messages.first_mut() {
        *first = user("Prove the first lemma.");
    }
    log.say("And the second one?").await?;
    Ok(())
}
