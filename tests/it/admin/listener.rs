//! The admin listener over a socket.

use std::{net::SocketAddr, time::Duration};

use antiphon::api::admin::{AdminService, Readiness};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    app::{before, get_with, serve_admin},
    wire::Client,
};

/// Serves the router, sends each request once, and returns the heads and bodies of the answers.
async fn ask(readiness: Readiness, requests: &[(&str, &str)]) -> Vec<(String, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = AdminService::new(crate::support::app::admin(readiness));
    let exchanges = async {
        let mut answers = Vec::new();
        for (line, headers) in requests {
            answers.push(exchange(address, line, headers).await);
        }
        answers
    };
    tokio::select! {
        () = serve_admin(listener, router) => panic!("the server ended"),
        answers = exchanges => answers,
    }
}

async fn exchange(address: SocketAddr, line: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

const LOCAL: &str = "Host: 127.0.0.1:4748\r\n";

#[tokio::test]
async fn health_while_serving() {
    let asked = [
        ("GET /livez", LOCAL),
        ("GET /readyz", LOCAL),
        ("GET /healthz", LOCAL),
        ("GET /readyz?verbose", LOCAL),
        ("HEAD /readyz", LOCAL),
        ("GET /", LOCAL),
    ];
    let answers = ask(Readiness::new(), &asked).await;
    for ((head, _), (line, _)) in answers.iter().zip(asked) {
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        // The page has no data, but its state of health changes.
        let cache = if line == "GET /" { "no-cache" } else { "no-store" };
        assert!(head.contains(&format!("cache-control: {cache}")), "{head}");
    }
    let bodies: Vec<&str> = answers.iter().map(|(_, body)| body.as_str()).collect();
    assert_eq!(
        bodies[..5],
        [
            "ok\n",
            "ok\n",
            "ok\n",
            "[+]serving ok\n[+]not-draining ok\n[+]ledger ok\nok\n",
            ""
        ]
    );
    assert!(bodies[5].starts_with("<!doctype html>"), "{}", bodies[5]);
}

#[tokio::test]
async fn only_readiness_reports_the_drain() {
    let readiness = Readiness::new();
    assert!(readiness.is_ready());
    readiness.clone().start_drain();
    assert!(!readiness.is_ready());
    let answers = ask(
        readiness,
        &[("GET /readyz", LOCAL), ("GET /livez", LOCAL), ("GET /metrics", LOCAL)],
    )
    .await;
    assert!(answers[0].0.starts_with("http/1.1 503 "), "{}", answers[0].0);
    assert_eq!(answers[0].1, "[+]serving ok\n[-]not-draining failed\nfailed\n");
    assert!(answers[1].0.starts_with("http/1.1 200 ") && answers[2].0.starts_with("http/1.1 200 "));
}

#[tokio::test]
async fn the_scraper_chooses_the_format_of_metrics() {
    const OPEN: &str = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    const TEXT: &str = "content-type: text/plain; version=0.0.4; charset=utf-8";
    for (accept, kind, build_type) in [
        ("", TEXT, "# TYPE antiphon_build_info gauge\n"),
        ("Accept: */*\r\n", TEXT, "# TYPE antiphon_unrepairable_total counter\n"),
        (
            "Accept: application/openmetrics-text; version=1.0.0\r\n",
            OPEN,
            "# TYPE antiphon_build info\n",
        ),
        (
            "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n",
            OPEN,
            "# TYPE antiphon_unrepairable counter\n",
        ),
    ] {
        let headers = format!("{LOCAL}{accept}");
        let answers = ask(Readiness::new(), &[("GET /metrics", &headers)]).await;
        let (head, body) = &answers[0];
        assert!(head.contains(kind) && head.contains("vary: accept"), "{accept}: {head}");
        assert!(
            body.contains("antiphon_build_info{") && body.contains(build_type),
            "{body}"
        );
        assert_eq!(body.ends_with("# EOF\n"), kind == OPEN, "{accept}");
    }
}

#[tokio::test]
async fn only_local_host_names_and_origins_are_accepted() {
    for (headers, status) in [
        ("Host: localhost\r\n", "200"),
        ("Host: LOCALHOST:4748\r\n", "200"),
        ("Host: 127.0.0.2:1\r\n", "200"),
        ("Host: [::1]:4748\r\n", "200"),
        ("Host: localhost:4748\r\nOrigin: http://localhost:4748\r\n", "200"),
        ("Host: evil.example:4748\r\n", "403"),
        ("Host: localhost.evil.example\r\n", "403"),
        ("Host: 127.0.0.1.evil.example\r\n", "403"),
        ("Host: localhost@evil.example\r\n", "403"),
        ("Host: 192.168.1.1:4748\r\n", "403"),
        ("Host: \r\n", "403"),
        ("", "403"),
        ("Host: localhost\r\nHost: evil.example\r\n", "403"),
        ("Host: localhost\r\nOrigin: https://evil.example\r\n", "403"),
        ("Host: localhost\r\nOrigin: null\r\n", "403"),
        (
            "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n",
            "403",
        ),
    ] {
        let answers = ask(Readiness::new(), &[("GET /livez", headers), ("GET /nothing", headers)]).await;
        assert!(
            answers[0].0.starts_with(&format!("http/1.1 {status} ")),
            "{headers}: {}",
            answers[0].0
        );
        let other = if status == "403" { "403" } else { "404" };
        assert!(
            answers[1].0.starts_with(&format!("http/1.1 {other} ")),
            "{headers}: {}",
            answers[1].0
        );
    }
    let absolute = ask(Readiness::new(), &[("GET http://evil.example/livez", LOCAL)]).await;
    assert!(absolute[0].0.starts_with("http/1.1 403 "), "{}", absolute[0].0);
}

#[tokio::test]
async fn health_and_metrics_paths_accept_no_writes() {
    let answers = ask(Readiness::new(), &[("POST /readyz", LOCAL), ("DELETE /metrics", LOCAL)]).await;
    for (head, _) in answers {
        assert!(head.starts_with("http/1.1 405 "), "{head}");
    }
}

/// The timeout of the data listener's heads holds here too: each connection costs a descriptor.
#[tokio::test]
async fn a_connection_without_a_whole_head_is_closed() {
    let mut parts = before(([127, 0, 0, 1], 9).into())
        .with(|builder| builder.server.header_timeout = Duration::from_millis(50))
        .parts();
    parts.admin = AdminService::starting();
    let running = antiphon::app::start(parts).await.unwrap();
    let mut silent = Client::connect(running.admin).await;
    assert_eq!(silent.rest().await, b"");
    let mut slow = Client::connect(running.admin).await;
    slow.send("GET /livez HTTP/1.1\r\nHost: loc").await;
    assert_eq!(slow.response().await.status(), 408);
    assert!(slow.is_closed().await);
    let mut whole = Client::connect(running.admin).await;
    for _ in 0..2 {
        whole.send(get_with("/livez", &[])).await;
        assert_eq!(whole.response().await.status(), 200);
    }
    whole.send("GET").await;
    assert_eq!(whole.response().await.status(), 408);
}
