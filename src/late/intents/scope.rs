//! The conversations that share the intent of a recorded call.

use super::names::IntentScope;
use crate::{
    auth::Principal,
    late::{LateStore, records::RecordedCall, settings::IntentUse},
    ledger::RecordName,
};

/// Returns the conversations that share the intent of a recorded call, and the session if it is only one.
pub(in crate::late) fn scope_of_call(
    late: &LateStore,
    principal: Principal,
    name: RecordName,
    call: &RecordedCall,
) -> (IntentScope, Option<[u8; 32]>) {
    let is_wide = late.0.parts.settings.tool_settings(&call.tool).intent != IntentUse::Session;
    if is_wide && is_strong_user(late, principal, Principal::from_bytes(call.account)) {
        return (IntentScope::User, None);
    }
    // A guessed session could be that of another user of the same key, so that a lane without a name is the whole scope.
    let session = call.session.or(call.lane).unwrap_or(name);
    (IntentScope::Session, Some(session))
}

/// Returns `true` if the principal is known to be one person, and not everybody who has the account's credential.
pub(in crate::late) fn is_strong_user(late: &LateStore, principal: Principal, account: Principal) -> bool {
    // A user within an account has a principal of its own.
    late.0.parts.settings.principals.is_single || principal != account || late.0.parts.personal.contains(&account)
}
