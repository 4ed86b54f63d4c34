//! Faults of the disk, made by `strace`: the n-th write, sync, rename or open fails, or every sync is slow.
//!
//! A fault loses no acknowledged record, and the store works again after it. Without `strace` these tests are skipped.
//!
//! `COMMITS=` sets the commits of each run, whose every call fails once. `SLOW_SECONDS=1200` writes for so long on slow
//! syncs.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    reason = "the sizes and the part of the child come from the environment"
)]

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::Path,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use antiphon::{
    ledger::{
        CommitOutcome, CommitStep, Ledger, LedgerError, LedgerFault, LedgerSettings, RecordKey, RecordKind,
        SqliteLedger, check_health,
    },
    telemetry::Telemetry,
    writer::writer,
};
use bytes::Bytes;

use super::{
    conformance::{NOW, SECRET, call, insert, key},
    crash::{check, twin, value},
};
use crate::support::wire::spawn;

const PATH: &str = "ANTIPHON_TEST_FAULTY_LEDGER";
const SLOW_PATH: &str = "ANTIPHON_TEST_SLOW_LEDGER";
const SLOW_SECONDS: &str = "SLOW_SECONDS";
const COMMITS: &str = "COMMITS";
/// The attempts of a child at one commit.
const ATTEMPTS: usize = 4;

/// Returns a number from the environment.
fn number_of(variable: &str, default: u64) -> u64 {
    let number = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    number.unwrap_or(default)
}

fn open(path: &str) -> Result<Arc<dyn Ledger>, String> {
    match SqliteLedger::open(Path::new(path), LedgerSettings::default(), SECRET) {
        Ok(ledger) => Ok(Arc::new(ledger)),
        Err(error) => Err(error.to_string()),
    }
}

/// Prints a whole line on the real stdout: `println!` would be captured by the test harness.
fn tell(words: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "said {words}").unwrap();
}

/// The child's part: commits records one after the other, and retries each that fails.
#[tokio::test]
async fn writes_while_the_disk_fails() {
    let Ok(path) = std::env::var(PATH) else { return };
    let opened = (0..ATTEMPTS).find_map(|_| open(&path).inspect_err(|error| tell(&format!("unopened {error}"))).ok());
    let ledger = opened.expect("a fault that is over prevents no open");
    for name in 0..number_of(COMMITS, 8) {
        let mut is_stored = false;
        for _ in 0..ATTEMPTS {
            let steps = vec![insert(call(name), value(name)), insert(twin(name), value(name))];
            match ledger.commit(steps, NOW).await {
                Ok(CommitOutcome::Done) => {
                    tell(&format!("done {name}"));
                    is_stored = true;
                }
                // An attempt that failed was applied all the same.
                Ok(CommitOutcome::Conflict(_)) => is_stored = true,
                Err(LedgerError::Store(error)) => {
                    tell(&format!("refused {error}"));
                    let fault = check_health(&*ledger, Duration::from_secs(60)).await;
                    // Nothing is written before the first check succeeds, which may be what failed.
                    assert!(
                        matches!(fault, Some(LedgerFault::WriteFailed | LedgerFault::Unchecked)),
                        "{fault:?}"
                    );
                }
                Err(error) => panic!("{error}"),
            }
            if is_stored {
                break;
            }
        }
        assert!(is_stored, "the store does not recover: {name}");
        assert_eq!(check_health(&*ledger, Duration::from_secs(60)).await, None);
    }
    // The drop moves the write-ahead log into the file.
    drop(ledger);
    tell("end 0");
}

pub(crate) fn has_strace() -> bool {
    let found = Command::new("strace").arg("-V").output();
    let is_found = found.is_ok_and(|out| out.status.success());
    if !is_found {
        println!("skipped: strace is not installed");
    }
    is_found
}

/// Runs a part of this binary under `strace`, whose own lines go to the file `calls`.
fn run_child(part: &str, variable: &str, path: &Path, calls: &Path, flags: &[&str]) -> Output {
    Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(calls)
        .args(flags)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("ledger::disk_faults::{part}"), "--nocapture"])
        .env(variable, path)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

/// Returns what the child has said, and shows all of its output if it has failed.
fn lines_of(out: &Output, told: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{told}: {text}\n{errors}");
    // The harness writes its own words in front of the first line.
    let said = text
        .lines()
        .filter_map(|line| Some(line.split_once("said ")?.1.to_owned()));
    let said: Vec<String> = said.collect();
    assert!(
        said.iter().any(|line| line.starts_with("end ")),
        "{told}: {text}\n{errors}"
    );
    said
}

/// Fails one call of the store's files after the other, and checks the store after each.
async fn fail_each(call: &str, error: &str) {
    if !has_strace() {
        return;
    }
    let mut nth = 1;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (path, calls) = (state.join("ledger.db"), folder.path().join("calls"));
        let traced = format!("trace={call}");
        let inject = format!("inject={call}:error={error}:when={nth}");
        let mut flags = vec!["-e".to_owned(), traced, "-e".to_owned(), inject];
        // Only the store's own files: the loader opens others.
        for ending in ["", "-wal", "-shm", "-journal", ".lock", ".new", ".new-journal"] {
            flags.extend(["-P".to_owned(), format!("{}{ending}", path.display())]);
        }
        flags.extend(["-P".to_owned(), state.display().to_string()]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let told = format!("{call} {nth} {error}");
        let out = run_child("writes_while_the_disk_fails", PATH, &path, &calls, &flags);
        let said = lines_of(&out, &told);
        let done: BTreeSet<u64> = said
            .iter()
            .filter_map(|line| line.strip_prefix("done ")?.parse().ok())
            .collect();
        check(&path, &done).await;
        if !std::fs::read_to_string(&calls).unwrap().contains("INJECTED") {
            break;
        }
        nth += 1;
    }
    println!("{call} {error}: {} faults, nothing lost", nth - 1);
    assert!(nth > 1, "no call failed: {call}");
}

#[tokio::test]
async fn no_failed_write_is_acknowledged() {
    fail_each("pwrite64", "EIO").await;
}

#[tokio::test]
async fn no_write_without_space_is_acknowledged() {
    fail_each("pwrite64", "ENOSPC").await;
}

#[tokio::test]
async fn no_failed_sync_is_acknowledged() {
    fail_each("fsync,fdatasync", "EIO").await;
}

#[tokio::test]
async fn a_failed_open_rename_or_cut_loses_nothing() {
    for (call, error) in [("openat", "EIO"), ("rename", "EIO"), ("ftruncate", "ENOSPC")] {
        fail_each(call, error).await;
    }
}

/// The child's part: queues 60 rows a second in the background, and prints what was lost and stored.
#[tokio::test]
async fn writes_behind_slow_syncs() {
    let Ok(path) = std::env::var(SLOW_PATH) else { return };
    let seconds = number_of(SLOW_SECONDS, 5);
    let ledger = open(&path).unwrap();
    let telemetry = Telemetry::default();
    let (writes, worker) = writer(Arc::clone(&ledger), telemetry.clone());
    drop(spawn(worker.run()));
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for tick in 0..seconds * 10 {
        ticks.tick().await;
        for row in tick * 6..(tick + 1) * 6 {
            let expires_at = antiphon::clock::unix_time() + Duration::from_secs(3600);
            writes.queue_write(CommitStep::insert_record(
                thinking(row),
                Bytes::from_static(b"x"),
                expires_at,
            ));
        }
    }
    writes.flush().await;
    let page = telemetry.encode_metrics();
    let lost = page
        .lines()
        .filter(|line| line.starts_with("antiphon_ledger_lost_total"));
    let lost: u64 = lost
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    tell(&format!("lost {lost}"));
    tell(&format!("stored {}", ledger.usage().await.unwrap().records));
    tell(&format!("end {}", seconds * 60));
}

fn thinking(row: u64) -> RecordKey {
    key(RecordKind::Thinking, 1, row)
}

#[tokio::test]
async fn slow_syncs_lose_no_background_write() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, calls) = (folder.path().join("ledger.db"), folder.path().join("calls"));
    let flags = [
        "-e",
        "trace=fsync,fdatasync",
        "-e",
        "inject=fsync,fdatasync:delay_exit=100000",
    ];
    let out = run_child("writes_behind_slow_syncs", SLOW_PATH, &path, &calls, &flags);
    let said = lines_of(&out, "slow syncs");
    let number = |word: &str| -> u64 {
        let found = said
            .iter()
            .find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
        found.unwrap()
    };
    let syncs = std::fs::read_to_string(&calls).unwrap().matches("DELAYED").count();
    println!("{said:?} with {syncs} syncs of 100 ms");
    assert!(syncs > 0, "no sync was delayed");
    assert_eq!((number("lost"), number("stored")), (0, number("end")));
    let ledger = open(path.to_str().unwrap()).unwrap();
    assert_eq!(ledger.usage().await.unwrap().records, number("end"));
}
