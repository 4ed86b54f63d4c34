//! Helpers for the readers of all formats: walks that end at the first fault, and texts of bounded length.

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{Facts, Fault, TEXT_BYTES_MAX},
        json::{Cursor, Kind},
    },
};

/// The result with which a reader ends a walk early, once it knows enough.
pub(crate) const ENOUGH: Result<(), Unreadable> = Err(Unreadable::Shape);

/// Walks the object in `data` up to its end or first fault. Members that `each` took before a fault count.
pub(crate) fn walk<'a>(data: &'a [u8], each: impl FnMut(&mut Cursor<'a>, &[u8]) -> Result<(), Unreadable>) {
    // A truncated event and a reader that knows enough both end here: neither is an error.
    let _ = Cursor::new(data, 0).object(each);
}

/// Walks the object at the cursor, or skips any other value.
pub(crate) fn inside<'a>(
    cursor: &mut Cursor<'a>,
    each: impl FnMut(&mut Cursor<'a>, &[u8]) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match cursor.kind() {
        Kind::Object => cursor.object(each).map(|_| ()),
        _ => skip(cursor),
    }
}

/// Walks the array at the cursor, or skips any other value.
pub(crate) fn items<'a>(
    cursor: &mut Cursor<'a>,
    each: impl FnMut(&mut Cursor<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match cursor.kind() {
        Kind::Array => cursor.array(each).map(|_| ()),
        _ => skip(cursor),
    }
}

/// Skips the value at the cursor.
pub(crate) fn skip(cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    cursor.value().map(|_| ())
}

/// Stores the number at the cursor. Any other value leaves `slot` unchanged.
pub(crate) fn count(slot: &mut u64, cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    if let Some(number) = cursor.number()? {
        *slot = number;
    }
    Ok(())
}

/// Copies a text, [`TEXT_BYTES_MAX`] bytes at most.
pub(crate) fn kept(text: &[u8]) -> Box<str> {
    // A cut must not fall inside a letter: bytes that continue one begin with the bits 10.
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| !is_inside(at));
    let head = text.get(..end.unwrap_or(0)).unwrap_or_default();
    String::from_utf8_lossy(head).into()
}

/// Copies a text as [`kept`] does. `None` if it is empty.
pub(crate) fn said(text: &[u8]) -> Option<Box<str>> {
    (!text.is_empty()).then(|| kept(text))
}

/// Stores the id of the answer, unless one is stored.
pub(crate) fn name(facts: &mut Facts, id: &[u8]) {
    if facts.answer_id.is_none() {
        facts.answer_id = said(id);
    }
}

/// Stores the name of the model, unless one is stored.
pub(crate) fn model(facts: &mut Facts, cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    let model = cursor.text()?;
    facts.model = facts.model.take().or_else(|| said(&model));
    Ok(())
}

/// The members of an error that are stored: never its message.
#[derive(Default)]
pub(crate) struct FaultFields<'a> {
    seen: bool,
    kind: Text<'a>,
    code: Text<'a>,
    number: Option<u64>,
}

impl<'a> FaultFields<'a> {
    /// Reads the error at the cursor, whatever its shape.
    pub(crate) fn take(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        // A successful response has `"error": null`.
        self.seen = cursor.kind() != Kind::Null;
        inside(cursor, |cursor, key| self.member(key, cursor))
    }

    /// Reads one member of an error.
    pub(crate) fn member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" | b"status" => self.kind = cursor.text()?,
            b"code" if cursor.kind() == Kind::String => self.code = cursor.text()?,
            // Gemini's codes are numbers: the HTTP status.
            b"code" => self.number = cursor.number()?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    /// Returns `true` if there was an error.
    pub(crate) const fn is_seen(&self) -> bool {
        self.seen
    }

    /// Returns the error.
    pub(crate) fn fault(&self) -> Fault {
        let number = self.number.map(|number| number.to_string().into());
        Fault {
            kind: kept(&self.kind),
            code: number.unwrap_or_else(|| kept(&self.code)),
            ..Fault::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_text_is_short_and_ends_with_a_whole_letter() {
        assert_eq!(&*kept(b"toolu_1"), "toolu_1");
        assert_eq!(kept("ä".repeat(100).as_bytes()).len(), TEXT_BYTES_MAX);
        assert_eq!(
            kept(format!("x{}", "ä".repeat(100)).as_bytes()).len(),
            TEXT_BYTES_MAX - 1
        );
        assert_eq!(&*kept(b"\x80\x80"), "\u{fffd}\u{fffd}");
        assert_eq!(&*kept(&[0x80; 300]), "");
    }
}
