//! The provider itself: it records a request, judges it, and returns a refusal or the next reply.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    io::{self, Read as _},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Collected, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    Dialect, Format, Reply,
    answer::{self, Answer},
    binding, frames,
    judge::{self, ServerMemory, ServerRules},
    model,
    paths::{self, Endpoint, Wants},
    refusal_rule::RefusalRule,
    thought::{ChatThought, Maker, Thought},
};

/// Largest request body in bytes: Anthropic's limit.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Time between two pings of an endless search.
const PING_INTERVAL: Duration = Duration::from_millis(100);
/// Largest number of responses whose open call is remembered.
const OPEN_RESPONSES_MAX: usize = 1024;

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// One request as it arrived, and the status of its answer.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The exact bytes of the body.
    pub body: Bytes,
    /// Status of the answer.
    pub status: StatusCode,
}

/// The requests that a provider records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Every request: memory grows with each.
    All,
    /// The last request of each of these credentials.
    LastOf(&'static [&'static str]),
}

/// Settings of a provider.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Dialects of formats. Formats that are not listed are judged as their authors do.
    pub dialects: Vec<(Format, Dialect)>,
    /// `true` if the model thinks before each message and binds that to the prefix (Messages only).
    pub binds_thinking: bool,
    /// `true` if the model thinks before each message, and signs or encrypts that as its provider does. A thought is
    /// bound to no prefix.
    pub thinks: bool,
    /// Rules of the server beyond the pairing rules. Off by default.
    pub rules: ServerRules,
    /// Rules of the server in its own words, which are judged first.
    pub refusal_rules: Vec<RefusalRule>,
    /// The requests to record.
    pub recording: Recording,
    /// `true` if the model calls offered tools by itself. Otherwise it returns a short text.
    pub calls_tools: bool,
    /// Part of the ids of invented calls, so that no id is used by two runs.
    pub run: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dialects: Vec::new(),
            binds_thinking: false,
            thinks: false,
            rules: ServerRules::default(),
            refusal_rules: Vec::new(),
            recording: Recording::All,
            calls_tools: false,
            run: String::new(),
        }
    }
}

/// A strict provider. Clones share their state.
#[derive(Clone, Debug)]
pub struct Provider {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    maker: Maker,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of answers so far.
    answers: usize,
    /// Replies for requests of any credential.
    script: VecDeque<Reply>,
    /// Replies for requests of one credential. They go first.
    script_of: BTreeMap<String, VecDeque<Reply>>,
    recorded: Vec<ReceivedRequest>,
    last_of: BTreeMap<&'static str, ReceivedRequest>,
    /// Responses: the calls of each response, which the next request must answer.
    open_responses: HashMap<String, Vec<String>>,
    open_order: VecDeque<String>,
    /// What the rules of the server depend on.
    memory: ServerMemory,
}

impl Provider {
    /// Returns a provider that listens nowhere yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            inner: Arc::new(Inner {
                settings,
                maker: Maker::new(),
                state: Mutex::default(),
            }),
        }
    }

    /// Appends a reply for the next accepted request that has none yet.
    pub fn reply(&self, reply: Reply) {
        self.state().script.push_back(reply);
    }

    /// Appends a reply for the next accepted request with this credential.
    pub fn reply_to(&self, credential: &str, reply: Reply) {
        let mut state = self.state();
        state
            .script_of
            .entry(credential.to_owned())
            .or_default()
            .push_back(reply);
    }

    /// Removes the pending replies of a credential.
    pub fn clear_replies(&self, credential: &str) {
        self.state().script_of.remove(credential);
    }

    /// Loses the prompt cache. Every turn so far is cold then, as it is after its lifetime or a compaction.
    pub fn restart_cache(&self) {
        self.state().memory.clear_cache();
    }

    /// Changes what the server remembers: a test may name signatures and responses that it counts as its own.
    pub fn remember(&self, change: impl FnOnce(&mut ServerMemory)) {
        change(&mut self.state().memory);
    }

    /// Returns every recorded request, in order of their answers.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.state().recorded.clone()
    }

    /// Returns the last body with this credential. Empty unless it is recorded.
    pub fn last_body(&self, credential: &str) -> Bytes {
        let state = self.state();
        let last = state.last_of.get(credential);
        last.map(|request| request.body.clone()).unwrap_or_default()
    }

    /// Serves `listener` until the returned task is aborted.
    #[expect(
        clippy::disallowed_methods,
        reason = "the tasks end with the listener's task or their client"
    )]
    pub fn serve(&self, listener: TcpListener) -> io::Result<(SocketAddr, JoinHandle<()>)> {
        let address = listener.local_addr()?;
        let provider = self.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let provider = provider.clone();
                let service = hyper::service::service_fn(move |request| {
                    let provider = provider.clone();
                    async move { Ok::<_, Infallible>(provider.answer(request).await) }
                });
                tokio::spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A client that goes away needs no answer.
                    drop(connection.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Ok((address, task))
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let collected = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = collected.map(Collected::to_bytes);
        let outcome = match &body {
            Ok(body) => self.outcome(&head.method, &head.uri, &head.headers, body),
            Err(_) => too_large(&head.uri, &head.headers),
        };
        let Outcome { status, payload } = outcome;
        let number = self.record(ReceivedRequest {
            method: head.method,
            path,
            headers: head.headers,
            body: body.unwrap_or_default(),
            status,
        });
        let (kind, body) = match payload {
            Payload::Json(value) => ("application/json", Full::new(value.to_string().into()).boxed_unsync()),
            Payload::Events(events) => ("text/event-stream; charset=utf-8", stream_of(events)),
            Payload::Frames(frames) => ("application/vnd.amazon.eventstream", stream_of(frames)),
            Payload::EndlessSearch(events) => ("text/event-stream; charset=utf-8", endless_stream(events)),
            Payload::Silence => std::future::pending().await,
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Ok(id) = HeaderValue::from_str(&format!("req_{number:08}")) {
            headers.insert("request-id", id);
        }
        response
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and returns its number, from 1.
    fn record(&self, request: ReceivedRequest) -> usize {
        let mut state = self.state();
        state.answers += 1;
        match self.inner.settings.recording {
            Recording::All => state.recorded.push(request),
            Recording::LastOf(credentials) => {
                let own = credential(&request.headers);
                if let Some(known) = credentials.iter().find(|known| **known == own) {
                    state.last_of.insert(known, request);
                }
            }
        }
        state.answers
    }

    fn outcome(&self, method: &Method, uri: &http::Uri, headers: &HeaderMap, body: &Bytes) -> Outcome {
        let Some(endpoint) = paths::endpoint(uri.path(), uri.query().unwrap_or_default()) else {
            return not_found(method, uri.path(), headers);
        };
        let format = endpoint.format;
        if method != Method::POST {
            return refusal(format, StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        }
        let body = decode(headers, body);
        let mut rules = self.inner.settings.refusal_rules.iter();
        let refused = body
            .as_deref()
            .and_then(|body| rules.find_map(|rule| rule.judge(body).err()));
        if let Some(refused) = refused {
            return refused_as(format, &refused);
        }
        let Some(body) = body.and_then(|body| serde_json::from_slice::<Value>(&body).ok()) else {
            let text = "The request body is not valid JSON: unexpected end of data";
            return refusal(format, StatusCode::BAD_REQUEST, text);
        };
        if let Err(refused) = self.judge(&endpoint, headers, &body) {
            return refused_as(format, &refused);
        }
        self.state().memory.add_accepted(format, &body);
        match endpoint.wants {
            Wants::Count => return token_count(format, &body),
            Wants::Kept => return stored(format),
            Wants::Answer | Wants::Stream(_) | Wants::Frames => {}
        }
        let reply = self.next_reply(format, credential(headers), &body);
        self.write_reply(&endpoint, &body, &reply)
    }

    /// Takes the next scripted reply, or lets the model choose one.
    fn next_reply(&self, format: Format, credential: &str, body: &Value) -> Reply {
        let mut state = self.state();
        let own = state.script_of.get_mut(credential).and_then(VecDeque::pop_front);
        if let Some(reply) = own.or_else(|| state.script.pop_front()) {
            return reply;
        }
        if !self.inner.settings.calls_tools {
            return Reply::Text("I hear you.".to_owned());
        }
        let (number, run) = (state.answers + 1, &self.inner.settings.run);
        let prefix = match format {
            Format::Messages => "toolu",
            Format::Chat | Format::Responses | Format::Gemini => "call",
        };
        model::next_reply(format, body, &|| format!("{prefix}_{run}{number:06}"))
    }

    fn judge(&self, endpoint: &Endpoint<'_>, headers: &HeaderMap, body: &Value) -> judge::Verdict {
        if let Some(id) = endpoint.conversation {
            let items = json!({"input": body["items"], "conversation": id});
            return judge::openai_responses(&items);
        }
        let mut rules = self.inner.settings.rules;
        if endpoint.model.is_some_and(|model| model.contains("gemini-3")) {
            rules.reasoning.get_or_insert(judge::ReasoningRule::Gemini);
        }
        let dialects = self.inner.settings.dialects.iter();
        let listed = dialects
            .filter(|(format, _)| *format == endpoint.format)
            .map(|(_, dialect)| *dialect);
        let dialect = listed.into_iter().next().unwrap_or(Dialect::Author);
        judge::judge_with(endpoint.format, dialect, &rules, &self.state().memory, body)?;
        self.judge_open_response(body)?;
        match endpoint.format {
            Format::Messages if self.inner.settings.binds_thinking => {
                let betas = headers.get_all("anthropic-beta").iter();
                let mut betas = betas.filter_map(|value| value.to_str().ok());
                binding::check(body, betas.any(|value| value.contains(binding::CONTROLS)))
            }
            Format::Messages | Format::Chat | Format::Responses | Format::Gemini => Ok(()),
        }
    }

    /// Requires results for the calls of the response that the body continues from.
    fn judge_open_response(&self, body: &Value) -> judge::Verdict {
        let previous = body.get("previous_response_id").and_then(Value::as_str);
        let state = self.state();
        let Some(calls) = previous.and_then(|previous| state.open_responses.get(previous)) else {
            return Ok(());
        };
        let items = body.get("input").and_then(Value::as_array).into_iter().flatten();
        let results: Vec<&Value> = items.filter(|item| item["type"] == "function_call_output").collect();
        let is_open = |call: &&String| !results.iter().any(|item| item["call_id"] == ***call);
        match calls.iter().find(is_open) {
            None => Ok(()),
            Some(id) => Err(judge::Refusal::new(
                format!("No tool output found for function call {id}."),
                [id.clone()],
            )),
        }
    }

    /// Writes a reply in the shape that the request asked for.
    fn write_reply(&self, endpoint: &Endpoint<'_>, body: &Value, reply: &Reply) -> Outcome {
        let format = endpoint.format;
        let number = self.state().answers + 1;
        let model = endpoint.model.or_else(|| body.get("model").and_then(Value::as_str));
        let streams = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
        if format.continues_by_id() && !reply.calls().is_empty() {
            self.remember_calls(self.response_id(number), reply);
        }
        let thought = self.think(format, number);
        self.remember_reply(format, number, body, reply);
        let thinking = self.inner.settings.binds_thinking;
        let thinking = thinking.then(|| binding::thinking(body, &format!("thought {number}")));
        let response_id = self.response_id(number);
        let answer = Answer {
            number,
            response_id: &response_id,
            model: model.unwrap_or("model"),
            thinking: thinking.as_ref(),
            thought: thought.as_ref(),
            chat_thought: ChatThought::of_rule(self.inner.settings.rules.reasoning),
            reply,
        };
        let payload = match (reply, format, endpoint.wants, streams) {
            (Reply::Status(status, body), ..) => {
                return Outcome {
                    status: StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                    payload: Payload::Json(body.clone()),
                };
            }
            (Reply::Silence, ..) => Payload::Silence,
            (Reply::EndlessSearch, Format::Messages, ..) => Payload::EndlessSearch(answer.search_events()),
            (_, Format::Messages, Wants::Frames, _) => Payload::Frames(frames::invoke_frames(answer.message_events())),
            (_, Format::Messages, _, false) => Payload::Json(answer.message()),
            (_, Format::Messages, _, true) => {
                Payload::Events(answer.message_events().iter().map(answer::named).collect())
            }
            (_, Format::Chat, _, false) => Payload::Json(answer.completion()),
            (_, Format::Chat, _, true) => Payload::Events(answer.completion_events()),
            (_, Format::Responses, _, false) => Payload::Json(answer.response()),
            (_, Format::Responses, _, true) => Payload::Events(answer.response_events()),
            (_, Format::Gemini, Wants::Stream(true), _) => {
                let event = |chunk: &Value| format!("data: {chunk}\r\n\r\n");
                Payload::Events(answer.candidate_chunks().iter().map(event).collect())
            }
            (_, Format::Gemini, Wants::Stream(false), _) => Payload::Json(answer.candidate_chunks().into()),
            (_, Format::Gemini, ..) => Payload::Json(answer.candidates()),
        };
        Outcome {
            status: StatusCode::OK,
            payload,
        }
    }

    /// Returns the id of the Responses answer with this number. A server that knows its own ids shares none with others.
    fn response_id(&self, number: usize) -> String {
        if self.inner.settings.rules.made_here {
            return self.inner.maker.response_id(number);
        }
        format!("resp_{number:08}")
    }

    /// Thinks before an answer, and remembers the seal as made here.
    fn think(&self, format: Format, number: usize) -> Option<Thought> {
        if !self.inner.settings.thinks {
            return None;
        }
        let thought = self.inner.maker.think(format, number);
        self.state().memory.add_seal(&thought.seal);
        Some(thought)
    }

    /// Remembers a reply: its calls are in the cache, and its response can be continued if it is stored.
    fn remember_reply(&self, format: Format, number: usize, body: &Value, reply: &Reply) {
        let mut state = self.state();
        for call in reply.calls() {
            state.memory.add_cached(&call.id);
        }
        if format.continues_by_id() && body.get("store") != Some(&Value::Bool(false)) {
            state.memory.add_response(&self.response_id(number));
        }
    }

    /// Remembers the calls of a response, up to a bound.
    fn remember_calls(&self, id: String, reply: &Reply) {
        let mut state = self.state();
        let calls = reply.calls().iter().map(|call| call.id.clone()).collect();
        state.open_responses.insert(id.clone(), calls);
        state.open_order.push_back(id);
        if state.open_order.len() > OPEN_RESPONSES_MAX
            && let Some(oldest) = state.open_order.pop_front()
        {
            state.open_responses.remove(&oldest);
        }
    }
}

/// An answer before it is written to the connection.
struct Outcome {
    status: StatusCode,
    payload: Payload,
}

enum Payload {
    Json(Value),
    Events(Vec<String>),
    Frames(Vec<Vec<u8>>),
    EndlessSearch(Vec<String>),
    Silence,
}

/// Returns the credential of a request, whichever header contains it.
fn credential(headers: &HeaderMap) -> &str {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let key = bearer.or_else(|| text("x-api-key")).or_else(|| text("x-goog-api-key"));
    key.unwrap_or_default()
}

/// Returns the body without its content coding. `None` if it cannot be decoded.
fn decode(headers: &HeaderMap, body: &Bytes) -> Option<Vec<u8>> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Some(body.to_vec()),
        Some(b"gzip") => {
            let mut plain = Vec::new();
            let decoder = flate2::read::GzDecoder::new(body.as_ref());
            decoder.take(BODY_BYTES_MAX as u64).read_to_end(&mut plain).ok()?;
            Some(plain)
        }
        Some(_) => None,
    }
}

/// Estimates the number of tokens of a body.
fn token_count(format: Format, body: &Value) -> Outcome {
    let tokens = body.to_string().len() / 4;
    accepted(match format {
        Format::Gemini => json!({"totalTokens": tokens}),
        Format::Responses => json!({"object": "response.input_tokens", "input_tokens": tokens}),
        Format::Messages | Format::Chat => json!({"input_tokens": tokens}),
    })
}

/// Confirms a history that no model answers.
fn stored(format: Format) -> Outcome {
    accepted(match format {
        Format::Messages => json!({"id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress"}),
        Format::Gemini => json!({"name": "batches/1", "metadata": {"state": "BATCH_STATE_PENDING"}}),
        Format::Chat | Format::Responses => json!({"id": "kept_1", "object": "list", "output": []}),
    })
}

fn accepted(body: Value) -> Outcome {
    Outcome {
        status: StatusCode::OK,
        payload: Payload::Json(body),
    }
}

/// Returns an error in the shape of the format.
fn refusal(format: Format, status: StatusCode, text: &str) -> Outcome {
    let error = match format {
        Format::Messages => json!({
            "type": "error",
            "error": {"type": "invalid_request_error", "message": text},
            "request_id": "req_refused",
        }),
        Format::Chat => json!({
            "error": {"message": text, "type": "invalid_request_error", "param": "messages", "code": null},
        }),
        Format::Responses => json!({
            "error": {"message": text, "type": "invalid_request_error", "param": "input", "code": null},
        }),
        Format::Gemini => json!({
            "error": {"code": status.as_u16(), "message": text, "status": "INVALID_ARGUMENT"},
        }),
    };
    Outcome {
        status,
        payload: Payload::Json(error),
    }
}

/// Returns the answer that refuses a body.
fn refused_as(format: Format, refused: &judge::Refusal) -> Outcome {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
    with_code(refusal(format, status, &refused.message), refused)
}

/// Adds the provider's own code and type to an error.
fn with_code(mut outcome: Outcome, refused: &judge::Refusal) -> Outcome {
    if let Payload::Json(body) = &mut outcome.payload
        && let Some(error) = body.get_mut("error")
    {
        if let Some(code) = refused.code {
            error["code"] = code.into();
        }
        if let Some(kind) = refused.kind {
            error["type"] = kind.into();
        }
    }
    outcome
}

/// Returns a 404 in the shape that the client probably expects.
fn not_found(method: &Method, path: &str, headers: &HeaderMap) -> Outcome {
    let error = if headers.contains_key("anthropic-version") || headers.contains_key("x-api-key") {
        let error = json!({"type": "not_found_error", "message": format!("Not found: {path}")});
        json!({"type": "error", "error": error})
    } else {
        let text = format!("Invalid URL ({method} {path})");
        json!({"error": {"message": text, "type": "invalid_request_error", "param": null, "code": null}})
    };
    Outcome {
        status: StatusCode::NOT_FOUND,
        payload: Payload::Json(error),
    }
}

/// Returns the refusal of a body above the limit.
fn too_large(uri: &http::Uri, headers: &HeaderMap) -> Outcome {
    let endpoint = paths::endpoint(uri.path(), uri.query().unwrap_or_default());
    let text = "Request exceeds the maximum allowed number of bytes.";
    match endpoint {
        Some(endpoint) => refusal(endpoint.format, StatusCode::PAYLOAD_TOO_LARGE, text),
        None => not_found(&Method::POST, uri.path(), headers),
    }
}

fn stream_of<E: Into<Bytes> + Send + 'static>(events: Vec<E>) -> ResponseBody {
    let frames = events.into_iter().map(|event| Ok(Frame::data(event.into())));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Sends the events, then pings until the client leaves.
fn endless_stream(events: Vec<String>) -> ResponseBody {
    let frames = stream::unfold(VecDeque::from(events), |mut left| async {
        if let Some(event) = left.pop_front() {
            return Some((Ok(Frame::data(Bytes::from(event))), left));
        }
        tokio::time::sleep(PING_INTERVAL).await;
        let ping = answer::named(&json!({"type": "ping"}));
        Some((Ok(Frame::data(Bytes::from(ping))), left))
    });
    StreamBody::new(frames).boxed_unsync()
}
