//! The pool of connections to providers, from the outside: which connection a request gets, and when one is closed.

use std::{convert::Infallible, sync::Arc, time::Duration};

use antiphon::{
    server::Tasks,
    upstream::{
        BoxedBody, InProcessDialer, InProcessIo, Phase, PooledBody, ProxyEnvironment, SendError, SendErrorKind, Sender,
        UpstreamSettings,
    },
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{ClientConfig, ServerConfig, crypto::aws_lc_rs};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::{Notify, mpsc},
};
use tokio_rustls::TlsAcceptor;

use crate::support::tls::{Authority, BOTH_VERSIONS, TlsClient, dns};

const TIMEOUT: Duration = Duration::from_secs(60);
const BODY: &str = r#"{"messages":[]}"#;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn settings() -> UpstreamSettings {
    UpstreamSettings {
        connect_timeout: TIMEOUT,
        tls_timeout: TIMEOUT,
        send_timeout: TIMEOUT,
        pool_idle_timeout: Duration::from_secs(30),
        pool_idle_max: 8,
        proxies: ProxyEnvironment::default(),
    }
}

/// A provider whose connections are pipes. A dial waits while the gate is closed.
struct Provider {
    sender: Sender,
    dials: mpsc::UnboundedReceiver<DuplexStream>,
    gate: mpsc::UnboundedSender<()>,
}

impl Provider {
    /// Starts a provider that accepts any number of connections.
    fn new(settings: &UpstreamSettings) -> Self {
        let provider = Self::gated(settings);
        (0..100).for_each(|_| provider.gate.send(()).unwrap());
        provider
    }

    /// Starts a provider that accepts one connection for each message through its gate.
    fn gated(settings: &UpstreamSettings) -> Self {
        let (accepted, dials) = mpsc::unbounded_channel();
        let (gate, passes) = mpsc::unbounded_channel();
        let passes = Arc::new(tokio::sync::Mutex::new(passes));
        let dial = InProcessDialer::new(move |_| {
            let (accepted, passes) = (accepted.clone(), Arc::clone(&passes));
            Box::pin(async move {
                let _: Option<()> = passes.lock().await.recv().await;
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                accepted.send(theirs).unwrap();
                Ok(Box::new(ours) as Box<dyn InProcessIo>)
            })
        });
        Self {
            sender: Sender::with_dial(settings, Tasks::on_current_runtime(), dial),
            dials,
            gate,
        }
    }

    /// Sends a request that arrives on a new connection, and answers it.
    async fn exchange(&mut self, answer: &str) -> (Result<Response<PooledBody>, SendError>, DuplexStream) {
        let sent = send(&self.sender);
        let answered = async {
            let mut line = self.dials.recv().await.unwrap();
            answer_request(&mut line, answer).await;
            line
        };
        future::join(sent, answered).await
    }
}

async fn send(sender: &Sender) -> Result<Response<PooledBody>, SendError> {
    sender.send(request("http://provider.test/v1/messages"), TIMEOUT).await
}

fn request(uri: &str) -> Request<BoxedBody> {
    let body = Full::<Bytes>::from(BODY).map_err(|never: Infallible| match never {});
    Request::post(uri).body(body.boxed_unsync()).unwrap()
}

/// Reads one request, checks it, and writes the answer.
async fn answer_request(line: &mut DuplexStream, answer: &str) {
    let mut seen = Vec::new();
    while !seen.ends_with(BODY.as_bytes()) {
        assert_ne!(
            line.read_buf(&mut seen).await.unwrap(),
            0,
            "closed before the request was complete"
        );
    }
    let seen = String::from_utf8(seen).unwrap();
    assert!(seen.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("\r\nhost: provider.test\r\n"), "{seen}");
    line.write_all(answer.as_bytes()).await.unwrap();
}

/// Returns `true` if the proxy has closed the connection.
fn is_closed(line: &mut DuplexStream) -> bool {
    line.read(&mut [0]).now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_if_its_answer_was_read_to_the_end() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    // The polls of the body, and the fate of its connection.
    for (answer, polls, is_kept) in [
        (OK, 0, false),
        (OK, 1, true),
        // Without a length, only a poll after the last frame finds the end.
        (chunked, 1, false),
        (chunked, 2, true),
        (&chunked[..chunked.len() - 5], 1, false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok", 1, false),
        (
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
            1,
            false,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", 0, true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more", 1, false),
    ] {
        let mut provider = Provider::new(&settings());
        let (sent, mut line) = provider.exchange(answer).await;
        let mut body = sent.unwrap().into_body();
        for poll in 0..polls {
            let data = body.frame().await.map(|frame| frame.unwrap().into_data().unwrap());
            assert_eq!(data.as_deref(), (poll == 0).then_some(&b"ok"[..]));
        }
        drop(body);
        assert_eq!(!is_closed(&mut line), is_kept, "{answer:?} {polls}");
        let sending = send(&provider.sender);
        let second = async { sending.await.unwrap().into_body().collect().await.unwrap() };
        let answered = async {
            let mut line = if is_kept {
                line
            } else {
                provider.dials.recv().await.unwrap()
            };
            answer_request(&mut line, OK).await;
            line
        };
        let (second, _line) = Box::pin(future::join(second, answered)).await;
        assert_eq!(second.to_bytes(), "ok");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_clear_end_is_refused_and_its_connection_closed() {
    for head in [
        "101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade",
        "200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2",
        "200 OK\r\ntransfer-encoding: gzip, chunked",
        "204 No Content\r\ntransfer-encoding: chunked\r\ncontent-length: 2",
    ] {
        let mut provider = Provider::new(&settings());
        let (sent, mut line) = provider
            .exchange(&format!("HTTP/1.1 {head}\r\n\r\n2\r\nok\r\n0\r\n\r\n"))
            .await;
        let error = sent.err().unwrap();
        assert_eq!(
            (error.phase, error.kind),
            (Phase::Headers, SendErrorKind::Protocol),
            "{head}"
        );
        assert!(is_closed(&mut line), "{head}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_connection_that_the_provider_closed_is_sent_on_another() {
    let mut provider = Provider::new(&settings());
    for _ in 0..3 {
        let (sent, line) = provider.exchange(OK).await;
        assert_eq!(sent.unwrap().into_body().collect().await.unwrap().to_bytes(), "ok");
        // The next round gets a new connection, and the whole request.
        drop(line);
    }
    // A connection that ends after the request was sent is an error: the provider may have seen it.
    let (sent, mut line) = provider.exchange(OK).await;
    assert_eq!(sent.unwrap().into_body().collect().await.unwrap().to_bytes(), "ok");
    let (sent, ()) = future::join(send(&provider.sender), async {
        answer_request(&mut line, "").await;
        drop(line);
    })
    .await;
    let error = sent.err().unwrap();
    assert_eq!((error.phase, error.kind), (Phase::Headers, SendErrorKind::Io));
    assert!(provider.dials.try_recv().is_err(), "it was sent again");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_connection_gets_one_that_becomes_free() {
    let mut provider = Provider::gated(&settings());
    provider.gate.send(()).unwrap();
    let (sent, mut line) = provider.exchange(OK).await;
    // The second connection is never accepted.
    let freed = async {
        tokio::task::yield_now().await;
        assert_eq!(sent.unwrap().into_body().collect().await.unwrap().to_bytes(), "ok");
        answer_request(&mut line, OK).await;
    };
    let (second, ()) = future::join(send(&provider.sender), freed).await;
    assert_eq!(second.unwrap().into_body().collect().await.unwrap().to_bytes(), "ok");
    assert!(provider.dials.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_limited_in_number_and_time() {
    let limited = UpstreamSettings {
        pool_idle_max: 1,
        ..settings()
    };
    let mut provider = Provider::new(&limited);
    let (one, mut first) = provider.exchange(OK).await;
    let (two, mut second) = provider.exchange(OK).await;
    for sent in [one, two] {
        sent.unwrap().into_body().collect().await.unwrap();
    }
    assert!(!is_closed(&mut first));
    assert!(is_closed(&mut second), "more idle connections than allowed");
    // No request is needed to close it.
    tokio::time::sleep(limited.pool_idle_timeout * 2).await;
    assert!(is_closed(&mut first), "an idle connection outlives its timeout");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_closes_the_connection_at_once() {
    let mut provider = Provider::new(&settings());
    let sending = tokio::spawn({
        let sender = provider.sender.clone();
        async move { drop(sender.send(request("http://provider.test/v1/messages"), TIMEOUT).await) }
    });
    let mut line = provider.dials.recv().await.unwrap();
    answer_request(&mut line, "").await;
    assert!(!is_closed(&mut line));
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    assert!(is_closed(&mut line));
}

/// Serves HTTPS on a loopback port, with HTTP/2 if `alpn` contains it. Each message is one connection. The second value
/// ends the connections that are open.
async fn serve_https(alpn: &[&[u8]]) -> (String, ClientConfig, mpsc::UnboundedReceiver<()>, Arc<Notify>) {
    let authority = Authority::new("provider");
    let certified = authority.issue(&[dns("localhost")], 2120);
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let key = certified.key.serialize_der().try_into().unwrap();
    let mut server = builder
        .with_no_client_auth()
        .with_single_cert(vec![certified.der.clone()], key)
        .unwrap();
    server.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!(
        "https://localhost:{}/v1/messages",
        listener.local_addr().unwrap().port()
    );
    let (accepted, connections) = mpsc::unbounded_channel();
    let ending = Arc::new(Notify::new());
    let end = Arc::clone(&ending);
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(server));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, accepted, end) = (acceptor.clone(), accepted.clone(), Arc::clone(&end));
            tokio::spawn(async move {
                // A client may find another connection before the handshake is complete.
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async {
                    let host = request.headers().get("host").cloned();
                    let is_http2 = request.version() == http::Version::HTTP_2;
                    assert_eq!(host.is_none(), is_http2);
                    assert_eq!(request.uri().path(), "/v1/messages");
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
                });
                accepted.send(()).unwrap();
                let builder = auto::Builder::new(TokioExecutor::new());
                let serving = builder.serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    _ = serving => {}
                    () = end.notified() => {}
                }
            });
        }
    });
    let client = TlsClient {
        authority: &authority,
        versions: &BOTH_VERSIONS,
        // The pool offers what it can.
        alpn: &[],
        certificate: None,
    };
    let client = client.config();
    (uri, client, connections, ending)
}

async fn ask(sender: &Sender, uri: &str) {
    let answer = sender.send(request(uri), TIMEOUT).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), BODY);
}

#[tokio::test]
async fn requests_share_a_connection_of_http2_and_take_turns_on_one_of_http1() {
    for (alpn, at_once) in [(&[&b"h2"[..], b"http/1.1"][..], 1), (&[b"http/1.1"], 8)] {
        let (uri, tls, mut connections, ending) = serve_https(alpn).await;
        let sender = Sender::with_tls(&settings(), Tasks::on_current_runtime(), tls);
        for _ in 0..3 {
            ask(&sender, &uri).await;
        }
        connections.recv().await.unwrap();
        assert!(connections.try_recv().is_err(), "more than one connection");
        future::join_all((0..8).map(|_| ask(&sender, &uri))).await;
        let mut opened = 1;
        while connections.try_recv().is_ok() {
            opened += 1;
        }
        assert!(opened <= at_once, "{opened} connections");
        // The provider ends them all. A request that is sent before this is noticed fails, and then one gets another.
        ending.notify_waiters();
        while sender.send(request(&uri), TIMEOUT).await.is_err() {
            tokio::task::yield_now().await;
        }
        connections.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_shared_connection_is_not_used_after_the_idle_timeout() {
    let (uri, tls, mut connections, _ending) = serve_https(&[b"h2"]).await;
    let never = UpstreamSettings {
        pool_idle_timeout: Duration::ZERO,
        ..settings()
    };
    let sender = Sender::with_tls(&never, Tasks::on_current_runtime(), tls);
    for _ in 0..3 {
        ask(&sender, &uri).await;
        connections.recv().await.unwrap();
    }
}
