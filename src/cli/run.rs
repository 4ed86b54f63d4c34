//! `antiphon run -- CMD`: runs a command with its LLM clients pointed at the proxy, for as long as the command runs.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::Context;
use http::Uri;
use rustix::process::{Pid, Signal, getpgrp, kill_process};

use super::{banner, healthcheck, serve, signals::Signals};
use crate::{
    app::{self, ConfigSummary, LaunchedProxy, LedgerStore},
    config::{self, Flags, LoadedConfig, process_environment},
    provider::{self, Routes},
    telemetry::LogControl,
};

/// Variables that clients read, with the upstream of each.
const VARIABLES: [(&str, &str); 3] = [
    ("ANTHROPIC_BASE_URL", "anthropic"),
    ("OPENAI_BASE_URL", "openai"),
    ("GOOGLE_GEMINI_BASE_URL", "gemini"),
];

/// Exit code if the command exists but cannot be run.
const EXIT_CANNOT_RUN: u8 = 126;
/// Exit code if the command does not exist.
const EXIT_NOT_FOUND: u8 = 127;
/// Offset of the exit code if a signal ended the command, as shells do.
const EXIT_SIGNAL: i32 = 128;

/// Timeout of the request that finds out if a proxy is running.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for exchanges that still run after the command has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
For example:
  antiphon run -- claude
  antiphon run --upstream anthropic=https://llm.example.com -- python agent.py

Sets ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL for the command only. They point to the proxy
that already answers on --listen. If there is none, or with -c or --upstream, a new proxy starts on a free port and
ends with the command. If HTTP_PROXY is set, the proxy's address is added to NO_PROXY. Only warnings are logged,
unless -v asks for more.
Exits with the exit code of the command, with 128 plus the number of the signal that ended it, or with 127 if there is
no such command.";

/// Arguments of `antiphon run`.
#[derive(Debug, clap::Args)]
#[group(id = "run")]
pub(super) struct Args {
    #[command(flatten)]
    serve: serve::Args,
    /// Command to run, with its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// Runs the command. Returns its exit code.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut flags = args.serve.to_flags();
    // The terminal belongs to the command, so only warnings are logged by default.
    if flags.verbosity <= 0 && process_environment("ANTIPHON_LOG").is_none() {
        flags.verbosity = flags.verbosity.saturating_sub(1);
    }
    let loaded = config::load_config(&flags, &process_environment)?;
    let log = loaded.config.log.install_log().context("cannot set up log lines")?;
    serve::run_to_end(Box::pin(run_with_proxy(args, loaded, log)))
}

/// Runs the command with a proxy: a running one if it fits, else a new one.
async fn run_with_proxy(args: &Args, loaded: LoadedConfig, log: LogControl) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let flags = args.serve.to_flags();
    let routes = Routes::new(loaded.config.upstreams.clone());
    // A running proxy has a configuration of its own, so explicit settings need a new proxy.
    let has_settings = flags.config.is_some() || !flags.upstreams.is_empty();
    let at = banner::reachable_address(loaded.config.server.listen);
    let (at, own) = if !has_settings && is_antiphon(at).await {
        (at, None)
    } else {
        let launched = start_proxy(loaded, &flags, log).await?;
        (banner::reachable_address(launched.running.data), Some(launched))
    };
    let settings = client_settings(&routes, at);
    warn_of_overridden(&settings, &flags.upstreams);
    let mut variables: Vec<(&str, String)> = settings.into_iter().map(|(name, _, url)| (name, url)).collect();
    variables.extend(no_proxy_variables(at));
    let code = run_command(&args.command, variables, &mut signals).await;
    // Only a proxy that this process started may be stopped.
    if let Some(own) = own {
        own.readiness.start_drain();
        own.running.drain().await;
    }
    code
}

/// Returns `true` if Antiphon answers at this address. It adds a request id header to every answer.
async fn is_antiphon(at: SocketAddr) -> bool {
    let Ok(url) = format!("http://{at}/").parse::<Uri>() else {
        return false;
    };
    let response = tokio::time::timeout(PROBE_TIMEOUT, healthcheck::fetch_head(&url)).await;
    response.is_ok_and(|answer| answer.is_ok_and(|head| head.headers.contains_key("x-antiphon-request-id")))
}

/// Starts a proxy, on free ports unless the flags give an address.
async fn start_proxy(loaded: LoadedConfig, flags: &Flags, log: LogControl) -> anyhow::Result<LaunchedProxy> {
    let path = config::config_path(flags, &process_environment).map(|(path, _)| path.display().to_string());
    let shown = ConfigSummary::of_loaded(&loaded, path, log)?;
    let mut config = loaded.config;
    // The configured ports may be taken by another proxy that must not stop this command.
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    if flags.listen.is_none() {
        config.server.listen = free;
    }
    if flags.admin_listen.is_none() {
        config.admin_listen = free;
    }
    // The user waits at the prompt until the drain ends.
    config.server.drain_timeout = config.server.drain_timeout.min(DRAIN_TIMEOUT);
    let mut launched = app::launch_proxy(config, shown, LedgerStore::ConfiguredOrMemory).await?;
    // This proxy never reloads. A closed channel fails such a request at once instead of letting it wait.
    launched.reloads.close();
    Ok(launched)
}

/// Returns the variables for the command: name, upstream and URL.
fn client_settings(routes: &Routes, at: SocketAddr) -> Vec<(&'static str, &'static str, String)> {
    let urls = routes.base_urls(&at.to_string());
    let setting = |(variable, upstream): (&'static str, &'static str)| {
        let (_, url) = urls.iter().find(|(name, _)| name == upstream)?;
        Some((variable, upstream, url.clone()))
    };
    VARIABLES.into_iter().filter_map(setting).collect()
}

/// Returns the `NO_PROXY` variables with the proxy's address added, or nothing if no forward proxy is set.
///
/// Without them clients would send requests for this machine to the forward proxy, which cannot reach it.
fn no_proxy_variables(at: SocketAddr) -> Vec<(&'static str, String)> {
    const PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    const LISTS: [&str; 2] = ["NO_PROXY", "no_proxy"];
    if PROXIES.iter().all(|name| process_environment(name).is_none()) {
        return Vec::new();
    }
    // Clients differ in the spelling that they read, so each list that is set is extended.
    let known = |name: &'static str| Some((name, format!("{},{}", process_environment(name)?, at.ip())));
    let known: Vec<_> = LISTS.into_iter().filter_map(known).collect();
    if known.is_empty() {
        return vec![(LISTS[0], at.ip().to_string())];
    }
    known
}

/// Warns about variables that pointed to another machine, since the user may want that machine as upstream.
///
/// Only the host of the URL is shown, since the rest may contain a credential.
fn warn_of_overridden(settings: &[(&str, &str, String)], upstreams: &[String]) {
    for (variable, upstream, _) in settings {
        let url = process_environment(variable).and_then(|url| url.parse::<Uri>().ok());
        let host = url
            .as_ref()
            .and_then(Uri::host)
            .filter(|host| !provider::is_loopback(host));
        let named = upstreams
            .iter()
            .any(|pair| pair.split_once('=').is_some_and(|(name, _)| name == *upstream));
        if let Some(host) = host.filter(|_| !named) {
            // A closed stderr must not stop the command.
            drop(writeln!(
                io::stderr().lock(),
                "antiphon: {variable} pointed to {host} and now points to the proxy; to use {host} as upstream: \
                 antiphon run --upstream {upstream}=\"${variable}\" -- …"
            ));
        }
    }
}

/// Runs the command to its end and forwards signals to it.
async fn run_command(
    command: &[OsString],
    variables: Vec<(&str, String)>,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(ExitCode::from(EXIT_NOT_FOUND));
    };
    let mut child = match Command::new(program).args(arguments).envs(variables).spawn() {
        Ok(child) => child,
        Err(error) => {
            let (why, code) = match error.kind() {
                io::ErrorKind::NotFound => ("there is no such command".to_owned(), EXIT_NOT_FOUND),
                _ => (error.to_string(), EXIT_CANNOT_RUN),
            };
            drop(writeln!(
                io::stderr().lock(),
                "antiphon: cannot run {}: {why}",
                program.display()
            ));
            return Ok(ExitCode::from(code));
        }
    };
    let pid = Pid::from_child(&child);
    // `wait` blocks, and the signals must be forwarded meanwhile.
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    loop {
        tokio::select! {
            // The end comes first: a process id that has ended may be reused.
            biased;
            status = &mut ended => return Ok(exit_code(status.context("the command was lost")??)),
            number = next_to_forward(signals) => {
                // An error means that the command has just ended, as the signal wants.
                let _ = kill_process(pid, number);
            }
        }
    }
}

/// Converts the exit status of the command to an exit code, as shells do.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|number| EXIT_SIGNAL.saturating_add(number)));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Waits for the next signal that the command has not received itself.
async fn next_to_forward(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        // In the foreground the terminal has already sent Ctrl-C to the command.
        if signal != Signal::INT || !is_in_the_foreground() {
            return signal;
        }
    }
}

/// Returns `true` if this process is in the foreground of a terminal.
///
/// The terminal then sends Ctrl-C to the command as well, since both are in one process group. A forwarded signal would
/// be the second one, which often means "stop at once".
fn is_in_the_foreground() -> bool {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    // Any of the three may be redirected.
    let group = if stdin.is_terminal() {
        rustix::termios::tcgetpgrp(stdin)
    } else if stdout.is_terminal() {
        rustix::termios::tcgetpgrp(stdout)
    } else {
        rustix::termios::tcgetpgrp(stderr)
    };
    group.is_ok_and(|group| group == getpgrp())
}
