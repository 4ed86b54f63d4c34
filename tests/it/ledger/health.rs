//! The health of the ledger: a file that is gone, writes that fail, a full ledger, and their end.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    api::admin::{AdminService, AdminState, Readiness},
    ledger::{
        CommitOutcome, Ledger, LedgerError, LedgerFault, LedgerSettings, RECORD_BYTES, SqliteLedger, check_health,
    },
    telemetry::{Telemetry, watch_health},
};

use super::{
    conformance::{LATER, NOW, SECRET, call, insert},
    switchable::SwitchableLedger,
};
use crate::{
    admin::api::{answer, get},
    support::{app::admin, still::secs, wire::spawn},
    telemetry::metrics::Lines,
};

fn open(path: &Path, settings: LedgerSettings) -> Arc<dyn Ledger> {
    Arc::new(SqliteLedger::open(path, settings, SECRET).unwrap())
}

/// Returns the status and the text of the verbose readiness check.
pub(super) async fn readiness(ledger: &Arc<dyn Ledger>) -> (u16, String) {
    let router = AdminService::new(AdminState {
        ledger: Arc::clone(ledger),
        ..admin(Readiness::new())
    });
    let (status, _, text) = answer(&router, get("/readyz?verbose", &[])).await;
    (status.as_u16(), text)
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_is_reported() {
    for is_replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let ledger = open(&path, LedgerSettings::default());
        let good = "[+]serving ok\n[+]not-draining ok\n[+]ledger ok\nok\n";
        assert_eq!(readiness(&ledger).await, (200, good.to_owned()));
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        if is_replaced {
            std::fs::write(&path, "another file").unwrap();
        }
        // Writes still succeed: they go into the file without a name.
        assert_eq!(
            ledger.commit(vec![insert(call(1), "x")], NOW).await.unwrap(),
            CommitOutcome::Done
        );
        let (status, text) = readiness(&ledger).await;
        assert_eq!(status, 200, "a failed ledger takes no proxy out of rotation");
        assert!(
            text.contains("\n[-]ledger degraded: its file was deleted or replaced: restart Antiphon"),
            "{text}"
        );
        // The file is back.
        std::fs::rename(folder.path().join("moved"), &path).unwrap();
        assert_eq!(readiness(&ledger).await, (200, good.to_owned()));
    }
}

#[tokio::test]
async fn a_full_ledger_is_reported_until_a_write_has_room() {
    let folder = tempfile::tempdir().unwrap();
    let settings = LedgerSettings {
        bytes_max: 2 * (RECORD_BYTES + 1),
        ..LedgerSettings::default()
    };
    let ledger = open(&folder.path().join("ledger.db"), settings);
    for name in 0..2 {
        ledger.commit(vec![insert(call(name), "x")], NOW).await.unwrap();
    }
    let refused = ledger.commit(vec![insert(call(2), "x")], NOW).await;
    assert!(
        matches!(refused, Err(LedgerError::Full { of_principal: false })),
        "{refused:?}"
    );
    assert_eq!(check_health(&*ledger, secs(5)).await, Some(LedgerFault::Full));
    let (status, text) = readiness(&ledger).await;
    assert_eq!(status, 200);
    assert!(
        text.contains("[-]ledger degraded: it is full: raise ledger.bytes_max\n"),
        "{text}"
    );
    assert_eq!(ledger.remove_expired(LATER).await.unwrap(), 2);
    assert_eq!(check_health(&*ledger, secs(5)).await, None, "there is room again");
    ledger.commit(vec![insert(call(2), "x")], NOW).await.unwrap();
    assert_eq!(check_health(&*ledger, secs(5)).await, None);
}

/// The disk works again, and no exchange writes anything.
#[tokio::test]
async fn a_mended_store_is_healthy_without_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open(&path, LedgerSettings::default());
    // Another program that holds the file makes every write fail.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = ledger.commit(vec![insert(call(1), "x")], NOW).await;
    assert!(matches!(refused, Err(LedgerError::Store(_))), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    // A fault is told for a while, or nobody would see one that passes.
    let fault = check_health(&*ledger, secs(5)).await;
    assert_eq!(fault, Some(LedgerFault::WriteFailed));
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    pass(secs(6)).await;
    let fault = check_health(&*ledger, secs(5)).await;
    assert_eq!(fault, Some(LedgerFault::WriteFailed), "the trial fails too");
    other.execute_batch("ROLLBACK").unwrap();
    pass(secs(6)).await;
    assert_eq!(check_health(&*ledger, secs(5)).await, None);
    // A good store is not written to.
    let version = || -> i64 {
        let version = other.query_row("PRAGMA data_version", [], |row| row.get(0));
        version.unwrap()
    };
    let before = version();
    for _ in 0..3 {
        pass(secs(6)).await;
        assert_eq!(check_health(&*ledger, secs(5)).await, None);
    }
    assert_eq!(version(), before);
    ledger.commit(vec![insert(call(1), "x")], NOW).await.unwrap();
    assert_ne!(version(), before, "a commit shows");
}

/// Moves the clock of the runtime. The threads of the ledger have another.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// One log line when the ledger fails, and one when it works again. The gauge follows within ten seconds.
#[tokio::test(start_paused = true)]
async fn each_change_of_health_is_logged_once() {
    let (lines, _listening) = Lines::listen();
    let switched = SwitchableLedger::new();
    let telemetry = Telemetry::default();
    let gauge = || {
        let page = telemetry.encode_metrics();
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix("antiphon_ledger_healthy "));
        value.unwrap().to_owned()
    };
    assert_eq!(gauge(), "1");
    drop(spawn(watch_health(
        Arc::<SwitchableLedger>::clone(&switched),
        Some("/var/lib/ledger.db".to_owned()),
        telemetry.clone(),
    )));
    let wait = Duration::from_secs(16);
    for (fails, stalls) in [(true, false), (false, true)] {
        switched.fails.store(fails, Ordering::Relaxed);
        switched.stalls.store(stalls, Ordering::Relaxed);
        for _ in 0..5 {
            tokio::time::sleep(wait).await;
            assert_eq!(gauge(), "0");
        }
        switched.fails.store(false, Ordering::Relaxed);
        switched.stalls.store(false, Ordering::Relaxed);
        tokio::time::sleep(wait).await;
        assert_eq!(gauge(), "1");
    }
    let told = lines.text();
    for words in [
        "the ledger is degraded: its last write failed: check the disk",
        "the ledger is degraded: it does not answer in time: check the disk",
    ] {
        assert_eq!(told.matches(words).count(), 1, "{words}: {told}");
    }
    assert_eq!(told.matches("the ledger works again").count(), 2, "{told}");
    assert_eq!(told.lines().count(), 4, "{told}");
    assert_eq!(told.matches("\"ledger\":\"/var/lib/ledger.db\"").count(), 4, "{told}");
}

/// Each fault needs another action, so a change from one to another is told, once.
#[tokio::test(start_paused = true)]
async fn a_change_from_one_fault_to_another_is_logged_once() {
    let (lines, _listening) = Lines::listen();
    let switched = SwitchableLedger::new();
    drop(spawn(watch_health(
        Arc::<SwitchableLedger>::clone(&switched),
        None,
        Telemetry::default(),
    )));
    for stalls in [false, true, false] {
        switched.fails.store(!stalls, Ordering::Relaxed);
        switched.stalls.store(stalls, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let told: Vec<String> = lines.text().lines().map(ToOwned::to_owned).collect();
    let words = [
        "its last write failed",
        "it does not answer in time",
        "its last write failed",
    ];
    assert_eq!(told.len(), words.len(), "{told:#?}");
    for (line, words) in told.iter().zip(words) {
        assert!(
            line.contains("the ledger is degraded") && line.contains(words),
            "{line}"
        );
    }
}
