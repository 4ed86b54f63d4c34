//! The built-in service of this machine, with the real binary: who has the token of the proxy's user may post results.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use antiphon::{auth::TokenHash, config::VARIABLES};
use serde_json::{Value, json};

use crate::support::{
    app::{get_with, post_with},
    binary::{Install, Process},
    late::{ID, MESSAGES, numbered_id},
    provider::{Provider, Reply, ToolCall},
    wire::{Client, Message},
};

const KEY: (&str, &str) = ("x-api-key", "sk-ann");
/// An id of no call.
const UNKNOWN: &str = "toolu_01Z99q90qw90lq917835lq9a";

/// A proxy before a provider, with one caller that the provider has accepted.
struct Stage {
    provider: Provider,
    install: Install,
    process: Process,
}

impl Stage {
    async fn start(config: &str, listen: &'static str) -> Self {
        let provider = Provider::start().await;
        let upstream = format!("[upstreams.anthropic]\nurl = \"{}\"\n", provider.url());
        let install = Install::new(&format!("{config}{upstream}")).listening(listen);
        let process = install.start().await;
        let stage = Self {
            provider,
            install,
            process,
        };
        stage.says(Reply::Text("hello".to_owned()), &[user("hi")]).await;
        stage
    }

    /// Sends messages, to which the model gives this answer.
    async fn says(&self, reply: Reply, messages: &[Value]) -> Message {
        self.provider.reply(reply);
        let body = json!({"model": "m", "max_tokens": 99, "messages": messages}).to_string();
        let fields = [KEY, ("x-antiphon-session", "film")];
        let answer = self.ask(post_with(MESSAGES, &fields, body.as_bytes())).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer
    }

    /// Lets the model call a tool. Returns the messages up to that call.
    async fn calls(&self, id: &str) -> Vec<Value> {
        let call = ToolCall::new(id, "render", json!({"scene": 1}));
        let answer = self.says(Reply::Calls(vec![call]), &[user("go")]).await;
        let content: Value = answer.json()["content"].clone();
        vec![user("go"), json!({"role": "assistant", "content": content})]
    }

    /// Sends a request from this machine, whatever the proxy listens on.
    async fn ask(&self, request: impl AsRef<[u8]>) -> Message {
        let mut client = Client::connect(([127, 0, 0, 1], self.process.data.port()).into()).await;
        client.send(request).await;
        client.response().await
    }

    /// Returns the value of the header with the token of this machine.
    fn bearer(&self) -> String {
        let path = self.install.state().join("antiphon").join("token");
        format!("Bearer {}", std::fs::read_to_string(path).unwrap().trim())
    }

    /// Sends the token of this machine to a path of the ledger API. Returns the status, and the code of a refusal.
    async fn posts(&self, path: &str, body: &Value) -> (u16, String) {
        let bearer = self.bearer();
        let request = post_with(
            &format!("/ledger/v1/{path}"),
            &[("authorization", &bearer)],
            body.to_string().as_bytes(),
        );
        let answer = self.ask(request).await;
        let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        (answer.status(), code)
    }

    /// Returns the newest event of the dashboard: its name, its call and its source.
    async fn newest_event(&self) -> Value {
        let host = self.process.admin;
        let request = format!("GET /admin/v1/late HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let late = self.process.ask_admin(request).await.json();
        let newest = &late["recent"][0];
        json!([newest["event"], newest["call_id"], newest["source"]])
    }

    /// Runs a command beside the proxy, with no credential. Returns exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        run_at(self.install.state(), self.process.data.port(), arguments)
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn run_at(state: &Path, port: u16, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    for name in ["ANTIPHON_TOKEN", "ANTIPHON_SERVICE_TOKEN", "HOME"] {
        command.env_remove(name);
    }
    let ended = command
        .env("XDG_STATE_HOME", state)
        .env("ANTIPHON_URL", format!("http://127.0.0.1:{port}"))
        .current_dir(state)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}

/// A result that a command of the same user posts reaches the conversation of its call, and no configuration names it.
#[tokio::test]
async fn the_user_of_the_proxy_posts_without_a_service() {
    let stage = Stage::start("", "127.0.0.1:0").await;
    let mut messages = stage.calls(ID).await;
    let (code, out, err) = stage.run(&["result", "heartbeat", ID]);
    assert!(
        code == 0 && out.starts_with("open: the call waits for its result until 2"),
        "{out}{err}"
    );
    let (code, out, err) = stage.run(&["result", "heartbeat", UNKNOWN]);
    assert!(
        code == 1 && out.is_empty() && err.contains("refused with 404"),
        "{out}{err}"
    );

    let me = stage.ask(get_with("/ledger/v1/me", &[KEY])).await;
    let owner = me.json()["owner"].as_str().unwrap().to_owned();
    let post = ["result", "post", ID, "--owner", &owner, "--text"];
    let (code, out, err) = stage.run(&[&post[..], &["a draft"]].concat());
    assert!(code == 0 && out.starts_with("settled: "), "{out}{err}");
    let (code, out, err) = stage.run(&["result", "withdraw", ID]);
    assert!(code == 0 && out.starts_with("withdrawn: "), "{out}{err}");
    let (code, out, err) = stage.run(&[&post[..], &["the film"]].concat());
    assert!(code == 0 && out.starts_with("settled: "), "{out}{err}");

    messages.push(user("and now?"));
    stage.says(Reply::Text("fine".to_owned()), &messages).await;
    let sent = String::from_utf8(stage.provider.last().body.to_vec()).unwrap();
    assert!(sent.contains("the film") && !sent.contains("a draft"), "{sent}");
}

/// Rows: a source, and whether it is taken. The event of the post names it, and a post with a bad one changes nothing.
#[tokio::test]
async fn events_name_the_source_of_a_post() {
    let stage = Stage::start("", "127.0.0.1:0").await;
    let me = stage.ask(get_with("/ledger/v1/me", &[KEY])).await;
    let owner = me.json()["owner"].clone();
    let longest = "m".repeat(64);
    let rows = [
        (json!("mcp:toy"), true),
        (json!(" ~"), true),
        (json!(longest), true),
        (json!(null), true),
        (json!(format!("{longest}m")), false),
        (json!(""), false),
        (json!("mcp:\u{f6}l"), false),
        (json!("mcp:\ntoy"), false),
        (json!(["mcp:toy"]), false),
    ];
    for (row, (source, is_taken)) in (1..).zip(rows) {
        let (recorded, unknown) = (numbered_id(row), numbered_id(row + 100));
        stage.calls(&recorded).await;
        let body = json!({"content": "film", "source": source, "owner": owner});
        for (id, status, event) in [(unknown, 202, "parked"), (recorded, 200, "attached")] {
            let before = stage.newest_event().await;
            let (answered, code) = stage.posts(&format!("calls/{id}/result"), &body).await;
            let newest = stage.newest_event().await;
            if is_taken {
                assert_eq!((answered, newest), (status, json!([event, id, source])), "{source}");
            } else {
                assert_eq!((answered, &code[..], newest), (422, "malformed", before), "{source}");
            }
        }
    }
}

/// Rows: configuration, address of the listener. The token of this machine is no service's there.
#[tokio::test]
async fn where_the_operator_or_the_address_forbids_it_the_token_posts_nothing() {
    let replaced = format!(
        "[services.local]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n",
        TokenHash::hash_token(b"token of local")
    );
    for (config, listen) in [
        ("[services.local]\ndeny = true\n", "127.0.0.1:0"),
        ("", "0.0.0.0:0"),
        (&replaced[..], "127.0.0.1:0"),
    ] {
        let stage = Stage::start(config, listen).await;
        stage.calls(ID).await;
        for operation in ["result", "withdraw", "heartbeat"] {
            let path = format!("calls/{ID}/{operation}");
            let refused = stage.posts(&path, &json!({"content": "film"})).await;
            assert_eq!(refused, (404, "not_found".to_owned()), "{config} {listen} {operation}");
        }
        let (code, _, err) = stage.run(&["result", "post", ID, "--text", "film"]);
        assert!(
            code == 1 && err.contains("refused with 404"),
            "{config} {listen}: {err}"
        );
        // Commands that run once have the token all the same.
        let (code, out, err) = stage.run(&["once", "--tool", "deploy", "--", "echo", "done"]);
        assert_eq!((code, &out[..]), (0, "done\n"), "{err}");
    }
}

/// Without a lasting ledger there is no token of this machine, and its commands say so.
#[tokio::test]
async fn a_ledger_in_memory_has_no_service_of_this_machine() {
    let stage = Stage::start("[ledger]\nstore = \"memory\"\n", "127.0.0.1:0").await;
    let (code, _, err) = stage.run(&["result", "post", ID, "--text", "film"]);
    assert!(
        code == 2
            && err.contains("there is no token of this machine's proxy")
            && err.contains("ANTIPHON_SERVICE_TOKEN"),
        "{err}"
    );
    // No call is recorded, so that answers name no owner.
    let answer = stage.says(Reply::Text("hello".to_owned()), &[user("hi")]).await;
    assert_eq!(answer.header("x-antiphon-owner"), None);
}

/// The intents of this machine belong to its caller, and never to the service: what ran before an update is replayed.
#[tokio::test]
async fn runs_stay_those_of_the_caller() {
    let mut stage = Stage::start("[services.local]\ndeny = true\n", "127.0.0.1:0").await;
    let once = [
        "once",
        "--tool",
        "deploy",
        "--",
        "sh",
        "-c",
        "echo r >> runs; echo done",
    ];
    assert_eq!(stage.run(&once).0, 0);
    stage.process.kill();
    let upstream = format!("[upstreams.anthropic]\nurl = \"{}\"\n", stage.provider.url());
    stage.install.write(&upstream);
    stage.process = stage.install.start().await;
    let (code, out, err) = stage.run(&once);
    assert!(
        (code, &out[..]) == (0, "done\n") && err.contains("did not run again"),
        "{out}{err}"
    );
    let runs = std::fs::read_to_string(stage.install.state().join("runs")).unwrap();
    assert_eq!(runs.lines().count(), 1);

    // A service names the call of somebody; a caller its own effect alone.
    stage.calls(&numbered_id(7)).await;
    let claim = json!({"call_id": numbered_id(7)});
    let (status, code) = stage.posts("intents", &claim).await;
    assert_eq!((status, &code[..]), (422, "malformed"));
    // A claim asks for more care by its tier, and a member that the proxy does not know is no silent loss of it.
    let claim = json!({"tool": "t", "input": {}, "teir": "one_way"});
    assert_eq!(stage.posts("intents", &claim).await, (422, "malformed".to_owned()));
    let claim = json!({"tool": "t", "input": {}, "tier": "one_way"});
    assert_eq!(stage.posts("intents", &claim).await.0, 201);
    // Nor does it report the end of somebody's cancel.
    let cancel = stage
        .posts(&format!("calls/{}/cancel", numbered_id(7)), &json!({}))
        .await;
    assert_eq!(cancel, (404, "not_found".to_owned()));
}

/// The settings of a tool of an MCP server have its name in quotes. Rows: the configuration, and the code of a second run
/// after a first one that failed.
#[tokio::test]
async fn a_tool_of_an_mcp_server_has_its_settings() {
    for (config, is_replayed) in [("", false), ("[tools.\"mcp:toy:render\"]\ntier = \"one_way\"\n", true)] {
        let stage = Stage::start(config, "127.0.0.1:0").await;
        let once = [
            "once",
            "--tool",
            "mcp:toy:render",
            "--",
            "sh",
            "-c",
            "echo r >> runs; exit 3",
        ];
        for _ in 0..2 {
            assert_eq!(stage.run(&once).0, 3, "{config}");
        }
        let runs = std::fs::read_to_string(stage.install.state().join("runs")).unwrap();
        // The failure of an effect that cannot be undone is replayed.
        assert_eq!(runs.lines().count(), if is_replayed { 1 } else { 2 }, "{config}");
    }
}
