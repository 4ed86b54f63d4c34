//! Healthy bodies go upstream byte for byte, and heads keep their end-to-end headers.

use crate::support::{
    app::{before, post},
    wire::Upstream,
};

#[tokio::test]
async fn a_healthy_body_goes_up_byte_for_byte() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let body =
        "{ \"messages\" : [ {\"role\":\"user\",\"content\":\"caf\\u00e9 \u{1F600}\"} ],\n \"max_tokens\":1e2 }\n";
    let answer = app.ask(post("/anthropic/v1/messages?beta=true", body)).await;
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.text(), "{}");
    assert_eq!(answer.header("x-antiphon-attempts"), Some("1"));
    assert_eq!(answer.header("x-antiphon-repair"), Some("none"));
    assert_eq!(answer.header("x-antiphon-request-id").map(str::len), Some(36));
    let request = upstream.request();
    assert_eq!(request.line(), "POST /v1/messages?beta=true HTTP/1.1");
    assert_eq!(request.text(), body);
    assert_eq!(request.header("content-length"), Some(body.len().to_string().as_str()));
    assert_eq!(request.header("host"), Some(upstream.address.to_string().as_str()));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert_eq!(request.header("transfer-encoding"), None);
}

#[tokio::test]
async fn hop_by_hop_headers_are_removed_in_both_directions() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\nX-Antiphon-Repair: forged\r\nX-Request-Id: theirs\r\nSet-Cookie: a=1\r\n\
         Set-Cookie: b=2\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    let app = before(upstream.address).start().await;
    let answer = app
        .ask(
            "GET /anthropic/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close, X-Secret-Hop\r\n\
             Connection: x-other\r\nX-Secret-Hop: 1\r\nX-Other: 2\r\nTE: trailers\r\nKeep-Alive: 1\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\nTrailer: X-T\r\n\
             X-Antiphon-Session: s\r\nX-Api-Key: sk\r\nAccept-Encoding: gzip\r\nX-Multi: a\r\nx-multi: b\r\n\
             X-Forwarded-For: 1.2.3.4\r\nAnthropic-Version: 2023-06-01\r\n\r\n",
        )
        .await;
    assert_eq!(answer.status(), 200, "{answer:?}");
    for gone in ["x-hop", "keep-alive", "proxy-authenticate", "x-antiphon-repair"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!(answer.header("x-request-id"), Some("theirs"));
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    let request = upstream.request();
    for gone in [
        "x-secret-hop",
        "x-other",
        "te",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
        "trailer",
        "x-antiphon-session",
        "via",
        "expect",
    ] {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    assert_eq!(request.header("x-api-key"), Some("sk"));
    assert_eq!(
        request.header("accept-encoding"),
        Some("gzip"),
        "not an inspected route"
    );
    assert_eq!(request.all("x-multi"), ["a", "b"]);
    assert_eq!(request.all("x-forwarded-for"), ["1.2.3.4"]);
}

#[tokio::test]
async fn the_proxy_sets_the_length_and_a_request_without_body_has_none() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client
        .send("POST /openai/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0003\r\n\r\nabc")
        .await;
    assert_eq!(client.response().await.status(), 200);
    client
        .send("GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status(), 200);
    client
        .send("POST /openai/v1/responses/r/cancel HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status(), 200);
    let requests = upstream.requests();
    assert_eq!(requests[0].header("content-length"), Some("3"));
    assert_eq!(requests[1].header("content-length"), None);
    assert_eq!(requests[2].header("content-length"), Some("0"));
    assert_eq!(upstream.connections(), 1, "connections are kept");
}

#[tokio::test]
async fn trailers_never_become_headers() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    for path in ["/anthropic/v1/messages", "/anthropic/v1/files"] {
        let answer = app
            .ask(format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n\
                 2\r\n{{}}\r\n0\r\nAuthorization: stolen\r\nX-T: 1\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.status(), 200);
    }
    for request in upstream.requests() {
        assert_eq!(request.text(), "{}");
        assert_eq!((request.header("authorization"), request.header("x-t")), (None, None));
    }
}

#[tokio::test]
async fn head_and_bodiless_answers_keep_their_framing() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\netag: x\r\n\r\n").await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    for _ in 0..2 {
        client
            .send("HEAD /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await;
        let head = client.head().await;
        assert!(
            head.starts_with("HTTP/1.1 200") && head.contains("content-length: 1234"),
            "{head}"
        );
    }
    let empty = Upstream::answering("HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n").await;
    let app = before(empty.address).start().await;
    let answer = app
        .ask("DELETE /openai/v1/files/f HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert_eq!((answer.status(), answer.header("x-a")), (204, Some("b")));
}

#[tokio::test]
async fn redirects_and_answer_codings_are_passed_to_the_client() {
    let answer = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-encoding: gzip\r\n\
        content-length: 4\r\n\r\n\x1f\x8b\x00\xff";
    let upstream = Upstream::answering(*answer).await;
    let app = before(upstream.address).start().await;
    let got = app.ask(post("/openai/v1/chat/completions", "{\"messages\":[]}")).await;
    assert_eq!(
        (got.status(), got.header("location")),
        (302, Some("http://169.254.169.254/"))
    );
    assert_eq!(
        (got.header("content-encoding"), got.body.as_slice()),
        (Some("gzip"), &b"\x1f\x8b\x00\xff"[..])
    );
    assert_eq!(upstream.requests().len(), 1);
}
