//! The records of messages, and their bytes in the ledger.

use std::time::Duration;

use bytes::Bytes;

use super::{
    EventKind, EventSubject, LeaveReason,
    bytes::{RecordReader, RecordWriter},
    retention::RETENTION_GRACE,
};
use crate::{
    digest::digest_of,
    ledger::{Index, Moment, RecordKey, RecordKind, RecordName},
    table::RecordValue,
};

/// The format version.
const VERSION: u8 = 1;
/// The kind of record.
const OUTGOING: u8 = 6;
const CANCEL: u8 = 0;
const EVENT: u8 = 1;

/// The content of a message. URLs and keys are those of the configuration when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The request to undo the effect of a call.
    Cancel {
        /// The name of the call's record, of the same principal.
        call: RecordName,
        /// The lane of the call. `None` if it has none.
        lane: Option<[u8; 32]>,
        /// The reason.
        reason: LeaveReason,
    },
    /// An event for a webhook.
    Event {
        /// The name of the webhook.
        webhook: String,
        /// The kind.
        kind: EventKind,
        /// The record that it is about.
        subject: EventSubject,
    },
}

/// A message that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRecord {
    /// The content.
    pub purpose: Purpose,
    /// The time of the evidence or the event. A later sign of life revokes a cancel.
    pub made_at: Moment,
    /// The time from which it may be sent.
    pub due_at: Moment,
    /// The time from which it is not tried any more.
    pub give_up_at: Moment,
    /// The number of failed tries.
    pub tries: u32,
    /// `true` if it was given up. It stays for operators.
    pub is_dead: bool,
}

impl RecordValue for OutgoingRecord {
    const KIND: RecordKind = RecordKind::Outgoing;

    fn encode(&self) -> Bytes {
        let mut to = RecordWriter::new(VERSION, OUTGOING);
        to.write_moment(self.made_at);
        to.write_moment(self.due_at);
        to.write_moment(self.give_up_at);
        to.write_number(self.tries.into());
        to.write_flag(self.is_dead);
        match &self.purpose {
            Purpose::Cancel { call, lane, reason } => {
                to.write_bytes(&[CANCEL]);
                to.write_bytes(call);
                to.write_optional_hash(lane.as_ref());
                to.write_position(&LeaveReason::ALL, *reason);
            }
            Purpose::Event { webhook, kind, subject } => {
                to.write_bytes(&[EVENT]);
                to.write_text(webhook.as_bytes());
                to.write_position(&EventKind::ALL, *kind);
                to.write_flag(matches!(subject, EventSubject::Intent(_)));
                to.write_bytes(subject.name());
            }
        }
        to.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader::new(bytes, VERSION, OUTGOING)?;
        let (made_at, due_at, give_up_at) = (from.read_moment()?, from.read_moment()?, from.read_moment()?);
        let tries = u32::try_from(from.read_number()?).ok()?;
        let is_dead = from.read_flag()?;
        let purpose = match from.read_bytes()? {
            [CANCEL] => Purpose::Cancel {
                call: from.read_bytes()?,
                lane: from.read_optional_hash()?,
                reason: from.read_position(&LeaveReason::ALL)?,
            },
            [EVENT] => Purpose::Event {
                webhook: from.read_utf8()?,
                kind: from.read_position(&EventKind::ALL)?,
                subject: if from.read_flag()? {
                    EventSubject::Intent(from.read_bytes()?)
                } else {
                    EventSubject::Call(from.read_bytes()?)
                },
            },
            _ => return None,
        };
        from.expect_end()?;
        Some(Self {
            purpose,
            made_at,
            due_at,
            give_up_at,
            tries,
            is_dead,
        })
    }

    fn index(&self, key: &RecordKey) -> Option<Index> {
        Some(message_index(key))
    }

    fn expires_at(&self, _now: Moment, _ttl: Duration) -> Moment {
        self.give_up_at.max(self.due_at).saturating_add(RETENTION_GRACE)
    }
}

/// Returns the id of a message: the same for every try, and for no other message.
pub(in crate::late) fn message_id(key: &RecordKey, made_at: Moment) -> String {
    format!(
        "msg_{:032x}_{}",
        u128::from_be_bytes(message_index(key)),
        made_at.as_nanos()
    )
}

/// Returns the index under which operators find a message.
fn message_index(key: &RecordKey) -> Index {
    let hash = digest_of([&b"message"[..], &key.principal, &key.name]);
    let (half, _) = hash.split_at(16);
    half.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_is_written_or_not_at_all() {
        let event = |subject| Purpose::Event {
            webhook: "crm".to_owned(),
            kind: EventKind::Unknown,
            subject,
        };
        for purpose in [
            Purpose::Cancel {
                call: [1; 32],
                lane: Some([2; 32]),
                reason: LeaveReason::WentOn,
            },
            event(EventSubject::Call([3; 32])),
            event(EventSubject::Intent([4; 32])),
        ] {
            let message = OutgoingRecord {
                purpose,
                made_at: Duration::from_secs(7),
                due_at: Duration::from_millis(1500),
                give_up_at: Duration::from_secs(9),
                tries: 3,
                is_dead: true,
            };
            let bytes = message.encode();
            assert_eq!(OutgoingRecord::decode(&bytes), Some(message));
            for length in 0..bytes.len() {
                assert_eq!(OutgoingRecord::decode(&bytes[..length]), None, "{length}");
            }
        }
    }
}
