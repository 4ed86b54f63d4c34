//! The configuration in force as operators see it, and the controls that change the running process.
//!
//! This module does not read the configuration. The code that starts the process passes in a description of it, and
//! carries out the requests to reload it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

use crate::{
    clock,
    keys::profiles::Profiles,
    provider::{Routes, Upstream},
    telemetry::LogControl,
};

/// Reload requests that may wait in the queue.
const RELOADS_WAITING_MAX: usize = 4;

/// The configuration in force since the last load, as operators see it.
#[derive(Clone, Debug)]
pub struct ActiveConfig {
    /// The path of the file; `None` if the process runs on defaults.
    pub path: Option<String>,
    /// Every key with its value, as TOML, without secrets.
    pub effective_toml: String,
    /// The upstreams.
    pub upstreams: Vec<UpstreamSummary>,
    /// The profiles of the upstreams.
    pub profiles: Profiles,
    /// Host names that the admin listener accepts besides loopback and literal addresses, without a port.
    pub hosts: Vec<String>,
    /// The names of the client tokens.
    pub clients: Vec<String>,
    /// The time of the load, since 1970.
    pub loaded_at: Duration,
    /// The number of successful reloads since the start.
    pub reloads: u64,
}

/// A configured upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UpstreamRow)]
pub struct UpstreamSummary {
    /// The name.
    pub name: String,
    /// The base URL.
    pub url: String,
    /// The mode of its routes: `repair`, `strict` or `observe`.
    pub mode: &'static str,
}

impl ActiveConfig {
    /// Creates the description of a configuration that was just loaded for the first time.
    pub fn new(
        path: Option<String>,
        effective: String,
        routes: &Routes,
        profiles: Profiles,
        hosts: Vec<String>,
    ) -> Self {
        let view = |upstream: &Upstream| UpstreamSummary {
            name: upstream.name.clone(),
            url: format!("{}://{}{}", upstream.scheme, upstream.authority, upstream.base_path),
            mode: upstream.mode.label(),
        };
        Self {
            path,
            effective_toml: effective,
            upstreams: routes.upstreams().iter().map(view).collect(),
            profiles,
            hosts,
            clients: Vec::new(),
            // A reload builds a new description, so this is the time of the last load.
            loaded_at: clock::unix_time(),
            reloads: 0,
        }
    }
}

/// The outcome of a successful reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadOutcome {
    /// Changed keys that are in force now.
    pub changed: Vec<String>,
    /// Changed keys that need a restart.
    pub needs_restart: Vec<String>,
}

/// A request to reload the configuration: the sender of its outcome, or of the reason why it failed.
pub type ReloadRequest = oneshot::Sender<Result<ReloadOutcome, String>>;

/// The handle of the running process for operators. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminControl(Arc<ControlState>);

/// The state that all clones of [`AdminControl`] share.
#[derive(Debug)]
struct ControlState {
    active_config: ArcSwap<ActiveConfig>,
    last_error: Mutex<Option<String>>,
    started_at: Duration,
    /// The address of the proxy's listener, and `true` if it has TLS.
    listener: OnceLock<(SocketAddr, bool)>,
    log_control: LogControl,
    reload_requests: mpsc::Sender<ReloadRequest>,
}

impl AdminControl {
    /// Creates the handle. Returns it with the receiver of reload requests, which the process must serve.
    pub fn new(in_force: ActiveConfig, log: LogControl) -> (Self, mpsc::Receiver<ReloadRequest>) {
        // Bounded: each waiting request holds a connection of the admin listener.
        let (reload, requests) = mpsc::channel(RELOADS_WAITING_MAX);
        let inner = ControlState {
            active_config: ArcSwap::from_pointee(in_force),
            last_error: Mutex::default(),
            started_at: clock::unix_time(),
            listener: OnceLock::new(),
            log_control: log,
            reload_requests: reload,
        };
        (Self(Arc::new(inner)), requests)
    }

    /// Returns the configuration in force.
    pub fn active_config(&self) -> Arc<ActiveConfig> {
        self.0.active_config.load_full()
    }

    /// Replaces the configuration in force after a successful reload.
    pub fn set_active_config(&self, in_force: ActiveConfig) {
        self.0.active_config.store(Arc::new(in_force));
        // An old failure must not be reported beside a configuration that is good.
        *self.lock_last_error() = None;
    }

    /// Records why a reload failed. The old configuration stays in force.
    pub fn record_reload_failure(&self, why: String) {
        *self.lock_last_error() = Some(why);
    }

    /// Returns the reason why the last reload failed; `None` if it succeeded.
    pub fn last_error(&self) -> Option<String> {
        self.lock_last_error().clone()
    }

    /// Records the address of the proxy's listener, and `true` if it has TLS.
    pub fn set_listen_address(&self, address: SocketAddr, has_tls: bool) {
        // Set once per process: the listener does not move on a reload.
        let _ = self.0.listener.set((address, has_tls));
    }

    /// Returns `true` if the proxy's listener has TLS.
    pub fn has_tls(&self) -> bool {
        self.0.listener.get().is_some_and(|(_, has_tls)| *has_tls)
    }

    /// Returns the address of the proxy's listener; `None` before it is bound.
    pub fn listen_address(&self) -> Option<SocketAddr> {
        self.0.listener.get().map(|(address, _)| *address)
    }

    /// Returns the start time of the process, since 1970.
    pub fn started_at(&self) -> Duration {
        self.0.started_at
    }

    /// Returns the control of the log level.
    pub fn log_control(&self) -> &LogControl {
        &self.0.log_control
    }

    /// Requests a reload and waits for its outcome. Fails with the reason if the configuration was not reloaded.
    pub async fn request_reload(&self) -> Result<ReloadOutcome, String> {
        let (done, outcome) = oneshot::channel();
        let unavailable = || "reload failed: this process does not reload its configuration, or is stopping".to_owned();
        // Never waits for room: an operator who repeats the command must get an answer at once.
        if self.0.reload_requests.try_send(done).is_err() {
            return Err(if self.0.reload_requests.is_closed() {
                unavailable()
            } else {
                "reload failed: earlier reloads are still waiting; retry later".to_owned()
            });
        }
        outcome.await.map_err(|_| unavailable())?
    }

    fn lock_last_error(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
