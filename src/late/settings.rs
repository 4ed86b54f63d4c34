//! What late results are settled by: services, tools, times.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::matching::{Reach, Service};
use crate::{
    auth::{Principal, PrincipalKey, PrincipalSettings, TokenHash, WebhookKey},
    repair::Tier,
    session_table::CallLimits,
};

/// A tool service as the operator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// The name.
    pub name: String,
    /// The hash of its token.
    pub token: Option<TokenHash>,
    /// The key of its signatures.
    pub key: Option<WebhookKey>,
    /// The client tokens whose calls it answers, by name; none: everybody's.
    pub principals: Option<BTreeSet<String>>,
    /// The tools that it runs; none: all.
    pub tools: Option<BTreeSet<String>>,
}

/// What is known of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tool {
    /// How far its effect can be taken back.
    pub tier: Tier,
    /// How long it may take.
    pub max_duration: Option<Duration>,
}

/// Settings of late results.
#[derive(Clone, Debug)]
pub struct LateSettings {
    /// Who may post results. Without any nothing is recorded.
    pub services: Vec<ServiceSettings>,
    /// What is known of tools.
    pub tools: BTreeMap<String, Tool>,
    /// How principals are told.
    pub principals: PrincipalSettings,
    /// How long a call waits for its result, and a result for its owner.
    pub ttl: Duration,
    /// How long nothing may come of a call before its turn counts as left.
    pub detach_after: Duration,
    /// How long a result waits for its call.
    pub parked_for: Duration,
}

impl Default for LateSettings {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            tools: BTreeMap::new(),
            principals: PrincipalSettings::default(),
            ttl: Duration::from_secs(7 * 24 * 60 * 60),
            detach_after: Duration::from_secs(5 * 60),
            parked_for: Duration::from_secs(10 * 60),
        }
    }
}

impl LateSettings {
    /// What sessions want to know of calls.
    pub fn call_limits(&self) -> CallLimits {
        let limited = |(name, tool): (&String, &Tool)| Some((name.as_str().into(), tool.max_duration?));
        CallLimits {
            tools: self.tools.iter().filter_map(limited).collect(),
            detach_after: self.detach_after,
        }
    }

    /// The services, with the principals that they may answer for.
    pub(super) fn services(&self, key: &PrincipalKey) -> Vec<Service> {
        let reach = |said: &ServiceSettings| match &said.principals {
            // There is but one, so that ids which come again are no danger.
            _ if self.principals.single => Reach::Only(BTreeSet::from([Principal::single(key)])),
            None => Reach::Everybody,
            Some(names) => Reach::Only(names.iter().map(|name| Principal::of_token(key, name)).collect()),
        };
        let service = |said: &ServiceSettings| Service {
            name: said.name.clone(),
            own: Principal::of_service(key, &said.name),
            token: said.token,
            key: said.key.clone(),
            reach: reach(said),
            tools: said.tools.clone(),
        };
        self.services.iter().map(service).collect()
    }

    /// What is known of a tool.
    pub(super) fn tool(&self, name: &[u8]) -> Tool {
        let known = std::str::from_utf8(name).ok().and_then(|name| self.tools.get(name));
        known.copied().unwrap_or_default()
    }
}
