//! `antiphon mcp --url`: the stories of a wrapped command, with a server over HTTP, and what may go wrong on the way there.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::TcpListener,
    process::Command,
};

use super::{
    Conversation, FILM, IDS, Stage, ToyClient, await_that,
    mcp_toy_server::{EARLIER, MODERN, ToyCall, ToyManner, ToyServer},
};
use crate::support::{binary::Install, provider::Reply};

/// Servers of both versions, with both forms of answers.
const MANNERS: [ToyManner; 4] = [
    manner(false, false),
    manner(false, true),
    manner(true, false),
    manner(true, true),
];

const fn manner(is_modern: bool, streams: bool) -> ToyManner {
    ToyManner {
        is_modern,
        streams,
        speaks: false,
        call: ToyCall::Film,
    }
}

const fn calling(call: ToyCall) -> ToyManner {
    ToyManner {
        call,
        ..manner(false, false)
    }
}

/// Starts a client of a server, and greets.
async fn connect(stage: &Stage, server: &ToyServer, manner: ToyManner, flags: &[&str]) -> ToyClient {
    let mut client = start(stage, &server.url(), flags);
    if !manner.is_modern {
        greet(&mut client).await;
    }
    client
}

fn start(stage: &Stage, url: &str, flags: &[&str]) -> ToyClient {
    client_of(stage.command(&[&["--url", url], flags].concat()))
}

fn client_of(mut command: Command) -> ToyClient {
    let mut child = command.spawn().unwrap();
    ToyClient {
        stdin: child.stdin.take(),
        lines: tokio::io::AsyncBufReadExt::lines(BufReader::new(child.stdout.take().unwrap())),
        child,
    }
}

async fn greet(client: &mut ToyClient) {
    let params = json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "toy"}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": 90, "method": "initialize", "params": params}))
        .await;
    assert_eq!(client.line().await["result"]["protocolVersion"], EARLIER);
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
}

/// Sends a request as a client of this version does.
async fn request(client: &mut ToyClient, manner: ToyManner, id: u32, method: &str, mut params: Value) {
    if manner.is_modern {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    }
    client
        .send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        .await;
}

async fn call(client: &mut ToyClient, manner: ToyManner, id: u32, call_id: &str) {
    let mut params = json!({"name": "render", "arguments": {"of": "film"}, "_meta": {}});
    if !call_id.is_empty() {
        params["_meta"]["claudecode/toolUseId"] = json!(call_id);
    }
    request(client, manner, id, "tools/call", params).await;
}

/// Waits until every line before has reached the server.
async fn sync(client: &mut ToyClient, manner: ToyManner, id: u32) {
    request(client, manner, id, "ping", json!({})).await;
    assert_eq!(client.line().await["id"], id);
}

/// With `--once`, a tool of such a server runs once over wrappers, and over a restart of the proxy.
#[tokio::test]
async fn a_tool_of_a_server_with_a_url_runs_once() {
    for manner in MANNERS {
        let install = Install::new("");
        let stage = Stage::at(install.state().to_owned(), "");
        let server = ToyServer::start(manner).await;
        server.open_gate();
        for _ in 0..2 {
            let process = install.start().await;
            stage.configure(&process);
            let mut command = stage.command(&["--once", "render", "--url", &server.url()]);
            command.env_remove("ANTIPHON_SERVICE_TOKEN");
            let mut client = client_of(command);
            if !manner.is_modern {
                greet(&mut client).await;
            }
            call(&mut client, manner, 1, "").await;
            assert_eq!(client.text(1).await, FILM, "{manner:?}");
            client.leave().await;
            stage.await_no_process().await;
        }
        assert_eq!(server.runs(), 1, "{manner:?}");
    }
}

#[tokio::test]
async fn lines_become_requests_and_answers_become_lines() {
    let stage = Stage::new("http://127.0.0.1:9");
    fs::write(stage.folder.join("token"), "from a file\n").unwrap();
    for manner in MANNERS {
        let server = ToyServer::start(manner).await;
        let flags = [
            "--header",
            "Authorization=Bearer ${ANTIPHON_SERVICE_TOKEN}",
            "--header",
            "x-key=@token",
        ];
        let mut client = connect(&stage, &server, manner, &flags).await;
        request(&mut client, manner, 1, "tools/list", json!({})).await;
        assert_eq!(
            client.line().await["result"]["tools"][0]["name"],
            "render",
            "{manner:?}"
        );
        call(&mut client, manner, 2, "").await;
        server.open_gate();
        assert_eq!(client.text(2).await, FILM, "{manner:?}");
        assert_eq!(client.leave().await, (Some(0), String::new()), "{manner:?}");
        let seen = server.messages("tools/call").pop().unwrap();
        assert_eq!(seen.header("accept"), "application/json, text/event-stream");
        assert_eq!(seen.header("authorization"), "Bearer token of tools");
        assert_eq!(seen.header("x-key"), "from a file");
        let wanted = if manner.is_modern {
            [MODERN, "", "tools/call", "render", "film"]
        } else {
            [EARLIER, "session-1", "", "", ""]
        };
        let names = [
            "mcp-protocol-version",
            "mcp-session-id",
            "mcp-method",
            "mcp-name",
            "mcp-param-of",
        ];
        assert_eq!(names.map(|name| seen.header(name).to_owned()), wanted, "{manner:?}");
        let ends = server.seen().iter().filter(|seen| seen.method == "DELETE").count();
        assert_eq!(ends, usize::from(!manner.is_modern), "{manner:?}");
    }
    stage.await_no_process().await;
}

/// Blanks, escapes, order, and numbers of any form stay. Only the ends of lines between the parts of JSON go.
#[tokio::test]
async fn json_passes_as_it_came() {
    let stage = Stage::new("http://127.0.0.1:9");
    let answer = "{ \"result\" :{\"b\":1.0e5,\r\n\"a\":-0, \"b\":\"\\u00e9\\n\u{2028}\"},\n \"id\": 1 }\n";
    let server = ToyServer::start(calling(ToyCall::Raw(200, "application/json", answer))).await;
    let mut client = connect(&stage, &server, MANNERS[0], &[]).await;
    let line =
        "  {\"params\" : {\"name\":\"x\",\"n\":1.0e5,\"n\":\"\\u00e9\u{e4}\"}, \"id\" :1,\"method\":\"tools\\/call\"}";
    let stdin = client.stdin.as_mut().unwrap();
    stdin.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    let given = client.lines.next_line().await.unwrap().unwrap();
    assert_eq!(given, answer.trim_end().replace(['\r', '\n'], " "));
    assert_eq!(server.messages("tools/call")[0].raw, line);
    client.die().await;
}

/// The client is killed in a slow call, and its conversation gets the result.
#[tokio::test]
async fn a_result_of_a_server_with_a_url_reaches_its_conversation() {
    for manner in MANNERS {
        let mut conversation = Conversation::start().await;
        let stage = Stage::new(&conversation.url());
        let server = ToyServer::start(manner).await;
        let mut client = connect(&stage, &server, manner, &[]).await;
        conversation.calls(IDS[0]).await;
        call(&mut client, manner, 1, IDS[0]).await;
        await_that(|| server.runs() == 1).await;
        client.die().await;
        await_that(|| stage.files("run") == 1).await;
        server.open_gate();
        conversation.await_outstanding(1).await;
        stage.await_no_process().await;
        assert_eq!(server.dropped(), 0, "{manner:?}");
        conversation.brings(IDS[0], "the call was interrupted");
        conversation.says("go on", Reply::Text("fine".to_owned())).await;
        assert_eq!(conversation.films(), 1, "{manner:?}");
    }
}

#[tokio::test]
async fn a_call_in_a_new_process_joins_the_run_over_http() {
    for manner in [MANNERS[1], MANNERS[2]] {
        let mut conversation = Conversation::start().await;
        let stage = Stage::new(&conversation.url());
        let server = ToyServer::start(manner).await;
        let mut client = connect(&stage, &server, manner, &[]).await;
        conversation.calls(IDS[0]).await;
        call(&mut client, manner, 1, IDS[0]).await;
        await_that(|| server.runs() == 1).await;
        client.die().await;
        await_that(|| stage.files("run") == 1).await;
        // Another account is another server.
        let mut other = connect(&stage, &server, manner, &["--header", "x-account=b"]).await;
        call(&mut other, manner, 1, "").await;
        await_that(|| server.runs() == 2).await;
        let mut client = connect(&stage, &server, manner, &[]).await;
        call(&mut client, manner, 1, IDS[1]).await;
        sync(&mut client, manner, 2).await;
        server.open_gate();
        assert_eq!(client.text(1).await, FILM, "{manner:?}");
        assert_eq!(other.text(1).await, FILM, "{manner:?}");
        assert_eq!(server.runs(), 2, "{manner:?}");
        conversation.await_outstanding(0).await;
        drop(client.leave().await);
        drop(other.leave().await);
        stage.await_no_process().await;
        assert_eq!((stage.files("run"), stage.files("json")), (0, 0));
    }
}

/// A timeout keeps the server's request open, and a person's cancel reaches it, in the way of its version.
#[tokio::test]
async fn a_held_cancel_keeps_the_request_open() {
    for manner in MANNERS {
        let stage = Stage::new("http://127.0.0.1:9");
        let server = ToyServer::start(manner).await;
        let mut client = connect(&stage, &server, manner, &[]).await;
        call(&mut client, manner, 1, "").await;
        await_that(|| server.runs() == 1).await;
        client.cancel(1, "McpError: Request timed out").await;
        call(&mut client, manner, 2, "").await;
        sync(&mut client, manner, 3).await;
        let cancels = || server.messages("notifications/cancelled").len();
        assert_eq!((server.runs(), server.dropped(), cancels()), (1, 0, 0), "{manner:?}");
        client.cancel(2, "Request timed out").await;
        let params = json!({"name": "other", "_meta": {}});
        request(&mut client, manner, 4, "tools/call", params).await;
        await_that(|| server.runs() == 2).await;
        client.cancel(4, "the user pressed Escape").await;
        if manner.is_modern {
            await_that(|| server.dropped() == 1).await;
        } else {
            await_that(|| cancels() == 1).await;
        }
        call(&mut client, manner, 5, "").await;
        sync(&mut client, manner, 6).await;
        server.open_gate();
        // The answer to the cancelled request may come, where it was not given up.
        let mut line = client.line().await;
        if line["id"] == 4 {
            line = client.line().await;
        }
        assert_eq!((&line["id"], server.runs()), (&json!(5), 2), "{manner:?}");
        client.die().await;
        stage.await_no_process().await;
    }
}

#[tokio::test]
async fn an_early_answer_over_http_is_followed_by_the_result() {
    let manner = MANNERS[3];
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    let server = ToyServer::start(manner).await;
    let mut client = connect(&stage, &server, manner, &["--answer-after", "300ms"]).await;
    conversation.calls(IDS[0]).await;
    call(&mut client, manner, 1, IDS[0]).await;
    let early = client.text(1).await;
    assert!(early.contains("is still running"), "{early}");
    conversation.brings(IDS[0], &early);
    server.open_gate();
    conversation.await_outstanding(1).await;
    conversation.says("and now?", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
    drop(client.leave().await);
    stage.await_no_process().await;
}

/// A server that has started again knows no session: the handshake is repeated, and the call runs once.
#[tokio::test]
async fn a_lost_session_is_begun_anew() {
    for manner in [MANNERS[0], MANNERS[1]] {
        let stage = Stage::new("http://127.0.0.1:9");
        let server = ToyServer::start(manner).await;
        let mut client = connect(&stage, &server, manner, &[]).await;
        sync(&mut client, manner, 1).await;
        server.restart();
        server.open_gate();
        call(&mut client, manner, 2, "").await;
        assert_eq!(client.text(2).await, FILM, "{manner:?}");
        let calls: Vec<String> = server
            .messages("tools/call")
            .iter()
            .map(|seen| seen.header("mcp-session-id").to_owned())
            .collect();
        assert_eq!(calls, ["session-1", "session-2"], "{manner:?}");
        let (code, said) = client.leave().await;
        assert_eq!(
            (code, &said[..]),
            (
                Some(0),
                "antiphon: the server has ended the session: the handshake is repeated\n"
            )
        );
    }
}

/// The server's own messages come by a stream of their own, if it offers one.
#[tokio::test]
async fn messages_of_the_server_itself_reach_the_client() {
    let manner = ToyManner {
        speaks: true,
        ..MANNERS[0]
    };
    let stage = Stage::new("http://127.0.0.1:9");
    let server = ToyServer::start(manner).await;
    let mut client = connect(&stage, &server, manner, &[]).await;
    assert_eq!(client.line().await["method"], "notifications/message");
    client.die().await;
    stage.await_no_process().await;
}

const JSON: &str = "application/json";
const UNKNOWN: &str = "; the outcome of the call is unknown";

/// Answers to a call, and how the error begins and ends that the client gets.
const FAULTS: [(ToyCall, &str, &str); 12] = [
    (
        ToyCall::Raw(400, JSON, r#"{"error":{"code":-7,"message":"wrong"}}"#),
        "wrong",
        "",
    ),
    (
        ToyCall::Raw(400, JSON, r#"{"error":"wrong"}"#),
        "antiphon: the server answered HTTP 400",
        "",
    ),
    (
        ToyCall::Raw(200, JSON, r#"{"id":null,"error":{"code":-7,"message":"wrong"}}"#),
        "wrong",
        "",
    ),
    (
        ToyCall::Raw(401, JSON, "{}"),
        "antiphon: the server wants a login (HTTP 401): give its token",
        "",
    ),
    (
        ToyCall::Raw(307, JSON, ""),
        "antiphon: the server redirects (HTTP 307), which is not followed",
        "",
    ),
    (
        ToyCall::Raw(504, "text/html", "<html>"),
        "antiphon: the server answered HTTP 504",
        UNKNOWN,
    ),
    (
        ToyCall::Raw(202, JSON, ""),
        "antiphon: the server's answer is no JSON",
        UNKNOWN,
    ),
    (
        ToyCall::Raw(200, JSON, "<html>"),
        "antiphon: the server's answer is no JSON",
        UNKNOWN,
    ),
    (
        ToyCall::Raw(200, JSON, r#"{"id":9,"result":{}}"#),
        "has another id than its request",
        UNKNOWN,
    ),
    (
        ToyCall::Hangup,
        "antiphon: the connection to the server failed before its answer: closed",
        UNKNOWN,
    ),
    (
        ToyCall::Broken(""),
        "antiphon: the stream ended before the answer",
        UNKNOWN,
    ),
    (
        ToyCall::Broken("e7"),
        "antiphon: the stream ended before the answer",
        UNKNOWN,
    ),
];

/// A fault on the way to the server: the error that the client gets.
#[tokio::test]
async fn each_fault_of_a_call_is_an_error_for_that_call() {
    let stage = Stage::new("http://127.0.0.1:9");
    for (toy, begin, end) in FAULTS {
        let manner = calling(toy);
        let server = ToyServer::start(manner).await;
        let mut client = connect(&stage, &server, manner, &[]).await;
        call(&mut client, manner, 1, "").await;
        let line = client.line().await;
        let text = line["error"]["message"].as_str().unwrap_or_default();
        assert!(
            line["id"] == 1 && text.contains(begin) && text.ends_with(end),
            "{toy:?}: {line}"
        );
        // The session goes on.
        sync(&mut client, manner, 2).await;
        assert_eq!(client.leave().await, (Some(0), String::new()), "{toy:?}");
    }
    stage.await_no_process().await;
}

/// With `--once`, a call that the server has not read did not run, and may be sent again. Its own error is an end.
#[tokio::test]
async fn a_call_that_was_not_read_has_not_run() {
    let json = "application/json";
    let install = Install::new("");
    let process = install.start().await;
    let stage = Stage::at(install.state().to_owned(), "");
    stage.configure(&process);
    for (toy, runs) in [
        (ToyCall::Raw(401, json, "{}"), 2),
        (ToyCall::Raw(400, json, r#"{"error":{"code":-7,"message":"wrong"}}"#), 1),
    ] {
        let manner = calling(toy);
        let server = ToyServer::start(manner).await;
        let url = server.url();
        let flags = ["--url", &url, "--once", "render", "--tier", "render=one_way"];
        let mut command = stage.command(&flags);
        command.env_remove("ANTIPHON_SERVICE_TOKEN");
        let mut client = client_of(command);
        greet(&mut client).await;
        for id in [1, 2] {
            call(&mut client, manner, id, "").await;
            let line = client.line().await;
            assert!(line["id"] == id && line["error"].is_object(), "{toy:?}: {line}");
        }
        assert_eq!(server.runs(), runs, "{toy:?}");
        drop(client.leave().await);
    }
    stage.await_no_process().await;
}

#[tokio::test]
async fn a_broken_stream_is_resumed() {
    let manner = calling(ToyCall::Resumed("e7"));
    let stage = Stage::new("http://127.0.0.1:9");
    let server = ToyServer::start(manner).await;
    let mut client = connect(&stage, &server, manner, &[]).await;
    call(&mut client, manner, 1, "").await;
    assert_eq!((client.text(1).await, server.runs()), (FILM.to_owned(), 1));
    drop(client.leave().await);
}

/// More calls than may be open wait, and hold back nothing else.
#[tokio::test]
async fn a_crowd_of_calls_waits_for_its_turn() {
    let manner = MANNERS[0];
    let stage = Stage::new("http://127.0.0.1:9");
    let server = ToyServer::start(manner).await;
    let mut client = connect(&stage, &server, manner, &[]).await;
    for id in 100..400 {
        call(&mut client, manner, id, "").await;
    }
    await_that(|| server.runs() == 256).await;
    sync(&mut client, manner, 1).await;
    assert_eq!(server.runs(), 256);
    server.open_gate();
    let mut ids = BTreeSet::new();
    while ids.len() < 300 {
        let line = client.line().await;
        assert_eq!(line["result"]["content"][0]["text"], FILM, "{line}");
        ids.insert(line["id"].as_u64());
    }
    client.die().await;
    stage.await_no_process().await;
}

/// Ended by a person, or after the time of `--linger`, a run leaves no process and no session.
#[tokio::test]
async fn runs_over_http_are_stopped() {
    for (flags, is_stopped) in [(&["--linger", "300ms"][..], false), (&[], true)] {
        let manner = MANNERS[1];
        let stage = Stage::new("http://127.0.0.1:9");
        let server = ToyServer::start(manner).await;
        let mut client = connect(&stage, &server, manner, flags).await;
        call(&mut client, manner, 1, "").await;
        await_that(|| server.runs() == 1).await;
        client.die().await;
        if is_stopped {
            await_that(|| stage.files("run") == 1).await;
            assert_eq!(stage.run(&["stop"], b"").await.1, "1 stopped\n");
        }
        stage.await_no_process().await;
        assert_eq!((stage.files("run"), stage.files("json")), (0, 0));
        assert_eq!(server.seen().last().unwrap().method, "DELETE");
    }
}

/// Without the name of its call, a run whose connection ends has nothing that a retry could get.
#[tokio::test]
async fn a_lost_run_is_not_kept_for_a_retry() {
    let manner = MANNERS[1];
    let stage = Stage::new("http://127.0.0.1:9");
    let server = ToyServer::start(manner).await;
    let mut client = connect(&stage, &server, manner, &[]).await;
    call(&mut client, manner, 1, "").await;
    await_that(|| server.runs() == 1).await;
    client.cancel(1, "Request timed out").await;
    sync(&mut client, manner, 2).await;
    server.cut();
    await_that(|| stage.files("run") == 0).await;
    let (_, said) = client.leave().await;
    assert!(said.contains("its outcome is unknown"), "{said}");
    stage.await_no_process().await;
    assert_eq!(stage.files("json"), 0);
}

/// A run that nobody waits for, and whose connection ends, has an outcome that nobody knows.
#[tokio::test]
async fn a_lost_run_is_told_to_its_conversation() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    let manner = MANNERS[1];
    let server = ToyServer::start(manner).await;
    let mut client = connect(&stage, &server, manner, &[]).await;
    conversation.calls(IDS[0]).await;
    call(&mut client, manner, 1, IDS[0]).await;
    await_that(|| server.runs() == 1).await;
    client.die().await;
    await_that(|| stage.files("run") == 1).await;
    server.cut();
    conversation.await_outstanding(1).await;
    stage.await_no_process().await;
    conversation.brings(IDS[0], "the call was interrupted");
    conversation.says("go on", Reply::Text("fine".to_owned())).await;
    let body = String::from_utf8_lossy(&conversation.provider.last().body).into_owned();
    assert!(body.contains("the outcome is unknown"), "{body}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let server = ToyServer::start(MANNERS[0]).await;
    let stage = Stage::new("http://127.0.0.1:9");
    for (url, wanted) in [
        (
            format!("http://{closed}/"),
            "antiphon: cannot connect to the server: refused",
        ),
        (
            server.url().replace("http:", "https:"),
            "antiphon: the TLS handshake with the server failed: not_tls",
        ),
    ] {
        let mut client = start(&stage, &url, &[]);
        client
            .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}))
            .await;
        let line = client.line().await;
        assert_eq!(
            (&line["id"], &line["error"]["message"]),
            (&json!(1), &json!(wanted)),
            "{url}"
        );
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/x"}))
            .await;
        let (code, said) = client.leave().await;
        let noted = format!(
            "antiphon: the server did not take a message of the client: {}\n",
            wanted.strip_prefix("antiphon: ").unwrap()
        );
        assert_eq!((code, said), (Some(0), noted), "{url}");
    }
    stage.await_no_process().await;
}

#[tokio::test]
async fn wrong_flags_are_refused_without_their_values() {
    let stage = Stage::new("http://127.0.0.1:9");
    let url = "https://mcp.example/";
    for (wrong, wanted) in [
        (&["--url", url, "--", "cat"][..], "cannot be used with"),
        (
            &["--header", "a=sk-secret", "--", "cat"],
            "antiphon: --header is for a server with --url",
        ),
        (
            &["--url", "https://u:sk-secret@mcp.example/"],
            "antiphon: --url: expected",
        ),
        (
            &["--url", url, "--header", "sk-secret"],
            "antiphon: --header: expected NAME=VALUE",
        ),
        (
            &["--url", url, "--header", "x=${NO_SUCH_VARIABLE}"],
            "the variable NO_SUCH_VARIABLE is not set",
        ),
        (
            &["--url", url, "--header", "x=@sk-secret"],
            "antiphon: --header x: cannot read the file",
        ),
    ] {
        let (code, out, err) = stage.run(wrong, b"").await;
        assert!(
            code == Some(2) && out.is_empty() && err.contains(wanted) && !err.contains("sk-secret"),
            "{wrong:?} {code:?} {err}"
        );
    }
    let (code, out, err) = stage.run(&["--url", "http://mcp.example:1/"], b"noise\n\n").await;
    assert_eq!((code, &out[..]), (Some(0), ""));
    assert!(
        err.contains("unencrypted") && err.contains("a line of the client that is no message was not sent"),
        "{err}"
    );
    stage.await_no_process().await;
}
