//! Reads and writes of intents in the ledger.

use super::{
    holder::Holder,
    names::IntentId,
    records::{ContentPlace, IntentRecord},
    rules,
};
use crate::{
    auth::{Principal, PrincipalHash},
    late::{LateError, LateStore, queries::whole_content, records::StoredContent},
    ledger::{CommitStep, Moment, Record, RecordKey, RecordKind, RecordName},
};

/// An intent, with its record in the ledger.
#[derive(Debug)]
pub(in crate::late) struct StoredIntent {
    pub(in crate::late) record: Record,
    pub(in crate::late) intent: IntentRecord,
}

impl StoredIntent {
    pub(in crate::late) fn from_record(record: Record) -> Option<Self> {
        let intent = IntentRecord::decode(&record.value)?;
        Some(Self { record, intent })
    }

    /// Returns the id.
    pub(in crate::late) fn id(&self) -> IntentId {
        IntentId::of_record(&self.record.key.principal, &self.record.key.name)
    }

    /// Builds the step that replaces the intent, unless another writer was first.
    pub(in crate::late) fn replace_step(&self, intent: &IntentRecord) -> CommitStep {
        CommitStep::Replace {
            key: self.record.key,
            version: self.record.version,
            value: intent.encode(),
            expires_at: rules::retained_until(intent),
        }
    }
}

/// Returns the key of an intent's record.
pub(in crate::late) const fn intent_key(principal: PrincipalHash, name: RecordName) -> RecordKey {
    RecordKey {
        kind: RecordKind::Intent,
        principal,
        name,
    }
}

/// Builds the step that inserts a new intent.
pub(in crate::late) fn insert_step(key: RecordKey, intent: &IntentRecord) -> CommitStep {
    CommitStep::Insert {
        key,
        index: Some(IntentId::of_record(&key.principal, &key.name).index()),
        value: intent.encode(),
        expires_at: rules::retained_until(intent),
    }
}

/// Reads the intent of a key.
pub(in crate::late) async fn read_intent(
    late: &LateStore,
    key: RecordKey,
    now: Moment,
) -> Result<Option<StoredIntent>, LateError> {
    let records = late.0.parts.ledger.read(vec![key], now).await?;
    Ok(records.into_iter().flatten().next().and_then(StoredIntent::from_record))
}

/// Finds the intent of an id.
pub(in crate::late) async fn find_intent(
    late: &LateStore,
    id: IntentId,
    now: Moment,
) -> Result<Option<StoredIntent>, LateError> {
    let found = late
        .0
        .parts
        .ledger
        .find_by_index(RecordKind::Intent, id.index(), 1, now)
        .await?;
    Ok(found.into_iter().next().and_then(StoredIntent::from_record))
}

/// Finds the intent of an id, if the holder may act on it.
pub(in crate::late) async fn find_for_holder(
    late: &LateStore,
    holder: Holder<'_>,
    id: IntentId,
    now: Moment,
) -> Result<Option<StoredIntent>, LateError> {
    let found = find_intent(late, id, now).await?;
    Ok(found.filter(|found| holder.may_act(Principal::from_bytes(found.record.key.principal), &found.intent)))
}

/// Reads the content of an intent's result, as JSON. `None` if the intent has no result, or one without content.
pub(in crate::late) async fn read_content(
    late: &LateStore,
    stored: &StoredIntent,
    now: Moment,
) -> Result<Option<String>, LateError> {
    let key = stored.record.key;
    match stored.intent.result.as_ref().map(|result| &result.place) {
        Some(ContentPlace::Call(call)) => {
            late.posted_content(Principal::from_bytes(key.principal), *call, now)
                .await
        }
        Some(ContentPlace::Own(content)) => {
            let apart = match content {
                StoredContent::Inline(_) => None,
                StoredContent::Apart(_) => {
                    let records = late.0.parts.ledger.read(vec![content_key(key)], now).await?;
                    records.into_iter().flatten().next()
                }
            };
            Ok(whole_content(content.clone(), apart))
        }
        Some(ContentPlace::Nowhere) | None => Ok(None),
    }
}

/// Returns the keys of the records that contain the result of an intent.
pub(in crate::late) fn content_keys(stored: &StoredIntent) -> Vec<RecordKey> {
    let key = stored.record.key;
    match stored.intent.result.as_ref().map(|result| &result.place) {
        Some(ContentPlace::Call(call)) => [RecordKind::Call, RecordKind::ResultContent]
            .map(|kind| RecordKey {
                kind,
                name: *call,
                ..key
            })
            .to_vec(),
        Some(ContentPlace::Own(StoredContent::Apart(_))) => vec![content_key(key)],
        Some(ContentPlace::Own(StoredContent::Inline(_)) | ContentPlace::Nowhere) | None => Vec::new(),
    }
}

/// Returns the key of the record for a long content of an intent.
pub(in crate::late) const fn content_key(intent: RecordKey) -> RecordKey {
    RecordKey {
        kind: RecordKind::ResultContent,
        ..intent
    }
}
