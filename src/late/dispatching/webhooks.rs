//! The sender of messages to tool services and webhooks: each is signed (Standard Webhooks), and sent until its receiver has it.
//!
//! The outbox decides what is sent and when, and gives each receiver places of its own. This module owns the connections: no
//! redirect is followed, and an answer is read up to a limit. Each try ends in time, whatever it waits for.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Limited};
use tokio::{
    task::JoinSet,
    time::{timeout, timeout_at},
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
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends messages until the store is dropped.
pub async fn send_messages(dispatcher: Dispatcher, sender: Sender) {
    dispatcher.load().await;
    let mut tries = JoinSet::new();
    while let Some(message) = dispatcher.next_message().await {
        dispatcher.note_try(&message);
        tries.spawn(run_try(dispatcher.clone(), sender.clone(), Arc::new(message)));
        // Those that have ended.
        while tries.try_join_next().is_some() {}
    }
}

/// Runs one try to its end. One that panics or does not end in time counts as failed: the message is sent again.
async fn run_try(dispatcher: Dispatcher, sender: Sender, message: Arc<PreparedMessage>) {
    let (to, sent) = (dispatcher.clone(), Arc::clone(&message));
    let sending = async move { send_message(&to, &sender, &sent).await };
    let Err(cause) = run_task(sending, TASK_TIMEOUT).await else {
        return;
    };
    tracing::warn!(
        webhook_id = message.id,
        cause,
        "a try of a message failed to end: it is sent again"
    );
    // The ledger may stand still, too.
    let (to, failed) = (dispatcher.clone(), Arc::clone(&message));
    let noting = async move { to.finish(&failed, SendOutcome::Failed).await };
    if run_task(noting, NOTE_TIMEOUT).await.is_err() {
        dispatcher.postpone(&message, UNNOTED_PAUSE);
    }
}

/// Runs `work` in a task of its own, which cannot hold up the timer here. Returns the reason if it failed to end in time.
async fn run_task(work: impl Future<Output = ()> + Send + 'static, limit: Duration) -> Result<(), &'static str> {
    // Dropping the set ends the task.
    let mut task = JoinSet::new();
    task.spawn(work);
    match timeout(limit, task.join_next()).await {
        Ok(Some(Err(_))) => Err("panic"),
        Ok(_) => Ok(()),
        Err(_) => Err("timeout"),
    }
}

/// Sends a message once, and notes the end of the try.
async fn send_message(dispatcher: &Dispatcher, sender: &Sender, message: &PreparedMessage) {
    let outcome = match try_message(sender, message).await {
        Ok(answer) => SendOutcome::Accepted(answer),
        Err(cause) => {
            tracing::info!(webhook_id = message.id, cause, "a message was not accepted");
            SendOutcome::Failed
        }
    };
    dispatcher.finish(message, outcome).await;
}

/// Sends a message once. Returns the body of a success, or the reason for a failure.
async fn try_message(sender: &Sender, message: &PreparedMessage) -> Result<Vec<u8>, &'static str> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&message.url)
        .body(Bytes::from(message.body.clone()))
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
    // A receiver knows a message that it has got already by its id.
    let sent = timeout_at(until, sender.send_repeatable(request, SEND_TIMEOUT)).await;
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
