//! `antiphon demo`: the printed stories, and no leftovers after the end.

use std::{
    net::{SocketAddr, TcpListener},
    process::Stdio,
};

use antiphon::config::VARIABLES;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::support::{
    state,
    wire::{Client, Message},
};

const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];

pub(crate) fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    for (name, _) in VARIABLES {
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

/// Returns the lines of each story, unwrapped: `without 400 …`, `with 200 …`, and the text between them.
fn stories(text: &str) -> Vec<String> {
    let flat = |story: &str| story.split_whitespace().collect::<Vec<_>>().join(" ");
    let (stories, _) = text.split_once("\nAll five went as they should.\n").expect(text);
    let numbered = |story: &&str| story.starts_with(|letter: char| letter.is_ascii_digit());
    stories.split("\nF").filter(numbered).map(flat).collect()
}

/// Lines of each story, in their order.
const LINES: [&[&str]; 5] = [
    &[
        "without 400 messages.465: `tool_use` ids were found without `tool_result` blocks immediately after: \
         toolu_01Bash4kP2sT6vX8zA3d. Each `tool_use` block must have a corresponding `tool_result` block in the next \
         message.",
        "with 200 x-antiphon-repair: placeholder=1",
        "received, in messages.466, for toolu_01Bash4kP2sT6vX8zA3d: \"[antiphon: no result was recorded",
        "arrived unchanged",
    ],
    &[
        "The model calls 3 tools",
        "service 200 POST /ledger/v1/calls/toolu_01Lint7dE3fG7hJ2kQ9w/result: settled",
        "service 200 POST /ledger/v1/calls/toolu_01Test8eF4gH6jK3mR5x/result: settled",
        "without 400 messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: \
         toolu_01Lint7dE3fG7hJ2kQ9w, toolu_01Test8eF4gH6jK3mR5x, toolu_01Pack9fG5hJ5kL4nS6y.",
        "with 200 x-antiphon-repair: restored=2, placeholder=1",
        "for toolu_01Lint7dE3fG7hJ2kQ9w: \"0 warnings\"",
        "for toolu_01Test8eF4gH6jK3mR5x: \"212 passed, 1 failed: parses_dates\"",
        "for toolu_01Pack9fG5hJ5kL4nS6y: \"[antiphon: no result was recorded",
    ],
    &[
        "without 400 An assistant message with 'tool_calls' must be followed by tool messages responding to each \
         'tool_call_id'. \
         The following tool_call_ids did not have response messages: call_Gx7Kp2Lm9Qr4St8Vw3Yz",
        "with 200 x-antiphon-repair: placeholder=1",
        "received, in messages.2, for call_Gx7Kp2Lm9Qr4St8Vw3Yz: \"[antiphon: no result was recorded",
    ],
    &[
        "without --- key-a and key-b rest",
        "keys that are left: 0",
        "asked by hand: key-a: 200, key-b: 200",
        "with 200 x-antiphon-profile: key-",
        "error event: Overloaded: timeout: a tool that the provider runs gave no sign for too long",
        "/admin/v1/profiles: key-a ready, key-b ready",
        "with 504",
        "x-antiphon-fault: provider, x-antiphon-phase: headers",
        "/admin/v1/profiles: key-a ready, key-b ready",
        "with 200 the next request: x-antiphon-profile: key-",
    ],
    &[
        "without 400 messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: \
         toolu_01Rndr5tY7uI9oP2aS4d.",
        "service 409 the render is posted, whose it is not said: ambiguous_call",
        "service 200 the render is posted, with Ann's x-antiphon-owner: settled",
        "with 200 Ben asks; x-antiphon-repair: placeholder=1 the provider received the render never",
        "with 200 Ann comes back; x-antiphon-repair: placeholder=1, appended=1 the provider received the render \
         once, in \
         messages.4 of 5 messages",
        "with 200 Ann goes on; x-antiphon-repair: placeholder=1, appended=1 the provider received the render once, in \
         messages.4 of 7 messages",
    ],
];

#[tokio::test]
async fn the_five_stories_are_printed_and_no_files_remain() {
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
    assert!(out.starts_with("dashboard  http://127.0.0.1:"), "{out}");
    assert!(!out.contains('\u{1b}'), "colours in a pipe");
    let told = stories(&out);
    assert_eq!(told.len(), LINES.len(), "{out}");
    for (number, (story, lines)) in told.iter().zip(LINES).enumerate() {
        let mut rest = story.as_str();
        for line in lines {
            let at = rest
                .find(line)
                .unwrap_or_else(|| panic!("F{}: {line:?} is not in {rest:?}", number + 1));
            rest = &rest[at + line.len()..];
        }
    }
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

#[tokio::test]
async fn the_demo_runs_until_it_is_interrupted() {
    let mut child = demo(&[&FREE[..], &["--keep"]].concat()).spawn().unwrap();
    let mut lines = lines(&mut child);
    let mut admin = None;
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some(url) = line.strip_prefix("dashboard  http://") {
            admin = url.trim_end_matches('/').parse::<SocketAddr>().ok();
        }
        if line.starts_with("press Ctrl-C to end") {
            break;
        }
    }
    let admin = admin.expect("an address");
    let answered = || async {
        let page = ask(admin, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let counted = |line: &str| {
            line.starts_with("antiphon_requests_total")
                .then(|| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        page.text().lines().filter_map(counted).flatten().sum::<f64>()
    };
    let before = answered().await;
    while answered().await <= before + 2.0 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    interrupt(&child);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
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
