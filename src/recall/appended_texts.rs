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

use super::{AnswerStoreState, FIRST_VERSION};
use crate::{
    auth::Caller,
    clock,
    ledger::{CommitOutcome, CommitStep, ROWS_MAX, RecordKey, RecordKind, RecordName},
    repair::Anchor,
};

/// The limit of the texts in memory, in bytes. The texts of an evicted caller are read again.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a text counts in addition to its length.
const TEXT_OVERHEAD_BYTES: usize = 192;
/// The cooldown of the ledger after an error or a timeout of a read.
const LEDGER_COOLDOWN: Duration = Duration::from_secs(5);
/// The first byte of every record.
const VERSION: u8 = 1;
/// Bytes of a call's name.
const NAME_BYTES: usize = 32;

/// The most calls whose results one message takes. A record stores the number in one byte.
pub const APPENDED_CALLS_MAX: usize = u8::MAX as usize;

/// A text at the end of a message, and the calls whose results it contains.
#[derive(Clone, PartialEq, Eq)]
pub struct AppendedText {
    /// The text.
    pub text: String,
    /// The calls.
    pub calls: Vec<RecordName>,
}

impl fmt::Debug for AppendedText {
    // The text is content, which must never be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Appended({} bytes, {} calls)", self.text.len(), self.calls.len())
    }
}

impl AppendedText {
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
        let (names, text) = rest.split_at_checked(usize::from(*count).checked_mul(NAME_BYTES)?)?;
        let (names, _) = names.as_chunks::<NAME_BYTES>();
        Some(Self {
            text: String::from_utf8(text.to_vec()).ok()?,
            calls: names.to_vec(),
        })
    }
}

/// The texts of one caller, by the anchor of their message.
pub type TextsByAnchor = Arc<HashMap<Anchor, Arc<AppendedText>>>;

/// The texts of those callers whose texts were read.
#[derive(Debug)]
pub(super) struct AppendedTexts {
    by_caller: Cache<Caller, TextsByAnchor>,
    /// The end of the ledger's cooldown. Healthy requests must not wait for a failed ledger one after the other.
    cooldown_until: Mutex<Option<Instant>>,
}

impl AppendedTexts {
    /// Makes an empty cache whose entries expire after `lasts`, as the records do.
    pub(super) fn new(lasts: Duration) -> Self {
        let weigh = |_: &Caller, own: &TextsByAnchor| {
            let bytes = own
                .values()
                .map(|appended| appended.text.len().saturating_add(TEXT_OVERHEAD_BYTES));
            u32::try_from(bytes.fold(TEXT_OVERHEAD_BYTES, usize::saturating_add)).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(MEMORY_BYTES).weigher(weigh);
        Self {
            by_caller: cache.time_to_live(lasts).build(),
            cooldown_until: Mutex::new(None),
        }
    }

    fn cooldown_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.cooldown_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the texts of a caller. `None` if they were not read yet.
    fn cached_texts(&self, caller: Caller) -> Option<TextsByAnchor> {
        self.by_caller.get(&caller)
    }

    /// Caches the texts that were read for a caller. If another request was first, its entry stays.
    fn cache_texts(&self, caller: Caller, read: impl IntoIterator<Item = (Anchor, AppendedText)>) -> TextsByAnchor {
        let read = read.into_iter().map(|(anchor, appended)| (anchor, Arc::new(appended)));
        let known = self.by_caller.entry(caller).or_insert_with(|| Arc::new(read.collect()));
        known.into_value()
    }

    /// Adds a text to the cached texts of a caller.
    fn add_text(&self, caller: Caller, anchor: Anchor, appended: &Arc<AppendedText>) {
        self.change_texts(caller, |own| drop(own.insert(anchor, Arc::clone(appended))));
    }

    fn change_texts(&self, caller: Caller, change: impl FnOnce(&mut HashMap<Anchor, Arc<AppendedText>>)) {
        drop(self.by_caller.entry(caller).and_compute_with(|known| match known {
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
pub(super) async fn read_texts(store: &AnswerStoreState, caller: Caller, deadline: Instant) -> Option<TextsByAnchor> {
    if let Some(known) = store.appended_texts.cached_texts(caller) {
        return Some(known);
    }
    if store
        .appended_texts
        .cooldown_until()
        .is_some_and(|until| clock::now() < until)
    {
        return None;
    }
    let list = store.ledger.list_records(
        RecordKind::AppendedText,
        *caller.principal().as_bytes(),
        ROWS_MAX,
        clock::unix_time(),
    );
    let Ok(Ok(records)) = timeout_at(deadline, list).await else {
        // Most requests need no late text, so a ledger that fails must not delay each of them.
        *store.appended_texts.cooldown_until() = Some(clock::now() + LEDGER_COOLDOWN);
        store.telemetry.record_ledger_timeout("read");
        return None;
    };
    let read = records
        .iter()
        .filter_map(|record| Some((record.key.name, AppendedText::decode(&record.value)?)));
    Some(store.appended_texts.cache_texts(caller, read))
}

/// Stores a text before it is sent at the end of a message. See [`AnswerStore::append_text`](super::AnswerStore::append_text).
pub(super) async fn store_text(
    store: &AnswerStoreState,
    caller: Caller,
    anchor: Anchor,
    appended: AppendedText,
    deadline: Instant,
) -> Option<(Arc<AppendedText>, bool)> {
    if !store.callers.is_verified_in_memory(caller) {
        return None;
    }
    // The text of an earlier request stays. Nothing is written then that would have to be rolled back.
    if let Some(stored) = read_texts(store, caller, deadline).await?.get(&anchor) {
        return Some((Arc::clone(stored), false));
    }
    let expires_at = clock::unix_time() + store.settings.record_ttl;
    let insert = CommitStep::insert_record(anchor_key(caller, anchor), appended.encode()?, expires_at);
    let (stored, is_new) = match timeout_at(deadline, store.ledger.commit(vec![insert], clock::unix_time())).await {
        Ok(Ok(CommitOutcome::Done)) => (appended, true),
        Ok(Ok(CommitOutcome::Conflict(records))) => {
            let record = records.into_iter().flatten().next()?;
            (AppendedText::decode(&record.value)?, false)
        }
        Ok(Err(_)) | Err(_) => {
            store.telemetry.record_ledger_timeout("write");
            // The commit may still succeed, and must not leave a record of a text that was never sent.
            remove_text(store, caller, anchor);
            return None;
        }
    };
    let stored = Arc::new(stored);
    store.appended_texts.add_text(caller, anchor, &stored);
    Some((stored, is_new))
}

/// Removes a text that no provider has accepted.
pub(super) fn remove_text(store: &AnswerStoreState, caller: Caller, anchor: Anchor) {
    store
        .appended_texts
        .change_texts(caller, |own| drop(own.remove(&anchor)));
    // These records are never replaced, so they all have the first version.
    store.write_behind.queue_write(CommitStep::Remove {
        key: anchor_key(caller, anchor),
        version: FIRST_VERSION,
    });
}

fn anchor_key(caller: Caller, anchor: Anchor) -> RecordKey {
    RecordKey::new(RecordKind::AppendedText, caller.principal(), anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_comes_back_as_it_was() {
        for calls in [vec![], vec![[7; 32]], vec![[7; 32], [8; 32]]] {
            let appended = AppendedText {
                text: "[antiphon: é]".to_owned(),
                calls,
            };
            let bytes = appended.encode().unwrap();
            assert_eq!(AppendedText::decode(&bytes), Some(appended));
            for cut in 0..bytes.len() {
                drop(AppendedText::decode(&bytes[..cut]));
            }
        }
        assert_eq!(AppendedText::decode(&[1, 2, 0]), None);
        assert_eq!(AppendedText::decode(&[2, 0]), None);
    }
}
