//! Results that clients brought in requests: a history that has lost one gets it back.
//!
//! Memory contains them up to a limit. The ledger contains them only if the operator allows conversation content there.

use std::sync::Arc;

use crate::{
    auth::Caller,
    digest::{Digest, HashTexts as _},
    digest_cache::{DigestCache, Lifetime},
    ledger::RecordName,
    repair::{ClientResult, id_letters},
    session::LaneId,
    wire::Format,
};

/// The limit of the results in memory, in bytes.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a result counts in addition to its text.
const RESULT_BYTES: usize = 192;

/// The owner and the format of results. No other caller can find them, and no other format receives them.
#[derive(Clone, Copy, Debug)]
pub struct RecallScope {
    /// The caller.
    pub caller: Caller,
    /// The format.
    pub format: Format,
    /// The lane, or `None` if it is unknown or only guessed.
    pub lane: Option<LaneId>,
}

/// A call whose result is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientResultQuery {
    /// The id, or the name of the tool if the call has no id.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// A hash of the call's input and of the message before it. `None` unless the id may be used again.
    pub context_hash: Option<[u8; 32]>,
    /// The number of earlier calls with the same id.
    pub occurrence: usize,
    /// `true` if another id of the body has the same letters and digits. Only the exact id then identifies the call.
    pub has_twin: bool,
}

/// The results in memory.
#[derive(Debug)]
pub(super) struct ClientResultCache(DigestCache<RecordName, Arc<String>>);

impl ClientResultCache {
    pub(super) fn new() -> Self {
        let weigh = |block: &Arc<String>| block.len().saturating_add(RESULT_BYTES);
        Self(DigestCache::with_byte_limit(MEMORY_BYTES, Lifetime::Unlimited, weigh))
    }

    /// Stores a result in place of an earlier one of its call.
    ///
    /// Returns its name and text. `None` if the same result was stored already, or if nothing identifies the call.
    pub(super) fn store_result(&self, scope: RecallScope, result: ClientResult) -> Option<(RecordName, Arc<String>)> {
        let name = result_name(
            scope,
            &result.id,
            &result.tool,
            result.occurrence,
            result.input.as_ref(),
        )?;
        if self.0.get(&name).is_some_and(|known| *known == result.block) {
            return None;
        }
        let block = Arc::new(result.block);
        self.0.insert(&name, Arc::clone(&block));
        Some((name, block))
    }

    /// Returns the result with this name.
    pub(super) fn find_result(&self, name: &RecordName) -> Option<String> {
        self.0.get(name).map(|block| String::clone(&block))
    }
}

impl ClientResultQuery {
    /// Returns the name of the call's result. `None` if nothing identifies the call.
    pub(super) fn record_name(&self, scope: RecallScope) -> Option<RecordName> {
        result_name(scope, &self.id, &self.tool, self.occurrence, self.context_hash.as_ref())
    }
}

/// Returns the name of a result.
///
/// An id that may be used again has an `input` hash, and identifies a call only within one lane. Without a lane there
/// is no name.
fn result_name(
    scope: RecallScope,
    id: &[u8],
    tool: &[u8],
    occurrence: usize,
    input: Option<&[u8; 32]>,
) -> Option<RecordName> {
    let RecallScope { caller, format, lane } = scope;
    let mut hash = Digest::new_keyed(caller.principal_bytes());
    // Some clients strip all but letters and digits from ids.
    for part in [format.label().as_bytes(), &id_letters(id), tool] {
        hash.add_text(part);
    }
    // Calls of one id are told apart by their order.
    hash.update(&(occurrence as u64).to_le_bytes());
    if let Some(input) = input {
        hash.update(input);
        hash.update(lane?.as_bytes());
    }
    Some(hash.finish())
}
