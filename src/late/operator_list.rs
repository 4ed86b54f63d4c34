//! Lists of calls and posted results for operators, across all callers: what waits, for whom and why.
//!
//! One page reads a bounded number of records, bytes and callers. It may therefore have few rows, or none, although more
//! follow after its cursor. No row contains the content of a result or the input of a call.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    LateError, LateStore, matching, parking,
    pending::delivery_value,
    record_names,
    records::{ParkedResult, PostedResult, RecordedCall, RecordedCallState, RefusedResult},
    request_marks::is_in_request,
    wait_reason::WaitReason,
};
use crate::{
    auth::{Owner, Principal, PrincipalHash},
    clock,
    ledger::{Index, Moment, PlacedRecord, Record, RecordKey, RecordKind},
    repair::Tier,
};

/// Records that one page reads at most.
const RECORDS_MAX: usize = 4096;
/// Bytes of records after which a page ends: 32 MiB.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Lists of records that one page reads at most: at least one for each caller.
const READS_MAX: usize = 512;
/// Time after which a page ends.
const READ_TIME: Duration = Duration::from_secs(1);
/// Callers that one read returns.
const PRINCIPALS_READ: usize = 64;

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

/// The place of a row. A page begins after such a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCursor {
    /// The owner of the record.
    pub principal: PrincipalHash,
    /// The place of the record.
    pub place: u64,
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

/// One page of a list, by caller and then by age, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorPage {
    /// The rows.
    pub rows: Vec<ListedResult>,
    /// The cursor of the next page. `None` if this is the last.
    pub next: Option<ListCursor>,
}

/// Returns the page after `after`, with `limit` rows at most.
pub async fn list_for_operator(
    late: &LateStore,
    list: OperatorList,
    after: Option<ListCursor>,
    limit: usize,
) -> Result<OperatorPage, LateError> {
    // Without a service nothing is recorded.
    if !late.is_used() {
        return Ok(OperatorPage::default());
    }
    let (kind, _) = list.source();
    let mut scan = ListScan::new(late, list, limit);
    // The caller of the last row may have more.
    let mut principals: VecDeque<PrincipalHash> = after.iter().map(|after| after.principal).collect();
    let mut last = after.map(|after| after.principal);
    let mut place = after.map_or(0, |after| after.place);
    loop {
        let Some(principal) = principals.pop_front() else {
            let more = late.0.ledger.list_principals(kind, last, PRINCIPALS_READ).await?;
            if more.is_empty() {
                return Ok(scan.into_page(None));
            }
            principals = more.into();
            continue;
        };
        if let Some(next) = scan.read_principal(principal, place).await? {
            return Ok(scan.into_page(Some(next)));
        }
        (last, place) = (Some(principal), 0);
    }
}

/// The reading of one page.
struct ListScan<'l> {
    late: &'l LateStore,
    list: OperatorList,
    limit: usize,
    rows: Vec<ListedResult>,
    now: Moment,
    /// Indexes of parked results whose match settles by itself.
    unsettled: HashSet<Index>,
    reads: usize,
    records: usize,
    bytes: usize,
    ends_at: Instant,
}

impl<'l> ListScan<'l> {
    fn new(late: &'l LateStore, list: OperatorList, limit: usize) -> Self {
        Self {
            late,
            list,
            limit,
            rows: Vec::new(),
            now: clock::unix_time(),
            unsettled: if list == OperatorList::Parked {
                late.0.settle_queue.queued_indexes()
            } else {
                HashSet::new()
            },
            reads: 0,
            records: 0,
            bytes: 0,
            ends_at: clock::now() + READ_TIME,
        }
    }

    /// Reads the records of one owner after `place`. Returns the cursor after which the page ends, or `None` once all
    /// were read.
    async fn read_principal(
        &mut self,
        principal: PrincipalHash,
        mut place: u64,
    ) -> Result<Option<ListCursor>, LateError> {
        let (kind, batch) = self.list.source();
        loop {
            if self.is_spent() {
                return Ok(Some(ListCursor { principal, place }));
            }
            let ledger = &self.late.0.ledger;
            let page = ledger.list_after(kind, principal, place, batch, self.now).await?;
            self.reads += 1;
            self.records += page.len();
            self.bytes += page.iter().map(|(_, record)| record.value.len()).sum::<usize>();
            let Some((last, _)) = page.last() else {
                return Ok(None);
            };
            place = *last;
            let is_last = page.len() < batch;
            self.append_rows(page).await?;
            // One row more than wanted tells that there is a next page.
            if self.rows.len() > self.limit {
                self.rows.truncate(self.limit);
                return Ok(self.rows.last().map(|row| row.cursor));
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    /// Returns `true` if the page has read enough.
    fn is_spent(&self) -> bool {
        self.reads >= READS_MAX
            || self.records >= RECORDS_MAX
            || self.bytes >= BYTES_MAX
            || clock::now() >= self.ends_at
    }

    async fn append_rows(&mut self, page: Vec<PlacedRecord>) -> Result<(), LateError> {
        let page = match self.list {
            OperatorList::Waiting => self.read_calls(page).await?,
            _ => page,
        };
        let rows: Vec<ListedResult> = page.iter().filter_map(|placed| self.listed(placed)).collect();
        self.rows.extend(rows);
        Ok(())
    }

    /// Replaces the deliveries that wait by the records of their calls.
    async fn read_calls(&mut self, page: Vec<PlacedRecord>) -> Result<Vec<PlacedRecord>, LateError> {
        let waiting = page
            .into_iter()
            .filter(|(_, record)| record.value != delivery_value::RECEIVED);
        let key = |(place, record): (u64, Record)| {
            let call = RecordKey {
                kind: RecordKind::Call,
                ..record.key
            };
            (place, call)
        };
        let (places, keys): (Vec<u64>, Vec<RecordKey>) = waiting.map(key).unzip();
        let calls = self.late.0.ledger.read(keys, self.now).await?;
        let found: Vec<PlacedRecord> = places
            .into_iter()
            .zip(calls)
            .filter_map(|(place, call)| Some((place, call?)))
            .collect();
        self.bytes += found.iter().map(|(_, record)| record.value.len()).sum::<usize>();
        Ok(found)
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
            principal: Some(Principal::from_bytes(record.key.principal)),
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
        let late = &self.late.0;
        if call.is_withheld {
            WaitReason::Withheld
        } else if is_in_request(self.late, record, call) {
            WaitReason::InRequest
        } else if posted.attached {
            WaitReason::NoRequest
        } else if late.ledger.survives_restart() {
            WaitReason::NoUserMessage
        } else {
            WaitReason::NeverAppended
        }
    }

    fn listed_parked(&self, cursor: ListCursor, record: &Record) -> Option<ListedResult> {
        let parked = ParkedResult::decode(&record.value)?;
        let own = Principal::from_bytes(record.key.principal);
        let reason = if !self.late.services().iter().any(|service| service.principal == own) {
            WaitReason::NoService
        } else if self.unsettled.contains(&record_names::call_index(&parked.call_id)) {
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
            until: parking::parked_until(self.late, record.made_at),
            reason,
            call_id: parked.call_id,
            service: Some(parked.posted.service),
        })
    }

    fn listed_evidence(&self, cursor: ListCursor, record: &Record) -> Option<ListedResult> {
        let refused = RefusedResult::decode(&record.value)?;
        let own = Principal::from_bytes(record.key.principal);
        // A refused result without a call belongs to its service.
        let is_service = own == Principal::of_service(&self.late.0.principals, &refused.posted.service);
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

    fn into_page(self, next: Option<ListCursor>) -> OperatorPage {
        OperatorPage { rows: self.rows, next }
    }
}
