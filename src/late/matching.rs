//! Pure decisions about a post: the recorded call that a service means, and the outcome of its result.

use std::collections::BTreeSet;

use super::records::{PostRefusal, RecordedCall, RecordedCallState};
use crate::{
    auth::{Owner, OwnerKey, Principal, TokenHash, WebhookKey},
    ledger::Moment,
    repair::{Tier, id_letters, is_strong},
};

/// The accounts whose calls a service may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceReach {
    /// Every account.
    Everyone,
    /// These accounts, with all their users.
    Only(BTreeSet<Principal>),
}

/// A tool service with its credentials, and the calls that it may answer.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name, for logs and in stored results.
    pub name: String,
    /// The principal of the service. It owns parked results, which belong to no caller yet.
    pub principal: Principal,
    /// The hash of its bearer token. `None` if the service has none.
    pub token: Option<TokenHash>,
    /// The key of its webhook signatures. `None` if the service has none.
    pub key: Option<WebhookKey>,
    /// The accounts whose calls it answers.
    pub reach: ServiceReach,
    /// The tools whose calls it answers. `None` means every tool.
    pub tools: Option<BTreeSet<String>>,
}

impl Service {
    /// Returns `true` if the service may answer calls of this tool and account.
    pub fn may_answer(&self, account: Principal, tool: &[u8]) -> bool {
        let reaches = match &self.reach {
            ServiceReach::Everyone => true,
            ServiceReach::Only(principals) => principals.contains(&account),
        };
        let runs = |tools: &BTreeSet<String>| std::str::from_utf8(tool).is_ok_and(|tool| tools.contains(tool));
        reaches && self.tools.as_ref().is_none_or(runs)
    }
}

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
}

/// Chooses the call that a service means: the only candidate with the letters and digits of its id.
///
/// A wrong choice would put a result into a foreign conversation. A reusable id such as `call_0` therefore never
/// identifies a call, even if only one is recorded: the call that is meant may not be recorded yet.
pub fn choose_call(named: &NamedCall<'_>, owners: &OwnerKey, candidates: &[CandidateCall<'_>]) -> CallMatch {
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
    let fits = |candidate: &CandidateCall<'_>| id_letters(&candidate.call.id) == wanted && is_open_to(candidate);
    let mut found = candidates.iter().enumerate().filter(|(_, candidate)| fits(candidate));
    match (found.next(), found.next()) {
        (None, _) => CallMatch::None,
        // No other call can have a strong id.
        (Some((place, it)), None) if is_strong(&it.call.id, &it.call.tool) => CallMatch::One(place),
        _ => CallMatch::Several,
    }
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
pub fn judge_result(call: &RecordedCall, digest: &[u8; 32], now: Moment) -> PostRuling {
    // A service may post again after a timeout: the same result must succeed, whatever happened to the call since.
    if let Some(posted) = &call.posted {
        return if posted.digest == *digest {
            PostRuling::Repeated
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

/// Returns `true` if the call accepts no result any more: a heartbeat for it is pointless.
pub const fn is_terminal(call: &RecordedCall) -> bool {
    call.posted.is_some() || matches!(call.state, RecordedCallState::Expired | RecordedCallState::Cancelled)
}
