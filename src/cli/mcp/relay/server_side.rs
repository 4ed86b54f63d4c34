//! Lines of the server: answers pass, or become the results of detached runs.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    events::{ClaimOrder, KeptPlace, KeptResult, PostReply, RelayEffect, RunHash, RunNumber, WithdrawReply},
    message::{McpMessage, RpcAnswer, RpcId, read_message, read_server_name, read_tools},
    outcome::{ToolOutcome, absent_client_line, post_source},
    state::{Asker, CallRelay, ClientPresence, RunStage, SentAnswer, ToolRun},
};
use crate::printable::printable_text;

/// Most open requests of a server that stop the clock.
const SERVER_REQUESTS_MAX: usize = 1024;
/// Most tools whose facts are remembered.
const TOOLS_MAX: usize = 4096;

impl CallRelay {
    pub(super) fn take_server_line(&mut self, line: Bytes) {
        match read_message(&line) {
            McpMessage::Answer { id, body } if self.take_answer(&id, body, &line) => return,
            McpMessage::Progress { token } if self.is_unwanted(&token) => return,
            McpMessage::Request { id, is_ping } if self.presence == ClientPresence::Gone => {
                self.effects
                    .push(RelayEffect::ToServer(absent_client_line(&id, is_ping)));
                return;
            }
            McpMessage::Request { id, is_ping } if self.server_requests.len() < SERVER_REQUESTS_MAX => {
                self.server_requests.insert(id, is_ping);
                self.clock.set_stopped(true, self.now);
            }
            McpMessage::Cancel { id, .. } => self.close_server_request(&id),
            _ => {}
        }
        self.effects.push(RelayEffect::ToClient(line));
    }

    pub(super) fn take_server_piece(&mut self, piece: Bytes, is_last: bool) {
        self.effects.push(RelayEffect::ToClient(piece));
        if is_last {
            let held = self.held_lines.take().unwrap_or_default();
            self.effects.extend(held.into_iter().map(RelayEffect::ToClient));
        } else {
            self.held_lines.get_or_insert_default();
        }
    }

    /// Notes that a request of the server has its answer, or needs none.
    pub(super) fn close_server_request(&mut self, id: &RpcId) {
        if self.server_requests.remove(id).is_some() && self.server_requests.is_empty() {
            self.clock.set_stopped(false, self.now);
        }
    }

    /// Returns `true` if the client does not get an answer.
    fn take_answer(&mut self, id: &RpcId, body: RpcAnswer<'_>, line: &Bytes) -> bool {
        let Some(number) = self.open_run(id) else {
            self.note_server(id, body);
            self.note_tools(id, body);
            return false;
        };
        self.report_answer(number, body);
        if self.runs.get(&number).is_some_and(|run| run.asker.is_some()) {
            if let Some(run) = self.runs.remove(&number) {
                if !run.waiters.is_empty() {
                    self.answer_waiters(&run, &ToolOutcome::of_answer(body));
                }
                let answer = SentAnswer {
                    hash: run.hash,
                    tool: run.tool,
                    call_id: run.call_id,
                    sent_at: self.now,
                    line: line.clone(),
                };
                self.note_sent(run.request_id, answer);
            }
            self.effects.push(RelayEffect::ToClient(line.clone()));
        } else if self.runs.get(&number).is_some_and(ToolRun::is_cancelled) && matches!(body, RpcAnswer::Failure(_)) {
            // It has stopped, as the client wanted.
            self.runs.remove(&number);
            return false;
        } else {
            self.end_run(number, ToolOutcome::of_answer(body), false);
        }
        true
    }

    /// Reads the name of the server.
    fn note_server(&mut self, id: &RpcId, body: RpcAnswer<'_>) {
        if let RpcAnswer::Result(result) = body
            && self.greetings.remove(id)
        {
            self.server_name = read_server_name(result).or_else(|| self.server_name.take());
        }
    }

    /// Reads the list of the server's tools.
    fn note_tools(&mut self, id: &RpcId, body: RpcAnswer<'_>) {
        if !self.lists.remove(id) {
            return;
        }
        if let RpcAnswer::Result(result) = body {
            for tool in read_tools(result) {
                if !tool.has_output_schema {
                    self.structured_tools.remove(&tool.name);
                } else if self.structured_tools.len() < TOOLS_MAX {
                    self.structured_tools.insert(tool.name);
                }
            }
        }
    }

    /// Returns `true` for the progress of a request that has its answer already.
    fn is_unwanted(&self, token: &RpcId) -> bool {
        let is_of = |run: &ToolRun| run.progress.as_ref() == Some(token);
        self.runs.values().any(|run| is_of(run) && run.is_detached())
    }

    /// Ends a run to which no client is attached.
    pub(super) fn end_run(&mut self, number: RunNumber, outcome: ToolOutcome, is_lost: bool) {
        let source = post_source(self.server_label());
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        if !run.waiters.is_empty() {
            self.give_result(number, &outcome);
            return;
        }
        let (hash, tool) = (run.hash, run.tool.clone());
        let Some(call_id) = run.call_id.clone() else {
            self.runs.remove(&number);
            self.keep_for_retry(hash, tool, None, outcome, is_lost);
            return;
        };
        let body = outcome.post_body(Some(&source), false);
        run.stage = RunStage::Posting(outcome.clone(), false);
        let kept = KeptResult {
            tool,
            call_id: Some(call_id.clone()),
            place: KeptPlace::Due,
            outcome,
        };
        self.effects.push(RelayEffect::Keep(hash, kept));
        self.effects.push(RelayEffect::Post(number, hash, call_id, body));
    }

    /// Keeps a result that cannot be posted. One that tells nothing is not kept: a retry may run the tool.
    fn keep_for_retry(
        &mut self,
        hash: RunHash,
        tool: String,
        call_id: Option<String>,
        outcome: ToolOutcome,
        is_lost: bool,
    ) {
        let name = printable_text(&tool);
        if is_lost {
            self.effects.push(RelayEffect::Forget(hash, call_id));
            self.say(format!(
                "the server ended during a run of {name}; its outcome is unknown"
            ));
        } else {
            let kept = KeptResult {
                tool,
                call_id,
                place: KeptPlace::RetryOnly,
                outcome,
            };
            self.effects.push(RelayEffect::Keep(hash, kept));
            self.say(format!(
                "{name} has finished; no conversation that the proxy knows waits for its result, which is kept for 1 h: the \
                 same call gets it"
            ));
        }
        self.unmark(hash);
    }

    /// Gives a result to every request that waits for it. Nobody else gets it then, unless this process ends before.
    pub(super) fn give_result(&mut self, number: RunNumber, outcome: &ToolOutcome) {
        let Some(run) = self.runs.remove(&number) else {
            return;
        };
        self.effects.push(RelayEffect::StopPost(number));
        let is_kept = matches!(run.stage, RunStage::Posting(..) | RunStage::Withdrawing(_));
        if is_kept && !run.waiters.is_empty() {
            let kept = KeptResult {
                tool: run.tool.clone(),
                call_id: run.call_id.clone(),
                // Posted now, its conversation would have it twice.
                place: KeptPlace::RetryOnly,
                outcome: outcome.clone(),
            };
            self.effects.push(RelayEffect::Keep(run.hash, kept));
            self.given.insert((run.hash, run.call_id.clone()));
            self.answer_waiters(&run, outcome);
        } else {
            self.answer_waiters(&run, outcome);
            self.effects.push(RelayEffect::Forget(run.hash, run.call_id));
            self.unmark(run.hash);
        }
    }

    /// Forgets the kept results that the client has now, or that are kept under another call.
    pub(super) fn forget_given(&mut self, is_meant: impl Fn(&RunHash) -> bool) {
        let given = std::mem::take(&mut self.given);
        let (meant, others): (BTreeSet<_>, BTreeSet<_>) = given.into_iter().partition(|(hash, _)| is_meant(hash));
        self.given = others;
        for (hash, call_id) in meant {
            self.effects.push(RelayEffect::Forget(hash, call_id));
            self.unmark(hash);
        }
    }

    /// Gives a result to every request that waits for it.
    pub(super) fn answer_waiters(&mut self, run: &ToolRun, outcome: &ToolOutcome) {
        for Asker { request, .. } in &run.waiters {
            let answer = SentAnswer {
                hash: run.hash,
                tool: run.tool.clone(),
                call_id: request.call_id.clone(),
                sent_at: self.now,
                line: outcome.answer_line(&request.id),
            };
            let line = answer.line.clone();
            self.note_sent(request.id.clone(), answer);
            self.send_own(line);
        }
    }

    /// Goes on after a try to post a result.
    pub(super) fn take_post_reply(&mut self, number: RunNumber, reply: PostReply) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let RunStage::Posting(outcome, has_failed) = &mut run.stage else {
            return;
        };
        let outcome = outcome.clone();
        let (hash, tool, call_id) = (run.hash, run.tool.clone(), run.call_id.clone());
        match reply {
            // A try that has failed may have arrived all the same.
            PostReply::Settled | PostReply::Failing if !run.waiters.is_empty() => self.withdraw(number),
            _ if !run.waiters.is_empty() => self.give_result(number, &outcome),
            PostReply::Failing => {
                *has_failed = true;
                self.unmark(hash);
            }
            PostReply::Settled => {
                self.runs.remove(&number);
                let name = printable_text(&tool);
                let id = printable_text(call_id.as_deref().unwrap_or_default());
                self.say(format!("{name} has finished; its result was posted for the call {id}"));
                let kept = KeptResult {
                    tool,
                    call_id,
                    place: KeptPlace::Posted,
                    outcome,
                };
                self.effects.push(RelayEffect::Keep(hash, kept));
                self.unmark(hash);
            }
            PostReply::Refused => {
                self.runs.remove(&number);
                let is_lost = outcome == ToolOutcome::of_ended_server();
                self.keep_for_retry(hash, tool, call_id, outcome, is_lost);
            }
            PostReply::Taken => {
                self.runs.remove(&number);
                self.unmark(hash);
            }
        }
    }

    /// Takes a result back that was posted, or whose post may have arrived.
    pub(super) fn withdraw(&mut self, number: RunNumber) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        if let RunStage::Posting(outcome, _) = &run.stage {
            run.stage = RunStage::Withdrawing(outcome.clone());
            let call_id = run.call_id.clone().unwrap_or_default();
            self.effects.push(RelayEffect::StopPost(number));
            self.effects.push(RelayEffect::Withdraw(number, call_id));
        }
    }

    /// Goes on after a posted result was taken back, or could not be.
    pub(super) fn take_withdraw_reply(&mut self, number: RunNumber, reply: WithdrawReply) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let RunStage::Withdrawing(outcome) = &run.stage else {
            return;
        };
        let outcome = outcome.clone();
        if run.waiters.is_empty() {
            // Nobody waits any more: the result goes to its conversation after all.
            if reply == WithdrawReply::Delivered {
                self.give_result(number, &outcome);
            } else {
                self.end_run(number, outcome, false);
            }
            return;
        }
        let hash = run.hash;
        let mut again = Vec::new();
        if reply == WithdrawReply::Delivered {
            // The model has the result already, so a call that came after it is meant once more.
            let all = std::mem::take(&mut run.waiters);
            (again, run.waiters) = all.into_iter().partition(|asker| asker.may_start);
        }
        self.give_result(number, &outcome);
        self.start_for_all(hash, again);
    }

    /// Ends every run: the server has ended.
    pub(super) fn lose_server(&mut self) {
        self.elsewhere.clear();
        self.is_server_gone = true;
        for run in self
            .runs
            .values_mut()
            .filter(|run| matches!(run.stage, RunStage::Claiming(_)))
        {
            run.waiters.clear();
        }
        self.drop_unwanted_claims();
        let open = |(number, run): (&RunNumber, &ToolRun)| run.is_open().then_some(*number);
        let open: Vec<RunNumber> = self.runs.iter().filter_map(open).collect();
        for number in open {
            self.order(number, ClaimOrder::Lost);
            if self.runs.get(&number).is_some_and(ToolRun::is_detached) {
                self.end_run(number, ToolOutcome::of_ended_server(), true);
            } else {
                // The client sees the end of the server itself, or has stopped the run.
                self.runs.remove(&number);
            }
        }
    }
}
