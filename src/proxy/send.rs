//! One send: its terms, and the answer's head.

use std::time::Duration;

use http::Request;

use super::{Inner, asked::Asked, record::Record, response::Answer};
use crate::{
    clock,
    policy::{
        Clocks,
        course::{Course, below},
    },
    provider::Route,
    upstream::{SendBody, SendError},
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
    pub(super) fn of(asked: &Asked, route: &Route<'_>, clocks: &Clocks, spent: Duration) -> Self {
        let at_once = asked.stream && route.begins_at_once();
        let limit = if at_once { clocks.stream_headers } else { clocks.headers };
        // A compaction takes its time before the first word too.
        let limit = if asked.compacts {
            limit.max(clocks.compaction)
        } else {
            limit
        };
        Self {
            headers: below(limit, asked.budget).min(clocks.total.saturating_sub(spent)),
            compacts: asked.compacts,
            budget: asked.budget,
        }
    }
}

impl Inner {
    /// One send, up to the answer's head.
    pub(super) async fn once(
        &self,
        route: &Route<'_>,
        request: Request<SendBody>,
        terms: &Terms,
        record: &mut Record,
    ) -> Result<Answer, SendError> {
        let began = record.sends(terms.headers);
        let sent = self.sender.send(request, terms.headers).await?;
        record.head_came(began);
        let of_exchange = record.began().into_std();
        let course = Course::new(
            &self.settings.clocks,
            terms.compacts,
            terms.budget,
            of_exchange,
            clock::instant(),
        );
        Ok(Answer::new(sent, route.wire.map(|wire| wire.format), course))
    }
}
