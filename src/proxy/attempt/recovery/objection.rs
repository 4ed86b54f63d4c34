//! A provider's error about a request, and the ways to answer it.

use http::StatusCode;

use super::{proposal::Proposal, refused_exchange::RefusedExchange};
use crate::{
    policy::{Class, Observation, classify},
    proxy::{attempt::Attempts, response::ProviderAnswer},
    repair::ContinuityKind,
    wire::{Refusal, RefusalKind},
};

/// One way to change a body that a provider has refused.
///
/// A recovery has no state: the steps of [`SentHistory`](super::SentHistory) tell what it has done before.
pub(super) trait Recovery: Sync {
    /// Returns `true` if the recovery may propose a body. Reads no body.
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool;

    /// Returns the records that must be read from the ledger first.
    fn ledger_need(&self, _objection: &Objection) -> LedgerNeed {
        LedgerNeed::Nothing
    }

    /// Returns the number of bodies that are in memory while the resend is planned.
    fn bodies(&self) -> usize {
        1
    }

    /// Proposes the body to send next. `None` if this recovery has none: the next one is asked.
    fn propose(&self, objection: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal>;
}

/// The records that a recovery reads from the ledger first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LedgerNeed {
    Nothing,
    /// Earlier results of calls that the client has answered in place since.
    EarlierResults,
    /// The items of the response that the request continues from. Another process may have stored them.
    Items,
    /// Values of this kind.
    Values(ContinuityKind),
}

/// A provider's error about a request.
pub(super) struct Objection {
    /// The refusal of the history, with the client's own ids. `None` if the text is not known.
    pub(super) refusal: Option<Refusal>,
    pub(super) status: StatusCode,
    pub(super) class: Class,
    /// Text of the error.
    pub(super) message: Box<str>,
}

impl Objection {
    /// Reads an answer. `None` for a success.
    pub(super) fn read(attempts: &Attempts<'_>, answer: &ProviderAnswer) -> Option<Self> {
        let status = answer.status();
        if status.is_success() {
            return None;
        }
        let error = answer.error_info();
        let verdict = classify(Observation::Response {
            kind: attempts.route.upstream.kind,
            status: status.as_u16(),
            error: &error,
        });
        Some(Self {
            refusal: answer.history_refusal(&attempts.outgoing.body.renamed_ids),
            status,
            class: verdict.class,
            message: error.message,
        })
    }

    /// Returns the kind of the refusal.
    pub(super) fn kind(&self) -> Option<RefusalKind> {
        self.refusal.as_ref().map(|refusal| refusal.kind)
    }
}
