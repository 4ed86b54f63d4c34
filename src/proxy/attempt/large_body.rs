//! Steps of an attempt that read the whole body: heavy work if it is large.

use http::Request;

use super::Attempts;
use crate::{
    proxy::{
        error::ProxyError,
        exchange_log::ExchangeLog,
        heavy_body::{BodySteps, is_heavy_resend},
    },
    upstream::BoxedBody,
};

/// Returns the runner of later steps on the body.
pub(super) fn body_steps<'x>(attempts: &Attempts<'x>, log: &ExchangeLog) -> BodySteps<'x> {
    let path = attempts.path;
    BodySteps {
        work: &path.budgets.work,
        client: attempts.outgoing.body.context.budget_client,
        deadline: log.start_time() + path.settings.timeouts.total,
    }
}

/// Returns the runner of the plan of a resend, and `true` if that is heavy work.
pub(super) fn resend_steps<'x>(attempts: &Attempts<'x>, log: &ExchangeLog) -> (BodySteps<'x>, bool) {
    // All resends are planned from the decoded body, which may be far longer than what was sent.
    let recovery = attempts.recovery.as_ref();
    let is_large = recovery.is_some_and(|recovery| is_heavy_resend(recovery.body_len()));
    (body_steps(attempts, log), attempts.outgoing.body.is_heavy || is_large)
}

/// Returns the first of `phrases` that the request contains, or may contain.
pub(super) async fn find_phrase<'p>(
    attempts: &mut Attempts<'_>,
    phrases: &[&'p str],
    log: &mut ExchangeLog,
) -> Option<&'p str> {
    let (steps, limit) = (body_steps(attempts, log), attempts.path.settings.inspect_bytes_max);
    let outgoing = &mut attempts.outgoing;
    let is_heavy = outgoing.body.is_heavy;
    // Moved: a streamed body cannot be shared between threads.
    let found = steps.take_step(is_heavy, async move { outgoing.find_phrase(phrases, limit) });
    // A body that was not searched may contain anything.
    found.await.unwrap_or_else(|| phrases.first().copied())
}

/// Builds the request with the credential of the present profile, or the client's own.
pub(super) async fn build_request(
    attempts: &mut Attempts<'_>,
    log: &mut ExchangeLog,
) -> Result<Request<BoxedBody>, ProxyError> {
    let steps = body_steps(attempts, log);
    let (path, upstream) = (attempts.path, attempts.route.upstream);
    let profile = attempts
        .profile
        .and_then(|id| path.profiles.profile(&upstream.name, id));
    let signs = profile
        .as_deref()
        .is_some_and(|profile| profile.credential.signs_requests());
    let outgoing = &mut attempts.outgoing;
    // Only a signature reads the body.
    let is_heavy = signs && outgoing.body.is_heavy;
    let mut build = || outgoing.build_http_request(upstream, profile.as_deref());
    let built = if is_heavy {
        // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
        let signed = Box::pin(steps.take_step(true, async { build() })).await;
        signed.ok_or(ProxyError::Deadline)?
    } else {
        build()
    };
    let limit = path.settings.inspect_bytes_max;
    built.map_err(|error| ProxyError::Unsigned { error, limit })
}
