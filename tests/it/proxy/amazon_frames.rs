//! Bedrock's binary event streams: they are relayed unchanged, watched while they pass, and never ended by an event of
//! the proxy.

use antiphon::{
    provider::{ProviderKind, Upstream as Configured},
    repair::Mode,
};
use serde_json::json;
use strict_provider::frames::{chunk_frame, exception_frame};

use super::answer_watching::counts;
use crate::support::{
    app::{Builder, before, post},
    pool,
    wire::{Upstream, chunk},
};

const PATH: &str = "/bedrock/model/anthropic.claude/invoke-with-response-stream";
const BODY: &str =
    r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[{"role":"user","content":"go"}]}"#;
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Returns an app whose upstream `bedrock` is this one.
fn bedrock(upstream: &Upstream) -> Builder {
    before(upstream.address).with(|builder| {
        builder.upstreams.push(Configured {
            name: "bedrock".to_owned(),
            kind: ProviderKind::Bedrock,
            mode: Mode::Repair,
            ..builder.upstreams[0].clone()
        });
    })
}

fn frames(events: &[serde_json::Value]) -> Vec<Vec<u8>> {
    let frame = |event: &serde_json::Value| chunk_frame(event.to_string().as_bytes());
    events.iter().map(frame).collect()
}

/// Returns the frames of a stream with one call.
fn with_call() -> Vec<Vec<u8>> {
    let usage = json!({"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1});
    frames(&[
        json!({"type": "message_start", "message": {"id": "msg_1", "usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "ls"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 7}}),
    ])
}

/// Returns a whole chunked answer with these pieces.
fn whole<P: AsRef<[u8]>>(pieces: &[P]) -> Vec<u8> {
    [
        HEAD.as_bytes(),
        &pieces.iter().flat_map(chunk).collect::<Vec<u8>>(),
        b"0\r\n\r\n",
    ]
    .concat()
}

#[tokio::test]
async fn a_stream_of_frames_cut_at_every_byte_is_unchanged_and_counted() {
    let body = with_call().concat();
    let (cuts, upstream) = Upstream::cut_where_requested(HEAD, body.clone()).await;
    let app = bedrock(&upstream).start().await;
    let mut client = app.client().await;
    for cut in 0..=body.len() {
        cuts.send(cut).unwrap();
        client.send(post(PATH, BODY)).await;
        let got = client.response().await;
        assert!(got.complete);
        assert_eq!(got.body, body, "cut at {cut}");
    }
    let rounds = body.len() + 1;
    counts(&app, "stream_ends", "format=\"anthropic\",stop=\"tool_use\"", rounds).await;
    counts(&app, "stream_ends", "format=\"anthropic\",stop=\"none\"", 0).await;
    counts(&app, "calls_emitted", "format=\"anthropic\"", rounds).await;
    counts(&app, "tokens", "format=\"anthropic\",direction=\"input\"", 10 * rounds).await;
    counts(&app, "tokens", "format=\"anthropic\",direction=\"output\"", 5 * rounds).await;
    counts(&app, "watcher_blind", "", 0).await;
}

/// The client's connection breaks as the provider's does, and so it does if the end of the answer is missing.
#[tokio::test]
async fn a_broken_stream_of_frames_stays_broken() {
    let mut pieces = with_call();
    pieces.truncate(3);
    let body = pieces.concat();
    for end in ["", "0\r\n\r\n"] {
        let written = [HEAD.as_bytes(), &chunk(&body), end.as_bytes()].concat();
        let upstream = Upstream::script(move |mut conn, _| {
            let written = written.clone();
            async move {
                conn.request().await;
                conn.send(written).await;
            }
        })
        .await;
        let app = bedrock(&upstream).start().await;
        let got = app.ask(post(PATH, BODY)).await;
        assert_eq!((got.complete, &got.body), (false, &body), "no byte is added: {end:?}");
        counts(&app, "stream_ends", "format=\"anthropic\",stop=\"none\"", 1).await;
    }
}

/// Nothing is known of an answer behind an impossible length, so its end is the provider's.
#[tokio::test]
async fn an_impossible_length_stops_the_watcher_alone() {
    let good = with_call();
    let mut long_headers = good[1].clone();
    long_headers[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    for bad in [&[0, 0, 0, 15][..], &[0xff; 9], b"data: {}\n\n", &long_headers] {
        let body = [&good[0][..], bad, &good[1]].concat();
        let upstream = Upstream::answering(whole(&[&body])).await;
        let app = bedrock(&upstream).start().await;
        let got = app.ask(post(PATH, BODY)).await;
        assert_eq!((got.complete, &got.body), (true, &body), "{bad:?}");
        counts(&app, "watcher_blind", "", 1).await;
        counts(&app, "calls_emitted", "format=\"anthropic\"", 0).await;
    }
}

#[tokio::test]
async fn an_exception_is_the_error_of_the_answer() {
    for (name, class) in [
        ("throttlingException", "rate_limit"),
        ("serviceUnavailableException", "overloaded"),
        ("modelStreamErrorException", "provider_fault"),
        ("modelTimeoutException", "provider_timeout"),
        ("validationException", "request"),
    ] {
        let started = frames(&[
            json!({"type": "message_start", "message": {"id": "msg_1"}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ]);
        let body = [started.concat(), exception_frame(name, "words")].concat();
        let upstream = Upstream::answering(whole(&[&body])).await;
        let app = bedrock(&upstream).start().await;
        let got = app.ask(post(PATH, BODY)).await;
        assert_eq!((got.complete, &got.body), (true, &body), "{name}");
        counts(&app, "stream_ends", "format=\"anthropic\",stop=\"error\"", 1).await;
        counts(&app, "attempts", &format!("upstream=\"bedrock\",class=\"{class}\""), 1).await;
    }
}

/// With profiles of the proxy an exception before any output becomes a status, for which another profile may be tried.
#[tokio::test]
async fn an_exception_before_any_output_becomes_a_status() {
    let refused = |name, message| whole(&[exception_frame(name, message)]);
    let answers = [
        refused("validationException", "words"),
        refused("throttlingException", "Too many tokens"),
        whole(&with_call()),
    ];
    let upstream = Upstream::answering_each(answers).await;
    let app = bedrock(&upstream).with(|builder| {
        builder.profiles.insert("bedrock".to_owned(), pool::strangers("ab"));
    });
    let app = app.start().await;
    let got = app.ask(post(PATH, BODY)).await;
    assert_eq!(
        (got.status(), got.header("x-amzn-errortype")),
        (400, Some("ValidationException"))
    );
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.json(), json!({"message": "words"}));

    let got = app.ask(post(PATH, BODY)).await;
    assert_eq!((got.status(), got.body), (200, with_call().concat()));
    let keys: Vec<String> = upstream.requests().iter().map(pool::key).collect();
    assert_eq!(keys, ["a", "a", "b"]);
    counts(&app, "calls_emitted", "format=\"anthropic\"", 1).await;
}
