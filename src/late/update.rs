//! Changes of late results that the background writer makes.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{LateError, parts::LateParts, records::call_names::call_index};
use crate::{
    clock,
    ledger::{Contended, Index, RecordKind},
    telemetry::Telemetry,
    writer::{Subject, Update, UpdateEnd, UpdateError, UpdateSize, Work, WriteTrack},
};

/// Bytes that an update counts in addition to its texts.
const UPDATE_BYTES: usize = 512;
/// Longest time that a request about a call waits for what is queued about it.
const CALL_WAIT_MAX: Duration = Duration::from_secs(1);

/// A change of late results that no request waits for. It reads before it commits.
pub(super) trait LateUpdate: Send + Sync + 'static {
    /// The state of the feature that makes it.
    type Feature: Send + Sync + 'static;

    /// Returns the call, the call id, the lane or the message that it is about.
    fn subjects(&self) -> Vec<Subject>;

    /// Returns the kind of the records that are lost with it, and their number.
    fn lost_records(&self) -> (RecordKind, usize);

    /// Returns the bytes of its texts and lists.
    fn text_bytes(&self) -> usize {
        0
    }

    /// Returns `true` if a later request of the conversation leads to the same update again.
    fn is_repeated(&self) -> bool;

    /// Makes the change once. Returns `true` if it surely wrote to the store: many find that nothing is to be written.
    fn apply(&self, feature: Arc<Self::Feature>) -> impl Future<Output = Result<bool, LateError>> + Send;

    /// Notes that it is lost.
    fn note_lost(&self, _feature: &Self::Feature) {}
}

/// An update that waits for the background writer.
struct QueuedLateUpdate<U: LateUpdate> {
    // Weak, so that the queue closes when the last handle of the feature is dropped.
    feature: Weak<U::Feature>,
    telemetry: Telemetry,
    update: U,
}

impl<U: LateUpdate> QueuedLateUpdate<U> {
    fn new(telemetry: &Telemetry, feature: &Arc<U::Feature>, update: U) -> Self {
        Self {
            feature: Arc::downgrade(feature),
            telemetry: telemetry.clone(),
            update,
        }
    }
}

impl<U: LateUpdate> fmt::Debug for QueuedLateUpdate<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may contain the client's answer, which never reaches a log.
        f.write_str("QueuedLateUpdate")
    }
}

impl<U: LateUpdate> Update for QueuedLateUpdate<U> {
    fn track(&self) -> WriteTrack {
        WriteTrack::Reading
    }

    fn subjects(&self) -> Vec<Subject> {
        self.update.subjects()
    }

    fn size(&self) -> UpdateSize {
        UpdateSize {
            rows: self.update.lost_records().1,
            bytes: UPDATE_BYTES.saturating_add(self.update.text_bytes()),
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        self.update.lost_records()
    }

    fn is_repeated(&self) -> bool {
        self.update.is_repeated()
    }

    fn begin(self: Arc<Self>) -> Work {
        match self.feature.upgrade() {
            Some(feature) => Work::Change(Box::pin(async move { Ok(self.update.apply(feature).await?) })),
            None => Work::Nothing,
        }
    }

    fn note_lost(&self) {
        self.telemetry.record_late_event("lost");
        if let Some(feature) = self.feature.upgrade() {
            self.update.note_lost(&feature);
        }
    }
}

impl From<LateError> for UpdateError {
    fn from(error: LateError) -> Self {
        match error {
            LateError::Ledger(error) => Self::Ledger(error),
            LateError::Busy => Self::Contended(Contended),
            LateError::Random(_) | LateError::ClockStep => Self::Final(error.into()),
        }
    }
}

impl LateParts {
    /// Queues an update of a feature. A full queue loses it, or others that matter less, which is counted.
    pub(super) fn queue_update<U: LateUpdate>(&self, feature: &Arc<U::Feature>, update: U) {
        self.writer
            .queue(QueuedLateUpdate::new(&self.telemetry, feature, update));
    }

    /// Queues an update of a feature. Returns its end, which can be awaited, or `None` if it is lost at once.
    pub(super) fn queue_with_end<U: LateUpdate>(&self, feature: &Arc<U::Feature>, update: U) -> Option<UpdateEnd> {
        self.writer
            .queue_with_end(QueuedLateUpdate::new(&self.telemetry, feature, update))
    }

    /// Waits until what is queued about the calls of this id is done or lost, for a second at most.
    ///
    /// A client has the id of a call with the end of its answer, which waits for a slow ledger for a moment only.
    pub(super) async fn await_call(&self, call_id: &[u8]) {
        let deadline = clock::now() + CALL_WAIT_MAX;
        self.writer.await_subject(&call_subject(call_id), deadline).await;
    }
}

/// Returns the subject of all calls with this id.
pub(super) fn call_subject(call_id: &[u8]) -> Subject {
    index_subject(call_index(call_id))
}

/// Returns the subject of all calls with an index. It is no name of a record, which is a whole hash.
pub(super) fn index_subject(index: Index) -> Subject {
    let mut name = [0; 32];
    for (to, from) in name.iter_mut().zip(index) {
        *to = from;
    }
    Subject::of_name(name)
}
