//! Rules that servers have taught this process, with how often they were used. In memory alone, and for operators only.
//!
//! A rule is a mend at an upstream for a model, whoever was taught it: callers are counted, never named.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    auth::Caller,
    clock,
    mend::Mend,
    telemetry::events::{ExchangeEnded, MadeMend},
};

/// Limit of rules.
const RULES_MAX: usize = 128;
/// Limit of callers that are counted for one rule.
const CALLERS_MAX: usize = 64;
/// Time after which a rule is forgotten: 24 hours after it was last taught, or last used if that is not known.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// One caller's share of a full list. Of a caller with more, its own oldest rule makes room.
const SHARE: usize = 4;

/// A rule that a server has taught.
#[derive(Clone, Debug)]
pub struct TaughtRule {
    /// The name of the upstream.
    pub upstream: String,
    /// The model, escaped and shortened; `None` if the requests named none.
    pub model: Option<String>,
    /// The mend.
    pub mend: Mend,
    /// The row whose refusal has demanded it last; `None` if that was before the start, or at another replica.
    pub row: Option<Box<str>>,
    /// The time when it was last taught; `None` as above.
    pub taught_at: Option<Instant>,
    /// The time of the last accepted body that it has changed.
    pub used_at: Instant,
    /// The number of accepted bodies that it has changed.
    pub uses: u64,
    /// The callers of these bodies.
    callers: Vec<[u8; 32]>,
}

impl TaughtRule {
    /// Returns the number of callers, 64 at most.
    pub const fn callers(&self) -> usize {
        self.callers.len()
    }

    fn is_of(&self, event: &ExchangeEnded) -> bool {
        Some(&self.upstream) == event.upstream.as_ref() && self.model == event.model
    }

    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.taught_at.unwrap_or(self.used_at)) >= AGE_MAX
    }
}

/// The rules, the last used first.
#[derive(Debug, Default)]
pub(super) struct TaughtRules(Mutex<VecDeque<TaughtRule>>);

impl TaughtRules {
    /// Counts the lasting mends of a body that a provider has accepted. `event` is that of its exchange, as far as it is known.
    pub(super) fn record_accepted(&self, caller: Caller, event: &ExchangeEnded) {
        let lasting = event.mends.iter().filter(|made| made.is_lasting);
        let mut rules = self.lock_rules();
        for made in lasting {
            record_use(&mut rules, *caller.principal_bytes(), made, event);
        }
    }

    /// Forgets what a caller was taught for the model of an exchange: the server has accepted a body without it.
    pub(super) fn record_retracted(&self, caller: Caller, event: &ExchangeEnded) {
        let mut rules = self.lock_rules();
        for rule in rules.iter_mut().filter(|rule| rule.is_of(event)) {
            rule.callers.retain(|known| known != caller.principal_bytes());
        }
        rules.retain(|rule| !rule.callers.is_empty());
    }

    /// Forgets the rules that are not chosen.
    pub(super) fn retain(&self, is_kept: impl Fn(&TaughtRule) -> bool) {
        self.lock_rules().retain(is_kept);
    }

    /// Returns the rules, the last used first.
    pub(super) fn all(&self) -> Vec<TaughtRule> {
        let now = clock::now();
        let mut rules = self.lock_rules();
        rules.retain(|rule| !rule.is_old(now));
        rules.iter().cloned().collect()
    }

    fn lock_rules(&self) -> MutexGuard<'_, VecDeque<TaughtRule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the use of a rule, which moves to the front of the list.
fn record_use(rules: &mut VecDeque<TaughtRule>, caller: [u8; 32], made: &MadeMend, event: &ExchangeEnded) {
    let Some(upstream) = &event.upstream else { return };
    // Read with the lock, so that the list stays in the order of time.
    let now = clock::now();
    let is_it = |rule: &TaughtRule| rule.mend == made.mend && rule.is_of(event) && !rule.is_old(now);
    let known = rules.iter().position(is_it).and_then(|at| rules.remove(at));
    let mut rule = known.unwrap_or_else(|| {
        make_room(rules, caller);
        TaughtRule {
            upstream: upstream.clone(),
            model: event.model.clone(),
            mend: made.mend.clone(),
            row: None,
            taught_at: None,
            used_at: now,
            uses: 0,
            callers: Vec::new(),
        }
    });
    // A row is known only if this exchange was taught the mend.
    if made.row.is_some() {
        rule.row.clone_from(&made.row);
        rule.taught_at = Some(now);
    }
    rule.used_at = now;
    rule.uses = rule.uses.saturating_add(1);
    if !rule.callers.contains(&caller) && rule.callers.len() < CALLERS_MAX {
        rule.callers.push(caller);
    }
    rules.push_front(rule);
}

/// Removes a rule from a full list: the oldest one, or that of a caller with more than its share.
fn make_room(rules: &mut VecDeque<TaughtRule>, caller: [u8; 32]) {
    if rules.len() < RULES_MAX {
        return;
    }
    // One caller's models must not push out the rules of all others.
    let is_own = |rule: &TaughtRule| rule.callers == [caller];
    let has_share = rules.iter().filter(|rule| is_own(rule)).count() >= RULES_MAX / SHARE;
    let own = rules.iter().rposition(is_own).filter(|_| has_share);
    let at = own.unwrap_or_else(|| rules.len().saturating_sub(1));
    rules.remove(at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Principal, wire::MendKind};

    fn event(model: &str, row: Option<&str>) -> ExchangeEnded {
        let made = |is_lasting| MadeMend {
            mend: Mend::new(MendKind::DropMember, if is_lasting { "status" } else { "once" }).unwrap(),
            places: 1,
            row: row.map(Into::into),
            is_lasting,
        };
        ExchangeEnded {
            upstream: Some("x".to_owned()),
            model: Some(model.to_owned()),
            mends: vec![made(true), made(false)],
            ..ExchangeEnded::default()
        }
    }

    fn caller(byte: u8) -> Caller {
        Caller::of_account(Principal::from_bytes([byte; 32]))
    }

    /// Returns model, row, uses and callers of each rule.
    fn shown(rules: &TaughtRules) -> Vec<(String, Option<String>, u64, usize)> {
        let view = |rule: TaughtRule| {
            let callers = rule.callers();
            (rule.model.unwrap(), rule.row.map(Into::into), rule.uses, callers)
        };
        rules.all().into_iter().map(view).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn uses_and_callers_are_counted_until_the_rule_is_taken_back_or_old() {
        let rules = TaughtRules::default();
        rules.record_accepted(caller(1), &event("m", Some("row")));
        rules.record_accepted(caller(2), &event("n", None));
        rules.record_accepted(caller(1), &event("m", None));
        rules.record_accepted(caller(2), &event("m", None));
        let row = Some("row".to_owned());
        assert_eq!(
            shown(&rules),
            [("m".to_owned(), row.clone(), 3, 2), ("n".to_owned(), None, 1, 1)]
        );
        rules.record_retracted(caller(2), &event("m", None));
        rules.record_retracted(caller(2), &event("n", None));
        assert_eq!(shown(&rules), [("m".to_owned(), row, 3, 1)]);
        // A use renews nothing: the server is asked again a day after it has taught the rule.
        tokio::time::advance(AGE_MAX / 2).await;
        rules.record_accepted(caller(1), &event("m", None));
        tokio::time::advance(AGE_MAX / 2).await;
        assert_eq!(shown(&rules), []);
    }

    #[test]
    fn the_list_is_bounded_and_one_caller_does_not_fill_it() {
        let rules = TaughtRules::default();
        for byte in 0..100 {
            rules.record_accepted(caller(byte), &event(&format!("own-{byte}"), None));
            rules.record_accepted(caller(byte), &event("shared", None));
        }
        for number in 0..1000 {
            rules.record_accepted(caller(200), &event(&format!("made-up-{number}"), None));
        }
        let shown = shown(&rules);
        assert_eq!(shown.len(), RULES_MAX);
        let of_one = shown.iter().filter(|(model, ..)| model.starts_with("made-up"));
        assert_eq!(of_one.count(), RULES_MAX / SHARE);
        assert!(shown.contains(&("shared".to_owned(), None, 100, CALLERS_MAX)));
    }
}
