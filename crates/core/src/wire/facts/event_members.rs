//! Helpers for the readers of all formats: walks that end at the first fault, and texts of bounded length.

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{AnswerError, Facts, TEXT_BYTES_MAX, Usage},
        json::{Cursor, JsonKind},
    },
};

/// The result with which a reader ends a walk early, once it knows enough.
pub(crate) const END_WALK: Result<(), Unreadable> = Err(Unreadable::Shape);

/// Walks the object in `data` up to its end or first fault. Members that `each` took before a fault count.
pub(crate) fn read_object<'a>(data: &'a [u8], each: impl FnMut(&mut Cursor<'a>, &[u8]) -> Result<(), Unreadable>) {
    // A truncated event and a reader that knows enough both end here: neither is an error.
    let _ = Cursor::new(data, 0).walk_object(each);
}

/// Walks the object at the cursor, or skips any other value.
pub(crate) fn read_members<'a>(
    cursor: &mut Cursor<'a>,
    each: impl FnMut(&mut Cursor<'a>, &[u8]) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match cursor.peek_kind() {
        JsonKind::Object => cursor.walk_object(each).map(|_| ()),
        _ => skip_value(cursor),
    }
}

/// Walks the array at the cursor, or skips any other value.
pub(crate) fn read_elements<'a>(
    cursor: &mut Cursor<'a>,
    each: impl FnMut(&mut Cursor<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match cursor.peek_kind() {
        JsonKind::Array => cursor.walk_array(each).map(|_| ()),
        _ => skip_value(cursor),
    }
}

/// Skips the value at the cursor.
pub(crate) fn skip_value(cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    cursor.skip_value().map(|_| ())
}

/// Stores the number at the cursor. Any other value leaves `slot` unchanged.
pub(crate) fn read_count(slot: &mut u64, cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    if let Some(number) = cursor.read_number()? {
        *slot = number;
    }
    Ok(())
}

/// Stores the text under `name` in the object at the cursor.
pub(crate) fn read_member_text<'a>(
    slot: &mut Text<'a>,
    name: &[u8],
    cursor: &mut Cursor<'a>,
) -> Result<(), Unreadable> {
    read_members(cursor, |cursor, key| {
        if key == name {
            *slot = cursor.read_text()?;
            return Ok(());
        }
        skip_value(cursor)
    })
}

/// Reads token counts with `OpenAI`'s names. `words` are the beginnings of the names for input and output.
///
/// The counts are `None` if there is none. Those before a fault count.
pub(crate) fn read_openai_usage(cursor: &mut Cursor<'_>, words: [&[u8]; 2]) -> (Option<Usage>, Result<(), Unreadable>) {
    let (mut usage, mut input, mut some) = (Usage::default(), 0, false);
    let read = read_members(cursor, |cursor, key| {
        some = true;
        let [of_input, of_output] = words.map(|word| key.strip_prefix(word).unwrap_or_default());
        match (of_input, of_output) {
            (b"_tokens", _) => read_count(&mut input, cursor),
            (_, b"_tokens") => read_count(&mut usage.output, cursor),
            (b"_tokens_details", _) => read_members(cursor, |cursor, key| match key {
                b"cached_tokens" => read_count(&mut usage.cache_read, cursor),
                _ => skip_value(cursor),
            }),
            // DeepSeek's name for it.
            (b"_cache_hit_tokens", _) => read_count(&mut usage.cache_read, cursor),
            (_, b"_tokens_details") => read_members(cursor, |cursor, key| match key {
                b"reasoning_tokens" => read_count(&mut usage.reasoning, cursor),
                _ => skip_value(cursor),
            }),
            _ => skip_value(cursor),
        }
    });
    // The provider counts cached tokens as input tokens too.
    usage.input = input.saturating_sub(usage.cache_read);
    (some.then_some(usage), read)
}

/// Copies a text, [`TEXT_BYTES_MAX`] bytes at most.
pub(crate) fn bounded_text(text: &[u8]) -> Box<str> {
    // A cut must not fall inside a letter: bytes that continue one begin with the bits 10.
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| !is_inside(at));
    let head = text.get(..end.unwrap_or(0)).unwrap_or_default();
    String::from_utf8_lossy(head).into()
}

/// Copies a text as [`bounded_text`] does. `None` if it is empty.
pub(crate) fn non_empty_text(text: &[u8]) -> Option<Box<str>> {
    (!text.is_empty()).then(|| bounded_text(text))
}

/// Stores the id of the answer, unless one is stored.
pub(crate) fn note_answer_id(facts: &mut Facts, id: &[u8]) {
    if facts.answer_id.is_none() {
        facts.answer_id = non_empty_text(id);
    }
}

/// Stores the name of the model, unless one is stored.
pub(crate) fn note_model(facts: &mut Facts, cursor: &mut Cursor<'_>) -> Result<(), Unreadable> {
    let model = cursor.read_text()?;
    facts.model = facts.model.take().or_else(|| non_empty_text(&model));
    Ok(())
}

/// The members of an error that are stored: never its message.
#[derive(Default)]
pub(crate) struct AnswerErrorFields<'a> {
    is_present: bool,
    kind: Text<'a>,
    code: Text<'a>,
    number: Option<u64>,
}

impl<'a> AnswerErrorFields<'a> {
    /// Reads the error at the cursor, whatever its shape.
    pub(crate) fn read_error(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        // A successful response has `"error": null`.
        self.is_present = cursor.peek_kind() != JsonKind::Null;
        read_members(cursor, |cursor, key| self.read_member(key, cursor))
    }

    /// Reads one member of an error.
    pub(crate) fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" | b"status" => self.kind = cursor.read_text()?,
            b"code" if cursor.peek_kind() == JsonKind::String => self.code = cursor.read_text()?,
            // Gemini's codes are numbers: the HTTP status.
            b"code" => self.number = cursor.read_number()?,
            _ => skip_value(cursor)?,
        }
        Ok(())
    }

    /// Returns `true` if there was an error.
    pub(crate) const fn is_error(&self) -> bool {
        self.is_present
    }

    /// Returns the error.
    pub(crate) fn to_answer_error(&self) -> AnswerError {
        let number = self.number.map(|number| number.to_string().into());
        AnswerError {
            kind: bounded_text(&self.kind),
            code: number.unwrap_or_else(|| bounded_text(&self.code)),
            ..AnswerError::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_text_is_short_and_ends_with_a_whole_letter() {
        assert_eq!(&*bounded_text(b"toolu_1"), "toolu_1");
        assert_eq!(bounded_text("ä".repeat(100).as_bytes()).len(), TEXT_BYTES_MAX);
        assert_eq!(
            bounded_text(format!("x{}", "ä".repeat(100)).as_bytes()).len(),
            TEXT_BYTES_MAX - 1
        );
        assert_eq!(&*bounded_text(b"\x80\x80"), "\u{fffd}\u{fffd}");
        assert_eq!(&*bounded_text(&[0x80; 300]), "");
    }
}
