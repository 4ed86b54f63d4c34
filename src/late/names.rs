//! Names and indexes of the records of calls and results. Pure.
//!
//! The domain strings are hashed into names in ledger files: changing one makes existing records unreachable.

use crate::{
    auth::{Owner, Principal},
    digest::digest_of,
    ledger::{Index, Key, Kind, Name},
    repair::{id_letters, is_strong},
};

/// Refused results that are stored for one call id. A limit, so that one service cannot fill the ledger.
const EVIDENCE_MAX: u8 = 4;

/// Returns the index that finds the calls of an id, whichever principal owns them.
pub(super) fn index(call_id: &[u8]) -> Index {
    let hash = named(b"index", &[&id_letters(call_id)]);
    let (index, _) = hash.split_at(16);
    index.try_into().unwrap_or_default()
}

/// Returns the name of a call with a strong id: one that names one call among all of its principal.
pub(super) fn of_strong(call_id: &[u8]) -> Name {
    named(b"strong", &[&id_letters(call_id)])
}

/// Returns the name of a call. A reusable id is hashed together with the lane, the tool and the input.
pub(super) fn of_call(call_id: &[u8], tool: &[u8], lane: Option<&[u8; 32]>, input: Option<&[u8; 32]>) -> Name {
    if is_strong(call_id, tool) {
        return of_strong(call_id);
    }
    let bytes = |hash: Option<&[u8; 32]>| hash.map_or_else(Vec::new, |hash| hash.to_vec());
    named(b"weak", &[&id_letters(call_id), tool, &bytes(lane), &bytes(input)])
}

/// Returns the name of a parked result within its service.
pub(super) fn of_parked(call_id: &[u8], owner: Option<Owner>) -> Name {
    let owner = owner.map_or_else(Vec::new, |owner| owner.as_bytes().to_vec());
    named(b"parked", &[call_id, &owner])
}

/// Returns the name of a refused result for a call id.
pub(super) fn of_evidence(about: &[u8], digest: &[u8; 32]) -> Name {
    // A slot number instead of the digest: it bounds how many names one call id can have.
    let slot = digest.first().map_or(0, |byte| byte % EVIDENCE_MAX);
    named(b"evidence", &[about, &[slot]])
}

/// Builds the key of a record.
pub(super) const fn key(kind: Kind, principal: Principal, name: Name) -> Key {
    Key {
        kind,
        principal: *principal.as_bytes(),
        name,
    }
}

/// Hashes a domain string and the parts of a name.
fn named(what: &[u8], parts: &[&[u8]]) -> Name {
    digest_of([what].into_iter().chain(parts.iter().copied()))
}
