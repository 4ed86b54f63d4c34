//! Marks of posted results that requests contain: from then on no service corrects or withdraws them, in any process.

use std::collections::HashSet;

use tokio::time::{Instant, timeout_at};

use super::{Calls, read_result::ReadResult};
use crate::{
    auth::Caller,
    clock,
    late::{
        LateError,
        contents::{posted_call, whole_content},
        records::{NamedCallRecord, PostedResult, RecordedCall},
    },
    ledger::{CommitStep, Moment, Record, RecordKey, RecordKind, RecordName, Unread, read_all, retry_conflicts},
    table::RecordValue,
};

impl Calls {
    /// Reads these results once more, with their contents, for a request that is to contain them. An entry is `None` if its
    /// result has changed meanwhile, or its content has expired.
    pub async fn read_for_request(
        &self,
        caller: Caller,
        results: &[NamedCallRecord],
        by: Instant,
    ) -> Result<Vec<Option<(String, ReadResult)>>, Unread> {
        let of_kind = |kind| {
            let names = results.iter().map(|(name, _)| *name);
            names.map(move |name| RecordKey::new(kind, caller.principal(), name))
        };
        let keys = of_kind(RecordKind::Call).chain(of_kind(RecordKind::ResultContent));
        let mut calls = self.0.parts.read_by(keys.collect(), by).await?;
        let contents = calls.split_off(results.len());
        let read = |(record, apart): (Option<Record>, Option<Record>)| {
            let record = record?;
            let (_, call) = posted_call(&record)?;
            let read = ReadResult::of_call(&record, &call)?;
            Some((whole_content(call.posted?.content, apart)?, read))
        };
        let is_same = |(_, call): &NamedCallRecord, read: &ReadResult| {
            let posted = call.posted.as_ref();
            posted.is_some_and(|posted| posted.digest == read.digest())
        };
        let read = calls.into_iter().zip(contents).map(read).zip(results);
        let same = read.map(|(read, result)| read.filter(|(_, read)| is_same(result, read)));
        Ok(same.collect())
    }

    /// Marks posted results as contained in a request, before it is sent. Returns the names of those that are marked: the
    /// others were corrected, withdrawn or withheld since they were read.
    ///
    /// In a ledger of this process alone a failed write is no obstacle: the mark is kept in memory, where every correction
    /// finds it.
    pub async fn mark_in_request(&self, results: &[ReadResult], by: Instant) -> Result<HashSet<RecordName>, Unread> {
        if let Ok(Ok(marked)) = timeout_at(by, self.write_marks(results)).await {
            return Ok(marked);
        }
        if !self.0.parts.ledger.is_exclusive() {
            return self.0.parts.count_unread(Err(Unread));
        }
        for result in results {
            self.0.in_requests.insert(result.key(), result.digest());
        }
        Ok(results.iter().map(|result| *result.call()).collect())
    }

    /// Returns `true` if a request contains the posted result of a call, so that it cannot change any more.
    pub(in crate::late) fn is_in_request(&self, record: &Record, call: &RecordedCall) -> bool {
        let digest = |posted: &PostedResult| posted.digest;
        let is_noted = || self.0.in_requests.get(&record.key) == call.posted.as_ref().map(digest);
        call.posted.is_some() && !call.is_withheld && (call.is_in_request || is_noted())
    }

    async fn write_marks(&self, results: &[ReadResult]) -> Result<HashSet<RecordName>, LateError> {
        // They were read a moment ago, so that mostly no second read is needed.
        if let Some(marked) = self.try_marks(results, clock::unix_time()).await? {
            return Ok(marked);
        }
        retry_conflicts(|| async {
            let now = clock::unix_time();
            // Another writer has changed a call: its result may be the same all the same.
            let keys = results.iter().map(|result| *result.key()).collect();
            let records = read_all(&*self.0.parts.ledger, keys, now).await?;
            let read = |record: Record| ReadResult::of_call(&record, &RecordedCall::decode(&record.value)?);
            let found = records.into_iter().map(|record| record.and_then(read));
            let same = results
                .iter()
                .zip(found)
                .filter_map(|(before, found)| found.filter(|found| found.digest() == before.digest()));
            self.try_marks(&same.collect::<Vec<_>>(), now).await
        })
        .await
    }

    /// Marks results, and returns the names of their calls. Returns `None` if another writer has changed one of them.
    async fn try_marks(&self, results: &[ReadResult], now: Moment) -> Result<Option<HashSet<RecordName>>, LateError> {
        // A body may show one call twice.
        let mut seen = HashSet::new();
        let marks = results.iter().filter(|result| seen.insert(*result.call()));
        let marks: Vec<CommitStep> = marks.filter_map(|result| result.mark().cloned()).collect();
        let is_done = marks.is_empty() || self.0.parts.commit(marks, now).await?;
        Ok(is_done.then_some(seen))
    }
}
