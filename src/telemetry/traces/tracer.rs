//! The tracer: starts the trace of each exchange, decides whether it is sampled, and hands its spans to the exporter.

use std::sync::Arc;

use http::HeaderMap;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanKind, TraceContextExt, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample};

use super::{
    export::{SpanQueue, TraceExporter, span_queue},
    parent::parent_span,
    settings::{TraceSampling, TraceSettings},
    spans::exchange_spans,
};
use crate::telemetry::{
    events::{ExchangeEnded, ExchangeTrace, TraceTarget},
    metrics::Metrics,
};

/// The factory of traces. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct Tracer {
    queue: SpanQueue,
    sampler: Sampler,
    ids: RandomIdGenerator,
    propagates: bool,
}

impl Tracer {
    /// Creates a tracer, and the exporter that sends its spans.
    pub(in crate::telemetry) fn new(settings: TraceSettings, metrics: Arc<Metrics>) -> (Self, TraceExporter) {
        let (sampling, propagates) = (settings.sampling, settings.propagates);
        let (queue, exporter) = span_queue(settings, metrics);
        let tracer = Self {
            queue,
            sampler: build_sampler(sampling),
            ids: RandomIdGenerator::default(),
            propagates,
        };
        (tracer, exporter)
    }

    /// Returns `true` if requests are sent upstream with the proxy's span as their parent.
    pub(in crate::telemetry) const fn has_propagation(&self) -> bool {
        self.propagates
    }

    /// Starts the trace of an exchange. `headers` are those of the request, which may name a parent.
    pub(in crate::telemetry) fn start_trace(&self, headers: &HeaderMap) -> ExchangeTrace {
        let parent = parent_span(headers);
        // A request without a parent starts a trace of its own.
        let id = parent
            .as_ref()
            .map_or_else(|| self.ids.new_trace_id(), SpanContext::trace_id);
        let (state, span) = parent.as_ref().map_or((TraceState::NONE, None), |parent| {
            (parent.trace_state().clone(), Some(parent.span_id()))
        });
        let context = parent.map(|parent| Context::new().with_remote_span_context(parent));
        // Decided by the trace id and the parent alone: the span has no name or attributes yet.
        let sampled = self
            .sampler
            .should_sample(context.as_ref(), id, "", &SpanKind::Server, &[], &[]);
        ExchangeTrace {
            trace_id: id,
            trace_state: state,
            is_sampled: sampled.decision == SamplingDecision::RecordAndSample,
            parent_span: span,
            server_span: self.ids.new_span_id(),
            client_span: self.ids.new_span_id(),
            target: TraceTarget::default(),
            model: None,
            is_streamed: false,
            max_tokens: None,
            conversation: None,
            first_send: None,
            first_chunk: None,
            answer: None,
        }
    }

    /// Queues the spans of an exchange that ended, if its trace is sampled. A full queue drops and counts them.
    pub(in crate::telemetry) fn export_exchange(&self, event: &ExchangeEnded) {
        if let Some(trace) = event.trace.as_deref().filter(|trace| trace.is_sampled) {
            self.queue.push_spans(exchange_spans(event, trace));
        }
    }

    /// Waits until all queued spans were sent or dropped.
    pub(in crate::telemetry) async fn flush(&self) {
        self.queue.flush().await;
    }
}

fn build_sampler(sampling: TraceSampling) -> Sampler {
    let share = match sampling.share {
        // Both ends of the range need no computation on ids.
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
