//! TLS towards clients: versions, protocols, certificates that change, client certificates, and clients that misbehave.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{CertificateClients, ClientTokens, TokenHash},
    server::Tasks,
};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use rcgen::SanType;
use rustls::ProtocolVersion;
use tokio::sync::Notify;

use crate::support::{
    app::{App, before, get_with, post, post_with},
    tls::{Authority, BOTH_VERSIONS, Certified, HOST, ONLY_1_2, ONLY_1_3, TlsClient, TlsFolder, dns},
    wire::{Client, PATIENCE, SSE, Upstream, chunk, spawn},
};

const BODY: &str = "{\"messages\":[]}";

fn message() -> String {
    post("/anthropic/v1/messages", BODY)
}

async fn start(upstream: &Upstream, folder: &TlsFolder) -> App {
    let tls = folder.load();
    before(upstream.address)
        .with(|builder| builder.server.tls = Some(tls))
        .start()
        .await
}

#[tokio::test]
async fn both_versions_of_tls_carry_both_versions_of_http() {
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    for (versions, wanted) in [
        (&ONLY_1_2[..], ProtocolVersion::TLSv1_2),
        (&ONLY_1_3, ProtocolVersion::TLSv1_3),
        (&BOTH_VERSIONS, ProtocolVersion::TLSv1_3),
    ] {
        let client = TlsClient {
            versions,
            ..folder.client()
        };
        let stream = client.connect(app.running.data).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(wanted));
        assert_eq!(client.status(app.running.data, message()).await, 200);
        for (alpn, wanted) in [
            (&["h2", "http/1.1"][..], Some("h2")),
            (&["http/1.1"], Some("http/1.1")),
            (&[], None),
        ] {
            let client = TlsClient { alpn, ..client.clone() };
            let stream = client.connect(app.running.data).await.unwrap();
            let chosen = stream.get_ref().1.alpn_protocol();
            assert_eq!(chosen, wanted.map(str::as_bytes), "{alpn:?}");
        }
        let client = TlsClient {
            alpn: &["h2"],
            ..client.clone()
        };
        let stream = client.connect(app.running.data).await.unwrap();
        let (mut sender, connection) = http2::handshake(Tasks::on_current_runtime(), TokioIo::new(stream))
            .await
            .unwrap();
        spawn(connection);
        let request = Request::post(format!("https://{HOST}/anthropic/v1/messages"));
        let request = request.body(Full::<Bytes>::from(BODY)).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            Bytes::from("{}")
        );
    }
    assert!(upstream.requests().iter().all(|request| request.text() == BODY));
    let only_h2 = TlsClient {
        alpn: &["h2"],
        ..folder.client()
    };
    let status = only_h2.status(app.running.data, message()).await;
    assert_eq!(status, 0, "HTTP/1.1 was answered although HTTP/2 was chosen");
    let other = TlsClient {
        alpn: &["spdy/3"],
        ..folder.client()
    };
    assert!(
        other.connect(app.running.data).await.is_err(),
        "an unknown protocol was accepted"
    );
}

#[tokio::test]
async fn large_bodies_pass_unchanged_in_both_directions() {
    let large = "x".repeat(3 * 1024 * 1024);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{large}", large.len());
    let (upstream, folder) = (Upstream::answering(answer).await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let body = format!("{{\"messages\":[],\"pad\":\"{}\"}}", &large[..900_000]);
    let mut client = folder.client().open(app.running.data).await;
    for _ in 0..2 {
        client.send(post("/anthropic/v1/messages", &body)).await;
        let answer = client.response().await;
        assert!(answer.complete && answer.text() == large);
    }
    assert!(upstream.requests().iter().all(|request| request.text() == body));
}

#[tokio::test]
async fn the_framing_inspector_reads_the_decrypted_bytes() {
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let ambiguous = format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n{{}}   "
    );
    assert_eq!(folder.client().status(app.running.data, ambiguous).await, 400);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn an_unknown_path_names_urls_with_https() {
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let mut client = folder.client().open(app.running.data).await;
    client.send(get_with("/nowhere", &[])).await;
    let answer = client.response().await;
    assert!(
        answer.text().contains("https://localhost/anthropic"),
        "{}",
        answer.text()
    );
}

async fn gated(gate: Arc<Notify>) -> Upstream {
    Upstream::script(move |mut conn, _| {
        let gate = Arc::clone(&gate);
        async move {
            while conn.is_open().await {
                conn.request().await;
                conn.send(SSE).await;
                conn.send(chunk("data: 1\n\n")).await;
                gate.notified().await;
                conn.send(chunk("data: 2\n\n")).await;
                conn.send("0\r\n\r\n").await;
            }
        }
    })
    .await
}

/// Lets the time pass after which the files are read again.
async fn pass_check_interval() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_new_certificate_is_taken_while_a_stream_runs() {
    let gate = Arc::new(Notify::new());
    let (upstream, folder) = (gated(Arc::clone(&gate)).await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let mut running = folder.client().open(app.running.data).await;
    running.send(message()).await;
    running.until("data: 1\n\n\r\n").await;
    let fresh = folder.authority.issue_for_listener();
    folder.write(&fresh);
    pass_check_interval().await;
    let taken = async {
        loop {
            let stream = folder.client().connect(app.running.data).await.unwrap();
            if stream.get_ref().1.peer_certificates().unwrap().first() == Some(&fresh.der) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, taken)
        .await
        .expect("the new certificate was not taken");
    gate.notify_one();
    let rest = String::from_utf8(running.until("0\r\n\r\n").await).unwrap();
    assert!(rest.contains("data: 2\n\n"), "{rest}");
    // The connection itself lives on, too.
    running.send(message()).await;
    running.until("data: 1\n\n\r\n").await;
}

#[tokio::test]
async fn a_reload_takes_a_new_certificate_of_the_same_files_only() {
    let (upstream, folder, other) = (Upstream::ok().await, TlsFolder::new(), TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let served = async || {
        let stream = folder.client().connect(app.running.data).await.unwrap();
        stream
            .get_ref()
            .1
            .peer_certificates()
            .unwrap()
            .first()
            .cloned()
            .unwrap()
    };
    let before = served().await;
    app.running.take_certificate(Some(&other.load()));
    app.running.take_certificate(None);
    assert_eq!(served().await, before);
    let fresh = folder.authority.issue_for_listener();
    folder.write(&fresh);
    app.running.take_certificate(Some(&folder.load()));
    assert_eq!(served().await, fresh.der);
}

fn ci_and_dev() -> ClientTokens {
    let known = [
        ("ci.example.org", "ci"),
        ("spiffe://example.org/ci", "ci"),
        ("dev@example.org", "dev"),
    ];
    let known = known.map(|(text, client)| (text.parse().unwrap(), client.to_owned()));
    let token = ("dev".to_owned(), TokenHash::hash_token(b"antiphon_dev"));
    ClientTokens::new(vec![token]).with_certificates(CertificateClients::new(known.into()))
}

/// Returns an app with client tokens and certificates, whose upstream has profiles if `has_profiles`.
async fn start_with_clients(upstream: &Upstream, folder: &TlsFolder, has_profiles: bool) -> App {
    let tls = folder.load();
    let builder = before(upstream.address).with(|builder| {
        builder.server.tls = Some(tls);
        builder.proxy.client_tokens = ci_and_dev();
        if has_profiles {
            let profile = crate::support::pool::profile("own", None, 1);
            builder.profiles.insert("anthropic".to_owned(), vec![profile]);
        }
    });
    builder.start().await
}

type Fields = &'static [(&'static str, &'static str)];

const NO_TOKEN: Fields = &[];
const TOKEN: Fields = &[("x-antiphon-client-token", "antiphon_dev")];

/// Returns certificates with the headers beside them, and the status of their requests; 0 if there is no answer.
fn certificate_cases(clients: &Authority, foreign: &Authority) -> [(&'static str, Certified, Fields, u16); 12] {
    let uri = SanType::URI("spiffe://example.org/ci".try_into().unwrap());
    let email = SanType::Rfc822Name("dev@example.org".try_into().unwrap());
    let token = TOKEN;
    let wrong: Fields = &[("x-antiphon-client-token", "antiphon_no")];
    let key: Fields = &[("x-api-key", "antiphon_dev")];
    let none = NO_TOKEN;
    [
        ("a DNS name", clients.issue(&[dns("CI.example.org")], 2120), none, 200),
        ("a URI", clients.issue(&[dns("other"), uri], 2120), none, 200),
        (
            "an email address",
            clients.issue(std::slice::from_ref(&email), 2120),
            none,
            200,
        ),
        (
            "an unknown name",
            clients.issue(&[dns("other.example.org")], 2120),
            none,
            403,
        ),
        (
            "a name of each client",
            clients.issue(&[dns("ci.example.org"), email], 2120),
            none,
            403,
        ),
        ("no name", clients.issue(&[], 2120), none, 403),
        (
            "an unknown name and a token",
            clients.issue(&[dns("other")], 2120),
            token,
            200,
        ),
        (
            "an unknown name and a token as key",
            clients.issue(&[dns("other")], 2120),
            key,
            200,
        ),
        (
            "a known name and a wrong token",
            clients.issue(&[dns("ci.example.org")], 2120),
            wrong,
            401,
        ),
        (
            "a known name and a wrong token as key",
            clients.issue(&[dns("ci.example.org")], 2120),
            &[("authorization", "Bearer antiphon_no")],
            401,
        ),
        (
            "an expired certificate",
            clients.issue(&[dns("ci.example.org")], 2020),
            none,
            0,
        ),
        ("a foreign CA", foreign.issue(&[dns("ci.example.org")], 2120), none, 0),
    ]
}

#[tokio::test]
async fn a_client_certificate_stands_for_the_client_that_lists_its_name() {
    let (clients, foreign) = (Authority::new("clients"), Authority::new("foreign"));
    let cases = certificate_cases(&clients, &foreign);
    let (none, token) = (NO_TOKEN, TOKEN);
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new().with_client_ca(&clients, false));
    for has_profiles in [true, false] {
        let app = start_with_clients(&upstream, &folder, has_profiles).await;
        for (case, certificate, fields, wanted) in &cases {
            // Without profiles the key in `x-api-key` would have to be the provider's.
            if !has_profiles && fields.first().is_some_and(|(name, _)| *name == "x-api-key") {
                continue;
            }
            for versions in [&ONLY_1_3, &ONLY_1_2] {
                let client = TlsClient {
                    versions,
                    ..folder.client().presenting(certificate)
                };
                let request = post_with("/anthropic/v1/messages", fields, BODY.as_bytes());
                assert_eq!(
                    client.status(app.running.data, request).await,
                    *wanted,
                    "{case} {has_profiles}"
                );
            }
        }
        let request = |fields| post_with("/anthropic/v1/messages", fields, BODY.as_bytes());
        let bare = folder.client();
        let wanted = if has_profiles { 401 } else { 200 };
        assert_eq!(
            bare.status(app.running.data, request(none)).await,
            wanted,
            "no certificate"
        );
        assert_eq!(
            bare.status(app.running.data, request(token)).await,
            200,
            "a token alone"
        );
    }
}

#[tokio::test]
async fn the_refusal_of_a_certificate_says_what_to_do() {
    let clients = Authority::new("clients");
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new().with_client_ca(&clients, false));
    let app = start_with_clients(&upstream, &folder, true).await;
    let unknown = clients.issue(&[dns("other")], 2120);
    let mut client = folder.client().presenting(&unknown).open(app.running.data).await;
    client.send(message()).await;
    let answer = client.response().await;
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert!(answer.text().contains("[client_certificates]"), "{}", answer.text());
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let clients = Authority::new("clients");
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new().with_client_ca(&clients, true));
    let tls = folder.load();
    // Without a list of certificates the CA alone decides.
    let app = before(upstream.address).with(|builder| builder.server.tls = Some(tls));
    let app = app.start().await;
    let any = clients.issue(&[dns("any")], 2120);
    for versions in [&ONLY_1_3, &ONLY_1_2] {
        let bare = TlsClient {
            versions,
            ..folder.client()
        };
        assert_eq!(bare.status(app.running.data, message()).await, 0);
        assert_eq!(bare.presenting(&any).status(app.running.data, message()).await, 200);
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn the_admin_listener_has_tls_and_asks_for_no_certificate() {
    let clients = Authority::new("clients");
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new().with_client_ca(&clients, true));
    let tls = folder.load();
    let mut parts = before(upstream.address).parts();
    parts.server.tls = Some(tls.clone());
    parts.admin_tls = Some(tls);
    parts.admin = antiphon::api::admin::AdminService::starting();
    let running = antiphon::app::start(parts).await.unwrap();
    let client = folder.client();
    assert_eq!(client.status(running.admin, get_with("/livez", &[])).await, 200);
    assert_eq!(client.status(running.data, get_with("/livez", &[])).await, 0);
    let mut plain = Client::connect(running.admin).await;
    plain.send(get_with("/livez", &[])).await;
    assert_eq!(plain.response().await.status(), 400);
}

#[tokio::test]
async fn plain_http_gets_a_400_and_other_bytes_get_nothing() {
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let large = post("/anthropic/v1/messages", &"x".repeat(500_000));
    for request in [message().as_str(), &large, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET"] {
        let mut client = app.client().await;
        client.send(request).await;
        let answer = client.response().await;
        assert_eq!(answer.status(), 400);
        assert!(answer.text().contains("https://"), "{}", answer.text());
        assert_eq!(answer.header("connection"), Some("close"));
    }
    for garbage in [
        &b"\0\0\0"[..],
        b"\x16\x03\x01\xff\xff nonsense",
        b"\x16\x03\x01\0\x02\x01\0",
        b"get / http/1.1",
        b"\x80",
    ] {
        let mut client = app.client().await;
        client.send(garbage).await;
        client.finish().await;
        let rest = client.rest().await;
        // At most an alert of TLS.
        assert!(rest.len() <= 7 && !rest.starts_with(b"HTTP"), "{rest:?}");
    }
    assert_eq!(upstream.connections(), 0);
    assert_eq!(folder.client().status(app.running.data, message()).await, 200);
}

#[tokio::test]
async fn a_client_that_does_not_complete_its_handshake_is_cut_after_ten_seconds() {
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    // A record that announces more than it has.
    for begin in [&b""[..], b"\x16\x03\x01\x02\0\x01"] {
        let mut client = app.client().await;
        client.send(begin).await;
        tokio::time::pause();
        let began = antiphon::clock::now();
        let mut closed = Box::pin(async { client.is_closed().await });
        // The patience of the test ends with the timeout, which is why the clock is moved by hand.
        for _ in 0..9 {
            assert!(futures_util::future::poll_immediate(&mut closed).await.is_none());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(closed);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(
            (antiphon::clock::now() - began).as_secs() < 20,
            "that would be the timeout of a head"
        );
        tokio::time::resume();
        assert!(client.is_closed().await);
    }
    failed_handshakes(&app, "timeout", 2).await;
}

/// Waits until the counter of failed handshakes has this value for a reason.
async fn failed_handshakes(app: &App, reason: &str, wanted: usize) {
    let sample = format!("antiphon_tls_handshakes_failed_total{{reason=\"{reason}\"}} {wanted}\n");
    let counted = async {
        // A client learns of the end before the proxy, if it ends the handshake itself.
        while !app.telemetry.encode_metrics().contains(&sample) {
            tokio::task::yield_now().await;
        }
    };
    let counted = tokio::time::timeout(PATIENCE, counted).await;
    assert!(counted.is_ok(), "{sample}: {}", app.telemetry.encode_metrics());
}

#[tokio::test]
async fn each_failed_handshake_is_counted_by_its_reason() {
    let clients = Authority::new("clients");
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new().with_client_ca(&clients, true));
    let app = start(&upstream, &folder).await;
    for (begin, reason) in [
        (message().as_bytes(), "no_tls"),
        (&b"\0\0\0"[..], "no_tls"),
        (b"\x16\x03\x01\x02\0\x01", "closed"),
        (b"\x16\x03\x01\xff\xff nonsense", "protocol"),
    ] {
        let mut client = app.client().await;
        client.send(begin).await;
        client.finish().await;
        client.rest().await;
        let wanted = if begin == b"\0\0\0" { 2 } else { 1 };
        failed_handshakes(&app, reason, wanted).await;
    }
    let stranger = TlsFolder::new();
    assert!(stranger.client().connect(app.running.data).await.is_err());
    failed_handshakes(&app, "client_alert", 1).await;
    // Without a certificate, and with one of another CA.
    assert_eq!(folder.client().status(app.running.data, message()).await, 0);
    let foreign = stranger.authority.issue(&[dns("ci")], 2120);
    let foreign = folder.client().presenting(&foreign);
    assert_eq!(foreign.status(app.running.data, message()).await, 0);
    failed_handshakes(&app, "client_certificate", 2).await;
    // A look at the port, and a handshake that ends well.
    let mut look = app.client().await;
    look.finish().await;
    look.rest().await;
    let own = clients.issue(&[dns("ci")], 2120);
    assert_eq!(
        folder
            .client()
            .presenting(&own)
            .status(app.running.data, message())
            .await,
        200
    );
    let page = app.telemetry.encode_metrics();
    let samples = page
        .lines()
        .filter(|line| line.starts_with("antiphon_tls_handshakes_failed_total"));
    let counts: usize = samples
        .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(counts, 7, "{page}");
}

#[tokio::test]
async fn a_flood_of_silent_handshakes_holds_up_nobody() {
    let (upstream, folder) = (Upstream::ok().await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut client = app.client().await;
        if number % 2 == 0 {
            client.send(b"\x16\x03\x01\x02\0\x01").await;
        }
        silent.push(client);
    }
    assert_eq!(folder.client().status(app.running.data, message()).await, 200);
    // All at once, each with a whole handshake.
    let client = folder.client();
    let flood = (0..100).map(|_| client.status(app.running.data, message()));
    let answers = futures_util::future::join_all(flood).await;
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
}

#[tokio::test]
async fn a_drain_ends_streams_in_time_and_everything_else_at_once() {
    let gate = Arc::new(Notify::new());
    let (upstream, folder) = (gated(Arc::clone(&gate)).await, TlsFolder::new());
    let app = start(&upstream, &folder).await;
    let mut running = folder.client().open(app.running.data).await;
    let mut idle = folder.client().open(app.running.data).await;
    let mut unfinished = app.client().await;
    running.send(message()).await;
    running.until("data: 1\n\n\r\n").await;
    let drained = spawn(app.running.drain());
    assert!(idle.is_closed().await, "an idle connection outlives the drain");
    assert!(unfinished.is_closed().await, "a handshake outlives the drain");
    assert!(!drained.is_finished());
    gate.notify_one();
    let rest = String::from_utf8(running.rest().await).unwrap();
    assert!(rest.contains("data: 2\n\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
    drained.await.unwrap();
}
