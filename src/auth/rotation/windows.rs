//! The cooldowns of one profile, and the counters from which the next one's length follows.
//!
//! A success resets a counter, and so does a day after the last cooldown. (The design would forget a counter with its
//! cooldown, but then no second failure in a row could be counted.)

use std::time::{Duration, Instant};

use super::Report;
use crate::policy::{Reason, retry::stretched};

/// Short cooldowns: the first, the second, and all that follow.
const COOLDOWNS: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];
/// Rejections of a credential in a row that disable the profile.
const REFUSALS_MAX: u32 = 3;
/// Time for which a rejected credential is disabled, doubled each time.
const REFUSED: Duration = Duration::from_secs(600);
const REFUSED_MAX: Duration = Duration::from_secs(3600);
/// Time for which a profile without credit or quota is disabled, doubled each time.
const UNPAID: Duration = Duration::from_secs(5 * 3600);
const UNPAID_MAX: Duration = Duration::from_secs(24 * 3600);
/// Cooldown of a model that the credential may not use.
const NOT_ALLOWED: Duration = Duration::from_secs(600);
/// Time after a cooldown at which its counter is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// Cooldowns, and counters, of one profile that are stored.
const KEPT_MAX: usize = 64;
/// Bytes of a model's name that are stored.
const MODEL_MAX: usize = 128;

/// The extent of a cooldown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// This profile.
    Profile,
    /// Every profile of its organisation.
    Quota,
}

/// One cooldown.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) reason: Reason,
    pub(super) scope: Scope,
    /// The only model that is affected, empty for requests without a model; `None` for every model.
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
    /// Number of times that these failures disabled the profile.
    disabled: u32,
    last: Instant,
    /// The end of the cooldown after the last failure.
    until: Instant,
}

/// The cooldowns and counters of one profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    windows: Vec<Window>,
    streaks: Vec<Streak>,
}

impl Windows {
    /// Returns the cooldowns in force.
    pub(super) fn active(&self, now: Instant) -> impl Iterator<Item = &Window> {
        self.windows.iter().filter(move |window| now < window.until)
    }

    /// Records a failure. Returns `true` if a cooldown begins or becomes longer.
    pub(super) fn failed(&mut self, reason: Reason, report: &Report<'_>, now: Instant) -> bool {
        // Expired entries must not use up the space of new ones.
        self.windows.retain(|window| now < window.until);
        self.streaks
            .retain(|streak| now.saturating_duration_since(streak.until) < FORGOTTEN);
        let model = concerned(reason, report);
        let stated = report.rest.filter(|_| names_its_end(reason));
        let stated = stated.map(|rest| now + bounded(rest, report.rest_max, report.jitter));
        let same = |window: &&mut Window| window.reason == reason && window.model == model;
        if let Some(window) = self.windows.iter_mut().find(same) {
            // A cooldown never changes, except for a later time that the provider names.
            let later = stated.filter(|until| *until > window.until);
            return later.map(|until| window.until = until).is_some();
        }
        let streak = self.streak(reason, model.clone(), now);
        // Counted only for a new cooldown: a burst of failures within one cooldown is one failure.
        streak.count = streak.count.saturating_add(1);
        streak.last = now;
        let (length, most, disables) = length(streak);
        let until = stated.unwrap_or_else(|| now + bounded(length, most, report.jitter));
        streak.until = until;
        let scope = match reason {
            // These limits belong to the organisation, all others to one credential.
            Reason::RateLimit | Reason::SpendLimit => Scope::Quota,
            _ => Scope::Profile,
        };
        // Clients choose model names, so memory must be bounded. The cooldown that ends first is lost.
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

    /// Records the success of an exchange that began at `began`, and removes older cooldowns. With `shared_only`, it
    /// removes those of the quota only.
    pub(super) fn succeeded(&mut self, model: Option<&str>, began: Instant, shared_only: bool) {
        let concerned = |of: Option<&str>| of.is_none_or(|of| of == name_of(model));
        let mut cleared = Vec::new();
        self.windows.retain(|window| {
            // A cooldown that began during the exchange is newer evidence than its success.
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
                // The least recent failures matter least.
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
    // A rejected or unpaid credential fails for every model.
    let of_model = match reason {
        Reason::RateLimit | Reason::Permission => !report.every_model,
        Reason::Auth | Reason::Billing | Reason::SpendLimit | Reason::Quota => false,
    };
    of_model.then(|| Box::from(name_of(report.model)))
}

/// Returns the name under which a model's cooldowns are stored. Requests without a known model share the empty name, so
/// that their failures do not block known models.
pub(super) fn name_of(model: Option<&str>) -> &str {
    let model = model.unwrap_or_default();
    let end = (0..=model.len().min(MODEL_MAX))
        .rev()
        .find(|end| model.is_char_boundary(*end));
    model.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Returns a cooldown plus jitter, limited to `most`.
fn bounded(rest: Duration, most: Option<Duration>, jitter: f64) -> Duration {
    let rest = stretched(rest, jitter);
    most.map_or(rest, |most| rest.min(most))
}

/// Returns `true` if a time that the provider names is accepted as the end.
const fn names_its_end(reason: Reason) -> bool {
    // A rejected credential works again after a change by the operator, not at a certain time.
    !matches!(reason, Reason::Auth | Reason::Permission)
}

/// Returns the default length of a cooldown, its limit, and `true` if it disables the profile.
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
        // A single 401 may be a fault of the provider, three in a row are not.
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
