//! The HTTP client of a running proxy's APIs: one address, one credential, one request at a time.

use std::{error::Error, io, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode,
    header::{CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::{api_url::ApiUrl, error::ClientError};
use crate::{
    config::{process_environment, proxy_environment},
    upstream::{Phase, SendError, SendErrorKind, Sender, UpstreamSettings},
};

/// Timeout of a whole request. The proxy itself takes at most 30 seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of DNS and TCP, and of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer in bytes: a posted result has at most 8 MiB, and a page about 12 MiB.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A client of the ledger API, or of the admin API.
#[derive(Debug)]
pub(in crate::cli) struct ApiClient {
    sender: Sender,
    url: ApiUrl,
    /// Headers of every request: the credential, among others.
    headers: HeaderMap,
    /// The longest wait for a whole answer.
    timeout: Duration,
}

/// An answer of the API.
#[derive(Debug)]
pub(in crate::cli) enum ApiReply {
    /// A success, with a JSON object.
    Done(Bytes),
    /// A refusal.
    Refused(RefusedReply),
}

/// A refusal, as the server reported it.
#[derive(Debug)]
pub(in crate::cli) struct RefusedReply {
    pub(in crate::cli) status: StatusCode,
    /// The `code` of the problem document. Empty if the answer has none.
    pub(in crate::cli) code: String,
    /// The `detail` of the problem document, behind its `title` if that says more than the status. Empty without one.
    pub(in crate::cli) message: String,
    /// `since` of a problem document: seconds since 1970.
    pub(in crate::cli) since: Option<u64>,
    /// `intent` of a problem document. Empty if the answer has none.
    pub(in crate::cli) intent: String,
}

impl ApiClient {
    /// Creates a client that sends `headers` with every request.
    pub(in crate::cli) fn new(url: ApiUrl, mut headers: HeaderMap) -> Result<Self, ClientError> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let agent = concat!("antiphon/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let settings = UpstreamSettings {
            connect_timeout: CONNECT_TIMEOUT,
            tls_timeout: CONNECT_TIMEOUT,
            send_timeout: REQUEST_TIMEOUT,
            pool_idle_timeout: REQUEST_TIMEOUT,
            pool_idle_max: 1,
            proxies: proxy_environment(&process_environment),
        };
        let tls = url.trust().into_client_config();
        let tls = tls.map_err(|error| ClientError::Unusable(format!("cannot set up TLS: {error}")))?;
        let sender = Sender::with_tls(&settings, TokioExecutor::new(), tls);
        Ok(Self {
            sender,
            url,
            headers,
            timeout: REQUEST_TIMEOUT,
        })
    }

    /// Sets the timeout of a whole exchange. The default is 60 seconds.
    #[must_use]
    pub(in crate::cli) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends a GET request.
    pub(in crate::cli) async fn get(&self, path: &str) -> Result<ApiReply, ClientError> {
        self.exchange(Method::GET, path, String::new(), HeaderMap::new()).await
    }

    /// Sends a POST request.
    pub(in crate::cli) async fn post(&self, path: &str, body: String) -> Result<ApiReply, ClientError> {
        self.exchange(Method::POST, path, body, HeaderMap::new()).await
    }

    /// Sends a DELETE request.
    pub(in crate::cli) async fn delete(&self, path: &str) -> Result<ApiReply, ClientError> {
        self.exchange(Method::DELETE, path, String::new(), HeaderMap::new())
            .await
    }

    /// Sends a POST request with more headers.
    pub(in crate::cli) async fn post_with(
        &self,
        path: &str,
        body: String,
        headers: HeaderMap,
    ) -> Result<ApiReply, ClientError> {
        self.exchange(Method::POST, path, body, headers).await
    }

    /// Returns the error for a success that the ledger API cannot have given.
    pub(in crate::cli) fn foreign_answer(&self) -> ClientError {
        ClientError::Foreign {
            url: self.url.as_str().to_owned(),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: String,
        headers: HeaderMap,
    ) -> Result<ApiReply, ClientError> {
        let exchange = self.exchange_in_time(method, path, body, headers);
        let reply = tokio::time::timeout(self.timeout, exchange).await;
        let late = || format!("no complete answer within {} seconds", self.timeout.as_secs());
        reply.unwrap_or_else(|_| Err(self.unreachable(late())))
    }

    async fn exchange_in_time(
        &self,
        method: Method,
        path: &str,
        body: String,
        headers: HeaderMap,
    ) -> Result<ApiReply, ClientError> {
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url.as_str()))
            .body(body.boxed_unsync());
        let mut request =
            request.map_err(|_| ClientError::Unusable("the ids make an address that is too long".to_owned()))?;
        request.headers_mut().extend(self.headers.clone());
        request.headers_mut().extend(headers);
        let answer = self.sender.send(request, self.timeout).await;
        let answer = answer.map_err(|error| self.unreachable(describe_failure(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| self.unreachable("the answer broke off, or is longer than 32 MiB".to_owned()))?;
        let body = body.to_bytes();
        if !status.is_success() {
            return Ok(ApiReply::Refused(RefusedReply::read(status, &body)));
        }
        // Any web server may answer 200.
        if crate::wire::json::is_object(&body) {
            Ok(ApiReply::Done(body))
        } else {
            Err(self.foreign_answer())
        }
    }

    fn unreachable(&self, cause: String) -> ClientError {
        ClientError::Unreachable {
            url: self.url.as_str().to_owned(),
            cause,
        }
    }
}

impl RefusedReply {
    /// Returns `true` if a later request may succeed. A request that came too slowly (408) may, as any that a gateway lost.
    pub(in crate::cli) fn is_temporary(&self) -> bool {
        self.status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&self.status)
    }

    /// Reads a refusal of an API of the proxy.
    fn read(status: StatusCode, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |place: &str| {
            body.pointer(place)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let first = |places: &[&str]| places.iter().map(|place| text(place)).find(|text| !text.is_empty());
        // A proxy of an earlier version has no codes for intents, and its other errors are below `error`.
        let kind = text("/type");
        let intent_code = kind
            .strip_prefix("urn:antiphon:intent:")
            .map(|kind| kind.replace('-', "_"));
        let message = first(&["/detail", "/title", "/error/message"]).unwrap_or_default();
        Self {
            status,
            message: if intent_code.is_some() {
                format!("{}: {message}", text("/title"))
            } else {
                message
            },
            code: first(&["/code", "/error/code"]).or(intent_code).unwrap_or_default(),
            since: body["since"].as_u64(),
            intent: text("/intent"),
        }
    }
}

/// Describes a failed send, with the next step.
fn describe_failure(error: &SendError) -> String {
    let cause = match (error.kind, error.find_cause::<io::Error>()) {
        (SendErrorKind::TimedOut, _) => "no answer in time".to_owned(),
        (_, Some(cause)) => cause.to_string(),
        (_, None) => last_cause(error),
    };
    match error.phase {
        Phase::Resolve => format!("the host name has no address: {cause}"),
        Phase::Connect => format!("cannot connect: {cause}; is Antiphon running there? --url names another address"),
        Phase::Tls => format!("the TLS handshake failed: {cause}"),
        Phase::Send | Phase::Headers | Phase::Body => {
            // A repeated post of the same result is harmless, so the way out is always the same.
            format!("the request got no answer: {cause}; repeat the command, or check that Antiphon runs there")
        }
    }
}

/// Returns the innermost error of a chain as text.
fn last_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
