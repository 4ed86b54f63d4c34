//! The export of spans to the collector: a bounded queue that never blocks an exchange, and one task that sends.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanExporter as _},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::settings::TraceSettings;
use crate::{clock, telemetry::metrics::Metrics, upstream::Sender};

/// Limit of exchanges whose spans wait in the queue.
const QUEUE_MAX: usize = 1024;
/// Number of spans after which a batch is sent at once.
const BATCH_MAX: usize = 512;
/// Limit of a collector's answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// An item of the queue.
#[derive(Debug)]
enum SpanQueueItem {
    Spans(Vec<SpanData>),
    /// A request to answer once all items before it were sent.
    Flush(oneshot::Sender<()>),
}

/// The sending end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SpanQueue {
    items: mpsc::Sender<SpanQueueItem>,
    metrics: Arc<Metrics>,
}

/// Creates a queue, and the exporter that sends its spans.
pub(super) fn span_queue(settings: TraceSettings, metrics: Arc<Metrics>) -> (SpanQueue, TraceExporter) {
    let (items, queue) = mpsc::channel(QUEUE_MAX);
    let exporter = TraceExporter {
        queue,
        settings,
        metrics: Arc::clone(&metrics),
        is_failing: false,
    };
    (SpanQueue { items, metrics }, exporter)
}

impl SpanQueue {
    /// Adds the spans of an exchange, or drops and counts them if the queue is full.
    pub(super) fn push_spans(&self, spans: Vec<SpanData>) {
        let count = spans.len();
        // Never waits: traces must not slow down an exchange. A stopped exporter counts as a full queue.
        if self.items.try_send(SpanQueueItem::Spans(spans)).is_err() {
            self.metrics.spans.lost.add(["full"], count as u64);
        }
    }

    /// Waits until all spans of the queue were sent or dropped.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.items.send(SpanQueueItem::Flush(done)).await.is_ok() {
            // An exporter that was dropped has nothing left to send.
            drop(flushed.await);
        }
    }
}

/// The task that sends the spans of the queue to the collector.
#[derive(Debug)]
pub struct TraceExporter {
    queue: mpsc::Receiver<SpanQueueItem>,
    settings: TraceSettings,
    metrics: Arc<Metrics>,
    /// The result of the last export: `true` if it failed. Only a change is logged.
    is_failing: bool,
}

impl TraceExporter {
    /// Sends spans in batches, until every sending end of the queue is dropped.
    pub async fn run(mut self, sender: Sender) {
        let exporter = match build_exporter(&self.settings, sender) {
            Ok(exporter) => exporter,
            // The proxy works without traces, so this is no reason to stop.
            Err(error) => {
                tracing::warn!(%error, "trace export disabled: failed to build the exporter");
                return;
            }
        };
        while let Some(item) = self.queue.recv().await {
            let (mut batch, mut flushed) = (Vec::new(), None);
            let mut next = Some(item);
            // Counted from the first span of the batch, so that no span waits longer than the delay.
            let due = clock::now() + self.settings.batch_delay;
            while let Some(item) = next {
                match item {
                    SpanQueueItem::Spans(spans) => batch.extend(spans),
                    // The caller waits for all spans before it, so the batch is sent without more delay.
                    SpanQueueItem::Flush(done) => {
                        flushed = Some(done);
                        break;
                    }
                }
                if batch.len() >= BATCH_MAX {
                    break;
                }
                next = self.next_item(due).await;
            }
            self.export_batch(&exporter, batch).await;
            // The task that asked for the flush may have stopped waiting.
            let _ = flushed.map(|done| done.send(()));
        }
    }

    /// Returns the next item; `None` once the batch is due.
    async fn next_item(&mut self, due: Instant) -> Option<SpanQueueItem> {
        tokio::time::timeout_at(due, self.queue.recv()).await.ok().flatten()
    }

    async fn export_batch(&mut self, exporter: &SpanExporter, batch: Vec<SpanData>) {
        let count = batch.len();
        if count == 0 {
            return;
        }
        // Covers retries and the answer's body too, which the timeout of the HTTP client does not.
        let exported = tokio::time::timeout(self.settings.timeout, exporter.export(batch)).await;
        let failure = match exported {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("timeout".to_owned()),
        };
        match &failure {
            None => {
                self.metrics.spans.sent.inc_by(count as u64);
            }
            Some(error) => {
                self.metrics.spans.lost.add(["failed"], count as u64);
                // Logged once for each outage, or a collector that is down would fill the log.
                if !self.is_failing {
                    // The host only: the rest of the URL may contain a credential.
                    let collector = self.settings.endpoint.host().unwrap_or_default();
                    tracing::warn!(
                        collector,
                        error,
                        "trace export failed: spans are dropped until the collector accepts them"
                    );
                }
            }
        }
        if self.is_failing && failure.is_none() {
            tracing::info!("trace export recovered: the collector accepts spans");
        }
        self.is_failing = failure.is_some();
    }
}

/// Builds OpenTelemetry's exporter on top of the proxy's HTTP client.
fn build_exporter(settings: &TraceSettings, sender: Sender) -> Result<SpanExporter, ExporterBuildError> {
    let client = CollectorClient {
        sender,
        timeout: settings.timeout,
    };
    let headers = settings.headers.0.clone();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_shared_http_client(Arc::new(client))
        .with_endpoint(settings.endpoint.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(settings.timeout)
        .with_headers(headers.into_iter().collect())
        .build()?;
    let configured = settings.resource.iter();
    let configured = configured.map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    // Without OpenTelemetry's detectors: the configuration alone reads the environment.
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("telemetry.sdk.language", "rust"),
            KeyValue::new("telemetry.sdk.name", "opentelemetry"),
        ])
        // Last, because the operator's attributes replace the others.
        .with_attributes(configured)
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

/// The proxy's HTTP client behind the interface that the exporter needs.
#[derive(Debug)]
struct CollectorClient {
    sender: Sender,
    timeout: Duration,
}

impl CollectorClient {
    async fn send_to_collector(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = request.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync());
        let answer = self.sender.send(request, self.timeout).await?;
        let (head, body) = answer.into_parts();
        // Bounded, so that a faulty collector cannot exhaust the memory.
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'c, 'f>(
        &'c self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.send_to_collector(request))
    }
}
