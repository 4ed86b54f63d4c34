//! Failures of the database, without anything that could be content.

use std::{error::Error, fmt};

use tokio_postgres::error::SqlState;

use crate::ledger::LedgerError;

/// A failure of the database or of the connection to it.
#[derive(Debug)]
pub(super) enum PostgresError {
    /// The database or its connection failed.
    Failed {
        /// The state that the database told. `None` if the connection failed.
        state: Option<SqlState>,
        /// The cause. Neither parameters nor values of rows are in it.
        why: String,
    },
    /// There was no answer in time.
    Silent,
    /// The database sends no notifications, or a pooler forwards none.
    Unheard,
    /// A record was inserted by another transaction meanwhile.
    Raced,
}

impl PostgresError {
    /// Returns `true` if the transaction was rolled back, and may succeed if it is tried again.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Raced => true,
            Self::Failed { state: Some(state), .. } => {
                let rolled_back = [
                    SqlState::T_R_SERIALIZATION_FAILURE,
                    SqlState::T_R_DEADLOCK_DETECTED,
                    // This process was suspended in its transaction.
                    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                ];
                rolled_back.contains(state)
            }
            Self::Failed { state: None, .. } | Self::Silent | Self::Unheard => false,
        }
    }

    /// Returns `true` if the database cannot be reached, or takes no connections for now.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Raced => false,
            Self::Silent | Self::Unheard | Self::Failed { state: None, .. } => true,
            Self::Failed { state: Some(state), .. } => {
                // The classes of connection failures, lack of resources, and interventions of an operator.
                ["08", "53", "57"].iter().any(|class| state.code().starts_with(class))
            }
        }
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed {
                state: Some(state),
                why,
            } => write!(f, "PostgreSQL refused a statement ({}): {why}", state.code()),
            Self::Failed { state: None, why } => write!(f, "PostgreSQL cannot be reached: {why}"),
            Self::Silent => f.write_str("PostgreSQL did not answer in time"),
            Self::Unheard => f.write_str(
                "no notification arrives: behind a pooler in transaction mode, set ledger.listen_url to the database itself",
            ),
            Self::Raced => f.write_str("other writers were first, again and again"),
        }
    }
}

impl Error for PostgresError {}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        // The detail of a refusal may contain the values of a row: only its message is taken.
        match error.as_db_error() {
            Some(refusal) => Self::Failed {
                state: Some(refusal.code().clone()),
                why: refusal.message().to_owned(),
            },
            // The driver's own text does not name the cause, such as an unknown authority.
            None => Self::Failed {
                state: None,
                why: match error.source() {
                    Some(cause) => format!("{error}: {cause}"),
                    None => error.to_string(),
                },
            },
        }
    }
}

impl From<deadpool_postgres::PoolError> for PostgresError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            deadpool_postgres::PoolError::Timeout(_) => Self::Silent,
            other => Self::Failed {
                state: None,
                why: other.to_string(),
            },
        }
    }
}

impl From<PostgresError> for LedgerError {
    fn from(error: PostgresError) -> Self {
        Self::Store(Box::new(error))
    }
}
