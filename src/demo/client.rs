//! A simple HTTP client: one request on its own connection, and the whole answer, however it ends.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;

/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Timeout of a whole answer, unless a request sets another.
const PATIENCE: Duration = Duration::from_secs(15);

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The bytes that arrived.
    pub(super) body: Vec<u8>,
    /// `true` if the answer was complete.
    pub(super) is_whole: bool,
}

impl Answer {
    /// Returns a header as text, or a dash if it is missing.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("-")
    }

    /// Returns the body as JSON, or null if it is not JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the message of an error, whichever format it has.
    pub(super) fn words(&self) -> String {
        let body = self.json();
        let said = body.pointer("/error/message").and_then(Value::as_str);
        said.map_or_else(|| String::from_utf8_lossy(&self.body).into_owned(), ToOwned::to_owned)
    }

    /// Returns the data of the last event of a stream.
    pub(super) fn last_event(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        data.and_then(|data| serde_json::from_str(data).ok())
            .unwrap_or_default()
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) to: SocketAddr,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a str,
    /// Timeout of the whole answer.
    pub(super) patience: Duration,
}

impl<'a> Ask<'a> {
    /// Creates a POST of JSON.
    pub(super) fn post(to: SocketAddr, path: &'a str, headers: &'a [(&'a str, &'a str)], body: &'a str) -> Self {
        Self {
            to,
            method: &Method::POST,
            path,
            headers,
            body,
            patience: PATIENCE,
        }
    }

    /// Creates a GET.
    pub(super) fn get(to: SocketAddr, path: &'a str) -> Self {
        Self {
            method: &Method::GET,
            ..Self::post(to, path, &[], "")
        }
    }

    /// Sends the request. Fails if no answer begins within the timeout.
    pub(super) async fn send(self) -> io::Result<Answer> {
        let mut answer = None;
        let patience = self.patience;
        let waited = tokio::time::timeout(patience, self.exchange(&mut answer)).await;
        match (answer, waited) {
            (Some(answer), _) => Ok(answer),
            (None, Ok(ended)) => ended.and(Err(io::ErrorKind::UnexpectedEof.into())),
            (None, Err(_)) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn exchange(self, into: &mut Option<Answer>) -> io::Result<()> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(format!("http://{}{}", self.to, self.path))
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(self.body.to_owned())))
            .map_err(io::Error::other)?;
        // A new client for each request, so that no connection is used twice.
        let client = Client::builder(TokioExecutor::new()).build_http();
        let (head, body) = client.request(request).await.map_err(io::Error::other)?.into_parts();
        let answer = into.insert(Answer {
            status: head.status,
            headers: head.headers,
            body: Vec::new(),
            is_whole: false,
        });
        let mut body = Limited::new(body, ANSWER_BYTES_MAX);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Ok(()) };
            answer.body.extend(frame.data_ref().into_iter().flatten());
        }
        answer.is_whole = true;
        Ok(())
    }
}
