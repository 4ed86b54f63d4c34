//! The parts of the demonstration: its scripted providers, its configuration, and the proxy between them.
//!
//! Every address is on loopback. Nothing is read from the user's environment, and nothing is written to a disk.

use std::{
    convert::Infallible,
    fmt::Write as _,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use strict_provider::{
    Dialect, Format, Provider, Recording, Settings,
    judge::{ReasoningRule, ServerRules},
};

use crate::{
    app::{self, ConfigSummary, LedgerStore, RunningProxy},
    auth::TokenHash,
    config::{self, Flags, LoadedConfig},
    provider::is_loopback,
    server::{
        self, BindError, DescriptorReserve, RuntimeHandles, ServerSettings, Tasks, inherited::InheritedListeners,
    },
    telemetry::{LogControl, Telemetry},
    upstream::random_bytes,
};

/// Time for requests that still run at the end.
pub(super) const DRAIN: Duration = Duration::from_secs(1);

/// The upstream of the story about keys, and its two profiles with their keys.
pub(super) const TEAM: &str = "team";
pub(super) const TEAM_KEYS: [(&str, &str); 2] = [("first-key", "demo-key-1"), ("second-key", "demo-key-2")];
/// The upstream of the traffic with profiles, and its profiles with their keys.
pub(super) const COMPANY: &str = "company";
pub(super) const MAIN_KEY: &str = "demo-key-main";
pub(super) const TRIAL_KEY: &str = "demo-key-trial";
const COMPANY_KEYS: [(&str, &str); 3] = [
    ("main-account", MAIN_KEY),
    ("backup-account", "demo-key-backup"),
    ("trial-account", TRIAL_KEY),
];
/// The only model of the trial account, so that other requests never try it.
pub(super) const TRIAL_MODEL: &str = "claude-haiku-4-5";
/// An upstream at which nothing listens.
pub(super) const OFFLINE: &str = "offline";
/// An upstream whose thinking is bound to the exact history before it.
pub(super) const BINDING: &str = "anthropic-next";
/// Names of the client tokens.
pub(super) const CLIENTS: [&str; 3] = ["alice", "build-server", "nightly-agent"];

/// Random tokens of one run.
#[derive(Debug)]
pub(super) struct Tokens {
    /// Token of the tool service.
    pub(super) service: String,
    /// Token of `antiphon mcp`, as a service of one client.
    pub(super) wrapper: String,
    clients: [String; CLIENTS.len()],
}

impl Tokens {
    fn generate() -> anyhow::Result<Self> {
        let seed = blake3::Hash::from_bytes(random_bytes()?);
        let token = |name: &str| blake3::hash(format!("{seed} {name}").as_bytes()).to_hex().to_string();
        Ok(Self {
            service: token("service"),
            wrapper: token("wrapper"),
            clients: CLIENTS.map(|name| token(&format!("client {name}"))),
        })
    }

    /// Returns the token of a client. Empty for an unknown name.
    pub(super) fn of_client(&self, name: &str) -> &str {
        let pairs = CLIENTS.iter().zip(&self.clients);
        pairs
            .into_iter()
            .find(|(known, _)| **known == name)
            .map_or("", |(_, token)| token)
    }
}

/// The scripted providers, and the address of each.
pub(super) struct Cast {
    /// The provider of the stories: Anthropic, OpenAI and Gemini at one address.
    pub(super) main: Provider,
    pub(super) main_at: SocketAddr,
    /// Other upstreams, each a provider of its own.
    pub(super) others: Vec<(&'static str, SocketAddr)>,
    pub(super) tokens: Tokens,
}

impl Cast {
    /// Starts the providers. The first records the last request of each of these credentials.
    pub(super) fn start_all(recorded: &'static [&'static str], tasks: &Tasks) -> anyhow::Result<Self> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let main = new_provider(recorded)?;
        let main_at = serve_provider(&main, loopback, tasks)?;
        let mut others = Vec::new();
        for (name, settings) in other_settings() {
            let at = serve_provider(&Provider::new(settings), loopback, tasks)?;
            others.push((name, at));
        }
        Ok(Self {
            main,
            main_at,
            others,
            tokens: Tokens::generate()?,
        })
    }
}

/// Returns the providers that read a format in their own way.
fn other_settings() -> [(&'static str, Settings); 3] {
    let quiet = || Settings {
        recording: Recording::LastOf(&[]),
        ..Settings::default()
    };
    let deepseek = Settings {
        dialects: vec![(Format::Messages, Dialect::DeepSeek), (Format::Chat, Dialect::DeepSeek)],
        thinks: true,
        calls_tools: true,
        rules: ServerRules {
            reasoning: Some(ReasoningRule::DeepSeek),
            ..ServerRules::default()
        },
        ..quiet()
    };
    let mistral = Settings {
        dialects: vec![(Format::Chat, Dialect::Mistral)],
        ..quiet()
    };
    let binding = Settings {
        binds_thinking: true,
        ..quiet()
    };
    [("deepseek", deepseek), ("mistral", mistral), (BINDING, binding)]
}

/// Returns a strict provider that records the last request of each of these credentials.
pub(super) fn new_provider(credentials: &'static [&'static str]) -> anyhow::Result<Provider> {
    let run = blake3::Hash::from_bytes(random_bytes()?)
        .to_hex()
        .chars()
        .take(12)
        .collect();
    Ok(Provider::new(Settings {
        recording: Recording::LastOf(credentials),
        calls_tools: true,
        // A client may use two runs in one conversation, so ids of invented calls must differ.
        run,
        ..Settings::default()
    }))
}

/// Serves a provider in the background, and returns its address.
pub(super) fn serve_provider(
    provider: &Provider,
    listen: SocketAddr,
    tasks: &Tasks,
) -> Result<SocketAddr, app::StartError> {
    let listener = server::bind_listener(listen)?;
    let at = listener.local_addr().map_err(|source| BindError {
        address: listen,
        source,
    })?;
    let settings = ServerSettings {
        listen: at,
        connections_max: 256,
        connections_per_address_max: 256,
        trusted_proxies: Vec::new(),
        header_timeout: Duration::from_secs(30),
        client_stall: Duration::from_secs(30),
        drain_delay: Duration::ZERO,
        drain_timeout: DRAIN,
        tls: None,
    };
    let provider = provider.clone();
    let service = hyper::service::service_fn(move |request| {
        let provider = provider.clone();
        async move { Ok::<_, Infallible>(provider.answer(request).await) }
    });
    tasks.spawn_background(server::serve_listener(
        listener,
        settings,
        tasks.clone(),
        DescriptorReserve::default(),
        Telemetry::default(),
        service,
    ));
    Ok(at)
}

/// Returns the configuration as the text of a file. Its timeouts are short, to keep the stories short.
fn config_text(cast: &Cast) -> String {
    let main = cast.main_at;
    let mut text = format!(
        "[server]\ndrain_timeout = \"1s\"\ntrust_mode_header = true\n[ledger]\nstore = \"memory\"\n[timeouts]\n\
         headers = \"1500ms\"\nserver_tool = \"700ms\"\n\
         [services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n\
         [services.wrapper]\ntoken = \"{}\"\nprincipals = [\"{}\"]\ntools = [\"*\"]\n[client_tokens]\n",
        TokenHash::hash_token(cast.tokens.service.as_bytes()),
        // Without an owner, the result of a service of several clients would wait until its call is certain.
        TokenHash::hash_token(cast.tokens.wrapper.as_bytes()),
        CLIENTS[1],
    );
    // Writing into a String cannot fail.
    for name in CLIENTS {
        let hash = TokenHash::hash_token(cast.tokens.of_client(name).as_bytes());
        // The first client is one person: its conversations share their side effects.
        let is_personal = name == CLIENTS[0];
        let _ = writeln!(text, "{name} = {{ token = \"{hash}\", personal = {is_personal} }}");
    }
    for name in ["anthropic", "openai", "gemini"] {
        let _ = writeln!(text, "[upstreams.{name}]\nurl = \"http://{main}\"");
    }
    for (name, at) in &cast.others {
        let kind = if *name == BINDING { "kind = \"anthropic\"\n" } else { "" };
        let _ = writeln!(text, "[upstreams.{name}]\n{kind}url = \"http://{at}\"");
    }
    // No program listens on the port 1 of a usual machine.
    let _ = writeln!(text, "[upstreams.{OFFLINE}]\nurl = \"http://127.0.0.1:1\"");
    for (upstream, keys) in [(TEAM, &TEAM_KEYS[..]), (COMPANY, &COMPANY_KEYS[..])] {
        let _ = writeln!(
            text,
            "[upstreams.{upstream}]\nkind = \"anthropic\"\nurl = \"http://{main}\""
        );
        for (name, key) in keys {
            let models = if *key == TRIAL_KEY {
                format!("models = [\"{TRIAL_MODEL}\"]\n")
            } else {
                String::new()
            };
            let _ = writeln!(
                text,
                "[[upstreams.{upstream}.profiles]]\nname = \"{name}\"\napi_key = \"{key}\"\n{models}"
            );
        }
    }
    for tool in ["lint", "test", "package", "render"] {
        let _ = writeln!(text, "[tools.{tool}]\ntier = \"durable\"");
    }
    text.push_str("[tools.film]\ntier = \"durable\"\nintent = \"user\"\n[tools.mail]\ntier = \"one_way\"\n");
    text
}

/// Removes every upstream that is not on loopback: the built-in ones at real providers.
fn remove_real_hosts(loaded: &mut LoadedConfig) {
    loaded
        .config
        .upstreams
        .retain(|upstream| is_loopback(upstream.authority.host()));
    let kept = &loaded.config.upstreams;
    let is_kept = |name: &String| kept.iter().any(|upstream| upstream.name == *name);
    // Operators see this list, so it must be the same.
    loaded.effective.upstreams.retain(|name, _| is_kept(name));
}

/// Starts the proxy in front of the providers.
pub(super) async fn start_proxy(
    cast: &Cast,
    listen: SocketAddr,
    admin_listen: SocketAddr,
) -> anyhow::Result<RunningProxy> {
    let flags = Flags {
        given: [
            ("--listen", listen.to_string()),
            ("--admin-listen", admin_listen.to_string()),
        ]
        .into(),
        ..Flags::default()
    };
    let nowhere = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let text = config_text(cast);
    // The user's own settings are left out, so that the stories are the same everywhere.
    let mut loaded = config::build_config(
        Some(("the demonstration's settings", &text)),
        &flags,
        &|_| None,
        &nowhere,
    )?;
    remove_real_hosts(&mut loaded);
    let shown = ConfigSummary::of_loaded(&loaded, None, LogControl::default())?;
    // Nothing may be left behind, and yet the stories are those of a ledger that lasts.
    let none = InheritedListeners::default();
    let (store, runtimes) = (LedgerStore::LastingMemory, RuntimeHandles::current());
    let launched = app::launch_proxy(loaded.config, shown, store, none, runtimes).await?;
    Ok(launched.running)
}
