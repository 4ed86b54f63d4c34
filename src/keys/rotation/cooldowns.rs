//! The cooldowns of one profile, and the counters from which the next one's length follows.
//!
//! A success resets a counter, and so does a day after the last cooldown. A counter outlives its cooldown: otherwise no
//! second failure in a row could be counted.

use std::time::{Duration, Instant};

use super::{
    cooldown::{Cooldown, model_key},
    query::AttemptReport,
    shared_cooldown::SharedCooldown,
};
use crate::policy::{CooldownReason, retry::with_jitter};

/// Short cooldowns: the first, the second, and all that follow.
const SHORT_COOLDOWNS: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];
/// Rejections of a credential in a row that disable the profile.
const REJECTIONS_MAX: u32 = 3;
/// Time for which a rejected credential is disabled, doubled each time.
const REJECTED_FIRST: Duration = Duration::from_secs(600);
const REJECTED_MAX: Duration = Duration::from_secs(3600);
/// Time for which a profile without credit or quota is disabled, doubled each time.
const UNPAID_FIRST: Duration = Duration::from_secs(5 * 3600);
const UNPAID_MAX: Duration = Duration::from_secs(24 * 3600);
/// Cooldown of a model that the credential may not use.
const NOT_ALLOWED: Duration = Duration::from_secs(600);
/// Time after a cooldown at which its counter is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Cooldowns, and counters, of one profile that are stored.
const ENTRIES_MAX: usize = 64;
/// Difference between two times that count as one.
const SAME_TIME: Duration = Duration::from_millis(50);

/// Failures of one kind in a row.
#[derive(Clone, Debug)]
struct FailureStreak {
    reason: CooldownReason,
    model: Option<Box<str>>,
    count: u32,
    /// Number of times that these failures disabled the profile.
    times_disabled: u32,
    last_failure: Instant,
    /// The end of the cooldown after the last failure.
    until: Instant,
}

/// The cooldowns and counters of one profile.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfileCooldowns {
    cooldowns: Vec<Cooldown>,
    streaks: Vec<FailureStreak>,
}

impl ProfileCooldowns {
    /// Returns the cooldowns in force.
    pub(super) fn active_cooldowns(&self, now: Instant) -> impl Iterator<Item = &Cooldown> {
        self.cooldowns.iter().filter(move |cooldown| now < cooldown.until)
    }

    /// Records a failure. Returns the cooldown if it begins or becomes longer.
    pub(super) fn record_failure(
        &mut self,
        reason: CooldownReason,
        report: &AttemptReport<'_>,
        now: Instant,
    ) -> Option<SharedCooldown> {
        self.forget_ended(now);
        self.streaks
            .retain(|streak| now.saturating_duration_since(streak.until) < FORGOTTEN_AFTER);
        let model = affected_model(reason, report);
        // A rejected credential works again after a change by the operator, not at a certain time.
        let stated = report.hints.cooldown.filter(|_| !reason.is_rejection());
        // Without jitter: requests that wait for this end are spread by the pace of the quota.
        let stated = stated.map(|length| now + length);
        let same = |cooldown: &&mut Cooldown| cooldown.reason == reason && cooldown.model == model;
        if let Some(cooldown) = self.cooldowns.iter_mut().find(same) {
            // A cooldown never changes, except for a later time that the provider names.
            let later = stated.filter(|until| *until > cooldown.until);
            cooldown.is_named |= stated.is_some_and(|until| until >= cooldown.until);
            return later.map(|until| {
                (cooldown.until, cooldown.failed_at) = (until, now);
                cooldown.to_shared()
            });
        }
        let streak = self.streak_mut(reason, model.clone(), now);
        // Counted only for a new cooldown: a burst of failures within one cooldown is one failure.
        streak.count = streak.count.saturating_add(1);
        streak.last_failure = now;
        let (length, most, disables) = default_length(streak);
        let until = stated.unwrap_or_else(|| now + add_jitter(length, most, report.jitter));
        streak.until = until;
        let cooldown = Cooldown {
            reason,
            model,
            disables,
            is_named: stated.is_some(),
            evidence: report.verdict.evidence,
            path: report.path,
            of_other_profile: false,
            since: now,
            failed_at: now,
            until,
        };
        let shared = cooldown.to_shared();
        self.push_cooldown(cooldown);
        Some(shared)
    }

    /// Begins a cooldown that another process has learned of, or makes it longer. Returns `false` if it is known.
    pub(super) fn begin_shared(&mut self, cooldown: Cooldown, now: Instant) -> bool {
        self.forget_ended(now);
        let same = |known: &&mut Cooldown| known.reason == cooldown.reason && known.model == cooldown.model;
        let Some(known) = self.cooldowns.iter_mut().find(same) else {
            // What this process has seen itself is not lost for it.
            let has_room = self.cooldowns.len() < ENTRIES_MAX;
            if has_room {
                self.cooldowns.push(cooldown);
            }
            return has_room;
        };
        // The clocks of two processes differ by some microseconds, which is no news.
        let is_later = cooldown.until > known.until + SAME_TIME;
        if is_later {
            known.until = cooldown.until;
            known.failed_at = known.failed_at.max(cooldown.failed_at);
            known.is_named |= cooldown.is_named;
        }
        is_later
    }

    /// Ends a cooldown that another process has ended, if it began before that. Returns `false` if there is none.
    pub(super) fn end_shared(&mut self, reason: CooldownReason, model: Option<&str>, began_before: Instant) -> bool {
        let count = self.cooldowns.len();
        let is_it = |of: CooldownReason, for_model: Option<&str>| of == reason && for_model == model;
        self.cooldowns.retain(|cooldown| {
            !(is_it(cooldown.reason, cooldown.model.as_deref()) && cooldown.failed_at < began_before)
        });
        self.streaks.retain(|streak| {
            let is_older = streak.last_failure < began_before;
            !(is_it(streak.reason, streak.model.as_deref()) && is_older)
        });
        self.cooldowns.len() < count
    }

    fn forget_ended(&mut self, now: Instant) {
        // Expired entries must not use up the space of new ones.
        self.cooldowns.retain(|cooldown| now < cooldown.until);
    }

    fn push_cooldown(&mut self, cooldown: Cooldown) {
        // Clients choose model names, so memory must be bounded. The cooldown that ends first is lost.
        if self.cooldowns.len() >= ENTRIES_MAX {
            let soonest = self
                .cooldowns
                .iter()
                .enumerate()
                .min_by_key(|(_, cooldown)| cooldown.until);
            if let Some((at, _)) = soonest {
                self.cooldowns.swap_remove(at);
            }
        }
        self.cooldowns.push(cooldown);
    }

    /// Records the success of an exchange that began at `began`, and removes older cooldowns. With `quota_only`, it
    /// removes those of the quota only. Returns what it removes.
    pub(super) fn record_success(
        &mut self,
        model: Option<&str>,
        began: Instant,
        quota_only: bool,
    ) -> Vec<(CooldownReason, Option<Box<str>>)> {
        let concerned = |of: Option<&str>| of.is_none_or(|of| of == model_key(model));
        let mut cleared = Vec::new();
        self.cooldowns.retain(|cooldown| {
            // A cooldown that began or became longer during the exchange is newer evidence than its success.
            let older = cooldown.failed_at < began && concerned(cooldown.model.as_deref());
            let goes = older && (!quota_only || cooldown.reason.is_of_organisation());
            if goes {
                cleared.push((cooldown.reason, cooldown.model.clone()));
            }
            !goes
        });
        self.streaks.retain(|streak| {
            let older = streak.last_failure < began && concerned(streak.model.as_deref());
            !older || (quota_only && !cleared.iter().any(|(reason, _)| *reason == streak.reason))
        });
        cleared
    }

    /// Removes the cooldowns and counters that concern the credential itself, not its account.
    pub(super) fn forget_refusals(&mut self) {
        self.cooldowns.retain(|cooldown| !cooldown.reason.is_rejection());
        self.streaks.retain(|streak| !streak.reason.is_rejection());
    }

    fn streak_mut(&mut self, reason: CooldownReason, model: Option<Box<str>>, now: Instant) -> &mut FailureStreak {
        let known = |streak: &FailureStreak| streak.reason == reason && streak.model == model;
        let at = self.streaks.iter().position(known).unwrap_or_else(|| {
            if self.streaks.len() >= ENTRIES_MAX {
                let oldest = self
                    .streaks
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, streak)| streak.last_failure);
                // The least recent failures matter least.
                if let Some((at, _)) = oldest {
                    self.streaks.swap_remove(at);
                }
            }
            self.streaks.push(FailureStreak {
                reason,
                model,
                count: 0,
                times_disabled: 0,
                last_failure: now,
                until: now,
            });
            self.streaks.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed a line above")]
        &mut self.streaks[at]
    }
}

/// Returns the model that a failure concerns; `None` for every model.
fn affected_model(reason: CooldownReason, report: &AttemptReport<'_>) -> Option<Box<str>> {
    // A rejected or unpaid credential fails for every model.
    let of_model = match reason {
        CooldownReason::RateLimit | CooldownReason::Permission => !report.hints.every_model,
        // Google has daily quotas for each model.
        CooldownReason::Quota => report.hints.one_model,
        CooldownReason::Auth | CooldownReason::Billing | CooldownReason::SpendLimit => false,
    };
    of_model.then(|| Box::from(model_key(report.model)))
}

/// Returns a cooldown plus jitter, limited to `most`.
fn add_jitter(length: Duration, most: Option<Duration>, jitter: f64) -> Duration {
    let length = with_jitter(length, jitter);
    most.map_or(length, |most| length.min(most))
}

/// Returns the default length of a cooldown, its limit, and `true` if it disables the profile.
fn default_length(streak: &mut FailureStreak) -> (Duration, Option<Duration>, bool) {
    let doubled = |first: Duration, times: u32, most: Duration| {
        first
            .saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
            .min(most)
    };
    match streak.reason {
        CooldownReason::Billing | CooldownReason::Quota | CooldownReason::SpendLimit => {
            let length = doubled(UNPAID_FIRST, streak.count.saturating_sub(1), UNPAID_MAX);
            // A quota of one model leaves the profile to all others.
            (length, Some(UNPAID_MAX), streak.model.is_none())
        }
        CooldownReason::Permission => (NOT_ALLOWED, None, false),
        // A single 401 may be a fault of the provider, three in a row are not.
        CooldownReason::Auth if streak.count >= REJECTIONS_MAX => {
            let length = doubled(REJECTED_FIRST, streak.times_disabled, REJECTED_MAX);
            streak.times_disabled = streak.times_disabled.saturating_add(1);
            (length, Some(REJECTED_MAX), true)
        }
        CooldownReason::Auth | CooldownReason::RateLimit => {
            let nth = usize::try_from(streak.count.saturating_sub(1)).unwrap_or(usize::MAX);
            let [.., longest] = SHORT_COOLDOWNS;
            (SHORT_COOLDOWNS.get(nth).copied().unwrap_or(longest), None, false)
        }
    }
}
