//! The processes of an exchange, and their figures from the system: time, memory, calls. Figures on Linux only.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use self::ports::free_port;
use super::{floor, upstream};

#[path = "../../tests/support/ports.rs"]
mod ports;

const UPSTREAM: &str = "--upstream";
const FLOOR: &str = "--floor";
const WORKING_FLOOR: &str = "--working-floor";

/// Environment variables that are passed on. All others are removed.
const PASSED: [&str; 3] = ["TOKIO_WORKER_THREADS", "ANTIPHON_LOG", "XDG_STATE_HOME"];

/// Plays the role that the arguments name. Returns `false` if they name none.
pub fn play() -> bool {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [UPSTREAM, listen] => upstream::serve(listen.parse().unwrap()),
        [FLOOR, listen, upstream] => floor::serve(listen.parse().unwrap(), upstream, false),
        [WORKING_FLOOR, listen, upstream] => floor::serve(listen.parse().unwrap(), upstream, true),
        _ => return false,
    }
    true
}

/// A running process that listens. It ends on drop.
pub struct Child {
    process: process::Child,
    /// Address of the listener.
    pub address: SocketAddr,
    /// Address of the admin listener, if it has one.
    pub admin: Option<SocketAddr>,
    /// Time from the start of the process to the first connection.
    pub start: Duration,
}

impl Child {
    /// Starts the mock provider.
    pub fn upstream() -> Self {
        let listen = free();
        Self::spawn(
            Command::new(env::current_exe().unwrap()).args([UPSTREAM, &listen.to_string()]),
            listen,
        )
    }

    /// Starts the bare pass-through.
    pub fn floor(upstream: SocketAddr) -> Self {
        Self::floor_under(upstream, &[])
    }

    /// Starts the bare pass-through under another program, which these arguments name.
    pub fn floor_under(upstream: SocketAddr, program: &[String]) -> Self {
        Self::floor_of_kind(FLOOR, upstream, program)
    }

    /// Starts the working floor under another program, which these arguments name.
    pub fn working_floor_under(upstream: SocketAddr, program: &[String]) -> Self {
        Self::floor_of_kind(WORKING_FLOOR, upstream, program)
    }

    fn floor_of_kind(kind: &str, upstream: SocketAddr, program: &[String]) -> Self {
        let listen = free();
        let arguments = [kind, &listen.to_string(), &upstream.to_string()];
        let mut command = command_under(program, env::current_exe().unwrap().as_os_str());
        Self::spawn(command.args(arguments), listen)
    }

    /// Starts the shipped proxy with its defaults. Its log goes to a file. Each upstream also exists with three
    /// profiles, as `NAME-keys`.
    pub fn antiphon(upstream: SocketAddr) -> Self {
        Self::antiphon_with(upstream, "", &[])
    }

    /// Starts the shipped proxy with at most `address_space` bytes of address space.
    pub fn antiphon_limited(upstream: SocketAddr, address_space: u64) -> Self {
        let limit = format!("--as={address_space}");
        Self::antiphon_with(upstream, "", &["prlimit".to_owned(), limit, "--".to_owned()])
    }

    /// Starts the shipped proxy under another program, which these arguments name.
    pub fn antiphon_under(upstream: SocketAddr, program: &[String]) -> Self {
        Self::antiphon_with(upstream, "", program)
    }

    /// Starts the proxy with a tool service that may post results of all calls.
    pub fn antiphon_with_service(upstream: SocketAddr) -> Self {
        let token = "0".repeat(64);
        let service = format!("[services.tools]\ntoken = \"sha256:{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n");
        Self::antiphon_with(upstream, &service, &[])
    }

    fn antiphon_with(upstream: SocketAddr, sections: &str, program: &[String]) -> Self {
        let (listen, admin) = (free(), free());
        let profiles = |name: &str| {
            ["a", "b", "c"]
                .map(|key| format!("[[upstreams.{name}-keys.profiles]]\nname = \"{key}\"\napi_key = \"{key}\"\n"))
                .concat()
        };
        let upstreams = ["anthropic", "openai", "deepseek", "gemini"].map(|name| {
            let url = format!("url = \"http://{upstream}\"\nkind = \"{name}\"");
            let profiles = profiles(name);
            format!("[upstreams.{name}]\n{url}\n[upstreams.{name}-keys]\n{url}\n{profiles}")
        });
        let file = env::temp_dir().join(format!("antiphon-bench-{listen}.toml"));
        let binary = other_binary().unwrap_or_else(|| built_binary().into());
        let mut command = command_under(program, &binary);
        command.args(["--listen", &listen.to_string(), "--admin-listen", &admin.to_string()]);
        let ledger = env::temp_dir().join(format!("antiphon-bench-{listen}.db"));
        let config = format!(
            "[ledger]\npath = \"{}\"\n{}{sections}",
            ledger.display(),
            upstreams.concat()
        );
        fs::write(&file, config).unwrap();
        let mut child = Self::spawn(command.arg("--config").arg(&file), listen);
        fs::remove_file(file).unwrap();
        child.admin = Some(admin);
        child
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn spawn(command: &mut Command, address: SocketAddr) -> Self {
        command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let kept = PASSED.iter().filter_map(|name| Some((name, env::var(name).ok()?)));
        command.envs(kept);
        let begin = Instant::now();
        let process = command.spawn().unwrap();
        let mut child = Self {
            process,
            address,
            admin: None,
            start: Duration::ZERO,
        };
        while TcpStream::connect(address).is_err() {
            // Under callgrind a start takes seconds.
            assert!(begin.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            assert_eq!(child.process.try_wait().unwrap(), None, "{command:?} has ended");
            thread::sleep(Duration::from_micros(100));
        }
        child.start = begin.elapsed();
        child
    }

    /// Returns the processor time of all its threads so far, in seconds.
    pub fn cpu(&self) -> f64 {
        let threads = fs::read_dir(self.proc("task")).unwrap();
        let exact = |thread: &Path| {
            let text = fs::read_to_string(thread.join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        };
        threads.filter_map(|thread| exact(&thread.ok()?.path())).sum::<f64>() / 1e9
    }

    /// Returns the resident memory in bytes.
    pub fn resident(&self) -> f64 {
        self.status("VmRSS:")
    }

    /// Returns the peak resident memory in bytes since [`Self::forget_peak`].
    pub fn peak(&self) -> f64 {
        self.status("VmHWM:")
    }

    /// Resets the peak.
    pub fn forget_peak(&self) {
        fs::write(self.proc("clear_refs"), "5").unwrap();
    }

    /// Returns the number of `write` and `writev` calls.
    pub fn writes(&self) -> f64 {
        self.field("io", "syscw:")
    }

    fn status(&self, name: &str) -> f64 {
        self.field("status", name) * 1024.0
    }

    fn field(&self, file: &str, name: &str) -> f64 {
        let text = fs::read_to_string(self.proc(file)).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value
            .and_then(|value| value.split_whitespace().next()?.parse().ok())
            .unwrap()
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.process.id()).into()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Returns the binary of `ANTIPHON_BIN`, which is measured instead of the one that Cargo built.
pub fn other_binary() -> Option<OsString> {
    env::var_os("ANTIPHON_BIN")
}

/// Returns the binary that Cargo built with the profile and for the target of the bench.
pub fn built_binary() -> PathBuf {
    // The bench is in the folder `deps` beside it.
    let bench = env::current_exe().unwrap();
    let binary = bench.ancestors().nth(2).unwrap().join("antiphon");
    let written_at = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let library = newest_library(bench.parent().unwrap());
    assert!(
        written_at(&binary).is_some_and(|at| library.is_none_or(|library| at >= library)),
        "{} is missing, or older than the library of this bench: build it first, with the profile and the target of the \
         bench (`cargo build --release`)",
        binary.display()
    );
    binary
}

/// Returns the time at which the newest library of the proxy in this folder was written.
fn newest_library(folder: &Path) -> Option<SystemTime> {
    let libraries = fs::read_dir(folder).ok()?.flatten().filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libantiphon-") && name.ends_with(".rlib")
    });
    libraries.filter_map(|file| file.metadata().ok()?.modified().ok()).max()
}

/// Returns the command of `binary`, under another program if there is one.
fn command_under(program: &[String], binary: &OsStr) -> Command {
    match program.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(binary);
            command
        }
        None => Command::new(binary),
    }
}

/// Returns an address that a child of this process may listen on.
fn free() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}
