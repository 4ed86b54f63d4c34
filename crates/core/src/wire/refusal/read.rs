//! Finds the text of a refusal in an error body.

use std::cell::RefCell;

use memchr::memmem;

use super::{
    ids::LITELLM_TAIL,
    table::{FoundRefusal, LedText, RefusalTable},
};
use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// The largest body that [`RefusalTable::read`] reads, in bytes.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Largest number of error bodies that are nested as text.
pub(super) const LAYERS_MAX: u8 = 3;
/// Largest number of objects and arrays around the text of an error body.
pub(super) const NESTING_MAX: u8 = 7;
/// Largest number of texts that are shown to a person.
const TEXTS_MAX: usize = 64;
/// Largest number of leads before a text.
const LEADS_MAX: usize = 6;

/// The beginning of the last line of the text that litellm appends.
const LITELLM_LAST_LINE: &[u8] = b"Available Model Group Fallbacks=";

/// The members of error bodies under which the text may be.
pub(super) const TEXT_MEMBERS: &[&[u8]] = &[
    b"error",
    b"message",
    // AWS.
    b"Message",
    // FastAPI.
    b"detail",
    // OpenRouter: `error.metadata.raw`.
    b"metadata",
    b"raw",
    // A gateway: ding113/claude-code-hub#471 (2025-12).
    b"upstream_error",
    // Google: `error.details[].fieldViolations[]`.
    b"details",
    b"fieldViolations",
];

/// The members of error bodies that name a place, with the member that has the text about it: pydantic, OpenAI, Google.
const PLACED_TEXTS: &[(&str, &str)] = &[("loc", "msg"), ("param", "message"), ("field", "description")];

impl RefusalTable {
    /// Reads the `body` of a provider's refusal. `None` if it is not about the history, or larger than
    /// [`REFUSAL_BYTES_MAX`].
    ///
    /// The text may be at `error`, `error.message`, `message`, `detail` or `error.metadata.raw`, in an array of such
    /// objects, or the whole body. It may itself contain such a body, as JSON or as Python prints bytes, nested up to
    /// three times. A place that another member names is read as if it preceded the text. Broken JSON is read up to the
    /// fault.
    pub fn read(&self, body: &[u8]) -> Option<FoundRefusal<'_>> {
        self.read_by(body, None)
    }

    /// Reads the `body` of an answer with this status, by the rows that count with it.
    pub fn read_with_status(&self, status: u16, body: &[u8]) -> Option<FoundRefusal<'_>> {
        self.read_by(body, Some(status))
    }

    /// Returns the texts in an error body at which rows are looked for. None if it is larger than [`REFUSAL_BYTES_MAX`].
    pub(super) fn texts_of(&self, body: &[u8]) -> Vec<LedCopy> {
        let texts = RefCell::default();
        let reader = ErrorReader {
            table: self,
            status: None,
            texts: Some(&texts),
        };
        if body.len() <= REFUSAL_BYTES_MAX {
            reader.find_in_text(body, LAYERS_MAX);
        }
        texts.into_inner()
    }

    fn read_by(&self, body: &[u8], status: Option<u16>) -> Option<FoundRefusal<'_>> {
        let reader = ErrorReader {
            table: self,
            status,
            texts: None,
        };
        let is_read = body.len() <= REFUSAL_BYTES_MAX;
        is_read.then(|| reader.find_in_text(body, LAYERS_MAX)).flatten()
    }
}

/// The reader of one error.
#[derive(Clone, Copy)]
struct ErrorReader<'r> {
    table: &'r RefusalTable,
    /// Only rows with this status count. `None` if all do.
    status: Option<u16>,
    /// The texts at which rows are looked for, if that is all that is wanted: then none is read.
    texts: Option<&'r RefCell<Vec<LedCopy>>>,
}

/// A copy of a text after its leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedCopy {
    pub(super) text: Vec<u8>,
    pub(super) quote: Option<u8>,
}

impl<'r> ErrorReader<'r> {
    fn find_in_text(self, text: &[u8], layers: u8) -> Option<FoundRefusal<'r>> {
        let mut led = LedText {
            text: without_litellm_tail(text).trim_ascii(),
            quote: None,
        };
        // Gateways and SDKs put their own words before the provider's, several of them in a chain.
        for _ in 0..=LEADS_MAX {
            let found = self.find_in_body(led.text, layers).or_else(|| self.find_row(led));
            if found.is_some() {
                return found;
            }
            led = self.table.after_lead(led)?;
        }
        None
    }

    fn find_row(self, led: LedText<'_>) -> Option<FoundRefusal<'r>> {
        let Some(texts) = self.texts else {
            return self.table.find_row(led, self.status);
        };
        let mut texts = texts.borrow_mut();
        let copy = LedCopy {
            text: led.text.to_vec(),
            quote: led.quote,
        };
        if texts.len() < TEXTS_MAX && !texts.contains(&copy) {
            texts.push(copy);
        }
        None
    }

    /// Reads the error body at the beginning of `text`.
    fn find_in_body(self, text: &[u8], layers: u8) -> Option<FoundRefusal<'r>> {
        let layers = layers.checked_sub(1)?;
        match text {
            [b'{' | b'[', ..] => self.find_in_value(Json::new(text), Span::new(0, text.len()), NESTING_MAX, layers),
            [b'b', quote @ (b'\'' | b'"'), rest @ ..] => self.find_in_text(&unescape_python(rest, *quote), layers),
            _ => None,
        }
    }

    fn find_in_value(self, json: Json<'_>, value: Span, nesting: u8, layers: u8) -> Option<FoundRefusal<'r>> {
        let kind = json.kind(value);
        if kind == JsonKind::String {
            return self.find_in_text(&json.decode_string(value), layers);
        }
        let nesting = nesting.checked_sub(1)?;
        let mut found = None;
        // A text before a fault in the JSON counts, so the result of the walk does not matter.
        let _walked = match kind {
            JsonKind::Object => json.for_each_member(value, |key, value| {
                if found.is_none() && TEXT_MEMBERS.contains(&key) {
                    found = self.find_in_value(json, value, nesting, layers);
                }
            }),
            JsonKind::Array => json.for_each_element(value, |element| {
                if found.is_none() && json.kind(element) == JsonKind::Object {
                    found = self.find_in_value(json, element, nesting, layers);
                }
            }),
            _ => Ok(()),
        };
        if kind == JsonKind::Object && found.is_none() {
            found = PLACED_TEXTS.iter().find_map(|(place, text)| {
                let [place, text] = json.members(value, [place, text]);
                let text = placed_text(json, place?, text?)?;
                if !self.table.is_place(&text.place) {
                    return None;
                }
                let joined = self.find_in_text(&text.joined(), layers);
                joined.or_else(|| self.find_in_text(&text.text, layers))
            });
        }
        found
    }
}

/// Returns a text without what litellm appends, if that is its end.
fn without_litellm_tail(text: &[u8]) -> &[u8] {
    let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let list = last.strip_prefix(LITELLM_LAST_LINE);
    let is_whole = list.is_some_and(|list| list == b"None" || list.ends_with(b"]"));
    let begin = memmem::rfind(text, LITELLM_TAIL).filter(|_| is_whole);
    begin.and_then(|begin| text.get(..begin)).unwrap_or(text)
}

/// A text and the place that it is about.
struct PlacedText {
    place: Vec<u8>,
    text: Vec<u8>,
}

impl PlacedText {
    /// Returns the text as providers write it that put the place before it.
    fn joined(&self) -> Vec<u8> {
        [&self.place[..], b": ", &self.text].concat()
    }
}

/// Reads a place, as a text or as a list of steps, and the text about it.
fn placed_text(json: Json<'_>, place: Span, text: Span) -> Option<PlacedText> {
    if json.kind(text) != JsonKind::String {
        return None;
    }
    let place = match json.kind(place) {
        JsonKind::String => json.decode_string(place).to_vec(),
        JsonKind::Array => {
            let mut steps = Vec::new();
            for step in json.elements(place) {
                match json.kind(step) {
                    JsonKind::String => steps.push(json.decode_string(step).to_vec()),
                    JsonKind::Other => steps.push(json.bytes(step).to_vec()),
                    _ => return None,
                }
            }
            // FastAPI names the part of the request first.
            let begin = usize::from(steps.first().is_some_and(|step| step == b"body"));
            steps.get(begin..).unwrap_or_default().join(&b'.')
        }
        _ => return None,
    };
    Some(PlacedText {
        place,
        text: json.decode_string(text).to_vec(),
    })
}

/// Decodes bytes that Python printed as `b'…'`, up to the closing `quote`. Line breaks become blanks.
pub(super) fn unescape_python(mut text: &[u8], quote: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    loop {
        let (byte, rest) = match text {
            [b'\\', b'n' | b'r' | b't', rest @ ..] => (b' ', rest),
            [b'\\', b'x', high, low, rest @ ..] => (hex_byte(*high, *low), rest),
            [b'\\', byte, rest @ ..] => (*byte, rest),
            [byte, rest @ ..] if *byte != quote => (*byte, rest),
            _ => return bytes,
        };
        bytes.push(byte);
        text = rest;
    }
}

/// Returns the byte of two hexadecimal digits, or `?` if they are none.
fn hex_byte(high: u8, low: u8) -> u8 {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digit(high).zip(digit(low)).map_or(b'?', |(high, low)| high << 4 | low)
}
