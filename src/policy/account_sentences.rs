//! Sentences of providers about an account or a key: Anthropic's under status 400, Google's under 403. No other text
//! costs a key anything.
//!
//! Providers repeat text of clients in their errors. A sentence therefore counts only as the whole message, from its
//! first byte to its last. Its date is the only variable part.

use std::time::Duration;

use super::time_formats::find_regain_date;

/// The statement about an account that a whole message makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountSentence {
    /// The account has no credit left.
    NoCredit,
    /// The account has reached the limit that it has set for itself.
    SpendLimit {
        /// End of the limit, in seconds since 1970; `None` if the sentence names no date.
        until: Option<Duration>,
    },
    /// The key was found in public and is blocked.
    LeakedKey,
}

/// Phrases that a client must write to produce a sentence as an echo. Each sentence contains one of them.
pub const ACCOUNT_PHRASES: [&str; 4] = [
    "credit balance is too low",
    "specified API usage limits",
    "specified workspace API usage limits",
    "API key was reported as leaked",
];

/// Seen with both names of the product (2025-01 to 2026-08).
const CREDIT_SENTENCES: [&str; 2] = [
    "Your credit balance is too low to access the Anthropic API.",
    "Your credit balance is too low to access the Claude API.",
];
const TOP_UP_SENTENCE: &str = " Please go to Plans & Billing to upgrade or purchase credits.";
/// Seen for an organisation and for a workspace (2025-05 to 2026-10).
const LIMIT_SENTENCES: [&str; 2] = [
    "You have reached your specified API usage limits.",
    "You have reached your specified workspace API usage limits.",
];
/// Google, for a key of the Gemini API (2025-11 to 2026-09).
const LEAKED_SENTENCE: &str = "Your API key was reported as leaked. Please use another API key.";
const REGAIN_PREFIX: &str = " You will regain access ";

impl AccountSentence {
    /// Reads a whole message; `None` if it is not one of the sentences.
    pub(super) fn parse_message(message: &str) -> Option<Self> {
        if message == LEAKED_SENTENCE {
            return Some(Self::LeakedKey);
        }
        let after = |begins: &[&str]| begins.iter().find_map(|begin| message.strip_prefix(begin));
        if let Some(rest) = after(&CREDIT_SENTENCES) {
            // Anything after the sentence makes it part of a longer text, which may be an echo.
            return (rest.is_empty() || rest == TOP_UP_SENTENCE).then_some(Self::NoCredit);
        }
        let rest = after(&LIMIT_SENTENCES)?;
        if rest.is_empty() {
            return Some(Self::SpendLimit { until: None });
        }
        let access = rest.strip_prefix(REGAIN_PREFIX)?;
        // The form is checked strictly here; the date itself is parsed below and may not exist.
        let is_dated = access.strip_prefix("on ").is_some_and(is_date);
        (is_dated || access == "soon.").then(|| Self::SpendLimit {
            // The parser expects lower case.
            until: find_regain_date(&message.to_lowercase()),
        })
    }
}

/// Returns `true` for `2026-12-01.` and `2026-12-01 at 00:00 UTC.`, with or without the full stop.
fn is_date(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let (day, clock) = text.split_once(" at ").unwrap_or((text, "00:00 UTC"));
    matches_shape(day, "0000-00-00") && matches_shape(clock, "00:00 UTC")
}

/// Returns `true` if `text` has the form of `shape`, with any digit for each zero.
fn matches_shape(text: &str, shape: &str) -> bool {
    let same = |(byte, wanted): (u8, u8)| match wanted {
        b'0' => byte.is_ascii_digit(),
        _ => byte == wanted,
    };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_a_whole_message() {
        let day = Some(Duration::from_secs(1_796_083_200));
        let limit = |until| Some(AccountSentence::SpendLimit { until });
        for (message, read) in [
            (
                "Your credit balance is too low to access the Anthropic API.",
                Some(AccountSentence::NoCredit),
            ),
            (
                "Your credit balance is too low to access the Claude API. Please go to Plans & Billing to upgrade or purchase credits.",
                Some(AccountSentence::NoCredit),
            ),
            ("You have reached your specified API usage limits.", limit(None)),
            (
                "You have reached your specified API usage limits. You will regain access soon.",
                limit(None),
            ),
            (
                "You have reached your specified API usage limits. You will regain access on 2026-12-01.",
                limit(day),
            ),
            (
                "You have reached your specified workspace API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
                limit(day),
            ),
            // The date does not exist: the sentence counts, without a date.
            (
                "You have reached your specified API usage limits. You will regain access on 2026-13-01.",
                limit(None),
            ),
            (LEAKED_SENTENCE, Some(AccountSentence::LeakedKey)),
            ("Your API key was reported as leaked.", None),
            ("", None),
            ("credit balance is too low", None),
            ("your credit balance is too low to access the anthropic api.", None),
            (" Your credit balance is too low to access the Anthropic API.", None),
            ("Your credit balance is too low to access the Anthropic API. ", None),
            (
                "Your credit balance is too low to access the Anthropic API.: Extra inputs are not permitted",
                None,
            ),
            ("messages.0.You have reached your specified API usage limits.", None),
            (
                "You have reached your specified API usage limits. You will regain access on 2026-12-01x",
                None,
            ),
            (
                "You have reached your specified API usage limits. You will regain access on x2026-12-01.",
                None,
            ),
            (
                "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00.",
                None,
            ),
            (
                "You have reached your specified API usage limits. You will regain access on 2026-12-01..",
                None,
            ),
            (
                "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 1é:0 UTC",
                None,
            ),
        ] {
            assert_eq!(AccountSentence::parse_message(message), read, "{message}");
        }
    }

    #[test]
    fn each_sentence_holds_a_phrase() {
        for begin in CREDIT_SENTENCES
            .iter()
            .chain(&LIMIT_SENTENCES)
            .chain([&LEAKED_SENTENCE])
        {
            assert!(ACCOUNT_PHRASES.iter().any(|phrase| begin.contains(phrase)), "{begin}");
        }
    }
}
