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

/// Longest time between two looks at connections that wait for a request.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// A task of the pool.
type PoolFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of tasks of the pool. Cheap to clone.
#[derive(Clone)]
pub(super) struct PoolExecutor(Arc<dyn Executor<PoolFuture> + Send + Sync>);

impl PoolExecutor {
    pub(super) fn new(executor: impl Executor<PoolFuture> + Send + Sync + 'static) -> Self {
        Self(Arc::new(executor))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for PoolExecutor {
    fn execute(&self, task: F) {
        self.0.execute(Box::pin(task));
    }
}

/// The connections to all origins. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionPool(Arc<PoolParts>);

struct PoolParts {
    connector: Connector,
    executor: PoolExecutor,
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
    pub(super) fn new(settings: &UpstreamSettings, executor: PoolExecutor, connector: Connector) -> Self {
        Self(Arc::new(PoolParts {
            connector,
            executor,
            idle_timeout: settings.pool_idle_timeout,
            idle_max: settings.pool_idle_max,
            origins: Mutex::default(),
        }))
    }

    /// Returns the connections to the origin of a URI, which must be absolute.
    pub(super) fn find_origin(&self, uri: &Uri) -> Result<Arc<OriginPool>, PoolError> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            let source = BoxError::from("the URI has no scheme or no host");
            return Err(PoolError::Connect(SendError::new(
                Phase::Connect,
                SendErrorKind::Io,
                Some(source),
            )));
        };
        let mut origins = lock(&self.0.origins);
        // A configuration names a few origins, so that a search is faster than a hash.
        let known = origins
            .iter()
            .find(|origin| origin.authority == authority.as_str() && origin.scheme == *scheme);
        if let Some(known) = known {
            return Ok(Arc::clone(known));
        }
        // Origins that the configuration no longer names must not stay for ever.
        origins.retain(|origin| Arc::strong_count(origin) > 1 || !lock(&origin.connections).is_empty());
        let origin = OriginPool::new(self, scheme, authority).map_err(PoolError::Connect)?;
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
    executor: PoolExecutor,
    connections: Mutex<OpenConnections>,
    /// Notified when a connection becomes free.
    freed: Notify,
}

#[derive(Default)]
struct OpenConnections {
    /// In the order in which they became free.
    idle: Vec<IdleConnection>,
    /// The HTTP/2 connection that all requests share.
    shared: Option<http2::SendRequest<TrackedBody>>,
    /// `true` while a task removes idle connections.
    is_swept: bool,
}

struct IdleConnection {
    connection: Box<Http1Connection>,
    since: Instant,
}

impl OpenConnections {
    fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.shared.is_none()
    }

    /// Takes the connection that became free last.
    fn take(&mut self, idle_timeout: Duration) -> Option<PooledConnection> {
        if let Some(shared) = &self.shared {
            if shared.is_ready() {
                return Some(PooledConnection::Shared(shared.clone()));
            }
            self.shared = None;
        }
        let newest = self.idle.pop()?;
        if clock::now().duration_since(newest.since) < idle_timeout {
            return Some(PooledConnection::Own(newest.connection));
        }
        // The others are older.
        self.idle.clear();
        None
    }
}

/// An open connection to a provider.
pub(super) enum PooledConnection {
    /// An HTTP/1 connection, for one request at a time.
    Own(Box<Http1Connection>),
    /// An HTTP/2 connection, which has a task of its own.
    Shared(http2::SendRequest<TrackedBody>),
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
    pub(super) fn take_open(&self) -> Option<PooledConnection> {
        loop {
            let taken = lock(&self.connections).take(self.idle_timeout)?;
            match taken {
                PooledConnection::Own(mut connection) => {
                    // It may read, so not under the lock.
                    if connection.is_free() {
                        return Some(PooledConnection::Own(connection));
                    }
                }
                shared @ PooledConnection::Shared(_) => return Some(shared),
            }
        }
    }

    /// Opens a connection, or returns one that becomes free meanwhile, and `true` if it has served a request before.
    pub(super) async fn connect(&self, target: Uri) -> Result<(PooledConnection, bool), PoolError> {
        let mut connecting = pin!(self.open(target));
        loop {
            tokio::select! {
                biased;
                opened = &mut connecting => return opened.map(|connection| (connection, false)),
                () = self.freed.notified() => {
                    if let Some(connection) = self.take_open() {
                        return Ok((connection, true));
                    }
                }
            }
        }
    }

    async fn open(&self, target: Uri) -> Result<PooledConnection, PoolError> {
        let stream = self.connector.connect(target).await.map_err(PoolError::Connect)?;
        if stream.connected().is_negotiated_h2() {
            self.open_shared(stream).await.map(PooledConnection::Shared)
        } else {
            let opened = Http1Connection::open(stream).await.map_err(PoolError::Http)?;
            Ok(PooledConnection::Own(Box::new(opened)))
        }
    }

    async fn open_shared(
        &self,
        stream: WriteTimeoutIo<ProviderStream>,
    ) -> Result<http2::SendRequest<TrackedBody>, PoolError> {
        let (requests, connection) = http2::Builder::new(self.executor.clone())
            .timer(TokioTimer::new())
            // Detects a dead connection during a long silence.
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            // The same limit for both protocols.
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .handshake(stream)
            .await
            .map_err(PoolError::Http)?;
        self.executor.execute(async move {
            // Each request on it gets the error.
            drop(connection.await);
        });
        lock(&self.connections).shared = Some(requests.clone());
        // All that wait for a connection can share this one.
        self.freed.notify_waiters();
        Ok(requests)
    }

    /// Removes the shared connection, which has failed.
    pub(super) fn remove_shared(&self) {
        lock(&self.connections).shared = None;
    }

    /// Puts a connection back, if it can take another request.
    pub(super) fn put_back(self: &Arc<Self>, mut connection: Box<Http1Connection>) {
        if !connection.is_free() {
            return;
        }
        let since = clock::now();
        let mut connections = lock(&self.connections);
        if connections.idle.len() >= self.idle_max {
            return;
        }
        connections.idle.push(IdleConnection { connection, since });
        let starts_sweeping = !std::mem::replace(&mut connections.is_swept, true);
        drop(connections);
        self.freed.notify_one();
        if starts_sweeping {
            self.start_sweeping();
        }
    }

    /// Removes idle connections that are too old or closed by the provider, as long as there is an idle one.
    fn start_sweeping(self: &Arc<Self>) {
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

    /// Removes idle connections. Returns `false` if none is left.
    fn sweep(&self) -> bool {
        let now = clock::now();
        let mut connections = lock(&self.connections);
        // It reads under the lock, but only what a provider sent unasked.
        connections
            .idle
            .retain_mut(|idle| now.duration_since(idle.since) < self.idle_timeout && idle.connection.is_free());
        connections.is_swept = !connections.idle.is_empty();
        connections.is_swept
    }
}

/// A connection that could not be opened.
#[derive(Debug)]
pub(super) enum PoolError {
    /// The dialer's error, which knows its phase.
    Connect(SendError),
    /// hyper's error at the beginning of the protocol.
    Http(hyper::Error),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
