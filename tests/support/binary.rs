//! The real binary as a child process, with a configuration and a state directory that outlive it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use antiphon::config::VARIABLES;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    task::JoinHandle,
};

use super::{
    state,
    wire::{Client, Message, spawn},
};

/// The configuration and state of successive processes.
pub struct Install {
    config: PathBuf,
    state: PathBuf,
    /// Address of the data listener.
    listen: &'static str,
}

impl Install {
    /// Writes this configuration, with an empty state directory.
    pub fn new(config: &str) -> Self {
        let state = state::directory();
        let path = state.join("antiphon.toml");
        std::fs::write(&path, config).unwrap();
        Self {
            config: path,
            state,
            listen: "127.0.0.1:0",
        }
    }

    /// Lets the data listener have another address.
    pub fn listening(mut self, address: &'static str) -> Self {
        self.listen = address;
        self
    }

    /// Replaces the configuration file.
    pub fn write(&self, config: &str) {
        std::fs::write(&self.config, config).unwrap();
    }

    /// Returns the path of the ledger.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("antiphon").join("ledger.db")
    }

    /// Returns the state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Starts the binary on free ports and waits until it serves.
    pub async fn start(&self) -> Process {
        self.start_with(&[]).await
    }

    /// As [`Self::start`], with these environment variables.
    pub async fn start_with(&self, variables: &[(&str, &str)]) -> Process {
        self.start_by(Command::new(env!("CARGO_BIN_EXE_antiphon")), variables)
            .await
    }

    /// As [`Self::start_with`], with the binary at this path, which may be of another version.
    pub async fn start_other(&self, binary: &Path, variables: &[(&str, &str)]) -> Process {
        self.start_by(Command::new(binary), variables).await
    }

    /// As [`Self::start`], with these soft and hard limits of open files.
    pub async fn start_with_files(&self, soft: u64, hard: u64) -> Process {
        let mut command = Command::new("sh");
        let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_antiphon")]);
        self.start_by(command, &[]).await
    }

    /// Starts the binary under `strace` with these flags. The process of the binary is the child, and not `strace`.
    pub async fn start_traced(&self, flags: &[String]) -> Process {
        let mut command = Command::new("strace");
        command.arg("-D").args(flags).arg(env!("CARGO_BIN_EXE_antiphon"));
        self.start_by(command, &[]).await
    }

    /// Returns the path of the configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Starts the binary as [`Self::start_with`] does, and waits for nothing.
    pub fn spawn(&self, variables: &[(&str, &str)]) -> Child {
        self.spawn_by(Command::new(env!("CARGO_BIN_EXE_antiphon")), variables)
    }

    fn spawn_by(&self, mut command: Command, variables: &[(&str, &str)]) -> Child {
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .env("XDG_STATE_HOME", &self.state)
            .env("XDG_CONFIG_HOME", &self.state)
            .env_remove("HOME")
            .envs(variables.iter().copied())
            .args(["--listen", self.listen, "--admin-listen", "127.0.0.1:0"])
            .args(["--log-format", "json", "-c"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts the binary by a command that has no arguments of its own yet.
    async fn start_by(&self, command: Command, variables: &[(&str, &str)]) -> Process {
        let mut child = self.spawn_by(command, variables);
        let lines = tokio::process::ChildStderr::from_std(child.stderr.take().unwrap()).unwrap();
        let mut lines = BufReader::new(lines).lines();
        let mut bound = None;
        let mut said = String::new();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        while let Some(line) = lines.next_line().await.unwrap() {
            log.lock().unwrap().push(line.clone());
            let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| line.into());
            if line["message"] == "serving" {
                let address = |key: &str| Some(line[key].as_str()?.parse::<SocketAddr>().unwrap());
                bound = address("listen").zip(address("admin_listen"));
                break;
            }
            said.push_str(&line.to_string());
        }
        // The pipe must stay open.
        let later = Arc::clone(&log);
        let log_reader = spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                later.lock().unwrap().push(line);
            }
        });
        let (data, admin) = bound.unwrap_or_else(|| panic!("it ended before it served: {said}"));
        Process {
            child,
            data,
            admin,
            log,
            log_reader: Some(log_reader),
        }
    }
}

/// A running process. It is killed on drop.
pub struct Process {
    child: Child,
    /// Address of the data listener.
    pub data: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    /// Reads the log until the process ends.
    log_reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Sends one request over its own connection.
    pub async fn ask(&self, request: impl AsRef<[u8]>) -> Message {
        let mut client = Client::connect(self.data).await;
        client.send(request).await;
        client.response().await
    }

    /// Sends one request to the admin listener.
    pub async fn ask_admin(&self, request: impl AsRef<[u8]>) -> Message {
        let mut client = Client::connect(self.admin).await;
        client.send(request).await;
        client.response().await
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the log lines so far. A line may arrive after the answer that it is about.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Kills the process without any preparation, and waits for its end: another one can lock its files then.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Requests a stop and waits for the end.
    pub async fn stop(self) {
        self.signal("TERM");
        assert_eq!(self.exit_code().await, Some(0));
    }

    /// Waits for the end. Returns the exit code; `None` if a signal ended it.
    pub async fn exit_code(mut self) -> Option<i32> {
        let waited = tokio::task::spawn_blocking(move || self.child.wait().map(|status| status.code()));
        waited.await.unwrap().unwrap()
    }

    /// Requests a stop, waits for the end, and returns the log.
    pub async fn stop_with_log(mut self) -> Vec<String> {
        let (log, log_reader) = (Arc::clone(&self.log), self.log_reader.take());
        self.stop().await;
        log_reader.unwrap().await.unwrap();
        let lines = log.lock().unwrap();
        lines.clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
