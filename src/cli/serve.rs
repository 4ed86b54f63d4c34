//! `antiphon serve`: loads the configuration, starts the proxy, and handles signals until it has stopped.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::ArgAction;
use tokio::{
    runtime::{Builder, Handle},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    EXIT_INTERRUPTED, EXIT_TERMINATED,
    api_client::ProxyFlags,
    banner,
    file_work::FileWork,
    mcp, notify,
    reload::Reloader,
    signals::{ReceivedSignal, Signals},
};
use crate::{
    api::admin::control::{ReloadOutcome, ReloadRequest},
    app::{self, ConfigSummary, LaunchedProxy, LedgerStore, RunningProxy, StartError},
    config::{self, Config, ConfigError, CurrentFile, Flags, LedgerPlace, LoadedConfig, process_environment},
    provider::{self, Upstream},
    server::{RuntimeHandles, Runtimes, inherited::InheritedListeners, tls::ListenerTls},
    telemetry,
    upstream::descriptors,
};

/// Time for the runtime to stop after the drain, or after a second signal.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_millis(200);
/// Interval at which a start that waits for a file says so.
const SLOW_START: Duration = Duration::from_secs(5);
/// Last line of a start that a signal has ended.
const STOPPED_EARLY: &str = "stopped before the start was complete";

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
A flag overrides a variable, a variable overrides the file, the file overrides
the default.
ANTIPHON_ADMIN_TOKEN or ANTIPHON_ADMIN_TOKEN_FILE sets the token that the
dashboard and all of /admin/v1 then require.
Keys that have a variable but no flag: ANTIPHON_ALLOW_HOSTS (server.allow_hosts,
as NAME,NAME), ANTIPHON_ALLOW_ORIGINS (server.allow_origins, as ORIGIN,ORIGIN),
ANTIPHON_DRAIN_TIMEOUT (server.drain_timeout), ANTIPHON_MODE (repair.mode),
ANTIPHON_LEDGER_STORE (ledger.store: sqlite, postgres or memory),
ANTIPHON_LEDGER_PATH (ledger.path), ANTIPHON_LEDGER_URL (ledger.url) or
ANTIPHON_LEDGER_URL_FILE, ANTIPHON_LEDGER_BYTES_MAX (ledger.bytes_max).
Also read: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY for connections to
providers, SSL_CERT_FILE, NO_COLOR, OTEL_EXPORTER_OTLP_ENDPOINT and other OTEL_
variables for traces, and LISTEN_FDS: listening sockets that systemd passes are
used in place of new ones, at the addresses of the configuration.
SIGHUP reloads the configuration; a bad file never replaces a good one.
SIGTERM or Ctrl-C lets running exchanges finish first; a second one stops at
once.
A configuration file at a default path is refused if other users may write it or
its folder; a file named with -c may have any permissions.

Exit codes:
  0    stopped as asked
  1    a failure at run time
  2    wrong usage, bad configuration, a taken port or an unusable ledger
  130  stopped at once by a second signal: Ctrl-C
  143  stopped at once by a second signal: SIGTERM";

/// Arguments of `antiphon serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration file [env: ANTIPHON_CONFIG] [default: ~/.config/antiphon/antiphon.toml, else
    /// /etc/antiphon/antiphon.toml, else none]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port of the proxy [env: ANTIPHON_LISTEN] [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address and port of the dashboard, health and metrics; other than loopback requires a token
    /// [env: ANTIPHON_ADMIN_LISTEN] [default: 127.0.0.1:4748]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Provider endpoint under a name of your choice, or another URL for a built-in one; repeatable
    /// [env: ANTIPHON_UPSTREAM, comma-separated]
    #[arg(long = "upstream", value_name = "NAME=URL")]
    upstreams: Vec<String>,
    /// Format of log lines [env: ANTIPHON_LOG_FORMAT] [default: auto: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_parser = ["auto", "json", "text"], hide_possible_values = false)]
    log_format: Option<String>,
    /// Log more: -v debug, -vv trace [env: ANTIPHON_LOG, else RUST_LOG] [default: info]
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Log less: -q failed exchanges and other warnings, -qq errors only
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "verbose")]
    quiet: u8,
}

impl Args {
    /// Converts the arguments to the flags of the configuration.
    pub(super) fn to_flags(&self) -> Flags {
        let louder = i8::try_from(self.verbose).unwrap_or(i8::MAX);
        let quieter = i8::try_from(self.quiet).unwrap_or(i8::MAX);
        let given = [
            ("--listen", &self.listen),
            ("--admin-listen", &self.admin_listen),
            ("--log-format", &self.log_format),
        ];
        let given = given.into_iter().filter_map(|(flag, text)| Some((flag, text.clone()?)));
        Flags {
            config: self.config.clone(),
            default_config: None,
            given: given.collect(),
            upstreams: self.upstreams.clone(),
            verbosity: louder.saturating_sub(quieter),
        }
    }
}

/// Runs the proxy until it has stopped.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    run_to_end(|runtimes| serve_until_stopped(args.to_flags(), runtimes))
}

/// Everything that a start reads from files.
struct StartFiles {
    /// The flags, with the configuration file that was found at a default path.
    flags: Flags,
    loaded: LoadedConfig,
    /// A warning about the private key of the listeners. `None` if only this user may read it.
    exposed_key: Option<String>,
}

impl StartFiles {
    /// Reads them, for as long as a file takes. `current` is the file meanwhile.
    fn read(flags: Flags, current: &CurrentFile) -> Result<Self, ConfigError> {
        let find = || flags.with_default_config(&process_environment);
        let flags = current.during("the configuration file at a default path", find);
        let loaded = config::load_config(&flags, &process_environment, current)?;
        let exposed_key = current.during("server.tls.key", || config::exposed_key_warning(&loaded.config));
        Ok(Self {
            flags,
            loaded,
            exposed_key,
        })
    }

    /// Waits for them. Names a file that does not answer: there is no log yet.
    async fn read_patiently(flags: Flags) -> anyhow::Result<Self> {
        let mut reading = FileWork::start(move |current| Self::read(flags, current))?;
        loop {
            if let Ok(read) = tokio::time::timeout(SLOW_START, reading.finish()).await {
                return Ok(read??);
            }
            let line = format!("antiphon: the start waits for {}", reading.current_file());
            drop(writeln!(io::stderr().lock(), "{line}"));
        }
    }
}

/// Runs a future to its end on a runtime of this thread, with the runtimes of the data path beside it.
///
/// Signals, the drain and the admin listener are on this thread, so that no exchange can delay them.
pub(super) fn run_to_end<F>(work: impl FnOnce(RuntimeHandles) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    let runtimes = Runtimes::start(telemetry::flush_log_lines).context("cannot start threads")?;
    let mut builder = Builder::new_current_thread();
    builder.enable_all().on_thread_park(telemetry::flush_log_lines);
    let control = builder.build().context("cannot start threads")?;
    // Boxed, since the future is large and would otherwise be on the stack of the main thread.
    let result = control.block_on(Box::pin(work(runtimes.handles())));
    // A blocking task, such as a DNS lookup, must not delay the exit.
    control.shutdown_timeout(STOP_TIMEOUT);
    runtimes.shut_down(STOP_TIMEOUT);
    telemetry::flush_log_lines();
    result
}

/// Starts the proxy and serves until a signal ends it.
async fn serve_until_stopped(flags: Flags, runtimes: RuntimeHandles) -> anyhow::Result<ExitCode> {
    // First, so that a signal during the start drains the proxy instead of killing it.
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let reading = StartFiles::read_patiently(flags);
    let Some(files) = unless_stopped(reading, &mut signals).await else {
        // There is no log yet.
        drop(writeln!(io::stderr().lock(), "antiphon: {STOPPED_EARLY}"));
        return Ok(ExitCode::SUCCESS);
    };
    let StartFiles {
        flags,
        loaded,
        exposed_key,
    } = files?;
    let log = loaded.config.log.install_log().context("cannot set up logging")?;
    let config = loaded.config.clone();
    warn_of_settings(&config, exposed_key.as_deref());
    let path = config::config_path(&flags, &process_environment).map(|(path, _)| path.display().to_string());
    let shown = ConfigSummary::of_loaded(&loaded, path, log)?;
    if let Some(path) = config::config_at_default_path(&flags, &process_environment) {
        tracing::info!(path = %path.display(), "using the configuration file at a default path");
    }
    let admin_tls = config.admin_tls.clone();
    let sockets =
        InheritedListeners::take(process_environment("LISTEN_FDNAMES").as_deref()).map_err(StartError::Inherit)?;
    let ledger = config.ledger.place.clone();
    let launch = app::launch_proxy(config, shown, LedgerStore::Configured, sockets, runtimes);
    let launching = launch_beside(Box::pin(launch), &ledger);
    let Some(launched) = unless_stopped(launching, &mut signals).await else {
        tracing::info!("{STOPPED_EARLY}");
        return Ok(ExitCode::SUCCESS);
    };
    let mut launched = launched?;
    announce_start(&launched, admin_tls.as_ref());
    // It ends before the drain, when this process takes no more requests.
    let posting = post_left_over(&launched);
    let mut running = launched.running;
    let mut reloader = Reloader {
        flags,
        initial: loaded.clone(),
        loaded,
        control: launched.control,
        telemetry: launched.telemetry,
        unfinished: None,
    };
    // Only now, since units that depend on this one may connect at once.
    notify::send_ready();
    reload_until_stopped(&mut reloader, &mut running, &mut signals, &mut launched.reloads).await;
    // The admin listener answers during the drain, so readiness fails from its very start.
    launched.readiness.start_drain();
    drop(posting);
    notify::send_stopping();
    tracing::info!("draining; a second SIGTERM or Ctrl-C stops at once");
    tokio::select! {
        () = running.drain() => {
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        }
        code = wait_for_second_stop(&mut signals) => {
            tracing::warn!("stopped at once; running exchanges were cut");
            Ok(ExitCode::from(code))
        }
    }
}

/// Posts what ended processes of `antiphon mcp` have left over, until the set is dropped. A proxy that does not accept
/// results of this machine posts nothing.
fn post_left_over(launched: &LaunchedProxy) -> JoinSet<()> {
    let running = &launched.running;
    let mut posting = JoinSet::new();
    if running.data.ip().is_loopback() && launched.ledger_place.is_some() {
        let proxy = ProxyFlags {
            url: Some(banner::listener_url(running.data, running.tls.as_ref())),
            config: None,
        };
        posting.spawn(Box::pin(mcp::post_left_over(proxy)));
    }
    posting
}

/// Starts the proxy beside this thread, on the same runtime: its files, its locks and its database may not answer.
async fn launch_beside<F>(launch: F, ledger: &LedgerPlace) -> anyhow::Result<LaunchedProxy>
where
    F: Future<Output = Result<LaunchedProxy, StartError>> + Send + 'static,
{
    let (stop, runtime) = (CancellationToken::new(), Handle::current());
    let stopped = stop.clone();
    let _stop = stop.drop_guard();
    let mut launching =
        tokio::task::spawn_blocking(move || runtime.block_on(async { stopped.run_until_cancelled(launch).await }));
    loop {
        if let Ok(launched) = tokio::time::timeout(SLOW_START, &mut launching).await {
            let launched = launched.context("the start has failed")?;
            return Ok(launched.context("the start was stopped")??);
        }
        // A database has a line of its own.
        if let LedgerPlace::File(path) = ledger {
            let path = path
                .clone()
                .or_else(|| config::default_ledger_path(&process_environment));
            let path = path.map_or_else(String::new, |path| path.display().to_string());
            tracing::warn!(
                path,
                "the start waits for the file of the ledger, or for the CA certificates of the system"
            );
        }
    }
}

/// Does a part of the start. Returns `None` if a signal has stopped it before.
async fn unless_stopped<T>(part: impl Future<Output = T>, signals: &mut Signals) -> Option<T> {
    let mut part = std::pin::pin!(part);
    loop {
        tokio::select! {
            done = &mut part => return Some(done),
            signal = signals.next() => {
                // The configuration is read at this moment, or was a moment ago.
                if !matches!(signal, ReceivedSignal::HangUp) {
                    return None;
                }
            }
        }
    }
}

/// Tells of the addresses of a proxy that has started, on a terminal and in the log.
fn announce_start(launched: &LaunchedProxy, admin_tls: Option<&ListenerTls>) {
    let (running, ledger) = (&launched.running, launched.ledger_place.as_deref());
    if io::stderr().is_terminal() {
        // The banner is only a hint. A terminal that is gone is no reason to stop.
        let data = banner::listener_url(running.data, running.tls.as_ref());
        let admin = banner::listener_url(running.admin, admin_tls);
        let banner = banner::render_banner(&launched.routes, &data, &admin, ledger);
        drop(writeln!(io::stderr().lock(), "{banner}"));
    }
    // After the banner, so that the lines of the log follow each other.
    tracing::info!(
        listen = %running.data,
        admin_listen = %running.admin,
        tls = running.tls.is_some(),
        ledger = ledger.unwrap_or(banner::MEMORY_LEDGER),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
}

/// Reloads the configuration at each SIGHUP and request of an operator, until a signal to stop comes.
async fn reload_until_stopped(
    reloader: &mut Reloader,
    running: &mut RunningProxy,
    signals: &mut Signals,
    reloads: &mut mpsc::Receiver<ReloadRequest>,
) {
    let mut reloads_again = false;
    loop {
        let asked = tokio::select! {
            signal = signals.next() => match signal {
                ReceivedSignal::HangUp => None,
                _ => return,
            },
            Some(done) = reloads.recv() => Some(done),
            // Of those that are ready one is chosen at random, so no stream of SIGHUPs holds up an operator's request.
            () = std::future::ready(()), if reloads_again => None,
        };
        let reloading = reload_unless_stopped(reloader, running, signals);
        let Some((reloaded, has_hung_up)) = reloading.await else {
            return;
        };
        // The files may have changed after they were read.
        reloads_again = has_hung_up;
        // The reload logs its own errors, and the operator who asked may have disconnected.
        drop(asked.map(|done| done.send(reloaded)));
    }
}

/// Reloads the configuration once. Returns the outcome, with `true` if a SIGHUP came meanwhile; `None` if a signal to stop
/// comes.
async fn reload_unless_stopped(
    reloader: &mut Reloader,
    running: &mut RunningProxy,
    signals: &mut Signals,
) -> Option<(Result<ReloadOutcome, String>, bool)> {
    let mut reload = std::pin::pin!(reloader.reload(running));
    let mut has_hung_up = false;
    loop {
        tokio::select! {
            reloaded = &mut reload => return Some((reloaded, has_hung_up)),
            signal = signals.next() => match signal {
                ReceivedSignal::HangUp => has_hung_up = true,
                _ => return None,
            },
        }
    }
}

/// Waits for a second signal that asks the process to end, during the drain. Returns the exit code that tells which.
async fn wait_for_second_stop(signals: &mut Signals) -> u8 {
    loop {
        match signals.next().await {
            ReceivedSignal::Interrupt => return EXIT_INTERRUPTED,
            ReceivedSignal::Terminate => return EXIT_TERMINATED,
            // The configuration of a proxy that drains does not matter any more.
            ReceivedSignal::HangUp => {}
        }
    }
}

/// Warns about everything in the configuration that the operator may not have meant.
fn warn_of_settings(config: &Config, exposed_key: Option<&str>) {
    warn_of_few_descriptors(descriptors::raise_limit(), config.server.connections_max);
    warn_of_missing_hosts(&config.server.listen, &config.proxy.allow_hosts);
    warn_of_plain_text(&config.upstreams);
    if let Some(warning) = exposed_key {
        tracing::warn!("{warning}");
    }
    warn_of_literal_secrets(&config.literal_secrets);
    for (key, advice) in &config.old_keys {
        tracing::warn!(key, "the next version does not read this key: {advice}");
    }
    for warning in &config.rules.warnings {
        tracing::warn!("{warning}");
    }
    warn_of_unusable_variables(&config.unusable_variables);
}

/// Warns if the limit of file descriptors does not suffice for as many connections as the configuration allows.
fn warn_of_few_descriptors(limit: Option<u64>, connections_max: usize) {
    // Each exchange needs one towards the client and one towards the provider.
    let needed = u64::try_from(connections_max).unwrap_or(u64::MAX).saturating_mul(2);
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            needed,
            "server.connections_max = {connections_max} cannot be reached: the hard limit of file descriptors is too low; \
             raise it (LimitNOFILE, ulimit -Hn), or lower server.connections_max"
        );
    }
}

/// Warns if the proxy listens on all addresses without `allow_hosts`: it then answers 403 to other machines.
fn warn_of_missing_hosts(listen: &std::net::SocketAddr, allow_hosts: &[String]) {
    if listen.ip().is_unspecified() && allow_hosts.is_empty() {
        tracing::warn!(%listen, "other machines get 403: put the host names they use into server.allow_hosts or ANTIPHON_ALLOW_HOSTS");
    }
}

/// Warns about upstreams without TLS: credentials could be read on the way.
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

/// Warns about secrets in the configuration file, which are copied along with the file.
fn warn_of_literal_secrets(keys: &[String]) {
    for key in keys {
        tracing::warn!(
            key,
            "the configuration file contains this secret: write ${{NAME}} instead, or name a file"
        );
    }
}

/// Warns about unusable OpenTelemetry variables. They are no error, since they may be meant for other programs.
fn warn_of_unusable_variables(names: &[&str]) {
    for name in names {
        tracing::warn!(name, "the value of this variable cannot be used and is ignored");
    }
}
