//! Steps of one record that need no read, as an update.

use std::sync::Arc;

use super::{Subject, Update, UpdateSize, Work, WriteTrack};
use crate::ledger::{CommitStep, Moment, RECORD_BYTES, RecordKind, TimedCommit};

/// [`RECORD_BYTES`], as a size in memory.
#[expect(clippy::cast_possible_truncation, reason = "256 fits any usize")]
pub(super) const ROW_BYTES: usize = RECORD_BYTES as usize;

/// Steps of one record, which are tried in order, each on its own.
#[derive(Debug)]
pub(super) struct RecordSteps {
    steps: Vec<CommitStep>,
    subject: Subject,
    kind: RecordKind,
    /// The time of queueing: a late write is judged against expiry as of then.
    queued_at: Moment,
}

impl RecordSteps {
    /// Returns one update for each record. Steps of one record that follow each other wait together.
    pub(super) fn of_steps(steps: Vec<CommitStep>, queued_at: Moment) -> impl Iterator<Item = Arc<dyn Update>> {
        let mut steps = steps.into_iter().peekable();
        std::iter::from_fn(move || {
            let first = steps.next()?;
            let key = *first.key();
            let mut of_record = vec![first];
            while let Some(next) = steps.next_if(|next| *next.key() == key) {
                of_record.push(next);
            }
            let update: Arc<dyn Update> = Arc::new(Self {
                steps: of_record,
                subject: Subject::of_record(&key),
                kind: key.kind,
                queued_at,
            });
            Some(update)
        })
    }
}

impl Update for RecordSteps {
    fn track(&self) -> WriteTrack {
        WriteTrack::Behind
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![self.subject]
    }

    fn size(&self) -> UpdateSize {
        let bytes = |step: &CommitStep| step.value_bytes().saturating_add(ROW_BYTES);
        UpdateSize {
            rows: self.steps.len(),
            bytes: self.steps.iter().map(bytes).fold(0, usize::saturating_add),
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (self.kind, 1)
    }

    fn begin(self: Arc<Self>) -> Work {
        let commits = self.steps.iter().map(|step| TimedCommit {
            steps: vec![step.clone()],
            now: self.queued_at,
        });
        Work::Commits(commits.collect())
    }
}
