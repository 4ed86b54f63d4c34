//! The connection that listens for changes by other replicas.
//!
//! Each second a probe goes through the pool and has to come back here. So it is known that every notification before it
//! has arrived, and also that none would arrive behind a pooler that does not forward them.

use std::{pin::Pin, time::Duration};

use deadpool_postgres::Pool;
use futures_util::{Stream, StreamExt, stream::poll_fn};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    address::{CONNECT_TIMEOUT, DatabaseAddress},
    connection::{DatabaseConnection, tls_config},
    error::PostgresError,
    notices::{CHANNEL, NOTIFY, Notice, ReplicaId, notify_parameters},
};
use crate::{clock, ledger::LedgerChanges};

/// Time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without the return of a probe after which changes may have been missed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);
/// The first and the longest pause before the listener connects again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

type ServerMessages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send>>;

/// The listener of one replica.
#[derive(Debug)]
pub(super) struct ChangeListener {
    pub(super) address: DatabaseAddress,
    pub(super) pool: Pool,
    pub(super) replica: ReplicaId,
    pub(super) changes: LedgerChanges,
}

impl ChangeListener {
    /// Listens for as long as the ledger is in use, and connects again after each failure.
    pub(super) async fn run(&self) {
        let (mut failures, mut was_told) = (0_u32, false);
        loop {
            let began = clock::now();
            let Err(error) = self.listen().await else { continue };
            self.changes.note_gap();
            if began.elapsed() > PROBE_TIMEOUT * 2 {
                (failures, was_told) = (0, false);
            }
            if !was_told {
                tracing::warn!(%error, "no notifications from the database: caches are read again until they arrive");
                was_told = true;
            }
            tokio::time::sleep(self.pause(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Returns the pause before the next connection. Replicas that lost theirs together do not come back together.
    fn pause(&self, failures: u32) -> Duration {
        let (first, longest) = PAUSES;
        let pause = first
            .saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX))
            .min(longest);
        let share = self.replica.0[usize::try_from(failures % 8).unwrap_or_default()];
        pause / 2 + pause.mul_f64(f64::from(share) / 255.0)
    }

    /// Listens until the connection fails, or no notification comes back.
    async fn listen(&self) -> Result<(), PostgresError> {
        let (client, mut messages) = timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .map_err(|_| PostgresError::Silent)??;
        let sql = format!("LISTEN {CHANNEL}");
        let mut listening = std::pin::pin!(client.batch_execute(&sql));
        let mut probes = interval(PROBE_INTERVAL);
        probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_listening, mut is_live, mut number) = (false, false, 0_u64);
        let mut heard: Instant = clock::now();
        let mut sent = heard;
        let mut probing = std::pin::pin!(self.probe(0));
        let mut is_probing = false;
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        match self.replica.read(notification.payload()) {
                            Notice::OwnProbe(probe) => {
                                // What was sent after the probe may still be on its way.
                                if probe == number {
                                    heard = heard.max(sent);
                                }
                                if !is_live {
                                    is_live = true;
                                    self.changes.note_live();
                                    tracing::info!("notifications from the database arrive");
                                }
                            }
                            Notice::Changes(changes) => self.changes.note_changes(&changes),
                            // All that was read may be out of date.
                            Notice::Unknown => self.changes.note_unknown(),
                            Notice::Unused => {}
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(PostgresError::Silent),
                },
                listened = &mut listening, if !is_listening => {
                    listened?;
                    is_listening = true;
                }
                // A probe that fails is missed below.
                _ = &mut probing, if is_probing => is_probing = false,
                _ = probes.tick() => {
                    if heard.elapsed() > PROBE_TIMEOUT {
                        return Err(PostgresError::Unheard);
                    }
                    if is_listening && !is_probing {
                        number = number.wrapping_add(1);
                        sent = clock::now();
                        probing.set(self.probe(number));
                        is_probing = true;
                    }
                }
            }
        }
    }

    /// Sends a probe through the pool.
    async fn probe(&self, number: u64) -> Result<(), PostgresError> {
        let probe = async {
            let mut connection = DatabaseConnection::take(&self.pool).await?;
            let texts = vec![self.replica.probe(number)];
            connection
                .client()?
                .query_typed(NOTIFY, &notify_parameters(&texts))
                .await?;
            connection.release();
            Ok(())
        };
        timeout(PROBE_TIMEOUT, probe).await.map_err(|_| PostgresError::Silent)?
    }

    async fn connect(&self) -> Result<(Client, ServerMessages), PostgresError> {
        let config = &self.address.config;
        if config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = config.connect(NoTls).await?;
            return Ok((client, messages_of(connection)));
        }
        let tls = tls_config(&self.address).map_err(|error| PostgresError::Failed {
            state: None,
            why: error.to_string(),
        })?;
        let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await?;
        Ok((client, messages_of(connection)))
    }
}

/// Returns the messages of a connection. It works only while they are polled.
fn messages_of<S, T>(mut connection: Connection<S, T>) -> ServerMessages
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(poll_fn(move |cx| connection.poll_message(cx)))
}
