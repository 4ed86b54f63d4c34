//! Which recorded call a service means, and what becomes of its result. Pure: knows no clock and no store.

use std::collections::BTreeSet;

use super::entry::{Call, State, Why};
use crate::{
    auth::{Owner, OwnerKey, Principal, TokenHash, WebhookKey},
    ledger::Moment,
    repair::{Tier, id_letters, is_strong},
};

/// For whom a service may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// For everybody.
    Everybody,
    /// For these, with every user within them.
    Only(BTreeSet<Principal>),
}

/// A tool service: who may post results, and for whose calls.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name, for logs.
    pub name: String,
    /// What belongs to the service itself, and to no caller.
    pub own: Principal,
    /// The hash of its token.
    pub token: Option<TokenHash>,
    /// The key of its signatures.
    pub key: Option<WebhookKey>,
    /// Whose calls it answers.
    pub reach: Reach,
    /// The tools that it runs; none: all.
    pub tools: Option<BTreeSet<String>>,
}

impl Service {
    /// Whether it may answer calls of this tool, of this principal without its user.
    pub fn serves(&self, account: Principal, tool: &[u8]) -> bool {
        let reaches = match &self.reach {
            Reach::Everybody => true,
            Reach::Only(principals) => principals.contains(&account),
        };
        let runs = |tools: &BTreeSet<String>| std::str::from_utf8(tool).is_ok_and(|tool| tools.contains(tool));
        reaches && self.tools.as_ref().is_none_or(runs)
    }
}

/// A call that has the letters and digits of the id that was named.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'c> {
    /// Whose it is.
    pub principal: Principal,
    /// The call.
    pub call: &'c Call,
}

/// Which call is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// None that is recorded.
    None,
    /// The one at this place.
    One(usize),
    /// Several may be.
    Several,
}

/// What a service names.
#[derive(Clone, Copy, Debug)]
pub struct Named<'n> {
    /// The service.
    pub service: &'n Service,
    /// The id of the call.
    pub call_id: &'n [u8],
    /// Whose the call is.
    pub owner: Option<Owner>,
}

/// The call that a service means: the only one with the letters and digits of its id. One principal has one call of them.
///
/// Wrongly chosen, a result lands in another conversation. So ids that come again, as `call_0`, never mean a call, however
/// few of them are recorded: the one that is meant may just not be.
pub fn choose(named: &Named<'_>, owners: &OwnerKey, candidates: &[Candidate<'_>]) -> Match {
    let wanted = id_letters(named.call_id);
    let is_open_to = |candidate: &Candidate<'_>| {
        named
            .service
            .serves(Principal::from_bytes(candidate.call.account), &candidate.call.tool)
            && named
                .owner
                .is_none_or(|owner| owner == Owner::of(owners, candidate.principal))
    };
    let fits = |candidate: &Candidate<'_>| id_letters(&candidate.call.id) == wanted && is_open_to(candidate);
    let mut found = candidates.iter().enumerate().filter(|(_, candidate)| fits(candidate));
    match (found.next(), found.next()) {
        (None, _) => Match::None,
        (Some((place, candidate)), None) if is_sure(candidate) => Match::One(place),
        _ => Match::Several,
    }
}

/// Whether the id cannot be another call's.
fn is_sure(candidate: &Candidate<'_>) -> bool {
    is_strong(&candidate.call.id, &candidate.call.tool)
}

/// What becomes of a result that names a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It is the call's result; the call stands like this from now on.
    First(State),
    /// The call has this very result already.
    Again,
    /// It is refused, and kept as evidence.
    Refused(Why),
}

/// Judges a result by its digest. The first wins; what its owner has already stays so.
pub fn judge(call: &Call, digest: &[u8; 32], now: Moment) -> Ruling {
    if let Some(posted) = &call.posted {
        return if posted.digest == *digest {
            Ruling::Again
        } else {
            Ruling::Refused(Why::Conflict)
        };
    }
    // What was done for good must be told, however late.
    let told_always = call.tier == Tier::OneWay;
    match call.state {
        State::Cancelled if call.tier == Tier::Revertible => Ruling::Refused(Why::Cancelled),
        State::Expired if !told_always => Ruling::Refused(Why::Expired),
        _ if call.expires_at <= now && !told_always => Ruling::Refused(Why::Expired),
        State::Delivered | State::Acked => Ruling::First(call.state),
        _ => Ruling::First(State::Settled),
    }
}

/// Whether nothing more is to come: a service need not say that it still works on the call.
pub const fn is_terminal(call: &Call) -> bool {
    call.posted.is_some() || !matches!(call.state, State::Open | State::Abandoned)
}
