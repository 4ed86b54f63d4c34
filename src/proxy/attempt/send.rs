//! One send to the provider: the wait for the response head, and the start of the answer's timeouts.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;

use crate::proxy::{
    client_body::ClientFault, data_path::DataPath, error::ProxyError, exchange_log::ExchangeLog,
    request::RequestContext, response::ProviderAnswer,
};
use crate::{
    clock,
    policy::{
        ExchangeTimeouts,
        stream_timeouts::{StreamTimeouts, is_hurried, within_budget},
    },
    provider::Route,
    upstream::{BoxedBody, SendError},
};

/// The timeout for the response head of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTimeout {
    /// Longest wait.
    pub(super) limit: Duration,
    /// Longest wait if the client had no timeout of its own.
    pub(super) without_client: Duration,
    /// `true` if the client's own timeout shortens the wait so much that its end proves nothing.
    pub(super) is_hurried: bool,
}

impl HeadTimeout {
    /// Returns the timeout for a send that begins when its exchange has taken `elapsed`.
    pub(super) fn for_send(
        timeouts: &ExchangeTimeouts,
        route: &Route<'_>,
        context: &RequestContext,
        elapsed: Duration,
    ) -> Self {
        // Only some providers send the head of a stream before the model has read the prompt.
        let at_once = context.wants_stream && route.sends_head_at_once();
        let mut limit = if at_once {
            timeouts.stream_headers
        } else {
            timeouts.headers
        };
        // A provider may send the head only after it has compacted the history.
        if context.is_compaction {
            limit = limit.max(timeouts.compaction);
        }
        let left = timeouts.total.saturating_sub(elapsed);
        Self {
            // The shortest limit wins, so that the client gets the proxy's error before it gives up itself.
            limit: within_budget(limit, context.client_timeout).min(left),
            without_client: limit.min(left),
            is_hurried: is_hurried(limit, context.client_timeout),
        }
    }
}

/// Sends the request once. Returns the answer when its head has arrived, which must be within the timeout.
pub(super) async fn send_once(
    path: &DataPath,
    route: &Route<'_>,
    context: &RequestContext,
    request: Request<BoxedBody>,
    timeout: HeadTimeout,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let began = log.record_send(timeout.without_client);
    let sent = path.sender.send(request, timeout.limit).await?;
    let read_idle = sent.body().read_idle();
    let sent = sent.map(|body| body.map_err(Into::into).boxed_unsync());
    log.record_head(began);
    // The limit on the whole exchange includes earlier attempts.
    let exchange_began = log.start_time().into_std();
    let timeouts = StreamTimeouts::new(
        &path.settings.timeouts,
        context.is_compaction,
        context.client_timeout,
        exchange_began,
        clock::std_now(),
    );
    Ok(ProviderAnswer::new(
        sent,
        read_idle,
        route,
        path.settings.refusals.clone(),
        timeouts,
    ))
}

/// Turns a failed send into the error of its cause: the client's body, or the upstream.
pub(super) fn to_proxy_error(route: &Route<'_>, error: SendError) -> ProxyError {
    // A streamed body fails inside the HTTP client, which reports it as a failed send.
    if let Some(fault) = error.find_cause::<ClientFault>() {
        return ProxyError::Body(*fault);
    }
    let upstream = format!("{} ({})", route.upstream.name, route.upstream.authority.host());
    ProxyError::Upstream { upstream, error }
}
