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

/// The headers of one limit.
struct LimitHeaders {
    remaining: &'static str,
    reset: &'static str,
    /// The size of the limit; `None` unless it counts requests.
    requests: Option<&'static str>,
}

const fn limit_of_tokens(remaining: &'static str, reset: &'static str) -> LimitHeaders {
    LimitHeaders {
        remaining,
        reset,
        requests: None,
    }
}

/// Anthropic's limits. Their resets are instants.
const ANTHROPIC: &[LimitHeaders] = &[
    LimitHeaders {
        remaining: "anthropic-ratelimit-requests-remaining",
        reset: "anthropic-ratelimit-requests-reset",
        requests: Some("anthropic-ratelimit-requests-limit"),
    },
    limit_of_tokens(
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ),
    limit_of_tokens(
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ),
    limit_of_tokens(
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
    ),
];
/// `OpenAI`'s limits. Their resets are durations.
const OPENAI: &[LimitHeaders] = &[
    LimitHeaders {
        remaining: "x-ratelimit-remaining-requests",
        reset: "x-ratelimit-reset-requests",
        requests: Some("x-ratelimit-limit-requests"),
    },
    limit_of_tokens("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    limit_of_tokens(
        "x-ratelimit-remaining-project-tokens",
        "x-ratelimit-reset-project-tokens",
    ),
];

/// Returns the limits that are used up.
pub(super) fn empty_quotas(headers: &HeaderMap, since_1970: Duration) -> impl Iterator<Item = EmptyQuota> {
    let value = move |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let read = move |limit: &LimitHeaders, full_after: &dyn Fn(&str) -> Option<Duration>| {
        // Providers report resets of limits that are not used up too.
        value(limit.remaining).filter(|left| left.trim() == "0")?;
        Some(EmptyQuota {
            full_after: full_after(value(limit.reset)?)?,
            requests: limit.requests.and_then(value).and_then(|most| most.trim().parse().ok()),
        })
    };
    let until = move |reset: &str| parse_rfc3339(reset)?.checked_sub(since_1970);
    let anthropic = ANTHROPIC.iter().filter_map(move |limit| read(limit, &until));
    let openai = OPENAI.iter().filter_map(move |limit| read(limit, &parse_go_duration));
    anthropic.chain(openai)
}
