//! Matching of a posted result with its recorded call, and the write of both.
//!
//! A result is durable before the service gets its answer, if the ledger survives a restart. Each change of a call
//! names the version that was read. Of several posts at once, exactly one becomes the result.

use super::Calls;
use crate::{
    auth::Principal,
    clock,
    late::{
        LateError,
        changes::LateChange,
        matching::{self, NamedCall, PostRuling},
        named_calls::MatchedCall,
        records::{
            PostRefusal, PostedResult, RecordedCall, RecordedCallState, RefusedResult, StoredContent, call_names,
            delivery_value, retention::retained_until,
        },
        service::{Service, ServiceReach},
    },
    ledger::{CommitOutcome, CommitStep, Moment, Record, RecordKey, RecordKind, RecordName, retry_conflicts},
    table::RecordValue,
    telemetry::dashboard::LateCallLabel,
};

/// The longest content, in bytes, that is stored with a refused result: 64 KiB.
const REFUSED_CONTENT_BYTES_MAX: u64 = 64 * 1024;

/// The outcome of a posted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// The result is stored as the result of a call.
    Settled {
        /// The state of the call.
        state: RecordedCallState,
        /// `false` if the same result had been posted before.
        is_new: bool,
        /// The digest of the stored result, by which a service may correct it.
        digest: [u8; 32],
    },
    /// No such call is recorded yet, or its match has not settled: the result waits.
    Parked {
        /// The time until which it waits.
        until: Moment,
    },
    /// The result was refused, and stored for operators.
    Refused(PostRefusal),
    /// No such call is recorded, and the id is reusable, so that the result cannot wait for one.
    Unknown,
}

/// A result on its way to its call.
#[derive(Clone, Copy)]
pub(in crate::late) struct Post<'p> {
    pub(super) posted: &'p PostedResult,
    /// The digest of the stored result that it corrects. `None` for a first result.
    pub(super) replaces: Option<[u8; 32]>,
    /// The step that removes the parked record of the result. It is applied with any outcome of the result.
    pub(super) parked_removal: Option<&'p CommitStep>,
    /// The program whose result it is, as its service says. Events tell it. It is not stored.
    pub(super) source: Option<&'p str>,
}

impl<'p> Post<'p> {
    /// Returns the post of a first result that was not parked.
    pub(in crate::late) const fn of_result(posted: &'p PostedResult) -> Self {
        Self {
            posted,
            replaces: None,
            parked_removal: None,
            source: None,
        }
    }
}

/// The outcome of matching a result with its recorded call.
pub(super) enum SettleOutcome {
    /// The result is stored with its call, or refused.
    Done(PostOutcome),
    /// No such call is recorded.
    NotRecorded,
    /// The call was recorded a moment ago, and another one of its id may follow: match again at this time.
    TooEarly(Moment),
}

impl Calls {
    /// Settles the call that a service names, if it is recorded.
    pub(super) async fn settle_named(&self, named: &NamedCall<'_>, post: Post<'_>) -> Result<SettleOutcome, LateError> {
        let Post {
            posted, parked_removal, ..
        } = post;
        retry_conflicts(|| async {
            let now = clock::unix_time();
            let (record, call) = match self.0.parts.find_call(named, Some(&posted.digest), now).await? {
                MatchedCall::None => return Ok(Some(SettleOutcome::NotRecorded)),
                MatchedCall::Several => {
                    // The owner is not known, so the refused result belongs to the service.
                    let (principal, reason) = (named.service.principal, PostRefusal::Ambiguous);
                    let refused = self.store_refused(principal, named, reason, post);
                    return Ok(Some(SettleOutcome::Done(refused.await?)));
                }
                MatchedCall::One(found) => (found.record, found.value),
            };
            if is_shown_later(named, &call, posted) {
                return Ok(Some(SettleOutcome::NotRecorded));
            }
            let principal = record.key.owner();
            let certain_at = call.opened_at + self.0.parts.settings.settling;
            if named.owner.is_none() && now < certain_at && !self.reaches_one_account(named.service).await {
                return Ok(Some(SettleOutcome::TooEarly(certain_at)));
            }
            // A request may contain the stored result already, and the provider its prefix.
            let replaces = post.replaces.filter(|_| !self.is_in_request(&record, &call));
            let outcome = match matching::judge_result(&call, &posted.digest, replaces.as_ref(), now) {
                PostRuling::Repeated => {
                    self.remove_parked(parked_removal).await?;
                    if call.is_pushed() {
                        self.note_stored(principal, record.key.name, now).await?;
                    }
                    PostOutcome::Settled {
                        state: call.state,
                        is_new: false,
                        digest: posted.digest,
                    }
                }
                PostRuling::Refused(reason) => {
                    if reason == PostRefusal::Conflict {
                        self.0.participants.note(LateChange::Conflict(record.key, &call), now);
                    }
                    self.store_refused(principal, named, reason, post).await?
                }
                PostRuling::Accepted(settled) => {
                    // The client has brought an answer of its own, so that nothing is missing.
                    let has_answer = posted.only_if_missing && call.state == RecordedCallState::Delivered;
                    let state = if has_answer { call.state } else { settled };
                    // On a conflict the call has changed: the next try judges the result anew.
                    if !self.write_result(&record, call, post, state).await? {
                        return Ok(None);
                    }
                    PostOutcome::Settled {
                        state,
                        is_new: true,
                        digest: posted.digest,
                    }
                }
            };
            Ok(Some(SettleOutcome::Done(outcome)))
        })
        .await
    }
}

/// Returns `true` if only a request has shown the call, after a result without an owner was posted for it.
///
/// Whoever knows the id of a call could get such a result by a request.
fn is_shown_later(named: &NamedCall<'_>, call: &RecordedCall, posted: &PostedResult) -> bool {
    named.owner.is_none() && !call.is_emitted && call.opened_at > posted.posted_at
}

impl Calls {
    /// Notes a result that waits in the ledger: it may have been stored without this process taking note of it.
    async fn note_stored(&self, principal: Principal, name: RecordName, now: Moment) -> Result<(), LateError> {
        let key = RecordKey::new(RecordKind::Delivery, principal, name);
        let delivery = self.0.parts.read_record(key, now).await?;
        if let Some(delivery) = delivery.filter(|delivery| delivery.value == delivery_value::WAITING) {
            self.0.posted.add(principal, name, delivery.expires_at);
        }
        Ok(())
    }

    /// Returns `true` if all calls that a service may answer belong to one account.
    async fn reaches_one_account(&self, service: &Service) -> bool {
        match &service.reach {
            ServiceReach::Only(accounts) => accounts.len() <= 1,
            ServiceReach::Everyone => self.0.parts.callers.is_at_most_one().await,
        }
    }

    /// Writes a result into its call. Returns `false` if another writer changed the call first.
    pub(in crate::late) async fn write_result(
        &self,
        record: &Record,
        mut call: RecordedCall,
        post: Post<'_>,
        state: RecordedCallState,
    ) -> Result<bool, LateError> {
        let posted = post.posted;
        let (parts, now, key) = (&self.0.parts, clock::unix_time(), record.key);
        let attached = self.is_attached(&call, now);
        call.state = state;
        let mut stored = PostedResult {
            attached,
            // A correction goes where the result that it corrects goes.
            only_if_missing: call
                .posted
                .as_ref()
                .map_or(posted.only_if_missing, |earlier| earlier.only_if_missing),
            ..posted.clone()
        };
        let content = stored.content.split_long();
        let is_correction = call.posted.replace(stored).is_some();
        (call.is_withheld, call.is_in_request) = (false, false);
        let change = if is_correction {
            LateChange::Corrected(key, &call)
        } else {
            LateChange::Settled(key, &call)
        };
        // An effect that has happened settles its intent in the same commit: no second holder may run the tool.
        let joined = self.0.participants.join(change, now).await?;
        let until = record.expires_at.max(retained_until(&call, parts.settings.ttl));
        let until = until.max(joined.content_until);
        let content = parts.content_step(key, content, until).await?;
        // One commit: after a crash the result, its delivery and its parked copy agree with each other.
        let steps = self.result_steps(record, &call, is_correction, until).into_iter();
        let steps = steps
            .chain(joined.steps)
            .chain(content)
            .chain(post.parked_removal.cloned());
        if !parts.commit(steps.collect(), now).await? {
            return Ok(false);
        }
        let label = LateCallLabel::new(&call.id, Some(&call.tool)).with_source(post.source);
        if is_correction {
            parts.telemetry.record_late_event_of("corrected", label);
        } else {
            self.count_result(&call, label, now);
            if call.is_pushed() {
                self.0.posted.add(key.owner(), key.name, until);
            }
        }
        self.0.participants.note(change, now);
        Ok(true)
    }

    /// Returns the steps that store a call until `until`, and its delivery if it is to have one. A correction takes the place
    /// of a result that has its delivery already.
    fn result_steps(
        &self,
        record: &Record,
        call: &RecordedCall,
        is_correction: bool,
        until: Moment,
    ) -> Vec<CommitStep> {
        let principal = record.key.owner();
        let mut steps = vec![CommitStep::Replace {
            key: record.key,
            version: record.version,
            value: call.encode(),
            expires_at: until,
        }];
        if call.is_pushed() {
            self.0.parts.record_owners.note(RecordKind::Delivery, principal);
            if !is_correction {
                let key = record.key.with_kind(RecordKind::Delivery);
                steps.push(CommitStep::insert_record(key, delivery_value::WAITING, until));
            }
        }
        steps
    }

    /// Counts the first result of a call.
    fn count_result(&self, call: &RecordedCall, label: LateCallLabel, now: Moment) {
        let parts = &self.0.parts;
        let attached = call.posted.as_ref().is_some_and(|posted| posted.attached);
        let limit = parts.settings.tool_settings(&call.tool).max_duration;
        let is_overrun = limit.is_some_and(|limit| now > call.opened_at.saturating_add(limit));
        let tool = String::from_utf8_lossy(&call.tool);
        parts.telemetry.record_late_call(&tool, !attached, is_overrun);
        let kind = if attached { "attached" } else { "detached" };
        parts.telemetry.record_late_event_of(kind, label);
    }

    /// Returns `true` if the turn of a call is still the last of its lane, as far as this process knows.
    fn is_attached(&self, call: &RecordedCall, now: Moment) -> bool {
        let is_heard = now < call.heartbeat_at + self.0.parts.settings.detach_after;
        call.state == RecordedCallState::Open && is_heard && !self.was_left(call)
    }

    /// Returns `true` if this process knows that the lane or the session of a call was left.
    pub(super) fn was_left(&self, call: &RecordedCall) -> bool {
        let left_since = |name: &[u8; 32]| self.0.left_at.get(name).is_some_and(|at| at >= call.opened_at);
        call.lane.iter().chain(&call.session).any(left_since)
    }

    /// Stores a refused result for operators, and removes the parked one. Returns the refusal.
    pub(in crate::late) async fn store_refused(
        &self,
        principal: Principal,
        named: &NamedCall<'_>,
        reason: PostRefusal,
        post: Post<'_>,
    ) -> Result<PostOutcome, LateError> {
        let now = clock::unix_time();
        let (mut posted, parked_removal) = (post.posted.clone(), post.parked_removal);
        if posted.content.byte_len() > REFUSED_CONTENT_BYTES_MAX {
            // The digest stays, so that an operator can still compare the content with the service's own log.
            posted.content = StoredContent::Inline("null".to_owned());
        }
        posted.only_if_missing = false;
        let key = RefusedResult::key(
            principal,
            call_names::refused_result_name(named.call_id, &posted.digest),
        );
        let refused = RefusedResult {
            call_id: named.call_id.to_vec(),
            reason,
            posted,
        };
        let insert = self.0.parts.refused.insert_step(key, &refused, now);
        let steps = [insert].into_iter().chain(parked_removal.cloned());
        match self.0.parts.ledger.commit(steps.collect(), now).await {
            Ok(CommitOutcome::Done) => {}
            // The few slots of a call are bounded: the first refused result in a slot stays.
            Ok(CommitOutcome::Conflict(_)) => self.remove_parked(parked_removal).await?,
            // The service gets the same refusal all the same. A parked result stays until it expires.
            Err(error) => tracing::warn!(%error, "failed to store a refused result for operators"),
        }
        let tool = named.described.map(|(tool, _)| tool);
        let label = LateCallLabel::new(named.call_id, tool).with_source(post.source);
        self.0.parts.telemetry.record_late_event_of(reason.label(), label);
        Ok(PostOutcome::Refused(reason))
    }

    /// Removes a parked result.
    async fn remove_parked(&self, parked_removal: Option<&CommitStep>) -> Result<(), LateError> {
        if let Some(step) = parked_removal {
            // A conflict means that another task has removed it, so the outcome does not matter.
            let removed = self.0.parts.commit(vec![step.clone()], clock::unix_time());
            removed.await?;
        }
        Ok(())
    }
}
