//! The conversations that share the intent of a recorded call.

use super::names::IntentScope;
use crate::{
    auth::Principal,
    late::{parts::LateParts, records::RecordedCall, settings::IntentUse},
    ledger::RecordName,
};

/// Returns the conversations that share the intent of a recorded call, and the session if it is only one.
pub(in crate::late) fn scope_of_call(
    parts: &LateParts,
    principal: Principal,
    name: RecordName,
    call: &RecordedCall,
) -> (IntentScope, Option<[u8; 32]>) {
    let is_wide = parts.settings.tool_settings(&call.tool).intent != IntentUse::Session;
    if is_wide && parts.is_strong_user(principal, Principal::from_bytes(call.account)) {
        return (IntentScope::User, None);
    }
    // A guessed session could be that of another user of the same key, so that a lane without a name is the whole scope.
    let session = call.session.or(call.lane).unwrap_or(name);
    (IntentScope::Session, Some(session))
}
