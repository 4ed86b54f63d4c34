//! Providers that are down, silent or not HTTP: status, blamed side, and the provider's own error shape.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::mpsc;

use crate::support::{
    app::{before, post},
    ports::CLOSED,
    wire::{Message, Upstream},
};

const BODY: &str = "{\"messages\":[]}";

fn fault(answer: &Message) -> (u16, Option<&str>, Option<&str>, Option<&str>) {
    (
        answer.status(),
        answer.header("x-antiphon-fault"),
        answer.header("x-antiphon-phase"),
        answer.header("proxy-status"),
    )
}

#[tokio::test]
async fn a_refused_connection_is_a_502_in_each_providers_shape() {
    let app = before(CLOSED).start().await;
    let refused = (
        502,
        Some("network"),
        Some("connect"),
        Some("antiphon; error=connection_refused"),
    );
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(fault(&answer), refused);
    let error = answer.json();
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&"error".into(), &"api_error".into())
    );
    assert_eq!(error["request_id"].as_str(), answer.header("x-antiphon-request-id"));
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("anthropic (127.0.0.1)"),
        "{error}"
    );
    let answer = app.ask(post("/openai/v1/chat/completions", BODY)).await;
    assert_eq!(fault(&answer), refused);
    assert_eq!(answer.json()["error"]["code"], "connect");
    let answer = app.ask(post("/gemini/v1beta/models/m:generateContent", BODY)).await;
    assert_eq!(fault(&answer), refused);
    assert_eq!(answer.json()["error"]["status"], "UNAVAILABLE");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_502() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address)
        .with(|builder| {
            builder
                .upstreams
                .iter_mut()
                .for_each(|upstream| upstream.authority = "host.invalid:80".parse().unwrap());
        })
        .start()
        .await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(
        fault(&answer),
        (502, Some("network"), Some("connect"), Some("antiphon; error=dns_error"))
    );
}

#[tokio::test]
async fn plain_http_behind_https_is_a_tls_error() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.more().await;
        conn.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let app = before(upstream.address)
        .with(|builder| {
            builder
                .upstreams
                .iter_mut()
                .for_each(|upstream| upstream.scheme = "https".parse().unwrap());
        })
        .start()
        .await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(
        fault(&answer),
        (
            502,
            Some("network"),
            Some("connect"),
            Some("antiphon; error=tls_protocol_error")
        )
    );
}

#[tokio::test]
async fn a_hanging_provider_is_a_504() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.rest().await;
    })
    .await;
    let app = before(upstream.address)
        .with(|builder| builder.proxy.timeouts.headers = Duration::from_millis(60))
        .start()
        .await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    let late = (
        504,
        Some("provider"),
        Some("headers"),
        Some("antiphon; error=http_response_timeout"),
    );
    assert_eq!(fault(&answer), late);
    assert_eq!(answer.json()["error"]["type"], "timeout_error");
    assert_eq!(answer.header("x-antiphon-attempts"), Some("1"));
}

#[tokio::test]
async fn a_hanging_handshake_is_a_504() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.rest().await;
    })
    .await;
    let app = before(upstream.address)
        .with(|builder| {
            builder.upstream.tls_timeout = Duration::from_millis(60);
            builder
                .upstreams
                .iter_mut()
                .for_each(|upstream| upstream.scheme = "https".parse().unwrap());
        })
        .start()
        .await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(
        fault(&answer),
        (
            504,
            Some("network"),
            Some("connect"),
            Some("antiphon; error=connection_timeout")
        )
    );
    assert!(
        answer.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("timeout in the tls handshake")
    );
}

#[tokio::test]
async fn a_provider_that_stops_taking_the_request_is_a_504() {
    let upstream = Upstream::script(|conn, _| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(conn);
    })
    .await;
    let app = before(upstream.address)
        .with(|builder| {
            builder.upstream.send_timeout = Duration::from_millis(200);
            builder.proxy.inspect_bytes_max = 64 * 1024 * 1024;
        })
        .start()
        .await;
    // More than the kernel buffers for a reader that never reads.
    let body = format!("{{\"messages\":[],\"x\":\"{}\"}}", "x".repeat(48 * 1024 * 1024));
    let answer = app.ask(post("/anthropic/v1/messages", &body)).await;
    let stuck = (
        504,
        Some("network"),
        Some("send"),
        Some("antiphon; error=connection_write_timeout"),
    );
    assert_eq!(fault(&answer), stuck);
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_resent() {
    let delivered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&delivered);
    let upstream = Upstream::script(move |mut conn, _| {
        let count = Arc::clone(&count);
        async move {
            conn.request().await;
            count.fetch_add(1, Ordering::SeqCst);
            conn.reset();
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    let broken = (
        502,
        Some("network"),
        Some("headers"),
        Some("antiphon; error=connection_terminated"),
    );
    assert_eq!(fault(&answer), broken);
    assert_eq!(delivered.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_502() {
    for junk in [
        "SSH-2.0-OpenSSH_9\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx\0: a\r\ncontent-length: 0\r\n\r\n",
    ] {
        let upstream = Upstream::answering(junk).await;
        let app = before(upstream.address).start().await;
        let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-fault")),
            (502, Some("network")),
            "{junk:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_second_answer_on_a_connection_is_discarded() {
    let one = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    let upstream = Upstream::answering(format!("{one}HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison")).await;
    let app = before(upstream.address).start().await;
    for _ in 0..5 {
        assert_eq!(app.ask(post("/anthropic/v1/messages", BODY)).await.text(), "a");
    }
}

#[tokio::test]
async fn a_stale_connection_is_replaced_silently() {
    let delivered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&delivered);
    let (report, mut closed) = mpsc::unbounded_channel();
    let upstream = Upstream::script(move |mut conn, _| {
        let (count, report) = (Arc::clone(&count), report.clone());
        async move {
            conn.request().await;
            count.fetch_add(1, Ordering::SeqCst);
            conn.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            // The connection closes without an answer.
            drop(conn);
            report.send(()).unwrap();
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    for round in 1..=300 {
        client.send(post("/anthropic/v1/messages", BODY)).await;
        let answer = client.response().await;
        assert_eq!(
            (answer.status(), answer.text()),
            (200, "ok"),
            "round {round}: {answer:?}"
        );
        assert_eq!(delivered.load(Ordering::SeqCst), round);
        closed.recv().await.unwrap();
        if round % 3 == 0 {
            // Depending on timing, the pool may already have noticed the close.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.head().await;
        conn.send("HTTP/1.1 413 Payload Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
            .await;
        conn.rest().await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client
        .send("POST /anthropic/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nstart")
        .await;
    let answer = client.response().await;
    assert_eq!((answer.status(), answer.text()), (413, "big"));
}

#[tokio::test]
async fn informational_answers_do_not_end_the_exchange() {
    let upstream = Upstream::answering(
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    )
    .await;
    let app = before(upstream.address).start().await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!((answer.status(), answer.text()), (200, "ok"));
}
