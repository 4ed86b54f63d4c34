//! Early answers: shortly before a client gives a call up, it learns how to wait.

use std::time::Duration;

use super::{
    events::{RelayEffect, RunNumber},
    outcome::early_line,
    state::{Asker, CallRelay},
};
use crate::cli::mcp::answer_after::AnswerAfter;

/// Clients whose default timeout is known, by the name that they send.
const KNOWN_TIMEOUTS: [(&str, Duration); 3] = [
    ("codex-mcp-client", Duration::from_secs(300)),
    ("opencode", Duration::from_secs(60)),
    ("claude-ai", Duration::from_secs(60)),
];
/// The time between an early answer and the client's timeout: at most a tenth of that.
const HEAD_START: Duration = Duration::from_secs(5);
impl CallRelay {
    /// Returns the time after which the client gives a call up. `None` if it is not known.
    pub(super) fn client_timeout(&self) -> Option<Duration> {
        let known = KNOWN_TIMEOUTS.iter().find(|(name, _)| *name == self.client);
        self.settings
            .client_timeout
            .or_else(|| known.map(|(_, timeout)| *timeout))
    }

    /// Returns the time after which a call gets an early answer. `None` if it never does.
    pub(super) fn answer_after(&self) -> Option<Duration> {
        match self.settings.answer_after {
            AnswerAfter::Never => None,
            AnswerAfter::After(time) => Some(time),
            AnswerAfter::Auto => self.client_timeout().map(|timeout| {
                let tenth = timeout.checked_div(10).unwrap_or_default();
                timeout.saturating_sub(HEAD_START.min(tenth))
            }),
        }
    }

    /// Asks the proxy about the calls whose early answer is due, and answers those that it cannot know.
    pub(super) fn ask_for_due(&mut self) {
        let Some(after) = self.answer_after() else {
            return;
        };
        let reading = self.clock.reading(self.now);
        let is_due = |asker: &Asker| !asker.is_asked && reading >= asker.since_active.saturating_add(after);
        let mut unknown = Vec::new();
        for (number, run) in self.runs.iter_mut().filter(|(_, run)| run.is_open()) {
            for asker in run
                .asker
                .iter_mut()
                .chain(&mut run.waiters)
                .filter(|asker| is_due(asker))
            {
                asker.is_asked = true;
                match &asker.request.call_id {
                    Some(call_id) => self.effects.push(RelayEffect::Ask(*number, call_id.clone())),
                    None => unknown.push(*number),
                }
            }
        }
        for number in unknown {
            self.answer_early(number, false);
        }
        self.answer_elsewhere(is_due);
        let all = std::mem::take(&mut self.elsewhere);
        let (due, waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, asker)| is_due(asker));
        self.elsewhere = waiting;
        for (_, asker) in due {
            self.send_early(&asker, false);
        }
    }

    /// Sends the early answers of a run that were asked for. The run goes on.
    pub(super) fn answer_early(&mut self, number: RunNumber, is_known: bool) {
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.is_open()) else {
            return;
        };
        let mut answered = Vec::new();
        let all = std::mem::take(&mut run.waiters);
        for waiter in all {
            if waiter.is_asked {
                run.call_id = waiter.request.call_id.clone().or_else(|| run.call_id.take());
                answered.push(waiter);
            } else {
                run.waiters.push(waiter);
            }
        }
        let own = run.asker.take_if(|asker| asker.is_asked);
        if own.is_some() {
            self.detach_run(number);
        }
        for asker in own.iter().chain(&answered) {
            self.send_early(asker, is_known);
        }
    }

    fn send_early(&mut self, asker: &Asker, is_known: bool) {
        let tool = &asker.request.tool;
        let waited = self.now.saturating_sub(asker.since);
        let is_structured = self.structured_tools.contains(tool);
        let line = early_line(&asker.request.id, tool, waited, is_known, is_structured);
        self.send_own(line);
    }
}
