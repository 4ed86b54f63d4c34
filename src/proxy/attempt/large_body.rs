//! Steps of an attempt that read the whole body: heavy work if it is large.

use http::Request;

use super::Attempts;
use crate::{
    proxy::{error::ProxyError, exchange_log::ExchangeLog, heavy_body::is_heavy_resend},
    server::budget::{BodyPass, BodyShare, Overloaded},
    upstream::BoxedBody,
};

/// Memory of a resend that is not counted: 256 KiB.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// Returns a later pass over the body, which waits for its place until the end of the exchange's time.
pub(super) fn later_pass(attempts: &Attempts<'_>, log: &ExchangeLog) -> BodyPass {
    let deadline = log.start_time() + attempts.path.settings.timeouts.total;
    BodyPass::Later { deadline }
}

/// Returns the pass that plans a resend.
pub(super) fn resend_pass(attempts: &Attempts<'_>, log: &ExchangeLog) -> BodyPass {
    // All resends are planned from the decoded body, which may be far longer than what was sent.
    let history = attempts.history.as_ref();
    let is_large = history.is_some_and(|history| is_heavy_resend(history.body_len()));
    later_pass(attempts, log).if_heavy(attempts.outgoing.body.is_heavy || is_large)
}

/// Takes the memory for planning a resend: what the reading takes, and a copy of the body, `times` times. Waits without a
/// place in heavy work.
pub(super) async fn take_resend_memory(attempts: &mut Attempts<'_>, times: usize) -> Result<(), Overloaded> {
    let history = attempts.history.as_ref();
    let bytes = history.map_or(0, |history| history.resend_bytes().saturating_mul(times));
    if bytes > UNCOUNTED_BYTES_MAX {
        // Several resends of one request share it: the later ones replace the body of the earlier.
        let share = take_memory(attempts, bytes).await?;
        attempts.outgoing.body.resend_memory = Some(share);
    }
    Ok(())
}

/// Gives back the memory for the plan of a resend. If there `is_resend`, that for the copy of the body stays taken.
pub(super) fn end_resend_plan(attempts: &mut Attempts<'_>, is_resend: bool) {
    let copied = attempts.history.as_ref().filter(|_| is_resend);
    let copied = copied.map_or(0, |history| history.body_len());
    if let Some(share) = &mut attempts.outgoing.body.resend_memory {
        share.keep_as_copy(copied);
    }
}

async fn take_memory(attempts: &mut Attempts<'_>, bytes: usize) -> Result<BodyShare, Overloaded> {
    let body = &mut attempts.outgoing.body;
    let opened = || attempts.path.budgets.memory.open_scratch(body.context.budget_client);
    let mut share = body.resend_memory.take().unwrap_or_else(opened);
    share.grow_to(bytes).await?;
    Ok(share)
}

/// Returns the first of `phrases` that the request contains, or may contain.
pub(super) async fn find_phrase<'p>(
    attempts: &mut Attempts<'_>,
    phrases: &[&'p str],
    log: &mut ExchangeLog,
) -> Option<&'p str> {
    let (pass, budgets) = (later_pass(attempts, log), &attempts.path.budgets);
    let limit = attempts.path.settings.inspect_bytes_max;
    let plain_len = attempts.history.as_ref().map(|history| history.body_len());
    let outgoing = &mut attempts.outgoing;
    let (is_heavy, client) = (outgoing.body.is_heavy, outgoing.body.context.budget_client);
    let mut share = budgets.memory.open_scratch(client);
    if is_heavy && share.grow_to(outgoing.search_bytes(limit, plain_len)).await.is_err() {
        return phrases.first().copied();
    }
    // Moved: a streamed body cannot be shared between threads.
    let search = async move { outgoing.find_phrase(phrases, limit) };
    let found = budgets.work.run(client, pass.if_heavy(is_heavy), search).await;
    // A body that was not searched may contain anything.
    found.unwrap_or_else(|_| phrases.first().copied())
}

/// Returns the name of the tool with this index in the request.
pub(super) async fn find_tool(attempts: &mut Attempts<'_>, index: usize, log: &mut ExchangeLog) -> Option<String> {
    let (pass, budgets) = (later_pass(attempts, log), &attempts.path.budgets);
    let client = attempts.outgoing.body.context.budget_client;
    let history = attempts.history.as_deref_mut()?;
    let pass = pass.if_heavy(is_heavy_resend(history.body_len()));
    let search = async move { history.tool_name(index) };
    budgets.work.run(client, pass, search).await.ok().flatten()
}

/// Builds the request with the credential of the present profile, or the client's own.
pub(super) async fn build_request(
    attempts: &mut Attempts<'_>,
    log: &mut ExchangeLog,
) -> Result<Request<BoxedBody>, ProxyError> {
    let pass = later_pass(attempts, log);
    let (path, upstream) = (attempts.path, attempts.route.upstream);
    let profile = attempts.profile.and_then(|id| attempts.route.pool.profile(id));
    let signs = profile
        .as_deref()
        .is_some_and(|profile| profile.credential.signs_requests());
    let outgoing = &mut attempts.outgoing;
    let client = outgoing.body.context.budget_client;
    // Only a signature reads the body.
    let is_heavy = signs && outgoing.body.is_heavy;
    let mut build = || outgoing.build_http_request(upstream, profile.as_deref());
    let built = if is_heavy {
        let signed = path.budgets.work.run(client, pass, async { build() }).await;
        signed.map_err(|_| ProxyError::Deadline)?
    } else {
        build()
    };
    let limit = path.settings.inspect_bytes_max;
    built.map_err(|error| ProxyError::Unsigned { error, limit })
}
