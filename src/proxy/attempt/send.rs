//! One send: its terms, and the answer's head.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;

use crate::proxy::{data_path::DataPath, exchange_log::ExchangeLog, request::RequestContext, response::ProviderAnswer};
use crate::{
    clock,
    policy::{
        Clocks,
        course::{Course, below},
    },
    provider::Route,
    upstream::{BoxedBody, SendError},
};

/// The terms of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How long the head of the answer may take.
    headers: Duration,
    /// Whether the request asks for nothing but a compaction.
    compacts: bool,
    /// The client's own patience.
    budget: Option<Duration>,
}

impl Terms {
    /// The terms of a request on its route; `spent` is how long the exchange has taken so far.
    pub(super) fn of(context: &RequestContext, route: &Route<'_>, clocks: &Clocks, spent: Duration) -> Self {
        let at_once = context.stream && route.begins_at_once();
        let limit = if at_once { clocks.stream_headers } else { clocks.headers };
        // A compaction takes its time before the first word too.
        let limit = if context.compacts {
            limit.max(clocks.compaction)
        } else {
            limit
        };
        Self {
            headers: below(limit, context.budget).min(clocks.total.saturating_sub(spent)),
            compacts: context.compacts,
            budget: context.budget,
        }
    }
}

/// Sends once. Returns when the head of the answer is there.
pub(super) async fn send_once(
    path: &DataPath,
    route: &Route<'_>,
    request: Request<BoxedBody>,
    terms: &Terms,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let began = log.sends(terms.headers);
    let sent = path.sender.send(request, terms.headers).await?;
    let sent = sent.map(|body| body.map_err(Into::into).boxed_unsync());
    log.head_came(began);
    let of_exchange = log.began().into_std();
    let course = Course::new(
        &path.settings.clocks,
        terms.compacts,
        terms.budget,
        of_exchange,
        clock::instant(),
    );
    Ok(ProviderAnswer::new(sent, route, course))
}
