//! The contents of posted results: in the record of their call, or in one of their own.

use super::{
    LateError,
    parts::LateParts,
    records::{NamedCallRecord, RecordedCall, StoredContent},
};
use crate::{
    auth::Principal,
    clock,
    ledger::{CommitStep, Moment, Record, RecordKey, RecordKind, RecordName},
    table::RecordValue,
};

impl LateParts {
    /// Returns the content of the result that was posted for a call. `None` if there is none.
    pub(super) async fn posted_content(
        &self,
        principal: Principal,
        name: RecordName,
        now: Moment,
    ) -> Result<Option<String>, LateError> {
        let keys = [RecordKind::Call, RecordKind::ResultContent].map(|kind| RecordKey::new(kind, principal, name));
        let records = self.ledger.read(keys.to_vec(), now).await?;
        let mut records = records.into_iter();
        let (call, content) = (records.next().flatten(), records.next().flatten());
        let posted = call.as_ref().and_then(posted_call).and_then(|(_, call)| call.posted);
        Ok(posted.and_then(|posted| whole_content(posted.content, content)))
    }

    /// Returns the step that stores the content of a result apart, or removes that of the result that it corrects.
    /// `owner` is the key of its call or intent.
    pub(super) async fn content_step(
        &self,
        owner: RecordKey,
        content: Option<String>,
        until: Moment,
    ) -> Result<Option<CommitStep>, LateError> {
        let key = owner.with_kind(RecordKind::ResultContent);
        let existing = self.read_record(key, clock::unix_time()).await?;
        Ok(match (content, existing) {
            (Some(content), existing) => Some(CommitStep::put_record(key, existing.as_ref(), content.into(), until)),
            (None, Some(record)) => Some(record.remove_step()),
            (None, None) => None,
        })
    }
}

/// Returns the content of a result. `None` if it was in a record of its own that does not exist any more.
pub(super) fn whole_content(stored: StoredContent, apart: Option<Record>) -> Option<String> {
    match stored {
        StoredContent::Inline(content) => Some(content),
        StoredContent::Apart(_) => String::from_utf8(apart?.value.to_vec()).ok(),
    }
}

/// Decodes a call. Returns `None` if it has no posted result.
pub(super) fn posted_call(record: &Record) -> Option<NamedCallRecord> {
    let call = RecordedCall::decode(&record.value)?;
    call.posted.is_some().then_some((record.key.name, call))
}
