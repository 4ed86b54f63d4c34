//! `antiphon store ls | verify | gc | copy` through the built binary: output and exit codes.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use antiphon::{
    late::records::{ParkedResult, PostRefusal, PostedResult, RecordedCall, RecordedCallState, RefusedResult},
    ledger::{CommitStep, LedgerSettings, RecordKey, RecordKind, SqliteLedger},
    repair::Tier,
    session::SessionStrength,
    table::RecordValue,
};
use bytes::Bytes;
use serde_json::Value;

use crate::ledger::conformance::{SECRET, call, done, key};

fn store(action: &str, path: &Path, rest: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["store", action, "--path"])
        .arg(path)
        .args(rest)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs `antiphon store copy` from one file into another.
fn copy(from: &Path, to: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .args(["store", "copy", "--from"])
        .arg(from)
        .arg("--to")
        .arg(to)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a time some minutes ago.
fn then() -> Duration {
    now().checked_sub(Duration::from_secs(500)).unwrap()
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

async fn filled(path: &Path) -> SqliteLedger {
    let ledger = SqliteLedger::open(path, LedgerSettings::default(), SECRET).unwrap();
    let put = |key: RecordKey, lives: u64| CommitStep::Insert {
        key,
        index: None,
        value: Bytes::from_static(b"secret words"),
        expires_at: then() + Duration::from_secs(lives),
    };
    let steps = vec![
        put(call(1), 5000),
        put(key(RecordKind::PinnedResult, 2, 2), 100),
        put(call(3), 900_000),
    ];
    done(&ledger, steps, then()).await;
    ledger
}

#[tokio::test]
async fn a_store_can_be_listed_while_a_proxy_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = filled(&path).await;
    let (code, out, err) = text(&store("ls", &path, &[]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = out.lines().collect();
    // The values are no calls, so that nothing in them can be read.
    assert_eq!(
        lines,
        [
            "KIND    STATE  CALL  TOOL  CALLER    SESSION  AGE    SIZE  EXPIRES",
            "call    -      -     -     01010101  -        8 min  12 B  in 74 min",
            "frozen  -      -     -     02020202  -        8 min  12 B  expired",
            "call    -      -     -     01010101  -        8 min  12 B  in 10 d",
            "total: call: 2 records, 24 bytes",
            "total: frozen: 1 record, 12 bytes",
        ],
        "{out}"
    );
    let verbose = text(&store("ls", &path, &["--verbose"])).1;
    assert!(
        verbose.lines().nth(3).unwrap().ends_with("  in 10 d    3    00000000"),
        "{verbose}"
    );
    assert!(!out.contains("secret words"));
    let listed = json(&store("ls", &path, &["--output", "json"]));
    assert_eq!(listed["records"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&listed["records"][1]["kind"], &listed["totals"]["call"]["bytes"]),
        (&"frozen".into(), &24.into())
    );
    assert_eq!(
        text(&store("verify", &path, &[])),
        (Some(0), "3 records: all of them sound\n".to_owned(), String::new())
    );
    let (code, out, err) = text(&store("gc", &path, &[]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("is in use by another process"), "{err}");
    drop(ledger);
    assert_eq!(
        text(&store("gc", &path, &[])),
        (Some(0), "cleared 1 record, 2 records left\n".to_owned(), String::new())
    );
    assert_eq!(
        json(&store("gc", &path, &["--output", "json"])),
        serde_json::json!({"version": 1, "cleared": 0, "left": 2})
    );
}

/// Returns a posted result whose content must not be shown.
fn posted() -> PostedResult {
    PostedResult::new("\"secret words\"".to_owned(), false, "renderer", then())
}

fn recorded(posted: Option<PostedResult>) -> RecordedCall {
    RecordedCall {
        account: [1; 32],
        lane: None,
        session: None,
        session_label: Some("my-session".into()),
        strength: SessionStrength::Strong,
        id: b"toolu_01A\x1b[31m".to_vec(),
        tool: b"render".to_vec(),
        input: None,
        tier: Tier::OneWay,
        opened_at: then(),
        heartbeat_at: then(),
        deadline: now(),
        expires_at: now(),
        state: RecordedCallState::Settled,
        posted,
        is_emitted: true,
        has_twin: false,
        is_withheld: false,
        is_in_request: false,
        intent_input: None,
        intent: None,
        origin: None,
    }
}

/// Creates a store with a call, its result, and results without a call.
async fn with_results(path: &Path) -> SqliteLedger {
    let ledger = SqliteLedger::open(path, LedgerSettings::default(), SECRET).unwrap();
    let parked = ParkedResult {
        call_id: b"call_1".to_vec(),
        owner: None,
        session: Some(b"another".to_vec()),
        described: None,
        posted: posted(),
    };
    let refused = RefusedResult {
        call_id: b"call_2".to_vec(),
        reason: PostRefusal::Ambiguous,
        posted: posted(),
    };
    let rows = [
        (key(RecordKind::Call, 1, 1), recorded(Some(posted())).encode()),
        (key(RecordKind::Delivery, 1, 1), Bytes::from_static(&[1, 4])),
        (
            key(RecordKind::ResultContent, 1, 1),
            Bytes::from_static(b"secret words"),
        ),
        (key(RecordKind::Delivery, 1, 9), Bytes::from_static(&[1, 5])),
        (key(RecordKind::Parked, 2, 2), parked.encode()),
        (key(RecordKind::RefusedResult, 3, 3), refused.encode()),
    ];
    let insert =
        |(key, value): (RecordKey, Bytes)| CommitStep::insert_record(key, value, now() + Duration::from_secs(9000));
    done(&ledger, rows.map(insert).to_vec(), then()).await;
    ledger
}

#[tokio::test]
async fn calls_and_results_are_readable_and_come_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let _ledger = with_results(&path).await;
    let (code, out, _) = text(&store("ls", &path, &[]));
    assert_eq!(code, Some(0));
    assert!(!out.contains("secret words") && !out.contains("next:"), "{out}");
    let cells = |out: &str| -> Vec<Vec<String>> {
        let lines = out.lines().skip(1).take_while(|line| !line.starts_with("total:"));
        lines
            .map(|line| line.split_whitespace().take(6).map(str::to_owned).collect())
            .collect()
    };
    let call = ["toolu_01A\\u{1b}[31m", "render", "01010101", "my-session"];
    let of_call = |kind, state| [&[kind, state][..], &call].concat();
    assert_eq!(
        cells(&out),
        [
            of_call("call", "settled"),
            of_call("delivery", "waiting"),
            of_call("content", "-"),
            vec!["delivery", "received", "-", "-", "01010101", "-"],
            vec!["parked", "parked", "call_1", "-", "(renderer)", "another"],
            vec!["evidence", "ambiguous", "call_2", "-", "03030303", "-"],
        ]
    );
    // Pages: the cursor is printed until the last one, and the totals are those of the whole store.
    let (mut paged, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let (_, page, _) = text(&store("ls", &path, &["--limit", "4", "--after", &after]));
        assert!(page.contains("total: delivery: 2 records, 4 bytes"), "{page}");
        paged.extend(cells(&page));
        let Some(next) = page.lines().find_map(|line| line.strip_prefix("next: --after ")) else {
            break;
        };
        assert_eq!(next, "4");
        after = next.to_owned();
    }
    assert_eq!(paged, cells(&out));
    let listed = json(&store(
        "ls",
        &path,
        &["--output", "json", "--kind", "delivery", "--limit", "1"],
    ));
    let row = &listed["records"][0];
    assert_eq!(
        (&row["state"], &row["tool"], &row["service"], &listed["next"]),
        (&"waiting".into(), &"render".into(), &"renderer".into(), &2.into())
    );
    for wrong in [["--limit", "0"], ["--after", "-1"], ["--kind", "result"]] {
        assert_eq!(store("ls", &path, &wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[tokio::test]
async fn damaged_records_are_named_and_removed_by_gc() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    drop(filled(&path).await);
    let mut bytes = fs::read(&path).unwrap();
    // SQLite fills a page from its end: the first match is the record that was inserted last.
    let at = bytes.windows(12).position(|window| window == b"secret words").unwrap();
    bytes[at + 3] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    let (code, out, _) = text(&store("verify", &path, &[]));
    assert_eq!(
        (code, out.as_str()),
        (Some(1), "damaged: row 3: call 00000000\n3 records: 1 finding\n")
    );
    let report = json(&store("verify", &path, &["--output", "json"]));
    assert_eq!(
        (&report["damaged"][0]["row"], &report["flaws"]),
        (&3.into(), &serde_json::json!([]))
    );
    let (code, out, _) = text(&store("ls", &path, &[]));
    assert!(code == Some(0) && out.contains("\ndamaged "), "{out}");
    assert_eq!(text(&store("gc", &path, &[])).1, "cleared 2 records, 1 record left\n");
    assert_eq!(store("verify", &path, &[]).status.code(), Some(0));
}

/// SQLite would replay the log of an earlier file into the copy.
#[tokio::test]
async fn a_copy_is_refused_beside_a_log_that_another_file_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    drop(filled(&at("ledger.db")).await);
    // Its log is only complete while the file is open.
    let earlier = with_results(&at("earlier.db")).await;
    fs::copy(at("earlier.db-wal"), at("copy.db-wal")).unwrap();
    drop(earlier);
    let log = fs::read(at("copy.db-wal")).unwrap();
    assert!(!log.is_empty());
    let (code, out, err) = text(&copy(&at("ledger.db"), &at("copy.db")));
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(
        err.contains("there is ") && err.contains("copy.db-wal without it"),
        "{err}"
    );
    assert_eq!(fs::read(at("copy.db-wal")).unwrap(), log);
    assert!(!at("copy.db").exists() && !at("copy.db.copy").exists());
    fs::remove_file(at("copy.db-wal")).unwrap();
    let (code, out, err) = text(&copy(&at("ledger.db"), &at("copy.db")));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(
        text(&store("verify", &at("copy.db"), &[])).1,
        "3 records: all of them sound\n"
    );
}

/// The index of a log says nothing without the log, and an empty log has nothing to replay.
#[tokio::test]
async fn a_copy_beside_an_empty_log_and_an_old_index_is_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    drop(filled(&at("ledger.db")).await);
    let earlier = with_results(&at("earlier.db")).await;
    fs::copy(at("earlier.db-shm"), at("copy.db-shm")).unwrap();
    drop(earlier);
    fs::write(at("copy.db-wal"), "").unwrap();
    let (code, _, err) = text(&copy(&at("ledger.db"), &at("copy.db")));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for name in ["ledger.db", "copy.db"] {
        assert_eq!(
            text(&store("verify", &at(name), &[])).1,
            "3 records: all of them sound\n"
        );
        assert_eq!(
            text(&store("gc", &at(name), &[])).1,
            "cleared 1 record, 2 records left\n"
        );
    }
}

#[test]
fn without_a_usable_store_it_exits_with_2_and_creates_none() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, other) = (
        folder.path().join("state/antiphon/ledger.db"),
        folder.path().join("other"),
    );
    fs::write(&other, "words").unwrap();
    for action in ["ls", "verify", "gc"] {
        let (code, out, err) = text(&store(action, &missing, &[]));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{action}: {err}");
        assert!(err.contains("ledger.db does not exist"), "{err}");
        let (code, _, err) = text(&store(action, &other, &[]));
        assert_eq!(code, Some(2), "{action}");
        assert!(err.contains("is not an Antiphon ledger"), "{err}");
        let home = Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .args(["store", action])
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .env("HOME", folder.path().join("state"))
            .output()
            .unwrap();
        assert!(text(&home).2.contains("antiphon/ledger.db does not exist"), "{home:?}");
    }
    assert!(!missing.parent().unwrap().exists());
    assert_eq!(fs::read_to_string(&other).unwrap(), "words");
}
