//! Holders of intents: tool services, and callers that run a tool themselves.

use crate::{
    auth::{Caller, Principal},
    late::{records::IntentRecord, service::Service},
};

/// The name under which records show a caller that runs a tool itself.
const CALLER_NAME: &str = "the caller itself";

/// The one that claims an intent, and reports the end of its run.
#[derive(Clone, Copy, Debug)]
pub enum Holder<'h> {
    /// A tool service.
    Service(&'h Service),
    /// A caller that runs the tool itself: the user of `antiphon once`.
    Caller(Caller),
}

impl Holder<'_> {
    /// Returns the name, for records and lists.
    pub fn name(&self) -> &str {
        match self {
            Self::Service(service) => &service.name,
            Self::Caller(_) => CALLER_NAME,
        }
    }

    /// Returns `true` if the holder may read and report on an intent of this principal.
    pub(in crate::late) fn may_act(&self, principal: Principal, intent: &IntentRecord) -> bool {
        match self {
            Self::Service(service) => {
                let account = Principal::from_bytes(intent.account);
                // Without a call it belongs to its claimant alone: a service's users are nobody else's.
                let is_of_call = intent.run.call.is_some();
                account == service.principal || (is_of_call && service.may_answer(account, &intent.tool))
            }
            Self::Caller(caller) => caller.principal() == principal,
        }
    }
}
