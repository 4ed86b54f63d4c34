//! HTTP/2 with prior knowledge towards the client: the same guarantees as over HTTP/1.

use std::{net::SocketAddr, time::Duration};

use antiphon::server::Tasks;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::TokioIo;

use crate::support::{
    app::before,
    wire::{PATIENCE, SSE, Upstream, chunk, spawn},
};

async fn connect(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::handshake(Tasks::on_current_runtime(), TokioIo::new(stream))
        .await
        .unwrap();
    spawn(connection);
    sender
}

/// Returns a POST to the proxy.
pub(crate) fn request(authority: &str, path: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{authority}{path}"))
        .body(Full::from(body))
        .unwrap()
}

/// Sends a request over a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Incoming> {
    connect(address).await.send_request(request).await.unwrap()
}

#[tokio::test]
async fn a_request_passes_as_over_http_1() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let answer = ask(
        app.running.data,
        request("localhost:4747", "/anthropic/v1/messages", "{\"messages\":[]}"),
    )
    .await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "{}");
    let request = upstream.request();
    assert_eq!(
        (request.line(), request.text()),
        ("POST /v1/messages HTTP/1.1", "{\"messages\":[]}")
    );
    assert_eq!(request.header("host"), Some(upstream.address.to_string().as_str()));
}

#[tokio::test]
async fn admission_is_as_strict_as_over_http_1() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let answer = ask(
        app.running.data,
        request("evil.example", "/anthropic/v1/messages", "{}"),
    )
    .await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let mut two = request("localhost", "/anthropic/v1/messages", "{}");
    two.headers_mut().insert("host", "evil.example".parse().unwrap());
    assert_eq!(ask(app.running.data, two).await.status(), StatusCode::BAD_REQUEST);
    // RFC 9113 8.3.1 forbids user info, which could make a foreign host look like a local one.
    for authority in ["u@localhost", "localhost@127.0.0.1", "localhost:99999"] {
        let answer = ask(app.running.data, request(authority, "/anthropic/v1/messages", "{}")).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{authority}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_broken_stream_ends_with_a_reset_after_its_last_byte() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.send(SSE).await;
        conn.send(chunk("data: 1\n\n")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        conn.reset();
    })
    .await;
    let app = before(upstream.address).start().await;
    let answer = ask(
        app.running.data,
        request("localhost", "/anthropic/v1/messages", "{\"messages\":[]}"),
    )
    .await;
    let mut body = answer.into_body();
    let mut text = Vec::new();
    let error = loop {
        match body.frame().await {
            Some(Ok(frame)) => text.extend_from_slice(frame.data_ref().unwrap()),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert_eq!(String::from_utf8(text).unwrap(), "data: 1\n\n");
    let error = error.expect("a broken stream looked whole");
    // hyper does not export the type of the frame's error.
    assert!(format!("{error:?}").contains("kind: Reset("), "{error:?}");
}

#[tokio::test]
async fn a_slow_client_gets_every_byte_before_the_reset() {
    // More than the windows of the client and the buffers of both sockets.
    const BYTES: usize = 2 * 1024 * 1024;
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.send(SSE).await;
        conn.send(chunk("x".repeat(BYTES))).await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let stream = tokio::net::TcpStream::connect(app.running.data).await.unwrap();
    let (mut sender, connection) = http2::Builder::new(Tasks::on_current_runtime())
        .initial_stream_window_size(16 * 1024)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    spawn(connection);
    let request = request("localhost", "/anthropic/v1/messages", "{\"messages\":[]}");
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut bytes = 0;
    let error = loop {
        match body.frame().await {
            Some(Ok(frame)) => bytes += frame.data_ref().unwrap().len(),
            Some(Err(error)) => break error,
            None => panic!("a broken stream looked whole"),
        }
    };
    assert_eq!(bytes, BYTES);
    assert!(format!("{error:?}").contains("kind: Reset("), "{error:?}");
}

#[tokio::test]
async fn a_client_that_resets_its_stream_cancels_the_provider() {
    let (report, mut closed) = tokio::sync::mpsc::unbounded_channel();
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
    let mut sender = connect(app.running.data).await;
    let answer = sender
        .send_request(request("localhost", "/anthropic/v1/messages", "{\"messages\":[]}"))
        .await
        .unwrap();
    let mut body = answer.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().data_ref().unwrap(), "data: 1\n\n");
    // The connection stays open. Only this stream is closed.
    drop(body);
    assert!(tokio::time::timeout(PATIENCE, closed.recv()).await.unwrap().unwrap());
    assert!(!sender.is_closed());
}
