//! The composition root: builds every part from its settings, starts it and drains it in order.

mod launch;

use std::{net::SocketAddr, sync::Arc, time::Duration};

pub use launch::{ConfigSummary, LaunchedProxy, launch_proxy};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    callers::Callers,
    late::{LateSettings, LateStore, LateWorker},
    ledger::{self, Ledger, MeasuredLedger, WriteBehind, WriteBehindWorker},
    profiles::Profiles,
    provider::Routes,
    proxy::{Proxy, ProxyReload, ProxyServices, ProxySettings},
    recall::{AnswerStore, AnswerStoreSettings},
    server::{self, BindError, ServerSettings, Tasks},
    telemetry::{Telemetry, TraceExporter},
    upstream::{InProcessDialer, Sender, UpstreamSettings},
};

/// Timeout of a drain for the ledger, and at the same time for the collector of traces.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Parts and settings that [`start`] makes into a running proxy.
#[derive(Debug)]
pub struct AppParts {
    /// Table of upstreams.
    pub routes: Routes,
    /// Settings of the data listener.
    pub server: ServerSettings,
    /// Address of the admin listener.
    pub admin_listen: SocketAddr,
    /// Service of the admin listener.
    pub admin: axum::Router,
    /// Settings of the data path.
    pub proxy: ProxySettings,
    /// Settings of the HTTP client towards providers.
    pub upstream: UpstreamSettings,
    /// State that the data path shares with other parts.
    pub shared: ProxyServices,
    /// Background work of the ledger and of late results.
    pub background_work: BackgroundWork,
    /// Exporter of traces. `None` if no traces are sent.
    pub traces: Option<TraceExporter>,
}

/// Background work that no exchange waits for, not yet started.
#[derive(Debug)]
pub struct BackgroundWork {
    ledger: Arc<dyn Ledger>,
    write_behind_worker: WriteBehindWorker,
    late_worker: LateWorker,
    late: LateStore,
    write_behind: WriteBehind,
}

/// Running background work.
#[derive(Debug)]
struct RunningBackgroundWork {
    tasks: Tasks,
    late: LateStore,
    write_behind: WriteBehind,
    telemetry: Telemetry,
}

impl BackgroundWork {
    /// Starts the work as background tasks.
    fn start(self, tasks: Tasks, telemetry: Telemetry) -> RunningBackgroundWork {
        tasks.spawn_background(self.write_behind_worker.run());
        tasks.spawn_background(self.late_worker.run());
        tasks.spawn_background(ledger::remove_expired_hourly(self.ledger));
        RunningBackgroundWork {
            tasks,
            late: self.late,
            write_behind: self.write_behind,
            telemetry,
        }
    }
}

impl RunningBackgroundWork {
    /// Waits until all queued work is done, or a timeout ends the wait.
    async fn drain(self) {
        let flush = async {
            self.late.flush_jobs().await;
            self.write_behind.flush().await;
        };
        // Side by side, so that a slow ledger and a slow collector together cost one timeout.
        let (flushed, exported) = tokio::join!(
            tokio::time::timeout(FLUSH_TIMEOUT, flush),
            tokio::time::timeout(FLUSH_TIMEOUT, self.telemetry.flush_traces()),
        );
        if flushed.is_err() {
            tracing::warn!("timeout while flushing the ledger: its last writes are lost");
        }
        if exported.is_err() {
            tracing::warn!("timeout while sending the last traces to the collector: they are lost");
        }
        self.tasks.drain(Duration::ZERO).await;
    }
}

/// Services on top of one ledger: late results and pinned answers.
#[derive(Debug)]
pub struct LedgerServices {
    /// Late results.
    pub late: LateStore,
    /// Pinned answers.
    pub answers: AnswerStore,
    /// Background work of both.
    pub background_work: BackgroundWork,
}

impl LedgerServices {
    /// Builds the services over `ledger`. With `keeps_seen` it also stores results that were only seen in requests.
    pub fn over_ledger(
        ledger: &Arc<dyn Ledger>,
        settings: LateSettings,
        keeps_seen: bool,
        telemetry: &Telemetry,
    ) -> Self {
        // All access from here on is counted and timed.
        let ledger: &Arc<dyn Ledger> =
            &(Arc::new(MeasuredLedger::new(Arc::clone(ledger), telemetry)) as Arc<dyn Ledger>);
        let (later, writer) = ledger::write_behind_counting(Arc::clone(ledger), telemetry.lost_ledger_writes());
        let callers = Callers::new(Arc::clone(ledger), later.clone());
        let shared = Arc::clone(ledger);
        let recalls = AnswerStoreSettings {
            record_ttl: settings.ttl,
            stores_client_results: keeps_seen,
        };
        let recall = AnswerStore::new(shared, later.clone(), callers.clone(), telemetry.clone(), recalls);
        let shared = Arc::clone(ledger);
        let (late, keeper) = LateStore::new(shared, callers, settings, telemetry.clone());
        let upkeep = BackgroundWork {
            ledger: Arc::clone(ledger),
            write_behind_worker: writer,
            late_worker: keeper,
            late: late.clone(),
            write_behind: later,
        };
        Self {
            late,
            answers: recall,
            background_work: upkeep,
        }
    }
}

/// Error for a proxy that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// TLS towards providers could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// Reports the duration of new connections to telemetry.
fn record_connects(sender: &Sender, telemetry: &Telemetry) {
    let telemetry = telemetry.clone();
    sender.observe_connects(move |took| telemetry.record_connect(took));
}

/// Binds both listeners and starts serving.
pub async fn start(parts: AppParts) -> Result<RunningProxy, StartError> {
    let AppParts {
        routes,
        server,
        admin_listen,
        admin,
        proxy,
        upstream: upstream_settings,
        shared,
        background_work: upkeep,
        traces,
    } = parts;
    let tasks = Tasks::default();
    // Both before anything is started, so that a port in use leaves nothing behind.
    let data = server::bind_listener(server.listen).await?;
    let admin_listener = server::bind_listener(admin_listen).await?;
    let data_address = data.local_addr().unwrap_or(server.listen);
    let admin_address = admin_listener.local_addr().unwrap_or(admin_listen);
    let sender = Sender::new(&upstream_settings, tasks.clone())?;
    let telemetry = shared.telemetry.clone();
    record_connects(&sender, &shared.telemetry);
    // Separate tasks, since the background work must outlive the connections, which still queue writes.
    let keeping = upkeep.start(Tasks::default(), shared.telemetry.clone());
    if let Some(exporter) = traces {
        // A client of its own, since the last spans are sent after the data path has been drained.
        let collector = Sender::new(&upstream_settings, keeping.tasks.clone())?;
        keeping.tasks.spawn_background(exporter.run(collector));
    }
    // The address that was bound, since the guard accepts it as a host name.
    let proxy = Proxy::new(routes, proxy, sender, shared, data_address.ip(), tasks.stop_signal());
    let drain_timeout = server.drain_timeout;
    tasks.spawn_background(server::serve_listener(data, server, tasks.clone(), proxy.clone()));
    tasks.spawn_background(telemetry.clone().build_structures());
    // A background task, so that the admin listener answers until the end and the drain can be watched.
    tasks.spawn_background(async move {
        if let Err(error) = axum::serve(admin_listener, admin).await {
            tracing::error!(%error, "the admin listener failed");
        }
    });
    Ok(RunningProxy {
        data: data_address,
        admin: admin_address,
        tasks,
        drain_timeout,
        background_work: keeping,
        proxy,
        telemetry,
        upstream: upstream_settings,
    })
}

/// The running proxy.
#[derive(Debug)]
pub struct RunningProxy {
    /// Address of the data listener.
    pub data: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    tasks: Tasks,
    drain_timeout: Duration,
    background_work: RunningBackgroundWork,
    proxy: Proxy,
    telemetry: Telemetry,
    /// Settings of the current HTTP client towards providers.
    upstream: UpstreamSettings,
}

impl RunningProxy {
    /// Replaces routes, settings and profiles for new exchanges. Running exchanges end with the old ones.
    ///
    /// On an error nothing has changed.
    pub fn replace_settings(
        &mut self,
        routes: Routes,
        settings: ProxySettings,
        upstream: UpstreamSettings,
        profiles: Profiles,
    ) -> Result<(), rustls::Error> {
        // A new client would drop the pool of open connections.
        let is_same = upstream == self.upstream;
        let sender = (!is_same).then(|| Sender::new(&upstream, self.tasks.clone()));
        let sender = sender
            .transpose()?
            .inspect(|sender| record_connects(sender, &self.telemetry));
        self.proxy.reload_settings(ProxyReload {
            routes,
            settings,
            sender,
            profiles,
        });
        self.upstream = upstream;
        Ok(())
    }

    /// Stops accepting, waits for running exchanges up to the drain timeout, and cuts the rest.
    pub async fn drain(self) {
        let cut = self.tasks.drain(self.drain_timeout).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "drain timeout: the remaining connections were cut");
        }
        // Last, since the end of an exchange still queues writes and spans.
        self.background_work.drain().await;
    }
}

/// Starts the data path without sockets, for clients and providers in this process. Listeners' addresses are ignored.
pub fn start_in_process(parts: AppParts, dial: InProcessDialer) -> InProcessProxy {
    let AppParts {
        routes,
        server,
        proxy,
        upstream: upstream_settings,
        shared,
        background_work: upkeep,
        ..
    } = parts;
    let tasks = Tasks::default();
    let sender = Sender::with_dial(&upstream_settings, tasks.clone(), dial);
    record_connects(&sender, &shared.telemetry);
    let listen = server.listen.ip();
    upkeep.start(tasks.clone(), shared.telemetry.clone());
    InProcessProxy {
        proxy: Proxy::new(routes, proxy, sender, shared, listen, tasks.stop_signal()),
        tasks,
        server,
    }
}

/// Running data path without sockets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InProcessProxy {
    proxy: Proxy,
    tasks: Tasks,
    server: ServerSettings,
}

impl InProcessProxy {
    /// Serves one client connection until it ends.
    pub fn serve_connection(&self, client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let (server, tasks, proxy) = (self.server.clone(), self.tasks.clone(), self.proxy.clone());
        self.tasks
            .spawn_connection(server::serve_connection(client, server, tasks, proxy));
    }

    /// Waits for running exchanges up to the drain timeout, and cuts the rest. Returns the number of cut connections.
    pub async fn drain(self) -> usize {
        self.tasks.drain(self.server.drain_timeout).await
    }
}
