//! Commits whose last packet stalls on the way to the database, with the locks of their rows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use antiphon::ledger::{CommitOutcome, CommitStep, RecordKind};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
    time::{Instant, timeout},
};

use super::{
    conformance::{LATER, NOW, SECRET, get, key},
    shared::replica,
};
use crate::support::{
    database::DatabaseServer,
    wire::{spawn, start_relay},
};

/// A relay in front of a database, which can hold back the next commit.
struct Relay {
    port: u16,
    holds_next: Arc<AtomicBool>,
    /// `true` if a connection with a commit that is held back gets nothing from the database either.
    is_deaf: Arc<AtomicBool>,
    held: Arc<Notify>,
    released: Arc<Notify>,
}

impl Relay {
    async fn start(database: u16) -> Self {
        let (holds_next, is_deaf, held, released) = Parts::default();
        let parts = (
            Arc::clone(&holds_next),
            Arc::clone(&is_deaf),
            Arc::clone(&held),
            Arc::clone(&released),
        );
        let port = start_relay(database, move |client, server| {
            relay_connection(client, server, parts.clone())
        })
        .await;
        Self {
            port,
            holds_next,
            is_deaf,
            held,
            released,
        }
    }

    /// Holds back the next commit. Its process gets nothing from the database either, if `is_deaf` is `true`.
    fn hold_next(&self, is_deaf: bool) {
        self.is_deaf.store(is_deaf, Ordering::SeqCst);
        self.holds_next.store(true, Ordering::SeqCst);
    }
}

type Parts = (Arc<AtomicBool>, Arc<AtomicBool>, Arc<Notify>, Arc<Notify>);

async fn relay_connection(client: TcpStream, server: TcpStream, (holds_next, is_deaf, held, released): Parts) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let stops = Arc::new(Notify::new());
    let stopped = Arc::clone(&stops);
    drop(spawn(async move {
        tokio::select! {
            done = tokio::io::copy(&mut from_server, &mut to_client) => drop(done),
            () = stopped.notified() => std::future::pending().await,
        }
    }));
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from_client.read(&mut chunk).await {
        let is_commit = chunk[..length].windows(7).any(|word| word == b"COMMIT\0");
        if is_commit && holds_next.swap(false, Ordering::SeqCst) {
            if is_deaf.load(Ordering::SeqCst) {
                stops.notify_one();
            }
            held.notify_one();
            released.notified().await;
        }
        if to_server.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

fn insert(name: u64) -> CommitStep {
    CommitStep::insert_record(key(RecordKind::Call, 1, name), Bytes::from_static(b"x"), LATER)
}

/// Another replica waits for the rows for some seconds only: a replica that was suspended may keep its connection for ever.
#[tokio::test]
async fn a_replica_that_freezes_before_its_commit_stops_no_other() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let relay = Relay::start(server.port()).await;
    let frozen = replica(
        &url.replace(&server.port().to_string(), &relay.port.to_string()),
        SECRET,
    )
    .await;
    let other = replica(&url, SECRET).await;
    assert_eq!(frozen.commit(vec![insert(1)], NOW).await.unwrap(), CommitOutcome::Done);
    relay.hold_next(true);
    let replace = |value: &'static [u8]| CommitStep::Replace {
        key: key(RecordKind::Call, 1, 1),
        version: 1,
        value: Bytes::from_static(value),
        expires_at: LATER,
    };
    let running = Arc::clone(&frozen);
    let frozen_commit = spawn(async move { running.commit(vec![replace(b"frozen")], NOW).await });
    relay.held.notified().await;
    let began = Instant::now();
    let done = other.commit(vec![replace(b"other")], NOW).await;
    assert_eq!(done.unwrap(), CommitOutcome::Done);
    // Before the frozen replica itself gives up, after 10 s.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    // Its commit arrives after all, and counts no more.
    relay.released.notify_one();
    assert!(frozen_commit.await.unwrap().is_err());
    let value = get(&*other, key(RecordKind::Call, 1, 1), NOW).await.unwrap();
    assert_eq!(&value.value[..], b"other");
}

/// It learns that its transaction was ended, and sends it once more.
#[tokio::test]
async fn a_replica_that_was_suspended_before_its_commit_commits_after_all() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let relay = Relay::start(server.port()).await;
    let ledger = replica(
        &url.replace(&server.port().to_string(), &relay.port.to_string()),
        SECRET,
    )
    .await;
    relay.hold_next(false);
    assert_eq!(ledger.commit(vec![insert(1)], NOW).await.unwrap(), CommitOutcome::Done);
    assert!(get(&*ledger, key(RecordKind::Call, 1, 1), NOW).await.is_some());
}

/// The caller has got an error, and removes the record.
#[tokio::test]
async fn a_commit_that_failed_is_not_carried_out_after_a_removal() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let relay = Relay::start(server.port()).await;
    let ledger = replica(
        &url.replace(&server.port().to_string(), &relay.port.to_string()),
        SECRET,
    )
    .await;
    relay.hold_next(true);
    let inserted = timeout(Duration::from_secs(20), ledger.commit(vec![insert(2)], NOW)).await;
    assert!(inserted.unwrap().is_err(), "the commit is held back");
    let remove = CommitStep::Remove {
        key: key(RecordKind::Call, 1, 2),
        version: 1,
    };
    assert_eq!(
        ledger.commit(vec![remove], NOW).await.unwrap(),
        CommitOutcome::Conflict(vec![None])
    );
    relay.released.notify_one();
    // What the relay passes on is carried out before what comes after it.
    for name in 3..6 {
        assert_eq!(
            ledger.commit(vec![insert(name)], NOW).await.unwrap(),
            CommitOutcome::Done
        );
    }
    assert_eq!(get(&*ledger, key(RecordKind::Call, 1, 2), NOW).await, None);
}

/// Nothing was sent to a database that could not be reached, so the writers need no pause once it is back.
#[tokio::test]
async fn writers_do_not_pause_after_a_database_that_could_not_be_reached() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let is_open = Arc::new(AtomicBool::new(true));
    let opened = Arc::clone(&is_open);
    let port = start_relay(server.port(), move |mut client, mut server| {
        let opened = Arc::clone(&opened);
        async move {
            let until_closed = async {
                while opened.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                done = tokio::io::copy_bidirectional(&mut client, &mut server) => drop(done),
                () = until_closed => {}
            }
        }
    })
    .await;
    let ledger = replica(&url.replace(&server.port().to_string(), &port.to_string()), SECRET).await;
    assert_eq!(ledger.commit(vec![insert(1)], NOW).await.unwrap(), CommitOutcome::Done);
    is_open.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    let mut failing = Vec::new();
    for name in 2..4 {
        let ledger = Arc::clone(&ledger);
        failing.push(spawn(async move { ledger.commit(vec![insert(name)], NOW).await }));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep_until(began + Duration::from_millis(10_500)).await;
    is_open.store(true, Ordering::SeqCst);
    let back = Instant::now();
    let done = ledger.commit(vec![insert(9)], NOW).await;
    let waited = back.elapsed();
    for one in failing {
        println!(
            "{:?} after {:?}",
            one.await.unwrap().map_err(|error| error.to_string()),
            began.elapsed()
        );
    }
    assert!(
        waited < Duration::from_secs(1),
        "{done:?} {waited:?} after the database is back"
    );
}
