//! Pins the ledger: the proxy writes the records of `ledger-v1.db`, and continues the conversations in that file.
//!
//! Version 0.1 wrote `ledger-v1.db`, and the file must not change: operators have files like it. `FREEZE=ledger` writes
//! a new one. Do that only together with a new layout, under a new name, and keep a test that reads the old file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use antiphon::ledger::{
    CommitOutcome, CommitStep, Ledger as _, LedgerSettings, MOMENT_MAX, Moment, RecordKey, RecordKind, SqliteLedger,
};
use bytes::Bytes;
use serde_json::json;

use crate::{
    frozen::golden::{freeze, path, same},
    frozen::records::{facts, rows},
    frozen::scenes as scene,
    frozen::scenes::{one, several, without, words},
    frozen::stage::{SINGLE, Stage, TIERS, TOOLS, each, outstanding},
    late::api::{KEY, signature},
    support::{app::post_with, state},
};

/// The secret of the file, which is the key of the hashes that name records.
const SECRET: [u8; 32] = *b"the secret of a frozen ledger v1";

/// Writes every kind of record into the ledger.
async fn write_every_record(stage: &mut Stage) {
    let secret = SECRET;
    drop(SqliteLedger::open(&stage.install.ledger(), LedgerSettings::default(), secret).unwrap());
    stage.configure(&each(), TIERS);
    of_ann(stage).await;
    of_other_sessions(stage).await;
    of_ben(stage).await;
    of_tokens(stage).await;
    of_gem(stage).await;
    of_erin(stage).await;
    stage.configure(SINGLE, TIERS);
    of_frank(stage).await;
}

/// Results that were posted in time and late, a failed one, and placeholders of both numbers.
async fn of_ann(stage: &mut Stage) {
    let (who, log) = (&scene::ANN, scene::ANN_LOG);
    stage.asks("ann 1", who, &log[..1], words()).await;
    let calls = [
        (scene::KEEP_ID, "keeps"),
        (scene::FAIL_ID, "reverts"),
        (scene::READ_ID, "reads"),
        (scene::SEND_ID, "sends"),
    ];
    stage.asks("ann 2", who, &log[..3], several(&calls)).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::KEEP_ID, &json!({"content": "kept \"é\""}))
        .await;
    let failed = json!({"content": [{"type": "text", "text": "it failed"}], "is_error": true});
    stage.result(&process, scene::FAIL_ID, &failed).await;
    stage
        .result(&process, scene::KEEP_ID, &json!({"content": "another"}))
        .await;
    process.stop().await;
    stage.asks("ann 3", who, &log[..5], words()).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::SEND_ID, &json!({"content": "sent at last"}))
        .await;
    process.stop().await;
    stage.asks("ann 4", who, &log[..7], words()).await;
    stage.asks("ann 5", who, &log[..9], one(scene::LAST_ID, "keeps")).await;
    stage.asks("ann 6", who, &log[..11], words()).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::LAST_ID, &json!({"content": {"url": "x"}}))
        .await;
    process.stop().await;
}

/// Calls of an agent with a repeated id, a moved result, and an unconfirmed answer.
async fn of_other_sessions(stage: &mut Stage) {
    let calls = [(scene::AGENT_ID, "keeps"), ("call_0", "keeps")];
    stage
        .asks("agent 1", &scene::AGENT, &scene::AGENT_LOG[..1], several(&calls))
        .await;
    stage
        .asks("agent 2", &scene::AGENT, &scene::AGENT_LOG[..3], words())
        .await;
    let process = stage.install.start().await;
    let path = format!("calls/{}/heartbeat", scene::AGENT_ID);
    let beat = process
        .ask(post_with(&format!("/ledger/v1/{path}"), &[TOOLS], b""))
        .await;
    assert_eq!(beat.status(), 200);
    stage.result(&process, "call_0", &json!({"content": "of whom?"})).await;
    process.stop().await;
    stage.asks("moved", &scene::MOVED, scene::MOVED_LOG, words()).await;
    stage.dies(&scene::SILENT, scene::SILENT_LOG).await;
}

/// Results that a client brought, with a unique and a repeated id, and their restored copies.
async fn of_ben(stage: &mut Stage) {
    let (who, log) = (&scene::BEN, scene::BEN_LOG);
    stage.asks("ben 1", who, &log[..1], words()).await;
    stage.asks("ben 2", who, &log[..3], one(scene::SEEN_ID, "reads")).await;
    stage.asks("ben 3", who, &log[..5], words()).await;
    stage.asks("ben 4", who, &log[..7], one("call_0", "reads")).await;
    stage.asks("ben 5", who, &log[..9], words()).await;
    stage.asks("ben 6", who, &log[..11], one("call_1", "reads")).await;
    stage.asks("ben 7", who, &log[..13], words()).await;
    stage.asks("ben 8", who, &without(&log[..15], &[4]), words()).await;
}

/// Calls of a client token and of a user within it: a signed result that its owner has acknowledged, and one posted by
/// owner.
async fn of_tokens(stage: &mut Stage) {
    let (who, log) = (&scene::CAROL, scene::CAROL_LOG);
    stage.asks("carol 1", who, &log[..1], words()).await;
    stage
        .asks("carol 2", who, &log[..3], one(scene::CAROL_ID, "keeps"))
        .await;
    stage.asks("carol 3", who, &log[..5], words()).await;
    let (user, log) = (&scene::DAVE, scene::DAVE_LOG);
    stage.asks("dave 1", user, &log[..1], words()).await;
    let answer = stage
        .asks("dave 2", user, &log[..3], one(scene::DAVE_ID, "keeps"))
        .await;
    let process = stage.install.start().await;
    let signed = json!({"call_id": scene::CAROL_ID, "content": "signed"}).to_string();
    let now = antiphon::clock::unix_time().as_secs();
    let (at, mac) = (now.to_string(), signature(KEY, "m1", now, &signed));
    let fields = [
        ("webhook-id", "m1"),
        ("webhook-timestamp", &at),
        ("webhook-signature", &mac),
    ];
    let path = format!("calls/{}/result", scene::CAROL_ID);
    drop(stage.posts(&process, &path, &fields, &signed).await);
    let waiting = outstanding(&process, who).await;
    let delivery = waiting.json()["outstanding"][0]["delivery"]
        .as_str()
        .unwrap()
        .to_owned();
    drop(
        stage
            .posts(&process, &format!("deliveries/{delivery}/ack"), who.fields, "")
            .await,
    );
    let owner = answer.header("x-antiphon-owner").unwrap();
    let owned = json!({"owner": owner, "content": [{"type": "text", "text": "for dave"}]});
    stage.result(&process, scene::DAVE_ID, &owned).await;
    process.stop().await;
}

/// Calls without ids: a brought result, and a placeholder.
async fn of_gem(stage: &mut Stage) {
    let (who, log) = (&scene::GEM, scene::GEM_LOG);
    stage.asks("gem 1", who, &log[..1], words()).await;
    stage.asks("gem 2", who, &log[..3], one("", "reads")).await;
    stage.asks("gem 3", who, &log[..5], words()).await;
    stage.asks("gem 4", who, &log[..7], one("", "keeps")).await;
    stage.asks("gem 5", who, &log[..9], words()).await;
}

/// A call of an unnamed session, and results that came before their calls.
async fn of_erin(stage: &mut Stage) {
    let (who, log) = (&scene::ERIN, scene::ERIN_LOG);
    stage.asks("erin 1", who, &log[..1], words()).await;
    let answer = stage.asks("erin 2", who, &log[..3], one(scene::ERIN_ID, "keeps")).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::PARKED_ID, &json!({"content": "too early"}))
        .await;
    let owner = answer.header("x-antiphon-owner").unwrap();
    let owned = json!({"owner": owner, "content": "early, for erin", "is_error": true});
    stage.result(&process, scene::OWNED_ID, &owned).await;
    process.stop().await;
}

/// A call in single-principal mode.
async fn of_frank(stage: &mut Stage) {
    let (who, log) = (&scene::FRANK, scene::FRANK_LOG);
    stage.asks("frank 1", who, &log[..1], words()).await;
    stage
        .asks("frank 2", who, &log[..3], one(scene::FRANK_ID, "keeps"))
        .await;
    stage.asks("frank 3", who, &log[..5], words()).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::FRANK_ID, &json!({"content": "for the only one"}))
        .await;
    process.stop().await;
}

/// Copies the records of a file into a new one in which nothing expires.
async fn preserve(from: &Path, to: &Path) {
    let folder = state::directory();
    let rough = folder.join("ledger-v1.db");
    let ledger = SqliteLedger::open(&rough, LedgerSettings::default(), SECRET).unwrap();
    for row in rows(from) {
        let key = RecordKey {
            kind: RecordKind::ALL[usize::from(row.kind) - 1],
            principal: row.principal,
            name: row.name,
        };
        let (value, now) = (Bytes::from(row.value), Moment::from_nanos(row.made_at));
        let (index, expires_at) = (row.index, MOMENT_MAX);
        let mut steps = vec![CommitStep::Insert {
            key,
            index,
            value: value.clone(),
            expires_at,
        }];
        let replace = |version| CommitStep::Replace {
            key,
            version,
            value: value.clone(),
            expires_at,
        };
        steps.extend((1..row.version).map(replace));
        assert_eq!(ledger.commit(steps, now).await.unwrap(), CommitOutcome::Done);
    }
    // SQLite merges the write-ahead log into the file.
    drop(ledger);
    fs::copy(rough, to).unwrap();
}

#[tokio::test]
async fn written_records_are_pinned() {
    let mut stage = Stage::new().await;
    write_every_record(&mut stage).await;
    let written: PathBuf = stage.install.ledger();
    if freeze() == "ledger" {
        preserve(&written, &path("ledger-v1.db")).await;
    }
    same("ledger-v1-written.txt", &stage.facts);
    same("ledger-v1-records.txt", &facts(&written, true));
}
