//! The one door to JSON: locate raw values, compare and decode strings, mend arrays and objects in place.
//!
//! Reads by borrowed `serde_json` raw values: no recursion, no copies; spans come from the addresses of sub-slices.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use serde::{
    Deserialize, Deserializer as _,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    conversation::Text,
    splice::{Edit, Piece, Span},
    wire::Unreadable,
};

/// The type of a JSON value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// `null`
    Null,
    /// A number, `true` or `false`.
    Other,
}

/// A body as JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a> {
    body: &'a [u8],
}

impl<'a> Json<'a> {
    /// The text of `body`, which nobody has looked at yet.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// Checks the whole body and gives the span of its one value.
    pub fn root(self) -> Result<Span, Unreadable> {
        let value: &RawValue = serde_json::from_slice(self.body).map_err(|_| Unreadable::NotJson)?;
        Ok(self.locate(value.get().as_bytes()))
    }

    /// The type of the value at `span`.
    pub fn kind(self, span: Span) -> Kind {
        match span.of(self.body).first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b'n') => Kind::Null,
            _ => Kind::Other,
        }
    }

    /// Calls `each` with the decoded key and the span of the value of every member of the object at `span`.
    pub fn members(self, span: Span, mut each: impl FnMut(&[u8], Span)) -> Result<(), Unreadable> {
        self.fields(span, |member| each(&self.decode(member.key), member.value))
    }

    /// Calls `each` with the spans of every member of the object at `span`.
    pub fn fields(self, span: Span, each: impl FnMut(Member)) -> Result<(), Unreadable> {
        if self.kind(span) != Kind::Object {
            return Err(Unreadable::Shape);
        }
        let mut from = serde_json::Deserializer::from_slice(span.of(self.body));
        from.deserialize_map(Fields { json: self, each })
            .map_err(|_| Unreadable::NotJson)
    }

    /// Calls `each` with the span of every element of the array at `span`.
    pub fn elements(self, span: Span, each: impl FnMut(Span)) -> Result<(), Unreadable> {
        if self.kind(span) != Kind::Array {
            return Err(Unreadable::Shape);
        }
        let mut from = serde_json::Deserializer::from_slice(span.of(self.body));
        from.deserialize_seq(Elements { json: self, each })
            .map_err(|_| Unreadable::NotJson)
    }

    /// The value of the last member called `name` of the object at `span`.
    pub fn member(self, span: Span, name: &str) -> Option<Span> {
        let mut found = None;
        let walked = self.members(span, |key, value| {
            if key == name.as_bytes() {
                found = Some(value);
            }
        });
        walked.ok().and(found)
    }

    /// The decoded string at `span`; empty where there is none.
    pub fn decode(self, span: Span) -> Text<'a> {
        decode(span.of(self.body))
    }

    /// What stands between the quotes of the string at `span`, still escaped.
    pub fn inner(self, span: Span) -> Span {
        match self.kind(span) {
            Kind::String => Span::new(span.start.saturating_add(1), span.end.saturating_sub(1)),
            _ => Span::at(span.start),
        }
    }

    /// The bytes of `span`.
    pub fn bytes(self, span: Span) -> &'a [u8] {
        self.body.get(span.range()).unwrap_or_default()
    }

    /// Gives `name` the value `value` in the object at `span`: the last member of that name counts.
    pub fn set(self, span: Span, name: &str, value: Vec<Piece>) -> Edit {
        if let Some(old) = self.member(span, name) {
            return Edit {
                span: old,
                pieces: value,
            };
        }
        let mut first = false;
        let empty = self.fields(span, |_| first = true).is_err() || !first;
        let mut pieces = vec![Piece::Made(format!("{}:", quoted(name)))];
        pieces.extend(value);
        if !empty {
            pieces.push(Piece::Constant(","));
        }
        Edit {
            span: Span::at(span.start.saturating_add(1)),
            pieces,
        }
    }

    /// Removes every member called `name` from the object at `span`.
    pub fn unset(self, span: Span, name: &str) -> Vec<Edit> {
        let mut members = Vec::new();
        if self.fields(span, |member| members.push(member)).is_err() {
            return Vec::new();
        }
        let spans: Vec<Span> = members
            .iter()
            .map(|member| Span::new(member.key.start, member.value.end))
            .collect();
        let kept = members
            .iter()
            .enumerate()
            .filter(|(_, member)| *self.decode(member.key) != *name.as_bytes());
        let slots: Vec<Slot> = kept.map(|(index, _)| Slot::Old(index, Vec::new())).collect();
        rebuild(span, &spans, slots)
    }

    /// The span of a sub-slice of the body.
    fn locate(self, part: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).saturating_sub(self.body.as_ptr() as usize);
        debug_assert!(
            start.saturating_add(part.len()) <= self.body.len(),
            "a slice of another body"
        );
        Span::new(start, start.saturating_add(part.len()))
    }
}

/// One member of an object.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The key's string, quotes included.
    pub key: Span,
    /// The value.
    pub value: Span,
}

/// One place of a list that is written anew.
#[derive(Clone, Debug)]
pub enum Slot {
    /// An element that stays, by its index, with edits inside it. Indices of one list only rise.
    Old(usize, Vec<Edit>),
    /// A new element.
    New(Vec<Piece>),
}

/// The edits that turn the `elements` of the list at `list` (brackets included) into `slots`.
/// Bytes around elements that stay are left as they are; commas are right in every case.
pub fn rebuild(list: Span, elements: &[Span], slots: Vec<Slot>) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut fresh: Vec<Vec<Piece>> = Vec::new();
    let mut last: Option<usize> = None;
    for slot in slots {
        match slot {
            Slot::New(pieces) => fresh.push(pieces),
            Slot::Old(index, inside) => {
                edits.extend(between(elements, last, index, std::mem::take(&mut fresh)));
                edits.extend(inside);
                last = Some(index);
            }
        }
    }
    edits.extend(behind(list, elements, last, fresh));
    edits
}

/// Replaces what stands between the kept element `last` and the next kept one.
fn between(elements: &[Span], last: Option<usize>, next: usize, fresh: Vec<Vec<Piece>>) -> Option<Edit> {
    let start = |index: usize| elements.get(index).map_or(0, |span| span.start);
    let end = |index: usize| elements.get(index).map_or(0, |span| span.end);
    let mut pieces = Vec::new();
    let span = match last {
        None => {
            for item in fresh {
                pieces.extend(item);
                pieces.push(Piece::Constant(","));
            }
            Span::new(start(0), start(next))
        }
        Some(last) => {
            for item in fresh {
                pieces.push(Piece::Constant(","));
                pieces.extend(item);
            }
            let gone = next.saturating_sub(1);
            Span::new(end(last), end(gone.max(last)))
        }
    };
    (!span.is_empty() || !pieces.is_empty()).then_some(Edit { span, pieces })
}

/// Replaces what stands behind the last kept element.
fn behind(list: Span, elements: &[Span], last: Option<usize>, fresh: Vec<Vec<Piece>>) -> Option<Edit> {
    let tail = elements
        .last()
        .map_or_else(|| list.start.saturating_add(1), |span| span.end);
    let mut pieces = Vec::new();
    for (index, item) in fresh.into_iter().enumerate() {
        if index > 0 || last.is_some() {
            pieces.push(Piece::Constant(","));
        }
        pieces.extend(item);
    }
    let from = match last {
        Some(index) => elements.get(index).map_or(tail, |span| span.end),
        None => elements.first().map_or(tail, |span| span.start),
    };
    let span = Span::new(from, tail);
    (!span.is_empty() || !pieces.is_empty()).then_some(Edit { span, pieces })
}

/// The bytes of `span` with `edits` done inside it, as pieces: for a value that moves.
pub fn moved(span: Span, mut edits: Vec<Edit>) -> Vec<Piece> {
    edits.sort_by_key(|edit| edit.span);
    let mut pieces = Vec::new();
    let mut from = span.start;
    for edit in edits {
        pieces.push(Piece::Original(Span::new(from, edit.span.start)));
        pieces.extend(edit.pieces);
        from = edit.span.end;
    }
    pieces.push(Piece::Original(Span::new(from, span.end)));
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// `text` as a JSON string, quotes included.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// `text` as the inside of a JSON string.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out
}

/// Whether a JSON string (quotes included) holds no visible character.
pub fn is_blank(string: &[u8]) -> bool {
    String::from_utf8_lossy(&decode(string))
        .chars()
        .all(char::is_whitespace)
}

/// The decoded bytes of a JSON string, quotes included; empty for anything else.
pub fn decode(string: &[u8]) -> Text<'_> {
    let inside = string.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    match inside {
        Some(inside) if memchr::memchr(b'\\', inside).is_none() => Cow::Borrowed(inside),
        Some(_) => serde_json::from_slice(string).map_or_else(|_| Cow::default(), |Decoded(text)| Cow::Owned(text)),
        None => Cow::default(),
    }
}

/// A string decoded as bytes, so that a lone surrogate is no error.
struct Decoded(Vec<u8>);

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_byte_buf(DecodedVisitor)
    }
}

struct DecodedVisitor;

impl Visitor<'_> for DecodedVisitor {
    type Value = Decoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Decoded, E> {
        Ok(Decoded(bytes.to_vec()))
    }
}

/// Walks an object; keys are raw too, since a key may hold what no `str` can.
struct Fields<'a, F> {
    json: Json<'a>,
    each: F,
}

impl<'de, F: FnMut(Member)> Visitor<'de> for Fields<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Raw)? {
            let value = map.next_value_seed(Raw)?;
            (self.each)(Member {
                key: self.json.locate(key),
                value: self.json.locate(value),
            });
        }
        Ok(())
    }
}

/// Walks an array.
struct Elements<'a, F> {
    json: Json<'a>,
    each: F,
}

impl<'de, F: FnMut(Span)> Visitor<'de> for Elements<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element_seed(Raw)? {
            (self.each)(self.json.locate(element));
        }
        Ok(())
    }
}

/// A value's own bytes, without the white space around it.
struct Raw;

impl<'de> DeserializeSeed<'de> for Raw {
    type Value = &'de [u8];

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<&'de [u8], D::Error> {
        <&'de RawValue>::deserialize(from).map(|value| value.get().as_bytes())
    }
}

/// Whether `text` is one JSON object.
pub fn is_object(text: &[u8]) -> bool {
    let start = text.iter().position(|byte| !byte.is_ascii_whitespace());
    start.and_then(|at| text.get(at)) == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
