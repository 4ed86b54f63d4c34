//! Background writes under load: slow commits, long histories and outages lose nothing within the queue's bounds.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    clock,
    ledger::{CommitStep, Ledger, LedgerSettings, Record, RecordKey, RecordKind, SqliteLedger},
    recall::{RecallSettings, RecallStore},
    repair::{CallKey, PinnedResult, Placeholder},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::{Subject, Update, UpdateSize, Work, WriteTrack, Writer, writer},
};
use tokio::time::timeout;

use super::{
    pinned_results::{call, of, who},
    switchable::SwitchableLedger,
};
use crate::{
    support::{still::secs, wire::spawn},
    telemetry::metrics::Lines,
};

/// Starts the worker of background writes over a ledger.
fn start_writer(ledger: Arc<dyn Ledger>) -> (Writer, Telemetry) {
    let telemetry = Telemetry::default();
    let (writes, worker) = writer(ledger, telemetry.clone());
    drop(spawn(worker.run()));
    (writes, telemetry)
}

/// Returns the number of lost writes, over all kinds.
fn lost(telemetry: &Telemetry) -> u64 {
    let page = telemetry.encode_metrics();
    let samples = page
        .lines()
        .filter(|line| line.starts_with("antiphon_ledger_lost_total"));
    samples
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Returns the number of lost writes of a kind.
fn lost_of(telemetry: &Telemetry, kind: RecordKind) -> u64 {
    let sample = format!("antiphon_ledger_lost_total{{kind=\"{}\"}} ", kind.label());
    let page = telemetry.encode_metrics();
    let count = page.lines().find_map(|line| line.strip_prefix(&sample));
    count.unwrap().parse().unwrap()
}

fn key(kind: RecordKind, number: u64) -> RecordKey {
    let mut name = [0; 32];
    name[..8].copy_from_slice(&number.to_le_bytes());
    RecordKey {
        kind,
        principal: [1; 32],
        name,
    }
}

/// Returns the insertion of one record.
fn insert(kind: RecordKind, number: u64) -> CommitStep {
    CommitStep::insert_record(key(kind, number), "x".into(), clock::unix_time() + secs(7200))
}

async fn read(ledger: &dyn Ledger, key: RecordKey) -> Option<Record> {
    ledger.read(vec![key], clock::unix_time()).await.unwrap().remove(0)
}

async fn count(ledger: &dyn Ledger) -> u64 {
    ledger.usage().await.unwrap().records
}

/// Twenty minutes of 60 rows a second, on a disk that takes 100 ms for each commit.
#[tokio::test(start_paused = true)]
async fn a_slow_disk_keeps_up_with_60_rows_a_second() {
    let slow = SwitchableLedger::new();
    slow.delay_syncs(Duration::from_millis(100));
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&slow));
    let rows = 20 * 60 * 60;
    for second in 0..rows / 60 {
        for row in 0..60 {
            writes.queue_write(insert(RecordKind::Thinking, second * 60 + row));
        }
        tokio::time::sleep(secs(1)).await;
        // What waits stays bounded: a second later all rows are stored.
        assert_eq!(count(&*slow).await, (second + 1) * 60);
    }
    writes.flush().await;
    assert_eq!(lost(&telemetry), 0);
    assert_eq!(count(&*slow).await, rows);
}

/// An outage of half an hour loses nothing that the queue has room for.
#[tokio::test(start_paused = true)]
async fn an_outage_loses_nothing_within_the_bounds() {
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    switched.fails.store(true, Ordering::Relaxed);
    let rows = 30 * 60;
    for row in 0..rows {
        writes.queue_write(insert(RecordKind::Thinking, row));
        tokio::time::sleep(secs(1)).await;
    }
    switched.fails.store(false, Ordering::Relaxed);
    writes.flush().await;
    assert_eq!((lost(&telemetry), count(&*switched).await), (0, rows));
}

/// A history of 100,000 placeholders is stored as a whole: the journal takes what it has room for, the queue the rest.
#[tokio::test(start_paused = true)]
async fn a_history_of_100_000_placeholders_is_stored() {
    const CALLS: usize = 100_000;
    let slow = SwitchableLedger::new();
    slow.delay_syncs(Duration::from_millis(100));
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&slow);
    let (writes, telemetry) = start_writer(Arc::clone(&ledger));
    let parts = TableParts::new(&ledger, &writes, Telemetry::default());
    let callers = VerifiedCallers::new(&parts);
    callers.mark_verified(who("sk-one"));
    let settings = RecallSettings {
        record_ttl: secs(24 * 60 * 60),
        stores_client_results: false,
    };
    let recall = RecallStore::new(&parts, callers, telemetry.clone(), settings);
    let calls: Vec<(CallKey, PinnedResult)> = (0..CALLS)
        .map(|n| {
            let answer = PinnedResult::Placeholder(Placeholder::OutcomeUnknown);
            (call(&format!("toolu_{n}")), answer)
        })
        .collect();
    let scope = of("sk-one");
    let existing = recall.pin_results(scope, &calls, clock::now() + secs(1)).await;
    assert!(existing.is_empty());
    drop(recall.commit_results(scope, &calls));
    writes.flush().await;
    assert_eq!(lost(&telemetry), 0);
    // With the record of the caller.
    assert_eq!(count(&*slow).await, CALLS as u64 + 1);
}

/// Real commits on a real file: as fast as they come.
#[tokio::test]
async fn a_burst_of_rows_reaches_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = SqliteLedger::open(&folder.path().join("ledger.db"), LedgerSettings::default(), [9; 32]).unwrap();
    let ledger: Arc<dyn Ledger> = Arc::new(ledger);
    let (writes, telemetry) = start_writer(Arc::clone(&ledger));
    let rows = 20_000;
    for row in 0..rows {
        writes.queue_write(insert(RecordKind::Thinking, row));
    }
    writes.flush().await;
    assert_eq!((lost(&telemetry), count(&*ledger).await), (0, rows));
}

/// A full queue loses what matters least, counts it by kind, and says so once.
#[tokio::test(start_paused = true)]
async fn a_full_queue_loses_what_matters_least() {
    const ROWS: u64 = 200_000;
    let (lines, _listening) = Lines::listen();
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    switched.stalls.store(true, Ordering::Relaxed);
    writes.queue_writes((0..ROWS).map(|row| insert(RecordKind::Thinking, row)).collect());
    assert_eq!(lost(&telemetry), 0, "a long history is one job");
    for row in 0..500 {
        writes.queue_write(insert(RecordKind::PinnedResult, row));
        writes.queue_write(insert(RecordKind::Principal, row));
        writes.queue_write(insert(RecordKind::Thinking, ROWS + row));
    }
    assert_eq!(lost_of(&telemetry, RecordKind::Thinking), 1500);
    assert_eq!(lost(&telemetry), 1500, "nothing else");
    assert_eq!(
        lines.text().matches("queue of background writes").count(),
        1,
        "{}",
        lines.text()
    );
}

/// Who waits for a write is told when a full queue loses it, although the store does not answer.
#[tokio::test(start_paused = true)]
async fn a_loss_ends_the_wait_for_a_write() {
    const ROWS: u64 = 200_000;
    let switched = SwitchableLedger::new();
    let (writes, _telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    switched.stalls.store(true, Ordering::Relaxed);
    writes.queue_writes((0..ROWS).map(|row| insert(RecordKind::Thinking, row)).collect());
    let (waiting, lost) = (writes.clone(), Subject::of_record(&key(RecordKind::Thinking, ROWS - 1)));
    let waiting = spawn(async move { waiting.await_subject(&lost, clock::now() + secs(60)).await });
    tokio::time::sleep(secs(1)).await;
    writes.queue_write(insert(RecordKind::Principal, 1));
    assert!(timeout(secs(1), waiting).await.unwrap().unwrap());
}

/// An update that panics.
#[derive(Debug)]
struct Broken(WriteTrack);

impl Update for Broken {
    fn track(&self) -> WriteTrack {
        self.0
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name([1; 32])]
    }

    fn size(&self) -> UpdateSize {
        UpdateSize::default()
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Call, 1)
    }

    fn begin(self: Arc<Self>) -> Work {
        panic!("a fault of an update, which this test expects");
    }
}

/// An update that panics is lost. All others are done.
#[tokio::test(start_paused = true)]
async fn an_update_that_panics_is_lost_alone() {
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    for track in [WriteTrack::Awaited, WriteTrack::Reading, WriteTrack::Behind] {
        writes.queue(Broken(track));
        writes.queue_write(insert(RecordKind::Thinking, track as u64));
    }
    writes.flush().await;
    assert_eq!((lost_of(&telemetry, RecordKind::Call), lost(&telemetry)), (3, 3));
    assert_eq!(count(&*switched).await, 3);
}

/// What a full queue has kept is stored once the store works.
#[tokio::test(start_paused = true)]
async fn what_a_full_queue_kept_is_stored_after_the_outage() {
    const ROWS: u64 = 200_000;
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    switched.fails.store(true, Ordering::Relaxed);
    writes.queue_writes((0..ROWS).map(|row| insert(RecordKind::ClientResult, row)).collect());
    tokio::time::sleep(secs(60)).await;
    writes.queue_writes((0..100).map(|row| insert(RecordKind::Principal, row)).collect());
    assert_eq!(lost_of(&telemetry, RecordKind::ClientResult), 100);
    switched.fails.store(false, Ordering::Relaxed);
    writes.flush().await;
    assert_eq!((lost(&telemetry), count(&*switched).await), (100, ROWS));
    assert!(read(&*switched, key(RecordKind::Principal, 99)).await.is_some());
    let kept = read(&*switched, key(RecordKind::ClientResult, ROWS - 101)).await;
    let gone = read(&*switched, key(RecordKind::ClientResult, ROWS - 100)).await;
    assert!(kept.is_some() && gone.is_none(), "of one kind the latest is lost");
}

/// A write that fails while others succeed is lost after five minutes. It delays no other.
#[tokio::test(start_paused = true)]
async fn a_write_that_fails_alone_is_lost_after_five_minutes() {
    let (lines, _listening) = Lines::listen();
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    *switched.damaged.lock().unwrap() = Some(|step| step.key().kind == RecordKind::Continuity);
    writes.queue_write(insert(RecordKind::Continuity, 1));
    for minute in 0..7 {
        writes.queue_write(insert(RecordKind::Thinking, minute));
        tokio::time::sleep(secs(60)).await;
        assert_eq!(count(&*switched).await, minute + 1);
        let lost = lost_of(&telemetry, RecordKind::Continuity);
        // The attempt that is the last comes within seconds of the fifth minute.
        assert!(
            lost <= u64::from(minute >= 4) && lost >= u64::from(minute >= 5),
            "{minute}: {lost}"
        );
    }
    timeout(secs(1), writes.flush()).await.unwrap();
    assert_eq!(lost(&telemetry), 1);
    let told = lines.text();
    for (words, times) in [
        ("background writes to the ledger failed", 1),
        ("failed for good: it is lost", 1),
        ("a page is damaged", 2),
        ("work again", 1),
    ] {
        assert_eq!(told.matches(words).count(), times, "{words}: {told}");
    }
}

/// Whole batches of writes that fail alone delay those after them by no more than a pause each, and are lost in the end.
#[tokio::test(start_paused = true)]
async fn batches_that_fail_alone_are_lost_and_delay_no_other() {
    const DAMAGED: u64 = 3_500;
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    *switched.damaged.lock().unwrap() = Some(|step| step.key().kind == RecordKind::Continuity);
    writes.queue_writes((0..DAMAGED).map(|row| insert(RecordKind::Continuity, row)).collect());
    for minute in 0..9 {
        writes.queue_write(insert(RecordKind::Thinking, minute));
        tokio::time::sleep(secs(60)).await;
        assert_eq!(count(&*switched).await, minute + 1);
    }
    timeout(secs(1), writes.flush()).await.unwrap();
    assert_eq!(
        (lost(&telemetry), lost_of(&telemetry, RecordKind::Continuity)),
        (DAMAGED, DAMAGED)
    );
}

/// A full disk still reads. A write whose record exists needs no disk, and is no reason to lose those that do.
#[tokio::test(start_paused = true)]
async fn conflicts_are_no_reason_to_lose_a_write() {
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    writes.queue_write(insert(RecordKind::Thinking, 1));
    writes.flush().await;
    *switched.damaged.lock().unwrap() = Some(|step| step.key().kind == RecordKind::Continuity);
    writes.queue_write(insert(RecordKind::Continuity, 1));
    for _ in 0..10 * 60 {
        writes.queue_write(insert(RecordKind::Thinking, 1));
        tokio::time::sleep(secs(1)).await;
    }
    *switched.damaged.lock().unwrap() = None;
    writes.flush().await;
    assert_eq!((lost(&telemetry), count(&*switched).await), (0, 2));
}

/// The end of the process does not wait for a pause between two attempts.
#[tokio::test(start_paused = true)]
async fn the_end_retries_at_once() {
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    switched.fails.store(true, Ordering::Relaxed);
    writes.queue_write(insert(RecordKind::Thinking, 1));
    tokio::time::sleep(secs(61)).await;
    switched.fails.store(false, Ordering::Relaxed);
    timeout(Duration::from_millis(100), writes.finish()).await.unwrap();
    assert_eq!((lost(&telemetry), count(&*switched).await), (0, 1));
}

/// A late write is judged against expiry as of its queueing, and the first of two inserts wins.
#[tokio::test(start_paused = true)]
async fn a_late_write_is_judged_as_of_its_queueing() {
    let switched = SwitchableLedger::new();
    let (writes, telemetry) = start_writer(Arc::<SwitchableLedger>::clone(&switched));
    let (name, now) = (key(RecordKind::Continuity, 1), clock::unix_time());
    let first = CommitStep::insert_record(name, "first".into(), now + secs(60));
    writes.queue_writes(vec![first, insert(RecordKind::Continuity, 1)]);
    writes.flush().await;
    assert_eq!(read(&*switched, name).await.unwrap().value, "first");
    switched.fails.store(true, Ordering::Relaxed);
    let replace = CommitStep::Replace {
        key: name,
        version: 1,
        value: "second".into(),
        expires_at: now + secs(3600),
    };
    writes.queue_writes(vec![replace, insert(RecordKind::Continuity, 1)]);
    // The record has expired meanwhile, but not at the time of queueing.
    tokio::time::sleep(secs(120)).await;
    switched.fails.store(false, Ordering::Relaxed);
    writes.flush().await;
    let record = read(&*switched, name).await.unwrap();
    assert_eq!((&record.value[..], record.version), (&b"second"[..], 2));
    assert_eq!(lost(&telemetry), 0);
}
