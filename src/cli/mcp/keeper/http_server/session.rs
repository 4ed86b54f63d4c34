//! A session with a server over HTTP: what its requests need, and the way to the client.
//!
//! MCP 2025-03-26, 2025-06-18 and 2025-11-25, "Transports": `Mcp-Session-Id` from the answer to `initialize`, and
//! `MCP-Protocol-Version` after it. MCP 2026-07-28, "Streamable HTTP": no session, and `MCP-Protocol-Version`,
//! `Mcp-Method` and `Mcp-Name` with each request. Both read 2026-12-01.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioExecutor;
use tokio::{
    sync::{
        Semaphore,
        mpsc::{Sender as LineSender, UnboundedSender},
    },
    task::JoinSet,
};

use super::{
    byte_budget::ByteBudget,
    http_fault::HttpFault,
    parameter_headers::{ParameterHeaders, header_text},
    posted_message::{PostedMessage, chosen_version},
};
use crate::{
    cli::mcp::{
        http_target::HttpTarget,
        keeper::{client_pipes::send_note, outlet::Outlet},
        relay::{RelayEvent, ToolOutcome},
    },
    config::{process_environment, proxy_environment},
    upstream::{PooledBody, Sender, UpstreamSettings},
};

pub(super) const SESSION_ID: &str = "mcp-session-id";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const LAST_EVENT_ID: &str = "last-event-id";
/// Most calls that are open at once, and most other requests. More wait.
const OPEN_MAX: usize = 256;
/// Time of DNS and TCP, and of the TLS handshake.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Silence of a server that reads a request.
const SEND_TIME: Duration = Duration::from_secs(60);
/// Time for which an idle connection is kept: less than the 5 s after which common servers close it.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// Idle connections that are kept.
const IDLE_MAX: usize = 8;
/// A tool may take any time. Its run is bounded by its client, and by `--linger`.
const ANSWER_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A session with a server.
pub(super) struct HttpSession {
    sender: Sender,
    target: HttpTarget,
    state: Mutex<SessionState>,
    output: LineSender<Bytes>,
    events: UnboundedSender<RelayEvent>,
    log: Outlet,
    pub(super) budget: ByteBudget,
    call_places: Semaphore,
    /// A call that takes long does not hold back the others.
    other_places: Semaphore,
    /// Held while a lost session is begun anew.
    pub(super) renewal: tokio::sync::Mutex<()>,
    /// The stream of the server's own messages.
    pub(super) listener: Mutex<JoinSet<()>>,
}

/// The facts of a session that each of its requests needs.
#[derive(Clone, Default)]
pub(super) struct SessionState {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The client's requests tell their version themselves, so that there is no session.
    is_stateless: bool,
    /// The lines of the handshake.
    pub(super) greeting: Option<Bytes>,
    pub(super) greeted: Option<Bytes>,
    parameters: ParameterHeaders,
}

/// An answer, and the session for which it was asked.
pub(super) struct SessionAnswer {
    pub(super) response: Response<PooledBody>,
    pub(super) session: Option<HeaderValue>,
}

impl HttpSession {
    /// Creates a session. Nothing is sent yet.
    pub(super) fn new(
        target: HttpTarget,
        output: LineSender<Bytes>,
        events: UnboundedSender<RelayEvent>,
        log: Outlet,
    ) -> Result<Self, rustls::Error> {
        let settings = UpstreamSettings {
            connect_timeout: CONNECT_TIME,
            tls_timeout: CONNECT_TIME,
            send_timeout: SEND_TIME,
            pool_idle_timeout: IDLE_TIME,
            pool_idle_max: IDLE_MAX,
            proxies: proxy_environment(&process_environment),
        };
        Ok(Self {
            sender: Sender::new(&settings, TokioExecutor::new())?,
            target,
            state: Mutex::default(),
            output,
            events,
            log,
            budget: ByteBudget::default(),
            call_places: Semaphore::new(OPEN_MAX),
            other_places: Semaphore::new(OPEN_MAX),
            renewal: tokio::sync::Mutex::default(),
            listener: Mutex::default(),
        })
    }

    /// Returns the places that a request may take.
    pub(super) fn places_of(&self, message: &PostedMessage) -> &Semaphore {
        if message.is_call() {
            &self.call_places
        } else {
            &self.other_places
        }
    }

    /// Sends a message of the client.
    pub(super) async fn post(&self, message: &PostedMessage, line: &Bytes) -> Result<SessionAnswer, HttpFault> {
        let mut headers = self.target.read_headers().map_err(HttpFault::of_text)?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let session = if message.version.is_some() {
            self.add_metadata(&mut headers, message, line);
            None
        } else {
            self.add_session(&mut headers, message, line)
        };
        let length = line.trim_ascii_end().len();
        let response = self
            .send(Method::POST, headers, line.slice(..length), !message.is_unique())
            .await?;
        Ok(SessionAnswer { response, session })
    }

    /// Asks for the server's own messages, or for the rest of a stream.
    pub(super) async fn open_stream(&self, last_event: Option<&[u8]>) -> Result<SessionAnswer, HttpFault> {
        let mut headers = self.target.read_headers().map_err(HttpFault::of_text)?;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_bytes(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let session = self.add_known(&mut headers);
        let response = self.send(Method::GET, headers, Bytes::new(), true).await?;
        Ok(SessionAnswer { response, session })
    }

    /// Ends the session at the server, if there is one.
    pub(super) async fn delete(&self) {
        let Ok(mut headers) = self.target.read_headers() else {
            return;
        };
        if self.add_known(&mut headers).is_some() {
            // A server that does not allow it ends the session by itself.
            drop(self.send(Method::DELETE, headers, Bytes::new(), true).await);
        }
    }

    async fn send(
        &self,
        method: Method,
        mut headers: HeaderMap,
        body: Bytes,
        is_repeatable: bool,
    ) -> Result<Response<PooledBody>, HttpFault> {
        let agent = concat!("antiphon/", env!("CARGO_PKG_VERSION"));
        headers
            .entry(USER_AGENT)
            .or_insert_with(|| HeaderValue::from_static(agent));
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.target.url().clone();
        *request.headers_mut() = headers;
        let sent = if is_repeatable {
            Box::pin(self.sender.send_repeatable(request, ANSWER_TIME)).await
        } else {
            let boxed = |body| Full::new(body).map_err(|never| match never {}).boxed_unsync();
            Box::pin(self.sender.send(request.map(boxed), ANSWER_TIME)).await
        };
        sent.map_err(|error| HttpFault::of_send(&error))
    }

    /// Adds the headers of a request that tells its version itself.
    fn add_metadata(&self, headers: &mut HeaderMap, message: &PostedMessage, line: &[u8]) {
        let mut add = |name: &'static str, text: Option<&str>| {
            if let Some(value) = text.and_then(header_text) {
                headers.insert(name, value);
            }
        };
        add(PROTOCOL_VERSION, message.version.as_deref());
        add(METHOD, Some(&message.method));
        add(NAME, message.subject.as_deref());
        let mut state = self.lock_state();
        if let Some(tool) = message.subject.as_deref().filter(|_| message.is_call()) {
            headers.extend(state.parameters.of_call(tool, line));
        }
        state.is_stateless = true;
    }

    /// Adds the headers of a request within a session. Returns the session's id.
    fn add_session(&self, headers: &mut HeaderMap, message: &PostedMessage, line: &Bytes) -> Option<HeaderValue> {
        let mut state = self.lock_state();
        if message.is_greeting() {
            *state = SessionState {
                greeting: Some(line.clone()),
                ..SessionState::default()
            };
        } else if message.is_greeted() {
            state.greeted = Some(line.clone());
        }
        drop(state);
        self.add_known(headers)
    }

    /// Adds what is known of the session. Returns its id.
    fn add_known(&self, headers: &mut HeaderMap) -> Option<HeaderValue> {
        let state = self.lock_state();
        if let Some(version) = &state.version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        if let Some(id) = &state.id {
            headers.insert(SESSION_ID, id.clone());
        }
        state.id.clone()
    }

    /// Returns `true` if the client's requests tell their version themselves.
    pub(super) fn is_stateless(&self) -> bool {
        self.lock_state().is_stateless
    }

    /// Returns what is known of the session.
    pub(super) fn save(&self) -> SessionState {
        self.lock_state().clone()
    }

    /// Goes on with an earlier session.
    pub(super) fn restore(&self, state: SessionState) {
        *self.lock_state() = state;
    }

    /// Returns the id of the session.
    pub(super) fn id(&self) -> Option<HeaderValue> {
        self.lock_state().id.clone()
    }

    /// Notes the id of the session from the head of the answer to its greeting.
    pub(super) fn note_id(&self, headers: &HeaderMap) {
        let mut id = headers.get(SESSION_ID).cloned();
        // Who has it can speak for the client.
        if let Some(id) = &mut id {
            id.set_sensitive(true);
        }
        self.lock_state().id = id;
    }

    /// Notes what the server's answer to a message says about the session. Returns `true` if it is that answer.
    pub(super) fn note_answer(&self, message: &PostedMessage, line: &[u8]) -> bool {
        let answer = PostedMessage::read(line);
        let is_answer =
            message.id.is_some() && answer.is_some_and(|answer| answer.method.is_empty() && answer.id == message.id);
        if is_answer && message.is_greeting() {
            let version = chosen_version(line).and_then(|version| HeaderValue::from_str(&version).ok());
            self.lock_state().version = version;
        }
        if is_answer && message.method == "tools/list" {
            self.lock_state().parameters.note_tools(line);
        }
        is_answer
    }

    /// Gives a line to the client.
    pub(super) async fn deliver(&self, line: Bytes) {
        // An error means that the keeper has ended.
        drop(self.output.send(line).await);
    }

    /// Tells the sender of a message why it gets no answer.
    pub(super) async fn report_fault(&self, message: &PostedMessage, fault: &HttpFault, is_cancelled: bool) {
        let Some(id) = message.id.clone().filter(|_| !message.method.is_empty()) else {
            return self.say(&format!("a message of the client got no answer: {}", fault.text));
        };
        let outcome = ToolOutcome {
            is_failure: true,
            body: fault.to_json(message.is_call()),
        };
        let line = (!is_cancelled).then(|| outcome.answer_line(&id));
        // An error means that the keeper has ended.
        let tell = |event| drop(self.events.send(event));
        match line {
            line if message.is_call() && (fault.is_unclear || is_cancelled) => tell(RelayEvent::CallLost(id, line)),
            Some(line) if message.is_call() && fault.is_unsent() => tell(RelayEvent::CallUnsent(id, line)),
            Some(line) => self.deliver(line).await,
            None => {}
        }
    }

    /// Writes a note for the person who reads the client's log.
    pub(super) fn say(&self, text: &str) {
        send_note(&self.log, text);
    }

    fn lock_state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
