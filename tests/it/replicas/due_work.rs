//! Work that is due, and news for whoever listens: each is done by one replica, whichever that is.

use std::time::Duration;

use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::support::{
    app::{get_with, post_with},
    database::new_database,
    provider::{Provider, Reply, ToolCall},
    receiver::{Answer, Receiver},
    wire::Client,
};

const ID: &str = "toolu_01AaBb9dE3fG7hJ2";
const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The model calls a tool through replica 0. Returns the conversation and its owner.
async fn calls(provider: &Provider, fleet: &Fleet, tool: &str) -> (Vec<Value>, String) {
    let mut log = vec![json!({"role": "user", "content": "go"})];
    let mut owner = String::new();
    let call = Reply::Calls(vec![ToolCall::new(ID, tool, json!({"seat": "canary"}))]);
    for reply in [Reply::Text("hello".to_owned()), call] {
        provider.reply(reply);
        let body = json!({"model": "m", "max_tokens": 99, "messages": log});
        let answer = fleet.send(0, "sk-ann", "one", &body).await.expect("an answer");
        log.push(json!({"role": "assistant", "content": answer.body["content"]}));
        log.push(json!({"role": "user", "content": "and?"}));
        owner = answer.owner;
    }
    (log, owner)
}

/// Posts the result until it settles its call, which may be on its way to the database.
async fn settles(fleet: &Fleet, at: usize, owner: &str) {
    let body = json!({"content": "the result", "owner": owner});
    while fleet.post(at, ID, &body).await.expect("an answer").status != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_event_reaches_its_webhook_once() {
    let Some(url) = new_database().await else { return };
    let (provider, receiver) = (Provider::start().await, Receiver::start().await);
    let webhook = format!(
        "[webhooks.all]\nurl = \"{}\"\nsecret = \"{SECRET}\"\nprincipals = [\"*\"]\n",
        receiver.url()
    );
    let fleet = Fleet::start(&provider, &url, 3, &webhook).await;
    let (_, owner) = calls(&provider, &fleet, "render").await;
    settles(&fleet, 1, &owner).await;
    let received = receiver.wait_for(1).await;
    assert_eq!(received[0].json()["data"]["call_id"], ID);
    // The others look at the message two seconds after they were told of it.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(receiver.received().len(), 1, "{:?}", receiver.received());
}

#[tokio::test]
async fn a_conversation_that_goes_on_at_another_replica_is_not_cancelled() {
    let Some(url) = new_database().await else { return };
    let (provider, receiver) = (Provider::start().await, Receiver::start().await);
    let settings = undoable(&receiver, "detach_after = \"1s\"\ncancel_grace = \"500ms\"");
    let fleet = Fleet::start(&provider, &url, 2, &settings).await;
    let (log, _) = calls(&provider, &fleet, "hold").await;
    for _ in 0..20 {
        let body = json!({"model": "m", "max_tokens": 99, "messages": log});
        let answer = fleet.send(1, "sk-ann", "one", &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(receiver.received().is_empty(), "{:?}", receiver.received());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // Nobody speaks any more: the service is asked once.
    let received = receiver.wait_for(1).await;
    assert_eq!(received[0].json()["data"]["call_id"], ID);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(receiver.received().len(), 1, "{:?}", receiver.received());
}

/// Returns the settings of the tool `hold`, which can be undone.
fn undoable(receiver: &Receiver, ledger: &str) -> String {
    format!(
        "secret = \"{SECRET}\"\n[ledger]\n{ledger}\n\
         [tools.hold]\ntier = \"revertible\"\nmax_duration = \"10m\"\ncancel_url = \"{}\"\n",
        receiver.url()
    )
}

async fn closes(fleet: &Fleet, at: usize) {
    let path = "/ledger/v1/sessions/one/close";
    let request = post_with(path, &[("x-api-key", "sk-ann")], b"{}");
    let answer = fleet.replicas[at].ask(request).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// The service takes its time to answer a cancel, and gets it once all the same.
#[tokio::test]
async fn a_cancel_belongs_to_the_replica_that_sends_it() {
    let Some(url) = new_database().await else { return };
    let (provider, receiver) = (Provider::start().await, Receiver::start().await);
    let settings = undoable(&receiver, "cancel_grace = \"1s\"");
    let fleet = Fleet::start(&provider, &url, 2, &settings).await;
    receiver.answer([Answer::Hang]);
    calls(&provider, &fleet, "hold").await;
    closes(&fleet, 0).await;
    receiver.wait_for(1).await;
    // The other replica looks at the message two seconds after it was told of it.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(receiver.received().len(), 1, "{:?}", receiver.received());
}

/// An owner asks many times at once, at both replicas: the service gets one message.
#[tokio::test]
async fn a_cancel_that_an_owner_asks_for_at_two_replicas_is_one_message() {
    let Some(url) = new_database().await else { return };
    let (provider, receiver) = (Provider::start().await, Receiver::start().await);
    let fleet = Fleet::start(&provider, &url, 2, &undoable(&receiver, "")).await;
    calls(&provider, &fleet, "hold").await;
    let path = format!("/ledger/v1/calls/{ID}/cancel");
    let ask = async |at: usize| {
        let request = post_with(&path, &[("x-api-key", "sk-ann")], b"{}");
        fleet.replicas[at].ask(request).await.status()
    };
    // Replica 1 may still learn of the call.
    while ask(1).await == 404 {}
    let asked = futures_util::future::join_all((0..32).map(async |number| ask(number % 2).await)).await;
    assert!(asked.iter().all(|status| *status == 202), "{asked:?}");
    receiver.wait_for(1).await;
    // Another replica looks at a message two seconds after it was told of it.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(receiver.received().len(), 1, "{:?}", receiver.received());
}

/// The replica that knows why a conversation was left dies before the cancel is due: one that has seen the conversation
/// itself, and nothing of its end, sends it.
#[tokio::test]
async fn a_cancel_outlives_the_replica_that_has_its_evidence() {
    let Some(url) = new_database().await else { return };
    let (provider, receiver) = (Provider::start().await, Receiver::start().await);
    let settings = undoable(&receiver, "cancel_grace = \"3s\"");
    let mut fleet = Fleet::start(&provider, &url, 2, &settings).await;
    let (log, _) = calls(&provider, &fleet, "hold").await;
    let body = json!({"model": "m", "max_tokens": 99, "messages": log});
    fleet.send(1, "sk-ann", "one", &body).await.expect("an answer");
    tokio::time::sleep(Duration::from_millis(200)).await;
    closes(&fleet, 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(fleet.replicas.remove(0));
    assert!(receiver.received().is_empty(), "{:?}", receiver.received());
    let received = receiver.wait_for(1).await;
    assert_eq!(received[0].json()["data"]["reason"], "closed");
}

#[tokio::test]
async fn a_feed_announces_what_was_posted_to_another_replica() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::start().await;
    let fleet = Fleet::start(&provider, &url, 2, "").await;
    let (_, owner) = calls(&provider, &fleet, "render").await;
    let mut client = Client::connect(fleet.replicas[1].data).await;
    client
        .send(get_with("/ledger/v1/feed", &[("x-api-key", "sk-ann")]))
        .await;
    client.until("200 OK").await;
    settles(&fleet, 0, &owner).await;
    client.until(ID).await;
}

/// The replica that sends a message dies before its receiver has answered: another one sends it when the lease has ended.
#[tokio::test]
async fn another_replica_sends_the_message_of_one_that_died() {
    let Some(url) = new_database().await else { return };
    let (provider, receiver) = (Provider::start().await, Receiver::start().await);
    let webhook = format!(
        "[webhooks.all]\nurl = \"{}\"\nsecret = \"{SECRET}\"\nprincipals = [\"*\"]\n",
        receiver.url()
    );
    let mut fleet = Fleet::start(&provider, &url, 2, &webhook).await;
    receiver.answer([Answer::Hang]);
    let (_, owner) = calls(&provider, &fleet, "render").await;
    settles(&fleet, 0, &owner).await;
    receiver.wait_for(1).await;
    drop(fleet.replicas.remove(0));
    // The lease lasts a minute.
    tokio::time::sleep(Duration::from_secs(50)).await;
    let received = receiver.wait_for(2).await;
    assert_eq!(received[0].id, received[1].id);
}
