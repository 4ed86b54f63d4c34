//! Names and indexes of the records of calls and results. Pure.
//!
//! The domain strings are hashed into names in ledger files: changing one makes existing records unreachable.

use super::{CallQuery, ParkedResult};
use crate::{
    digest::digest_of,
    ledger::{Index, RecordKey, RecordName},
    repair::{has_makers_form, id_letters, is_strong},
};

/// Refused results that are stored for one call id. A limit, so that one service cannot fill the ledger.
const REFUSED_RESULTS_MAX: u8 = 4;

/// Returns the index that finds the calls of an id, whichever principal owns them.
pub(in crate::late) fn call_index(call_id: &[u8]) -> Index {
    let hash = hash_name(b"index", &[&id_letters(call_id)]);
    let (index, _) = hash.split_at(16);
    index.try_into().unwrap_or_default()
}

/// Returns the name of a call with a strong id: one that names one call among all of its principal.
pub(in crate::late) fn strong_call_name(call_id: &[u8]) -> RecordName {
    hash_name(b"strong", &[&id_letters(call_id)])
}

/// Returns the name of a call. A reusable id is hashed together with the lane, the tool and the input.
pub(in crate::late) fn call_name(
    call_id: &[u8],
    tool: &[u8],
    lane: Option<&[u8; 32]>,
    input: Option<&[u8; 32]>,
) -> RecordName {
    if is_strong(call_id, tool) {
        return strong_call_name(call_id);
    }
    hash_name(
        b"weak",
        &[
            &id_letters(call_id),
            tool,
            &optional_bytes(lane),
            &optional_bytes(input),
        ],
    )
}

/// Returns the name of a second, different call of a strong id.
pub(in crate::late) fn twin_call_name(
    call_id: &[u8],
    tool: &[u8],
    input: Option<&[u8; 32]>,
    session: Option<&[u8; 32]>,
) -> RecordName {
    let (input, session) = (optional_bytes(input), optional_bytes(session));
    hash_name(b"twin", &[&id_letters(call_id), tool, &input, &session])
}

/// Returns the name of a call of a strong id whose letters and digits are those of another call: `X_1` beside `X1`.
pub(in crate::late) fn spelled_call_name(
    call_id: &[u8],
    tool: &[u8],
    input: Option<&[u8; 32]>,
    session: Option<&[u8; 32]>,
) -> RecordName {
    let (input, session) = (optional_bytes(input), optional_bytes(session));
    hash_name(b"spelled", &[call_id, tool, &input, &session])
}

/// Returns the names under which a call of a body may be recorded, the most exact one first.
pub(in crate::late) fn candidate_names(call: &CallQuery, lane: Option<&[u8; 32]>) -> Vec<RecordName> {
    let CallQuery {
        id,
        tool,
        input_hash,
        session,
    } = call;
    let name = call_name(id, tool, lane, Some(input_hash));
    if !may_have_twin(id, tool) {
        return vec![name];
    }
    let twin = |session| twin_call_name(id, tool, Some(input_hash), session);
    let own = session.as_ref().map(|session| twin(Some(session)));
    let spelled = spelled_call_name(id, tool, Some(input_hash), session.as_ref());
    [spelled].into_iter().chain(own).chain([name, twin(None)]).collect()
}

/// Returns `true` if another call may have the same id although the id is strong: no known maker has made it.
pub(in crate::late) fn may_have_twin(call_id: &[u8], tool: &[u8]) -> bool {
    is_strong(call_id, tool) && !has_makers_form(call_id)
}

fn optional_bytes(hash: Option<&[u8; 32]>) -> Vec<u8> {
    hash.map_or_else(Vec::new, |hash| hash.to_vec())
}

/// Returns the hash of an observation of a call: equal ones need to be recorded once.
pub(in crate::late) fn observation(
    key: &RecordKey,
    (call_id, tool): (&[u8], &[u8]),
    input: Option<&[u8; 32]>,
    session: Option<&[u8; 32]>,
) -> [u8; 32] {
    let (input, session) = (optional_bytes(input), optional_bytes(session));
    hash_name(
        b"observed",
        &[&key.principal, &key.name, call_id, tool, &input, &session],
    )
}

/// Returns the name of a parked result within its service.
pub(in crate::late) fn parked_name(parked: &ParkedResult) -> RecordName {
    let owner = parked.owner.map_or_else(Vec::new, |owner| owner.as_bytes().to_vec());
    if parked.session.is_none() && parked.described.is_none() {
        return hash_name(b"parked", &[&parked.call_id, &owner]);
    }
    let (tool, input) = parked
        .described
        .as_ref()
        .map(|(tool, input)| (&tool[..], *input))
        .unzip();
    let parts = [
        &parked.call_id[..],
        &owner,
        parked.session.as_deref().unwrap_or_default(),
        tool.unwrap_or_default(),
        &optional_bytes(input.as_ref()),
    ];
    hash_name(b"parked as described", &parts)
}

/// Returns the name of a refused result for a call id.
pub(in crate::late) fn refused_result_name(about: &[u8], digest: &[u8; 32]) -> RecordName {
    // A slot number instead of the digest: it bounds how many names one call id can have.
    let slot = digest.first().map_or(0, |byte| byte % REFUSED_RESULTS_MAX);
    hash_name(b"evidence", &[about, &[slot]])
}

/// Hashes a domain string and the parts of a name.
fn hash_name(what: &[u8], parts: &[&[u8]]) -> RecordName {
    digest_of([what].into_iter().chain(parts.iter().copied()))
}
