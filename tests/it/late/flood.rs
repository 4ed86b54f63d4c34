//! Many recorded calls and answers at once, on a slow disk: none is lost, and each call's jobs stay in order.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal},
    clock,
    late::{CallFilter, CallQuery, LateSettings, LateStore, ObservedCall},
    ledger::Ledger,
    session::SessionStrength,
    telemetry::Telemetry,
};
use std::sync::atomic::Ordering;

use crate::{
    ledger::pinned_answers::SwitchableLedger,
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
    let (store, writer, worker) = late::over(&ledger, settings, telemetry.clone());
    drop((spawn(writer.run()), spawn(worker.run())));
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
    store.list_calls(caller, filter, 0, 100).await.unwrap().calls.len()
}

/// Five minutes of 60 calls a second, each answered by its client, while each commit takes 100 ms.
#[tokio::test(start_paused = true)]
async fn a_slow_disk_keeps_up_with_60_calls_a_second() {
    let slow = SwitchableLedger::new();
    slow.delay_syncs(Duration::from_millis(100));
    let (store, telemetry, caller) = store(&slow);
    for second in 0..5 * 60 {
        for number in second * 60..(second + 1) * 60 {
            store.record_calls(caller, [observed(number)]);
            // At once behind the call, whose record must come first.
            store.note_client_result(caller, None, query(number), Some("\"done\"".repeat(100)));
        }
        tokio::time::sleep(secs(1)).await;
    }
    let began = clock::now();
    store.flush_jobs().await;
    assert!(clock::now() - began < secs(3), "it keeps up");
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    assert_eq!(open_calls(&store, caller).await, 0, "each was recorded, then answered");
    assert_eq!(slow.usage().await.unwrap().records, 5 * 60 * 60 + 1);
}

/// An outage of half an hour loses no call.
#[tokio::test(start_paused = true)]
async fn an_outage_loses_no_call() {
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    switched.fails.store(true, Ordering::Relaxed);
    for number in 0..30 * 60 {
        store.record_calls(caller, [observed(number)]);
        tokio::time::sleep(secs(1)).await;
    }
    switched.fails.store(false, Ordering::Relaxed);
    store.flush_jobs().await;
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), 0);
    assert_eq!(open_calls(&store, caller).await, 100);
}

/// A flood during an outage loses notes that later requests repeat. The room that is left is for calls.
#[tokio::test(start_paused = true)]
async fn a_flood_loses_notes_before_calls() {
    let (lines, _listening) = Lines::listen();
    let switched = SwitchableLedger::new();
    let (store, telemetry, caller) = store(&switched);
    switched.fails.store(true, Ordering::Relaxed);
    let content = "x".repeat(1024 * 1024);
    for number in 0..100 {
        store.note_client_result(caller, None, query(number), Some(content.clone()));
    }
    let lost = sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}");
    assert!(
        (52..56).contains(&lost),
        "three quarters of 64 MiB are for notes: {lost}"
    );
    for number in 0..5_000 {
        store.record_calls(caller, [observed(number)]);
    }
    assert_eq!(sample(&telemetry, "antiphon_ledger_lost_total{kind=\"call\"}"), lost);
    assert_eq!(lines.text().matches("queue of calls and results").count(), 1);
    switched.fails.store(false, Ordering::Relaxed);
    store.flush_jobs().await;
    assert_eq!(sample(&telemetry, "antiphon_late_results_total{event=\"lost\"}"), lost);
}
