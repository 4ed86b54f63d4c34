//! Converts `[principals]`, `[services]`, `[tools]` and the times of `[ledger]` to settings.

use std::{collections::BTreeMap, time::Duration};

use super::{
    clients,
    file::{self, PrincipalsMode},
    lowering::{Lowering, TIMEOUT_MIN},
    problem::Problem,
    read,
    services::lower_services,
    values,
    webhooks::lower_webhooks,
};
use crate::{
    auth::PrincipalSettings,
    late::{INTENT_WINDOW_MAX, JsonPointer, JsonPointerParseError, LateSettings, ToolSettings},
    repair::Tier,
    server::ServerSettings,
};

/// Builds the settings that tell callers apart.
pub(super) fn lower_principals(lowering: &mut Lowering) -> PrincipalSettings {
    let section = lowering.file.principals.clone();
    let name = section.user_header.as_ref().map(|name| {
        name.parse()
            .map_err(|_| Problem::of_value("expected the name of a header").with_hint("write it like \"x-user\""))
    });
    PrincipalSettings {
        is_single: section.mode.0 == PrincipalsMode::Single,
        user_header: name.and_then(|name| lowering.value_or_report("principals.user_header", name)),
        trust_body_user: section.trust_body_user,
    }
}

/// Reports a single principal that several people could share. It is meant for one person on one machine.
pub(super) fn check_principals(lowering: &mut Lowering, server: &ServerSettings, principals: &PrincipalSettings) {
    const KEY: &str = "principals.mode";
    // Other people's clients would be the same caller, and could read each other's results.
    if principals.is_single && !server.listen.ip().is_loopback() {
        let flaw = Problem::of_value(format!(
            "{} is reachable from other machines, and all clients would be the same caller",
            server.listen
        ));
        lowering.report_problem(KEY, flaw.with_hint("write \"each\", or listen on 127.0.0.1"));
    }
    if principals.is_single && principals.has_users() {
        let flaw = Problem::of_value("there is one caller, but user_header or trust_body_user tells users apart");
        lowering.report_problem(
            KEY,
            flaw.with_hint("write \"each\", or remove user_header and trust_body_user"),
        );
    }
}

/// Builds the settings of late results.
pub(super) fn lower_late(lowering: &mut Lowering, principals: PrincipalSettings) -> LateSettings {
    let section = lowering.file.ledger.clone();
    let ttl = lowering.value_or_report("ledger.ttl", values::parse_long_duration(&section.ttl, TIMEOUT_MIN));
    let idle = values::parse_long_duration(&section.session_idle, TIMEOUT_MIN);
    let session_idle = lowering.value_or_report("ledger.session_idle", idle);
    LateSettings {
        session_idle: session_idle.unwrap_or_default(),
        ttl: ttl.unwrap_or_default(),
        delivers_in_loops: section.deliver_in_loops,
        has_task_page: section.task_page,
        result_bytes_max: lowering
            .value_or_report("ledger.result_bytes_max", values::parse_size(&section.result_bytes_max))
            .unwrap_or_default(),
        detach_after: lowering.duration_or_report("ledger.detach_after", &section.detach_after, TIMEOUT_MIN),
        cancel_grace: lowering.duration_or_report("ledger.cancel_grace", &section.cancel_grace, TIMEOUT_MIN),
        // A time to live with a problem is `None`, so that tools are not compared with a stand-in.
        tools: lower_tools(lowering, session_idle, ttl),
        services: lower_services(lowering),
        webhooks: lower_webhooks(lowering),
        personal_tokens: clients::lower_personal_tokens(lowering),
        principals,
        ..LateSettings::default()
    }
}

/// Builds the properties of tools. Reports a tool that may run longer than its session or its call is remembered.
fn lower_tools(
    lowering: &mut Lowering,
    session_idle: Option<Duration>,
    ttl: Option<Duration>,
) -> BTreeMap<String, ToolSettings> {
    let mut tools = BTreeMap::new();
    for (name, section) in lowering.file.tools.clone() {
        let key = read::join_key(&read::join_key("tools", &name), "max_duration");
        let text = section.max_duration.as_deref();
        let max_duration =
            text.and_then(|text| lowering.value_or_report(&key, values::parse_long_duration(text, TIMEOUT_MIN)));
        let shown = |duration| humantime::format_duration(duration).to_string();
        let longer = |than: Option<Duration>| max_duration.zip(than).filter(|(max, than)| max > than);
        if let Some((max, than)) = longer(session_idle) {
            let flaw = Problem::of_value(format!(
                "{name:?} may take longer than a session is remembered, which is {}",
                shown(than)
            ));
            lowering.report_problem(
                &key,
                flaw.with_hint(format!("set ledger.session_idle to {:?} or more", shown(max))),
            );
        } else if let Some((max, than)) = longer(ttl) {
            let flaw = Problem::of_value(format!(
                "{name:?} may take longer than its call is kept, which is {}",
                shown(than)
            ));
            lowering.report_problem(
                &key,
                flaw.with_hint(format!("set ledger.ttl to {:?} or more", shown(max))),
            );
        }
        let settings = ToolSettings {
            tier: section.tier.0,
            max_duration,
            is_provisional: section.provisional,
            intent: section.intent.0,
            window: lower_window(lowering, &name, &section),
            ignore_input: lower_ignored(lowering, &name, &section),
            carries_over: section.carry_over,
            cancel_url: lower_cancel_url(lowering, &name, &section),
        };
        tools.insert(name, settings);
    }
    tools
}

/// Returns the window of a tool's intents.
fn lower_window(lowering: &mut Lowering, name: &str, section: &file::ToolSection) -> Option<Duration> {
    let key = read::join_key(&read::join_key("tools", name), "window");
    let text = section.window.as_deref()?;
    let window = lowering.value_or_report(&key, values::parse_long_duration(text, Duration::ZERO))?;
    if window > INTENT_WINDOW_MAX {
        let longest = humantime::format_duration(INTENT_WINDOW_MAX);
        let flaw = Problem::of_value(format!("is longer than {longest}"));
        lowering.report_problem(&key, flaw.with_hint(format!("write at most \"{longest}\"")));
    }
    Some(window)
}

/// Returns the URL that undoes calls of a tool. Reports a tool that cannot undo any, and one whose service has no secret.
fn lower_cancel_url(lowering: &mut Lowering, name: &str, section: &file::ToolSection) -> Option<String> {
    let key = read::join_key(&read::join_key("tools", name), "cancel_url");
    let text = section.cancel_url.as_deref()?;
    let url = lowering.value_or_report(&key, values::parse_message_url(text))?;
    if section.tier.0 != Tier::Revertible {
        let flaw = Problem::of_value("only the effects of a revertible tool are undone");
        lowering.report_problem(&key, flaw.with_hint("add tier = \"revertible\""));
    }
    let answers = |tools: &[String]| tools.iter().any(|tool| tool == "*" || tool == name);
    let has_secret = |service: &String| {
        let key = read::join_key(&read::join_key("services", service), "secret");
        lowering.secrets.get(&key).is_some()
    };
    let mut services = lowering.file.services.iter();
    if !services.any(|(service, section)| answers(&section.tools) && has_secret(service)) {
        let flaw = Problem::of_value("no service that runs the tool has a secret to sign with");
        lowering.report_problem(
            &key,
            flaw.with_hint("add secret = \"${NAME}\" to its section of [services]"),
        );
    }
    Some(url)
}

/// Returns the values of a tool's input that make no difference for its intents.
fn lower_ignored(lowering: &mut Lowering, name: &str, section: &file::ToolSection) -> Vec<JsonPointer> {
    let key = read::join_key(&read::join_key("tools", name), "ignore_input");
    let mut pointers = Vec::new();
    for (i, text) in section.ignore_input.iter().enumerate() {
        let item = format!("{key}[{i}]");
        // An item that is not a string already has its own problem.
        if lowering.has_problem(&item) {
            continue;
        }
        let parsed = text.parse();
        let parsed = parsed.map_err(|error: JsonPointerParseError| Problem::of_value(error.to_string()));
        pointers.extend(lowering.value_or_report(&item, parsed));
    }
    pointers
}
