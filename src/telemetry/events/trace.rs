//! The trace of one exchange: the data of its spans that the event does not contain. Structure, never content.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use http::HeaderValue;
use opentelemetry::trace::{SpanId, TraceId, TraceState};

use crate::{
    provider::{ModelOperation, ProviderKind, Route, Upstream},
    wire::watch::{Facts, Usage},
};

/// The trace of an exchange, filled in while the exchange runs. A trace that is not sampled stays empty.
#[derive(Clone, Debug)]
pub struct ExchangeTrace {
    pub(in crate::telemetry) trace_id: TraceId,
    pub(in crate::telemetry) trace_state: TraceState,
    pub(in crate::telemetry) is_sampled: bool,
    /// The client's span; `None` if the request named none.
    pub(in crate::telemetry) parent_span: Option<SpanId>,
    /// The span of the request as the client sent it.
    pub(in crate::telemetry) server_span: SpanId,
    /// The span of the request that the proxy sent to the provider.
    pub(in crate::telemetry) client_span: SpanId,
    pub(in crate::telemetry) target: TraceTarget,
    pub(in crate::telemetry) model: Option<String>,
    pub(in crate::telemetry) is_streamed: bool,
    pub(in crate::telemetry) max_tokens: Option<u64>,
    pub(in crate::telemetry) conversation: Option<String>,
    /// The time from the start of the exchange to its first send.
    pub(in crate::telemetry) first_send: Option<Duration>,
    /// The time from the start of the exchange to the first bytes of a streamed answer.
    pub(in crate::telemetry) first_chunk: Option<Duration>,
    pub(in crate::telemetry) answer: Option<TraceAnswer>,
}

/// The destination of a request.
#[derive(Clone, Debug, Default)]
pub(in crate::telemetry) struct TraceTarget {
    pub(in crate::telemetry) route: Option<&'static str>,
    pub(in crate::telemetry) operation: Option<ModelOperation>,
    pub(in crate::telemetry) provider: Option<Cow<'static, str>>,
    pub(in crate::telemetry) address: Option<String>,
    pub(in crate::telemetry) port: Option<u16>,
}

/// The parameters of a request to a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest<'a> {
    /// The name of the model.
    pub model: Option<&'a str>,
    /// `true` if the client requested a streamed answer.
    pub is_streamed: bool,
    /// The client's limit of the answer's length, in tokens.
    pub max_tokens: Option<u64>,
    /// The start of the lane's hash. The client's own session name is never exported.
    pub conversation: Option<String>,
}

/// The facts that an answer reported about itself.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct TraceAnswer {
    pub(in crate::telemetry) id: Option<Box<str>>,
    pub(in crate::telemetry) model: Option<Box<str>>,
    pub(in crate::telemetry) usage: Usage,
}

impl ExchangeTrace {
    /// Returns the trace's id, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.trace_id.to_string()
    }

    /// Returns `true` if the trace is exported.
    pub const fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Sets the destination of the request.
    pub fn set_route(&mut self, route: &Route<'_>) {
        // Nothing is copied for a trace that is not exported.
        if !self.is_sampled {
            return;
        }
        let Upstream { scheme, authority, .. } = route.upstream;
        // An authority without a port means the default port of its scheme.
        let usual_port = if *scheme == http::uri::Scheme::HTTPS { 443 } else { 80 };
        let (template, operation) = route.path_template().unzip();
        self.target = TraceTarget {
            route: template,
            operation: operation.flatten(),
            provider: Some(provider_name(route.upstream)),
            address: Some(authority.host().to_owned()),
            port: Some(authority.port_u16().unwrap_or(usual_port)),
        };
    }

    /// Sets the parameters of the request.
    pub fn set_request(&mut self, request: ModelRequest<'_>) {
        // Like the route: nothing is copied for a trace that is not exported.
        if self.is_sampled {
            self.model = request.model.map(ToOwned::to_owned);
            (self.is_streamed, self.max_tokens) = (request.is_streamed, request.max_tokens);
            self.conversation = request.conversation;
        }
    }

    /// Records the first send, `after` the start of the exchange. Retries change nothing.
    pub fn record_first_send(&mut self, after: Duration) {
        self.first_send.get_or_insert(after);
    }

    /// Returns `true` until the first bytes of an answer are recorded.
    pub const fn needs_first_chunk(&self) -> bool {
        self.is_sampled && self.first_chunk.is_none()
    }

    /// Records the first bytes of a streamed answer, `after` the start of the exchange.
    pub const fn record_first_chunk(&mut self, after: Duration) {
        self.first_chunk = Some(after);
    }

    /// Records what the answer reported about itself.
    pub fn record_answer(&mut self, facts: &Facts) {
        if self.is_sampled {
            self.answer = Some(TraceAnswer {
                id: facts.answer_id.clone(),
                model: facts.model.clone(),
                usage: facts.usage,
            });
        }
    }

    /// Returns the `traceparent` header that names the proxy's span to the provider.
    pub fn traceparent_header(&self) -> Option<HeaderValue> {
        // Version 00 has a fixed length.
        let mut text = String::with_capacity(55);
        let flags = u8::from(self.is_sampled);
        // The client span is the parent: the provider's spans belong below the proxy's request.
        write!(text, "00-{}-{}-{flags:02x}", self.trace_id, self.client_span).ok()?;
        HeaderValue::try_from(text).ok()
    }
}

/// Returns the provider's name in OpenTelemetry's conventions, or the operator's name for a provider without one.
fn provider_name(upstream: &Upstream) -> Cow<'static, str> {
    Cow::Borrowed(match upstream.kind {
        ProviderKind::Anthropic => "anthropic",
        ProviderKind::OpenAi => "openai",
        ProviderKind::Gemini => "gcp.gemini",
        ProviderKind::Bedrock => "aws.bedrock",
        ProviderKind::Azure => "azure.ai.openai",
        ProviderKind::Vertex => "gcp.vertex_ai",
        ProviderKind::DeepSeek => "deepseek",
        ProviderKind::Mistral => "mistral_ai",
        ProviderKind::Xai => "x_ai",
        // The conventions have a name for Moonshot, but it has no kind of its own here.
        ProviderKind::Compatible if upstream.name == "moonshot" => "moonshot_ai",
        ProviderKind::MiniMax | ProviderKind::Compatible => return Cow::Owned(upstream.name.clone()),
    })
}
