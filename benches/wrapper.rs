//! The cost of `antiphon mcp`: the latency of a call, the start to the first line, the memory of front and keeper.
//!
//! The control is the same server without it, in turns within the run. A wrong answer ends the bench, a slow one never
//! does. Needs Linux: memory is read from `/proc`.
#![allow(
    clippy::allow_attributes,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench reads the clock, speaks, and may panic"
)]

#[allow(unused_imports, reason = "the exchanges use more of it")]
mod loopback;
mod support;

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use support::{Options, Table, number, quantile};

/// The role of the server, which answers each call at once.
const ECHO: &str = "--echo";
/// The result of each call.
const RESULT: &str = r#""result":{"content":[{"type":"text","text":"done"}]}}"#;

fn main() {
    if env::args().nth(1).as_deref() == Some(ECHO) {
        return serve();
    }
    let Some(options) = Options::read() else { return };
    options.introduce(
        "wrapper",
        "one client, one call at a time, a server that answers at once",
    );
    if !cfg!(target_os = "linux") {
        println!("skipped: memory of a process is read from /proc");
        return;
    }
    let binary = loopback::child::other_binary().map_or_else(loopback::child::built_binary, PathBuf::from);
    let state = env::temp_dir().join(format!("antiphon-bench-mcp-{}", process::id()));
    let start = |is_wrapped| Session::start(&binary, &state, is_wrapped);
    measure_latency(options, &start);
    measure_start(options, &start);
    measure_memory(options, &start);
    drop(fs::remove_dir_all(state));
    options.conclude();
}

/// Answers each line as a server does.
fn serve() {
    let mut out = io::stdout().lock();
    for (number, line) in io::stdin().lock().lines().enumerate() {
        drop(line.unwrap());
        writeln!(out, r#"{{"jsonrpc":"2.0","id":{number},{RESULT}"#).unwrap();
        out.flush().unwrap();
    }
}

fn measure_latency(options: Options, start: &impl Fn(bool) -> Session) {
    let (rounds, calls) = if options.quick { (4, 500) } else { (10, 2000) };
    let mut sessions = [start(false), start(true)];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (session, times) in sessions.iter_mut().zip(&mut times) {
            for _ in 0..calls {
                let begin = Instant::now();
                session.call();
                times.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    let mut table = Table::new("Latency of a call, in ms", &["", "p50", "p99"]);
    let [plain, wrapped] = times.map(|times| [50, 99].map(|part| quantile(times.clone(), part)));
    table.row("server", plain.map(number));
    table.row("antiphon mcp -- server", wrapped.map(number));
    table.row("added", [0, 1].map(|at| number(wrapped[at] - plain[at])));
    table.print(options.markdown);
}

fn measure_start(options: Options, start: &impl Fn(bool) -> Session) {
    let rounds = if options.quick { 10 } else { 40 };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (is_wrapped, times) in [false, true].into_iter().zip(&mut times) {
            let begin = Instant::now();
            start(is_wrapped).call();
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    let mut table = Table::new("From the start to the first answer, in ms", &["", "p50", "p90"]);
    let [plain, wrapped] = times.map(|times| [50, 90].map(|part| quantile(times.clone(), part)));
    table.row("server", plain.map(number));
    table.row("antiphon mcp -- server", wrapped.map(number));
    table.row("added", [0, 1].map(|at| number(wrapped[at] - plain[at])));
    table.print(options.markdown);
}

fn measure_memory(options: Options, start: &impl Fn(bool) -> Session) {
    let calls = if options.quick { 1000 } else { 10_000 };
    // Clean pages are those of the program, which the system can take back, and which other wrappers and the proxy share.
    let mut table = Table::new("Private memory after calls, in MB", &["", "written", "clean"]);
    let mut plain = start(false);
    let mut wrapped = start(true);
    for _ in 0..calls {
        plain.call();
        wrapped.call();
    }
    let front = wrapped.child.id();
    let keeper = child_of(front).unwrap();
    let megabytes = |processes: &[u32]| {
        ["Private_Dirty:", "Private_Clean:"].map(|kind| {
            let bytes: f64 = processes.iter().map(|process| memory_of_kind(*process, kind)).sum();
            number(bytes / 1e6)
        })
    };
    table.row("server", megabytes(&[plain.child.id()]));
    table.row("front", megabytes(&[front]));
    table.row("keeper", megabytes(&[keeper]));
    table.row("front and keeper", megabytes(&[front, keeper]));
    table.print(options.markdown);
}

/// A client with its server, wrapped or not.
struct Session {
    child: process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    calls: usize,
}

impl Session {
    fn start(binary: &Path, state: &Path, is_wrapped: bool) -> Self {
        let server = env::current_exe().unwrap();
        let mut command = if is_wrapped {
            let mut command = Command::new(binary);
            command.args(["mcp", "--"]).arg(server);
            command
        } else {
            Command::new(server)
        };
        let mut child = command
            .arg(ECHO)
            .env_clear()
            .env("XDG_STATE_HOME", state)
            .env("ANTIPHON_URL", "http://127.0.0.1:9")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            calls: 0,
        }
    }

    /// Calls the tool, and waits for its result.
    fn call(&mut self) {
        let id = self.calls;
        self.calls += 1;
        let params = format!(
            r#"{{"name":"render","arguments":{{"scene":{id}}},"_meta":{{"claudecode/toolUseId":"toolu_{id}"}}}}"#
        );
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{RESULT}\n"));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stdin = None;
        drop(self.child.wait());
    }
}

/// Returns the process that this one has started.
fn child_of(parent: u32) -> Option<u32> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    list.split_whitespace().next()?.parse().ok()
}

/// Returns the memory of one kind that a process has, in bytes.
fn memory_of_kind(process: u32, kind: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let parts = text.lines().filter(|line| line.starts_with(kind));
    let kilobytes = parts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.sum::<f64>() * 1024.0
}
