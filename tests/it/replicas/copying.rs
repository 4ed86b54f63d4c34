//! `antiphon store copy`, and the other subcommands of `antiphon store` for a database.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use antiphon::ledger::{
    CommitOutcome, CommitStep, Ledger, LedgerInspector, LedgerSettings, Moment, PostgresLedger, Record, RecordKey,
    RecordKind, SqliteLedger, StoreInspector as _, read_all,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_postgres::{Client, NoTls};

use crate::{
    ledger::conformance::{LATER, NOW, call, done, get, key},
    support::{
        app::post_with,
        binary::Install,
        bodies::Rng,
        database::{new_database, settings_of},
        provider::{Provider, Reply, ToolCall},
        seed::seed,
        state,
        wire::{spawn, start_relay},
    },
};

const ID: &str = "toolu_01AaBb9dE3fG7hJ2";
const MIB: usize = 1024 * 1024;
const HOUR: Duration = Duration::from_secs(3600);
/// The advisory lock of the removal of expired records.
const EXPIRY_LOCK: i64 = 0x616e_7469_6578_7069;

/// Runs `antiphon store` with a database.
fn store(arguments: &[&str], url: &str) -> Output {
    let folder = state::directory();
    let path = folder.join("antiphon.toml");
    std::fs::write(&path, "").unwrap();
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .arg("store")
        .args(arguments)
        .arg("-c")
        .arg(path)
        .env("ANTIPHON_LEDGER_STORE", "postgres")
        .env("ANTIPHON_LEDGER_URL", url)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn copy(from: &Path, to: &Path, url: &str) -> Output {
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    store(&["copy", "--from", from, "--to", to], url)
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[track_caller]
fn fails(output: &Output, code: i32, words: &str) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text}");
}

/// Opens the ledger in a database, as a replica does.
async fn open(url: &str) -> PostgresLedger {
    let opened = PostgresLedger::open(&settings_of(url), LedgerSettings::default(), [9; 32]).await;
    let (ledger, worker) = opened.unwrap();
    drop(spawn(worker.run()));
    ledger
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    drop(spawn(async move { drop(connection.await) }));
    client
}

/// Returns every record of a file with its place, and the secret.
fn rows(path: &Path) -> (Vec<(i64, Record)>, [u8; 32]) {
    let inspector = LedgerInspector::open(path).unwrap();
    let mut rows = Vec::new();
    inspector
        .for_each_row::<antiphon::ledger::LedgerError>(None, |row, record| {
            rows.push((row.place, record.expect("a sound record")));
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    (rows, inspector.secret())
}

/// Fills a file with records of every kind, long and short, replaced, removed and expired.
async fn fill(path: &Path, rng: &mut Rng) {
    let ledger = SqliteLedger::open(path, LedgerSettings::default(), [7; 32]).unwrap();
    for name in 0..600 {
        let kind = RecordKind::ALL[rng.below(RecordKind::ALL.len())];
        let key = key(kind, u8::try_from(rng.next() % 3).unwrap(), name);
        let value = || vec![b'v'; [0, 10, 2_000, 40_000][usize::try_from(name % 4).unwrap()]];
        let expires_at = if rng.chance(10) { NOW } else { LATER };
        let insert = CommitStep::Insert {
            key,
            index: rng.chance(50).then_some([3; 16]),
            value: value().into(),
            expires_at,
        };
        assert_eq!(ledger.commit(vec![insert], NOW).await.unwrap(), CommitOutcome::Done);
        let next = match rng.below(5) {
            0 => CommitStep::Remove { key, version: 1 },
            1 => CommitStep::Replace {
                key,
                version: 1,
                value: b"replaced".to_vec().into(),
                expires_at,
            },
            _ => continue,
        };
        ledger.commit(vec![next], NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_ledger_is_copied_into_a_database_and_back() {
    let Some(url) = new_database().await else { return };
    let seed = seed();
    println!("SEED={seed}");
    let folder = state::directory();
    let (original, again) = (folder.join("ledger.db"), folder.join("again.db"));
    fill(&original, &mut Rng::new(seed)).await;
    let (records, secret) = rows(&original);
    let said = succeeds(&copy(&original, Path::new("database"), &url));
    assert!(said.contains(&format!("copied {} records", records.len())), "{said}");
    succeeds(&copy(Path::new("database"), &again, &url));
    assert_eq!(rows(&again), (records.clone(), secret));
    // Replicas find every record, and add others after it.
    let ledger = open(&url).await;
    assert_eq!(ledger.secret(), secret);
    let live: Vec<Record> = records
        .iter()
        .map(|(_, record)| record.clone())
        .filter(|record| record.expires_at > NOW)
        .collect();
    let found = read_all(&ledger, live.iter().map(|record| record.key).collect(), NOW)
        .await
        .unwrap();
    assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), live);
    let usage = ledger.usage().await.unwrap();
    assert_eq!(usage.records, records.len() as u64);
    let next = CommitStep::insert_record(key(RecordKind::Call, 1, 10_000), b"next".to_vec().into(), LATER);
    assert_eq!(ledger.commit(vec![next], NOW).await.unwrap(), CommitOutcome::Done);
    let verified = succeeds(&store(&["verify", "--database"], &url));
    assert!(verified.contains("all of them sound"), "{verified}");
    let listed: Value = serde_json::from_str(&succeeds(&store(
        &["ls", "--database", "--output", "json", "--limit", "5"],
        &url,
    )))
    .unwrap();
    assert_eq!(listed["records"].as_array().unwrap().len(), 5);
    let cleared = succeeds(&store(&["gc", "--database", "--output", "json"], &url));
    let cleared: Value = serde_json::from_str(&cleared).unwrap();
    // None of them has expired at the time of this test.
    assert_eq!(
        (&cleared["cleared"], &cleared["left"]),
        (&json!(0), &json!(records.len() + 1))
    );
}

#[tokio::test]
async fn a_copy_overwrites_nothing_and_leaves_nothing_unfinished() {
    let Some(url) = new_database().await else { return };
    let folder = state::directory();
    let (first, second) = (folder.join("first.db"), folder.join("second.db"));
    let mut rng = Rng::new(1);
    fill(&first, &mut rng).await;
    fill(&second, &mut rng).await;
    let database = Path::new("database");
    fails(&copy(&first, &second, &url), 2, "exists");
    fails(&copy(database, database, &url), 2, "the same database");
    fails(&copy(&folder.join("none.db"), database, &url), 2, "does not exist");
    let output = store(&["copy", "--from", "postgres://ann:hunter2@h/n", "--to", "x"], &url);
    fails(&output, 2, "ANTIPHON_LEDGER_URL");
    let held = SqliteLedger::open(&first, LedgerSettings::default(), [7; 32]).unwrap();
    fails(&copy(&first, database, &url), 2, "in use by another process");
    drop(held);
    succeeds(&copy(&first, database, &url));
    fails(&copy(&second, database, &url), 2, "copy into an empty one");
    // A damaged record is left out, and said.
    let client = connect(&url).await;
    let damage = "UPDATE antiphon_records SET value = 'x' WHERE place = (SELECT min(place) FROM antiphon_records)";
    client.batch_execute(damage).await.unwrap();
    let third = folder.join("third.db");
    fails(&copy(database, &third, &url), 1, "damaged, and left out: row ");
    assert_eq!(rows(&third).0, rows(&first).0[1..]);
    fails(&store(&["verify", "--database"], &url), 1, "damaged: row ");
    let names = std::fs::read_dir(&*folder).unwrap();
    let names: Vec<PathBuf> = names.map(|entry| entry.unwrap().path()).collect();
    assert!(
        names.iter().all(|name| !name.to_str().unwrap().contains(".copy")),
        "{names:?}"
    );
}

/// The owner of one process goes on with replicas.
#[tokio::test]
async fn conversations_go_on_over_the_database() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let token = antiphon::auth::TokenHash::hash_token(b"token of tools");
    let install = Install::new(&format!(
        "[upstreams.anthropic]\nurl = \"{}\"\n[services.tools]\ntoken = \"{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n",
        provider.url(),
    ));
    let mut process = install.start().await;
    let mut log = vec![json!({"role": "user", "content": "go"})];
    let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", "one")];
    let body = |log: &[Value]| json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let mut owner = String::new();
    for reply in [
        Reply::Text("hello".to_owned()),
        Reply::Calls(vec![ToolCall::new(ID, "read", json!({}))]),
    ] {
        provider.reply(reply);
        let request = post_with("/anthropic/v1/messages", &fields, body(&log).as_bytes());
        let answer = process.ask(request).await;
        owner = answer.header("x-antiphon-owner").unwrap().to_owned();
        log.push(json!({"role": "assistant", "content": answer.json()["content"]}));
        log.push(json!({"role": "user", "content": "and?"}));
    }
    let service = [("authorization", "Bearer token of tools")];
    let result = json!({"content": "the result", "owner": owner}).to_string();
    let path = format!("/ledger/v1/calls/{ID}/result");
    while process
        .ask(post_with(&path, &service, result.as_bytes()))
        .await
        .status()
        != 200
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.kill();
    drop(process);
    succeeds(&copy(&install.ledger(), Path::new("database"), &url));
    let variables = [("ANTIPHON_LEDGER_STORE", "postgres"), ("ANTIPHON_LEDGER_URL", &*url)];
    let replica = install.start_with(&variables).await;
    let request = post_with("/anthropic/v1/messages", &fields, body(&log).as_bytes());
    let answer = replica.ask(request).await;
    assert_eq!(answer.header("x-antiphon-owner"), Some(&*owner));
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=1"));
}

/// A database behind a relay that measures its answers.
struct MeasuredDatabase {
    url: String,
    /// The bytes of the longest answer to one question.
    longest: Arc<AtomicUsize>,
}

impl MeasuredDatabase {
    /// Starts a relay in front of a database.
    async fn before(url: &str) -> Self {
        let port = url.parse::<tokio_postgres::Config>().unwrap().get_ports()[0];
        let longest = Arc::<AtomicUsize>::default();
        let measured = Arc::clone(&longest);
        let relay = start_relay(port, move |client, server| {
            relay_measured(client, server, Arc::clone(&measured))
        })
        .await;
        let url = url.replace(&format!(":{port}/"), &format!(":{relay}/"));
        Self { url, longest }
    }

    /// Returns the bytes of the longest answer since the last call.
    fn take_longest(&self) -> usize {
        self.longest.swap(0, Ordering::SeqCst)
    }
}

async fn relay_measured(client: TcpStream, server: TcpStream, longest: Arc<AtomicUsize>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answer = Arc::<AtomicUsize>::default();
    let asked = Arc::clone(&answer);
    drop(spawn(async move {
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut chunk).await {
            let bytes = answer.fetch_add(length, Ordering::SeqCst) + length;
            longest.fetch_max(bytes, Ordering::SeqCst);
            if to_client.write_all(&chunk[..length]).await.is_err() {
                return;
            }
        }
    }));
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from_client.read(&mut chunk).await {
        asked.store(0, Ordering::SeqCst);
        if to_server.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

/// A page ends once its values have 8 MiB. Some of these records end one exactly, and one is longer than a page.
#[tokio::test(flavor = "multi_thread")]
async fn large_records_are_read_in_pages_of_bounded_size_and_none_is_left_out() {
    const SIZES: [usize; 11] = [4, 4, 0, 8, 0, 9, 3, 3, 3, 3, 3];
    let Some(url) = new_database().await else { return };
    let database = MeasuredDatabase::before(&url).await;
    let folder = state::directory();
    let (original, again) = (folder.join("ledger.db"), folder.join("again.db"));
    let ledger = SqliteLedger::open(&original, LedgerSettings::default(), [7; 32]).unwrap();
    for (name, mebibytes) in SIZES.into_iter().enumerate() {
        let step = CommitStep::insert_record(call(name as u64), vec![b'v'; mebibytes * MIB].into(), LATER);
        done(&ledger, vec![step], NOW).await;
    }
    drop(ledger);
    let in_database = Path::new("database");
    let bounded = |told: &str| {
        let longest = database.take_longest();
        // The last record of a page may be the longest one.
        assert!(longest < (8 + 9) * MIB + MIB / 2, "{told}: {longest} bytes at once");
        assert!(longest > 8 * MIB, "{told}: {longest} bytes at most were measured");
    };
    succeeds(&copy(&original, in_database, &database.url));
    bounded("a copy into the database");
    succeeds(&copy(in_database, &again, &database.url));
    bounded("a copy from the database");
    assert_eq!(rows(&again), rows(&original));
    let verified = succeeds(&store(&["verify", "--database"], &database.url));
    bounded("verify");
    assert_eq!(verified, "11 records: all of them sound\n");
    let mut listed = Vec::new();
    let mut after = "0".to_owned();
    while after != "null" {
        let page = [
            "ls",
            "--database",
            "--output",
            "json",
            "--limit",
            "4",
            "--after",
            &after,
        ];
        let page: Value = serde_json::from_str(&succeeds(&store(&page, &database.url))).unwrap();
        let records = page["records"].as_array().unwrap().iter();
        listed.extend(records.map(|record| usize::try_from(record["bytes"].as_u64().unwrap()).unwrap() / MIB));
        after = page["next"].to_string();
    }
    bounded("ls");
    assert_eq!(listed, SIZES);
}

/// Waits until this many sessions of the database wait for a lock.
async fn wait_for_locked(watcher: &Client, count: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..3000 {
        if watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there are not {count} sessions that wait");
}

fn put(key: RecordKey, value: &'static str, expires_at: Moment) -> Vec<CommitStep> {
    vec![CommitStep::insert_record(key, value.into(), expires_at)]
}

/// The removal has read the damaged record, and waits for its row behind a replica.
#[tokio::test(flavor = "multi_thread")]
async fn gc_keeps_a_record_that_a_replica_writes_over_a_damaged_one() {
    let Some(url) = new_database().await else { return };
    let (ledger, gate, watcher) = (Arc::new(open(&url).await), connect(&url).await, connect(&url).await);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    done(&*ledger, put(call(1), "old", now + HOUR), now).await;
    gate.batch_execute("UPDATE antiphon_records SET value = 'xxx'")
        .await
        .unwrap();
    gate.batch_execute("BEGIN; SELECT place FROM antiphon_records FOR UPDATE")
        .await
        .unwrap();
    let replica = Arc::clone(&ledger);
    // On a slow machine the database ends its wait for the row before the removal has begun.
    let anew = move || put(call(1), "new", now + HOUR);
    let writing = spawn(async move { while replica.commit(anew(), now).await.is_err() {} });
    wait_for_locked(&watcher, 1).await;
    let of_gc = url.clone();
    let removing = tokio::task::spawn_blocking(move || store(&["gc", "--database"], &of_gc));
    wait_for_locked(&watcher, 2).await;
    gate.batch_execute("COMMIT").await.unwrap();
    writing.await.unwrap();
    succeeds(&removing.await.unwrap());
    let found = get(&*ledger, call(1), now).await.expect("the new record");
    assert_eq!(&found.value[..], b"new");
    let verified = succeeds(&store(&["verify", "--database"], &url));
    assert_eq!(verified, "1 record: all of them sound\n");
}

/// The removal sees the database as it was before a replica wrote the record, and waits for its turn.
#[tokio::test(flavor = "multi_thread")]
async fn gc_keeps_a_record_that_a_replica_writes_over_an_expired_one() {
    let Some(url) = new_database().await else { return };
    let (ledger, gate, watcher) = (open(&url).await, connect(&url).await, connect(&url).await);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    for name in [1, 2] {
        let steps = put(call(name), "old", now.checked_sub(HOUR).unwrap());
        done(&ledger, steps, now.checked_sub(2 * HOUR).unwrap()).await;
    }
    let lock = "SELECT pg_advisory_lock($1)";
    gate.query_one(lock, &[&EXPIRY_LOCK]).await.unwrap();
    let of_gc = url.clone();
    let removing = tokio::task::spawn_blocking(move || store(&["gc", "--database"], &of_gc));
    wait_for_locked(&watcher, 1).await;
    done(&ledger, put(call(1), "new", now + HOUR), now).await;
    let unlock = "SELECT pg_advisory_unlock($1)";
    gate.query_one(unlock, &[&EXPIRY_LOCK]).await.unwrap();
    let removed = succeeds(&removing.await.unwrap());
    assert_eq!(removed, "cleared 1 record, 1 record left\n");
    let found = get(&ledger, call(1), now).await.expect("the new record");
    assert_eq!(&found.value[..], b"new");
    let verified = succeeds(&store(&["verify", "--database"], &url));
    assert_eq!(verified, "1 record: all of them sound\n");
}

/// `gc` reads every record, to find the damaged ones.
#[tokio::test(flavor = "multi_thread")]
async fn gc_reads_large_records_in_pages_of_bounded_size() {
    let Some(url) = new_database().await else { return };
    let database = MeasuredDatabase::before(&url).await;
    let ledger = open(&url).await;
    for name in 0..8 {
        let step = CommitStep::insert_record(call(name), vec![b'v'; 4 * MIB].into(), LATER);
        done(&ledger, vec![step], NOW).await;
    }
    let said = succeeds(&store(&["gc", "--database"], &database.url));
    assert_eq!(said, "cleared 0 records, 8 records left\n");
    let longest = database.take_longest();
    assert!(longest < (8 + 4) * MIB + MIB / 2, "{longest} bytes at once");
}
