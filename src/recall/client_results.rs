//! Results that clients brought in requests: a history that has lost one gets it back.
//!
//! Memory contains them up to a limit. The ledger contains them only if the operator allows conversation content there.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::RecallStore;
use crate::{
    auth::Caller,
    digest::{Digest, HashTexts as _},
    digest_cache::Lifetime,
    ledger::{Record, RecordKind, RecordName, Unread},
    repair::{ClientResult, RealResult, id_letters, names_call},
    session::LaneId,
    table::{
        KnownPrincipals, MemoryLimit, RowChange, RowWrite, StoredRow, Table, TableParts, TablePolicy, VerifiedCallers,
        WritePolicy,
    },
    wire::Format,
};

/// The limit of the results in memory, in bytes.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;

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

/// A result, as the block of its format.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ResultBlock(Arc<str>);

impl StoredRow for ResultBlock {
    fn encode(&self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.0.as_bytes()))
    }

    fn decode(record: &Record) -> Option<Self> {
        Some(Self(std::str::from_utf8(&record.value).ok()?.into()))
    }

    fn byte_len(&self) -> usize {
        self.0.len()
    }
}

/// Creates the table of results.
pub(super) fn client_result_table(
    parts: &TableParts,
    callers: &VerifiedCallers,
    record_ttl: Duration,
) -> Table<ResultBlock> {
    let policy = TablePolicy {
        kind: RecordKind::ClientResult,
        writes: WritePolicy::Behind,
        memory: MemoryLimit::Bytes(MEMORY_BYTES),
        lifetime: Lifetime::Unlimited,
        record_ttl,
        principals: KnownPrincipals::Any,
        caches_absence: false,
        needs_lasting_ledger: false,
        restores_lost: false,
        daily: None,
    };
    Table::new(parts, callers, policy)
}

impl RecallStore {
    /// Stores results that a caller brought in a request. Unauthenticated callers are never stored.
    ///
    /// If a call has several results over time, memory contains the last and the ledger the first.
    pub fn store_client_results(&self, scope: RecallScope, brought: Vec<ClientResult>) {
        if !scope.caller.is_authenticated() {
            return;
        }
        let are_stored = self.0.settings.stores_client_results;
        let changes = brought.into_iter().filter_map(|result| {
            let ClientResult {
                id, tool, occurrence, ..
            } = &result;
            let name = result_name(scope, id, tool, *occurrence, result.input.as_ref())?;
            let change = move |known: Option<&ResultBlock>| match known {
                // A retried request brings the same results again: only new ones are written.
                Some(known) if *known.0 == *result.block => RowChange::Keep,
                _ if are_stored => RowChange::Store(ResultBlock(result.block.into()), RowWrite::Insert),
                _ => RowChange::Remember(ResultBlock(result.block.into())),
            };
            Some((name, change))
        });
        self.0.client_results.change(scope.caller.principal(), changes);
    }

    /// Returns the results that the caller brought for these calls, in their order.
    pub async fn find_client_results(
        &self,
        scope: RecallScope,
        calls: &[ClientResultQuery],
        deadline: Instant,
    ) -> Result<Vec<Option<RealResult>>, Unread> {
        let (results, principal) = (&self.0.client_results, scope.caller.principal());
        let named: Vec<Option<RecordName>> = calls.iter().map(|call| call.record_name(scope)).collect();
        let names: Vec<RecordName> = named.iter().copied().flatten().collect();
        let found = if self.0.settings.stores_client_results {
            results.load(principal, &names, deadline).await?
        } else {
            names.iter().map(|name| results.get(principal, *name)).collect()
        };
        let mut found = found.into_iter();
        let blocks = named.iter().map(|name| name.and_then(|_| found.next().flatten()));
        let is_its = |(block, call): (Option<ResultBlock>, &ClientResultQuery)| {
            // Another call's id has the same letters and digits, so that both results have the same name.
            let block = block.filter(|block| !call.has_twin || names_call(&block.0, &call.id))?;
            Some(RealResult::Block(block.0.to_string()))
        };
        Ok(blocks.zip(calls).map(is_its).collect())
    }
}

impl ClientResultQuery {
    /// Returns the name of the call's result. `None` if nothing identifies the call.
    fn record_name(&self, scope: RecallScope) -> Option<RecordName> {
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
