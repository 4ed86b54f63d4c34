//! Tools that run once: a run begins with a claim, and the proxy learns of its end.

use std::time::Duration;

use bytes::Bytes;

use super::{
    events::{ClaimAnswer, ClaimOrder, RelayEffect, RunClaim, RunHash, RunNumber},
    message::{CallRequest, McpMessage, RpcAnswer, RpcId, batch_elements, call_arguments, read_message},
    outcome::{ToolOutcome, elsewhere_line, is_complete, note_line},
    state::{Asker, CallRelay, ClaimWait, RunStage, ToolRun},
};
use crate::printable::printable_text;

/// The pauses between the claims of a run that goes on elsewhere: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The method of a call, as it stands in a line.
const CALL_METHOD: &[u8] = b"tools/call";

impl CallRelay {
    pub(super) fn is_once(&self, tool: &str) -> bool {
        self.settings.once.has(tool)
    }

    /// Claims a run for these requests. The first that still waits when the claim is granted starts it.
    pub(super) fn claim_run(&mut self, hash: RunHash, askers: Vec<Asker>) {
        let Some(first) = askers.first().filter(|_| !self.is_server_gone) else {
            return;
        };
        let run = ToolRun {
            hash,
            tool: first.request.tool.clone(),
            call_id: None,
            request_id: RpcId::none(),
            progress: None,
            asker: None,
            waiters: askers,
            stage: RunStage::Claiming(ClaimWait {
                retry_at: None,
                pause: FIRST_PAUSE,
                is_elsewhere: false,
            }),
            heartbeat_at: Duration::ZERO,
        };
        let number = self.add_run(run);
        self.send_claim(number);
    }

    fn send_claim(&mut self, number: RunNumber) {
        let server = self.server_label().to_owned();
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let Some(first) = run.waiters.first() else {
            return;
        };
        let claim = RunClaim {
            tool: run.tool.clone(),
            server,
            arguments: call_arguments(&first.line),
            input: first.request.input,
        };
        if let Some(wait) = run.claim_wait() {
            wait.retry_at = None;
        }
        self.effects.push(RelayEffect::Claim(number, claim));
    }

    /// Goes on after the answer to a claim.
    pub(super) fn take_claimed(&mut self, number: RunNumber, answer: ClaimAnswer) {
        let now = self.now;
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let name = printable_text(&run.tool);
        let is_wanted = !run.waiters.is_empty();
        let Some(wait) = run.claim_wait() else {
            return;
        };
        match answer {
            ClaimAnswer::Granted => {
                self.once.claimed.insert(number);
                if is_wanted && !self.is_server_gone {
                    self.start_claimed(number);
                } else {
                    self.runs.remove(&number);
                    self.order(number, ClaimOrder::NotRun);
                }
            }
            ClaimAnswer::InFlight if is_wanted => {
                wait.is_elsewhere = true;
                wait.retry_at = Some(now.saturating_add(wait.pause));
                wait.pause = wait.pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
            ClaimAnswer::InFlight => drop(self.runs.remove(&number)),
            ClaimAnswer::Ran(outcome, said) => {
                if let Some(run) = self.runs.remove(&number).filter(|_| is_wanted) {
                    self.say(said);
                    self.answer_waiters(&run, &outcome);
                }
            }
            ClaimAnswer::RanUnseen(said) => self.end_claiming(number, &said, false),
            ClaimAnswer::Refused(why) => {
                self.say(format!("a call of {name} is refused: {why}"));
                self.end_claiming(number, &why, true);
            }
        }
    }

    /// Answers every request of a run that does not begin.
    fn end_claiming(&mut self, number: RunNumber, why: &str, is_error: bool) {
        let Some(run) = self.runs.remove(&number) else {
            return;
        };
        let is_error = is_error || self.structured_tools.contains(&run.tool);
        for waiter in &run.waiters {
            self.send_own(note_line(&waiter.request.id, why, is_error));
        }
    }

    /// Starts a run that was granted. Its first request is the one that the server answers.
    fn start_claimed(&mut self, number: RunNumber) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let mut asker = run.waiters.remove(0);
        self.effects
            .push(RelayEffect::ToServer(std::mem::take(&mut asker.line)));
        run.call_id.clone_from(&asker.request.call_id);
        run.request_id = asker.request.id.clone();
        run.progress.clone_from(&asker.request.progress);
        run.asker = Some(asker);
        run.stage = RunStage::Running;
    }

    /// Says what becomes of a granted claim. Does nothing for runs without one.
    pub(super) fn order(&mut self, number: RunNumber, order: ClaimOrder) {
        if !self.once.claimed.contains(&number) {
            return;
        }
        if !matches!(order, ClaimOrder::Leave) {
            self.once.claimed.remove(&number);
        }
        if matches!(order, ClaimOrder::Ended(_) | ClaimOrder::NotRun) {
            self.once.reports.insert(number);
        }
        self.effects.push(RelayEffect::Order(number, order));
    }

    /// Reports the end of a claimed run.
    pub(super) fn report_answer(&mut self, number: RunNumber, body: RpcAnswer<'_>) {
        if self.once.claimed.contains(&number) {
            let is_whole = match body {
                RpcAnswer::Result(result) => is_complete(result),
                RpcAnswer::Failure(_) => true,
            };
            let order = if is_whole {
                ClaimOrder::Ended(ToolOutcome::of_answer(body))
            } else {
                // The client brings what the server asks for with the same call, which then claims it again.
                ClaimOrder::NotRun
            };
            self.order(number, order);
        }
    }

    /// Notes that the proxy has the end of a run, or never will.
    pub(super) fn take_reported(&mut self, number: RunNumber, failure: Option<String>) {
        self.once.reports.remove(&number);
        if let Some(why) = failure {
            self.say(format!(
                "the end of a run could not be stored: {why}; another run may repeat it, or find its outcome unknown"
            ));
        }
    }

    /// Returns the time of the next claim of a run that goes on elsewhere.
    pub(super) fn next_claim(&self) -> Option<Duration> {
        let times = self.runs.values().filter_map(|run| match &run.stage {
            RunStage::Claiming(wait) => wait.retry_at,
            _ => None,
        });
        times.min()
    }

    /// Claims again what is due.
    pub(super) fn send_due_claims(&mut self) {
        let now = self.now;
        let is_due = |run: &mut ToolRun| {
            let wait = run.claim_wait();
            wait.is_some_and(|wait| wait.retry_at.is_some_and(|at| at <= now))
        };
        let due = self
            .runs
            .iter_mut()
            .filter_map(|(number, run)| is_due(run).then_some(*number));
        let due: Vec<RunNumber> = due.collect();
        for number in due {
            self.send_claim(number);
        }
    }

    /// Forgets the runs that nobody waits for before they have begun. A claim that is on its way is answered first.
    pub(super) fn drop_unwanted_claims(&mut self) {
        self.runs.retain(|_, run| {
            let is_wanted = !run.waiters.is_empty();
            is_wanted || run.claim_wait().is_none_or(|wait| wait.retry_at.is_none())
        });
    }

    /// Tells the requests whose early answer is due that their run goes on elsewhere.
    pub(super) fn answer_elsewhere(&mut self, is_due: impl Fn(&Asker) -> bool) {
        let mut due = Vec::new();
        for run in self.runs.values_mut().filter(|run| run.waits_elsewhere()) {
            due.extend(run.waiters.extract_if(.., |waiter| is_due(waiter)));
        }
        for Asker { request, since, .. } in due {
            let waited = self.now.saturating_sub(since);
            let is_structured = self.structured_tools.contains(&request.tool);
            self.send_own(elsewhere_line(&request.id, &request.tool, waited, is_structured));
        }
        self.drop_unwanted_claims();
    }

    /// Answers a call that does not run.
    pub(super) fn refuse_call(&mut self, request: &CallRequest, why: &str) {
        let why = format!("{why}; {} did not run", printable_text(&request.tool));
        self.send_own(note_line(&request.id, &why, true));
    }

    /// Returns `true` for a line that may have a call which is not read as one, while some tools run once.
    pub(super) fn may_hide_call(&self, line: &[u8]) -> bool {
        !self.settings.once.is_empty() && memchr::memmem::find(line, CALL_METHOD).is_some()
    }

    /// Passes the elements of a batch one by one, so that each call in it is seen. Holds back what is no JSON.
    pub(super) fn take_hidden_call(&mut self, line: &Bytes) {
        let elements = batch_elements(line);
        let mut is_held = elements.is_empty();
        for element in elements {
            let message = Bytes::from([element, b"\n"].concat());
            // A batch within a batch is no message.
            if matches!(read_message(&message), McpMessage::Other) && self.may_hide_call(&message) {
                is_held = true;
            } else {
                self.take_client_line(message);
            }
        }
        if is_held {
            self.say(
                "a message with a call that cannot be read was not passed: with --once, nothing runs without a claim"
                    .to_owned(),
            );
        }
    }

    /// Returns `true` if a part of a line that is too long to be read is not passed.
    pub(super) fn holds_long_line(&mut self) -> bool {
        if self.settings.once.is_empty() {
            return false;
        }
        if !std::mem::replace(&mut self.once.is_long_line_said, true) {
            self.say(
                "a line of more than 64 MiB was not passed: with --once, nothing runs that cannot be read".to_owned(),
            );
        }
        true
    }
}
