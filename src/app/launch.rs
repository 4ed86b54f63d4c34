//! Starts a proxy from a configuration.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    AppParts, BackgroundWork, LedgerServices, RunningProxy, StartError,
    ledger_store::{LedgerStore, OpenedLedger},
    local_token, start,
    starting::open_ledger_of,
};
use crate::{
    api::admin::{
        self, Readiness,
        control::{ActiveConfig, AdminControl, ReloadRequest},
    },
    auth::TokenHash,
    config::{Config, LedgerPlace, LoadedConfig},
    keys::profiles::Profiles,
    late::LateSettings,
    ledger::PostgresWorker,
    provider::Routes,
    proxy::{ProxyServices, ProxySettings},
    server::budget::{self, BodyMemory},
    server::{RuntimeHandles, inherited::InheritedListeners},
    session_table::{SessionSettings, SessionTable},
    telemetry::{LogControl, Telemetry},
};

/// Summary of a configuration for operators, and the handle to change the log level.
#[derive(Debug)]
pub struct ConfigSummary {
    path: Option<String>,
    effective: String,
    log: LogControl,
}

impl ConfigSummary {
    /// Builds the summary of a loaded configuration. `path` is its file, if there is one.
    pub fn of_loaded(loaded: &LoadedConfig, path: Option<String>, log: LogControl) -> Result<Self, toml::ser::Error> {
        let effective = loaded.to_shown_toml()?;
        Ok(Self { path, effective, log })
    }
}

/// A running proxy with its handles.
#[derive(Debug)]
pub struct LaunchedProxy {
    /// The running proxy.
    pub running: RunningProxy,
    /// Readiness, to be ended when a drain begins.
    pub readiness: Readiness,
    /// State that operators see and may change.
    pub control: AdminControl,
    /// Requests of operators to reload the configuration.
    pub reloads: mpsc::Receiver<ReloadRequest>,
    /// Sink of events.
    pub telemetry: Telemetry,
    /// Table of upstreams.
    pub routes: Routes,
    /// File or database of the ledger, for operators. `None` if it is in memory.
    pub ledger_place: Option<String>,
}

/// Starts the proxy that `config` describes, with its ledger in `store`, on the `inherited` listeners or new ones.
pub async fn launch_proxy(
    mut config: Config,
    shown: ConfigSummary,
    store: LedgerStore,
    mut inherited: InheritedListeners,
    runtimes: RuntimeHandles,
) -> Result<LaunchedProxy, StartError> {
    warn_of_lost_results(&config, store);
    let OpenedLedger {
        ledger,
        place: ledger_place,
        database_worker,
    } = Box::pin(open_ledger_of(&mut config, store, &mut inherited)).await?;
    let local_token = accept_local_token(&mut config, ledger_place.as_deref());
    let readiness = Readiness::new().with_required_ledger(config.ledger.ready_requires);
    let telemetry = Telemetry::new(config.upstreams.iter().map(|upstream| upstream.name.clone()));
    // Before any part takes its own handle: a handle made earlier would send no traces.
    let (telemetry, traces) = telemetry.with_traces(config.traces.take());
    let profiles = take_profiles(&mut config, &telemetry);
    let sessions = Arc::new(new_session_table(&config.late));
    let services = LedgerServices::over_ledger(&ledger, config.late, config.ledger.keeps_seen, &telemetry);
    let routes = Routes::new(config.upstreams);
    let (control, reloads) = AdminControl::new(
        config_in_force(&config.proxy, shown.path, shown.effective, &routes, &profiles),
        shown.log,
    );
    let admin = admin::AdminService::new(admin::AdminState {
        telemetry: telemetry.clone(),
        readiness: readiness.clone(),
        sessions: Arc::clone(&sessions),
        late: services.late.clone(),
        recall: services.answers.clone(),
        ledger,
        control: control.clone(),
        token: config.admin_token,
    });
    let (services, background_work) = split_services(
        services,
        (profiles, sessions, telemetry.clone()),
        (ledger_place.clone(), database_worker, local_token),
    );
    let running = start(AppParts {
        routes: routes.clone(),
        server: config.server,
        runtimes,
        body_memory: body_memory(config.body_memory_max, config.proxy.inspect_bytes_max),
        admin_listen: config.admin_listen,
        admin_tls: config.admin_tls,
        inherited,
        admin,
        proxy: config.proxy,
        upstream: config.upstream,
        shared: services,
        background_work,
        traces,
    })
    .await?;
    // Known only now: the configured port may be 0.
    control.set_listen_address(running.data, running.tls.is_some());
    Ok(LaunchedProxy {
        running,
        readiness,
        control,
        reloads,
        telemetry,
        routes,
        ledger_place,
    })
}

/// Returns the hash of the token of this machine, and makes whoever has it a tool service. Only with a stored ledger there
/// is such a token: in memory, no intent can be claimed, and no result is kept.
fn accept_local_token(config: &mut Config, ledger_place: Option<&str>) -> Option<TokenHash> {
    let token = ledger_place.and_then(|_| local_token::accepted_token())?;
    // From elsewhere a file of this machine's user proves nothing, and requests could be read on their way.
    if config.server.listen.ip().is_loopback() {
        config.late.serve_this_machine(token);
    }
    Some(token)
}

/// Creates the profiles of all upstreams from their part of the configuration.
fn take_profiles(config: &mut Config, telemetry: &Telemetry) -> Profiles {
    Profiles::with_sources(
        config.upstreams.iter().map(|upstream| upstream.name.as_str()),
        std::mem::take(&mut config.profiles),
        &config.credential_sources,
        &config.proxy.rotation,
        telemetry.clone(),
    )
}

/// Returns the configuration that operators see. The admin listener accepts the same host names as the data listener.
fn config_in_force(
    proxy: &ProxySettings,
    path: Option<String>,
    effective: String,
    routes: &Routes,
    profiles: &Profiles,
) -> ActiveConfig {
    let hosts = proxy.allow_hosts.clone();
    ActiveConfig {
        clients: proxy.client_tokens.names().map(str::to_owned).collect(),
        ..ActiveConfig::new(path, effective, routes, profiles.clone(), hosts)
    }
}

/// Splits the services into those of the data path and the background work.
fn split_services(
    services: LedgerServices,
    (profiles, sessions, telemetry): (Profiles, Arc<SessionTable>, Telemetry),
    (ledger_place, database_worker, local_token): (Option<String>, Option<PostgresWorker>, Option<TokenHash>),
) -> (ProxyServices, BackgroundWork) {
    if let Some(cooldowns) = &services.shared_cooldowns {
        profiles.share_cooldowns(cooldowns);
    }
    let shared = ProxyServices {
        profiles,
        sessions,
        recall: services.answers,
        objects: services.objects,
        callers: services.callers,
        telemetry,
        late: services.late,
        local_token,
    };
    let background_work = BackgroundWork {
        ledger_place,
        database_worker,
        ..services.background_work
    };
    (shared, background_work)
}

/// Creates the memory of request bodies. Warns if the process may not have as much.
fn body_memory(configured: Option<u64>, inspect_bytes_max: usize) -> BodyMemory {
    let bytes_max = configured.unwrap_or_else(|| budget::default_body_memory(inspect_bytes_max));
    let process_limit = budget::process_limit();
    if bytes_max > process_limit - process_limit / 4 {
        tracing::warn!(
            body_memory_max = bytes_max,
            process_limit,
            "request bodies may fill nearly all memory of this process: set a lower server.inspect_bytes_max or \
             server.body_memory_max"
        );
    }
    BodyMemory::new(bytes_max)
}

/// Creates the session table, which must remember a call for as long as its tool may take.
fn new_session_table(late: &LateSettings) -> SessionTable {
    SessionTable::new(SessionSettings {
        calls: late.call_limits(),
        idle: late.session_idle,
        ..SessionSettings::default()
    })
}

/// Warns if tool services may post results that the end of the process would lose.
fn warn_of_lost_results(config: &Config, store: LedgerStore) {
    let is_lasting = config.ledger.place != LedgerPlace::Memory || store == LedgerStore::LastingMemory;
    if !is_lasting && !config.late.services.is_empty() {
        tracing::warn!(
            services = config.late.services.len(),
            "posted results are lost when the process ends, and none is appended to a later message: ledger.store is \
             \"memory\", which [services] should not use"
        );
    }
}
