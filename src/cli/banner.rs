//! What `serve` prints on a terminal: the line that points each common client at the proxy.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::provider::Routes;

/// Clients of an upstream, and what each sets; `{}` stands for the base URL.
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

/// Columns before what is to be set.
const INDENT: usize = 18;

/// The whole text, for a proxy at `data` with its admin listener at `admin`.
pub fn text(routes: &Routes, data: SocketAddr, admin: SocketAddr) -> String {
    let host = reachable(data).to_string();
    let urls = routes.base_urls(&host);
    let mut text = format!("antiphon {} at http://{host}\n\n", env!("CARGO_PKG_VERSION"));
    let mut line = |client: &str, said: &str| {
        for (i, said) in said.lines().enumerate() {
            let client = if i == 0 { client } else { "" };
            // Writing into a String cannot fail.
            let _ = writeln!(text, "  {client:INDENT$}{said}");
        }
    };
    for (upstream, client, setting) in CLIENTS {
        if let Some((_, url)) = urls.iter().find(|(name, _)| name == upstream) {
            line(client, &setting.replace("{}", url));
        }
    }
    let others = urls
        .iter()
        .filter(|(name, _)| CLIENTS.iter().all(|(upstream, ..)| upstream != name));
    for (name, url) in others {
        line(name, url);
    }
    line("health, metrics", &format!("http://{}/", reachable(admin)));
    text
}

/// An address that a client on this machine can use.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
