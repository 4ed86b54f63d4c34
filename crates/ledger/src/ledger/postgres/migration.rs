//! The creation and the changes of the tables on demand, without opening the ledger.

use super::{
    DatabaseAddress, DatabaseOpenError, DatabaseSettings,
    connection::{DatabaseConnection, new_pool},
    schema::{self, Prepared, SCHEMA_VERSION},
};

/// The tables of a database, compared with those that this build needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaReport {
    /// The schema version of the database before. 0 if it has no tables.
    pub found: i32,
    /// The schema version of this build.
    pub needed: i32,
    /// The statements that lead from one to the other. Empty if this build can use the tables as they are.
    pub statements: Vec<&'static str>,
}

/// Returns the statements that the tables of a database need, and changes nothing.
pub async fn inspect_database(database: &DatabaseSettings) -> Result<SchemaReport, DatabaseOpenError> {
    let mut connection = open_connection(database).await?;
    let prepared = schema::inspect(&*connection.client()?).await?;
    connection.release();
    report_of(prepared)
}

/// Creates the tables of a database, or changes those of an older version. `new_secret` becomes the secret of a new ledger.
/// Returns what was needed.
pub async fn migrate_database(
    database: &DatabaseSettings,
    new_secret: [u8; 32],
) -> Result<SchemaReport, DatabaseOpenError> {
    let mut connection = open_connection(database).await?;
    let client = connection.client()?;
    let report = report_of(schema::inspect(&*client).await?)?;
    if !report.statements.is_empty() {
        schema::migrate(client, &new_secret).await?.into_secret()?;
    }
    connection.release();
    Ok(report)
}

fn report_of(prepared: Prepared) -> Result<SchemaReport, DatabaseOpenError> {
    let (found, statements) = match prepared {
        Prepared::Old { found, .. } => (found, schema::pending_statements(found)),
        usable => {
            usable.into_secret()?;
            (SCHEMA_VERSION, Vec::new())
        }
    };
    Ok(SchemaReport {
        found,
        needed: SCHEMA_VERSION,
        statements,
    })
}

/// Connects to a database, without a ledger over it.
pub(super) async fn open_connection(database: &DatabaseSettings) -> Result<DatabaseConnection, DatabaseOpenError> {
    let address = DatabaseAddress::parse(&database.url, database.tls)?;
    let pool = new_pool(&address).map_err(|error| DatabaseOpenError::Certificates { why: error.to_string() })?;
    Ok(DatabaseConnection::take(&pool).await?)
}
