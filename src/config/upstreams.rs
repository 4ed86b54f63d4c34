//! The upstreams of a configuration: built-in ones, what was said of them, and all others.

use super::{
    file::{self, CredentialsName},
    flaw::Flaw,
    lowering::Lowering,
    read, values,
};
use crate::{
    provider::{self, BUILT_IN, Kind, Upstream},
    repair::Mode,
    server::ServerSettings,
};

/// The built-in upstreams that have a URL, with what the file says of them, then all others.
pub(super) fn lower_upstreams(lowering: &mut Lowering, server: &ServerSettings) -> Vec<Upstream> {
    let known = BUILT_IN.iter().filter_map(|row| Some((row.name, row.url?)));
    for (name, url) in known {
        let entry = lowering.file.upstreams.entry(name.to_owned()).or_default();
        entry.url.get_or_insert_with(|| url.to_owned());
    }
    let mode = lowering.file.repair.mode;
    let mut upstreams = Vec::new();
    for (name, said) in lowering.file.upstreams.clone() {
        let Some(upstream) = lower_upstream(lowering, &name, &said, mode.into(), server) else {
            continue;
        };
        if let Some(entry) = lowering.file.upstreams.get_mut(&name) {
            entry.kind = Some(upstream.kind.into());
            entry.mode = Some(upstream.mode.into());
            entry.credentials = Some(credentials_of(&said));
        }
        upstreams.push(upstream);
    }
    let rank = |upstream: &Upstream| BUILT_IN.iter().position(|row| row.name == upstream.name);
    upstreams.sort_by_key(|upstream| rank(upstream).unwrap_or(BUILT_IN.len()));
    upstreams
}

fn lower_upstream(
    lowering: &mut Lowering,
    name: &str,
    said: &file::Upstream,
    mode: Mode,
    server: &ServerSettings,
) -> Option<Upstream> {
    let key = read::join("upstreams", name);
    let url_key = read::join(&key, "url");
    lowering.take(&key, values::upstream_name(name))?;
    let Some(text) = &said.url else {
        // A URL that was given but unusable has its own problem already.
        if !lowering.places.contains_key(&url_key) {
            let flaw = Flaw::new("has no url, and there is no default for this name");
            lowering.report(&key, flaw.hint("write url = \"https://…\""));
        }
        return None;
    };
    let url = lowering.take(&url_key, values::url(text))?;
    let kind = said
        .kind
        .map_or_else(|| Kind::of(name, url.authority.host()), Kind::from);
    let port = url.authority.port_u16();
    if provider::is_loopback(url.authority.host()) && port == Some(server.listen.port()) {
        let flaw = Flaw::new("the URL is the proxy's own address: requests would go round in circles");
        lowering.report(&url_key, flaw.hint("name the provider's address"));
    }
    Some(Upstream {
        name: name.to_owned(),
        kind,
        scheme: url.scheme,
        authority: url.authority,
        base_path: url.base_path,
        mode: said.mode.map_or(mode, Mode::from),
    })
}

/// Whose credential goes up where the file does not say.
pub(super) fn credentials_of(said: &file::Upstream) -> CredentialsName {
    said.credentials.unwrap_or(if said.profiles.is_empty() {
        CredentialsName::Passthrough
    } else {
        CredentialsName::Profiles
    })
}
