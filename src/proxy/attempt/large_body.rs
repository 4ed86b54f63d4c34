//! Steps of an attempt that read the whole body: heavy work if it is large.

use http::Request;

use super::Attempts;
use crate::{
    proxy::{
        error::ProxyError,
        exchange_log::ExchangeLog,
        heavy_body::{LaterPasses, is_heavy_resend},
    },
    server::budget::{BodyShare, Overloaded},
    upstream::BoxedBody,
};

/// Memory of a resend that is not counted: 256 KiB.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// Returns the runner of later steps on the body.
pub(super) fn later_passes<'x>(attempts: &Attempts<'x>, log: &ExchangeLog) -> LaterPasses<'x> {
    let path = attempts.path;
    LaterPasses {
        work: &path.budgets.work,
        client: attempts.outgoing.body.context.budget_client,
        deadline: log.start_time() + path.settings.timeouts.total,
    }
}

/// Returns the runner of the plan of a resend, and `true` if that is heavy work.
pub(super) fn resend_passes<'x>(attempts: &Attempts<'x>, log: &ExchangeLog) -> (LaterPasses<'x>, bool) {
    // All resends are planned from the decoded body, which may be far longer than what was sent.
    let history = attempts.history.as_ref();
    let is_large = history.is_some_and(|history| is_heavy_resend(history.body_len()));
    (later_passes(attempts, log), attempts.outgoing.body.is_heavy || is_large)
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
    let (passes, limit) = (later_passes(attempts, log), attempts.path.settings.inspect_bytes_max);
    let plain_len = attempts.history.as_ref().map(|history| history.body_len());
    let outgoing = &mut attempts.outgoing;
    let is_heavy = outgoing.body.is_heavy;
    let mut share = attempts
        .path
        .budgets
        .memory
        .open_scratch(outgoing.body.context.budget_client);
    if is_heavy && share.grow_to(outgoing.search_bytes(limit, plain_len)).await.is_err() {
        return phrases.first().copied();
    }
    // Moved: a streamed body cannot be shared between threads.
    let found = passes.run_pass(is_heavy, async move { outgoing.find_phrase(phrases, limit) });
    // A body that was not searched may contain anything.
    found.await.unwrap_or_else(|| phrases.first().copied())
}

/// Builds the request with the credential of the present profile, or the client's own.
pub(super) async fn build_request(
    attempts: &mut Attempts<'_>,
    log: &mut ExchangeLog,
) -> Result<Request<BoxedBody>, ProxyError> {
    let passes = later_passes(attempts, log);
    let (path, upstream) = (attempts.path, attempts.route.upstream);
    let profile = attempts.profile.and_then(|id| attempts.route.pool.profile(id));
    let signs = profile
        .as_deref()
        .is_some_and(|profile| profile.credential.signs_requests());
    let outgoing = &mut attempts.outgoing;
    // Only a signature reads the body.
    let is_heavy = signs && outgoing.body.is_heavy;
    let mut build = || outgoing.build_http_request(upstream, profile.as_deref());
    let built = if is_heavy {
        // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
        let signed = Box::pin(passes.run_pass(true, async { build() })).await;
        signed.ok_or(ProxyError::Deadline)?
    } else {
        build()
    };
    let limit = path.settings.inspect_bytes_max;
    built.map_err(|error| ProxyError::Unsigned { error, limit })
}
