//! Many recorded calls and answers at once, on a slow disk: none is lost, and each call's jobs stay in order.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    auth::{Caller, Principal},
    clock,
    late::{CallFilter, CallQuery, LateSettings, LateStore, ObservedCall},
    ledger::{CommitStep, Ledger},
    session::SessionStrength,
    telemetry::Telemetry,
};
use tokio::time::timeout;

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{late, still::secs, wire::spawn},
    telemetry::metrics::Lines,
};

fn store(ledger: &Arc<SwitchableLedger>) -> (LateStore, Telemetry, Caller) {
    let settings = LateSettings {
        services: vec![late::service("tools", None, None)],
        ..LateSettings::default()
    };
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    let telemetry = Telemetry::default();
    let (store, writer) = late::over(&ledger, settings, telemetry.clone());
    drop(spawn(writer.run()));
    let caller = Caller::of_account(Principal::of_token(store.principal_key(), "one"));
    store.callers().mark_verified(caller);
    (store, telemetry, caller)
}

fn query(number: u64) -> CallQuery {
    CallQuery {
        id: format!("toolu_01AbC9dE3fG7hJ2kL4m{number:05}").into_bytes(),
        tool: b"run".to_vec(),
        input_hash: [1; 32],
        session: None,
    }
}

fn observed(number: u64) -> ObservedCall {
    let CallQuery { id, tool, .. } = query(number);
    ObservedCall {
        lane: None,
        session: None,
        session_label: None,
        strength: SessionStrength::Strong,
        id,
        tool,
        input: Some([1; 32]),
        intent_input: None,
        origin: None,
        is_emitted: false,
    }
}

fn sample(telemetry: &Telemetry, name: &str) -> u64 {
    let page = telemetry.encode_metrics();
    let count = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    count.unwrap().parse().unwrap()
}

async fn open_calls(store: &LateStore, caller: Caller) -> usize {
    let filter = CallFilter {
        is_open: true,
        session: None,
    };
    store
        .calls()
        .list_calls(caller, filter, 0, 100)
        .await
        .unwrap()
        .rows
        .len()
}

/// Five minutes of 60 calls a second, each answered by its client, while each commit takes 100 ms.
#[tokio::test(start_paused = true)]
async fn a_slow_disk_keeps_up_with_60_calls_a_second() {
    let slow = SwitchableLedger::new();
    slow.delay_syncs(Duration::from_millis(100));
    let (store, telemetry, caller) = store(&slow);
    for second in 0..5 * 60 {
        for number in second * 60..(second + 1) * 60 {
            store.calls().record_calls(caller, [observed(number)]);
            // At once after the call, whose record must come first.
            store
                .calls()
                .note_client_result(caller, None, query(number), Some("\"done\"".repeat(100)));
        }
        tokio::time::sleep(secs(1)).await;
    }
    let began = clock::now();
    store.flush_updates().await;
    assert!(clock::now() - began < secs(3), "it keeps up");
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    assert_eq!(open_calls(&store, caller).await, 0, "each was recorded, then answered");
    assert_eq!(slow.usage().await.unwrap().records, 5 * 60 * 60 + 1);
}

/// Each answer waits for the record of its own call alone: one commit takes the calls of many answers.
#[tokio::test(start_paused = true)]
async fn answers_wait_for_one_commit_on_a_slow_disk() {
    let slow = SwitchableLedger::new();
    slow.delay_syncs(Duration::from_millis(100));
    let (store, telemetry, caller) = store(&slow);
    let mut waits = Vec::new();
    for number in 0..600 {
        let queued = store.calls().record_calls(caller, [observed(number)]).unwrap();
        waits.push(spawn(async move {
            let began = clock::now();
            queued.wait_for_end().await;
            clock::now() - began
        }));
        tokio::time::sleep(Duration::from_millis(16)).await;
    }
    for wait in waits {
        let waited = wait.await.unwrap();
        assert!(waited <= Duration::from_millis(400), "{waited:?}");
    }
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
}

/// A job that fails alone is lost after five minutes. It delays no other, and takes none along.
#[tokio::test(start_paused = true)]
async fn a_job_that_fails_alone_delays_no_other() {
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    *switched.damaged.lock().unwrap() =
        Some(|step| matches!(step, CommitStep::Insert { value, .. } if contains(value, b"m00003")));
    for number in 0..10 {
        store.calls().record_calls(caller, [observed(number)]);
    }
    tokio::time::sleep(secs(1)).await;
    assert_eq!(open_calls(&store, caller).await, 9);
    for number in 10..290 {
        let queued = store.calls().record_calls(caller, [observed(number)]).unwrap();
        timeout(Duration::from_millis(250), queued.wait_for_end())
            .await
            .unwrap();
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    for number in 290..320 {
        store.calls().record_calls(caller, [observed(number)]);
        tokio::time::sleep(secs(1)).await;
    }
    store.flush_updates().await;
    assert_eq!(sample(&telemetry, "antiphon_ledger_lost_total{kind=\"call\"}"), 1);
    // With the record of the caller.
    assert_eq!(switched.usage().await.unwrap().records, 320);
    // Its next request records it again.
    *switched.damaged.lock().unwrap() = None;
    store
        .calls()
        .record_calls(caller, [observed(3)])
        .unwrap()
        .wait_for_end()
        .await;
    assert_eq!(switched.usage().await.unwrap().records, 321);
}

/// However many jobs fail alone, others are done beside them, and all of them are given up in time.
#[tokio::test(start_paused = true)]
async fn many_jobs_that_fail_alone_delay_no_other() {
    const DAMAGED: u64 = 1_500;
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    *switched.damaged.lock().unwrap() =
        Some(|step| matches!(step, CommitStep::Insert { value, .. } if contains(value, b"hJ2kL4m0")));
    for number in 0..DAMAGED {
        store.calls().record_calls(caller, [observed(number)]);
    }
    tokio::time::sleep(secs(1)).await;
    for number in 10_000..10_400 {
        let queued = store.calls().record_calls(caller, [observed(number)]).unwrap();
        timeout(secs(1), queued.wait_for_end()).await.unwrap();
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(sample(&telemetry, "antiphon_ledger_lost_total{kind=\"call\"}"), DAMAGED);
    timeout(secs(1), store.flush_updates()).await.unwrap();
    assert_eq!(switched.usage().await.unwrap().records, 401);
}

fn contains(value: &[u8], part: &[u8]) -> bool {
    value.windows(part.len()).any(|window| window == part)
}

/// An outage of half an hour loses no call.
#[tokio::test(start_paused = true)]
async fn an_outage_loses_no_call() {
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    switched.fails.store(true, Ordering::Relaxed);
    for number in 0..30 * 60 {
        store.calls().record_calls(caller, [observed(number)]);
        tokio::time::sleep(secs(1)).await;
    }
    switched.fails.store(false, Ordering::Relaxed);
    store.flush_updates().await;
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    assert_eq!(open_calls(&store, caller).await, 100);
}

/// A disk that is full for writes still reads. Jobs that only read are no reason to give up those that write.
#[tokio::test(start_paused = true)]
async fn a_disk_that_only_reads_loses_no_call() {
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    switched.fails_commits.store(true, Ordering::Relaxed);
    store.calls().record_calls(caller, [observed(0)]);
    for number in 1..=250_u8 {
        // The ledger has no such call, so there is nothing to write.
        store.calls().note_acknowledged(caller, [[0; 32]]);
        store.calls().note_delivered(caller, [[number; 32]]);
        tokio::time::sleep(secs(1)).await;
    }
    switched.fails_commits.store(false, Ordering::Relaxed);
    store.flush_updates().await;
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    assert_eq!(open_calls(&store, caller).await, 1);
}

/// A disk that is full for writes still reads. What finds nothing to write ends no pause of what is to be written.
#[tokio::test(start_paused = true)]
async fn what_only_reads_ends_no_pause() {
    let switched = SwitchableLedger::new();
    switched.fails_commits.store(true, Ordering::Relaxed);
    // The record of the caller cannot be stored.
    let (store, _telemetry, caller) = store(&switched);
    tokio::time::sleep(secs(60)).await;
    let before = switched.commits.load(Ordering::Relaxed);
    for _ in 0..60 {
        store.calls().note_delivered(caller, [[9; 32]]);
        tokio::time::sleep(secs(1)).await;
    }
    let tries = switched.commits.load(Ordering::Relaxed) - before;
    assert!((5..20).contains(&tries), "one each 5 seconds: {tries}");
}

/// After a restart, calls are recorded anew that the ledger has already. They need no disk, and are no reason to give up
/// those that do.
#[tokio::test(start_paused = true)]
async fn calls_that_are_recorded_already_lose_no_call() {
    let switched = SwitchableLedger::new();
    let (first, _telemetry, caller) = store(&switched);
    for number in 1..=250 {
        first.calls().record_calls(caller, [observed(number)]);
    }
    first.flush_updates().await;
    let (second, telemetry, caller) = store(&switched);
    *switched.damaged.lock().unwrap() =
        Some(|step| matches!(step, CommitStep::Insert { value, .. } if contains(value, b"m00000")));
    second.calls().record_calls(caller, [observed(0)]);
    for number in 1..=250 {
        second.calls().record_calls(caller, [observed(number)]);
        tokio::time::sleep(secs(1)).await;
    }
    *switched.damaged.lock().unwrap() = None;
    second.flush_updates().await;
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    assert_eq!(switched.usage().await.unwrap().records, 252);
}

/// A flood during an outage loses notes that later requests repeat. The room that is left is for calls.
#[tokio::test(start_paused = true)]
async fn a_flood_loses_notes_before_calls() {
    let (lines, _listening) = Lines::listen();
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    switched.fails.store(true, Ordering::Relaxed);
    let content = "x".repeat(1024 * 1024);
    for number in 0..200 {
        store
            .calls()
            .note_client_result(caller, None, query(number), Some(content.clone()));
    }
    let lost_notes = || sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}");
    assert!(
        (72..76).contains(&lost_notes()),
        "there is room for 128 MiB: {}",
        lost_notes()
    );
    for number in 0..5_000 {
        store.calls().record_calls(caller, [observed(number)]);
    }
    assert_eq!(lines.text().matches("queue of background writes").count(), 1);
    assert!((76..84).contains(&lost_notes()), "for the calls: {}", lost_notes());
    switched.fails.store(false, Ordering::Relaxed);
    store.flush_updates().await;
    // With the record of the caller.
    assert_eq!(switched.usage().await.unwrap().records, 5_001);
}
