//! Matching of a posted result with its recorded call, and the write of both.
//!
//! A result is durable before the service gets its answer, if the ledger survives a restart. Each change of a call
//! names the version that was read. Of several posts at once, exactly one becomes the result.

use super::{posted_results::delivery_value, request_marks::is_in_request};
use crate::{
    auth::Principal,
    clock,
    late::{
        LateError, LateStore,
        events::Notices,
        feed, intents,
        matching::{self, CallMatch, CandidateCall, NamedCall, PostRuling},
        records::{
            EventKind, EventSubject, PostRefusal, PostedResult, RecordedCall, RecordedCallState, RefusedResult,
            StoredContent, call_names, retention::retained_until,
        },
        service::{Service, ServiceReach},
    },
    ledger::{CommitOutcome, CommitStep, Moment, ROWS_MAX, Record, RecordKey, RecordKind, RecordName, retry_conflicts},
    repair::Tier,
    table::{RecordValue, Stored},
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
    pub(in crate::late) posted: &'p PostedResult,
    /// The digest of the stored result that it corrects. `None` for a first result.
    pub(in crate::late) replaces: Option<[u8; 32]>,
    /// The step that removes the parked record of the result. It is applied with any outcome of the result.
    pub(in crate::late) parked_removal: Option<&'p CommitStep>,
}

/// The outcome of matching a result with its recorded call.
pub(in crate::late) enum SettleOutcome {
    /// The result is stored with its call, or refused.
    Done(PostOutcome),
    /// No such call is recorded.
    NotRecorded,
    /// The call was recorded a moment ago, and another one of its id may follow: match again at this time.
    TooEarly(Moment),
}

/// The recorded call that a service names, with its record.
pub(in crate::late) enum MatchedCall {
    One(Box<Stored<RecordedCall>>),
    Several,
    None,
}

/// Settles the call that a service names, if it is recorded.
pub(in crate::late) async fn settle_named(
    late: &LateStore,
    named: &NamedCall<'_>,
    post: Post<'_>,
) -> Result<SettleOutcome, LateError> {
    let Post {
        posted, parked_removal, ..
    } = post;
    retry_conflicts(|| async {
        let now = clock::unix_time();
        let (record, call) = match find_call(late, named, Some(&posted.digest), now).await? {
            MatchedCall::None => return Ok(Some(SettleOutcome::NotRecorded)),
            MatchedCall::Several => {
                // The owner is not known, so the refused result belongs to the service.
                let (principal, reason) = (named.service.principal, PostRefusal::Ambiguous);
                let refused = store_refused(late, principal, named, reason, posted, parked_removal);
                return Ok(Some(SettleOutcome::Done(refused.await?)));
            }
            MatchedCall::One(found) => (found.record, found.value),
        };
        if is_shown_later(named, &call, posted) {
            return Ok(Some(SettleOutcome::NotRecorded));
        }
        let principal = record.key.owner();
        let certain_at = call.opened_at + late.0.parts.settings.settling;
        if named.owner.is_none() && now < certain_at && !reaches_one_account(late, named.service).await {
            return Ok(Some(SettleOutcome::TooEarly(certain_at)));
        }
        // A request may contain the stored result already, and the provider its prefix.
        let replaces = post.replaces.filter(|_| !is_in_request(late, &record, &call));
        let outcome = match matching::judge_result(&call, &posted.digest, replaces.as_ref(), now) {
            PostRuling::Repeated => {
                remove_parked(late, parked_removal).await?;
                if is_pushed(&call) {
                    note_stored(late, principal, record.key.name, now).await?;
                }
                PostOutcome::Settled {
                    state: call.state,
                    is_new: false,
                    digest: posted.digest,
                }
            }
            PostRuling::Refused(reason) => {
                if reason == PostRefusal::Conflict {
                    note_conflict(late, &record, &call, now);
                }
                store_refused(late, principal, named, reason, posted, parked_removal).await?
            }
            PostRuling::Accepted(state) => {
                // On a conflict the call has changed: the next try judges the result anew.
                if !write_result(late, &record, call, posted, state, parked_removal).await? {
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

/// Returns `true` if only a request has shown the call, after a result without an owner was posted for it.
///
/// Whoever knows the id of a call could get such a result by a request.
fn is_shown_later(named: &NamedCall<'_>, call: &RecordedCall, posted: &PostedResult) -> bool {
    named.owner.is_none() && !call.is_emitted && call.opened_at > posted.posted_at
}

/// Notes a result that waits in the ledger: it may have been stored without this process taking note of it.
async fn note_stored(late: &LateStore, principal: Principal, name: RecordName, now: Moment) -> Result<(), LateError> {
    let key = RecordKey::new(RecordKind::Delivery, principal, name);
    let delivery = late
        .0
        .parts
        .ledger
        .read(vec![key], now)
        .await?
        .into_iter()
        .flatten()
        .next();
    if let Some(delivery) = delivery.filter(|delivery| delivery.value == delivery_value::WAITING) {
        late.0.posted.add(principal, name, delivery.expires_at);
    }
    Ok(())
}

/// Queues the event that another result was posted for a call.
fn note_conflict(late: &LateStore, record: &Record, call: &RecordedCall, now: Moment) {
    let owner = (record.key.owner(), Principal::from_bytes(call.account));
    let subject = EventSubject::Call(record.key.name);
    let notices = Notices::of_change(late, owner, EventKind::Conflict, subject, (now, now));
    notices.queue(late);
}

/// Returns `true` if all calls that a service may answer belong to one account.
async fn reaches_one_account(late: &LateStore, service: &Service) -> bool {
    match &service.reach {
        ServiceReach::Only(accounts) => accounts.len() <= 1,
        ServiceReach::Everyone => late.0.parts.callers.is_at_most_one().await,
    }
}

/// Writes a result into its call. Returns `false` if another writer changed the call first.
pub(in crate::late) async fn write_result(
    late: &LateStore,
    record: &Record,
    mut call: RecordedCall,
    posted: &PostedResult,
    state: RecordedCallState,
    parked_removal: Option<&CommitStep>,
) -> Result<bool, LateError> {
    let now = clock::unix_time();
    let attached = is_attached(late, &call, now);
    call.state = state;
    let mut stored = PostedResult {
        attached,
        ..posted.clone()
    };
    let is_correction = call.posted.is_some();
    let content = stored.content.split_long();
    // An effect that has happened settles its intent in the same commit: no second holder may run the tool.
    let intent = intents::settle_with_call(&late.0.parts, record.key, &call, &stored, now).await?;
    call.posted = Some(stored);
    (call.is_withheld, call.is_in_request) = (false, false);
    let until = record.expires_at.max(retained_until(&call, late.0.parts.settings.ttl));
    let until = until.max(intent.content_until);
    let content = late.0.parts.content_step(record.key, content, until).await?;
    let settled = ResultWrite {
        call,
        until,
        is_correction,
    };
    let notices = settled.notices(late, &record.key, now);
    // One commit: after a crash the result, its delivery and its parked copy agree with each other.
    let steps = settled
        .steps(late, record)
        .into_iter()
        .chain(intent.step)
        .chain(content);
    let steps = steps.chain(notices.steps(late)).chain(parked_removal.cloned());
    if late.0.parts.ledger.commit(steps.collect(), now).await? != CommitOutcome::Done {
        return Ok(false);
    }
    notices.schedule(late, now);
    settled.announce(late, &record.key, now);
    Ok(true)
}

/// A call with the result that is being written.
struct ResultWrite {
    call: RecordedCall,
    /// The time until which both are stored.
    until: Moment,
    /// `true` if the result takes the place of an earlier one, which has its delivery already.
    is_correction: bool,
}

impl ResultWrite {
    /// Returns the steps that store the call, and its delivery if it is to have one.
    fn steps(&self, late: &LateStore, record: &Record) -> Vec<CommitStep> {
        let principal = record.key.owner();
        let mut steps = vec![CommitStep::Replace {
            key: record.key,
            version: record.version,
            value: self.call.encode(),
            expires_at: self.until,
        }];
        if is_pushed(&self.call) {
            late.0.parts.record_owners.note(RecordKind::Delivery, principal);
            if !self.is_correction {
                let key = RecordKey::new(RecordKind::Delivery, principal, record.key.name);
                steps.push(CommitStep::insert_record(key, delivery_value::WAITING, self.until));
            }
        }
        steps
    }

    /// Returns the events about the result.
    fn notices(&self, late: &LateStore, key: &RecordKey, now: Moment) -> Notices {
        let subject = EventSubject::Call(key.name);
        Notices::of_change(late, self.owner(key), EventKind::Settled, subject, (now, now))
    }

    /// Counts the stored result, and tells everything in this process that waits for it.
    fn announce(self, late: &LateStore, key: &RecordKey, now: Moment) {
        let owner = self.owner(key);
        Notices::forget_deadline(late, owner, key.name);
        late.0.watched_lanes.remove_call(key);
        let call = self.call;
        let label = LateCallLabel::new(&call.id, Some(&call.tool));
        if self.is_correction {
            late.0.parts.telemetry.record_late_event_of("corrected", label);
            return;
        }
        let attached = call.posted.as_ref().is_some_and(|posted| posted.attached);
        let limit = late.0.parts.settings.tool_settings(&call.tool).max_duration;
        let is_overrun = limit.is_some_and(|limit| now > call.opened_at.saturating_add(limit));
        let tool = String::from_utf8_lossy(&call.tool);
        late.0.parts.telemetry.record_late_call(&tool, !attached, is_overrun);
        let kind = if attached { "attached" } else { "detached" };
        late.0.parts.telemetry.record_late_event_of(kind, label);
        if is_pushed(&call) {
            late.0.posted.add(owner.0, key.name, self.until);
            let event = feed::SettledEvent::from_result((key.name, call));
            late.0.feed.send_settled(owner.0, event);
        }
    }

    /// Returns the caller, and the account whose services may answer.
    fn owner(&self, key: &RecordKey) -> (Principal, Principal) {
        let account = Principal::from_bytes(self.call.account);
        (Principal::from_bytes(key.principal), account)
    }
}

/// Returns `true` if the result of a call waits for its conversation. That of a read is restored if a request shows its
/// call, but it is never pushed.
fn is_pushed(call: &RecordedCall) -> bool {
    call.state == RecordedCallState::Settled && call.tier != Tier::Read
}

/// Finds the recorded call that a service names. What is queued about it is not waited for.
///
/// `digest` is that of the posted result. `None` for a request without one.
pub(in crate::late) async fn find_call(
    late: &LateStore,
    named: &NamedCall<'_>,
    digest: Option<&[u8; 32]>,
    now: Moment,
) -> Result<MatchedCall, LateError> {
    let records = late
        .0
        .parts
        .ledger
        .find_by_index(RecordKind::Call, call_names::call_index(named.call_id), ROWS_MAX, now)
        .await?;
    // The list may be cut off: a call that it does not contain could be meant as well.
    if records.len() >= ROWS_MAX {
        return Ok(MatchedCall::Several);
    }
    let mut calls: Vec<Stored<RecordedCall>> = records.into_iter().filter_map(Stored::from_record).collect();
    let candidates: Vec<CandidateCall<'_>> = calls
        .iter()
        .map(|call| CandidateCall {
            principal: call.record.key.owner(),
            call: &call.value,
        })
        .collect();
    Ok(
        match matching::choose_call(named, &late.0.parts.owners, &candidates, digest) {
            CallMatch::One(index) if index < calls.len() => MatchedCall::One(Box::new(calls.swap_remove(index))),
            CallMatch::Several => MatchedCall::Several,
            CallMatch::One(_) | CallMatch::None => MatchedCall::None,
        },
    )
}

/// Returns `true` if the turn of a call is still the last of its lane, as far as this process knows.
fn is_attached(late: &LateStore, call: &RecordedCall, now: Moment) -> bool {
    let is_heard = now < call.heartbeat_at + late.0.parts.settings.detach_after;
    call.state == RecordedCallState::Open && is_heard && !was_left(late, call)
}

/// Returns `true` if this process knows that the lane or the session of a call was left.
pub(in crate::late) fn was_left(late: &LateStore, call: &RecordedCall) -> bool {
    let left_since = |name: &[u8; 32]| late.0.left_at.get(name).is_some_and(|at| at >= call.opened_at);
    call.lane.iter().chain(&call.session).any(left_since)
}

/// Stores a refused result for operators, and removes the parked one. Returns the refusal.
pub(in crate::late) async fn store_refused(
    late: &LateStore,
    principal: Principal,
    named: &NamedCall<'_>,
    reason: PostRefusal,
    posted: &PostedResult,
    parked_removal: Option<&CommitStep>,
) -> Result<PostOutcome, LateError> {
    let now = clock::unix_time();
    let mut posted = posted.clone();
    if posted.content.byte_len() > REFUSED_CONTENT_BYTES_MAX {
        // The digest stays, so that an operator can still compare the content with the service's own log.
        posted.content = StoredContent::Inline("null".to_owned());
    }
    let key = RefusedResult::key(
        principal,
        call_names::refused_result_name(named.call_id, &posted.digest),
    );
    let refused = RefusedResult {
        call_id: named.call_id.to_vec(),
        reason,
        posted,
    };
    let insert = late.0.parts.refused.insert_step(key, &refused, now);
    let steps = [insert].into_iter().chain(parked_removal.cloned());
    match late.0.parts.ledger.commit(steps.collect(), now).await {
        Ok(CommitOutcome::Done) => {}
        // The few slots of a call are bounded: the first refused result in a slot stays.
        Ok(CommitOutcome::Conflict(_)) => remove_parked(late, parked_removal).await?,
        // The service gets the same refusal all the same. A parked result stays until it expires.
        Err(error) => tracing::warn!(%error, "failed to store a refused result for operators"),
    }
    let tool = named.described.map(|(tool, _)| tool);
    let label = LateCallLabel::new(named.call_id, tool);
    late.0.parts.telemetry.record_late_event_of(reason.label(), label);
    Ok(PostOutcome::Refused(reason))
}

/// Removes a parked result.
async fn remove_parked(late: &LateStore, parked_removal: Option<&CommitStep>) -> Result<(), LateError> {
    if let Some(step) = parked_removal {
        // A conflict means that another task has removed it, so the outcome does not matter.
        late.0
            .parts
            .ledger
            .commit(vec![step.clone()], clock::unix_time())
            .await?;
    }
    Ok(())
}
