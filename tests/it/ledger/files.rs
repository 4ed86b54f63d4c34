//! The ledger file: restarts, foreign files, permissions and damage.
//!
//! `FLIPS=` sets the number of flipped bits, `SEED=<n>` replays another run, `SEED=random` takes a new one.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of flips comes from the environment"
)]

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use antiphon::ledger::{
    CommitOutcome, CommitStep, InspectedRow, Ledger, LedgerError, LedgerFault, LedgerInspector, LedgerOpenError,
    LedgerSettings, Record, RecordKey, RecordKind, SqliteLedger, StoreInspector as _, TimedCommit,
};
use bytes::Bytes;

use crate::{
    ledger::conformance::{LATER, NOW, SECRET, call, done, get, insert, key},
    support::{bodies::Rng, seed::seed},
};

fn open(path: &Path) -> Result<SqliteLedger, LedgerOpenError> {
    SqliteLedger::open(path, LedgerSettings::default(), SECRET)
}

fn entries(path: &Path) -> Result<Vec<InspectedRow>, LedgerError> {
    let mut entries = Vec::new();
    LedgerInspector::open(path).unwrap().for_each_row(None, |entry, _| {
        entries.push(entry);
        Ok::<_, LedgerError>(ControlFlow::Continue(()))
    })?;
    Ok(entries)
}

/// Creates a store with one record and closes it.
async fn closed(path: &Path) {
    let ledger = open(path).unwrap();
    done(&ledger, vec![insert(call(1), "needle in the file")], NOW).await;
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/ledger.db");
    let ledger = open(&path).unwrap();
    for name in [5, 3, 9] {
        done(&ledger, vec![insert(call(name), "x")], NOW).await;
    }
    done(
        &ledger,
        vec![CommitStep::Remove {
            key: call(9),
            version: 1,
        }],
        NOW,
    )
    .await;
    let (kept, usage) = (
        ledger.list_records(RecordKind::Call, [1; 32], 9, NOW).await.unwrap(),
        ledger.usage().await.unwrap(),
    );
    assert!(ledger.survives_restart());
    drop(ledger);
    assert!(
        !path.with_extension("db-wal").exists(),
        "the log is moved into the file"
    );
    let ledger = SqliteLedger::open(&path, LedgerSettings::default(), [9; 32]).unwrap();
    assert_eq!(ledger.secret(), SECRET, "a secret is for a new file alone");
    assert_eq!(
        ledger.list_records(RecordKind::Call, [1; 32], 9, NOW).await.unwrap(),
        kept
    );
    assert_eq!(ledger.usage().await.unwrap(), usage);
    done(&ledger, vec![insert(call(1), "later")], NOW).await;
    let order: Vec<RecordKey> = ledger
        .list_records(RecordKind::Call, [1; 32], 9, NOW)
        .await
        .unwrap()
        .iter()
        .map(|record| record.key)
        .collect();
    assert_eq!(order, [call(5), call(3), call(1)]);
}

#[tokio::test]
async fn dropping_the_ledger_finishes_queued_commits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open(&path).unwrap();
    for name in 0..50 {
        let mut reply = ledger.commit(vec![insert(call(name), "asked")], NOW);
        drop(futures_util::poll!(&mut reply));
    }
    drop(ledger);
    assert_eq!(entries(&path).unwrap().len(), 50);
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_only_by_their_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("made/ledger.db");
    closed(&path).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let ledger = open(&path).unwrap();
    done(&ledger, vec![insert(call(2), "x")], NOW).await;
    for ending in ["db", "db-wal", "db-shm", "db.lock"] {
        assert_eq!(mode(&path.with_extension(ending)), 0o600, "{ending}");
    }
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(folder.path()), 0o755, "a folder that was there is left alone");
}

#[tokio::test]
async fn a_file_can_be_opened_by_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open(&path).unwrap();
    assert!(matches!(open(&path), Err(LedgerOpenError::InUse { .. })));
    #[cfg(unix)]
    {
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(
            matches!(open(&link), Err(LedgerOpenError::InUse { .. })),
            "by whichever name"
        );
    }
    done(&ledger, vec![insert(call(1), "x")], NOW).await;
    assert_eq!(entries(&path).unwrap().len(), 1, "others may look");
    drop(ledger);
    open(&path).unwrap();
}

/// Writes a SQLite file as another program would.
fn other(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// A commit that the store refuses fails no other of its request. A store that refuses all of them is not tried for
/// each.
#[tokio::test]
async fn one_bad_commit_fails_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open(&path).unwrap();
    let refuse = |condition: &str| {
        let body = "BEGIN SELECT RAISE(ABORT, 'refused'); END";
        format!("DROP TRIGGER IF EXISTS bad; CREATE TRIGGER bad BEFORE INSERT ON records WHEN {condition} {body}")
    };
    other(&path, &refuse("NEW.kind = 9"));
    let commits = |kind: fn(u64) -> RecordKind| {
        let commit = |name| TimedCommit {
            steps: vec![insert(key(kind(name), 1, name), "x")],
            now: NOW,
        };
        (0..500).map(commit).collect::<Vec<_>>()
    };
    let is_bad = |name: u64| name % 171 == 5;
    let some_bad = commits(|name| {
        if name % 171 == 5 {
            RecordKind::Continuity
        } else {
            RecordKind::Thinking
        }
    });
    let results = ledger.commit_each(some_bad).await.unwrap();
    for (name, result) in (0..).zip(&results) {
        match result {
            Ok(outcome) => assert!(!is_bad(name) && *outcome == CommitOutcome::Done, "{name}"),
            Err(error) => assert!(is_bad(name) && error.label() == "store", "{name}: {error}"),
        }
    }
    assert_eq!((results.len(), ledger.usage().await.unwrap().records), (500, 497));
    assert_eq!(ledger.find_fault().await.unwrap(), Some(LedgerFault::WriteFailed));
    other(&path, &refuse("true"));
    let results = ledger.commit_each(commits(|_| RecordKind::Call)).await.unwrap();
    assert!(results.len() == 500 && results.iter().all(Result::is_err));
    other(&path, "DROP TRIGGER bad");
    let results = ledger.commit_each(commits(|_| RecordKind::Call)).await.unwrap();
    assert!(results.iter().all(|result| matches!(result, Ok(CommitOutcome::Done))));
    assert_eq!(ledger.find_fault().await.unwrap(), None);
}

/// Name, a change to the files of a closed store, and the expected error.
type Odd = (&'static str, fn(&Path), &'static str);

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

const ODD: &[Odd] = &[
    (
        "text",
        |path| fs::write(path, "to do: nothing\n".repeat(99)).unwrap(),
        "foreign",
    ),
    ("one byte", |path| fs::write(path, "S").unwrap(), "foreign"),
    (
        "only the magic",
        |path| rewrite(path, |bytes| bytes.truncate(16)),
        "foreign",
    ),
    ("only zeros", |path| rewrite(path, |bytes| bytes.fill(0)), "foreign"),
    (
        "a header of zeros",
        |path| rewrite(path, |bytes| bytes[..100].fill(0)),
        "foreign",
    ),
    ("garbage", |path| rewrite(path, |bytes| bytes.fill(0xA5)), "foreign"),
    (
        "garbage after the header",
        |path| rewrite(path, |bytes| bytes[100..].fill(0xA5)),
        "damaged",
    ),
    (
        "zeros after the header",
        |path| rewrite(path, |bytes| bytes[100..].fill(0)),
        "damaged",
    ),
    (
        "half of it",
        |path| rewrite(path, |bytes| bytes.truncate(bytes.len() / 2)),
        "damaged",
    ),
    (
        "a page less",
        |path| rewrite(path, |bytes| bytes.truncate(bytes.len() - 4096)),
        "damaged",
    ),
    (
        "the first page alone",
        |path| rewrite(path, |bytes| bytes.truncate(4096)),
        "damaged",
    ),
    (
        "a torn page",
        |path| rewrite(path, |bytes| bytes.truncate(5000)),
        "damaged",
    ),
    (
        "another program's",
        |path| {
            fs::remove_file(path).unwrap();
            other(
                path,
                "CREATE TABLE notes (id); PRAGMA application_id = 7; PRAGMA user_version = 1",
            );
        },
        "foreign",
    ),
    (
        "a program's without a name",
        |path| {
            fs::remove_file(path).unwrap();
            other(path, "CREATE TABLE records (id)");
        },
        "foreign",
    ),
    (
        "a later version's",
        |path| other(path, "PRAGMA user_version = 2"),
        "version",
    ),
    (
        "of no version",
        |path| other(path, "PRAGMA user_version = 0"),
        "foreign",
    ),
    (
        "with a table more",
        |path| other(path, "CREATE TABLE more (id)"),
        "damaged",
    ),
    ("without an index", |path| other(path, "DROP INDEX by_key"), "damaged"),
    ("without a secret", |path| other(path, "DELETE FROM meta"), "damaged"),
    (
        "with another secret",
        |path| other(path, "UPDATE meta SET secret = zeroblob(32)"),
        "damaged",
    ),
    (
        "a log without its store",
        |path| {
            fs::rename(path, path.with_extension("db-wal")).unwrap();
        },
        "damaged",
    ),
    (
        "a folder",
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        "foreign",
    ),
    (
        "a link to nothing",
        |path| {
            fs::remove_file(path).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink("/nowhere/at/all", path).unwrap();
        },
        "unusable",
    ),
];

/// Returns every file of a folder except lock files, with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_none_or(|ending| ending != "lock"))
        .map(|path| (path.clone(), fs::read(path).ok()))
        .collect()
}

#[tokio::test]
async fn unusable_files_are_refused_and_left_unchanged() {
    assert!(ODD.len() >= 20);
    for (name, change, wanted) in ODD {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        closed(&path).await;
        fs::remove_file(path.with_extension("db.lock")).unwrap();
        change(&path);
        let before = contents(folder.path());
        let error = open(&path).unwrap_err();
        let found = match &error {
            LedgerOpenError::InUse { .. } => "in use",
            LedgerOpenError::Foreign { .. } => "foreign",
            LedgerOpenError::Version { .. } => "version",
            LedgerOpenError::Unusable { .. } => "unusable",
            LedgerOpenError::Damaged { .. } => "damaged",
        };
        assert_eq!(found, *wanted, "{name}: {error}");
        let mut after = contents(folder.path());
        // SQLite may leave its empty log beside the ledger file.
        after.retain(|file, bytes| before.contains_key(file) || bytes.as_ref().is_none_or(|bytes| !bytes.is_empty()));
        after.remove(&path.with_extension("db-shm"));
        assert!(after == before, "{name}: something was written");
        assert!(open(&path).is_err(), "{name}: not the second time either");
        LedgerInspector::open(&path).unwrap_err();
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    fs::write(&path, "").unwrap();
    fs::write(path.with_extension("db.new"), "left behind by a crash").unwrap();
    closed(&path).await;
    assert_eq!(entries(&path).unwrap().len(), 1);
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [
        file.join("ledger.db"),
        PathBuf::from("/proc/no/ledger.db"),
        PathBuf::from("/"),
    ] {
        let error = open(&path).unwrap_err();
        assert!(
            !matches!(error, LedgerOpenError::InUse { .. } | LedgerOpenError::Version { .. }),
            "{error}"
        );
    }
}

/// A ledger whose disk stalls can be dropped. Its threads keep the file locked until they have finished.
#[tokio::test]
async fn a_stalled_disk_does_not_delay_the_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open(&path).unwrap();
    // Each commit waits half a second for this transaction.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for name in 0..60 {
        let mut reply = ledger.commit(vec![insert(call(name), "x")], NOW);
        drop(futures_util::poll!(&mut reply));
    }
    drop(ledger);
    assert!(matches!(open(&path), Err(LedgerOpenError::InUse { .. })));
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let open_again = async {
        while matches!(open(&path), Err(LedgerOpenError::InUse { .. })) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), open_again).await.unwrap();
    assert!(
        get(&open(&path).unwrap(), call(59), NOW).await.is_some(),
        "they did what they could"
    );
}

#[tokio::test]
async fn a_damaged_record_counts_as_absent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    closed(&path).await;
    let needle = b"needle";
    let damage = || {
        rewrite(&path, |bytes| {
            let at = bytes.windows(6).position(|window| window == needle).unwrap();
            bytes[at] ^= 1;
        });
    };
    damage();
    let found = entries(&path).unwrap();
    assert!(
        !found[0].is_sound && found[0].kind == Some(RecordKind::Call),
        "{found:?}"
    );
    let ledger = open(&path).unwrap();
    assert_eq!(get(&ledger, call(1), NOW).await, None);
    assert_eq!(
        ledger.list_records(RecordKind::Call, [1; 32], 9, NOW).await.unwrap(),
        []
    );
    let outcome = ledger
        .commit(
            vec![CommitStep::Remove {
                key: call(1),
                version: 1,
            }],
            NOW,
        )
        .await
        .unwrap();
    assert_eq!(outcome, CommitOutcome::Conflict(vec![None]));
    done(&ledger, vec![insert(call(1), "needle again")], NOW).await;
    assert_eq!(get(&ledger, call(1), NOW).await.unwrap().version, 1);
    assert_eq!(ledger.usage().await.unwrap().records, 1);
    drop(ledger);
    damage();
    let ledger = open(&path).unwrap();
    assert_eq!(ledger.remove_unusable(NOW).await.unwrap(), 1);
    assert_eq!(ledger.usage().await.unwrap().bytes, 0);
}

/// Damaged records stay visible until `remove_unusable`, even after their expiry.
#[tokio::test]
async fn damaged_records_stay_until_they_are_removed_explicitly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open(&path).unwrap();
    for name in 0..200 {
        let value = if name % 50 == 0 { "needle" } else { "hay" };
        done(&ledger, vec![insert(call(name), value)], NOW).await;
    }
    let lives = CommitStep::Insert {
        key: call(500),
        index: None,
        value: Bytes::from_static(b"lives"),
        expires_at: LATER * 2,
    };
    done(&ledger, vec![lives], NOW).await;
    drop(ledger);
    rewrite(&path, |bytes| {
        let found = |at: &usize| bytes[*at..].starts_with(b"needle");
        let needles: Vec<usize> = (0..bytes.len()).filter(found).collect();
        assert_eq!(needles.len(), 4);
        for at in needles {
            bytes[at] ^= 1;
        }
    });
    let ledger = open(&path).unwrap();
    assert_eq!(ledger.remove_expired(NOW).await.unwrap(), 0);
    assert_eq!(ledger.remove_expired(LATER).await.unwrap(), 196);
    assert_eq!(ledger.remove_expired(LATER).await.unwrap(), 0);
    assert_eq!(ledger.usage().await.unwrap().records, 5);
    assert!(get(&ledger, call(500), LATER).await.is_some());
    let damaged = entries(&path).unwrap().iter().filter(|entry| !entry.is_sound).count();
    assert_eq!(damaged, 4);
    assert_eq!(ledger.remove_unusable(LATER).await.unwrap(), 4);
    assert!(get(&ledger, call(500), LATER).await.is_some());
}

#[tokio::test]
async fn damaged_indexes_are_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let (keys, _) = filled(&path).await;
    let whole = fs::read(&path).unwrap();
    // The name is in the row and in one index. The test damages each in turn.
    let places: Vec<usize> = (0..whole.len() - 32)
        .filter(|at| whole[*at..*at + 32] == keys[8].name)
        .collect();
    assert_eq!(places.len(), 2);
    let mut left = Vec::new();
    for at in places {
        rewrite(&path, |bytes| {
            bytes.clone_from(&whole);
            bytes[at] ^= 0x80;
        });
        assert_ne!(LedgerInspector::open(&path).unwrap().find_flaws().unwrap(), [""; 0]);
        let ledger = open(&path).unwrap();
        let there = get(&ledger, keys[8], NOW).await.is_some();
        left.push(there);
        assert_eq!(ledger.remove_unusable(NOW).await.unwrap(), u64::from(!there));
        drop(ledger);
        assert_eq!(LedgerInspector::open(&path).unwrap().find_flaws().unwrap(), [""; 0]);
    }
    left.sort_unstable();
    assert_eq!(left, [false, true], "an index costs nothing, a row itself");
}

/// Every value that was ever written under each key.
type Written = BTreeMap<([u8; 32], u8, [u8; 32]), Vec<Bytes>>;

fn place(key: &RecordKey) -> ([u8; 32], u8, [u8; 32]) {
    (key.principal, key.kind as u8, key.name)
}

async fn filled(path: &Path) -> (Vec<RecordKey>, Written) {
    let ledger = open(path).unwrap();
    let (mut keys, mut written) = (Vec::new(), Written::new());
    for name in 0..24_u64 {
        let key = key(
            RecordKind::ALL[usize::try_from(name % 3).unwrap()],
            u8::try_from(name % 2).unwrap(),
            name,
        );
        let length = [0, 5, 300, 6000][usize::try_from(name % 4).unwrap()];
        let values = [
            Bytes::from(vec![u8::try_from(name).unwrap(); length]),
            Bytes::from(format!("second {name}")),
        ];
        let put = CommitStep::Insert {
            key,
            index: Some([3; 16]),
            value: values[0].clone(),
            expires_at: LATER,
        };
        done(&ledger, vec![put], NOW).await;
        if name % 5 == 0 {
            let value = values[1].clone();
            done(
                &ledger,
                vec![CommitStep::Replace {
                    key,
                    version: 1,
                    value,
                    expires_at: LATER,
                }],
                NOW,
            )
            .await;
        }
        keys.push(key);
        written.insert(place(&key), values.to_vec());
    }
    (keys, written)
}

/// Reads everything by every method and asserts that each returned value was written under its key.
async fn judge(ledger: &SqliteLedger, keys: &[RecordKey], written: &mut Written, told: &str) {
    let right = |record: &Record, written: &Written| {
        let values = written.get(&place(&record.key));
        assert!(
            values.is_some_and(|values| values.contains(&record.value)),
            "{told}: {record:?}"
        );
    };
    for key in keys {
        if let Ok(found) = ledger.read(vec![*key], NOW).await {
            for record in found.iter().flatten() {
                assert_eq!(record.key, *key, "{told}");
                right(record, written);
            }
        }
        if let Ok(found) = ledger.list_records(key.kind, key.principal, 99, NOW).await {
            for record in &found {
                assert_eq!(
                    (record.key.kind, record.key.principal),
                    (key.kind, key.principal),
                    "{told}"
                );
                right(record, written);
            }
        }
    }
    for kind in RecordKind::ALL {
        for record in ledger.find_by_index(kind, [3; 16], 99, NOW).await.iter().flatten() {
            right(record, written);
        }
    }
    for key in keys {
        match ledger.commit(vec![insert(*key, "anew")], NOW).await {
            Ok(CommitOutcome::Done) => {
                written.get_mut(&place(key)).unwrap().push(Bytes::from_static(b"anew"));
                let read = ledger.read(vec![*key], NOW).await.unwrap();
                assert!(
                    read[0].as_ref().is_some_and(|record| record.value == "anew"),
                    "{told}: {key:?}"
                );
            }
            Ok(CommitOutcome::Conflict(standing)) => right(standing[0].as_ref().unwrap(), written),
            Err(error) => assert!(matches!(error, LedgerError::Store(_)), "{told}: {error}"),
        }
    }
    drop(ledger.remove_expired(LATER).await);
    drop(ledger.remove_unusable(NOW).await);
}

#[tokio::test]
async fn a_flipped_bit_never_returns_a_wrong_record() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = seed();
    println!("SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.db");
    let (keys, written) = filled(&path).await;
    let whole = fs::read(&path).unwrap();
    let (mut rng, mut refused, mut found) = (Rng::new(seed), 0, 0);
    let flips = number("FLIPS").unwrap_or(1000);
    for flip in 0..flips {
        let mut bytes = whole.clone();
        let (at, bit) = (rng.below(bytes.len()), rng.below(8));
        bytes[at] ^= 1 << bit;
        let path = folder.path().join(format!("{flip}.db"));
        fs::write(&path, bytes).unwrap();
        let told = format!("SEED={seed} flip {flip}: byte {at}, bit {bit}");
        match open(&path) {
            Ok(ledger) => {
                let damaged = entries(&path).is_ok_and(|entries| entries.iter().all(|entry| entry.is_sound));
                let flaws = LedgerInspector::open(&path)
                    .unwrap()
                    .find_flaws()
                    .is_ok_and(|flaws| flaws.is_empty());
                found += u64::from(!damaged || !flaws);
                judge(&ledger, &keys, &mut written.clone(), &told).await;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
        for entry in fs::read_dir(folder.path()).unwrap().flatten() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    println!(
        "{flips} flips over {} bytes: {refused} refused, {found} found",
        whole.len()
    );
    assert!(found > flips / 20, "the survey finds too little");
}
