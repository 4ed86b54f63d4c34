//! Jobs of late results for the background writer.

use std::fmt;

use super::{
    calls::CallQuery, noted_calls::NotedCall, outbox::OutgoingRecord, record_names::call_index, records::RecordedCall,
};
use crate::{
    auth::Principal,
    ledger::{Index, Moment, RecordKey, RecordKind, RecordName},
    session::LaneId,
    writer::Subject,
};

/// Bytes that a job or a call counts in addition to its texts.
const JOB_BYTES: usize = 512;

/// A call to be recorded.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// The key of its record, unless another call has it.
    pub(super) key: RecordKey,
    pub(super) call: RecordedCall,
    /// The hash of the observation.
    pub(super) observed: [u8; 32],
}

/// A job.
pub enum LateJob {
    /// Records the calls of one turn, and settles results that are parked for them.
    Record(Vec<NewCall>),
    /// Marks a call as answered by its client. The content of the answer, as JSON, is needed only if a posted result
    /// waits.
    Answered(Principal, Vec<RecordName>, Box<CallQuery>, Option<String>),
    /// Marks a call as delivered.
    Delivered(Principal, RecordName),
    /// Marks a result as refused by a provider.
    Withheld(Principal, RecordName),
    /// Settles the parked results of an index.
    Settle(Index),
    /// Marks a result as acknowledged.
    Acked(Principal, RecordName),
    /// Stores the time at which a caller read its results.
    Read(Principal, Moment),
    /// Stores a message that is to be sent.
    StoreMessage(RecordKey, Box<OutgoingRecord>),
    /// Removes a message.
    RemoveMessage(RecordKey),
    /// Stores the cancel that evidence demands.
    StoreCancel(RecordKey, Box<OutgoingRecord>),
    /// Removes the cancel that a request revokes.
    RemoveCancel(RecordKey),
    /// Stores the time of a lane's last request.
    LaneSign(Principal, LaneId, Moment),
    /// Stores calls that a compaction may have removed from the history of their lane.
    Compacted(Principal, LaneId, Box<[NotedCall]>),
}

impl LateJob {
    /// Returns what the job is about.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        match self {
            Self::Record(calls) => {
                let subjects = |new: &NewCall| [call_subject(&new.call.id), Subject::of_name(new.key.name)];
                calls.iter().flat_map(subjects).collect()
            }
            Self::Answered(_, names, call, _) => {
                let names = names.iter().copied().map(Subject::of_name);
                names.chain([call_subject(&call.id)]).collect()
            }
            Self::Read(principal, _) => vec![Subject::of_name(*principal.as_bytes())],
            Self::Delivered(_, name) | Self::Withheld(_, name) | Self::Acked(_, name) => vec![Subject::of_name(*name)],
            Self::Settle(index) => vec![index_subject(*index)],
            Self::Compacted(_, lane, _) | Self::LaneSign(_, lane, _) => vec![Subject::of_name(*lane.as_bytes())],
            Self::StoreMessage(key, _)
            | Self::RemoveMessage(key)
            | Self::StoreCancel(key, _)
            | Self::RemoveCancel(key) => vec![Subject::of_name(key.name)],
        }
    }

    /// Returns the size of the job in memory, in bytes.
    pub(super) fn byte_len(&self) -> usize {
        match self {
            Self::Record(calls) => {
                let label = |call: &RecordedCall| call.session_label.as_ref().map_or(0, |label| label.len());
                let bytes = |new: &NewCall| JOB_BYTES + new.call.id.len() + new.call.tool.len() + label(&new.call);
                calls.iter().map(bytes).fold(JOB_BYTES, usize::saturating_add)
            }
            Self::Answered(_, names, call, content) => {
                let content = content.as_ref().map_or(0, String::len);
                JOB_BYTES + size_of_val(&**names) + call.id.len() + call.tool.len() + content
            }
            Self::Compacted(_, _, calls) => JOB_BYTES + size_of_val(&**calls),
            Self::Delivered(..)
            | Self::Withheld(..)
            | Self::Settle(_)
            | Self::Acked(..)
            | Self::StoreMessage(..)
            | Self::RemoveMessage(_)
            | Self::StoreCancel(..)
            | Self::RemoveCancel(_)
            | Self::LaneSign(..)
            | Self::Read(..) => JOB_BYTES,
        }
    }

    /// Returns `true` if a later request of the conversation leads to the same job again.
    pub(super) const fn is_repeated(&self) -> bool {
        match self {
            Self::Answered(..) | Self::Delivered(..) | Self::Acked(..) | Self::LaneSign(..) | Self::Read(..) => true,
            Self::Record(_)
            | Self::Withheld(..)
            | Self::Settle(_)
            | Self::StoreMessage(..)
            | Self::RemoveMessage(_)
            | Self::StoreCancel(..)
            | Self::RemoveCancel(_)
            | Self::Compacted(..) => false,
        }
    }

    /// Returns the kind of the records that a lost job does not write, and their number.
    pub(super) fn lost_records(&self) -> (RecordKind, usize) {
        match self {
            Self::Record(calls) => (RecordKind::Call, calls.len()),
            Self::Answered(..) | Self::Withheld(..) => (RecordKind::Call, 1),
            Self::Delivered(..) | Self::Acked(..) => (RecordKind::Delivery, 1),
            Self::Settle(_) => (RecordKind::Parked, 1),
            Self::Compacted(..) => (RecordKind::CompactedCalls, 1),
            Self::StoreMessage(..) | Self::RemoveMessage(_) | Self::StoreCancel(..) | Self::RemoveCancel(_) => {
                (RecordKind::Outgoing, 1)
            }
            Self::LaneSign(..) => (RecordKind::LaneSign, 1),
            Self::Read(..) => (RecordKind::Reader, 1),
        }
    }
}

/// Returns the subject of all calls with this id.
pub(super) fn call_subject(call_id: &[u8]) -> Subject {
    index_subject(call_index(call_id))
}

/// Returns the subject of all calls with an id. It is no name of a record, which is a whole hash.
fn index_subject(index: Index) -> Subject {
    let mut name = [0; 32];
    for (to, from) in name.iter_mut().zip(index) {
        *to = from;
    }
    Subject::of_name(name)
}

impl fmt::Debug for LateJob {
    // A job may contain the client's answer, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateJob")
    }
}
