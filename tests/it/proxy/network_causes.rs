//! Providers that cannot be reached, each for another reason: what the client, the log, the failure and the metric say.

use std::sync::Arc;

use rcgen::SanType;
use rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer};
use serde_json::Value;
use tokio_rustls::TlsAcceptor;

use crate::support::{
    app::{get_with, post},
    binary::Install,
    ports::CLOSED,
    tls::{Authority, BOTH_VERSIONS, Certified, dns},
    wire::{Conn, PATIENCE, Upstream, spawn},
};

/// A year whose certificates have expired.
const LAST_YEAR: i32 = 2020;
/// A year in the far future.
const LATER: i32 = 2120;

/// Starts a provider that speaks TLS with a certificate, and answers each request. Returns its port.
async fn tls_provider(certified: &Certified) -> u16 {
    let key = PrivateKeyDer::try_from(certified.key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&BOTH_VERSIONS)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.der.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            spawn(async move {
                // A client that refuses the certificate ends the handshake.
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut conn = Conn::within(stream, PATIENCE);
                conn.request().await;
                conn.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
            });
        }
    });
    port
}

/// An unreachable provider: its name, the code of its failure, the cause, and words for the client.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ROWS: [Row; 13] = [
    ("unknown", "tls", "unknown_issuer", "set SSL_CERT_FILE"),
    // Such is the certificate of `openssl req -x509` without further options.
    (
        "authority",
        "tls",
        "ca_certificate",
        "basicConstraints=critical,CA:FALSE",
    ),
    ("unnamed", "tls", "not_for_name", "subjectAltName"),
    ("of_client", "tls", "wrong_purpose", "extendedKeyUsage"),
    // A TLS server answers what is no handshake with an alert.
    (
        "tls_port",
        "answer_malformed",
        "not_http",
        "if it speaks TLS, write https://",
    ),
    ("expired", "tls", "expired", "check the clock"),
    (
        "elsewhere",
        "tls",
        "not_for_name",
        "its certificate is for another name",
    ),
    ("plain", "tls", "not_tls", "check the url's scheme and port"),
    ("refused", "connect", "refused", "connection refused"),
    ("nameless", "dns", "dns", "the dns lookup failed"),
    (
        "closing",
        "headers",
        "closed",
        "connection reset before an answer arrived; try again, or if it speaks TLS, write https:// in its url",
    ),
    (
        "resetting",
        "headers",
        "reset",
        "connection reset before an answer arrived",
    ),
    (
        "babbling",
        "answer_malformed",
        "not_http",
        "its answer is not valid http",
    ),
];

/// Starts the providers that speak TLS. Returns the url of each.
async fn tls_urls(trusted: &Authority) -> Vec<(&'static str, String)> {
    let localhost = [dns("localhost"), SanType::IpAddress([127, 0, 0, 1].into())];
    let untrusted = Authority::new("company").issue(&localhost, LATER);
    vec![
        (
            "fine",
            format!(
                "https://localhost:{}",
                tls_provider(&trusted.issue(&localhost, LATER)).await
            ),
        ),
        (
            "unknown",
            format!("https://localhost:{}", tls_provider(&untrusted).await),
        ),
        (
            "expired",
            format!(
                "https://localhost:{}",
                tls_provider(&trusted.issue(&localhost, LAST_YEAR)).await
            ),
        ),
        (
            "authority",
            format!(
                "https://localhost:{}",
                tls_provider(&Authority::self_signed(&localhost)).await
            ),
        ),
        (
            "unnamed",
            format!("https://localhost:{}", tls_provider(&trusted.issue(&[], LATER)).await),
        ),
        (
            "of_client",
            format!(
                "https://localhost:{}",
                tls_provider(&trusted.issue_for_client(&localhost)).await
            ),
        ),
        (
            "tls_port",
            format!("http://127.0.0.1:{}", tls_provider(&untrusted).await),
        ),
        (
            "elsewhere",
            format!(
                "https://localhost:{}",
                tls_provider(&trusted.issue(&[dns("llm.internal")], LATER)).await
            ),
        ),
    ]
}

/// Starts a provider for each row, and one that works. Returns the configuration, and those that stop when they are dropped.
async fn providers(trusted: &Authority) -> (String, [Upstream; 4]) {
    let babbling = Upstream::answering("good morning\r\n\r\n").await;
    let plain = Upstream::script(|mut conn, _| async move {
        // A handshake is no request.
        conn.more().await;
        conn.send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        conn.rest().await;
    })
    .await;
    let closing = Upstream::script(|mut conn, _| async move { drop(conn.request().await) }).await;
    let resetting = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.reset();
    })
    .await;
    let mut urls = tls_urls(trusted).await;
    urls.extend([
        ("plain", format!("https://localhost:{}", plain.address.port())),
        ("refused", format!("http://{CLOSED}")),
        // A label of a name has at most 63 letters, so no server is asked.
        ("nameless", format!("http://{}.example:80", "x".repeat(64))),
        ("closing", format!("http://{}", closing.address)),
        ("resetting", format!("http://{}", resetting.address)),
        ("babbling", format!("http://{}", babbling.address)),
    ]);
    let table = |(name, url)| format!("[upstreams.{name}]\nurl = \"{url}\"\nkind = \"anthropic\"\n");
    (
        urls.into_iter().map(table).collect(),
        [plain, babbling, closing, resetting],
    )
}

#[tokio::test]
async fn every_network_failure_has_its_cause() {
    let trusted = Authority::new("trusted");
    let (config, _providers) = providers(&trusted).await;
    let install = Install::new(&config);
    let roots = install.state().join("roots.pem");
    std::fs::write(&roots, &trusted.pem).unwrap();
    let process = install.start_with(&[("SSL_CERT_FILE", roots.to_str().unwrap())]).await;
    let ask = |name: &str| post(&format!("/{name}/v1/messages"), r#"{"model":"m","messages":[]}"#);
    let fine = process.ask(ask("fine")).await;
    assert_eq!(
        fine.status(),
        200,
        "the file of the variable is trusted: {}",
        fine.text()
    );
    for (name, code, cause, words) in ROWS {
        let answer = process.ask(ask(name)).await;
        let text = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            answer.status() == 502 && text.contains(words),
            "{name}, {code} for {cause}: {text}"
        );
        let is_final = answer.header("x-should-retry") == Some("false");
        assert_eq!(is_final, code == "tls", "{name}: {text}");
    }
    let failures = process.ask_admin(get_with("/admin/v1/failures", &[])).await.json();
    let metrics = process.ask_admin(get_with("/metrics", &[])).await.text().to_owned();
    let log = process.stop_with_log().await;
    let parsed = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // A warning at the start names an upstream too.
    let lines: Vec<Value> = parsed.filter(|line| line["target"] == "antiphon::exchange").collect();
    let of = |list: &[Value], name: &str| list.iter().find(|entry| entry["upstream"] == name).unwrap().clone();
    for (name, code, cause, _) in ROWS {
        let failure = of(failures["failures"].as_array().unwrap(), name);
        assert_eq!(
            (&failure["code"], &failure["cause"]),
            (&code.into(), &cause.into()),
            "{failure}"
        );
        let line = of(&lines, name);
        assert_eq!((&line["code"], &line["cause"]), (&code.into(), &cause.into()), "{line}");
        let rows = ROWS.iter().filter(|row| row.2 == cause).count();
        // A request that no byte of was sent is retried once.
        let mut counts = rows..=2 * rows;
        let counted = counts.any(|count| {
            metrics.contains(&format!(
                "antiphon_network_failures_total{{cause=\"{cause}\"}} {count}\n"
            ))
        });
        assert!(counted, "{cause}: {metrics}");
    }
    assert!(of(&lines, "fine").get("cause").is_none());
}
