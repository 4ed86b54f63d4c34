//! The names of carried values and of their marks in memory and in the ledger.

use super::{ContinuityScope, ValueName};
use crate::{digest::keyed_digest_of, ledger::RecordName};

/// Returns the name of a value: a hash over its scope and its call, keyed with the principal.
pub(super) fn record_name(scope: ContinuityScope<'_>, (kind, call): ValueName) -> RecordName {
    hash_in_scope(scope, &[kind.label().as_bytes(), call.as_bytes()])
}

/// Returns the name of the mark of a value that was left out.
pub(super) fn left_out_name(scope: ContinuityScope<'_>, (kind, call): ValueName) -> RecordName {
    hash_in_scope(scope, &[b"left_out", kind.label().as_bytes(), call.as_bytes()])
}

/// Returns the name of the mark of a scope.
pub(super) fn scope_name(scope: ContinuityScope<'_>) -> RecordName {
    hash_in_scope(scope, &[b"scope"])
}

fn hash_in_scope(scope: ContinuityScope<'_>, name: &[&[u8]]) -> RecordName {
    let scoped: [&[u8]; 4] = [
        scope.format.label().as_bytes(),
        scope.upstream.as_bytes(),
        scope.model.as_bytes(),
        scope.organisation.as_bytes(),
    ];
    keyed_digest_of(
        scope.caller.principal().as_bytes(),
        scoped.into_iter().chain(name.iter().copied()),
    )
}
