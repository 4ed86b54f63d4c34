//! Upstreams of a configuration: the built-in ones, with the changes of the file, and all others.

use super::{
    file::{CredentialsName, UpstreamSection, Word, Written, join_key, values::check_upstream_name},
    lowering::Lowering,
    problem::ConfigProblem,
};
use crate::{
    provider::{self, BUILT_IN, ProviderKind, Upstream},
    repair::Mode,
    server::ServerSettings,
};

/// Builds the upstreams: first the built-in ones that have a URL, then all others.
pub(super) fn lower_upstreams(lowering: &mut Lowering, server: &ServerSettings) -> Vec<Upstream> {
    let known = BUILT_IN.iter().filter_map(|row| Some((row.name, row.url?)));
    for (name, url) in known {
        let entry = lowering.file.upstreams.entry(name.to_owned()).or_default();
        entry.url.get_or_insert_with(|| Written::new(url));
    }
    let mode = lowering.file.repair.mode.0;
    let mut upstreams = Vec::new();
    for (name, section) in lowering.file.upstreams.clone() {
        let Some(upstream) = lower_upstream(lowering, &name, &section, mode, server) else {
            continue;
        };
        // The derived values go back into the file, so that `config print` shows what is in effect.
        if let Some(entry) = lowering.file.upstreams.get_mut(&name) {
            entry.kind = Some(Word(upstream.kind));
            entry.mode = Some(Word(upstream.mode));
            entry.credentials = Some(Word(credentials_or_default(&section)));
        }
        upstreams.push(upstream);
    }
    // The map is sorted by name. Built-in upstreams keep the order of their table.
    let rank = |upstream: &Upstream| BUILT_IN.iter().position(|row| row.name == upstream.name);
    upstreams.sort_by_key(|upstream| rank(upstream).unwrap_or(BUILT_IN.len()));
    upstreams
}

fn lower_upstream(
    lowering: &mut Lowering,
    name: &str,
    section: &UpstreamSection,
    mode: Mode,
    server: &ServerSettings,
) -> Option<Upstream> {
    let key = join_key("upstreams", name);
    let url_key = join_key(&key, "url");
    // Without a usable name the other problems of the table would have no useful key.
    lowering.value_or_report(&key, check_upstream_name(name))?;
    let Some(text) = &section.url else {
        // A URL that is present but unusable already has its own problem.
        if !lowering.places.contains_key(&url_key) {
            let flaw = ConfigProblem::of_value("has no url, and there is no default for this name");
            lowering.report_problem(&key, flaw.with_hint("write url = \"https://…\""));
        }
        return None;
    };
    let url = text.value()?;
    let kind = section.kind.map_or_else(
        || ProviderKind::infer_kind(name, url.authority.host()),
        |Word(kind)| kind,
    );
    let port = url.authority.port_u16();
    // Only loopback is recognised: which other names lead to this machine is unknown here.
    if provider::is_loopback(url.authority.host()) && port == Some(server.listen.port()) {
        let flaw = ConfigProblem::of_value("the URL is the proxy's own address: requests would loop");
        lowering.report_problem(&url_key, flaw.with_hint("name the provider's address"));
    }
    Some(Upstream {
        name: name.to_owned(),
        kind,
        scheme: url.scheme,
        authority: url.authority,
        base_path: url.base_path,
        mode: section.mode.map_or(mode, |Word(own)| own),
    })
}

/// Returns the kind of credential to send, with the default if the file does not set it.
pub(super) fn credentials_or_default(section: &UpstreamSection) -> CredentialsName {
    match section.credentials {
        Some(Word(credentials)) => credentials,
        None if section.profiles.is_empty() => CredentialsName::Passthrough,
        None => CredentialsName::Profiles,
    }
}
