//! Hints in the head of a request: a compaction, a retry, the client's timeout.

use std::time::Duration;

use super::ClientHeaders;

/// The codex subagent that compacts its thread.
pub(super) const COMPACT: &str = "compact";

/// The longest client timeout that is plausible. A longer one is ignored.
const CLIENT_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The hints of one request head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientHints {
    /// Set if the request is a compaction. A body may indicate it too: see
    /// [`Outline::compaction`](crate::conversation::Outline).
    pub is_compaction: bool,
    /// Set if the client has compacted the history since its last request.
    pub is_compacted: bool,
    /// The number of earlier attempts by the client's library.
    pub retries: u32,
    /// The timeout of the client's library.
    pub client_timeout: Option<Duration>,
    /// Set if the request replays a token by which the provider finds its turn.
    pub has_turn_state: bool,
}

/// Reads the hints of a request for `path`.
pub fn read_client_hints(headers: &ClientHeaders<'_>, path: &str) -> ClientHints {
    let hints = &headers.hints;
    let is = |text: Option<&str>, words: &[&str]| {
        text.is_some_and(|text| words.iter().any(|word| text.eq_ignore_ascii_case(word)))
    };
    // Some clients send the header with `false` instead of omitting it.
    let says = |text: Option<&str>| text.is_some_and(|text| !text.is_empty()) && !is(text, &["false", "0"]);
    let compaction = is(hints.compaction, &["auto", "manual", "reactive"])
        || is(hints.request_class, &["compaction"])
        || is(hints.subagent, &[COMPACT])
        || path.trim_end_matches('/').ends_with("/responses/compact");
    let patience = |text: Option<&str>| text.and_then(parse_seconds);
    ClientHints {
        is_compaction: compaction,
        is_compacted: says(hints.compacted),
        retries: hints
            .retry_count
            .and_then(|count| count.parse().ok())
            .unwrap_or_default(),
        // A client that sends both gives up at the read timeout if the proxy stays silent.
        client_timeout: patience(hints.read_timeout).or_else(|| patience(hints.timeout)),
        has_turn_state: says(hints.turn_state),
    }
}

/// Returns `true` if a request for `path` only counts the tokens of a history.
pub fn is_token_count(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    ["/count_tokens", "/input_tokens", ":countTokens"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// Parses a plausible number of seconds. Libraries also write `NOT_GIVEN` and whatever they were configured with.
fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds = text.parse::<f64>().ok()?;
    let budget = Duration::try_from_secs_f64(seconds).ok()?;
    (!budget.is_zero() && budget <= CLIENT_TIMEOUT_MAX).then_some(budget)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn read(pairs: &[(&'static str, &'static str)]) -> ClientHints {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = pairs.iter().map(pair).collect();
        read_client_hints(&ClientHeaders::read(&headers), "/v1/messages")
    }

    #[test]
    fn a_compaction_is_told_by_headers_or_path() {
        for (name, value, compaction) in [
            ("x-claude-code-compaction", "auto", true),
            ("x-claude-code-compaction", "manual", true),
            ("x-claude-code-compaction", "reactive", true),
            ("x-claude-code-compaction", "off", false),
            ("x-claude-code-request-class", "compaction", true),
            ("x-claude-code-request-class", "main", false),
            ("x-openai-subagent", "compact", true),
            ("x-openai-subagent", "review", false),
        ] {
            assert_eq!(read(&[(name, value)]).is_compaction, compaction, "{name}: {value}");
        }
        for (path, compaction) in [
            ("/openai/v1/responses/compact", true),
            ("/v1/responses", false),
            ("/v1/responses/compacted", false),
        ] {
            assert_eq!(
                read_client_hints(&ClientHeaders::default(), path).is_compaction,
                compaction,
                "{path}"
            );
        }
    }

    #[test]
    fn a_budget_is_what_somebody_can_mean() {
        let of = |name, text| read(&[(name, text)]).client_timeout;
        for (text, seconds) in [
            ("600", Some(600.0)),
            ("0.5", Some(0.5)),
            (" 60 ", Some(60.0)),
            ("86400", Some(86_400.0)),
            ("86401", None),
            ("NOT_GIVEN", None),
            ("-1", None),
            ("0", None),
            ("NaN", None),
            ("inf", None),
            ("1e300", None),
            ("", None),
            ("10 s", None),
        ] {
            let budget = seconds.map(Duration::from_secs_f64);
            assert_eq!(of("x-stainless-read-timeout", text), budget, "{text:?}");
            assert_eq!(of("x-stainless-timeout", text), budget, "{text:?}");
        }
        let both = |read_timeout| {
            read(&[
                ("x-stainless-read-timeout", read_timeout),
                ("x-stainless-timeout", "60"),
            ])
            .client_timeout
        };
        assert_eq!(both("30"), Some(Duration::from_secs(30)));
        assert_eq!(both("NOT_GIVEN"), Some(Duration::from_secs(60)));
    }

    #[test]
    fn the_other_marks_are_read() {
        assert_eq!(read(&[]), ClientHints::default());
        for (text, retries) in [("0", 0), ("2", 2), ("-1", 0), ("x", 0), ("99999999999", 0)] {
            assert_eq!(read(&[("x-stainless-retry-count", text)]).retries, retries, "{text}");
        }
        assert!(read(&[("x-codex-turn-state", "opaque")]).has_turn_state);
        assert!(!read(&[("x-codex-turn-state", "")]).has_turn_state);
    }
}
