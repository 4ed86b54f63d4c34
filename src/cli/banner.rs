//! The banner that `serve` prints on a terminal: the setting that points each common client at the proxy.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::provider::Routes;

/// Upstream, client and the client's setting. `{}` is replaced by the base URL.
const CLIENTS: &[(&str, &str, &str)] = &[
    ("anthropic", "Claude Code", "ANTHROPIC_BASE_URL={}"),
    ("anthropic", "Anthropic SDKs", "ANTHROPIC_BASE_URL={}"),
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

/// Width of the column with the clients' names.
const INDENT: usize = 18;

/// Returns the banner for a proxy at `data` with its admin listener at `admin`.
pub fn render_banner(routes: &Routes, data: SocketAddr, admin: SocketAddr) -> String {
    let host = reachable_address(data).to_string();
    let urls = routes.base_urls(&host);
    let mut text = format!("antiphon {} at http://{host}\n\n", env!("CARGO_PKG_VERSION"));
    let mut line = |client: &str, setting: &str| {
        for (i, setting) in setting.lines().enumerate() {
            // A setting of several lines names its client once.
            let client = if i == 0 { client } else { "" };
            // Writing into a String cannot fail.
            let _ = writeln!(text, "  {client:INDENT$}{setting}");
        }
    };
    for (upstream, client, setting) in CLIENTS {
        if let Some((_, url)) = urls.iter().find(|(name, _)| name == upstream) {
            line(client, &setting.replace("{}", url));
        }
    }
    // Upstreams without a known client are still useful with their URL alone.
    let others = urls
        .iter()
        .filter(|(name, _)| CLIENTS.iter().all(|(upstream, ..)| upstream != name));
    for (name, url) in others {
        line(name, url);
    }
    line("health, metrics", &format!("http://{}/", reachable_address(admin)));
    text
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
