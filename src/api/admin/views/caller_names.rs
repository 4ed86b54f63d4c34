//! The names of callers in the configuration, for lists of the admin API.

use std::collections::HashMap;

use crate::{
    auth::{Caller, Owner, Principal},
    late::LateStore,
};

/// The configured names of callers.
pub(super) struct CallerNames<'n> {
    accounts: HashMap<Principal, &'n str>,
    owners: HashMap<Owner, &'n str>,
}

impl<'n> CallerNames<'n> {
    pub(super) fn new(late: &LateStore, clients: &'n [String]) -> Self {
        let key = late.principal_key();
        let tokens = clients
            .iter()
            .map(|name| (Principal::of_token(key, name), name.as_str()));
        // With `principals.single` every client is this one.
        let accounts: HashMap<Principal, &str> = tokens
            .chain([
                (Principal::of_all_clients(key), "all clients"),
                (Principal::of_local_token(key), "this machine"),
            ])
            .collect();
        let owner = |(account, name): (&Principal, &&'n str)| (late.owner_of(Caller::of_account(*account)), *name);
        Self {
            owners: accounts.iter().map(owner).collect(),
            accounts,
        }
    }

    /// Returns the name of an account, or of the caller that a service names by `owner`.
    pub(super) fn find_name(&self, account: Option<Principal>, owner: Option<Owner>) -> Option<&'n str> {
        let of_account = account.and_then(|account| self.accounts.get(&account));
        let of_owner = owner.and_then(|owner| self.owners.get(&owner));
        of_account.or(of_owner).copied()
    }
}
