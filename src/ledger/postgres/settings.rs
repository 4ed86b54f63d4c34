//! The database of a shared ledger, and the demands on it.

use super::DatabaseTls;
use crate::auth::Secret;

/// The database of a shared ledger, and the demands on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// URL, which may contain a password.
    pub url: Secret,
    /// URL of the connection for notifications, behind a pooler that forwards none. `None` for `url`.
    pub listen_url: Option<Secret>,
    /// Demands on the encryption of connections.
    pub tls: DatabaseTls,
    /// `true` if the process creates and changes the tables itself. Otherwise `antiphon store migrate` does.
    pub migrates: bool,
    /// Accepts a server that loses commits when its machine fails.
    pub allows_unsafe: bool,
}
