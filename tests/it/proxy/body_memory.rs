//! The memory of all request bodies has one limit: bodies wait for it, and the largest holder gives way.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::support::{
    app::gzipped,
    still::{Client, Step, World, json, secs},
};

const KIB: usize = 1024;

/// The answer of a provider.
const ANSWER: &str = r#"{"type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;

/// Returns a world whose bodies may use `bytes` of memory. Its provider answers everything.
fn world(bytes: usize) -> World {
    let world = World::with(|builder| builder.body_memory_max = bytes as u64);
    world.otherwise(|_| json(200, ANSWER));
    world
}

/// Returns a healthy body of `len` bytes.
fn body(len: usize) -> String {
    let (begin, end) = (r#"{"model":"m","messages":[{"role":"user","content":""#, r#""}]}"#);
    let text = "x".repeat(len - begin.len() - end.len());
    [begin, &text, end].concat()
}

fn head(len: usize, more: &str) -> String {
    format!("POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len}\r\n{more}\r\n")
}

/// Sends the head of a body of `len` bytes, and all of it but the last byte. Returns that byte.
async fn send_most(client: &mut Client, len: usize) -> String {
    let mut body = body(len);
    let last = body.split_off(len - 1);
    client.send(head(len, "")).await;
    client.send(body).await;
    last
}

#[tokio::test(start_paused = true)]
async fn a_claim_costs_what_was_sent() {
    let world = world(256 * 1024 * KIB);
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = world.client();
        client.send(head(1024 * KIB, "")).await;
        client.send(b"{").await;
        clients.push(client);
    }
    world.settle().await;
    let bytes = world.body_memory.memory_use().bytes;
    assert!(bytes <= 100 * 16 * KIB as u64, "{bytes} bytes for 100 bytes");
    drop(clients);
    world.settle().await;
    assert_eq!(world.body_memory.memory_use().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn after_five_seconds_the_youngest_body_of_the_largest_holder_gives_way() {
    // Large bodies may use fifteen sixteenths of it.
    let world = world(4096 * KIB);
    let mut greedy = Vec::new();
    for address in [3, 1, 1, 1] {
        let mut client = world.client_from(address);
        let last = send_most(&mut client, 900 * KIB).await;
        greedy.push((client, last));
        world.settle().await;
    }
    let began = world.now();
    let mut other = world.client_from(2);
    let sent = async {
        let last = send_most(&mut other, 600 * KIB).await;
        other.send(last).await;
        other.answer().await
    };
    let (mut youngest, _) = greedy.pop().unwrap();
    let (answer, refused) = tokio::join!(sent, youngest.answer());
    assert_eq!(answer.status(), 200);
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(refused.header("x-antiphon-fault"), Some("proxy"));
    assert!(refused.text().contains("server.body_memory_max"), "{}", refused.text());
    let waited = refused.head_at.saturating_sub(began);
    assert!((secs(5)..secs(6)).contains(&waited), "{waited:?}");
    // The other bodies are whole.
    for (mut client, last) in greedy {
        client.send(last).await;
        assert_eq!(client.answer().await.status(), 200);
    }
    world.settle().await;
    assert_eq!(world.body_memory.memory_use().bytes, 0);
}

/// A provider that is slow to answer keeps the bodies of one client in memory. A quarter of it stays free for others.
#[tokio::test(start_paused = true)]
async fn the_bodies_of_one_client_leave_room_for_others() {
    let world = World::with(|builder| builder.body_memory_max = 4096 * KIB as u64);
    world.otherwise(|_| {
        let mut steps = vec![Step::Wait(secs(60))];
        steps.extend(json(200, ANSWER));
        steps
    });
    let mut slow = Vec::new();
    for _ in 0..5 {
        let mut client = world.client_from(1);
        client.send(head(700 * KIB, "")).await;
        client.send(body(700 * KIB)).await;
        slow.push(client);
    }
    world.settle().await;
    let mut other = world.client_from(2);
    other.send(head(700 * KIB, "")).await;
    other.send(body(700 * KIB)).await;
    let mut statuses = vec![other.answer().await.status()];
    for mut client in slow {
        statuses.push(client.answer().await.status());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 503]);
}

/// The compressed bodies of one client wait for the memory to decode them, since it is above its limit. A large body of
/// another client does not wait behind them.
#[tokio::test(start_paused = true)]
async fn bodies_of_a_client_above_its_limit_do_not_delay_others() {
    let world = World::with(|builder| builder.body_memory_max = 8192 * KIB as u64);
    world.otherwise(|_| {
        let mut steps = vec![Step::Wait(secs(30))];
        steps.extend(json(200, ANSWER));
        steps
    });
    let packed = gzipped(&body(600 * KIB));
    let mut greedy = Vec::new();
    for _ in 0..16 {
        let mut client = world.client_from(1);
        client.send(head(packed.len(), "content-encoding: gzip\r\n")).await;
        client.send(&packed).await;
        greedy.push(client);
    }
    world.settle().await;
    let used = world.body_memory.memory_use();
    assert!(used.waiting > 0 && used.bytes <= 6144 * KIB as u64, "{used:?}");
    let began = world.now();
    let mut other = world.client_from(2);
    other.send(head(700 * KIB, "")).await;
    other.send(body(700 * KIB)).await;
    let answer = other.answer().await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let waited = answer.head_at.saturating_sub(began);
    assert!(waited < secs(31), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_waits_while_others_are_answered() {
    let world = world(2048 * KIB);
    let mut first = world.client_from(1);
    let last = send_most(&mut first, 1000 * KIB).await;
    world.settle().await;
    let mut second = world.client_from(2);
    let waits = async {
        second.send(head(1000 * KIB, "")).await;
        second.send(body(1000 * KIB)).await;
        second.answer().await
    };
    let ends = async {
        world.until(world.now() + Duration::from_secs(3)).await;
        assert_eq!(world.body_memory.memory_use().waiting, 1);
        first.send(last).await;
        first.answer().await
    };
    let (second, first) = tokio::join!(waits, ends);
    assert_eq!((first.status(), second.status()), (200, 200));
    assert!(second.head_at >= secs(3), "{:?}", second.head_at);
}

#[tokio::test(start_paused = true)]
async fn small_bodies_pass_while_large_ones_wait() {
    let world = world(4096 * KIB);
    let mut large = Vec::new();
    for address in 1..5 {
        let mut client = world.client_from(address);
        let last = send_most(&mut client, 900 * KIB).await;
        large.push((client, last));
    }
    let mut waits = world.client_from(1);
    waits.send(head(900 * KIB, "")).await;
    waits.send(&body(900 * KIB)[..8 * KIB]).await;
    world.settle().await;
    let mut small = world.client_from(5);
    small.send(head(100 * KIB, "")).await;
    small.send(body(100 * KIB)).await;
    let answer = small.answer().await;
    assert_eq!(answer.status(), 200);
    assert!(answer.head_at < secs(1), "{:?}", answer.head_at);
}

/// Lets the provider answer. Returns the use of memory at its first request, in bytes.
fn memory_at_provider(world: &World) -> oneshot::Receiver<u64> {
    let (sender, receiver) = oneshot::channel();
    let (mut sender, memory) = (Some(sender), world.body_memory.clone());
    world.otherwise(move |_| {
        sender.take().map(|sender| sender.send(memory.memory_use().bytes));
        json(200, ANSWER)
    });
    receiver
}

#[tokio::test(start_paused = true)]
async fn the_plain_text_of_a_compressed_body_counts_too() {
    let world = world(8192 * KIB);
    let packed = gzipped(&body(1000 * KIB));
    let at_provider = memory_at_provider(&world);
    let mut client = world.client();
    client.send(head(packed.len(), "content-encoding: gzip\r\n")).await;
    client.send(&packed).await;
    assert_eq!(client.answer().await.status(), 200);
    let bytes = at_provider.await.unwrap();
    assert_eq!(bytes, (1000 * KIB + packed.len()) as u64);
}

#[tokio::test(start_paused = true)]
async fn what_a_repair_adds_counts_too() {
    const CALLS: usize = 4000;
    let call = |i| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{i}","name":"x","input":{{}}}}]}},{{"role":"user","content":"go"}}"#
        )
    };
    let calls: Vec<String> = (0..CALLS).map(call).collect();
    let sent = format!(r#"{{"model":"m","max_tokens":1,"messages":[{}]}}"#, calls.join(","));
    let world = World::with(|builder| builder.body_memory_max = 64 * 1024 * KIB as u64);
    let at_provider = memory_at_provider(&world);
    let mut client = world.client();
    client.send(head(sent.len(), "")).await;
    client.send(sent.clone()).await;
    let answer = client.answer().await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("placeholder=4000, opened=1"));
    // Each call gets a result of more than a hundred bytes.
    let (used, least) = (at_provider.await.unwrap(), (sent.len() + 100 * CALLS) as u64);
    assert!(used > least, "{used} bytes, {least} at least");
    world.settle().await;
    // The dashboard's queue may still have the client's body.
    assert!(world.body_memory.memory_use().bytes <= sent.len() as u64);
}
