//! Short stories with two replicas.

use std::time::Duration;

use serde_json::{Value, json};

use super::fleet::{Answered, Fleet};
use crate::support::{
    app::get_with,
    database::{DatabaseServer, new_database},
    provider::{Provider, Reply, ToolCall},
};

pub(super) const ID: &str = "toolu_01AaBb9dE3fG7hJ2";

/// A client that stores its own history, and whose balancer may choose another replica for each request.
pub(super) struct Talk(Vec<Value>);

impl Talk {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) async fn says(&mut self, fleet: &Fleet, at: usize, words: &str) -> Answered {
        self.0.push(json!({"role": "user", "content": words}));
        let body = json!({"model": "m", "max_tokens": 99, "messages": self.0});
        let answer = fleet.send(at, "sk-ann", "one", &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.0
            .push(json!({"role": "assistant", "content": answer.body["content"]}));
        answer
    }
}

/// Posts a result until it settles its call, which may be on its way to the database. Returns the answer.
pub(super) async fn settles(fleet: &Fleet, at: usize, (id, content): (&str, &str), owner: &str) -> Answered {
    let body = json!({"content": content, "owner": owner});
    for _ in 0..500 {
        let answer = fleet.post(at, id, &body).await.expect("an answer");
        if answer.status == 200 {
            return answer;
        }
        assert_eq!(answer.status, 202, "{}", answer.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the result does not settle");
}

pub(super) fn messages(provider: &Provider) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&provider.last().body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

/// The model calls a tool through replica 0. Returns the owner of the call.
pub(super) async fn calls(provider: &Provider, talk: &mut Talk, fleet: &Fleet) -> String {
    talk.says(fleet, 0, "hello").await;
    provider.reply(Reply::Calls(vec![ToolCall::new(ID, "read", json!({}))]));
    talk.says(fleet, 0, "read it").await.owner
}

/// The 200 posts of the report: 84 vanished, and 96 results were never seen.
#[tokio::test]
async fn a_result_that_one_replica_got_is_in_the_next_request_of_the_other() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 2, "").await;
    let mut talk = Talk::new();
    let owner = calls(&provider, &mut talk, &fleet).await;
    settles(&fleet, 1, (ID, "the result"), &owner).await;
    let answer = talk.says(&fleet, 0, "go on").await;
    assert_eq!(answer.repair, "restored=1");
    assert_eq!(answer.owner, owner, "both replicas give the caller one owner");
    let first = messages(&provider);
    assert_eq!(first[4]["content"][0]["content"], "the result");
    let answer = talk.says(&fleet, 1, "and now?").await;
    assert_eq!(answer.repair, "restored=1");
    assert!(messages(&provider).starts_with(&first), "the prefix changed");
}

#[tokio::test]
async fn a_replica_that_dies_after_its_answer_has_lost_nothing() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let mut fleet = Fleet::start(&provider, &url, 2, "").await;
    let mut talk = Talk::new();
    let owner = calls(&provider, &mut talk, &fleet).await;
    // A placeholder first, so that the result is appended to a later message and has to stay there.
    talk.says(&fleet, 1, "what is it?").await;
    settles(&fleet, 0, (ID, "the late result"), &owner).await;
    fleet.crash(0).await;
    talk.says(&fleet, 0, "go on").await;
    let first = messages(&provider);
    assert!(
        first[6]["content"].as_str().unwrap().contains("the late result"),
        "{first:?}"
    );
    fleet.crash(0).await;
    for at in [1, 0] {
        talk.says(&fleet, at, "and now?").await;
        let now = messages(&provider);
        assert!(now.starts_with(&first), "{first:?}\n{now:?}");
        assert_eq!(json!(now).to_string().matches("the late result").count(), 1);
    }
}

/// The database crashes between a result and the next request, which waits for it.
#[tokio::test]
async fn a_database_that_comes_back_within_the_patience_of_a_request_contradicts_nothing() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 2, "").await;
    let mut talk = Talk::new();
    let owner = calls(&provider, &mut talk, &fleet).await;
    settles(&fleet, 1, (ID, "the result"), &owner).await;
    server.crash();
    let ready = fleet.replicas[0].ask_admin(get_with("/readyz?verbose", &[])).await;
    assert_eq!(ready.status(), 200, "{}", ready.text());
    assert!(
        ready.text().contains("its database cannot be reached"),
        "{}",
        ready.text()
    );
    let restart = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.run(&[]).await;
    };
    let (answer, ()) = tokio::join!(talk.says(&fleet, 0, "go on"), restart);
    assert_eq!(answer.repair, "restored=1");
    let first = messages(&provider);
    talk.says(&fleet, 1, "and now?").await;
    assert!(messages(&provider).starts_with(&first), "the prefix changed");
}

/// A placeholder was sent, and the service posts the result: whoever asks next gets it, without a moment between.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_result_is_in_the_request_that_follows_its_acknowledgement_at_once() {
    const ROUNDS: usize = 60;
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 2, "").await;
    let mut missed = Vec::new();
    for round in 0..ROUNDS {
        let id = format!("toolu_01AbC9dE3fG7hJ2kL4mN{round:04}");
        provider.reply(Reply::Calls(vec![ToolCall::new(&id, "read", json!({}))]));
        let mut talk = Talk::new();
        talk.says(&fleet, 0, &format!("read it {round}")).await;
        talk.says(&fleet, 0, "what is it?").await;
        let owner = talk.says(&fleet, 1, "and now?").await.owner;
        settles(&fleet, 1, (&id, "the late result"), &owner).await;
        talk.says(&fleet, 0, "go on").await;
        if !json!(messages(&provider)).to_string().contains("the late result") {
            missed.push(round);
        }
    }
    assert!(missed.is_empty(), "missed in {missed:?} of {ROUNDS} rounds");
}

/// A request that is answered although the database was away for a moment has every late result that was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_result_is_in_a_request_that_waited_for_the_database() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 2, "[ledger]\non_outage = \"refuse\"\n").await;
    let mut talk = Talk::new();
    let owner = calls(&provider, &mut talk, &fleet).await;
    talk.says(&fleet, 1, "what is it?").await;
    settles(&fleet, 1, (ID, "the late result"), &owner).await;
    server.crash();
    let restart = async {
        // Longer than a request waits without need, and shorter than one waits that may contradict what was sent.
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.run(&[]).await;
    };
    tokio::join!(talk.says(&fleet, 0, "go on"), restart);
    let now = json!(messages(&provider)).to_string();
    assert_eq!(now.matches("the late result").count(), 1, "{now}");
}
