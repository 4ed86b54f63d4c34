//! Lists of calls and posted results for operators, across all callers: what waits, for whom and why.
//!
//! One page reads a bounded number of records, bytes and callers. It may therefore have few rows, or none, although more
//! follow after its cursor. No row contains the content of a result or the input of a call.

use std::collections::HashSet;
use std::sync::Arc;

use super::wait_reason::WaitReason;
use crate::{
    auth::{Owner, Principal},
    clock,
    late::{
        LateError,
        calls::Calls,
        matching,
        page::{ListCursor, Page, PageScan},
        parts::LateParts,
        records::{
            ParkedResult, PostedResult, RecordedCall, RecordedCallState, RefusedResult, call_names, delivery_value,
        },
    },
    ledger::{Index, Moment, PlacedRecord, Record, RecordKey, RecordKind},
    repair::Tier,
    table::RecordValue,
};

/// A list for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorList {
    /// Posted results that their callers have not received.
    Waiting,
    /// Calls without any result.
    Running,
    /// Results whose call is not known.
    Parked,
    /// Results that a provider refused, received before or not.
    Withheld,
    /// Results that were refused at their post, or that no call has claimed.
    Evidence,
}

impl OperatorList {
    /// Returns the kind of the records behind the list, and the most of them in one read.
    const fn source(self) -> (RecordKind, usize) {
        match self {
            Self::Waiting => (RecordKind::Delivery, 256),
            Self::Running | Self::Withheld => (RecordKind::Call, 256),
            // A parked result has its content in its record, 8 MiB at most: few are in memory at a time.
            Self::Parked => (RecordKind::Parked, 8),
            // 64 KiB at most.
            Self::Evidence => (RecordKind::RefusedResult, 64),
        }
    }
}

/// A call or a posted result, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedResult {
    /// The place of the row.
    pub cursor: ListCursor,
    /// The owner of the call. `None` if the result has no call.
    pub principal: Option<Principal>,
    /// The account of the owner, without the user. `None` if it is not recorded.
    pub account: Option<Principal>,
    /// The owner that the service named, if the result has no call.
    pub named_owner: Option<Owner>,
    /// The call id.
    pub call_id: Vec<u8>,
    /// The tool. `None` if it is not known.
    pub tool: Option<Vec<u8>>,
    /// The name of the session. `None` if it is not known.
    pub session: Option<Vec<u8>>,
    /// The service that posted the result. `None` if there is no result.
    pub service: Option<String>,
    /// The length of the content in bytes. `None` without a content.
    pub bytes: Option<u64>,
    /// The time of the post, or of the call if there is no result.
    pub since: Moment,
    /// The end of the wait.
    pub until: Moment,
    /// The reason.
    pub reason: WaitReason,
}

/// The lists for operators.
pub struct OperatorLists {
    parts: Arc<LateParts>,
    calls: Calls,
}

impl OperatorLists {
    /// Creates the lists of `calls` and their results.
    pub(in crate::late) fn new(parts: &Arc<LateParts>, calls: &Calls) -> Self {
        Self {
            parts: Arc::clone(parts),
            calls: calls.clone(),
        }
    }

    /// Returns the page after `after`, with `limit` rows at most.
    pub async fn list_results(
        &self,
        list: OperatorList,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Result<Page<ListedResult>, LateError> {
        // Without a service nothing is recorded.
        if !self.parts.is_used() {
            return Ok(Page::EMPTY);
        }
        let reader = RowReader::new(self, list);
        let mut scan = PageScan::of_everyone(&*self.parts.ledger, list.source(), after, limit, reader.now);
        while let Some(mut batch) = scan.next_batch().await? {
            if list == OperatorList::Waiting {
                batch = reader.read_calls(batch).await?;
                scan.count_bytes(batch.iter().map(|(_, record)| record.value.len()).sum());
            }
            for placed in batch {
                if let Some(row) = reader.listed(&placed) {
                    scan.add_row(placed.0, row);
                }
            }
        }
        Ok(scan.into_page())
    }
}

/// Makes rows of records.
struct RowReader<'l> {
    lists: &'l OperatorLists,
    list: OperatorList,
    now: Moment,
    /// Indexes of parked results whose match settles by itself.
    unsettled: HashSet<Index>,
}

impl<'l> RowReader<'l> {
    fn new(lists: &'l OperatorLists, list: OperatorList) -> Self {
        Self {
            lists,
            list,
            now: clock::unix_time(),
            unsettled: if list == OperatorList::Parked {
                lists.calls.unsettled_indexes()
            } else {
                HashSet::new()
            },
        }
    }

    /// Replaces the deliveries that wait by the records of their calls.
    async fn read_calls(&self, page: Vec<PlacedRecord>) -> Result<Vec<PlacedRecord>, LateError> {
        let waiting = page
            .into_iter()
            .filter(|(_, record)| record.value != delivery_value::RECEIVED);
        let key = |(place, record): (u64, Record)| (place, record.key.with_kind(RecordKind::Call));
        let (places, keys): (Vec<u64>, Vec<RecordKey>) = waiting.map(key).unzip();
        let calls = self.lists.parts.ledger.read(keys, self.now).await?;
        let found = places.into_iter().zip(calls);
        Ok(found.filter_map(|(place, call)| Some((place, call?))).collect())
    }

    /// Returns the row of a record. `None` if the record does not belong into the list.
    fn listed(&self, (place, record): &PlacedRecord) -> Option<ListedResult> {
        let cursor = ListCursor {
            principal: record.key.principal,
            place: *place,
        };
        match self.list {
            OperatorList::Waiting | OperatorList::Running | OperatorList::Withheld => self.listed_call(cursor, record),
            OperatorList::Parked => self.listed_parked(cursor, record),
            OperatorList::Evidence => self.listed_evidence(cursor, record),
        }
    }

    fn listed_call(&self, cursor: ListCursor, record: &Record) -> Option<ListedResult> {
        let call = RecordedCall::decode(&record.value)?;
        let (reason, until) = match (self.list, &call.posted) {
            (OperatorList::Waiting, Some(posted)) => (self.waiting_reason(record, &call, posted), record.expires_at),
            // The caller has read an acknowledged result by itself.
            (OperatorList::Withheld, Some(_)) if call.is_withheld && call.state != RecordedCallState::Acked => {
                (WaitReason::Withheld, record.expires_at)
            }
            (OperatorList::Running, None) if matching::is_running(&call) => {
                if call.deadline > self.now {
                    (WaitReason::Running, call.deadline)
                } else if call.expires_at > self.now {
                    (WaitReason::Overdue, call.expires_at)
                } else if call.tier == Tier::OneWay {
                    // An effect that cannot be undone must be reported, however late.
                    (WaitReason::Overdue, record.expires_at)
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        let posted = call.posted.as_ref();
        Some(ListedResult {
            cursor,
            principal: Some(record.key.owner()),
            account: Some(Principal::from_bytes(call.account)),
            named_owner: None,
            service: posted.map(|posted| posted.service.clone()),
            bytes: posted.map(|posted| posted.content.byte_len()),
            since: posted.map_or(call.opened_at, |posted| posted.posted_at),
            until,
            reason,
            call_id: call.id,
            tool: Some(call.tool),
            session: call.session_label.map(|label| label.as_bytes().to_vec()),
        })
    }

    fn waiting_reason(&self, record: &Record, call: &RecordedCall, posted: &PostedResult) -> WaitReason {
        if call.is_withheld {
            WaitReason::Withheld
        } else if self.lists.calls.is_in_request(record, call) {
            WaitReason::InRequest
        } else if posted.attached {
            WaitReason::NoRequest
        } else if self.lists.parts.ledger.survives_restart() {
            WaitReason::NoUserMessage
        } else {
            WaitReason::NeverAppended
        }
    }

    fn listed_parked(&self, cursor: ListCursor, record: &Record) -> Option<ListedResult> {
        let parked = ParkedResult::decode(&record.value)?;
        let own = record.key.owner();
        let reason = if !self.lists.parts.services.iter().any(|service| service.principal == own) {
            WaitReason::NoService
        } else if self.unsettled.contains(&call_names::call_index(&parked.call_id)) {
            WaitReason::UnsettledMatch
        } else {
            WaitReason::NoCall
        };
        Some(ListedResult {
            cursor,
            // The owner of the record is the service.
            principal: None,
            account: None,
            named_owner: parked.owner,
            tool: parked.described.map(|(tool, _)| tool),
            session: parked.session,
            bytes: Some(parked.posted.content.byte_len()),
            since: parked.posted.posted_at,
            until: record.made_at + self.lists.parts.settings.ttl,
            reason,
            call_id: parked.call_id,
            service: Some(parked.posted.service),
        })
    }

    fn listed_evidence(&self, cursor: ListCursor, record: &Record) -> Option<ListedResult> {
        let refused = RefusedResult::decode(&record.value)?;
        let own = record.key.owner();
        // A refused result without a call belongs to its service.
        let is_service = own == Principal::of_service(&self.lists.parts.principals, &refused.posted.service);
        Some(ListedResult {
            cursor,
            principal: Some(own).filter(|_| !is_service),
            account: None,
            named_owner: None,
            tool: None,
            session: None,
            bytes: refused.content_len(),
            since: refused.posted.posted_at,
            until: record.expires_at,
            reason: WaitReason::Refused(refused.reason),
            call_id: refused.call_id,
            service: Some(refused.posted.service),
        })
    }
}
