//! Builds the client tokens and their limits.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    file::{ClientLimitsSection, ClientTokenEntry, join_key, values::check_label},
    lowering::Lowering,
    problem::ConfigProblem,
};
use crate::{
    auth::{ClientTokens, TokenHash, TokenLimits},
    provider::Upstream,
};

/// Builds the client tokens by name.
pub(super) fn lower_client_tokens(lowering: &mut Lowering) -> ClientTokens {
    let mut entries: Vec<(String, TokenHash)> = Vec::new();
    for (name, entry) in lowering.file.client_tokens.clone() {
        let table = join_key("client_tokens", &name);
        let named = lowering.value_or_report(&table, check_label(&name));
        let key = match &entry {
            ClientTokenEntry::Hash(_) => table,
            ClientTokenEntry::Table(_) => join_key(&table, "token"),
        };
        let Some(hash) = entry.hash().value() else {
            continue;
        };
        // The token is all that tells two clients apart.
        if let Some((other, _)) = entries.iter().find(|(_, known)| *known == hash) {
            let flaw = ConfigProblem::of_value(format!("is also the token of {other:?}"));
            lowering.report_problem(&key, flaw.with_hint("make a separate token for each client"));
        }
        if named.is_some() {
            entries.push((name, hash));
        }
    }
    ClientTokens::new(entries)
}

/// Returns the names of the client tokens that one person uses.
pub(super) fn lower_personal_tokens(lowering: &Lowering) -> BTreeSet<String> {
    let is_personal = |entry: &ClientTokenEntry| match entry {
        ClientTokenEntry::Hash(_) => false,
        ClientTokenEntry::Table(table) => table.personal,
    };
    let tokens = lowering.file.client_tokens.iter();
    let personal = tokens
        .filter(|(_, entry)| is_personal(entry))
        .map(|(name, _)| name.clone());
    personal.collect()
}

/// Builds the limits of client tokens by name. Every upstream that they name must be one of `upstreams`.
pub(super) fn lower_client_limits(lowering: &mut Lowering, upstreams: &[Upstream]) -> BTreeMap<String, TokenLimits> {
    let mut limits = BTreeMap::new();
    for (name, section) in lowering.file.client_limits.clone() {
        let key = join_key("client_limits", &name);
        let by_certificate = lowering.file.client_certificates.contains_key(&name);
        // The reader leaves out a token whose value has the wrong type, which has its own problem.
        let token = join_key("client_tokens", &name);
        let is_known = lowering.file.client_tokens.contains_key(&name) || by_certificate;
        if !is_known && !lowering.has_problem(&token) {
            let flaw = ConfigProblem::of_value("there is no client token of this name");
            lowering.report_problem(
                &key,
                flaw.with_hint("use a name from [client_tokens] or [client_certificates]"),
            );
        }
        check_upstreams(lowering, &key, &section, upstreams);
        limits.insert(name, token_limits(section));
    }
    limits
}

/// Reports names of upstreams that do not exist.
fn check_upstreams(lowering: &mut Lowering, key: &str, section: &ClientLimitsSection, upstreams: &[Upstream]) {
    let known = |name: &str| upstreams.iter().any(|upstream| upstream.name == name);
    for (i, name) in section.upstreams.iter().enumerate() {
        let item = format!("{}[{i}]", join_key(key, "upstreams"));
        // An item that is not a string, and an upstream with a problem, already have their own.
        let table = join_key("upstreams", name);
        if known(name) || lowering.has_problem(&item) || lowering.file.upstreams.contains_key(name) {
            continue;
        }
        let flaw = ConfigProblem::of_value(format!("there is no upstream {name:?}"));
        lowering.report_problem(
            &item,
            flaw.with_hint(format!("add a table [{table}], or correct the name")),
        );
    }
}

/// Builds the limits of one token.
fn token_limits(section: ClientLimitsSection) -> TokenLimits {
    TokenLimits {
        upstreams: section.upstreams,
        max_concurrent: section.max_concurrent,
        retry_percent: section.retry_percent.and_then(|percent| u8::try_from(percent).ok()),
    }
}
