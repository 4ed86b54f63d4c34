//! Crash safety of the ledger: a killed process or a full disk loses no acknowledged record and repeats none.
//!
//! `CYCLES=` sets the number of kills (default 20, use 200 for a long run).
//! `SEED=<n>` kills at other times, `SEED=random` at new ones.
#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cycles and the part of the child come from the environment"
)]

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    ops::ControlFlow,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use antiphon::ledger::{
    CommitOutcome, CommitStep, Ledger, LedgerError, LedgerInspector, LedgerOpenError, LedgerSettings, RecordKey,
    RecordKind, SqliteLedger, StoreInspector as _,
};
use bytes::Bytes;

use crate::{
    ledger::conformance::{LATER, NOW, SECRET, call, insert},
    support::{bodies::Rng, seed::seed},
};

const PATH: &str = "ANTIPHON_TEST_LEDGER_WRITER";
const FIRST: &str = "ANTIPHON_TEST_LEDGER_FIRST";
const WAIT: Duration = Duration::from_secs(60);

pub(crate) fn value(name: u64) -> Bytes {
    Bytes::from(format!("value of {name}; ").repeat(100))
}

fn open(path: &Path) -> Result<SqliteLedger, LedgerOpenError> {
    SqliteLedger::open(path, LedgerSettings::default(), SECRET)
}

/// The child's part: writes records until it is killed, and prints the outcome of each commit.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let (Ok(path), Ok(first)) = (std::env::var(PATH), std::env::var(FIRST)) else {
        return;
    };
    let ledger = Arc::new(open(Path::new(&path)).unwrap());
    let next = Arc::new(AtomicU64::new(first.parse().unwrap()));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (ledger, next) = (Arc::clone(&ledger), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let name = next.fetch_add(1, Ordering::Relaxed);
                let steps = vec![insert(call(name), value(name)), insert(twin(name), value(name))];
                let word = match ledger.commit(steps, NOW).await {
                    Ok(CommitOutcome::Done) => "done",
                    Ok(CommitOutcome::Conflict(_)) => "conflict",
                    Err(LedgerError::Store(_)) => "failed",
                    Err(_) => "refused",
                };
                // Whole lines on the real stdout: `println!` would be captured by the test harness.
                writeln!(std::io::stdout(), "said {word} {name}").unwrap();
                if word == "failed" {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
    }
    writers.join_all().await;
}

/// Returns the key of the second record in the same commit.
pub(crate) fn twin(name: u64) -> RecordKey {
    RecordKey {
        kind: RecordKind::PinnedResult,
        ..call(name)
    }
}

/// A child process that writes, and its printed outcomes.
struct Writer {
    child: Child,
    said: mpsc::Receiver<(String, u64)>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Writer {
    /// Starts the child through a shell that runs `before` first.
    fn start(path: &Path, first: u64, before: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::crash::writes_until_it_is_killed", "--nocapture"])
            .env(PATH, path)
            .env(FIRST, first.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (tell, said) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let words: Vec<&str> = line.split_whitespace().collect();
                // The last line may be cut in the middle. Only a whole line has three words.
                if let ["said", word, name] = words[..] {
                    drop(tell.send((word.to_owned(), name.parse().unwrap())));
                }
            }
        });
        Self { child, said }
    }

    /// Reads outcomes up to the first `wanted` one. Acknowledged names go into `done`.
    fn wait_for(&self, wanted: &str, done: &mut BTreeSet<u64>) {
        loop {
            let (word, name) = self.said.recv_timeout(WAIT).unwrap();
            assert!(word != "conflict" && word != "refused", "{word} {name}");
            if word == "done" {
                assert!(done.insert(name), "{name} was done twice");
            }
            if word == wanted {
                return;
            }
        }
    }

    /// Kills the child and reads its remaining output.
    fn kill(mut self, done: &mut BTreeSet<u64>) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while let Ok((word, name)) = self.said.recv_timeout(WAIT) {
            if word == "done" {
                assert!(done.insert(name), "{name} was done twice");
            }
        }
    }
}

/// Asserts that every acknowledged record is present and whole, and that each commit wrote both records or none.
pub(crate) async fn check(path: &Path, done: &BTreeSet<u64>) {
    let ledger = open(path).unwrap();
    let mut names = done.iter().copied().peekable();
    while names.peek().is_some() {
        let some: Vec<u64> = names.by_ref().take(256).collect();
        let keys = some.iter().flat_map(|name| [call(*name), twin(*name)]).collect();
        let found = ledger.read(keys, NOW).await.unwrap();
        for (name, both) in some.iter().zip(found.chunks(2)) {
            for record in both {
                let record = record
                    .as_ref()
                    .unwrap_or_else(|| panic!("{name} was acknowledged, and is lost"));
                assert_eq!(
                    (&record.value, record.expires_at, record.version),
                    (&value(*name), LATER, 1)
                );
            }
        }
    }
    let survey = LedgerInspector::open(path).unwrap();
    let mut seen = BTreeSet::new();
    let mut count = [0_u64; 2];
    survey
        .for_each_row(None, |entry, _| {
            assert!(entry.is_sound, "{entry:?}");
            seen.insert(entry.place);
            count[usize::from(entry.kind == Some(RecordKind::PinnedResult))] += 1;
            Ok::<_, LedgerError>(ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(count[0], count[1], "half a commit");
    assert!(count[0] >= done.len() as u64);
    assert_eq!(survey.find_flaws().unwrap(), [""; 0]);
}

#[tokio::test]
async fn acknowledged_records_survive_a_kill() {
    let cycles = std::env::var("CYCLES")
        .ok()
        .and_then(|cycles| cycles.parse().ok())
        .unwrap_or(20);
    let seed = seed();
    println!("SEED={seed} (times only)");
    let mut rng = Rng::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut done = BTreeSet::new();
    for cycle in 0..cycles {
        let writer = Writer::start(&path, cycle * 1_000_000, "");
        writer.wait_for("done", &mut done);
        if cycle == 0 {
            assert!(
                matches!(open(&path), Err(LedgerOpenError::InUse { .. })),
                "two processes on one file"
            );
            LedgerInspector::open(&path).unwrap();
        }
        thread::sleep(Duration::from_micros(rng.next() % 60_000));
        writer.kill(&mut done);
        check(&path, &done).await;
    }
    println!("{cycles} cycles, {} acknowledged, none lost", done.len());
}

#[tokio::test]
async fn commits_fail_on_a_full_disk_and_recover_with_space() {
    if !Command::new("prlimit")
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
    {
        println!("skipped: prlimit is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut done = BTreeSet::new();
    // A file size limit stands in for a full disk, which would need privileges.
    let writer = Writer::start(&path, 0, "trap '' XFSZ; ulimit -S -f 2000;");
    for _ in 0..20 {
        writer.wait_for("failed", &mut done);
    }
    assert!(!done.is_empty());
    let before = done.len();
    let pid = writer.child.id().to_string();
    let room = Command::new("prlimit")
        .args(["--pid", &pid, "--fsize=unlimited"])
        .status()
        .unwrap();
    assert!(room.success());
    while done.len() < before + 20 {
        writer.wait_for("done", &mut done);
    }
    writer.kill(&mut done);
    check(&path, &done).await;
}

/// Measures commit latency: `cargo test --test it measure_commit_latency -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a promise"]
async fn measure_commit_latency() {
    for callers in [1_u64, 32] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Arc::new(open(&folder.path().join("ledger.db")).unwrap());
        let (began, each) = (std::time::Instant::now(), 2000 / callers);
        let mut all = tokio::task::JoinSet::new();
        for caller in 0..callers {
            let ledger = Arc::clone(&ledger);
            all.spawn(async move {
                let mut took = Vec::new();
                for name in caller * each..(caller + 1) * each {
                    let began = std::time::Instant::now();
                    let step: CommitStep = insert(call(name), value(name));
                    assert_eq!(ledger.commit(vec![step], NOW).await.unwrap(), CommitOutcome::Done);
                    took.push(began.elapsed());
                }
                took
            });
        }
        let mut took: Vec<Duration> = all.join_all().await.into_iter().flatten().collect();
        let whole = began.elapsed();
        took.sort_unstable();
        let rate = u32::try_from(took.len()).map(f64::from).unwrap() / whole.as_secs_f64();
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!("{callers} callers: {rate:.0} commits/s, p50 {p50:?}, p99 {p99:?}");
    }
}
