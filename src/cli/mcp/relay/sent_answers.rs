//! Answers that were sent to the client. One that could not be written is the result of a detached run, and one that the
//! client may not have read before its end is posted for a conversation that misses it.

use std::time::Duration;

use bytes::Bytes;

use super::{
    events::RelayEffect,
    message::{McpMessage, RpcId, read_message},
    outcome::{ToolOutcome, post_source},
    state::{CallRelay, ClientPresence, RunStage, SentAnswer, ToolRun, WrittenAnswer},
};

/// Most answers that are on their way at once and are remembered.
const SENT_MAX: usize = 16 * 1024;
/// Most written answers that are remembered, and their bytes.
const WRITTEN_MAX: usize = 64;
const WRITTEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time in which a client that ends may not have read what was written, or not have stored it.
const READ_TIME: Duration = Duration::from_secs(5);

impl CallRelay {
    /// Notes that the answer to a call is sent to the client.
    pub(super) fn note_sent(&mut self, id: RpcId, answer: SentAnswer) {
        if self.sent.len() < SENT_MAX {
            self.sent.insert(id, answer);
        }
    }

    /// Notes that the client's pipe has everything that was sent.
    pub(super) fn take_all_written(&mut self) {
        // Own lines that wait for the end of another one are not written.
        if self.held_lines.is_some() {
            return;
        }
        self.forget_given(|_| true);
        for (_, answer) in std::mem::take(&mut self.sent) {
            if let Some(call_id) = answer.call_id {
                self.written.push_back(WrittenAnswer {
                    sent_at: answer.sent_at,
                    call_id,
                    line: answer.line,
                });
            }
        }
        let mut bytes: usize = self.written.iter().map(|answer| answer.line.len()).sum();
        while self.written.len() > WRITTEN_MAX || bytes > WRITTEN_BYTES_MAX {
            let oldest = self.written.pop_front();
            bytes = bytes.saturating_sub(oldest.map_or(0, |answer| answer.line.len()));
        }
        if self.presence > ClientPresence::Speaking {
            self.post_unread();
        }
    }

    /// Posts what the client may not have read, for conversations that miss it.
    pub(super) fn post_unread(&mut self) {
        let since = self.now.saturating_sub(READ_TIME);
        let source = post_source(self.server_label());
        for answer in std::mem::take(&mut self.written) {
            if answer.sent_at >= since
                && let McpMessage::Answer { body, .. } = read_message(&answer.line)
            {
                let body = ToolOutcome::of_answer(body).post_body(Some(&source), true);
                self.effects.push(RelayEffect::PostIfMissing(answer.call_id, body));
            }
        }
    }

    /// Takes back a line that could not be written to the client.
    pub(super) fn take_unwritten(&mut self, line: &Bytes) {
        let McpMessage::Answer { id, body } = read_message(line) else {
            return;
        };
        let Some(SentAnswer {
            hash, tool, call_id, ..
        }) = self.sent.remove(&id)
        else {
            return;
        };
        // It is kept for the call of this answer now.
        self.forget_given(|of| *of == hash);
        self.effects
            .push(RelayEffect::Mark(hash, tool.clone(), call_id.clone()));
        let number = self.add_run(ToolRun {
            hash,
            tool,
            call_id,
            request_id: id,
            progress: None,
            asker: None,
            waiters: Vec::new(),
            stage: RunStage::Running,
            heartbeat_at: Duration::ZERO,
        });
        self.end_run(number, ToolOutcome::of_answer(body), false);
    }
}
