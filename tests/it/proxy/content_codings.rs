//! Coded, large and signed bodies: read where possible, never changed without need.

use std::io::Write;

use antiphon::repair::Mode;

use crate::support::{
    app::{before, post},
    wire::{PATIENCE, Upstream, chunk},
};

const BODY: &str = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello hello hello hello hello\"}]}";

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_coded_healthy_body_is_sent_unchanged() {
    let deflate = {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(BODY.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = zstd::encode_all(BODY.as_bytes(), 3).unwrap();
    let trailing = [gzip(BODY.as_bytes()), b"junk".to_vec()].concat();
    let bomb = gzip(&vec![b' '; 8 * 1024 * 1024]);
    let cases = [
        ("gzip", gzip(BODY.as_bytes()), "none"),
        ("deflate", deflate, "none"),
        ("zstd", zstd, "none"),
        ("identity", BODY.as_bytes().to_vec(), "none"),
        ("br", b"whatever".to_vec(), "unreadable"),
        ("gzip, gzip", gzip(&gzip(BODY.as_bytes())), "unreadable"),
        ("gzip", gzip(BODY.as_bytes())[..20].to_vec(), "unreadable"),
        ("gzip", trailing, "unreadable"),
        ("gzip", bomb, "unreadable"),
        ("zstd", b"not zstd".to_vec(), "unreadable"),
    ];
    for (coding, body, repair) in cases {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).start().await;
        let answer = app.ask(coded(coding, &body)).await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-repair")),
            (200, Some(repair)),
            "{coding}"
        );
        let request = upstream.request();
        assert_eq!(request.body, body, "{coding}");
        assert_eq!(request.header("content-encoding"), Some(coding));
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_streamed_unread() {
    let body = format!("{{\"messages\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    let chunked = [
        b"POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        body.as_bytes().chunks(100_000).flat_map(chunk).collect(),
        b"0\r\n\r\n".to_vec(),
    ]
    .concat();
    for request in [post("/anthropic/v1/messages", &body).into_bytes(), chunked] {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address).start().await;
        let answer = app.ask(&request).await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-repair")),
            (200, Some("unreadable"))
        );
        assert!(upstream.request().text() == body, "the body has changed");
    }
}

#[tokio::test]
async fn a_strict_route_refuses_too_large_bodies() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).mode(Mode::Strict).start().await;
    let mut client = app.client().await;
    // The claimed length is enough: the proxy does not wait for the body.
    client
        .send("POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n")
        .await;
    let answer = client.response().await;
    assert_eq!(answer.status(), 413);
    assert_eq!(answer.json()["error"]["type"], "request_too_large");
    let bomb = app.ask(coded("gzip", &gzip(&vec![b' '; 8 * 1024 * 1024]))).await;
    assert_eq!(bomb.status(), 413);
    assert!(upstream.requests().is_empty());
    // A body that is not a conversation is forwarded in every mode.
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn the_mode_header_can_only_make_a_route_stricter() {
    let rows = [
        (Mode::Observe, false, "", "observed"),
        (Mode::Observe, false, "repair", "none"),
        (Mode::Observe, false, "strict", "none"),
        (Mode::Repair, false, "observe", "none"),
        (Mode::Repair, true, "observe", "observed"),
        (Mode::Strict, true, "observe", "observed"),
    ];
    for (mode, trusted, asked, repair) in rows {
        let upstream = Upstream::ok().await;
        let app = before(upstream.address)
            .mode(mode)
            .with(|app| app.proxy.trust_mode_header = trusted)
            .start()
            .await;
        let line = if asked.is_empty() {
            String::new()
        } else {
            format!("\r\nX-Antiphon-Mode: {asked}")
        };
        let request = post("/anthropic/v1/messages", BODY).replacen("\r\n\r\n", &format!("{line}\r\n\r\n"), 1);
        let answer = app.ask(request).await;
        assert_eq!(
            answer.header("x-antiphon-repair"),
            Some(repair),
            "{mode:?} {trusted} {asked}"
        );
    }
}

#[tokio::test]
async fn a_signed_body_is_only_observed() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).mode(Mode::Strict).start().await;
    let signature = "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=x\r\n\r\n";
    let request = post("/anthropic/v1/messages", BODY).replacen("\r\n\r\n", signature, 1);
    let answer = app.ask(request).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("observed; reason=signed"));
    assert_eq!(upstream.request().text(), BODY);
}

#[tokio::test]
async fn a_client_can_read_the_refusal_of_its_upload() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).mode(Mode::Strict).start().await;
    let mut client = app.client().await;
    let size = 8 * 1024 * 1024;
    client
        .send(format!(
            "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
        ))
        .await;
    let sent = client.flood(&vec![b' '; 64 * 1024], PATIENCE, size).await;
    assert!(sent >= size, "reset under the client's hands after {sent} bytes");
    assert_eq!(client.response().await.status(), 413);
}
