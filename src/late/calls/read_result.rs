//! A posted result that a request is to contain, as it was read.

use std::fmt;

use crate::{
    late::records::RecordedCall,
    ledger::{CommitStep, Record, RecordKey, RecordName},
    table::RecordValue,
};

/// A posted result as it was read, with the step that marks it as contained in a request.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadResult {
    key: RecordKey,
    digest: [u8; 32],
    /// `None` if another request contains it already.
    mark: Option<CommitStep>,
}

impl fmt::Debug for ReadResult {
    // The mark contains the content of the result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadResult(marked {})", self.mark.is_none())
    }
}

impl ReadResult {
    /// Returns the posted result of a call's record. `None` if the call has none that a request may contain.
    pub(super) fn of_call(record: &Record, call: &RecordedCall) -> Option<Self> {
        let posted = call.posted.as_ref().filter(|_| !call.is_withheld)?;
        let marked = || RecordedCall {
            is_in_request: true,
            ..call.clone()
        };
        // A correction at the same time changes the record, too: one of both is refused.
        let mark = (!call.is_in_request).then(|| CommitStep::Replace {
            key: record.key,
            version: record.version,
            value: marked().encode(),
            expires_at: record.expires_at,
        });
        Some(Self {
            key: record.key,
            digest: posted.digest,
            mark,
        })
    }

    /// Returns the name of the call.
    pub const fn call(&self) -> &RecordName {
        &self.key.name
    }

    /// Returns the key of the call.
    pub(super) const fn key(&self) -> &RecordKey {
        &self.key
    }

    /// Returns the digest of the result.
    pub(super) const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns the step that marks the result. `None` if it is marked.
    pub(super) const fn mark(&self) -> Option<&CommitStep> {
        self.mark.as_ref()
    }

    /// Returns the step that marks the result. `None` if it is marked.
    pub fn into_mark(self) -> Option<CommitStep> {
        self.mark
    }
}
