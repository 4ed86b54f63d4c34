//! Lines of the client: calls start or join runs, and cancels are held or pass.

use std::time::Duration;

use bytes::Bytes;

use super::{
    events::{ClaimOrder, FoundRun, KeptPlace, KeptResult, RelayEffect, RunHash, RunNumber},
    message::{CallRequest, McpMessage, RpcId, read_message},
    outcome::{absent_client_line, cancel_line},
    state::{Asker, CallRelay, ClientPresence, RunStage, ToolRun},
};
use crate::{digest::digest_of, printable::printable_text};

/// Most calls that are watched at once.
const WATCHED_MAX: usize = 256;
/// Most cancelled runs whose answers, if they come, are told from others.
const CANCELLED_MAX: usize = 256;
/// Longest line of a call that is watched, in bytes.
const CALL_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most requests for lists of tools that wait at once.
const LISTS_MAX: usize = 64;
/// The part of the client's timeout by which a cancel may be early or late: one in so many.
const TIMEOUT_SLACK: u32 = 50;

impl CallRelay {
    pub(super) fn take_client_line(&mut self, line: Bytes) {
        match read_message(&line) {
            McpMessage::Call(request) => return self.take_call(request, line),
            McpMessage::Cancel { id, reason } if self.take_cancel(&id, &reason) => return,
            McpMessage::PartOfCall { request, is_task } if self.is_once(&request.tool) => {
                if is_task {
                    self.refuse_call(&request, "a tool that runs once cannot be called as a task");
                } else {
                    self.take_call(request, line);
                }
                return;
            }
            McpMessage::Other if self.may_hide_call(&line) => return self.take_hidden_call(&line),
            McpMessage::Greeting { id, client } => {
                self.client = client;
                if self.greetings.len() < LISTS_MAX {
                    self.greetings.insert(id);
                }
            }
            McpMessage::ToolList { id } if self.lists.len() < LISTS_MAX => {
                self.lists.insert(id);
            }
            McpMessage::Answer { id, .. } => self.close_server_request(&id),
            _ => {}
        }
        self.effects.push(RelayEffect::ToServer(line));
    }

    /// Starts the run of a call, or lets it join one.
    fn take_call(&mut self, request: CallRequest, line: Bytes) {
        let watched: usize = self.runs.values().map(ToolRun::watched).sum();
        let is_crowd = watched.saturating_add(self.elsewhere.len()) >= WATCHED_MAX;
        if is_crowd && !self.is_crowd_said {
            self.is_crowd_said = true;
            self.say(format!(
                "more than {WATCHED_MAX} calls are open; those beyond pass unwatched: nothing joins them, and their results \
                 are not kept"
            ));
        }
        self.forget_older(&request.id);
        let is_once = self.is_once(&request.tool);
        if is_crowd || line.len() > CALL_BYTES_MAX {
            match (is_once, is_crowd) {
                (false, _) => self.effects.push(RelayEffect::ToServer(line)),
                (true, true) => self.refuse_call(&request, "256 calls are open"),
                (true, false) => self.refuse_call(&request, "the call is larger than 8 MiB"),
            }
            return;
        }
        let hash = digest_of([&self.settings.server[..], request.tool.as_bytes(), &request.input]);
        let asker = Asker {
            request,
            line,
            since: self.now,
            since_active: self.clock.reading(self.now),
            is_asked: false,
            may_start: false,
        };
        let same = |(number, run): (&RunNumber, &ToolRun)| {
            let is_joinable = (run.asker.is_none() || is_once) && !matches!(run.stage, RunStage::Cancelled);
            (is_joinable && run.hash == hash).then_some(*number)
        };
        if let Some(number) = self.runs.iter().find_map(same) {
            self.join_run(number, asker);
        } else {
            self.elsewhere.push((hash, asker));
            self.effects.push(RelayEffect::Look(hash));
        }
    }

    /// Forgets an older request whose id is in use again: it belongs to the newer one.
    fn forget_older(&mut self, id: &RpcId) {
        let is_older =
            |(number, run): (&RunNumber, &ToolRun)| (run.is_open() && run.request_id == *id).then_some(*number);
        let older: Vec<RunNumber> = self.runs.iter().filter_map(is_older).collect();
        for number in older {
            self.order(number, ClaimOrder::Lost);
            if let Some(run) = self.runs.remove(&number) {
                if run.is_detached() {
                    self.unmark(run.hash);
                }
                // They wait for a run of their own then.
                for waiter in run.waiters {
                    self.elsewhere.push((run.hash, waiter));
                    self.effects.push(RelayEffect::Look(run.hash));
                }
            }
        }
    }

    /// Lets a request wait for a detached run, or gives it the result that the run has.
    fn join_run(&mut self, number: RunNumber, mut asker: Asker) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let note = format!(
            "a call of {} joins the run that was started before",
            printable_text(&run.tool)
        );
        asker.may_start = matches!(run.stage, RunStage::Withdrawing(_));
        run.waiters.push(asker);
        if matches!(run.stage, RunStage::Posting(_, true)) {
            self.withdraw(number);
        }
        self.say(note);
    }

    /// Starts a run in the server.
    pub(super) fn start_run(&mut self, hash: RunHash, mut asker: Asker) -> RunNumber {
        let line = std::mem::take(&mut asker.line);
        self.effects.push(RelayEffect::ToServer(line));
        let run = ToolRun {
            hash,
            tool: asker.request.tool.clone(),
            call_id: asker.request.call_id.clone(),
            request_id: asker.request.id.clone(),
            progress: asker.request.progress.clone(),
            asker: Some(asker),
            waiters: Vec::new(),
            stage: RunStage::Running,
            heartbeat_at: Duration::ZERO,
        };
        self.add_run(run)
    }

    /// Starts a run for the first of these requests, and lets the others wait for it.
    pub(super) fn start_for_all(&mut self, hash: RunHash, askers: Vec<Asker>) {
        if askers.first().is_some_and(|first| self.is_once(&first.request.tool)) {
            return self.claim_run(hash, askers);
        }
        let mut askers = askers.into_iter();
        let Some(first) = askers.next() else {
            return;
        };
        let number = self.start_run(hash, first);
        if let Some(run) = self.runs.get_mut(&number) {
            run.waiters.extend(askers);
        }
    }

    /// Goes on with the requests that wait for the run of another process.
    pub(super) fn take_found(&mut self, hash: RunHash, found: FoundRun) {
        if matches!(found, FoundRun::Running) {
            return;
        }
        let all = std::mem::take(&mut self.elsewhere);
        let (askers, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(of, _)| *of == hash);
        self.elsewhere = others;
        let askers: Vec<Asker> = askers.into_iter().map(|(_, asker)| asker).collect();
        match found {
            FoundRun::Running => {}
            FoundRun::Nothing => self.start_for_all(hash, askers),
            // An earlier request gets it, so that this call is meant once more.
            FoundRun::Kept(kept) if self.given.contains(&(hash, kept.call_id.clone())) => {
                self.start_for_all(hash, askers);
            }
            FoundRun::Kept(kept) => self.give_kept(hash, kept, askers),
        }
    }

    /// Gives the kept result of an earlier run, unless its conversation has it already.
    fn give_kept(&mut self, hash: RunHash, kept: KeptResult, mut askers: Vec<Asker>) {
        let Some(request_id) = askers.first().map(|asker| asker.request.id.clone()) else {
            return;
        };
        for asker in &mut askers {
            asker.may_start = true;
        }
        let call_id = kept.call_id.clone();
        let outcome = kept.outcome.clone();
        let number = self.add_run(ToolRun {
            hash,
            tool: kept.tool,
            call_id: kept.call_id,
            request_id,
            progress: None,
            asker: None,
            waiters: askers,
            stage: RunStage::Withdrawing(kept.outcome),
            heartbeat_at: Duration::ZERO,
        });
        match call_id.filter(|_| kept.place == KeptPlace::Posted) {
            Some(call_id) => self.effects.push(RelayEffect::Withdraw(number, call_id)),
            None => self.give_result(number, &outcome),
        }
    }

    /// Returns `true` if a cancel is held, so that the server does not get it.
    fn take_cancel(&mut self, id: &RpcId, reason: &str) -> bool {
        if let Some(place) = self.elsewhere.iter().position(|(_, asker)| asker.request.id == *id) {
            self.elsewhere.remove(place);
            return true;
        }
        let waits = |run: &ToolRun| run.waiters.iter().position(|asker| asker.request.id == *id);
        let found = self.runs.iter().find_map(|(number, run)| Some((*number, waits(run)?)));
        if let Some((number, place)) = found {
            self.leave_run(number, place, reason);
            return true;
        }
        let Some(number) = self.open_run(id) else {
            return false;
        };
        let Some(run) = self.runs.get(&number) else {
            return false;
        };
        let Some(asker) = &run.asker else {
            // The client has given it up before, or has an early answer. A cancelled one is told once more.
            let is_held = run.is_detached() && !self.settings.revertible.contains(&run.tool);
            if !is_held {
                self.cancel_run(number);
            }
            return is_held;
        };
        let age = self.now.saturating_sub(asker.since);
        // A person who gives up one of several requests does not stop the run that the others wait for.
        let is_shared = !run.waiters.is_empty();
        let is_held = is_shared || !self.settings.revertible.contains(&run.tool) && self.is_timeout(reason, age);
        if is_held {
            self.detach_run(number);
        } else {
            self.cancel_run(number);
        }
        is_held
    }

    /// Lets a request that has joined a run go. If a person has given it up and nobody else waits, the run is stopped.
    fn leave_run(&mut self, number: RunNumber, place: usize, reason: &str) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let since = run.waiters.get(place).map_or(Duration::ZERO, |waiter| waiter.since);
        run.drop_waiter(place);
        let is_unwanted = run.is_detached() && run.waiters.is_empty();
        let line = cancel_line(&run.request_id);
        if is_unwanted && !self.is_timeout(reason, self.now.saturating_sub(since)) {
            self.effects.push(RelayEffect::ToServer(line));
            self.cancel_run(number);
        }
        self.drop_unwanted_claims();
    }

    /// Notes that a cancel tells the server to stop a run.
    fn cancel_run(&mut self, number: RunNumber) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let (hash, was_marked) = (run.hash, run.is_detached());
        run.asker = None;
        run.stage = RunStage::Cancelled;
        self.order(number, ClaimOrder::Leave);
        if was_marked {
            self.unmark(hash);
        }
        let cancelled = self.runs.iter().filter(|(_, run)| run.is_cancelled());
        let cancelled: Vec<RunNumber> = cancelled.map(|(number, _)| *number).collect();
        if cancelled.len() > CANCELLED_MAX
            && let Some(oldest) = cancelled.first()
        {
            self.order(*oldest, ClaimOrder::Lost);
            self.runs.remove(oldest);
        }
    }

    /// Returns `true` if a client has given a call up because it took too long.
    fn is_timeout(&self, reason: &str, age: Duration) -> bool {
        let reason = reason.to_lowercase();
        let is_said = ["timed out", "timeout"].iter().any(|word| reason.contains(word));
        let is_time = self.client_timeout().is_some_and(|timeout| {
            let slack = timeout.checked_div(TIMEOUT_SLACK).unwrap_or_default();
            age >= timeout.saturating_sub(slack) && age <= timeout.saturating_add(slack)
        });
        is_said || is_time
    }

    /// Notes that the client no longer waits for a run.
    pub(super) fn detach_run(&mut self, number: RunNumber) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        run.asker = None;
        run.heartbeat_at = self.now;
        let (tool, call_id) = (run.tool.clone(), run.call_id.clone());
        self.effects.push(RelayEffect::Mark(run.hash, tool, call_id));
    }

    /// Detaches every run: the client has closed its input, or its process has ended.
    pub(super) fn lose_client(&mut self) {
        if std::mem::replace(&mut self.presence, ClientPresence::Gone) == ClientPresence::Gone {
            return;
        }
        self.elsewhere.clear();
        for line in self.held_lines.take().unwrap_or_default() {
            self.take_unwritten(&line);
        }
        let mut attached = Vec::new();
        for (number, run) in &mut self.runs {
            while !run.waiters.is_empty() {
                run.drop_waiter(0);
            }
            attached.extend(run.asker.is_some().then_some(*number));
        }
        for number in attached {
            self.detach_run(number);
        }
        self.post_unread();
        self.drop_unwanted_claims();
        // A tool that asks its client would wait for ever.
        for (id, is_ping) in std::mem::take(&mut self.server_requests) {
            self.effects
                .push(RelayEffect::ToServer(absent_client_line(&id, is_ping)));
        }
    }
}
