//! The masked text of a refusal: words that providers use in errors, and a sign for every other word and for numbers.
//!
//! A provider may echo any part of a history in its error. Of an echo only words of a fixed list are left.

use super::{
    known_words::KnownWords,
    read::{LAYERS_MAX, NESTING_MAX, REFUSAL_BYTES_MAX, TEXT_MEMBERS, unescape_python},
    table::RefusalTable,
};
use crate::{
    splice::Span,
    wire::json::{Json, JsonKind, validate},
    work,
};

/// Limit of a masked text in bytes.
pub const MASKED_BYTES_MAX: usize = 512;
/// Bytes of the longest word that may be known.
const WORD_BYTES_MAX: usize = 64;
/// Largest number of known words in a row that are masked too if they are between two masked words. An echo of English
/// text has such words everywhere, and a provider's own sentence seldom.
const LONE_WORDS_MAX: usize = 2;
/// Largest number of marks between two words. More of them may be a drawing, or a password.
const MARKS_MAX: usize = 4;
/// Marks that are kept between words. All others count as letters: they occur in passwords and addresses.
const MARKS: &[u8] = b".,:;!?'\"`()[]{}<>=+-/";
/// The member in which pydantic writes a message.
const PYDANTIC_MESSAGE: &[u8] = b"msg";
/// Words of errors about a history. Those about an outage, a path or a model have none of them.
const HISTORY_WORDS: &[&str] = &[
    "assistant",
    "call_id",
    "conversation",
    "function",
    "function_call",
    "image",
    "images",
    "item",
    "items",
    "jinja",
    "messages",
    "previous_response_id",
    "prompt",
    "reasoning",
    "reasoning_content",
    "role",
    "roles",
    "template",
    "thinking",
    "thought_signature",
    "tool",
    "tool_call",
    "tool_call_id",
    "tool_calls",
    "tool_result",
    "tool_use",
    "tools",
    "turn",
    "turns",
];

impl RefusalTable {
    /// Returns the masked text of a provider's error. `None` if it has no message, or is larger than
    /// [`REFUSAL_BYTES_MAX`].
    ///
    /// The message is found where [`RefusalTable::read`] looks for it, and in the `msg` of a list. Several are joined.
    /// Words of the rows and of other errors are kept with their case. Every other word becomes `<word>`, a number
    /// becomes `<n>`, and signs in a row become one, also if one or two known words are between them.
    pub fn mask(&self, body: &[u8]) -> Option<String> {
        if body.len() > REFUSAL_BYTES_MAX {
            return None;
        }
        let (body, mut masked) = (body.trim_ascii(), MaskedText::new(self.words()));
        // A page of a proxy in between, or of a wrong address.
        if body.starts_with(b"<") {
            return None;
        }
        // JSON without a message says nothing in words. Anything else is a message as a whole.
        if !masked.push_body(body, LAYERS_MAX) && validate(body).is_err() {
            masked.push_words(body);
        }
        masked.finish()
    }
}

/// Returns `true` if a masked text is about the history of a request.
pub fn names_history(masked: &str) -> bool {
    // A hyphen or slash belongs to the name of a model, or to a path: `<word>-thinking` names no history.
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '/');
    masked.split(|letter: char| !is_part(letter)).any(|word| {
        work::count(HISTORY_WORDS.len());
        HISTORY_WORDS.contains(&&*word.to_ascii_lowercase())
    })
}

/// A masked text that is being built.
#[derive(Debug)]
struct MaskedText<'w> {
    /// Words that are kept.
    words: &'w KnownWords,
    text: String,
    /// Marks and blanks since the last word.
    gap: String,
    /// The sign at the end. `None` if the text ends with a known word.
    last_sign: Option<MaskSign>,
    /// The end of the last `<word>` in the text, and the number of words since. `None` before the first.
    masked_end: Option<(usize, usize)>,
    /// `true` once a word had no room.
    is_full: bool,
}

/// The sign that replaces a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MaskSign {
    Word,
    Number,
}

impl MaskSign {
    const fn text(self) -> &'static str {
        match self {
            Self::Word => "<word>",
            Self::Number => "<n>",
        }
    }
}

impl<'w> MaskedText<'w> {
    const fn new(words: &'w KnownWords) -> Self {
        Self {
            words,
            text: String::new(),
            gap: String::new(),
            last_sign: None,
            masked_end: None,
            is_full: false,
        }
    }

    /// Adds the messages of the error body at the beginning of `text`. Returns `false` if it has none.
    fn push_body(&mut self, text: &[u8], layers: u8) -> bool {
        let Some(layers) = layers.checked_sub(1) else {
            return false;
        };
        match text {
            [b'{' | b'[', ..] => self.push_value(Json::new(text), Span::new(0, text.len()), NESTING_MAX, layers),
            [b'b', quote @ (b'\'' | b'"'), rest @ ..] => {
                self.push_message(&unescape_python(rest, *quote), layers);
                true
            }
            _ => false,
        }
    }

    fn push_value(&mut self, json: Json<'_>, value: Span, nesting: u8, layers: u8) -> bool {
        let kind = json.kind(value);
        if kind == JsonKind::String {
            self.push_message(&json.decode_string(value), layers);
            return true;
        }
        let Some(nesting) = nesting.checked_sub(1) else {
            return false;
        };
        let mut found = false;
        // A message before a fault in the JSON counts, so the result of the walk does not matter.
        let _walked = match kind {
            JsonKind::Object => json.for_each_member(value, |key, value| {
                if TEXT_MEMBERS.contains(&key) || key == PYDANTIC_MESSAGE {
                    found |= self.push_value(json, value, nesting, layers);
                }
            }),
            JsonKind::Array => json.for_each_element(value, |element| {
                if json.kind(element) == JsonKind::Object {
                    found |= self.push_value(json, element, nesting, layers);
                }
            }),
            _ => Ok(()),
        };
        found
    }

    /// Adds a message, which may be an error body itself.
    fn push_message(&mut self, text: &[u8], layers: u8) {
        let text = text.trim_ascii();
        if self.push_body(text, layers) {
            return;
        }
        if !self.text.is_empty() {
            " / ".clone_into(&mut self.gap);
            (self.last_sign, self.masked_end) = (None, None);
        }
        self.push_words(text);
    }

    /// Adds a text word by word, until there is no more room.
    fn push_words(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some((first, after)) = rest.split_first()
            && !self.is_full
        {
            let (word, behind) = rest.split_at_checked(word_length(rest)).unwrap_or_default();
            work::count(word.len().saturating_add(1));
            if word.is_empty() {
                self.push_gap(*first);
                rest = after;
            } else {
                self.push_word(word);
                rest = behind;
            }
        }
    }

    /// Adds a byte between two words.
    fn push_gap(&mut self, byte: u8) {
        if !MARKS.contains(&byte) {
            if !self.gap.ends_with(' ') && !self.text.is_empty() {
                self.gap.push(' ');
            }
        } else if self.gap.bytes().filter(|byte| *byte != b' ').count() < MARKS_MAX {
            self.gap.push(char::from(byte));
        }
    }

    fn push_word(&mut self, word: &[u8]) {
        let kept = kept_word(word, self.words);
        let sign = if word.iter().all(u8::is_ascii_digit) {
            Some(MaskSign::Number)
        } else {
            kept.is_none().then_some(MaskSign::Word)
        };
        let continues = match (self.last_sign, sign) {
            (Some(MaskSign::Word), Some(_)) => true,
            (Some(MaskSign::Number), Some(sign)) => sign == MaskSign::Number,
            _ => false,
        };
        if continues {
            self.gap.clear();
            return;
        }
        if let (Some(MaskSign::Word), Some((end, 0..=LONE_WORDS_MAX))) = (sign, self.masked_end) {
            self.text.truncate(end);
            self.gap.clear();
            (self.last_sign, self.masked_end) = (sign, Some((end, 0)));
            return;
        }
        let shown = match sign {
            Some(sign) => sign.text(),
            None => kept.unwrap_or_default(),
        };
        self.append_shown(sign, shown);
    }

    /// Appends a kept word or a sign, if there is room.
    fn append_shown(&mut self, sign: Option<MaskSign>, shown: &str) {
        let gap = std::mem::take(&mut self.gap);
        let length = self.text.len().saturating_add(gap.len()).saturating_add(shown.len());
        self.is_full = length > MASKED_BYTES_MAX;
        if self.is_full {
            return;
        }
        self.text.push_str(&gap);
        self.text.push_str(shown);
        self.last_sign = sign;
        self.masked_end = if sign == Some(MaskSign::Word) {
            Some((self.text.len(), 0))
        } else {
            self.masked_end.map(|(end, since)| (end, since.saturating_add(1)))
        };
    }

    /// Returns the text; `None` if it has no word.
    fn finish(mut self) -> Option<String> {
        if self.text.is_empty() {
            return None;
        }
        // The marks directly after the last word: a full stop, or a closing quote.
        let end = self.gap.split(' ').next().unwrap_or_default();
        if self.text.len().saturating_add(end.len()) <= MASKED_BYTES_MAX {
            self.text.push_str(end);
        }
        Some(self.text)
    }
}

/// Returns the length of the word with which `text` begins; zero if it begins with a mark or a blank.
fn word_length(text: &[u8]) -> usize {
    let is_letter = |at: usize| text.get(at).is_some_and(u8::is_ascii_alphabetic);
    let is_part = |(at, byte): &(usize, &u8)| match byte {
        // In `model's`, not at the ends of a quotation.
        b'\'' => at.checked_sub(1).is_some_and(is_letter) && is_letter(at.saturating_add(1)),
        b' ' | b'\\' => false,
        byte => !byte.is_ascii_control() && !MARKS.contains(byte),
    };
    text.iter().enumerate().take_while(is_part).count()
}

/// Returns a word that is kept: a known one, or several that are joined by underscores.
fn kept_word<'t>(word: &'t [u8], words: &KnownWords) -> Option<&'t str> {
    let word = std::str::from_utf8(word)
        .ok()
        .filter(|word| word.len() <= WORD_BYTES_MAX)?;
    let lower = word.to_ascii_lowercase();
    let name = lower.strip_suffix("'s").unwrap_or(&lower);
    let mut parts = name.split('_').filter(|part| !part.is_empty()).peekable();
    let is_kept = words.contains(name) || (parts.peek().is_some() && parts.all(|part| words.contains(part)));
    is_kept.then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{RefusalTexts, RowTexts};

    fn mask(body: &[u8]) -> Option<String> {
        let texts = RefusalTexts {
            row: vec![RowTexts {
                name: "any".to_owned(),
                fault: "any_fault".to_owned(),
                status: Vec::new(),
                text: vec!["messages 参数非法".to_owned()],
                then: Vec::new(),
                mend: None,
                fits: None,
                learn: None,
                note: false,
            }],
            leads: Vec::new(),
            tails: Vec::new(),
            place_names: Vec::new(),
        };
        RefusalTable::compile(&texts).unwrap().mask(body)
    }

    #[test]
    fn unknown_words_and_numbers_become_signs() {
        let rows: [(&str, &str); 17] = [
            ("Could not process image", "Could not process image"),
            (
                "messages.12.content[3]: Hidden secret word",
                "messages.<n>.content[<n>]: <word> word",
            ),
            ("the model's input isn't valid.", "the model's input isn't valid."),
            (
                "'role' must be 'Bananas', not 'system'",
                "'role' must be '<word>', not 'system'",
            ),
            ("toolu_01Ab, call_x9 and sk-live-77: x@y.z", "<word>"),
            ("188240 + 21333 > 200000 tokens", "<n> tokens"),
            ("12 monkeys, 13 parrots", "<n> <word>"),
            ("tool_use_blocks tool_monkey __ _", "tool_use_blocks <word>"),
            ("PASSWORD: HUNTER2 IS NOT A STRING", "<word> IS NOT A STRING"),
            ("messages 参数非法 请求", "messages 参数非法 <word>"),
            ("a\n\tb\u{0}the  tool", "a <word> the tool"),
            ("tool ((((((( tool", "tool (((( tool"),
            ("tool\u{202e}call \u{1f600}", "<word>"),
            ("$%&* ~^|#", "<word>"),
            ("user'user the 'tool", "<word> the 'tool"),
            ("model.", "model."),
            (
                "Monkeys in the jungle of all the monkeys in there eat",
                "<word> of all the <word>",
            ),
        ];
        for (text, wanted) in rows {
            assert_eq!(mask(text.as_bytes()).as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn the_message_is_found_as_refusals_are_read() {
        let rows: [(&str, Option<&str>); 15] = [
            (
                r#"{"error":{"message":"bad tool","code":"hidden"},"name":"hidden"}"#,
                Some("bad tool"),
            ),
            (r#"{"error":"bad tool"}"#, Some("bad tool")),
            (r#"[{"error":{"message":"bad tool"}}]"#, Some("bad tool")),
            (
                r#"{"detail":[{"loc":["hidden"],"msg":"bad tool"},{"msg":"bad role"}]}"#,
                Some("bad tool / bad role"),
            ),
            (
                r#"{"error":{"message":"provider error","metadata":{"raw":"{\"message\":\"bad tool\"}"}}}"#,
                Some("provider error / bad tool"),
            ),
            (
                r#"{"error":{"message":"b'{\"error\":{\"message\":\"bad tool\"}}'"}}"#,
                Some("bad tool"),
            ),
            (
                r#"{"message":"{'error': {'message': 'bad tool'}}"}"#,
                Some("{'error': {'message': 'bad tool"),
            ),
            (
                r"{'error': {'message': 'bad tool'}}",
                Some("{'error': {'message': 'bad tool"),
            ),
            (r#"{"message":"bad tool"#, Some("{\"message\":\"bad tool")),
            (r#"{"message":"bad tool","#, Some("bad tool")),
            (r#"{"code":1,"reason":"hidden"}"#, None),
            (r#"{"message":""}"#, None),
            ("<html><body role=\"main\">bad tool</body></html>", None),
            ("", None),
            ("  ", None),
        ];
        for (body, wanted) in rows {
            let masked = mask(body.as_bytes());
            let shown = masked.as_deref().map(|text| text.trim_end_matches(['}', '\'']));
            assert_eq!(shown, wanted, "{body}");
        }
    }

    #[test]
    fn size_and_steps_are_bounded() {
        let long = "tool call ".repeat(6_000);
        let masked = mask(long.as_bytes()).unwrap();
        assert!((500..=MASKED_BYTES_MAX).contains(&masked.len()), "{}", masked.len());
        for text in ["x ", "1,", "'a'", "a_", "((", "the ", "é"] {
            let steps = |times: usize| work::measure(|| mask(text.repeat(times).as_bytes())).0;
            let (one, four) = (steps(5_000), steps(20_000));
            assert!(four <= one * 5 + 1_000, "{text}: {one}, {four}");
        }
        assert_eq!(mask("x".repeat(REFUSAL_BYTES_MAX + 1).as_bytes()), None);
    }

    #[test]
    fn texts_about_a_history_are_told_from_others() {
        for about in [
            "Item with id '<word>' not found.",
            "Error rendering prompt with jinja template: <word>",
            "Expected a tool_result after <word>",
            "ROLES must alternate",
        ] {
            assert!(names_history(about), "{about}");
        }
        for other in [
            "Internal server error",
            "Not Found",
            "The model `<word>` does not exist or you do not have access to it.",
            "The model '<word>-thinking' does not exist.",
            "Invalid URL (<word>/chat/completions)",
            "This is not a chat model and thus not supported in the <word>/chat/completions endpoint.",
            "An error occurred while processing your request. Please include the request ID <word> in your message.",
        ] {
            assert!(!names_history(other), "{other}");
        }
    }
}
