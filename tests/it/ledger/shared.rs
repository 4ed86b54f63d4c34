//! One database, several replicas: each decision is made once, and the sizes are those of all of them.

use std::{sync::Arc, time::Duration};

use antiphon::ledger::{
    CommitOutcome, CommitStep, Ledger, LedgerFault, LedgerSettings, PostgresLedger, RECORD_BYTES, RecordKey, RecordKind,
};
use bytes::Bytes;
use tokio_postgres::NoTls;

use super::conformance::{LATER, NOW, SECRET, get, key};
use crate::support::{
    bodies::Rng,
    database::{DatabaseServer, new_database, settings_of},
    seed::seed,
    wire::spawn,
};

const REPLICAS: usize = 3;

pub(super) async fn replica(url: &str, secret: [u8; 32]) -> Arc<dyn Ledger> {
    let (ledger, worker) = PostgresLedger::open(&settings_of(url), LedgerSettings::default(), secret)
        .await
        .unwrap();
    drop(spawn(worker.run()));
    Arc::new(ledger)
}

/// Returns replicas that have opened one empty database at the same time.
async fn replicas() -> Option<Vec<Arc<dyn Ledger>>> {
    let url = new_database().await?;
    let secrets = (0..REPLICAS).map(|number| [u8::try_from(number).unwrap(); 32]);
    let opening = secrets.map(|secret| replica(&url, secret));
    Some(futures_util::future::join_all(opening).await)
}

fn call(name: u64) -> RecordKey {
    key(RecordKind::Call, 1, name)
}

fn insert(key: RecordKey, value: Vec<u8>) -> CommitStep {
    CommitStep::insert_record(key, Bytes::from(value), LATER)
}

#[tokio::test]
async fn replicas_that_start_at_once_have_one_secret() {
    let Some(replicas) = replicas().await else { return };
    let first = replicas[0].secret();
    assert!(replicas.iter().all(|replica| replica.secret() == first));
    assert!(first != SECRET && replicas.iter().all(|replica| !replica.is_exclusive()));
}

/// Batches that overlap in any order never wait for each other in a circle, and each key has one winner.
#[tokio::test]
async fn one_of_many_replicas_wins_each_key() {
    const KEYS: u64 = 40;
    let Some(replicas) = replicas().await else { return };
    let seed = seed();
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..240_u8 {
        let ledger = Arc::clone(&replicas[usize::from(racer) % REPLICAS]);
        let mut names: Vec<u64> = (0..rng.within(1, 4) as u64).map(|_| rng.next() % KEYS).collect();
        names.dedup();
        let steps = names.iter().map(|name| insert(call(*name), vec![racer])).collect();
        racers.spawn(async move { (racer, names, ledger.commit(steps, NOW).await.unwrap()) });
    }
    let mut won: Vec<(u64, u8)> = Vec::new();
    while let Some(raced) = racers.join_next().await {
        let (racer, names, outcome) = raced.unwrap();
        if outcome == CommitOutcome::Done {
            won.extend(names.into_iter().map(|name| (name, racer)));
        }
    }
    won.sort_unstable();
    let names: Vec<u64> = won.iter().map(|(name, _)| *name).collect();
    let mut distinct = names.clone();
    distinct.dedup();
    assert_eq!(names, distinct, "a key was won twice");
    for replica in &replicas {
        for (name, racer) in &won {
            let record = get(&**replica, call(*name), NOW).await.unwrap();
            assert_eq!(record.value, vec![*racer], "key {name}");
        }
        let size = replica.usage().await.unwrap();
        assert_eq!(
            (size.records, size.bytes),
            (won.len() as u64, won.len() as u64 * (RECORD_BYTES + 1))
        );
    }
}

/// Of replacements of one version by all replicas one is applied: each counts once.
#[tokio::test]
async fn a_counter_of_all_replicas_loses_no_step() {
    let Some(replicas) = replicas().await else { return };
    let done = replicas[0]
        .commit(vec![insert(call(1), 0_u64.to_le_bytes().to_vec())], NOW)
        .await
        .unwrap();
    assert_eq!(done, CommitOutcome::Done);
    let mut counting = tokio::task::JoinSet::new();
    for number in 0..12 {
        let ledger = Arc::clone(&replicas[number % REPLICAS]);
        counting.spawn(async move {
            let mut steps = 0;
            while steps < 10 {
                let record = get(&*ledger, call(1), NOW).await.unwrap();
                let count = u64::from_le_bytes(record.value[..].try_into().unwrap()) + 1;
                let step = CommitStep::Replace {
                    key: call(1),
                    version: record.version,
                    value: Bytes::copy_from_slice(&count.to_le_bytes()),
                    expires_at: LATER,
                };
                if ledger.commit(vec![step], NOW).await.unwrap() == CommitOutcome::Done {
                    steps += 1;
                }
            }
        });
    }
    while let Some(counted) = counting.join_next().await {
        counted.unwrap();
    }
    let record = get(&*replicas[1], call(1), NOW).await.unwrap();
    assert_eq!((record.value[0], record.version), (120, 121));
}

/// Expired records leave the sizes once, whichever replicas remove them at the same time.
#[tokio::test]
async fn replicas_remove_what_has_expired_once() {
    let Some(replicas) = replicas().await else { return };
    for first in [0, 1_000, 2_000] {
        let steps = (first..first + 1_000)
            .map(|name| insert(call(name), vec![7; 10]))
            .collect();
        assert_eq!(replicas[0].commit(steps, NOW).await.unwrap(), CommitOutcome::Done);
    }
    let removed = replicas.iter().map(|replica| replica.remove_expired(LATER));
    let removed = futures_util::future::join_all(removed).await;
    assert_eq!(removed.into_iter().map(Result::unwrap).sum::<u64>(), 3_000);
    let size = replicas[2].usage().await.unwrap();
    assert_eq!((size.records, size.bytes), (0, 0));
}

/// Nobody finds its records in a database that was filled or restored since: its owners have other hashes.
#[tokio::test]
async fn a_database_with_another_ledger_is_a_fault() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let ledger = replica(&url, SECRET).await;
    assert_eq!(ledger.find_fault().await.unwrap(), None);
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let connection = spawn(async move { drop(connection.await) });
    for (change, fault) in [
        (
            "UPDATE antiphon_meta SET secret = decode(repeat('08', 32), 'hex')",
            Some(LedgerFault::OtherLedger),
        ),
        ("DROP TABLE antiphon_meta", Some(LedgerFault::OtherLedger)),
    ] {
        client.batch_execute(change).await.unwrap();
        assert_eq!(ledger.find_fault().await.unwrap(), fault, "{change}");
    }
    connection.abort();
}

/// A process writes in the order of its commits, also after one whose caller has stopped waiting: an insert that comes
/// after its removal would stay for good.
#[tokio::test]
async fn a_removal_comes_after_an_insert_that_nobody_waits_for() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let ledger = replica(&url, SECRET).await;
    for name in 0..4 {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let connection = spawn(async move { drop(connection.await) });
        // Nothing can be written meanwhile, and everything can be read.
        client
            .batch_execute("BEGIN; LOCK TABLE antiphon_records IN SHARE MODE")
            .await
            .unwrap();
        let inserted = ledger.commit(vec![insert(call(name), vec![1])], NOW);
        let inserted = tokio::time::timeout(Duration::from_millis(250), inserted).await;
        assert!(inserted.is_err(), "{inserted:?}");
        let remove = CommitStep::Remove {
            key: call(name),
            version: 1,
        };
        let other = Arc::clone(&ledger);
        let removed = spawn(async move { other.commit(vec![remove], NOW).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(removed.await.unwrap(), CommitOutcome::Done);
        assert_eq!(get(&*ledger, call(name), NOW).await, None);
        connection.abort();
    }
}
