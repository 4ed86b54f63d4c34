//! What an operator may change while the process runs, and what it runs with.
//!
//! The configuration itself is not known here: whoever composes the process hands in what is shown of it, and takes the
//! requests to load it anew.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock,
    profiles::Profiles,
    provider::{Routes, Upstream},
    repair::Mode,
    telemetry::LogControl,
};

/// Requests to reload that may wait.
const WAITING_MAX: usize = 4;

/// What is in force since the configuration was last loaded.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The file; none where there is none.
    pub path: Option<String>,
    /// Every key with its value, as TOML; without secrets.
    pub effective: String,
    /// The upstreams.
    pub upstreams: Vec<UpstreamView>,
    /// Their profiles.
    pub profiles: Profiles,
    /// Host names, besides loopback and literal addresses, under which the admin listener may be asked; no port.
    pub hosts: Vec<String>,
    /// When it was loaded, since 1970.
    pub loaded_at: Duration,
    /// How often it was loaded anew.
    pub reloads: u64,
}

/// An upstream, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamView {
    /// The name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// What its routes do about findings.
    pub mode: Mode,
}

impl InForce {
    /// What is in force with these upstreams and profiles, for the first time.
    pub fn new(
        path: Option<String>,
        effective: String,
        routes: &Routes,
        profiles: Profiles,
        hosts: Vec<String>,
    ) -> Self {
        let view = |upstream: &Upstream| UpstreamView {
            name: upstream.name.clone(),
            url: format!("{}://{}{}", upstream.scheme, upstream.authority, upstream.base_path),
            mode: upstream.mode,
        };
        Self {
            path,
            effective,
            upstreams: routes.upstreams().iter().map(view).collect(),
            profiles,
            hosts,
            loaded_at: clock::since_1970(),
            reloads: 0,
        }
    }
}

/// What became of a request to load the configuration anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys whose values changed, and are in force.
    pub changed: Vec<String>,
    /// Keys whose values changed, and are in force after a restart only.
    pub needs_restart: Vec<String>,
}

/// A request to load the configuration anew; the error says why it was not.
pub type Reload = oneshot::Sender<Result<Reloaded, String>>;

/// What an operator may change, and what runs. A cheap handle.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    in_force: ArcSwap<InForce>,
    last_error: Mutex<Option<String>>,
    started_at: Duration,
    listen: OnceLock<SocketAddr>,
    log: LogControl,
    reload: mpsc::Sender<Reload>,
}

impl Control {
    /// Of a process that runs with this; hands out who takes requests to reload.
    pub fn new(in_force: InForce, log: LogControl) -> (Self, mpsc::Receiver<Reload>) {
        let (reload, requests) = mpsc::channel(WAITING_MAX);
        let inner = Inner {
            in_force: ArcSwap::from_pointee(in_force),
            last_error: Mutex::default(),
            started_at: clock::since_1970(),
            listen: OnceLock::new(),
            log,
            reload,
        };
        (Self(Arc::new(inner)), requests)
    }

    /// What is in force.
    pub fn in_force(&self) -> Arc<InForce> {
        self.0.in_force.load_full()
    }

    /// Something else is in force from now on.
    pub fn put_in_force(&self, in_force: InForce) {
        self.0.in_force.store(Arc::new(in_force));
        *self.error() = None;
    }

    /// The configuration could not be loaded anew: what was in force stays.
    pub fn failed(&self, why: String) {
        *self.error() = Some(why);
    }

    /// Why the last attempt to load the configuration anew failed.
    pub fn last_error(&self) -> Option<String> {
        self.error().clone()
    }

    /// The proxy listens here.
    pub fn listens(&self, address: SocketAddr) {
        // The first one stays: there is no other.
        let _ = self.0.listen.set(address);
    }

    /// Where the proxy listens; none before it does.
    pub fn listen(&self) -> Option<SocketAddr> {
        self.0.listen.get().copied()
    }

    /// When the process began, since 1970.
    pub fn started_at(&self) -> Duration {
        self.0.started_at
    }

    /// What is logged.
    pub fn log(&self) -> &LogControl {
        &self.0.log
    }

    /// Asks for the configuration to be loaded anew, and waits until it is; otherwise why it was not.
    pub async fn reload(&self) -> Result<Reloaded, String> {
        let (done, told) = oneshot::channel();
        let nobody = || "nobody loads configuration here".to_owned();
        if self.0.reload.try_send(done).is_err() {
            return Err(if self.0.reload.is_closed() {
                nobody()
            } else {
                "the configuration is being loaded already".to_owned()
            });
        }
        told.await.map_err(|_| nobody())?
    }

    fn error(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
