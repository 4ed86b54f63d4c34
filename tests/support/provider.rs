//! A provider over real sockets that is as strict as the judge: it answers 400 in the provider's words and shape,
//! else a plausible message, as JSON or as a stream. It keeps every request for assertions.
#![allow(
    clippy::disallowed_methods,
    clippy::allow_attributes,
    reason = "a server of its own, with its own tasks"
)]

mod answer;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use antiphon::wire::{Format, Wire};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::judge;

/// One request as it arrived, and the status that it was answered with.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    /// The exact bytes of the body.
    pub body: Bytes,
    pub status: StatusCode,
}

/// What the model does next, where the request is accepted.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Says something.
    Text(String),
    /// Calls a tool.
    Call { id: String, name: String, input: Value },
    /// Does not get to answer: this status and body instead.
    Status(u16, Value),
}

/// A running provider; it ends when dropped.
pub struct Provider {
    address: SocketAddr,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    messages: Wire,
    chat: Wire,
    seen: Mutex<Vec<Seen>>,
    script: Mutex<VecDeque<Reply>>,
}

/// An answer on its way out: one frame for each event.
struct Answer {
    status: StatusCode,
    content_type: &'static str,
    frames: Vec<Bytes>,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        let status = StatusCode::from_u16(status).unwrap();
        Self {
            status,
            content_type: "application/json",
            frames: vec![body.to_string().into()],
        }
    }

    fn events(frames: Vec<String>) -> Self {
        let frames = frames.into_iter().map(Bytes::from).collect();
        Self {
            status: StatusCode::OK,
            content_type: "text/event-stream; charset=utf-8",
            frames,
        }
    }
}

impl Provider {
    /// Starts a provider that reads as Anthropic and OpenAI do.
    pub async fn start() -> Self {
        Self::reading_as(Wire::ANTHROPIC, Wire::OPENAI_CHAT).await
    }

    /// Starts a provider that reads Messages and Chat Completions as these wires do.
    pub async fn reading_as(messages: Wire, chat: Wire) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            messages,
            chat,
            seen: Mutex::default(),
            script: Mutex::default(),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&inner)));
        Self { address, inner, task }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the model does at the next request that is accepted and has no reply yet; without any it says a few words.
    pub fn reply(&self, reply: Reply) {
        self.inner.script.lock().unwrap().push_back(reply);
    }

    /// Every request so far, in order of their answers.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }

    /// The last request.
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("a request")
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        let inner = Arc::clone(&inner);
        let service = service_fn(move |request| exchange(request, Arc::clone(&inner)));
        tokio::spawn(async move {
            // A client that goes away is its own business.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

async fn exchange(
    request: Request<Incoming>,
    inner: Arc<Inner>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path().to_owned();
    let answer = inner.answer(&head.method, &path, &head.headers, &body);
    let number = {
        let mut seen = inner.seen.lock().unwrap();
        let path = head.uri.path_and_query().map_or(path, ToString::to_string);
        seen.push(Seen {
            method: head.method,
            path,
            headers: head.headers,
            body,
            status: answer.status,
        });
        seen.len()
    };
    let frames: Vec<_> = answer.frames.into_iter().map(|frame| Ok(Frame::data(frame))).collect();
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed();
    let response = Response::builder()
        .status(answer.status)
        .header("content-type", answer.content_type)
        .header("request-id", format!("req_{number:08}"))
        .body(body)
        .unwrap();
    Ok(response)
}

impl Inner {
    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap, body: &Bytes) -> Answer {
        let (format, counts) = match path {
            "/v1/messages" => (Format::Anthropic, false),
            "/v1/messages/count_tokens" => (Format::Anthropic, true),
            "/v1/chat/completions" => (Format::OpenAiChat, false),
            other => return unknown(other, headers),
        };
        if method != Method::POST {
            return refused(format, 405, "Method Not Allowed");
        }
        let body: Value = match decoded(headers, body).map(|body| serde_json::from_slice(&body)) {
            Some(Ok(value)) => value,
            _ => {
                return refused(
                    format,
                    400,
                    "The request body is not valid JSON: unexpected end of data",
                );
            }
        };
        let wire = if format == Format::Anthropic {
            self.messages
        } else {
            self.chat
        };
        if let Err(refusal) = judge::of(wire)(&body) {
            return refused(format, refusal.status, &refusal.message);
        }
        if counts {
            let length = u64::try_from(body.to_string().len()).unwrap();
            return Answer::json(200, &json!({"input_tokens": length / 4}));
        }
        let reply = self.script.lock().unwrap().pop_front();
        let reply = reply.unwrap_or_else(|| Reply::Text("I hear you.".to_owned()));
        if let Reply::Status(status, words) = &reply {
            return Answer::json(*status, words);
        }
        let number = self.seen.lock().unwrap().len() + 1;
        let model = body.get("model").and_then(Value::as_str).unwrap_or("model").to_owned();
        let streams = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
        match (format, streams) {
            (Format::Anthropic, false) => Answer::json(200, &answer::message(number, &model, &reply)),
            (Format::Anthropic, true) => Answer::events(answer::message_events(number, &model, &reply)),
            (Format::OpenAiChat, false) => Answer::json(200, &answer::completion(number, &model, &reply)),
            (Format::OpenAiChat, true) => Answer::events(answer::completion_chunks(number, &model, &reply)),
        }
    }
}

/// The body without its content coding.
fn decoded(headers: &HeaderMap, body: &Bytes) -> Option<Vec<u8>> {
    match headers.get("content-encoding").map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Some(body.to_vec()),
        Some(b"gzip") => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).ok()?;
            Some(plain)
        }
        Some(_) => None,
    }
}

/// An error in the shape of the format.
fn refused(format: Format, status: u16, words: &str) -> Answer {
    let error = match format {
        Format::Anthropic => json!({
            "type": "error",
            "error": {"type": "invalid_request_error", "message": words},
            "request_id": "req_refused",
        }),
        Format::OpenAiChat => json!({
            "error": {"message": words, "type": "invalid_request_error", "param": "messages", "code": null},
        }),
    };
    Answer::json(status, &error)
}

/// The 404 of whoever the request seems to be for.
fn unknown(path: &str, headers: &HeaderMap) -> Answer {
    if headers.contains_key("anthropic-version") || headers.contains_key("x-api-key") {
        let error = json!({"type": "not_found_error", "message": format!("Not found: {path}")});
        return Answer::json(404, &json!({"type": "error", "error": error}));
    }
    let words = format!("Invalid URL (POST {path})");
    let error = json!({"message": words, "type": "invalid_request_error", "param": null, "code": null});
    Answer::json(404, &json!({"error": error}))
}
