//! Facts that a provider has taught about one caller, as records of the ledger.
//!
//! Other processes apply them too, and so does a later one. The records contain hashes, and the ids of remote calls. A fact
//! that is missing costs one more send.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Instant;

use super::AnswerStoreState;
use crate::{
    auth::Caller,
    clock,
    digest::digest_of,
    ledger::{CommitStep, ROWS_MAX, RecordKey, RecordKind, RecordName, Unread},
    repair::{LearnedRules, Placeholder},
};

/// The first byte of every record.
const VERSION: u8 = 1;
/// The most facts that are read for one caller: the latest.
const FACTS_MAX: usize = ROWS_MAX;

/// A fact that a provider has taught about one caller. Its name says what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderFact {
    /// Rules of an upstream for a model.
    Rules(LearnedRules),
    /// The placeholder to which thinking is bound, although the result of its call is in the body.
    BoundPlaceholder(Placeholder),
    /// Some placeholder of this caller replaces a result that the client has added in place since.
    HasOverrides,
    /// The bound thinking of a conversation may be dropped.
    DroppableThinking,
    /// The ids of the calls that a response left open: a request that continues from it answers them first.
    DueCalls(Vec<String>),
    /// An answered remote call, with the name of the response that left it open, if that is known.
    AnsweredCall(Option<RecordName>),
    /// A kind of value that a provider wants back.
    WantedContinuity,
    /// A response that a provider has lost.
    DeadResponse,
    /// The caller continues from responses by their ids.
    ContinuesById,
}

/// A fact with its name.
pub type NamedFact = (RecordName, ProviderFact);

/// The hash of the server that has taught a fact. The facts of another server of the same name do not hold.
pub type ServerHash = [u8; 32];

/// The server of a fact that holds for every one.
pub(super) const ANY_SERVER: ServerHash = [0; 32];

impl ProviderFact {
    /// Returns the number of its kind in records.
    const fn number(&self) -> u8 {
        match self {
            Self::Rules(_) => 1,
            Self::BoundPlaceholder(_) => 2,
            Self::HasOverrides => 3,
            Self::DroppableThinking => 4,
            Self::DueCalls(_) => 5,
            Self::AnsweredCall(_) => 6,
            Self::WantedContinuity => 7,
            Self::DeadResponse => 8,
            Self::ContinuesById => 9,
        }
    }

    /// Returns the bytes of a record. `None` if an id is longer than 255 bytes.
    fn encode(&self, server: ServerHash, name: RecordName) -> Option<Bytes> {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&[VERSION, self.number()]);
        bytes.put_slice(&server);
        bytes.put_slice(&name);
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
            Self::AnsweredCall(None)
            | Self::HasOverrides
            | Self::DroppableThinking
            | Self::WantedContinuity
            | Self::DeadResponse
            | Self::ContinuesById => {}
        }
        Some(bytes.freeze())
    }

    /// Decodes a record. `None` if this version does not know the encoding, which costs one more send.
    fn decode(bytes: &[u8]) -> Option<(ServerHash, NamedFact)> {
        let (&[version, number], rest) = bytes.split_first_chunk()?;
        let (server, rest) = rest.split_first_chunk()?;
        let (name, content) = rest.split_first_chunk()?;
        let fact = match (version, number) {
            (VERSION, 1) => Self::Rules(LearnedRules::from_bytes(content.try_into().ok()?)?),
            (VERSION, 2) => Self::BoundPlaceholder(Placeholder::from_number(*content.first()?)?),
            (VERSION, 3) => Self::HasOverrides,
            (VERSION, 4) => Self::DroppableThinking,
            (VERSION, 5) => Self::DueCalls(decode_ids(content)?),
            (VERSION, 6) if content.is_empty() => Self::AnsweredCall(None),
            (VERSION, 6) => Self::AnsweredCall(Some(content.try_into().ok()?)),
            (VERSION, 7) => Self::WantedContinuity,
            (VERSION, 8) => Self::DeadResponse,
            (VERSION, 9) => Self::ContinuesById,
            _ => return None,
        };
        Some((*server, (*name, fact)))
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

/// Stores facts that a server has taught about a caller, in the background. Unverified callers are never stored.
pub(super) fn store_facts(store: &AnswerStoreState, caller: Caller, server: ServerHash, facts: &[NamedFact]) {
    if facts.is_empty() || !store.callers.is_verified_in_memory(caller) {
        return;
    }
    let expires_at = store.expires_at();
    let insert = |(name, fact): &NamedFact| {
        let value = fact.encode(server, *name)?;
        // Named by its content: a record never changes, and of two facts with one name the later counts.
        let key = RecordKey::new(RecordKind::ProviderFact, caller.principal(), digest_of([&value[..]]));
        Some(CommitStep::insert_record(key, value, expires_at))
    };
    store.fact_owners.note(RecordKind::ProviderFact, caller.principal());
    store
        .write_behind
        .queue_writes(facts.iter().filter_map(insert).collect());
}

/// Reads the latest facts that these servers have taught about a caller, the oldest first.
///
/// Returns none for a caller that is not verified.
pub(super) async fn read_facts(
    store: &AnswerStoreState,
    caller: Caller,
    servers: &[ServerHash],
    deadline: Instant,
) -> Result<Vec<NamedFact>, Unread> {
    let read = async {
        // Only verified callers have records.
        if !store.callers.verify(caller, deadline).await? {
            return Ok(Vec::new());
        }
        let principal = *caller.principal().as_bytes();
        let list = store
            .ledger
            .list_records(RecordKind::ProviderFact, principal, FACTS_MAX, clock::unix_time());
        let records = tokio::time::timeout_at(deadline, list).await;
        let records = records.map_err(|_| Unread)?.map_err(|_| Unread)?;
        let holds = |server: &ServerHash| *server == ANY_SERVER || servers.contains(server);
        let facts = records.iter().filter_map(|record| ProviderFact::decode(&record.value));
        Ok(facts
            .filter(|(server, _)| holds(server))
            .map(|(_, fact)| fact)
            .collect())
    };
    store.count_unread(read.await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let rules = LearnedRules {
            user_first: true,
            ..LearnedRules::NONE
        };
        let ids = vec![String::new(), "call_1".to_owned(), "i".repeat(255)];
        for fact in [
            ProviderFact::Rules(rules),
            ProviderFact::BoundPlaceholder(Placeholder::OutcomeUnknown),
            ProviderFact::HasOverrides,
            ProviderFact::DroppableThinking,
            ProviderFact::DueCalls(ids),
            ProviderFact::AnsweredCall(None),
            ProviderFact::AnsweredCall(Some([7; 32])),
            ProviderFact::WantedContinuity,
            ProviderFact::DeadResponse,
            ProviderFact::ContinuesById,
        ] {
            let bytes = fact.encode([2; 32], [1; 32]).unwrap();
            assert_eq!(ProviderFact::decode(&bytes), Some(([2; 32], ([1; 32], fact))));
        }
        let too_long = ProviderFact::DueCalls(vec!["i".repeat(256)]);
        assert_eq!(too_long.encode(ANY_SERVER, [1; 32]), None);
        // A later version, a kind of a later version, and damage.
        for bytes in [&b""[..], &[VERSION], &[2; 80], &[VERSION; 40], &[VERSION, 1]] {
            assert_eq!(ProviderFact::decode(bytes), None);
        }
    }
}
