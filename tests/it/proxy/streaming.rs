//! Streams are relayed unchanged and at once, and a broken stream never looks complete.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, mpsc};

use crate::support::{
    app::{before, post},
    wire::{Conn, PATIENCE, SSE, Upstream, chunk},
};

const STREAM: &str = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n: ping\r\n\r\n\
    data: caf\u{e9} \u{1F600}\n\nevent: message_stop\ndata: {}\n\n";

fn ask() -> String {
    post("/anthropic/v1/messages", "{\"messages\":[],\"stream\":true}")
}

#[tokio::test]
async fn a_stream_cut_at_every_byte_comes_out_the_same() {
    let (cuts, upstream) = Upstream::cut_where_requested(SSE, STREAM).await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    for cut in 0..=STREAM.len() {
        cuts.send(cut).unwrap();
        client.send(ask()).await;
        let answer = client.response().await;
        assert!(answer.complete);
        assert_eq!(answer.body, STREAM.as_bytes(), "cut at {cut}");
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn each_event_arrives_before_the_next_is_sent() {
    let next = Arc::new(Notify::new());
    let gate = Arc::clone(&next);
    let upstream = Upstream::script(move |mut conn, _| {
        let gate = Arc::clone(&gate);
        async move {
            conn.request().await;
            conn.send(SSE).await;
            for number in 0..50 {
                gate.notified().await;
                conn.send(chunk(format!("data: {number}\n\n"))).await;
            }
            gate.notified().await;
            conn.send("0\r\n\r\n").await;
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(ask()).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200"), "the head waits for nothing: {head}");
    for number in 0..50 {
        next.notify_one();
        assert_eq!(client.chunk().await, format!("data: {number}\n\n").as_bytes());
    }
    next.notify_one();
    client.until("0\r\n\r\n").await;
}

/// Returns this many events in one write, each as a chunk, and their text.
fn burst(events: usize) -> (Vec<u8>, String) {
    let texts: Vec<String> = (0..events).map(|number| format!("data: {number}\n\n")).collect();
    (texts.iter().flat_map(chunk).collect(), texts.concat())
}

#[tokio::test]
async fn events_that_are_ready_together_are_sent_together() {
    let (written, text) = burst(500);
    let upstream = Upstream::script(move |mut conn, _| {
        let written = written.clone();
        async move {
            conn.request().await;
            conn.send([SSE.as_bytes(), &written, b"0\r\n\r\n"].concat()).await;
            conn.rest().await;
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(ask()).await;
    client.head().await;
    let (mut read, mut chunks) = (Vec::new(), 0);
    while read.len() < text.len() {
        read.extend(client.chunk().await);
        chunks += 1;
    }
    assert_eq!(read, text.as_bytes());
    // The first event is sent at once, and each later read brings a few hundred.
    assert!(chunks <= 20, "{chunks} chunks");
    client.until("0\r\n\r\n").await;
}

#[tokio::test]
async fn events_of_a_burst_precede_its_break() {
    let (written, text) = burst(100);
    let upstream = Upstream::script(move |mut conn, _| {
        let written = written.clone();
        async move {
            conn.request().await;
            conn.send([SSE.as_bytes(), &written, b"not a chunk\r\n"].concat()).await;
            conn.rest().await;
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let answer = app.ask(ask()).await;
    assert!(!answer.complete);
    assert_eq!(answer.text(), text);
}

#[tokio::test]
async fn large_and_small_frames_keep_their_order() {
    let pieces: Vec<Vec<u8>> = (0_u8..60)
        .map(|number| vec![b'a' + number % 26; if number % 7 == 3 { 9000 } else { 10 }])
        .collect();
    let written: Vec<u8> = pieces.iter().flat_map(chunk).collect();
    let upstream = Upstream::script(move |mut conn, _| {
        let written = written.clone();
        async move {
            while conn.is_open().await {
                conn.request().await;
                conn.send([SSE.as_bytes(), &written, b"0\r\n\r\n"].concat()).await;
            }
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    for _ in 0..5 {
        client.send(ask()).await;
        let answer = client.response().await;
        assert!(answer.complete);
        assert_eq!(answer.body, pieces.concat());
    }
}

#[tokio::test]
async fn trailers_follow_a_burst() {
    let (written, text) = burst(50);
    let upstream = Upstream::script(move |mut conn, _| {
        let written = written.clone();
        async move {
            conn.request().await;
            let head = "HTTP/1.1 200 OK\r\ntrailer: x-t\r\ntransfer-encoding: chunked\r\n\r\n";
            let end = b"0\r\nx-t: 1\r\n\r\n";
            conn.send([head.as_bytes(), &written, end].concat()).await;
            conn.rest().await;
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let answer = app.ask(ask()).await;
    assert_eq!((answer.complete, answer.text()), (true, text.as_str()));
}

#[tokio::test]
async fn a_slow_reader_holds_the_provider_back() {
    let (report, mut taken) = mpsc::unbounded_channel();
    let upstream = Upstream::script(move |mut conn, _| {
        let report = report.clone();
        async move {
            conn.request().await;
            conn.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                .await;
            let piece = vec![b'x'; 64 * 1024];
            let written = conn.flood(&piece, Duration::from_millis(100), 64 * 1024 * 1024).await;
            report.send(written).unwrap();
            conn.rest().await;
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.narrow();
    client.send(ask()).await;
    let written = tokio::time::timeout(PATIENCE, taken.recv()).await.unwrap().unwrap();
    // The test's own send buffer is not bounded: the kernel lets it grow to a few megabytes.
    assert!(written < 12 * 1024 * 1024, "the provider got rid of {written} bytes");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_provider() {
    for reset in [false, true] {
        let (report, mut closed) = mpsc::unbounded_channel();
        let upstream = Upstream::script(move |mut conn, _| {
            let report = report.clone();
            async move {
                conn.request().await;
                conn.send(SSE).await;
                conn.send(chunk("data: 1\n\n")).await;
                report.send(conn.is_closed().await).unwrap();
            }
        })
        .await;
        let app = before(upstream.address).start().await;
        let mut client = app.client().await;
        client.send(ask()).await;
        client.until("data: 1\n\n").await;
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        assert!(tokio::time::timeout(PATIENCE, closed.recv()).await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_cancels_the_provider() {
    let (report, mut events) = mpsc::unbounded_channel();
    let upstream = Upstream::script(move |mut conn, _| {
        let report = report.clone();
        async move {
            conn.request().await;
            report.send(true).unwrap();
            report.send(conn.is_closed().await).unwrap();
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(ask()).await;
    assert_eq!(events.recv().await, Some(true));
    drop(client);
    assert_eq!(tokio::time::timeout(PATIENCE, events.recv()).await.unwrap(), Some(true));
}

/// Sends `sent` as a stream and breaks off. Returns the client's bytes and whether they looked complete.
async fn broken(path: &str, sent: &'static [u8], reset: bool) -> (String, bool) {
    let upstream = Upstream::script(move |mut conn, _| async move {
        conn.request().await;
        conn.send(SSE).await;
        if !sent.is_empty() {
            conn.send(chunk(sent)).await;
        }
        break_off(conn, reset).await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(post(path, "{\"messages\":[]}")).await;
    let answer = client.response().await;
    assert_eq!(answer.status(), 200);
    (answer.text().to_owned(), answer.complete)
}

async fn break_off(conn: Conn, reset: bool) {
    // The earlier bytes must arrive first, since a reset may overtake them.
    tokio::time::sleep(Duration::from_millis(20)).await;
    if reset {
        conn.reset();
    } else {
        drop(conn);
    }
}

#[tokio::test]
async fn a_broken_stream_is_cut_after_its_last_byte() {
    for reset in [false, true] {
        for path in [
            "/anthropic/v1/messages",
            "/openai/v1/chat/completions",
            "/openai/v1/responses",
            "/gemini/v1beta/models/m:streamGenerateContent",
            "/openai/v1/audio/speech",
        ] {
            for sent in [
                "",
                "data: 1\n\n",
                "data: 1\r\n\r\n",
                "data: 1\n\ndata: {\"par",
                "data: 1\n",
            ] {
                let (text, whole) = broken(path, sent.as_bytes(), reset).await;
                assert_eq!((text.as_str(), whole), (sent, false), "{path}");
            }
        }
    }
}

/// Sends `sent` as a stream and then nothing. Returns the client's bytes and whether they looked complete.
async fn silent(path: &str, sent: &'static str) -> (String, bool) {
    let upstream = Upstream::script(move |mut conn, _| async move {
        conn.request().await;
        conn.send(SSE).await;
        if !sent.is_empty() {
            conn.send(chunk(sent)).await;
        }
        conn.rest().await;
    })
    .await;
    let idle = Duration::from_millis(80);
    let app = before(upstream.address)
        .with(|builder| builder.proxy.timeouts.idle = idle)
        .start()
        .await;
    let answer = app.ask(post(path, "{\"messages\":[]}")).await;
    (answer.text().to_owned(), answer.complete)
}

#[tokio::test]
async fn a_silent_stream_ends_with_an_error_event_and_a_cut() {
    for (path, sent, before) in [
        (
            "/anthropic/v1/messages",
            "data: 1\n\n",
            "data: 1\n\nevent: error\ndata: ",
        ),
        (
            "/anthropic/v1/messages",
            "data: 1\r\n\r\n",
            "data: 1\r\n\r\nevent: error\ndata: ",
        ),
        // An event that is still open is ended first.
        (
            "/anthropic/v1/messages",
            "data: 1\n\ndata: {\"par",
            "data: 1\n\ndata: {\"par\n\nevent: error\ndata: ",
        ),
        (
            "/anthropic/v1/messages",
            "data: 1\n\ndata: 2\n",
            "data: 1\n\ndata: 2\n\n\nevent: error\ndata: ",
        ),
        ("/openai/v1/responses", "data: 1\n\n", "data: 1\n\nevent: error\ndata: "),
        ("/openai/v1/chat/completions", "data: 1\n\n", "data: 1\n\ndata: "),
        (
            "/gemini/v1beta/models/m:streamGenerateContent",
            "data: 1\n\n",
            "data: 1\n\ndata: ",
        ),
    ] {
        let (text, whole) = silent(path, sent).await;
        let data = text
            .strip_prefix(before)
            .unwrap_or_else(|| panic!("{path}: {text:?} does not begin with {before:?}"));
        let data: serde_json::Value = serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
        let error = if data["error"].is_object() {
            &data["error"]
        } else {
            &data
        };
        let message = error["message"].as_str().unwrap();
        assert!(
            !whole && message.starts_with("Overloaded: timeout: the provider fell silent"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn a_broken_plain_answer_is_cut_too() {
    for body in [
        "content-length: 100\r\n\r\n{\"a\":",
        "transfer-encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{body}");
        let upstream = Upstream::script(move |mut conn, _| {
            let answer = answer.clone();
            async move {
                conn.request().await;
                conn.send(answer).await;
                break_off(conn, false).await;
            }
        })
        .await;
        let app = before(upstream.address).start().await;
        let answer = app.ask(ask()).await;
        assert_eq!((answer.complete, answer.text()), (false, "{\"a\":"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_stream_with_a_content_length_gets_no_error_event() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 50\r\n\r\ndata: 1\n\n")
            .await;
        break_off(conn, true).await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let answer = app.ask(ask()).await;
    assert_eq!((answer.complete, answer.text()), (false, "data: 1\n\n"));
}
