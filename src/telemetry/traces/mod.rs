//! Traces: two spans an exchange, made of its event when it is over and sent off the data path. Never content.

mod export;
mod names;
mod parent;
mod settings;
mod spans;

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use http::{HeaderMap, HeaderValue};
use opentelemetry::{
    Context,
    trace::{SpanId, SpanKind, TraceContextExt, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample};

pub use export::TraceExporter;
pub use names::NAMES as TRACE_NAMES;
pub use parent::TRACEPARENT;
pub use settings::{ExportHeaders, TraceSampling, TraceSettings};

use super::{Telemetry, events::ExchangeEnded};
use crate::{
    provider::{Kind, Operation, Route, Upstream},
    wire::watch::{Facts, Usage},
};
use export::Queue;

/// What an exchange says in its spans beside what its event says. Of a trace that is not sent nothing is noted.
#[derive(Clone, Debug)]
pub struct ExchangeTrace {
    id: TraceId,
    state: TraceState,
    is_sampled: bool,
    /// The client's span.
    parent: Option<SpanId>,
    server: SpanId,
    client: SpanId,
    route: Option<&'static str>,
    operation: Option<Operation>,
    provider: Option<Cow<'static, str>>,
    address: Option<String>,
    port: Option<u16>,
    model: Option<String>,
    streams: bool,
    max_tokens: Option<u64>,
    conversation: Option<String>,
    /// From the begin of the exchange to its first send.
    sent: Option<Duration>,
    /// From there to the first bytes of a streamed answer.
    first_chunk: Option<Duration>,
    answered: Option<Answered>,
}

/// What an answer said about itself.
#[derive(Clone, Debug)]
struct Answered {
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    usage: Usage,
}

/// What is asked of a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest<'a> {
    /// The model.
    pub model: Option<&'a str>,
    /// Whether the answer is to be a stream.
    pub streams: bool,
    /// How long the answer may be.
    pub max_tokens: Option<u64>,
    /// The beginning of the lane's hash: the client's own name for its session is nobody else's business.
    pub conversation: Option<String>,
}

impl ExchangeTrace {
    /// The name of the trace, as 32 hexadecimal digits.
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// Whether it is sent.
    pub const fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Notes where the request goes.
    pub fn set_route(&mut self, route: &Route<'_>) {
        if !self.is_sampled {
            return;
        }
        let Upstream { scheme, authority, .. } = route.upstream;
        let usual = if *scheme == http::uri::Scheme::HTTPS { 443 } else { 80 };
        let (template, operation) = route.template().unzip();
        (self.route, self.operation) = (template, operation.flatten());
        self.provider = Some(provider(route.upstream));
        self.address = Some(authority.host().to_owned());
        self.port = Some(authority.port_u16().unwrap_or(usual));
    }

    /// Notes what is asked.
    pub fn set_request(&mut self, asking: ModelRequest<'_>) {
        if self.is_sampled {
            self.model = asking.model.map(ToOwned::to_owned);
            (self.streams, self.max_tokens) = (asking.streams, asking.max_tokens);
            self.conversation = asking.conversation;
        }
    }

    /// Notes that a request goes up, so long after the exchange began. The first counts.
    pub fn record_first_send(&mut self, after: Duration) {
        self.sent.get_or_insert(after);
    }

    /// Whether the first bytes of an answer are still to be noted.
    pub const fn needs_first_chunk(&self) -> bool {
        self.is_sampled && self.first_chunk.is_none()
    }

    /// Notes that the first bytes of a streamed answer came, so long after the exchange began.
    pub const fn record_first_chunk(&mut self, after: Duration) {
        self.first_chunk = Some(after);
    }

    /// Notes what the answer said.
    pub fn record_answer(&mut self, facts: &Facts) {
        if self.is_sampled {
            self.answered = Some(Answered {
                id: facts.answer_id.clone(),
                model: facts.model.clone(),
                usage: facts.usage,
            });
        }
    }

    /// The `traceparent` that names our own span towards the provider.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        let mut text = String::with_capacity(55);
        let flags = u8::from(self.is_sampled);
        write!(text, "00-{}-{}-{flags:02x}", self.id, self.client).ok()?;
        HeaderValue::try_from(text).ok()
    }
}

/// Whose API it is, in the conventions' words; of one they do not know, the operator's name for it.
fn provider(upstream: &Upstream) -> Cow<'static, str> {
    Cow::Borrowed(match upstream.kind {
        Kind::Anthropic => "anthropic",
        Kind::OpenAi => "openai",
        Kind::Gemini => "gcp.gemini",
        Kind::Bedrock => "aws.bedrock",
        Kind::Azure => "azure.ai.openai",
        Kind::Vertex => "gcp.vertex_ai",
        Kind::DeepSeek => "deepseek",
        Kind::Mistral => "mistral_ai",
        Kind::Xai => "x_ai",
        Kind::Compatible if upstream.name == "moonshot" => "moonshot_ai",
        Kind::Compatible => return Cow::Owned(upstream.name.clone()),
    })
}

/// Where spans go. A cheap handle.
#[derive(Clone, Debug)]
pub(super) struct Traces {
    queue: Queue,
    sampler: Sampler,
    ids: RandomIdGenerator,
    propagates: bool,
}

impl Traces {
    fn begin(&self, headers: &HeaderMap) -> ExchangeTrace {
        let parent = parent::parent(headers);
        let id = parent
            .as_ref()
            .map_or_else(|| self.ids.new_trace_id(), opentelemetry::trace::SpanContext::trace_id);
        let (state, span) = parent.as_ref().map_or((TraceState::NONE, None), |parent| {
            (parent.trace_state().clone(), Some(parent.span_id()))
        });
        let context = parent.map(|parent| Context::new().with_remote_span_context(parent));
        let sampled = self
            .sampler
            .should_sample(context.as_ref(), id, "", &SpanKind::Server, &[], &[]);
        ExchangeTrace {
            id,
            state,
            is_sampled: sampled.decision == SamplingDecision::RecordAndSample,
            parent: span,
            server: self.ids.new_span_id(),
            client: self.ids.new_span_id(),
            route: None,
            operation: None,
            provider: None,
            address: None,
            port: None,
            model: None,
            streams: false,
            max_tokens: None,
            conversation: None,
            sent: None,
            first_chunk: None,
            answered: None,
        }
    }

    /// Hands the spans of an exchange over; where nobody takes them they are lost, and counted.
    pub(super) fn ended(&self, event: &ExchangeEnded) {
        if let Some(trace) = event.trace.as_deref().filter(|trace| trace.is_sampled) {
            self.queue.push(spans::of(event, trace, event.repair_summary()));
        }
    }
}

fn sampler(sampling: TraceSampling) -> Sampler {
    let share = match sampling.share {
        share if share >= 1.0 => Sampler::AlwaysOn,
        share if share > 0.0 => Sampler::TraceIdRatioBased(share),
        _ => Sampler::AlwaysOff,
    };
    if sampling.follows_parent {
        Sampler::ParentBased(Box::new(share))
    } else {
        share
    }
}

impl Telemetry {
    /// The same telemetry with traces, and who is to send them.
    #[must_use]
    pub fn with_traces(mut self, settings: TraceSettings) -> (Self, TraceExporter) {
        let (sampling, propagates) = (settings.sampling, settings.propagates);
        let (queue, exporter) = export::queue(settings, self.metrics.spans.clone());
        self.traces = Some(Traces {
            queue,
            sampler: sampler(sampling),
            ids: RandomIdGenerator::default(),
            propagates,
        });
        (self, exporter)
    }

    /// The trace of an exchange whose request has these headers; none where there are no traces.
    pub fn start_trace(&self, headers: &HeaderMap) -> Option<Box<ExchangeTrace>> {
        let traces = self.traces.as_ref()?;
        Some(Box::new(traces.begin(headers)))
    }

    /// Whether there are traces.
    pub const fn has_traces(&self) -> bool {
        self.traces.is_some()
    }

    /// Whether requests go up with a span of ours as their parent.
    pub fn has_trace_propagation(&self) -> bool {
        self.traces.as_ref().is_some_and(|traces| traces.propagates)
    }

    /// Ends once all spans so far were sent, or were lost in the attempt.
    pub async fn flush_traces(&self) {
        if let Some(traces) = &self.traces {
            traces.queue.flush().await;
        }
    }
}
