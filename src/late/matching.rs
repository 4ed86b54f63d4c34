//! Pure decisions about a post: the recorded call that a service means, and the outcome of its result.

use std::time::Duration;

use super::{
    records::{CallQuery, PostRefusal, RecordedCall, RecordedCallState},
    service::Service,
};
use crate::{
    auth::{Owner, OwnerKey, Principal},
    ledger::Moment,
    repair::{Tier, has_makers_form, id_letters, is_strong},
    session::session_hash,
};

/// A recorded call that was found by the letters and digits of the posted id.
#[derive(Clone, Copy, Debug)]
pub struct CandidateCall<'c> {
    /// The principal that the call belongs to.
    pub principal: Principal,
    /// The recorded call.
    pub call: &'c RecordedCall,
}

/// The result of matching a posted id with recorded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMatch {
    /// No recorded call fits.
    None,
    /// The candidate at this index.
    One(usize),
    /// The id does not identify one call.
    Several,
}

/// The call that a service names in a request.
#[derive(Clone, Copy, Debug)]
pub struct NamedCall<'n> {
    /// The service that sends the request.
    pub service: &'n Service,
    /// The call id, as the service sent it.
    pub call_id: &'n [u8],
    /// The owner of the call. `None` if the service names none.
    pub owner: Option<Owner>,
    /// The name of the call's session, as the client sends it. `None` if the service names none.
    pub session: Option<&'n [u8]>,
    /// The tool and the hash of the canonical input. `None` if the service does not describe the call.
    pub described: Option<(&'n [u8], [u8; 32])>,
}

impl NamedCall<'_> {
    /// Returns `true` if the service says enough to tell calls of one id apart.
    const fn is_addressed(&self) -> bool {
        self.owner.is_some() && (self.session.is_some() || self.described.is_some())
    }

    /// Returns `true` if a recorded call is the one that the service describes, as far as it does.
    fn describes(&self, candidate: &CandidateCall<'_>) -> bool {
        let call = candidate.call;
        let of_session = |name| call.session == Some(session_hash(candidate.principal, name));
        let is_same = |(tool, input): (&[u8], [u8; 32])| call.tool == tool && call.input == Some(input);
        self.session.is_none_or(of_session) && self.described.is_none_or(is_same)
    }
}

/// Returns the calls with an id: those that spell it in the same way, else those with its letters and digits.
pub(super) fn calls_of_id<T>(calls: Vec<T>, id: &[u8], id_of: impl Fn(&T) -> &[u8]) -> Vec<T> {
    let letters = id_letters(id);
    let alike = calls.into_iter().filter(|call| id_letters(id_of(call)) == letters);
    let (exact, others): (Vec<T>, Vec<T>) = alike.partition(|call| id_of(call) == id);
    if exact.is_empty() { others } else { exact }
}

/// Chooses the call that a service means: the only candidate with the letters and digits of its id. Of several calls of one
/// caller the exact spelling chooses.
///
/// A wrong choice would put a result into a foreign conversation. A reusable id such as `call_0` therefore identifies a
/// call only together with its owner and either its session or its tool and input. Even then only one of the calls may
/// wait for a result.
/// `digest` is that of the posted result. `None` for a request without one.
pub fn choose_call(
    named: &NamedCall<'_>,
    owners: &OwnerKey,
    candidates: &[CandidateCall<'_>],
    digest: Option<&[u8; 32]>,
) -> CallMatch {
    let wanted = id_letters(named.call_id);
    // The configured scope comes first: an owner can narrow it, but never widen it.
    let is_open_to = |candidate: &CandidateCall<'_>| {
        named
            .service
            .may_answer(Principal::from_bytes(candidate.call.account), &candidate.call.tool)
            && named
                .owner
                .is_none_or(|owner| owner == Owner::of_principal(owners, candidate.principal))
    };
    // The ledger's index is a truncated hash, so the letters are compared again.
    // Frameworks change inputs, and a maker's id needs no description.
    let is_described =
        |candidate: &CandidateCall<'_>| has_makers_form(&candidate.call.id) || named.describes(candidate);
    let fits = |candidate: &CandidateCall<'_>| {
        id_letters(&candidate.call.id) == wanted && is_open_to(candidate) && is_described(candidate)
    };
    let is_exact = |candidate: &CandidateCall<'_>| candidate.call.id == named.call_id;
    // Another spelling chooses no caller: its client may strip ids.
    let is_outranked = |one: &CandidateCall<'_>| {
        let is_better = |other: &CandidateCall<'_>| other.principal == one.principal && is_exact(other) && fits(other);
        !is_exact(one) && candidates.iter().any(is_better)
    };
    let found: Vec<(usize, &CandidateCall<'_>)> = candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| fits(candidate) && !is_outranked(candidate))
        .collect();
    match found[..] {
        [] => CallMatch::None,
        // No other call can have a strong id.
        [(place, it)] if is_strong(&it.call.id, &it.call.tool) => CallMatch::One(place),
        _ if named.is_addressed() => choose_open(&found, digest),
        _ => CallMatch::Several,
    }
}

/// Chooses the only call that waits for a result: one without any answer, else one with an answer of its client alone,
/// else the only call, whose result may be posted again.
///
/// A post may be the repetition of one whose answer was lost. If another call has the same result already, none is chosen.
fn choose_open(found: &[(usize, &CandidateCall<'_>)], digest: Option<&[u8; 32]>) -> CallMatch {
    let has_result = |(_, candidate): &&(usize, &CandidateCall<'_>)| {
        let posted = candidate.call.posted.as_ref();
        digest.is_some() && posted.map(|posted| &posted.digest) == digest
    };
    let only = |is_it: &dyn Fn(&RecordedCall) -> bool| {
        let mut fits = found.iter().filter(|(_, candidate)| is_it(candidate.call));
        (fits.next(), fits.next().is_some())
    };
    let (first_open, has_more_open) = only(&is_running);
    let (first_answered, has_more_answered) = only(&|call| !is_terminal(call) && !is_running(call));
    let repeated = found.iter().find(has_result);
    match (first_open, has_more_open, first_answered, has_more_answered, found) {
        (.., [(place, _)]) => CallMatch::One(*place),
        _ if repeated.is_some() => match first_open.or(first_answered) {
            Some(_) => CallMatch::Several,
            None => repeated.map_or(CallMatch::Several, |(place, _)| CallMatch::One(*place)),
        },
        (Some((place, _)), false, ..) | (None, _, Some((place, _)), false, _) => CallMatch::One(*place),
        _ => CallMatch::Several,
    }
}

/// Returns `true` if a recorded call is a call of a body.
///
/// The name of a record holds everything that identifies its call, unless the id is strong but of no known maker. Such
/// ids may come again: tool and input then decide, and the session if another session has the same call.
pub fn is_call_of_body(recorded: &RecordedCall, call: &CallQuery) -> bool {
    if has_makers_form(&recorded.id) || !is_strong(&recorded.id, &recorded.tool) {
        return true;
    }
    let is_same = recorded.tool == call.tool
        && (agree(recorded.input, Some(call.input_hash)) || is_in_session(recorded, call.session));
    is_same && (!recorded.has_twin || recorded.session == call.session)
}

/// Returns `true` if an observed call may be the recorded one, and `false` if it is a second, different call of its id.
pub fn is_same_call(recorded: &RecordedCall, observed: &RecordedCall) -> bool {
    let has_same_input = agree(recorded.input, observed.input);
    let is_same = if observed.is_emitted {
        // An answer emits its own call. The first one of another session is not the same.
        has_same_input && (!recorded.is_emitted || agree(recorded.session, observed.session))
    } else {
        // A request may continue another session.
        has_same_input || is_in_session(recorded, observed.session)
    };
    // Clients strip characters from an id that an answer has emitted. No two of its own ids are one call.
    let is_same_id = recorded.id == observed.id || recorded.is_emitted != observed.is_emitted;
    is_same && is_same_id && recorded.tool == observed.tool
}

/// Returns `true` if a call was recorded in this session. Clients may change the input of a call that they send back.
fn is_in_session(recorded: &RecordedCall, session: Option<[u8; 32]>) -> bool {
    session.is_some() && recorded.session == session
}

/// Returns `true` unless both are known and differ.
fn agree(one: Option<[u8; 32]>, other: Option<[u8; 32]>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// The decision on a result that names a recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostRuling {
    /// The result becomes the call's result, and the call gets this state.
    Accepted(RecordedCallState),
    /// The call already has the same result.
    Repeated,
    /// The result is refused, and stored for operators.
    Refused(PostRefusal),
}

/// Judges a result by its digest. The first result wins.
///
/// It also wins over an answer that the client brought meanwhile, such as "job started" or a timeout.
/// A result that `replaces` the stored one by its digest is accepted as long as no request contains that.
pub fn judge_result(call: &RecordedCall, digest: &[u8; 32], replaces: Option<&[u8; 32]>, now: Moment) -> PostRuling {
    // A service may post again after a timeout: the same result must succeed, whatever happened to the call since.
    if let Some(posted) = &call.posted {
        let is_unsent = call.state == RecordedCallState::Settled || call.is_withheld;
        return if posted.digest == *digest {
            PostRuling::Repeated
        } else if is_unsent && replaces == Some(&posted.digest) {
            PostRuling::Accepted(RecordedCallState::Settled)
        } else {
            PostRuling::Refused(PostRefusal::Conflict)
        };
    }
    // An effect that cannot be undone must reach the conversation, however late its result comes.
    let is_always_accepted = call.tier == Tier::OneWay;
    match call.state {
        // The tool has confirmed that the effect is undone: a result would contradict that.
        RecordedCallState::Cancelled if call.tier == Tier::Revertible => PostRuling::Refused(PostRefusal::Cancelled),
        RecordedCallState::Expired if !is_always_accepted => PostRuling::Refused(PostRefusal::Expired),
        _ if call.expires_at <= now && !is_always_accepted => PostRuling::Refused(PostRefusal::Expired),
        _ => PostRuling::Accepted(RecordedCallState::Settled),
    }
}

/// Returns `true` if the call has no answer at all, as far as is known.
pub const fn is_running(call: &RecordedCall) -> bool {
    call.posted.is_none() && call.state.is_open()
}

/// Returns `true` if the call accepts no result any more: a heartbeat for it is pointless.
pub const fn is_terminal(call: &RecordedCall) -> bool {
    call.posted.is_some() || matches!(call.state, RecordedCallState::Expired | RecordedCallState::Cancelled)
}

/// Extends the deadline of a call by the longest run of its tool, unless it waits for no result any more. Returns `true` if
/// it did.
pub(super) fn extend_call(run_limit: Duration, call: &mut RecordedCall, now: Moment) -> bool {
    if is_terminal(call) || call.expires_at <= now {
        return false;
    }
    call.heartbeat_at = now;
    // Never shortened: the configuration may have changed since the call was recorded.
    call.deadline = call.deadline.max(now + run_limit);
    call.expires_at = call.expires_at.max(call.deadline);
    true
}
