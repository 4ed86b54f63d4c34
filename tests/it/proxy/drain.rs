//! The drain: no new connections, and no cut for streams that end in time.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::support::{
    app::{before, post},
    wire::{Client, SSE, Upstream, chunk, spawn},
};

async fn streaming(gate: Arc<Notify>) -> Upstream {
    Upstream::script(move |mut conn, _| {
        let gate = Arc::clone(&gate);
        async move {
            conn.request().await;
            conn.send(SSE).await;
            conn.send(chunk("data: 1\n\n")).await;
            gate.notified().await;
            conn.send(chunk("data: 2\n\n")).await;
            conn.send("0\r\n\r\n").await;
            conn.rest().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_running_stream_may_finish() {
    let gate = Arc::new(Notify::new());
    let upstream = streaming(Arc::clone(&gate)).await;
    let app = before(upstream.address).start().await;
    let (mut client, mut idle) = (app.client().await, app.client().await);
    client.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
    client.until("data: 1\n\n\r\n").await;
    let address = app.running.data;
    let drained = spawn(app.running.drain());
    assert!(idle.is_closed().await, "an idle connection outlives the drain");
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "the drain still accepts"
    );
    assert!(!drained.is_finished());
    gate.notify_one();
    let rest = String::from_utf8(client.rest().await).unwrap();
    assert!(rest.contains("data: 2\n\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
    drained.await.unwrap();
}

/// A load balancer that notices the end late still sends requests, which must not fail.
#[tokio::test]
async fn new_connections_are_served_during_the_drain_delay() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address)
        .with(|builder| builder.server.drain_delay = Duration::from_secs(3600))
        .start()
        .await;
    let mut idle = app.client().await;
    let address = app.running.data;
    let drained = spawn(app.running.drain());
    for _ in 0..3 {
        let mut late = Client::connect(address).await;
        late.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
        assert_eq!(late.response().await.status(), 200);
    }
    idle.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
    assert_eq!(idle.response().await.status(), 200);
    assert!(!drained.is_finished());
    drained.abort();
}

#[tokio::test]
async fn a_stream_beyond_the_drain_timeout_ends_with_the_error_event_of_its_format() {
    for (path, event) in [
        (
            "/anthropic/v1/messages",
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded: the \
             proxy restarts; try again\"}",
        ),
        (
            "/openai/v1/chat/completions",
            "data: {\"error\":{\"message\":\"Overloaded: the proxy restarts; try again\",\"type\":\"overloaded_error\",\
             \"param\":null,\"code\":\"drained\"}}\n\n",
        ),
    ] {
        let upstream = streaming(Arc::default()).await;
        let app = before(upstream.address)
            .with(|builder| builder.server.drain_timeout = Duration::from_millis(50))
            .start()
            .await;
        let mut client = app.client().await;
        client.send(post(path, "{\"messages\":[]}")).await;
        client.until("data: 1\n\n").await;
        app.running.drain().await;
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert!(rest.contains(event), "{path}: {rest}");
        assert!(!rest.ends_with("0\r\n\r\n"), "{path} ended as if it were whole: {rest}");
    }
}

/// An exchange that cannot say why it ends is cut, so the process ends soon after the drain timeout.
#[tokio::test]
async fn an_exchange_without_an_answer_is_cut_after_the_drain_timeout() {
    let asked = Arc::new(Notify::new());
    let is_asked = Arc::clone(&asked);
    let upstream = Upstream::script(move |mut conn, _| {
        let asked = Arc::clone(&asked);
        async move {
            conn.request().await;
            asked.notify_one();
            conn.rest().await;
        }
    })
    .await;
    let app = before(upstream.address)
        .with(|builder| builder.server.drain_timeout = Duration::from_millis(50))
        .start()
        .await;
    let mut client = app.client().await;
    client.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
    is_asked.notified().await;
    app.running.drain().await;
    assert_eq!(client.rest().await, b"");
}
