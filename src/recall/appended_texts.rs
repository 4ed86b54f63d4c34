//! Late-result texts that were appended to messages, by the anchor of the message.
//!
//! A text is appended again wherever its message occurs, so that the history stays the one that the provider has seen.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes};
use tokio::time::{Instant, timeout_at};

use super::RecallStore;
use crate::{
    auth::{Caller, Principal},
    clock,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    ledger::{
        CommitOutcome, CommitStep, FIRST_VERSION, Moment, Record, RecordKey, RecordKind, RecordName, RecordOwners,
        Unread,
    },
    repair::{Anchor, LateText},
    table::{
        ReadEffort, RowSet, RowSets, SetChange, SetDepth, SetMemory, SetPolicy, SetRow, StoredRow, TableParts,
        VerifiedCallers,
    },
    writer::Subject,
};

/// The limit of the texts in memory, in bytes. The texts of an evicted caller are read again.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
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

/// A text in memory.
#[derive(Clone, Debug)]
pub(super) struct TextRow {
    appended: Arc<AppendedText>,
    /// The time of its record: one with another time is of another process.
    made_at: Moment,
    until: Moment,
    /// `true` if a provider has accepted it. Its record then has a later version, and no removal concerns it.
    is_accepted: bool,
}

impl StoredRow for TextRow {
    fn encode(&self) -> Option<Bytes> {
        self.appended.encode()
    }

    fn decode(record: &Record) -> Option<Self> {
        Some(Self {
            appended: Arc::new(AppendedText::decode(&record.value)?),
            made_at: record.made_at,
            until: record.expires_at,
            is_accepted: record.version > FIRST_VERSION,
        })
    }

    fn merged(self, read: Self) -> Self {
        Self {
            // The write that says so may still be on its way.
            is_accepted: read.is_accepted || self.is_accepted && self.made_at == read.made_at,
            ..read
        }
    }

    fn byte_len(&self) -> usize {
        self.appended.byte_len()
    }
}

impl SetRow for TextRow {
    fn until(&self) -> Moment {
        self.until
    }
}

/// The texts of callers, and of requests that no provider has accepted yet.
#[derive(Debug)]
pub(super) struct AppendedTexts {
    rows: RowSets<TextRow>,
    /// The texts that requests of this process have stored. A removal may still be on its way to the ledger, and a set that
    /// is read meanwhile finds the record.
    unaccepted: DigestCache<(Principal, Anchor), OwnText>,
}

/// A text that a request of this process has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl OwnText {
    /// Returns `true` if a row is this text: no provider has accepted it, and no other process has stored it.
    fn is_row(&self, row: &TextRow) -> bool {
        !row.is_accepted && row.made_at == self.made_at
    }

    const fn in_state(self, state: RequestState) -> Self {
        Self { state, ..self }
    }
}

impl AppendedTexts {
    /// Creates the texts over the ledger of `parts`. `owners` are the callers with texts.
    pub(super) fn new(parts: &TableParts, callers: &VerifiedCallers, owners: RecordOwners) -> Self {
        let policy = SetPolicy {
            kind: RecordKind::AppendedText,
            memory: SetMemory::Bytes(MEMORY_BYTES),
            // These are all that most callers have.
            depth: SetDepth::Latest,
            owners,
        };
        Self {
            rows: RowSets::new(parts, callers, policy),
            unaccepted: DigestCache::new(UNACCEPTED_MAX, Lifetime::SinceWrite(UNACCEPTED_TTL)),
        }
    }

    /// Notes that a text is stored and about to be sent. Returns `false` if `before` is no longer the text of this process at
    /// its place.
    fn note_sent(&self, caller: Caller, anchor: Anchor, made_at: Moment, before: Option<OwnText>) -> bool {
        let state = RequestState::Sent;
        let mut is_same = false;
        self.unaccepted.change(&(caller.principal(), anchor), |known| {
            is_same = known == before;
            if is_same {
                EntryChange::Put(OwnText { state, made_at })
            } else {
                EntryChange::Keep
            }
        });
        is_same
    }

    fn own_text(&self, caller: Caller, anchor: Anchor) -> Option<OwnText> {
        self.unaccepted.get(&(caller.principal(), anchor))
    }
}

impl RecallStore {
    /// Returns `true` if a text may have been appended to one of this caller's messages. Does not wait.
    pub fn may_have_texts(&self, caller: Caller) -> bool {
        self.0.appended.rows.may_have(caller.principal())
    }

    /// Returns `true` if texts were appended to messages of this caller, as far as is known. Does not wait.
    pub fn has_texts(&self, caller: Caller) -> bool {
        self.0.appended.rows.has_known(caller.principal())
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
            return Ok(HashMap::new());
        }
        let effort = if is_patient {
            ReadEffort::Patient
        } else {
            ReadEffort::Usual
        };
        let appended = &self.0.appended;
        let found = appended.rows.find(caller.principal(), anchors, effort, deadline);
        let found = self.0.count_unread(found.await)?;
        let is_removed = |anchor: &Anchor, row: &TextRow| {
            let own = appended.own_text(caller, *anchor);
            own.is_some_and(|own| own.state == RequestState::Failed && own.is_row(row))
        };
        let found = found.into_iter().filter(|(anchor, row)| !is_removed(anchor, row));
        Ok(found.map(|(anchor, row)| (anchor, row.appended)).collect())
    }

    /// Reads the latest texts of a caller into memory, unless they are there. Those of a shared ledger are read each time:
    /// another process may have sent one before this one was told of it.
    pub async fn load_texts(&self, caller: Caller, deadline: Instant) -> Result<(), Unread> {
        let texts = &self.0.appended.rows;
        self.0
            .count_unread(texts.load(caller.principal(), ReadEffort::Fresh, deadline).await)
    }

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
        let (texts, key) = (&self.0.appended, anchor_key(caller, anchor));
        // The removal of an earlier text would remove this one too if it came after it. While the store fails it stays queued.
        let (writer, subject) = (&self.0.writer, Subject::of_record(&key));
        let is_over = || !writer.is_about(&subject) || writer.is_failing();
        writer.await_end(deadline, is_over).await;
        if writer.is_about(&subject) {
            self.0.telemetry.record_ledger_timeout("write");
            return None;
        }
        texts.rows.note_principal(caller.principal());
        let made_at = clock::unix_time();
        let own = TextRow {
            appended: Arc::new(appended),
            made_at,
            until: made_at + self.0.settings.record_ttl,
            is_accepted: false,
        };
        let insert = CommitStep::insert_record(key, own.encode()?, own.until);
        let other_own = texts.own_text(caller, anchor);
        let steps = [insert].into_iter().chain(marks).collect();
        let (row, is_new) = match timeout_at(deadline, self.0.ledger.commit(steps, made_at)).await {
            Ok(Ok(CommitOutcome::Done)) if texts.note_sent(caller, anchor, made_at, other_own) => (own, true),
            Ok(Ok(CommitOutcome::Done)) => {
                // The removal of another text, which has failed meanwhile, may have removed this one.
                self.remove_unsent(caller, anchor, made_at);
                return None;
            }
            Ok(Ok(CommitOutcome::Conflict(records))) => {
                let Some(record) = records.into_iter().next().flatten() else {
                    // One of the results has changed since it was read: the next request gets them.
                    self.0.telemetry.record_late_event("unread");
                    return None;
                };
                (TextRow::decode(&record)?, false)
            }
            Ok(Err(_)) | Err(_) => {
                self.0.telemetry.record_ledger_timeout("write");
                // The commit may still succeed, and must not leave a record of a text that was never sent.
                self.remove_unsent(caller, anchor, made_at);
                return None;
            }
        };
        let stored = Arc::clone(&row.appended);
        texts.rows.change(caller.principal(), anchor, |_| SetChange::Put(row));
        Some((stored, is_new))
    }

    /// Notes that a provider has accepted a text. Does not wait.
    pub fn accept_text(&self, caller: Caller, anchor: Anchor, appended: &Arc<AppendedText>) {
        let (texts, principal) = (&self.0.appended, caller.principal());
        let mut added = None;
        // Queued under the lock of the entry, so that a removal comes before it or not at all.
        texts.unaccepted.change(&(principal, anchor), |own| {
            if let Some((row, steps)) = self.accepted_row((caller, anchor), appended, own) {
                added = Some(self.0.writer.add_writes(steps));
                texts.rows.change(principal, anchor, |_| SetChange::Put(row));
            }
            // What is accepted is rolled back no more.
            EntryChange::Remove
        });
        if let Some(added) = added {
            self.0.writer.note_added(added);
        }
    }

    /// Returns the row of an accepted text, and the steps that store it. `None` if the ledger has it for certain.
    ///
    /// `own` is the text that this process has stored at its place, and that was not accepted before.
    fn accepted_row(
        &self,
        (caller, anchor): (Caller, Anchor),
        appended: &Arc<AppendedText>,
        own: Option<OwnText>,
    ) -> Option<(TextRow, Vec<CommitStep>)> {
        // Another request stored the text, and has removed it when it failed.
        let was_removed = own.is_some_and(|own| own.state == RequestState::Failed);
        // No removal concerns one that a provider has accepted, or that another process has stored.
        let is_lasting = |row: &TextRow| row.is_accepted || own.is_some_and(|own| !own.is_row(row));
        let lasts = |set: &RowSet<TextRow>| set.get(&anchor).is_some_and(is_lasting);
        let texts = &self.0.appended.rows;
        let is_stored = self.0.ledger.is_exclusive() || texts.look(caller.principal(), lasts).unwrap_or_default();
        if is_stored && !was_removed {
            return None;
        }
        let now = clock::unix_time();
        let row = TextRow {
            appended: Arc::clone(appended),
            made_at: own.map_or(now, |own| own.made_at),
            until: now + self.0.settings.record_ttl,
            is_accepted: true,
        };
        let key = anchor_key(caller, anchor);
        // Other processes do not know of the acceptance, and may remove the text when a request of theirs fails. With a new
        // version the record outlasts the removal of the first one.
        let replace = CommitStep::Replace {
            key,
            version: FIRST_VERSION,
            value: row.encode()?,
            expires_at: row.until,
        };
        let replace = (!was_removed).then_some(replace);
        // After the removal, which may still be on its way.
        let insert = CommitStep::insert_record(key, row.encode()?, row.until);
        Some((row, replace.into_iter().chain([insert]).collect()))
    }

    /// Removes a text whose request has failed, unless a provider has accepted it in another request. Does not wait.
    pub fn roll_back_text(&self, caller: Caller, anchor: Anchor) {
        let is_sent = |own: Option<OwnText>| own.is_some_and(|own| own.state == RequestState::Sent);
        self.remove_if(caller, anchor, is_sent);
    }

    /// Removes a text that its provider refuses. Does not wait.
    pub fn remove_text(&self, caller: Caller, anchor: Anchor) {
        self.remove_if(caller, anchor, |_| true);
    }

    /// Removes a text of this time whose commit may have succeeded, although the text is not sent.
    fn remove_unsent(&self, caller: Caller, anchor: Anchor, made_at: Moment) {
        let own = OwnText {
            state: RequestState::Sent,
            made_at,
        };
        self.0.appended.unaccepted.insert(&(caller.principal(), anchor), own);
        self.roll_back_text(caller, anchor);
    }

    /// Removes a text if `is_it` returns `true` for the text of this process at its place.
    fn remove_if(&self, caller: Caller, anchor: Anchor, is_it: impl FnOnce(Option<OwnText>) -> bool) {
        let (texts, principal) = (&self.0.appended, caller.principal());
        let mut added = None;
        texts.unaccepted.change(&(principal, anchor), |own| {
            if !is_it(own) {
                return EntryChange::Keep;
            }
            let gone_at = clock::unix_time() + UNACCEPTED_TTL;
            texts.rows.change(principal, anchor, |_| SetChange::Remove(gone_at));
            // One that a provider has accepted has a later version.
            let remove = CommitStep::Remove {
                key: anchor_key(caller, anchor),
                version: FIRST_VERSION,
            };
            added = Some(self.0.writer.add_writes(vec![remove]));
            // Until the removal is carried out, a read finds the record.
            own.map_or(EntryChange::Keep, |own| {
                EntryChange::Put(own.in_state(RequestState::Failed))
            })
        });
        if let Some(added) = added {
            self.0.writer.note_added(added);
        }
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
