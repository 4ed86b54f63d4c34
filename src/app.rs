//! The composition root: builds every part from its settings, starts it, drains it in order.

mod launch;

use std::{net::SocketAddr, sync::Arc, time::Duration};

pub use launch::{Launched, Shown, launch};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    callers::Callers,
    late::{Keeper, Late, LateSettings},
    ledger::{self, Later, Ledger, Measured, Writer},
    profiles::Profiles,
    provider::Routes,
    proxy::{Fresh, Proxy, ProxySettings, Shared},
    recall::{Recall, RecallSettings},
    server::{self, BindError, ServerSettings, Tasks},
    telemetry::{Telemetry, TraceExporter},
    upstream::{Dial, Sender, UpstreamSettings},
};

/// How long a drain waits for the ledger, and meanwhile for the collector of traces.
const FLUSH: Duration = Duration::from_secs(2);

/// Everything that `start` needs.
#[derive(Debug)]
pub struct Parts {
    /// The table of upstreams.
    pub routes: Routes,
    /// The data listener.
    pub server: ServerSettings,
    /// Where the admin listener is.
    pub admin_listen: SocketAddr,
    /// What the admin listener serves.
    pub admin: axum::Router,
    /// The data path.
    pub proxy: ProxySettings,
    /// The client towards providers.
    pub upstream: UpstreamSettings,
    /// What the data path shares with those who look at it.
    pub shared: Shared,
    /// Who does what exchanges do not wait for.
    pub upkeep: Upkeep,
    /// Who sends traces, where there are any.
    pub traces: Option<TraceExporter>,
}

/// Who does what exchanges do not wait for.
#[derive(Debug)]
pub struct Upkeep {
    ledger: Arc<dyn Ledger>,
    writer: Writer,
    keeper: Keeper,
    late: Late,
    later: Later,
}

/// Those who do it, at work.
#[derive(Debug)]
struct Keeping {
    tasks: Tasks,
    late: Late,
    later: Later,
    telemetry: Telemetry,
}

impl Upkeep {
    fn start(self, tasks: Tasks, telemetry: Telemetry) -> Keeping {
        tasks.spawn_background(self.writer.run());
        tasks.spawn_background(self.keeper.run());
        tasks.spawn_background(ledger::clearing(self.ledger));
        Keeping {
            tasks,
            late: self.late,
            later: self.later,
            telemetry,
        }
    }
}

impl Keeping {
    /// Ends once everything that was handed in is done, or the ledger does not answer.
    async fn drain(self) {
        let flush = async {
            self.late.flush().await;
            self.later.flush().await;
        };
        let (kept, sent) = tokio::join!(
            tokio::time::timeout(FLUSH, flush),
            tokio::time::timeout(FLUSH, self.telemetry.flush_traces()),
        );
        if kept.is_err() {
            tracing::warn!("the ledger does not answer: what it was to keep last is lost");
        }
        if sent.is_err() {
            tracing::warn!("the collector does not answer: the last traces are lost");
        }
        self.tasks.drain(Duration::ZERO).await;
    }
}

/// What outlives conversations: late results and what is recalled of calls, over one ledger.
#[derive(Debug)]
pub struct Lasting {
    /// Late results.
    pub late: Late,
    /// What is recalled.
    pub recall: Recall,
    /// Who does what exchanges do not wait for.
    pub upkeep: Upkeep,
}

impl Lasting {
    /// All of it over `ledger`; with `keeps_seen` the results in requests go there too.
    pub fn over(ledger: &Arc<dyn Ledger>, settings: LateSettings, keeps_seen: bool, telemetry: &Telemetry) -> Self {
        let ledger: &Arc<dyn Ledger> = &(Arc::new(Measured::new(Arc::clone(ledger), telemetry)) as Arc<dyn Ledger>);
        let (later, writer) = ledger::later_counting(Arc::clone(ledger), telemetry.lost_ledger_writes());
        let callers = Callers::new(Arc::clone(ledger), later.clone());
        let kept = Arc::clone(ledger);
        let recalls = RecallSettings {
            lasting: settings.ttl,
            keeps_seen,
        };
        let recall = Recall::new(kept, later.clone(), callers.clone(), telemetry.clone(), recalls);
        let kept = Arc::clone(ledger);
        let (late, keeper) = Late::new(kept, callers, settings, telemetry.clone());
        let upkeep = Upkeep {
            ledger: Arc::clone(ledger),
            writer,
            keeper,
            late: late.clone(),
            later,
        };
        Self { late, recall, upkeep }
    }
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// TLS towards providers cannot be set up.
    #[error("tls cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// New connections are timed.
fn tell(sender: &Sender, telemetry: &Telemetry) {
    let telemetry = telemetry.clone();
    sender.tell(move |took| telemetry.record_connect(took));
}

/// Binds both listeners and serves until the drain.
pub async fn start(parts: Parts) -> Result<Running, StartError> {
    let Parts {
        routes,
        server,
        admin_listen,
        admin,
        proxy,
        upstream: upstream_settings,
        shared,
        upkeep,
        traces,
    } = parts;
    let tasks = Tasks::default();
    let data = server::bind(server.listen).await?;
    let admin_listener = server::bind(admin_listen).await?;
    let data_address = data.local_addr().unwrap_or(server.listen);
    let admin_address = admin_listener.local_addr().unwrap_or(admin_listen);
    let sender = Sender::new(&upstream_settings, tasks.clone())?;
    let telemetry = shared.telemetry.clone();
    tell(&sender, &shared.telemetry);
    // Of their own: they work until nobody has anything to write any more.
    let keeping = upkeep.start(Tasks::default(), shared.telemetry.clone());
    if let Some(exporter) = traces {
        let collector = Sender::new(&upstream_settings, keeping.tasks.clone())?;
        keeping.tasks.spawn_background(exporter.run(collector));
    }
    let proxy = Proxy::new(routes, proxy, sender, shared, data_address.ip(), tasks.stopping());
    let drain_timeout = server.drain_timeout;
    tasks.spawn_background(server::serve(data, server, tasks.clone(), proxy.clone()));
    tasks.spawn_background(telemetry.clone().build_structures());
    // The admin listener answers until the end, so that a drain can be watched.
    tasks.spawn_background(async move {
        if let Err(error) = axum::serve(admin_listener, admin).await {
            tracing::error!(%error, "the admin listener has ended");
        }
    });
    Ok(Running {
        data: data_address,
        admin: admin_address,
        tasks,
        drain_timeout,
        keeping,
        proxy,
        telemetry,
        upstream: upstream_settings,
    })
}

/// The running proxy.
#[derive(Debug)]
pub struct Running {
    /// Where the data listener is bound.
    pub data: SocketAddr,
    /// Where the admin listener is bound.
    pub admin: SocketAddr,
    tasks: Tasks,
    drain_timeout: Duration,
    keeping: Keeping,
    proxy: Proxy,
    telemetry: Telemetry,
    /// By which the client towards providers was made.
    upstream: UpstreamSettings,
}

impl Running {
    /// Exchanges that begin from now on go by this; those that run end as they began. On an error nothing has changed.
    pub fn replace(
        &mut self,
        routes: Routes,
        settings: ProxySettings,
        upstream: UpstreamSettings,
        profiles: Profiles,
    ) -> Result<(), rustls::Error> {
        let is_same = upstream == self.upstream;
        let sender = (!is_same).then(|| Sender::new(&upstream, self.tasks.clone()));
        let sender = sender.transpose()?.inspect(|sender| tell(sender, &self.telemetry));
        self.proxy.replace(Fresh {
            routes,
            settings,
            sender,
            profiles,
        });
        self.upstream = upstream;
        Ok(())
    }

    /// Stops accepting, lets what runs finish within the drain timeout, cuts the rest.
    pub async fn drain(self) {
        let cut = self.tasks.drain(self.drain_timeout).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "the drain timeout has passed: connections were cut");
        }
        self.keeping.drain().await;
    }
}

/// The data path without a socket: providers and clients live in this process. The listeners' settings say nothing.
pub fn within(parts: Parts, dial: Dial) -> Within {
    let Parts {
        routes,
        server,
        proxy,
        upstream: upstream_settings,
        shared,
        upkeep,
        ..
    } = parts;
    let tasks = Tasks::default();
    let sender = Sender::with_dial(&upstream_settings, tasks.clone(), dial);
    tell(&sender, &shared.telemetry);
    let listen = server.listen.ip();
    upkeep.start(tasks.clone(), shared.telemetry.clone());
    Within {
        proxy: Proxy::new(routes, proxy, sender, shared, listen, tasks.stopping()),
        tasks,
        server,
    }
}

/// The proxy within this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Within {
    proxy: Proxy,
    tasks: Tasks,
    server: ServerSettings,
}

impl Within {
    /// Serves one client until its connection ends.
    pub fn serve(&self, client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let (server, tasks, proxy) = (self.server.clone(), self.tasks.clone(), self.proxy.clone());
        self.tasks
            .spawn_connection(server::connection(client, server, tasks, proxy));
    }

    /// Lets what runs finish within the drain timeout, cuts the rest, and says how many connections that was.
    pub async fn drain(self) -> usize {
        self.tasks.drain(self.server.drain_timeout).await
    }
}
