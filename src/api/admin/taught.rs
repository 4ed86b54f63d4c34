//! Rules that servers have taught: the list, and the command that forgets them.

use super::{
    request::{AdminRequest, AdminResponse, read_ledger, shown},
    views::{
        DateConverter,
        taught::{ForgottenRules, TaughtPage, taught_page},
    },
};

/// Lists rules that servers have taught this process, the last used first
///
/// A rule is a mend of later requests to an upstream for a model. It leaves the list a day after it was last taught, and
/// when the server accepts a request without it.
#[utoipa::path(get, path = "/admin/v1/taught", tag = "watch", responses(
    (status = 200, description = "mends with their use; never content or callers", body = TaughtPage),
))]
pub(super) fn list_taught(request: &AdminRequest) -> AdminResponse {
    shown(&taught_page(&request.parts.telemetry, DateConverter::at_present()))
}

/// Forgets every rule that servers have taught, and every block that they refuse
///
/// In this process at once, and in the ledger. Other replicas forget a caller's rules before its next request.
#[utoipa::path(delete, path = "/admin/v1/taught", tag = "operate", responses(
    (status = 200, description = "the rules are forgotten", body = ForgottenRules),
))]
pub(super) async fn forget_taught(request: AdminRequest) -> AdminResponse {
    let parts = &request.parts;
    let removed = read_ledger("forget what servers have taught", parts.recall.forget_taught()).await?;
    // Last: after a failure the list still shows what is to be forgotten.
    parts.telemetry.forget_taught();
    // A warning, since clients see more refusals for a while.
    tracing::warn!(removed, "an operator had everything forgotten that servers have taught");
    shown(&ForgottenRules { removed })
}
