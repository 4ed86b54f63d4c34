//! Hints about limits in an answer's headers and error body: time to wait, owner of the quota, permission to retry.
//!
//! Values at or below zero are ignored. Waits are capped at one day, and at seven days for subscription windows. The
//! end of a spending limit is capped at the end of the next month, which it cannot outlast.

use std::time::Duration;

use http::HeaderMap;

use super::{
    account_sentences::AccountSentence,
    class::{Class, CooldownReason},
    empty_quota::empty_quotas,
    provider_error::{DailyQuota, ProviderErrorInfo},
    time_formats::{end_of_next_month, find_wait, parse_http_date},
    verdict::{Verdict, VerdictScope},
};

/// Longest wait that is believed.
const NAMED_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest wait that is believed for a subscription window.
const SUBSCRIPTION_WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Longest wait that is believed if the error does not name a limit.
const UNNAMED_WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes of an organisation's id.
const ORGANISATION_MAX: usize = 128;

/// The provider's hints about limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitHints {
    /// Cooldown of the profile: the longest wait that the provider named.
    pub cooldown: Option<Duration>,
    /// Delay of a retry: the shortest wait that the provider named.
    pub retry_delay: Option<Duration>,
    /// `true` if the limit covers every model of the organisation.
    pub every_model: bool,
    /// `true` if a quota of hours or days covers one model only.
    pub one_model: bool,
    /// The value of `x-should-retry`; `None` if absent or unknown.
    pub should_retry: Option<bool>,
}

impl LimitHints {
    /// Reads the hints of an answer's headers and error. `class` is the verdict on the answer, `since_1970` the current
    /// time.
    pub fn read(headers: &HeaderMap, said: &ProviderErrorInfo, class: Class, since_1970: Duration) -> Self {
        let one_model = said.daily_quota == Some(DailyQuota::OneModel);
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let until = |at: Duration| at.checked_sub(since_1970);
        // Prose describes how long a model's limit lasts, never how long a whole key is out of use.
        let is_of_model = matches!(class.cooldown_reason(), None | Some(CooldownReason::RateLimit));
        let waits = said.retry_after.max(find_wait(&said.message).filter(|_| is_of_model));
        let named = [
            text("retry-after-ms").and_then(|ms| parse_seconds(ms, 0.001)),
            text("x-ms-retry-after-ms").and_then(|ms| parse_seconds(ms, 0.001)),
            text("retry-after")
                .and_then(|value| parse_seconds(value, 1.0).or_else(|| parse_http_date(value).and_then(until))),
            // Google names a delay of seconds next to a quota of a day.
            waits.filter(|_| said.daily_quota.is_none()),
        ];
        let named = || named.into_iter().flatten().filter(|wait| !wait.is_zero());
        // Resets of buckets set the cooldown only: the delay of a retry must be named for it.
        let buckets = empty_quotas(headers, since_1970).map(|empty| empty.full_after);
        let (windows, every_model) = subscription_limit(headers, since_1970);
        let reset = said.reset_at.and_then(until);
        // In any other error a date is prose.
        let regained = match said.sentence {
            Some(AccountSentence::SpendLimit { until: Some(at) }) if class == Class::SpendLimit => until(at),
            _ => None,
        };
        // Computed from the date, because months differ in length.
        let month_max = end_of_next_month(since_1970)
            .and_then(until)
            .unwrap_or(SUBSCRIPTION_WAIT_MAX);
        let day = named().chain(buckets).map(|wait| (wait, NAMED_WAIT_MAX));
        let week = windows
            .into_iter()
            .chain(reset)
            .map(|wait| (wait, SUBSCRIPTION_WAIT_MAX));
        let said = day.chain(week).chain(regained.map(|wait| (wait, month_max)));
        // The cap belongs to the source: a date may lie further ahead than a number of seconds.
        let believed = said.map(|(wait, most)| wait.min(most));
        Self {
            // The longest wins: every named limit has to end before a request passes.
            cooldown: believed.filter(|wait| !wait.is_zero()).max(),
            // The shortest wins: `retry-after` is often `retry-after-ms` rounded up.
            retry_delay: named().map(|wait| wait.min(NAMED_WAIT_MAX)).min(),
            every_model,
            one_model,
            should_retry: match text("x-should-retry") {
                Some("true") => Some(true),
                Some("false") => Some(false),
                _ => None,
            },
        }
    }

    /// Limits hints and verdict of an error that does not name a limit.
    ///
    /// A wait in its headers counts, for one model and up to a minute. Without one the profile keeps its state.
    #[must_use]
    pub fn limit_unnamed(self, verdict: Verdict) -> (Self, Verdict) {
        match (verdict.scope, self.cooldown) {
            (VerdictScope::UnnamedLimit, Some(wait)) => {
                let brief = Self {
                    cooldown: Some(wait.min(UNNAMED_WAIT_MAX)),
                    every_model: false,
                    ..self
                };
                (brief, verdict)
            }
            (VerdictScope::UnnamedLimit, None) => (self, verdict.with_scope(VerdictScope::Exchange)),
            _ => (self, verdict),
        }
    }
}

/// Returns the billed organisation that an answer names: `anthropic-organization-id` (2025-02-10),
/// `openai-organization`.
pub fn billed_organisation(headers: &HeaderMap) -> Option<&str> {
    let names = ["anthropic-organization-id", "openai-organization"];
    let mut values = names.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    values.find(|value| !value.is_empty() && value.len() <= ORGANISATION_MAX)
}

/// Parses a number times `unit` seconds; `None` unless it is above zero.
fn parse_seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|wait| !wait.is_zero())
}

/// Reads Anthropic's unified windows that reject, and the Codex backend's windows that are used up.
///
/// Returns their cooldown, and `true` if they cover every model.
fn subscription_limit(headers: &HeaderMap, since_1970: Duration) -> (Option<Duration>, bool) {
    const UNIFIED: &str = "anthropic-ratelimit-unified-";
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let at = |name: &str| parse_seconds(value(name)?, 1.0)?.checked_sub(since_1970);
    let mut found = (None, false);
    let mut note = |rest: Option<Duration>, every_model: bool| {
        found = (found.0.max(rest), found.1 || every_model);
    };
    if value("anthropic-ratelimit-unified-status") == Some("rejected") {
        let mut some = false;
        for (name, status) in headers {
            let window = name
                .as_str()
                .strip_prefix(UNIFIED)
                .and_then(|name| name.strip_suffix("-status"));
            // `overage` is no window: its status concerns extra usage that is paid for.
            let Some(window) = window.filter(|window| *window != "overage") else {
                continue;
            };
            if status == "rejected" {
                some = true;
                // `5h` and `7d` cover every model, `7d_opus` covers one family.
                note(at(&format!("{UNIFIED}{window}-reset")), !window.contains('_'));
            }
        }
        // Without a rejected window, the representative claim names the window that is meant.
        if !some {
            let claim = value("anthropic-ratelimit-unified-representative-claim").unwrap_or_default();
            let one_family = ["opus", "sonnet", "haiku"].iter().any(|family| claim.contains(family));
            note(at("anthropic-ratelimit-unified-reset"), !one_family);
        }
    }
    for window in ["primary", "secondary"] {
        let used = value(&format!("x-codex-{window}-used-percent")).and_then(|used| used.trim().parse::<f64>().ok());
        // The Codex backend reports each window on every answer, used up or not.
        if used.is_some_and(|used| used >= 100.0) {
            note(at(&format!("x-codex-{window}-reset-at")), true);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// 2026-12-01T00:00:00Z.
    const NOW: u64 = 1_796_083_200;

    fn hints(fields: &[(&str, &str)], body: &str) -> LimitHints {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        LimitHints::read(
            &headers,
            &ProviderErrorInfo::parse_body(None, body.as_bytes(), &crate::refusals::RefusalReader::default()),
            Class::RateLimit,
            Duration::from_secs(NOW),
        )
    }

    /// Header fields, a body, and the expected cooldown and delay in milliseconds.
    type Row = (
        &'static [(&'static str, &'static str)],
        &'static str,
        Option<u64>,
        Option<u64>,
    );

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn waits_are_read_in_all_their_spellings() {
        let rows: &[Row] = &[
            (&[], "", None, None),
            (&[("retry-after", "7")], "", Some(7000), Some(7000)),
            (&[("retry-after", "0.5")], "", Some(500), Some(500)),
            (&[("retry-after", "0")], "", None, None),
            (&[("retry-after", "-5")], "", None, None),
            (&[("retry-after", "nan")], "", None, None),
            (&[("retry-after", "1e30")], "", None, None),
            (&[("retry-after", "999999999")], "", Some(86_400_000), Some(86_400_000)),
            (
                &[("retry-after", "Tue, 01 Dec 2026 00:00:30 GMT")],
                "",
                Some(30_000),
                Some(30_000),
            ),
            (&[("retry-after", "Tue, 01 Dec 2020 00:00:30 GMT")], "", None, None),
            (
                &[("retry-after-ms", "1500"), ("retry-after", "2")],
                "",
                Some(2000),
                Some(1500),
            ),
            (&[("x-ms-retry-after-ms", "250.0")], "", Some(250), Some(250)),
            // Only exhausted buckets count, and the longest wait of those wins.
            (
                &[
                    ("anthropic-ratelimit-requests-remaining", "10"),
                    ("anthropic-ratelimit-requests-reset", "2026-12-01T00:10:00Z"),
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                    ("anthropic-ratelimit-input-tokens-reset", "2026-12-01T00:00:40Z"),
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                    ("anthropic-ratelimit-tokens-reset", "2026-12-01T00:00:20Z"),
                    ("retry-after", "5"),
                ],
                "",
                Some(40_000),
                Some(5000),
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                ],
                "",
                Some(360_000),
                None,
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "1"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                ],
                "",
                None,
                None,
            ),
            (
                &[],
                r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"t","retryDelay":"34s"}]}}"#,
                Some(34_000),
                Some(34_000),
            ),
            (
                &[],
                r#"{"error":{"details":[{"retryDelay":"34s"},{"violations":[{"quotaId":"RequestsPerDayPerProject"}]}]}}"#,
                None,
                None,
            ),
            (
                &[],
                r#"{"error":{"type":"usage_limit_reached","message":"m","resets_in_seconds":7200}}"#,
                Some(7_200_000),
                Some(7_200_000),
            ),
            (
                &[],
                r#"{"error":{"type":"usage_limit_reached","resets_at":1796601600}}"#,
                Some(518_400_000),
                None,
            ),
            (
                &[],
                r#"{"error":{"message":"Rate limit reached. Please try again in 11.054s."}}"#,
                Some(11_054),
                Some(11_054),
            ),
        ];
        for (fields, body, rest, delay) in rows {
            let read = hints(fields, body);
            let millis = |wait: Option<Duration>| wait.map(|wait| u64::try_from(wait.as_millis()).unwrap());
            assert_eq!(
                (millis(read.cooldown), millis(read.retry_delay)),
                (*rest, *delay),
                "{fields:?} {body}"
            );
        }
    }

    #[test]
    fn a_window_of_a_subscription_tells_whom_it_is_for() {
        let reset = (NOW + 3600).to_string();
        let far = (NOW + 30 * 86_400).to_string();
        let status = ("anthropic-ratelimit-unified-status", "rejected");
        for (fields, seconds, every_model) in [
            (
                vec![status, ("anthropic-ratelimit-unified-reset", reset.as_str())],
                Some(3600),
                true,
            ),
            (
                vec![
                    status,
                    ("anthropic-ratelimit-unified-7d_opus-status", "rejected"),
                    ("anthropic-ratelimit-unified-7d_opus-reset", &reset),
                    ("anthropic-ratelimit-unified-5h-status", "allowed"),
                    ("anthropic-ratelimit-unified-5h-reset", &far),
                ],
                Some(3600),
                false,
            ),
            (
                vec![
                    ("anthropic-ratelimit-unified-status", "allowed"),
                    ("anthropic-ratelimit-unified-reset", &reset),
                ],
                None,
                false,
            ),
            (
                vec![
                    ("x-codex-primary-used-percent", "100.0"),
                    ("x-codex-primary-reset-at", &far),
                ],
                Some(7 * 86_400),
                true,
            ),
            (
                vec![
                    ("x-codex-primary-used-percent", "99"),
                    ("x-codex-primary-reset-at", &far),
                ],
                None,
                false,
            ),
        ] {
            let read = hints(&fields, "");
            assert_eq!(read.cooldown.map(|rest| rest.as_secs()), seconds, "{fields:?}");
            assert_eq!(read.every_model, every_model, "{fields:?}");
        }
    }

    #[test]
    fn should_retry_and_the_organisation_are_read() {
        assert_eq!(hints(&[("x-should-retry", "true")], "").should_retry, Some(true));
        assert_eq!(hints(&[("x-should-retry", "false")], "").should_retry, Some(false));
        assert_eq!(hints(&[("x-should-retry", "maybe")], "").should_retry, None);
        let mut headers = HeaderMap::new();
        assert_eq!(billed_organisation(&headers), None);
        headers.insert("openai-organization", HeaderValue::from_static("org-1"));
        assert_eq!(billed_organisation(&headers), Some("org-1"));
        headers.insert("anthropic-organization-id", HeaderValue::from_static("a"));
        assert_eq!(billed_organisation(&headers), Some("a"));
    }
}
