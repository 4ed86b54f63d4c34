//! The record of one exchange: filled on its way, sent to the telemetry exactly once, whoever ends it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tokio::time::Instant;
use uuid::Builder;

use super::headers;
use crate::{
    clock,
    telemetry::{Telemetry, events::ExchangeEnded},
};

/// Who ended an exchange early, in which phase, and the stable name of the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// `client`, `proxy`, `network`, `provider`; none for a plain end.
    pub side: Option<&'static str>,
    /// `request`, `connect`, `send`, `headers`, `body`, `done`.
    pub phase: &'static str,
    /// The stable name of the failure, or `ok`.
    pub code: &'static str,
}

impl End {
    /// Everything was relayed.
    pub(super) const OK: Self = Self {
        side: None,
        phase: "done",
        code: "ok",
    };
}

/// Request ids: UUIDs of version 7.
///
/// Their random bits are a keyed hash of a counter: the system's own randomness would cost one call into it an id.
#[derive(Debug, Default)]
pub(super) struct Ids {
    key: RandomState,
    count: AtomicU64,
}

impl Ids {
    fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [0_u8, 1].map(|half| u128::from(self.key.hash_one((count, half))));
        let random = ((high << 64) | low).to_be_bytes();
        let random = random.first_chunk().copied().unwrap_or_default();
        let millis = u64::try_from(clock::since_1970().as_millis()).unwrap_or(u64::MAX);
        let id = Builder::from_unix_timestamp_millis(millis, &random);
        id.into_uuid().to_string()
    }
}

/// The record. Dropped before it was ended, the client has gone away.
#[derive(Debug)]
pub(super) struct Record {
    /// What is known so far.
    pub event: Box<ExchangeEnded>,
    /// The phase the exchange is in.
    pub phase: &'static str,
    /// The value of `x-antiphon-repair`; none where nothing was inspected.
    pub(super) repair: Option<HeaderValue>,
    /// Bytes of the request's body read so far.
    pub bytes_in: Arc<AtomicU64>,
    telemetry: Telemetry,
    began: Instant,
    head_came: Option<Instant>,
    ended: bool,
}

impl Record {
    /// Begins the record of a request.
    pub(super) fn begin<B>(telemetry: &Telemetry, ids: &Ids, request: &Request<B>) -> Self {
        let event = Box::new(ExchangeEnded {
            request_id: ids.next(),
            method: method(request.method()),
            upstream: None,
            path: request.uri().path().to_owned(),
            format: None,
            mode: None,
            status: 0,
            report: None,
            unreadable: None,
            rejected: false,
            attempts: 0,
            bytes_in: 0,
            bytes_out: 0,
            overhead: Duration::ZERO,
            upstream_head: None,
            upstream_body: None,
            duration: Duration::ZERO,
            watched: None,
            side: None,
            phase: "request",
            code: "client_gone",
        });
        let telemetry = telemetry.clone();
        Self {
            event,
            phase: "request",
            repair: None,
            bytes_in: Arc::default(),
            telemetry,
            began: clock::now(),
            head_came: None,
            ended: false,
        }
    }

    /// The sink, for what is counted on the way.
    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Notes that the provider's answer has begun; `sent` is when its request was ready.
    pub(super) fn head_came(&mut self, sent: Instant) {
        let now = clock::now();
        self.phase = "body";
        self.event.upstream_head = Some(now.duration_since(sent));
        self.head_came = Some(now);
    }

    /// Puts our notes on a head that goes to the client, and notes its status.
    pub(super) fn answered(&mut self, status: StatusCode, fields: &mut HeaderMap) {
        self.event.status = status.as_u16();
        if let Ok(id) = HeaderValue::from_str(&self.event.request_id) {
            fields.insert(headers::REQUEST_ID, id);
        }
        if self.event.attempts > 0 {
            fields.insert(headers::ATTEMPTS, self.event.attempts.into());
        }
        if let Some(repair) = self.repair.take() {
            fields.insert(headers::REPAIR, repair);
        }
    }

    /// Ends the record; only the first end counts.
    pub(super) fn end(&mut self, end: End) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.event.bytes_in = self.bytes_in.load(Ordering::Relaxed);
        let now = clock::now();
        self.event.duration = now.duration_since(self.began);
        self.event.upstream_body = self.head_came.map(|came| now.duration_since(came));
        (self.event.side, self.event.phase, self.event.code) = (end.side, end.phase, end.code);
        self.telemetry.exchange_ended(&self.event);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(End {
            side: Some("client"),
            phase: self.phase,
            code: "client_gone",
        });
    }
}

fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::{Uuid, Variant};

    use super::*;

    #[test]
    fn ids_are_uuids_of_version_7_and_all_differ() {
        let ids = Ids::default();
        let made: HashSet<String> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 10_000);
        for id in made {
            let id: Uuid = id.parse().unwrap();
            assert_eq!((id.get_version_num(), id.get_variant()), (7, Variant::RFC4122));
            let (seconds, _) = id.get_timestamp().unwrap().to_unix();
            assert!(clock::since_1970().as_secs() - seconds < 60);
        }
    }
}
