//! The retry budgets of one upstream: one for each caller, and one for all of them together.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    auth::Principal,
    policy::{Class, retry::RetryBudget},
};

/// Callers with a budget of their own. The one that paid least recently gives way to another.
const CALLERS_MAX: usize = 1_024;

/// The caller that pays for a retry, and the size of its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPayer {
    /// The caller.
    pub caller: Principal,
    /// Its part of the upstream's budget in percent, as the operator configured it; `None` for the default.
    pub percent: Option<u8>,
    /// `true` if a provider has accepted the caller before: its failures may then count for all callers.
    pub is_verified: bool,
}

impl RetryPayer {
    /// Returns the size of the caller's budget.
    fn tokens_max(&self) -> u32 {
        self.percent.map_or(RetryBudget::CALLER_TOKENS, |percent| {
            RetryBudget::UPSTREAM_TOKENS * u32::from(percent) / 100
        })
    }
}

/// The retry budgets of one upstream.
#[derive(Debug)]
pub(super) struct CallerBudgets {
    /// The budget of all callers together.
    whole: RetryBudget,
    /// The part of it for callers that no provider has accepted: anybody can invent any number of them.
    unverified: RetryBudget,
    /// Budgets that are not full, with the time of their last payment. All others are full.
    callers: BTreeMap<Principal, (RetryBudget, Instant)>,
}

impl Default for CallerBudgets {
    fn default() -> Self {
        Self {
            whole: RetryBudget::with_tokens(RetryBudget::UPSTREAM_TOKENS),
            unverified: RetryBudget::with_tokens(RetryBudget::UPSTREAM_TOKENS / 2),
            callers: BTreeMap::new(),
        }
    }
}

impl CallerBudgets {
    /// Pays for a retry after `class`; returns `false` if the budget of the caller or of the upstream is used up.
    pub(super) fn pay_for_retry(&mut self, payer: &RetryPayer, class: Class, now: Instant) -> bool {
        // Checked first: nobody pays for a retry that does not take place.
        if !self.whole.can_pay(class) || !(payer.is_verified || self.unverified.can_pay(class)) {
            return false;
        }
        let max = payer.tokens_max();
        let (mut budget, _) = self
            .callers
            .get(&payer.caller)
            .copied()
            .unwrap_or_else(|| (RetryBudget::with_tokens(max), now));
        // A reload may have changed the size.
        budget.resize_to(max);
        if !budget.pay_for_retry(class) {
            return false;
        }
        self.make_room(payer.caller);
        self.callers.insert(payer.caller, (budget, now));
        if !payer.is_verified {
            self.unverified.pay_for_retry(class);
        }
        self.whole.pay_for_retry(class)
    }

    /// Earns one token for the caller and the upstream.
    pub(super) fn earn_token(&mut self, payer: &RetryPayer) {
        self.whole.earn_token();
        self.unverified.earn_token();
        if let Some((budget, _)) = self.callers.get_mut(&payer.caller) {
            budget.earn_token();
            // A full budget needs no entry.
            if budget.is_full() {
                self.callers.remove(&payer.caller);
            }
        }
    }

    /// Makes room for an entry of this caller.
    fn make_room(&mut self, caller: Principal) {
        if self.callers.len() < CALLERS_MAX || self.callers.contains_key(&caller) {
            return;
        }
        // The one that is forgotten has a full budget again: the budget of the upstream bounds what that is worth.
        let oldest = self.callers.iter().min_by_key(|(_, (_, paid_at))| *paid_at);
        if let Some(oldest) = oldest.map(|(caller, _)| *caller) {
            self.callers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(number: u32, percent: Option<u8>) -> RetryPayer {
        let mut bytes = [1; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        RetryPayer {
            caller: Principal::from_bytes(bytes),
            percent,
            is_verified: true,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn start() -> Instant {
        Instant::now()
    }

    fn count_paid(budgets: &mut CallerBudgets, payer: &RetryPayer) -> u32 {
        let paid = |_: &u32| budgets.pay_for_retry(payer, Class::ProviderFault, start());
        u32::try_from((0..2_000).take_while(paid).count()).unwrap()
    }

    #[test]
    fn each_caller_spends_its_own_budget_and_all_together_that_of_the_upstream() {
        let mut budgets = CallerBudgets::default();
        assert_eq!(count_paid(&mut budgets, &payer(0, None)), 100);
        assert_eq!(count_paid(&mut budgets, &payer(0, None)), 0);
        assert_eq!(count_paid(&mut budgets, &payer(1, Some(50))), 400);
        assert_eq!(count_paid(&mut budgets, &payer(2, Some(0))), 0);
        assert_eq!(
            count_paid(&mut budgets, &payer(3, Some(100))),
            300,
            "the rest of the upstream's"
        );
        for _ in 0..5 {
            budgets.earn_token(&payer(3, Some(100)));
        }
        assert_eq!(count_paid(&mut budgets, &payer(0, None)), 0, "its own is still empty");
        assert_eq!(count_paid(&mut budgets, &payer(4, None)), 1);
    }

    #[test]
    fn invented_callers_leave_half_of_the_budget_to_verified_ones() {
        let mut budgets = CallerBudgets::default();
        let invented = |number| RetryPayer {
            is_verified: false,
            ..payer(number, None)
        };
        let paid: u32 = (0..20).map(|number| count_paid(&mut budgets, &invented(number))).sum();
        assert_eq!(paid, 400);
        assert_eq!(count_paid(&mut budgets, &payer(30, None)), 100);
        assert_eq!(count_paid(&mut budgets, &invented(31)), 0);
        for _ in 0..5 {
            budgets.earn_token(&payer(30, None));
        }
        assert_eq!(count_paid(&mut budgets, &invented(31)), 1);
    }

    #[test]
    fn memory_is_bounded_and_a_full_budget_needs_none() {
        let mut budgets = CallerBudgets::default();
        for number in 0..2_000 {
            let payer = payer(number, None);
            assert!(budgets.pay_for_retry(&payer, Class::ProviderFault, start()));
            // Others earn meanwhile, so that the upstream's budget is never used up.
            for _ in 0..5 {
                budgets.earn_token(&self::payer(5_000, None));
            }
        }
        assert_eq!(budgets.callers.len(), CALLERS_MAX);
        let last = payer(1_999, None);
        for _ in 0..5 {
            budgets.earn_token(&last);
        }
        assert_eq!(budgets.callers.len(), CALLERS_MAX - 1);
    }
}
