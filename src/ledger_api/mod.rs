//! `/ledger/v1` on the data listener: tool services post results, owners look up and acknowledge their own.
//!
//! A service proves itself by its token or its signature; an owner by the credential with which he asks providers. Whoever
//! proves nothing is told that nothing is here.

mod answer;
mod asked;
mod feed;
mod owners;
mod services;

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, request::Parts};
use http_body_util::BodyExt;
use moka::sync::Cache;

pub use answer::Code;
pub use feed::LedgerBody;

use crate::{
    auth::{Caller, principal::decoded_segment},
    late::Late,
    server::Signal,
    session_table::SessionTable,
    telemetry::Telemetry,
    upstream::BoxedBody,
};
use answer::Refusal;

/// What every path of ours begins with.
const BASE: &str = "/ledger/v1/";
/// Bytes of a posted result's body, and of every other.
const BODY_BYTES_MAX: (usize, usize) = (8 * 1024 * 1024, 64 * 1024);
/// Time for a body to come, and for the ledger to do what is asked.
const PATIENCE: Duration = Duration::from_secs(30);

/// Signed messages that are remembered, and for how long: their times may be off by half of it, either way.
const SEEN_MAX: u64 = 100_000;
const SEEN_FOR: Duration = Duration::from_secs(15 * 60);

/// Whether a path is one of ours.
pub fn is_ours(path: &str) -> bool {
    path == "/ledger" || path.starts_with("/ledger/")
}

/// The API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    late: Late,
    sessions: Arc<SessionTable>,
    telemetry: Telemetry,
    /// Given once the drain has begun.
    stopping: Signal,
    /// Signed messages by their service and id.
    seen: Cache<[u8; 32], [u8; 32]>,
    listeners: feed::Listeners,
}

/// What a path and method ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ask {
    Result(Vec<u8>),
    Heartbeat(Vec<u8>),
    Lookup,
    Outstanding,
    Feed,
    Ack(Vec<u8>),
    Close(Vec<u8>),
}

impl Ask {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let rest = path.strip_prefix(BASE)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let named = |text: &str| Some(decoded_segment(text).into_owned()).filter(|name| !name.is_empty());
        match (method, &parts[..]) {
            (&Method::POST, ["calls", id, "result"]) => named(id).map(Self::Result),
            (&Method::POST, ["calls", id, "heartbeat"]) => named(id).map(Self::Heartbeat),
            (&Method::POST, ["lookup"]) => Some(Self::Lookup),
            (&Method::GET, ["outstanding"]) => Some(Self::Outstanding),
            (&Method::GET, ["feed"]) => Some(Self::Feed),
            (&Method::POST, ["deliveries", id, "ack"]) => named(id).map(Self::Ack),
            (&Method::POST, ["sessions", id, "close"]) => named(id).map(Self::Close),
            _ => None,
        }
    }

    const fn bytes_max(&self) -> usize {
        match self {
            Self::Result(_) => BODY_BYTES_MAX.0,
            _ => BODY_BYTES_MAX.1,
        }
    }
}

impl LedgerApi {
    /// The API over late results; its feeds end when `stopping` is given.
    pub fn new(late: Late, sessions: Arc<SessionTable>, telemetry: Telemetry, stopping: Signal) -> Self {
        Self {
            late,
            sessions,
            telemetry,
            stopping,
            seen: Cache::builder().max_capacity(SEEN_MAX).time_to_live(SEEN_FOR).build(),
            listeners: feed::Listeners::default(),
        }
    }

    /// Answers a request. `reader` is who asks by his own credential; none where that can be nobody.
    pub async fn answer(&self, request: Request<BoxedBody>, reader: Option<Caller>) -> Response<LedgerBody> {
        let (head, body) = request.into_parts();
        let answered = tokio::time::timeout(PATIENCE, Box::pin(self.answered(&head, body, reader))).await;
        match answered.unwrap_or(Err(Refusal::of(Code::Unavailable))) {
            Ok(answer) => answer,
            Err(refusal) => refusal.answer(),
        }
    }

    async fn answered(
        &self,
        head: &Parts,
        body: BoxedBody,
        reader: Option<Caller>,
    ) -> Result<Response<LedgerBody>, Refusal> {
        let ask = Ask::of(&head.method, head.uri.path()).ok_or(Refusal::of(Code::NotFound))?;
        if !self.late.is_used() {
            return Err(Refusal::of(Code::NotFound));
        }
        match ask {
            Ask::Result(_) | Ask::Heartbeat(_) => {
                // Only who may be a service gets its body read.
                let claim = services::claim(&head.headers, self.late.services())?;
                let body = collected(body, ask.bytes_max()).await?;
                self.service(&ask, &claim, &body).await
            }
            _ => {
                let reader = self.reader(reader).await?;
                let body = collected(body, ask.bytes_max()).await?;
                self.owner(&ask, reader, &body).await
            }
        }
    }

    /// Who asks, if a provider has ever answered him with success.
    async fn reader(&self, reader: Option<Caller>) -> Result<Caller, Refusal> {
        let reader = reader.ok_or(Refusal::of(Code::NotFound))?;
        if self.late.callers().is_proven(reader).await {
            return Ok(reader);
        }
        Err(Refusal::of(Code::NotFound))
    }
}

/// Reads a body of at most `limit` bytes.
async fn collected(mut body: BoxedBody, limit: usize) -> Result<Bytes, Refusal> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::of(Code::Malformed))?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limit.saturating_sub(bytes.len()) {
            return Err(Refusal::of(Code::TooLarge));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The only value of a header; none where it is missing, repeated or no text.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok().map(str::trim)
}
