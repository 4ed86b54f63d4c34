//! Errors of other vendors' servers through the proxy: the client gets the sentence of the format's author behind them.

use std::{
    io::Write as _,
    sync::{Arc, Mutex},
};

use antiphon::{
    policy::{Class, Observation, ProviderErrorInfo, VerdictScope, classify},
    provider::ProviderKind,
    refusals::RefusalReader,
    repair::Mode,
    wire::{ErrorMeaning, REFUSAL_BYTES_MAX, TokenCounts},
};
use serde_json::{Value, json};

use crate::support::{
    app::{App, Builder, before, gzipped, post, post_with},
    pool::strangers,
    provider::{Provider, Reply},
    refusals::{ROWS, TABLE},
    wire::{Message, Upstream},
};

const MESSAGES: &str = "/x/v1/messages";
const CHAT: &str = "/x/v1/chat/completions";
const HEADER: &str = "x-antiphon-explained";
const VLLM: &str = "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 \
                    in the messages, 8192 in the completion). Please reduce the length of the messages or completion.";
const OF_ANTHROPIC: &str = "input length and `max_tokens` exceed context limit: 122942 + 8192 > 131072, decrease input \
                            length or `max_tokens` and try again";

/// A server whose answer tests change, also as the proxy of a tunnel to any host.
struct Scripted {
    upstream: Upstream,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Scripted {
    async fn start() -> Self {
        let answer: Arc<Mutex<Vec<u8>>> = Arc::default();
        let given = Arc::clone(&answer);
        let upstream = Upstream::script(move |mut conn, _| {
            let given = Arc::clone(&given);
            async move {
                while conn.is_open().await {
                    let request = conn.request().await;
                    if request.line().starts_with("CONNECT ") {
                        conn.send("HTTP/1.1 200 Connection established\r\n\r\n").await;
                        continue;
                    }
                    let answer = given.lock().unwrap().clone();
                    conn.send(answer).await;
                }
            }
        })
        .await;
        Self { upstream, answer }
    }

    /// Answers with this status and body from now on.
    fn say(&self, status: u16, fields: &str, body: &[u8]) {
        let mut answer = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.write_all(body).unwrap();
        *self.answer.lock().unwrap() = answer;
    }

    /// Starts a proxy before this server, under `/x`. With a host, the server is reached as that host.
    async fn proxy(&self, host: Option<&str>, change: impl FnOnce(&mut Builder)) -> App {
        let address = self.upstream.address;
        let one = |builder: &mut Builder| {
            builder.upstreams.truncate(1);
            let upstream = &mut builder.upstreams[0];
            upstream.name.replace_range(.., "x");
            if let Some(host) = host {
                upstream.authority = format!("{host}:80").parse().unwrap();
                upstream.kind = ProviderKind::infer_kind("", host);
                builder.upstream.proxies.http = Some(format!("http://{address}"));
            }
            change(builder);
        };
        before(address).with(one).start().await
    }
}

/// Returns a request with 30 tools, `tool_0` to `tool_29`, of the format of the path.
fn request(path: &str) -> String {
    let names = (0..30).map(|index| format!("tool_{index}"));
    let tools: Vec<Value> = if path == CHAT {
        names
            .map(|name| json!({"type": "function", "function": {"name": name}}))
            .collect()
    } else {
        names
            .map(|name| json!({"name": name, "input_schema": {"type": "object"}}))
            .collect()
    };
    let body =
        json!({"model": "m", "max_tokens": 8192, "tools": tools, "messages": [{"role": "user", "content": "Hi"}]});
    post(path, &body.to_string())
}

fn error(text: &str) -> String {
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}}).to_string()
}

fn message_of(answer: &Message) -> String {
    answer.json()["error"]["message"].as_str().unwrap().to_owned()
}

/// Each row is explained where its server is another vendor's, and relayed byte for byte where it is the author's.
#[tokio::test]
async fn rows_are_explained_unless_the_server_is_the_author() {
    let server = Scripted::start().await;
    let (foreign, author) = (
        server.proxy(None, |_| {}).await,
        server.proxy(Some("api.anthropic.com"), |_| {}).await,
    );
    let mut explained = 0;
    for row in ROWS
        .iter()
        .filter(|row| matches!(row.fault.as_str(), "overflow" | "bad_tool"))
    {
        for example in &row.example {
            let body = error(&example.text);
            server.say(row.status[0], "", body.as_bytes());
            let relayed = author.ask(request(MESSAGES)).await;
            assert_eq!((relayed.status(), relayed.text()), (row.status[0], body.as_str()));
            assert_eq!(relayed.header(HEADER), None, "{}", row.name);
            let answer = foreign.ask(request(MESSAGES)).await;
            assert_eq!(
                (answer.status(), answer.header("x-antiphon-attempts")),
                (row.status[0], Some("1"))
            );
            // Anthropic's own words need no others.
            if row.name == "prompt_is_too_long" {
                assert_eq!((answer.text(), answer.header(HEADER)), (body.as_str(), None));
                continue;
            }
            // Nothing tells that the prompt is the long part.
            let is_for_answer = matches!(
                TABLE.read(body.as_bytes()).unwrap().meaning,
                Some(ErrorMeaning::Overflow(TokenCounts { prompt: None, total: None, output: Some(output), limit: Some(limit) }))
                    if output > limit / 2
            );
            if is_for_answer {
                assert_eq!((answer.text(), answer.header(HEADER)), (body.as_str(), None));
                continue;
            }
            assert_eq!(answer.header(HEADER), Some(row.name.as_str()), "{}", example.text);
            let message = message_of(&answer);
            let sentence = message
                .strip_prefix(&example.text)
                .unwrap_or_else(|| panic!("{message}"));
            let wanted = match TABLE.read(body.as_bytes()).unwrap().meaning.unwrap() {
                ErrorMeaning::Overflow(_) => " (prompt is too long".to_owned(),
                ErrorMeaning::BadTool(index) => format!(" (tools[{index}] is \"tool_{index}\")"),
            };
            let other = " (input length and `max_tokens` exceed context limit: ";
            assert!(
                sentence.starts_with(&wanted) || sentence.starts_with(other),
                "{message}"
            );
            explained += 1;
        }
    }
    assert!(explained >= 30, "{explained}");
}

/// A host, a path, and `true` if the host is of the format's author or its cloud.
const HOSTS: &[(&str, &str, bool)] = &[
    ("api.anthropic.com", MESSAGES, true),
    (
        "us-east5-aiplatform.googleapis.com",
        "/x/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict",
        true,
    ),
    (
        "bedrock-runtime.us-east-1.amazonaws.com",
        "/x/model/anthropic.m/invoke",
        true,
    ),
    ("r.services.ai.azure.com", "/x/anthropic/v1/messages", true),
    ("api.anthropic.com.example.org", MESSAGES, false),
    ("openrouter.ai", MESSAGES, false),
    ("api.deepseek.com", MESSAGES, false),
    ("api.openai.com", CHAT, true),
    ("eu.api.openai.com", "/x/v1/responses", true),
    ("chatgpt.com", "/x/responses", true),
    ("r.openai.azure.com", "/x/openai/v1/chat/completions", true),
    ("api.anthropic.com", CHAT, false),
    (
        "generativelanguage.googleapis.com",
        "/x/v1beta/openai/chat/completions",
        false,
    ),
    ("api.groq.com", CHAT, false),
    (
        "generativelanguage.googleapis.com",
        "/x/v1beta/models/m:generateContent",
        true,
    ),
    ("llm.example.org", "/x/v1beta/models/m:generateContent", false),
];

#[tokio::test]
async fn the_host_decides_which_errors_are_explained() {
    let server = Scripted::start().await;
    for (host, path, is_author) in HOSTS {
        let app = server.proxy(Some(host), |_| {}).await;
        // No format's own words.
        let body = error("invalid params, context window exceeds limit (2013)");
        server.say(400, "", body.as_bytes());
        let asked = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi",
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "max_tokens": 9});
        let answer = app.ask(post(path, &asked.to_string())).await;
        assert_eq!(answer.status(), 400, "{host} {path}");
        assert_eq!(answer.header(HEADER).is_none(), *is_author, "{host} {path}");
        assert_eq!(answer.text() == body, *is_author, "{host} {path}");
    }
}

/// A change of the settings.
type Change = fn(&mut Builder);

#[tokio::test]
async fn modes_and_the_switch_decide_too() {
    let server = Scripted::start().await;
    server.say(400, "", error(VLLM).as_bytes());
    let ways: [(Change, &str, bool); 5] = [
        (|_| {}, "", true),
        (|builder| builder.upstreams[0].mode = Mode::Strict, "", true),
        (|builder| builder.upstreams[0].mode = Mode::Observe, "", false),
        (|builder| builder.proxy.explain = false, "", false),
        (|_| {}, "AWS4-HMAC-SHA256 Credential=x", false),
    ];
    for (place, (change, credential, is_explained)) in ways.into_iter().enumerate() {
        let app = server.proxy(None, change).await;
        let body = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#;
        let answer = app
            .ask(post_with(MESSAGES, &[("authorization", credential)], body.as_bytes()))
            .await;
        let wanted = if is_explained {
            format!("{VLLM} ({OF_ANTHROPIC})")
        } else {
            VLLM.to_owned()
        };
        assert_eq!(message_of(&answer), wanted, "{place}");
        assert_eq!(answer.header(HEADER).is_some(), is_explained, "{place}");
    }
}

#[tokio::test]
async fn what_cannot_be_explained_is_relayed_as_it_came() {
    let server = Scripted::start().await;
    let app = server.proxy(None, |_| {}).await;
    let known = error(VLLM);
    let padded = |length: usize| format!("{known}{}", " ".repeat(length.saturating_sub(known.len())));
    for (fields, body) in [
        ("", known.as_bytes()[..known.len() - 1].to_vec()),
        ("", format!("{known}{known}").into_bytes()),
        (
            "",
            json!({"error": {"message": VLLM}, "message": "x"})
                .to_string()
                .into_bytes(),
        ),
        ("content-encoding: gzip\r\n", gzipped(&known)),
        ("", padded(REFUSAL_BYTES_MAX + 1).into_bytes()),
        ("", error(&format!("{VLLM} See \"messages\" für mehr.")).into_bytes()),
    ] {
        server.say(400, fields, &body);
        let answer = app.ask(request(MESSAGES)).await;
        assert_eq!((answer.status(), answer.header(HEADER)), (400, None));
        assert!(answer.body == body, "{}", String::from_utf8_lossy(&answer.body));
    }
    // As large as an error may be, and with what needs an escape around it.
    server.say(400, "", padded(REFUSAL_BYTES_MAX).as_bytes());
    let answer = app.ask(request(MESSAGES)).await;
    assert!(answer.header(HEADER).is_some());
    assert_eq!(message_of(&answer), format!("{VLLM} ({OF_ANTHROPIC})"));
    let odd = json!({"ünï": "\"\\é\u{1f600}", "error": {"message": VLLM, "x": "\u{1}"}}).to_string();
    server.say(400, "", odd.as_bytes());
    let answer = app.ask(request(MESSAGES)).await;
    assert_eq!(answer.json()["ünï"], "\"\\é\u{1f600}");
    assert_eq!(
        answer.header("content-length"),
        Some(answer.body.len().to_string().as_str())
    );
}

#[tokio::test]
async fn an_overflow_in_chat_gets_its_code() {
    let server = Scripted::start().await;
    let app = server.proxy(None, |_| {}).await;
    server.say(
        400,
        "",
        json!({"object": "error", "message": VLLM, "code": 400})
            .to_string()
            .as_bytes(),
    );
    let answer = app.ask(request(CHAT)).await;
    assert_eq!(
        answer.json(),
        json!({"object": "error", "message": VLLM, "code": "context_length_exceeded"})
    );
    server.say(
        400,
        "",
        error(
            "Invalid 'tools[4].function.name': string does not match pattern. Expected a string that \
        matches the pattern '^[a-zA-Z0-9_-]+$'.",
        )
        .as_bytes(),
    );
    let answer = app.ask(request(CHAT)).await;
    assert!(message_of(&answer).ends_with(" (tools[4] is \"tool_4\")"), "{answer:?}");
}

/// With a profile, a stream that begins with an error becomes an answer, whose text is explained too.
#[tokio::test]
async fn an_error_in_the_first_event_is_explained() {
    let event = format!("event: error\ndata: {}\n\n", error(VLLM));
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{event}",
        event.len()
    );
    let server = Scripted::start().await;
    *server.answer.lock().unwrap() = answer.into_bytes();
    let app = server
        .proxy(None, |builder| {
            drop(builder.profiles.insert("x".to_owned(), strangers("ab")));
        })
        .await;
    let body = r#"{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#;
    let answer = app.ask(post(MESSAGES, body)).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(message_of(&answer), format!("{VLLM} ({OF_ANTHROPIC})"));
}

/// A text of a row is the request's fault and no key's, whatever the status.
#[test]
fn an_explained_error_blames_no_one_else() {
    let judge = |status, text: &str| {
        let error = ProviderErrorInfo::parse_body(None, error(text).as_bytes(), &RefusalReader::default());
        classify(Observation::Response {
            kind: ProviderKind::Compatible,
            status,
            error: &error,
        })
    };
    let llama = "request (24071 tokens) exceeds the available context size (8192 tokens), try increasing it";
    let schema = "tools.2.custom.input_schema: JSON schema is invalid";
    for (status, text, class) in [
        (400, llama, Class::TooLarge),
        (422, llama, Class::TooLarge),
        (500, llama, Class::TooLarge),
        (400, schema, Class::Request),
        (500, schema, Class::Request),
        // The status says more than the text.
        (429, llama, Class::RateLimit),
        (401, llama, Class::Auth),
        (
            500,
            "somebody wrote: the request exceeds the available context size",
            Class::ProviderFault,
        ),
    ] {
        let verdict = judge(status, text);
        assert_eq!(verdict.class, class, "{status} {text}");
        if matches!(class, Class::TooLarge | Class::Request) {
            assert_eq!(verdict.cooldown_reason(), None);
        }
    }
    assert_eq!(judge(500, llama).scope, VerdictScope::Client);
}

/// Learned mends are not at fault: an overflow leads to no resend without them.
#[tokio::test]
async fn an_overflow_leads_to_no_resend() {
    let provider = Provider::start().await;
    let one = |builder: &mut Builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = ProviderKind::Compatible;
    };
    let app = before(provider.address()).with(one).start().await;
    let refuse = |text: &str| provider.reply(Reply::Status(400, json!({"error": {"message": text}})));
    let body = json!({"model": "m", "messages": [{"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"}]});
    let ask = async || {
        let before = provider.seen().len();
        let answer = app.ask(post(CHAT, &body.to_string())).await;
        (answer.status(), provider.seen().len() - before)
    };
    refuse("developer is not one of ['system', 'assistant', 'user', 'tool', 'function']");
    assert_eq!(ask().await, (200, 2));
    refuse(VLLM);
    assert_eq!(ask().await, (400, 1));
    assert_eq!(ask().await, (200, 1), "what was taught stays");
}
