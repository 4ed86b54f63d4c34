//! Reports of a holder: the tool still runs, has ended, or was cancelled.

use std::time::Duration;

use super::{Holder, Intents, storing};
use crate::{
    late::{
        LateError,
        calls::Post,
        changes::LateChange,
        matching::{self, NamedCall, PostRuling},
        records::{
            ClaimSecret, ContentPlace, IntentId, IntentRecord, IntentResult, IntentScope, IntentState, PostRefusal,
            PostedResult, RecordedCall,
            intent_rules::{self, HolderReport, HolderRuling},
        },
        service::Service,
    },
    ledger::{Moment, Record, retry_conflicts},
    table::{RecordValue, Stored},
};

/// The intent that a holder names.
#[derive(Clone, Copy, Debug)]
pub struct HeldIntent<'h> {
    /// The holder that reports.
    pub holder: Holder<'h>,
    /// The intent.
    pub id: IntentId,
    /// The claim, as the holder sent it.
    pub claim: &'h [u8],
}

/// The outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderOutcome {
    /// The report was accepted.
    Accepted {
        /// The state of the intent.
        state: IntentState,
        /// The time from which the holder counts as gone.
        lease_until: Moment,
        /// `false` if the same report came before.
        is_new: bool,
    },
    /// The claim is not the latest one.
    StaleClaim,
    /// The intent was settled otherwise.
    Conflict,
    /// The effect was undone, so that there can be no result. That of a recorded call is stored as evidence.
    Cancelled,
    /// There is no such intent, or the service may not act on it.
    NotFound,
}

/// An intent as services and callers read it.
#[derive(Clone)]
pub struct IntentView {
    /// The id.
    pub id: IntentId,
    /// The state.
    pub state: IntentState,
    /// The tool.
    pub tool: Vec<u8>,
    /// The conversations that share the intent.
    pub scope: IntentScope,
    /// The time of the latest claim. `None` if the call was settled without one, or a person has resolved the outcome.
    pub claimed_at: Option<Moment>,
    /// The time from which the holder counts as gone. `None` unless a holder runs the tool.
    pub lease_until: Option<Moment>,
    /// The time of the settle.
    pub settled_at: Option<Moment>,
    /// The end of the window in which the result is replayed.
    pub window_until: Option<Moment>,
    /// `true` if the tool reported an error.
    pub failed: bool,
    /// The content of the result as JSON. `None` without a result, or if only the fact is known that the tool ran.
    pub content: Option<String>,
}

impl std::fmt::Debug for IntentView {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IntentView({}, {})", self.id, self.state.label())
    }
}

impl Intents {
    /// Returns an intent that the holder may read. `None` if there is none.
    pub async fn view(&self, holder: Holder<'_>, id: IntentId, now: Moment) -> Result<Option<IntentView>, LateError> {
        let Some(stored) = storing::find_for_holder(&self.parts, holder, id, now).await? else {
            return Ok(None);
        };
        let intent = &stored.value;
        let state = intent_rules::state_at(intent, now);
        Ok(Some(IntentView {
            id: IntentId::of_key(&stored.record.key),
            state,
            tool: intent.tool.clone(),
            scope: intent.scope,
            claimed_at: intent.run.claim.is_some().then_some(intent.run.claimed_at),
            lease_until: state.is_in_flight().then_some(intent.run.lease_until),
            settled_at: intent.result.as_ref().map(|result| result.settled_at),
            window_until: intent_rules::window_until(intent),
            failed: intent.result.as_ref().is_some_and(|result| result.failed),
            content: storing::read_content(&self.parts, &stored, now).await?,
        }))
    }

    /// Extends the lease of a holder, and the deadline of its call.
    pub async fn extend_lease(&self, held: &HeldIntent<'_>, now: Moment) -> Result<HolderOutcome, LateError> {
        self.change_held(held, HolderReport::Heartbeat, now, |intent| {
            // A holder whose lease had ended runs after all.
            let lease = Duration::from_secs(intent.run.lease_seconds);
            intent.run.lease_until = intent.run.lease_until.max(now.saturating_add(lease));
        })
        .await
    }

    /// Notes that the tool did not run or that its effect was undone, or with `is_refused` that it will not be undone.
    pub async fn cancel(
        &self,
        held: &HeldIntent<'_>,
        is_refused: bool,
        now: Moment,
    ) -> Result<HolderOutcome, LateError> {
        let (report, state) = if is_refused {
            (HolderReport::CancelRefused, IntentState::CancelRefused)
        } else {
            (HolderReport::Cancelled, IntentState::Cancelled)
        };
        self.change_held(held, report, now, |intent| intent.state = state).await
    }

    /// Settles an intent, and the call for which it runs. `content` is one valid JSON value.
    pub async fn post_result(
        &self,
        held: &HeldIntent<'_>,
        content: String,
        failed: bool,
        now: Moment,
    ) -> Result<HolderOutcome, LateError> {
        let posted = PostedResult::new(content, failed, held.holder.name(), now);
        retry_conflicts(|| async {
            let Some(stored) = storing::find_for_holder(&self.parts, held.holder, held.id, now).await? else {
                return Ok(Some(HolderOutcome::NotFound));
            };
            let report = HolderReport::Result(&posted.digest);
            let ruling = intent_rules::judge_report(&stored.value, &ClaimSecret::hash_text(held.claim), report);
            let call = self.read_call(&stored, now).await?;
            match ruling {
                HolderRuling::Accepted => {}
                HolderRuling::Conflict | HolderRuling::Cancelled => {
                    if let (Some(Stored { record, value: call }), Holder::Service(service)) = (&call, held.holder) {
                        self.store_evidence(service, (record, call), ruling, &posted).await?;
                    }
                    return Ok(Some(outcome_of(ruling, &stored)));
                }
                HolderRuling::Repeated | HolderRuling::StaleClaim => return Ok(Some(outcome_of(ruling, &stored))),
            }
            let ruling = call
                .as_ref()
                .map(|call| matching::judge_result(&call.value, &posted.digest, None, now));
            let is_done = match (call, ruling) {
                // The intent is settled in the same commit.
                (Some(Stored { record, value: call }), Some(PostRuling::Accepted(state))) => {
                    self.calls
                        .write_result(&record, call, Post::of_result(&posted), state)
                        .await?
                }
                // No conversation waits for the call any more, but the effect has happened.
                _ => self.settle_alone((&stored, held.holder), &posted, now).await?,
            };
            Ok(is_done.then_some(HolderOutcome::Accepted {
                state: if failed {
                    IntentState::Failed
                } else {
                    IntentState::Settled
                },
                lease_until: stored.value.run.lease_until,
                is_new: true,
            }))
        })
        .await
    }

    /// Applies the report of a holder to its intent, and to the call for which it runs.
    async fn change_held(
        &self,
        held: &HeldIntent<'_>,
        report: HolderReport<'_>,
        now: Moment,
        change: impl Fn(&mut IntentRecord),
    ) -> Result<HolderOutcome, LateError> {
        retry_conflicts(|| async {
            let Some(stored) = storing::find_for_holder(&self.parts, held.holder, held.id, now).await? else {
                return Ok(Some(HolderOutcome::NotFound));
            };
            let ruling = intent_rules::judge_report(&stored.value, &ClaimSecret::hash_text(held.claim), report);
            if ruling != HolderRuling::Accepted {
                return Ok(Some(outcome_of(ruling, &stored)));
            }
            let mut intent = stored.value.clone();
            change(&mut intent);
            let mut steps = vec![self.parts.intents.replace_step(&stored.record, &intent)];
            if matches!(report, HolderReport::Heartbeat)
                && let Some(mut call) = self.read_call(&stored, now).await?
                && matching::extend_call(self.parts.run_limit(&call.value.tool), &mut call.value, now)
            {
                steps.push(self.parts.calls.replace_step(&call.record, &call.value));
            }
            if self.parts.commit(steps, now).await? {
                if let (HolderReport::Heartbeat, Some(name)) = (report, stored.value.run.call) {
                    let call = RecordedCall::key(stored.record.key.owner(), name);
                    self.participants.note(LateChange::Heartbeat(call), now);
                }
                return Ok(Some(HolderOutcome::Accepted {
                    state: intent.state,
                    lease_until: intent.run.lease_until,
                    is_new: true,
                }));
            }
            Ok(None)
        })
        .await
    }

    /// Settles an intent that has no call. Returns `false` if another writer was first.
    async fn settle_alone(
        &self,
        (stored, holder): (&Stored<IntentRecord>, Holder<'_>),
        posted: &PostedResult,
        now: Moment,
    ) -> Result<bool, LateError> {
        let mut own = posted.content.clone();
        // The output of a user's command is removed at the end of the window, before the record of its run.
        let is_output = matches!(holder, Holder::Caller(_));
        let apart = if is_output { own.split_any() } else { own.split_long() };
        let mut intent = stored.value.clone();
        intent.settle(IntentResult {
            place: ContentPlace::Own(own),
            failed: posted.failed,
            digest: posted.digest,
            settled_at: now,
        });
        let until = intent_rules::window_until(&intent)
            .filter(|_| is_output)
            .unwrap_or_else(|| intent_rules::retained_until(&intent));
        let content = self.parts.content_step(stored.record.key, apart, until).await?;
        let steps = [self.parts.intents.replace_step(&stored.record, &intent)]
            .into_iter()
            .chain(content);
        Ok(self.parts.commit(steps.collect(), now).await?)
    }

    /// Stores a result that came after the end of its intent.
    async fn store_evidence(
        &self,
        service: &Service,
        (record, call): (&Record, &RecordedCall),
        ruling: HolderRuling,
        posted: &PostedResult,
    ) -> Result<(), LateError> {
        let reason = if ruling == HolderRuling::Cancelled {
            PostRefusal::Cancelled
        } else {
            PostRefusal::Conflict
        };
        let named = NamedCall {
            service,
            call_id: &call.id,
            owner: None,
            session: None,
            described: call.input.map(|input| (&call.tool[..], input)),
        };
        let principal = record.key.owner();
        self.calls
            .store_refused(principal, &named, reason, Post::of_result(posted))
            .await
            .map(drop)
    }

    /// Reads the call for which an intent runs.
    async fn read_call(
        &self,
        stored: &Stored<IntentRecord>,
        now: Moment,
    ) -> Result<Option<Stored<RecordedCall>>, LateError> {
        let Some(name) = stored.value.run.call else {
            return Ok(None);
        };
        let key = RecordedCall::key(stored.record.key.owner(), name);
        Ok(self.parts.calls.read(key, now).await?)
    }
}

/// Returns the outcome of a report that changes nothing.
fn outcome_of(ruling: HolderRuling, stored: &Stored<IntentRecord>) -> HolderOutcome {
    match ruling {
        HolderRuling::Accepted | HolderRuling::Repeated => HolderOutcome::Accepted {
            state: stored.value.state,
            lease_until: stored.value.run.lease_until,
            is_new: ruling == HolderRuling::Accepted,
        },
        HolderRuling::StaleClaim => HolderOutcome::StaleClaim,
        HolderRuling::Conflict => HolderOutcome::Conflict,
        HolderRuling::Cancelled => HolderOutcome::Cancelled,
    }
}
