//! `antiphon demo`: the printed stories, and no leftovers after the end.

use std::{
    net::{SocketAddr, TcpListener},
    process::Stdio,
};

use antiphon::{config::VARIABLES, repair::Action};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::support::{
    app::post_with,
    state,
    wire::{Client, Message, spawn},
};

const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];

pub(crate) fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .arg("demo")
        .args(arguments)
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command and returns exit code, stdout and stderr.
async fn run_to_end(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the stories, each in one line.
fn stories(text: &str) -> Vec<String> {
    let flat = |story: &str| story.split_whitespace().collect::<Vec<_>>().join(" ");
    let (stories, _) = text.split_once(&format!("\n{SCORE}\n")).expect(text);
    let numbered = |story: &&str| story.starts_with(|letter: char| letter.is_ascii_digit());
    stories.split("\n\n").filter(numbered).map(flat).collect()
}

const SCORE: &str = "without Antiphon: 7 of 7 failed; with Antiphon: 7 of 7 went on";

/// Parts of each story, in their order.
const PARTS: [&[&str]; 7] = [
    &[
        "1. The agent is killed while a tool runs (github/copilot-cli#3183)",
        "without: 400 messages.465: `tool_use` ids were found without `tool_result` blocks immediately after: \
         toolu_01Bash4kP2sT6vX8zA3d. Each `tool_use` block must have a corresponding `tool_result` block in the next \
         message.",
        "with: 200 Antiphon adds the missing result: a placeholder, which says that none is known.",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_01Bash4kP2sT6vX8zA3d\"",
        "- {\"role\":\"user\",\"content\":\"Are you there?\"}",
        "+ {\"role\":\"user\",\"content\":[",
        "+ {\"type\":\"tool_result\",\"tool_use_id\":\"toolu_01Bash4kP2sT6vX8zA3d\",\"content\":\"[antiphon: no result was \
         recorded for this tool call;",
        "+ {\"type\":\"text\",\"text\":\"Are you there?\"}",
        "+ ]}",
    ],
    &[
        "2. The process dies before it saves the tools' results (garrytan/gbrain#2273)",
        "without: 400 messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: …",
        "with: 200 Antiphon adds the two results that were posted, and a placeholder for the third:",
        "lint: 0 warnings",
        "test: 212 passed, 1 failed: parses_dates",
        "package: [antiphon: no result was recorded for this tool call …]",
    ],
    &[
        "3. The user stops a tool and asks for something else (alchemiststudiosDOTai/tunacode#246)",
        "without: 400 An assistant message with 'tool_calls' must be followed by tool messages responding to each \
         'tool_call_id'. The following tool_call_ids did not have response messages: call_Gx7Kp2Lm9Qr4St8Vw3Yz",
        "with: 200",
        "x-antiphon-repair: placeholder=1",
    ],
    &[
        "4. A tool hangs, and healthy API keys get the blame (openclaw/openclaw#16554)",
        "without: A gateway that blames the key for each timeout (imitated here) has 0 of 2 keys left, although 2 of 2 \
         still work.",
        "with: 200 The search has its own timeout: 2 of 2 keys stay in use, for the next request.",
        "error event: Overloaded: timeout: a tool that the provider runs gave no sign for too long; try again …",
    ],
    &[
        "5. A tool ends after its conversation was closed (Tian Pan:",
        "without: 400 messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: …",
        "with: 200 Ann comes back: her request contains \"rendered: harbour.mp4, 214 MB\" once.",
        "with: 200 Ben asks too: his request contains nothing of it.",
    ],
    &[
        "6. The user starts over, and the tool runs twice (stripe/ai#402)",
        "without: The service of the tool (imitated here) sees two calls with two ids: it renders 2 times.",
        "with: 409 The service asks Antiphon before it runs the tool: the second claim is refused, since the film is \
         being rendered.",
        "with: 200 The new conversation contains \"film: harbour.mp4, 214 MB\" once, marked as that of the earlier call.",
        "with: 403 A sent mail cannot be taken back. This claim is refused: only the conversation could tell Alice that it \
         was sent, and she may leave it at any time.",
    ],
    &[
        "7. The client gives up a tool of an MCP server (anthropics/claude-code#22542)",
        "without: 200 The server ends with its client, and the report is lost: the next request contains nothing of it.",
        "with: 200 antiphon mcp lets the run go on, and posts its result: the next request contains \"report: 41 pages, \
         report.pdf\" once.",
        "The dashboard says where it came from: mcp:toy",
    ],
];

#[tokio::test]
async fn the_stories_are_printed_and_no_files_remain() {
    let home = state::directory();
    let mut command = demo(&FREE);
    command.current_dir(&home);
    for variable in ["HOME", "XDG_STATE_HOME", "TMPDIR"] {
        command.env(variable, &home);
    }
    // Proxy variables of the environment must not affect the stories.
    command
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("ANTIPHON_CONFIG", "/no/such/file");
    let (code, out, err) = run_to_end(command).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("\n   dashboard  http://127.0.0.1:"), "{out}");
    assert!(!out.contains('\u{1b}'), "colours in a pipe");
    let told = stories(&out);
    assert_eq!(told.len(), PARTS.len(), "{out}");
    for (story, parts) in told.iter().zip(PARTS) {
        let mut rest = story.as_str();
        for part in parts {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not in {rest:?}"));
            rest = &rest[at + part.len()..];
        }
    }
    let widest = out.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?} columns: {out}");
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0, "files are left behind");
}

#[tokio::test]
async fn a_taken_port_is_avoided_unless_it_was_requested() {
    // If another process already has these ports, they are taken as well.
    let _usual = [4747, 4748].map(|port| TcpListener::bind(("127.0.0.1", port)));
    let (code, out, err) = run_to_end(demo(&[])).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    for port in [4747, 4748] {
        assert!(
            out.contains(&format!("127.0.0.1:{port} is taken: another port is used")),
            "{out}"
        );
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [&["--listen", &address][..], &["--provider-only", "--listen", &address]] {
        let (code, _, err) = run_to_end(demo(arguments)).await;
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(&format!("address {address} is already in use")), "{err}");
    }
    let (code, _, err) = run_to_end(demo(&["--admin-listen", "0.0.0.0:0"])).await;
    assert_eq!(code, Some(2), "{err}");
}

/// A demo that stays.
struct StayingDemo {
    child: Child,
    printed: String,
}

impl StayingDemo {
    async fn start() -> Self {
        let mut child = demo(&[&FREE[..], &["--keep"]].concat()).spawn().unwrap();
        let mut lines = lines(&mut child);
        let mut printed = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            printed.push_str(&line);
            printed.push('\n');
            if line == "Press Ctrl-C to end." {
                break;
            }
        }
        // The pipe must stay open until the end.
        drop(spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} }));
        Self { child, printed }
    }

    fn address(&self, label: &str) -> SocketAddr {
        let line = self.printed.lines().find(|line| line.trim_start().starts_with(label));
        let url = line.expect(&self.printed).split_once("http://").unwrap().1;
        url.trim_end_matches('/').parse().expect(url)
    }

    async fn get(&self, path: &str) -> Message {
        ask(
            self.address("dashboard"),
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        )
        .await
    }

    /// Returns the value of each sample of a metric, by its labels.
    async fn samples(&self, metric: &str) -> Vec<(String, f64)> {
        let page = self.get("/metrics").await;
        let sample = |line: &str| {
            let (labels, value) = line.strip_prefix(metric)?.rsplit_once(' ')?;
            Some((labels.to_owned(), value.parse().ok()?))
        };
        page.text()
            .lines()
            .filter_map(sample)
            .filter(|(_, value)| *value > 0.0)
            .collect()
    }

    async fn end(mut self) {
        interrupt(&self.child);
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
    }
}

/// Number of looks at the dashboard, which is generous: a quiet machine needs about 40.
const TRIES: usize = 900;
/// Kinds of requests on the dashboard: a metric, and a part of its labels.
const SHOWN: [(&str, &str); 12] = [
    ("antiphon_tool_calls_inflight", ""),
    (
        "antiphon_requests_total",
        "format=\"openai_responses\",code_class=\"4xx\",outcome=\"client\"",
    ),
    ("antiphon_rejections_total", "openai_chat"),
    ("antiphon_requests_total", "code_class=\"4xx\",outcome=\"client\""),
    ("antiphon_requests_total", "outcome=\"network\""),
    ("antiphon_requests_total", "code_class=\"5xx\",outcome=\"provider\""),
    ("antiphon_attempts_total", "class=\"overloaded\""),
    ("antiphon_attempts_total", "class=\"rate_limit\""),
    ("antiphon_attempts_total", "class=\"auth\""),
    ("antiphon_attempts_total", "class=\"client_gone\""),
    ("antiphon_profile_state", "profile=\"trial-account\",state=\"disabled\""),
    ("antiphon_profile_rotations_total", "profile=\"main-account\""),
];

/// Actions that only a server's demands lead to. The providers of the demo demand nothing beyond their formats.
const DEMANDED: [Action; 4] = [Action::LeaveOut, Action::Close, Action::Disable, Action::Lower];

#[tokio::test]
async fn the_traffic_shows_every_repair_and_the_demo_runs_until_it_is_interrupted() {
    let demo = StayingDemo::start().await;
    let mut missing = vec![String::new()];
    for _ in 0..TRIES {
        let repairs = demo.samples("antiphon_repairs_total").await;
        let labels = Action::ALL
            .iter()
            .filter(|action| !DEMANDED.contains(action))
            .map(|action| format!("action=\"{}\"", action.label()));
        missing = labels
            .filter(|label| !repairs.iter().any(|(labels, _)| labels.contains(label)))
            .collect();
        for (metric, label) in SHOWN {
            let samples = demo.samples(metric).await;
            if !samples.iter().any(|(labels, _)| labels.contains(label)) {
                missing.push(format!("{metric} {label}"));
            }
        }
        let late = demo.get("/admin/v1/late/results").await.json();
        if late["results"].as_array().is_none_or(Vec::is_empty) {
            missing.push("a late result that waits".to_owned());
        }
        if missing.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert!(missing.is_empty(), "not shown: {missing:?}");
    demo.end().await;
}

#[tokio::test]
async fn no_upstream_leads_to_another_host() {
    let demo = StayingDemo::start().await;
    let status = demo.get("/admin/v1/status").await.json();
    let upstreams = status["upstreams"].as_array().unwrap();
    assert!(upstreams.len() > 5, "{status}");
    for upstream in upstreams {
        let url = upstream["url"].as_str().unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "{upstream}");
    }
    let config = demo.get("/admin/v1/config").await;
    let config = config.text();
    assert!(config.contains("[upstreams.anthropic]"), "{config}");
    assert!(!config.contains("https://"), "{config}");
    for path in [
        "/groq/v1/chat/completions",
        "/xai/v1/chat/completions",
        "/openrouter/v1/messages",
    ] {
        let answer = ask(demo.address("antiphon"), post_with(path, &[], b"{}")).await;
        let text = answer.text();
        assert_eq!(answer.status(), 404, "{text}");
        assert!(
            text.contains("no upstream has this path; set the base url to one of: "),
            "{text}"
        );
    }
    demo.end().await;
}

/// Replaces the ports of a run by those of the documentation.
fn replace_ports(text: &str) -> String {
    let mut text = text.to_owned();
    for (label, port) in [("provider", 4749), ("antiphon", 4747), ("dashboard", 4748)] {
        let line = text.lines().find(|line| line.trim_start().starts_with(label)).unwrap();
        let own = line.split_once("http://").unwrap().1.trim_end_matches('/').to_owned();
        text = text.replace(&own, &format!("127.0.0.1:{port}"));
    }
    text
}

#[tokio::test]
async fn the_recording_shows_what_the_demo_prints() {
    let demo = StayingDemo::start().await;
    let picture = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/demo.svg")).unwrap();
    let drawn = picture.lines().filter(|line| line.starts_with("<text"));
    // Without tags: what is left between `>` and `<`.
    let letters = |line: &str| -> String {
        let parts = line.split('<').filter_map(|part| part.split_once('>'));
        let text: String = parts.map(|(_, text)| text).collect();
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    let drawn: Vec<String> = drawn.map(letters).collect();
    let printed = replace_ports(&demo.printed);
    assert_eq!(
        drawn,
        printed.lines().collect::<Vec<_>>(),
        "docs/demo.svg is out of date: run docs/record-demo PATH/TO/antiphon"
    );
    assert!(picture.len() < 200_000, "{} bytes", picture.len());
    demo.end().await;
}

pub(crate) fn lines(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

pub(crate) fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

pub(crate) async fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> Message {
    let mut client = Client::connect(address).await;
    client.send(request).await;
    client.response().await
}
