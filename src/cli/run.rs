//! `antiphon run -- CMD`: a command whose clients speak through the proxy, for as long as it runs.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, ExitStatus},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use http::Uri;
use rustix::process::{Pid, Signal as Number, getpgrp, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{banner, healthcheck, serve};
use crate::{
    app::{self, Launched, Shown},
    config::{self, Config, Flags, Loaded, process_environment},
    ledger::{Ledger, OpenError},
    provider::{self, Routes},
    telemetry::{self, LogControl},
};

/// The variables that clients read, and whose upstream each names.
const VARIABLES: [(&str, &str); 3] = [
    ("ANTHROPIC_BASE_URL", "anthropic"),
    ("OPENAI_BASE_URL", "openai"),
    ("GOOGLE_GEMINI_BASE_URL", "gemini"),
];

/// The command is there, but cannot be run.
const EXIT_CANNOT: u8 = 126;
/// There is no such command.
const EXIT_NOT_FOUND: u8 = 127;
/// What is added to the number of the signal that ended the command.
const EXIT_SIGNAL: i32 = 128;

/// Time for a proxy to say that it is one.
const ANSWER: Duration = Duration::from_secs(2);
/// Time for exchanges that the command has left behind.
const DRAIN: Duration = Duration::from_secs(1);

/// What stands below the flags in the help text.
pub(super) const AFTER_HELP: &str = "\
For example:
  antiphon run -- claude
  antiphon run --upstream anthropic=https://llm.example.com -- python agent.py

Sets ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL for the command alone. They lead to the proxy
that answers on --listen, or else to one that starts on a free port and ends with the command; with -c or --upstream
always to one of its own. Where HTTP_PROXY is set, NO_PROXY gets its address too. It logs warnings only, unless -v
asks for more.
Exits as the command does: with its code, with 128 and the signal's number, or with 127 where there is none.";

/// Arguments of `antiphon run`.
#[derive(Debug, clap::Args)]
#[group(id = "run")]
pub(super) struct Args {
    #[command(flatten)]
    serve: serve::Args,
    /// The command and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut flags = args.serve.flags();
    // The terminal is the command's: only what the user must know is said there.
    if flags.verbosity <= 0 && process_environment("ANTIPHON_LOG").is_none() {
        flags.verbosity = flags.verbosity.saturating_sub(1);
    }
    let loaded = config::load(&flags, &process_environment)?;
    let log = loaded.config.log.install().context("cannot set up log lines")?;
    let runtime = serve::runtime().context("cannot start threads")?;
    let result = runtime.block_on(Box::pin(accompany(args, loaded, log)));
    runtime.shutdown_timeout(serve::STOP_TIMEOUT);
    telemetry::flush_log_lines();
    result
}

/// Runs the command with a proxy beside it.
async fn accompany(args: &Args, loaded: Loaded, log: LogControl) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let flags = args.serve.flags();
    let routes = Routes::new(loaded.config.upstreams.clone());
    let has_settings = flags.config.is_some() || !flags.upstreams.is_empty();
    let at = banner::reachable(loaded.config.server.listen);
    let (at, own) = if !has_settings && is_ours(at).await {
        (at, None)
    } else {
        let launched = start(loaded, &flags, log).await?;
        (banner::reachable(launched.running.data), Some(launched))
    };
    let settings = settings(&routes, at);
    tell_of_overridden(&settings, &flags.upstreams);
    let mut variables: Vec<(&str, String)> = settings.into_iter().map(|(name, _, url)| (name, url)).collect();
    variables.extend(reached_directly(at));
    let code = command(&args.command, variables, &mut signals).await;
    if let Some(own) = own {
        own.readiness.draining();
        own.running.drain().await;
    }
    code
}

/// Whether a proxy of ours answers there: it names every request.
async fn is_ours(at: SocketAddr) -> bool {
    let Ok(url) = format!("http://{at}/").parse::<Uri>() else {
        return false;
    };
    let asked = tokio::time::timeout(ANSWER, healthcheck::ask(&url)).await;
    asked.is_ok_and(|answer| answer.is_ok_and(|head| head.headers.contains_key("x-antiphon-request-id")))
}

/// A proxy of one's own, on free ports unless an address was asked for.
async fn start(loaded: Loaded, flags: &Flags, log: LogControl) -> anyhow::Result<Launched> {
    let path = config::path(flags, &process_environment).map(|(path, _)| path.display().to_string());
    let shown = Shown::of(&loaded, path, log)?;
    let mut config = loaded.config;
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    if flags.listen.is_none() {
        config.server.listen = free;
    }
    if flags.admin_listen.is_none() {
        config.admin_listen = free;
    }
    config.server.drain_timeout = config.server.drain_timeout.min(DRAIN);
    let ledger = ledger(&mut config)?;
    let mut launched = app::launch(config, shown, &ledger).await?;
    // It goes as it began: nobody waits for a reload that never comes.
    launched.reloads.close();
    Ok(launched)
}

/// The ledger. Two commands may run at a time: the second does not wait for the file of the first.
fn ledger(config: &mut Config) -> anyhow::Result<Arc<dyn Ledger>> {
    let opened = serve::ledger(&config.ledger);
    let in_use = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(OpenError::InUse { .. }));
    match opened {
        Err(error) if config.ledger.path.is_none() && in_use(&error) => {
            tracing::warn!(why = %error, "what outlives conversations ends with this command");
            config.ledger.is_file = false;
            serve::ledger(&config.ledger)
        }
        opened => opened,
    }
}

/// The variables for the command.
fn settings(routes: &Routes, at: SocketAddr) -> Vec<(&'static str, &'static str, String)> {
    let urls = routes.base_urls(&at.to_string());
    let setting = |(variable, upstream): (&'static str, &'static str)| {
        let (_, url) = urls.iter().find(|(name, _)| name == upstream)?;
        Some((variable, upstream, url.clone()))
    };
    VARIABLES.into_iter().filter_map(setting).collect()
}

/// The lists of hosts that clients reach without a proxy of their environment, with the proxy here on them: none of
/// those could reach this machine. Nothing where there is no such proxy.
fn reached_directly(at: SocketAddr) -> Vec<(&'static str, String)> {
    const PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    const LISTS: [&str; 2] = ["NO_PROXY", "no_proxy"];
    if PROXIES.iter().all(|name| process_environment(name).is_none()) {
        return Vec::new();
    }
    let known = |name: &'static str| Some((name, format!("{},{}", process_environment(name)?, at.ip())));
    let known: Vec<_> = LISTS.into_iter().filter_map(known).collect();
    if known.is_empty() {
        return vec![(LISTS[0], at.ip().to_string())];
    }
    known
}

/// Says so where a variable led to another machine, since that may be where the user wants to go. Of the URL only
/// the host is shown.
fn tell_of_overridden(settings: &[(&str, &str, String)], upstreams: &[String]) {
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
            // Nothing depends on it.
            drop(writeln!(
                io::stderr().lock(),
                "antiphon: {variable} led to {host} and leads to the proxy now; to have {host} behind it: \
                 antiphon run --upstream {upstream}=\"${variable}\" -- …"
            ));
        }
    }
}

/// Runs the command to its end, and hands on signals meanwhile.
async fn command(
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
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let why = if is_missing {
                "there is no such command".to_owned()
            } else {
                error.to_string()
            };
            drop(writeln!(
                io::stderr().lock(),
                "antiphon: cannot run {}: {why}",
                program.display()
            ));
            return Ok(ExitCode::from(if is_missing { EXIT_NOT_FOUND } else { EXIT_CANNOT }));
        }
    };
    let pid = Pid::from_child(&child);
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    loop {
        tokio::select! {
            biased;
            status = &mut ended => return Ok(code(status.context("the command was lost")??)),
            number = signals.next() => {
                // It may have ended this moment, which is what the signal is for.
                let _ = kill_process(pid, number);
            }
        }
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|number| EXIT_SIGNAL.saturating_add(number)));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The signals that are the command's. While this lives they no longer end this process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal that the command has not got already.
    async fn next(&mut self) -> Number {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Number::TERM,
                _ = self.hangup.recv() => return Number::HUP,
                _ = self.interrupt.recv() => {}
            }
            if !is_in_the_foreground() {
                return Number::INT;
            }
        }
    }
}

/// Whether this process is in the foreground of a terminal. The terminal then sends Ctrl-C to the command as well,
/// since both are of one group: handed on too, it would come twice, and twice often means "at once".
fn is_in_the_foreground() -> bool {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let group = if stdin.is_terminal() {
        rustix::termios::tcgetpgrp(stdin)
    } else if stdout.is_terminal() {
        rustix::termios::tcgetpgrp(stdout)
    } else {
        rustix::termios::tcgetpgrp(stderr)
    };
    group.is_ok_and(|group| group == getpgrp())
}
