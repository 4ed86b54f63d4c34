//! `[principals]`, `[ledger]`, `[services]` and what is said of tools, as settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use super::{
    file::{self, KeepSeenName, PrincipalsMode, StoreName},
    flaw::Flaw,
    lowering::{Lowering, TIMEOUT_MIN},
    read, values,
};
use crate::{
    auth::{PrincipalSettings, TokenHash, WebhookKey},
    late::{LateSettings, ServiceSettings, Tool},
    ledger::LedgerSettings,
    server::ServerSettings,
    session_table::SessionSettings,
};

/// What stands for all principals or all tools.
const ALL: &str = "*";

/// Where calls and results are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// Whether in a file, so that it is still there after a restart.
    pub is_file: bool,
    /// The file; none: where the system keeps such data.
    pub path: Option<PathBuf>,
    /// Whether results that were only seen in requests are kept there too.
    pub keeps_seen: bool,
    /// Its bounds.
    pub settings: LedgerSettings,
}

pub(super) fn lower_principals(lowering: &mut Lowering) -> PrincipalSettings {
    let said = lowering.file.principals.clone();
    let name = said.user_header.as_ref().map(|name| {
        name.parse()
            .map_err(|_| Flaw::new("expected the name of a header").hint("write it like \"x-user\""))
    });
    PrincipalSettings {
        single: said.mode == PrincipalsMode::Single,
        user_header: name.and_then(|name| lowering.take("principals.user_header", name)),
        trust_body_user: said.trust_body_user,
    }
}

/// One principal for everybody is for one person on one machine.
pub(super) fn check_principals(lowering: &mut Lowering, server: &ServerSettings, principals: &PrincipalSettings) {
    const KEY: &str = "principals.mode";
    if principals.single && !server.listen.ip().is_loopback() {
        let flaw = Flaw::new(format!(
            "{} can be reached from other machines, and everybody would be the same caller",
            server.listen
        ));
        lowering.report(KEY, flaw.hint("write \"each\", or listen on 127.0.0.1"));
    }
    if principals.single && principals.has_users() {
        let flaw = Flaw::new("there is one caller, and users within callers are told apart");
        lowering.report(
            KEY,
            flaw.hint("write \"each\", or remove user_header and trust_body_user"),
        );
    }
}

pub(super) fn lower_ledger(lowering: &mut Lowering) -> LedgerConfig {
    let said = lowering.file.ledger.clone();
    let mut size = |key: &str, text: &str| {
        let size = lowering
            .take(&format!("ledger.{key}"), values::size(text))
            .unwrap_or_default();
        u64::try_from(size).unwrap_or(u64::MAX)
    };
    LedgerConfig {
        is_file: said.store == StoreName::Sqlite,
        keeps_seen: said.keep_seen == KeepSeenName::Disk,
        settings: LedgerSettings {
            bytes_max: size("bytes_max", &said.bytes_max),
            principal_bytes_max: size("principal_bytes_max", &said.principal_bytes_max),
        },
        path: said.path.map(PathBuf::from),
    }
}

pub(super) fn lower_late(lowering: &mut Lowering, principals: PrincipalSettings) -> LateSettings {
    let said = lowering.file.ledger.clone();
    let ttl = lowering.take("ledger.ttl", values::long_duration(&said.ttl, TIMEOUT_MIN));
    LateSettings {
        ttl: ttl.unwrap_or_default(),
        detach_after: lowering.duration("ledger.detach_after", &said.detach_after, TIMEOUT_MIN),
        tools: lower_tools(lowering, ttl),
        services: lower_services(lowering),
        principals,
        ..LateSettings::default()
    }
}

/// What is known of tools. A session and a call must be remembered for as long as the slowest of them may take.
fn lower_tools(lowering: &mut Lowering, ttl: Option<Duration>) -> BTreeMap<String, Tool> {
    let session = SessionSettings::default().idle;
    let mut tools = BTreeMap::new();
    for (name, said) in lowering.file.tools.clone() {
        let key = read::join(&read::join("tools", &name), "max_duration");
        let text = said.max_duration.as_deref();
        let max_duration = text.and_then(|text| lowering.take(&key, values::long_duration(text, TIMEOUT_MIN)));
        let shown = |duration| humantime::format_duration(duration).to_string();
        let longer = |than: Option<Duration>| max_duration.zip(than).filter(|(max, than)| max > than);
        if let Some((_, than)) = longer(Some(session)) {
            let flaw = Flaw::new(format!(
                "{name:?} may take longer than a session is remembered, which is {}",
                shown(than)
            ));
            lowering.report(&key, flaw.hint(format!("write at most {:?}", shown(than))));
        } else if let Some((max, than)) = longer(ttl) {
            let flaw = Flaw::new(format!(
                "{name:?} may take longer than its call is kept, which is {}",
                shown(than)
            ));
            lowering.report(&key, flaw.hint(format!("set ledger.ttl to {:?} or more", shown(max))));
        }
        let tier = said.tier.into();
        tools.insert(name, Tool { tier, max_duration });
    }
    tools
}

fn lower_services(lowering: &mut Lowering) -> Vec<ServiceSettings> {
    let mut services: Vec<ServiceSettings> = Vec::new();
    for (name, said) in lowering.file.services.clone() {
        let key = read::join("services", &name);
        let named = lowering.take(&key, values::label(&name));
        let token = lower_service_token(lowering, &key, &said);
        let secret = lower_service_secret(lowering, &key);
        if !["token", "secret"]
            .iter()
            .any(|of| lowering.places.contains_key(&read::join(&key, of)))
        {
            let flaw = Flaw::new("has neither a token nor a secret");
            lowering.report(
                &key,
                flaw.hint("`antiphon config token NAME` makes a token and prints its hash"),
            );
        }
        if let Some(other) = services.iter().find(|known| token.is_some() && known.token == token) {
            let flaw = Flaw::new(format!("is the token of {:?} too", other.name));
            lowering.report(
                &read::join(&key, "token"),
                flaw.hint("make each service a token of its own"),
            );
        }
        let principals = lower_names(lowering, &key, "principals", &said.principals);
        for (i, principal) in said.principals.iter().enumerate() {
            let known = principal == ALL || lowering.file.client_tokens.contains_key(principal);
            let item = format!("{}[{i}]", read::join(&key, "principals"));
            // An item that was no string has its problem already.
            if !known && !lowering.has_problem(&item) {
                let flaw = Flaw::new("there is no client token of this name");
                lowering.report(&item, flaw.hint("name tokens of [client_tokens], or write \"*\""));
            }
        }
        let tools = lower_names(lowering, &key, "tools", &said.tools);
        if named.is_some() {
            services.push(ServiceSettings {
                name,
                token,
                key: secret,
                principals,
                tools,
            });
        }
    }
    services
}

/// A list of names; none if it stands for all.
fn lower_names(lowering: &mut Lowering, key: &str, list: &str, said: &[String]) -> Option<BTreeSet<String>> {
    let all = said.iter().any(|name| name == ALL);
    let key_of_list = read::join(key, list);
    if said.is_empty() && !lowering.has_problem(&key_of_list) {
        let flaw = Flaw::new(format!("has no {list}"));
        lowering.report(key, flaw.hint(format!("write {list} = [\"NAME\"], or [\"*\"] for all")));
    }
    if all && said.len() > 1 {
        let flaw = Flaw::new("names all, and some of them");
        lowering.report(&key_of_list, flaw.hint("keep \"*\" alone, or remove it"));
    }
    (!all).then(|| said.iter().cloned().collect())
}

fn lower_service_token(lowering: &mut Lowering, key: &str, said: &file::Service) -> Option<TokenHash> {
    let key = read::join(key, "token");
    let hash = said.token.as_ref()?.0.parse().map_err(|error: crate::auth::NotAHash| {
        Flaw::new(error.to_string()).hint("`antiphon config token NAME` makes a token and prints its hash")
    });
    lowering.take(&key, hash)
}

fn lower_service_secret(lowering: &mut Lowering, key: &str) -> Option<WebhookKey> {
    let key = read::join(key, "secret");
    let secret = lowering.hidden.get(&key).cloned()?;
    let parsed = WebhookKey::parse(secret.reveal());
    lowering.take(&key, parsed.map_err(|error| Flaw::new(error.to_string())))
}
