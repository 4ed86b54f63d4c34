//! A call that was never recorded, because its process died with its answer: a result that waits for it meets it in a
//! later request of its owner, and of nobody else.

use std::sync::Arc;

use antiphon::ledger::Ledger;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{fleet::Fleet, stories::settles};
use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        database::DatabaseServer,
        late::{
            FILM, ID, answered, ask, ask_as, brings, calls, copies, get, last_body, outstanding, owner, post, post_to,
            says, script_call, service, world_over,
        },
        provider::{Provider, Reply, ToolCall},
        still::World,
        wire::start_relay,
    },
};

/// Histories that contain the call: without an answer, with an answer of the client, and with the call far back.
fn histories() -> Vec<(&'static str, Vec<Value>)> {
    let started = brings(ID, &json!("job started"));
    let far = [answered(), says("hm"), answered(), says("and now?")];
    vec![
        ("unanswered", vec![says("go"), calls(ID), says("hurry")]),
        (
            "unanswered, far back",
            [vec![says("go"), calls(ID), says("hurry")], far.to_vec()].concat(),
        ),
        ("answered", vec![says("go"), calls(ID), started.clone()]),
        (
            "answered, far back",
            [vec![says("go"), calls(ID), started], far.to_vec()].concat(),
        ),
    ]
}

/// Lets a replica answer with the call and die with it. Returns the other replica, and the owner.
async fn loses_call() -> (World, String) {
    let first = SwitchableLedger::shared(true);
    let second: Arc<dyn Ledger> = first.replica();
    let one = world_over(&(Arc::<SwitchableLedger>::clone(&first) as Arc<dyn Ledger>), |_| ());
    let owner = owner(&ask(&one, "s1", &[says("hello")]).await);
    // From now on nothing reaches the ledger any more.
    drop(first.restart());
    script_call(&one, &calls(ID));
    ask(&one, "s1", &[says("go")]).await;
    let two = one.replica(|builder| {
        builder.ledger = second;
        builder.late.services = vec![service("tools", None, None)];
    });
    two.settle().await;
    (two, owner)
}

/// Goes on with a conversation, three times. Returns `true` if the provider got the result.
async fn gets_film(world: &World, key: &str, history: &[Value]) -> bool {
    let mut log = history.to_vec();
    let mut copied = 0;
    for _ in 0..3 {
        ask_as(world, key, "s1", &log).await;
        copied += copies(world, FILM);
        log.extend([answered(), says("is it done?")]);
    }
    copied > 0
}

#[tokio::test(start_paused = true)]
async fn a_parked_result_meets_its_call_in_a_later_request_of_its_owner() {
    let mut unmet = Vec::new();
    for (name, history) in histories() {
        // The owner may have asked before the post, too.
        for asks_before in [false, true] {
            if asks_before && name == "unanswered" {
                continue;
            }
            let (world, owner) = loses_call().await;
            if asks_before {
                ask(&world, "s1", &history).await;
            }
            let status = post_to(&world, ID, &owner, &json!(FILM)).await.status();
            if name.starts_with("answered") {
                assert_eq!(status, 202, "{name}: nothing is recorded");
            }
            let is_met = gets_film(&world, "sk-one", &history).await;
            let again = post_to(&world, ID, &owner, &json!(FILM)).await;
            if !is_met || again.status() != 200 {
                unmet.push(format!("{name}, asked before {asks_before}: {is_met} {}", again.text()));
            }
        }
    }
    assert!(unmet.is_empty(), "{unmet:#?}");
}

/// The stranger knows the id, and shows it first.
#[tokio::test(start_paused = true)]
async fn a_stranger_who_shows_the_call_first_gets_nothing() {
    for (name, history) in histories() {
        for post_first in [false, true] {
            let (world, owner) = loses_call().await;
            ask_as(&world, "sk-two", "s1", &[says("hello")]).await;
            if post_first {
                assert_eq!(post_to(&world, ID, &owner, &json!(FILM)).await.status(), 202, "{name}");
            }
            assert!(!gets_film(&world, "sk-two", &history).await, "{name}");
            if !post_first {
                assert_eq!(post_to(&world, ID, &owner, &json!(FILM)).await.status(), 202, "{name}");
                assert!(!gets_film(&world, "sk-two", &history).await, "{name}");
            }
            let request = crate::support::app::get_with("/ledger/v1/outstanding", &[("x-api-key", "sk-two")]);
            assert_eq!(world.ask(request).await.json()["outstanding"], json!([]), "{name}");
            assert!(
                gets_film(&world, "sk-one", &history).await,
                "{name}: {}",
                last_body(&world)
            );
        }
    }
}

/// Without an owner anybody who knows the id could fetch the result with a request.
#[tokio::test(start_paused = true)]
async fn a_result_without_an_owner_is_never_met_through_a_request() {
    for (name, history) in histories() {
        for key in ["sk-one", "sk-two"] {
            let (world, _) = loses_call().await;
            ask_as(&world, key, "s1", &[says("hello")]).await;
            assert_eq!(post(&world, ID, &json!(FILM)).await.status(), 202, "{name}");
            assert!(!gets_film(&world, key, &history).await, "{name} {key}");
            // The settling time of results without an owner is over.
            world.until(world.now() + std::time::Duration::from_secs(700)).await;
            assert!(!gets_film(&world, key, &history).await, "{name} {key}");
            assert_eq!(outstanding(&world).await, json!([]), "{name} {key}");
            assert_eq!(get(&world, "outstanding").await.status(), 200);
        }
    }
}

/// As long as no parked result waits for the caller, its histories are not searched: one of another owner changes nothing.
#[tokio::test(start_paused = true)]
async fn a_parked_result_of_another_owner_meets_no_call() {
    let (world, owner) = loses_call().await;
    let other = crate::support::late::owner(&ask_as(&world, "sk-two", "s9", &[says("hello")]).await);
    assert_ne!(owner, other);
    assert_eq!(post_to(&world, ID, &other, &json!(FILM)).await.status(), 202);
    let (_, history) = histories().swap_remove(3);
    assert!(!gets_film(&world, "sk-one", &history).await);
    assert!(
        gets_film(&world, "sk-two", &history).await,
        "the owner that the post names"
    );
}

/// The same with processes: one loses its database, answers, and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_for_a_call_that_a_killed_replica_never_recorded_reaches_its_owner() {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let url = server.new_database().await;
    let (cut, is_cut) = watch::channel(false);
    let port = start_relay(server.port(), move |mut client, mut database| {
        let mut is_cut = is_cut.clone();
        async move {
            let cut = async { drop(is_cut.wait_for(|is_cut| *is_cut).await) };
            tokio::select! {
                done = tokio::io::copy_bidirectional(&mut client, &mut database) => drop(done),
                () = cut => std::future::pending().await,
            }
        }
    })
    .await;
    let provider = Provider::start().await;
    let relayed = url.replace(&server.port().to_string(), &port.to_string());
    let mut dying = Fleet::start(&provider, &relayed, 1, "").await;
    let other = Fleet::start(&provider, &url, 1, "").await;
    let send = async |fleet: &Fleet, log: &[Value]| {
        let body = json!({"model": "m", "max_tokens": 99, "messages": log});
        let answer = fleet.send(0, "sk-ann", "one", &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer
    };
    let mut log = vec![says("hello")];
    let owner = send(&dying, &log).await.owner;
    log.extend([answered(), says("render it")]);
    cut.send_replace(true);
    provider.reply(Reply::Calls(vec![ToolCall::new(ID, "render", json!({}))]));
    let answer = send(&dying, &log).await;
    dying.replicas[0].kill();
    log.push(json!({"role": "assistant", "content": answer.body["content"]}));
    log.push(brings(ID, &json!("job started")));
    let body = json!({"content": FILM, "owner": owner});
    let posted = other.post(0, ID, &body).await.expect("an answer");
    assert_eq!(posted.status, 202, "{}", posted.body);
    let mut with = 0;
    send(&other, &log).await;
    settles(&other, 0, (ID, FILM), &owner).await;
    for words in ["what is it?", "and now?"] {
        log.extend([answered(), says(words)]);
        send(&other, &log).await;
        with += provider
            .last()
            .body
            .windows(FILM.len())
            .filter(|part| *part == FILM.as_bytes())
            .count();
    }
    let posted = other.post(0, ID, &body).await.expect("an answer");
    assert_eq!(
        (posted.status, &posted.body["first"]),
        (200, &json!(false)),
        "{}",
        posted.body
    );
    assert!(with > 0, "no request had the result");
}
