//! `antiphon result post | list | show | ack | withdraw` through the built binary, against a running proxy.

use std::{
    fs,
    net::SocketAddr,
    process::{Command, Output, Stdio},
    time::Duration,
};

use antiphon::{auth::PrincipalSettings, config::VARIABLES, late::LateSettings};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::closed_pipes::closed_pipe;
use crate::support::{
    app::{App, Builder, before, post_with},
    late::service,
    ports::CLOSED,
    provider::{Provider, Reply, ToolCall},
    state,
    wire::Upstream,
};

const KEY: &str = "sk-canary-of-ann";
const OTHER_KEY: &str = "sk-canary-of-ben";
const TOKEN: &str = "token of tools";
const STRONG: &str = "toolu_01A09q90qw90lq917835lq9";
const UNKNOWN: &str = "toolu_01Z99q90qw90lq917835lq9";
/// Variables of this command alone.
const OWN_VARIABLES: [&str; 3] = ["ANTIPHON_URL", "ANTIPHON_SERVICE_TOKEN", "ANTIPHON_API_KEY"];

struct World {
    provider: Provider,
    app: App,
}

/// Exit code, standard output and standard error.
type Ended = (Option<i32>, String, String);

/// Returns the command without variables that could replace its arguments.
fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    for name in OWN_VARIABLES {
        command.env_remove(name);
    }
    command
        .arg("result")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn with_credentials(at: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = bare(arguments);
    let values = [&format!("http://{at}")[..], TOKEN, KEY];
    command.envs(OWN_VARIABLES.into_iter().zip(values));
    command
}

/// Runs the command to its end. No output ever contains a secret.
async fn run(command: Command, stdin: &[u8]) -> Ended {
    let mut child = tokio::process::Command::from(command).spawn().unwrap();
    // A command that reads no input closes the pipe.
    drop(child.stdin.take().unwrap().write_all(stdin).await);
    ended(&child.wait_with_output().await.unwrap())
}

fn ended(output: &Output) -> Ended {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    for secret in [KEY, OTHER_KEY, TOKEN] {
        assert!(!out.contains(secret) && !err.contains(secret), "{out}\n{err}");
    }
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code(), out, err)
}

impl World {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Builder)) -> Self {
        let provider = Provider::start().await;
        let builder = before(provider.address()).with(|builder| {
            builder.late = LateSettings {
                settling: Duration::ZERO,
                services: vec![service("tools", None, None)],
                ..LateSettings::default()
            };
        });
        let app = builder.with(change).start().await;
        let world = Self { provider, app };
        for key in [KEY, OTHER_KEY] {
            // Only a caller that a provider has accepted has calls.
            world.asks(key, &[], Reply::Text("hello".to_owned())).await;
        }
        world
    }

    /// Sends a request, to which the model gives this answer. Returns the owner.
    async fn asks(&self, key: &str, fields: &[(&str, &str)], reply: Reply) -> String {
        self.provider.reply(reply);
        let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}).to_string();
        let fields = [fields, &[("x-api-key", key)]].concat();
        let answer = self
            .app
            .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
            .await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        self.app.late.flush_updates().await;
        answer.header("x-antiphon-owner").unwrap().to_owned()
    }

    /// Lets the model call `render` for Ann, in the session `film`.
    async fn emits(&self, id: &str) -> String {
        let call = ToolCall::new(id, "render", json!({"a": 1}));
        self.asks(KEY, &[("x-antiphon-session", "film")], Reply::Calls(vec![call]))
            .await
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, b"").await
    }

    async fn run_with(&self, arguments: &[&str], stdin: &[u8]) -> Ended {
        run(with_credentials(self.app.running.data, arguments), stdin).await
    }

    /// Runs a command that succeeds, and returns its standard output.
    async fn done(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.run(arguments).await;
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
        out
    }
}

/// Returns the arguments of a post for [`STRONG`].
fn post<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["post", STRONG], rest].concat()
}

/// Returns the digest at the end of the line about a post.
fn digest(line: &str) -> &str {
    let (_, digest) = line.trim_end().rsplit_once(' ').unwrap();
    assert_eq!(digest.len(), 64, "{line}");
    digest
}

#[tokio::test]
async fn a_result_lives_through_every_subcommand() {
    let world = World::new().await;
    world.emits(STRONG).await;
    let open = world.done(&["list", "--state", "open"]).await;
    let [head, row] = open.lines().collect::<Vec<_>>()[..] else {
        panic!("{open}");
    };
    assert!(head.starts_with("CALL ") && head.ends_with(" DELIVERY"), "{open}");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..4], [STRONG, "render", "film", "open"], "{open}");

    let first = world.done(&["post", STRONG, "--text", "a draft", "--error"]).await;
    assert!(first.starts_with("settled: ") && first.lines().count() == 1, "{first}");
    let again = world.done(&["post", STRONG, "--text", "a draft", "--error"]).await;
    assert!(
        again.starts_with("already known: ") && digest(&again) == digest(&first),
        "{again}"
    );
    let corrected = world
        .done(&["post", STRONG, "--text", "the film", "--replaces", digest(&first)])
        .await;
    assert!(
        corrected.starts_with("settled: ") && digest(&corrected) != digest(&first),
        "{corrected}"
    );

    let (code, shown, err) = world.run(&["show", STRONG]).await;
    assert_eq!((code, shown.as_str()), (Some(0), "the film"));
    assert!(
        err.starts_with(&format!("antiphon: {STRONG}: ")) && err.contains("from render, settled"),
        "{err}"
    );
    let shown: Value = serde_json::from_str(&world.done(&["show", STRONG, "--json"]).await).unwrap();
    assert_eq!(
        (&shown["content"], &shown["is_error"]),
        (&json!("the film"), &json!(false))
    );

    assert!(world.done(&["withdraw", STRONG]).await.starts_with("withdrawn: "));
    assert_eq!(
        world.run(&["list"]).await,
        (Some(0), String::new(), "antiphon: no result waits\n".to_owned())
    );
    let posted: Value = serde_json::from_str(&world.done(&["post", STRONG, "--text", "x", "--json"]).await).unwrap();
    assert_eq!((&posted["state"], &posted["first"]), (&json!("settled"), &json!(true)));

    let listed: Value = serde_json::from_str(&world.done(&["list", "--json"]).await).unwrap();
    let delivery = listed["delivery"].as_str().unwrap();
    assert!(world.done(&["list"]).await.trim_end().ends_with(delivery));
    assert_eq!(
        world.done(&["ack", delivery, delivery]).await,
        format!("acknowledged: {delivery}\n").repeat(2)
    );
    assert_eq!(
        world.run(&["list", "--json"]).await,
        (Some(0), String::new(), String::new())
    );

    let parked = world.done(&["post", UNKNOWN, "--text", "x"]).await;
    assert!(
        parked.starts_with("parked until 2") && parked.lines().count() == 1,
        "{parked}"
    );
}

/// The exit code tells of what was refused or missing, also to a script that does not read the output.
#[tokio::test]
async fn a_closed_pipe_hides_no_refusal() {
    let world = World::new().await;
    world.emits(STRONG).await;
    world.done(&["post", STRONG, "--text", "x"]).await;
    let listed: Value = serde_json::from_str(&world.done(&["list", "--json"]).await).unwrap();
    let delivery = listed["delivery"].as_str().unwrap();
    let other = "0".repeat(64);
    for arguments in [
        &["show", UNKNOWN, STRONG][..],
        &["show", STRONG, UNKNOWN],
        &["show", "--output", "json", STRONG, UNKNOWN],
        &["ack", delivery, &other],
    ] {
        let mut command = with_credentials(world.app.running.data, arguments);
        command.stdout(closed_pipe());
        let (code, _, err) = run(command, b"").await;
        assert_eq!(code, Some(1), "{arguments:?}: {err}");
    }
}

#[tokio::test]
async fn a_content_is_sent_and_shown_byte_for_byte() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("content");
    let name = file.to_str().unwrap();
    let rows: [(&[&str], &[u8], &str); 6] = [
        (&["--text", "-a \"b\"\n"], b"", "-a \"b\"\n"),
        (&["--text", ""], b"not read", ""),
        (
            &[],
            "zwei\r\n\u{1b}[1m \u{1f600}\n".as_bytes(),
            "zwei\r\n\u{1b}[1m \u{1f600}\n",
        ),
        (&["--file", "-"], b"{\"a\":1}", "{\"a\":1}"),
        (&["--file", name], b"", " {\"a\": 1.0,\n\"b\":1e2} \n"),
        (&["--file", name, "--as-json"], b"", "{\"a\": 1.0,\n\"b\":1e2}"),
    ];
    fs::write(&file, " {\"a\": 1.0,\n\"b\":1e2} \n").unwrap();
    for (number, (flags, stdin, wanted)) in rows.into_iter().enumerate() {
        let id = format!("toolu_01A09q90qw90lq91783{number:04}");
        world.emits(&id).await;
        let (code, out, err) = world.run_with(&[&["post", &id], flags].concat(), stdin).await;
        assert_eq!(code, Some(0), "{flags:?}: {out}{err}");
        assert_eq!(world.done(&["show", &id]).await, wanted, "{flags:?}");
    }
    // A result is JSON on one line, whatever line breaks its content has.
    let line = world.done(&["show", "toolu_01A09q90qw90lq917830005", "--json"]).await;
    assert_eq!((line.lines().count(), &line[line.len() - 2..]), (1, "}\n"));
}

#[tokio::test]
async fn a_refusal_is_printed_with_the_next_step() {
    let world = World::new().await;
    let owner = world.emits(STRONG).await;
    world.done(&["post", STRONG, "--text", "one"]).await;
    let delivery = "0".repeat(64);
    for (arguments, message, step) in [
        (
            &["post", STRONG, "--text", "two"][..],
            "the call already has a different result",
            "add --replaces",
        ),
        (
            &["withdraw", UNKNOWN],
            "not found, or not available",
            "check the token, the call id",
        ),
        (&["post", "call_0", "--text", "x"], "not found", "check the token"),
        (&["ack", &delivery], "not found", "check the key"),
        (&["post", "a/b", "--text", "x"], "the path contains", ""),
        (&["show", "toolu_01Z99q90qw90lq917835lq9"], "no result was posted", ""),
    ] {
        let (code, out, err) = world.run(arguments).await;
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
        assert!(
            err.starts_with("antiphon: ") && err.contains(message) && err.contains(step),
            "{err}"
        );
    }

    // Two callers with one id: only the owner tells whose call it is.
    let call = ToolCall::new(STRONG, "render", json!({}));
    world.asks(OTHER_KEY, &[], Reply::Calls(vec![call])).await;
    let (code, _, err) = world.run(&["withdraw", STRONG]).await;
    assert!(
        code == Some(1) && err.contains("refused with 409") && err.contains("add --owner"),
        "{err}"
    );
    world.done(&["withdraw", STRONG, "--owner", &owner]).await;

    for (variable, arguments) in [
        ("ANTIPHON_SERVICE_TOKEN", &["post", STRONG, "--text", "x"][..]),
        ("ANTIPHON_API_KEY", &["list"]),
    ] {
        let mut command = with_credentials(world.app.running.data, arguments);
        command.env(variable, "sk-nobody");
        let (code, _, err) = run(command, b"").await;
        assert!(
            code == Some(1) && err.contains("refused with 404") && !err.contains("sk-nobody"),
            "{err}"
        );
    }
}

#[tokio::test]
async fn a_reusable_id_is_named_with_its_session_or_its_tool_and_input() {
    let world = World::new().await;
    let owner = world.emits("call_0").await;
    let owned = ["post", "call_0", "--text", "x", "--owner", &owner];
    for (rest, word) in [
        (&["--session", "film"][..], "settled: "),
        (&["--tool", "render", "--input", "{ \"a\": 1 }"], "already known: "),
    ] {
        let posted = world.done(&[&owned, rest].concat()).await;
        assert!(posted.starts_with(word), "{posted}");
    }
    let (code, _, err) = world.run(&[&owned[..], &["--session", "another"]].concat()).await;
    assert!(code == Some(1) && err.contains("refused with 404"), "{err}");
}

#[tokio::test]
async fn lists_have_pages_and_names_on_a_terminal_are_harmless() {
    let world = World::new().await;
    let ids: Vec<String> = (0..5)
        .map(|number| format!("toolu_01A09q90qw90lq91783{number:04}"))
        .collect();
    for id in &ids {
        world.emits(id).await;
        world.done(&["post", id, "--text", "x"]).await;
    }
    let (_, out, err) = world.run(&["list", "--json", "--limit", "2"]).await;
    assert_eq!(out.lines().count(), 2, "{out}");
    let cursor = err.split_once("--after ").unwrap().1.split(',').next().unwrap();
    let rest = world.done(&["list", "--json", "--after", cursor]).await;
    assert!(
        rest.lines().count() == 3 && rest.contains(&ids[2]) && !rest.contains(&ids[1]),
        "{rest}"
    );
    let (_, out, err) = world.run(&["list", "--all", "--limit", "2"]).await;
    assert_eq!((out.lines().count(), err.as_str()), (6, ""), "{out}");
    assert_eq!(world.done(&["list", "--session", "another film"]).await, "");

    let call = ToolCall::new("c\u{1b}[31m1", "f\u{9b}m", json!({}));
    world.asks(KEY, &[], Reply::Calls(vec![call])).await;
    let open = world.done(&["list", "--state", "open"]).await;
    assert!(open.contains("c\\u{1b}[31m1") && open.contains("f\\u{9b}m"), "{open}");
    assert!(!open.contains(['\u{1b}', '\u{9b}']));
}

#[tokio::test]
async fn every_credential_finds_the_caller_of_model_requests() {
    let world = World::with(|builder| {
        builder.proxy.principals = PrincipalSettings {
            user_header: Some("x-user".parse().unwrap()),
            ..PrincipalSettings::default()
        };
        builder.late.principals = builder.proxy.principals.clone();
    })
    .await;
    world.emits(STRONG).await;
    world.done(&["post", STRONG, "--text", "x"]).await;
    let is_listed = |out: String| out.contains(STRONG);
    for header in ["x-api-key", "authorization", "x-goog-api-key", "api-key"] {
        assert!(
            is_listed(world.done(&["list", "--key-header", header]).await),
            "{header}"
        );
    }
    // No client token is configured, so that none is known.
    assert_eq!(
        world.run(&["list", "--key-header", "x-antiphon-client-token"]).await.0,
        Some(1)
    );
    // A user is a caller of its own, whom no provider has answered yet.
    assert_eq!(world.run(&["list", "--user", "x-user=zoe"]).await.0, Some(1));
    world
        .asks(KEY, &[("x-user", "zoe")], Reply::Text("hello".to_owned()))
        .await;
    assert!(!is_listed(world.done(&["list", "--user", "x-user=zoe"]).await));

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (token, key) = (path("token", &format!("{TOKEN}\n")), path("key", &format!("{KEY}\n")));
    let config = path(
        "antiphon.toml",
        &format!("[server]\nlisten = \"{}\"\n", world.app.running.data),
    );
    let posted = run(
        bare(&["post", STRONG, "--text", "x", "--token-file", &token, "-c", &config]),
        b"",
    )
    .await;
    assert_eq!(posted.0, Some(0), "{}", posted.2);
    let mut command = bare(&["list", "--key-file", &key]);
    command.env("ANTIPHON_CONFIG", &config);
    assert!(is_listed(run(command, b"").await.1));
}

#[tokio::test]
async fn without_an_answer_it_exits_with_2_and_names_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (binary, empty, broken) = (path("binary", b"a\xff"), path("empty", b"\n"), path("broken", b"{"));
    let large = path("large", &vec![b'x'; 8 * 1024 * 1024]);
    for (arguments, wanted) in [
        (vec!["list"], "cannot connect: Connection refused"),
        (post(&["--text", "x"]), "cannot connect: Connection refused"),
        (post(&["--file", &binary]), "not UTF-8, from its byte 1 on"),
        (post(&["--file", &broken, "--as-json"]), "broken: not JSON: EOF"),
        (post(&["--file", &large]), "the limit is 8 MiB"),
        (post(&["--file", "/nowhere"]), "/nowhere: No such file"),
        (
            post(&["--text", "x", "--token-file", &empty]),
            "--token-file: the token of the service is empty",
        ),
        (
            post(&["--text", "x", "--token-file", TOKEN]),
            "--token-file: cannot read the file",
        ),
        (
            post(&["--text", "x", "--url", "http://sk-canary-of-ann@h"]),
            "--url: expected the http:// or https:// URL",
        ),
        (post(&["--text", "x", "--file", "y"]), "cannot be used with"),
        (post(&["--text", "x", "--tool", "render"]), "--input <JSON>"),
        (post(&["--text", "x", "--input", "{", "--tool", "t"]), "expected JSON"),
        (
            post(&["--text", "x", "--owner", "ann"]),
            "expected 32 hexadecimal digits",
        ),
        (vec!["ack", "ann"], "expected 64 hexadecimal digits"),
        (vec!["list", "--limit", "0"], "0 is not in 1..=1000"),
        (vec!["list", "--user", "ann"], "expected HEADER=USER"),
        (vec!["list", "-c", "/nowhere"], "cannot read /nowhere"),
    ] {
        let (code, out, err) = run(with_credentials(CLOSED, &arguments), b"").await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(wanted), "{arguments:?}: {err}");
    }
    for (arguments, wanted) in [
        (vec!["list"], "is missing: set ANTIPHON_API_KEY"),
        (
            post(&["--text", "x"]),
            "no token of this machine's proxy: start `antiphon` as the same user, with its ledger on the disk, or put the \
             token of a service into ANTIPHON_SERVICE_TOKEN",
        ),
        (
            post(&["--text", "x", "--url", "http://192.0.2.1:1"]),
            "on another machine: put the token of a service into ANTIPHON_SERVICE_TOKEN, or name its file with --token-file",
        ),
    ] {
        let (code, _, err) = run(bare(&arguments), b"").await;
        assert!(code == Some(2) && err.contains(wanted), "{err}");
    }
}

#[tokio::test]
async fn another_server_at_the_address_is_no_success() {
    let delivery = "0".repeat(64);
    let commands: [&[&str]; 6] = [
        &["post", STRONG, "--text", "x"],
        &["withdraw", STRONG],
        &["heartbeat", STRONG],
        &["ack", &delivery],
        &["show", STRONG],
        &["list"],
    ];
    let page = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nno";
    let text = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nok";
    for (server, code, wanted) in [
        (Upstream::ok().await, 2, "is not one of Antiphon's API"),
        (Upstream::answering(text).await, 2, "is not one of Antiphon's API"),
        (
            Upstream::answering(page).await,
            1,
            "refused with 404: the answer has no message",
        ),
    ] {
        for arguments in commands {
            let ended = run(with_credentials(server.address, arguments), b"").await;
            assert_eq!(
                (ended.0, ended.1.as_str()),
                (Some(code), ""),
                "{arguments:?}: {}",
                ended.2
            );
            assert!(ended.2.contains(wanted), "{arguments:?}: {}", ended.2);
        }
    }
}

#[tokio::test]
async fn a_closed_pipe_is_no_error() {
    let world = World::new().await;
    world.emits(STRONG).await;
    // More than a pipe takes up.
    let content = vec![b'x'; 1024 * 1024];
    assert_eq!(world.run_with(&["post", STRONG], &content).await.0, Some(0));
    for arguments in [&["show", STRONG][..], &["show", STRONG, "--json"]] {
        let mut command = with_credentials(world.app.running.data, arguments);
        command.stdin(Stdio::null());
        let mut child = tokio::process::Command::from(command).spawn().unwrap();
        drop(child.stdout.take());
        let (code, _, err) = ended(&child.wait_with_output().await.unwrap());
        assert_eq!(code, Some(0), "{arguments:?}: {err}");
    }
}
