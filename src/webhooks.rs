//! The sender of messages to tool services and webhooks: each is signed (Standard Webhooks), and sent until its receiver has it.
//!
//! `late` decides what is sent and when. This module owns the connections: no redirect is followed, an answer is read up
//! to a limit, and a receiver that hangs delays the others by one timeout at most.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{
    HeaderName, HeaderValue, Method, Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::timeout;

use crate::{
    late::{Dispatcher, PreparedMessage, SendOutcome},
    upstream::Sender,
};

/// Timeout of one try, from the connection to the end of the answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The most messages that are on their way at once.
const IN_FLIGHT_MAX: usize = 64;
/// The bytes of their bodies from which on no further ones are prepared.
const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most of these to one receiver.
const RECEIVER_MAX: usize = 8;

/// A receiver with messages on their way.
#[derive(Debug, Default)]
struct Receiver {
    in_flight: usize,
    /// `true` if its last try failed.
    is_failing: bool,
}

/// Sends messages until the store is dropped.
pub async fn send_messages(dispatcher: Dispatcher, sender: Sender) {
    dispatcher.load().await;
    let mut receivers: HashMap<String, Receiver> = HashMap::new();
    let mut waiting: VecDeque<PreparedMessage> = VecDeque::new();
    let (mut sending, mut bytes) = (FuturesUnordered::new(), 0_usize);
    let next_batch = || Box::pin(dispatcher.next_batch());
    // Held over the turns of the loop: a batch that is being prepared would be lost.
    let mut next = next_batch();
    loop {
        for message in std::mem::take(&mut waiting) {
            let receiver = receivers.entry(message.url.clone()).or_default();
            if receiver.in_flight < RECEIVER_MAX {
                receiver.in_flight += 1;
                bytes = bytes.saturating_add(message.body.len());
                sending.push(send_message(&dispatcher, &sender, message));
            } else if receiver.is_failing {
                // One that hangs must not hold up the messages of others.
                dispatcher.postpone(&message, SEND_TIMEOUT);
            } else {
                waiting.push_back(message);
            }
        }
        tokio::select! {
            batch = &mut next, if waiting.is_empty() && sending.len() < IN_FLIGHT_MAX && bytes < IN_FLIGHT_BYTES_MAX => {
                let Some(batch) = batch else { return };
                waiting.extend(batch);
                next = next_batch();
            }
            Some((message, has_failed)) = sending.next() => {
                bytes = bytes.saturating_sub(message.body.len());
                if let Some(receiver) = receivers.get_mut(&message.url) {
                    receiver.in_flight = receiver.in_flight.saturating_sub(1);
                    receiver.is_failing = has_failed;
                }
                receivers.retain(|_, receiver| receiver.in_flight > 0);
            }
        }
    }
}

/// Sends a message once, and notes the end of the try. Returns the message, and `true` if the try failed.
async fn send_message(dispatcher: &Dispatcher, sender: &Sender, message: PreparedMessage) -> (PreparedMessage, bool) {
    let outcome = match timeout(SEND_TIMEOUT, try_message(sender, &message)).await {
        Ok(Ok(answer)) => SendOutcome::Accepted(answer),
        Ok(Err(cause)) => {
            tracing::info!(webhook_id = message.id, cause, "a message was not accepted");
            SendOutcome::Failed
        }
        Err(_) => {
            tracing::info!(
                webhook_id = message.id,
                cause = "timed out",
                "a message was not accepted"
            );
            SendOutcome::Failed
        }
    };
    let has_failed = outcome == SendOutcome::Failed;
    dispatcher.finish(&message, outcome).await;
    (message, has_failed)
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
    let answer = sender.send(request, SEND_TIMEOUT).await.map_err(|_| "no answer")?;
    let status = answer.status();
    // The answer is read to its end even if it is of no use, so that its connection can be used again.
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    if status.is_redirection() {
        return Err("it was redirected, which is never followed");
    }
    if !status.is_success() {
        return Err("it was refused");
    }
    match body {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(_) if message.reads_answer => Err("its answer broke off, or is too long"),
        Err(_) => Ok(Vec::new()),
    }
}
