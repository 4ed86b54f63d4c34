//! Replicas of several versions over one ledger: an older one's facts stay in force, and those of a newer one stay stored.

use std::sync::Arc;

use antiphon::{
    ledger::{CommitOutcome, CommitStep, Ledger, Record, RecordKey, RecordKind},
    provider::ProviderKind,
};
use serde_json::{Value, json};

use crate::{
    replicas::pair::{Replicas, only_upstream},
    support::provider::Settings,
};

const CHAT: &str = "/x/v1/chat/completions";
const NO_USER: &str = "No user query found in messages.";
const NO_DEVELOPER: &str = "developer is not one of ['system', 'assistant', 'user', 'tool', 'function']";
const NO_REASONING: &str =
    "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported";

// The first bytes of records: the version, and the kind of fact.
const RULES: [u8; 2] = [1, 1];
const TAUGHT: [u8; 2] = [1, 11];
const LATER_KIND: [u8; 2] = [1, 200];
const LATER_VERSION: [u8; 2] = [2, 1];

/// Returns the refusal of a server that has each of these rules.
fn refuses(body: &Value) -> Option<&'static str> {
    let messages = body["messages"].as_array().unwrap();
    let has = |role: &str| messages.iter().any(|message| message["role"] == role);
    let has_reasoning = messages
        .iter()
        .any(|message| message.get("reasoning_content").is_some());
    if has("developer") {
        Some(NO_DEVELOPER)
    } else if has_reasoning {
        Some(NO_REASONING)
    } else {
        (!has("user")).then_some(NO_USER)
    }
}

/// Returns a history without a user, which breaks the rule of an older version.
fn without_user() -> Value {
    json!({"model": "m", "messages": [{"role": "assistant", "content": "Hello."}]})
}

fn developer() -> Value {
    json!({"model": "m", "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]})
}

fn reasoning() -> Value {
    json!({"model": "m", "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "hm"},
        {"role": "user", "content": "And?"},
    ]})
}

fn start() -> Replicas {
    let replicas = Replicas::durable(Settings::default(), only_upstream(ProviderKind::Compatible));
    replicas.judge_by(refuses);
    replicas
}

/// Returns the stored facts, in the order of their inserts.
async fn facts(replicas: &Replicas) -> Vec<Record> {
    let ledger = replicas.ledger(0);
    let now = antiphon::clock::unix_time();
    let mut all = Vec::new();
    for principal in ledger.list_principals(RecordKind::LearnedFact, None, 9).await.unwrap() {
        all.extend(
            ledger
                .list_records(RecordKind::LearnedFact, principal, 99, now)
                .await
                .unwrap(),
        );
    }
    all
}

/// Returns the only fact of a kind.
async fn fact(replicas: &Replicas, start: [u8; 2]) -> Record {
    let all = facts(replicas).await;
    let mut found: Vec<Record> = all
        .into_iter()
        .filter(|record| record.value.starts_with(&start))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Stores the bytes that another version writes beside a record.
async fn store(replicas: &Replicas, beside: &Record, name: u8, value: Vec<u8>) -> RecordKey {
    let key = RecordKey {
        name: [name; 32],
        ..beside.key
    };
    let step = CommitStep::insert_record(key, value.into(), beside.expires_at);
    let done = replicas
        .ledger(0)
        .commit(vec![step], antiphon::clock::unix_time())
        .await;
    assert_eq!(done.unwrap(), CommitOutcome::Done);
    key
}

async fn sends(replicas: &Replicas, body: &Value) -> (u16, String) {
    let sent = replicas.send(0, CHAT, body).await;
    (sent.status, sent.sends)
}

fn in_sends(sends: &str) -> (u16, String) {
    (200, sends.to_owned())
}

/// A fact under the number of rules, as versions before mends wrote it, is followed, and written on with those learned since.
#[tokio::test(start_paused = true)]
async fn rules_of_an_older_version_stay_in_force() {
    let mut replicas = start();
    assert_eq!(sends(&replicas, &without_user()).await, in_sends("2"));
    let rules = fact(&replicas, RULES).await;
    // Version, kind, key, flags, and the place of text: the bytes of an older version.
    assert_eq!((rules.value.len(), &rules.value[34..]), (36, &[4, 0][..]));
    assert_eq!(sends(&replicas, &developer()).await, in_sends("2"));
    replicas.restart();
    for body in [without_user(), developer()] {
        assert_eq!(sends(&replicas, &body).await, in_sends("1"), "{body}");
    }
    // A third fault of the same model is learned beside both, in a record that has the earlier mend.
    assert_eq!(sends(&replicas, &reasoning()).await, in_sends("2"));
    replicas.restart();
    for body in [without_user(), developer(), reasoning()] {
        assert_eq!(sends(&replicas, &body).await, in_sends("1"), "{body}");
    }
    assert_eq!(fact(&replicas, RULES).await.value, rules.value, "the older record");
}

/// Facts of kinds and versions that this one does not know are passed over, and stay for those that know them. An older
/// version meets mends in the same way.
#[tokio::test(start_paused = true)]
async fn facts_of_a_newer_version_are_passed_over_and_stay() {
    let mut replicas = start();
    assert_eq!(sends(&replicas, &without_user()).await, in_sends("2"));
    let rules = fact(&replicas, RULES).await;
    let mut later = Vec::new();
    for (name, start) in [(1, LATER_KIND), (2, LATER_VERSION)] {
        // Under the same key, and with a content of any length.
        let value = [&start, &rules.value[2..34], b"of a later version"].concat();
        later.push((store(&replicas, &rules, name, value.clone()).await, value));
    }
    replicas.restart();
    assert_eq!(sends(&replicas, &without_user()).await, in_sends("1"));
    assert_eq!(sends(&replicas, &developer()).await, in_sends("2"));
    replicas.restart();
    for body in [without_user(), developer()] {
        assert_eq!(sends(&replicas, &body).await, in_sends("1"), "{body}");
    }
    let now = antiphon::clock::unix_time();
    let ledger: &dyn Ledger = replicas.ledger(0);
    ledger.remove_unusable(now).await.unwrap();
    for (key, value) in later {
        let kept = ledger.read(vec![key], now).await.unwrap().remove(0);
        assert_eq!(kept.map(|record| record.value.to_vec()), Some(value));
    }
}

/// A list with a mend that this version does not know: the others hold, and are written on.
#[tokio::test(start_paused = true)]
async fn a_mend_of_a_newer_version_is_passed_over_within_its_list() {
    let mut replicas = start();
    assert_eq!(sends(&replicas, &developer()).await, in_sends("2"));
    let taught = fact(&replicas, TAUGHT).await;
    let (head, known) = taught.value.split_at(34);
    // Number, flag, and two words with their lengths, in front of the known mend and behind it.
    let unknown = |number: u8| vec![number, 0, 3, b'n', b'e', b'w', 1, b'c'];
    let list = [head, &unknown(250), known, &unknown(251)].concat();
    store(&replicas, &taught, 3, list).await;
    replicas.restart();
    assert_eq!(sends(&replicas, &developer()).await, in_sends("1"));
    assert_eq!(sends(&replicas, &reasoning()).await, in_sends("2"));
    let lists = facts(&replicas).await;
    let latest = lists.iter().rev().find(|record| record.value.starts_with(&TAUGHT));
    let latest = &latest.unwrap().value[34..];
    let has_known = latest.windows(known.len()).any(|window| window == known);
    assert!(has_known && latest.len() > known.len(), "{latest:?}");
    replicas.restart();
    for body in [developer(), reasoning()] {
        assert_eq!(sends(&replicas, &body).await, in_sends("1"), "{body}");
    }
}

/// A damaged list is passed over as a whole: the mend costs one more refusal.
#[tokio::test(start_paused = true)]
async fn a_damaged_list_costs_one_more_refusal() {
    let mut replicas = start();
    assert_eq!(sends(&replicas, &developer()).await, in_sends("2"));
    let taught = fact(&replicas, TAUGHT).await;
    for (name, cut) in [(4, 35), (5, taught.value.len() - 1)] {
        store(&replicas, &taught, name, taught.value[..cut].to_vec()).await;
    }
    let ledger: Arc<[Record]> = facts(&replicas).await.into();
    assert_eq!(ledger.len(), 3);
    replicas.restart();
    // The whole record of before is read still.
    assert_eq!(sends(&replicas, &developer()).await, in_sends("1"));
    let step = taught.remove_step();
    let removed = replicas
        .ledger(0)
        .commit(vec![step], antiphon::clock::unix_time())
        .await;
    assert_eq!(removed.unwrap(), CommitOutcome::Done);
    replicas.restart();
    assert_eq!(sends(&replicas, &developer()).await, in_sends("2"));
    replicas.restart();
    assert_eq!(sends(&replicas, &developer()).await, in_sends("1"));
}
