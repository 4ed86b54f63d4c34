//! `antiphon healthcheck`: asks a running proxy whether it is alive, for images without another HTTP client.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::anyhow;
use http::{Uri, uri::Scheme};
use serde_json::json;

use super::{
    banner::reachable_address,
    config::load_chosen,
    http_get::fetch_head,
    output::{OutputFlag, ReportOutput, write_document},
    proxy_trust::ProxyTrust,
    success_if,
};
use crate::provider;

/// Timeout of the whole check.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
Exit codes:
  0  the proxy answers
  1  it does not, or it drains (--ready), or the configuration is bad
  2  wrong usage";

/// Arguments of `antiphon healthcheck`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Ask /readyz instead of /livez: it fails while the proxy drains and takes no new requests
    #[arg(long, conflicts_with = "url")]
    ready: bool,
    /// URL to ask [default: /livez of the configured admin listener, http://127.0.0.1:4748/livez, or https:// if it
    /// has TLS]. The certificate is checked only for a URL of another machine
    #[arg(long, value_name = "URL", value_parser = parse_http_url)]
    url: Option<Uri>,
    /// Configuration file with the address of the admin listener [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlag,
}

/// Asks once, and reports the status.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let asked = ask_once(args);
    if !args.output.is_json() {
        let url = asked?;
        writeln!(io::stdout().lock(), "ok: {url}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let document = match &asked {
        Ok(url) => json!({ "ok": true, "url": url.to_string(), "error": null }),
        Err(error) => json!({ "ok": false, "url": null, "error": format!("{error:#}") }),
    };
    write_document(&mut ReportOutput::default(), document)?;
    Ok(success_if(asked.is_ok()))
}

/// Asks once. Returns the URL if the answer is good.
fn ask_once(args: &Args) -> anyhow::Result<Uri> {
    let (url, trust) = match &args.url {
        Some(url) => (url.clone(), trust_of_url(url)),
        // The address is that of a listener of this machine, and the request contains no secret.
        None => (
            admin_url(args.config.clone(), if args.ready { "readyz" } else { "livez" })?,
            ProxyTrust::Any,
        ),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime
        .block_on(async { tokio::time::timeout(TIMEOUT, fetch_head(&url, trust)).await })
        .unwrap_or_else(|_| Err(anyhow!("no answer within {} seconds", TIMEOUT.as_secs())))
        // As text: a broken pipe of the connection must not pass for one of standard output.
        .map_err(|error| anyhow!("{url}: {error:#}"))?
        .status;
    if status.is_success() {
        Ok(url)
    } else {
        Err(anyhow!("{url}: answered {status}"))
    }
}

/// Returns the certificates that are accepted at a URL: on this machine any, elsewhere those that the system trusts.
fn trust_of_url(url: &Uri) -> ProxyTrust {
    if url.host().is_some_and(provider::is_loopback) {
        ProxyTrust::Any
    } else {
        ProxyTrust::System
    }
}

/// Parses an `http://` or `https://` URL.
fn parse_http_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text
        .parse()
        .map_err(|_| "expected an http:// or https:// URL".to_owned())?;
    let has_scheme = url
        .scheme()
        .is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
    if has_scheme && url.host().is_some_and(|host| !host.is_empty()) {
        Ok(url)
    } else {
        Err("expected an http:// or https:// URL".to_owned())
    }
}

/// Returns the URL of a page of the configured admin listener.
fn admin_url(config: Option<PathBuf>, page: &str) -> anyhow::Result<Uri> {
    // A bad configuration is a failed check (exit code 1) and not wrong usage, so its type is dropped here.
    let loaded = load_chosen(config).map_err(|problems| anyhow!("{problems}"))?;
    let at = reachable_address(loaded.config.admin_listen);
    let scheme = if loaded.config.admin_tls.is_some() {
        "https"
    } else {
        "http"
    };
    Ok(format!("{scheme}://{at}/{page}").parse()?)
}
