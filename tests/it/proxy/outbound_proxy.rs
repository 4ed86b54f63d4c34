//! Outbound connections through a company proxy, and connection limits of the listener.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::support::{
    app::{Builder, before, post},
    wire::Upstream,
};

const BODY: &str = "{\"messages\":[]}";

/// Starts a proxy that opens the tunnel and then plays the provider itself.
async fn tunnel() -> (Upstream, mpsc::UnboundedReceiver<String>) {
    let (report, heads) = mpsc::unbounded_channel();
    let proxy = Upstream::script(move |mut conn, _| {
        let report = report.clone();
        async move {
            report.send(conn.head().await).unwrap();
            conn.send("HTTP/1.1 200 Connection established\r\n\r\n").await;
            while conn.is_open().await {
                report.send(conn.request().await.line().to_owned()).unwrap();
                conn.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    (proxy, heads)
}

fn to(builder: &mut Builder, authority: &str) {
    builder
        .upstreams
        .iter_mut()
        .for_each(|upstream| upstream.authority = authority.parse().unwrap());
}

#[tokio::test]
async fn a_provider_behind_a_proxy_is_reached_through_a_tunnel() {
    for (authority, target) in [
        ("provider.invalid:80", "provider.invalid:80"),
        ("provider.invalid", "provider.invalid:80"),
        ("provider.invalid:8080", "provider.invalid:8080"),
        ("[2001:db8::1]", "[2001:db8::1]:80"),
    ] {
        let (proxy, mut heads) = tunnel().await;
        let app = before(proxy.address)
            .with(|builder| {
                to(builder, authority);
                builder.upstream.proxies.http = Some(format!("http://user:secret@{}", proxy.address));
            })
            .start()
            .await;
        let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
        assert_eq!((answer.status(), answer.text()), (200, "ok"));
        let head = heads.recv().await.unwrap();
        assert!(head.starts_with(&format!("CONNECT {target} HTTP/1.1")), "{head}");
        assert!(
            head.to_ascii_lowercase()
                .contains("proxy-authorization: basic dxnlcjpzzwnyzxq="),
            "{head}"
        );
        assert_eq!(heads.recv().await.unwrap(), "POST /v1/messages HTTP/1.1");
    }
}

#[tokio::test]
async fn no_proxy_hosts_and_loopback_are_connected_directly() {
    let (proxy, mut heads) = tunnel().await;
    let upstream = Upstream::ok().await;
    let through = format!("http://{}", proxy.address);
    let app = before(upstream.address)
        .with(|builder| builder.upstream.proxies.all = Some(through.clone()))
        .start()
        .await;
    assert_eq!(app.ask(post("/anthropic/v1/messages", BODY)).await.status(), 200);
    let app = before(upstream.address)
        .with(|builder| {
            to(builder, "provider.invalid:80");
            builder.upstream.proxies.all = Some(through);
            builder.upstream.proxies.no = Some("other.example,.invalid".to_owned());
        })
        .start()
        .await;
    let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(answer.header("proxy-status"), Some("antiphon; error=dns_error"));
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn a_proxy_that_refuses_is_a_502_without_its_credential() {
    let login = Upstream::answering("HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n").await;
    let full = Upstream::answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
    let socks = Upstream::script(|mut conn, _| async move {
        // The method of a user and password, and the refusal of these.
        for answer in ["\x05\x02", "\x01\x01"] {
            conn.more().await;
            conn.send(answer).await;
        }
        conn.rest().await;
    })
    .await;
    // A login that is refused once is refused again.
    for (scheme, proxy, is_final) in [("http", login, true), ("http", full, false), ("socks5h", socks, true)] {
        let app = before(proxy.address)
            .with(|builder| {
                to(builder, "provider.invalid:80");
                builder.upstream.proxies.http = Some(format!("{scheme}://user:secret@{}", proxy.address));
            })
            .start()
            .await;
        let answer = app.ask(post("/anthropic/v1/messages", BODY)).await;
        assert_eq!(
            (
                answer.status(),
                answer.header("x-antiphon-phase"),
                answer.header("x-should-retry"),
            ),
            (502, Some("connect"), is_final.then_some("false")),
            "{answer:?}"
        );
        assert_eq!(
            answer.text().contains("correct the user and password"),
            is_final,
            "{answer:?}"
        );
        assert!(!answer.text().contains("secret"));
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address)
        .with(|builder| builder.server.connections_max = 1)
        .start()
        .await;
    let mut first = app.client().await;
    first.send(post("/anthropic/v1/messages", BODY)).await;
    assert_eq!(first.response().await.status(), 200);
    let mut second = app.client().await;
    second.send(post("/anthropic/v1/messages", BODY)).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(50), second.more())
            .await
            .is_err(),
        "one too many"
    );
    drop(first);
    assert_eq!(second.response().await.status(), 200);
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    let listener = antiphon::server::bind_listener(app.running.data);
    assert_eq!(
        listener.unwrap_err().to_string(),
        format!("address {} is already in use", app.running.data)
    );
}
