//! Pure decisions about a post: the recorded call that a service means, and the outcome of its result.

use std::collections::BTreeSet;

use super::entry::{Call, State, Why};
use crate::{
    auth::{Owner, OwnerKey, Principal, TokenHash, WebhookKey},
    ledger::Moment,
    repair::{Tier, id_letters, is_strong},
};

/// The accounts whose calls a service may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every account.
    Everybody,
    /// These accounts, with all their users.
    Only(BTreeSet<Principal>),
}

/// A tool service with its credentials, and the calls that it may answer.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name, for logs and in stored results.
    pub name: String,
    /// The principal of the service. It owns parked results, which belong to no caller yet.
    pub own: Principal,
    /// The hash of its bearer token. `None` if the service has none.
    pub token: Option<TokenHash>,
    /// The key of its webhook signatures. `None` if the service has none.
    pub key: Option<WebhookKey>,
    /// The accounts whose calls it answers.
    pub reach: Reach,
    /// The tools whose calls it answers. `None` means every tool.
    pub tools: Option<BTreeSet<String>>,
}

impl Service {
    /// Returns `true` if the service may answer calls of this tool and account.
    pub fn serves(&self, account: Principal, tool: &[u8]) -> bool {
        let reaches = match &self.reach {
            Reach::Everybody => true,
            Reach::Only(principals) => principals.contains(&account),
        };
        let runs = |tools: &BTreeSet<String>| std::str::from_utf8(tool).is_ok_and(|tool| tools.contains(tool));
        reaches && self.tools.as_ref().is_none_or(runs)
    }
}

/// A recorded call that was found by the letters and digits of the posted id.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'c> {
    /// The principal that the call belongs to.
    pub principal: Principal,
    /// The recorded call.
    pub call: &'c Call,
}

/// The result of matching a posted id with recorded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// No recorded call fits.
    None,
    /// The candidate at this index.
    One(usize),
    /// The id does not identify one call.
    Several,
}

/// The call that a service names in a request.
#[derive(Clone, Copy, Debug)]
pub struct Named<'n> {
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
pub fn choose(named: &Named<'_>, owners: &OwnerKey, candidates: &[Candidate<'_>]) -> Match {
    let wanted = id_letters(named.call_id);
    // The configured scope comes first: an owner can narrow it, but never widen it.
    let is_open_to = |candidate: &Candidate<'_>| {
        named
            .service
            .serves(Principal::from_bytes(candidate.call.account), &candidate.call.tool)
            && named
                .owner
                .is_none_or(|owner| owner == Owner::of(owners, candidate.principal))
    };
    // The ledger's index is a truncated hash, so the letters are compared again.
    let fits = |candidate: &Candidate<'_>| id_letters(&candidate.call.id) == wanted && is_open_to(candidate);
    let mut found = candidates.iter().enumerate().filter(|(_, candidate)| fits(candidate));
    match (found.next(), found.next()) {
        (None, _) => Match::None,
        (Some((place, candidate)), None) if is_sure(candidate) => Match::One(place),
        _ => Match::Several,
    }
}

/// Returns `true` if no other call can have this id.
fn is_sure(candidate: &Candidate<'_>) -> bool {
    is_strong(&candidate.call.id, &candidate.call.tool)
}

/// The decision on a result that names a recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The result becomes the call's result, and the call gets this state.
    First(State),
    /// The call already has the same result.
    Again,
    /// The result is refused, and stored for operators.
    Refused(Why),
}

/// Judges a result by its digest. The first result wins. A call that was delivered or acknowledged stays so.
pub fn judge(call: &Call, digest: &[u8; 32], now: Moment) -> Ruling {
    // A service may post again after a timeout: the same result must succeed, whatever happened to the call since.
    if let Some(posted) = &call.posted {
        return if posted.digest == *digest {
            Ruling::Again
        } else {
            Ruling::Refused(Why::Conflict)
        };
    }
    // An effect that cannot be undone must reach the conversation, however late its result comes.
    let is_always_accepted = call.tier == Tier::OneWay;
    match call.state {
        // The tool has confirmed that the effect is undone: a result would contradict that.
        State::Cancelled if call.tier == Tier::Revertible => Ruling::Refused(Why::Cancelled),
        State::Expired if !is_always_accepted => Ruling::Refused(Why::Expired),
        _ if call.expires_at <= now && !is_always_accepted => Ruling::Refused(Why::Expired),
        State::Delivered | State::Acked => Ruling::First(call.state),
        _ => Ruling::First(State::Settled),
    }
}

/// Returns `true` if the call waits for no result: a heartbeat for it is pointless.
pub const fn is_terminal(call: &Call) -> bool {
    call.posted.is_some() || !matches!(call.state, State::Open | State::Abandoned)
}
