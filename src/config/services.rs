//! Converts `[services]` to settings, and the lists of callers that services and webhooks have.

use std::collections::BTreeSet;

use super::{
    file::{Written, join_key, values::check_label},
    lowering::Lowering,
    problem::ConfigProblem,
};
use crate::{
    auth::WebhookKey,
    late::{LOCAL_SERVICE, ServiceSettings},
};

/// Word for all principals or all tools.
const ALL: &str = "*";

/// Returns `true` if the operator has turned off the service of this machine.
pub(super) fn denies_local_service(lowering: &Lowering) -> bool {
    let local = lowering.file.services.get(LOCAL_SERVICE);
    local.is_some_and(|section| section.deny)
}

/// Builds the tool services.
pub(super) fn lower_services(lowering: &mut Lowering) -> Vec<ServiceSettings> {
    let mut services: Vec<ServiceSettings> = Vec::new();
    for (name, section) in lowering.file.services.clone() {
        let key = join_key("services", &name);
        if section.deny {
            check_denial(lowering, &name, &key);
            continue;
        }
        let named = lowering.value_or_report(&key, check_label(&name));
        let token = section.token.as_ref().and_then(Written::value);
        let secret = lower_service_secret(lowering, &key);
        // By the places and not by the values: an unusable token already has its own problem.
        if !["token", "secret"]
            .iter()
            .any(|of| lowering.places.contains_key(&join_key(&key, of)))
        {
            let flaw = ConfigProblem::of_value("has neither a token nor a secret");
            lowering.report_problem(
                &key,
                flaw.with_hint("`antiphon config token NAME` makes a token and prints its hash"),
            );
        }
        // A post is attributed to a service by its token alone.
        if let Some(other) = services.iter().find(|known| token.is_some() && known.token == token) {
            let flaw = ConfigProblem::of_value(format!("is also the token of {:?}", other.name));
            lowering.report_problem(
                &join_key(&key, "token"),
                flaw.with_hint("make a separate token for each service"),
            );
        }
        let principals = lower_callers(lowering, &key, &section.principals);
        let tools = lower_names(lowering, &key, "tools", &section.tools);
        if named.is_some() {
            services.push(ServiceSettings {
                name,
                token,
                key: secret,
                principals,
                tools,
                on_behalf: section.on_behalf,
            });
        }
    }
    services
}

/// Reports a `deny` of a service that is not built in, and one beside other keys.
fn check_denial(lowering: &mut Lowering, name: &str, key: &str) {
    let deny = join_key(key, "deny");
    if name != LOCAL_SERVICE {
        let flaw = ConfigProblem::of_value(format!("only the built-in service {LOCAL_SERVICE:?} can be turned off"));
        lowering.report_problem(
            &deny,
            flaw.with_hint("remove the section of a service that may not post"),
        );
        return;
    }
    let others = ["token", "secret", "principals", "tools", "on_behalf"];
    if others.iter().any(|of| lowering.places.contains_key(&join_key(key, of))) {
        let flaw = ConfigProblem::of_value("stands beside other keys of the service");
        lowering.report_problem(
            &deny,
            flaw.with_hint("keep deny alone, or remove it: a service of this name replaces the built-in one"),
        );
    }
}

/// Returns the names of client tokens in `principals`. `None` if it means all.
pub(super) fn lower_callers(lowering: &mut Lowering, key: &str, principals: &[String]) -> Option<BTreeSet<String>> {
    let names = lower_names(lowering, key, "principals", principals);
    for (i, principal) in principals.iter().enumerate() {
        let known = principal == ALL
            || lowering.file.client_tokens.contains_key(principal)
            || lowering.file.client_certificates.contains_key(principal);
        let item = format!("{}[{i}]", join_key(key, "principals"));
        // An item that is not a string already has its own problem.
        if !known && !lowering.has_problem(&item) {
            let flaw = ConfigProblem::of_value("there is no client token of this name");
            lowering.report_problem(&item, flaw.with_hint("use names from [client_tokens], or write \"*\""));
        }
    }
    names
}

/// Returns the names of a list. `None` if it means all.
fn lower_names(lowering: &mut Lowering, key: &str, list: &str, names: &[String]) -> Option<BTreeSet<String>> {
    let all = names.iter().any(|name| name == ALL);
    let key_of_list = join_key(key, list);
    // An empty list would make the service useless. Access to all must be written out.
    if names.is_empty() && !lowering.has_problem(&key_of_list) {
        let flaw = ConfigProblem::of_value(format!("has no {list}"));
        lowering.report_problem(
            key,
            flaw.with_hint(format!("write {list} = [\"NAME\"], or [\"*\"] for all")),
        );
    }
    if all && names.len() > 1 {
        let flaw = ConfigProblem::of_value("lists \"*\" together with names");
        lowering.report_problem(&key_of_list, flaw.with_hint("keep \"*\" alone, or remove it"));
    }
    (!all).then(|| names.iter().cloned().collect())
}

/// Returns the key of a service's signatures.
fn lower_service_secret(lowering: &mut Lowering, key: &str) -> Option<WebhookKey> {
    let key = join_key(key, "secret");
    let secret = lowering.secrets.get(&key).cloned()?;
    let parsed = WebhookKey::parse(secret.reveal());
    lowering.value_or_report(&key, parsed.map_err(|error| ConfigProblem::of_value(error.to_string())))
}
