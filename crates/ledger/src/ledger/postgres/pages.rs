//! Pages of the table of records, for commands that read all of it.

use tokio_postgres::{Client, Row, types::Type};

use super::{error::PostgresError, rows::select};

/// The most rows of a page.
const PAGE: i64 = 512;

/// Reads the rows after a place, in the order of their places: up to 512. The page ends with the row that
/// reaches 8 MiB of values.
pub(super) async fn read_rows(client: &Client, after: i64) -> Result<Vec<Row>, PostgresError> {
    let sql = select!(
        "JOIN (SELECT place, sum(octet_length(value)) OVER (ORDER BY place) - octet_length(value) AS before FROM \
         (SELECT place, value FROM antiphon_records WHERE place > $1 ORDER BY place LIMIT $2) next) page \
         ON page.place = r.place WHERE page.before < 8388608 ORDER BY r.place"
    );
    let limits = [(&after as _, Type::INT8), (&PAGE as _, Type::INT8)];
    Ok(client.query_typed(sql, &limits).await?)
}
