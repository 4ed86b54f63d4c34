//! The connections to providers: open ones that wait for a request, and new ones.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{
    HeaderValue, Uri,
    uri::{Authority, Scheme},
};
use hyper::{client::conn::http2, rt::Executor};
use hyper_util::{client::legacy::connect::Connection as _, rt::TokioTimer};
use tokio::{sync::Notify, time::Instant};

use super::{
    BoxError, HEAD_BYTES_MAX, Phase, SendError, SendErrorKind, UpstreamSettings, dial::Connector,
    http1::Http1Connection, in_process::ProviderStream, read_idle::WriteTimeoutIo, send_progress::TrackedBody,
};
use crate::clock;

/// Maximum interval between two sweeps of connections that wait for a request.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// A task of the pool.
type PoolFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of tasks of the pool. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionExecutor(Arc<dyn Executor<PoolFuture> + Send + Sync>);

impl ConnectionExecutor {
    pub(super) fn new(executor: impl Executor<PoolFuture> + Send + Sync + 'static) -> Self {
        Self(Arc::new(executor))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ConnectionExecutor {
    fn execute(&self, task: F) {
        self.0.execute(Box::pin(task));
    }
}

/// The connections to all origins. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionPool(Arc<PoolParts>);

struct PoolParts {
    connector: Connector,
    executor: ConnectionExecutor,
    idle_timeout: Duration,
    idle_max: usize,
    origins: Mutex<Vec<Arc<OriginPool>>>,
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").finish_non_exhaustive()
    }
}

impl ConnectionPool {
    pub(super) fn new(settings: &UpstreamSettings, executor: ConnectionExecutor, connector: Connector) -> Self {
        Self(Arc::new(PoolParts {
            connector,
            executor,
            idle_timeout: settings.pool_idle_timeout,
            idle_max: settings.pool_idle_max,
            origins: Mutex::default(),
        }))
    }

    /// Returns the connections to the origin of a URI, which must be absolute. Creates the pool if there is none.
    pub(super) fn origin_pool(&self, uri: &Uri) -> Result<Arc<OriginPool>, ConnectError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            let source = BoxError::from("the URI has no scheme or no host");
            return Err(ConnectError::Connect(SendError::new(
                Phase::Connect,
                SendErrorKind::Io,
                Some(source),
            )));
        };
        let mut origins = lock(&self.0.origins);
        // There are only a few origins, so a linear search is faster than hashing.
        let known = origins
            .iter()
            .find(|origin| origin.authority == authority.as_str() && origin.scheme == *scheme);
        if let Some(known) = known {
            return Ok(Arc::clone(known));
        }
        // Removes the pools of origins that are no longer in use.
        origins.retain(|origin| Arc::strong_count(origin) > 1 || !lock(&origin.connections).is_empty());
        let origin = OriginPool::new(self, scheme, authority).map_err(ConnectError::Connect)?;
        let origin = Arc::new(origin);
        origins.push(Arc::clone(&origin));
        Ok(origin)
    }
}

/// The connections to one origin.
pub(super) struct OriginPool {
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    idle_timeout: Duration,
    idle_max: usize,
    connector: Connector,
    executor: ConnectionExecutor,
    connections: Mutex<AvailableConnections>,
    /// Notified when a connection becomes free.
    freed: Notify,
}

#[derive(Default)]
struct AvailableConnections {
    /// In the order in which they became free.
    idle: Vec<IdleConnection>,
    /// The HTTP/2 connection that all requests share, and the time of its last request.
    shared: Option<(http2::SendRequest<TrackedBody>, Instant)>,
    /// `true` while a task removes idle connections.
    has_sweeper: bool,
}

struct IdleConnection {
    connection: Box<Http1Connection>,
    since: Instant,
}

impl AvailableConnections {
    fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.shared.is_none()
    }

    /// Returns the shared connection, for one more request.
    fn take_shared(&mut self, idle_timeout: Duration) -> Option<http2::SendRequest<TrackedBody>> {
        let now = clock::now();
        let (shared, last_used) = self.shared.as_mut()?;
        // A network may have forgotten a connection on which nothing was sent for long.
        if shared.is_ready() && now.duration_since(*last_used) < idle_timeout {
            *last_used = now;
            return Some(shared.clone());
        }
        // Requests that are still on it have a handle of their own.
        self.shared = None;
        None
    }

    /// Takes the connection that became free last.
    fn take(&mut self, idle_timeout: Duration) -> Option<PooledConnection> {
        if let Some(shared) = self.take_shared(idle_timeout) {
            return Some(PooledConnection::Http2(shared));
        }
        let newest = self.idle.pop()?;
        if clock::now().duration_since(newest.since) < idle_timeout {
            return Some(PooledConnection::Http1(newest.connection));
        }
        // The others are older.
        self.idle.clear();
        None
    }
}

/// An open connection to a provider.
pub(super) enum PooledConnection {
    /// An HTTP/1 connection, for one request at a time.
    Http1(Box<Http1Connection>),
    /// An HTTP/2 connection, which has a task of its own.
    Http2(http2::SendRequest<TrackedBody>),
}

impl OriginPool {
    fn new(pool: &ConnectionPool, scheme: &Scheme, authority: &Authority) -> Result<Self, SendError> {
        let is_default_port = authority.port_u16() == Some(if *scheme == Scheme::HTTPS { 443 } else { 80 });
        // RFC 9110, section 7.2: without the user, and usually without a default port.
        let host = match authority.port_u16().filter(|_| !is_default_port) {
            Some(port) => HeaderValue::try_from(format!("{}:{port}", authority.host())),
            None => HeaderValue::from_str(authority.host()),
        };
        let host = host.map_err(|error| SendError::new(Phase::Connect, SendErrorKind::Io, Some(error.into())))?;
        let parts = &pool.0;
        Ok(Self {
            scheme: scheme.clone(),
            authority: authority.clone(),
            host,
            idle_timeout: parts.idle_timeout,
            idle_max: parts.idle_max,
            connector: parts.connector.clone(),
            executor: parts.executor.clone(),
            connections: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Returns the value of `Host`.
    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Returns an open connection that is free. `None` if there is none.
    pub(super) fn take_available(&self) -> Option<PooledConnection> {
        loop {
            let taken = lock(&self.connections).take(self.idle_timeout)?;
            match taken {
                PooledConnection::Http1(mut connection) => {
                    // It may read, so not under the lock.
                    if connection.check_free() {
                        return Some(PooledConnection::Http1(connection));
                    }
                }
                shared @ PooledConnection::Http2(_) => return Some(shared),
            }
        }
    }

    /// Opens a connection, or returns one that becomes free meanwhile, and `true` if this call did not open it.
    pub(super) async fn connect(self: &Arc<Self>, target: Uri) -> Result<(PooledConnection, bool), ConnectError> {
        let mut connecting = pin!(self.open(target));
        loop {
            tokio::select! {
                biased;
                opened = &mut connecting => return opened.map(|connection| (connection, false)),
                () = self.freed.notified() => {
                    if let Some(connection) = self.take_available() {
                        return Ok((connection, true));
                    }
                }
            }
        }
    }

    /// Opens a connection.
    pub(super) async fn open(self: &Arc<Self>, target: Uri) -> Result<PooledConnection, ConnectError> {
        let stream = self.connector.connect(target).await.map_err(ConnectError::Connect)?;
        if stream.connected().is_negotiated_h2() {
            self.open_http2(stream).await.map(PooledConnection::Http2)
        } else {
            let opened = Http1Connection::open(stream).await.map_err(ConnectError::Http)?;
            Ok(PooledConnection::Http1(Box::new(opened)))
        }
    }

    async fn open_http2(
        self: &Arc<Self>,
        stream: WriteTimeoutIo<ProviderStream>,
    ) -> Result<http2::SendRequest<TrackedBody>, ConnectError> {
        let (requests, connection) = http2::Builder::new(self.executor.clone())
            .timer(TokioTimer::new())
            // Detects a dead connection during a long silence.
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            // The same limit for both protocols.
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .handshake(stream)
            .await
            .map_err(ConnectError::Http)?;
        self.executor.execute(async move {
            // Each request on it gets the error.
            drop(connection.await);
        });
        let mut connections = lock(&self.connections);
        if let Some(earlier) = connections.take_shared(self.idle_timeout) {
            // Another request has opened one meanwhile. This one ends, since nobody has a handle of it.
            return Ok(earlier);
        }
        connections.shared = Some((requests.clone(), clock::now()));
        self.ensure_sweeper(connections);
        // Every waiting request can share this connection.
        self.freed.notify_waiters();
        Ok(requests)
    }

    /// Puts a connection back, if it can take another request.
    pub(super) fn put_back(self: &Arc<Self>, mut connection: Box<Http1Connection>) {
        if !connection.check_free() {
            return;
        }
        let since = clock::now();
        let mut connections = lock(&self.connections);
        if connections.idle.len() >= self.idle_max {
            return;
        }
        connections.idle.push(IdleConnection { connection, since });
        self.ensure_sweeper(connections);
        self.freed.notify_one();
    }

    /// Starts the task that removes connections which are unused for too long or closed by the provider, unless it runs.
    /// It ends when none is left.
    fn ensure_sweeper(self: &Arc<Self>, mut connections: MutexGuard<'_, AvailableConnections>) {
        let is_running = std::mem::replace(&mut connections.has_sweeper, true);
        drop(connections);
        if is_running {
            return;
        }
        let (origin, interval) = (Arc::downgrade(self), self.idle_timeout.min(SWEEP_INTERVAL_MAX));
        self.executor.execute(async move {
            loop {
                tokio::time::sleep(interval).await;
                // The pool is gone after a reload.
                let Some(origin) = origin.upgrade() else { return };
                if !origin.sweep() {
                    return;
                }
            }
        });
    }

    /// Removes unused connections. Returns `false` if none is left.
    fn sweep(&self) -> bool {
        let now = clock::now();
        let mut connections = lock(&self.connections);
        // Reads under the lock, which is short: an idle connection normally has nothing to read.
        connections
            .idle
            .retain_mut(|idle| now.duration_since(idle.since) < self.idle_timeout && idle.connection.check_free());
        let is_shared_used = |(shared, last_used): &(http2::SendRequest<TrackedBody>, Instant)| {
            shared.is_ready() && now.duration_since(*last_used) < self.idle_timeout
        };
        connections.shared = connections.shared.take().filter(is_shared_used);
        connections.has_sweeper = !connections.is_empty();
        connections.has_sweeper
    }
}

/// A connection that could not be opened.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The dialer's error, which knows its phase.
    Connect(SendError),
    /// hyper's error at the beginning of the protocol.
    Http(hyper::Error),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
