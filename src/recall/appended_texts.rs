//! Late-result texts that were appended to messages, by the anchor of the message.
//!
//! A text is appended again wherever its message occurs, so that the history stays the one that the provider has seen.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use bytes::{BufMut, Bytes};
use tokio::time::{Instant, timeout_at};

use super::{RecallStore, RecallStoreState};
use crate::{
    auth::{Caller, Principal},
    clock,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    ledger::{
        self, ChangeStamp, CommitOutcome, CommitStep, FIRST_VERSION, Moment, ROWS_MAX, Record, RecordKey, RecordKind,
        RecordName, Unread,
    },
    repair::{Anchor, LateText},
};

/// The limit of the texts in memory, in bytes. The texts of an evicted caller are read again.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a text counts in addition to its length.
const TEXT_OVERHEAD_BYTES: usize = 192;
/// The cooldown of the ledger for a caller after an error or a timeout of a read.
const LEDGER_COOLDOWN: Duration = Duration::from_secs(5);
/// Callers in a cooldown. A forgotten one waits once more.
const COOLDOWNS_MAX: u64 = 10_000;
/// Texts of requests that wait for their provider. One that was forgotten stays, whatever becomes of its request.
const UNACCEPTED_MAX: u64 = 10_000;
/// Time for which such a text is known: longer than any exchange.
const UNACCEPTED_TTL: Duration = Duration::from_secs(2 * 60 * 60);
/// The first byte of a record without media: the rest is the text.
const VERSION: u8 = 1;
/// The first byte of a record with media: the text and each block begin with their length.
const WITH_MEDIA: u8 = 2;
/// Bytes of a call's name.
const NAME_BYTES: usize = 32;

/// The most calls whose results one message takes. A record stores the number in one byte.
pub const APPENDED_CALLS_MAX: usize = u8::MAX as usize;

/// A text at the end of a message, and the calls whose results it contains.
#[derive(Clone, PartialEq, Eq)]
pub struct AppendedText {
    /// The text, with its images and documents.
    pub late: LateText,
    /// The calls.
    pub calls: Vec<RecordName>,
}

impl fmt::Debug for AppendedText {
    // The text is content, which must never be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Appended({:?}, {} calls)", self.late, self.calls.len())
    }
}

impl AppendedText {
    /// Returns the length of the text and its media in bytes.
    fn byte_len(&self) -> usize {
        let media = self.late.media.iter().map(String::len);
        media.fold(self.late.text.len(), usize::saturating_add)
    }

    /// Encodes the record. `None` if there are more than [`APPENDED_CALLS_MAX`] calls.
    pub(super) fn encode(&self) -> Option<Bytes> {
        let count = u8::try_from(self.calls.len()).ok()?;
        let has_media = !self.late.media.is_empty();
        let mut bytes = vec![if has_media { WITH_MEDIA } else { VERSION }, count];
        for call in &self.calls {
            bytes.put_slice(call);
        }
        if has_media {
            let parts = [&self.late.text].into_iter().chain(&self.late.media);
            for part in parts {
                bytes.put_u64_le(part.len() as u64);
                bytes.put_slice(part.as_bytes());
            }
        } else {
            bytes.put_slice(self.late.text.as_bytes());
        }
        Some(bytes.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [version @ (VERSION | WITH_MEDIA), count, rest @ ..] = bytes else {
            return None;
        };
        let (names, mut rest) = rest.split_at_checked(usize::from(*count).checked_mul(NAME_BYTES)?)?;
        let (names, _) = names.as_chunks::<NAME_BYTES>();
        let mut parts = Vec::new();
        if *version == VERSION {
            parts.push(String::from_utf8(rest.to_vec()).ok()?);
        } else {
            while let Some((length, after)) = rest.split_first_chunk::<8>() {
                let (part, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
                parts.push(String::from_utf8(part.to_vec()).ok()?);
                rest = after;
            }
            if !rest.is_empty() {
                return None;
            }
        }
        let mut parts = parts.into_iter();
        Some(Self {
            late: LateText {
                text: parts.next()?,
                media: parts.collect(),
            },
            calls: names.to_vec(),
        })
    }
}

/// Texts by the anchor of their message.
type TextsByAnchor = HashMap<Anchor, Arc<AppendedText>>;

/// The texts of one caller, as far as they were read.
#[derive(Clone, Debug, Default)]
struct TextsOfCaller {
    by_anchor: TextsByAnchor,
    /// Those that no removal by this process concerns: a provider has accepted them, or another process has stored them.
    lasting: HashSet<Anchor>,
    /// `true` if these are all: no other anchor of this caller has a text.
    is_complete: bool,
    /// The state of the ledger that was read.
    read_at: Option<ChangeStamp>,
    /// The number of changes by this process since then.
    own_changes: u64,
}

/// The texts of those callers whose texts were read.
#[derive(Debug)]
pub(super) struct AppendedTexts {
    by_caller: DigestCache<Caller, Arc<TextsOfCaller>>,
    /// The end of each caller's cooldown after a read that failed. Requests that need not wait must not wait for a
    /// failed ledger one after the other.
    cooldowns: DigestCache<Caller, Instant>,
    /// The texts of requests that no provider has accepted yet.
    unaccepted: DigestCache<(Principal, Anchor), OwnText>,
}

/// A text that a request of this process has stored.
#[derive(Clone, Copy, Debug)]
struct OwnText {
    state: RequestState,
    /// The time of its record: one with another time is of another process.
    made_at: Moment,
}

/// The state of the request that has stored a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// The request waits for its provider.
    Sent,
    /// The request has failed, and its text was removed.
    Failed,
}

impl AppendedTexts {
    /// Makes an empty cache whose entries expire after `lasts`, as the records do.
    pub(super) fn new(lasts: Duration) -> Self {
        let weigh = |own: &Arc<TextsOfCaller>| {
            let bytes = own
                .by_anchor
                .values()
                .map(|appended| appended.byte_len().saturating_add(TEXT_OVERHEAD_BYTES));
            bytes.fold(TEXT_OVERHEAD_BYTES, usize::saturating_add)
        };
        Self {
            by_caller: DigestCache::with_byte_limit(MEMORY_BYTES, Lifetime::SinceWrite(lasts), weigh),
            cooldowns: DigestCache::new(COOLDOWNS_MAX, Lifetime::Unlimited),
            unaccepted: DigestCache::new(UNACCEPTED_MAX, Lifetime::SinceWrite(UNACCEPTED_TTL)),
        }
    }

    /// Caches the texts that were read for a caller. `before` is the entry when the read began: one that this process has
    /// made or changed since then adds its texts.
    fn cache_texts(&self, caller: Caller, mut read: TextsOfCaller, before: Option<u64>) -> Arc<TextsOfCaller> {
        let mut cached = None;
        self.by_caller.change(&caller, |known| {
            if let Some(known) = known.filter(|known| Some(known.own_changes) != before) {
                read.by_anchor.extend(known.by_anchor.clone());
                read.lasting.extend(known.lasting.iter().copied());
                read.own_changes = known.own_changes;
            }
            let read = Arc::new(read);
            cached = Some(Arc::clone(&read));
            EntryChange::Put(read)
        });
        cached.unwrap_or_default()
    }

    fn change_texts(&self, caller: Caller, change: impl FnOnce(&mut TextsOfCaller)) {
        self.by_caller.change(&caller, |known| match known {
            Some(mut own) => {
                let changed = Arc::make_mut(&mut own);
                changed.own_changes = changed.own_changes.wrapping_add(1);
                change(changed);
                EntryChange::Put(own)
            }
            // The next request reads the texts of a caller without an entry. A partial entry would hide the others.
            None => EntryChange::Keep,
        });
    }
}

impl RecallStore {
    /// Returns `true` if a text may have been appended to one of this caller's messages. Does not wait.
    pub fn may_have_texts(&self, caller: Caller) -> bool {
        match current_texts(&self.0, caller) {
            Some(own) => !own.is_complete || !own.by_anchor.is_empty(),
            None => self.0.owners.may_have(RecordKind::AppendedText, caller.principal()),
        }
    }

    /// Returns the texts that were appended to messages with these anchors.
    ///
    /// For 5 seconds after a failed read, only a patient request asks the ledger.
    pub async fn texts_at(
        &self,
        caller: Caller,
        anchors: &[Anchor],
        is_patient: bool,
        deadline: Instant,
    ) -> Result<HashMap<Anchor, Arc<AppendedText>>, Unread> {
        if anchors.is_empty() || !self.may_have_texts(caller) {
            return Ok(TextsByAnchor::new());
        }
        let texts = &self.0.appended_texts;
        let known = current_texts(&self.0, caller);
        let is_cooling = || texts.cooldowns.get(&caller).is_some_and(|until| clock::now() < until);
        if !is_patient && known.as_ref().is_none_or(|own| !own.is_complete) && is_cooling() {
            return Err(Unread);
        }
        let read = async {
            let own = match known {
                Some(own) => own,
                None => list_texts(&self.0, caller, deadline).await?,
            };
            let find = |anchor: &Anchor| Some((*anchor, Arc::clone(own.by_anchor.get(anchor)?)));
            let mut found: TextsByAnchor = anchors.iter().filter_map(find).collect();
            if !own.is_complete {
                find_older_texts(&self.0, caller, anchors, &mut found, deadline).await?;
            }
            // Their removal may still be on its way to the ledger.
            let is_removed = |anchor: &Anchor| {
                let stored = texts.unaccepted.get(&(caller.principal(), *anchor));
                stored.is_some_and(|stored| stored.state == RequestState::Failed) && !own.lasting.contains(anchor)
            };
            found.retain(|anchor, _| !is_removed(anchor));
            Ok(found)
        };
        let read = self.0.count_unread(read.await);
        if read.is_err() {
            texts.cooldowns.insert(&caller, clock::now() + LEDGER_COOLDOWN);
        }
        read
    }
}

/// Returns the texts of a caller in memory, unless another process may have changed them since they were read.
fn current_texts(store: &RecallStoreState, caller: Caller) -> Option<Arc<TextsOfCaller>> {
    let stamp = store.changes.stamp(caller.principal())?;
    let known = store.appended_texts.by_caller.get(&caller)?;
    (known.read_at == Some(stamp)).then_some(known)
}

impl RecallStore {
    /// Reads the latest texts of a caller into memory, unless they are there. Those of a shared ledger are read each time:
    /// another process may have sent one before this one was told of it.
    pub async fn load_texts(&self, caller: Caller, deadline: Instant) -> Result<(), Unread> {
        if !self.0.ledger.is_exclusive() || self.may_have_texts(caller) && current_texts(&self.0, caller).is_none() {
            self.0.count_unread(list_texts(&self.0, caller, deadline).await)?;
        }
        Ok(())
    }
}

/// Reads the latest texts of a caller, which are all that most callers have.
async fn list_texts(store: &RecallStoreState, caller: Caller, deadline: Instant) -> Result<Arc<TextsOfCaller>, Unread> {
    let principal = *caller.principal().as_bytes();
    // Before the read, so that a change during it is not taken for one that was read.
    let read_at = store.changes.stamp(caller.principal());
    let before = store.appended_texts.by_caller.get(&caller).map(|own| own.own_changes);
    let list = store
        .ledger
        .list_records(RecordKind::AppendedText, principal, ROWS_MAX, clock::unix_time());
    let listed = timeout_at(deadline, list).await;
    let records = listed.map_err(|_| Unread)?.map_err(|_| Unread)?;
    let read = TextsOfCaller {
        by_anchor: records.iter().filter_map(decode_text).collect(),
        lasting: lasting_anchors(store, caller, &records),
        is_complete: records.len() < ROWS_MAX,
        read_at,
        own_changes: before.unwrap_or_default(),
    };
    Ok(store.appended_texts.cache_texts(caller, read, before))
}

/// Adds the texts at those anchors that have none yet, by their keys.
async fn find_older_texts(
    store: &RecallStoreState,
    caller: Caller,
    anchors: &[Anchor],
    found: &mut TextsByAnchor,
    deadline: Instant,
) -> Result<(), Unread> {
    let missing = anchors.iter().filter(|anchor| !found.contains_key(*anchor));
    let keys = missing.map(|anchor| anchor_key(caller, *anchor)).collect();
    let records = ledger::read_by(&*store.ledger, keys, deadline).await?;
    let read: Vec<_> = records.iter().flatten().filter_map(decode_text).collect();
    store.appended_texts.change_texts(caller, |own| {
        own.by_anchor.extend(read.iter().cloned());
        own.lasting
            .extend(lasting_anchors(store, caller, records.iter().flatten()));
    });
    found.extend(read);
    Ok(())
}

/// Returns the anchors of those records that no removal by this process concerns.
fn lasting_anchors<'r>(
    store: &RecallStoreState,
    caller: Caller,
    records: impl IntoIterator<Item = &'r Record>,
) -> HashSet<Anchor> {
    let is_lasting = |record: &&Record| {
        let own = store
            .appended_texts
            .unaccepted
            .get(&(caller.principal(), record.key.name));
        record.version > FIRST_VERSION || own.is_some_and(|own| own.made_at != record.made_at)
    };
    let lasting = records.into_iter().filter(is_lasting);
    lasting.map(|record| record.key.name).collect()
}

fn decode_text(record: &Record) -> Option<(Anchor, Arc<AppendedText>)> {
    Some((record.key.name, Arc::new(AppendedText::decode(&record.value)?)))
}

impl RecallStore {
    /// Stores a text before it is sent at the end of a message.
    ///
    /// The `marks` of its results are stored in the same commit. Returns the text that belongs there, and `true` if it is
    /// this one. An earlier text stays. `None` if the text cannot be stored: it must not be sent then.
    pub async fn append_text(
        &self,
        caller: Caller,
        anchor: Anchor,
        appended: AppendedText,
        marks: Vec<CommitStep>,
        deadline: Instant,
    ) -> Option<(Arc<AppendedText>, bool)> {
        if !self.0.callers.is_verified_in_memory(caller) {
            return None;
        }
        // The text of an earlier request stays. Nothing is written then that would have to be rolled back.
        let known = self.texts_at(caller, &[anchor], true, deadline).await.ok()?;
        if let Some(stored) = known.get(&anchor) {
            return Some((Arc::clone(stored), false));
        }
        self.0.owners.note(RecordKind::AppendedText, caller.principal());
        let made_at = clock::unix_time();
        let expires_at = made_at + self.0.settings.record_ttl;
        let insert = CommitStep::insert_record(anchor_key(caller, anchor), appended.encode()?, expires_at);
        let steps = [insert].into_iter().chain(marks).collect();
        let (stored, is_new) = match timeout_at(deadline, self.0.ledger.commit(steps, made_at)).await {
            Ok(Ok(CommitOutcome::Done)) => (appended, true),
            Ok(Ok(CommitOutcome::Conflict(records))) => {
                let Some(record) = records.into_iter().next().flatten() else {
                    // One of the results has changed since it was read: the next request gets them.
                    self.0.telemetry.record_late_event("unread");
                    return None;
                };
                (AppendedText::decode(&record.value)?, false)
            }
            Ok(Err(_)) | Err(_) => {
                self.0.telemetry.record_ledger_timeout("write");
                // The commit may still succeed, and must not leave a record of a text that was never sent.
                note_own(&self.0, (caller, anchor), RequestState::Sent, made_at);
                self.remove_text(caller, anchor);
                return None;
            }
        };
        let stored = Arc::new(stored);
        let texts = &self.0.appended_texts;
        let add = |own: &mut TextsOfCaller| drop(own.by_anchor.insert(anchor, Arc::clone(&stored)));
        texts.change_texts(caller, add);
        if is_new {
            note_own(&self.0, (caller, anchor), RequestState::Sent, made_at);
        }
        Some((stored, is_new))
    }
}

fn note_own(store: &RecallStoreState, (caller, anchor): (Caller, Anchor), state: RequestState, made_at: Moment) {
    let own = OwnText { state, made_at };
    store
        .appended_texts
        .unaccepted
        .insert(&(caller.principal(), anchor), own);
}

impl RecallStore {
    /// Notes that a provider has accepted a text. Does not wait.
    pub fn accept_text(&self, caller: Caller, anchor: Anchor, appended: &Arc<AppendedText>) {
        let (texts, key) = (&self.0.appended_texts, anchor_key(caller, anchor));
        let stored = texts.unaccepted.remove(&(caller.principal(), anchor));
        // Another request stored the text, and has removed it when it failed.
        let was_removed = stored.is_some_and(|stored| stored.state == RequestState::Failed);
        let is_lasting = |own: Arc<TextsOfCaller>| own.lasting.contains(&anchor);
        let is_known = self.0.ledger.is_exclusive() || texts.by_caller.get(&caller).is_some_and(is_lasting);
        if is_known && !was_removed {
            return;
        }
        // Other processes do not know of the acceptance, and may remove the text when a request of theirs fails.
        if let Some(value) = appended.encode() {
            let expires_at = clock::unix_time() + self.0.settings.record_ttl;
            // With a new version the record outlasts the removal of the first one.
            let replace = CommitStep::Replace {
                key,
                version: FIRST_VERSION,
                value: value.clone(),
                expires_at,
            };
            let replace = (!was_removed).then_some(replace);
            // After the removal, which may still be on its way.
            let insert = CommitStep::insert_record(key, value, expires_at);
            self.0
                .writer
                .queue_writes(replace.into_iter().chain([insert]).collect());
        }
        texts.change_texts(caller, |own| {
            own.by_anchor.insert(anchor, Arc::clone(appended));
            own.lasting.insert(anchor);
        });
    }

    /// Removes a text whose request has failed, unless a provider has accepted it in another request. Does not wait.
    pub fn roll_back_text(&self, caller: Caller, anchor: Anchor) {
        let stored = self.0.appended_texts.unaccepted.get(&(caller.principal(), anchor));
        if stored.is_some_and(|stored| stored.state == RequestState::Sent) {
            self.remove_text(caller, anchor);
        }
    }

    /// Removes a text that no provider has accepted.
    pub fn remove_text(&self, caller: Caller, anchor: Anchor) {
        let texts = &self.0.appended_texts;
        // Until the removal is carried out, a read finds the record.
        if let Some(stored) = texts.unaccepted.get(&(caller.principal(), anchor)) {
            note_own(&self.0, (caller, anchor), RequestState::Failed, stored.made_at);
        }
        texts.change_texts(caller, |own| drop(own.by_anchor.remove(&anchor)));
        // One that a provider has accepted has a later version.
        self.0.writer.queue_write(CommitStep::Remove {
            key: anchor_key(caller, anchor),
            version: FIRST_VERSION,
        });
    }
}

fn anchor_key(caller: Caller, anchor: Anchor) -> RecordKey {
    RecordKey::new(RecordKind::AppendedText, caller.principal(), anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_comes_back_as_it_was() {
        let media = vec![r#"{"type":"image"}"#.to_owned(), "{}".to_owned()];
        for (calls, media) in [
            (vec![], vec![]),
            (vec![[7; 32]], media.clone()),
            (vec![[7; 32], [8; 32]], vec![]),
            (vec![], media),
        ] {
            let late = LateText {
                text: "[antiphon: é]".to_owned(),
                media,
            };
            let appended = AppendedText { late, calls };
            let bytes = appended.encode().unwrap();
            assert_eq!(AppendedText::decode(&bytes), Some(appended));
            for cut in 0..bytes.len() {
                drop(AppendedText::decode(&bytes[..cut]));
            }
        }
        assert_eq!(AppendedText::decode(&[1, 2, 0]), None);
        assert_eq!(AppendedText::decode(&[3, 0]), None);
        assert_eq!(AppendedText::decode(&[2, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
