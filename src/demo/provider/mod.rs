//! A provider without a model: as strict about histories as the real ones, in their own words, and else plausible.
//!
//! Speaks Messages, Chat Completions, Responses and Gemini, as JSON and as streams. Keeps nothing of a request, but
//! for the credentials that the stories are told with: the last body of each.

mod answer;
mod model;

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::judge::judge;
use crate::{
    provider::{Kind, Route, Routes, Upstream},
    repair::Mode,
    server::{self, ServerSettings, Tasks},
    upstream::{NoChance, random},
    wire::Format,
};
use answer::Said;
pub(super) use model::{Call, Reply};

/// Bytes of a request: what Anthropic takes.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Between two signs of life.
const PING: Duration = Duration::from_millis(100);

/// The provider. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Where the formats are asked for.
    routes: Routes,
    /// The credentials of the stories.
    known: Mutex<BTreeMap<&'static str, Known>>,
    /// Of answers.
    number: AtomicU64,
    /// Of invented calls: what is called once is never called again.
    run: String,
}

#[derive(Debug, Default)]
struct Known {
    next: VecDeque<Reply>,
    last: Bytes,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Provider {
    /// One that knows these credentials, where stories are told with them.
    pub(super) fn new(known: &[&'static str]) -> Result<Self, NoChance> {
        let upstream = |(name, kind): (&str, Kind)| Upstream {
            name: name.to_owned(),
            kind,
            scheme: Scheme::HTTP,
            authority: Authority::from_static("localhost"),
            base_path: String::new(),
            mode: Mode::Observe,
        };
        let authors = [
            ("anthropic", Kind::Anthropic),
            ("openai", Kind::OpenAi),
            ("gemini", Kind::Gemini),
        ];
        let run = blake3::Hash::from_bytes(random()?).to_hex().chars().take(12).collect();
        Ok(Self {
            inner: Arc::new(Inner {
                routes: Routes::new(authors.map(upstream).into()),
                known: Mutex::new(known.iter().map(|key| (*key, Known::default())).collect()),
                number: AtomicU64::new(1),
                run,
            }),
        })
    }

    /// Answers on `listener` until the drain of `tasks`.
    pub(super) fn serve(&self, listener: TcpListener, settings: ServerSettings, tasks: &Tasks) {
        let provider = self.clone();
        let service = hyper::service::service_fn(move |request| {
            let provider = provider.clone();
            async move { Ok::<_, Infallible>(provider.answer(request).await) }
        });
        tasks.spawn_background(server::serve(listener, settings, tasks.clone(), service));
    }

    /// What the model does when this credential asks next, and nothing is told for before.
    pub(super) fn will(&self, key: &str, reply: Reply) {
        if let Some(known) = self.known().get_mut(key) {
            known.next.push_back(reply);
        }
    }

    /// Takes back what it was told for this credential.
    pub(super) fn forget(&self, key: &str) {
        if let Some(known) = self.known().get_mut(key) {
            known.next.clear();
        }
    }

    /// The last body that came with this credential.
    pub(super) fn received(&self, key: &str) -> Bytes {
        self.known()
            .get(key)
            .map(|known| known.last.clone())
            .unwrap_or_default()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<&'static str, Known>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let root = PathAndQuery::from_static("/");
        let target = head.uri.path_and_query().unwrap_or(&root);
        let route = self.inner.routes.route(&head.method, target, &head.headers);
        let Some((route, format)) = route.ok().and_then(|route| Some((route.clone(), route.wire?.format))) else {
            return unknown(&head.method, head.uri.path(), &head.headers);
        };
        let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
            return refused(
                format,
                StatusCode::PAYLOAD_TOO_LARGE,
                "Request exceeds the maximum allowed number of bytes.",
            );
        };
        let body = body.to_bytes();
        let key = credential(&head.headers);
        if let Some(known) = self.known().get_mut(key) {
            known.last = body.clone();
        }
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            return refused(format, StatusCode::BAD_REQUEST, "The request body is not valid JSON.");
        };
        if let Err(words) = judge(format, &body) {
            return refused(format, StatusCode::BAD_REQUEST, &words);
        }
        if !route.asks_for_a_turn() {
            return counted(format, &route, &body);
        }
        let told = self.known().get_mut(key).and_then(|known| known.next.pop_front());
        let number = self.inner.number.fetch_add(1, Ordering::Relaxed);
        let reply = told.unwrap_or_else(|| model::next(format, &body, &|| self.new_id(format, number)));
        if matches!(reply, Reply::Silence) {
            std::future::pending::<()>().await;
        }
        let model = route.model().or_else(|| body.get("model")?.as_str()).unwrap_or("demo");
        let said = Said {
            number,
            model,
            reply: &reply,
        };
        speak(format, &route, &said, body["stream"] == true)
    }

    /// An id for a call, in the manner of the format.
    fn new_id(&self, format: Format, number: u64) -> String {
        let manner = if format == Format::Anthropic { "toolu" } else { "call" };
        format!("{manner}_{}{number:06}", self.inner.run)
    }
}

/// The credential that came, whichever header it came in.
fn credential(headers: &HeaderMap) -> &str {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    bearer
        .or_else(|| text("x-api-key"))
        .or_else(|| text("x-goog-api-key"))
        .unwrap_or_default()
}

/// The answer in the shape that was asked for.
fn speak(format: Format, route: &Route<'_>, said: &Said<'_>, streams: bool) -> Response<Body> {
    match (format, streams) {
        (Format::Anthropic, _) if matches!(said.reply, Reply::Searches) => searching(said),
        (Format::Anthropic, false) => json_of(StatusCode::OK, &said.message()),
        (Format::Anthropic, true) => events(said.message_events()),
        (Format::OpenAiChat, false) => json_of(StatusCode::OK, &said.completion()),
        (Format::OpenAiChat, true) => events(said.completion_events()),
        (Format::OpenAiResponses, false) => json_of(StatusCode::OK, &said.response()),
        (Format::OpenAiResponses, true) => events(said.response_events()),
        (Format::Gemini, _) if !route.is_stream() => json_of(StatusCode::OK, &said.candidates()),
        (Format::Gemini, _) => {
            let chunks = said.candidate_chunks();
            if route
                .target
                .query()
                .is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"))
            {
                return events(chunks.iter().map(answer::plain).collect());
            }
            json_of(StatusCode::OK, &chunks.into())
        }
    }
}

/// How many tokens it is, more or less. There are no batches here, and nothing is compacted or kept.
fn counted(format: Format, route: &Route<'_>, body: &Value) -> Response<Body> {
    let path = route.target.path();
    let tokens = body.to_string().len() / 4;
    match format {
        Format::Gemini if path.ends_with(":countTokens") => json_of(StatusCode::OK, &json!({"totalTokens": tokens})),
        Format::Anthropic | Format::OpenAiResponses if path.ends_with("_tokens") => {
            json_of(StatusCode::OK, &json!({"input_tokens": tokens}))
        }
        _ => refused(
            format,
            StatusCode::NOT_FOUND,
            "Not Found: this provider only answers turns and counts them.",
        ),
    }
}

/// A refusal in the shape of the format.
fn refused(format: Format, status: StatusCode, words: &str) -> Response<Body> {
    let error = match format {
        Format::Anthropic => {
            let kind = if status == StatusCode::NOT_FOUND {
                "not_found_error"
            } else {
                "invalid_request_error"
            };
            json!({"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_demo"})
        }
        Format::OpenAiChat | Format::OpenAiResponses => {
            let param = if format == Format::OpenAiChat {
                "messages"
            } else {
                "input"
            };
            json!({"error": {"message": words, "type": "invalid_request_error", "param": param, "code": null}})
        }
        Format::Gemini => json!({"error": {"code": status.as_u16(), "message": words, "status": "INVALID_ARGUMENT"}}),
    };
    json_of(status, &error)
}

/// What is none of the four formats.
fn unknown(method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
    let is_messages = headers.contains_key("anthropic-version") || headers.contains_key("x-api-key");
    let format = if is_messages {
        Format::Anthropic
    } else {
        Format::OpenAiChat
    };
    refused(format, StatusCode::NOT_FOUND, &format!("Invalid URL ({method} {path})"))
}

fn json_of(status: StatusCode, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    respond(status, "application/json", body)
}

fn events(frames: Vec<String>) -> Response<Body> {
    let frames = frames.into_iter().map(|event| Ok(frame(event)));
    respond(
        StatusCode::OK,
        "text/event-stream; charset=utf-8",
        StreamBody::new(stream::iter(frames)).boxed_unsync(),
    )
}

/// A search that never ends: its events, then pings until the client leaves.
fn searching(said: &Said<'_>) -> Response<Body> {
    let begun: VecDeque<String> = said.search_events().into();
    let frames = stream::unfold(begun, |mut left| async {
        if let Some(event) = left.pop_front() {
            return Some((Ok(frame(event)), left));
        }
        tokio::time::sleep(PING).await;
        Some((Ok(frame(answer::named(&json!({"type": "ping"})))), left))
    });
    respond(
        StatusCode::OK,
        "text/event-stream; charset=utf-8",
        StreamBody::new(frames).boxed_unsync(),
    )
}

fn frame(event: String) -> Frame<Bytes> {
    Frame::data(event.into())
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
