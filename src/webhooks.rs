//! The sender of messages to tool services and webhooks: each is signed (Standard Webhooks), and sent until its receiver has it.
//!
//! `late` decides what is sent and when. This room owns the connections: no redirect is followed, an answer is read up to
//! a limit, and one receiver that hangs delays no other for longer than its own timeout.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
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

/// Sends messages until the store is dropped.
pub async fn send_messages(dispatcher: Dispatcher, sender: Sender) {
    dispatcher.load().await;
    while let Some(batch) = dispatcher.next_batch().await {
        join_all(batch.iter().map(|message| send_message(&dispatcher, &sender, message))).await;
    }
}

async fn send_message(dispatcher: &Dispatcher, sender: &Sender, message: &PreparedMessage) {
    let outcome = match timeout(SEND_TIMEOUT, try_message(sender, message)).await {
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
    dispatcher.finish(message, outcome).await;
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
    body.map(|body| body.to_bytes().to_vec())
        .map_err(|_| "its answer broke off, or is too long")
}
