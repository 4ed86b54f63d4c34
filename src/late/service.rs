//! Tool services, and the calls that each may answer.

use std::collections::BTreeSet;

use crate::auth::{Principal, TokenHash, WebhookKey};

/// The accounts whose calls a service may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceReach {
    /// Every account.
    Everyone,
    /// These accounts, with all their users.
    Only(BTreeSet<Principal>),
}

/// A tool service with its credentials, and the calls that it may answer.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name, for logs and in stored results.
    pub name: String,
    /// The principal of the service. It owns parked results, which belong to no caller yet.
    pub principal: Principal,
    /// The hash of its bearer token. `None` if the service has none.
    pub token: Option<TokenHash>,
    /// The key of its webhook signatures. `None` if the service has none.
    pub key: Option<WebhookKey>,
    /// The accounts whose calls it answers.
    pub reach: ServiceReach,
    /// The tools whose calls it answers. `None` means every tool.
    pub tools: Option<BTreeSet<String>>,
    /// `true` if it may claim intents for users of its own, without a recorded call.
    pub on_behalf: bool,
    /// `true` for the service of this machine. Its token is that of a caller too, which claims intents and asks for
    /// cancels as such.
    pub is_local: bool,
}

impl Service {
    /// Returns `true` if the service may answer calls of this tool and account.
    pub fn may_answer(&self, account: Principal, tool: &[u8]) -> bool {
        let reaches = match &self.reach {
            ServiceReach::Everyone => true,
            ServiceReach::Only(principals) => principals.contains(&account),
        };
        reaches && self.runs_tool(tool)
    }

    /// Returns `true` if the service runs this tool.
    pub fn runs_tool(&self, tool: &[u8]) -> bool {
        let is_listed = |tools: &BTreeSet<String>| std::str::from_utf8(tool).is_ok_and(|tool| tools.contains(tool));
        self.tools.as_ref().is_none_or(is_listed)
    }
}
