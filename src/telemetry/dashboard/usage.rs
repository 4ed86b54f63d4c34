//! Requests, failures, repairs and tokens of the last minutes, by the names of models, clients, tokens and upstreams.
//!
//! Names come from outside, so their number is limited. Requests with further names count under none.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::telemetry::events::ExchangeEnded;

/// The time for which counts are shown.
pub const USAGE_WINDOW: Duration = Duration::from_secs(15 * 60);
/// The time of one count. A count leaves the window with its minute.
const MINUTE: Duration = Duration::from_secs(60);
/// Limit of names of each kind in a minute.
const NAMES_MAX: usize = 64;

/// A kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UsageKind {
    /// Models.
    Model,
    /// Client programs, without their versions.
    Client,
    /// Client tokens.
    Token,
    /// Upstreams.
    Upstream,
}

/// The counts of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounts {
    /// Requests that ended.
    pub requests: u64,
    /// Failures that no client caused.
    pub failures: u64,
    /// Requests whose body was repaired.
    pub repaired: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

/// The counts by kind and name. The empty name stands for requests without one.
type UsageNames = BTreeMap<UsageKind, BTreeMap<Box<str>, UsageCounts>>;

/// The counts of the last minutes.
#[derive(Debug, Default)]
pub(super) struct UsageHistory {
    /// The minutes, each with its number since 1970, the current one last.
    minutes: VecDeque<(u64, UsageNames)>,
}

impl UsageCounts {
    fn of_exchange(event: &ExchangeEnded) -> Self {
        let is_repaired = event.report.as_ref().is_some_and(|report| !report.actions.is_empty());
        let (input_tokens, output_tokens) = event
            .answer_summary
            .map_or((0, 0), |answer| (answer.input_tokens, answer.output_tokens));
        Self {
            requests: 1,
            failures: u64::from(event.side.is_some_and(|side| side != "client")),
            repaired: u64::from(is_repaired),
            input_tokens,
            output_tokens,
        }
    }

    const fn add(&mut self, more: Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.failures = self.failures.saturating_add(more.failures);
        self.repaired = self.repaired.saturating_add(more.repaired);
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
    }
}

impl UsageHistory {
    /// Counts an exchange that ended. `now` is the time since 1970, here and below.
    pub(super) fn record_exchange(&mut self, now: Duration, event: &ExchangeEnded) {
        let counts = UsageCounts::of_exchange(event);
        // The version follows the program: a table by version would hide how much a program sends.
        let program = event.client.as_deref().and_then(|client| client.split('/').next());
        let names = self.minute_mut(now);
        for (kind, name) in [
            (UsageKind::Model, event.model.as_deref()),
            (UsageKind::Client, program),
            (UsageKind::Token, event.client_token.as_deref()),
            (UsageKind::Upstream, event.upstream.as_deref()),
        ] {
            let (names, name) = (names.entry(kind).or_default(), name.unwrap_or_default());
            // Mostly the name is known, and needs no copy.
            if let Some(known) = names.get_mut(name) {
                known.add(counts);
                continue;
            }
            let name = if names.len() < NAMES_MAX { name } else { "" };
            names.entry(name.into()).or_default().add(counts);
        }
    }

    /// Returns the names of a kind with their counts, those with the most requests first, `limit` at most.
    pub(super) fn names_of(&self, now: Duration, kind: UsageKind, limit: usize) -> Vec<(Box<str>, UsageCounts)> {
        let first = (minute_number(now) + 1).saturating_sub(USAGE_WINDOW.as_secs() / MINUTE.as_secs());
        let mut sums: BTreeMap<&str, UsageCounts> = BTreeMap::new();
        for (_, names) in self.minutes.iter().filter(|(number, _)| *number >= first) {
            for (name, counts) in names.get(&kind).into_iter().flatten() {
                sums.entry(name).or_default().add(*counts);
            }
        }
        let mut rows: Vec<(Box<str>, UsageCounts)> = sums.into_iter().map(|(name, it)| (name.into(), it)).collect();
        rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.requests));
        rows.truncate(limit);
        rows
    }

    /// Returns the minute to count into: the current one, or the last one if the system clock was set back.
    fn minute_mut(&mut self, now: Duration) -> &mut UsageNames {
        let number = minute_number(now);
        if self.minutes.back().is_none_or(|(last, _)| *last < number) {
            // The oldest minute makes room, which bounds the memory.
            if self.minutes.len() as u64 >= USAGE_WINDOW.as_secs() / MINUTE.as_secs() {
                self.minutes.pop_front();
            }
            self.minutes.push_back((number, UsageNames::new()));
        }
        let last = self.minutes.len().saturating_sub(1);
        &mut self.minutes[last].1
    }
}

const fn minute_number(now: Duration) -> u64 {
    now.as_secs() / MINUTE.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(model: &str, side: Option<&'static str>) -> ExchangeEnded {
        ExchangeEnded {
            model: Some(model.to_owned()),
            client: Some("claude-cli/1.0.83".to_owned()),
            side,
            ..ExchangeEnded::default()
        }
    }

    #[test]
    fn counts_are_by_name_and_leave_with_their_minute() {
        let mut usage = UsageHistory::default();
        let minute = |n: u64| Duration::from_secs(60 * n);
        for (at, model, side) in [
            (0, "old", None),
            (1, "b", Some("provider")),
            (2, "a", None),
            (2, "b", Some("client")),
        ] {
            usage.record_exchange(minute(at), &ended(model, side));
        }
        let rows = |at, kind| -> Vec<(String, u64, u64)> {
            let rows = usage.names_of(minute(at), kind, 9).into_iter();
            rows.map(|(name, counts)| (name.into(), counts.requests, counts.failures))
                .collect()
        };
        let row = |name: &str, requests, failures| (name.to_owned(), requests, failures);
        assert_eq!(rows(15, UsageKind::Model), [row("b", 2, 1), row("a", 1, 0)]);
        assert_eq!(rows(15, UsageKind::Client), [row("claude-cli", 3, 1)]);
        assert_eq!(rows(15, UsageKind::Token), [row("", 3, 1)]);
        assert_eq!(rows(17, UsageKind::Model), []);
        assert_eq!(usage.names_of(minute(15), UsageKind::Model, 1).len(), 1);
    }

    #[test]
    fn invented_names_share_one_row() {
        let mut usage = UsageHistory::default();
        for n in 0..1000 {
            usage.record_exchange(Duration::ZERO, &ended(&format!("model-{n}"), None));
        }
        let rows = usage.names_of(Duration::ZERO, UsageKind::Model, usize::MAX);
        assert_eq!(rows.len(), NAMES_MAX + 1);
        assert_eq!(rows[0].0.as_ref(), "");
        assert_eq!(rows.iter().map(|(_, counts)| counts.requests).sum::<u64>(), 1000);
    }
}
