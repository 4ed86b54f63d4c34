//! The primary of the database is lost for good, and its standby, which has confirmed every commit, takes its place.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    clients::Clients,
    fleet::Fleet,
    stories::{ID, Talk, calls, settles},
};
use crate::support::{
    database::DatabaseServer,
    provider::{Provider, Reply, ToolCall},
    seed::{number, seed},
    wire::spawn,
};

const SECOND: &str = "toolu_01CcDd8eF4gH6jK3";
const STEPS: usize = 60;

/// A primary and its standby.
struct DatabasePair {
    primary: DatabaseServer,
    standby: DatabaseServer,
}

impl DatabasePair {
    /// Starts both. Returns them with the URL of a new database, which names both hosts. `None` if PostgreSQL is not
    /// installed, which is said.
    async fn start() -> Option<(Self, String)> {
        let Some(primary) = DatabaseServer::start().await else {
            println!("skipped: PostgreSQL is not installed");
            return None;
        };
        let standby = primary.start_standby().await;
        let first = format!("127.0.0.1:{}", primary.port());
        let both = format!("{first},127.0.0.1:{}", standby.port());
        let url = primary.new_database().await.replace(&first, &both);
        Some((Self { primary, standby }, url))
    }

    /// Loses the primary, and promotes the standby a moment later.
    async fn fail_over(&self, later: Duration) {
        self.primary.crash();
        tokio::time::sleep(later).await;
        self.standby.promote().await;
    }
}

/// Returns the bytes of the last request up to the end of its messages.
fn prefix(provider: &Provider) -> String {
    let mut body = String::from_utf8(provider.last().body.to_vec()).unwrap();
    body.truncate(body.rfind(']').unwrap());
    body
}

/// One result was sent as a late text behind its placeholder, and one was acknowledged and in no request yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_has_all_that_was_acknowledged() {
    let Some((databases, url)) = DatabasePair::start().await else {
        return;
    };
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 2, "").await;
    let mut talk = Talk::new();
    let owner = calls(&provider, &mut talk, &fleet).await;
    talk.says(&fleet, 1, "what is it?").await;
    settles(&fleet, 0, (ID, "the late result"), &owner).await;
    talk.says(&fleet, 0, "go on").await;
    provider.reply(Reply::Calls(vec![ToolCall::new(SECOND, "read", json!({}))]));
    talk.says(&fleet, 1, "read more").await;
    let before = prefix(&provider);
    assert_eq!(before.matches("the late result").count(), 1, "{before}");
    assert_eq!(
        settles(&fleet, 1, (SECOND, "the other result"), &owner).await.body["first"],
        true
    );
    let mut before = before;
    let (answer, ()) = tokio::join!(
        talk.says(&fleet, 0, "and now?"),
        databases.fail_over(Duration::from_millis(500))
    );
    assert_eq!(answer.owner, owner);
    for at in [0, 1, 0] {
        let now = prefix(&provider);
        assert!(now.starts_with(&before), "the prefix changed: {before}\n{now}");
        for result in ["the late result", "the other result"] {
            assert_eq!(now.matches(result).count(), 1, "{result}: {now}");
        }
        before = now;
        let again = settles(&fleet, at, (SECOND, "the other result"), &owner).await;
        assert_eq!(again.body["first"], false, "{}", again.body);
        talk.says(&fleet, at, "and then?").await;
    }
}

/// Conversations go on and results are posted while the primary dies and its standby takes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_in_the_middle_of_a_walk_breaks_no_promise() {
    let Some((databases, url)) = DatabasePair::start().await else {
        return;
    };
    let (databases, seed) = (Arc::new(databases), seed());
    let steps = number("STEPS").unwrap_or(STEPS);
    println!("SEED={seed} STEPS={steps}");
    let mut clients = Clients::start(seed, &url, 2).await;
    let mut failover = None;
    for at in 0..steps {
        if at == steps / 2 {
            let (soon, later) = (clients.rng.below(40) as u64, 200 * clients.rng.below(8) as u64);
            let databases = Arc::clone(&databases);
            failover = Some(spawn(async move {
                // In the middle of a request or a post.
                tokio::time::sleep(Duration::from_millis(soon)).await;
                databases.fail_over(Duration::from_millis(later)).await;
            }));
        }
        let known = clients.known_faults();
        match clients.rng.below(100) {
            0..50 => clients.speaks().await,
            50..75 => clients.posts().await,
            75..88 => clients.claims().await,
            88..95 => clients.reports().await,
            _ => clients.starts_another(),
        }
        clients.place_faults(known, &format!("SEED={seed} step {at}"));
    }
    failover.expect("a failover").await.unwrap();
    clients.finish().await;
}
