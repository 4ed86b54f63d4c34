//! `antiphon demo`: plays its stories on a terminal, or serves the strict provider alone.

use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    process::ExitCode,
};

use anyhow::Context;

use crate::{
    config::process_environment,
    demo::{self, Play},
};

use super::{diff, serve::STOP_TIMEOUT, signals::Signals, success_if};

/// Variables by which `antiphon mcp` finds a proxy and its own token.
const WRAPPER_VARIABLES: [&str; 2] = ["ANTIPHON_URL", "ANTIPHON_SERVICE_TOKEN"];

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
The provider is scripted and runs in this process. The demo needs no key and no
file, and uses only loopback. On a terminal it keeps running after the stories
until Ctrl-C, with some traffic for the dashboard. Otherwise it ends by itself.
It reads neither the configuration file nor variables, except NO_COLOR.";

/// Arguments of `antiphon demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Keep running after the stories until Ctrl-C, with some traffic for the dashboard
    #[arg(long, conflicts_with = "provider_only")]
    keep: bool,
    /// Serve only the strict provider, to test your own agent against it
    #[arg(long)]
    provider_only: bool,
    /// Address and port of the proxy, or of the provider with --provider-only
    /// [default: 127.0.0.1:4747, the provider's 127.0.0.1:4749, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address and port of the dashboard [default: 127.0.0.1:4748, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "provider_only", value_parser = parse_loopback)]
    admin_listen: Option<SocketAddr>,
    /// Be the MCP server of a story, on standard input and output
    #[arg(long, hide = true, exclusive = true)]
    toy_server: bool,
}

/// Runs the demo on a runtime of its own.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Two threads are enough for a demo with few connections.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let played = runtime.block_on(Box::pin(play_stories(args)));
    runtime.shutdown_timeout(STOP_TIMEOUT);
    played
}

/// Plays the stories, or serves the provider, until they end or a signal comes.
async fn play_stories(args: &Args) -> anyhow::Result<ExitCode> {
    if args.toy_server {
        demo::serve_toy().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::new().context("cannot listen for signals")?;
    // SIGHUP stops the demo too: it means that the terminal was closed, and there is no configuration to reload.
    let stop = async {
        signals.next().await;
    };
    let out = Box::new(io::stdout());
    if args.provider_only {
        demo::provider_only(args.listen, out, stop).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_terminal = io::stdout().is_terminal();
    let play = Play {
        listen: args.listen,
        admin_listen: args.admin_listen,
        stays: args.keep || is_terminal,
        is_read_along: is_terminal,
        has_colours: is_terminal && process_environment("NO_COLOR").is_none(),
        diff: diff::diff_lines,
        wrapper_variables: WRAPPER_VARIABLES,
    };
    let is_as_promised = demo::play(play, out, stop).await?;
    Ok(success_if(is_as_promised))
}

/// Parses a loopback address.
fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "expected an address and port, such as 127.0.0.1:0".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("only loopback addresses are allowed: the dashboard requires no login".to_owned())
    }
}
