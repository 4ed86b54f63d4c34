//! Changes of records that other writers change at the same time.

use std::{cell::Cell, sync::Arc, time::Duration};

use antiphon::{
    auth::Principal,
    clock,
    ledger::{
        CommitOutcome, CommitStep, Contended, Ledger, LedgerError, LedgerSettings, MemoryLedger, Record, RecordKey,
        RecordKind, TRIES_MAX, retry_conflicts, update_records,
    },
    telemetry::{MeasuredLedger, Telemetry},
};

const KEY: RecordKey = RecordKey::new(RecordKind::Call, Principal::from_bytes([1; 32]), [1; 32]);

/// A ledger that counts its commits.
fn ledger() -> (Telemetry, MeasuredLedger) {
    let telemetry = Telemetry::new(["one"]);
    let memory = Arc::new(MemoryLedger::new(LedgerSettings::default(), [0; 32]));
    let ledger = MeasuredLedger::new(memory, &telemetry);
    (telemetry, ledger)
}

fn commits(telemetry: &Telemetry) -> usize {
    let start = "antiphon_ledger_op_duration_seconds_count{op=\"commit\"} ";
    let text = telemetry.encode_metrics();
    let count = text.lines().find_map(|line| line.strip_prefix(start));
    count.map_or(0, |count| count.parse().unwrap())
}

/// Adds a byte to the record. Another writer does so too after each of the first `rivals` reads. Returns the tries.
async fn add_byte(ledger: &MeasuredLedger, rivals: usize) -> Result<usize, LedgerError> {
    let tries = Cell::new(0);
    let longer = |stored: Option<&Record>| {
        let length = stored.map_or(0, |record| record.value.len());
        CommitStep::put_record(KEY, stored, vec![0; length + 1].into(), Duration::MAX)
    };
    let added = update_records(ledger, [KEY], |[stored], now| {
        tries.set(tries.get() + 1);
        if tries.get() <= rivals {
            let rival = futures_util::FutureExt::now_or_never(ledger.commit(vec![longer(stored.as_ref())], now));
            assert_eq!(rival.unwrap().unwrap(), CommitOutcome::Done);
        }
        (vec![longer(stored.as_ref())], tries.get())
    });
    added.await
}

async fn length(ledger: &dyn Ledger) -> Option<usize> {
    let records = ledger.read(vec![KEY], clock::unix_time()).await.unwrap();
    records[0].as_ref().map(|record| record.value.len())
}

#[tokio::test]
async fn a_change_that_conflicts_is_made_again_of_the_new_record() {
    for rivals in [0, 1, TRIES_MAX - 1] {
        let (_, ledger) = ledger();
        assert_eq!(add_byte(&ledger, rivals).await.unwrap(), rivals + 1);
        assert_eq!(
            length(&ledger).await,
            Some(rivals + 1),
            "no change of the others is lost"
        );
    }
}

#[tokio::test]
async fn a_change_that_always_conflicts_ends() {
    let (telemetry, ledger) = ledger();
    let error = add_byte(&ledger, usize::MAX).await.unwrap_err();
    assert!(error.to_string().contains(&Contended.to_string()), "{error}");
    assert_eq!(length(&ledger).await, Some(TRIES_MAX), "only the changes of the others");
    assert_eq!(commits(&telemetry), 2 * TRIES_MAX);
}

#[tokio::test]
async fn without_steps_nothing_is_committed() {
    let (telemetry, ledger) = ledger();
    add_byte(&ledger, 0).await.unwrap();
    let kept: Result<_, LedgerError> = update_records(&ledger, [KEY], |[stored], _| (Vec::new(), stored)).await;
    assert_eq!(kept.unwrap().unwrap().version, 1);
    assert_eq!(commits(&telemetry), 1);
}

#[tokio::test]
async fn an_error_ends_the_tries() {
    let tries = Cell::new(0);
    let failed: Result<(), LedgerError> = retry_conflicts(|| async {
        tries.set(tries.get() + 1);
        if tries.get() == 2 {
            Err(LedgerError::Closed)
        } else {
            Ok(None)
        }
    })
    .await;
    assert!(matches!(failed, Err(LedgerError::Closed)), "{failed:?}");
    assert_eq!(tries.get(), 2);
}
