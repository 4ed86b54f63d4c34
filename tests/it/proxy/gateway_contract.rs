//! Anthropic's demands on a gateway for Claude Code, as `docs/claude-code-gateway.md` lists them: each is a row.

use antiphon::provider::ProviderKind;

use crate::support::{
    app::{Builder, before, request_with},
    wire::Upstream,
};

/// The prefix under which the upstream is reached.
const PREFIX: &str = "/x";
const DOCUMENT: &str = include_str!("../../../docs/claude-code-gateway.md");

/// One promise: a request and an answer that must arrive as they are.
struct Promise {
    name: &'static str,
    kind: ProviderKind,
    method: &'static str,
    path: &'static str,
    /// Headers that must reach the provider, each in one line.
    fields: &'static [(&'static str, &'static str)],
    body: &'static str,
    status: u16,
    /// Headers that must reach the client.
    answered: &'static [(&'static str, &'static str)],
    answer: &'static str,
}

/// A body as Claude Code sends it, in odd writing, with the block that names its version and a field nobody knows.
const BODY: &str = r#"{ "model":"claude-sonnet-4-6" ,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.332; cch=00000;"},{"type":"text","text":"You are Claude Code.\u003cscript\u003e"}],"messages":[{"role":"user","content":"<script>alert(1)</script>"}],"tools":[],"max_tokens":128000,"new_field":{"a":1.50},"stream":true}"#;
const OK: &str = "{}";
const OF_CLAUDE_CODE: &[(&str, &str)] = &[
    (
        "anthropic-beta",
        "claude-code-20250219,interleaved-thinking-2025-05-14,never-heard-of-2030-01-01",
    ),
    ("anthropic-version", "2023-06-01"),
    ("x-claude-code-session-id", "c66718c0-24ae-4f6a-b9cc-a0dbed1b0338"),
    ("x-app", "cli"),
    ("user-agent", "claude-cli/2.1.332 (external, sdk-cli)"),
    ("x-stainless-retry-count", "0"),
    ("x-api-key", "sk-test"),
];

const BASE: Promise = Promise {
    name: "messages",
    kind: ProviderKind::Anthropic,
    method: "POST",
    path: "/v1/messages?beta=true",
    fields: OF_CLAUDE_CODE,
    body: BODY,
    status: 200,
    answered: &[("request-id", "req_1"), ("anthropic-ratelimit-tokens-remaining", "7")],
    answer: OK,
};

const REFUSED: &str = r#"{"type":"error", "error":{"type":"invalid_request_error","message":"tools.3.custom.defer_loading: Extra inputs are not permitted"},"request_id":"req_1"}"#;
const CAPABILITY: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Invalid request parameters (capability_rejected: thinking_signature)"}}"#;
const LIMITED: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit"}}"#;
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
const OF_VERTEX: &str =
    r#"{"anthropic_version":"vertex-2023-10-16","messages":[{"role":"user","content":"Hi"}],"max_tokens":9}"#;
const OF_BEDROCK: &str = r#"{"anthropic_beta":["never-heard-of-2030-01-01"],"anthropic_version":"bedrock-2023-05-31","messages":[{"role":"user","content":"Hi"}],"max_tokens":9}"#;

/// Every promise that is about one request and its answer.
const PROMISES: &[Promise] = &[
    BASE,
    Promise {
        name: "count_tokens",
        path: "/v1/messages/count_tokens?beta=true",
        ..BASE
    },
    Promise {
        name: "bedrock",
        kind: ProviderKind::Bedrock,
        path: "/model/us.anthropic.claude-sonnet-4-6/invoke",
        body: OF_BEDROCK,
        ..BASE
    },
    Promise {
        name: "vertex",
        kind: ProviderKind::Vertex,
        path: "/v1/projects/p/locations/l/publishers/anthropic/models/claude-sonnet-4-6:rawPredict",
        body: OF_VERTEX,
        ..BASE
    },
    Promise {
        name: "vertex_count",
        kind: ProviderKind::Vertex,
        path: "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
        body: OF_VERTEX,
        ..BASE
    },
    Promise {
        name: "workspace",
        fields: &[
            ("anthropic-workspace-id", "wrkspc_1"),
            ("anthropic-version", "2023-06-01"),
        ],
        ..BASE
    },
    Promise {
        name: "bearer",
        fields: &[("authorization", "Bearer sk-test")],
        ..BASE
    },
    Promise {
        name: "models",
        method: "GET",
        path: "/v1/models?limit=1000",
        body: "",
        answer: r#"{"data":[{"id":"claude-sonnet-4-6","display_name":"Sonnet"}]}"#,
        ..BASE
    },
    Promise {
        name: "probe",
        method: "HEAD",
        path: "/",
        body: "",
        answer: "",
        ..BASE
    },
    Promise {
        name: "refusal",
        status: 400,
        answer: REFUSED,
        ..BASE
    },
    Promise {
        name: "capability",
        status: 400,
        answer: CAPABILITY,
        ..BASE
    },
    Promise {
        name: "rate_limit",
        status: 429,
        answered: &[
            ("retry-after", "17"),
            ("anthropic-ratelimit-unified-reset", "1790000000"),
        ],
        answer: LIMITED,
        ..BASE
    },
    Promise {
        name: "overloaded",
        status: 529,
        answered: &[("x-should-retry", "true")],
        answer: OVERLOADED,
        ..BASE
    },
];

#[tokio::test]
async fn each_request_and_answer_arrives_as_it_is() {
    for promise in PROMISES {
        let Promise {
            name,
            status,
            body,
            answer,
            ..
        } = *promise;
        let fields: Vec<String> = promise
            .answered
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = answer.len();
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{}content-length: {length}\r\n\r\n",
            fields.concat()
        );
        let upstream = Upstream::answering([head.as_bytes(), answer.as_bytes()].concat()).await;
        let one = |builder: &mut Builder| {
            builder.upstreams.truncate(1);
            builder.upstreams[0].name.replace_range(.., "x");
            builder.upstreams[0].kind = promise.kind;
        };
        let app = before(upstream.address).with(one).start().await;
        let path = format!("{PREFIX}{}", promise.path);
        let mut client = app.client().await;
        client
            .send(request_with(promise.method, &path, promise.fields, body.as_bytes()))
            .await;
        let got = client.response().await;
        assert_eq!((got.status(), got.text()), (status, answer), "{name}");
        for (field, value) in promise.answered {
            assert_eq!(got.all(field), [*value], "{name}: {field}");
        }
        let [sent] = &upstream.requests()[..] else {
            panic!("{name}: {} requests", upstream.requests().len())
        };
        assert_eq!(
            sent.line(),
            format!("{} {} HTTP/1.1", promise.method, promise.path),
            "{name}"
        );
        assert_eq!(String::from_utf8_lossy(&sent.body), body, "{name}");
        for (field, value) in promise.fields {
            assert_eq!(sent.all(field), [*value], "{name}: {field}");
        }
    }
}

#[tokio::test]
async fn events_arrive_before_the_stream_ends() {
    let upstream = Upstream::script(|mut conn, _| async move {
        conn.request().await;
        conn.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        conn.send("1b\r\nevent: ping\ndata: {\"a\":1}\n\n\r\n").await;
        // The rest never comes.
        conn.rest().await;
    })
    .await;
    let app = before(upstream.address).start().await;
    let mut client = app.client().await;
    let path = "/anthropic/v1/messages?beta=true";
    client
        .send(request_with("POST", path, OF_CLAUDE_CODE, BODY.as_bytes()))
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.chunk().await, b"event: ping\ndata: {\"a\":1}\n\n");
}

/// The document names each promise, and only those that are tested.
#[test]
fn the_document_lists_the_promises() {
    let mut tested: Vec<&str> = PROMISES.iter().map(|promise| promise.name).collect();
    tested.push("events_arrive_before_the_stream_ends");
    for name in &tested {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "{name} is not in the document");
    }
    let is_row = |line: &&str| line.starts_with("| ") && !line.contains("Anthropic asks");
    let contract = DOCUMENT.split("## What Claude Code does").next().unwrap();
    for line in contract.lines().filter(is_row) {
        let column = line.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap();
        let named = column.split('`').skip(1).step_by(2);
        let of_table: Vec<&str> = named
            .filter(|name| !name.contains("author") && !name.contains(".rs"))
            .collect();
        assert!(!of_table.is_empty(), "{line}");
        assert!(of_table.iter().all(|name| tested.contains(name)), "{line}");
    }
}
