//! `antiphon store ls | verify | gc` through the built binary: output and exit codes.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use antiphon::ledger::{CommitStep, LedgerSettings, RecordKey, RecordKind, SqliteLedger};
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
        put(key(RecordKind::PinnedAnswer, 2, 2), 100),
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
    assert_eq!(lines.len(), 5, "{out}");
    assert!(
        lines[0].starts_with("call      01010101 00000000        12 bytes, 8 min old, expires in "),
        "{out}"
    );
    assert!(
        lines[1].starts_with("frozen    02020202 ") && lines[1].ends_with(", expired"),
        "{out}"
    );
    assert!(lines[2].ends_with("expires in 10 d"), "{out}");
    assert_eq!(
        lines[3..],
        ["total: call: 2 records, 24 bytes", "total: frozen: 1 record, 12 bytes"]
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
        serde_json::json!({"cleared": 0, "left": 2})
    );
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
    assert!(code == Some(0) && out.contains("total: damaged: 1 record"), "{out}");
    assert_eq!(text(&store("gc", &path, &[])).1, "cleared 2 records, 1 record left\n");
    assert_eq!(store("verify", &path, &[]).status.code(), Some(0));
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
