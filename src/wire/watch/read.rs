//! What the readers of all formats share: objects that are read as far as they go, and texts that are kept.

use super::{Facts, Fault, TEXT_BYTES_MAX};
use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        json::{Cursor, Kind},
    },
};

/// Ends a walk early: what was read so far is enough.
pub(crate) const ENOUGH: Result<(), Unreadable> = Err(Unreadable::Shape);

/// Walks the object that `data` is, as far as it goes: where it breaks off, what `each` has taken by then counts.
pub(crate) fn walk<'a>(data: &'a [u8], each: impl FnMut(&mut Cursor<'a>, &[u8]) -> Result<(), Unreadable>) {
    let _ = Cursor::new(data, 0).object(each);
}

/// Walks the object here; passes anything else.
pub(crate) fn inside<'a>(
    cursor: &mut Cursor<'a>,
    each: impl FnMut(&mut Cursor<'a>, &[u8]) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match cursor.kind() {
        Kind::Object => cursor.object(each).map(|_| ()),
        _ => skip(cursor),
    }
}

/// Walks the array here; passes anything else.
pub(crate) fn items<'a>(
    cursor: &mut Cursor<'a>,
    each: impl FnMut(&mut Cursor<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match cursor.kind() {
        Kind::Array => cursor.array(each).map(|_| ()),
        _ => skip(cursor),
    }
}

/// Passes the value here.
pub(crate) fn skip(cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    cursor.value().map(|_| ())
}

/// Takes the number here, if it is one.
pub(crate) fn count(slot: &mut u64, cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    if let Some(number) = cursor.number()? {
        *slot = number;
    }
    Ok(())
}

/// A text, [`TEXT_BYTES_MAX`] bytes at most.
pub(crate) fn kept(text: &[u8]) -> Box<str> {
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| !is_inside(at));
    let head = text.get(..end.unwrap_or(0)).unwrap_or_default();
    String::from_utf8_lossy(head).into()
}

/// A text that says something, as [`kept`].
pub(crate) fn said(text: &[u8]) -> Option<Box<str>> {
    (!text.is_empty()).then(|| kept(text))
}

/// Keeps the first name that an answer goes by.
pub(crate) fn name(facts: &mut Facts, id: &[u8]) {
    if facts.answer_id.is_none() {
        facts.answer_id = said(id);
    }
}

/// Keeps the first name of the model, if it is here.
pub(crate) fn model(facts: &mut Facts, cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    let model = cursor.text()?;
    facts.model = facts.model.take().or_else(|| said(&model));
    Ok(())
}

/// The members of an error that are kept: never its message.
#[derive(Default)]
pub(crate) struct FaultFields<'a> {
    seen: bool,
    kind: Text<'a>,
    code: Text<'a>,
    number: Option<u64>,
}

impl<'a> FaultFields<'a> {
    /// Reads the error here, whatever its shape; null is none.
    pub(crate) fn take(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        self.seen = cursor.kind() != Kind::Null;
        inside(cursor, |cursor, key| self.member(key, cursor))
    }

    /// Reads one member of an error.
    pub(crate) fn member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" | b"status" => self.kind = cursor.text()?,
            b"code" if cursor.kind() == Kind::String => self.code = cursor.text()?,
            b"code" => self.number = cursor.number()?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    /// Whether there is an error.
    pub(crate) const fn is_seen(&self) -> bool {
        self.seen
    }

    /// The error.
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
