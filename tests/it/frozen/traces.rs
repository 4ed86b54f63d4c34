//! Pins traces: span names, attributes, and the values for operations and providers.

use std::collections::BTreeSet;

use antiphon::{provider::ProviderKind, telemetry::TRACE_NAMES};

use crate::{
    frozen::golden::same_lines,
    support::{
        app::{Builder, before, post},
        collector::{Collector, Span},
        wire::Upstream,
    },
};

/// A request path for each path template of its kind of upstream.
const PATHS: &[&str] = &[
    "v1/messages",
    "v1/messages/count_tokens",
    "v1/messages/batches",
    "v1/chat/completions",
    "v1/completions",
    "v1/embeddings",
    "v1/responses",
    "v1/responses/compact",
    "v1/responses/input_tokens",
    "v1/models",
    "v1/files/f",
    "v1beta/models/m:generateContent",
    "v1beta/models/m:streamGenerateContent",
    "v1beta/models/m:countTokens",
    "v1beta/models/m:batchGenerateContent",
    "v1beta/models/m:embedContent",
    "v1/publishers/p/models/m:rawPredict",
    "v1/publishers/p/models/m:streamRawPredict",
    "model/m/invoke",
    "model/m/invoke-with-response-stream",
    "model/m/converse",
    "model/m/converse-stream",
];

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 153\r\n\r\n\
    {\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m-1\",\"content\":[],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}        ";

/// Adds one upstream of each kind, under the name of its kind.
fn of_every_kind(builder: &mut Builder) {
    let template = builder.upstreams[0].clone();
    builder.upstreams = ProviderKind::ALL
        .map(|kind| antiphon::provider::Upstream {
            name: kind.label().to_owned(),
            kind,
            ..template.clone()
        })
        .into();
}

fn facts(asked: &str, span: &Span) -> Vec<String> {
    let mut facts = vec![format!("span {asked}: {} {:?}", span.kind, span.name)];
    for name in ["http.route", "gen_ai.operation.name", "gen_ai.provider.name"] {
        if let Some(value) = span.attributes.get(name) {
            facts.push(format!("value {asked}: {name}={value}"));
        }
    }
    facts
}

#[tokio::test]
async fn span_names_and_attributes_are_pinned() {
    let (upstream, collector) = (Upstream::answering(ANSWER).await, Collector::start().await);
    let mut settings = antiphon::telemetry::TraceSettings::for_endpoint(collector.endpoint());
    settings.batch_delay = std::time::Duration::from_secs(3600);
    let builder = before(upstream.address).with(of_every_kind);
    let app = builder.with(|builder| builder.traces = Some(settings)).start().await;
    let kinds = ProviderKind::ALL.map(|kind| format!("{}/v1/chat/completions", kind.label()));
    let paths = PATHS.iter().map(|path| format!("compatible/{path}"));
    let asked: Vec<String> = kinds.into_iter().chain(paths).collect();
    let mut lines = BTreeSet::new();
    let mut known = 0;
    for asked in &asked {
        app.ask(post(&format!("/{asked}"), r#"{"model":"m","messages":[]}"#))
            .await;
        app.telemetry.flush_traces().await;
        let spans = collector.spans();
        for span in &spans[known..] {
            lines.extend(facts(asked, span));
        }
        known = spans.len();
    }
    lines.extend(TRACE_NAMES.iter().map(|name| format!("attribute {name}")));
    let resource = collector.resource();
    lines.extend(resource.iter().map(|(name, value)| format!("resource {name}={value}")));
    lines.retain(|line| !line.starts_with("resource service.version"));
    same_lines("traces.txt", lines);
}
