//! The profile that owns each object at a provider: a file, a response, a batch and others exist for one key only.
//!
//! Memory is in front of the ledger, so that a new process finds the owners too. A record contains a hash of the id, and
//! the name of the profile.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::{Instant, sleep_until};

use super::daily_writes::DailyWrites;
use crate::{
    auth::Caller,
    clock,
    digest::keyed_digest_of,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    ledger::{
        CommitStep, Ledger, Moment, Record, RecordKey, RecordKind, RecordName, RecordOwners, Unread, WriteBehind,
        read_by,
    },
    recall::callers::Callers,
    telemetry::Telemetry,
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
pub struct ObjectOwners(Arc<ObjectOwnersState>);

#[derive(Debug)]
struct ObjectOwnersState {
    ledger: Arc<dyn Ledger>,
    write_behind: WriteBehind,
    callers: Callers,
    telemetry: Telemetry,
    /// The owner of each object. `None` if the ledger has no record of it.
    rows: DigestCache<RecordName, Option<OwnerRow>>,
    /// The records of each caller that were written since a day ago.
    writes: DailyWrites,
    /// Unknown objects that were waited for a moment ago.
    awaited: DigestCache<RecordName, ()>,
    /// The callers with objects.
    holders: RecordOwners,
}

/// The owner of one object.
#[derive(Clone, Debug)]
struct OwnerRow {
    profile: Arc<str>,
    /// The version of the record. 0 if there is none.
    version: u64,
    expires_at: Moment,
}

impl OwnerRow {
    fn new(profile: &str, version: u64, now: Moment) -> Self {
        Self {
            profile: profile.into(),
            version,
            expires_at: now.saturating_add(RECORD_TTL),
        }
    }

    /// Returns `true` if the row names this profile, and needs no renewal yet.
    fn is_current(&self, profile: &str, now: Moment) -> bool {
        let renewed = now.saturating_add(RECORD_TTL).saturating_sub(RENEWAL);
        *self.profile == *profile && self.expires_at > renewed
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
    /// Creates the store over `ledger`. Writes go to `write_behind`.
    pub fn new(ledger: Arc<dyn Ledger>, write_behind: WriteBehind, callers: Callers, telemetry: Telemetry) -> Self {
        let changes = ledger.changes();
        Self(Arc::new(ObjectOwnersState {
            ledger,
            write_behind,
            callers,
            telemetry,
            rows: DigestCache::new(OBJECTS_MAX, Lifetime::SinceUse(IDLE_MAX)),
            writes: DailyWrites::new(),
            awaited: DigestCache::new(OBJECTS_MAX, Lifetime::SinceWrite(AWAITED_TIME)),
            holders: RecordOwners::new(&[RecordKind::ObjectOwner], changes),
        }))
    }

    /// Follows which callers have objects. Until they are read every caller may have some.
    pub async fn follow_holders(self) {
        let (holders, ledger) = (self.0.holders.clone(), Arc::downgrade(&self.0.ledger));
        // The handle is dropped first: this task must not keep the store alive.
        drop(self);
        holders.follow(ledger).await;
    }

    /// Returns `true` if the caller may have objects: on a shared ledger, always. Does not wait.
    pub fn may_have(&self, caller: Caller) -> bool {
        // Another process may have noted the first object a moment ago.
        !self.0.ledger.is_exclusive() || self.0.holders.may_have(RecordKind::ObjectOwner, caller.principal())
    }

    /// Returns `true` if the owner of an object is in memory.
    pub fn has_owner(&self, name: RecordName) -> bool {
        self.0.rows.contains_key(&name)
    }

    /// Stores that a profile owns an object: it has created or used it. Does not wait.
    pub fn note_owner(&self, caller: Caller, name: RecordName, profile: &str) {
        if profile.len() > PROFILE_BYTES_MAX {
            return;
        }
        let now = clock::unix_time();
        let mut steps = Vec::new();
        self.0.rows.change(&name, |known| {
            let known = known.flatten();
            if known.as_ref().is_some_and(|row| row.is_current(profile, now)) {
                return EntryChange::Keep;
            }
            let version = known.map_or(0, |row| row.version);
            let is_written = self.may_write(caller);
            let row = OwnerRow::new(profile, version.saturating_add(u64::from(is_written)), now);
            if is_written {
                let key = RecordKey::new(RecordKind::ObjectOwner, caller.principal(), name);
                steps = write_steps(key, version, encode_owner(profile), row.expires_at);
            }
            EntryChange::Put(Some(row))
        });
        self.0.holders.note(RecordKind::ObjectOwner, caller.principal());
        self.0.write_behind.queue_writes(steps);
    }

    /// Returns the owners of these objects, in their order. `None` for an object whose owner is not known in time.
    ///
    /// Waits only for objects that memory does not know, and on a shared ledger looks twice, 50 ms apart.
    pub async fn find_owners(&self, caller: Caller, names: &[RecordName], deadline: Instant) -> Vec<Option<Arc<str>>> {
        if caller.is_authenticated() && self.may_have(caller) {
            self.load_unknown(caller, names, deadline).await;
            let mut unknown = self.unknown_names(names);
            unknown.retain(|name| !self.0.awaited.contains_key(name));
            // Only verified callers have records.
            if !self.0.ledger.is_exclusive() && !unknown.is_empty() && self.0.callers.is_verified_in_memory(caller) {
                for name in unknown {
                    self.0.awaited.insert(&name, ());
                }
                sleep_until(deadline.min(clock::now() + REREAD_PAUSE)).await;
                self.load_unknown(caller, names, deadline).await;
            }
        }
        let owner = |name: &RecordName| Some(self.0.rows.get(name)??.profile);
        names.iter().map(owner).collect()
    }

    /// Returns the objects that memory does not know.
    fn unknown_names(&self, names: &[RecordName]) -> Vec<RecordName> {
        let is_unknown = |name: &RecordName| self.0.rows.get(name).is_none();
        names.iter().copied().filter(is_unknown).collect()
    }

    /// Reads the objects that memory does not know.
    async fn load_unknown(&self, caller: Caller, names: &[RecordName], deadline: Instant) {
        let unknown = self.unknown_names(names);
        if unknown.is_empty() {
            return;
        }
        match self.read_records(caller, &unknown, deadline).await {
            Ok(records) => self.adopt_records(&unknown, records),
            Err(Unread) => self.0.telemetry.record_ledger_timeout("read"),
        }
    }

    /// Reads the records of a verified caller. Returns none for another one.
    async fn read_records(
        &self,
        caller: Caller,
        names: &[RecordName],
        deadline: Instant,
    ) -> Result<Vec<Option<Record>>, Unread> {
        // Only verified callers have records in the ledger.
        if !self.0.callers.verify(caller, deadline).await? {
            return Ok(Vec::new());
        }
        let key = |name: &RecordName| RecordKey::new(RecordKind::ObjectOwner, caller.principal(), *name);
        read_by(&*self.0.ledger, names.iter().map(key).collect(), deadline).await
    }

    /// Caches records, and that there is none unless another process may write it.
    fn adopt_records(&self, names: &[RecordName], records: Vec<Option<Record>>) {
        for (name, record) in names.iter().zip(records) {
            let row = record.as_ref().and_then(decode_row);
            if row.is_none() && !self.0.ledger.is_exclusive() {
                continue;
            }
            // An answer may have named the object since the read began.
            self.0.rows.insert_new(name, row);
        }
    }

    /// Returns `true` if a record may be written for the caller, and counts it.
    fn may_write(&self, caller: Caller) -> bool {
        if !caller.is_authenticated() || !self.0.callers.is_verified_in_memory(caller) {
            return false;
        }
        self.0.writes.count_one(caller)
    }
}

/// Returns the steps that write a record over the one with this version. 0 if there is none.
fn write_steps(key: RecordKey, version: u64, value: Bytes, expires_at: Moment) -> Vec<CommitStep> {
    // The record may be missing all the same: its write was lost, or it has expired.
    let insert = CommitStep::insert_record(key, value.clone(), expires_at);
    if version == 0 {
        return vec![insert];
    }
    let replace = CommitStep::Replace {
        key,
        version,
        value,
        expires_at,
    };
    vec![replace, insert]
}

fn encode_owner(profile: &str) -> Bytes {
    let mut bytes = BytesMut::with_capacity(profile.len().saturating_add(1));
    bytes.put_u8(VERSION);
    bytes.put_slice(profile.as_bytes());
    bytes.freeze()
}

/// Decodes a record. `None` if this version does not know the encoding.
fn decode_row(record: &Record) -> Option<OwnerRow> {
    let (VERSION, profile) = record.value.split_first().map(|(version, rest)| (*version, rest))? else {
        return None;
    };
    Some(OwnerRow {
        profile: std::str::from_utf8(profile).ok()?.into(),
        version: record.version,
        expires_at: record.expires_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_renews_a_record_once_a_day() {
        let began = Duration::from_secs(1_000_000);
        let row = OwnerRow::new("a", 1, began);
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
