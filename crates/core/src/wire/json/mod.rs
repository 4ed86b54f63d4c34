//! JSON by spans: walking, locating values, comparing and decoding strings, editing arrays and objects in place.
//!
//! Request bodies are read and edited through this module. A walk reads only the values that its caller needs. Callers
//! run the full parse ([`validate`](fn@validate)) before an edit.

mod blocks;
mod count;
mod cursor;
mod limits;
mod list_edits;
mod skip;
mod surrogates;
mod text;
mod validate;

pub use count::count_byte;
pub(crate) use cursor::Cursor;
pub use limits::{deeper_than, has_overflow};
pub use list_edits::{ListElement, constant_string, edited_value, enclose, join_elements, rebuild_list, write_list};
pub use surrogates::{REPLACEMENT, find_lone_surrogate, replace_lone_surrogates};
use text::decode_string;
pub use text::{compact_json, escape_string, is_blank, is_object, quote_string};
pub(crate) use validate::Nesting;
pub use validate::validate;

use crate::{
    conversation::Text,
    splice::{Edit, Piece, Span},
    wire::Unreadable,
    work,
};

/// Returns the length of the object or array with which `text` begins, from bracket to bracket. `None` if it does not end.
pub(crate) fn object_len(text: &[u8]) -> Option<usize> {
    skip::container_end(text, 1)
}

/// The type of a JSON value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// `null`
    Null,
    /// A number, `true` or `false`, or the end of the text.
    Other,
}

impl JsonKind {
    const fn from_first_byte(first: Option<&u8>) -> Self {
        match first {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b'n') => Self::Null,
            _ => Self::Other,
        }
    }
}

/// JSON text whose values are looked up by their spans.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a> {
    body: &'a [u8],
}

/// One member of an object.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The key's string, quotes included.
    pub key: Span,
    /// The value.
    pub value: Span,
}

impl<'a> Json<'a> {
    /// Creates a view of the JSON text in `body`.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// Returns the span of the value, without the white space around it.
    pub fn root_span(self) -> Result<Span, Unreadable> {
        Cursor::new(self.body, 0).skip_value()
    }

    /// Returns the type of the value at `span`.
    pub fn kind(self, span: Span) -> JsonKind {
        JsonKind::from_first_byte(self.bytes(span).first())
    }

    /// Returns `true` if the object or array at `span` contains nothing but white space.
    pub fn is_empty(self, span: Span) -> bool {
        let inside = Span::new(span.start.saturating_add(1), span.end.saturating_sub(1));
        let is_space = |byte: &u8| {
            work::count(1);
            byte.is_ascii_whitespace()
        };
        self.bytes(inside).iter().all(is_space)
    }

    /// Calls `each` with the decoded key and the span of the value of every member of the object at `span`.
    pub fn for_each_member(self, span: Span, mut each: impl FnMut(&[u8], Span)) -> Result<(), Unreadable> {
        let mut cursor = Cursor::new(self.body, span.start);
        let walked = cursor.walk_object(|cursor, key| cursor.skip_value().map(|value| each(key, value)));
        walked.map(|_| ())
    }

    /// Calls `each` with the spans of every member of the object at `span`.
    pub fn for_each_member_span(self, span: Span, mut each: impl FnMut(Member)) -> Result<(), Unreadable> {
        let mut cursor = Cursor::new(self.body, span.start);
        let walked = cursor.walk_members(|cursor, key, _| cursor.skip_value().map(|value| each(Member { key, value })));
        walked.map(|_| ())
    }

    /// Calls `each` with the span of every element of the array at `span`.
    pub fn for_each_element(self, span: Span, mut each: impl FnMut(Span)) -> Result<(), Unreadable> {
        let mut cursor = Cursor::new(self.body, span.start);
        cursor
            .walk_array(|cursor| cursor.skip_value().map(&mut each))
            .map(|_| ())
    }

    /// Returns the elements of the array at `span`; none if there is no array that can be read.
    pub fn elements(self, span: Span) -> Vec<Span> {
        let mut elements = Vec::new();
        let walked = self.for_each_element(span, |element| elements.push(element));
        walked.map(|()| elements).unwrap_or_default()
    }

    /// Returns the value of the last member `name` of the object at `span`.
    pub fn member(self, span: Span, name: &str) -> Option<Span> {
        // Of a repeated key the last counts, as it does for providers.
        let mut found = None;
        let walked = self.for_each_member(span, |key, value| {
            if key == name.as_bytes() {
                found = Some(value);
            }
        });
        walked.ok().and(found)
    }

    /// Returns the values of the last members of these names of the object at `span`, in one walk.
    pub fn members<const N: usize>(self, span: Span, names: [&str; N]) -> [Option<Span>; N] {
        let mut found = [None; N];
        let walked = self.for_each_member(span, |key, value| {
            for (name, found) in names.iter().zip(&mut found) {
                if key == name.as_bytes() {
                    *found = Some(value);
                }
            }
        });
        if walked.is_ok() { found } else { [None; N] }
    }

    /// Returns `span` if the value there is a string.
    pub fn only_string(self, span: Span) -> Option<Span> {
        (self.kind(span) == JsonKind::String).then_some(span)
    }

    /// Returns the value of the last member `name` of the object at `span`. `None` if it is not a string.
    pub fn string_member(self, span: Span, name: &str) -> Option<Span> {
        self.member(span, name).and_then(|value| self.only_string(value))
    }

    /// Returns the decoded string of the member `name` of the object at `span`; empty if it is not a string.
    pub fn member_text(self, span: Span, name: &str) -> Text<'a> {
        self.member(span, name)
            .map_or_else(Text::default, |value| self.decode_string(value))
    }

    /// Returns the decoded string at `span`; empty if the value is not a string.
    pub fn decode_string(self, span: Span) -> Text<'a> {
        decode_string(self.bytes(span))
    }

    /// Returns the span between the quotes of the string at `span`; empty if the value is not a string.
    pub fn string_inside(self, span: Span) -> Span {
        match self.kind(span) {
            JsonKind::String => Span::new(span.start.saturating_add(1), span.end.saturating_sub(1)),
            _ => Span::at(span.start),
        }
    }

    /// Returns the bytes of `span`.
    pub fn bytes(self, span: Span) -> &'a [u8] {
        self.body.get(span.range()).unwrap_or_default()
    }

    /// Sets the member `name` of the object at `span`. Of several members with that name the last is replaced.
    pub fn set_member(self, span: Span, name: &str, value: Vec<Piece>) -> Edit {
        // Providers read the last of several members, so the others do not matter.
        if let Some(old) = self.member(span, name) {
            return Edit {
                span: old,
                pieces: value,
            };
        }
        let mut first = false;
        let empty = self.for_each_member_span(span, |_| first = true).is_err() || !first;
        let mut pieces = vec![Piece::Made(format!("{}:", quote_string(name)))];
        pieces.extend(value);
        // The new member comes first, where only the comma after it depends on the others.
        if !empty {
            pieces.push(Piece::Constant(","));
        }
        Edit {
            span: Span::at(span.start.saturating_add(1)),
            pieces,
        }
    }

    /// Removes every member called `name` from the object at `span`.
    pub fn remove_member(self, span: Span, name: &str) -> Vec<Edit> {
        self.remove_members(span, &[name])
    }

    /// Removes every member with one of these names from the object at `span`.
    pub fn remove_members(self, span: Span, names: &[&str]) -> Vec<Edit> {
        let mut members = Vec::new();
        if self.for_each_member_span(span, |member| members.push(member)).is_err() {
            return Vec::new();
        }
        work::count(members.len());
        let spans: Vec<Span> = members
            .iter()
            .map(|member| Span::new(member.key.start, member.value.end))
            .collect();
        // An earlier member of the same name would take effect if only the last were removed.
        let kept = members.iter().enumerate().filter(|(_, member)| {
            let key = self.decode_string(member.key);
            !names.iter().any(|name| *key == *name.as_bytes())
        });
        let wanted: Vec<ListElement> = kept.map(|(index, _)| ListElement::Kept(index, Vec::new())).collect();
        rebuild_list(span, &spans, wanted)
    }
}
