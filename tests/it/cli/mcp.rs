//! `antiphon mcp` with the real binary, a toy server, a real proxy and a provider that judges strictly.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use antiphon::config::VARIABLES;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    late::stories::install,
    support::{
        app::post_with,
        binary::{Install, Process},
        provider::{Provider, Reply, ToolCall},
        state,
    },
};

#[path = "mcp_once.rs"]
mod mcp_once;
#[path = "mcp_toy_server.rs"]
mod mcp_toy_server;
#[path = "mcp_url.rs"]
mod mcp_url;

/// No step takes as long.
const PATIENCE: Duration = Duration::from_secs(60);
const IDS: [&str; 2] = ["toolu_01AaBb9dE3fG7hJ2", "toolu_01CcDd8eF4gH6jK3"];
pub(super) const FILM: &str = "the film is ready";

/// A server whose tool ends once the file `gate` exists. It notes its runs and the cancels that reach it.
const TOY: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"tools/call"'*)
      echo run >> runs
      ( while [ ! -e gate ]; do sleep 0.02; done
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"the film is ready"}]}}\n' "$id" ) & ;;
    *'notifications/cancelled'*) echo cancel >> cancels ;;
    *'"crash"'*) kill -9 $$ ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
  esac
done
"#;

/// The folder in which a toy server runs, and the state of its wrappers.
pub(super) struct Stage {
    pub(super) folder: PathBuf,
    url: String,
}

impl Stage {
    pub(super) fn new(url: &str) -> Self {
        Self::at(state::directory(), url)
    }

    fn at(folder: PathBuf, url: &str) -> Self {
        fs::write(folder.join("toy.sh"), TOY).unwrap();
        Self {
            folder,
            url: url.to_owned(),
        }
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .env("XDG_STATE_HOME", &self.folder)
            .env("XDG_CONFIG_HOME", &self.folder)
            .env("ANTIPHON_SERVICE_TOKEN", "token of tools")
            .env_remove("HOME")
            .current_dir(&self.folder)
            .arg("mcp")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if !self.url.is_empty() {
            command.env("ANTIPHON_URL", &self.url);
        }
        command
    }

    pub(super) fn wrap(&self, flags: &[&str]) -> ToyClient {
        self.wrap_command(&[flags, &["--", "sh", "toy.sh"]].concat())
    }

    fn wrap_command(&self, arguments: &[&str]) -> ToyClient {
        let mut child = self.command(arguments).spawn().unwrap();
        ToyClient {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// Runs a command to its end. Returns its exit code and outputs.
    pub(super) async fn run(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        let (code, out, err) = self.run_bytes(arguments, input).await;
        (code, String::from_utf8(out).unwrap(), err)
    }

    pub(super) async fn run_bytes(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
        let mut child = self.command(arguments).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writing = tokio::spawn(async move { stdin.write_all(&input).await });
        let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        drop(writing.await);
        (
            output.status.code(),
            output.stdout,
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// Returns the text of the first file with a kept result.
    pub(super) fn kept_text(&self) -> Option<String> {
        let entries = fs::read_dir(self.folder.join("antiphon/mcp")).into_iter().flatten();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        fs::read_to_string(paths.find(|path| path.extension().is_some_and(|end| end == "json"))?).ok()
    }

    /// Names the proxy in the configuration of the user, which is read for each request.
    fn configure(&self, process: &Process) {
        let folder = self.folder.join("antiphon");
        fs::create_dir_all(&folder).unwrap();
        let draft = folder.join("antiphon.draft");
        fs::write(&draft, format!("[server]\nlisten = \"{}\"\n", process.data)).unwrap();
        fs::rename(draft, folder.join("antiphon.toml")).unwrap();
    }

    pub(super) fn open_gate(&self) {
        fs::write(self.folder.join("gate"), "").unwrap();
    }

    pub(super) fn count(&self, file: &str) -> usize {
        fs::read_to_string(self.folder.join(file))
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// Waits until a run has begun.
    pub(super) async fn await_runs(&self, wanted: usize) {
        await_that(|| self.count("runs") == wanted).await;
    }

    /// Returns the number of files of this kind that the wrappers have.
    fn files(&self, ending: &str) -> usize {
        let entries = fs::read_dir(self.folder.join("antiphon/mcp")).into_iter().flatten();
        let has = |path: &Path| path.extension().is_some_and(|end| end == ending);
        entries.filter(|entry| has(&entry.as_ref().unwrap().path())).count()
    }

    /// Ends what goes on without a client. One that waits for its proxy is listed a moment after its server has ended.
    pub(super) async fn stop_all(&self) {
        let stopping = async {
            while processes_of(&self.folder) > 0 {
                self.run(&["stop"], b"").await;
            }
        };
        timeout(PATIENCE, stopping).await.expect("it comes to pass");
    }

    /// Waits until no process of this stage is left.
    pub(super) async fn await_no_process(&self) {
        await_that(|| processes_of(&self.folder) == 0).await;
    }
}

/// Returns the number of processes that run in a folder. Systems without such a list have none.
fn processes_of(folder: &Path) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_in = |process: &fs::DirEntry| fs::read_link(process.path().join("cwd")).is_ok_and(|at| at == folder);
    processes.filter(is_in).count()
}

/// Returns the keeper that runs in a folder.
fn keeper_of(folder: &Path) -> String {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_keeper = |process: &fs::DirEntry| {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).nth(2) == Some(b"keep")
            && fs::read_link(process.path().join("cwd")).is_ok_and(|at| at == folder)
    };
    let names = processes.filter(is_keeper).map(|process| process.file_name());
    names.map(|name| name.into_string().unwrap()).next().unwrap()
}

fn send_signal(name: &str, process: &str) {
    let sent = std::process::Command::new("kill").args(["-s", name, process]).status();
    assert!(sent.unwrap().success());
}

/// Waits until a condition holds.
pub(super) async fn await_that(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it comes to pass");
}

/// The client of a wrapped server.
pub(super) struct ToyClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ToyClient {
    async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    pub(super) async fn send_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    pub(super) async fn call(&mut self, id: u32, call_id: Option<&str>) {
        let meta = call_id.map_or_else(|| json!({}), |id| json!({"claudecode/toolUseId": id}));
        let params = json!({"name": "render", "arguments": {"of": "film"}, "_meta": meta});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await;
    }

    pub(super) async fn cancel(&mut self, id: u32, reason: &str) {
        let params = json!({"requestId": id, "reason": reason});
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
            .await;
    }

    async fn line(&mut self) -> Value {
        let line = timeout(PATIENCE, self.lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the text of the next answer, which is to this request.
    pub(super) async fn text(&mut self, id: u32) -> String {
        let line = self.line().await;
        assert_eq!(line["id"], id, "{line}");
        line["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Waits until the server has read every line before.
    pub(super) async fn sync(&mut self, id: u32) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).await;
        assert_eq!(self.line().await["id"], id);
    }

    /// Ends as a client that is killed: with its pipes, and the process that it has started.
    async fn die(mut self) {
        self.stdin = None;
        self.child.kill().await.unwrap();
    }

    /// Ends its input, and returns the exit code and what was said.
    pub(super) async fn leave(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        let status = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .await
            .unwrap();
        (status.code(), said)
    }
}

/// A script writes its calls into the wrapper and reads the answers, as it would with the bare server.
#[tokio::test]
async fn a_client_that_has_ended_its_input_reads_the_answer() {
    let stage = Stage::new("http://127.0.0.1:9");
    stage.open_gate();
    let params = json!({"name": "render", "arguments": {"of": "film"}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let input = format!("{call}\n");
    let (code, out, err) = stage.run(&["--", "sh", "toy.sh"], input.as_bytes()).await;
    assert!(code == Some(0) && out.contains(FILM), "{code:?} {out} {err}");
    assert_eq!(stage.kept_text(), None);
    stage.await_no_process().await;
}

/// A server fails while the result of an earlier call still waits for its proxy.
#[tokio::test]
async fn the_front_fails_if_the_server_has_failed() {
    const SERVER: &str = r#"read call
        while [ ! -e gate ]; do sleep 0.02; done
        echo '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}'
        read next; exit 3"#;
    let stage = Stage::new("http://127.0.0.1:9");
    let mut client = stage.wrap_command(&["--", "sh", "-c", SERVER]);
    client.call(1, Some("toolu_01AaBb9dE3fG7hJ2")).await;
    client.cancel(1, "timeout").await;
    stage.open_gate();
    await_that(|| stage.kept_text().is_some()).await;
    client.send_line("{}").await;
    let status = timeout(PATIENCE, client.child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(1));
    send_signal("TERM", &keeper_of(&stage.folder));
    stage.await_no_process().await;
}

/// A conversation through a proxy, of which the model calls the tool.
struct Conversation {
    provider: Provider,
    install: Install,
    process: Process,
    messages: Vec<Value>,
}

impl Conversation {
    async fn start() -> Self {
        let provider = Provider::start().await;
        let install = install(&provider);
        let process = install.start().await;
        let mut new = Self {
            provider,
            install,
            process,
            messages: Vec::new(),
        };
        new.says("hello", Reply::Text("hello".to_owned())).await;
        new
    }

    fn url(&self) -> String {
        format!("http://{}", self.process.data)
    }

    async fn says(&mut self, words: &str, reply: Reply) {
        self.messages.push(json!({"role": "user", "content": words}));
        self.provider.reply(reply);
        let body = json!({"model": "m", "max_tokens": 99, "messages": self.messages}).to_string();
        let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", "one")];
        let answer = self
            .process
            .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
            .await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        self.messages
            .push(json!({"role": "assistant", "content": answer.json()["content"]}));
    }

    async fn calls(&mut self, id: &str) {
        let call = ToolCall::new(id, "mcp__toy__render", json!({"of": "film"}));
        self.says("render it", Reply::Calls(vec![call])).await;
    }

    /// The client's own answer to the call.
    fn brings(&mut self, id: &str, text: &str) {
        self.messages
            .push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}));
    }

    /// Returns how often the last request to the provider contains the film.
    fn films(&self) -> usize {
        String::from_utf8_lossy(&self.provider.last().body)
            .matches(FILM)
            .count()
    }

    /// Waits until the proxy has so many results that no request contains.
    async fn await_outstanding(&self, wanted: usize) {
        self.await_list("", |list| list.len() == wanted).await;
    }

    /// Waits until the ledger has a call: an answer of the proxy does not wait for a slow disk, and a proxy that is killed
    /// before does not know the call.
    async fn await_open(&self, id: &str) {
        self.await_list("?state=open", |list| list.iter().any(|call| call["call_id"] == id))
            .await;
    }

    async fn await_list(&self, query: &str, holds: impl Fn(&[Value]) -> bool) {
        let path = format!("/ledger/v1/outstanding{query}");
        let asking = async {
            loop {
                let request = crate::support::app::get_with(&path, &[("x-api-key", "sk-ann")]);
                let answer = self.process.ask(request).await;
                if answer.json()["outstanding"].as_array().is_some_and(|list| holds(list)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, asking).await.expect("the result is posted");
    }
}

#[tokio::test]
async fn a_wrapped_server_is_the_server() {
    let stage = Stage::new("http://127.0.0.1:9");
    let input = b"{\"id\":1,\"method\":\"x\"}\r\nnoise\n\n[1]\n\xc3\xa4 last";
    let (code, out, err) = stage.run(&["--", "cat"], input).await;
    assert_eq!((code, out.as_bytes(), &err[..]), (Some(0), &input[..], ""));
    let script = "echo said >&2; env | grep -c 'ANTIPHON.*TOKEN'; exit 7";
    let (code, out, err) = stage.run(&["--", "sh", "-c", script], b"").await;
    assert_eq!((code, &out[..], &err[..]), (Some(7), "0\n", "said\n"));
    let (code, ..) = stage.run(&["--", "sh", "-c", "kill -9 $$"], b"").await;
    assert_eq!(code, Some(137));
    let (code, _, err) = stage.run(&["--", "no-such-server"], b"").await;
    assert!(
        code == Some(127) && err.contains("antiphon: cannot run no-such-server: there is no such command"),
        "{code:?} {err}"
    );
    let (code, _, err) = stage.run(&["--", "./toy.sh"], b"").await;
    assert!(
        code == Some(126) && err.contains("cannot run ./toy.sh: Permission denied"),
        "{code:?} {err}"
    );
    for wrong in [
        &[][..],
        &["no-such"],
        &["--linger", "0s", "--", "cat"],
        &["--tier", "x", "--", "cat"],
    ] {
        let (code, _, err) = stage.run(wrong, b"").await;
        assert!(code == Some(2) && !err.is_empty(), "{wrong:?} {code:?} {err}");
    }
    stage.await_no_process().await;
}

/// A flood in one direction does not stop the other.
#[tokio::test]
async fn much_passes_in_both_directions() {
    let stage = Stage::new("http://127.0.0.1:9");
    let mut input = Vec::new();
    for at in 0..20_000 {
        input.extend_from_slice(
            format!(
                "{{\"id\":{at},\"method\":\"x\",\"pad\":\"{}\"}}\n",
                "y".repeat(at % 700)
            )
            .as_bytes(),
        );
    }
    input.extend(vec![b'z'; 3 * 1024 * 1024]);
    let mut child = stage.command(&["--", "cat"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let given = input.clone();
    let writing = tokio::spawn(async move { stdin.write_all(&given).await });
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    writing.await.unwrap().unwrap();
    assert!(
        output.stdout == input,
        "{} of {} bytes",
        output.stdout.len(),
        input.len()
    );
    stage.await_no_process().await;
}

/// The client is killed in a slow call. The result is in the next request of its conversation, once.
#[tokio::test]
async fn a_result_after_the_death_of_its_client_reaches_its_conversation() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    let mut client = stage.wrap(&[]);
    conversation.calls(IDS[0]).await;
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    client.die().await;
    await_that(|| stage.files("run") == 1).await;
    stage.open_gate();
    conversation.await_outstanding(1).await;
    stage.await_no_process().await;
    assert_eq!(stage.files("run"), 0);
    conversation.brings(IDS[0], "the call was interrupted");
    conversation.says("go on", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
    conversation.says("and?", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
}

/// The keeper sees the result before it sees that nobody reads it any more.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_result_that_could_not_be_written_reaches_its_conversation() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    for cycle in 0..8 {
        let id = format!("toolu_01AbC9dE3fG7hJ2kL4m{cycle:05}");
        let mut client = stage.wrap(&[]);
        conversation.calls(&id).await;
        client.call(1, Some(&id)).await;
        stage.await_runs(cycle + 1).await;
        let keeper = keeper_of(&stage.folder);
        send_signal("STOP", &keeper);
        client.die().await;
        stage.open_gate();
        // The keeper and the server are left: the tool has answered.
        await_that(|| processes_of(&stage.folder) == 2).await;
        send_signal("CONT", &keeper);
        conversation.await_outstanding(1).await;
        stage.await_no_process().await;
        conversation.brings(&id, "the call was interrupted");
        conversation.says("go on", Reply::Text("fine".to_owned())).await;
        assert_eq!(conversation.films(), cycle + 1);
        fs::remove_file(stage.folder.join("gate")).unwrap();
    }
    assert_eq!(stage.files("run"), 0);
}

/// The client has read the result, and dies before it sends it on: the result stands in the place of its call, once.
#[tokio::test]
async fn a_result_that_was_read_last_is_restored_where_it_is_missing() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    stage.open_gate();
    let mut client = stage.wrap(&[]);
    conversation.calls(IDS[0]).await;
    client.call(1, Some(IDS[0])).await;
    assert_eq!(client.text(1).await, FILM);
    client.die().await;
    stage.await_no_process().await;
    conversation.says("go on", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
    // One that has sent it on has it once.
    let mut client = stage.wrap(&[]);
    conversation.calls(IDS[1]).await;
    client.call(1, Some(IDS[1])).await;
    assert_eq!(client.text(1).await, FILM);
    conversation.brings(IDS[1], FILM);
    conversation.says("thanks", Reply::Text("fine".to_owned())).await;
    drop(client.leave().await);
    stage.await_no_process().await;
    conversation.says("and?", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 2);
    conversation.await_outstanding(0).await;
}

/// As above, and the resumed session calls the same tool again while it runs: one run, and the true result.
#[tokio::test]
async fn a_call_in_a_new_process_joins_the_run_of_the_old_one() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    let mut client = stage.wrap(&[]);
    conversation.calls(IDS[0]).await;
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    client.die().await;
    await_that(|| stage.files("run") == 1).await;
    let mut client = stage.wrap(&[]);
    client.call(1, Some(IDS[1])).await;
    client.sync(2).await;
    stage.open_gate();
    assert_eq!(client.text(1).await, FILM);
    assert_eq!(stage.count("runs"), 1);
    conversation.await_outstanding(0).await;
    assert_eq!(client.leave().await.0, Some(0));
    stage.await_no_process().await;
    assert_eq!((stage.files("run"), stage.files("json")), (0, 0));
}

/// Without the name of a call nothing is posted: a retry gets the result, also in another process.
#[tokio::test]
async fn a_result_without_a_name_waits_for_a_retry() {
    let stage = Stage::new("http://127.0.0.1:9");
    let mut client = stage.wrap(&[]);
    client.call(1, None).await;
    stage.await_runs(1).await;
    client.die().await;
    stage.open_gate();
    stage.await_no_process().await;
    assert_eq!(stage.files("json"), 1);
    let sealed = fs::read_dir(stage.folder.join("antiphon/mcp")).unwrap();
    for path in sealed.map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("film"), "{}", path.display());
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    let mut client = stage.wrap(&[]);
    client.call(1, None).await;
    assert_eq!(client.text(1).await, FILM);
    assert_eq!(stage.count("runs"), 1);
    // It goes once the client has it, and is given once.
    await_that(|| stage.files("json") == 0).await;
    client.call(2, None).await;
    assert_eq!(client.text(2).await, FILM);
    assert_eq!(stage.count("runs"), 2);
    client.die().await;
    stage.await_no_process().await;
}

/// The client's timeout is held, and its retry joins. A person's cancel reaches the server.
#[tokio::test]
async fn a_timeout_does_not_stop_a_run_and_a_person_does() {
    let stage = Stage::new("http://127.0.0.1:9");
    let mut client = stage.wrap(&[]);
    client.call(1, None).await;
    client.cancel(1, "McpError: Request timed out").await;
    client.call(2, None).await;
    client.sync(3).await;
    assert_eq!((stage.count("runs"), stage.count("cancels")), (1, 0));
    client.cancel(2, "Request timed out").await;
    client.call(4, None).await;
    stage.open_gate();
    assert_eq!(client.text(4).await, FILM);
    fs::remove_file(stage.folder.join("gate")).unwrap();
    client.call(5, None).await;
    client.cancel(5, "the user pressed Escape").await;
    client.sync(6).await;
    assert_eq!((stage.count("runs"), stage.count("cancels")), (2, 1));
    client.die().await;
    stage.await_no_process().await;
}

/// The early answer says how to wait, the result is posted, and is in the next message of the user.
#[tokio::test]
async fn an_early_answer_is_followed_by_the_result() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    let mut client = stage.wrap(&["--answer-after", "300ms"]);
    conversation.calls(IDS[0]).await;
    client.call(1, Some(IDS[0])).await;
    let early = client.text(1).await;
    assert_eq!(
        early,
        "[antiphon: \"render\" is still running after 0 s; this is not its result. The same call with the same input waits \
         for it and does not start it again. If you end your turn, the result is added to the user's next message when it \
         is ready.]"
    );
    conversation.brings(IDS[0], &early);
    stage.open_gate();
    conversation.await_outstanding(1).await;
    conversation.says("and now?", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
    let (code, said) = client.leave().await;
    assert!(
        code.is_some() && said.contains("its result was posted for the call toolu_01AaBb9dE3fG7hJ2"),
        "{said}"
    );
    assert!(!said.contains(FILM), "{said}");
    stage.await_no_process().await;
}

#[tokio::test]
async fn runs_without_clients_are_listed_and_stopped() {
    let conversation = Conversation::start().await;
    let stage = Stage::new(&conversation.url());
    let (code, out, _) = stage.run(&["ps"], b"").await;
    assert_eq!((code, &out[..]), (Some(0), ""));
    let mut client = stage.wrap(&[]);
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    client.die().await;
    await_that(|| stage.files("run") == 1).await;
    let (_, out, _) = stage.run(&["ps"], b"").await;
    assert!(out.contains("  render  call toolu_01AaBb9dE3fG7hJ2  for "), "{out}");
    let (code, _, err) = stage.run(&["stop", "zzz"], b"").await;
    assert!(
        code == Some(1) && err.contains("no run has the id zzz"),
        "{code:?} {err}"
    );
    let id = out.split_whitespace().next().unwrap();
    let (code, out, _) = stage.run(&["stop", id], b"").await;
    assert_eq!((code, &out[..]), (Some(0), "1 stopped\n"));
    stage.await_no_process().await;
    assert_eq!(stage.files("run"), 0);
}

/// A keeper is killed with the result that its proxy did not get. The proxy posts it at its next start.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_proxy_posts_what_a_killed_keeper_has_left() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::at(conversation.install.state().to_owned(), "http://127.0.0.1:9");
    let mut client = stage.wrap(&[]);
    conversation.calls(IDS[0]).await;
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    conversation.await_open(IDS[0]).await;
    let keeper = keeper_of(&stage.folder);
    client.die().await;
    stage.open_gate();
    await_that(|| stage.files("json") == 1).await;
    send_signal("KILL", &keeper);
    stage.await_no_process().await;
    conversation.process.kill();
    conversation.process = conversation.install.start().await;
    conversation.await_outstanding(1).await;
    conversation.brings(IDS[0], "the call was interrupted");
    conversation.says("go on", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
    // It is posted once.
    conversation.process.kill();
    conversation.process = conversation.install.start().await;
    conversation.says("and?", Reply::Text("fine".to_owned())).await;
    assert_eq!((conversation.films(), stage.files("run")), (1, 0));
}

/// A client is killed in its tool before it has sent the call to its provider. The result is kept, and posted once the proxy
/// has seen the call.
#[tokio::test]
async fn a_result_is_posted_once_the_proxy_knows_its_call() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::at(conversation.install.state().to_owned(), &conversation.url());
    let mut client = stage.wrap(&[]);
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    client.die().await;
    stage.open_gate();
    await_that(|| {
        stage
            .kept_text()
            .is_some_and(|text| text.contains("\"place\":\"retry_only\""))
    })
    .await;
    stage.await_no_process().await;
    conversation.calls(IDS[0]).await;
    conversation.await_open(IDS[0]).await;
    // It is offered at the start, and then each minute.
    conversation.process.kill();
    conversation.process = conversation.install.start().await;
    conversation.await_outstanding(1).await;
    conversation.brings(IDS[0], "the call was interrupted");
    conversation.says("go on", Reply::Text("fine".to_owned())).await;
    assert_eq!(conversation.films(), 1);
}

/// Without a client and without a server, a wrapper that waits for its proxy is listed, and can be ended. Its result stays.
#[tokio::test]
async fn a_wrapper_that_waits_for_its_proxy_is_listed() {
    let stage = Stage::new("http://127.0.0.1:9");
    let mut client = stage.wrap(&[]);
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    client.die().await;
    stage.open_gate();
    await_that(|| stage.files("json") == 1 && stage.files("run") == 0).await;
    await_that(|| stage.files("run") == 1).await;
    let (_, listed, _) = stage.run(&["ps"], b"").await;
    assert!(
        listed.lines().count() == 1 && listed.contains(&format!("render  call {}", IDS[0])),
        "{listed}"
    );
    assert_eq!(stage.run(&["stop"], b"").await.1, "1 stopped\n");
    stage.await_no_process().await;
    assert_eq!(stage.files("json"), 1);
}

/// The folder is removed while the tool runs, so nothing can be kept. The result waits in memory for the proxy.
#[tokio::test]
async fn a_result_that_cannot_be_kept_is_posted() {
    let mut conversation = Conversation::start().await;
    let stage = Stage::new("");
    stage.configure(&conversation.process);
    let mut client = stage.wrap(&[]);
    conversation.calls(IDS[0]).await;
    client.call(1, Some(IDS[0])).await;
    stage.await_runs(1).await;
    conversation.await_open(IDS[0]).await;
    conversation.process.kill();
    fs::remove_dir_all(stage.folder.join("antiphon/mcp")).unwrap();
    client.cancel(1, "timeout").await;
    client.sync(2).await;
    stage.open_gate();
    // Its end is seen before the next line.
    client.sync(3).await;
    conversation.process = conversation.install.start().await;
    stage.configure(&conversation.process);
    conversation.await_outstanding(1).await;
    client.die().await;
    stage.await_no_process().await;
}

/// A bound in number: of 64 servers that go on without their clients, one more is ended with its client.
#[tokio::test]
async fn no_more_servers_go_on_than_may() {
    for others in [63, 64] {
        let stage = Stage::new("http://127.0.0.1:9");
        let folder = stage.folder.join("antiphon/mcp");
        fs::create_dir_all(&folder).unwrap();
        let mark = |number: u32| {
            let file = fs::File::create(folder.join(format!("{number}.run"))).unwrap();
            file.lock().unwrap();
            serde_json::to_writer(&file, &json!({"pid": 1_000_000 + number, "tool": "render", "since": 1})).unwrap();
            file
        };
        let marks: Vec<fs::File> = (0..others).map(mark).collect();
        let mut client = stage.wrap(&[]);
        client.call(1, None).await;
        stage.await_runs(1).await;
        client.die().await;
        if others == 63 {
            await_that(|| stage.files("run") == 64).await;
            stage.open_gate();
        }
        stage.await_no_process().await;
        assert_eq!(stage.files("json"), usize::from(others == 63));
        drop(marks);
    }
}

/// A bound in time: a run that never ends is ended after the time of `--linger`.
#[tokio::test]
async fn a_run_goes_on_no_longer_than_it_may() {
    let stage = Stage::new("http://127.0.0.1:9");
    let mut client = stage.wrap(&["--linger", "300ms"]);
    client.call(1, None).await;
    stage.await_runs(1).await;
    client.die().await;
    stage.await_no_process().await;
    assert_eq!((stage.files("run"), stage.files("json")), (0, 0));
}

/// The end of a part of the story, at random.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// The client, with its pipes and the front.
    Client,
    /// The front alone, by SIGKILL or SIGTERM.
    Front(&'static str),
    /// The client's input ends.
    Input,
    /// The proxy, which starts again before or after the end of the run.
    Proxy(bool),
}

/// Whoever dies, no result is lost or delivered twice, and no process is left. `CYCLES` sets the number of deaths.
#[tokio::test]
async fn no_death_loses_a_result() {
    let seed = crate::support::seed::seed();
    let cycles = crate::support::seed::number("CYCLES").unwrap_or(20);
    println!("seed {seed}");
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut conversation = Conversation::start().await;
    let stage = Stage::new("");
    stage.configure(&conversation.process);
    for cycle in 0..cycles {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let deaths = [
            Death::Client,
            Death::Front("KILL"),
            Death::Front("TERM"),
            Death::Input,
            Death::Proxy(true),
            Death::Proxy(false),
        ];
        let death = deaths[usize::try_from(random % 6).unwrap()];
        println!("cycle {cycle}: {death:?}");
        let id = format!("toolu_01AbC9dE3fG7hJ2kL4m{cycle:05}");
        let mut client = stage.wrap(&[]);
        conversation.calls(&id).await;
        client.call(1, Some(&id)).await;
        stage.await_runs(cycle + 1).await;
        let mut survivor = None;
        match death {
            Death::Client => client.die().await,
            Death::Front(signal) => {
                send_signal(signal, &client.child.id().unwrap().to_string());
                survivor = Some(client);
            }
            Death::Input => drop(client.leave().await),
            Death::Proxy(is_early) => {
                conversation.await_open(&id).await;
                conversation.process.kill();
                client.die().await;
                if !is_early {
                    stage.open_gate();
                    await_that(|| stage.files("json") >= 1).await;
                }
                conversation.process = conversation.install.start().await;
                stage.configure(&conversation.process);
            }
        }
        if survivor.is_some() {
            await_that(|| stage.files("run") == 1).await;
        }
        stage.open_gate();
        conversation.await_outstanding(1).await;
        stage.await_no_process().await;
        conversation.brings(&id, "the call was interrupted");
        conversation.says("go on", Reply::Text("fine".to_owned())).await;
        assert_eq!(conversation.films(), cycle + 1, "{death:?}");
        fs::remove_file(stage.folder.join("gate")).unwrap();
        drop(survivor);
    }
    assert_eq!((stage.count("runs"), stage.files("run")), (cycles, 0));
}
