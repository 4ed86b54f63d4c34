//! One send to the provider: its timeouts, and the response head.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;

use crate::proxy::{data_path::DataPath, exchange_log::ExchangeLog, request::RequestContext, response::ProviderAnswer};
use crate::{
    clock,
    policy::{
        ExchangeTimeouts,
        stream_timeouts::{StreamTimeouts, within_budget},
    },
    provider::Route,
    upstream::{BoxedBody, SendError},
};

/// The timeouts of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendTimeouts {
    /// Timeout for the response head.
    response_head: Duration,
    /// `true` if the request asks only for a compaction of the history.
    is_compaction: bool,
    /// The client's own timeout. `None` if the client reports none.
    client_timeout: Option<Duration>,
}

impl SendTimeouts {
    /// Returns the timeouts for a request on its route. `spent` is the time since the exchange began.
    pub(super) fn for_request(
        context: &RequestContext,
        route: &Route<'_>,
        clocks: &ExchangeTimeouts,
        spent: Duration,
    ) -> Self {
        // Only some providers send the head of a stream before the model has read the prompt.
        let at_once = context.wants_stream && route.sends_head_at_once();
        let limit = if at_once { clocks.stream_headers } else { clocks.headers };
        // A provider may send the head only after it has compacted the history.
        let limit = if context.is_compaction {
            limit.max(clocks.compaction)
        } else {
            limit
        };
        Self {
            // The shortest limit wins, so that the client gets the proxy's error before it gives up itself.
            response_head: within_budget(limit, context.client_timeout).min(clocks.total.saturating_sub(spent)),
            is_compaction: context.is_compaction,
            client_timeout: context.client_timeout,
        }
    }
}

/// Sends the request once. Returns the answer when its head has arrived.
pub(super) async fn send_once(
    path: &DataPath,
    route: &Route<'_>,
    request: Request<BoxedBody>,
    terms: &SendTimeouts,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let began = log.record_send(terms.response_head);
    let sent = path.sender.send(request, terms.response_head).await?;
    let sent = sent.map(|body| body.map_err(Into::into).boxed_unsync());
    log.record_head(began);
    // The limit on the whole exchange includes earlier attempts.
    let exchange_began = log.start_time().into_std();
    let timeouts = StreamTimeouts::new(
        &path.settings.timeouts,
        terms.is_compaction,
        terms.client_timeout,
        exchange_began,
        clock::std_now(),
    );
    Ok(ProviderAnswer::new(sent, route, timeouts))
}
