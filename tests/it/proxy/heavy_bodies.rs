//! Expensive bodies delay nobody: small requests and the admin listener are answered while they are repaired.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::net::TcpStream;

use crate::support::{
    binary::Install,
    wire::{Client, Upstream, spawn},
};

/// Longest wait for an expensive request. On a busy machine threads of low priority get little.
const HEAVY_PATIENCE: Duration = Duration::from_secs(300);
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Returns a request with `calls` unanswered calls.
fn unanswered(calls: usize) -> Vec<u8> {
    let turn = |i: usize| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{i}","name":"x","input":{{}}}}]}},{{"role":"user","content":"go"}}"#
        )
    };
    let turns: Vec<String> = (0..calls).map(turn).collect();
    request(&format!(r#"{{"model":"m","messages":[{}]}}"#, turns.join(",")))
}

fn request(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: k\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// More expensive bodies than there are cores are in work. A small request that comes later is answered before any of
/// them, and so is a look at the health. No time is measured: the order tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_request_overtakes_expensive_ones() {
    let upstream = Upstream::answering(ANSWER).await;
    let install = Install::new(&format!(
        "[upstreams.anthropic]\nurl = \"http://{}\"\n",
        upstream.address
    ));
    let process = install.start().await;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let answered = Arc::new(AtomicUsize::new(0));
    let body = unanswered(1_000);
    let mut expensive = Vec::new();
    for _ in 0..2 * cores {
        let stream = TcpStream::connect(process.data).await.unwrap();
        let mut client = Client::within(stream, HEAVY_PATIENCE);
        client.send(&body).await;
        let answered = Arc::clone(&answered);
        expensive.push(spawn(async move {
            let status = client.response().await.status();
            answered.fetch_add(1, Ordering::Relaxed);
            status
        }));
    }
    let health = process
        .ask_admin("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(health.status(), 200);
    let small = process
        .ask(request(r#"{"model":"m","messages":[{"role":"user","content":"go"}]}"#))
        .await;
    assert_eq!(small.status(), 200);
    assert_eq!(
        answered.load(Ordering::Relaxed),
        0,
        "an expensive request was answered first"
    );
    for client in expensive {
        assert_eq!(client.await.unwrap(), 200);
    }
}
