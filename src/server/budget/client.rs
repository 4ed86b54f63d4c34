//! The client whose share of a budget is counted.

use std::net::IpAddr;

use crate::auth::PrincipalHash;

/// A client as the budgets count it: a verified caller, else the address of its connection.
///
/// A caller that no provider has answered is counted by its address: credentials that nobody has checked cost nothing,
/// so one client could pose as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetClient {
    /// A verified caller.
    Caller(PrincipalHash),
    /// The address of the connection; of IPv6, its network: a client may have any number of addresses there.
    Address(IpAddr),
    /// A connection without an address.
    Unknown,
}
