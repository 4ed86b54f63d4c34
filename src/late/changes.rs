//! Changes of calls and intents, as other features take part in them: with steps of the same commit, and after it.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
};

use super::{
    LateError,
    records::{IntentRecord, RecordedCall},
};
use crate::ledger::{CommitStep, Moment, RecordKey};

/// A change of the record with this key.
///
/// Those that say "joined" are joined before their commit, and noted after it. The others are only noted.
#[derive(Clone, Copy, Debug)]
pub(super) enum LateChange<'c> {
    /// A call was observed, and is queued for recording.
    Opened(RecordKey, &'c RecordedCall),
    /// A call gets its first result. Joined.
    Settled(RecordKey, &'c RecordedCall),
    /// The result of a call takes the place of an earlier one. Joined.
    Corrected(RecordKey, &'c RecordedCall),
    /// Another result was posted for a call that has one. It is stored as a refused one.
    Conflict(RecordKey, &'c RecordedCall),
    /// The result of a call is withdrawn: it waits again. Joined.
    Withdrawn(RecordKey, &'c RecordedCall),
    /// The client of a call has answered it, now or before.
    Answered(RecordKey, &'c RecordedCall),
    /// The tool of a call still runs.
    Heartbeat(RecordKey),
    /// The service of a call is asked to undo it. Joined.
    CancelRequested(RecordKey, &'c RecordedCall),
    /// A holder gets an intent. Joined.
    Claimed(RecordKey, &'c IntentRecord),
    /// The client has closed the session with this hash, which is no record.
    SessionClosed(&'c [u8; 32]),
}

/// The part of a feature in the commit of a change.
#[derive(Debug, Default)]
pub(super) struct JoinedSteps {
    /// The steps. One that conflicts makes the whole change fail, so an insert must be of a key that is new with it.
    pub(super) steps: Vec<CommitStep>,
    /// The time until which the content of the result is needed, for a first or corrected result.
    pub(super) content_until: Moment,
}

/// The future of [`ChangeParticipant::join`]. It is boxed, so that a feature does not name those that take part.
pub(super) type Joining<'j> = Pin<Box<dyn Future<Output = Result<JoinedSteps, LateError>> + Send + 'j>>;

/// A feature that takes part in changes of others.
pub(super) trait ChangeParticipant: Send + Sync {
    /// Returns what belongs in the commit of a change. It may read.
    fn join<'j>(&'j self, _change: LateChange<'j>, _now: Moment) -> Joining<'j> {
        Box::pin(ready(Ok(JoinedSteps::default())))
    }

    /// Notes a change. `now` is that of the join, if there was one. Does not wait.
    fn note(&self, _change: LateChange<'_>, _now: Moment) {}
}

/// The features that take part in changes, in this order: the steps and notes of each come before those of the next.
/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Participants(Arc<[Box<dyn ChangeParticipant>]>);

impl Participants {
    pub(super) fn new(participants: impl IntoIterator<Item = Box<dyn ChangeParticipant>>) -> Self {
        Self(participants.into_iter().collect())
    }

    /// Returns what all features commit together with a change.
    pub(super) async fn join(&self, change: LateChange<'_>, now: Moment) -> Result<JoinedSteps, LateError> {
        let mut joined = JoinedSteps::default();
        for participant in &*self.0 {
            let own = participant.join(change, now).await?;
            joined.steps.extend(own.steps);
            joined.content_until = joined.content_until.max(own.content_until);
        }
        Ok(joined)
    }

    /// Tells all features of a change. Does not wait.
    pub(super) fn note(&self, change: LateChange<'_>, now: Moment) {
        for participant in &*self.0 {
            participant.note(change, now);
        }
    }
}
