//! The intent of a recorded call, and the conversations that share it.

use super::{
    parts::LateParts,
    records::{IntentScope, IntentSubject, RecordedCall, intent_name},
    settings::IntentUse,
};
use crate::{auth::Principal, ledger::RecordName};

impl LateParts {
    /// Returns the conversations that share the intent of a recorded call, and the session if it is only one.
    pub(super) fn scope_of_call(
        &self,
        principal: Principal,
        name: RecordName,
        call: &RecordedCall,
    ) -> (IntentScope, Option<[u8; 32]>) {
        let is_wide = self.settings.tool_settings(&call.tool).intent != IntentUse::Session;
        if is_wide && self.is_strong_user(principal, Principal::from_bytes(call.account)) {
            return (IntentScope::User, None);
        }
        // A guessed session could be that of another user of the same key, so that a lane without a name is the whole scope.
        let session = call.session.or(call.lane).unwrap_or(name);
        (IntentScope::Session, Some(session))
    }

    /// Returns the name of the intent that a call belongs to. `None` if it belongs to none.
    pub(super) fn intent_of_call(
        &self,
        principal: Principal,
        name: RecordName,
        call: &RecordedCall,
    ) -> Option<RecordName> {
        if call.intent.is_some() {
            return call.intent;
        }
        // Without a claim only tools that are configured for it have intents.
        if self.settings.tool_settings(&call.tool).intent == IntentUse::Off {
            return None;
        }
        let (_, session) = self.scope_of_call(principal, name, call);
        let input = call.intent_input.as_ref()?;
        Some(intent_name(session.as_ref(), &call.tool, IntentSubject::Input(input)))
    }
}
