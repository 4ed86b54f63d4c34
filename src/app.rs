//! The composition root: builds every part from its settings, starts it and drains it in order.

mod lasting_memory;
mod launch;
mod ledger_store;
mod local_token;
mod starting;

use std::{net::SocketAddr, sync::Arc, time::Duration};

pub use launch::{ConfigSummary, LaunchedProxy, launch_proxy};
pub use ledger_store::LedgerStore;

use tokio::{net::TcpListener, runtime::Handle};

use crate::{
    api::admin,
    keys::credentials::{EndpointClient, RenewalTasks},
    keys::profiles::{Profiles, SharedCooldownReader, SharedCooldowns},
    late::webhooks,
    late::{LateSettings, LateStore},
    ledger::{self, DatabaseOpenError, Ledger, LedgerOpenError, PostgresWorker},
    provider::Routes,
    proxy::{BoundAddresses, Proxy, ProxyNetwork, ProxyReload, ProxyServices, ProxySettings},
    recall::{ObjectOwners, RecallSettings, RecallStore},
    server::budget::{self, BodyMemory, Budgets},
    server::{
        BindError, DescriptorReserve, RuntimeHandles, ServerSettings, Tasks,
        inherited::{InheritError, InheritedListeners, open_listener},
        serve_listener,
        tls::{ListenerTls, watch_files},
    },
    table::{TableParts, VerifiedCallers},
    telemetry::{BodyLoad, MeasuredLedger, Telemetry, TraceExporter, watch_health},
    upstream::{RandomError, Sender, UpstreamSettings, system_tls_config},
    writer::{self, Writer, WriterTask},
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
    /// Runtimes of the data path. The admin listener runs on the current one.
    pub runtimes: RuntimeHandles,
    /// Memory of request bodies.
    pub body_memory: BodyMemory,
    /// Address of the admin listener.
    pub admin_listen: SocketAddr,
    /// TLS of the admin listener. `None` for plain HTTP.
    pub admin_tls: Option<ListenerTls>,
    /// Listeners that the service manager has opened already.
    pub inherited: InheritedListeners,
    /// Service of the admin listener.
    pub admin: admin::AdminService,
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
    /// The file or database of the ledger, for operators. `None` if it is in memory.
    ledger_place: Option<String>,
    /// The writers of a database. `None` for another store.
    database_worker: Option<PostgresWorker>,
    /// The task that reads the cooldowns of other processes. `None` if no other process uses the ledger.
    shared_cooldown_reader: Option<SharedCooldownReader>,
    writer_task: WriterTask,
    late: LateStore,
    answers: RecallStore,
    objects: ObjectOwners,
    writer: Writer,
}

/// Running background work.
#[derive(Debug)]
pub struct RunningBackgroundWork {
    tasks: Tasks,
    late: LateStore,
    writer: Writer,
    telemetry: Telemetry,
}

impl BackgroundWork {
    /// Starts the work as background tasks.
    pub fn start(self, tasks: Tasks, telemetry: Telemetry) -> RunningBackgroundWork {
        if let Some(worker) = self.database_worker {
            tasks.spawn_background(worker.run());
        }
        if let Some(reader) = self.shared_cooldown_reader {
            tasks.spawn_background(reader.run());
        }
        tasks.spawn_background(self.writer_task.run());
        tasks.spawn_background(watch_health(
            Arc::clone(&self.ledger),
            self.ledger_place,
            telemetry.clone(),
        ));
        tasks.spawn_background(ledger::remove_expired_hourly(self.ledger));
        tasks.spawn_background(self.answers.clone().follow_owners());
        tasks.spawn_background(self.answers.clone().join_chains());
        tasks.spawn_background(self.objects.follow_holders());
        tasks.spawn_background(self.late.clone().run_upkeep());
        RunningBackgroundWork {
            tasks,
            late: self.late,
            writer: self.writer,
            telemetry,
        }
    }
}

impl RunningBackgroundWork {
    /// Sends messages to tool services, and exports traces, each in the background and with a client of its own: a reload
    /// closes no connection of a message, and the last spans are sent after the data path has been drained.
    fn start_senders(&self, traces: Option<TraceExporter>, upstream: &UpstreamSettings) -> Result<(), rustls::Error> {
        let new_sender = || Sender::new(upstream, self.tasks.pool_tasks());
        let dispatcher = self.late.dispatcher();
        let watched = dispatcher.clone();
        self.telemetry.set_overdue_source(move || watched.overdue());
        if self.late.outbox().is_used() {
            self.tasks
                .spawn_background(webhooks::send_messages(dispatcher, new_sender()?));
        }
        if let Some(exporter) = traces {
            self.tasks.spawn_background(exporter.run(new_sender()?));
        }
        Ok(())
    }

    /// Waits until all queued work is done, or a timeout ends the wait.
    async fn drain(self) {
        // Side by side, so that a slow ledger and a slow collector together cost one timeout.
        let (flushed, exported) = tokio::join!(
            tokio::time::timeout(FLUSH_TIMEOUT, self.writer.finish()),
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

/// Services on top of one ledger: late results and pinned results.
#[derive(Debug)]
pub struct LedgerServices {
    /// Late results.
    pub late: LateStore,
    /// Pinned answers.
    pub answers: RecallStore,
    /// Owners of the providers' objects.
    pub objects: ObjectOwners,
    /// Callers that a provider has answered with success.
    pub callers: VerifiedCallers,
    /// Cooldowns of keys that other replicas share. `None` if no other process uses the ledger.
    pub shared_cooldowns: Option<SharedCooldowns>,
    /// Background work of all.
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
        let ledger: Arc<dyn Ledger> = Arc::new(MeasuredLedger::new(Arc::clone(ledger), telemetry));
        let (writer, writer_task) = writer::writer(Arc::clone(&ledger), telemetry.clone());
        let parts = TableParts::new(&ledger, &writer, telemetry.clone());
        let callers = VerifiedCallers::new(&parts);
        let recall_settings = RecallSettings {
            record_ttl: settings.ttl,
            stores_client_results: keeps_seen,
        };
        let answers = RecallStore::new(&parts, callers.clone(), telemetry.clone(), recall_settings);
        let objects = ObjectOwners::new(&parts, &callers);
        let late = LateStore::new(&parts, callers.clone(), settings, telemetry.clone());
        let (shared_cooldowns, shared_cooldown_reader) = SharedCooldowns::over_ledger(&parts).unzip();
        let background_work = BackgroundWork {
            ledger,
            ledger_place: None,
            database_worker: None,
            shared_cooldown_reader,
            writer_task,
            late: late.clone(),
            answers: answers.clone(),
            objects: objects.clone(),
            writer,
        };
        Self {
            late,
            answers,
            objects,
            callers,
            shared_cooldowns,
            background_work,
        }
    }
}

/// Error for a proxy that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A listener of the service manager could not be used.
    #[error(transparent)]
    Inherit(#[from] InheritError),
    /// TLS towards providers could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The ledger could not be opened.
    #[error(transparent)]
    Ledger(#[from] LedgerOpenError),
    /// The database of the ledger could not be opened.
    #[error(transparent)]
    Database(#[from] DatabaseOpenError),
    /// No secret could be generated for a new ledger.
    #[error("cannot generate the secret of the ledger")]
    LedgerSecret(#[source] RandomError),
}

/// Reports the duration of new connections to telemetry.
fn record_connects(sender: &Sender, telemetry: &Telemetry) {
    let telemetry = telemetry.clone();
    sender.observe_connects(move |took| telemetry.record_connect(took));
}

/// Lets the metrics page show the use of the budgets of request bodies.
fn report_body_load(telemetry: &Telemetry, budgets: &Budgets) {
    let budgets = budgets.clone();
    telemetry.set_body_load_source(move || {
        let memory = budgets.memory.memory_use();
        BodyLoad {
            bytes: memory.bytes,
            bytes_max: memory.bytes_max,
            waiting_for_memory: memory.waiting,
            waiting_for_work: budgets.work.waiting(),
        }
    });
}

/// Opens the data listener on `data_runtime`, and the admin listener on the current runtime.
fn open_listeners(
    inherited: InheritedListeners,
    (data, admin): (SocketAddr, SocketAddr),
    data_runtime: &Handle,
) -> Result<(TcpListener, TcpListener), StartError> {
    inherited.check_addresses(data, admin)?;
    let data_listener = {
        let _entered = data_runtime.enter();
        open_listener(inherited.data, data)?
    };
    Ok((data_listener, open_listener(inherited.admin, admin)?))
}

/// Binds both listeners and starts serving: clients on the data path's runtime, operators on the current one.
pub async fn start(mut parts: AppParts) -> Result<RunningProxy, StartError> {
    let (data_runtime, admin_runtime) = (parts.runtimes.data, Handle::current());
    let tasks = Tasks::on_runtime(data_runtime.clone());
    // Both before anything is started, so that a port in use leaves nothing behind.
    let addresses = (parts.server.listen, parts.admin_listen);
    let (data_listener, admin_listener) = open_listeners(parts.inherited, addresses, &data_runtime)?;
    let data = data_listener.local_addr().unwrap_or(parts.server.listen);
    let admin = admin_listener.local_addr().unwrap_or(parts.admin_listen);
    let sender = Sender::new(&parts.upstream, tasks.pool_tasks())?;
    let endpoint_client = EndpointClient::new(&parts.shared.profiles, &parts.upstream, &tasks, system_tls_config()?);
    // Background tasks of the data path: running exchanges need fresh credentials until the end of the drain.
    let renewals = RenewalTasks::start(&parts.shared.profiles, &endpoint_client, &tasks, None);
    let telemetry = parts.shared.telemetry.clone();
    record_connects(&sender, &telemetry);
    for tls in [&mut parts.server.tls, &mut parts.admin_tls] {
        *tls = tls.take().map(|tls| tls.counting_failures(&telemetry));
    }
    // Separate tasks, since the background work must outlive the connections, which still queue writes.
    let background_tasks = Tasks::on_runtime(data_runtime);
    let background_work = parts.background_work.start(background_tasks, telemetry.clone());
    background_work.start_senders(parts.traces, &parts.upstream)?;
    // The address that was bound, since the guard accepts it as a host name.
    let bound = BoundAddresses {
        data,
        admin: Some(admin),
        has_tls: parts.server.tls.is_some(),
    };
    let budgets = Budgets {
        work: parts.runtimes.heavy,
        memory: parts.body_memory.clone(),
    };
    let network = new_network(sender, bound, budgets, &tasks);
    report_body_load(&telemetry, &network.budgets);
    let proxy = Proxy::new(parts.routes, parts.proxy, parts.shared, network);
    let (drain_delay, drain_timeout) = (parts.server.drain_delay, parts.server.drain_timeout);
    let (tls, timeouts) = (parts.server.tls.clone(), parts.server.clone());
    if let Some(tls) = tls.clone() {
        tasks.spawn_background(watch_files(tls, telemetry.clone()));
    }
    let reserve = DescriptorReserve::default();
    tasks.spawn_background(serve_listener(
        data_listener,
        parts.server,
        tasks.clone(),
        reserve.clone(),
        telemetry.clone(),
        proxy.clone(),
    ));
    tasks.spawn_background(telemetry.clone().build_structures());
    tasks.spawn_background(budget::return_freed_memory(parts.body_memory));
    // Tasks of their own: operators watch the drain, which must not wait for their connections, and must not end them.
    let served = (parts.admin, Tasks::on_current_runtime());
    let operators = admin::serve_listener(admin_listener, reserve, parts.admin_tls, timeouts, served);
    // A background task, so that the admin listener answers until the end and the drain can be watched. On a runtime of
    // its own, so that it answers whatever the exchanges do.
    tasks.spawn_background_on(&admin_runtime, operators);
    Ok(RunningProxy {
        data,
        admin,
        tasks,
        drain_delay,
        drain_timeout,
        background_work,
        proxy,
        renewals,
        telemetry,
        upstream: parts.upstream,
        tls,
    })
}

fn new_network(sender: Sender, bound: BoundAddresses, budgets: Budgets, tasks: &Tasks) -> ProxyNetwork {
    ProxyNetwork {
        sender,
        bound,
        budgets,
        stopping: tasks.stop_signal(),
        closing: tasks.closing_signal(),
        exchanges: tasks.exchange_tracker(),
    }
}

/// The running proxy.
#[derive(Debug)]
pub struct RunningProxy {
    /// Address of the data listener.
    pub data: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    tasks: Tasks,
    drain_delay: Duration,
    drain_timeout: Duration,
    background_work: RunningBackgroundWork,
    proxy: Proxy,
    /// Tasks that keep the credentials of the present configuration fresh.
    renewals: RenewalTasks,
    telemetry: Telemetry,
    /// Settings of the current HTTP client towards providers.
    upstream: UpstreamSettings,
    /// TLS of the listeners. `None` if they have none.
    pub tls: Option<ListenerTls>,
}

impl RunningProxy {
    /// Takes the certificate of a newly loaded configuration, if it is in the same files as before.
    pub fn take_certificate(&self, newer: Option<&ListenerTls>) {
        if let (Some(tls), Some(newer)) = (&self.tls, newer) {
            tls.take_newer(newer);
        }
    }

    /// Replaces routes, settings and profiles for new exchanges. Running exchanges end with the old ones.
    ///
    /// `tls` is the TLS of new clients. It is built before: it needs files, which may not answer.
    pub fn replace_settings(
        &mut self,
        routes: Routes,
        settings: ProxySettings,
        (upstream, tls): (UpstreamSettings, rustls::ClientConfig),
        profiles: Profiles,
    ) {
        let endpoint_client = EndpointClient::new(&profiles, &upstream, &self.tasks, tls.clone());
        // A new client would drop the pool of open connections.
        let is_same = upstream == self.upstream;
        let sender = (!is_same).then(|| Sender::with_tls(&upstream, self.tasks.pool_tasks(), tls));
        let sender = sender.inspect(|sender| record_connects(sender, &self.telemetry));
        self.renewals = RenewalTasks::start(&profiles, &endpoint_client, &self.tasks, Some(&self.renewals));
        self.proxy.reload_settings(ProxyReload {
            routes,
            settings,
            sender,
            profiles,
        });
        self.upstream = upstream;
    }

    /// Accepts connections for the drain delay, waits for running exchanges up to the drain timeout, and cuts the rest.
    ///
    /// Readiness has ended before: load balancers that notice it late may still send requests during the delay.
    pub async fn drain(self) {
        if !self.drain_delay.is_zero() {
            tokio::time::sleep(self.drain_delay).await;
        }
        let cut = self.tasks.drain(self.drain_timeout).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "drain timeout: the remaining answers were ended");
        }
        // Last, since the end of an exchange still queues writes and spans.
        self.background_work.drain().await;
    }
}
