//! The record of an intent, and its bytes in the ledger.

use std::time::Duration;

use bytes::Bytes;

use super::{
    IntentId, IntentScope, PostedResult, StoredContent, TIERS,
    bytes::{RecordReader, RecordWriter},
    intent_rules,
};
use crate::{
    auth::PrincipalHash,
    ledger::{Index, Moment, RecordKey, RecordKind, RecordName},
    repair::Tier,
    table::RecordValue,
};

/// The format version.
const VERSION: u8 = 1;
const INTENT: u8 = 4;

/// The state of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntentState {
    /// A holder runs the tool.
    Claimed,
    /// The tool ran, and its result is stored.
    Settled,
    /// The tool reported an error.
    Failed,
    /// Its conversation was left, and the holder was asked to undo the effect.
    CancelRequested,
    /// The tool did not run, or its effect was undone.
    Cancelled,
    /// The holder refused to undo the effect, and goes on.
    CancelRefused,
    /// The holder has disappeared, and the effect cannot be undone: it may have happened.
    Unknown,
    /// The holder has disappeared. Another one may run the tool again.
    Expired,
}

impl IntentState {
    /// Every state. Ledger files contain these positions, so a position is never reused.
    pub const ALL: [Self; 8] = [
        Self::Claimed,
        Self::Settled,
        Self::Failed,
        Self::CancelRequested,
        Self::Cancelled,
        Self::CancelRefused,
        Self::Unknown,
        Self::Expired,
    ];

    /// Returns `true` if a holder runs the tool.
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Self::Claimed | Self::CancelRequested | Self::CancelRefused)
    }

    /// Returns the name in answers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Settled => "settled",
            Self::Failed => "failed",
            Self::CancelRequested => "cancel_requested",
            Self::Cancelled => "cancelled",
            Self::CancelRefused => "cancel_refused",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
        }
    }
}

/// The place of a result's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::late) enum ContentPlace {
    /// The record of this call of the same principal.
    Call(RecordName),
    /// The record of the intent, or one of its own.
    Own(StoredContent),
    /// Nowhere: an operator reported that the tool ran.
    Nowhere,
}

/// The result of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::late) struct IntentResult {
    pub(in crate::late) place: ContentPlace,
    /// `true` if the tool reported an error.
    pub(in crate::late) failed: bool,
    /// The hash of the content and of `failed`.
    pub(in crate::late) digest: [u8; 32],
    pub(in crate::late) settled_at: Moment,
}

/// A run of the tool, by its latest holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::late) struct IntentRun {
    /// The time of the first claim, which tells the runs of an intent apart. A second holder of the same run keeps it.
    pub(in crate::late) started_at: Moment,
    /// The hash of the latest claim. `None` if no holder may report: the call was settled
    /// without a claim, or a person has resolved the outcome.
    pub(in crate::late) claim: Option<[u8; 32]>,
    /// The service that holds or has settled it.
    pub(in crate::late) service: String,
    /// The recorded call for which the tool runs.
    pub(in crate::late) call: Option<RecordName>,
    pub(in crate::late) claimed_at: Moment,
    /// The time from which the holder counts as gone.
    pub(in crate::late) lease_until: Moment,
    /// The time that a heartbeat adds, in seconds.
    pub(in crate::late) lease_seconds: u64,
}

/// The record of an intent. Its ledger key contains the principal that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::late) struct IntentRecord {
    /// The account whose services may act on it: that of the caller, or the service's own.
    pub(in crate::late) account: PrincipalHash,
    pub(in crate::late) tool: Vec<u8>,
    pub(in crate::late) tier: Tier,
    pub(in crate::late) scope: IntentScope,
    /// The digest of the canonical input.
    pub(in crate::late) input: [u8; 32],
    /// The time after a settle in which the result is replayed, in seconds.
    pub(in crate::late) window_seconds: u64,
    /// The state as it was written. [`super::rules::state_at`] returns the present one.
    pub(in crate::late) state: IntentState,
    pub(in crate::late) run: IntentRun,
    pub(in crate::late) result: Option<IntentResult>,
}

impl IntentRun {
    /// Returns the run of a call that no holder has claimed.
    pub(in crate::late) const fn of_call(call: RecordName) -> Self {
        Self {
            started_at: Moment::ZERO,
            claim: None,
            service: String::new(),
            call: Some(call),
            claimed_at: Moment::ZERO,
            lease_until: Moment::ZERO,
            lease_seconds: 0,
        }
    }
}

impl IntentRecord {
    /// Settles the intent with the posted result of a call, whose content stays in the call's record.
    pub(in crate::late) fn settle_by_call(&mut self, call: RecordName, posted: &PostedResult) {
        self.run.call = Some(call);
        self.run.service.clone_from(&posted.service);
        self.settle(IntentResult {
            place: ContentPlace::Call(call),
            failed: posted.failed,
            digest: posted.digest,
            settled_at: posted.posted_at,
        });
    }

    /// Settles the intent.
    pub(in crate::late) fn settle(&mut self, result: IntentResult) {
        self.state = if result.failed {
            IntentState::Failed
        } else {
            IntentState::Settled
        };
        self.result = Some(result);
    }
}

impl RecordValue for IntentRecord {
    const KIND: RecordKind = RecordKind::Intent;

    fn encode(&self) -> Bytes {
        // The order of the fields is the file format: `decode` reads them in the same order.
        let mut to = RecordWriter::new(VERSION, INTENT);
        to.write_bytes(&self.account);
        to.write_text(&self.tool);
        to.write_position(&TIERS, self.tier);
        to.write_position(&IntentScope::ALL, self.scope);
        to.write_bytes(&self.input);
        to.write_number(self.window_seconds);
        to.write_position(&IntentState::ALL, self.state);
        let run = &self.run;
        to.write_moment(run.started_at);
        to.write_optional_hash(run.claim.as_ref());
        to.write_text(run.service.as_bytes());
        to.write_optional_hash(run.call.as_ref());
        to.write_moment(run.claimed_at);
        to.write_moment(run.lease_until);
        to.write_number(run.lease_seconds);
        to.write_flag(self.result.is_some());
        if let Some(result) = &self.result {
            match &result.place {
                ContentPlace::Call(name) => {
                    to.write_number(PLACE_CALL);
                    to.write_bytes(name);
                }
                ContentPlace::Own(content) => {
                    to.write_number(PLACE_OWN);
                    content.write_to(&mut to);
                }
                ContentPlace::Nowhere => to.write_number(PLACE_NOWHERE),
            }
            to.write_flag(result.failed);
            to.write_bytes(&result.digest);
            to.write_moment(result.settled_at);
        }
        to.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = RecordReader::new(bytes, VERSION, INTENT)?;
        let intent = Self {
            account: from.read_bytes()?,
            tool: from.read_text()?.to_vec(),
            tier: from.read_position(&TIERS)?,
            scope: from.read_position(&IntentScope::ALL)?,
            input: from.read_bytes()?,
            window_seconds: from.read_number()?,
            state: from.read_position(&IntentState::ALL)?,
            run: IntentRun {
                started_at: from.read_moment()?,
                claim: from.read_optional_hash()?,
                service: from.read_utf8()?,
                call: from.read_optional_hash()?,
                claimed_at: from.read_moment()?,
                lease_until: from.read_moment()?,
                lease_seconds: from.read_number()?,
            },
            result: if from.read_flag()? {
                Some(read_result(&mut from)?)
            } else {
                None
            },
        };
        // Trailing bytes mean damage: a record is read as a whole or not at all.
        from.expect_end()?;
        Some(intent)
    }

    fn index(&self, key: &RecordKey) -> Option<Index> {
        Some(IntentId::of_key(key).index())
    }

    fn expires_at(&self, _now: Moment, _ttl: Duration) -> Moment {
        intent_rules::retained_until(self)
    }
}

const PLACE_CALL: u64 = 0;
const PLACE_OWN: u64 = 1;
const PLACE_NOWHERE: u64 = 2;

fn read_result(from: &mut RecordReader<'_>) -> Option<IntentResult> {
    let place = match from.read_number()? {
        PLACE_CALL => ContentPlace::Call(from.read_bytes()?),
        PLACE_OWN => ContentPlace::Own(StoredContent::read_from(from)?),
        PLACE_NOWHERE => ContentPlace::Nowhere,
        _ => return None,
    };
    Some(IntentResult {
        place,
        failed: from.read_flag()?,
        digest: from.read_bytes()?,
        settled_at: from.read_moment()?,
    })
}
