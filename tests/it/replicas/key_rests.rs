//! A key that a provider rests at one replica rests at all: by its credential, whatever a replica calls its profile.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use tokio_postgres::NoTls;

use super::fleet::Fleet;
use crate::support::{
    app::post_with,
    database::{DatabaseServer, new_database},
    provider::{Provider, Reply},
    wire::spawn,
};

pub(super) const KEYS: [&str; 2] = ["sk-canary-key-one", "sk-canary-key-two"];
/// The time within which a cooldown reaches the other replicas.
const SECOND: Duration = Duration::from_secs(1);

/// Starts a replica whose profiles have these keys.
async fn replica(provider: &Provider, url: &str, keys: [&str; 2]) -> Fleet {
    Fleet::start(provider, url, 1, &profiles_of(keys)).await
}

/// Returns the configuration of two profiles with these keys.
pub(super) fn profiles_of(keys: [&str; 2]) -> String {
    let profile = |(name, key)| format!("[[upstreams.anthropic.profiles]]\nname = \"{name}\"\napi_key = \"{key}\"\n");
    ["first", "second"].into_iter().zip(keys).map(profile).collect()
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

/// Has the provider refuse the next key. Returns it.
pub(super) async fn is_refused(provider: &Provider, fleet: &Fleet) -> String {
    let error = json!({"type": "authentication_error", "message": "invalid x-api-key"});
    provider.reply(Reply::Status(401, json!({"type": "error", "error": error})));
    let before = provider.seen().len();
    assert_eq!(asks(fleet, 0, "refused").await, 200, "the other key serves it");
    let refused = provider.seen().swap_remove(before);
    assert_eq!(refused.status, 401);
    refused.headers["x-api-key"].to_str().unwrap().to_owned()
}

pub(super) fn all_but(key: &str) -> BTreeSet<String> {
    KEYS.into_iter()
        .filter(|other| *other != key)
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_key_that_one_replica_rests_rests_at_all() {
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
    let refused = is_refused(&provider, &one).await;
    assert_eq!(used_keys(&provider, &one).await, all_but(&refused));
    assert_eq!(used_keys(&provider, &other).await.len(), 2);
    server.run(&[]).await;
    for _ in 0..100 {
        if used_keys(&provider, &other).await == all_but(&refused) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the other replica does not learn of the cooldown");
}

/// What only one replica sees, such as a provider that it cannot reach, rests no key.
#[tokio::test]
async fn a_failed_network_rests_no_key() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let fleet = replica(&provider, &url, KEYS).await;
    drop(provider);
    assert!(asks(&fleet, 0, "one").await >= 500);
    tokio::time::sleep(SECOND).await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    drop(spawn(async move { drop(connection.await) }));
    let count = "SELECT count(*) FROM antiphon_records WHERE kind = 20";
    let rows = client.query_one(count, &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 0);
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
