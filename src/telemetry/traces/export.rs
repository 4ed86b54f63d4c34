//! Spans on their way to the collector: a bounded queue that nobody waits for, and one task that empties it.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

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

use super::TraceSettings;
use crate::{clock, telemetry::metrics::SpanCounts, upstream::Sender};

/// Exchanges whose spans may wait.
const WAITING_MAX: usize = 1024;
/// Spans of one export.
const BATCH_MAX: usize = 512;
/// Bytes of a collector's answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What goes through the queue.
#[derive(Debug)]
enum Item {
    Spans(Vec<SpanData>),
    /// To be answered once everything before it was sent.
    Flush(oneshot::Sender<()>),
}

/// The end of the queue where spans go in. Cheap to clone.
#[derive(Clone)]
pub(super) struct Queue {
    items: mpsc::Sender<Item>,
    counts: SpanCounts,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// A queue, and who empties it.
pub(super) fn queue(settings: TraceSettings, counts: SpanCounts) -> (Queue, TraceExporter) {
    let (items, queue) = mpsc::channel(WAITING_MAX);
    let exporter = TraceExporter {
        queue,
        settings,
        counts: counts.clone(),
        is_failing: false,
    };
    (Queue { items, counts }, exporter)
}

impl Queue {
    /// Puts spans in if there is room.
    pub(super) fn push(&self, spans: Vec<SpanData>) {
        let count = spans.len();
        if self.items.try_send(Item::Spans(spans)).is_err() {
            self.counts.full(count);
        }
    }

    /// Waits until everything so far has left.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.items.send(Item::Flush(done)).await.is_ok() {
            // An exporter that is gone has nothing left.
            drop(flushed.await);
        }
    }
}

/// Who empties the queue.
#[derive(Debug)]
pub struct TraceExporter {
    queue: mpsc::Receiver<Item>,
    settings: TraceSettings,
    counts: SpanCounts,
    /// Whether the last export failed: only the change is told.
    is_failing: bool,
}

impl TraceExporter {
    /// Sends what comes, together, until nobody can put anything in any more.
    pub async fn run(mut self, sender: Sender) {
        let exporter = match exporter(&self.settings, sender) {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::warn!(%error, "no traces are sent");
                return;
            }
        };
        while let Some(item) = self.queue.recv().await {
            let (mut batch, mut flushed) = (Vec::new(), None);
            let mut next = Some(item);
            let due = clock::now() + self.settings.delay;
            while let Some(item) = next {
                match item {
                    Item::Spans(spans) => batch.extend(spans),
                    Item::Flush(done) => {
                        flushed = Some(done);
                        break;
                    }
                }
                if batch.len() >= BATCH_MAX {
                    break;
                }
                next = self.until(due).await;
            }
            self.export(&exporter, batch).await;
            // Whoever asked may have stopped waiting.
            let _ = flushed.map(|done| done.send(()));
        }
    }

    /// The next item; none once the batch has waited long enough.
    async fn until(&mut self, due: Instant) -> Option<Item> {
        tokio::time::timeout_at(due, self.queue.recv()).await.ok().flatten()
    }

    async fn export(&mut self, exporter: &SpanExporter, batch: Vec<SpanData>) {
        let count = batch.len();
        if count == 0 {
            return;
        }
        let exported = tokio::time::timeout(self.settings.timeout, exporter.export(batch)).await;
        let failure = match exported {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it does not answer".to_owned()),
        };
        match &failure {
            None => self.counts.sent(count),
            Some(error) => {
                self.counts.failed(count);
                if !self.is_failing {
                    let collector = self.settings.endpoint.host().unwrap_or_default();
                    tracing::warn!(collector, error, "traces are lost: the collector does not take them");
                }
            }
        }
        if self.is_failing && failure.is_none() {
            tracing::info!("the collector takes traces again");
        }
        self.is_failing = failure.is_some();
    }
}

fn exporter(settings: &TraceSettings, sender: Sender) -> Result<SpanExporter, ExporterBuildError> {
    let client = Client {
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
    let said = settings.resource.iter();
    let said = said.map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("telemetry.sdk.language", "rust"),
            KeyValue::new("telemetry.sdk.name", "opentelemetry"),
        ])
        .with_attributes(said)
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

/// Our client, as exporters want it.
#[derive(Debug)]
struct Client {
    sender: Sender,
    timeout: Duration,
}

impl Client {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = request.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync());
        let answer = self.sender.send(request, self.timeout).await?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

impl HttpClient for Client {
    fn send_bytes<'c, 'f>(
        &'c self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.send(request))
    }
}
