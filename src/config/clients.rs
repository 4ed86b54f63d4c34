//! Builds the client tokens and their limits.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    file::{ClientLimitsSection, ClientTokenEntry},
    lowering::Lowering,
    problem::Problem,
    read, values,
};
use crate::{
    auth::{ClientTokens, TokenHash, TokenLimits},
    provider::Upstream,
};

/// Builds the client tokens by name.
pub(super) fn lower_client_tokens(lowering: &mut Lowering) -> ClientTokens {
    let mut entries: Vec<(String, TokenHash)> = Vec::new();
    for (name, mut entry) in lowering.file.client_tokens.clone() {
        let table = read::join_key("client_tokens", &name);
        let named = lowering.value_or_report(&table, values::check_label(&name));
        let key = match &entry {
            ClientTokenEntry::Hash(_) => table,
            ClientTokenEntry::Table(_) => read::join_key(&table, "token"),
        };
        // An unusable value has its own problem.
        if lowering.has_problem(&key) {
            continue;
        }
        let hash = values::parse_token_hash(entry.hash_mut(), "this line");
        let Some(hash) = lowering.value_or_report(&key, hash) else {
            continue;
        };
        // The token is all that tells two clients apart.
        if let Some((other, _)) = entries.iter().find(|(_, known)| *known == hash) {
            let flaw = Problem::of_value(format!("is also the token of {other:?}"));
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
        let key = read::join_key("client_limits", &name);
        let by_certificate = lowering.file.client_certificates.contains_key(&name);
        // The reader leaves out a token whose value has the wrong type, which has its own problem.
        let token = read::join_key("client_tokens", &name);
        let is_known = lowering.file.client_tokens.contains_key(&name) || by_certificate;
        if !is_known && !lowering.has_problem(&token) {
            let flaw = Problem::of_value("there is no client token of this name");
            lowering.report_problem(
                &key,
                flaw.with_hint("use a name from [client_tokens] or [client_certificates]"),
            );
        }
        check_upstreams(lowering, &key, &section, upstreams);
        limits.insert(name, lower_limits(lowering, &key, section));
    }
    limits
}

/// Reports names of upstreams that do not exist.
fn check_upstreams(lowering: &mut Lowering, key: &str, section: &ClientLimitsSection, upstreams: &[Upstream]) {
    let known = |name: &str| upstreams.iter().any(|upstream| upstream.name == name);
    for (i, name) in section.upstreams.iter().enumerate() {
        let item = format!("{}[{i}]", read::join_key(key, "upstreams"));
        // An item that is not a string, and an upstream with a problem, already have their own.
        let table = read::join_key("upstreams", name);
        if known(name) || lowering.has_problem(&item) || lowering.file.upstreams.contains_key(name) {
            continue;
        }
        let flaw = Problem::of_value(format!("there is no upstream {name:?}"));
        lowering.report_problem(
            &item,
            flaw.with_hint(format!("add a table [{table}], or correct the name")),
        );
    }
}

/// Builds the limits of one token.
fn lower_limits(lowering: &mut Lowering, key: &str, section: ClientLimitsSection) -> TokenLimits {
    // Zero would mean a token that is never served.
    if section.max_concurrent == Some(0) {
        let flaw = Problem::of_value("expected at least 1").with_hint("remove the token to refuse its client");
        lowering.report_problem(&read::join_key(key, "max_concurrent"), flaw);
    }
    let percent = section
        .retry_percent
        .map(|percent| u8::try_from(percent).ok().filter(|percent| *percent <= 100));
    if percent == Some(None) {
        let flaw = Problem::of_value("expected a whole number of percent from 0 to 100");
        lowering.report_problem(&read::join_key(key, "retry_percent"), flaw);
    }
    TokenLimits {
        upstreams: section.upstreams,
        max_concurrent: section.max_concurrent,
        retry_percent: percent.flatten(),
    }
}
