//! The reasons why the database of a ledger cannot be used.

use std::time::Duration;

use super::{DatabaseUrlFlaw, error::PostgresError};

/// The error of opening a ledger in a database. No record was written.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseOpenError {
    /// The URL is unusable.
    #[error("ledger.url is unusable: {0}")]
    Url(#[from] DatabaseUrlFlaw),
    /// The certificates of `sslrootcert`, or those of the system, cannot be used.
    #[error("the certificates for the database of ledger.url cannot be used: {why}")]
    Certificates {
        /// The error of reading or parsing them.
        why: String,
    },
    /// The database cannot be reached, or is starting or stopping. That may pass.
    #[error("the database of ledger.url cannot be reached: {why}")]
    Unreachable {
        /// The error of the driver or of the database.
        why: String,
    },
    /// The database refuses the user, the connection or a statement.
    #[error("the database of ledger.url cannot be used: {why}")]
    Refused {
        /// The message of the database.
        why: String,
    },
    /// The tables must be created or changed first.
    #[error(
        "the database has schema version {found}, and this version of Antiphon needs {needed}: run \
         `antiphon store migrate`, or set ledger.migrate to \"auto\""
    )]
    Old {
        /// The schema version of the database. 0 if there are no tables.
        found: i32,
        /// The schema version of this build.
        needed: i32,
    },
    /// A later version of Antiphon has changed the tables.
    #[error("the database has schema version {found}, but this version of Antiphon supports {known}: upgrade Antiphon")]
    Later {
        /// The schema version of the database.
        found: i32,
        /// The latest schema version that this build supports.
        known: i32,
    },
    /// The tables are not those of a ledger.
    #[error("the database has a table antiphon_meta that is not Antiphon's: use another database")]
    Foreign,
    /// The server may lose commits that it has confirmed.
    #[error(
        "the database runs with fsync = off, so a crash of its machine may lose or damage every record: turn fsync on, or \
         set ledger.allow_unsafe to true if that is acceptable"
    )]
    Unsafe,
    /// The clocks of the database and of this machine differ too much.
    #[error(
        "the clock of the database is {:.1} s {} this machine's: synchronize both, since leases and deadlines are moments",
        Duration::from_nanos(.skew.unsigned_abs()).as_secs_f64(),
        if *.skew > 0 { "ahead of" } else { "behind" }
    )]
    Skew {
        /// Nanoseconds by which the clock of the database is ahead.
        skew: i64,
    },
}

impl DatabaseOpenError {
    /// Returns `true` if another try may succeed without any change of the configuration or the database.
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

impl From<PostgresError> for DatabaseOpenError {
    fn from(error: PostgresError) -> Self {
        let why = error.to_string();
        if error.is_outage() {
            Self::Unreachable { why }
        } else {
            Self::Refused { why }
        }
    }
}
