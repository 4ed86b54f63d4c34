//! Checks of the database server: its durability, and its clock.

use tokio_postgres::Client;

use super::error::PostgresError;
use crate::clock;

/// Differences that may be those of the measurement, in nanoseconds.
const NOISE: i64 = 50_000_000;

/// The settings of a server that decide what a crash may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerDurability {
    /// `false` if a crash of the machine may lose or damage everything.
    pub(super) has_fsync: bool,
    /// Standbys, none of which has to confirm a commit. After a failover to one the last commits may be missing.
    pub(super) unconfirmed_standbys: i64,
}

impl ServerDurability {
    pub(super) async fn read(client: &Client) -> Result<Self, PostgresError> {
        let sql = "SELECT current_setting('fsync') <> 'off', CASE WHEN current_setting('synchronous_standby_names') = '' \
                   THEN (SELECT count(*) FROM pg_stat_replication) ELSE 0 END";
        let rows = client.query_typed(sql, &[]).await?;
        let Some(row) = rows.first() else {
            return Err(PostgresError::Silent);
        };
        Ok(Self {
            has_fsync: row.try_get(0)?,
            unconfirmed_standbys: row.try_get(1)?,
        })
    }
}

/// Returns the nanoseconds by which the clock of the database is ahead of this machine's. The error is at most half of a
/// round trip, and less than 50 ms is none.
pub(super) async fn measure_skew(client: &Client) -> Result<i64, PostgresError> {
    let before = clock::system_time();
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let rows = client.query_typed(sql, &[]).await?;
    let Some(row) = rows.first() else {
        return Err(PostgresError::Silent);
    };
    let theirs = row.try_get::<_, i64>(0)?.saturating_mul(1_000);
    let ours = (before + clock::system_time()) / 2;
    let skew = theirs.saturating_sub(i64::try_from(ours.as_nanos()).unwrap_or(i64::MAX));
    Ok(if skew.abs() < NOISE { 0 } else { skew })
}
