//! Reads of intents, and of the contents of their results.

use super::holder::Holder;
use crate::{
    late::{
        LateError,
        contents::whole_content,
        parts::LateParts,
        records::{ContentPlace, IntentId, IntentRecord, StoredContent},
    },
    ledger::{Moment, RecordKey, RecordKind},
    table::Stored,
};

/// Finds the intent of an id.
pub(in crate::late) async fn find_intent(
    parts: &LateParts,
    id: IntentId,
    now: Moment,
) -> Result<Option<Stored<IntentRecord>>, LateError> {
    Ok(parts.intents.find(id.index(), 1, now).await?.pop())
}

/// Finds the intent of an id, if the holder may act on it.
pub(in crate::late) async fn find_for_holder(
    parts: &LateParts,
    holder: Holder<'_>,
    id: IntentId,
    now: Moment,
) -> Result<Option<Stored<IntentRecord>>, LateError> {
    let found = find_intent(parts, id, now).await?;
    Ok(found.filter(|found| holder.may_act(found.record.key.owner(), &found.value)))
}

/// Reads the content of an intent's result, as JSON. `None` if the intent has no result, or one without content.
pub(in crate::late) async fn read_content(
    parts: &LateParts,
    stored: &Stored<IntentRecord>,
    now: Moment,
) -> Result<Option<String>, LateError> {
    let key = stored.record.key;
    match stored.value.result.as_ref().map(|result| &result.place) {
        Some(ContentPlace::Call(call)) => parts.posted_content(key.owner(), *call, now).await,
        Some(ContentPlace::Own(content)) => {
            let apart = match content {
                StoredContent::Inline(_) => None,
                StoredContent::Apart(_) => {
                    let key = key.with_kind(RecordKind::ResultContent);
                    parts.read_record(key, now).await?
                }
            };
            Ok(whole_content(content.clone(), apart))
        }
        Some(ContentPlace::Nowhere) | None => Ok(None),
    }
}

/// Returns the keys of the records that contain the result of an intent.
pub(in crate::late) fn content_keys(stored: &Stored<IntentRecord>) -> Vec<RecordKey> {
    let key = stored.record.key;
    match stored.value.result.as_ref().map(|result| &result.place) {
        Some(ContentPlace::Call(call)) => [RecordKind::Call, RecordKind::ResultContent]
            .map(|kind| RecordKey::new(kind, key.owner(), *call))
            .to_vec(),
        Some(ContentPlace::Own(StoredContent::Apart(_))) => vec![key.with_kind(RecordKind::ResultContent)],
        Some(ContentPlace::Own(StoredContent::Inline(_)) | ContentPlace::Nowhere) | None => Vec::new(),
    }
}
