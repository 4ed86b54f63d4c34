//! `antiphon once` with the real binary: one run, its replays, and every reason for none.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use antiphon::{auth::TokenHash, config::VARIABLES};

use crate::support::binary::{Install, Process};

const CONFIG: &str = "[tools.mail]\ntier = \"one_way\"\n";

/// A proxy, and the folder in which commands run.
struct Bench {
    install: Install,
    process: Option<Process>,
    url: String,
}

impl Bench {
    async fn start(config: &str) -> Self {
        let mut bench = Self {
            install: Install::new(config),
            process: None,
            url: String::new(),
        };
        bench.restart().await;
        bench
    }

    async fn restart(&mut self) {
        let process = self.install.start().await;
        self.url = format!("http://{}", process.data);
        self.process = Some(process);
    }

    /// Kills the proxy. Returns its log.
    fn kill(&mut self) -> String {
        let mut process = self.process.take().unwrap();
        let log = process.log().join("\n");
        process.kill();
        log
    }

    /// Builds a call of `once` with these flags and this script, which gets its name as `$0`.
    fn command(&self, flags: &[&str], script: &str) -> Command {
        let mut command = self.command_at(self.install.state(), flags);
        command.args(["--", "sh", "-c", script]);
        command
    }

    fn command_at(&self, folder: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .env("XDG_STATE_HOME", self.install.state())
            .env("ANTIPHON_URL", &self.url)
            .env_remove("ANTIPHON_TOKEN")
            .env_remove("HOME")
            .current_dir(folder)
            .arg("once")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn once(&self, flags: &[&str], script: &str) -> Ended {
        Ended::from(self.command(flags, script).output().unwrap())
    }

    /// Returns the number of runs that a script has noted with `echo >> runs`.
    fn runs(&self) -> usize {
        let noted = fs::read_to_string(self.install.state().join("runs")).unwrap_or_default();
        noted.lines().count()
    }
}

/// The end of a command.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    #[track_caller]
    fn check(&self, code: i32, stdout: &str, stderr: &str) {
        assert_eq!((self.code, &self.stdout[..]), (code, stdout), "{self:?}");
        assert!(self.stderr.contains(stderr), "{self:?}");
    }
}

/// R1, R2: the output, the exit code and the errors of a command are those of its one run, also after the proxy was killed.
#[tokio::test]
async fn a_second_run_replays_the_first() {
    let mut bench = Bench::start(CONFIG).await;
    let script = "echo r >> runs; echo \"for $ANTIPHON_IDEMPOTENCY_KEY\" | cut -c1-4; printf 'warned\\n' >&2";
    let first = bench.once(&["--tool", "deploy"], script);
    first.check(0, "for \n", "warned\n");
    assert!(!first.stderr.contains("antiphon:"), "{first:?}");
    bench
        .once(&["--tool", "deploy"], script)
        .check(0, "for \n", "warned\nantiphon: deploy ran ");
    bench.kill();
    bench.restart().await;
    bench
        .once(&["--tool", "deploy"], script)
        .check(0, "for \n", "this is its output");
    assert_eq!(bench.runs(), 1);

    // Another tool, another folder and other arguments are other effects.
    bench
        .once(&["--tool", "deploy", "--again"], script)
        .check(0, "for \n", "warned\n");
    assert_eq!(bench.runs(), 2);
    let other = bench.install.state().join("antiphon");
    for (folder, flags, runs) in [
        (bench.install.state(), &["--tool", "other"][..], 3),
        (&other, &["--tool", "deploy"], 3),
        (bench.install.state(), &["--tool", "deploy", "--no-cwd"], 4),
        (&other, &["--tool", "deploy", "--no-cwd"], 4),
    ] {
        let mut command = bench.command_at(folder, flags);
        command.args(["--", "sh", "-c", script]);
        let ended = Ended::from(command.output().unwrap());
        assert_eq!((ended.code, bench.runs()), (0, runs), "{flags:?} {ended:?}");
    }
}

/// An agent that runs the command waits, too.
#[test]
fn a_proxy_that_accepts_and_says_nothing_is_waited_for_ten_seconds() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command
        .env("ANTIPHON_URL", format!("http://{}", silent.local_addr().unwrap()))
        .env("ANTIPHON_TOKEN", "token of a person")
        .current_dir(folder.path())
        .args(["once", "--tool", "deploy", "--", "touch", "ran"]);
    let began = std::time::Instant::now();
    let ended = Ended::from(command.output().unwrap());
    ended.check(69, "", "did not run");
    assert!(began.elapsed() >= std::time::Duration::from_secs(10), "{ended:?}");
    assert!(!folder.path().join("ran").exists());
}

/// R2: of 32 runs at the same time one runs.
#[tokio::test]
async fn of_many_runs_at_once_one_runs() {
    let bench = Bench::start(CONFIG).await;
    let start = |_| {
        bench
            .command(&["--tool", "deploy"], "echo r >> runs; sleep 1; echo done")
            .spawn()
    };
    let running: Vec<Child> = (0..32).map(|at| start(at).unwrap()).collect();
    let ended: Vec<Ended> = running
        .into_iter()
        .map(|child| Ended::from(child.wait_with_output().unwrap()))
        .collect();
    assert_eq!(bench.runs(), 1, "{ended:?}");
    for ended in &ended {
        let is_run = ended.code == 0 && ended.stdout == "done\n";
        let is_refused = ended.code == 75 && ended.stderr.contains("deploy has been running elsewhere for ");
        assert!(is_run || is_refused, "{ended:?}");
    }
}

#[tokio::test]
async fn a_failed_command_may_run_again_unless_its_effect_cannot_be_undone() {
    let bench = Bench::start(CONFIG).await;
    let script = "echo r >> runs; echo half; exit 7";
    for runs in 1..=2 {
        bench.once(&["--tool", "deploy"], script).check(7, "half\n", "");
        assert_eq!(bench.runs(), runs);
    }
    bench.once(&["--tool", "mail"], script).check(7, "half\n", "");
    let refused = bench.once(&["--tool", "mail"], script);
    refused.check(7, "half\n", "mail failed ");
    refused.check(7, "half\n", " s ago and did not run again");
    assert_eq!(bench.runs(), 3);
    bench
        .once(&["--tool", "mail", "--retry-failed"], script)
        .check(7, "half\n", "");
    assert_eq!(bench.runs(), 4);
    // A signal is a failure, too, and the code tells which.
    bench.once(&["--tool", "deploy"], "kill -9 $$").check(137, "", "");
    // A command that cannot start has no effect: the next try may run it.
    for _ in 0..2 {
        let mut command = bench.command_at(bench.install.state(), &["--tool", "mail", "--", "no-such-command"]);
        Ended::from(command.output().unwrap()).check(127, "", "there is no such command");
    }
}

#[tokio::test]
async fn a_key_names_the_effect_for_one_command_only() {
    let bench = Bench::start(CONFIG).await;
    let flags = &["--tool", "deploy", "--key", "invoice-4711"];
    bench.once(flags, "echo one").check(0, "one\n", "");
    bench.once(flags, "echo one").check(0, "one\n", "did not run again");
    bench
        .once(flags, "echo two")
        .check(64, "", "--key was used for other arguments");
}

#[tokio::test]
async fn parts_that_are_not_stored_are_not_replayed() {
    let bench = Bench::start(CONFIG).await;
    for (flags, script, code, said) in [
        (
            &["--tool", "a", "--store", "exit"][..],
            "echo out; exit 0",
            0,
            "its output was not stored",
        ),
        (
            &["--tool", "b", "--store", "none"],
            "echo out; exit 0",
            0,
            "its output was not stored",
        ),
        (
            &["--tool", "mail", "--store", "exit"],
            "echo out; exit 9",
            9,
            "its output was not stored",
        ),
        (
            &["--tool", "c"],
            "head -c 65537 /dev/zero",
            73,
            "too long to be stored, and its exit code was 0",
        ),
        (
            &["--tool", "d"],
            "head -c 65537 /dev/zero >&2",
            73,
            "too long to be stored, and its exit code was 0",
        ),
    ] {
        let first = bench.once(flags, script);
        assert!([0, 9].contains(&first.code), "{first:?}");
        bench.once(flags, script).check(code, "", said);
    }
    // The longest output that is stored is stored whole.
    let script = "head -c 65536 /dev/zero | tr '\\0' x";
    let first = bench.once(&["--tool", "e"], script);
    bench
        .once(&["--tool", "e"], script)
        .check(0, &first.stdout, "this is its output");
    assert_eq!(first.stdout.len(), 65536);
}

/// R3: without a durable record nothing runs, unless the user says so.
#[tokio::test]
async fn nothing_runs_without_a_durable_ledger() {
    let token = TokenHash::hash_token(b"ann");
    let clients = format!("[client_tokens]\nann = {{ token = \"{token}\", personal = true }}\n");
    let mut bench = Bench::start(&format!("{clients}[ledger]\nstore = \"memory\"\n")).await;
    let script = "echo r >> runs; echo out";
    let mut command = bench.command(&["--tool", "deploy"], script);
    Ended::from(command.env("ANTIPHON_TOKEN", "ann").output().unwrap()).check(69, "", "deploy did not run");
    // Such a proxy writes no token either.
    bench
        .once(&["--tool", "deploy"], script)
        .check(69, "", "there is no token of this machine's proxy");
    bench.kill();
    bench.install.write("");
    bench.restart().await;
    bench.kill();
    bench
        .once(&["--tool", "deploy"], script)
        .check(69, "", "cannot connect");
    assert_eq!(bench.runs(), 0);
    let flags = &["--tool", "deploy", "--if-unavailable", "run"];
    bench
        .once(flags, script)
        .check(0, "out\n", "deploy runs without protection");
    // Only the proxy of this machine gets the token of this machine.
    let mut command = bench.command(&["--tool", "deploy", "--url", "http://192.0.2.1:1"], script);
    Ended::from(command.output().unwrap()).check(64, "", "put a client token into ANTIPHON_TOKEN");
    assert_eq!(bench.runs(), 1);
    let mut command = bench.command_at(bench.install.state(), &["--tool", "deploy"]);
    Ended::from(command.output().unwrap()).check(64, "", "Usage: antiphon once");
}

/// R5: nobody replays what another one ran, and a token of several people runs nothing.
#[tokio::test]
async fn a_run_is_replayed_to_its_user_only() {
    let hash = |token: &str| TokenHash::hash_token(token.as_bytes());
    let config = format!(
        "[client_tokens]\nann = {{ token = \"{}\", personal = true }}\nben = {{ token = \"{}\", personal = true }}\n\
         team = \"{}\"\n",
        hash("ann"),
        hash("ben"),
        hash("team")
    );
    let bench = Bench::start(&config).await;
    let once = |token: Option<&str>| {
        let mut command = bench.command(&["--tool", "deploy"], "echo r >> runs; echo out");
        if let Some(token) = token {
            command.env("ANTIPHON_TOKEN", token);
        }
        Ended::from(command.output().unwrap())
    };
    for (token, runs) in [
        (Some("ann"), 1),
        (Some("ann"), 1),
        (Some("ben"), 2),
        (None, 3),
        (None, 3),
    ] {
        once(token).check(0, "out\n", "");
        assert_eq!(bench.runs(), runs, "{token:?}");
    }
    once(Some("team")).check(64, "", "several people may have this credential");
    once(Some("nobody")).check(64, "", "the proxy does not know this token");
    assert_eq!(bench.runs(), 3);
}

/// Outputs and arguments are secrets of the user: the proxy has them neither in its ledger nor in its log.
#[tokio::test]
async fn the_proxy_sees_neither_arguments_nor_output() {
    let mut bench = Bench::start(CONFIG).await;
    bench
        .once(&["--tool", "deploy"], "echo canary-out-$((1+1)) canary-arg")
        .check(0, "canary-out-2 canary-arg\n", "");
    let log = bench.kill();
    let folder = bench.install.ledger();
    let files = fs::read_dir(folder.parent().unwrap()).unwrap();
    for file in files.map(|entry| entry.unwrap().path()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"canary"), "{}", file.display());
    }
    assert!(!log.contains("canary"), "{log}");
}
