//! `antiphon run -- CMD`: runs a command with its LLM clients pointed at the proxy, for as long as the command runs.

mod known_clients;
mod temporary_file;
mod traffic;

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal, Write},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use http::Uri;

use super::{
    banner,
    child::ChildCommand,
    client_variables::{BaseUrlVariable, base_url_variables, no_proxy_variables},
    mcp_wrap::find_wrapped_file,
    running_proxy::find_proxy,
    serve,
    signals::Signals,
};
use crate::{
    app::{self, ConfigSummary, LaunchedProxy, LedgerStore},
    config::{self, CurrentFile, Flags, LoadedConfig, process_environment},
    printable::printable_text,
    provider::{self, Routes},
    server::{RuntimeHandles, inherited::InheritedListeners},
    telemetry::{LogControl, LogHold},
};
use known_clients::{AppliedSettings, settings_for};
use temporary_file::TemporaryFile;
use traffic::TrafficCounts;

/// Time for exchanges that still run after the command has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
For example:
  antiphon run -- claude
  antiphon run --upstream anthropic=https://llm.example.com -- python agent.py

Sets ANTHROPIC_BASE_URL, OPENAI_BASE_URL, GOOGLE_GEMINI_BASE_URL and
GEMINI_API_BASE (LiteLLM) for the command only, and what codex, copilot, gemini,
opencode and pi need beside them. For commands that read files only, such as
cline, it says what to set. They point to the proxy that already answers on
--listen. If there is none, or with -c or --upstream, a new proxy starts on a
free port and ends with the command. If a forward proxy is set (HTTP_PROXY,
HTTPS_PROXY, ALL_PROXY), the proxy's address is added to NO_PROXY. Only warnings
are logged, unless -v asks for more. On a terminal, log lines wait until the
command has ended; 2>FILE writes them at once. -q also hides where the proxy
listens and what came through it.

Exit codes:
  0-125  that of the command
  126    the command cannot be run
  127    there is no such command
  128+N  signal N ended the command
  2      also: wrong usage, bad configuration, a taken port or an unusable
         ledger
  1      also: another failure at run time";

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
    let mut flags = args.serve.to_flags().with_default_config(&process_environment);
    // The terminal belongs to the command, so only warnings are logged by default.
    if flags.verbosity <= 0 && process_environment("ANTIPHON_LOG").is_none() {
        flags.verbosity = flags.verbosity.saturating_sub(1);
    }
    let loaded = config::load_config(&flags, &process_environment, &CurrentFile::default())?;
    let log = loaded.config.log.install_log().context("cannot set up log lines")?;
    serve::run_to_end(|runtimes| run_with_proxy(args, loaded, log, runtimes))
}

/// The proxy that the command uses.
struct UsedProxy {
    at: SocketAddr,
    /// Address of the dashboard, if it is known.
    admin: Option<SocketAddr>,
    /// The proxy that this process has started. `None` if another process runs it.
    own: Option<LaunchedProxy>,
    /// Counts of a running proxy before the command.
    before: Option<TrafficCounts>,
    /// Configuration file of an own proxy, if it was found at a default path.
    default_config: Option<PathBuf>,
}

/// Runs the command with a proxy: a running one if it fits, else a new one.
async fn run_with_proxy(
    args: &Args,
    loaded: LoadedConfig,
    log: LogControl,
    runtimes: RuntimeHandles,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let flags = args.serve.to_flags().with_default_config(&process_environment);
    let Some((program, arguments)) = args.command.split_first() else {
        // The parser requires a command.
        return Ok(ExitCode::FAILURE);
    };
    let routes = Routes::new(loaded.config.upstreams.clone());
    // A setting in a file outlives this command, so it needs the address of a proxy that does too.
    let tls = loaded.config.server.tls.clone();
    let lasting_urls = routes.base_urls(&banner::listener_url(loaded.config.server.listen, tls.as_ref()));
    // The future of a whole start is large.
    let proxy = Box::pin(find_or_start(loaded, &flags, log, runtimes)).await?;
    let root = format!("http://{}", proxy.at);
    let variables = base_url_variables(&routes, &root);
    let urls = routes.base_urls(&root);
    let known = settings_for(&args.command, &urls, &lasting_urls, &process_environment);
    let is_quiet = flags.verbosity < 0;
    if !is_quiet {
        say(&proxy.describe_place());
        known.missing_setting.iter().for_each(|line| say(line));
        if known.needs_lasting_proxy && proxy.own.is_some() {
            say(
                "this setting needs a proxy that keeps running: start `antiphon` in another terminal first, with the same options",
            );
        }
    }
    if !is_quiet {
        proxy.tell_lost_results(program);
    }
    warn_of_overridden(&variables, &flags.upstreams);
    // Removed when this function ends, so after the command.
    let extension = known
        .extension
        .as_deref()
        .map(|text| TemporaryFile::write_new("ts", text));
    let extension = extension
        .transpose()
        .context("cannot write the extension of the command")?;
    let extension_flag = extension
        .iter()
        .flat_map(|file| [OsString::from("-e"), file.path().into()]);
    let command = ChildCommand {
        program: program.clone(),
        arguments: known
            .arguments
            .iter()
            .map(OsString::from)
            .chain(extension_flag)
            .chain(arguments.iter().cloned())
            .collect(),
        variables: child_variables(variables, &known, proxy.at),
    };
    // The command may draw on the whole screen, and a line of the log would stay in it.
    let hold = io::stderr().is_terminal().then(LogHold::begin);
    let end = command.run_to_end(&mut signals).await;
    let summary = proxy.end_with_summary(&program.display().to_string(), &known).await;
    drop(hold);
    let end = end?;
    if end.has_run && !is_quiet {
        for line in &summary {
            say(line);
        }
    }
    Ok(ExitCode::from(end.code))
}

/// Returns all variables for the command.
fn child_variables(urls: Vec<BaseUrlVariable>, known: &AppliedSettings, at: SocketAddr) -> Vec<(String, String)> {
    let urls = urls
        .into_iter()
        .map(|variable| (variable.name.to_owned(), variable.url));
    let no_proxy = no_proxy_variables(at).into_iter();
    let no_proxy = no_proxy.map(|(name, value)| (name.to_owned(), value));
    urls.chain(no_proxy).chain(known.variables.iter().cloned()).collect()
}

/// Writes a line to stderr. A closed stderr must not stop the command.
fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "antiphon: {line}"));
}

/// Finds the proxy that runs at the configured address, or starts one.
async fn find_or_start(
    loaded: LoadedConfig,
    flags: &Flags,
    log: LogControl,
    runtimes: RuntimeHandles,
) -> anyhow::Result<UsedProxy> {
    // A running proxy has a configuration of its own, so explicit settings need a new proxy.
    let has_settings = flags.config.is_some() || !flags.upstreams.is_empty();
    let at = banner::reachable_address(loaded.config.server.listen);
    let found = if has_settings {
        None
    } else {
        find_proxy(at, false).await
    };
    // A variable or a default file may name an upstream that the running proxy lacks, or has with another URL.
    let lacking = match &found {
        Some(found) => {
            let built_in = config::build_config(None, &Flags::default(), &|_| None, &|_| {
                Err(io::ErrorKind::NotFound.into())
            })?;
            let built_in = built_in.config.upstreams;
            found.lacking_upstream(&loaded.config.upstreams, &built_in)
        }
        None => None,
    };
    if let Some(name) = lacking.filter(|_| flags.verbosity >= 0) {
        say(&format!(
            "the running proxy at http://{at} has no upstream {name} with this URL, so another one starts"
        ));
    }
    let is_other_running = lacking.is_some();
    if let Some(found) = found.filter(|_| !is_other_running) {
        let before = match found.admin {
            Some(admin) => TrafficCounts::of_running_proxy(admin).await,
            None => None,
        };
        return Ok(UsedProxy {
            at,
            admin: found.admin,
            own: None,
            before,
            default_config: None,
        });
    }
    // Boxed, since the future is large.
    let launched = Box::pin(start_proxy(loaded, flags, (log, runtimes), is_other_running)).await?;
    Ok(UsedProxy {
        at: banner::reachable_address(launched.running.data),
        admin: Some(banner::reachable_address(launched.running.admin)),
        own: Some(launched),
        before: None,
        default_config: config::config_at_default_path(flags, &process_environment),
    })
}

impl UsedProxy {
    /// Returns the line before the command: where the proxy listens, and its dashboard.
    fn describe_place(&self) -> String {
        let dashboard = self
            .admin
            .map_or_else(String::new, |admin| format!("; dashboard http://{admin}/"));
        match self.own {
            Some(_) => {
                let path = self.default_config.as_ref();
                let path = path.map_or_else(String::new, |path| format!("; configuration {}", path.display()));
                format!("proxy of this command at http://{}{dashboard}{path}", self.at)
            }
            None => format!("using the running proxy at http://{}{dashboard}", self.at),
        }
    }

    /// Tells that late results of the client's wrapped MCP servers are not kept, if that is so.
    fn tell_lost_results(&self, program: &OsStr) {
        let in_memory = self.own.as_ref().is_some_and(|own| own.ledger_place.is_none());
        let wrapped = if in_memory { find_wrapped_file(program) } else { None };
        if let Some(path) = wrapped {
            let path = printable_text(&path.display().to_string());
            say(&format!(
                "{path} has servers behind antiphon mcp, and this proxy keeps its ledger in memory only, so results that \
                 come late are not delivered: start `antiphon serve` in another terminal first"
            ));
        }
    }

    /// Ends a proxy of its own. Returns the lines about what came through.
    async fn end_with_summary(self, program: &str, known: &AppliedSettings) -> Vec<String> {
        let Some(own) = self.own else {
            let after = match self.admin {
                Some(admin) => TrafficCounts::of_running_proxy(admin).await,
                None => None,
            };
            let counts = self.before.zip(after).map(|(before, after)| after.since(&before));
            return summary_of_running(counts.as_ref(), self.admin, program, known);
        };
        // Only a proxy that this process started may be stopped.
        own.readiness.start_drain();
        own.running.drain().await;
        let counts = TrafficCounts::from(own.telemetry.exchange_totals());
        if counts.requests == 0 {
            return no_request_lines(program, known);
        }
        let details = "details: antiphon run -v -- …";
        let mut lines = vec![format!("{}; {details}", counts.describe_counts())];
        if counts.has_no_success() {
            lines.extend(known.login_advice.map(ToOwned::to_owned));
        }
        lines
    }
}

/// Returns the lines about a proxy that other clients may use as well.
fn summary_of_running(
    counts: Option<&TrafficCounts>,
    admin: Option<SocketAddr>,
    program: &str,
    known: &AppliedSettings,
) -> Vec<String> {
    let Some(counts) = counts else {
        // The counts of the proxy are unknown, so neither a number nor zero is reported.
        return Vec::new();
    };
    if counts.requests == 0 {
        return no_request_lines(program, known);
    }
    let details = admin.map_or_else(String::new, |admin| format!("; details: http://{admin}/"));
    let mut lines = vec![format!(
        "while it ran, the proxy had {}{details}",
        counts.describe_counts()
    )];
    if counts.has_no_success() {
        lines.extend(known.login_advice.map(ToOwned::to_owned));
    }
    lines
}

/// Returns the lines for a run without any request, with the likely reason.
fn no_request_lines(program: &str, known: &AppliedSettings) -> Vec<String> {
    let reason = if known.missing_setting.is_some() {
        "needs the setting above"
    } else if known.is_empty() {
        "asked no model, or does not read the variables (docs/clients.md)"
    } else {
        "asked no model, or has a provider of its own configured"
    };
    let first = format!("no request came through the proxy; the likely reason: {program} {reason}");
    std::iter::once(first)
        .chain(known.login_advice.map(ToOwned::to_owned))
        .collect()
}

/// Starts a proxy, on free ports unless the flags give an address. With `is_taken`, another proxy has that address.
async fn start_proxy(
    loaded: LoadedConfig,
    flags: &Flags,
    (log, runtimes): (LogControl, RuntimeHandles),
    is_taken: bool,
) -> anyhow::Result<LaunchedProxy> {
    let path = config::config_path(flags, &process_environment).map(|(path, _)| path.display().to_string());
    let shown = ConfigSummary::of_loaded(&loaded, path, log)?;
    let mut config = loaded.config;
    // The configured ports may be taken by another proxy that must not stop this command.
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    if !flags.given.contains_key("--listen") || is_taken {
        config.server.listen = free;
    }
    if !flags.given.contains_key("--admin-listen") || is_taken {
        config.admin_listen = free;
    }
    // Clients on this machine would refuse a certificate that names a host.
    anyhow::ensure!(
        config.server.tls.is_none() || config.server.listen.ip().is_loopback(),
        "the proxy of `antiphon run` has no TLS, and --listen is reachable from other machines"
    );
    config.server.tls = None;
    config.admin_tls = None;
    // The user waits at the prompt until the drain ends, and no load balancer has to notice it.
    config.server.drain_delay = Duration::ZERO;
    config.server.drain_timeout = config.server.drain_timeout.min(DRAIN_TIMEOUT);
    let own_sockets = InheritedListeners::default();
    let mut launched = app::launch_proxy(config, shown, LedgerStore::ConfiguredOrMemory, own_sockets, runtimes).await?;
    // This proxy never reloads. A closed channel fails such a request at once instead of letting it wait.
    launched.reloads.close();
    Ok(launched)
}

/// Warns about variables that pointed to another machine, since the user may want that machine as upstream.
///
/// Only the host of the URL is shown, since the rest may contain a credential.
fn warn_of_overridden(settings: &[BaseUrlVariable], upstreams: &[String]) {
    for BaseUrlVariable {
        name: variable,
        upstream,
        ..
    } in settings
    {
        let url = process_environment(variable).and_then(|url| url.parse::<Uri>().ok());
        let host = url
            .as_ref()
            .and_then(Uri::host)
            .filter(|host| !provider::is_loopback(host));
        let named = upstreams
            .iter()
            .any(|pair| pair.split_once('=').is_some_and(|(name, _)| name == *upstream));
        if let Some(host) = host.filter(|_| !named) {
            say(&format!(
                "{variable} pointed to {host} and now points to the proxy; to use {host} as upstream: \
                 antiphon run --upstream {upstream}=\"${variable}\" -- …"
            ));
        }
    }
}
