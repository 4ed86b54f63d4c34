//! The sender of messages to tool services and webhooks: each is signed (Standard Webhooks), and sent until its receiver has it.
//!
//! `late` decides what is sent and when. This module owns the connections: no redirect is followed, an answer is read up
//! to a limit, and a receiver that hangs delays the others by one timeout at most. Each try ends in time, whatever it waits
//! for.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use tokio::{
    task::{AbortHandle, Id, JoinSet},
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::{
    clock,
    late::{Dispatcher, PreparedMessage, SendOutcome},
    upstream::Sender,
};

/// Timeout of one try, from the connection to the end of the answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the rest of an answer that says nothing beside its status.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of the task of a try, with what it stores about its end.
const TASK_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of storing that the task of a try failed to end.
const NOTE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a message is sent again whose failed try could not be stored.
const UNNOTED_PAUSE: Duration = Duration::from_secs(5);
/// Duration from which on a try counts as slow.
const SLOW_TRY: Duration = Duration::from_secs(1);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The number of tries from which on no further messages are prepared.
const IN_FLIGHT_MAX: usize = 64;
/// The bytes of their bodies from which on no further ones are prepared.
const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most tries to one receiver at once.
const RECEIVER_MAX: usize = 8;

/// Sends messages until the store is dropped.
pub async fn send_messages(dispatcher: Dispatcher, sender: Sender) {
    dispatcher.load().await;
    let mut tries = Tries::new(dispatcher.clone(), sender);
    let mut waiting: VecDeque<PreparedMessage> = VecDeque::new();
    let next_batch = || Box::pin(dispatcher.next_batch());
    // Held over the turns of the loop: a batch that is being prepared would be lost.
    let mut next = next_batch();
    loop {
        for message in std::mem::take(&mut waiting) {
            let (in_flight, is_slow) = tries.load_of(&message.url);
            if in_flight < RECEIVER_MAX {
                tries.start(message);
            } else if is_slow {
                // A slow receiver must not hold up the messages of others.
                dispatcher.postpone(&message, SEND_TIMEOUT);
            } else {
                waiting.push_back(message);
            }
        }
        tokio::select! {
            batch = &mut next, if waiting.is_empty() && tries.has_room() => {
                let Some(batch) = batch else { return };
                waiting.extend(batch);
                next = next_batch();
            }
            () = tries.next_end() => {}
        }
    }
}

/// The tries that run, each in a task of its own: none can hold back the wakes of another one.
struct Tries {
    dispatcher: Dispatcher,
    sender: Sender,
    /// The tasks of tries, and of notes that a try failed to end. Each returns `true` if its try failed or was slow.
    tasks: JoinSet<bool>,
    running: HashMap<Id, Try>,
    /// All of `running` by their start, and some that have ended.
    by_start: VecDeque<(Instant, Id)>,
    receivers: HashMap<String, Receiver>,
    /// The bytes of all bodies.
    bytes: usize,
}

/// A try that runs, or the note of one that failed to end.
struct Try {
    message: Arc<PreparedMessage>,
    task: AbortHandle,
    is_note: bool,
}

/// A receiver with messages on their way.
#[derive(Debug, Default)]
struct Receiver {
    in_flight: usize,
    /// `true` if its last try failed or was slow.
    is_slow: bool,
}

impl Tries {
    fn new(dispatcher: Dispatcher, sender: Sender) -> Self {
        Self {
            dispatcher,
            sender,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            by_start: VecDeque::new(),
            receivers: HashMap::new(),
            bytes: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < IN_FLIGHT_MAX && self.bytes < IN_FLIGHT_BYTES_MAX
    }

    /// Returns the number of tries to a receiver, and `true` if its last one failed or was slow.
    fn load_of(&self, url: &str) -> (usize, bool) {
        let receiver = self.receivers.get(url);
        receiver.map_or((0, false), |receiver| (receiver.in_flight, receiver.is_slow))
    }

    fn start(&mut self, message: PreparedMessage) {
        self.bytes = self.bytes.saturating_add(message.body.len());
        self.receivers.entry(message.url.clone()).or_default().in_flight += 1;
        self.dispatcher.begin(&message);
        let message = Arc::new(message);
        let (dispatcher, sender) = (self.dispatcher.clone(), self.sender.clone());
        let sent = Arc::clone(&message);
        let task = self
            .tasks
            .spawn(async move { send_message(&dispatcher, &sender, &sent).await });
        self.add_task(message, task, false);
    }

    /// Counts a try that failed to end, in a task of its own: the ledger may stand still. The message keeps its place.
    fn note_failure(&mut self, message: Arc<PreparedMessage>) {
        if let Some(receiver) = self.receivers.get_mut(&message.url) {
            receiver.is_slow = true;
        }
        let (dispatcher, failed) = (self.dispatcher.clone(), Arc::clone(&message));
        let task = self
            .tasks
            .spawn(async move { store_failure(&dispatcher, &failed).await });
        self.add_task(message, task, true);
    }

    fn add_task(&mut self, message: Arc<PreparedMessage>, task: AbortHandle, is_note: bool) {
        self.by_start.push_back((clock::now(), task.id()));
        self.running.insert(task.id(), Try { message, task, is_note });
    }

    /// Waits until a try ends. The timeout of its task is kept here, by a timer that the task cannot hold up.
    async fn next_end(&mut self) {
        while let Some((_, id)) = self.by_start.front()
            && !self.running.contains_key(id)
        {
            self.by_start.pop_front();
        }
        let Some((started_at, oldest)) = self.by_start.front().copied() else {
            return pending().await;
        };
        tokio::select! {
            ended = self.tasks.join_next_with_id() => match ended {
                Some(Ok((id, is_slow))) => self.end(id, Ok(is_slow)),
                Some(Err(error)) => self.end(error.id(), Err("panic")),
                None => self.end(oldest, Err("timeout")),
            },
            () = sleep_until(started_at + TASK_TIMEOUT) => self.end(oldest, Err("timeout")),
        }
    }

    /// Removes a try. If its task did not end by itself, `is_slow` is the cause, and the try counts as failed.
    fn end(&mut self, id: Id, is_slow: Result<bool, &'static str>) {
        let Some(Try { message, task, is_note }) = self.running.remove(&id) else {
            return;
        };
        if let Err(cause) = is_slow {
            task.abort();
            if !is_note {
                tracing::warn!(
                    webhook_id = message.id,
                    cause,
                    "a try of a message failed to end: it is sent again"
                );
                self.note_failure(message);
                return;
            }
            self.dispatcher.postpone(&message, UNNOTED_PAUSE);
        }
        self.bytes = self.bytes.saturating_sub(message.body.len());
        if let Some(receiver) = self.receivers.get_mut(&message.url) {
            receiver.in_flight = receiver.in_flight.saturating_sub(1);
            receiver.is_slow = is_slow.unwrap_or(true);
        }
        self.receivers.retain(|_, receiver| receiver.in_flight > 0);
    }
}

/// Sends a message once, and notes the end of the try. Returns `true` if the try failed or was slow.
async fn send_message(dispatcher: &Dispatcher, sender: &Sender, message: &PreparedMessage) -> bool {
    let started_at = clock::now();
    let outcome = match try_message(sender, message).await {
        Ok(answer) => SendOutcome::Accepted(answer),
        Err(cause) => {
            tracing::info!(webhook_id = message.id, cause, "a message was not accepted");
            SendOutcome::Failed
        }
    };
    let is_slow = outcome == SendOutcome::Failed || started_at.elapsed() >= SLOW_TRY;
    dispatcher.finish(message, outcome).await;
    is_slow
}

/// Stores that the try of a message failed. If that takes too long, the message is sent again all the same.
///
/// Returns `true`: the try failed.
async fn store_failure(dispatcher: &Dispatcher, message: &PreparedMessage) -> bool {
    let stored = timeout(NOTE_TIMEOUT, dispatcher.finish(message, SendOutcome::Failed));
    if stored.await.is_err() {
        dispatcher.postpone(message, UNNOTED_PAUSE);
    }
    true
}

/// Sends a message once. Returns the body of a success, or the reason for a failure.
async fn try_message(sender: &Sender, message: &PreparedMessage) -> Result<Vec<u8>, &'static str> {
    let body = Full::new(Bytes::from(message.body.clone())).map_err(|never| match never {});
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&message.url)
        .body(body.boxed_unsync())
        .map_err(|_| "unusable URL")?;
    let headers = [
        ("webhook-id", &message.id),
        ("webhook-timestamp", &message.timestamp),
        ("webhook-signature", &message.signatures),
    ];
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).map_err(|_| "unusable header")?;
        request.headers_mut().insert(HeaderName::from_static(name), value);
    }
    let plain = [
        (CONTENT_TYPE, "application/json"),
        (USER_AGENT, concat!("antiphon/", env!("CARGO_PKG_VERSION"))),
    ];
    for (name, value) in plain {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let until = clock::now() + SEND_TIMEOUT;
    let sent = timeout_at(until, sender.send(request, SEND_TIMEOUT)).await;
    let answer = sent.map_err(|_| "timed out")?.map_err(|_| "no answer")?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
    if status.is_success() && message.reads_answer {
        let body = timeout_at(until, body).await.map_err(|_| "timed out")?;
        return body.map_or(Err("its answer broke off, or is too long"), |body| {
            Ok(body.to_bytes().to_vec())
        });
    }
    // The answer is read to its end even if it is of no use, so that its connection can be used again.
    drop(timeout(DRAIN_TIMEOUT, body).await);
    if status.is_redirection() {
        return Err("it was redirected, which is never followed");
    }
    status.is_success().then(Vec::new).ok_or("it was refused")
}
