//! Late-result texts that were appended to messages, by the anchor of the message.
//!
//! A text is appended again wherever its message occurs, so that the history stays the one that the provider has seen.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{BufMut, Bytes};
use moka::{ops::compute::Op, sync::Cache};
use tokio::time::{Instant, timeout_at};

use super::{FIRST, Remembered};
use crate::{
    auth::Caller,
    clock,
    ledger::{Key, Kind, Name, Outcome, ROWS_MAX, Step},
    repair::Anchor,
};

/// The limit of the texts in memory, in bytes. The texts of an evicted caller are read again.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a text counts in addition to its length.
const ANCHOR_BYTES: usize = 192;
/// The cooldown of the ledger after an error or a timeout of a read.
const SILENT: Duration = Duration::from_secs(5);
/// The first byte of every record.
const VERSION: u8 = 1;
/// Bytes of a call's name.
const NAME: usize = 32;

/// The most calls whose results one message takes. A record stores the number in one byte.
pub const APPENDED_CALLS_MAX: usize = u8::MAX as usize;

/// A text at the end of a message, and the calls whose results it contains.
#[derive(Clone, PartialEq, Eq)]
pub struct Appended {
    /// The text.
    pub text: String,
    /// The calls.
    pub calls: Vec<Name>,
}

impl fmt::Debug for Appended {
    // The text is content, which must never be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Appended({} bytes, {} calls)", self.text.len(), self.calls.len())
    }
}

impl Appended {
    /// Encodes the record. `None` if there are more than [`APPENDED_CALLS_MAX`] calls.
    pub(super) fn encode(&self) -> Option<Bytes> {
        let count = u8::try_from(self.calls.len()).ok()?;
        let mut bytes = vec![VERSION, count];
        for call in &self.calls {
            bytes.put_slice(call);
        }
        bytes.put_slice(self.text.as_bytes());
        Some(bytes.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, count, rest @ ..] = bytes else {
            return None;
        };
        let (names, text) = rest.split_at_checked(usize::from(*count).checked_mul(NAME)?)?;
        let (names, _) = names.as_chunks::<NAME>();
        Some(Self {
            text: String::from_utf8(text.to_vec()).ok()?,
            calls: names.to_vec(),
        })
    }
}

/// The texts of one caller, by the anchor of their message.
pub type OfCaller = Arc<HashMap<Anchor, Arc<Appended>>>;

/// The texts of those callers whose texts were read.
#[derive(Debug)]
pub(super) struct Anchors {
    own: Cache<Caller, OfCaller>,
    /// The end of the ledger's cooldown. Healthy requests must not wait for a failed ledger one after the other.
    silent: Mutex<Option<Instant>>,
}

impl Anchors {
    /// Makes an empty cache whose entries expire after `lasts`, as the records do.
    pub(super) fn new(lasts: Duration) -> Self {
        let weigh = |_: &Caller, own: &OfCaller| {
            let bytes = own
                .values()
                .map(|appended| appended.text.len().saturating_add(ANCHOR_BYTES));
            u32::try_from(bytes.fold(ANCHOR_BYTES, usize::saturating_add)).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(MEMORY_BYTES).weigher(weigh);
        Self {
            own: cache.time_to_live(lasts).build(),
            silent: Mutex::new(None),
        }
    }

    fn silent(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the texts of a caller. `None` if they were not read yet.
    fn of(&self, caller: Caller) -> Option<OfCaller> {
        self.own.get(&caller)
    }

    /// Caches the texts that were read for a caller. If another request was first, its entry stays.
    fn load(&self, caller: Caller, read: impl IntoIterator<Item = (Anchor, Appended)>) -> OfCaller {
        let read = read.into_iter().map(|(anchor, appended)| (anchor, Arc::new(appended)));
        let known = self.own.entry(caller).or_insert_with(|| Arc::new(read.collect()));
        known.into_value()
    }

    /// Adds a text to the cached texts of a caller.
    fn put(&self, caller: Caller, anchor: Anchor, appended: &Arc<Appended>) {
        self.change(caller, |own| drop(own.insert(anchor, Arc::clone(appended))));
    }

    fn change(&self, caller: Caller, change: impl FnOnce(&mut HashMap<Anchor, Arc<Appended>>)) {
        drop(self.own.entry(caller).and_compute_with(|known| match known {
            Some(known) => {
                let mut own = known.into_value();
                change(Arc::make_mut(&mut own));
                Op::Put(own)
            }
            // The next request reads all texts of a caller without an entry. A partial entry would hide the others.
            None => Op::Nop,
        }));
    }
}

/// Returns the texts at the end of this caller's messages. `None` if they are unknown, since the ledger did not answer.
pub(super) async fn appended(store: &Remembered, caller: Caller, deadline: Instant) -> Option<OfCaller> {
    if let Some(known) = store.anchors.of(caller) {
        return Some(known);
    }
    if store.anchors.silent().is_some_and(|until| clock::now() < until) {
        return None;
    }
    let list = store.ledger.list(
        Kind::Anchor,
        *caller.principal().as_bytes(),
        ROWS_MAX,
        clock::since_1970(),
    );
    let Ok(Ok(records)) = timeout_at(deadline, list).await else {
        // Most requests need no late text, so a ledger that fails must not delay each of them.
        *store.anchors.silent() = Some(clock::now() + SILENT);
        store.telemetry.record_ledger_timeout("read");
        return None;
    };
    let read = records
        .iter()
        .filter_map(|record| Some((record.key.name, Appended::decode(&record.value)?)));
    Some(store.anchors.load(caller, read))
}

/// Stores a text before it is sent at the end of a message. See [`Recall::append`](super::Recall::append).
pub(super) async fn append(
    store: &Remembered,
    caller: Caller,
    anchor: Anchor,
    appended: Appended,
    deadline: Instant,
) -> Option<(Arc<Appended>, bool)> {
    if !store.callers.is_known(caller) {
        return None;
    }
    // The text of an earlier request stays. Nothing is written then that would have to be rolled back.
    if let Some(stored) = self::appended(store, caller, deadline).await?.get(&anchor) {
        return Some((Arc::clone(stored), false));
    }
    let insert = Step::Insert {
        key: anchor_key(caller, anchor),
        index: None,
        value: appended.encode()?,
        expires_at: clock::since_1970() + store.settings.lasting,
    };
    let (stored, is_new) = match timeout_at(deadline, store.ledger.commit(vec![insert], clock::since_1970())).await {
        Ok(Ok(Outcome::Done)) => (appended, true),
        Ok(Ok(Outcome::Conflict(records))) => {
            let record = records.into_iter().flatten().next()?;
            (Appended::decode(&record.value)?, false)
        }
        Ok(Err(_)) | Err(_) => {
            store.telemetry.record_ledger_timeout("write");
            // The commit may still succeed, and must not leave a record of a text that was never sent.
            unappend(store, caller, anchor);
            return None;
        }
    };
    let stored = Arc::new(stored);
    store.anchors.put(caller, anchor, &stored);
    Some((stored, is_new))
}

/// Removes a text that no provider has accepted.
pub(super) fn unappend(store: &Remembered, caller: Caller, anchor: Anchor) {
    store.anchors.change(caller, |own| drop(own.remove(&anchor)));
    // These records are never replaced, so they all have the first version.
    store.later.write(vec![Step::Remove {
        key: anchor_key(caller, anchor),
        version: FIRST,
    }]);
}

fn anchor_key(caller: Caller, anchor: Anchor) -> Key {
    Key {
        kind: Kind::Anchor,
        principal: *caller.principal().as_bytes(),
        name: anchor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_comes_back_as_it_was() {
        for calls in [vec![], vec![[7; 32]], vec![[7; 32], [8; 32]]] {
            let appended = Appended {
                text: "[antiphon: é]".to_owned(),
                calls,
            };
            let bytes = appended.encode().unwrap();
            assert_eq!(Appended::decode(&bytes), Some(appended));
            for cut in 0..bytes.len() {
                drop(Appended::decode(&bytes[..cut]));
            }
        }
        assert_eq!(Appended::decode(&[1, 2, 0]), None);
        assert_eq!(Appended::decode(&[2, 0]), None);
    }
}
