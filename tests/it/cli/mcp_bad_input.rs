//! `antiphon mcp` between servers and clients that misbehave, and with proxies that refuse. What passes, passes as without
//! it, and no call is lost that the server still answers.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    time::Duration,
};

use super::mcp::{FILM, Stage, await_that};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"render"}}"#;

/// A server that misbehaves: its script, what it is sent, what the client gets, and the exit code.
struct BadServer {
    name: &'static str,
    script: &'static str,
    input: String,
    output: &'static str,
    code: i32,
}

fn bad_servers() -> Vec<BadServer> {
    let row = |name, script, input: &str, output, code| BadServer {
        name,
        script,
        input: input.to_owned(),
        output,
        code,
    };
    let call = format!("{CALL}\n");
    vec![
        row(
            "dies in a line",
            r#"read -r line; printf '{"jsonrpc":"2.0","id":1,"resu'; kill -9 $$"#,
            &call,
            r#"{"jsonrpc":"2.0","id":1,"resu"#,
            137,
        ),
        row(
            "answers twice",
            r#"read -r line; printf '{"id":1,"result":{}}\n{"id":1,"result":{}}\n'"#,
            &call,
            "{\"id\":1,\"result\":{}}\n{\"id\":1,\"result\":{}}\n",
            0,
        ),
        row(
            "answers what nobody asked",
            r#"printf '{"id":"x","result":{}}\n{"id":null,"error":{}}\n'; cat >/dev/null"#,
            "",
            "{\"id\":\"x\",\"result\":{}}\n{\"id\":null,\"error\":{}}\n",
            0,
        ),
        row(
            "prints noise",
            "printf 'starting\\n\\n{\\n[1,\\n'; cat >/dev/null",
            "",
            "starting\n\n{\n[1,\n",
            0,
        ),
        row(
            "never reads",
            "echo said; exit 3",
            &"{\"method\":\"x\"}\n".repeat(200_000),
            "said\n",
            3,
        ),
        row(
            "closes its output",
            "exec >&-; cat >/dev/null; exit 4",
            "{\"method\":\"x\"}\n",
            "",
            4,
        ),
        row(
            "leaves a process behind",
            "sleep 0.2 & read -r line; echo said; exit 5",
            "{\"method\":\"x\"}\n",
            "said\n",
            5,
        ),
    ]
}

#[tokio::test]
async fn what_a_bad_server_says_passes() {
    for BadServer {
        name,
        script,
        input,
        output,
        code,
    } in bad_servers()
    {
        let stage = Stage::new("http://127.0.0.1:9");
        // The input stays open until the server has ended, unless it waits for that.
        let mut child = stage.command(&["--", "sh", "-c", script]).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let waits_for_end = script.contains("cat >/dev/null");
        let writing = tokio::spawn(async move {
            // A server that never reads breaks the pipe.
            drop(tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await);
            (!waits_for_end).then_some(stdin)
        });
        let ended = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output())
            .await
            .expect(name)
            .unwrap();
        drop(writing.await);
        let said = String::from_utf8(ended.stdout).unwrap();
        assert_eq!((ended.status.code(), &said[..]), (Some(code), output), "{name}");
        stage.await_no_process().await;
    }
}

/// Lines that no wrapper can read pass to the last byte, and so does what comes behind them.
#[tokio::test]
async fn what_a_bad_client_says_passes() {
    let long = [vec![b'x'; 65 * 1024 * 1024], b"\n{\"id\":1}\n".to_vec()].concat();
    let long_call = CALL.replace("render", &"r".repeat(9 * 1024 * 1024)).into_bytes();
    let inputs: [&[u8]; 6] = [
        b"",
        b"\n\n\r\n",
        b"\xff\xfe\x00{\"id\":1",
        b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}]",
        &long,
        &long_call,
    ];
    for input in inputs {
        let stage = Stage::new("http://127.0.0.1:9");
        let (code, out, _) = stage.run_bytes(&["--", "cat"], input).await;
        assert!(
            code == Some(0) && out == input,
            "{} of {} bytes, {code:?}",
            out.len(),
            input.len()
        );
        stage.await_no_process().await;
    }
}

/// Of 10,000 open calls each reaches the server. Those that are not watched are told of once.
#[tokio::test]
async fn a_crowd_of_calls_passes() {
    let stage = Stage::new("http://127.0.0.1:9");
    let server = r#"
while IFS= read -r line; do
  case "$line" in
    *ping*) printf '{"id":10000,"result":{}}\n' ;;
    *) echo run >> runs ;;
  esac
done"#;
    std::fs::write(stage.folder.join("toy.sh"), server).unwrap();
    let mut client = stage.wrap(&["--linger", "300ms"]);
    for id in 0..10_000 {
        let line = CALL
            .replace("\"id\":1", &format!("\"id\":{id}"))
            .replace("render", &format!("tool {id}"));
        client.send_line(&line).await;
    }
    client.sync(10_000).await;
    assert_eq!(stage.count("runs"), 10_000);
    let (_, said) = client.leave().await;
    assert_eq!(said.matches("more than 256 calls are open").count(), 1, "{said}");
    stage.await_no_process().await;
}

/// A proxy that says this to a heartbeat, a post and a withdrawal: status and body.
type Replies = [(u16, &'static str); 3];

/// Starts it, on a thread of its own. Returns its URL.
fn start_proxy([heartbeat, post, withdraw]: Replies) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or_default() > 0 {
                let last = head.lines().last().unwrap_or_default().to_lowercase();
                if let Some(given) = last.strip_prefix("content-length: ") {
                    length = given.parse().unwrap();
                }
            }
            drop(reader.read_exact(&mut vec![0; length]));
            let (status, body) = match head.lines().next().unwrap_or_default() {
                line if line.contains("/heartbeat ") => heartbeat,
                line if line.contains("/withdraw ") => withdraw,
                _ => post,
            };
            let answer = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            drop(reader.get_mut().write_all(answer.as_bytes()));
        }
    });
    url
}

/// An early answer promises the result to the conversation where the proxy knows the call, and nowhere else.
#[tokio::test]
async fn an_early_answer_promises_what_the_proxy_can_do() {
    const OK: (u16, &str) = (200, "{}");
    for (status, promises) in [
        (200, true),
        (409, true),
        (404, false),
        (401, false),
        (400, false),
        (503, false),
    ] {
        let stage = Stage::new(&start_proxy([(status, "{}"), OK, OK]));
        let mut client = stage.wrap(&["--answer-after", "100ms"]);
        client.call(1, Some("toolu_01AaBb9dE3fG7hJ2")).await;
        let said = client.text(1).await;
        assert!(said.contains("is still running after"), "{status}: {said}");
        assert_eq!(said.contains("If you end your turn"), promises, "{status}: {said}");
        stage.open_gate();
        client.leave().await;
        stage.stop_all().await;
    }
}

/// The result of a call that timed out, with each kind of proxy: where it waits, and how often the tool runs if the client
/// calls it again.
#[tokio::test]
async fn a_retry_gets_the_result_whatever_the_proxy_says() {
    const OK: (u16, &str) = (200, "{}");
    const SETTLED: (u16, &str) = (200, r#"{"state":"settled"}"#);
    const PARKED: (u16, &str) = (202, r#"{"state":"parked"}"#);
    let rows: [(&str, Option<Replies>, &str, usize); 10] = [
        ("absent", None, "due", 1),
        ("does not know the call", Some([(404, "{}"), OK, OK]), "retry_only", 1),
        ("knows no such token", Some([(401, "{}"); 3]), "retry_only", 1),
        ("is another program", Some([(400, "<html>"); 3]), "retry_only", 1),
        ("has no room", Some([OK, (503, "{}"), OK]), "due", 1),
        ("is asked too often", Some([(429, "{}"), OK, OK]), "due", 1),
        ("waits for the caller", Some([OK, PARKED, OK]), "due", 1),
        ("has it", Some([OK, SETTLED, OK]), "posted", 1),
        (
            "has delivered it",
            Some([(409, "{}"), SETTLED, (409, "{}")]),
            "posted",
            2,
        ),
        // A withdrawal is refused, and the call is open all the same: another process has withdrawn the result.
        ("has it no more", Some([OK, SETTLED, (409, "{}")]), "posted", 1),
    ];
    for (name, replies, place, runs) in rows {
        let stage = Stage::new(&replies.map_or_else(|| "http://127.0.0.1:9".to_owned(), start_proxy));
        let mut client = stage.wrap(&[]);
        client.call(1, Some("toolu_01AaBb9dE3fG7hJ2")).await;
        stage.await_runs(1).await;
        client.cancel(1, "timeout").await;
        client.sync(2).await;
        stage.open_gate();
        let wanted = format!("\"place\":\"{place}\"");
        await_that(|| stage.kept_text().is_some_and(|text| text.contains(&wanted))).await;
        client.call(3, Some("toolu_01CcDd8eF4gH6jK3")).await;
        assert_eq!(client.text(3).await, FILM, "{name}");
        assert_eq!(stage.count("runs"), runs, "{name}");
        let (_, said) = client.leave().await;
        assert!(!said.contains(FILM), "{name}: {said}");
        stage.await_no_process().await;
    }
}
