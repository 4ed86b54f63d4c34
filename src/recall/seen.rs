//! Results that callers brought themselves: a history that has lost one gets it back. In memory, bounded; in the ledger only
//! where the operator wants contents of conversations there.

use std::sync::Arc;

use moka::sync::Cache;

use crate::{
    auth::Caller,
    digest::Digest as _,
    ledger::Name,
    repair::{ClientResult, id_letters},
    session::LaneId,
    wire::Format,
};

/// Bytes of results in memory.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that one takes beside its text.
const RESULT_BYTES: usize = 192;

/// Whose results, and in which format: nothing is found by another caller, or put into another format.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The caller.
    pub caller: Caller,
    /// The format.
    pub format: Format,
    /// The lane, where one is told.
    pub lane: Option<LaneId>,
}

/// A call whose result is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The id, or the tool where there is no id.
    pub id: Vec<u8>,
    /// The tool.
    pub tool: Vec<u8>,
    /// The hash of its canonical input.
    pub input: [u8; 32],
    /// Where its id may come again: what it asks for, and what stands in front of it.
    pub asked: Option<[u8; 32]>,
    /// How many calls of its id stand before it.
    pub occurrence: usize,
    /// Whether another id of the body has the same letters and digits: then only the very id tells the call.
    pub has_twin: bool,
}

/// The results.
#[derive(Debug)]
pub(super) struct Seen(Cache<Name, Arc<String>>);

impl Seen {
    pub(super) fn new() -> Self {
        let weigh =
            |_: &Name, block: &Arc<String>| u32::try_from(block.len().saturating_add(RESULT_BYTES)).unwrap_or(u32::MAX);
        Self(Cache::builder().max_capacity(MEMORY_BYTES).weigher(weigh).build())
    }

    /// Keeps a result; of one call the last that was brought. Gives it with its name, if it was not known.
    pub(super) fn keep(&self, scope: Scope, result: ClientResult) -> Option<(Name, Arc<String>)> {
        let name = name(
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
        self.0.insert(name, Arc::clone(&block));
        Some((name, block))
    }

    /// The result under a name.
    pub(super) fn find(&self, name: &Name) -> Option<String> {
        self.0.get(name).map(|block| String::clone(&block))
    }
}

impl Wanted {
    /// The name of its result.
    pub(super) fn name(&self, scope: Scope) -> Option<Name> {
        name(scope, &self.id, &self.tool, self.occurrence, self.asked.as_ref())
    }
}

/// Where an id may come again, its input and its lane must be the same, and a lane be told.
fn name(scope: Scope, id: &[u8], tool: &[u8], occurrence: usize, input: Option<&[u8; 32]>) -> Option<Name> {
    let Scope { caller, format, lane } = scope;
    let mut hash = blake3::Hasher::new_keyed(caller.principal().as_bytes());
    for part in [format.label().as_bytes(), &id_letters(id), tool] {
        hash.add(part);
    }
    hash.update(&(occurrence as u64).to_le_bytes());
    if let Some(input) = input {
        hash.update(input);
        hash.update(lane?.as_bytes());
    }
    Some(hash.finalize().into())
}
