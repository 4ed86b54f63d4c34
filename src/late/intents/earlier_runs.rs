//! Results of earlier runs: a call without a result gets that of an earlier call with the same intent.

use std::{fmt, time::Duration};

use futures_util::future::try_join_all;
use tokio::time::{Instant, timeout_at};

use super::{Intents, storing};
use crate::{
    auth::{Caller, Principal},
    clock,
    late::{
        records::{IntentRecord, IntentState, NamedCallRecord, intent_rules},
        settings::IntentUse,
    },
    ledger::{Moment, RecordKey, Unread},
    table::{RecordValue, Stored},
};

/// The result of an earlier call with the same intent.
#[derive(Clone, PartialEq, Eq)]
pub struct EarlierRun {
    /// The content. Invariant: one valid JSON value.
    pub content: String,
    /// The time of the result.
    pub settled_at: Moment,
}

impl fmt::Debug for EarlierRun {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EarlierRun({} bytes)", self.content.len())
    }
}

impl Intents {
    /// Returns the results of earlier runs with the intents of these calls, in their order. Only calls of tools that are
    /// configured for it have one.
    pub async fn find_earlier_runs(
        &self,
        caller: Caller,
        calls: &[&NamedCallRecord],
        by: Instant,
    ) -> Result<Vec<Option<EarlierRun>>, Unread> {
        let principal = caller.principal();
        let mut found = vec![None; calls.len()];
        let keys = calls.iter().map(|call| self.intent_to_replay(principal, call));
        let asked: (Vec<usize>, Vec<RecordKey>) = (0..).zip(keys).filter_map(|(at, key)| Some((at, key?))).unzip();
        let (places, keys) = asked;
        let intents = self.parts.read_by(keys, by).await?;
        let runs = try_join_all(intents.into_iter().map(|record| async {
            match record.and_then(Stored::from_record) {
                Some(intent) => self.read_run(&intent).await,
                None => Ok(None),
            }
        }));
        let runs = timeout_at(by, runs).await.map_err(|_| Unread).and_then(|runs| runs);
        for (at, run) in places.into_iter().zip(self.parts.count_unread(runs)?) {
            if let Some(slot) = found.get_mut(at) {
                *slot = run;
            }
        }
        Ok(found)
    }

    /// Returns the key of the intent whose result a call may get. Only tools that are configured for it have one.
    fn intent_to_replay(&self, principal: Principal, (name, call): &NamedCallRecord) -> Option<RecordKey> {
        let is_shared = self.parts.settings.tool_settings(&call.tool).intent != IntentUse::Off;
        // A result that a provider refused would be refused again.
        let intent = self.parts.intent_of_call(principal, *name, call);
        let intent = intent.filter(|_| is_shared && !call.is_withheld);
        Some(IntentRecord::key(principal, intent?))
    }

    /// Reads the result of an intent. A failed run has none: it says nothing about the next one.
    async fn read_run(&self, stored: &Stored<IntentRecord>) -> Result<Option<EarlierRun>, Unread> {
        let now = clock::unix_time();
        let is_settled = stored.value.state == IntentState::Settled;
        let result = stored.value.result.as_ref().filter(|_| is_settled);
        let Some(result) = result.filter(|_| intent_rules::is_replayed(&stored.value, Duration::ZERO, now)) else {
            return Ok(None);
        };
        let content = storing::read_content(&self.parts, stored, now)
            .await
            .map_err(|_| Unread)?;
        Ok(content.map(|content| EarlierRun {
            content,
            settled_at: result.settled_at,
        }))
    }
}
