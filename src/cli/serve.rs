//! `antiphon serve`: configuration, log lines, the parts, signals.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    io::{self, IsTerminal, Write},
    num::NonZero,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::ArgAction;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

use super::{EXIT_INTERRUPTED, banner, notify, reload::Reloader};
use crate::{
    app::{self, Launched, Shown},
    config::{self, Flags, LedgerConfig, Loaded, default_ledger_path, process_environment},
    ledger::{Ledger, MemoryLedger, OpenError, SqliteLedger},
    provider::{self, Upstream},
    telemetry::{self, LogControl},
    upstream::random,
};

/// Time for what is left after the drain, or at once after a second SIGINT.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_millis(200);

/// What stands below the flags in the help text.
pub(super) const AFTER_HELP: &str = "\
A flag goes before a variable, a variable before the file, the file before the default.
ANTIPHON_ADMIN_TOKEN or ANTIPHON_ADMIN_TOKEN_FILE give the token that the dashboard and all of /admin/v1 then ask for.
Also read: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY for the way to providers, SSL_CERT_FILE, NO_COLOR,
OTEL_EXPORTER_OTLP_ENDPOINT and other OTEL_ variables for traces.
SIGHUP loads the configuration anew; a bad file never replaces a good one.
SIGTERM or Ctrl-C finishes running exchanges first; a second Ctrl-C stops at once.";

/// Arguments of `antiphon serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration file [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port of the proxy [env: ANTIPHON_LISTEN] [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address and port of the dashboard, health and metrics; loopback without a token [env: ANTIPHON_ADMIN_LISTEN] [default: 127.0.0.1:4748]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Provider endpoint under a name of your choice, or another URL for a built-in one; repeatable
    /// [env: ANTIPHON_UPSTREAM, comma-separated]
    #[arg(long = "upstream", value_name = "NAME=URL")]
    upstreams: Vec<String>,
    /// How log lines look [env: ANTIPHON_LOG_FORMAT] [default: auto: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_parser = ["auto", "json", "text"], hide_possible_values = false)]
    log_format: Option<String>,
    /// Log more: -v debug, -vv trace [env: ANTIPHON_LOG, else RUST_LOG] [default: info]
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Log less: -q warnings, -qq errors
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "verbose")]
    quiet: u8,
}

impl Args {
    pub(super) fn flags(&self) -> Flags {
        let louder = i8::try_from(self.verbose).unwrap_or(i8::MAX);
        let quieter = i8::try_from(self.quiet).unwrap_or(i8::MAX);
        Flags {
            config: self.config.clone(),
            listen: self.listen.clone(),
            admin_listen: self.admin_listen.clone(),
            upstreams: self.upstreams.clone(),
            log_format: self.log_format.clone(),
            verbosity: louder.saturating_sub(quieter),
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let flags = args.flags();
    let loaded = config::load(&flags, &process_environment)?;
    let log = loaded.config.log.install().context("cannot set up log lines")?;
    let runtime = runtime().context("cannot start threads")?;
    let result = runtime.block_on(Box::pin(serve(flags, loaded, log)));
    runtime.shutdown_timeout(STOP_TIMEOUT);
    telemetry::flush_log_lines();
    result
}

/// A thread a core. On a single core the scheduler of many threads costs 1.25 times the CPU of a small exchange, nearly
/// all of it in the kernel.
pub(super) fn runtime() -> io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut builder = if cores == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    builder.enable_all().on_thread_park(telemetry::flush_log_lines).build()
}

async fn serve(flags: Flags, loaded: Loaded, log: LogControl) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let config = loaded.config.clone();
    warn_of_closed_door(&config.server.listen, &config.proxy.allow_hosts);
    warn_of_plain_text(&config.upstreams);
    warn_of_literal_secrets(&config.literal_secrets);
    warn_of_unusable_variables(&config.unusable_variables);
    let ledger = ledger(&config.ledger)?;
    let path = config::path(&flags, &process_environment).map(|(path, _)| path.display().to_string());
    let shown = Shown::of(&loaded, path, log)?;
    let Launched {
        mut running,
        readiness,
        control,
        reloads: mut requests,
        telemetry,
        routes,
    } = app::launch(config, shown, &ledger).await?;
    tracing::info!(listen = %running.data, admin_listen = %running.admin, version = env!("CARGO_PKG_VERSION"), "serving");
    if io::stderr().is_terminal() {
        // Nothing depends on the banner: a terminal that is gone is no reason to stop.
        let banner = banner::text(&routes, running.data, running.admin);
        drop(writeln!(io::stderr().lock(), "\n{banner}"));
    }
    let mut reloader = Reloader {
        flags,
        began: loaded.clone(),
        loaded,
        control,
        telemetry,
    };
    notify::ready();
    loop {
        tokio::select! {
            signalled = signals.next() => match signalled {
                Signalled::Stop => break,
                // What went wrong stands in the log.
                Signalled::Reload => drop(reloader.reload(&mut running)),
            },
            Some(done) = requests.recv() => {
                // Who asked may have gone.
                drop(done.send(reloader.reload(&mut running)));
            }
        }
    }
    readiness.draining();
    notify::stopping();
    tracing::info!("draining; press Ctrl-C again to stop at once");
    tokio::select! {
        () = running.drain() => {
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        }
        () = signals.interrupt() => {
            tracing::warn!("stopped at once; running exchanges were cut");
            Ok(ExitCode::from(EXIT_INTERRUPTED))
        }
    }
}

/// Where calls and results are kept. Where nobody has named a file and none can be made, as in a container without a home,
/// that is this process's memory.
pub(super) fn ledger(config: &LedgerConfig) -> anyhow::Result<Arc<dyn Ledger>> {
    let secret = random().context("cannot make a key for the names of callers")?;
    let in_memory = || Arc::new(MemoryLedger::new(config.settings, secret));
    if !config.is_file {
        return Ok(in_memory());
    }
    let named = config.path.clone();
    let Some(path) = named.or_else(|| default_ledger_path(&process_environment)) else {
        warn_of_short_memory("there is no home directory");
        return Ok(in_memory());
    };
    match SqliteLedger::open(&path, config.settings, secret) {
        Ok(ledger) => Ok(Arc::new(ledger)),
        Err(error @ OpenError::Unusable { .. }) if config.path.is_none() && !path.exists() => {
            warn_of_short_memory(&error.to_string());
            Ok(in_memory())
        }
        Err(error) => Err(error.into()),
    }
}

/// What is only in memory ends with the process.
fn warn_of_short_memory(why: &str) {
    tracing::warn!(
        why,
        "what outlives conversations ends with this process: set ledger.path to a file that can be written, or ledger.store to \"memory\""
    );
}

/// On every address at once, no name of ours is known but loopback: without `allow_hosts` other machines are refused.
fn warn_of_closed_door(listen: &std::net::SocketAddr, allow_hosts: &[String]) {
    if listen.ip().is_unspecified() && allow_hosts.is_empty() {
        tracing::warn!(%listen, "other machines get 403: put the host names they use into server.allow_hosts");
    }
}

/// Credentials that leave this machine without TLS can be read on the way.
fn warn_of_plain_text(upstreams: &[Upstream]) {
    let plain = |upstream: &&Upstream| {
        upstream.scheme == http::uri::Scheme::HTTP && !provider::is_loopback(upstream.authority.host())
    };
    for upstream in upstreams.iter().filter(plain) {
        tracing::warn!(
            upstream = upstream.name,
            "credentials go to this upstream unencrypted: its url is http://"
        );
    }
}

/// A secret in the file is copied along with the file.
fn warn_of_literal_secrets(keys: &[String]) {
    for key in keys {
        tracing::warn!(
            key,
            "this secret stands in the configuration file: better write ${{NAME}}, or name a file"
        );
    }
}

/// Variables of OpenTelemetry are often set for other programs too: what they say and we cannot do stops nothing.
fn warn_of_unusable_variables(names: &[&str]) {
    for name in names {
        tracing::warn!(name, "this variable says nothing that can be used: it is passed over");
    }
}

/// What a signal asks for.
pub(super) enum Signalled {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that we take. While this lives they no longer kill the process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.terminate.recv() => Signalled::Stop,
            _ = self.interrupt.recv() => Signalled::Stop,
            _ = self.hang_up.recv() => Signalled::Reload,
        }
    }

    /// Waits for the next SIGINT.
    async fn interrupt(&mut self) {
        self.interrupt.recv().await;
    }
}
