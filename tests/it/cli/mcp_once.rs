//! `antiphon mcp --once` with the real binary and a real proxy: one run for each input, whoever dies.

use std::{
    fs,
    path::{Path, PathBuf},
};

use antiphon::auth::TokenHash;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{FILM, PATIENCE, Stage, TOY, ToyClient, await_that, keeper_of, send_signal};
use crate::support::{
    binary::{Install, Process},
    state,
};

/// The flags of a wrapper whose tools run once.
const ONCE: &[&str] = &["--once", "render"];

/// A proxy, and the folder in which wrappers of its user run.
struct OnceBench {
    install: Install,
    process: Process,
    stage: Stage,
}

impl OnceBench {
    async fn start(config: &str) -> Self {
        let install = Install::new(config);
        let process = install.start().await;
        let stage = stage_at(install.state().to_owned());
        stage.configure(&process);
        Self {
            install,
            process,
            stage,
        }
    }

    fn kill_proxy(&mut self) {
        self.process.kill();
    }

    async fn restart_proxy(&mut self) {
        self.process = self.install.start().await;
        self.stage.configure(&self.process);
    }

    /// Starts a wrapper with the token of this machine.
    fn wrap(&self, flags: &[&str]) -> ToyClient {
        wrap_with(&self.stage, flags, None)
    }

    /// Asks a new wrapper, which has no other call. Returns what its model reads.
    async fn ask(&self, flags: &[&str]) -> String {
        ask_with(&self.stage, flags, None).await
    }
}

/// Returns a stage whose server tells its name.
fn stage_at(folder: PathBuf) -> Stage {
    let stage = Stage::at(folder, "");
    let named = TOY.replace(r#""result":{}}"#, r#""result":{"serverInfo":{"name":"toy"}}}"#);
    fs::write(stage.folder.join("toy.sh"), named).unwrap();
    stage
}

/// Starts a wrapper with the token of a service, or with that of this machine.
fn wrap_with(stage: &Stage, flags: &[&str], token: Option<&str>) -> ToyClient {
    let arguments = [flags, &["--", "sh", "toy.sh"]].concat();
    let mut command = stage.command(&arguments);
    match token {
        Some(token) => command.env("ANTIPHON_SERVICE_TOKEN", token),
        None => command.env_remove("ANTIPHON_SERVICE_TOKEN"),
    };
    let mut child = command.spawn().unwrap();
    ToyClient {
        stdin: child.stdin.take(),
        lines: BufReader::new(child.stdout.take().unwrap()).lines(),
        child,
    }
}

/// Asks a new wrapper, which has no other call. Returns what its model reads.
async fn ask_with(stage: &Stage, flags: &[&str], token: Option<&str>) -> String {
    let mut client = wrap_with(stage, flags, token);
    greet(&mut client).await;
    client.call(1, None).await;
    let text = client.text(1).await;
    client.leave().await;
    text
}

async fn greet(client: &mut ToyClient) {
    let params = json!({"clientInfo": {"name": "c"}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
        .await;
    assert_eq!(client.line().await["id"], 0);
}

/// Over sessions, and over a restart of the proxy. Neither the ledger nor the log has input or result.
#[tokio::test]
async fn a_tool_runs_once_over_sessions() {
    let mut bench = OnceBench::start("").await;
    bench.stage.open_gate();
    let mut client = bench.wrap(ONCE);
    greet(&mut client).await;
    client.call(1, Some("toolu_1")).await;
    assert_eq!(client.text(1).await, FILM);
    client.call(2, Some("toolu_2")).await;
    assert_eq!(client.text(2).await, FILM);
    let params = json!({"name": "render", "arguments": {"of": "canary"}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}))
        .await;
    assert_eq!(client.text(3).await, FILM);
    assert_eq!(bench.stage.count("runs"), 2);
    let (code, said) = client.leave().await;
    assert_eq!(code, Some(0));
    assert!(
        said.contains("render ran ") && said.contains(" ago and did not run again"),
        "{said}"
    );
    bench.kill_proxy();
    let log = bench.process.log().join("\n");
    let files = fs::read_dir(bench.install.ledger().parent().unwrap()).unwrap();
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    for path in files {
        let bytes = fs::read(&path).unwrap();
        for word in [&b"canary"[..], b"the film"] {
            assert!(
                !bytes.windows(word.len()).any(|part| part == word),
                "{}",
                path.display()
            );
        }
    }
    assert!(!log.contains("canary") && !log.contains("the film"), "{log}");
    bench.restart_proxy().await;
    assert_eq!(bench.ask(ONCE).await, FILM);
    // The proxy knows the tool by the name of its server.
    let request = crate::support::app::get_with("/admin/v1/intents", &[]);
    let intents = bench.process.ask_admin(request).await;
    assert!(intents.text().contains("mcp:toy:render"), "{}", intents.text());
    assert_eq!(bench.stage.count("runs"), 2);
    bench.stage.await_no_process().await;
}

/// Of many wrappers at once one runs the tool, and each gets the result.
#[tokio::test]
async fn of_many_wrappers_at_once_one_runs() {
    let bench = OnceBench::start("").await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = bench.wrap(ONCE);
        greet(&mut client).await;
        clients.push(client);
    }
    for client in &mut clients {
        client.call(1, None).await;
    }
    bench.stage.await_runs(1).await;
    bench.stage.open_gate();
    for client in &mut clients {
        assert_eq!(client.text(1).await, FILM);
    }
    assert_eq!(bench.stage.count("runs"), 1);
    for client in clients {
        client.leave().await;
    }
    bench.stage.await_no_process().await;
}

/// The client dies in the run, which goes on. Its result is that of every later call.
#[tokio::test]
async fn a_run_outlives_its_client() {
    let bench = OnceBench::start("").await;
    let mut client = bench.wrap(ONCE);
    greet(&mut client).await;
    client.call(1, None).await;
    bench.stage.await_runs(1).await;
    client.die().await;
    await_that(|| bench.stage.files("run") == 1).await;
    let mut client = bench.wrap(ONCE);
    greet(&mut client).await;
    client.call(1, None).await;
    client.sync(2).await;
    bench.stage.open_gate();
    assert_eq!(client.text(1).await, FILM);
    client.leave().await;
    bench.stage.await_no_process().await;
    for _ in 0..2 {
        assert_eq!(bench.ask(ONCE).await, FILM);
    }
    assert_eq!((bench.stage.count("runs"), bench.stage.files("run")), (1, 0));
}

/// The keeper dies in the run: its tool may go on, so that the same call waits, and says so.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_killed_keeper_leaves_a_claim() {
    let bench = OnceBench::start("").await;
    let mut client = bench.wrap(ONCE);
    greet(&mut client).await;
    client.call(1, None).await;
    bench.stage.await_runs(1).await;
    send_signal("KILL", &keeper_of(&bench.stage.folder));
    client.die().await;
    let text = bench.ask(&["--once", "*", "--answer-after", "300ms"]).await;
    assert_eq!(
        text,
        "[antiphon: \"render\" is running elsewhere, still after 0 s; this is not its result. The same call with the same \
         input waits for it and does not start it again.]"
    );
    bench.stage.open_gate();
    assert_eq!(bench.stage.count("runs"), 1);
    bench.stage.await_no_process().await;
}

/// The proxy dies between claim and report. The client gets its result at once, and the proxy once it is there again.
#[tokio::test]
async fn a_report_waits_for_the_proxy() {
    let mut bench = OnceBench::start("").await;
    let mut client = bench.wrap(ONCE);
    greet(&mut client).await;
    client.call(1, None).await;
    bench.stage.await_runs(1).await;
    bench.kill_proxy();
    bench.stage.open_gate();
    assert_eq!(client.text(1).await, FILM);
    // Without the proxy nothing runs.
    client.call(2, None).await;
    let text = client.text(2).await;
    assert!(
        text.contains("cannot connect") && text.ends_with("; render did not run]"),
        "{text}"
    );
    client.die().await;
    bench.restart_proxy().await;
    assert_eq!(bench.ask(ONCE).await, FILM);
    assert_eq!(bench.stage.count("runs"), 1);
    bench.stage.await_no_process().await;
}

/// A person stops a run whose server says nothing: the same call waits until its lease ends.
#[tokio::test]
async fn a_run_that_a_person_has_stopped_may_still_go_on() {
    let bench = OnceBench::start("").await;
    let mut client = bench.wrap(&["--once", "render", "--answer-after", "300ms"]);
    greet(&mut client).await;
    client.call(1, None).await;
    bench.stage.await_runs(1).await;
    client.cancel(1, "the user pressed Escape").await;
    client.call(2, None).await;
    let text = client.text(2).await;
    assert!(text.contains("is running elsewhere"), "{text}");
    assert_eq!((bench.stage.count("runs"), bench.stage.count("cancels")), (1, 1));
    // It has ended all the same: the same call gets its result.
    bench.stage.open_gate();
    for _ in 0..2 {
        assert_eq!(bench.ask(ONCE).await, FILM);
    }
    client.die().await;
    bench.stage.await_no_process().await;
    assert_eq!(bench.stage.count("runs"), 1);
}

/// A failed run may be repeated, unless its effect cannot be undone. Rows: the configuration, the flags, and the runs.
#[tokio::test]
async fn a_failure_is_repeated_by_its_tier() {
    let strict = "[tools.\"mcp:toy:render\"]\ntier = \"one_way\"\n";
    for (config, flags, runs) in [
        ("", ONCE, 2),
        (strict, ONCE, 1),
        ("", &["--once", "render", "--tier", "render=one_way"], 1),
        (strict, &["--once", "render", "--tier", "render=read"], 1),
    ] {
        let bench = OnceBench::start(config).await;
        let script = fs::read_to_string(bench.stage.folder.join("toy.sh")).unwrap();
        let failing = script.replace(r#""result":{"content""#, r#""result":{"isError":true,"content""#);
        fs::write(bench.stage.folder.join("toy.sh"), failing).unwrap();
        bench.stage.open_gate();
        for _ in 0..2 {
            assert_eq!(bench.ask(flags).await, FILM);
        }
        assert_eq!(bench.stage.count("runs"), runs, "{config} {flags:?}");
    }
}

/// A service claims for the user of each state folder, if it may. One user never gets the result of another.
#[tokio::test]
async fn a_service_claims_for_its_users() {
    let token = TokenHash::hash_token(b"token of tools");
    for (more, runs) in [("on_behalf = true\n", 2), ("", 0)] {
        let service = format!("[services.tools]\ntoken = \"{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n");
        let bench = OnceBench::start(&format!("{service}{more}")).await;
        let other = stage_at(state::directory());
        other.configure(&bench.process);
        for stage in [&bench.stage, &other, &bench.stage] {
            stage.open_gate();
            let text = ask_with(stage, ONCE, Some("token of tools")).await;
            if runs == 0 {
                assert!(
                    text.contains("the operator can set services.NAME.on_behalf; render did not run]"),
                    "{text}"
                );
            } else {
                assert_eq!(text, FILM);
            }
        }
        assert_eq!(bench.stage.count("runs") + other.count("runs"), runs);
    }
}

/// Without a ledger that survives a restart nothing runs, and without the token of this machine.
#[tokio::test]
async fn nothing_runs_without_a_durable_ledger() {
    let token = TokenHash::hash_token(b"token of tools");
    let bench = OnceBench::start(&format!(
        "[ledger]\nstore = \"memory\"\n[services.tools]\ntoken = \"{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\non_behalf \
         = true\n"
    ))
    .await;
    for (token, wanted) in [
        (Some("token of tools"), "no ledger that survives a restart answers: "),
        (Some("token of nobody"), "the proxy does not know this token: "),
        (None, "there is no token of this machine's proxy: "),
    ] {
        let text = ask_with(&bench.stage, ONCE, token).await;
        let is_wanted = text.starts_with(&format!("[antiphon: {wanted}")) && text.ends_with("; render did not run]");
        assert!(is_wanted, "{text}");
    }
    assert_eq!(bench.stage.count("runs"), 0);
}

/// The answers of a scripted proxy. Rows: the answer to a claim, what the model reads, and `true` if it is an error.
#[tokio::test]
async fn the_model_reads_why_a_tool_did_not_run() {
    let problem = |code: &str, more: &str| format!(r#"{{"code":"{code}","title":"T","detail":"D"{more}}}"#);
    let rows: &[(u16, String, &str, bool)] = &[
        (
            409,
            problem("outcome_unknown", r#","intent":"int_5","since":1"#),
            "render may have run, and did not run again; find out if its effect happened, then: antiphon intents resolve \
             int_5 done|not-run",
            true,
        ),
        (503, problem("no_durable_ledger", ""), "D; render did not run", true),
        (507, problem("ledger_full", ""), "D; render did not run", true),
        (429, problem("busy", ""), "D; render did not run", true),
        (408, problem("slow", ""), "D; render did not run", true),
        (403, problem("not_on_behalf", ""), "D; render did not run", true),
        (422, problem("malformed", ""), "D; render did not run", true),
        (
            404,
            problem("not_found", ""),
            "the proxy does not know this token: ANTIPHON_SERVICE_TOKEN must be that of one of [services] which may run \
             this tool; render did not run",
            true,
        ),
        (
            200,
            "[]".to_owned(),
            "{URL}: the answer is not one of Antiphon's API; check the URL of the proxy; render did not run",
            true,
        ),
        (
            201,
            "{}".to_owned(),
            "{URL}: the answer is not one of Antiphon's API; check the URL of the proxy; render did not run",
            true,
        ),
        (
            200,
            format!(r#"{{"state":"settled","result":null,"settled_at":{}}}"#, u64::MAX),
            "render ran 0 s ago and did not run again; its result was never stored, or has been removed",
            false,
        ),
        (
            200,
            format!(
                r#"{{"state":"failed","result":{{"content":"AAAA"}},"settled_at":{}}}"#,
                u64::MAX
            ),
            "render failed 0 s ago and did not run again; its result cannot be decrypted",
            false,
        ),
    ];
    for row in rows {
        reads_refusal(row).await;
    }
}

/// Checks what the model reads after the answer of a row.
async fn reads_refusal((status, body, wanted, is_error): &(u16, String, &str, bool)) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut stage = stage_at(state::directory());
    stage.url.clone_from(&url);
    stage.open_gate();
    let answering = tokio::spawn(answer_claims(
        listener,
        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
    ));
    let mut client = wrap_with(&stage, ONCE, Some("token of tools"));
    greet(&mut client).await;
    client.call(1, Some("toolu_1")).await;
    let line = client.line().await;
    let wanted = format!("[antiphon: {}]", wanted.replace("{URL}", &url));
    assert_eq!(line["result"]["content"][0]["text"], wanted, "{status} {body}");
    assert_eq!(line["result"]["isError"] == true, *is_error, "{status} {body}");
    assert_eq!(line.as_object().unwrap().len(), 3, "{line}");
    assert_eq!(stage.count("runs"), 0, "{status} {body}");
    client.leave().await;
    answering.abort();
}

/// A claim is kept alive while its tool runs, and a report that was lost is sent again. The proxy is scripted.
#[tokio::test]
async fn a_claim_is_kept_while_its_tool_runs() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stage = stage_at(state::directory());
    stage.url = format!("http://{}", listener.local_addr().unwrap());
    let mut client = wrap_with(
        &stage,
        &["--once", "*", "--tier", "render=one_way"],
        Some("token of tools"),
    );
    greet(&mut client).await;
    client.call(1, Some("toolu_1")).await;
    let mut seen = Vec::new();
    let proxy = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (path, body) = read_request(&mut stream).await;
            let (status, answer) = match path.rsplit('/').next().unwrap() {
                "intents" => (
                    201,
                    r#"{"intent":"int_1","claim":"claim_1","idempotency_key":"k","lease_until":1}"#,
                ),
                "heartbeat" => (200, "{}"),
                _ if seen.iter().any(|(seen, _)| *seen == path) => (200, "{}"),
                _ => (408, "{}"),
            };
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
            let is_told = path.ends_with("/result") && status == 200;
            if path.ends_with("/heartbeat") {
                stage.open_gate();
            }
            seen.push((path, body));
            if is_told {
                return;
            }
        }
    };
    timeout(PATIENCE, proxy).await.expect("the run is reported");
    assert_eq!(client.text(1).await, FILM);
    let claim = &seen[0].1;
    let input = claim["input"].as_object().unwrap();
    assert_eq!((input["of"].as_str(), input.len()), (Some("film"), 2), "{claim}");
    assert_eq!(claim["tool"], "mcp:toy:render");
    assert_eq!(
        (claim["tier"].as_str(), claim["lease"].as_str()),
        (Some("one_way"), Some("2m"))
    );
    assert_eq!(claim["user"].as_str().map(str::len), Some(64));
    assert_eq!(claim.as_object().unwrap().len(), 5, "{claim}");
    let reports: Vec<_> = seen.iter().filter(|(path, _)| path.ends_with("/result")).collect();
    assert_eq!(reports.len(), 2);
    for (path, report) in reports {
        assert_eq!(path, "/ledger/v1/intents/int_1/result");
        assert_eq!(
            (report["claim"].as_str(), report["is_error"].as_bool()),
            (Some("claim_1"), Some(false))
        );
    }
    client.leave().await;
    stage.await_no_process().await;
}

/// The end of a part of the story, at random.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug)]
enum OnceDeath {
    Nobody,
    Client,
    Front(&'static str),
    Keeper,
    /// The proxy, which starts again before or after the end of the run.
    Proxy(bool),
}

/// Whoever dies, no tool runs twice for one input. `CYCLES` sets the number of deaths.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_death_lets_a_tool_run_twice() {
    let seed = crate::support::seed::seed();
    let cycles = crate::support::seed::number("CYCLES").unwrap_or(20);
    println!("seed {seed}");
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bench = OnceBench::start("").await;
    for cycle in 0..cycles {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let deaths = [
            OnceDeath::Nobody,
            OnceDeath::Client,
            OnceDeath::Front("KILL"),
            OnceDeath::Front("TERM"),
            OnceDeath::Keeper,
            OnceDeath::Proxy(true),
            OnceDeath::Proxy(false),
        ];
        let death = deaths[usize::try_from(random % 7).unwrap()];
        println!("cycle {cycle}: {death:?}");
        let params = json!({"name": "render", "arguments": {"of": cycle}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let mut client = bench.wrap(ONCE);
        greet(&mut client).await;
        client.send(&call).await;
        bench.stage.await_runs(cycle + 1).await;
        bench.meet(death, &mut client).await;
        bench.stage.open_gate();
        // Nobody reports the end of a run whose keeper was killed.
        let flags: &[&str] = match death {
            OnceDeath::Keeper => &["--once", "render", "--answer-after", "300ms"],
            _ => ONCE,
        };
        let mut next = bench.wrap(flags);
        greet(&mut next).await;
        next.send(&call).await;
        let text = next.text(1).await;
        let is_elsewhere = matches!(death, OnceDeath::Keeper) && text.contains("is running elsewhere");
        assert!(is_elsewhere || text == FILM, "{text}");
        next.leave().await;
        client.die().await;
        bench.stage.await_no_process().await;
        assert_eq!(bench.stage.count("runs"), cycle + 1, "{death:?}");
        fs::remove_file(bench.stage.folder.join("gate")).unwrap();
    }
}

#[cfg(target_os = "linux")]
impl OnceBench {
    async fn meet(&mut self, death: OnceDeath, client: &mut ToyClient) {
        match death {
            OnceDeath::Nobody => {}
            OnceDeath::Client => {
                client.stdin = None;
                client.child.kill().await.unwrap();
            }
            OnceDeath::Front(signal) => send_signal(signal, &client.child.id().unwrap().to_string()),
            OnceDeath::Keeper => send_signal("KILL", &keeper_of(&self.stage.folder)),
            OnceDeath::Proxy(is_early) => {
                self.kill_proxy();
                if !is_early {
                    self.stage.open_gate();
                    assert_eq!(client.text(1).await, FILM);
                }
                self.restart_proxy().await;
            }
        }
    }
}

/// Gives each request the same answer.
async fn answer_claims(listener: TcpListener, answer: String) {
    while let Ok((mut stream, _)) = listener.accept().await {
        drop(read_request(&mut stream).await);
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Reads a request. Returns its path and its body.
async fn read_request(stream: &mut TcpStream) -> (String, Value) {
    let mut request = Vec::new();
    let reading = async {
        loop {
            let head = request.windows(4).position(|part| part == b"\r\n\r\n");
            let text = String::from_utf8_lossy(&request).to_lowercase();
            let length = text
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next());
            if let (Some(head), Some(length)) = (head, length)
                && request.len() >= head + 4 + length.parse::<usize>().unwrap()
            {
                let path = String::from_utf8_lossy(&request).split(' ').nth(1).unwrap().to_owned();
                return (path, serde_json::from_slice(&request[head + 4..]).unwrap_or_default());
            }
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
    };
    timeout(PATIENCE, reading).await.expect("a whole request")
}

/// Two servers of one name in two folders have two effects.
#[tokio::test]
async fn another_folder_is_another_effect() {
    let bench = OnceBench::start("").await;
    let inner = bench.stage.folder.join("inner");
    fs::create_dir_all(&inner).unwrap();
    for folder in [&bench.stage.folder, &inner] {
        fs::copy(bench.stage.folder.join("toy.sh"), folder.join("copy.sh")).unwrap();
        fs::write(folder.join("gate"), "").unwrap();
    }
    let runs = |folder: &Path| {
        fs::read_to_string(folder.join("runs"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    for (folder, wanted) in [(&bench.stage.folder, 1), (&inner, 1), (&inner, 1)] {
        let mut command = bench.stage.command(&["--once", "render", "--", "sh", "copy.sh"]);
        command.env_remove("ANTIPHON_SERVICE_TOKEN").current_dir(folder);
        let mut child = command.spawn().unwrap();
        let mut client = ToyClient {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        };
        greet(&mut client).await;
        client.call(1, None).await;
        assert_eq!(client.text(1).await, FILM);
        client.leave().await;
        assert_eq!(runs(folder), wanted);
    }
}
