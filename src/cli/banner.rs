//! The banner that `serve` prints on a terminal: the dashboard, the ledger, and the setting that points each common client
//! at the proxy.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::{provider::Routes, server::tls::ListenerTls};

/// Upstream, client and the client's setting. `{}` is replaced by the base URL.
const CLIENTS: &[(&str, &str, &str)] = &[
    ("anthropic", "Claude Code, SDKs", "ANTHROPIC_BASE_URL={}"),
    ("openai", "OpenAI SDKs", "OPENAI_BASE_URL={}"),
    ("openai", "Codex", CODEX),
    (
        "openai",
        "Copilot CLI",
        "COPILOT_PROVIDER_TYPE=openai COPILOT_PROVIDER_BASE_URL={}",
    ),
    ("gemini", "Gemini CLI", "GOOGLE_GEMINI_BASE_URL={}"),
];

const CODEX: &str = "in ~/.codex/config.toml:
model_provider = \"antiphon\"
[model_providers.antiphon]
name = \"antiphon\"
base_url = \"{}\"
env_key = \"OPENAI_API_KEY\"
wire_api = \"responses\"";

/// Words for a ledger without a file.
pub(super) const MEMORY_LEDGER: &str = "memory: nothing is stored after the end";

/// Width of the column with the clients' names.
const INDENT: usize = 18;

/// Returns the banner for a proxy with these URLs of its listeners. `ledger` is `None` if it is in memory.
pub fn render_banner(routes: &Routes, data: &str, admin: &str, ledger: Option<&str>) -> String {
    let urls = routes.base_urls(data);
    let mut text = format!("antiphon {} at {data}\n\n", env!("CARGO_PKG_VERSION"));
    push_line(&mut text, "dashboard", &format!("{admin}/"));
    let ledger = ledger.unwrap_or(MEMORY_LEDGER);
    push_line(&mut text, "ledger", ledger);
    text.push('\n');
    for (upstream, client, setting) in CLIENTS {
        if let Some((_, url)) = urls.iter().find(|(name, _)| name == upstream) {
            push_line(&mut text, client, &setting.replace("{}", url));
        }
    }
    // Upstreams without a known client are still useful with their URL alone.
    let others = urls
        .iter()
        .filter(|(name, _)| CLIENTS.iter().all(|(upstream, ..)| upstream != name));
    for (name, url) in others {
        push_line(&mut text, name, url);
    }
    text
}

/// Adds a name with its value. A value of several lines is named once.
fn push_line(text: &mut String, name: &str, value: &str) {
    for (i, value) in value.lines().enumerate() {
        let name = if i == 0 { name } else { "" };
        // Writing into a String cannot fail.
        let _ = writeln!(text, "  {name:INDENT$}{value}");
    }
}

/// Returns a URL at which a client on this machine can reach a listener, without a slash at its end.
///
/// With TLS it has the first host name of the certificate, since clients refuse the certificate for an address.
pub fn listener_url(address: SocketAddr, tls: Option<&ListenerTls>) -> String {
    let address = reachable_address(address);
    match tls.map(ListenerTls::host_name) {
        None => format!("http://{address}"),
        Some(None) => format!("https://{address}"),
        Some(Some(name)) => format!("https://{name}:{}", address.port()),
    }
}

/// Returns an address at which a client on this machine can reach a listener.
pub(super) fn reachable_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        // 0.0.0.0 and :: mean "every address" to a listener, but no client can connect to them on all systems.
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
