//! Jobs of the background writer.

use std::fmt;

use super::{calls::CallQuery, noted_calls::NotedCall, records::RecordedCall};
use crate::{
    auth::Principal,
    ledger::{Index, RecordKey, RecordName},
    session::LaneId,
};

/// A call to be recorded.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// The key of its record, unless another call has it.
    pub(super) key: RecordKey,
    pub(super) call: RecordedCall,
    /// The hash of the observation.
    pub(super) observed: [u8; 32],
}

/// A job of the worker.
pub enum LateJob {
    /// Records the calls of one turn, and settles results that are parked for them.
    Record(Vec<NewCall>),
    /// Marks a call as answered by its client. The content of the answer, as JSON, is needed only if a posted result
    /// waits.
    Answered(Principal, Vec<RecordName>, CallQuery, Option<String>),
    /// Marks a call as delivered.
    Delivered(Principal, RecordName),
    /// Marks a result as refused by a provider.
    Withheld(Principal, RecordName),
    /// Settles the parked results of an index.
    Settle(Index),
    /// Marks a result as acknowledged.
    Acked(Principal, RecordName),
    /// Stores calls that a compaction may have removed from the history of their lane.
    Compacted(Principal, LaneId, Box<[NotedCall]>),
}

impl fmt::Debug for LateJob {
    // A job may contain the client's answer, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateJob")
    }
}
