//! The choice of a profile for one send: the lane's own first, then its organisation's, then others.
//!
//! Among equals a lane's choice is a hash of lane and profile, weighted: always the same, and even over lanes.

use std::time::Instant;

use super::{Member, ProfileId, Rest, Rotation, windows::name_of};
use crate::policy::Reason;

/// What a send asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The lane, or whatever tells one client's requests from another's.
    pub lane: [u8; 32],
    /// The model.
    pub model: Option<&'a str>,
    /// The profile that the lane is pinned to.
    pub pinned: Option<ProfileId>,
    /// Profiles that this exchange has tried.
    pub tried: &'a [ProfileId],
    /// Whether a profile that shares a quota with one that was tried is of no use.
    pub other_quota: bool,
    /// What binds the lane to its profile.
    pub bound: Bound,
}

/// What binds a lane to its profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// State at the provider that the body refers to: nobody else has it.
    pub state: bool,
    /// Reasoning in the history, which another organisation may not take.
    pub reasoning: bool,
    /// Calls of the lane that are still in flight: only a disabled profile is left.
    pub calls: bool,
}

/// A profile for a send.
#[derive(Clone, Debug, PartialEq)]
pub enum Pick {
    /// Send with this one.
    Use {
        /// The profile.
        id: ProfileId,
        /// Why the lane leaves the one that it had.
        moved: Option<Moved>,
    },
    /// Wait for this one, which is the lane's own.
    Wait {
        /// The profile.
        id: ProfileId,
        /// Until when.
        until: Instant,
    },
    /// Nobody can serve.
    None(Stuck),
}

/// Why a lane leaves its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The profile that it leaves.
    pub from: ProfileId,
    /// The recorded reason of that one's rest; none if it only does not serve the model.
    pub reason: Option<Reason>,
}

/// Why nobody can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The recorded reasons of those that could serve but for their rest.
    pub reasons: Vec<Reason>,
    /// The soonest end of a rest.
    pub until: Option<Instant>,
    /// Whether others could serve, but what binds the lane holds it.
    pub bound: bool,
}

impl Rotation {
    /// Chooses the profile of a send.
    pub fn pick(&self, ask: &Ask<'_>, now: Instant) -> Pick {
        let serving: Vec<ProfileId> = (0..self.members.len()).filter(|id| self.serves(*id, ask)).collect();
        let pinned = ask.pinned.filter(|id| serving.contains(id));
        let lone = self.lone(&serving, ask, now);
        let usable = |id: &ProfileId| lone == Some(*id) || self.rest(*id, ask, now).is_none();
        if let Some(id) = pinned.filter(|id| !ask.tried.contains(id)) {
            if usable(&id) {
                return Pick::Use { id, moved: None };
            }
            let waits = self.rest(id, ask, now).filter(|rest| !rest.disables);
            if let Some(rest) = waits.filter(|rest| rest.until.saturating_duration_since(now) <= self.wait) {
                return Pick::Wait { id, until: rest.until };
            }
        }
        let left = ask.tried.last().copied().or(ask.pinned);
        let open = |id: &ProfileId| !ask.tried.contains(id) && usable(id) && !self.is_spent(*id, ask);
        let ranked = serving.iter().filter(|id| open(id));
        let best = ranked.min_by(|one, other| {
            let key = |id: ProfileId| (self.distance(left, id), -score(&ask.lane, self.members.get(id)));
            let (one, other) = (key(**one), key(**other));
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        });
        match (best, left) {
            (Some(id), Some(from)) if from != *id && self.holds(ask, from, *id, now) => {
                Pick::None(self.stuck(&serving, ask, now, true))
            }
            (Some(id), Some(from)) if from != *id => Pick::Use {
                id: *id,
                moved: Some(Moved {
                    from,
                    reason: self.rest(from, ask, now).map(|rest| rest.reason),
                }),
            },
            (Some(id), _) => Pick::Use { id: *id, moved: None },
            (None, _) => Pick::None(self.stuck(&serving, ask, now, false)),
        }
    }

    fn serves(&self, id: ProfileId, ask: &Ask<'_>) -> bool {
        self.members.get(id).is_some_and(|member| member.serves(ask.model))
    }

    /// The rest that keeps a profile from serving this request for longest; none if it can serve.
    fn rest(&self, id: ProfileId, ask: &Ask<'_>, now: Instant) -> Option<Rest> {
        let asked = name_of(ask.model);
        let concerned = |rest: &Rest| rest.model.as_deref().is_none_or(|model| model == asked);
        let rests = self.rests(id, now).into_iter().filter(concerned);
        rests.max_by_key(|rest| (rest.disables, rest.until))
    }

    /// The only profile that is not disabled: no cooldown takes it away.
    fn lone(&self, serving: &[ProfileId], ask: &Ask<'_>, now: Instant) -> Option<ProfileId> {
        let disabled = |id: ProfileId| self.rest(id, ask, now).is_some_and(|rest| rest.disables);
        let mut able = serving.iter().copied().filter(|id| !disabled(*id));
        able.next().filter(|_| able.next().is_none())
    }

    /// Whether the quota behind a profile is that of one which was just refused for it.
    fn is_spent(&self, id: ProfileId, ask: &Ask<'_>) -> bool {
        ask.other_quota && ask.tried.iter().any(|tried| self.same_quota(*tried, id))
    }

    fn distance(&self, from: Option<ProfileId>, to: ProfileId) -> Distance {
        let of = |id: ProfileId| self.members.get(id).and_then(|member| member.organisation.as_deref());
        match (from, from.and_then(of), of(to)) {
            (None, ..) => Distance::Same,
            (Some(from), ..) if from == to => Distance::Same,
            (_, Some(from), Some(to)) if from == to => Distance::Same,
            (_, Some(_), Some(_)) => Distance::Other,
            _ => Distance::Unknown,
        }
    }

    /// Whether what binds a lane keeps it from this move.
    fn holds(&self, ask: &Ask<'_>, from: ProfileId, to: ProfileId, now: Instant) -> bool {
        let Bound {
            state,
            reasoning,
            calls,
        } = ask.bound;
        let other = self.distance(Some(from), to) == Distance::Other;
        let disabled = || self.rest(from, ask, now).is_some_and(|rest| rest.disables);
        state || (reasoning && other && !self.may_leave_organisation) || (calls && !disabled())
    }

    /// The profile that a lane left goes back for what only that one takes; none if it is disabled.
    pub fn way_back(&self, from: ProfileId, ask: &Ask<'_>, now: Instant) -> Option<ProfileId> {
        let disabled = self.rest(from, ask, now).is_some_and(|rest| rest.disables);
        (self.serves(from, ask) && !disabled && !ask.tried.contains(&from)).then_some(from)
    }

    /// How many profiles could serve this request now.
    pub fn able(&self, ask: &Ask<'_>, now: Instant) -> usize {
        let able = |id: &ProfileId| self.serves(*id, ask) && self.rest(*id, ask, now).is_none();
        (0..self.members.len()).filter(able).count()
    }

    fn stuck(&self, serving: &[ProfileId], ask: &Ask<'_>, now: Instant, bound: bool) -> Stuck {
        let asked = |id: &&ProfileId| !bound || Some(**id) == ask.tried.last().copied().or(ask.pinned);
        let rests: Vec<Rest> = serving
            .iter()
            .filter(asked)
            .filter_map(|id| self.rest(*id, ask, now))
            .collect();
        let mut reasons: Vec<Reason> = rests.iter().map(|rest| rest.reason).collect();
        reasons.sort_unstable();
        reasons.dedup();
        Stuck {
            reasons,
            until: rests.iter().map(|rest| rest.until).min(),
            bound,
        }
    }
}

/// How far another profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// Of the same organisation.
    Same,
    /// Nobody knows.
    Unknown,
    /// Of another one.
    Other,
}

/// How well a profile suits a lane: weighted rendezvous hashing.
fn score(lane: &[u8; 32], member: Option<&Member>) -> f64 {
    let Some(member) = member else { return f64::MIN };
    let mut hash = blake3::Hasher::new_keyed(lane);
    hash.update(member.label.as_bytes());
    let [a, b, c, d, ..] = *hash.finalize().as_bytes();
    let point = (f64::from(u32::from_le_bytes([a, b, c, d])) + 1.0) / (f64::from(u32::MAX) + 2.0);
    -f64::from(member.weight.max(1)) / point.ln()
}
