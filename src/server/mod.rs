//! Listeners, connections and their limits, tasks and the drain.

mod accept_outage;
mod address_limit;
pub mod budget;
mod chunk_line;
mod client_io;
mod descriptor_reserve;
pub mod framing;
pub mod inherited;
mod inspected_body;
mod owner_limit;
pub(crate) mod regular_file;
mod runtimes;
mod tasks;
pub mod tls;

use std::{
    convert::Infallible,
    fmt,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

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
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};

pub use accept_outage::AcceptOutage;
use address_limit::AddressLimit;
pub use address_limit::{AddressRange, AddressRangeParseError, client_network};
use client_io::ClientIo;
pub use client_io::ClientStall;
pub use descriptor_reserve::{DescriptorReserve, ReserveLoan};
use framing::{RequestFraming, RequestHeads};
pub use inspected_body::{InspectedBody, RequestBodyError};
pub use owner_limit::{OwnerLimit, OwnerPlace};
pub use runtimes::{RuntimeHandles, Runtimes};
pub use tasks::{PoolTasks, StopSignal, Tasks};
use tls::{CertificateService, ClientStream, ListenerTls};

use crate::telemetry::Telemetry;

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
/// Connections that may wait in the kernel's queue of a listener. The kernel may allow fewer (`somaxconn`).
const BACKLOG: u32 = 4096;

/// Settings of one listener.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Concurrent connections. More wait in the kernel's queue.
    pub connections_max: usize,
    /// Concurrent connections of one client address. More are closed at once.
    pub connections_per_address_max: usize,
    /// Addresses without that limit, besides loopback.
    pub trusted_proxies: Vec<AddressRange>,
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

/// Ports below this one are reserved for privileged processes on Unix.
const UNPRIVILEGED_PORT_MIN: u16 = 1024;

impl BindError {
    /// Returns what the operator can do.
    pub fn remedy(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::AddrInUse => {
                "another antiphon may be running; choose other addresses with --listen and --admin-listen"
            }
            io::ErrorKind::PermissionDenied if self.address.port() < UNPRIVILEGED_PORT_MIN => {
                "ports below 1024 need a privilege: choose a higher port with --listen and --admin-listen, or give \
                 antiphon CAP_NET_BIND_SERVICE"
            }
            io::ErrorKind::PermissionDenied => {
                "permission denied by the system; choose other addresses with --listen and --admin-listen"
            }
            io::ErrorKind::AddrNotAvailable => {
                "no interface of this machine has this address; choose other addresses with --listen and --admin-listen"
            }
            _ => "choose other addresses with --listen and --admin-listen",
        }
    }
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

/// The address of the client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The connection on which a request came. Each request carries it in its extensions.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    /// The client's address, if the connection has one.
    pub address: Option<ClientAddress>,
    /// `true` for TLS.
    pub is_encrypted: bool,
    /// The flag that is set while the client reads nothing.
    pub stall: ClientStall,
    /// The framing of the request, and the heads of its connection. `None` for HTTP/2.
    pub framing: Option<(RequestFraming, RequestHeads)>,
}

/// Binds a listener, whose connections the current runtime accepts. Port 0 selects a free port.
pub fn bind_listener(address: SocketAddr) -> Result<TcpListener, BindError> {
    listen_on(address).map_err(|source| BindError { address, source })
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restart must not wait for connections of the process before. On Windows this would let two processes share it.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections and serves each with a clone of `service`, until the drain begins.
///
/// The extensions of every request contain its [`ClientConnection`].
pub async fn serve_listener<S, B>(
    listener: TcpListener,
    settings: ServerSettings,
    tasks: Tasks,
    reserve: DescriptorReserve,
    telemetry: Telemetry,
    service: S,
) where
    S: Service<Request<InspectedBody>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let permits = Arc::new(Semaphore::new(settings.connections_max.min(Semaphore::MAX_PERMITS)));
    let mut addresses = AddressLimit::new(settings.connections_per_address_max, settings.trusted_proxies.clone());
    let mut outage = AcceptOutage::new("proxy");
    let stopping = tasks.stop_signal();
    // The permit comes before the accept: connections over the limit wait in the kernel's queue.
    while let Some(Ok(permit)) = stopping.run_until(pin!(Arc::clone(&permits).acquire_owned())).await {
        let accepting = pin!(accept_connection(&listener, &reserve, &mut outage));
        let Some((stream, address)) = stopping.run_until(accepting).await else {
            break;
        };
        let Some(place) = addresses.take_place(address.ip()) else {
            telemetry.record_refused_connection();
            if let Some(refused) = addresses.record_refusal() {
                let address = address.ip();
                tracing::warn!(
                    %address,
                    refused,
                    "closed new connections: the address has server.connections_per_address_max; if many clients share \
                     it, add it to server.trusted_proxies"
                );
            }
            // Closed without an answer, which would cost more than the client pays for a connection.
            continue;
        };
        tune_socket(&stream);
        let peer = Some(ClientAddress(address.ip().to_canonical()));
        let stream = ClientStream::new(stream, settings.tls.as_ref());
        let service = CertificateService::new(&stream, service.clone());
        let connection = serve_connection(stream, peer, settings.clone(), tasks.clone(), service);
        tasks.spawn_connection(async move {
            connection.await;
            drop((permit, place));
        });
    }
}

/// Accepts the next connection. Pauses while the system is out of descriptors or memory.
async fn accept_connection(
    listener: &TcpListener,
    reserve: &DescriptorReserve,
    outage: &mut AcceptOutage,
) -> (TcpStream, SocketAddr) {
    loop {
        match poll_fn(|cx| reserve.guard_accept(|| listener.poll_accept(cx))).await {
            Ok(accepted) => {
                outage.record_success();
                return accepted;
            }
            Err(error) => outage.wait_after_failure(&error).await,
        }
    }
}

/// Serves one connection until it ends. A drain lets its running exchanges finish.
///
/// `peer` is the client's address, if the connection has one.
pub async fn serve_connection<T, S, B>(
    stream: T,
    peer: Option<ClientAddress>,
    settings: ServerSettings,
    tasks: Tasks,
    service: S,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request<InspectedBody>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let heads = RequestHeads::default();
    let stream = ClientIo::new(stream, heads.clone(), settings.header_timeout, settings.client_stall);
    let service = FramingService {
        heads,
        stall: stream.stall_flag(),
        peer,
        is_encrypted: settings.tls.is_some(),
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

/// A service that adds its [`ClientConnection`] to each request.
#[derive(Clone, Debug)]
struct FramingService<S> {
    heads: RequestHeads,
    stall: ClientStall,
    peer: Option<ClientAddress>,
    is_encrypted: bool,
    service: S,
}

impl<S, B> Service<Request<Incoming>> for FramingService<S>
where
    S: Service<Request<InspectedBody>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        // Called in the order of the requests on the connection, so the queues agree.
        let next = (request.version() < Version::HTTP_2).then(|| self.heads.next_framing());
        let inspected = next.map(|(_, number)| (self.heads.clone(), number));
        // One extension: each costs two allocations.
        request.extensions_mut().insert(ClientConnection {
            address: self.peer,
            is_encrypted: self.is_encrypted,
            stall: self.stall.clone(),
            framing: next.map(|(framing, _)| (framing, self.heads.clone())),
        });
        self.service
            .call(request.map(|body| InspectedBody::new(body, inspected)))
    }
}
