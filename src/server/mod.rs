//! Listeners, connections and their limits, tasks and the drain.

mod client_io;
pub mod framing;
pub mod inherited;
mod listener_limit;
mod operator_listener;
mod tasks;
pub mod tls;

use std::{convert::Infallible, fmt, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::Body;
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use client_io::ClientIo;
pub use client_io::ClientStall;
use framing::RequestHeads;
pub use listener_limit::{ListenerLimit, ListenerSlot};
pub use operator_listener::OperatorListener;
pub use tasks::{StopSignal, Tasks};
use tls::{CertificateService, ClientStream, ListenerTls};

/// The largest request head, and the limit of hyper's read buffer for one connection: 64 KiB.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an answer that the kernel may buffer for a slow client. A hint: the kernel may use another size.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Concurrent streams on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Silence after which the kernel sends TCP keepalive probes to a client.
const CLIENT_KEEPALIVE: Duration = Duration::from_secs(30);
/// Time for which an idle connection stays open. Longer than in common clients, so that the client closes first.
const KEEP_ALIVE: Duration = Duration::from_secs(120);
/// Pause after an accept that failed for lack of resources.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Settings of one listener.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Concurrent connections. More wait in the kernel's queue.
    pub connections_max: usize,
    /// Timeout for a client to send a request head.
    pub header_timeout: Duration,
    /// Timeout for a client that reads nothing of its answer.
    pub client_stall: Duration,
    /// Time after SIGTERM in which new connections are still accepted, so that load balancers can notice first.
    pub drain_delay: Duration,
    /// Time for running exchanges to finish after that.
    pub drain_timeout: Duration,
    /// TLS of the listener. `None` for plain HTTP.
    pub tls: Option<ListenerTls>,
}

/// The error of binding a listener.
#[derive(Debug, thiserror::Error)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.source.kind() == io::ErrorKind::AddrInUse {
            write!(f, "address {} is already in use", self.address)
        } else {
            write!(f, "cannot listen on {}: {}", self.address, self.source)
        }
    }
}

/// Binds a listener. Port 0 selects a free port.
pub async fn bind_listener(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError { address, source })
}

/// Accepts connections and serves each with a clone of `service`, until the drain begins.
///
/// The extensions of every HTTP/1 request contain its framing, and the handle of its connection's heads.
pub async fn serve_listener<S, B>(listener: TcpListener, settings: ServerSettings, tasks: Tasks, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let permits = Arc::new(Semaphore::new(settings.connections_max.min(Semaphore::MAX_PERMITS)));
    let stopping = tasks.stop_signal();
    // The permit comes before the accept: connections over the limit wait in the kernel's queue.
    while let Some(Ok(permit)) = stopping.run_until(pin!(Arc::clone(&permits).acquire_owned())).await {
        let Some(stream) = stopping.run_until(pin!(accept_connection(&listener))).await else {
            break;
        };
        tune_socket(&stream);
        let stream = ClientStream::new(stream, settings.tls.as_ref());
        let service = CertificateService::new(&stream, service.clone());
        let connection = serve_connection(stream, settings.clone(), tasks.clone(), service);
        tasks.spawn_connection(async move {
            connection.await;
            drop(permit);
        });
    }
}

/// Accepts the next connection. Pauses while the system is out of descriptors or memory.
async fn accept_connection(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_connection_error(&error) => {}
            // Without the pause this loop would spin until descriptors are free again.
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection: retrying in 100 ms");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// Returns `true` if an accept error concerns only the one connection, so that the next accept may succeed.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Serves one connection until it ends. A drain lets its running exchanges finish.
pub async fn serve_connection<T, S, B>(stream: T, settings: ServerSettings, tasks: Tasks, service: S)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let heads = RequestHeads::default();
    let stream = ClientIo::new(stream, heads.clone(), settings.header_timeout, settings.client_stall);
    let service = FramingService {
        heads,
        stalled: stream.stall_flag(),
        service,
    };
    let builder = connection_builder(tasks.clone());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = if let Some(ended) = tasks.stop_signal().run_until(connection.as_mut()).await {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection closed with an error");
    }
}

/// Sets socket options. Errors are ignored: the connection works without them.
fn tune_socket(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    drop(socket.set_tcp_nodelay(true));
    drop(socket.set_send_buffer_size(SEND_BUFFER_BYTES));
    // A client that vanished without a FIN must not hold a provider's answer open for minutes.
    drop(socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(CLIENT_KEEPALIVE)));
}

/// Configures hyper for HTTP/1 and HTTP/2.
fn connection_builder(tasks: Tasks) -> auto::Builder<Tasks> {
    let mut builder = auto::Builder::new(tasks);
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper counts it from the end of the last exchange, so it is the keep-alive. `framing` times the head itself.
        .header_read_timeout(KEEP_ALIVE)
        .max_buf_size(HEAD_BYTES_MAX)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// A service that adds the framing of each request, and the state of its connection, to the request's extensions.
#[derive(Clone, Debug)]
struct FramingService<S> {
    heads: RequestHeads,
    stalled: ClientStall,
    service: S,
}

impl<S, B> Service<Request<Incoming>> for FramingService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        // Called in the order of the requests on the connection, so the queues agree.
        if request.version() < Version::HTTP_2 {
            request.extensions_mut().insert(self.heads.next_framing());
            request.extensions_mut().insert(self.heads.clone());
        }
        request.extensions_mut().insert(self.stalled.clone());
        self.service.call(request)
    }
}
