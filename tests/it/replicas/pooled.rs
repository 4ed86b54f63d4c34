//! Replicas behind PgBouncer in transaction mode, which forwards no notifications.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{
    fleet::Fleet,
    shared_cooldowns::{KEYS, all_but, is_refused, profiles_of, used_keys_at},
    stories::{ID, Talk, calls, messages, settles},
};
use crate::support::{binary::Process, database::DatabaseServer, pooler::Pooler, provider::Provider};

/// A server, and a pooler in front of it.
struct PooledServer {
    _server: DatabaseServer,
    _pooler: Pooler,
    /// The URL of a new database at the server itself, and that through the pooler.
    urls: [String; 2],
}

impl PooledServer {
    async fn start() -> Option<Self> {
        let Some(server) = DatabaseServer::start().await else {
            println!("skipped: PostgreSQL is not installed");
            return None;
        };
        let pooler = Pooler::start(&server).await?;
        let direct = server.new_database().await;
        let pooled = pooler.url_of(&direct);
        Some(Self {
            _server: server,
            _pooler: pooler,
            urls: [direct, pooled],
        })
    }
}

/// Waits until a line of a replica's log has these words.
async fn says(replica: &Process, words: &str) {
    for _ in 0..600 {
        if replica.log().iter().any(|line| line.contains(words)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{words}: {:?}", replica.log());
}

async fn all_say(fleet: &Fleet, words: &str) {
    for replica in &fleet.replicas {
        says(replica, words).await;
    }
}

/// A result and a late one that are posted at one replica reach the provider through the other.
async fn shares_results(provider: &Provider, fleet: &Fleet) {
    let mut talk = Talk::new();
    let owner = calls(provider, &mut talk, fleet).await;
    talk.says(fleet, 0, "what is it?").await;
    settles(fleet, 1, (ID, "the late result"), &owner).await;
    // Where notifications arrive, they need a moment.
    let mut first = messages(provider);
    for _ in 0..100 {
        talk.says(fleet, 0, "and now?").await;
        let now = messages(provider);
        assert!(now.starts_with(&first), "{first:?}\n{now:?}");
        first = now;
        if json!(first).to_string().contains("the late result") {
            break;
        }
    }
    talk.says(fleet, 1, "and then?").await;
    let now = messages(provider);
    assert!(now.starts_with(&first), "{first:?}\n{now:?}");
    assert_eq!(json!(now).to_string().matches("the late result").count(), 1);
}

/// A key in cooldown at one replica is in cooldown at the other. Returns the time that it took.
async fn shares_cooldowns(provider: &Provider, fleet: &Fleet) -> Duration {
    assert_eq!(used_keys_at(provider, fleet, 1).await.len(), 2, "both keys are in use");
    let refused = is_refused(provider, fleet).await;
    let began = Instant::now();
    // Meanwhile nothing is sent with that key: a success would end its cooldown everywhere.
    says(
        &fleet.replicas[1],
        "another replica has begun or ended a profile's cooldown",
    )
    .await;
    let time = began.elapsed();
    assert_eq!(used_keys_at(provider, fleet, 1).await, all_but(&refused));
    time
}

#[tokio::test]
async fn a_pooler_and_notifications_past_it_keep_every_promise() {
    let Some(pooled) = PooledServer::start().await else {
        return;
    };
    let [direct, url] = &pooled.urls;
    let provider = Provider::start().await;
    let more = format!("{}[ledger]\nlisten_url = \"{direct}\"\n", profiles_of(KEYS));
    let fleet = Fleet::start(&provider, url, 2, &more).await;
    all_say(&fleet, "notifications from the database arrive").await;
    shares_results(&provider, &fleet).await;
    println!("the cooldown took {:?}", shares_cooldowns(&provider, &fleet).await);
    for replica in &fleet.replicas {
        let log = replica.log().join("\n");
        assert!(!log.contains("no notifications"), "{log}");
    }
}

#[tokio::test]
async fn a_pooler_alone_keeps_every_promise_without_notifications() {
    let Some(pooled) = PooledServer::start().await else {
        return;
    };
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &pooled.urls[1], 2, &profiles_of(KEYS)).await;
    all_say(&fleet, "set ledger.listen_url to the database itself").await;
    shares_results(&provider, &fleet).await;
    println!("the cooldown took {:?}", shares_cooldowns(&provider, &fleet).await);
    for replica in &fleet.replicas {
        let log = replica.log().join("\n");
        assert!(!log.contains("notifications from the database arrive"), "{log}");
    }
}
