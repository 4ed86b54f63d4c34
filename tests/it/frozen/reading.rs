//! Pins how the proxy reads a ledger of version 0.1: bodies sent upstream, answers to owners, and profiles of
//! conversations.

use std::fs;

use antiphon::auth::{Credential, Profile, Secret};
use serde_json::json;

use crate::{
    frozen::golden::{path, same},
    frozen::scenes as scene,
    frozen::scenes::{Asker, several, without, words},
    frozen::stage::{OTHER_TIERS, SINGLE, Stage, each, outstanding},
    support::{
        app::{before, post_with},
        binary::Process,
        kept::durable,
        wire::{Message, Upstream},
    },
};

/// Copies the frozen file to the place of the ledger.
fn restored(stage: &Stage) {
    let ledger = stage.install.ledger();
    fs::create_dir_all(ledger.parent().unwrap()).unwrap();
    fs::copy(path("ledger-v1.db"), ledger).unwrap();
}

/// Compares the repair header. Unlike the golden bodies, it cannot be rewritten by mistake.
fn repaired(answer: &Message, wanted: &str) {
    assert_eq!(answer.header("x-antiphon-repair"), Some(wanted), "{}", answer.head);
}

async fn looks_up(stage: &mut Stage, process: &Process, who: &Asker, ids: &[&str]) {
    let asked = json!({"call_ids": ids}).to_string();
    drop(stage.posts(process, "lookup", who.fields, &asked).await);
}

/// Owners read their results, and results are posted a second time.
async fn owners_read(stage: &mut Stage) {
    let process = stage.install.start().await;
    for (name, who) in [
        ("ann", &scene::ANN),
        ("carol", &scene::CAROL),
        ("dave", &scene::DAVE),
        ("erin", &scene::ERIN),
    ] {
        let waiting = outstanding(&process, who).await;
        stage.note(
            &format!("{name} GET outstanding"),
            &format!("{} {}", waiting.status(), waiting.text()),
        );
    }
    let ids = [
        scene::KEEP_ID,
        scene::FAIL_ID,
        scene::SEND_ID,
        scene::LAST_ID,
        scene::READ_ID,
        scene::DAVE_ID,
    ];
    looks_up(stage, &process, &scene::ANN, &ids).await;
    looks_up(stage, &process, &scene::CAROL, &[scene::CAROL_ID, scene::DAVE_ID]).await;
    looks_up(stage, &process, &scene::DAVE, &[scene::CAROL_ID, scene::DAVE_ID]).await;
    stage
        .result(&process, scene::KEEP_ID, &json!({"content": "kept \"é\""}))
        .await;
    stage.result(&process, scene::KEEP_ID, &json!({"content": "no"})).await;
    stage
        .result(&process, scene::PARKED_ID, &json!({"content": "too early"}))
        .await;
    stage
        .result(&process, scene::PARKED_ID, &json!({"content": "no"}))
        .await;
    stage
        .result(&process, scene::ERIN_ID, &json!({"content": "for erin"}))
        .await;
    process.stop().await;
}

/// Histories continue, each in a process that knows nothing except the file.
async fn conversations_go_on(stage: &mut Stage) {
    let (who, log) = (&scene::ANN, scene::ANN_LOG);
    let answer = stage.asks("ann", who, &log[..13], words()).await;
    repaired(&answer, "restored=2, placeholder=3, appended=2");
    assert_eq!(answer.header("x-antiphon-pending-results"), Some("1"));
    let answer = stage.asks("ann again", who, &log[..15], words()).await;
    repaired(&answer, "restored=2, placeholder=3, appended=2");
    let answer = stage
        .asks("agent", &scene::AGENT, &scene::AGENT_LOG[..5], words())
        .await;
    repaired(&answer, "placeholder=2");
    let mut log = scene::MOVED_LOG.to_vec();
    log[4] = scene::MOVED_LOST;
    repaired(&stage.asks("moved", &scene::MOVED, &log, words()).await, "restored=1");
    let answer = stage
        .asks("not confirmed", &scene::ANSWERED, scene::SILENT_LOG, words())
        .await;
    repaired(&answer, "placeholder=1");
    let log = without(scene::BEN_LOG, &[4, 8]);
    repaired(
        &stage.asks("ben", &scene::BEN, &log, words()).await,
        "restored=2, placeholder=1",
    );
    let answer = stage.asks("carol", &scene::CAROL, scene::CAROL_LOG, words()).await;
    repaired(&answer, "placeholder=1");
    repaired(
        &stage.asks("dave", &scene::DAVE, scene::DAVE_LOG, words()).await,
        "restored=1",
    );
    let mut log = scene::GEM_LOG.to_vec();
    log[4] = scene::GEM_LOST;
    repaired(
        &stage.asks("gem", &scene::GEM, &log, words()).await,
        "restored=1, placeholder=1",
    );
}

/// A result for a call in the file, and a new call for results in the file.
async fn parked_results_meet_their_calls(stage: &mut Stage) {
    let (who, log) = (&scene::ERIN, scene::ERIN_LOG);
    let calls = [(scene::PARKED_ID, "keeps"), (scene::OWNED_ID, "keeps")];
    repaired(&stage.asks("erin", who, &log[..5], several(&calls)).await, "restored=1");
    // The result without an owner waits: the file has several callers, and its call was recorded a moment ago.
    repaired(
        &stage.asks("erin again", who, log, words()).await,
        "restored=2, placeholder=1",
    );
}

#[tokio::test]
async fn a_ledger_of_version_0_1_is_readable() {
    let mut stage = Stage::new().await;
    restored(&stage);
    stage.configure(&each(), OTHER_TIERS);
    owners_read(&mut stage).await;
    conversations_go_on(&mut stage).await;
    parked_results_meet_their_calls(&mut stage).await;
    stage.configure(SINGLE, OTHER_TIERS);
    let answer = stage.asks("anybody", &scene::OTHER, scene::FRANK_LOG, words()).await;
    repaired(&answer, "placeholder=1, appended=1");
    same("ledger-v1-bodies.txt", &stage.facts);
}

/// A conversation returns to the profile whose cache it uses, even after a restart.
#[tokio::test]
async fn conversations_keep_their_profiles() {
    let upstream = Upstream::ok().await;
    let profile = |label: &str, weight| Profile {
        label: label.to_owned(),
        credential: Credential::Key(Secret::new(label.to_owned())),
        weight,
        organisation: None,
        models: Vec::new(),
        max_concurrent: None,
    };
    let profiles = vec![profile("a", 1), profile("b", 1), profile("c", 3)];
    let pooled = |builder: &mut crate::support::app::Builder| {
        // A ledger whose secret outlives a restart: with another, the choice does not depend on it.
        builder.ledger = durable();
        builder.profiles.insert("anthropic".to_owned(), profiles);
    };
    let app = before(upstream.address).with(pooled).start().await;
    let mut facts = String::new();
    for session in 0..24 {
        let session = format!("session {session}");
        let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", session.as_str())];
        let body = br#"{"messages":[{"role":"user","content":"go"}]}"#;
        let answer = app.ask(post_with("/anthropic/v1/messages", &fields, body)).await;
        facts.push_str(&format!(
            "{session}: {}\n",
            answer.header("x-antiphon-profile").unwrap()
        ));
    }
    same("profile-choice.txt", &facts);
}
