//! Answers are watched while they pass: no byte changes, and the counters are right for every chunking.

use std::{fs, time::Duration};

use crate::support::{
    app::{App, before, post},
    wire::{SSE, Upstream, chunk},
};

const JSON: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=UTF-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// A streamed answer and its expected counters.
struct Answer {
    path: &'static str,
    head: &'static str,
    body: &'static str,
    format: &'static str,
    stop: &'static str,
    /// Calls, server tools, input tokens, output tokens.
    counts: [usize; 4],
}

const ANSWERS: [Answer; 5] = [
    Answer {
        path: "/anthropic/v1/messages",
        head: SSE,
        body: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\
            \"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\nevent: content_block_start\r\n\
            data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\
            \"name\":\"ls\"}}\r\n\r\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"server_tool_use\",\
            \"id\":\"s\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\
            \"usage\":{\"output_tokens\":5}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
        format: "anthropic",
        stop: "tool_use",
        counts: [1, 1, 10, 5],
    },
    Answer {
        path: "/openai/v1/chat/completions",
        head: SSE,
        body: "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\
            \"function\":{\"name\":\"ls\"}}]},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":\
            {\"content\":\"\u{1F600}\"},\"finish_reason\":\"tool_calls\"}]}\n\ndata: {\"choices\":[],\"usage\":\
            {\"prompt_tokens\":10,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n",
        format: "openai_chat",
        stop: "tool_calls",
        counts: [1, 0, 10, 5],
    },
    Answer {
        path: "/openai/v1/responses",
        head: SSE,
        body: "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\
            \"item\":{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"call_1\",\"name\":\"ls\"}}\n\n\
            data: {\"type\":\"response.output_item.added\",\"output_index\":1,\"item\":{\"type\":\"web_search_call\"}}\n\n\
            data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":10,\
            \"output_tokens\":5}}}\n\n",
        format: "openai_responses",
        stop: "completed",
        counts: [1, 1, 10, 5],
    },
    Answer {
        path: "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
        head: SSE,
        body: "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"ls\",\"args\":{}}}]}}]}\r\n\r\n\
            data: {\"candidates\":[{\"content\":{\"parts\":[{\"executableCode\":{}}]},\"finishReason\":\"STOP\"}],\
            \"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":5}}\r\n\r\n",
        format: "gemini",
        stop: "stop",
        counts: [1, 1, 10, 5],
    },
    Answer {
        path: "/gemini/v1beta/models/m:streamGenerateContent",
        head: JSON,
        body: "[{\"candidates\": [{\"content\": {\"parts\": [{\"functionCall\": {\"name\": \"l\\\"]}s\"}}]}}]}\n,\r\n\
            {\"candidates\": [{\"finishReason\": \"MAX_TOKENS\"}], \"usageMetadata\": {\"promptTokenCount\": 10,\
            \"candidatesTokenCount\": 5}}\n]",
        format: "gemini",
        stop: "max_tokens",
        counts: [1, 0, 10, 5],
    },
];

/// Returns the counter with this name and these labels.
fn counter(app: &App, name: &str, labels: &str) -> usize {
    let page = app.telemetry.encode_metrics();
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    let start = format!("antiphon_{name}_total{labels} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |count| count.parse().unwrap())
}

/// Waits until a counter reaches `wanted`. The exchange is recorded after the last byte.
pub(super) async fn counts(app: &App, name: &str, labels: &str, wanted: usize) {
    for _ in 0..500 {
        if counter(app, name, labels) == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(counter(app, name, labels), wanted, "{name} {labels}");
}

#[tokio::test]
async fn streams_cut_at_every_byte_are_unchanged_and_counted() {
    for answer in ANSWERS {
        let body = answer.body;
        let (cuts, upstream) = Upstream::cut_where_requested(answer.head, body).await;
        let app = before(upstream.address).start().await;
        let mut client = app.client().await;
        for cut in 0..=body.len() {
            cuts.send(cut).unwrap();
            client.send(post(answer.path, "{\"stream\":true}")).await;
            let got = client.response().await;
            assert!(got.complete);
            assert_eq!(got.body, body.as_bytes(), "{} cut at {cut}", answer.path);
        }
        let (rounds, format) = (body.len() + 1, format!("format=\"{}\"", answer.format));
        let end = format!("{format},stop=\"{}\"", answer.stop);
        counts(&app, "stream_ends", &end, rounds).await;
        counts(&app, "stream_ends", &format!("{format},stop=\"none\""), 0).await;
        let [calls, tools, input, output] = answer.counts.map(|count| count * rounds);
        counts(&app, "calls_emitted", &format, calls).await;
        counts(&app, "server_tools", &format, tools).await;
        counts(&app, "tokens", &format!("{format},direction=\"input\""), input).await;
        counts(&app, "tokens", &format!("{format},direction=\"output\""), output).await;
    }
}

/// Returns an app whose provider always gives this answer.
async fn with_answer(answer: String) -> (Upstream, App) {
    let upstream = Upstream::script(move |mut conn, _| {
        let answer = answer.clone();
        async move {
            conn.request().await;
            conn.send(answer).await;
        }
    })
    .await;
    let app = before(upstream.address).start().await;
    (upstream, app)
}

const ANTHROPIC: &str = "format=\"anthropic\"";
const NONE: &str = "format=\"anthropic\",stop=\"none\"";

#[tokio::test]
async fn a_stream_without_an_end_is_counted_without_a_stop() {
    let body = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\"}}\n\n";
    let whole = String::from_utf8(chunk(body)).unwrap();
    // A clean end becomes an error event, and a break stays one.
    for (end, has_event) in [("0\r\n\r\n", true), ("", false)] {
        let (_upstream, app) = with_answer(format!("{SSE}{whole}{end}")).await;
        let got = app.ask(post("/anthropic/v1/messages", "{}")).await;
        assert!(got.text().starts_with(body));
        assert!(!got.complete);
        assert_eq!(got.text().contains("event: error"), has_event);
        counts(&app, "stream_ends", NONE, 1).await;
        counts(&app, "calls_emitted", ANTHROPIC, 1).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_watching() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.send(SSE).await;
        conn.send(chunk(
            "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\"}}\n\n",
        ))
        .await;
        conn.rest().await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    client.send(post("/anthropic/v1/messages", "{}")).await;
    client.until("tool_use").await;
    drop(client);
    counts(&app, "stream_ends", NONE, 1).await;
    counts(&app, "calls_emitted", ANTHROPIC, 1).await;
}

#[tokio::test]
async fn plain_answers_are_counted_but_not_as_streams() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/streams/anthropic/whole.json");
    let body = fs::read_to_string(file).unwrap();
    let head = |status: &str, coding: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{coding}content-length: {length}\r\n\r\n{body}")
    };
    let (_upstream, app) = with_answer(head("200 OK", "")).await;
    let got = app.ask(post("/anthropic/v1/messages", "{}")).await;
    assert_eq!(got.text(), body);
    counts(&app, "calls_emitted", ANTHROPIC, 1).await;
    counts(&app, "tokens", "format=\"anthropic\",direction=\"output\"", 20).await;
    for label in antiphon::wire::watch::stop_labels(antiphon::wire::Format::Anthropic) {
        counts(&app, "stream_ends", &format!("{ANTHROPIC},stop=\"{label}\""), 0).await;
    }
    // Errors, coded answers and paths without a history are not watched.
    for (answer, path) in [
        (head("400 Bad Request", ""), "/anthropic/v1/messages"),
        (head("200 OK", "content-encoding: br\r\n"), "/anthropic/v1/messages"),
        (head("200 OK", ""), "/anthropic/v1/files"),
    ] {
        let (_upstream, app) = with_answer(answer).await;
        let got = app.ask(post(path, "{}")).await;
        assert_eq!(got.text(), body);
        counts(&app, "calls_emitted", ANTHROPIC, 0).await;
    }
}
