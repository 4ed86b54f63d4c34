//! Connections to providers: DNS, TCP, the corporate proxy, TLS. Never decides on a retry.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt;
use http::{Uri, uri::Scheme};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            dns::{GaiAddrs, GaiResolver, Name},
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::ClientConfig;
use tokio::{net::TcpStream, sync::Notify};
use tower_service::Service;

use super::{
    BoxError, Phase, ProxyEnvironment, SendError, SendErrorKind, UpstreamSettings,
    in_process::{InProcessDialer, ProviderStream},
    network_cause::TunnelError,
    read_idle::WriteTimeoutIo,
    system_tls_config,
};
use crate::{clock, provider, upstream::descriptors};

/// Bytes of an answer that the kernel may buffer while the client reads slowly.
const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Words of SOCKS failures that mean a refused login. hyper-util does not export their type.
const SOCKS_LOGIN_REFUSALS: [&str; 2] = [
    "credentials not accepted",
    "server does not support user/pass authentication",
];

/// A failed tunnel by `CONNECT`.
type HttpTunnelError = <Tunnel<HttpConnector<Resolver>> as Service<Uri>>::Error;
/// A failed tunnel by SOCKS.
type SocksError = <SocksV5<HttpConnector<Resolver>> as Service<Uri>>::Error;

type ConnectFuture<T> = Pin<Box<dyn Future<Output = Result<T, SendError>> + Send>>;

/// A failed DNS lookup.
#[derive(Debug, thiserror::Error)]
#[error("DNS lookup failed")]
struct DnsError(#[source] io::Error);

/// The observer of the time that new connections took. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct ConnectObserver(pub(super) Arc<OnceLock<Box<ConnectCallback>>>);

pub(super) type ConnectCallback = dyn Fn(Duration) + Send + Sync;

impl fmt::Debug for ConnectObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectObserver").finish_non_exhaustive()
    }
}

impl ConnectObserver {
    fn report_connect(&self, took: Duration) {
        if let Some(hear) = self.0.get() {
            hear(took);
        }
    }
}

/// The system's resolver, with its own error type.
#[derive(Clone, Debug)]
struct Resolver(GaiResolver);

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = DnsError;
    type Future = Pin<Box<dyn Future<Output = Result<GaiAddrs, DnsError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DnsError>> {
        self.0.poll_ready(cx).map_err(DnsError)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        self.0.call(name).map(|addresses| addresses.map_err(DnsError)).boxed()
    }
}

/// TCP to the provider, or a tunnel through the corporate proxy, under one timeout.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    http: HttpConnector<Resolver>,
    proxies: Arc<Matcher>,
    timeout: Duration,
    /// Notified once the connection is there.
    connected: Arc<Notify>,
}

impl Dialer {
    fn new(environment: &ProxyEnvironment, timeout: Duration) -> Self {
        let mut http = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        // The TLS connector above passes `https` targets.
        http.enforce_http(false);
        // Small writes, such as the end of a request, must not wait for an acknowledgement.
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEPALIVE));
        // A bounded buffer lets backpressure of a slow client reach the provider.
        http.set_recv_buffer_size(Some(RECEIVE_BUFFER_BYTES));
        let value = |value: &Option<String>| value.clone().unwrap_or_default();
        // From values, because the environment is read in the configuration only.
        let proxies = Matcher::builder()
            .all(value(&environment.all))
            .http(value(&environment.http))
            .https(value(&environment.https))
            .no(value(&environment.no))
            .build();
        Self {
            http,
            proxies: Arc::new(proxies),
            timeout,
            connected: Arc::default(),
        }
    }

    /// Returns a copy with a notification of its own.
    fn with_own_notify(&self) -> Self {
        Self {
            connected: Arc::default(),
            ..self.clone()
        }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = SendError;
    type Future = ConnectFuture<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let mut http = self.http.clone();
        // A proxy elsewhere cannot reach this machine's loopback.
        let intercept = if target.host().is_some_and(provider::is_loopback) {
            None
        } else {
            self.proxies.intercept(&target)
        };
        let (timeout, dialed) = (self.timeout, Arc::clone(&self.connected));
        let dialing = async move {
            match intercept {
                None => http.call(target).await.map_err(|error| dial_error(error.into())),
                Some(intercept) => {
                    let opened = open_tunnel(&intercept, http, target).await;
                    opened.map_err(tunnel_error)
                }
            }
        };
        Box::pin(async move {
            // DNS, TCP and the proxy's answer share one timeout.
            let stream = tokio::time::timeout(timeout, dialing).await;
            let stream = stream.unwrap_or_else(|_| Err(timeout_error(Phase::Connect)))?;
            // The timeout of the TLS handshake begins here.
            dialed.notify_one();
            Ok(stream)
        })
    }
}

fn timeout_error(phase: Phase) -> SendError {
    SendError::new(phase, SendErrorKind::TimedOut, None)
}

/// Returns the target with an explicit port. `CONNECT` has no scheme to imply one.
fn with_port(target: Uri) -> Result<Uri, BoxError> {
    let (Some(host), None) = (target.host(), target.port()) else {
        return Ok(target);
    };
    let port = if target.scheme() == Some(&Scheme::HTTP) {
        80
    } else {
        443
    };
    let authority = format!("{host}:{port}").parse()?;
    let mut parts = target.into_parts();
    parts.authority = Some(authority);
    Ok(Uri::from_parts(parts)?)
}

/// Opens a tunnel through a proxy, for `http` targets too, so that the proxy sees no request.
async fn open_tunnel(
    proxy: &Intercept,
    http: HttpConnector<Resolver>,
    target: Uri,
) -> Result<TokioIo<TcpStream>, TunnelError> {
    let target = with_port(target).map_err(|error| tunnel_failure(error, false))?;
    let address = proxy.uri().clone();
    match address.scheme_str() {
        Some("http") => {
            let mut tunnel = Tunnel::new(address, http);
            if let Some(credential) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(credential.clone());
            }
            tunnel.call(target).await.map_err(http_tunnel_failure)
        }
        Some(socks @ ("socks5" | "socks5h")) => {
            // `socks5h` leaves the lookup to the proxy.
            let mut tunnel = SocksV5::new(address.clone(), http).local_dns(socks == "socks5");
            if let Some((user, password)) = proxy.raw_auth() {
                tunnel = tunnel.with_auth(user.to_owned(), password.to_owned());
            }
            tunnel.call(target).await.map_err(socks_failure)
        }
        _ => Err(tunnel_failure(
            "unsupported proxy scheme: use http, socks5 or socks5h",
            false,
        )),
    }
}

fn tunnel_failure(cause: impl Into<BoxError>, is_login_refused: bool) -> TunnelError {
    TunnelError {
        cause: cause.into(),
        is_login_refused,
    }
}

fn http_tunnel_failure(error: HttpTunnelError) -> TunnelError {
    let is_login_refused = matches!(error, HttpTunnelError::ProxyAuthRequired);
    tunnel_failure(error, is_login_refused)
}

fn socks_failure(error: SocksError) -> TunnelError {
    match error {
        // Unwrapped, because errors of SOCKS have no source.
        SocksError::Inner(error) => tunnel_failure(error, false),
        SocksError::Io(error) => tunnel_failure(error, false),
        SocksError::V5(refusal) => {
            let words = refusal.to_string();
            let is_login_refused = SOCKS_LOGIN_REFUSALS.contains(&words.as_str());
            tunnel_failure(SocksError::V5(refusal), is_login_refused)
        }
        error => tunnel_failure(error, false),
    }
}

/// Attributes a failed tunnel to the connection, even if the lookup of the forward proxy's name failed: the provider's name
/// is not at fault.
fn tunnel_error(error: TunnelError) -> SendError {
    SendError::new(
        Phase::Connect,
        dial_failure_kind(error.cause.as_ref()),
        Some(error.into()),
    )
}

fn dial_error(source: BoxError) -> SendError {
    let is_lookup = find_source::<DnsError>(source.as_ref()).is_some();
    let phase = if is_lookup { Phase::Resolve } else { Phase::Connect };
    SendError::new(phase, dial_failure_kind(source.as_ref()), Some(source))
}

/// Tells a lack of file descriptors from other failures.
fn dial_failure_kind(error: &(dyn Error + 'static)) -> SendErrorKind {
    // hyper-util wraps errors, so the chain of sources is searched.
    let is_lookup = find_source::<DnsError>(error).is_some();
    let is_reported = find_source::<io::Error>(error).is_some_and(descriptors::is_exhausted);
    // The resolver's errors do not name the lack, so it is looked for.
    if is_reported || (is_lookup && descriptors::are_exhausted()) {
        SendErrorKind::NoDescriptors
    } else {
        SendErrorKind::Io
    }
}

/// Returns the first error of type `E` in the chain of sources.
pub(super) fn find_source<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The connector of the HTTP client.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    path: ConnectPath,
    // Longest wait while the provider reads nothing of what is written.
    write_timeout: Duration,
    /// The observer of the time that new connections took, which may be set later.
    pub(super) observer: ConnectObserver,
}

#[derive(Clone, Debug)]
enum ConnectPath {
    /// Over the network, with TLS if the scheme requires it.
    Network {
        dialer: Dialer,
        tls: Arc<ClientConfig>,
        tls_timeout: Duration,
    },
    /// To a provider in this process.
    InProcess { dial: InProcessDialer, timeout: Duration },
}

impl Connector {
    /// Creates the connector. Fails only if the TLS library has no usable protocol version.
    pub(super) fn new(settings: &UpstreamSettings) -> Result<Self, rustls::Error> {
        Ok(Self::with_tls(settings, system_tls_config()?))
    }

    /// Creates a connector with other settings of TLS.
    pub(super) fn with_tls(settings: &UpstreamSettings, mut tls: ClientConfig) -> Self {
        // HTTP/2 first: one connection then serves many requests.
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self {
            path: ConnectPath::Network {
                dialer: Dialer::new(&settings.proxies, settings.connect_timeout),
                tls: Arc::new(tls),
                tls_timeout: settings.tls_timeout,
            },
            write_timeout: settings.send_timeout,
            observer: ConnectObserver::default(),
        }
    }

    /// Creates a connector to providers in this process.
    pub(super) fn in_process(settings: &UpstreamSettings, dial: InProcessDialer) -> Self {
        Self {
            path: ConnectPath::InProcess {
                dial,
                timeout: settings.connect_timeout,
            },
            write_timeout: settings.send_timeout,
            observer: ConnectObserver::default(),
        }
    }
}

impl Connector {
    /// Opens a connection to the host of a URI.
    pub(super) fn connect(&self, target: Uri) -> ConnectFuture<WriteTimeoutIo<ProviderStream>> {
        let (write_timeout, observer, began) = (self.write_timeout, self.observer.clone(), clock::now());
        let connecting: ConnectFuture<ProviderStream> = match &self.path {
            // Each connection has its own notification: a shared one could start another's TLS timeout.
            ConnectPath::Network {
                dialer,
                tls,
                tls_timeout,
            } => Box::pin(connect_network(
                &dialer.with_own_notify(),
                Arc::clone(tls),
                *tls_timeout,
                target,
            )),
            ConnectPath::InProcess { dial, timeout } => {
                let (timeout, dialing) = (*timeout, dial.dial_provider(target));
                Box::pin(async move {
                    let line = tokio::time::timeout(timeout, dialing).await;
                    let line = line.unwrap_or_else(|_| Err(timeout_error(Phase::Connect)))?;
                    Ok(ProviderStream::InProcess(TokioIo::new(line)))
                })
            }
        };
        Box::pin(async move {
            let stream = connecting.await?;
            // Failed connections are not measured here.
            observer.report_connect(clock::now().duration_since(began));
            Ok(WriteTimeoutIo::new(stream, write_timeout))
        })
    }
}

/// Connects over the network. The timeout of the handshake begins after the dialer's.
fn connect_network(
    dialer: &Dialer,
    tls: Arc<ClientConfig>,
    timeout: Duration,
    target: Uri,
) -> impl Future<Output = Result<ProviderStream, SendError>> + use<> {
    let dialed = Arc::clone(&dialer.connected);
    let connecting = HttpsConnector::from((dialer.clone(), tls)).call(target);
    let too_late = async move {
        dialed.notified().await;
        tokio::time::sleep(timeout).await;
    };
    async move {
        let connected = tokio::select! {
            // A connection that is ready together with the timeout counts as ready.
            biased;
            connected = connecting => connected,
            () = too_late => return Err(timeout_error(Phase::Tls)),
        };
        connected.map(ProviderStream::Network).map_err(network_error)
    }
}

/// Attributes an error to the dialer, or else to the TLS handshake.
fn network_error(error: BoxError) -> SendError {
    match error.downcast::<SendError>() {
        Ok(dialing) => *dialing,
        Err(source) => SendError::new(Phase::Tls, SendErrorKind::Io, Some(source)),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::upstream::NetworkCause;

    /// The system's code for too many open files.
    const EMFILE: i32 = 24;

    #[test]
    fn a_lack_of_descriptors_is_recognised_behind_a_forward_proxy() {
        for (code, kind, cause) in [
            (EMFILE, SendErrorKind::NoDescriptors, None),
            (1, SendErrorKind::Io, Some(NetworkCause::ForwardProxy)),
        ] {
            let failed = HttpTunnelError::ConnectFailed(io::Error::from_raw_os_error(code).into());
            let error = tunnel_error(http_tunnel_failure(failed));
            assert_eq!((error.phase, error.kind), (Phase::Connect, kind), "{code}");
            assert_eq!(error.network_cause(), cause, "{code}");
        }
    }
}
