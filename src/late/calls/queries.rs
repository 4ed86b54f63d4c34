//! Reads of recorded calls and their posted results, for exchanges and for the ledger API.

use std::time::Duration;

use tokio::time::Instant;

use super::{Calls, FoundResult, read_result::ReadResult};
use crate::{
    auth::Caller,
    clock,
    late::{
        LateError,
        contents::{posted_call, whole_content},
        matching,
        page::{ListCursor, Page, PageScan},
        records::{CallQuery, NamedCallRecord, RecordedCall, call_names, delivery_value},
    },
    ledger::{
        LedgerError, Moment, PlacedRecord, ROWS_MAX, Record, RecordKey, RecordKind, RecordName, Unread, read_all,
    },
    repair::is_strong,
    session::LaneId,
    table::{ReadEffort, RecordValue, Stored},
};

/// Timeout of the read behind [`Calls::count_waiting`].
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// The calls of one page.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallFilter {
    /// `true` for calls that still run, `false` for those whose posted result waits for the caller.
    pub is_open: bool,
    /// The hash of the session. `None` for the calls of all sessions.
    pub session: Option<[u8; 32]>,
}

/// A recorded call of a body.
#[derive(Debug)]
pub enum FoundCall {
    /// The call has a posted result.
    Posted(Box<FoundResult>),
    /// The call has none that a request may contain.
    Open(Box<NamedCallRecord>),
}

impl Calls {
    /// Returns the recorded calls among these, in their order, with their posted results. A call is found by a unique id,
    /// else by its id, lane, tool and input.
    pub async fn find_calls(
        &self,
        caller: Caller,
        lane: Option<LaneId>,
        wanted: &[CallQuery],
        by: Instant,
    ) -> Result<Vec<Option<FoundCall>>, Unread> {
        if !self.0.parts.is_used() || wanted.is_empty() {
            return Ok(wanted.iter().map(|_| None).collect());
        }
        let mut found: Vec<Option<FoundCall>> = wanted.iter().map(|_| None).collect();
        // Without a lane a reusable id could be any conversation's, so such a call is not read at all.
        let is_sure = |call: &CallQuery| lane.is_some() || is_strong(&call.id, &call.tool);
        let asked = (0..).zip(wanted).filter(|(_, call)| is_sure(call));
        let named = asked.flat_map(|(at, call)| {
            let names = Self::call_names(lane, call).into_iter();
            names.map(move |name| ((at, call), name))
        });
        let (asked, names): (Vec<(usize, &CallQuery)>, Vec<RecordName>) = named.unzip();
        // The contents come last: the mark of a result that is older than its content is then refused.
        let keys = [call_keys(caller, &names), content_keys(caller, &names)].concat();
        let mut calls = self.0.parts.read_by(keys, by).await?;
        let contents = calls.split_off(names.len());
        let mut is_found = vec![false; wanted.len()];
        for (((at, query), record), content) in asked.into_iter().zip(calls).zip(contents) {
            // The first record that is of this call decides, even if it has no result yet.
            let recorded = record.and_then(Stored::<RecordedCall>::from_record);
            let recorded = recorded.filter(|recorded| matching::is_call_of_body(&recorded.value, query));
            let (Some(recorded), Some(slot), Some(known)) = (recorded, found.get_mut(at), is_found.get_mut(at)) else {
                continue;
            };
            if !std::mem::replace(known, true) {
                *slot = Some(matched_call(&recorded.record, recorded.value, content));
            }
        }
        Ok(found)
    }
}

/// Returns a call with its result, unless a provider has refused that.
fn matched_call(record: &Record, recorded: RecordedCall, apart: Option<Record>) -> FoundCall {
    let read = ReadResult::of_call(record, &recorded);
    let found = recorded.posted.as_ref().zip(read).and_then(|(posted, read)| {
        Some(FoundResult {
            id: recorded.id.clone(),
            content: whole_content(posted.content.clone(), apart)?,
            failed: posted.failed,
            read,
        })
    });
    match found {
        Some(found) => FoundCall::Posted(Box::new(found)),
        None => FoundCall::Open(Box::new((record.key.name, recorded))),
    }
}

impl Calls {
    /// Returns one page of the caller's calls: those with results in posting order, those that still run in the order of
    /// their recording. The first page is after 0.
    pub async fn list_calls(
        &self,
        caller: Caller,
        filter: CallFilter,
        after: u64,
        limit: usize,
    ) -> Result<Page<NamedCallRecord, u64>, LateError> {
        let (principal, now) = (*caller.principal().as_bytes(), clock::unix_time());
        // Deliveries are inserted with their results, so their order is the posting order.
        let kind = if filter.is_open {
            RecordKind::Call
        } else {
            RecordKind::Delivery
        };
        let after = ListCursor {
            principal,
            place: after,
        };
        let mut scan = PageScan::of_caller(
            &*self.0.parts.ledger,
            (kind, ROWS_MAX),
            after,
            limit.clamp(1, ROWS_MAX),
            now,
        );
        while let Some(batch) = scan.next_batch().await? {
            for (place, call) in self.listed_calls(caller, filter, batch, now).await? {
                scan.add_row(place, call);
            }
        }
        Ok(scan.into_page().map_next(|next| next.place))
    }

    /// Returns those calls of a batch of records that the filter wants, each with its place.
    async fn listed_calls(
        &self,
        caller: Caller,
        filter: CallFilter,
        batch: Vec<PlacedRecord>,
        now: Moment,
    ) -> Result<Vec<(u64, NamedCallRecord)>, LateError> {
        let of_session = |call: &RecordedCall| filter.session.is_none() || call.session == filter.session;
        if filter.is_open {
            let runs = |call: &RecordedCall| matching::is_running(call) && call.deadline > now && of_session(call);
            let open = batch.into_iter().filter_map(|(place, record)| {
                let call = RecordedCall::decode(&record.value).filter(runs)?;
                Some((place, (record.key.name, call)))
            });
            return Ok(open.collect());
        }
        let waiting = batch
            .iter()
            .filter(|(_, record)| record.value != delivery_value::RECEIVED);
        let (places, names): (Vec<u64>, Vec<RecordName>) =
            waiting.map(|(place, record)| (*place, record.key.name)).unzip();
        let records = read_all(&*self.0.parts.ledger, call_keys(caller, &names), now).await?;
        let posted = places.into_iter().zip(&records).filter_map(|(place, record)| {
            let call = posted_call(record.as_ref()?)?;
            of_session(&call.1).then_some((place, call))
        });
        Ok(posted.collect())
    }

    /// Returns the results that wait for the caller after the one with the name `last`, or all if that is unknown.
    pub async fn list_waiting_after(
        &self,
        caller: Caller,
        last: RecordName,
    ) -> Result<Vec<NamedCallRecord>, LateError> {
        let (principal, now) = (*caller.principal().as_bytes(), clock::unix_time());
        let (mut after, mut start) = (0, 0);
        loop {
            let ledger = &self.0.parts.ledger;
            let list = ledger.list_after(RecordKind::Delivery, principal, after, ROWS_MAX, now);
            let page = list.await?;
            let Some((end, _)) = page.last() else { break };
            after = *end;
            if let Some((place, _)) = page.iter().find(|(_, record)| record.key.name == last) {
                start = *place;
                break;
            }
        }
        let page = self.list_calls(caller, CallFilter::default(), start, ROWS_MAX).await?;
        Ok(page.rows)
    }

    /// Returns the calls with these names that have a posted result, in posting order, without their contents.
    pub async fn read_posted(
        &self,
        caller: Caller,
        names: &[RecordName],
        by: Instant,
    ) -> Result<Vec<NamedCallRecord>, Unread> {
        let records = self.0.parts.read_by(call_keys(caller, names), by).await?;
        let mut posted: Vec<NamedCallRecord> = records.iter().flatten().filter_map(posted_call).collect();
        posted.sort_by_key(|(_, call)| call.posted.as_ref().map(|posted| posted.posted_at));
        Ok(posted)
    }

    /// Returns the contents of these results, in their order. An entry is `None` if the content has expired.
    pub async fn read_contents(
        &self,
        caller: Caller,
        results: &[NamedCallRecord],
        by: Instant,
    ) -> Result<Vec<Option<String>>, Unread> {
        let names: Vec<RecordName> = results.iter().map(|(name, _)| *name).collect();
        let contents = self.0.parts.read_by(content_keys(caller, &names), by).await?;
        Ok(with_contents(results, contents))
    }

    /// Reads the caller's posted results into memory, once. After a timeout the next exchange goes on.
    ///
    /// With `is_patient` the ledger is asked even in its cooldown, and a shared one again each time: another process may
    /// have acknowledged a result before this one was told of it.
    pub async fn load_posted(&self, caller: Caller, is_patient: bool, by: Instant) -> Result<(), Unread> {
        if !self.0.parts.is_used() || !caller.is_authenticated() {
            return Ok(());
        }
        let effort = if is_patient {
            ReadEffort::Fresh
        } else {
            ReadEffort::Usual
        };
        let read = self.0.posted.load(caller.principal(), effort, by).await;
        self.0.parts.count_unread(read)
    }
}

impl Calls {
    /// Returns the number of results that wait for the caller. Reads them first if memory does not have them.
    pub async fn count_waiting(&self, caller: Caller) -> Result<usize, LateError> {
        let by = clock::now() + COUNT_TIMEOUT;
        // The caller asks for nothing else, so that a cooldown does not count.
        let read = self.0.posted.load(caller.principal(), ReadEffort::Fresh, by).await;
        if self.0.parts.count_unread(read).is_err() {
            // Unknown is not none.
            return Err(LateError::Ledger(LedgerError::Store(Unread.into())));
        }
        Ok(self.waiting_count(caller))
    }

    /// Returns the caller's calls of these ids that have a posted result, in the order of the ids, with the contents.
    /// Reusable ids are never found.
    pub async fn look_up_calls(
        &self,
        caller: Caller,
        ids: &[Vec<u8>],
    ) -> Result<Vec<Option<(NamedCallRecord, String)>>, LateError> {
        // Calls with reusable ids have names of another form, so this read never finds them.
        let strong = ids.iter().map(|id| call_names::strong_call_name(id));
        let names: Vec<RecordName> = strong.collect();
        let now = clock::unix_time();
        let mut keys = call_keys(caller, &names);
        keys.extend(content_keys(caller, &names));
        // One read for both, so that a correction in between cannot mix two results.
        let mut records = read_all(&*self.0.parts.ledger, keys, now).await?;
        let contents = records.split_off(names.len());
        let result = |(record, content): (Option<Record>, Option<Record>)| {
            let (name, call) = posted_call(record.as_ref()?)?;
            let content = whole_content(call.posted.as_ref()?.content.clone(), content)?;
            Some(((name, call), content))
        };
        Ok(records.into_iter().zip(contents).map(result).collect())
    }
}

/// Completes results with the records of their contents.
fn with_contents(results: &[NamedCallRecord], contents: Vec<Option<Record>>) -> Vec<Option<String>> {
    let content = |((_, call), apart): (&NamedCallRecord, Option<Record>)| {
        let posted = call.posted.as_ref()?;
        whole_content(posted.content.clone(), apart)
    };
    results.iter().zip(contents).map(content).collect()
}

/// Returns the keys of the caller's calls with these names.
fn call_keys(caller: Caller, names: &[RecordName]) -> Vec<RecordKey> {
    let key = |name: &RecordName| RecordKey::new(RecordKind::Call, caller.principal(), *name);
    names.iter().map(key).collect()
}

/// Returns the keys of the contents of the caller's results with these names.
fn content_keys(caller: Caller, names: &[RecordName]) -> Vec<RecordKey> {
    let key = |name: &RecordName| RecordKey::new(RecordKind::ResultContent, caller.principal(), *name);
    names.iter().map(key).collect()
}
