//! The requests that came through the proxy while a command ran, and their summary.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use http::{StatusCode, Uri};

use crate::{
    cli::{http_get, proxy_trust::ProxyTrust},
    telemetry::ExchangeTotals,
};

/// Timeout for reading the metrics of a running proxy.
const METRICS_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest metrics page that is read.
const METRICS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Requests, repairs and failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrafficCounts {
    pub(super) requests: u64,
    /// Repaired requests. `None` if only the repairs are known.
    repaired: Option<u64>,
    /// Repairs by action.
    actions: BTreeMap<String, u64>,
    /// Failures by status, or by class of status.
    failures: BTreeMap<String, u64>,
    /// The same, of requests that asked no model: clients probe what runs behind a base URL. Of a running proxy they are
    /// those on paths without a known format.
    side_failures: BTreeMap<String, u64>,
}

impl From<ExchangeTotals> for TrafficCounts {
    fn from(totals: ExchangeTotals) -> Self {
        let label = |(action, times): (&str, u64)| (action.to_owned(), times);
        Self {
            requests: totals.requests,
            repaired: Some(totals.repaired),
            actions: totals.actions.into_iter().map(label).collect(),
            failures: totals.failures,
            side_failures: totals.side_failures,
        }
    }
}

impl TrafficCounts {
    /// Reads the counts of a running proxy. `None` if its metrics cannot be read, for example without its token.
    pub(super) async fn of_running_proxy(admin: SocketAddr) -> Option<Self> {
        let url: Uri = format!("http://{admin}/metrics").parse().ok()?;
        let fetched = http_get::fetch_page(&url, ProxyTrust::Any, Some(METRICS_BYTES_MAX));
        let page = tokio::time::timeout(METRICS_TIMEOUT, fetched).await.ok()?.ok()?;
        if page.head.status != StatusCode::OK {
            return None;
        }
        Self::from_metrics(std::str::from_utf8(&page.body).ok()?)
    }

    /// Reads the counts from a metrics page. `None` if it is not one of Antiphon.
    fn from_metrics(page: &str) -> Option<Self> {
        let mut counts = Self::default();
        // A gauge without labels is always there. Counters appear with their first value.
        if !page.contains("antiphon_inflight_requests") {
            return None;
        }
        for line in page.lines() {
            if let Some((labels, value)) = read_sample(line, "antiphon_requests_total{") {
                counts.requests += value;
                if label_value(labels, "outcome") != Some("ok") {
                    let class = label_value(labels, "code_class").unwrap_or("other");
                    // The metrics do not tell what asked a model. Most of that has a format, but not Converse, Cohere and
                    // Ollama. Without an upstream the base URL is wrong.
                    let is_routed = label_value(labels, "upstream") != Some("none");
                    let failures = if is_routed && label_value(labels, "format") == Some("none") {
                        &mut counts.side_failures
                    } else {
                        &mut counts.failures
                    };
                    *failures.entry(class.to_owned()).or_default() += value;
                }
            } else if let Some((labels, value)) = read_sample(line, "antiphon_repairs_total{") {
                let action = label_value(labels, "action").unwrap_or("other");
                *counts.actions.entry(action.to_owned()).or_default() += value;
            }
        }
        Some(counts)
    }

    /// Returns what was counted since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            // A proxy that was restarted meanwhile counts from zero again.
            requests: self.requests.saturating_sub(earlier.requests),
            repaired: self.repaired,
            actions: differences(&self.actions, &earlier.actions),
            failures: differences(&self.failures, &earlier.failures),
            side_failures: differences(&self.side_failures, &earlier.side_failures),
        }
    }

    /// Returns `true` if no request got a good answer.
    pub(super) fn has_no_success(&self) -> bool {
        let failures = self.failures.values().chain(self.side_failures.values());
        failures.sum::<u64>() >= self.requests
    }

    /// Returns the counts as words: `41 requests, 3 repaired (moved=1, placeholder=2), 1 failed (529)`.
    pub(super) fn describe_counts(&self) -> String {
        let mut parts = vec![match self.requests {
            1 => "1 request".to_owned(),
            count => format!("{count} requests"),
        }];
        let actions: Vec<String> = self
            .actions
            .iter()
            .filter(|(_, times)| **times > 0)
            .map(|(action, times)| format!("{action}={times}"))
            .collect();
        if !actions.is_empty() {
            let done = self.repaired.map_or_else(
                || match self.actions.values().sum::<u64>() {
                    1 => "1 repair".to_owned(),
                    count => format!("{count} repairs"),
                },
                |count| format!("{count} repaired"),
            );
            parts.push(format!("{done} ({})", actions.join(", ")));
        }
        let side_words = if self.repaired.is_some() {
            "failed that asked no model"
        } else {
            "failed on paths without a known format"
        };
        for (failures, words) in [(&self.failures, "failed"), (&self.side_failures, side_words)] {
            let count: u64 = failures.values().sum();
            if count > 0 {
                parts.push(format!("{count} {words} ({})", name_failures(failures)));
            }
        }
        parts.join(", ")
    }
}

/// Returns failures as words: `529, 2 times; answer_broken`.
fn name_failures(failures: &BTreeMap<String, u64>) -> String {
    let name = |(name, times): (&String, &u64)| match times {
        0 => None,
        1 => Some(name.clone()),
        times => Some(format!("{name}, {times} times")),
    };
    let names: Vec<String> = failures.iter().filter_map(name).collect();
    names.join("; ")
}

/// Returns the differences of all counts that have grown.
fn differences(now: &BTreeMap<String, u64>, earlier: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let difference = |(name, count): (&String, &u64)| {
        let more = count.saturating_sub(earlier.get(name).copied().unwrap_or_default());
        (more > 0).then(|| (name.clone(), more))
    };
    now.iter().filter_map(difference).collect()
}

/// Reads a sample of the metric that `start` begins. Returns its labels and its value.
fn read_sample<'a>(line: &'a str, start: &str) -> Option<(&'a str, u64)> {
    let (labels, value) = line.strip_prefix(start)?.split_once("} ")?;
    // Exemplars and times follow the value. Counters are whole numbers, but may be written with a fraction.
    let value = value.split([' ', '.']).next()?;
    Some((labels, value.parse().ok()?))
}

/// Returns the value of a label. Values of these metrics contain no quotes.
fn label_value<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split("\",").find_map(|label| {
        let (key, value) = label.split_once("=\"")?;
        (key.trim() == name).then(|| value.trim_end_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
antiphon_inflight_requests 0
antiphon_requests_total{upstream=\"a\",format=\"anthropic\",code_class=\"2xx\",outcome=\"ok\"} 4
antiphon_repairs_total{action=\"moved\",format=\"anthropic\"} 1
# EOF";
    const AFTER: &str = "\
antiphon_inflight_requests 0
antiphon_requests_total{upstream=\"a\",format=\"anthropic\",code_class=\"2xx\",outcome=\"ok\"} 6
antiphon_requests_total{upstream=\"a\",format=\"anthropic\",code_class=\"5xx\",outcome=\"provider\"} 1.0
antiphon_repairs_total{action=\"moved\",format=\"anthropic\"} 1
antiphon_requests_total{upstream=\"a\",format=\"none\",code_class=\"4xx\",outcome=\"client\"} 2
antiphon_repairs_total{action=\"placeholder\",format=\"openai_chat\"} 2
# EOF";

    #[test]
    fn metrics_of_a_running_proxy_are_compared() {
        let (before, after) = (TrafficCounts::from_metrics(BEFORE), TrafficCounts::from_metrics(AFTER));
        let more = after.unwrap().since(&before.unwrap());
        assert_eq!(
            more.describe_counts(),
            "5 requests, 2 repairs (placeholder=2), 1 failed (5xx), 2 failed on paths without a known \
             format (4xx, 2 times)"
        );
        assert!(!more.has_no_success());
        assert_eq!(TrafficCounts::from_metrics("<html>"), None);
    }

    #[test]
    fn own_counts_have_statuses() {
        let totals = ExchangeTotals {
            requests: 41,
            repaired: 3,
            actions: [("placeholder", 2), ("moved", 1)].into(),
            failures: [("529".to_owned(), 2), ("answer_broken".to_owned(), 1)].into(),
            side_failures: [("404".to_owned(), 10)].into(),
        };
        assert_eq!(
            TrafficCounts::from(totals).describe_counts(),
            "41 requests, 3 repaired (moved=1, placeholder=2), 3 failed (529, 2 times; answer_broken), 10 \
             failed that asked no model (404, 10 times)"
        );
    }
}
