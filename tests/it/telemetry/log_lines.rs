//! The log line of an exchange: its level, its fields, and its short form for people.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use antiphon::{
    auth::{ClientTokens, TokenHash},
    config::VARIABLES,
    conversation::FindingKind,
    policy::Side,
    repair::{Action, BrokenCall, RepairReport},
    telemetry::{Telemetry, events::ExchangeEnded},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines as TextLines},
    process::ChildStderr,
};

use super::{
    metrics::{Lines, ended},
    traces::json as answer,
};
use crate::support::{
    app::{before, post, post_with},
    state,
    wire::{Client, Upstream},
};

/// Returns the log line of an exchange.
fn logged(event: &ExchangeEnded) -> Value {
    let (lines, _listening) = Lines::listen();
    Telemetry::default().record_exchange(event);
    serde_json::from_str(&lines.text()).unwrap()
}

/// Returns a report with one repaired call.
fn repaired(tool: &str, id: &str) -> RepairReport {
    RepairReport {
        actions: [(Action::Placeholder, 1)].into(),
        broken_calls: vec![BrokenCall {
            kind: FindingKind::Unanswered,
            tool: tool.to_owned(),
            id: id.to_owned(),
        }],
        ..RepairReport::default()
    }
}

#[test]
fn the_level_tells_failures_from_the_rest() {
    let of_side = |side: Side| ExchangeEnded {
        side: Some(side.label()),
        code: "any",
        ..ended()
    };
    let rows = [
        ("healthy", ended(), "INFO"),
        (
            "repaired",
            ExchangeEnded {
                report: Some(repaired("bash", "toolu_1")),
                ..ended()
            },
            "INFO",
        ),
        (
            "rejected",
            ExchangeEnded {
                is_rejected: true,
                side: Some("client"),
                ..ended()
            },
            "WARN",
        ),
        (
            "history refused",
            ExchangeEnded {
                is_history_refused: true,
                side: Some("client"),
                ..ended()
            },
            "WARN",
        ),
        ("client", of_side(Side::Client), "INFO"),
        ("proxy", of_side(Side::Proxy), "WARN"),
        ("network", of_side(Side::Network), "WARN"),
        ("provider", of_side(Side::Provider), "WARN"),
        ("provider's tool", of_side(Side::ProviderTool), "WARN"),
        ("provider's compaction", of_side(Side::ProviderCompaction), "WARN"),
    ];
    for (name, event, level) in rows {
        assert_eq!(logged(&event)["level"], level, "{name}");
    }
    assert_eq!(Side::ALL.len(), 6, "each side has its row");
}

#[test]
fn names_of_others_are_escaped_and_cut_in_the_log() {
    for (name, shown) in [
        ("bash", "bash"),
        ("", "-"),
        ("a b\x1b[31m\n\u{202e}c", "a\\u{20}b\\u{1b}[31m\\n\\u{202e}c"),
        (&"x".repeat(5000), &*format!("{}…{}", "x".repeat(27), "x".repeat(12))),
    ] {
        let line = logged(&ExchangeEnded {
            report: Some(repaired(name, name)),
            ..ended()
        });
        assert_eq!(line["broken_calls"], format!("unanswered {shown} {shown}"));
    }
}

/// A body with a call without its result, as `model`.
fn broken(model: &str, tool: &str, id: &str) -> String {
    json!({"model": model, "max_tokens": 9, "messages": [
        {"role": "user", "content": "canary-text"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": tool, "input": {"a": "canary-input"}}]},
        {"role": "user", "content": "canary-text"},
    ]})
    .to_string()
}

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],
    "stop_reason":"end_turn","usage":{"input_tokens":30,"output_tokens":4}}"#;
const REFUSAL: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01Aa. Each `tool_use`
    block must have a corresponding `tool_result` block in the next message."}}"#;
const OTHER_ERROR: &str =
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too large"}}"#;

/// Returns the lines of exchanges that one request to an app caused.
async fn lines_of(upstream: &Upstream, request: Vec<u8>) -> Vec<Value> {
    let token = TokenHash::hash_token(b"canary-token");
    let app = before(upstream.address)
        .with(|app| app.proxy.client_tokens = ClientTokens::new(vec![("ci".to_owned(), token)]))
        .start()
        .await;
    let (lines, _listening) = Lines::listen();
    app.ask(request).await;
    // The answer may arrive before its exchange has ended.
    while !lines.text().contains("exchange ended") {
        tokio::task::yield_now().await;
    }
    let text = lines.text();
    assert!(!text.contains("canary"), "{text}");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["target"] == "antiphon::exchange").collect()
}

#[tokio::test]
async fn a_line_names_model_client_token_lane_tokens_and_broken_calls() {
    let upstream = Upstream::answering(answer("200 OK", ANSWER)).await;
    let fields = [
        ("x-api-key", "canary-key"),
        ("x-antiphon-client-token", "canary-token"),
        ("user-agent", "claude-cli/1.0.83 (canary-comment)"),
    ];
    let body = broken("claude-sonnet-4-5", "bash", "toolu_01Aa");
    let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
    let lines = lines_of(&upstream, request).await;
    let [line] = &*lines else { panic!("{lines:?}") };
    for (key, value) in [
        ("level", json!("INFO")),
        ("model", json!("claude-sonnet-4-5")),
        ("client", json!("claude-cli/1.0.83")),
        ("client_token", json!("ci")),
        ("input_tokens", json!(30)),
        ("output_tokens", json!(4)),
        ("findings", json!(1)),
        ("repair", json!("placeholder=1")),
        ("broken_calls", json!("unanswered bash toolu_01Aa")),
        ("history_refused", Value::Null),
    ] {
        assert_eq!(line[key], value, "{key} in {line}");
    }
    assert_eq!(line["lane"].as_str().map(str::len), Some(12), "{line}");
}

#[tokio::test]
async fn a_history_that_stays_refused_is_a_warning_and_another_bad_request_is_not() {
    for (status, said, level, refused) in [
        ("400 Bad Request", REFUSAL, "WARN", json!(true)),
        ("400 Bad Request", OTHER_ERROR, "INFO", Value::Null),
        ("404 Not Found", OTHER_ERROR, "INFO", Value::Null),
        ("401 Unauthorized", OTHER_ERROR, "WARN", Value::Null),
        ("403 Forbidden", OTHER_ERROR, "WARN", Value::Null),
    ] {
        let upstream = Upstream::answering(answer(status, said)).await;
        let body = broken("m", "bash", "toolu_01Aa");
        let request = post_with("/anthropic/v1/messages", &[], body.as_bytes());
        let lines = lines_of(&upstream, request).await;
        let [line] = &*lines else { panic!("{lines:?}") };
        assert_eq!(
            (&line["level"], &line["history_refused"]),
            (&json!(level), &refused),
            "{line}"
        );
    }
}

/// The binary with the text format, in front of one upstream. It is stopped on drop.
struct TextProxy {
    child: Child,
    lines: TextLines<BufReader<ChildStderr>>,
    data: SocketAddr,
    admin: SocketAddr,
}

impl Drop for TextProxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl TextProxy {
    async fn start(upstream: SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        state::apart(&mut command);
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        command
            .args(ports)
            .args([
                "--log-format",
                "text",
                "--upstream",
                &format!("anthropic=http://{upstream}"),
            ])
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = ChildStderr::from_std(child.stderr.take().unwrap()).unwrap();
        let mut lines = BufReader::new(lines).lines();
        let mut line = String::new();
        while !line.contains(" listen=") {
            line = lines.next_line().await.unwrap().unwrap();
        }
        let address = |key: &str| {
            let rest = line.split_once(key).unwrap_or_else(|| panic!("{line}")).1;
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        let (data, admin) = (address(" listen="), address(" admin_listen="));
        Self {
            child,
            lines,
            data,
            admin,
        }
    }

    async fn ask(&self, at: SocketAddr, request: impl AsRef<[u8]>) {
        let mut client = Client::connect(at).await;
        client.send(request).await;
        client.response().await;
    }

    async fn next_line(&mut self) -> String {
        self.lines.next_line().await.unwrap().unwrap()
    }

    /// Sets the log level, and reads the line about it.
    async fn set_level(&mut self, level: &str) {
        let body = json!({ "level": level }).to_string();
        let head = "PUT /admin/v1/log-level HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        self.ask(self.admin, request).await;
        while !self.next_line().await.contains("log_level=") {}
    }
}

#[tokio::test]
async fn people_get_a_short_line_and_only_failures_if_they_want() {
    // Not an error that is retried.
    let failing = answer("401 Unauthorized", OTHER_ERROR);
    let fine = || answer("200 OK", ANSWER);
    let answers = [fine(), fine(), fine(), failing, fine()].map(String::into_bytes);
    let upstream = Upstream::answering_each(answers).await;
    let mut proxy = TextProxy::start(upstream.address).await;
    let hostile = broken(&"\u{202e}模".repeat(40), "rm\x1b[2J -rf", &"toolu_".repeat(90));
    let named = broken("claude-sonnet-4-5", "bash", "toolu_01Aa");
    let healthy = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"canary"}]}"#;
    let asked = |body: &str| post("/anthropic/v1/messages", body);

    proxy.ask(proxy.data, asked(&named)).await;
    let line = proxy.next_line().await;
    let (time, rest) = line.split_at(21);
    assert!(time.ends_with("Z ") && time.contains('T'), "{line}");
    assert!(rest.starts_with("INFO 200 anthropic claude-sonnet-4-5 "), "{line}");
    assert!(rest.contains(" ms repaired placeholder=1 (bash toolu_01Aa) "), "{line}");

    proxy.ask(proxy.data, asked(&hostile)).await;
    let line = proxy.next_line().await;
    let wide = line.chars().filter(|letter| !letter.is_ascii()).count();
    assert!(line.chars().count() + wide <= 120, "{line}");
    assert!(!line.contains(['\x1b', '\u{202e}']), "{line}");

    // As `-q` sets it.
    proxy.set_level("warn").await;
    proxy.ask(proxy.data, asked(healthy)).await;
    proxy.ask(proxy.data, asked(healthy)).await;
    let line = proxy.next_line().await;
    assert!(
        line.contains(" WARN 401 anthropic m ") && line.contains(" provider/auth "),
        "{line}"
    );

    // As `-v` sets it.
    proxy.set_level("antiphon=debug,warn").await;
    proxy.ask(proxy.data, asked(&named)).await;
    let mut line = proxy.next_line().await;
    while !line.contains("exchange ended") {
        line = proxy.next_line().await;
    }
    for field in [
        "broken_calls=\"unanswered bash toolu_01Aa\"",
        "lane=",
        "overhead_us=",
        "request_id=",
    ] {
        assert!(line.contains(field), "{field} in {line}");
    }
    assert!(!line.contains("canary"), "{line}");
}
