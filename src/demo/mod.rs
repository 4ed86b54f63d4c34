//! `antiphon demo`: a strict provider, the proxy and its dashboard in one process, and five stories played on them.
//!
//! No key, no network but loopback, no file. Every verdict is the provider's or the proxy's own answer.

mod client;
mod stage;
mod stories;
mod tell;
mod traffic;

use std::{
    convert::Infallible,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::{
    app::{self, ConfigSummary, LedgerStore, RunningProxy},
    auth::TokenHash,
    config::{self, Flags},
    server::{self, BindError, ServerSettings, Tasks},
    telemetry::LogControl,
    upstream::random_bytes,
};
use stage::Stage;
use strict_provider::{Provider, Recording, Settings};
use tell::Tell;

/// Default addresses of the proxy, the same as those of `serve`.
const DATA: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4747);
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4748);
/// Default address of the provider alone.
const PROVIDER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4749);

/// Keys of a team, by label.
const KEYS_OF_TEAM: [(&str, &str); 2] = [("key-a", "demo-key-a"), ("key-b", "demo-key-b")];
/// Every credential of the stories.
const KEYS: [&str; 8] = [
    "demo-f1",
    "demo-f2",
    "demo-f3",
    "demo-ann",
    "demo-ben",
    KEYS_OF_TEAM[0].1,
    KEYS_OF_TEAM[1].1,
    traffic::KEY,
];

/// Pause between two stories on a terminal.
const PACE: Duration = Duration::from_millis(800);
/// Time for requests that still run at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// Settings of the demonstration.
#[derive(Clone, Debug, Default)]
pub struct Play {
    /// Address of the proxy. `None`: that of `serve`, or a free port if it is taken.
    pub listen: Option<SocketAddr>,
    /// Address of the admin listener, with the same default.
    pub admin_listen: Option<SocketAddr>,
    /// `true` if the processes stay after the stories, with some traffic, until they are stopped.
    pub stays: bool,
    /// `true` if a person reads the output on a terminal.
    pub is_read_along: bool,
    /// `true` if lines have colours.
    pub has_colours: bool,
}

/// Plays the five stories to `out`, until `stop` ends. Returns `true` if all of them ended as expected.
pub async fn play(play: Play, out: Box<dyn Write + Send>, stop: impl Future<Output = ()>) -> anyhow::Result<bool> {
    let mut tell = Tell::to(out, play.has_colours);
    let provider = provider(&KEYS)?;
    let tasks = Tasks::default();
    let (provider_at, token) = (
        serve(&provider, (Ipv4Addr::LOCALHOST, 0).into(), &tasks).await?,
        token()?,
    );
    let (listen, admin_listen) = (Place::of(play.listen, DATA), Place::of(play.admin_listen, ADMIN));
    let running = start(&settings(provider_at, &token), listen.address, admin_listen.address).await?;
    greet(&mut tell, &running, provider_at, [&listen, &admin_listen])?;
    let mut stage = Stage {
        tell,
        provider,
        provider_at,
        proxy_at: running.data,
        admin_at: running.admin,
        token,
        pace: if play.is_read_along { PACE } else { Duration::ZERO },
        is_as_promised: true,
    };
    let told = async {
        stories::tell(&mut stage).await?;
        close(&mut stage, play.stays)?;
        if play.stays {
            traffic::run(&stage).await?;
        }
        io::Result::Ok(())
    };
    let ended = tokio::select! {
        told = told => told,
        () = stop => Ok(()),
    };
    running.drain().await;
    tasks.drain(DRAIN).await;
    ended?;
    Ok(stage.is_as_promised)
}

/// Serves the strict provider alone until `stop` ends.
pub async fn provider_only(
    listen: Option<SocketAddr>,
    mut out: Box<dyn Write + Send>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let tasks = Tasks::default();
    let place = Place::of(listen, PROVIDER);
    let at = serve(&provider(&[])?, place.address, &tasks).await?;
    place.say(&mut out)?;
    writeln!(
        out,
        "a strict provider at http://{at}: Messages, Chat Completions, Responses, Gemini; any key will do\n\
         it refuses broken histories in the real provider's words, and else calls one of your tools every other turn\n\
         \n  \
         ANTHROPIC_BASE_URL=http://{at}\n  OPENAI_BASE_URL=http://{at}/v1\n  GOOGLE_GEMINI_BASE_URL=http://{at}\n\n\
         behind the proxy: antiphon serve --upstream anthropic=http://{at} --upstream openai=http://{at} \
         --upstream gemini=http://{at}\n\
         press Ctrl-C to end"
    )?;
    out.flush()?;
    stop.await;
    tasks.drain(DRAIN).await;
    Ok(())
}

/// An address to listen on, and the default address that was taken.
struct Place {
    address: SocketAddr,
    /// The default address, if it is taken.
    taken: Option<SocketAddr>,
}

impl Place {
    /// Chooses the given address, else the default one if it is free, else a free port.
    fn of(said: Option<SocketAddr>, usual: SocketAddr) -> Self {
        let address = said.unwrap_or(usual);
        let is_taken = said.is_none() && std::net::TcpListener::bind(usual).is_err();
        Self {
            address: if is_taken {
                SocketAddr::new(usual.ip(), 0)
            } else {
                address
            },
            taken: is_taken.then_some(usual),
        }
    }

    fn say(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.taken {
            Some(taken) => writeln!(out, "{taken} is taken: another port is used"),
            None => Ok(()),
        }
    }
}

async fn serve(provider: &Provider, listen: SocketAddr, tasks: &Tasks) -> Result<SocketAddr, app::StartError> {
    let listener = server::bind_listener(listen).await?;
    let at = listener.local_addr().map_err(|source| BindError {
        address: listen,
        source,
    })?;
    let settings = ServerSettings {
        listen: at,
        connections_max: 256,
        header_timeout: Duration::from_secs(30),
        client_stall: Duration::from_secs(30),
        drain_timeout: DRAIN,
    };
    let provider = provider.clone();
    let service = hyper::service::service_fn(move |request| {
        let provider = provider.clone();
        async move { Ok::<_, Infallible>(provider.answer(request).await) }
    });
    tasks.spawn_background(server::serve_listener(listener, settings, tasks.clone(), service));
    Ok(at)
}

/// Returns a strict provider that records the last request of each of these credentials.
fn provider(credentials: &'static [&'static str]) -> anyhow::Result<Provider> {
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

/// Returns a random token for the tool service of this run.
fn token() -> anyhow::Result<String> {
    Ok(blake3::Hash::from_bytes(random_bytes()?).to_hex().to_string())
}

/// Returns the configuration as the text of a file. Its timeouts are short, to keep the stories short.
fn settings(provider: SocketAddr, token: &str) -> String {
    use std::fmt::Write as _;

    let mut text = format!(
        "[server]\ndrain_timeout = \"1s\"\n[ledger]\nstore = \"memory\"\n[timeouts]\nstream_headers = \
         \"1500ms\"\nserver_tool = \"700ms\"\n\
         [upstreams.team]\nkind = \"anthropic\"\ncredentials = \"profiles\"\nurl = \"http://{provider}\"\n\
         [services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n",
        TokenHash::hash_token(token.as_bytes())
    );
    // Writing into a String cannot fail.
    for (name, key) in KEYS_OF_TEAM {
        let _ = writeln!(
            text,
            "[[upstreams.team.profiles]]\nname = \"{name}\"\napi_key = \"{key}\""
        );
    }
    for name in ["anthropic", "openai", "gemini"] {
        let _ = writeln!(text, "[upstreams.{name}]\nurl = \"http://{provider}\"");
    }
    for tool in ["lint", "test", "package", "render"] {
        let _ = writeln!(text, "[tools.{tool}]\ntier = \"durable\"");
    }
    text
}

async fn start(settings: &str, listen: SocketAddr, admin_listen: SocketAddr) -> anyhow::Result<RunningProxy> {
    let flags = Flags {
        listen: Some(listen.to_string()),
        admin_listen: Some(admin_listen.to_string()),
        ..Flags::default()
    };
    let nowhere = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
    // The user's own settings are left out, so that the stories are the same everywhere.
    let loaded = config::build_config(
        Some(("the demonstration's settings", settings)),
        &flags,
        &|_| None,
        &nowhere,
    )?;
    let shown = ConfigSummary::of_loaded(&loaded, None, LogControl::default())?;
    // Nothing may be left behind, and yet the stories are those of a ledger that lasts.
    let launched = app::launch_proxy(loaded.config, shown, LedgerStore::LastingMemory).await?;
    Ok(launched.running)
}

fn greet(tell: &mut Tell, running: &RunningProxy, provider_at: SocketAddr, places: [&Place; 2]) -> io::Result<()> {
    tell.headline(&format!("dashboard  http://{}/", running.admin))?;
    tell.line(&format!(
        "proxy      http://{}\nprovider   http://{provider_at}   scripted, and as strict as the real ones",
        running.data
    ))?;
    for taken in places.iter().filter_map(|place| place.taken) {
        tell.line(&format!("{taken} is taken: another port is used"))?;
    }
    tell.line(
        "\nFive failures, first against the provider itself, then through Antiphon. No key, no network, no file:\n\
         the ledger, which is a file with `antiphon serve`, is in memory here.",
    )
}

fn close(stage: &mut Stage, stays: bool) -> io::Result<()> {
    let verdict = if stage.is_as_promised {
        "All five went as they should."
    } else {
        "Something above is not as it should be: please report it."
    };
    stage.tell.heading(verdict)?;
    let more = if stays {
        format!(
            "press Ctrl-C to end; the dashboard stays at http://{}/, with some traffic\n\
             antiphon run --listen {} -- CMD  lets an agent of yours speak to this provider",
            stage.admin_at, stage.proxy_at
        )
    } else {
        "antiphon demo --keep          the same, and it stays, with some traffic for the dashboard\n\
         antiphon demo --provider-only the strict provider alone, for your own agent\n\
         antiphon run -- CMD           your own agent, through Antiphon"
            .to_owned()
    };
    stage.tell.line(&more)
}
