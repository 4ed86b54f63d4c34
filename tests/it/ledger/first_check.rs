//! The first check of a ledger, which runs while the proxy serves already.
//!
//! `strace` stops, slows or fails the reads of the check, and lets them go on when the test ends it. Without `strace`
//! these tests are skipped.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    reason = "the path of the child comes from the environment, and a process is timed from outside"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use antiphon::{
    ledger::{
        CommitOutcome, Ledger, LedgerError, LedgerFault, LedgerInspector, LedgerSettings, RecordKind, SqliteLedger,
        StoreInspector as _, check_health,
    },
    telemetry::{Telemetry, watch_health},
};
use serde_json::json;

use super::{
    conformance::{LATER, NOW, SECRET, call, done, get, insert},
    disk_faults::has_strace,
    health::readiness,
};
use crate::{
    late::stories::install,
    support::{
        app::{get_with, post_with},
        binary::Process,
        provider::{Provider, Reply},
        wire::{Client, spawn},
    },
};

const PATH: &str = "ANTIPHON_TEST_UNREADABLE_LEDGER";
/// Enough for some thousand pages: a start reads far fewer than a hundred, and the check all of them.
const RECORDS: u64 = 20_000;
const FEW: Duration = Duration::from_secs(60);

fn open(path: &Path) -> SqliteLedger {
    SqliteLedger::open(path, LedgerSettings::default(), SECRET).unwrap()
}

/// Creates a closed store with many records, which only the check reads.
async fn fill(path: &Path) {
    let ledger = open(path);
    done(&ledger, vec![insert(call(1), "first")], NOW).await;
    drop(ledger);
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {RECORDS} - 1) \
         INSERT INTO records (kind, principal, name, version, made_at, expires_at, checksum, value) \
         SELECT {}, zeroblob(32), CAST(printf('%032d', i) AS BLOB), 1, 0, {}, zeroblob(32), zeroblob(300) FROM n",
        RecordKind::Thinking as u8,
        LATER.as_nanos(),
    );
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch(&sql).unwrap();
}

/// Returns the flags of `strace` that inject this fault into reads of a store, from the hundredth of a thread on.
fn faulty_reads(path: &Path, fault: &str) -> Vec<String> {
    let path = fs::canonicalize(path).unwrap();
    let calls = path.with_extension("calls");
    let flags = [
        "-f",
        "-qq",
        "-o",
        calls.to_str().unwrap(),
        "-P",
        path.to_str().unwrap(),
        "-e",
        "trace=pread64",
        "-e",
    ];
    let mut flags: Vec<String> = flags.map(str::to_owned).to_vec();
    flags.push(format!("inject=pread64:{fault}:when=100+"));
    flags
}

/// Reads that do not return before [`end_fault`].
const STOPPED: &str = "delay_enter=3600s";

/// Ends the injected fault of a process: `strace` leaves it, and the reads that it has stopped go on.
fn end_fault(process: u32) {
    let tracer = || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        line.unwrap().trim().to_owned()
    };
    let strace = tracer();
    assert_ne!(strace, "0", "nothing is injected");
    // Another signal waits until the delay of a stopped read is over.
    let killed = Command::new("kill").args(["-KILL", &strace]).status();
    assert!(killed.unwrap().success());
    while tracer() == strace {
        std::thread::yield_now();
    }
}

/// Returns the number of records that the metrics show. `None` if they show none.
async fn shown_records(process: &Process) -> Option<u64> {
    let page = process.ask_admin(get_with("/metrics", &[])).await;
    assert_eq!(page.status(), 200);
    let mut lines = page.text().lines();
    let shown = lines.find_map(|line| line.strip_prefix("antiphon_ledger_records "))?;
    Some(shown.parse().unwrap())
}

async fn verbose_readiness(process: &Process) -> String {
    let answer = process.ask_admin(get_with("/readyz?verbose", &[])).await;
    assert_eq!(answer.status(), 200);
    answer.text().to_owned()
}

fn message(words: &str) -> Vec<u8> {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": words}]});
    post_with(
        "/anthropic/v1/messages",
        &[("x-api-key", "sk-ann")],
        body.to_string().as_bytes(),
    )
}

/// The check is stopped. Requests are answered, the size is unknown, and a posted result is acknowledged after it.
#[tokio::test]
async fn a_proxy_serves_while_its_ledger_is_checked() {
    if !has_strace() {
        return;
    }
    let provider = Provider::start().await;
    let install = install(&provider);
    fs::create_dir_all(install.ledger().parent().unwrap()).unwrap();
    fill(&install.ledger()).await;
    let mut process = install.start_traced(&faulty_reads(&install.ledger(), STOPPED)).await;
    provider.reply(Reply::Text("hello".to_owned()));
    assert_eq!(process.ask(message("hello")).await.status(), 200);
    assert_eq!(shown_records(&process).await, None);
    let text = verbose_readiness(&process).await;
    assert!(text.contains("[+]ledger ok\n"), "{text}");
    let mut service = Client::connect(process.data).await;
    let fields = [("authorization", "Bearer token of tools")];
    let path = "/ledger/v1/calls/toolu_01AaBb9dE3fG7hJ2/result";
    service.send(post_with(path, &fields, br#"{"content": "done"}"#)).await;
    provider.reply(Reply::Text("hello".to_owned()));
    assert_eq!(process.ask(message("hello again")).await.status(), 200);
    assert_eq!(shown_records(&process).await, None, "the check goes on");
    end_fault(process.id());
    let posted = service.response().await;
    assert_eq!(posted.status(), 202, "{}", posted.text());
    // Acknowledged after the check, so that the size is known.
    assert!(shown_records(&process).await.unwrap() > RECORDS);
    process.kill();
    install.start().await.stop().await;
    let parked = LedgerInspector::open(&install.ledger()).unwrap().kind_totals().unwrap();
    let parked = parked.iter().find(|total| total.kind == Some(RecordKind::Parked));
    assert_eq!(parked.map(|total| total.records), Some(1));
}

/// The check would take most of a minute, and a stop ends it.
#[tokio::test]
async fn a_stop_ends_the_check() {
    if !has_strace() {
        return;
    }
    let provider = Provider::start().await;
    let install = install(&provider);
    fs::create_dir_all(install.ledger().parent().unwrap()).unwrap();
    fill(&install.ledger()).await;
    let process = install
        .start_traced(&faulty_reads(&install.ledger(), "delay_enter=20000"))
        .await;
    assert_eq!(shown_records(&process).await, None);
    let began = Instant::now();
    let log = process.stop_with_log().await.join("\n");
    assert!(began.elapsed() < FEW, "{:?}", began.elapsed());
    assert!(log.contains("\"stopped\"") && !log.contains("timeout"), "{log}");
}

/// The child's part: a ledger whose reads fail until its parent ends that.
#[tokio::test]
async fn opens_a_ledger_that_cannot_be_read() {
    let Ok(path) = std::env::var(PATH) else { return };
    let ledger: Arc<dyn Ledger> = Arc::new(open(Path::new(&path)));
    let is_store_error = |error: LedgerError| matches!(error, LedgerError::Store(_));
    assert!(ledger.usage().await.is_err_and(is_store_error));
    assert_eq!(check_health(&*ledger, FEW).await, Some(LedgerFault::Unchecked));
    let (status, text) = readiness(&ledger).await;
    assert_eq!(status, 200);
    assert!(
        text.contains("[-]ledger degraded: its first check failed: check the disk\n"),
        "{text}"
    );
    assert!(
        ledger
            .commit(vec![insert(call(2), "x")], NOW)
            .await
            .is_err_and(is_store_error)
    );
    assert!(ledger.read(vec![call(1)], NOW).await.is_err_and(is_store_error));
    assert!(ledger.remove_expired(NOW).await.is_err_and(is_store_error));
    let telemetry = Telemetry::default();
    drop(spawn(watch_health(Arc::clone(&ledger), None, telemetry.clone())));
    while !telemetry.encode_metrics().contains("antiphon_ledger_healthy 0\n") {
        tokio::task::yield_now().await;
    }
    writeln!(std::io::stdout(), "said failing").unwrap();
    while ledger.usage().await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(check_health(&*ledger, FEW).await, None);
    assert_eq!(ledger.usage().await.unwrap().records, RECORDS);
    assert!(get(&*ledger, call(1), NOW).await.is_some());
    done(&*ledger, vec![insert(call(2), "x")], NOW).await;
    assert_eq!(ledger.usage().await.unwrap().records, RECORDS + 1);
    writeln!(std::io::stdout(), "said counted").unwrap();
}

#[tokio::test]
async fn a_check_that_fails_is_reported_and_repeated() {
    // Not EIO: SQLite calls a read that fails with it damage, after which a check is repeated in a minute.
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    fill(&path).await;
    let mut child = Command::new("strace")
        .arg("-D")
        .args(faulty_reads(&path, "error=ENOMEM"))
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "ledger::first_check::opens_a_ledger_that_cannot_be_read",
            "--nocapture",
        ])
        .env(PATH, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.ends_with("said failing") {
            end_fault(child.id());
        }
        said.push(line);
    }
    assert!(child.wait().unwrap().success(), "{said:#?}");
    assert!(said.iter().any(|line| line.ends_with("said counted")), "{said:#?}");
    assert_eq!(LedgerInspector::open(&path).unwrap().find_flaws().unwrap(), [""; 0]);
}

/// The index of keys does not contain a record. Whatever comes first, no request misses the record.
#[tokio::test]
async fn a_damaged_index_is_rebuilt_before_any_read_or_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    fill(&path).await;
    let other = rusqlite::Connection::open(&path).unwrap();
    let hidden: String = call(1).name.iter().map(|byte| format!("{byte:02x}")).collect();
    let sql = "CREATE UNIQUE INDEX by_key ON records (kind, principal, name)";
    // The schema does not show that the index leaves out a record.
    other
        .execute_batch(&format!(
            "DROP INDEX by_key; {sql} WHERE name <> x'{hidden}'; PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = '{sql}' WHERE name = 'by_key'; PRAGMA writable_schema = RESET"
        ))
        .unwrap();
    drop(other);
    assert_ne!(LedgerInspector::open(&path).unwrap().find_flaws().unwrap(), [""; 0]);
    let ledger = open(&path);
    let (outcome, read, usage) = tokio::join!(
        ledger.commit(vec![insert(call(1), "second")], NOW),
        ledger.read(vec![call(1)], NOW),
        ledger.usage(),
    );
    let first = read.unwrap().remove(0);
    assert_eq!(first.as_ref().map(|record| &record.value[..]), Some(&b"first"[..]));
    assert_eq!(outcome.unwrap(), CommitOutcome::Conflict(vec![first]));
    assert_eq!(usage.unwrap().records, RECORDS);
    drop(ledger);
    assert_eq!(LedgerInspector::open(&path).unwrap().find_flaws().unwrap(), [""; 0]);
}

/// The table itself is damaged, which no index can mend. Nothing is read or written.
#[tokio::test]
async fn a_damaged_table_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    fill(&path).await;
    let mut bytes = fs::read(&path).unwrap();
    // The leaves of tables. The first pages are the schema and the secret.
    let leaves = bytes.chunks_mut(4096).skip(2).filter(|page| page[0] == 0x0D);
    assert!(leaves.map(|page| page[0] = 0).count() > 100);
    fs::write(&path, bytes).unwrap();
    let ledger: Arc<dyn Ledger> = Arc::new(open(&path));
    let is_store_error = |error: LedgerError| matches!(error, LedgerError::Store(_));
    assert!(ledger.usage().await.is_err_and(is_store_error));
    for _ in 0..2 {
        assert!(
            ledger
                .commit(vec![insert(call(2), "x")], NOW)
                .await
                .is_err_and(is_store_error)
        );
        assert!(ledger.read(vec![call(1)], NOW).await.is_err_and(is_store_error));
    }
    assert_eq!(check_health(&*ledger, FEW).await, Some(LedgerFault::Damaged));
    let (_, text) = readiness(&ledger).await;
    assert!(
        text.contains("[-]ledger degraded: its file is damaged: restore a copy of it"),
        "{text}"
    );
}
