//! Ambiguous requests and broken bodies: every one is the client's error.

use std::time::Duration;

use crate::support::{
    app::{before, post},
    still::{Step, World, assert_at, json},
    wire::{PATIENCE, Upstream},
};

/// The timeout of each test that waits, on paused time.
const TIMEOUT: Duration = Duration::from_secs(10);

const MESSAGES: &str = "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\n";

/// Header lines and body. Each is refused with 400, the connection closes, and nothing is sent upstream.
pub(crate) const AMBIGUOUS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "content-length: 0\r\nTRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "Content-Length: 1, 1\r\n\r\na",
    "Content-Length: +1\r\n\r\na",
    "Content-Length: -1\r\n\r\na",
    "Content-Length: 0x1\r\n\r\na",
    "Content-Length: 99999999999999999999\r\n\r\na",
    "Content-Length: \r\n\r\na",
    "X: a\r\n folded\r\nContent-Length: 1\r\n\r\na",
    "X\0: a\r\nContent-Length: 1\r\n\r\na",
];

#[tokio::test]
async fn ambiguous_requests_get_400_and_a_close() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    for row in AMBIGUOUS {
        for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
            let mut client = app.client().await;
            client
                .send(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{row}"))
                .await;
            let answer = client.response().await;
            assert_eq!(answer.status(), 400, "{row:?} gave {answer:?}");
            client
                .send("GET /anthropic/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .await;
            assert!(client.is_closed().await, "{row:?}: the connection lives on");
        }
    }
    assert_eq!(upstream.connections(), 0, "the provider has seen a byte");
}

#[tokio::test]
async fn http_1_0_has_no_transfer_coding() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let request =
        "POST /anthropic/v1/messages HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(app.ask(request).await.status(), 400);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_conflict_after_a_good_request_refuses_only_the_second() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let good = post("/anthropic/v1/messages", "{\"messages\":[]}");
    let chunked =
        format!("{MESSAGES}Transfer-Encoding: chunked\r\n\r\n3;a=b\r\n{{\"a\r\n4\r\n\":1}}\r\n0\r\nX: y\r\n\r\n");
    let bad = format!("{MESSAGES}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{good}");
    let mut client = app.client().await;
    client.send(format!("{good}{chunked}{good}{bad}")).await;
    for _ in 0..3 {
        assert_eq!(client.response().await.status(), 200);
    }
    assert_eq!(client.response().await.status(), 400);
    assert!(client.is_closed().await);
    let bodies: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.text().to_owned())
        .collect();
    assert_eq!(bodies, ["{\"messages\":[]}", "{\"a\":1}", "{\"messages\":[]}"]);
}

/// Broken chunked bodies, as they follow the head.
pub(crate) const BROKEN: &[&str] = &[
    "zz\r\n{}\r\n0\r\n\r\n",
    "2\r\n{}0\r\n\r\n",
    "-2\r\n{}\r\n0\r\n\r\n",
    "11111111111111111\r\n{}\r\n0\r\n\r\n",
    // Extensions that RFC 9112 does not allow (7.1.1).
    "2;a\0b\r\n{}\r\n0\r\n\r\n",
    "2;[\r\n{}\r\n0\r\n\r\n",
    "2;\r\n{}\r\n0\r\n\r\n",
    "2;a;\r\n{}\r\n0\r\n\r\n",
    "2;a=\r\n{}\r\n0\r\n\r\n",
    "2;a=\"b\r\n{}\r\n0\r\n\r\n",
    "2;a=\"b\"c\r\n{}\r\n0\r\n\r\n",
    "2 \r\n{}\r\n0\r\n\r\n",
    "2\t\r\n{}\r\n0\r\n\r\n",
    "2\r\n{}\r\n0;\r\n\r\n",
];

#[tokio::test]
async fn well_formed_chunk_extensions_are_accepted_and_not_forwarded() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let lines = ["2;a", "2;a=b", "2 ; a = b;c", "2;a=\"x;y\\\"\t[\"", "002;a"];
    for line in lines {
        for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
            let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
            let answer = app.ask(format!("{head}{line}\r\n{{}}\r\n0;z\r\n\r\n")).await;
            assert_eq!(answer.status(), 200, "{path} {line:?} gave {answer:?}");
        }
    }
    assert_eq!(upstream.requests().len(), 2 * lines.len());
    assert!(upstream.requests().iter().all(|request| request.body == b"{}"));
}

#[tokio::test]
async fn a_malformed_chunk_of_a_later_request_does_not_fail_an_earlier_one() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let chunked = format!("{MESSAGES}Transfer-Encoding: chunked\r\n\r\n");
    let mut client = app.client().await;
    client
        .send(format!(
            "{chunked}2;a\r\n{{}}\r\n0\r\n\r\n{chunked}2;\r\n{{}}\r\n0\r\n\r\n"
        ))
        .await;
    assert_eq!(client.response().await.status(), 200);
    assert_eq!(client.response().await.status(), 400);
    assert!(client.is_closed().await);
    assert_eq!(upstream.request().text(), "{}");
}

#[tokio::test]
async fn a_broken_body_is_a_client_error_on_every_path() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    for row in BROKEN {
        for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
            let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{row}");
            let answer = app.ask(request).await;
            assert_eq!(answer.status(), 400, "{path} {row:?} gave {answer:?}");
            assert_eq!(answer.header("x-antiphon-fault"), Some("client"));
        }
    }
    assert!(upstream.requests().is_empty(), "a broken body went up");
}

#[tokio::test]
async fn a_truncated_body_is_never_sent_upstream() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    for head in [
        "Content-Length: 10\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    ] {
        let mut client = app.client().await;
        client.send(format!("{MESSAGES}{head}")).await;
        client.finish().await;
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400"), "{rest}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_upload_gets_408() {
    for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
        let world = World::with(|builder| builder.proxy.upload_idle_timeout = TIMEOUT);
        let mut client = world.client();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n");
        client.send(format!("{head}{{")).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-fault")),
            (408, Some("client"))
        );
        assert_at(world.now(), TIMEOUT);
        assert!(world.requests().is_empty());
    }
}

/// Interval between the pieces of a slow upload.
const PIECE_INTERVAL: Duration = Duration::from_secs(5);
/// Time over which the rate of an upload is measured.
const RATE_WINDOW: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn an_upload_that_drips_gets_408() {
    for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
        let world = World::new();
        world.script([Step::Hang]);
        let mut client = world.client();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n");
        client.send(head).await;
        // Never silent for as long as the timeout of a silent upload.
        for round in 0..12 {
            world.until(round * PIECE_INTERVAL).await;
            client.send("x").await;
        }
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-fault")),
            (408, Some("client")),
            "{path}"
        );
        assert_eq!(answer.header("connection"), Some("close"));
        assert_at(world.now(), RATE_WINDOW);
        assert!(world.requests().is_empty(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_above_the_least_rate_is_not_cut() {
    // 5,120 bytes in 5 seconds are the least rate.
    const PIECE: usize = 5200;
    const PIECES: u32 = 40;
    for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
        let world = World::new();
        world.script(json(200, "{}"));
        let mut client = world.client();
        let length = PIECE * PIECES as usize;
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        client.send(head).await;
        for round in 0..PIECES {
            world.until(round * PIECE_INTERVAL).await;
            client.send("x".repeat(PIECE)).await;
        }
        assert_eq!(client.answer().await.status(), 200, "{path}");
        assert_eq!(world.request().message.body.len(), length);
    }
}

#[tokio::test]
async fn expect_continue_is_answered_once_and_not_forwarded() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client
        .send(format!("{MESSAGES}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"))
        .await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue");
    client.send("{}").await;
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.request().header("expect"), None);
}

#[tokio::test(start_paused = true)]
async fn a_silent_or_slow_head_is_cut() {
    for start in ["", "P", "PRI * HT", "GET / HTTP/1.1\r\nHost: loc"] {
        let world = World::with(|builder| builder.server.header_timeout = TIMEOUT);
        let mut client = world.client();
        client.send(start).await;
        assert_at(client.closed().await, TIMEOUT);
        assert!(world.requests().is_empty(), "{start:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_gets_408_and_a_close() {
    let begun = [
        "G",
        "POST /anthropic/v1/messages HTTP/1.1\r\nHost: loc",
        "GET / HTTP/1.1\r\n",
    ];
    for start in begun {
        let world = World::with(|builder| builder.server.header_timeout = TIMEOUT);
        let mut client = world.client();
        client.send(start).await;
        let text = client.rest().await;
        assert_at(world.now(), TIMEOUT);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        assert!(
            head.starts_with("HTTP/1.1 408 Request Timeout\r\n"),
            "{start:?}: {text:?}"
        );
        assert!(head.contains("\r\nconnection: close"), "{head:?}");
        let length = format!("content-length: {}", body.len());
        assert!(head.contains(&length) && !body.is_empty(), "{text:?}");
        assert!(world.requests().is_empty());
    }
    // Without a byte of an HTTP/1 head nobody waits for an answer, and HTTP/2 has no such bytes.
    for start in ["", "\r\n", "P", "PRI * HT"] {
        let world = World::with(|builder| builder.server.header_timeout = TIMEOUT);
        let mut client = world.client();
        client.send(start).await;
        assert_eq!(client.rest().await, "", "{start:?}");
        assert_at(world.now(), TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_second_head_gets_408_after_the_whole_first_answer() {
    // More than the buffer of the connection.
    let body = "x".repeat(64 * 1024);
    let world = World::with(|builder| builder.server.header_timeout = TIMEOUT);
    world.script(json(200, &body));
    let mut client = world.client();
    let first = post("/anthropic/v1/messages", "{}");
    client.send(format!("{first}GET /openai/v1/mo")).await;
    // The client reads nothing while the timeout of a head passes several times.
    world.until(5 * TIMEOUT).await;
    let text = client.rest().await;
    let (_, rest) = text.split_once("\r\n\r\n").unwrap();
    let (answer, late) = rest.split_at(body.len());
    assert!(answer == body, "the first answer is damaged");
    assert!(late.starts_with("HTTP/1.1 408 "), "{late:?}");
    assert!(world.now() > 5 * TIMEOUT, "at {:?}", world.now());
}

#[tokio::test]
async fn a_client_that_closes_its_sending_half_has_left() {
    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let upstream = Upstream::script(move |mut conn, _| {
        let report = report.clone();
        async move {
            conn.request().await;
            report.send("asked").unwrap();
            if conn.is_closed().await {
                report.send("cancelled").unwrap();
            }
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(post("/anthropic/v1/messages", "{\"messages\":[]}")).await;
    assert_eq!(reports.recv().await, Some("asked"));
    // Clients that leave do the same, so it cannot mean that the answer is still wanted.
    client.finish().await;
    assert!(client.is_closed().await, "a client that has left got an answer");
    let next = tokio::time::timeout(PATIENCE, reports.recv()).await;
    assert_eq!(
        next.unwrap(),
        Some("cancelled"),
        "the provider goes on for a client that has left"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_outlives_the_header_timeout() {
    let world = World::with(|builder| builder.server.header_timeout = TIMEOUT);
    let mut client = world.client();
    for round in 1..=2 {
        world.script(json(200, "{}"));
        client.send(post("/anthropic/v1/messages", "{}")).await;
        assert_eq!(client.answer().await.status(), 200);
        world.until(2 * round * TIMEOUT).await;
    }
    client.send("GET /openai/v1/mo").await;
    // The timeout of a head begins with its first byte.
    assert_at(client.closed().await, 5 * TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_is_not_blamed_on_the_provider() {
    let world = World::with(|builder| builder.proxy.timeouts.headers = TIMEOUT);
    world.script(json(200, "{}"));
    let mut client = world.client();
    client
        .send("POST /anthropic/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na")
        .await;
    for (round, byte) in [(1, "b"), (2, "c")] {
        world.until(2 * round * TIMEOUT).await;
        client.send(byte).await;
    }
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(world.request().message.body, b"abc");
}
