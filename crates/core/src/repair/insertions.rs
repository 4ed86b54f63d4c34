//! Everything that is inserted into a body before its plan: late results, and values that the client has dropped.

use bytes::Bytes;

use super::{
    continuity::{ContinuityKind, value_edits},
    late_texts::{LateText, text_edits},
    parsed::Paired,
};
use crate::{
    splice::EditList,
    wire::{Unreadable, json::validate},
};

/// Texts and values for one body. The places of all of them are those of the body without any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Insertions<'i> {
    /// Late results, each with the index of the message that it is appended to.
    pub texts: &'i [(usize, LateText)],
    /// Values for the gaps of these messages. Values whose gap is not found are left out.
    pub values: &'i [(usize, ContinuityKind, &'i str)],
}

impl Insertions<'_> {
    /// Returns the body with all of them, in one splice. `body` is the handle of the bytes that were parsed.
    pub fn put_into(self, paired: &Paired<'_>, body: &Bytes) -> Result<Bytes, Unreadable> {
        // The scan skips bytes that may be no JSON, and an edit must never be spliced into such a body.
        validate(body)?;
        let mut edits = text_edits(paired, self.texts);
        edits.extend(value_edits(paired, self.values));
        let list = EditList::new(edits, body.len()).map_err(|_| Unreadable::Overlap)?;
        Ok(Bytes::from(list.apply(body).to_vec()))
    }
}
