//! Limits that an answer reports as used up, in Anthropic's and OpenAI's rate limit headers (2026-10).

use std::time::Duration;

use http::HeaderMap;

use super::time_formats::{parse_go_duration, parse_rfc3339};

/// A limit that an answer reports as used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyQuota {
    /// Time until the whole limit is available again.
    pub full_after: Duration,
    /// Requests of the whole limit; `None` for a limit on tokens, or if the answer does not report it.
    pub requests: Option<u32>,
}

impl EmptyQuota {
    /// Reads the limit of an answer that is full last; `None` if no limit is used up. `since_1970` is the present.
    pub fn read(headers: &HeaderMap, since_1970: Duration) -> Option<Self> {
        empty_quotas(headers, since_1970).max_by_key(|empty| empty.full_after)
    }
}

/// Returns the limits that are used up. Anthropic's resets are instants, `OpenAI`'s are durations.
pub(super) fn empty_quotas(headers: &HeaderMap, since_1970: Duration) -> impl Iterator<Item = EmptyQuota> {
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"];
    let openai = ["requests", "tokens", "project-tokens"];
    let value = move |name: String| headers.get(name.as_str()).and_then(|value| value.to_str().ok());
    // Providers report resets of limits that are not used up too.
    let is_empty = move |name: String| value(name).is_some_and(|left| left.trim() == "0");
    let requests = move |bucket: &str, name: String| {
        let most = value(name).filter(|_| bucket == "requests")?;
        most.trim().parse().ok()
    };
    let anthropic = anthropic.into_iter().filter_map(move |bucket| {
        let reset = value(format!("anthropic-ratelimit-{bucket}-reset"))?;
        let empty = is_empty(format!("anthropic-ratelimit-{bucket}-remaining"));
        Some(EmptyQuota {
            full_after: parse_rfc3339(reset).filter(|_| empty)?.checked_sub(since_1970)?,
            requests: requests(bucket, format!("anthropic-ratelimit-{bucket}-limit")),
        })
    });
    let openai = openai.into_iter().filter_map(move |bucket| {
        let reset = value(format!("x-ratelimit-reset-{bucket}"))?;
        let empty = is_empty(format!("x-ratelimit-remaining-{bucket}"));
        Some(EmptyQuota {
            full_after: parse_go_duration(reset).filter(|_| empty)?,
            requests: requests(bucket, format!("x-ratelimit-limit-{bucket}")),
        })
    });
    anthropic.chain(openai)
}
