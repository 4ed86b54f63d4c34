//! The body that is sent instead of the client's, and what a resend needs of it.

use bytes::Bytes;
use http_body::Body as _;

use super::{call_lookup::CallLookup, context::RequestContext, pending_pins::PendingPins};
use crate::{
    proxy::{
        continuity::RequestContinuity,
        heavy_body::is_heavy_pass,
        late_results::{LastText, LateResults},
        mends::BodyMends,
        response_chain::ChainRequest,
    },
    recall::{FactKey, RecallScope},
    repair::{Action, DisputedShape, LearnedRules, RepairReport},
    server::budget::BodyShare,
    splice::Segments,
    telemetry::events::MadeMend,
    upstream::BoxedBody,
    wire::Wire,
};

/// Body that is sent instead of the client's: as it was planned, or as it came.
pub(in crate::proxy) struct PlannedBody {
    pub(in crate::proxy) payload: Payload,
    /// `true` if each later pass over the whole body is heavy work.
    pub(in crate::proxy) is_heavy: bool,
    /// `true` if a compressed body is sent decompressed.
    pub(in crate::proxy) is_decoded: bool,
    /// Ids that were replaced: (new, old).
    pub(in crate::proxy) renamed_ids: Vec<(String, String)>,
    /// Data for a resend. `None` if the provider's first answer is final.
    pub(in crate::proxy) sent_body: Option<Box<SentBody>>,
    /// Memory that the repair takes beside the client's bytes. `None` if it is little.
    pub(super) repair_memory: Option<BodyShare>,
    /// Memory that a resend takes beside that. `None` if there was none, or if it is little.
    pub(in crate::proxy) resend_memory: Option<BodyShare>,
    /// Pins of its calls. `None` if the request may pin nothing.
    pub(in crate::proxy) pins: Option<Box<PendingPins>>,
    /// The late text of the last message. `None` if it has none.
    pub(in crate::proxy) last_text: Option<Box<LastText>>,
    /// Late results of the exchange. `None` if the body was not read.
    pub(in crate::proxy) late_results: Option<LateResults>,
    /// Values that the provider wants back. `None` if it wants none.
    pub(in crate::proxy) continuity: Option<RequestContinuity>,
    /// Items of the request, which its answer continues. `None` unless the answer gets an id.
    pub(in crate::proxy) chain: Option<ChainRequest>,
    /// Number of late results at the end of its messages.
    pub(in crate::proxy) appended: usize,
    /// `true` if the body contains the setting for bound thinking, which needs a header.
    pub(in crate::proxy) needs_binding_beta: bool,
    pub(in crate::proxy) context: Box<RequestContext>,
}

impl PlannedBody {
    /// Creates a body that is sent as it is.
    pub(in crate::proxy) fn from_payload(payload: Payload, context: Box<RequestContext>) -> Self {
        Self {
            is_heavy: payload.is_heavy(),
            payload,
            is_decoded: false,
            renamed_ids: Vec::new(),
            sent_body: None,
            repair_memory: None,
            resend_memory: None,
            pins: None,
            last_text: None,
            late_results: None,
            continuity: None,
            chain: None,
            appended: 0,
            needs_binding_beta: false,
            context,
        }
    }

    /// Adds everything that the plan of the present body does not count: values that were put back, the removal of a
    /// dead id, and late results.
    pub(in crate::proxy) fn add_to_report(&self, report: &mut RepairReport) {
        if let Some(continuity) = &self.continuity {
            continuity.add_to_report(report);
        }
        if let Some(chain) = &self.chain {
            chain.add_to_report(report);
        }
        if self.appended > 0 {
            report.actions.insert(Action::Append, self.appended);
        }
    }

    /// Replaces the bytes to send.
    pub(super) fn replace_payload(&mut self, payload: Payload) {
        self.is_heavy = payload.is_heavy();
        self.payload = payload;
    }

    /// Returns `true` if the ledger did not answer in time, so that the body may contradict what was sent before.
    pub(super) fn is_unread(&self) -> bool {
        self.sent_body.as_deref().is_some_and(|sent| sent.is_unread)
    }

    /// Returns `true` if every finding of its report is mended by a result that a tool service has posted, in the place of
    /// its call.
    pub(super) fn is_completed_by_posted_results(&self, report: &RepairReport) -> bool {
        let restored = report.actions.get(&Action::Restore).copied().unwrap_or_default();
        let is_restored = restored == report.findings.len() && report.actions.len() == 1;
        let knows_posted_only = |sent: &SentBody| sent.lookup.knows_posted_only();
        is_restored && self.appended == 0 && self.sent_body.as_deref().is_some_and(knows_posted_only)
    }

    /// Returns `true` if the body may contain posted results that no provider has accepted yet.
    pub(in crate::proxy) fn has_posted_results(&self) -> bool {
        let has_restored = |pins: &PendingPins| !pins.posted_calls.is_empty();
        self.last_text.is_some() || self.pins.as_deref().is_some_and(has_restored)
    }
}

/// Bytes of a request's body.
pub(in crate::proxy) enum Payload {
    /// In memory: can be sent again.
    InMemory(Segments),
    /// Streamed from the client: can be sent once. `None` after that.
    Streamed(Option<BoxedBody>),
}

impl Payload {
    /// Returns the length in bytes. `None` if it is not known.
    pub(in crate::proxy) fn byte_len(&self) -> Option<u64> {
        match self {
            Self::InMemory(body) => Some(body.len() as u64),
            Self::Streamed(body) => body.as_ref().and_then(|body| body.size_hint().exact()),
        }
    }

    /// Returns `true` if a pass over the whole body is heavy work.
    pub(super) fn is_heavy(&self) -> bool {
        // A streamed body is never in memory as a whole.
        matches!(self, Self::InMemory(body) if is_heavy_pass(body.len()))
    }
}

/// Body that was sent, with everything that a resend needs. Its resends change it.
pub(in crate::proxy) struct SentBody {
    /// Client's body, decoded, with late results at the end of messages and the values that it got back.
    pub(in crate::proxy) plain: Bytes,
    /// The same without the values that it got back. `None` if it got none.
    pub(in crate::proxy) unfilled: Option<Bytes>,
    /// Bytes of memory that reading the body takes: 0 if it is little.
    pub(in crate::proxy) reading_bytes: usize,
    /// `true` if the last message that may contain late results has some.
    pub(in crate::proxy) ends_with_late: bool,
    /// `true` if the ledger did not answer in time, so that the body may contradict what was sent before.
    pub(super) is_unread: bool,
    /// Bytes that were sent last. Those of a trial count once the provider has accepted them.
    pub(in crate::proxy) body: Segments,
    /// Results that were known for the calls of the first send.
    pub(in crate::proxy) lookup: CallLookup,
    pub(in crate::proxy) wire: Wire,
    /// Rules beyond the dialect's that the body follows: known before, or taught by its refusals.
    pub(in crate::proxy) learned: LearnedRules,
    /// Mends of the body: taught before, or by its refusals. `body` is without them.
    pub(in crate::proxy) mends: BodyMends,
    /// Those of them that were made for the last send.
    pub(in crate::proxy) made: Vec<MadeMend>,
    /// Model that the request names. `None` if it names none.
    pub(in crate::proxy) model: Option<String>,
    /// Disputed shapes of the conversation, as the client wrote it.
    pub(in crate::proxy) shapes: Vec<(DisputedShape, FactKey)>,
    /// Owner of the results that are pinned to its calls.
    pub(in crate::proxy) scope: RecallScope,
}
