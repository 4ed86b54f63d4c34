//! The app on free ports, in front of a scripted upstream.

use std::{collections::BTreeMap, io::Write as _, net::SocketAddr, sync::Arc, time::Duration};

use antiphon::{
    api::admin::{
        self, AdminService, Readiness,
        control::{ActiveConfig, AdminControl},
    },
    app::{self, AppParts, BackgroundWork, LedgerServices, RunningProxy},
    auth::{ClientTokens, PrincipalSettings, Profile},
    keys::credential_source::CredentialSources,
    keys::profiles::Profiles,
    late::LateSettings,
    ledger::Ledger,
    policy::{ExchangeTimeouts, RotationSettings},
    provider::{ProviderKind, Routes, Upstream},
    proxy::{OnBindingError, OnOutage, ProxyServices, ProxySettings},
    refusals::RefusalReader,
    repair::{Mode, RepairPolicy},
    server::budget::BodyMemory,
    server::{RuntimeHandles, ServerSettings, Tasks, inherited::InheritedListeners},
    session_table::{SessionSettings, SessionTable},
    telemetry::{LogControl, Telemetry, TraceSettings},
    upstream::{ProxyEnvironment, UpstreamSettings},
};

use tokio::net::TcpListener;

use super::wire::Client;

/// Settings of an app, all public for tests.
pub struct Builder {
    pub upstreams: Vec<Upstream>,
    pub proxy: ProxySettings,
    pub upstream: UpstreamSettings,
    pub server: ServerSettings,
    /// Bytes that all request bodies together may have in memory.
    pub body_memory_max: u64,
    /// Profiles by upstream. Other upstreams pass the client's credential through.
    pub profiles: BTreeMap<String, Vec<Profile>>,
    /// Sources of the profiles' credentials. `app::start` runs their tasks, still worlds do not.
    pub sources: CredentialSources,
    pub late: LateSettings,
    /// `true` if results in requests are stored in the ledger.
    pub keeps_seen: bool,
    pub ledger: Arc<dyn Ledger>,
    /// Destination of spans.
    pub traces: Option<TraceSettings>,
}

/// Serves the admin listener on a bound socket.
pub async fn serve_admin(listener: TcpListener, service: AdminService) {
    let settings = before(([127, 0, 0, 1], 9).into()).server;
    admin::serve_listener(
        listener,
        <_>::default(),
        None,
        settings,
        (service, Tasks::on_current_runtime()),
    )
    .await;
}

/// Returns the settings of an app in front of `upstream`, as `/anthropic`, `/openai` and `/gemini`.
pub fn before(upstream: SocketAddr) -> Builder {
    towards(&upstream.to_string())
}

/// As [`before`], for a host name.
pub fn towards(authority: &str) -> Builder {
    let named = |name: &str, kind| Upstream {
        name: name.to_owned(),
        kind,
        scheme: "http".parse().unwrap(),
        authority: authority.parse().unwrap(),
        base_path: String::new(),
        mode: Mode::Repair,
    };
    let long = Duration::from_secs(20);
    Builder {
        upstreams: vec![
            named("anthropic", ProviderKind::Anthropic),
            named("openai", ProviderKind::OpenAi),
            named("gemini", ProviderKind::Gemini),
        ],
        proxy: ProxySettings {
            inspect_bytes_max: 1024 * 1024,
            upload_idle_timeout: long,
            allow_origins: vec!["https://app.example".to_owned()],
            allow_hosts: vec!["llm.internal".to_owned()],
            trust_mode_header: false,
            policy: RepairPolicy::default(),
            refusals: RefusalReader::default(),
            on_binding_error: OnBindingError::default(),
            explain: true,
            on_outage: OnOutage::default(),
            timeouts: ExchangeTimeouts {
                headers: long,
                idle: long,
                stream_headers: long,
                ..ExchangeTimeouts::default()
            },
            rotation: RotationSettings::default(),
            client_tokens: ClientTokens::default(),
            principals: PrincipalSettings::default(),
        },
        body_memory_max: 256 * 1024 * 1024,
        late: LateSettings::default(),
        keeps_seen: false,
        traces: None,
        ledger: super::late::memory(),
        profiles: BTreeMap::new(),
        sources: CredentialSources::new(),
        upstream: UpstreamSettings {
            connect_timeout: long,
            tls_timeout: long,
            send_timeout: long,
            pool_idle_timeout: long,
            pool_idle_max: 8,
            proxies: ProxyEnvironment::default(),
        },
        server: ServerSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            connections_max: 1000,
            connections_per_address_max: 1000,
            trusted_proxies: Vec::new(),
            header_timeout: long,
            client_stall: long,
            drain_delay: Duration::ZERO,
            drain_timeout: long,
            tls: None,
        },
    }
}

impl Builder {
    /// Changes settings in place.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sets the mode of every upstream.
    pub fn mode(self, mode: Mode) -> Self {
        self.with(|builder| builder.upstreams.iter_mut().for_each(|upstream| upstream.mode = mode))
    }

    /// Returns the parts of the app.
    pub fn parts(self) -> AppParts {
        let names = || self.upstreams.iter().map(|upstream| upstream.name.as_str());
        let telemetry = Telemetry::new(names());
        let (telemetry, traces) = telemetry.with_traces(self.traces);
        let lasting = LedgerServices::over_ledger(&self.ledger, self.late, self.keeps_seen, &telemetry);
        let sourced = Profiles::with_sources(
            names(),
            self.profiles.clone(),
            &self.sources,
            &self.proxy.rotation,
            telemetry.clone(),
        );
        let (mut shared, upkeep) = shared(names(), self.profiles, &self.proxy.rotation, telemetry, lasting);
        shared.profiles = sourced;
        AppParts {
            routes: Routes::new(self.upstreams),
            server: self.server,
            runtimes: RuntimeHandles::current(),
            body_memory: BodyMemory::new(self.body_memory_max),
            admin_listen: ([127, 0, 0, 1], 0).into(),
            admin: AdminService::starting(),
            admin_tls: None,
            inherited: InheritedListeners::default(),
            proxy: self.proxy,
            upstream: self.upstream,
            shared,
            background_work: upkeep,
            traces,
        }
    }

    /// Starts the app.
    pub async fn start(self) -> App {
        self.start_shared().await.1
    }

    /// Starts the app and returns its shared services too.
    pub async fn start_shared(self) -> (ProxyServices, App) {
        let parts = self.parts();
        let shared = parts.shared.clone();
        let app = App {
            telemetry: parts.shared.telemetry.clone(),
            late: parts.shared.late.clone(),
            running: app::start(parts).await.unwrap(),
        };
        (shared, app)
    }
}

/// Returns the services of the data path.
pub fn shared<'u>(
    upstreams: impl Iterator<Item = &'u str>,
    profiles: BTreeMap<String, Vec<Profile>>,
    rotation: &RotationSettings,
    telemetry: Telemetry,
    lasting: LedgerServices,
) -> (ProxyServices, BackgroundWork) {
    let shared = ProxyServices {
        late: lasting.late,
        recall: lasting.answers,
        objects: lasting.objects,
        callers: lasting.callers,
        profiles: Profiles::new(upstreams, profiles, rotation, telemetry.clone()),
        sessions: Arc::new(SessionTable::new(SessionSettings::default())),
        telemetry,
        local_token: None,
    };
    (shared, lasting.background_work)
}

/// Returns the admin state of an empty app.
pub fn admin(readiness: Readiness) -> admin::AdminState {
    let telemetry = Telemetry::new(["anthropic"]);
    let lasting = LedgerServices::over_ledger(&super::late::memory(), LateSettings::default(), false, &telemetry);
    let (names, rotation) = (["anthropic"].into_iter(), RotationSettings::default());
    let (shared, _) = shared(names, BTreeMap::new(), &rotation, telemetry, lasting);
    admin_of(&shared, readiness)
}

/// Returns the admin state of an app.
pub fn admin_of(shared: &ProxyServices, readiness: Readiness) -> admin::AdminState {
    let routes = Routes::new(Vec::new());
    let in_force = ActiveConfig::new(
        None,
        "[server]\n".to_owned(),
        &routes,
        shared.profiles.clone(),
        vec!["admin.example".to_owned()],
    );
    let (control, _) = AdminControl::new(in_force, LogControl::default());
    admin::AdminState {
        telemetry: shared.telemetry.clone(),
        readiness,
        sessions: Arc::clone(&shared.sessions),
        late: shared.late.clone(),
        recall: shared.recall.clone(),
        ledger: super::late::memory(),
        control,
        token: None,
    }
}

/// A running app.
pub struct App {
    pub running: RunningProxy,
    pub telemetry: Telemetry,
    pub late: antiphon::late::LateStore,
}

impl App {
    /// Opens a connection to the data listener.
    pub async fn client(&self) -> Client {
        Client::connect(self.running.data).await
    }

    /// Sends one request over its own connection.
    pub async fn ask(&self, request: impl AsRef<[u8]>) -> super::wire::Message {
        let mut client = self.client().await;
        client.send(request).await;
        client.response().await
    }
}

/// Returns a POST with a JSON body.
pub fn post(path: &str, body: &str) -> String {
    String::from_utf8(post_with(path, &[], body.as_bytes())).unwrap()
}

/// Returns a POST with these headers.
pub fn post_with(path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    request_with("POST", path, fields, body)
}

/// Returns a request with a JSON body and these headers.
pub fn request_with(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let fields = fields.concat();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{fields}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Returns a GET with these headers.
pub fn get_with(path: &str, fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let fields = fields.concat();
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Returns a body in the coding `gzip`.
pub fn gzipped(body: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}
