//! Settings of late results: services, tools and times.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use super::{
    json_pointer::JsonPointer,
    service::{Service, ServiceReach},
    webhook::{Webhook, WebhookSettings},
};
use crate::{
    auth::{Principal, PrincipalKey, PrincipalSettings, TokenHash, WebhookKey},
    labels::labelled_enum,
    repair::Tier,
    session_table::CallLimits,
};

/// A tool service as the operator configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// The name.
    pub name: String,
    /// The hash of its bearer token. `None` if the service has none.
    pub token: Option<TokenHash>,
    /// The key of its webhook signatures. `None` if the service has none.
    pub key: Option<WebhookKey>,
    /// The names of the client tokens whose calls it answers. `None` means every caller.
    pub principals: Option<BTreeSet<String>>,
    /// The tools whose calls it answers. `None` means every tool.
    pub tools: Option<BTreeSet<String>>,
    /// `true` if it may claim intents for users of its own, without a recorded call.
    pub on_behalf: bool,
}

labelled_enum! {
    /// The calls of a tool that get the result of an earlier call with the same input.
    pub enum IntentUse = Off {
        /// No calls: only services that claim an intent share its result.
        Off = "off",
        /// Those of the same session.
        Session = "session",
        /// Those of the same user, also in another conversation.
        User = "user",
    }
}

/// Settings of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSettings {
    /// The reversibility of its effect.
    pub tier: Tier,
    /// The longest run of the tool. `None` means [`LateSettings::ttl`].
    pub max_duration: Option<Duration>,
    /// `true` if the answers that clients give to its calls are not final, such as "job started".
    pub is_provisional: bool,
    /// The use of intents.
    pub intent: IntentUse,
    /// The time after a settle in which an intent's result is replayed. `None` for that of the tier.
    pub window: Option<Duration>,
    /// The values of the input that make no difference for the intent, such as a request id.
    pub ignore_input: Vec<JsonPointer>,
    /// `true` if a result goes into the next conversation of its user, once its own one was left.
    pub carries_over: bool,
    /// The URL of requests to undo a call. `None` if nobody can be asked.
    pub cancel_url: Option<String>,
}

/// The name of the built-in service of this machine.
pub const LOCAL_SERVICE: &str = "local";

/// The longest window of an intent: 30 days.
pub const INTENT_WINDOW_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The settings of tools that are not configured.
static DEFAULT_TOOL: LazyLock<ToolSettings> = LazyLock::new(ToolSettings::default);

/// Settings of late results.
#[derive(Clone, Debug)]
pub struct LateSettings {
    /// Tool services. Without any, nothing is recorded.
    pub services: Vec<ServiceSettings>,
    /// `true` if the operator has turned off the service of this machine.
    pub denies_local_service: bool,
    /// The hash of the token with which commands of the proxy's own user are the service of this machine. `None` if there
    /// is no such service.
    pub local_service: Option<TokenHash>,
    /// Receivers of events.
    pub webhooks: Vec<WebhookSettings>,
    /// Settings of tools by name.
    pub tools: BTreeMap<String, ToolSettings>,
    /// Settings that identify callers.
    pub principals: PrincipalSettings,
    /// The names of client tokens that one person uses.
    pub personal_tokens: BTreeSet<String>,
    /// Time that a call waits for its result, and a result for its call and its caller. The default is 7 days.
    pub ttl: Duration,
    /// `true` if late results are also appended after tool results, without words of the user.
    pub delivers_in_loops: bool,
    /// `true` if the task page is served.
    pub has_task_page: bool,
    /// Bytes of a posted result in a request. Of a longer one the beginning and the end are inserted. The default is
    /// 256 KiB.
    pub result_bytes_max: usize,
    /// Silence after which the turn of a call counts as left. The default is 5 minutes.
    pub detach_after: Duration,
    /// Time after which an unused session is forgotten. The default is 24 hours.
    pub session_idle: Duration,
    /// Time between the evidence that a conversation was left and the cancel of its calls. A request in between revokes the
    /// cancel. The default is 60 seconds.
    pub cancel_grace: Duration,
    /// Age from which on a call takes a result without an owner, if the service answers several accounts. The default is
    /// 10 seconds.
    pub settling: Duration,
}

impl Default for LateSettings {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            denies_local_service: false,
            local_service: None,
            webhooks: Vec::new(),
            tools: BTreeMap::new(),
            principals: PrincipalSettings::default(),
            personal_tokens: BTreeSet::new(),
            ttl: Duration::from_secs(7 * 24 * 60 * 60),
            delivers_in_loops: false,
            has_task_page: false,
            result_bytes_max: 256 * 1024,
            detach_after: Duration::from_secs(5 * 60),
            session_idle: Duration::from_secs(24 * 60 * 60),
            cancel_grace: Duration::from_secs(60),
            settling: Duration::from_secs(10),
        }
    }
}

impl LateSettings {
    /// Lets commands with the token of this machine post results of every caller, as the service [`LOCAL_SERVICE`]. Does
    /// nothing if the operator has turned that off, or has a service of this name.
    pub fn serve_this_machine(&mut self, token: TokenHash) {
        let is_replaced = self.services.iter().any(|service| service.name == LOCAL_SERVICE);
        if !is_replaced && !self.denies_local_service {
            self.local_service = Some(token);
        }
    }

    /// Returns the limits that the session table applies to open calls.
    pub fn call_limits(&self) -> CallLimits {
        let limited = |(name, tool): (&String, &ToolSettings)| Some((name.as_str().into(), tool.max_duration?));
        CallLimits {
            tools: self.tools.iter().filter_map(limited).collect(),
            detach_after: self.detach_after,
        }
    }

    /// Returns the accounts of client tokens. `None` means every account.
    fn resolve_reach(&self, key: &PrincipalKey, tokens: Option<&BTreeSet<String>>) -> ServiceReach {
        match tokens {
            // Every client shares one principal, so the configured names would match no call.
            _ if self.principals.is_single => ServiceReach::Only(BTreeSet::from([Principal::of_all_clients(key)])),
            None => ServiceReach::Everyone,
            Some(names) => ServiceReach::Only(names.iter().map(|name| Principal::of_token(key, name)).collect()),
        }
    }

    /// Returns the webhooks, with the hashed principals of their accounts.
    pub(super) fn resolve_webhooks(&self, key: &PrincipalKey) -> Vec<Webhook> {
        let webhook = |configured: &WebhookSettings| Webhook {
            name: configured.name.clone(),
            url: configured.url.clone(),
            key: configured.key.clone(),
            reach: self.resolve_reach(key, configured.principals.as_ref()),
            has_content: configured.has_content,
        };
        self.webhooks.iter().map(webhook).collect()
    }

    /// Returns the services, with the hashed principals of their accounts.
    pub(super) fn resolve_services(&self, key: &PrincipalKey) -> Vec<Service> {
        let service = |configured: &ServiceSettings| Service {
            name: configured.name.clone(),
            principal: Principal::of_service(key, &configured.name),
            token: configured.token,
            key: configured.key.clone(),
            reach: self.resolve_reach(key, configured.principals.as_ref()),
            tools: configured.tools.clone(),
            on_behalf: configured.on_behalf,
            is_local: false,
        };
        let local = self.local_service.map(|token| Service {
            name: LOCAL_SERVICE.to_owned(),
            principal: Principal::of_service(key, LOCAL_SERVICE),
            token: Some(token),
            key: None,
            reach: self.resolve_reach(key, None),
            tools: None,
            on_behalf: false,
            is_local: true,
        });
        self.services.iter().map(service).chain(local).collect()
    }

    /// Returns the accounts that one person uses.
    pub(super) fn resolve_personal(&self, key: &PrincipalKey) -> BTreeSet<Principal> {
        let accounts = self.personal_tokens.iter().map(|name| Principal::of_token(key, name));
        // The token of this machine is in a file that only one person may read.
        accounts.chain([Principal::of_local_token(key)]).collect()
    }

    /// Returns the tier of a tool. `None` if the tool is not configured.
    pub(super) fn configured_tier(&self, name: &[u8]) -> Option<Tier> {
        let known = std::str::from_utf8(name).ok().and_then(|name| self.tools.get(name));
        known.map(|tool| tool.tier)
    }

    /// Returns the settings of a tool, or the defaults if it is not configured.
    pub(super) fn tool_settings(&self, name: &[u8]) -> &ToolSettings {
        let known = std::str::from_utf8(name).ok().and_then(|name| self.tools.get(name));
        known.unwrap_or(&DEFAULT_TOOL)
    }
}
