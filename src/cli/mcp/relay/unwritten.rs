//! Answers on their way to the client. One that cannot be written is the result of a detached run.

use std::time::Duration;

use bytes::Bytes;

use super::{
    events::{RelayEffect, RunHash},
    message::{McpMessage, RpcId, read_message},
    outcome::ToolOutcome,
    state::{CallRelay, RunStage, SentAnswer, ToolRun},
};

/// Most answers that are on their way at once and are remembered.
const ANSWERED_MAX: usize = 16 * 1024;

impl CallRelay {
    /// Notes that the answer to a call is sent to the client.
    pub(super) fn note_answered(&mut self, id: RpcId, hash: RunHash, tool: String, call_id: Option<String>) {
        if self.answered.len() < ANSWERED_MAX {
            self.answered.insert(id, SentAnswer { hash, tool, call_id });
        }
    }

    /// Takes back a line that could not be written to the client.
    pub(super) fn take_unwritten(&mut self, line: &Bytes) {
        let McpMessage::Answer { id, body } = read_message(line) else {
            return;
        };
        let Some(SentAnswer { hash, tool, call_id }) = self.answered.remove(&id) else {
            return;
        };
        self.effects
            .push(RelayEffect::Mark(hash, tool.clone(), call_id.clone()));
        let number = self.add_run(ToolRun {
            hash,
            tool,
            call_id,
            server_id: id,
            progress: None,
            asker: None,
            waiters: Vec::new(),
            stage: RunStage::Running,
            heartbeat_at: Duration::ZERO,
        });
        self.end_run(number, ToolOutcome::of_answer(body), false);
    }
}
