//! Facts that were learned about one caller, as records of the ledger. Other processes apply them too, and later ones.
//!
//! The records contain hashes, rules, numbers of placeholders, and the ids of remote calls. A fact that is missing costs one
//! more send.

use std::{collections::BTreeSet, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Instant;

use super::RecallStore;
use crate::{
    auth::Caller,
    digest_cache::Lifetime,
    ledger::{LedgerError, ROWS_MAX, Record, RecordKind, RecordOwners, RecordState, Unread},
    mend::Mend,
    repair::{LearnedRules, Placeholder},
    table::{
        DailyWrites, KnownPrincipals, MemoryLimit, RowsChange, StoredRow, Table, TableParts, TablePolicy,
        VerifiedCallers, WritePolicy,
    },
};

/// The first byte of every record.
const VERSION: u8 = 1;
/// The most facts that are read for one caller: the latest.
const FACTS_MAX: usize = ROWS_MAX;
/// The longest record, in bytes: a caller's facts are read together.
const RECORD_BYTES_MAX: usize = 2_048;
/// The lifetime of a rule since it was last learned. A process that uses it knows it for longer.
const RULE_TTL: Duration = Duration::from_secs(24 * 60 * 60);
// The numbers of the kinds of facts in records. A number is never used for another kind.
const RULES: u8 = 1;
const BOUND_PLACEHOLDER: u8 = 2;
const HAS_OVERRIDES: u8 = 3;
const DROPPABLE_THINKING: u8 = 4;
const DUE_CALLS: u8 = 5;
const ANSWERED_CALL: u8 = 6;
const WANTED_CONTINUITY: u8 = 7;
const DEAD_RESPONSE: u8 = 8;
const CONTINUES_BY_ID: u8 = 9;
const RULES_RETRACTED: u8 = 10;
const TAUGHT: u8 = 11;
const REFUSED_BLOCK: u8 = 12;

/// A hash that says what a fact is about, without revealing it. It contains the caller, and mostly the server.
pub type FactKey = [u8; 32];

/// A fact about one caller. An accepted resend has proven it, apart from the last kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnedFact {
    /// Rules of a server for a model.
    Rules(LearnedRules),
    /// The rules of a server for a model that were learned so far no longer hold.
    RulesRetracted,
    /// The placeholder to which thinking is bound, although the result of its call is in the body.
    BoundPlaceholder(Placeholder),
    /// Some placeholder of this caller replaces a result that the client has added in place since.
    HasOverrides,
    /// The bound thinking of a conversation may be dropped.
    DroppableThinking,
    /// The ids of the calls that a response left open: a request that continues from it answers them first.
    DueCalls(Vec<String>),
    /// An answered remote call, with the key of the response that left it open, if that is known.
    AnsweredCall(Option<FactKey>),
    /// A kind of value that a provider wants back.
    WantedContinuity,
    /// A response that a provider has lost.
    DeadResponse,
    /// The caller continues from responses by their ids.
    ContinuesById,
    /// Mends of every body for a model, beside those that were taught before. An empty list takes all back.
    Taught(Vec<Mend>),
    /// A block that the server refuses, and that is mended in every body.
    RefusedBlock,
}

/// A fact with its key.
pub type KeyedFact = (FactKey, LearnedFact);

impl LearnedFact {
    /// Returns the number of its kind in records.
    const fn number(&self) -> u8 {
        match self {
            Self::Rules(_) => RULES,
            Self::BoundPlaceholder(_) => BOUND_PLACEHOLDER,
            Self::HasOverrides => HAS_OVERRIDES,
            Self::DroppableThinking => DROPPABLE_THINKING,
            Self::DueCalls(_) => DUE_CALLS,
            Self::AnsweredCall(_) => ANSWERED_CALL,
            Self::WantedContinuity => WANTED_CONTINUITY,
            Self::DeadResponse => DEAD_RESPONSE,
            Self::ContinuesById => CONTINUES_BY_ID,
            Self::RulesRetracted => RULES_RETRACTED,
            Self::Taught(_) => TAUGHT,
            Self::RefusedBlock => REFUSED_BLOCK,
        }
    }

    /// Returns the lifetime of a record that is shorter than `ledger.ttl`. `None` for all others.
    const fn lifetime(&self) -> Option<Duration> {
        match self {
            // A server that was updated may refuse what its former version has demanded.
            Self::Rules(_) | Self::WantedContinuity => Some(RULE_TTL),
            Self::Taught(mends) if !mends.is_empty() => Some(RULE_TTL),
            // Must outlive everything that it takes back.
            Self::RulesRetracted | Self::Taught(_) => Some(RULE_TTL.saturating_mul(2)),
            _ => None,
        }
    }

    /// Returns the bytes of a record. `None` if an id is longer than 255 bytes, or if the ids are too long together.
    fn encode(&self, key: FactKey) -> Option<Bytes> {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&[VERSION, self.number()]);
        bytes.put_slice(&key);
        match self {
            Self::Rules(rules) => bytes.put_slice(&rules.to_bytes()),
            Self::BoundPlaceholder(placeholder) => bytes.put_u8(placeholder.number()),
            Self::DueCalls(ids) => {
                for id in ids {
                    bytes.put_u8(u8::try_from(id.len()).ok()?);
                    bytes.put_slice(id.as_bytes());
                }
            }
            Self::AnsweredCall(Some(origin)) => bytes.put_slice(origin),
            Self::Taught(mends) => bytes.put_slice(&Mend::write_list(mends)),
            Self::AnsweredCall(None)
            | Self::HasOverrides
            | Self::DroppableThinking
            | Self::WantedContinuity
            | Self::DeadResponse
            | Self::ContinuesById
            | Self::RefusedBlock
            | Self::RulesRetracted => {}
        }
        (bytes.len() <= RECORD_BYTES_MAX).then(|| bytes.freeze())
    }

    /// Decodes a record. `None` if this version does not know the encoding, which costs one more send.
    fn decode(bytes: &[u8]) -> Option<KeyedFact> {
        let (&[version, number], rest) = bytes.split_first_chunk()?;
        let (key, content) = rest.split_first_chunk()?;
        let fact = match (version, number) {
            (VERSION, RULES) => Self::Rules(LearnedRules::from_bytes(content.try_into().ok()?)?),
            (VERSION, BOUND_PLACEHOLDER) => Self::BoundPlaceholder(Placeholder::from_number(*content.first()?)?),
            (VERSION, HAS_OVERRIDES) => Self::HasOverrides,
            (VERSION, DROPPABLE_THINKING) => Self::DroppableThinking,
            (VERSION, DUE_CALLS) => Self::DueCalls(decode_ids(content)?),
            (VERSION, ANSWERED_CALL) if content.is_empty() => Self::AnsweredCall(None),
            (VERSION, ANSWERED_CALL) => Self::AnsweredCall(Some(content.try_into().ok()?)),
            (VERSION, WANTED_CONTINUITY) => Self::WantedContinuity,
            (VERSION, DEAD_RESPONSE) => Self::DeadResponse,
            (VERSION, CONTINUES_BY_ID) => Self::ContinuesById,
            (VERSION, RULES_RETRACTED) => Self::RulesRetracted,
            (VERSION, TAUGHT) => Self::Taught(Mend::read_list(content)?),
            (VERSION, REFUSED_BLOCK) => Self::RefusedBlock,
            _ => return None,
        };
        Some((*key, fact))
    }
}

fn decode_ids(mut content: &[u8]) -> Option<Vec<String>> {
    let mut ids = Vec::new();
    while let Some((&length, rest)) = content.split_first() {
        let (id, rest) = rest.split_at_checked(usize::from(length))?;
        ids.push(std::str::from_utf8(id).ok()?.to_owned());
        content = rest;
    }
    Some(ids)
}

/// A fact with its key, as a record.
#[derive(Clone, Debug)]
pub(super) struct FactRow(KeyedFact);

impl StoredRow for FactRow {
    fn encode(&self) -> Option<Bytes> {
        let (key, fact) = &self.0;
        fact.encode(*key)
    }

    fn decode(record: &Record) -> Option<Self> {
        LearnedFact::decode(&record.value).map(Self)
    }

    fn lifetime(&self) -> Option<Duration> {
        self.0.1.lifetime()
    }
}

/// Creates the table of facts. Memory has them in the proxy's own maps, which a reload may replace.
pub(super) fn fact_table(
    parts: &TableParts,
    callers: &VerifiedCallers,
    owners: RecordOwners,
    (record_ttl, daily): (Duration, DailyWrites),
) -> Table<FactRow> {
    let policy = TablePolicy {
        kind: RecordKind::LearnedFact,
        writes: WritePolicy::Behind,
        memory: MemoryLimit::Rows(0),
        lifetime: Lifetime::Unlimited,
        record_ttl,
        principals: KnownPrincipals::Announced(owners),
        caches_absence: false,
        needs_lasting_ledger: true,
        restores_lost: false,
        daily: Some(daily),
        // The reader decides when it reads again.
    };
    Table::new(parts, callers, policy)
}

impl RecallStore {
    /// Stores learned facts in the background, if a record of the caller may be written.
    pub fn store_facts(&self, caller: Caller, facts: &[KeyedFact]) {
        if !facts.is_empty() {
            let rows = facts.iter().cloned().map(FactRow);
            self.0.facts.append(caller.principal(), rows);
        }
    }

    /// Returns the state of a caller's learned facts in the ledger. Does not wait.
    pub fn fact_state(&self, caller: Caller) -> RecordState {
        self.0.facts.state_of(caller.principal())
    }

    /// Returns `true` if the ledger may have learned facts of any caller. Does not wait.
    pub fn may_have_facts(&self) -> bool {
        self.0.facts.may_have_any()
    }

    /// Forgets the mends that servers have taught and the blocks that they refuse, of all callers. Returns the number of facts.
    ///
    /// In memory at once, even if the ledger fails. In the ledger a record follows that takes the mends back, so that other
    /// processes learn of it like of any fact.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the ledger fails: the call may be repeated.
    pub async fn forget_taught(&self) -> Result<usize, LedgerError> {
        let state = &self.0;
        let mut gone = state.taught.clear();
        // What is queued would be stored afterwards.
        state.writer.flush().await;
        let change = |rows: &[FactRow]| {
            let change = forgetting(rows);
            let blocks = change.removed.iter().filter_map(|at| rows.get(*at));
            gone.extend(blocks.chain(&change.appended).map(|FactRow((key, _))| *key));
            change
        };
        state.facts.change_everyones(FACTS_MAX, change).await?;
        // A request that ran meanwhile may have read some.
        state.taught.clear();
        Ok(gone.len())
    }

    /// Reads the latest 1,024 learned facts of a caller, in the order of their inserts. For one that is not verified there
    /// are none.
    pub async fn read_facts(&self, caller: Caller, deadline: Instant) -> Result<Vec<KeyedFact>, Unread> {
        let rows = self
            .0
            .facts
            .list_latest(caller.principal(), FACTS_MAX, deadline)
            .await?;
        Ok(rows.into_iter().map(|FactRow(fact)| fact).collect())
    }
}

/// Returns the change of a caller's facts after which servers have taught nothing.
fn forgetting(rows: &[FactRow]) -> RowsChange<FactRow> {
    let (mut removed, mut taught) = (Vec::new(), BTreeSet::new());
    for (at, FactRow((key, fact))) in rows.iter().enumerate() {
        match fact {
            LearnedFact::RefusedBlock => removed.push(at),
            LearnedFact::Taught(mends) if mends.is_empty() => drop(taught.remove(key)),
            LearnedFact::Taught(_) => drop(taught.insert(*key)),
            _ => {}
        }
    }
    // The mends themselves stay before it: a process that has just taught them looks for them, and would keep them.
    let take_back = |key| FactRow((key, LearnedFact::Taught(Vec::new())));
    RowsChange {
        removed,
        appended: taught.into_iter().map(take_back).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MendKind;

    #[test]
    fn a_fact_is_read_as_it_was_written() {
        let rules = LearnedRules {
            user_first: true,
            ..LearnedRules::NONE
        };
        let ids = vec![String::new(), "call_1".to_owned(), "i".repeat(255)];
        for fact in [
            LearnedFact::Rules(rules),
            LearnedFact::BoundPlaceholder(Placeholder::OutcomeUnknown),
            LearnedFact::HasOverrides,
            LearnedFact::DroppableThinking,
            LearnedFact::DueCalls(ids),
            LearnedFact::AnsweredCall(None),
            LearnedFact::AnsweredCall(Some([7; 32])),
            LearnedFact::WantedContinuity,
            LearnedFact::DeadResponse,
            LearnedFact::ContinuesById,
            LearnedFact::RulesRetracted,
            LearnedFact::Taught(vec![Mend::new(MendKind::DropMember, "status").unwrap()]),
            LearnedFact::Taught(Vec::new()),
            LearnedFact::RefusedBlock,
        ] {
            let bytes = fact.encode([1; 32]).unwrap();
            assert_eq!(LearnedFact::decode(&bytes), Some(([1; 32], fact)));
        }
        for too_long in [vec!["i".repeat(256)], vec!["i".repeat(255); 8]] {
            assert_eq!(LearnedFact::DueCalls(too_long).encode([1; 32]), None);
        }
        // A later version, a kind of a later version, and damage.
        for bytes in [&b""[..], &[VERSION], &[2; 80], &[VERSION; 40], &[VERSION, 1]] {
            assert_eq!(LearnedFact::decode(bytes), None);
        }
    }
}
