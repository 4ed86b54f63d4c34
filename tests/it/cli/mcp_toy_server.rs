//! A toy MCP server with streamable HTTP. Its tool ends once its gate is open, and it notes what reaches it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};

use super::FILM;
use crate::support::wire::spawn;

/// The version of a server without sessions.
pub(super) const MODERN: &str = "2026-07-28";
/// The version of one with sessions.
pub(super) const EARLIER: &str = "2025-11-25";

/// How a server behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToyManner {
    /// It has no sessions, and wants the headers of 2026-07-28.
    pub(super) is_modern: bool,
    /// It answers by streams of events, written over several lines.
    pub(super) streams: bool,
    /// It offers a stream of its own messages.
    pub(super) speaks: bool,
    /// The answer to a call.
    pub(super) call: ToyCall,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum ToyCall {
    /// The film, once the gate is open.
    #[default]
    Film,
    /// A head and a body, as they are.
    Raw(u16, &'static str, &'static str),
    /// The connection ends.
    Hangup,
    /// A stream that ends after an event with this id, and goes on after it.
    Resumed(&'static str),
    /// A stream that ends before its answer, and so does the rest of it, if there is an id.
    Broken(&'static str),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct SeenRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    /// The body's bytes.
    pub(super) raw: Bytes,
}

impl SeenRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A running server. It ends on drop.
pub(super) struct ToyServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    manner: ToyManner,
    seen: Mutex<Vec<SeenRequest>>,
    /// Requests whose connection has ended before their answer.
    dropped: Mutex<usize>,
    sessions: Mutex<usize>,
    gate: watch::Sender<bool>,
    /// Streams end at once.
    cut: watch::Sender<bool>,
}

type ToyBody = UnsyncBoxBody<Bytes, Infallible>;
/// Events on their way. A connection that ends before the last one is noted.
type EventSender = mpsc::Sender<Bytes>;

impl ToyServer {
    pub(super) async fn start(manner: ToyManner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            manner,
            seen: Mutex::default(),
            dropped: Mutex::default(),
            sessions: Mutex::new(1),
            gate: watch::Sender::new(false),
            cut: watch::Sender::new(false),
        });
        let served = Arc::clone(&shared);
        let task = spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let served = Arc::clone(&served);
                let service = hyper::service::service_fn(move |request| Arc::clone(&served).answer(request));
                let server = hyper::server::conn::http1::Builder::new();
                spawn(async move { server.serve_connection(TokioIo::new(stream), service).await });
            }
        });
        Self { address, shared, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn open_gate(&self) {
        self.shared.gate.send_replace(true);
    }

    /// Ends the streams of the calls that run.
    pub(super) fn cut(&self) {
        self.shared.cut.send_replace(true);
    }

    /// Forgets its sessions, as a server that starts again.
    pub(super) fn restart(&self) {
        *lock(&self.shared.sessions) += 1;
    }

    pub(super) fn seen(&self) -> Vec<SeenRequest> {
        lock(&self.shared.seen).clone()
    }

    /// Returns the messages with this method.
    pub(super) fn messages(&self, method: &str) -> Vec<SeenRequest> {
        let mut seen = self.seen();
        seen.retain(|request| request.body["method"] == method);
        seen
    }

    pub(super) fn runs(&self) -> usize {
        self.messages("tools/call").len()
    }

    pub(super) fn dropped(&self) -> usize {
        *lock(&self.shared.dropped)
    }
}

impl Drop for ToyServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap()
}

/// Notes a connection that ends before the answer.
struct DropNote {
    shared: Arc<Shared>,
    is_answered: bool,
}

impl Drop for DropNote {
    fn drop(&mut self) {
        if !self.is_answered {
            *lock(&self.shared.dropped) += 1;
        }
    }
}

impl Shared {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<ToyBody>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let seen = SeenRequest {
            method: head.method,
            headers: head.headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
            raw: body,
        };
        lock(&self.seen).push(seen.clone());
        if let Some(refusal) = self.refusal(&seen) {
            return Ok(refusal);
        }
        match seen.method {
            Method::GET => Ok(self.stream_to(&seen)),
            Method::DELETE => Ok(whole(200, "text/plain", "")),
            _ if seen.body.get("id").is_none() || seen.body.get("method").is_none() => Ok(whole(202, "text/plain", "")),
            _ if seen.body["method"] == "tools/call" => self.run_tool(&seen).await,
            _ => Ok(self.give(&seen, &Self::result_of(&seen))),
        }
    }

    /// Refuses what a server of this version refuses.
    fn refusal(&self, seen: &SeenRequest) -> Option<Response<ToyBody>> {
        let error = |status, code: i32| {
            let body = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": code, "message": "refused"}});
            Some(whole(status, "application/json", &body.to_string()))
        };
        if self.manner.is_modern {
            let subject = seen.body["params"]["name"].as_str().unwrap_or_default();
            let version = &seen.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
            let is_fine = seen.header("mcp-protocol-version") == version.as_str().unwrap_or_default()
                && seen.header("mcp-method") == seen.body["method"].as_str().unwrap_or_default()
                && seen.header("mcp-name") == subject
                && seen.header("mcp-session-id").is_empty();
            return if is_fine { None } else { error(400, -32020) };
        }
        let known = format!("session-{}", lock(&self.sessions));
        match seen.header("mcp-session-id") {
            "" if seen.body["method"] == "initialize" => None,
            "" => error(400, -32600),
            id if id != known => Some(whole(404, "text/plain", "no such session")),
            _ => None,
        }
    }

    fn result_of(seen: &SeenRequest) -> Value {
        match seen.body["method"].as_str().unwrap() {
            "initialize" => json!({"protocolVersion": EARLIER, "capabilities": {}}),
            "tools/list" => json!({"tools": [{"name": "render", "inputSchema":
                {"properties": {"of": {"type": "string", "x-mcp-header": "Of"}}}}]}),
            _ => json!({}),
        }
    }

    /// Gives an answer in the manner of this server.
    fn give(&self, seen: &SeenRequest, result: &Value) -> Response<ToyBody> {
        let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result});
        let mut response = if self.manner.streams {
            whole(200, "text/event-stream; charset=utf-8", &event("", &answer))
        } else {
            whole(200, "application/json", &serde_json::to_string_pretty(&answer).unwrap())
        };
        if seen.body["method"] == "initialize" {
            let id = format!("session-{}", lock(&self.sessions));
            response.headers_mut().insert("mcp-session-id", id.parse().unwrap());
        }
        response
    }

    async fn run_tool(self: Arc<Self>, seen: &SeenRequest) -> Result<Response<ToyBody>, std::io::Error> {
        let film = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result":
            {"content": [{"type": "text", "text": FILM}]}});
        let (sender, body) = stream_body();
        match self.manner.call {
            ToyCall::Raw(status, kind, text) => return Ok(whole(status, kind, text)),
            ToyCall::Hangup => return Err(std::io::Error::other("the line is cut")),
            ToyCall::Resumed(id) | ToyCall::Broken(id) => send(&sender, &event(id, &json!(null))),
            ToyCall::Film if self.manner.streams => {
                send(&sender, ": a comment\n\nevent: other\ndata: {}\n\n");
                spawn(self.play(sender, film));
            }
            ToyCall::Film => {
                let mut note = self.note_drops();
                self.gate.subscribe().wait_for(|open| *open).await.unwrap();
                note.is_answered = true;
                return Ok(self.give(seen, &film["result"]));
            }
        }
        Ok(response(200, "text/event-stream", body))
    }

    /// Sends the film once the gate is open, unless nobody listens any more.
    async fn play(self: Arc<Self>, sender: EventSender, film: Value) {
        let mut note = self.note_drops();
        let (mut gate, mut cut) = (self.gate.subscribe(), self.cut.subscribe());
        tokio::select! {
            _ = gate.wait_for(|open| *open) => {
                note.is_answered = true;
                send(&sender, &event("", &film));
            }
            _ = cut.wait_for(|cut| *cut) => {}
            () = sender.closed() => {}
        }
    }

    fn note_drops(self: &Arc<Self>) -> DropNote {
        DropNote {
            shared: Arc::clone(self),
            is_answered: false,
        }
    }

    /// Answers a request for the server's own messages, or for the rest of a stream.
    fn stream_to(self: Arc<Self>, seen: &SeenRequest) -> Response<ToyBody> {
        let (sender, body) = stream_body();
        match self.manner.call {
            ToyCall::Resumed(id) if seen.header("last-event-id") == id => {
                let call = lock(&self.seen)
                    .iter()
                    .find(|seen| seen.body["method"] == "tools/call")
                    .cloned();
                let result = json!({"content": [{"type": "text", "text": FILM}]});
                let answer = json!({"jsonrpc": "2.0", "id": call.unwrap().body["id"], "result": result});
                send(&sender, &event("", &answer));
            }
            _ if self.manner.speaks && seen.header("last-event-id").is_empty() => {
                send(
                    &sender,
                    &event("own-1", &json!({"jsonrpc": "2.0", "method": "notifications/message"})),
                );
                let mut gate = self.gate.subscribe();
                spawn(async move { gate.wait_for(|open| *open).await.map(|_| drop(sender)) });
            }
            _ => return whole(405, "text/plain", ""),
        }
        response(200, "text/event-stream", body)
    }
}

/// Returns an event, with its message over several lines. `null` is an empty message.
fn event(id: &str, message: &Value) -> String {
    let id = if id.is_empty() {
        String::new()
    } else {
        format!("id: {id}\nretry: 1\n")
    };
    if message.is_null() {
        return format!("{id}data: \n\n");
    }
    let data = serde_json::to_string_pretty(message).unwrap().replace('\n', "\ndata: ");
    format!("{id}event: message\ndata: {data}\n\n")
}

fn send(sender: &EventSender, text: &str) {
    // An error means that nobody listens.
    drop(sender.try_send(Bytes::from(text.to_owned())));
}

fn stream_body() -> (EventSender, ToyBody) {
    let (sender, mut receiver) = mpsc::channel(16);
    let frames = futures_util::stream::poll_fn(move |cx| {
        receiver
            .poll_recv(cx)
            .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    });
    (sender, StreamBody::new(frames).boxed_unsync())
}

fn whole(status: u16, kind: &str, text: &str) -> Response<ToyBody> {
    let body = http_body_util::Full::new(Bytes::from(text.to_owned()));
    response(status, kind, body.boxed_unsync())
}

fn response(status: u16, kind: &str, body: ToyBody) -> Response<ToyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", kind.parse().unwrap());
    response
}
