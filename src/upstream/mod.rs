//! The HTTP client: one send with its timeouts. Never resends what may have been processed, never follows a redirect.

pub(crate) mod descriptors;
mod dial;
mod http1;
mod in_process;
mod network_cause;
mod pool;
mod pooled_body;
mod read_idle;
mod send_progress;
mod send_request;
mod tls_randomness;

use std::{error::Error, fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response, uri::Scheme};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};

use crate::policy::{Observation, Verdict, classify};
pub use crate::policy::{Phase, SendErrorKind};
pub use antiphon_ledger::{
    random_bytes::{RandomError, random_bytes},
    system_tls::system_tls_config,
};
use dial::{ConnectObserver, Connector};
pub use in_process::{DialFuture, InProcessDialer, InProcessIo};
pub use network_cause::NetworkCause;
use pool::{ConnectError, ConnectionExecutor, ConnectionPool};
pub use pooled_body::PooledBody;
pub use read_idle::ReadIdle;
use send_progress::{SendProgress, TrackedBody};
use send_request::RequestFailure;
use tls_randomness::prepare_tls_randomness;

/// Largest response head in bytes, and largest buffer of one HTTP/1 connection.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Timeouts and pool limits of connections to providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// DNS and TCP, including the corporate proxy.
    pub connect_timeout: Duration,
    /// The TLS handshake.
    pub tls_timeout: Duration,
    /// Silence of the provider while it reads the request.
    pub send_timeout: Duration,
    /// Time for which an idle connection is pooled.
    pub pool_idle_timeout: Duration,
    /// Idle HTTP/1 connections pooled per origin.
    pub pool_idle_max: usize,
    /// The proxies from the environment.
    pub proxies: ProxyEnvironment,
}

/// The proxy variables of the environment, unparsed. Loopback upstreams never use a proxy.
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
    // The values may contain a password.
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

/// A send without an answer.
#[derive(Debug, thiserror::Error)]
#[error("send failed: {kind:?} in phase {phase:?}, cause {:?}", self.network_cause().map(NetworkCause::label))]
pub struct SendError {
    /// The phase.
    pub phase: Phase,
    /// The kind of failure.
    pub kind: SendErrorKind,
    /// The inner cause, for the log only. For [`SendErrorKind::Request`] it is the error of the request's body.
    pub source: Option<BoxError>,
    /// `true` if the scheme of the url is `http`.
    pub is_plain: bool,
}

impl SendError {
    /// Creates an error. `source` is the inner cause, if there is one.
    pub(crate) const fn new(phase: Phase, kind: SendErrorKind, source: Option<BoxError>) -> Self {
        Self {
            phase,
            kind,
            source,
            is_plain: false,
        }
    }

    /// Returns the verdict on the send.
    pub fn verdict(&self) -> Verdict {
        classify(Observation::SendFailed(self.phase, self.kind))
    }

    /// Returns the cause in the network. `None` if the failure is the client's or the proxy's.
    pub fn network_cause(&self) -> Option<NetworkCause> {
        NetworkCause::of_send(self)
    }

    /// Returns `true` if the forward proxy does not accept the user and password, or wants some.
    pub fn is_login_refused(&self) -> bool {
        self.find_cause::<network_cause::TunnelError>()
            .is_some_and(|error| error.is_login_refused)
    }

    /// Returns `true` if the provider's certificate has no name at all.
    pub fn lacks_names(&self) -> bool {
        network_cause::lacks_names(self)
    }

    /// Returns the first cause of type `E`.
    pub fn find_cause<E: Error + 'static>(&self) -> Option<&E> {
        self.source.as_deref().and_then(|source| dial::find_source(source))
    }
}

/// An error of a request's body or of the HTTP stack.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a request.
pub type BoxedBody = UnsyncBoxBody<Bytes, BoxError>;

/// The HTTP client for every provider. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sender {
    pool: ConnectionPool,
    /// Time limit for everything before a connection accepts the request.
    connect_timeout: Duration,
    send_timeout: Duration,
    connect_observer: ConnectObserver,
}

impl Sender {
    /// Creates the client. `tasks` runs its HTTP/2 connections and the sweeps of its connection pool.
    pub fn new<E>(settings: &UpstreamSettings, tasks: E) -> Result<Self, rustls::Error>
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        prepare_tls_randomness();
        Ok(Self::with_connector(settings, tasks, Connector::new(settings)?))
    }

    /// Like [`new`](Self::new), with settings of TLS that accept other certificates.
    pub fn with_tls<E>(settings: &UpstreamSettings, tasks: E, tls: rustls::ClientConfig) -> Self
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        Self::with_connector(settings, tasks, Connector::with_tls(settings, tls))
    }

    /// Like [`new`](Self::new), for providers in this process.
    pub fn with_dial<E>(settings: &UpstreamSettings, tasks: E, dial: InProcessDialer) -> Self
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        Self::with_connector(settings, tasks, Connector::in_process(settings, dial))
    }

    fn with_connector<E>(settings: &UpstreamSettings, tasks: E, connector: Connector) -> Self
    where
        E: hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> + Clone + Send + Sync + 'static,
    {
        let connect_observer = connector.observer.clone();
        Self {
            pool: ConnectionPool::new(settings, ConnectionExecutor::new(tasks), connector),
            connect_timeout: settings.connect_timeout + settings.tls_timeout,
            send_timeout: settings.send_timeout,
            connect_observer,
        }
    }

    /// Reports to `hear` the time that each new connection took. Only the first call has an effect.
    pub fn observe_connects(&self, hear: impl Fn(Duration) + Send + Sync + 'static) {
        drop(self.connect_observer.0.set(Box::new(hear)));
    }

    /// Sends one request and waits for the response head.
    ///
    /// Both timeouts restart when the connection takes a part of the request: a slow upload is not a slow provider.
    /// `headers_timeout` limits the wait for the response head after the whole request was taken.
    pub async fn send(
        &self,
        request: Request<BoxedBody>,
        headers_timeout: Duration,
    ) -> Result<Response<PooledBody>, SendError> {
        self.send_once(request, headers_timeout, false)
            .await
            .map_err(|failure| failure.error)
    }

    /// Sends a request that may arrive twice, and waits for the response head, as [`send`](Self::send) does.
    ///
    /// A peer may close a pooled connection at any time. If one of HTTP/1 ends before the response head, the request is sent
    /// once more, over a new connection.
    pub async fn send_repeatable(
        &self,
        request: Request<Bytes>,
        headers_timeout: Duration,
    ) -> Result<Response<PooledBody>, SendError> {
        let boxed = |body| Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let failure = match self.send_once(request.clone().map(boxed), headers_timeout, false).await {
            Err(failure) if failure.is_stale => failure.error,
            sent => return sent.map_err(|failure| failure.error),
        };
        tracing::debug!(error = %failure, "a pooled connection failed: sending again over a new one");
        self.send_once(request.map(boxed), headers_timeout, true)
            .await
            .map_err(|failure| failure.error)
    }

    /// Sends a request over one connection. `needs_new` demands a new one.
    async fn send_once(
        &self,
        request: Request<BoxedBody>,
        headers_timeout: Duration,
        needs_new: bool,
    ) -> Result<Response<PooledBody>, SendFailure> {
        let (head, body) = request.into_parts();
        let is_plain = head.uri.scheme() == Some(&Scheme::HTTP);
        // Shared with the body, which reports each part that the connection takes.
        let progress = SendProgress::start();
        let request = Request::from_parts(head, TrackedBody::new(body, progress.clone()));
        let sent = tokio::select! {
            sent = send_request::send_request(&self.pool, request, needs_new) => sent,
            () = progress.wait_for_silence(self.send_timeout, headers_timeout, self.connect_timeout) => {
                let error = SendError::new(progress.current_phase(), SendErrorKind::TimedOut, None);
                return Err(SendFailure { error: SendError { is_plain, ..error }, is_stale: false });
            }
        };
        sent.map_err(|failure| SendFailure {
            is_stale: matches!(failure, RequestFailure::Stale(_)),
            error: SendError {
                is_plain,
                ..send_error(failure, &progress)
            },
        })
    }
}

/// A send that failed.
struct SendFailure {
    error: SendError,
    /// `true` if a connection of the pool failed, perhaps since its peer had closed it.
    is_stale: bool,
}

/// Returns `true` if the provider read nothing of the request until the timeout.
fn is_write_timeout(error: &hyper::Error) -> bool {
    // An io error does not expose its inner error through `source`.
    let io = dial::find_source::<std::io::Error>(error);
    io.and_then(std::io::Error::get_ref)
        .is_some_and(<dyn Error + Send + Sync>::is::<read_idle::PeerNotReading>)
}

fn send_error(error: RequestFailure, progress: &SendProgress) -> SendError {
    // hyper reports a failed body like a broken connection, so the body is checked first.
    if let Some(source) = progress.take_failure() {
        return SendError::new(Phase::Send, SendErrorKind::Request, Some(source));
    }
    let error = match error {
        // The dialer knows the phase exactly.
        RequestFailure::Pool(ConnectError::Connect(dialing)) => return dialing,
        RequestFailure::Pool(ConnectError::Http(error))
        | RequestFailure::Http(error)
        | RequestFailure::Stale(error) => error,
        RequestFailure::AmbiguousLength => return SendError::new(Phase::Headers, SendErrorKind::Protocol, None),
    };
    let (phase, kind) = if is_write_timeout(&error) {
        (Phase::Send, SendErrorKind::TimedOut)
    } else if error.is_parse() {
        (Phase::Headers, SendErrorKind::Protocol)
    } else {
        // hyper does not report the phase, but the progress of the body implies it.
        (progress.current_phase(), SendErrorKind::Io)
    };
    SendError::new(phase, kind, Some(error.into()))
}
