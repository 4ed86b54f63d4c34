//! Lists of a caller's calls: pages, filters, calls that still run, the feed behind an event, and what a service takes
//! back.

use std::sync::Arc;

use antiphon::late::LateSettings;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late,
    still::{self, Answer, World},
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}"#;

fn world_over(ledger: &Arc<dyn antiphon::ledger::Ledger>) -> World {
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(ledger);
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
    });
    world.otherwise(|_| still::json(200, GOOD));
    world
}

fn id(number: usize) -> String {
    format!("toolu_01AbC9dE3fG7hJ2kL4m{number:05}")
}

async fn ask(world: &World, session: &str, log: &[Value]) -> Answer {
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", session)];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let answer = world
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    world.settle().await;
    assert_eq!(answer.status(), 200);
    answer
}

/// The model answers with this call.
async fn emits(world: &World, session: &str, id: &str) {
    let content = json!([{"type": "tool_use", "id": id, "name": "render", "input": {}}]);
    let answer =
        json!({"id": "msg_2", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use"});
    world.script(still::json(200, &answer.to_string()));
    ask(world, session, &[says("go")]).await;
}

async fn serve(world: &World, id: &str, operation: &str, content: &str) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{id}/{operation}");
    let body = json!({"content": content}).to_string();
    world.ask(post_with(&path, &service, body.as_bytes())).await
}

async fn get(world: &World, path: &str) -> Answer {
    let request = format!("GET /ledger/v1/{path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: sk-one\r\n\r\n");
    world.ask(request).await
}

fn says(words: &str) -> Value {
    json!({"role": "user", "content": words})
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
    let world = world_over(&ledger);
    ask(&world, "s1", &[says("hello")]).await;
    for number in 0..RESULTS {
        emits(&world, "s1", &id(number)).await;
        assert_eq!(serve(&world, &id(number), "result", "THE FILM").await.status(), 200);
    }
    drop(world);
    let world = world_over(&ledger);
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
    assert_eq!(all, (0..RESULTS).map(id).collect::<Vec<_>>());
}

/// H4: texts were read as "the latest 1,024 of this caller", so the oldest conversations lost theirs for good.
#[tokio::test(start_paused = true)]
async fn more_late_texts_than_one_read_returns_stay_in_their_messages() {
    const CONVERSATIONS: usize = 1_100;
    let ledger = durable();
    let world = world_over(&ledger);
    ask(&world, "s1", &[says("hello")]).await;
    let log = |number: usize| {
        let call = json!({"type": "tool_use", "id": id(number), "name": "render", "input": {}});
        vec![
            says("go"),
            json!({"role": "assistant", "content": [call]}),
            says("hurry"),
            json!({"role": "assistant", "content": "fine"}),
            says("is it done?"),
        ]
    };
    for number in 0..CONVERSATIONS {
        ask(&world, "s1", &log(number)[..3]).await;
        assert_eq!(serve(&world, &id(number), "result", "THE FILM").await.status(), 200);
        ask(&world, "s1", &log(number)).await;
    }
    drop(world);
    let world = world_over(&ledger);
    for number in [0, 1, 40, 500, 1_099] {
        let mut log = log(number);
        log.extend([json!({"role": "assistant", "content": "yes"}), says("thanks")]);
        ask(&world, "s1", &log).await;
        let sent = String::from_utf8(world.requests().pop().unwrap().message.body).unwrap();
        assert_eq!(sent.matches("THE FILM").count(), 1, "conversation {number}: {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_listed_by_state_and_session() {
    let world = world_over(&durable());
    ask(&world, "s0", &[says("hello")]).await;
    for (number, session) in ["s1", "s1", "s2"].into_iter().enumerate() {
        emits(&world, session, &id(number)).await;
    }
    assert_eq!(serve(&world, &id(1), "result", "THE FILM").await.status(), 200);
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
            wanted.into_iter().map(id).collect::<Vec<_>>(),
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
    assert_eq!(
        serve(&world, &id(1), "withdraw", "").await.json()["state"],
        json!("open")
    );
    assert_eq!(ids(&get(&world, "outstanding").await), Vec::<String>::new());
    assert_eq!(serve(&world, &id(1), "withdraw", "").await.status(), 409);
    assert_eq!(serve(&world, &id(1), "result", "ANOTHER FILM").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_known_path_refuses_other_methods() {
    let world = world_over(&durable());
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

/// A client that lost its connection goes on behind the last event that it saw.
#[tokio::test(start_paused = true)]
async fn the_feed_goes_on_behind_the_last_event() {
    let ledger = durable();
    let world = world_over(&ledger);
    ask(&world, "s1", &[says("hello")]).await;
    for number in 0..3 {
        emits(&world, "s1", &id(number)).await;
        assert_eq!(serve(&world, &id(number), "result", "THE FILM").await.status(), 200);
    }
    let first = get(&world, "outstanding").await.json()["outstanding"][0]["delivery"].clone();
    drop(world);
    let world = world_over(&ledger);
    ask(&world, "s1", &[says("hello")]).await;
    let mut client = world.client();
    let last = first.as_str().unwrap();
    client
        .send(format!(
            "GET /ledger/v1/feed HTTP/1.1\r\nHost: localhost\r\nx-api-key: sk-one\r\nlast-event-id: {last}\r\n\r\n"
        ))
        .await;
    client.head().await;
    let mut read = String::new();
    while read.matches("event: settled").count() < 2 {
        read += &client.piece().await.unwrap().text;
    }
    let found: Vec<bool> = (0..3).map(|number| read.contains(&id(number))).collect();
    assert_eq!(found, [false, true, true], "{read}");
    assert_eq!(read.matches("\nid: ").count(), 2, "{read}");
}

/// A call that its client has answered does not run any more.
#[tokio::test(start_paused = true)]
async fn an_answered_call_is_not_listed_as_open() {
    let world = world_over(&durable());
    ask(&world, "s1", &[says("hello")]).await;
    emits(&world, "s1", &id(0)).await;
    let call = json!({"type": "tool_use", "id": id(0), "name": "render", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": id(0), "content": "done"});
    let log = [
        says("go"),
        json!({"role": "assistant", "content": [call]}),
        json!({"role": "user", "content": [result]}),
    ];
    assert_eq!(ids(&get(&world, "outstanding?state=open").await), [id(0)]);
    ask(&world, "s1", &log).await;
    assert_eq!(ids(&get(&world, "outstanding?state=open").await), Vec::<String>::new());
}
