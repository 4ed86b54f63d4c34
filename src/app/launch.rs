//! From a configuration to a running proxy.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Lasting, Parts, Running, StartError, start};
use crate::{
    admin::{
        self, Readiness,
        control::{Control, InForce, Reload},
    },
    config::{Config, Loaded},
    ledger::Ledger,
    profiles::Profiles,
    provider::Routes,
    proxy::Shared,
    session_table::{SessionSettings, SessionTable},
    telemetry::{LogControl, Telemetry},
};

/// What operators are shown of a configuration, and may change of its log lines.
#[derive(Debug)]
pub struct Shown {
    path: Option<String>,
    effective: String,
    log: LogControl,
}

impl Shown {
    /// Of what was loaded from the file at `path`, if from one.
    pub fn of(loaded: &Loaded, path: Option<String>, log: LogControl) -> Result<Self, toml::ser::Error> {
        let effective = loaded.to_toml()?;
        Ok(Self { path, effective, log })
    }
}

/// A running proxy, and what is told of it while it runs.
#[derive(Debug)]
pub struct Launched {
    /// The proxy.
    pub running: Running,
    /// Where to say that a drain has begun.
    pub readiness: Readiness,
    /// What operators see, and may change.
    pub control: Control,
    /// Who asks for the configuration to be loaded anew.
    pub reloads: mpsc::Receiver<Reload>,
    /// Where events go.
    pub telemetry: Telemetry,
    /// The table of upstreams.
    pub routes: Routes,
}

/// Starts the proxy that `config` describes, over `ledger`.
pub async fn launch(config: Config, shown: Shown, ledger: &Arc<dyn Ledger>) -> Result<Launched, StartError> {
    let readiness = Readiness::new();
    let telemetry = Telemetry::new(config.upstreams.iter().map(|upstream| upstream.name.clone()));
    let (telemetry, traces) = match config.traces {
        None => (telemetry, None),
        Some(settings) => {
            let (telemetry, exporter) = telemetry.with_traces(settings);
            (telemetry, Some(exporter))
        }
    };
    let names = config.upstreams.iter().map(|upstream| upstream.name.as_str());
    let profiles = Profiles::new(names, config.profiles, &config.proxy.rotation, telemetry.clone());
    let sessions = SessionSettings {
        calls: config.late.call_limits(),
        ..SessionSettings::default()
    };
    let sessions = Arc::new(SessionTable::new(sessions));
    let Lasting { late, recall, upkeep } = Lasting::over(ledger, config.late, config.ledger.keeps_seen, &telemetry);
    let routes = Routes::new(config.upstreams);
    let hosts = config.proxy.allow_hosts.clone();
    let in_force = InForce::new(shown.path, shown.effective, &routes, profiles.clone(), hosts);
    let (control, reloads) = Control::new(in_force, shown.log);
    let admin = admin::router(admin::Parts {
        telemetry: telemetry.clone(),
        readiness: readiness.clone(),
        sessions: Arc::clone(&sessions),
        late: late.clone(),
        ledger: Arc::clone(ledger),
        control: control.clone(),
        token: config.admin_token,
    });
    let shared = Shared {
        profiles,
        sessions,
        recall,
        telemetry: telemetry.clone(),
        late,
    };
    let running = start(Parts {
        routes: routes.clone(),
        server: config.server,
        admin_listen: config.admin_listen,
        admin,
        proxy: config.proxy,
        upstream: config.upstream,
        shared,
        upkeep,
        traces,
    })
    .await?;
    control.listens(running.data);
    Ok(Launched {
        running,
        readiness,
        control,
        reloads,
        telemetry,
        routes,
    })
}
