//! Notes about what servers may refuse in a body, by the rows that know it.

use bytes::Bytes;

use super::{built_in::table, reader::RefusalReader};
use crate::{
    mend::{Mend, find_fits},
    wire::{RefusalRow, RefusalTable, Unreadable, Wire},
};

/// A row whose mend would change a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyNote<'r> {
    /// The row.
    pub row: &'r RefusalRow,
    /// The index of the first message that would change.
    pub message: usize,
}

/// Returns the noted rows whose mend would change a body: of several with the same mend the first, the operator's before
/// the built-in ones. A mend whose argument only a refusal tells is never noted.
pub fn body_notes<'r>(reader: &'r RefusalReader, body: &Bytes, wire: Wire) -> Result<Vec<BodyNote<'r>>, Unreadable> {
    let own = reader.own().into_iter().flat_map(RefusalTable::rows);
    let (mut rows, mut mends): (Vec<&RefusalRow>, Vec<Mend>) = (Vec::new(), Vec::new());
    for row in own.chain(table().rows()).filter(|row| row.is_noted) {
        let known = row.mend.as_ref().filter(|mend| mend.variable().is_none());
        let mend = known.and_then(|mend| Mend::new(mend.kind, mend.word().unwrap_or_default()));
        if let Some(mend) = mend.filter(|mend| !mends.contains(mend)) {
            rows.push(row);
            mends.push(mend);
        }
    }
    let fits = find_fits(body, wire, &mends)?.into_iter();
    let notes = fits.filter_map(|fit| {
        let row = rows.get(fit.mend)?;
        Some(BodyNote {
            row,
            message: fit.message,
        })
    });
    Ok(notes.collect())
}
