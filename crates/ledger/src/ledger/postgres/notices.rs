//! Notifications of changes between replicas: their text. It has hashes only, no content.
//!
//! A notification is sent in the transaction of its changes, and arrives after it is committed, in the order of the commits.

use tokio_postgres::types::Type;

use super::{batch::TableChange, rows::Parameter};
use crate::ledger::{RecordChange, RecordKey, columns::kind_from_number};

/// The channel of the notifications.
pub(super) const CHANNEL: &str = "antiphon_changes";
/// Sends notifications. Returns no rows.
pub(super) const NOTIFY: &str =
    "SELECT FROM unnest($1::text[]) AS text WHERE pg_notify('antiphon_changes', text) IS NULL";
/// The most changes of one notification: PostgreSQL's limit is 8,000 bytes.
const CHANGES_MAX: usize = 60;
/// The length of one change: two digits of the kind, 64 of the principal, 64 of the name.
const CHANGE_DIGITS: usize = 130;

/// The random number of a replica, by which it knows its own notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicaId(pub(super) [u8; 32]);

/// A notification that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The answer to a probe of this replica: all notifications before it have arrived.
    OwnProbe(u64),
    /// Changes by another replica.
    Changes(Vec<RecordChange>),
    /// A notification that this replica has no use for: its own changes, or the probe of another one.
    Unused,
    /// A text that this version cannot read. Something has changed.
    Unknown,
}

impl ReplicaId {
    /// Returns the text of a probe.
    pub(super) fn probe(self, number: u64) -> String {
        format!("{} ?{number}", hex(&self.0))
    }

    /// Returns the texts about the changes of a batch that other replicas have to know.
    pub(super) fn notices(self, change: &TableChange) -> Vec<String> {
        let written = change
            .added
            .iter()
            .chain(&change.replaced)
            .map(|(_, record)| &record.key);
        let told: Vec<&RecordKey> = written
            .chain(&change.deleted)
            .filter(|key| key.kind.is_announced())
            .collect();
        let text = |keys: &[&RecordKey]| {
            let changes = keys.iter().map(|key| {
                let kind = hex(&[key.kind as u8]);
                format!("{kind}{}{}", hex(&key.principal), hex(&key.name))
            });
            format!("{} {}", hex(&self.0), changes.collect::<String>())
        };
        told.chunks(CHANGES_MAX).map(text).collect()
    }

    /// Reads the text of a notification.
    pub(super) fn read(self, text: &str) -> Notice {
        let Some((from, rest)) = text.split_once(' ') else {
            return Notice::Unknown;
        };
        let is_own = from == hex(&self.0);
        if let Some(number) = rest.strip_prefix('?') {
            return match number.parse() {
                Ok(number) if is_own => Notice::OwnProbe(number),
                _ => Notice::Unused,
            };
        }
        if is_own {
            return Notice::Unused;
        }
        let changes: Option<Vec<_>> = rest.as_bytes().chunks(CHANGE_DIGITS).map(read_change).collect();
        // No cache of this version depends on records of a kind that only a later version knows.
        changes.map_or(Notice::Unknown, |changes| {
            Notice::Changes(changes.into_iter().flatten().collect())
        })
    }
}

/// Returns the parameter of [`NOTIFY`].
pub(super) fn notify_parameters(texts: &Vec<String>) -> [Parameter<'_>; 1] {
    [(texts, Type::TEXT_ARRAY)]
}

/// Reads a change. `None` if it is damaged, and `Some(None)` for a kind that this version does not know.
#[expect(clippy::option_option, reason = "both are results of one parse")]
fn read_change(digits: &[u8]) -> Option<Option<RecordChange>> {
    let digits = std::str::from_utf8(digits).ok()?;
    let kind = u8::from_str_radix(digits.get(..2)?, 16).ok()?;
    let hash = |from: usize| Some(*blake3::Hash::from_hex(digits.get(from..from + 64)?).ok()?.as_bytes());
    let (principal, name) = (hash(2)?, hash(66)?);
    Some(kind_from_number(u64::from(kind)).map(|kind| RecordChange { kind, principal, name }))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ledger::{MOMENT_MAX, Moment, Record, RecordKind};

    fn key(kind: RecordKind, byte: u8) -> RecordKey {
        RecordKey {
            kind,
            principal: [byte; 32],
            name: [byte; 32],
        }
    }

    #[test]
    fn another_replica_reads_each_change_and_none_is_too_long() {
        let (own, other) = (ReplicaId([1; 32]), ReplicaId([2; 32]));
        let record = |byte| Record {
            key: key(RecordKind::Delivery, byte),
            index: None,
            value: Bytes::from_static(b"content"),
            version: 1,
            made_at: Moment::ZERO,
            expires_at: MOMENT_MAX,
        };
        let change = TableChange {
            added: (0..200).map(|byte| (i64::from(byte), record(byte))).collect(),
            deleted: vec![key(RecordKind::AppendedText, 200), key(RecordKind::Call, 201)],
            ..TableChange::default()
        };
        let texts = own.notices(&change);
        assert!(texts.iter().all(|text| text.len() < 8_000 && !text.contains("content")));
        let mut read = Vec::new();
        for text in &texts {
            assert_eq!(own.read(text), Notice::Unused);
            let Notice::Changes(changes) = other.read(text) else {
                panic!("{text}")
            };
            read.extend(changes);
        }
        assert_eq!(read.len(), 201);
        assert_eq!((read[7].name, read[200].kind), ([7; 32], RecordKind::AppendedText));
    }

    #[test]
    fn probes_are_known_and_foreign_texts_count_as_changes() {
        let (own, other) = (ReplicaId([1; 32]), ReplicaId([2; 32]));
        assert_eq!(own.read(&own.probe(7)), Notice::OwnProbe(7));
        assert_eq!(other.read(&own.probe(7)), Notice::Unused);
        for text in ["", "x", "02 05zz", "02 ff"] {
            assert_eq!(own.read(text), Notice::Unknown, "{text:?}");
        }
    }
}
