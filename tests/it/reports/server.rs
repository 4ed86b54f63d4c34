//! The server of a report, and the proxies before it.

use antiphon::wire::Wire;

use super::files::{Report, answer};
use crate::{
    replicas::pair::{Replicas, only_upstream},
    support::{
        judge,
        provider::Settings,
        still::{self, Step},
        wire::Message,
    },
};

/// One request as the server has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    /// The status of the client's answer.
    pub(super) status: u16,
    /// The bodies of the sends.
    pub(super) bodies: Vec<String>,
    /// The client's answer.
    pub(super) answer: String,
}

impl Exchange {
    /// Returns the body of the last send.
    pub(super) fn last(&self) -> &str {
        self.bodies.last().map_or("", String::as_str)
    }
}

/// Two replicas over one ledger before the server of a report.
pub(super) struct Stage {
    pub(super) replicas: Replicas,
    path: String,
}

impl Stage {
    /// Starts them before the report's server, which refuses what the report says and what its format forbids.
    pub(super) fn strict(report: &'static Report) -> Self {
        let wire = report.wire();
        Self::before(report, move |request| {
            if let Some((status, error)) = report.refuse(&request.head, &request.body) {
                return still::json(status, &error);
            }
            judged(wire, &request.body)
        })
    }

    /// Starts them before a server that accepts everything.
    pub(super) fn accepting(report: &'static Report) -> Self {
        let format = report.wire().format;
        Self::before(report, move |_| still::json(200, &answer(format).to_string()))
    }

    /// Starts them before another server.
    pub(super) fn before(report: &Report, serve: impl FnMut(&Message) -> Vec<Step> + Send + 'static) -> Self {
        let upstream = only_upstream(report.kind());
        let replicas = Replicas::new(Settings::default(), move |builder| {
            upstream(builder);
            builder.keeps_seen = true;
        });
        replicas.answer_by(serve);
        Self {
            replicas,
            path: format!("/x{}", report.path),
        }
    }

    /// Sends a body to a replica.
    pub(super) async fn send(&self, at: usize, key: &str, body: &str) -> Exchange {
        let before = self.replicas.world(0).requests().len();
        let sent = self.replicas.send_as(key, at, &self.path, body).await;
        let seen = self.replicas.world(0).requests();
        let bodies = seen[before..].iter();
        Exchange {
            status: sent.status,
            bodies: bodies
                .map(|request| String::from_utf8(request.message.body.clone()).unwrap())
                .collect(),
            answer: sent.answer,
        }
    }
}

/// Answers as a strict server of the format does.
fn judged(wire: Wire, body: &[u8]) -> Vec<Step> {
    match serde_json::from_slice(body).map(|body| judge::of(wire)(&body)) {
        Ok(Ok(())) => still::json(200, &answer(wire.format).to_string()),
        Ok(Err(refused)) => still::json(
            refused.status,
            &serde_json::json!({"error": {"message": refused.message, "type": "invalid_request_error"}}).to_string(),
        ),
        Err(fault) => still::json(400, &format!("no JSON: {fault}")),
    }
}
