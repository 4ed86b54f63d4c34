//! The HTTP client: one send with its deadlines. Never retries what may have been processed, never follows a redirect.

mod chance;
mod dial;
mod ebb;
mod inside;
mod sending;

use std::{error::Error, fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client},
    rt::TokioTimer,
};

use crate::policy::Failure;
pub use chance::{NoChance, random};
use dial::{Connector, Told};
pub use ebb::Ebb;
pub use inside::{Dial, Dialing, Line};
use sending::{Progress, Tracked};

/// Largest head of an answer, and what hyper may hold of one connection.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Clocks and pool limits towards providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// DNS and TCP, the company's proxy included.
    pub connect_timeout: Duration,
    /// The TLS handshake behind it.
    pub tls_timeout: Duration,
    /// Silence of the other end while it takes the request.
    pub send_timeout: Duration,
    /// How long a connection is kept for the next request.
    pub pool_idle_timeout: Duration,
    /// Connections kept per host.
    pub pool_idle_max: usize,
    /// The proxies of the environment.
    pub proxies: ProxyEnvironment,
}

/// What the environment says about proxies, as it was written; loopback upstreams are never proxied.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    /// `HTTPS_PROXY`.
    pub https: Option<String>,
    /// `HTTP_PROXY`.
    pub http: Option<String>,
    /// `ALL_PROXY`.
    pub all: Option<String>,
    /// `NO_PROXY`.
    pub no: Option<String>,
}

impl fmt::Debug for ProxyEnvironment {
    // The values may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |value: &Option<String>| value.is_some();
        f.debug_struct("ProxyEnvironment")
            .field("https", &set(&self.https))
            .field("http", &set(&self.http))
            .field("all", &set(&self.all))
            .field("no", &self.no)
            .finish()
    }
}

/// Where a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Looking up the name.
    Resolve,
    /// TCP, or the company's proxy.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Writing the request.
    Send,
    /// Waiting for the answer's head.
    Headers,
    /// Reading the answer's body.
    Body,
}

/// How a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The network or the other end broke off.
    Io,
    /// A clock of ours ran out.
    TimedOut,
    /// The answer is not HTTP, or can be read in two ways.
    Protocol,
    /// The request's own body failed: nobody upstream is at fault.
    Request,
}

/// A send that gave no answer.
#[derive(Debug)]
pub struct SendError {
    /// Where.
    pub phase: Phase,
    /// How.
    pub kind: Kind,
    /// The inner cause, for the log alone; for [`Kind::Request`] the error of the request's body.
    pub source: Option<BoxError>,
}

impl SendError {
    /// What it is evidence of.
    pub const fn failure(&self) -> Failure {
        match (self.phase, self.kind) {
            (_, Kind::Request) => Failure::Request,
            (_, Kind::Protocol) => Failure::Protocol,
            (Phase::Resolve, _) => Failure::Dns,
            (Phase::Connect, Kind::Io) => Failure::Connect,
            (Phase::Connect, Kind::TimedOut) => Failure::ConnectTimeout,
            (Phase::Tls, Kind::Io) => Failure::Tls,
            (Phase::Tls, Kind::TimedOut) => Failure::TlsTimeout,
            (Phase::Send, Kind::Io) => Failure::Send,
            (Phase::Send, Kind::TimedOut) => Failure::SendTimeout,
            (Phase::Headers, Kind::Io) => Failure::Head,
            (Phase::Headers, Kind::TimedOut) => Failure::HeadTimeout,
            (Phase::Body, Kind::Io) => Failure::Body,
            (Phase::Body, Kind::TimedOut) => Failure::BodyTimeout,
        }
    }

    /// The first cause of type `E`.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        self.source.as_deref().and_then(|source| dial::find(source))
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "send failed: {:?} in phase {:?}", self.kind, self.phase)
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// An error of the request's body or of the stack below.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a request.
pub type BoxedBody = UnsyncBoxBody<Bytes, BoxError>;

/// The client towards every provider. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client<Connector, Tracked>,
    /// Everything that comes before a connection takes the request.
    connect_timeout: Duration,
    send_timeout: Duration,
    told: Told,
}

impl Sender {
    /// Builds the client; `tasks` runs its connections.
    pub fn new<E>(settings: &UpstreamSettings, tasks: E) -> Result<Self, rustls::Error>
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        Ok(Self::over(settings, tasks, Connector::new(settings)?))
    }

    /// As [`new`](Self::new), towards providers that live in this process.
    pub fn with_dial<E>(settings: &UpstreamSettings, tasks: E, dial: Dial) -> Self
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        Self::over(settings, tasks, Connector::inside(settings, dial))
    }

    fn over<E>(settings: &UpstreamSettings, tasks: E, connector: Connector) -> Self
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        let told = connector.told();
        let client = Client::builder(tasks)
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(settings.pool_idle_timeout)
            .pool_max_idle_per_host(settings.pool_idle_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(Duration::from_secs(10))
            .http2_max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            // Only what was never written is sent again.
            .retry_canceled_requests(true)
            .build(connector);
        Self {
            client,
            connect_timeout: settings.connect_timeout + settings.tls_timeout,
            send_timeout: settings.send_timeout,
            told,
        }
    }

    /// Has `hear` told how long new connections took; only the first counts.
    pub fn tell(&self, hear: impl Fn(Duration) + Send + Sync + 'static) {
        self.told.set(hear);
    }

    /// Sends one request and waits for the answer's head; an HTTP/1 answer has an [`Ebb`] among its extensions.
    ///
    /// Both clocks run from the last piece of the request that was taken: a slow upload is not a slow provider.
    /// `headers_timeout` is that of the answer's head, once all was taken.
    pub async fn send(
        &self,
        request: Request<BoxedBody>,
        headers_timeout: Duration,
    ) -> Result<Response<Incoming>, SendError> {
        let (head, body) = request.into_parts();
        let progress = Progress::start();
        let request = Request::from_parts(head, Tracked::new(body, progress.clone()));
        let sent = tokio::select! {
            sent = self.client.request(request) => sent,
            () = progress.silence(self.send_timeout, headers_timeout, self.connect_timeout) => {
                return Err(SendError { phase: progress.phase(), kind: Kind::TimedOut, source: None });
            }
        };
        let mut answer = sent.map_err(|error| send_error(error, &progress))?;
        if answer.version() == Version::HTTP_2 {
            // Frames of other answers come over the same connection.
            answer.extensions_mut().remove::<Ebb>();
        }
        if is_ambiguous(answer.headers()) {
            // Dropping the answer closes its connection: nothing behind it can reach another exchange.
            return Err(SendError {
                phase: Phase::Headers,
                kind: Kind::Protocol,
                source: None,
            });
        }
        Ok(answer)
    }
}

/// Whether two readers could find different ends of the body, or it has a coding that hyper would hand on.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            headers.contains_key(CONTENT_LENGTH)
        }
        _ => true,
    }
}

/// Whether the provider took nothing of the request for too long.
fn is_deaf(error: &legacy::Error) -> bool {
    // An io error hides what it wraps from `source`.
    let io = dial::find::<std::io::Error>(error);
    io.and_then(std::io::Error::get_ref)
        .is_some_and(<dyn Error + Send + Sync>::is::<ebb::Deaf>)
}

fn send_error(error: legacy::Error, progress: &Progress) -> SendError {
    if let Some(source) = progress.take_failure() {
        return SendError {
            phase: Phase::Send,
            kind: Kind::Request,
            source: Some(source),
        };
    }
    let (phase, kind) = match dial::find::<SendError>(&error) {
        Some(dialing) => (dialing.phase, dialing.kind),
        None if is_deaf(&error) => (Phase::Send, Kind::TimedOut),
        None if error.is_connect() => (Phase::Connect, Kind::Io),
        None if dial::find::<hyper::Error>(&error).is_some_and(hyper::Error::is_parse) => {
            (Phase::Headers, Kind::Protocol)
        }
        None => (progress.phase(), Kind::Io),
    };
    SendError {
        phase,
        kind,
        source: Some(error.into()),
    }
}
