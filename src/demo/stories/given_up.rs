//! A client gives up a tool of an MCP server, and ends. The run goes on, and its result reaches the conversation.

use std::{env, io, path::Path, process::Stdio, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::{sleep, timeout},
};

use super::{messages, send_with, send_without, user};
use crate::{
    demo::{
        client::{Answer, Ask},
        setup::CLIENTS,
        stage::Stage,
        toy_server::REPORT,
    },
    wire::Format,
};

pub(super) const KEY: &str = "demo-report";
const CALL: &str = "toolu_01Rprt6yH8uJ2kL4zX9c";
const TOOL: &str = "report";
/// The arguments that make this program the toy server.
const TOY_SERVER: [&str; 2] = ["demo", "--toy-server"];
/// The result that the client invents.
const TIMED_OUT: &str = "MCP error -32001: Request timed out";
/// Time that the client waits for its tool.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time for the program to end after its client.
const END_TIME: Duration = Duration::from_secs(10);
/// Most bytes that the client reads.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Number of looks for the posted result, and the pause between them.
const TRIES: usize = 500;
const AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.open_story(
        "7. The client gives up a tool of an MCP server",
        "anthropics/claude-code#22542",
        "A report takes longer than the client waits. The client ends, and its user comes back later.",
    )?;
    let program = env::current_exe()?;
    let mut direct = GivenUpLog::new(false);
    let said = direct.give_up(stage, server(&program)).await?;
    let (answer, count) = direct.ask_again(stage).await?;
    let failed = answer.status == StatusCode::OK && count == 0 && !said.contains(REPORT);
    let words = format!(
        "The server ends with its client, and the report is lost: the next request contains {}.",
        times(count)
    );
    stage.tell.without(answer.status.as_str(), &words)?;

    let mut wrapped = GivenUpLog::new(true);
    wrapped.give_up(stage, wrapped_server(stage, &program)).await?;
    let is_posted = wrapped.await_post(stage).await?;
    let (answer, count) = wrapped.ask_again(stage).await?;
    let words = format!(
        "antiphon mcp lets the run go on, and posts its result: the next request contains {}.",
        times(count)
    );
    stage.tell.with(answer.status.as_str(), &words)?;
    let source = source_of_post(stage).await?;
    stage
        .tell
        .add_detail(&format!("The dashboard says where it came from: {source}"))?;
    stage.count_story(failed, is_posted && answer.status == StatusCode::OK && count == 1);
    Ok(())
}

fn times(count: usize) -> String {
    match count {
        0 => "nothing of it".to_owned(),
        1 => format!("{REPORT:?} once"),
        count => format!("{REPORT:?} {count} times"),
    }
}

/// The conversation of a client.
struct GivenUpLog {
    /// `true` if its requests go through the proxy.
    is_through: bool,
    messages: Vec<Value>,
}

impl GivenUpLog {
    const fn new(is_through: bool) -> Self {
        Self {
            is_through,
            messages: Vec::new(),
        }
    }

    /// Sends a message, and appends the answer.
    async fn send(&mut self, stage: &Stage, message: Value) -> io::Result<Answer> {
        self.messages.push(message);
        let body = messages(&self.messages);
        let answer = if self.is_through {
            send_with(stage, Format::Anthropic, &headers(stage), &body).await?
        } else {
            send_without(stage, Format::Anthropic, &[("x-api-key", KEY)], &body).await?
        };
        self.messages
            .push(json!({"role": "assistant", "content": answer.json()["content"]}));
        Ok(answer)
    }

    /// Lets the model call the tool of `program`, and tells it of the timeout. Returns what the program has said.
    async fn give_up(&mut self, stage: &Stage, program: Command) -> io::Result<String> {
        let call = ToolCall::new(CALL, TOOL, json!({"year": 2026}));
        stage.provider.reply_to(KEY, Reply::Calls(vec![call]));
        self.send(stage, user("Write the report.")).await?;
        let said = call_tool(program).await?;
        let result = json!({"type": "tool_result", "tool_use_id": CALL, "content": TIMED_OUT, "is_error": true});
        self.send(stage, json!({"role": "user", "content": [result]})).await?;
        Ok(said)
    }

    /// Sends the next message of the user. Returns the answer, and how often the provider has received the report.
    async fn ask_again(&mut self, stage: &Stage) -> io::Result<(Answer, usize)> {
        let answer = self.send(stage, user("Is the report ready?")).await?;
        let body = stage.provider.last_body(KEY);
        let count = String::from_utf8_lossy(&body).matches(REPORT).count();
        Ok((answer, count))
    }

    /// Waits until the proxy has the result. Returns `false` if it never comes.
    async fn await_post(&self, stage: &Stage) -> io::Result<bool> {
        let headers = headers(stage);
        for _ in 0..TRIES {
            let ask = Ask {
                headers: &headers,
                ..Ask::get(stage.proxy_at, "/ledger/v1/outstanding")
            };
            let waiting = ask.send().await?.json();
            let mut rows = waiting["outstanding"].as_array().into_iter().flatten();
            if rows.any(|row| row["call_id"] == CALL) {
                return Ok(true);
            }
            sleep(AGAIN).await;
        }
        Ok(false)
    }
}

fn headers(stage: &Stage) -> [(&str, &str); 3] {
    [
        ("x-api-key", KEY),
        ("x-antiphon-client-token", stage.tokens.of_client(CLIENTS[1])),
        ("x-antiphon-session", "report"),
    ]
}

/// Returns the command of the server, as a client would start it.
fn server(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(TOY_SERVER);
    command
}

/// Returns the command of the server behind `antiphon mcp`.
fn wrapped_server(stage: &Stage, program: &Path) -> Command {
    let mut command = Command::new(program);
    let [proxy, token] = stage.wrapper_variables;
    // Without other variables it knows no folder of the user, and leaves no file behind.
    command
        .env_clear()
        .env(proxy, format!("http://{}", stage.proxy_at))
        .env(token, &stage.tokens.wrapper)
        .args(["mcp", "--linger", "30s", "--"])
        .arg(program)
        .args(TOY_SERVER);
    command
}

/// Calls the tool as a client that gives it up, and then ends. Returns what it has read.
async fn call_tool(mut program: Command) -> io::Result<String> {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let client = json!({"name": "demo", "version": "1"});
    let greeting = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    // Claude Code names the call in this way.
    let call = json!({"name": TOOL, "arguments": {"year": 2026}, "_meta": {"claudecode/toolUseId": CALL}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}),
    ] {
        // A program that has ended reads nothing, which the outcome of the story shows.
        drop(stdin.write_all(format!("{message}\n").as_bytes()).await);
    }
    sleep(PATIENCE).await;
    let why = json!({"requestId": 1, "reason": TIMED_OUT});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": why});
    drop(stdin.write_all(format!("{cancel}\n").as_bytes()).await);
    drop(stdin);
    let mut said = String::new();
    let mut output = stdout.take(OUTPUT_BYTES_MAX);
    let ended = async {
        output.read_to_string(&mut said).await?;
        child.wait().await
    };
    timeout(END_TIME, ended).await.map_err(io::Error::from)??;
    Ok(said)
}

/// Returns the source of the result, as the dashboard shows it.
async fn source_of_post(stage: &Stage) -> io::Result<String> {
    let late = Ask::get(stage.admin_at, "/admin/v1/late").send().await?.json();
    let mut events = late["recent"].as_array().into_iter().flatten();
    let source = events.find_map(|event| event["source"].as_str().filter(|_| event["call_id"] == CALL));
    Ok(source.unwrap_or("-").to_owned())
}
