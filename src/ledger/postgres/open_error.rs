//! The reasons why the database of a ledger cannot be used.

/// The error of opening a ledger in a database. No record was written.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseOpenError {
    /// `ledger.url` is not a URL of PostgreSQL.
    #[error("ledger.url is not a URL of PostgreSQL, such as postgres://antiphon@db.example.com/antiphon")]
    UnusableUrl,
    /// The database cannot be reached, or refuses the tables.
    #[error("the database of ledger.url cannot be used: {why}")]
    Unreachable {
        /// The error of the driver or of the database.
        why: String,
    },
    /// A later version of Antiphon has changed the tables.
    #[error("the database has schema version {found}, but this version of Antiphon supports {known}: upgrade Antiphon")]
    Version {
        /// The schema version of the database.
        found: i32,
        /// The latest schema version that this build supports.
        known: i32,
    },
    /// The tables are not those of a ledger.
    #[error("the database has a table antiphon_meta that is not Antiphon's: use another database")]
    Foreign,
}
