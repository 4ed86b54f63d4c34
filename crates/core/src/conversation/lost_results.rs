//! Texts that clients write in place of results which they have lost.
//!
//! Such a text answers its call, but it is no result. A result that a tool service posts later is still delivered.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::work;

/// The part of a text by which it is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostText {
    /// The whole text, because a real result may begin with such a short one.
    Whole(&'static str),
    /// The beginning of the text.
    Begins(&'static str),
    /// The beginning and the end of the text, with a number between them.
    Between(&'static str, &'static str),
}

/// One text that stands for a lost result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostResultRow {
    /// Name of the client that writes it.
    pub client: &'static str,
    /// The text.
    pub text: LostText,
    /// First version of the client that was seen to write it.
    pub since: &'static str,
}

/// Every such text, as seen on the wire (2026-11).
pub const LOST_RESULTS: &[LostResultRow] = &[
    row(
        "antiphon",
        // Covers both placeholders of the proxy, and later wordings.
        LostText::Begins("[antiphon: no result was recorded"),
        "0.1",
    ),
    row(
        "claude-code",
        LostText::Begins("[Tool call interrupted: the session ended before this call's result was recorded"),
        "2.1.328",
    ),
    row(
        "claude-code",
        LostText::Begins("The user doesn't want to proceed with this tool use."),
        "1.0.67",
    ),
    // openclaw writes the same on Responses.
    row("codex", LostText::Whole("aborted"), "0.169"),
    row(
        "codex",
        LostText::Between("Wall time: ", " seconds\naborted by user"),
        "0.169",
    ),
    row(
        "qwen-code",
        LostText::Begins("Tool execution result was not recorded"),
        "0.24",
    ),
    row(
        "copilot",
        LostText::Begins("Tool execution was interrupted before a result was recorded."),
        "1.0",
    ),
    row("opencode", LostText::Whole("[Tool execution was interrupted]"), "1.3"),
    // openclaw writes the same on Anthropic.
    row("pi", LostText::Whole("No result provided"), "0.73"),
    row(
        "openclaw",
        LostText::Begins("[openclaw] missing tool result in session history"),
        "2026.9",
    ),
    row(
        "hermes",
        LostText::Whole("[Result unavailable \u{2014} see context summary above]"),
        "0.19",
    ),
];

/// Largest result in bytes that is compared. Longer results are real output.
pub const LOST_BYTES_MAX: usize = 4 * 1024;

const fn row(client: &'static str, saying: LostText, since: &'static str) -> LostResultRow {
    LostResultRow {
        client,
        text: saying,
        since,
    }
}

/// Length of the beginnings that [`may_be_lost`] compares: enough to tell other texts apart.
const HEAD_BYTES: usize = 12;

/// Returns `false` if a JSON string, quotes included, cannot decode to a text that [`is_lost`] accepts.
pub fn may_be_lost(string: &[u8]) -> bool {
    let mut rest = string.strip_prefix(b"\"").unwrap_or_default();
    // Control characters too: the string may lie in a body that is not valid JSON.
    while let [b' ' | b'\n' | b'\r' | b'\t' | 0x0c, after @ ..] | [b'\\', b'n' | b'r' | b't' | b'f', after @ ..] = rest
    {
        work::count(1);
        rest = after;
    }
    // ESC begins a color of a terminal. No text above contains it.
    if rest.starts_with(b"\\u001b") {
        return false;
    }
    // No text above begins with one of these.
    if let [b'\\', b'"' | b'\\' | b'b', ..] = rest {
        return false;
    }
    // Any other letter may be escaped, so only those before the first escape are compared.
    let head = rest.get(..rest.len().min(HEAD_BYTES)).unwrap_or_default();
    let head = head
        .split(|byte| matches!(byte, b'\\' | b'"'))
        .next()
        .unwrap_or_default();
    let begins_alike = |text: LostText| {
        let (LostText::Whole(begin) | LostText::Begins(begin) | LostText::Between(begin, _)) = text;
        head.iter().zip(begin.as_bytes()).all(|(ours, theirs)| ours == theirs)
    };
    LOST_RESULTS.iter().any(|row| begins_alike(row.text))
}

/// Returns `true` if the decoded `text` of a result only reports that the result was lost.
pub fn is_lost(text: &[u8]) -> bool {
    work::count(text.len());
    let text = text.trim_ascii();
    LOST_RESULTS.iter().any(|row| row.text.matches(text))
}

impl LostText {
    fn matches(self, text: &[u8]) -> bool {
        match self {
            Self::Whole(whole) => text == whole.as_bytes(),
            Self::Begins(begin) => text.starts_with(begin.as_bytes()),
            Self::Between(begin, end) => {
                let rest = text.strip_prefix(begin.as_bytes());
                let between = rest.and_then(|rest| rest.strip_suffix(end.as_bytes()));
                // Only a number may be between the two. Any other text is output of a tool.
                between.is_some_and(|between| between.iter().all(|letter| matches!(letter, b'0'..=b'9' | b'.')))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_for_a_lost_result_is_found_however_it_is_escaped() {
        let texts = LOST_RESULTS.iter().map(|row| match row.text {
            LostText::Whole(text) | LostText::Begins(text) => text.to_owned(),
            LostText::Between(begin, end) => format!("{begin}1.5{end}"),
        });
        for text in texts {
            assert!(is_lost(text.as_bytes()), "{text}");
            let plain: String = serde_json::Value::from(text.as_str()).to_string();
            let inside = plain.get(1..plain.len() - 1).unwrap();
            let mut spellings = vec![inside.to_owned()];
            for blank in [" ", "\\n", "\\t\\r\\f", "\\u0020", "\n", "\t\r\u{c}", " \\n "] {
                spellings.push(format!("{blank}{inside}"));
            }
            // Each of the first letters as an escape.
            for (at, letter) in inside
                .char_indices()
                .take(20)
                .filter(|(_, letter)| letter.is_ascii_alphanumeric())
            {
                let (before, after) = inside.split_at(at);
                let after = after.get(1..).unwrap();
                spellings.push(format!("{before}\\u{:04x}{after}", u32::from(letter)));
            }
            for spelling in spellings {
                assert!(may_be_lost(format!("\"{spelling}\"").as_bytes()), "{spelling:?}");
            }
        }
        for other in ["\"total 12\"", "\"\\u001b[31mred\"", "\"1\\t# Antiphon\""] {
            assert!(!may_be_lost(other.as_bytes()), "{other}");
        }
    }
}
