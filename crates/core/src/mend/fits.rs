//! The mends that would change a body, for reports about it. Nothing is changed.

use bytes::Bytes;

use super::{apply::is_guarded, body::MendBody, kinds::find_candidates, mend_list::Mend};
use crate::wire::{Unreadable, Wire, json};

/// A mend that would change a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MendFit {
    /// Its index in the list.
    pub mend: usize,
    /// The index of the first message that it would change.
    pub message: usize,
}

/// Finds those of these mends that would change a body. Fails if the body is no JSON.
pub fn find_fits(body: &Bytes, wire: Wire, mends: &[Mend]) -> Result<Vec<MendFit>, Unreadable> {
    json::validate(body)?;
    let Some(read) = MendBody::read(body, wire)? else {
        return Ok(Vec::new());
    };
    let fits = mends.iter().enumerate().filter_map(|(at, mend)| {
        let found = find_candidates(&read, mend);
        let free = found.iter().filter(|candidate| !is_guarded(&read, candidate, mend));
        let message = free.map(|candidate| candidate.message).min()?;
        Some(MendFit { mend: at, message })
    });
    Ok(fits.collect())
}
