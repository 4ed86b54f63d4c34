//! Converts `[principals]`, `[services]`, `[tools]` and the times of `[ledger]` to settings.

use std::{collections::BTreeMap, time::Duration};

use super::{
    clients,
    file::{LedgerSection, PrincipalsMode, PrincipalsSection, ToolSection, Written, join_key},
    lowering::Lowering,
    problem::ConfigProblem,
    services::{denies_local_service, lower_services},
    timeouts,
    webhooks::lower_webhooks,
};
use crate::{
    auth::PrincipalSettings,
    late::{LateSettings, ToolSettings},
    repair::Tier,
    server::ServerSettings,
};

/// Builds the settings that tell callers apart.
pub(super) fn principal_settings(section: &PrincipalsSection) -> PrincipalSettings {
    PrincipalSettings {
        is_single: section.mode.0 == PrincipalsMode::Single,
        user_header: section.user_header.as_ref().and_then(Written::value),
        trust_body_user: section.trust_body_user,
    }
}

/// Reports a single principal that several people could share. It is meant for one person on one machine.
pub(super) fn check_principals(lowering: &mut Lowering, server: &ServerSettings, principals: &PrincipalSettings) {
    const KEY: &str = "principals.mode";
    // Other people's clients would be the same caller, and could read each other's results.
    if principals.is_single && !server.listen.ip().is_loopback() {
        let flaw = ConfigProblem::of_value(format!(
            "{} is reachable from other machines, and all clients would be the same caller",
            server.listen
        ));
        lowering.report_problem(KEY, flaw.with_hint("write \"each\", or listen on 127.0.0.1"));
    }
    if principals.is_single && principals.has_users() {
        let flaw = ConfigProblem::of_value("there is one caller, but user_header or trust_body_user tells users apart");
        lowering.report_problem(
            KEY,
            flaw.with_hint("write \"each\", or remove user_header and trust_body_user"),
        );
    }
}

/// Builds the settings of late results.
pub(super) fn lower_late(lowering: &mut Lowering, principals: PrincipalSettings) -> LateSettings {
    let section = lowering.file.ledger.clone();
    let tools = lower_tools(lowering, &section);
    let unset = LateSettings::default();
    let idle = timeouts::old_or(section.session_idle.as_ref(), unset.session_idle);
    LateSettings {
        // A session must outlive the calls of its tools.
        session_idle: tools
            .values()
            .filter_map(|tool| tool.max_duration)
            .fold(idle, Duration::max),
        ttl: section.ttl.value_or_default(),
        delivers_in_loops: section.deliver_in_loops,
        has_task_page: section.task_page,
        result_bytes_max: section.result_bytes_max.value_or_default(),
        detach_after: section.detach_after.value_or_default(),
        cancel_grace: section.cancel_grace.value_or_default(),
        tools,
        services: lower_services(lowering),
        denies_local_service: denies_local_service(lowering),
        webhooks: lower_webhooks(lowering),
        personal_tokens: clients::lower_personal_tokens(lowering),
        principals,
        ..unset
    }
}

/// Builds the properties of tools. Reports a tool that may run longer than its call is kept.
fn lower_tools(lowering: &mut Lowering, ledger: &LedgerSection) -> BTreeMap<String, ToolSettings> {
    // A time with a problem is `None`, so that tools are not compared with a stand-in.
    let ttl = ledger.ttl.value();
    let mut tools = BTreeMap::new();
    for (name, section) in lowering.file.tools.clone() {
        let key = join_key(&join_key("tools", &name), "max_duration");
        let max_duration = section.max_duration.as_ref().and_then(Written::value);
        if let Some((max, ttl)) = max_duration.zip(ttl).filter(|(max, ttl)| max > ttl) {
            let shown = |duration| humantime::format_duration(duration).to_string();
            let flaw = ConfigProblem::of_value(format!(
                "{name:?} may take longer than its call is kept, which is {}",
                shown(ttl)
            ));
            let hint = format!("set ledger.ttl to {:?} or more", shown(max));
            lowering.report_problem(&key, flaw.with_hint(hint));
        }
        let settings = ToolSettings {
            tier: section.tier.0,
            max_duration,
            is_provisional: section.provisional,
            intent: section.intent.0,
            window: section.window.as_ref().and_then(Written::value),
            ignore_input: section.ignore_input.iter().filter_map(Written::value).collect(),
            carries_over: section.carry_over,
            cancel_url: lower_cancel_url(lowering, &name, &section),
        };
        tools.insert(name, settings);
    }
    tools
}

/// Returns the URL that undoes calls of a tool. Reports a tool that cannot undo any, and one whose service has no secret.
fn lower_cancel_url(lowering: &mut Lowering, name: &str, section: &ToolSection) -> Option<String> {
    let key = join_key(&join_key("tools", name), "cancel_url");
    let url = section.cancel_url.as_ref()?.value()?;
    if section.tier.0 != Tier::Revertible {
        let flaw = ConfigProblem::of_value("only the effects of a revertible tool are undone");
        lowering.report_problem(&key, flaw.with_hint("add tier = \"revertible\""));
    }
    let answers = |tools: &[String]| tools.iter().any(|tool| tool == "*" || tool == name);
    let has_secret = |service: &String| {
        let key = join_key(&join_key("services", service), "secret");
        lowering.secrets.get(&key).is_some()
    };
    let mut services = lowering.file.services.iter();
    if !services.any(|(service, section)| answers(&section.tools) && has_secret(service)) {
        let flaw = ConfigProblem::of_value("no service that runs the tool has a secret to sign with");
        lowering.report_problem(
            &key,
            flaw.with_hint("add secret = \"${NAME}\" to its section of [services]"),
        );
    }
    Some(url)
}
