//! Lists of a caller's calls: pages, filters, calls that still run, the feed after an event, and what a service takes
//! back.

use serde_json::json;

use crate::support::{
    app::get_with,
    kept::durable,
    late::{
        FILM, answered, ask, brings, calls, get, last_body, numbered_id, operate, post, replies, says, script_call,
        verified_world, world_over,
    },
    still::{Answer, World},
};

/// Lets the model answer with this call.
async fn emits(world: &World, session: &str, id: &str) {
    script_call(world, &calls(id));
    ask(world, session, &[says("go")]).await;
}

fn ids(answer: &Answer) -> Vec<String> {
    let rows = answer.json()["outstanding"].as_array().unwrap().clone();
    rows.iter()
        .map(|row| row["call_id"].as_str().unwrap().to_owned())
        .collect()
}

/// H4: lists have pages, oldest first, and the count after a restart is that of all of them.
#[tokio::test(start_paused = true)]
async fn more_results_than_one_read_returns_are_listed_and_counted() {
    const RESULTS: usize = 1_100;
    let ledger = durable();
    let world = verified_world(&ledger).await;
    for number in 0..RESULTS {
        emits(&world, "s1", &numbered_id(number)).await;
        assert_eq!(post(&world, &numbered_id(number), &json!(FILM)).await.status(), 200);
    }
    drop(world);
    let world = world_over(&ledger, |_| ());
    let answer = ask(&world, "s1", &[says("hello")]).await;
    assert_eq!(answer.header("x-antiphon-pending-results"), Some("1100"));
    assert_eq!(get(&world, "me").await.json()["outstanding"], json!(RESULTS));
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&world, &format!("outstanding?limit=300{cursor}")).await;
        all.extend(ids(&page));
        let Some(next) = page.json()["next"].as_str().map(str::to_owned) else {
            break;
        };
        cursor = format!("&after={next}");
    }
    assert_eq!(all, (0..RESULTS).map(numbered_id).collect::<Vec<_>>());
}

/// H4: texts were read as "the latest 1,024 of this caller", so the oldest conversations lost theirs for good.
#[tokio::test(start_paused = true)]
async fn more_late_texts_than_one_read_returns_stay_in_their_messages() {
    const CONVERSATIONS: usize = 1_100;
    let ledger = durable();
    let world = verified_world(&ledger).await;
    let log = |number: usize| {
        vec![
            says("go"),
            calls(&numbered_id(number)),
            says("hurry"),
            answered(),
            says("is it done?"),
        ]
    };
    for number in 0..CONVERSATIONS {
        ask(&world, "s1", &log(number)[..3]).await;
        assert_eq!(post(&world, &numbered_id(number), &json!(FILM)).await.status(), 200);
        ask(&world, "s1", &log(number)).await;
    }
    drop(world);
    let world = world_over(&ledger, |_| ());
    for number in [0, 1, 40, 500, 1_099] {
        let mut log = log(number);
        log.extend([replies("yes"), says("thanks")]);
        ask(&world, "s1", &log).await;
        let sent = last_body(&world);
        assert_eq!(sent.matches(FILM).count(), 1, "conversation {number}: {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_listed_by_state_and_session() {
    let world = verified_world(&durable()).await;
    for (number, session) in ["s1", "s1", "s2"].into_iter().enumerate() {
        emits(&world, session, &numbered_id(number)).await;
    }
    assert_eq!(post(&world, &numbered_id(1), &json!(FILM)).await.status(), 200);
    for (query, wanted) in [
        ("outstanding", vec![1]),
        ("outstanding?state=open", vec![0, 2]),
        ("outstanding?state=open&session=s1", vec![0]),
        ("outstanding?session=s2", vec![]),
        ("outstanding?state=open&limit=1", vec![0]),
    ] {
        let page = get(&world, query).await;
        assert_eq!(
            ids(&page),
            wanted.into_iter().map(numbered_id).collect::<Vec<_>>(),
            "{query}: {}",
            page.text()
        );
    }
    let open = get(&world, "outstanding?state=open").await.json()["outstanding"][0].clone();
    assert_eq!(
        (&open["tool"], &open["session"], &open["state"]),
        (&json!("render"), &json!("s1"), &json!("open"))
    );
    assert!(
        open["age"].is_u64() && open["deadline"].is_u64() && open.get("posted_at").is_none(),
        "{open}"
    );
    for (query, words) in [
        ("outstanding?state=gone", "settled or open"),
        ("outstanding?page=2", "unknown query parameter"),
    ] {
        let answer = get(&world, query).await;
        assert_eq!(answer.status(), 422);
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    // A service takes back what no request contains.
    let withdraw = async || operate(&world, &numbered_id(1), "withdraw", &json!({"content": ""})).await;
    assert_eq!(withdraw().await.json()["state"], json!("open"));
    assert_eq!(ids(&get(&world, "outstanding").await), Vec::<String>::new());
    assert_eq!(withdraw().await.status(), 409);
    assert_eq!(
        post(&world, &numbered_id(1), &json!("ANOTHER FILM")).await.status(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_known_path_refuses_other_methods() {
    let world = world_over(&durable(), |_| ());
    for (method, path, allow) in [
        ("GET", "lookup", "POST"),
        ("POST", "outstanding", "GET"),
        ("DELETE", "calls/x/result", "POST"),
        ("PUT", "deliveries/x/ack", "POST"),
        ("POST", "outstanding?limit=0", "GET"),
        ("HEAD", "openapi.json", "GET"),
        ("TRACE", "me", "GET"),
    ] {
        let request = format!("{method} /ledger/v1/{path} HTTP/1.1\r\nHost: localhost\r\ncontent-length: 0\r\n\r\n");
        let answer = world.ask(request).await;
        assert_eq!(
            (answer.status(), answer.header("allow")),
            (405, Some(allow)),
            "{method} {path}"
        );
    }
}

/// A client that lost its connection goes on after the last event that it saw.
#[tokio::test(start_paused = true)]
async fn the_feed_goes_on_after_the_last_event() {
    let ledger = durable();
    let world = verified_world(&ledger).await;
    for number in 0..3 {
        emits(&world, "s1", &numbered_id(number)).await;
        assert_eq!(post(&world, &numbered_id(number), &json!(FILM)).await.status(), 200);
    }
    let first = get(&world, "outstanding").await.json()["outstanding"][0]["delivery"].clone();
    drop(world);
    let world = verified_world(&ledger).await;
    let mut client = world.client();
    let last = first.as_str().unwrap();
    let fields = [("x-api-key", "sk-one"), ("last-event-id", last)];
    client.send(get_with("/ledger/v1/feed", &fields)).await;
    client.head().await;
    let mut read = String::new();
    while read.matches("event: settled").count() < 2 {
        read += &client.piece().await.unwrap().text;
    }
    let found: Vec<bool> = (0..3).map(|number| read.contains(&numbered_id(number))).collect();
    assert_eq!(found, [false, true, true], "{read}");
    assert_eq!(read.matches("\nid: ").count(), 2, "{read}");
}

/// A call that its client has answered does not run any more.
#[tokio::test(start_paused = true)]
async fn an_answered_call_is_not_listed_as_open() {
    let world = verified_world(&durable()).await;
    emits(&world, "s1", &numbered_id(0)).await;
    let id = numbered_id(0);
    let log = [says("go"), calls(&id), brings(&id, &json!("done"))];
    assert_eq!(ids(&get(&world, "outstanding?state=open").await), [&*id]);
    ask(&world, "s1", &log).await;
    assert_eq!(ids(&get(&world, "outstanding?state=open").await), Vec::<String>::new());
}
