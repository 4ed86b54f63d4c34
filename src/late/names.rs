//! By what records of calls and results are found. Pure.

use crate::{
    auth::{Owner, Principal},
    digest::digest_of,
    ledger::{Index, Key, Kind, Name},
    repair::{id_letters, is_strong},
};

/// Pieces of evidence that are kept of one call: more would let one service fill the ledger.
const EVIDENCE_MAX: u8 = 4;

/// By what a service's id finds calls, whosever they are.
pub(super) fn index(call_id: &[u8]) -> Index {
    let hash = named(b"index", &[&id_letters(call_id)]);
    let (index, _) = hash.split_at(16);
    index.try_into().unwrap_or_default()
}

/// The name of a call whose id names one call among all of its principal.
pub(super) fn of_strong(call_id: &[u8]) -> Name {
    named(b"strong", &[&id_letters(call_id)])
}

/// The name of a call: of an id that comes again only with its lane, tool and input.
pub(super) fn of_call(call_id: &[u8], tool: &[u8], lane: Option<&[u8; 32]>, input: Option<&[u8; 32]>) -> Name {
    if is_strong(call_id, tool) {
        return of_strong(call_id);
    }
    let bytes = |hash: Option<&[u8; 32]>| hash.map_or_else(Vec::new, |hash| hash.to_vec());
    named(b"weak", &[&id_letters(call_id), tool, &bytes(lane), &bytes(input)])
}

/// The name of a parked result within its service.
pub(super) fn of_parked(call_id: &[u8], owner: Option<Owner>) -> Name {
    let owner = owner.map_or_else(Vec::new, |owner| owner.as_bytes().to_vec());
    named(b"parked", &[call_id, &owner])
}

/// The name of evidence about a call.
pub(super) fn of_evidence(about: &[u8], digest: &[u8; 32]) -> Name {
    let slot = digest.first().map_or(0, |byte| byte % EVIDENCE_MAX);
    named(b"evidence", &[about, &[slot]])
}

/// The key of a record.
pub(super) const fn key(kind: Kind, principal: Principal, name: Name) -> Key {
    Key {
        kind,
        principal: *principal.as_bytes(),
        name,
    }
}

fn named(what: &[u8], parts: &[&[u8]]) -> Name {
    digest_of([what].into_iter().chain(parts.iter().copied()))
}
