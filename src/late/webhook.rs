//! The receivers of events: URLs of the operator, each for some callers.

use std::{collections::BTreeSet, time::Duration};

use super::service::ServiceReach;
use crate::auth::{Principal, WebhookKey};

/// Time after which an event is not sent any more: 24 hours.
pub(in crate::late) const GIVE_UP: Duration = Duration::from_secs(24 * 60 * 60);

/// A webhook as the operator configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The name.
    pub name: String,
    /// The URL: https, or http on this machine.
    pub url: String,
    /// The key of the signatures.
    pub key: WebhookKey,
    /// The names of the client tokens whose events it gets. `None` means every caller.
    pub principals: Option<BTreeSet<String>>,
    /// `true` if messages contain the contents of results.
    pub has_content: bool,
}

/// A webhook with the accounts whose events it gets.
#[derive(Clone, Debug)]
pub(in crate::late) struct Webhook {
    pub(in crate::late) name: String,
    pub(in crate::late) url: String,
    pub(in crate::late) key: WebhookKey,
    pub(in crate::late) reach: ServiceReach,
    pub(in crate::late) has_content: bool,
}

impl Webhook {
    /// Returns `true` if the webhook gets the events of an account.
    pub(in crate::late) fn reaches(&self, account: Principal) -> bool {
        match &self.reach {
            ServiceReach::Everyone => true,
            ServiceReach::Only(accounts) => accounts.contains(&account),
        }
    }
}
