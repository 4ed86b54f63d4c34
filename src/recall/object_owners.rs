//! The profile that owns each object at a provider: a file, a response, a batch and others exist for one key only.
//!
//! Memory is in front of the ledger, so that a new process finds the owners too. A record contains a hash of the id, and
//! the name of the profile.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::{Instant, sleep_until};

use crate::{
    auth::Caller,
    clock,
    digest::keyed_digest_of,
    digest_cache::{DigestCache, Lifetime},
    ledger::{Moment, Record, RecordKind, RecordName, RecordOwners},
    table::{
        DailyWrites, KnownPrincipals, MemoryLimit, RowChange, RowWrite, StoredRow, Table, TableParts, TablePolicy,
        VerifiedCallers, WritePolicy,
    },
};

/// The first byte of every record.
const VERSION: u8 = 1;
/// The most objects in memory, of 150 bytes and a little more each.
const OBJECTS_MAX: u64 = 100_000;
/// The time after which an unused object leaves the memory.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The lifetime of a record since the last use of its object: 30 days.
const RECORD_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The time after which a use renews the record.
const RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause before an unknown object is read again. Another process may be writing it, since its answer has named it.
const REREAD_PAUSE: Duration = Duration::from_millis(50);
/// The time for which an object that stayed unknown is not waited for again.
const AWAITED_TIME: Duration = Duration::from_secs(60);
/// The longest id of an object, in bytes.
const ID_BYTES_MAX: usize = 256;
/// The longest name of a profile in a record, in bytes.
const PROFILE_BYTES_MAX: usize = 256;

/// The owners of the objects of all callers. The handle is cheap to clone.
#[derive(Clone, Debug)]
pub struct ObjectOwners {
    owners: Table<OwnerRow>,
    callers: VerifiedCallers,
    is_exclusive: bool,
    /// Unknown objects that were waited for a moment ago.
    awaited: DigestCache<RecordName, ()>,
}

/// The owner of one object.
#[derive(Clone, Debug)]
struct OwnerRow {
    profile: Arc<str>,
    expires_at: Moment,
}

impl OwnerRow {
    fn new(profile: &str, now: Moment) -> Self {
        Self {
            profile: profile.into(),
            expires_at: now.saturating_add(RECORD_TTL),
        }
    }

    /// Returns `true` if the row names this profile, and needs no renewal yet.
    fn is_current(&self, profile: &str, now: Moment) -> bool {
        let renewed = now.saturating_add(RECORD_TTL).saturating_sub(RENEWAL);
        *self.profile == *profile && self.expires_at > renewed
    }
}

impl StoredRow for OwnerRow {
    fn encode(&self) -> Option<Bytes> {
        let mut bytes = BytesMut::with_capacity(self.profile.len().saturating_add(1));
        bytes.put_u8(VERSION);
        bytes.put_slice(self.profile.as_bytes());
        Some(bytes.freeze())
    }

    fn decode(record: &Record) -> Option<Self> {
        let (VERSION, profile) = record.value.split_first().map(|(version, rest)| (*version, rest))? else {
            return None;
        };
        Some(Self {
            profile: std::str::from_utf8(profile).ok()?.into(),
            expires_at: record.expires_at,
        })
    }
}

/// The caller and the upstream for which ids are valid.
#[derive(Clone, Copy, Debug)]
pub struct ObjectScope<'o> {
    /// The caller.
    pub caller: Caller,
    /// The name of the upstream.
    pub upstream: &'o str,
}

impl ObjectScope<'_> {
    /// Returns the name of an object. `None` if the id is empty or too long.
    pub fn object_name(self, id: &[u8]) -> Option<RecordName> {
        // Keyed with the principal: no caller can reach another one's objects.
        let name = || keyed_digest_of(self.caller.principal_bytes(), [b"object", self.upstream.as_bytes(), id]);
        (!id.is_empty() && id.len() <= ID_BYTES_MAX).then(name)
    }
}

impl ObjectOwners {
    /// Creates the store.
    pub fn new(parts: &TableParts, callers: &VerifiedCallers) -> Self {
        let holders = RecordOwners::new(&[RecordKind::ObjectOwner], parts.ledger().changes());
        let policy = TablePolicy {
            kind: RecordKind::ObjectOwner,
            writes: WritePolicy::Behind,
            memory: MemoryLimit::Rows(OBJECTS_MAX),
            lifetime: Lifetime::SinceUse(IDLE_MAX),
            record_ttl: RECORD_TTL,
            principals: KnownPrincipals::Unannounced(holders),
            caches_absence: true,
            needs_lasting_ledger: false,
            restores_lost: false,
            daily: Some(DailyWrites::new()),
        };
        Self {
            is_exclusive: parts.ledger().is_exclusive(),
            owners: Table::new(parts, callers, policy),
            callers: callers.clone(),
            awaited: DigestCache::new(OBJECTS_MAX, Lifetime::SinceWrite(AWAITED_TIME)),
        }
    }

    /// Follows which callers have objects. Until they are read every caller may have some.
    pub async fn follow_holders(self) {
        let owners = self.owners.clone();
        drop(self);
        owners.follow_principals().await;
    }

    /// Returns `true` if the caller may have objects: on a shared ledger, always. Does not wait.
    pub fn may_have(&self, caller: Caller) -> bool {
        self.owners.may_have(caller.principal())
    }

    /// Returns `true` if the owner of an object is in memory.
    pub fn has_owner(&self, caller: Caller, name: RecordName) -> bool {
        self.owners.get(caller.principal(), name).is_some()
    }

    /// Stores that a profile owns an object: it has created or used it. Does not wait.
    pub fn note_owner(&self, caller: Caller, name: RecordName, profile: &str) {
        if profile.len() > PROFILE_BYTES_MAX {
            return;
        }
        let now = clock::unix_time();
        let note = |known: Option<&OwnerRow>| {
            if known.is_some_and(|row| row.is_current(profile, now)) {
                return RowChange::Keep;
            }
            // Not over the record of another process that this one has not read: its owner was first.
            RowChange::Store(OwnerRow::new(profile, now), RowWrite::ReplaceKnown)
        };
        self.owners.change(caller.principal(), [(name, note)]);
    }

    /// Returns the owners of these objects, in their order. `None` for an object whose owner is not known in time.
    ///
    /// Waits only for objects that memory does not know, and on a shared ledger looks twice, 50 ms apart.
    pub async fn find_owners(&self, caller: Caller, names: &[RecordName], deadline: Instant) -> Vec<Option<Arc<str>>> {
        let principal = caller.principal();
        // A read that failed is counted. What is not known then has no owner.
        let load = || self.owners.load(principal, names, deadline);
        let mut found = load().await;
        let known = |name: &RecordName| self.owners.get(principal, *name);
        let mut unknown: Vec<RecordName> = names.iter().copied().filter(|name| known(name).is_none()).collect();
        unknown.retain(|name| !self.awaited.contains_key(name));
        // Only verified callers have records.
        if !self.is_exclusive && !unknown.is_empty() && self.callers.is_verified_in_memory(caller) {
            for name in unknown {
                self.awaited.insert(&name, ());
            }
            sleep_until(deadline.min(clock::now() + REREAD_PAUSE)).await;
            found = load().await;
        }
        let rows = found.unwrap_or_else(|_| names.iter().map(known).collect());
        rows.into_iter().map(|row| Some(row?.profile)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_renews_a_record_once_a_day() {
        let began = Duration::from_secs(1_000_000);
        let row = OwnerRow::new("a", began);
        let hours = |hours: u64| began + Duration::from_secs(hours * 60 * 60);
        for (profile, now, is_current) in [
            ("a", began, true),
            ("a", hours(23), true),
            ("a", hours(24), false),
            ("b", began, false),
        ] {
            assert_eq!(row.is_current(profile, now), is_current, "{profile} {now:?}");
        }
        assert_eq!(row.expires_at, hours(30 * 24));
    }
}
