//! `antiphon store copy`, and the other subcommands of `antiphon store` for a database.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use antiphon::ledger::{
    CommitOutcome, CommitStep, Ledger, LedgerInspector, LedgerSettings, PostgresLedger, Record, RecordKind,
    SqliteLedger, StoreInspector as _, read_all,
};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::{
    ledger::conformance::{LATER, NOW, key},
    support::{
        app::post_with,
        binary::Install,
        bodies::Rng,
        database::{new_database, settings_of},
        provider::{Provider, Reply, ToolCall},
        seed::seed,
        state,
        wire::spawn,
    },
};

const ID: &str = "toolu_01AaBb9dE3fG7hJ2";

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
    let opened = PostgresLedger::open(&settings_of(&url), LedgerSettings::default(), [9; 32]).await;
    let (ledger, worker) = opened.unwrap();
    drop(spawn(worker.run()));
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
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    drop(spawn(async move { drop(connection.await) }));
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
    let process = install.start().await;
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
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    process.signal("KILL");
    drop(process);
    succeeds(&copy(&install.ledger(), Path::new("database"), &url));
    let variables = [("ANTIPHON_LEDGER_STORE", "postgres"), ("ANTIPHON_LEDGER_URL", &*url)];
    let replica = install.start_with(&variables).await;
    let request = post_with("/anthropic/v1/messages", &fields, body(&log).as_bytes());
    let answer = replica.ask(request).await;
    assert_eq!(answer.header("x-antiphon-owner"), Some(&*owner));
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=1"));
}
