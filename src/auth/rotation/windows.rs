//! The windows in which one profile rests, and the counters that tell how long the next will be.
//!
//! A counter goes back to nothing with a success, or a day after the last rest. (The design would forget it with its
//! window; then no second failure in a row could ever be counted.)

use std::time::{Duration, Instant};

use super::Report;
use crate::policy::{Reason, retry::stretched};

/// Rests of a minute's kind: the first, the second, and all that follow.
const COOLDOWNS: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];
/// Refusals of a credential in a row that disable it.
const REFUSALS_MAX: u32 = 3;
/// How long a refused credential is disabled, doubled each time.
const REFUSED: Duration = Duration::from_secs(600);
const REFUSED_MAX: Duration = Duration::from_secs(3600);
/// How long a profile without means is disabled, doubled each time.
const UNPAID: Duration = Duration::from_secs(5 * 3600);
const UNPAID_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a model that is not allowed is not asked for.
const NOT_ALLOWED: Duration = Duration::from_secs(600);
/// When a counter is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// Windows and counters of one profile that are kept.
const KEPT_MAX: usize = 64;
/// Bytes of a model's name that are kept.
const MODEL_MAX: usize = 128;

/// Whom a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// This profile.
    Profile,
    /// Every profile of its organisation.
    Quota,
}

/// One rest.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) reason: Reason,
    pub(super) scope: Scope,
    /// The only model that it concerns, empty for requests that name none; `None` for every model.
    pub(super) model: Option<Box<str>>,
    pub(super) disables: bool,
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// Failures of one kind in a row.
#[derive(Clone, Debug)]
struct Streak {
    reason: Reason,
    model: Option<Box<str>>,
    count: u32,
    /// Times that it disabled.
    disabled: u32,
    last: Instant,
    /// The end of the rest that the last one brought.
    until: Instant,
}

/// What one profile has behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    windows: Vec<Window>,
    streaks: Vec<Streak>,
}

impl Windows {
    /// The windows that are not over.
    pub(super) fn active(&self, now: Instant) -> impl Iterator<Item = &Window> {
        self.windows.iter().filter(move |window| now < window.until)
    }

    /// Takes note of a failure. True if a window begins or becomes longer.
    pub(super) fn failed(&mut self, reason: Reason, report: &Report<'_>, now: Instant) -> bool {
        self.windows.retain(|window| now < window.until);
        self.streaks
            .retain(|streak| now.saturating_duration_since(streak.until) < FORGOTTEN);
        let model = concerned(reason, report);
        let stated = report.rest.filter(|_| names_its_end(reason));
        let stated = stated.map(|rest| now + bounded(rest, report.rest_max, report.jitter));
        let same = |window: &&mut Window| window.reason == reason && window.model == model;
        if let Some(window) = self.windows.iter_mut().find(same) {
            // Immutable, but for a later time that the provider names.
            let later = stated.filter(|until| *until > window.until);
            return later.map(|until| window.until = until).is_some();
        }
        let streak = self.streak(reason, model.clone(), now);
        streak.count = streak.count.saturating_add(1);
        streak.last = now;
        let (length, most, disables) = length(streak);
        let until = stated.unwrap_or_else(|| now + bounded(length, most, report.jitter));
        streak.until = until;
        let scope = match reason {
            Reason::RateLimit | Reason::SpendLimit => Scope::Quota,
            _ => Scope::Profile,
        };
        if self.windows.len() >= KEPT_MAX {
            let soonest = self.windows.iter().enumerate().min_by_key(|(_, window)| window.until);
            if let Some((at, _)) = soonest {
                self.windows.swap_remove(at);
            }
        }
        self.windows.push(Window {
            reason,
            scope,
            model,
            disables,
            since: now,
            until,
        });
        true
    }

    /// An exchange that began at `began` was a success: what is older is over. Of another's success with the same
    /// quota, only the quota's windows.
    pub(super) fn succeeded(&mut self, model: Option<&str>, began: Instant, shared_only: bool) {
        let concerned = |of: Option<&str>| of.is_none_or(|of| of == name_of(model));
        let mut cleared = Vec::new();
        self.windows.retain(|window| {
            let older = window.since < began && concerned(window.model.as_deref());
            let goes = older && (!shared_only || window.scope == Scope::Quota);
            if goes {
                cleared.push(window.reason);
            }
            !goes
        });
        self.streaks.retain(|streak| {
            let older = streak.last < began && concerned(streak.model.as_deref());
            !older || (shared_only && !cleared.contains(&streak.reason))
        });
    }

    fn streak(&mut self, reason: Reason, model: Option<Box<str>>, now: Instant) -> &mut Streak {
        let known = |streak: &Streak| streak.reason == reason && streak.model == model;
        let at = self.streaks.iter().position(known).unwrap_or_else(|| {
            if self.streaks.len() >= KEPT_MAX {
                let oldest = self.streaks.iter().enumerate().min_by_key(|(_, streak)| streak.last);
                if let Some((at, _)) = oldest {
                    self.streaks.swap_remove(at);
                }
            }
            self.streaks.push(Streak {
                reason,
                model,
                count: 0,
                disabled: 0,
                last: now,
                until: now,
            });
            self.streaks.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed a line above")]
        &mut self.streaks[at]
    }
}

/// Returns the model that a failure concerns; `None` for every model.
fn concerned(reason: Reason, report: &Report<'_>) -> Option<Box<str>> {
    let of_model = match reason {
        Reason::RateLimit | Reason::Permission => !report.every_model,
        Reason::Auth | Reason::Billing | Reason::SpendLimit | Reason::Quota => false,
    };
    of_model.then(|| Box::from(name_of(report.model)))
}

/// Returns the name under which a model's windows are kept. Requests whose model is unknown share the empty one: what
/// they meet must not take the known models away.
pub(super) fn name_of(model: Option<&str>) -> &str {
    let model = model.unwrap_or_default();
    let end = (0..=model.len().min(MODEL_MAX))
        .rev()
        .find(|end| model.is_char_boundary(*end));
    model.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Returns a rest with what chance adds to it, but no more than `most`.
fn bounded(rest: Duration, most: Option<Duration>, jitter: f64) -> Duration {
    let rest = stretched(rest, jitter);
    most.map_or(rest, |most| rest.min(most))
}

/// Whether a provider's word on when it ends is taken for the end.
const fn names_its_end(reason: Reason) -> bool {
    !matches!(reason, Reason::Auth | Reason::Permission)
}

/// Returns how long a rest is if the provider names no end, how long it may be, and whether it disables.
fn length(streak: &mut Streak) -> (Duration, Option<Duration>, bool) {
    let doubled = |first: Duration, times: u32, most: Duration| {
        first
            .saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
            .min(most)
    };
    match streak.reason {
        Reason::Billing | Reason::Quota | Reason::SpendLimit => {
            let length = doubled(UNPAID, streak.count.saturating_sub(1), UNPAID_MAX);
            (length, Some(UNPAID_MAX), true)
        }
        Reason::Permission => (NOT_ALLOWED, None, false),
        Reason::Auth if streak.count >= REFUSALS_MAX => {
            let length = doubled(REFUSED, streak.disabled, REFUSED_MAX);
            streak.disabled = streak.disabled.saturating_add(1);
            (length, Some(REFUSED_MAX), true)
        }
        Reason::Auth | Reason::RateLimit => {
            let nth = usize::try_from(streak.count.saturating_sub(1)).unwrap_or(usize::MAX);
            let [.., longest] = COOLDOWNS;
            (COOLDOWNS.get(nth).copied().unwrap_or(longest), None, false)
        }
    }
}
