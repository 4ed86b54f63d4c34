//! A key that a provider puts into cooldown at one replica has a cooldown at all: by its credential, whatever a replica calls its profile.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    keys::profiles::{Profiles, SharedCooldowns},
    ledger::Ledger,
    policy::RotationSettings,
    table::TableParts,
    telemetry::Telemetry,
    writer::writer,
};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use super::fleet::Fleet;
use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::{get_with, post_with},
        database::{DatabaseServer, new_database},
        pool::{UNKNOWN, ask, does, pooled, profile, reached, strangers},
        provider::{Provider, Reply},
        still::{self, World},
        wire::spawn,
    },
};

pub(super) const KEYS: [&str; 2] = ["sk-canary-key-one", "sk-canary-key-two"];
/// A key of some tests besides.
const THIRD: &str = "sk-canary-key-three";
/// The time within which a cooldown reaches the other replicas.
const SECOND: Duration = Duration::from_secs(1);

/// Starts a replica whose profiles have these keys.
async fn replica(provider: &Provider, url: &str, keys: [&str; 2]) -> Fleet {
    Fleet::start(provider, url, 1, &profiles_of(keys)).await
}

/// Returns the configuration of profiles with these keys.
pub(super) fn profiles_of<const COUNT: usize>(keys: [&str; COUNT]) -> String {
    let profile = |(name, key)| format!("[[upstreams.anthropic.profiles]]\nname = \"{name}\"\napi_key = \"{key}\"\n");
    ["first", "second", "third"]
        .into_iter()
        .zip(keys)
        .map(profile)
        .collect()
}

async fn asks(fleet: &Fleet, at: usize, session: &str) -> u16 {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]});
    fleet
        .send(at, "sk-client", session, &body)
        .await
        .expect("an answer")
        .status
}

async fn used_keys(provider: &Provider, fleet: &Fleet) -> BTreeSet<String> {
    used_keys_at(provider, fleet, 0).await
}

/// Returns the keys that the provider gets from requests of new sessions: an old one stays with its key.
pub(super) async fn used_keys_at(provider: &Provider, fleet: &Fleet, at: usize) -> BTreeSet<String> {
    let before = provider.seen().len();
    for session in before..before + 12 {
        assert_eq!(asks(fleet, at, &format!("s{session}")).await, 200);
    }
    let seen = provider.seen().into_iter().skip(before);
    seen.map(|request| request.headers["x-api-key"].to_str().unwrap().to_owned())
        .collect()
}

/// Has the provider reject the next key, for half a minute. Returns it.
pub(super) async fn is_refused(provider: &Provider, fleet: &Fleet) -> String {
    let error = json!({"type": "authentication_error", "message": "invalid x-api-key"});
    is_refused_with(provider, fleet, 401, error).await
}

/// Has the provider refuse the next key with this error. Returns the key.
async fn is_refused_with(provider: &Provider, fleet: &Fleet, status: u16, error: Value) -> String {
    provider.reply(Reply::Status(status, json!({"type": "error", "error": error})));
    let before = provider.seen().len();
    assert_eq!(asks(fleet, 0, "refused").await, 200, "the other key serves it");
    let refused = provider.seen().swap_remove(before);
    assert_eq!(refused.status, status);
    refused.headers["x-api-key"].to_str().unwrap().to_owned()
}

pub(super) fn all_but(key: &str) -> BTreeSet<String> {
    KEYS.into_iter()
        .filter(|other| *other != key)
        .map(str::to_owned)
        .collect()
}

/// Waits until this many profiles of a replica are not ready.
async fn wait_for_resting(fleet: &Fleet, count: usize) {
    let lasting = async || {
        let page = fleet.replicas[0].ask_admin(get_with("/admin/v1/profiles", &[])).await;
        let page = page.json();
        let profiles = page["profiles"].as_array().unwrap().iter();
        profiles.filter(|profile| profile["state"] != "ready").count()
    };
    for _ in 0..600 {
        if lasting().await == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} profiles cooldown, not {count}", lasting().await);
}

/// Returns the number of cooldowns in the ledger.
async fn stored_cooldowns(url: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    drop(spawn(async move { drop(connection.await) }));
    let count = "SELECT count(*) FROM antiphon_records WHERE kind = 20";
    client.query_one(count, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_cooldown_at_one_replica_holds_at_all() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let one = replica(&provider, &url, KEYS).await;
    let other = replica(&provider, &url, [KEYS[1], KEYS[0]]).await;
    assert_eq!(used_keys(&provider, &other).await.len(), 2, "both keys are in use");
    let refused = is_refused(&provider, &one).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(used_keys(&provider, &other).await, all_but(&refused));
    // One that starts now knows it, too.
    let third = replica(&provider, &url, KEYS).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(used_keys(&provider, &third).await, all_but(&refused));
    // An operator ends it everywhere.
    let name = if refused == KEYS[1] { "first" } else { "second" };
    let path = format!("/admin/v1/profiles/anthropic/{name}/clear");
    let cleared = other.replicas[0].ask_admin(post_with(&path, &[], b"")).await;
    assert_eq!(cleared.status(), 204, "{}", cleared.text());
    tokio::time::sleep(SECOND).await;
    for (fleet, which) in [(&one, "the first"), (&other, "the other"), (&third, "the third")] {
        assert_eq!(used_keys(&provider, fleet).await.len(), 2, "{which}");
    }
}

/// Without the database each replica is right by itself. The others learn of the cooldown when it is back.
#[tokio::test]
async fn a_cooldown_waits_for_the_database() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let provider = Provider::start().await;
    let (one, other) = (
        replica(&provider, &url, KEYS).await,
        replica(&provider, &url, KEYS).await,
    );
    for fleet in [&one, &other] {
        assert_eq!(used_keys(&provider, fleet).await.len(), 2);
    }
    server.crash();
    // For hours: on a slow machine the database may be away for longer than half a minute.
    let unpaid = json!({"type": "billing_error", "message": "Your credit balance is too low to access the API."});
    let refused = is_refused_with(&provider, &one, 402, unpaid).await;
    assert_eq!(used_keys(&provider, &one).await, all_but(&refused));
    assert_eq!(used_keys(&provider, &other).await.len(), 2);
    server.run(&[]).await;
    // It is sent nothing meanwhile: the success of a request that was under way would end the cooldown.
    wait_for_resting(&other, 1).await;
    assert_eq!(used_keys(&provider, &other).await, all_but(&refused));
}

/// What only one replica sees, such as a provider that it cannot reach, puts no key into cooldown.
#[tokio::test]
async fn a_failed_network_begins_no_cooldown() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let fleet = replica(&provider, &url, KEYS).await;
    drop(provider);
    assert!(asks(&fleet, 0, "one").await >= 500);
    tokio::time::sleep(SECOND).await;
    assert_eq!(stored_cooldowns(&url).await, 0);
}

/// A new conversation gets the same key, and so the same prompt cache, whichever replica serves it.
#[tokio::test]
async fn every_replica_chooses_the_same_key_for_a_conversation() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let replicas = [
        replica(&provider, &url, KEYS).await,
        replica(&provider, &url, KEYS).await,
    ];
    let mut chosen = BTreeSet::new();
    for session in 0..12 {
        let mut keys = Vec::new();
        for fleet in &replicas {
            assert_eq!(asks(fleet, 0, &format!("s{session}")).await, 200);
            keys.push(provider.last().headers["x-api-key"].clone());
        }
        assert_eq!(keys[0], keys[1], "session {session}");
        chosen.insert(keys[0].to_str().unwrap().to_owned());
    }
    assert_eq!(chosen.len(), 2, "both keys are in use");
}

/// A limit on the size stops writes only: what the others have written is read all the same.
#[tokio::test]
async fn a_replica_without_room_for_its_cooldown_keeps_it_and_learns_those_of_others() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let limited = profiles_of([KEYS[0], KEYS[1], THIRD]) + "[ledger]\nbytes_max = \"1\"\n";
    let full = Fleet::start(&provider, &url, 1, &limited).await;
    let own = is_refused(&provider, &full).await;
    let others: Vec<&str> = [KEYS[0], KEYS[1], THIRD]
        .into_iter()
        .filter(|key| *key != own)
        .collect();
    // The keys of the other replica are the two without a cooldown.
    let other = replica(&provider, &url, [others[0], others[1]]).await;
    let shared = is_refused(&provider, &other).await;
    wait_for_resting(&full, 2).await;
    let left: BTreeSet<String> = others
        .iter()
        .filter(|key| **key != shared)
        .map(ToString::to_string)
        .collect();
    assert_eq!(used_keys(&provider, &full).await, left);
    assert_eq!(stored_cooldowns(&url).await, 1, "there is no room for its own");
}

/// Returns a world over a ledger, which shares the cooldowns of its keys with the others.
pub(super) fn sharing(ledger: &Arc<SwitchableLedger>, world: impl FnOnce(Arc<dyn Ledger>) -> World) -> World {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    let world = world(Arc::clone(&ledger));
    let (writes, task) = writer(Arc::clone(&ledger), Telemetry::default());
    let parts = TableParts::new(&ledger, &writes, Telemetry::default());
    let (cooldowns, reader) = SharedCooldowns::over_ledger(&parts).expect("a shared ledger");
    world.shared.profiles.share_cooldowns(&cooldowns);
    drop((spawn(reader.run()), spawn(task.run())));
    world
}

/// No change of the ledger tells of it: the cooldown was read before the process had the key.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_reload_or_its_source_adds_has_the_cooldown_of_another_replica() {
    for is_reload in [true, false] {
        let ledger = SwitchableLedger::shared(true);
        let one = sharing(&ledger, |ledger| {
            World::with(|builder| {
                builder.ledger = ledger;
                pooled(builder, &strangers("ab"));
            })
        });
        does(&one, &[("a", still::json(401, UNKNOWN))]);
        let other = sharing(&ledger.replica(), |ledger| {
            one.replica(|builder| {
                builder.ledger = ledger;
                let others = ["c", "b"].into_iter().zip(strangers("ab"));
                let others = others.map(|(label, like)| profile(label, None, like.weight));
                pooled(builder, &others.collect::<Vec<_>>());
            })
        });
        assert_eq!(reached(&one, ask("s1", 1)).await, ("ab".into(), 200));
        assert_eq!(reached(&other, ask("s1", 1)).await, ("c".into(), 200));
        one.until(one.now() + still::secs(5)).await;
        let questions = || ledger.questions.load(Ordering::Relaxed);
        let before = questions();
        one.until(one.now() + still::secs(5)).await;
        assert_eq!(questions(), before, "nobody reads what has not changed");
        if is_reload {
            let all = [("anthropic".to_owned(), strangers("ab"))].into();
            let settings = RotationSettings::default();
            other.reload(Profiles::new(["anthropic"], all, &settings, Telemetry::default()));
        } else {
            let credential = other.shared.profiles.pool("anthropic").credential(0);
            credential.replace(profile("a", None, 1).credential);
        }
        other.until(other.now() + SECOND).await;
        let used = reached(&other, ask("s2", 2)).await;
        assert_eq!(used, ("b".into(), 200), "after a reload: {is_reload}");
    }
}
