//! Calls that a model makes again after their first result was lost.
//!
//! A call counts as repeated if the same caller shows one with the same tool and canonical input within
//! [`REPEAT_WINDOW`], while nothing has answered the first. Only hashes are stored, and nothing in a request changes.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    auth::Caller,
    digest_cache::{DigestCache, Lifetime},
    repair::Tier,
};

/// The time within which the same call counts as a repetition.
///
/// Long enough for a model that tries again after a few turns, and short enough that a poll of the next hour is none.
pub const REPEAT_WINDOW: Duration = Duration::from_secs(10 * 60);
/// The most lost calls of one caller. Beyond that the oldest is dropped.
pub const LOST_CALLS_MAX: usize = 64;
/// The most callers with lost calls: about 7 MiB if each has the most.
const CALLERS_MAX: u64 = 1024;

/// The state of a call whose result is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossKind {
    /// The provider got a placeholder, of the proxy or of the client, in place of the result.
    Placeholder,
    /// The lane went on without any result.
    Abandoned,
    /// No client waited for the call any more when the lane went on.
    Detached,
}

impl LossKind {
    /// Every kind, which are the values of the metric label.
    pub const ALL: [Self; 3] = [Self::Placeholder, Self::Abandoned, Self::Detached];

    /// Returns the name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Placeholder => "placeholder",
            Self::Abandoned => "abandoned",
            Self::Detached => "detached",
        }
    }
}

/// One call of a body, in document order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownCall {
    /// The name of the call, the same in every body that contains it.
    pub key: [u8; 32],
    /// The hash of its tool and its canonical input.
    pub intent: [u8; 32],
    /// The tier of its tool.
    pub tier: Tier,
    /// The loss of its result. `None` if it has a result, or may still get one.
    pub loss: Option<LossKind>,
    /// `true` if no assistant turn follows it.
    pub is_in_last_turn: bool,
}

/// A repetition of a lost call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedCall {
    /// The loss of the first call.
    pub first: LossKind,
    /// The tier of the tool.
    pub tier: Tier,
}

/// A lost call of a caller.
#[derive(Clone, Copy, Debug)]
struct LostCall {
    key: [u8; 32],
    intent: [u8; 32],
    loss: LossKind,
    lost_at: Instant,
}

/// The lost calls of all callers.
#[derive(Debug)]
pub(super) struct LostCalls {
    callers: DigestCache<[u8; 32], Arc<Mutex<Vec<LostCall>>>>,
}

impl Default for LostCalls {
    fn default() -> Self {
        Self {
            callers: DigestCache::new(CALLERS_MAX, Lifetime::SinceUse(REPEAT_WINDOW)),
        }
    }
}

impl LostCalls {
    /// Returns `true` if a caller may have a lost call that can still be repeated.
    pub(super) fn has_any(&self, caller: &Caller) -> bool {
        self.callers.contains_key(caller.principal_bytes())
    }

    /// Notes the calls of a request that a provider accepted. Returns the repetitions among them.
    pub(super) fn note_calls(&self, caller: &Caller, calls: &[ShownCall], now: Instant) -> Vec<RepeatedCall> {
        let loses = calls.iter().any(|call| call.is_in_last_turn && call.loss.is_some());
        // Callers without a credential are not told apart, so nothing is stored for them.
        if !caller.is_authenticated() || !(loses || self.has_any(caller)) {
            return Vec::new();
        }
        let key = *caller.principal_bytes();
        let known = self.callers.get_or_insert_with(&key, Arc::default);
        let mut lost = known.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|call| now.saturating_duration_since(call.lost_at) <= REPEAT_WINDOW);
        let repeated = take_repeated(&mut lost, calls);
        add_lost(&mut lost, calls, now);
        if lost.is_empty() {
            // Without an entry the caller's next requests cost nothing.
            self.callers.remove(&key);
        }
        repeated
    }
}

/// Removes the lost calls that were answered or repeated. Returns the repetitions.
fn take_repeated(lost: &mut Vec<LostCall>, calls: &[ShownCall]) -> Vec<RepeatedCall> {
    let places: HashMap<[u8; 32], usize> = calls.iter().enumerate().map(|(at, call)| (call.key, at)).collect();
    lost.retain(|lost| {
        let place = places.get(&lost.key);
        place
            .and_then(|at| calls.get(*at))
            .is_none_or(|call| call.loss.is_some())
    });
    let mut repeated = Vec::new();
    for call in calls.iter().filter(|call| call.is_in_last_turn) {
        // Parallel calls are no repetitions of each other, nor is a call that is shown again its own.
        let is_parallel = |key: &[u8; 32]| {
            places
                .get(key)
                .and_then(|at| calls.get(*at))
                .is_some_and(|call| call.is_in_last_turn)
        };
        let is_first = |lost: &LostCall| lost.intent == call.intent && !is_parallel(&lost.key);
        if let Some(index) = lost.iter().position(is_first) {
            // Removed, so that a client that sends the request again counts nothing twice.
            let first = lost.remove(index).loss;
            repeated.push(RepeatedCall { first, tier: call.tier });
        }
    }
    repeated
}

/// Adds the lost calls of the last turn. A known one keeps its time.
fn add_lost(lost: &mut Vec<LostCall>, calls: &[ShownCall], now: Instant) {
    // Earlier turns do not count: a placeholder stays in the history, and would keep its call new for ever.
    for call in calls.iter().filter(|call| call.is_in_last_turn) {
        let Some(loss) = call.loss else { continue };
        if lost.iter().any(|known| known.key == call.key) {
            continue;
        }
        lost.push(LostCall {
            key: call.key,
            intent: call.intent,
            loss,
            lost_at: now,
        });
    }
    let over = lost.len().saturating_sub(LOST_CALLS_MAX);
    lost.drain(..over);
}
