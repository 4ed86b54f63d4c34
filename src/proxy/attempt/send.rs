//! One send to the provider: the wait for the response head, and the start of the answer's timeouts.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;

use crate::proxy::{data_path::DataPath, exchange_log::ExchangeLog, request::RequestContext, response::ProviderAnswer};
use crate::{
    clock,
    policy::stream_timeouts::StreamTimeouts,
    provider::Route,
    upstream::{BoxedBody, SendError},
};

/// Sends the request once. Returns the answer when its head has arrived, which must be within `limit`.
pub(super) async fn send_once(
    path: &DataPath,
    route: &Route<'_>,
    context: &RequestContext,
    request: Request<BoxedBody>,
    limit: Duration,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let began = log.record_send(limit);
    let sent = path.sender.send(request, limit).await?;
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
    Ok(ProviderAnswer::new(sent, route, timeouts))
}
