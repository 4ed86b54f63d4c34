//! `antiphon run -- CMD`: the command's variables, its exit code, its signals, and the proxy beside it.

use std::{net::SocketAddr, path::Path, process::Stdio};

use antiphon::config::VARIABLES;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout, Command},
};

use crate::{
    late::stories,
    support::{
        app::{get_with, post, post_with},
        binary::Process,
        ports::CLOSED,
        provider::Provider,
        state,
        wire::{Client, Message, Upstream},
    },
};

const URLS: [&str; 4] = [
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "GEMINI_API_BASE",
];
/// Prints the variables and ends after one line of input.
const PRINT_AND_WAIT: &str =
    "echo $ANTHROPIC_BASE_URL; echo $OPENAI_BASE_URL; echo $GOOGLE_GEMINI_BASE_URL; read line; exit 7";

/// Runs `antiphon run`. It looks for a proxy at an address: at `CLOSED` there is none.
pub(crate) fn run(look_at: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    let variables = VARIABLES.iter().map(|(name, _)| *name);
    for name in variables.chain(URLS) {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .env("XDG_STATE_HOME", state::directory())
        .env("XDG_CONFIG_HOME", state::directory())
        .env_remove("HOME")
        .env("ANTIPHON_LISTEN", look_at.to_string())
        .arg("run")
        .args(arguments)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        self.lines.next_line().await.unwrap().expect("a line")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end and returns exit code and stderr.
    async fn end(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .await
            .unwrap();
        (self.child.wait().await.unwrap().code(), err)
    }
}

/// Returns the address in `http://ADDRESS/…`.
pub(crate) fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://")
        .and_then(|rest| rest.split('/').next())
        .unwrap()
        .parse()
        .unwrap()
}

async fn broken(at: SocketAddr, path: &str) -> Message {
    let call = json!([{"type": "tool_use", "id": "toolu_01AaBb9dE3fG7hJ2", "name": "bash", "input": {}}]);
    let user = |words: &str| json!({"role": "user", "content": words});
    let messages = [user("go"), json!({"role": "assistant", "content": call}), user("and?")];
    let body = json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string();
    let mut client = Client::connect(at).await;
    client
        .send(post_with(path, &[("x-api-key", "k")], body.as_bytes()))
        .await;
    client.response().await
}

#[tokio::test]
async fn the_proxy_starts_and_stops_with_the_command() {
    let provider = Provider::start().await;
    let upstream = format!("anthropic={}", provider.url());
    let mut running = Running::new(run(
        CLOSED,
        &["--upstream", &upstream, "--", "sh", "-c", PRINT_AND_WAIT],
    ));
    let at = address(&running.line().await);
    assert_eq!(running.line().await, format!("http://{at}/openai/v1"));
    assert_eq!(running.line().await, format!("http://{at}/gemini"));
    let answer = broken(at, "/anthropic/v1/messages").await;
    assert_eq!(
        (answer.status(), answer.header("x-antiphon-repair")),
        (200, Some("placeholder=1")),
        "{}",
        answer.text()
    );
    running.child.stdin.take().unwrap().write_all(b"go on\n").await.unwrap();
    let (code, err) = running.end().await;
    assert_eq!(code, Some(7));
    let lines: Vec<&str> = err.lines().collect();
    assert!(
        matches!(lines[..], [first, _] if first.starts_with(&format!("antiphon: proxy of this command at http://{at}; dashboard http://127.0.0.1:"))),
        "{err}"
    );
    assert_eq!(
        lines[1],
        "antiphon: 1 request, 1 repaired (placeholder=1); details: antiphon run -v -- …"
    );
    assert!(TcpStream::connect(at).await.is_err(), "the proxy is still there");
}

#[tokio::test]
async fn a_running_proxy_is_used_and_keeps_running() {
    let provider = Provider::start().await;
    let install = stories::install(&provider);
    let process = install.start().await;
    let before = (process.log(), counters(&process).await);
    let mut command = run(process.data, &["--", "sh", "-c", PRINT_AND_WAIT]);
    command.env("ANTHROPIC_BASE_URL", "https://user:secret@llm.example.com/v1");
    let mut running = Running::new(command);
    assert_eq!(running.line().await, format!("http://{}/anthropic", process.data));
    assert_eq!(running.line().await, format!("http://{}/openai/v1", process.data));
    running.child.stdin.take().unwrap().write_all(b"go on\n").await.unwrap();
    let (code, err) = running.end().await;
    assert_eq!(code, Some(7));
    assert_eq!(err.lines().count(), 3, "{err}");
    assert!(
        err.contains("ANTHROPIC_BASE_URL pointed to llm.example.com") && err.contains("--upstream anthropic="),
        "{err}"
    );
    assert!(!err.contains("secret"), "{err}");
    let place = format!(
        "antiphon: using the running proxy at http://{}; dashboard http://{}/\n",
        process.data, process.admin
    );
    assert!(err.starts_with(&place), "{err}");
    assert!(
        err.ends_with(
            "antiphon: no request came through the proxy; the likely reason: sh asked no model, or does not read the \
             variables (docs/clients.md)\n"
        ),
        "{err}"
    );
    // A look at the port is neither an error nor a request.
    assert_eq!((process.log(), counters(&process).await), before);
    assert_eq!(
        broken(process.data, "/anthropic/v1/messages").await.status(),
        200,
        "it was not ours to end"
    );
}

/// Returns the counters of requests of a proxy.
async fn counters(process: &Process) -> Vec<String> {
    let page = process
        .ask_admin(format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", process.admin))
        .await;
    let page = page.text();
    let lines = page.lines().filter(|line| line.starts_with("antiphon_requests_total"));
    lines.map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn requests_through_a_running_proxy_are_counted_while_the_command_runs() {
    let provider = Provider::start().await;
    let install = stories::install(&provider);
    let process = install.start().await;
    broken(process.data, "/anthropic/v1/messages").await;
    let mut running = Running::new(run(process.data, &["--", "sh", "-c", PRINT_AND_WAIT]));
    running.line().await;
    broken(process.data, "/anthropic/v1/messages").await;
    broken(process.data, "/nowhere").await;
    running.child.stdin.take().unwrap().write_all(b"go on\n").await.unwrap();
    let (code, err) = running.end().await;
    assert_eq!(code, Some(7));
    let wanted = format!(
        "antiphon: while it ran, the proxy had 2 requests, 1 repair (placeholder=1), 1 failed (4xx); details: http://{}/\n",
        process.admin
    );
    assert!(err.ends_with(&wanted), "{err}");
}

#[tokio::test]
async fn the_description_is_for_allowed_hosts_and_reads_only() {
    let provider = Provider::start().await;
    let process = stories::install(&provider).start().await;
    let ask = |line: &str, host: &str| format!("{line} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let told = process.ask(ask("GET /.well-known/antiphon", "localhost")).await;
    let admin = process.admin.to_string();
    let mut told_json = told.json();
    let upstreams = told_json.as_object_mut().unwrap().remove("upstreams").unwrap();
    let fingerprint = upstreams["anthropic"].as_str().unwrap();
    assert!(
        fingerprint.len() == 16 && !upstreams.to_string().contains("127.0.0.1"),
        "{upstreams}"
    );
    assert_eq!(
        told_json,
        json!({"server": "antiphon", "version": 1, "admin_listen": admin})
    );
    assert_eq!(told.header("x-antiphon-request-id"), None, "it is no exchange");
    for (line, host, status) in [
        ("GET /.well-known/antiphon", "evil.example", 403),
        ("DELETE /.well-known/antiphon", "localhost", 404),
    ] {
        let refused = process.ask(ask(line, host)).await;
        assert_eq!(refused.status(), status, "{line} {host}");
        assert!(refused.header("x-antiphon-request-id").is_some(), "{line} {host}");
    }
}

/// Writes a program. Returns its path.
fn write_script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A proxy that ends with its command delivers nothing to a conversation that is resumed later.
#[tokio::test]
async fn wrapped_servers_and_a_ledger_in_memory_are_told() {
    let wrapped = "[mcp_servers.a]\ncommand = \"antiphon\"\nargs = [\"mcp\", \"--\", \"a\"]\n";
    let bare = "[mcp_servers.a]\ncommand = \"a\"\n";
    let folder = state::directory();
    let other = write_script(&folder, "other", "true");
    let codex = write_script(&folder, "codex", "true");
    for (program, file, store, quiet, is_told) in [
        (&codex, wrapped, "memory", false, true),
        (&codex, wrapped, "memory", true, false),
        (&codex, wrapped, "sqlite", false, false),
        (&codex, bare, "memory", false, false),
        (&codex, "broken", "memory", false, false),
        (&other, wrapped, "memory", false, false),
    ] {
        let home = state::directory();
        std::fs::write(home.join("config.toml"), file).unwrap();
        let arguments = if quiet {
            vec!["-q", "--", program]
        } else {
            vec!["--", program]
        };
        let mut command = run(CLOSED, &arguments);
        command.env("CODEX_HOME", &home).env("ANTIPHON_LEDGER_STORE", store);
        let (code, err) = Running::new(command).end().await;
        assert_eq!(code, Some(0), "{err}");
        let told = "config.toml has servers behind antiphon mcp, and this proxy keeps its ledger in memory only";
        assert_eq!(err.contains(told), is_told, "{program} {store}: {err}");
        assert!(
            !is_told || err.contains("start `antiphon serve` in another terminal first"),
            "{err}"
        );
    }
}

#[tokio::test]
async fn known_commands_get_what_they_need() {
    let folder = state::directory();
    let script = |name: &str, text: &str| write_script(&folder, name, text);
    let codex = script("codex", "echo \"$@\"; echo $OPENAI_BASE_URL");
    let mut running = Running::new(run(CLOSED, &["--", &codex, "exec", "hello"]));
    let (arguments, url) = (running.line().await, running.line().await);
    assert_eq!(arguments, format!("-c openai_base_url=\"{url}\" exec hello"));
    let (code, err) = running.end().await;
    assert_eq!(code, Some(0));
    assert!(
        err.contains("/codex asked no model, or has a provider of its own") && err.contains("--upstream chatgpt="),
        "{err}"
    );

    let opencode = script("opencode", "echo $OPENCODE_CONFIG_CONTENT");
    let mut running = Running::new(run(CLOSED, &["--", &opencode]));
    let content: serde_json::Value = serde_json::from_str(&running.line().await).unwrap();
    let url = content["provider"]["anthropic"]["options"]["baseURL"].as_str().unwrap();
    assert!(url.ends_with("/anthropic/v1"), "{content}");
    running.end().await;

    let cline = script("cline", "true");
    let (code, err) = Running::new(run(CLOSED, &["--", &cline])).end().await;
    assert_eq!(code, Some(0));
    // The setting stays in a file, so it must not name the port of this command's own proxy.
    assert!(
        err.contains(&format!("-b http://{CLOSED}/openai/v1")) && err.contains("needs a proxy that keeps running"),
        "{err}"
    );
    assert!(
        err.contains("cline reads no variable") && err.contains("/cline needs the setting above"),
        "{err}"
    );
}

/// gemini-cli takes any base URL for a gateway, and its own check refuses that kind of login.
#[tokio::test]
async fn gemini_is_told_to_choose_its_login_before_it_starts() {
    let home = state::directory();
    let settings = home.join(".gemini").join("settings.json");
    let gemini = home.join("gemini");
    std::fs::write(&gemini, "#!/bin/sh\necho started >&2\n").unwrap();
    std::fs::set_permissions(&gemini, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let advice = "{\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}}";
    std::fs::create_dir(home.join(".gemini")).unwrap();
    for (key, chosen, is_told) in [
        (true, None, true),
        (true, Some("{\"ui\":{}}"), true),
        (true, Some(advice), false),
        (false, None, false),
    ] {
        match chosen {
            Some(text) => std::fs::write(&settings, text).unwrap(),
            None => drop(std::fs::remove_file(&settings)),
        }
        let mut command = run(CLOSED, &["--", gemini.to_str().unwrap()]);
        command
            .env("HOME", &home)
            .env_remove("GEMINI_API_KEY")
            .current_dir(&home);
        if key {
            command.env("GEMINI_API_KEY", "k");
        }
        let (_, err) = Running::new(command).end().await;
        let before = err.split("started").next().unwrap();
        assert_eq!(before.contains(advice), is_told, "{key} {chosen:?}: {err}");
        assert_eq!(before.contains("GEMINI_API_KEY"), is_told, "{key} {chosen:?}: {err}");
    }
}

#[tokio::test]
async fn hermes_needs_no_file_with_the_provider_that_reads_the_variables() {
    let folder = state::directory();
    let hermes = folder.join("hermes");
    std::fs::write(&hermes, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&hermes, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let hermes = hermes.to_str().unwrap();
    for (arguments, is_told) in [
        (&["chat"][..], true),
        (&["chat", "--provider", "anthropic"], true),
        (&["chat", "--provider", "openai-api"], false),
        (&["--provider=openai-api", "chat"], false),
    ] {
        let command = run(CLOSED, &[&["--", hermes], arguments].concat());
        let (_, err) = Running::new(command).end().await;
        assert_eq!(
            err.contains("hermes reads the variables only"),
            is_told,
            "{arguments:?}: {err}"
        );
        assert_eq!(
            err.contains("needs a proxy that keeps running"),
            is_told,
            "{arguments:?}: {err}"
        );
        assert_eq!(err.contains("needs the setting above"), is_told, "{arguments:?}: {err}");
    }
}

/// Clients probe what runs behind a base URL. A 404 for such a path is no failed request of the user.
#[tokio::test]
async fn failed_requests_that_asked_no_model_are_counted_apart() {
    let upstream = Upstream::answering("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    let url = format!("openai=http://{}", upstream.address);
    let mut running = Running::new(run(CLOSED, &["--upstream", &url, "--", "sh", "-c", PRINT_AND_WAIT]));
    let at = address(&running.line().await);
    for path in ["/openai/v1/props", "/openai/version", "/openai/api/tags"] {
        let mut client = Client::connect(at).await;
        client.send(get_with(path, &[])).await;
        assert_eq!(client.response().await.status(), 404, "{path}");
    }
    let mut client = Client::connect(at).await;
    client
        .send(post("/openai/v1/chat/completions", r#"{"model":"m","messages":[]}"#))
        .await;
    assert_eq!(client.response().await.status(), 404);
    running.child.stdin.take().unwrap().write_all(b"go on\n").await.unwrap();
    let (_, err) = running.end().await;
    let counted = "4 requests, 1 failed (404), 3 failed that asked no model (404, 3 times); details: ";
    assert!(err.contains(counted), "{err}");
}

/// The user waits at the prompt: the time for load balancers does not apply.
#[tokio::test]
async fn the_drain_delay_of_a_server_does_not_hold_a_command() {
    let path = state::directory().join("antiphon.toml");
    std::fs::write(&path, "[server]\ndrain_delay = \"1h\"\n").unwrap();
    let running = Running::new(run(CLOSED, &["-q", "-c", path.to_str().unwrap(), "--", "true"]));
    assert_eq!(running.end().await, (Some(0), String::new()));
}

#[tokio::test]
async fn quiet_runs_say_nothing() {
    let running = Running::new(run(CLOSED, &["-q", "--", "true"]));
    assert_eq!(running.end().await, (Some(0), String::new()));
}

#[tokio::test]
async fn another_program_on_the_port_gets_no_traffic() {
    let stranger = Provider::start().await;
    let mut running = Running::new(run(stranger.address(), &["--", "sh", "-c", PRINT_AND_WAIT]));
    assert_ne!(address(&running.line().await), stranger.address());
    drop(running.child.stdin.take());
    assert_eq!(running.end().await.0, Some(7));
}

#[tokio::test]
async fn a_running_proxy_without_a_wanted_upstream_is_not_used() {
    let provider = Provider::start().await;
    let process = stories::install(&provider).start().await;
    let listen = process.data.to_string();
    let command = ["--", "sh", "-c", PRINT_AND_WAIT];
    // A built-in name with another URL is another upstream: the key is for that host.
    for upstream in [
        "chatgpt=https://chatgpt.example/codex",
        "openai=https://gateway.example",
    ] {
        for flags in [&[][..], &["--listen", &listen]] {
            let mut command = run(process.data, &[flags, &command].concat());
            command.env("ANTIPHON_UPSTREAM", upstream);
            let mut running = Running::new(command);
            assert_ne!(address(&running.line().await), process.data, "{upstream}");
            drop(running.child.stdin.take());
            let (_, err) = running.end().await;
            let (name, _) = upstream.split_once('=').unwrap();
            let reason = format!(
                "antiphon: the running proxy at http://{listen} has no upstream {name} with this URL, so another one starts\n"
            );
            assert!(err.contains(&reason), "{err}");
        }
    }
}

#[tokio::test]
async fn two_commands_run_beside_each_other() {
    let home = state::directory();
    let start = || {
        let mut command = run(CLOSED, &["--", "sh", "-c", PRINT_AND_WAIT]);
        command.env("XDG_STATE_HOME", &home);
        Running::new(command)
    };
    let mut first = start();
    first.line().await;
    let mut second = start();
    second.line().await;
    // Two lines each are about the proxy and what came through it.
    for (mut running, warnings) in [(second, 3), (first, 2)] {
        drop(running.child.stdin.take());
        let (code, err) = running.end().await;
        assert_eq!((code, err.lines().count()), (Some(7), warnings), "{err}");
    }
}

#[tokio::test]
async fn an_environment_proxy_is_not_used_for_loopback() {
    for (variables, wanted) in [
        (&[][..], "-"),
        (&[("NO_PROXY", "corp.example")], "corp.example"),
        (&[("HTTP_PROXY", "http://proxy.example")], "127.0.0.1"),
        (&[("https_proxy", "http://proxy.example")], "127.0.0.1"),
        (
            &[("HTTP_PROXY", "http://proxy.example"), ("NO_PROXY", "corp.example")],
            "corp.example,127.0.0.1",
        ),
    ] {
        let mut command = run(CLOSED, &["-q", "--", "sh", "-c", "echo ${NO_PROXY:--}"]);
        command.envs(variables.iter().copied());
        let mut running = Running::new(command);
        assert_eq!(running.line().await, wanted, "{variables:?}");
        assert_eq!(running.end().await, (Some(0), String::new()), "{variables:?}");
    }
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    for (command, wanted, said) in [
        (&["true"][..], 0, ""),
        (&["sh", "-c", "exit 3"], 3, ""),
        (&["sh", "-c", "kill -9 $$"], 137, ""),
        (
            &["no-such-command-anywhere"],
            127,
            "antiphon: cannot run no-such-command-anywhere: there is no such command\n",
        ),
        (&["/"], 126, "antiphon: cannot run /: Permission denied (os error 13)\n"),
    ] {
        let running = Running::new(run(CLOSED, &[&["-q", "--"], command].concat()));
        assert_eq!(running.end().await, (Some(wanted), said.to_owned()), "{command:?}");
    }
    let (code, err) = Running::new(run(CLOSED, &[])).end().await;
    assert_eq!(code, Some(2), "{err}");
}

#[tokio::test]
async fn signals_reach_the_command_once() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let script = format!("trap 'echo caught; exit 9' {name}; echo ready; while read line; do :; done; read line");
        let mut running = Running::new(run(CLOSED, &["-q", "--", "sh", "-c", &script]));
        assert_eq!(running.line().await, "ready");
        running.signal(signal);
        assert_eq!(running.line().await, "caught", "{name}");
        assert_eq!(running.end().await, (Some(9), String::new()), "{name}");
    }
}
