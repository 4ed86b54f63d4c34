//! A provider over real sockets that is as strict as the judge: it answers 400 in the provider's words and shape,
//! else a plausible message, as JSON or as a stream. It keeps every request for assertions.
#![allow(
    clippy::disallowed_methods,
    clippy::allow_attributes,
    reason = "a server of its own, with its own tasks"
)]

mod answer;
pub(crate) mod binding;
mod paths;

use std::collections::{HashMap, VecDeque};
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
use paths::{Endpoint, Wants};

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
    /// Calls several tools at once: id, name, input. Messages alone.
    Calls(Vec<(String, String, Value)>),
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
    /// How each format is read.
    wires: Vec<Wire>,
    /// Whether the model's thinking is bound to what stands before it.
    binds: bool,
    /// Responses: the call that each response of ours ended with.
    asked: Mutex<HashMap<String, String>>,
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
        Self::serving(&[messages, chat], false).await
    }

    /// Starts a provider that reads the formats of `wires` as these do, and the others as their authors do.
    pub async fn reading(wires: &[Wire]) -> Self {
        Self::serving(wires, false).await
    }

    /// Starts a provider whose models think before each message, and bind that to what stands before it.
    pub async fn binding() -> Self {
        Self::serving(&[], true).await
    }

    async fn serving(wires: &[Wire], binds: bool) -> Self {
        let authors = [Wire::ANTHROPIC, Wire::OPENAI_CHAT, Wire::OPENAI_RESPONSES, Wire::GEMINI];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            wires: wires.iter().copied().chain(authors).collect(),
            binds,
            asked: Mutex::default(),
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
    let query = head.uri.query().unwrap_or_default();
    let answer = inner.answer(&head.method, &path, query, &head.headers, &body);
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
    fn answer(&self, method: &Method, path: &str, query: &str, headers: &HeaderMap, body: &Bytes) -> Answer {
        let Some(endpoint) = paths::endpoint(path, query) else {
            return unknown(path, headers);
        };
        let format = endpoint.format;
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
        if let Err(refusal) = self.judge(endpoint, headers, &body) {
            return refused(format, refusal.status, &refusal.message);
        }
        match endpoint.wants {
            Wants::Count => return counted(format, &body),
            Wants::Kept => return Answer::json(200, &kept(format)),
            Wants::Answer | Wants::Stream(_) => {}
        }
        let reply = self.script.lock().unwrap().pop_front();
        let reply = reply.unwrap_or_else(|| Reply::Text("I hear you.".to_owned()));
        if let Reply::Status(status, words) = &reply {
            return Answer::json(*status, words);
        }
        self.said(endpoint, &body, &reply)
    }

    fn judge(&self, endpoint: Endpoint<'_>, headers: &HeaderMap, body: &Value) -> judge::Verdict {
        if let Some(id) = endpoint.conversation {
            let items = json!({"input": body["items"], "conversation": id});
            return judge::openai_responses(&items);
        }
        if endpoint.model.is_some_and(|model| model.contains("gemini-3")) {
            return judge::gemini_signed(body);
        }
        let wire = self.wires.iter().find(|wire| wire.format == endpoint.format).unwrap();
        judge::of(*wire)(body)?;
        self.held(body)?;
        if !self.binds || endpoint.format != Format::Anthropic {
            return Ok(());
        }
        let betas = headers.get_all("anthropic-beta").iter();
        let mut betas = betas.filter_map(|value| value.to_str().ok());
        binding::check(body, betas.any(|value| value.contains(binding::CONTROLS)))
    }

    /// A response of ours that ended with a call is answered by the next request that goes on from it.
    fn held(&self, body: &Value) -> judge::Verdict {
        let before = body.get("previous_response_id").and_then(Value::as_str);
        let asked = self.asked.lock().unwrap();
        let Some(id) = before.and_then(|before| asked.get(before)) else {
            return Ok(());
        };
        let items = body.get("input").and_then(Value::as_array).into_iter().flatten();
        let mut answers = items.filter(|item| item["type"] == "function_call_output");
        if answers.any(|item| item["call_id"] == **id) {
            return Ok(());
        }
        Err(judge::Refusal {
            status: 400,
            message: format!("No tool output found for function call {id}."),
            ids: vec![id.clone()],
        })
    }

    /// What the model says, in the shape that was asked for.
    fn said(&self, endpoint: Endpoint<'_>, body: &Value, reply: &Reply) -> Answer {
        let number = self.seen.lock().unwrap().len() + 1;
        let named = endpoint.model.or_else(|| body.get("model").and_then(Value::as_str));
        let model = named.unwrap_or("model");
        let streams = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
        if let (Format::OpenAiResponses, Reply::Call { id, .. }) = (endpoint.format, reply) {
            let mut asked = self.asked.lock().unwrap();
            asked.insert(answer::response_id(number), id.clone());
        }
        let thought = self
            .binds
            .then(|| binding::thinking(body, &format!("thought {number}")));
        match (endpoint.format, endpoint.wants, streams) {
            (Format::Anthropic, _, false) => {
                Answer::json(200, &answer::message(number, model, thought.as_ref(), reply))
            }
            (Format::Anthropic, _, true) => {
                Answer::events(answer::message_events(number, model, thought.as_ref(), reply))
            }
            (Format::OpenAiChat, _, false) => Answer::json(200, &answer::completion(number, model, reply)),
            (Format::OpenAiChat, _, true) => Answer::events(answer::completion_chunks(number, model, reply)),
            (Format::OpenAiResponses, _, false) => Answer::json(200, &answer::response(number, model, reply)),
            (Format::OpenAiResponses, _, true) => Answer::events(answer::response_events(number, model, reply)),
            (Format::Gemini, Wants::Stream(events), _) => {
                let chunks = answer::candidate_chunks(number, model, reply);
                if events {
                    let event = |chunk: &Value| format!("data: {chunk}\r\n\r\n");
                    return Answer::events(chunks.iter().map(event).collect());
                }
                Answer::json(200, &chunks.into())
            }
            (Format::Gemini, ..) => Answer::json(200, &answer::candidates(number, model, reply)),
        }
    }
}

/// How many tokens a body is, more or less.
fn counted(format: Format, body: &Value) -> Answer {
    let tokens = u64::try_from(body.to_string().len()).unwrap() / 4;
    let told = match format {
        Format::Gemini => json!({"totalTokens": tokens}),
        Format::OpenAiResponses => json!({"object": "response.input_tokens", "input_tokens": tokens}),
        Format::Anthropic | Format::OpenAiChat => json!({"input_tokens": tokens}),
    };
    Answer::json(200, &told)
}

/// What is said of a history that no model answers.
fn kept(format: Format) -> Value {
    match format {
        Format::Anthropic => json!({"id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress"}),
        Format::Gemini => json!({"name": "batches/1", "metadata": {"state": "BATCH_STATE_PENDING"}}),
        Format::OpenAiChat | Format::OpenAiResponses => json!({"id": "kept_1", "object": "list", "output": []}),
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
        Format::OpenAiResponses => json!({
            "error": {"message": words, "type": "invalid_request_error", "param": "input", "code": null},
        }),
        Format::Gemini => json!({
            "error": {"code": status, "message": words, "status": "INVALID_ARGUMENT"},
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
