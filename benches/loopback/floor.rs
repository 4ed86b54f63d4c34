//! The floor: the least work of a proxy that must have the whole body, on the same stack.
//!
//! It uses hyper's server, one buffer of content-length bytes and hyper-util's pooled client, all with their defaults.
//! It relays the answer frame by frame, on the same kind of runtime, and has no inspection, log, limits or timeouts.
//!
//! The *working floor* also does what no proxy that is operated can do without: it reads the syntax of the body, counts,
//! and writes a line of JSON about each exchange.

use std::{
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde::de::IgnoredAny;
use tokio::net::TcpListener;

type Sender = Client<HttpConnector, Full<Bytes>>;

/// Bytes of lines that are written at once, as a log with a thread of its own does.
const LINES_BYTES: usize = 8 * 1024;

/// The counters and log lines of the working floor.
#[derive(Debug, Default)]
struct Operation {
    counters: [AtomicU64; 10],
    lines: Mutex<Vec<u8>>,
}

/// An exchange of the working floor.
#[derive(Debug)]
struct Record {
    method: String,
    path: String,
    client: String,
    bytes_in: usize,
    is_json: bool,
    began: Instant,
}

impl Record {
    fn new(head: &http::request::Parts) -> Self {
        let client = head.headers.get(http::header::USER_AGENT);
        Self {
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            client: client.map_or_else(String::new, |client| client.to_str().unwrap().to_owned()),
            bytes_in: 0,
            is_json: false,
            began: Instant::now(),
        }
    }
}

impl Operation {
    /// Counts an exchange, and writes its line.
    fn end(&self, record: &Record, answer: &Response<Incoming>) {
        let bytes_out = answer.size_hint().exact().unwrap_or(0);
        let took = u64::try_from(record.began.elapsed().as_micros()).unwrap();
        let (status, is_json) = (answer.status().as_u16(), u64::from(record.is_json));
        let bytes_in = record.bytes_in as u64;
        let counts = [1, bytes_in, bytes_out, took, is_json, status.into(), 1, 1, 1, 1];
        for (counter, count) in self.counters.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        let Record {
            method, path, client, ..
        } = record;
        let [path, client] = [path, client].map(|text| serde_json::to_string(text).unwrap());
        let time = humantime::format_rfc3339_micros(std::time::SystemTime::now());
        let mut lines = self.lines.lock().unwrap();
        writeln!(
            lines,
            "{{\"timestamp\":\"{time}\",\"level\":\"INFO\",\"method\":\"{method}\",\"path\":{path},\"client\":{client},\
             \"status\":{status},\"bytes_in\":{bytes_in},\"bytes_out\":{bytes_out},\"dur_us\":{took},\"json\":{is_json}}}"
        )
        .unwrap();
        if lines.len() >= LINES_BYTES {
            std::io::stderr().write_all(&lines).unwrap();
            lines.clear();
        }
    }
}

/// Serves until the process ends.
pub fn serve(listen: SocketAddr, upstream: &str, is_working: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let operation = is_working.then(Arc::default);
    runtime.block_on(accept(listen, HeaderValue::from_str(upstream).unwrap(), operation));
}

async fn accept(listen: SocketAddr, upstream: HeaderValue, operation: Option<Arc<Operation>>) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (client, upstream, operation) = (client.clone(), upstream.clone(), operation.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| exchange(request, &client, &upstream, operation.as_deref()));
            let server = hyper::server::conn::http1::Builder::new();
            // An error of a client that leaves is ignored.
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn exchange(
    request: Request<Incoming>,
    client: &Sender,
    upstream: &HeaderValue,
    operation: Option<&Operation>,
) -> Result<Response<Incoming>, Infallible> {
    let (mut head, mut body) = request.into_parts();
    let mut record = operation.map(|_| Record::new(&head));
    let target = head.uri.path_and_query().unwrap();
    head.uri = format!("http://{}{target}", upstream.to_str().unwrap())
        .parse::<Uri>()
        .unwrap();
    for name in [CONNECTION, TRANSFER_ENCODING, TE, UPGRADE] {
        head.headers.remove(name);
    }
    head.headers.insert(HOST, upstream.clone());
    let mut buffer = BytesMut::with_capacity(usize::try_from(body.size_hint().lower()).unwrap());
    while let Some(frame) = body.frame().await {
        buffer.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    if let Some(record) = &mut record {
        record.bytes_in = buffer.len();
        record.is_json = serde_json::from_slice::<IgnoredAny>(&buffer).is_ok();
    }
    let mut answer = client
        .request(Request::from_parts(head, Full::new(buffer.freeze())))
        .await
        .unwrap();
    for name in [CONNECTION, TRANSFER_ENCODING] {
        answer.headers_mut().remove(name);
    }
    if let (Some(operation), Some(record)) = (operation, &record) {
        operation.end(record, &answer);
    }
    Ok(answer)
}
