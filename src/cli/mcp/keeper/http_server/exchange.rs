//! One message of the client, and the server's answer: one JSON, or a stream of events that may be resumed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::timeout;

use super::{
    event_reader::{EventReader, to_line, too_large},
    http_fault::HttpFault,
    line_joiner::MESSAGE_BYTES_MAX,
    posted_message::{MessageKind, PostedMessage, rpc_error},
    session::{HttpSession, SessionAnswer},
    stream_place::StreamPlace,
};
use crate::{upstream::PooledBody, wire::json::validate};

/// Most bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 1024 * 1024;
/// Time for a repeated handshake, for which other messages wait.
const RENEWAL_TIME: Duration = Duration::from_secs(60);
/// Time for the end of a stream after the answer, so that its connection can be used again.
const END_TIME: Duration = Duration::from_millis(100);

impl HttpSession {
    /// Sends a request, and gives its answer to the client, or the reason why there is none.
    pub(super) async fn run_request(
        self: Arc<Self>,
        message: PostedMessage,
        line: Bytes,
        is_cancelled: Arc<AtomicBool>,
    ) {
        let mut held = self.budget.hold_none();
        let end = if held.set(line.len()) {
            // An error would mean that the session has ended.
            let _place = self.places_of(&message).acquire().await;
            self.exchange(&message, &line).await
        } else {
            Err(HttpFault::of_text(too_large(false)))
        };
        if let Err(fault) = end {
            let is_cancelled = is_cancelled.load(Ordering::Acquire);
            self.report_fault(&message, &fault, is_cancelled).await;
        }
    }

    /// Sends a message that gets no answer, and waits until the server has taken it.
    pub(super) async fn send_notice(self: &Arc<Self>, message: &PostedMessage, line: &Bytes) {
        let fault = match self.post_in_session(message, line).await {
            Ok(answer) if answer.response.status().is_success() => {
                if message.is_greeted() {
                    self.start_listening();
                }
                return;
            }
            Ok(answer) => read_refusal(answer).await,
            Err(fault) => fault,
        };
        self.say(&format!(
            "the server did not take a message of the client: {}",
            fault.text
        ));
    }

    async fn exchange(self: &Arc<Self>, message: &PostedMessage, line: &Bytes) -> Result<(), HttpFault> {
        let answer = self.post_in_session(message, line).await?;
        if !answer.response.status().is_success() {
            return Err(read_refusal(answer).await);
        }
        if message.is_greeting() {
            self.note_id(answer.response.headers());
        }
        if is_stream(&answer) {
            self.follow_stream(message, answer.response.into_body()).await
        } else {
            self.pass_body(message, answer.response.into_body()).await
        }
    }

    /// Sends a message, once more in a new session if the server has ended the one that it had.
    async fn post_in_session(
        self: &Arc<Self>,
        message: &PostedMessage,
        line: &Bytes,
    ) -> Result<SessionAnswer, HttpFault> {
        let answer = Box::pin(self.post(message, line)).await?;
        let lost = answer
            .session
            .clone()
            .filter(|_| answer.response.status() == StatusCode::NOT_FOUND);
        let Some(lost) = lost else {
            return Ok(answer);
        };
        let _one = self.renewal.lock().await;
        // Another message may have begun it anew.
        if self.id().as_ref() == Some(&lost) && !Box::pin(self.renew()).await {
            return Ok(answer);
        }
        // The server has not done what it refused for want of a session.
        Box::pin(self.post(message, line)).await
    }

    /// Repeats the handshake. Returns `true` if there is a new session.
    async fn renew(self: &Arc<Self>) -> bool {
        let before = self.save();
        let message = |line: &Option<Bytes>| {
            let line = line.clone()?;
            PostedMessage::read(&line).map(|message| (message, line))
        };
        let Some((greeting, line)) = message(&before.greeting) else {
            return false;
        };
        self.say("the server has ended the session: the handshake is repeated");
        let renewed = async {
            let answer = self.post(&greeting, &line).await?;
            if !answer.response.status().is_success() {
                return Err(read_refusal(answer).await);
            }
            self.note_id(answer.response.headers());
            self.skip_answer(&greeting, answer).await
        };
        let late = || Err(HttpFault::of_text("the server does not answer the handshake"));
        if let Err(fault) = timeout(RENEWAL_TIME, renewed).await.unwrap_or_else(|_| late()) {
            self.say(&format!("there is no new session: {}", fault.text));
            // The next message tries it again.
            self.restore(before);
            return false;
        }
        if let Some((greeted, line)) = message(&before.greeted) {
            // A server that does not take it refuses what follows.
            drop(self.post(&greeted, &line).await);
            self.start_listening();
        }
        true
    }

    /// Reads the answer to a repeated greeting, which the client has already.
    async fn skip_answer(&self, message: &PostedMessage, answer: SessionAnswer) -> Result<(), HttpFault> {
        if !is_stream(&answer) {
            let body = self.read_body(answer.response.into_body()).await?;
            self.note_answer(message, &body);
            return Ok(());
        }
        let mut reader = EventReader::new(answer.response.into_body(), self.budget.hold_none());
        while let Some(event) = reader.next_event().await? {
            if event.line.is_some_and(|line| self.note_answer(message, &line)) {
                return Ok(());
            }
        }
        Err(HttpFault::of_unclear("the stream ended before the answer"))
    }

    /// Passes the one JSON of an answer.
    async fn pass_body(&self, message: &PostedMessage, body: PooledBody) -> Result<(), HttpFault> {
        let body = self.read_body(body).await?;
        if message.kind == MessageKind::Batch && body.trim_ascii().is_empty() {
            return Ok(());
        }
        if validate(&body).is_err() {
            return Err(HttpFault::of_unclear("the server's answer is no JSON"));
        }
        if self.note_answer(message, &body) || message.kind == MessageKind::Batch {
            self.deliver(to_line(body.trim_ascii())).await;
            return Ok(());
        }
        match rpc_error(&body) {
            Some(error) => Err(HttpFault::of_error(error)),
            None => Err(HttpFault::of_unclear(
                "the server's answer has another id than its request",
            )),
        }
    }

    async fn read_body(&self, mut body: PooledBody) -> Result<BytesMut, HttpFault> {
        let mut held = self.budget.hold_none();
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| HttpFault::of_unclear("the server's answer broke off"))?;
            if let Ok(chunk) = frame.into_data() {
                let length = all.len().saturating_add(chunk.len());
                let is_too_long = length > MESSAGE_BYTES_MAX;
                if is_too_long || !held.set(length) {
                    return Err(HttpFault::of_unclear(too_large(is_too_long)));
                }
                all.extend_from_slice(&chunk);
            }
        }
        Ok(all)
    }

    /// Passes the messages of a stream up to the answer, and resumes it where that is possible.
    async fn follow_stream(&self, message: &PostedMessage, body: PooledBody) -> Result<(), HttpFault> {
        let mut place = StreamPlace::default();
        let mut reader = EventReader::new(body, self.budget.hold_none());
        loop {
            while let Some(event) = reader.next_event().await? {
                place.note_event(&event);
                let Some(line) = event.line else {
                    continue;
                };
                let is_answer = self.note_answer(message, &line);
                self.deliver(line).await;
                if is_answer {
                    let rest = async { while let Ok(Some(_)) = reader.next_event().await {} };
                    // A server that leaves it open has nothing more to say there.
                    drop(timeout(END_TIME, rest).await);
                    return Ok(());
                }
            }
            if message.kind == MessageKind::Batch {
                return Ok(());
            }
            reader = self.resume(message, &mut place).await?;
        }
    }

    /// Asks for the rest of a stream.
    async fn resume(&self, message: &PostedMessage, place: &mut StreamPlace) -> Result<EventReader, HttpFault> {
        let broken = "the stream ended before the answer";
        // Since 2026-07-28 no stream can be resumed.
        if message.version.is_some() {
            return Err(HttpFault::of_unclear(broken));
        }
        while place.last_event.is_some() && place.pause().await {
            let Ok(answer) = Box::pin(self.open_stream(place.last_event.as_deref())).await else {
                place.note_failure();
                continue;
            };
            let status = answer.response.status();
            if status.is_success() && is_stream(&answer) {
                // A server may close the connection of a long run again and again.
                place.note_success();
                return Ok(EventReader::new(answer.response.into_body(), self.budget.hold_none()));
            }
            if !is_temporary(status) {
                break;
            }
            place.note_failure();
        }
        Err(HttpFault::of_unclear(broken))
    }
}

/// Returns `true` if a later try may succeed.
pub(super) fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// Returns `true` if an answer is a stream of events.
pub(super) fn is_stream(answer: &SessionAnswer) -> bool {
    let kind = answer.response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let name = kind.split(';').next().unwrap_or_default();
    name.trim().eq_ignore_ascii_case("text/event-stream")
}

/// Reads the reason of a refusal.
pub(super) async fn read_refusal(answer: SessionAnswer) -> HttpFault {
    let status = answer.response.status();
    let body = Limited::new(answer.response.into_body(), REFUSAL_BYTES_MAX)
        .collect()
        .await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    HttpFault::of_status(status, &body)
}
