//! Files that do not answer, as on a mount that stalls: health checks and signals work all the same.
//!
//! A lease on a file makes the kernel hold whoever opens it. Without `python3`, which takes it, these tests are skipped.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    process::{Child, Command, Stdio},
};

use antiphon::config::{VARIABLES, file_schema};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};

use crate::support::{
    app::{get_with, post},
    binary::{Install, Process},
    provider::Provider,
    wire::{Client, PATIENCE},
};

/// Takes a lease on a file, and tells when somebody wants to open it. The kernel holds that for 45 seconds.
const LEASE: &str = r#"
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, lambda *_: print("asked", flush=True))
file = os.open(sys.argv[1], os.O_RDWR)
while True:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        break
    except OSError:
        time.sleep(0.01)
print("held", flush=True)
while True:
    signal.pause()
"#;

/// Processes that run at the same time.
const AT_ONCE: usize = 3;

/// A place that names a file.
#[derive(Clone, Copy)]
struct Place {
    /// The key, or the variable.
    name: &'static str,
    /// The configuration. `FILE` stands for the file, `OTHER` for one that answers.
    config: &'static str,
    /// Part of the line by which a start tells what it waits for. `None` if a start does not wait for the file.
    waits_for: Option<&'static str>,
}

const fn place(name: &'static str, config: &'static str, waits_for: Option<&'static str>) -> Place {
    Place {
        name,
        config,
        waits_for,
    }
}

const FILE: Option<&str> = Some("the-file");

const PLACES: [Place; 15] = [
    place("repair.rules_file", "[repair]\nrules_file = \"FILE\"\n", FILE),
    place(
        "server.tls.certificate",
        "[server.tls]\ncertificate = \"FILE\"\nkey = \"OTHER\"\n",
        FILE,
    ),
    place(
        "server.tls.key",
        "[server.tls]\ncertificate = \"OTHER\"\nkey = \"FILE\"\n",
        FILE,
    ),
    place(
        "server.tls.client_ca",
        "[server.tls]\ncertificate = \"OTHER\"\nkey = \"OTHER\"\nclient_ca = \"FILE\"\n",
        FILE,
    ),
    place(
        "upstreams.NAME.profiles[].api_key_file",
        "[[upstreams.anthropic.profiles]]\nname = \"p\"\napi_key_file = \"FILE\"\n",
        FILE,
    ),
    place(
        "upstreams.NAME.profiles[].bearer_file",
        "[[upstreams.anthropic.profiles]]\nname = \"p\"\nbearer_file = \"FILE\"\n",
        FILE,
    ),
    place(
        "upstreams.NAME.profiles[].aws_access_key_id_file",
        "[upstreams.bedrock]\nurl = \"https://bedrock-runtime.us-east-1.amazonaws.com\"\n[[upstreams.bedrock.profiles]]\n\
         name = \"p\"\naws_access_key_id_file = \"FILE\"\naws_secret_access_key_file = \"OTHER\"\n",
        FILE,
    ),
    place(
        "upstreams.NAME.profiles[].aws_secret_access_key_file",
        "[upstreams.bedrock]\nurl = \"https://bedrock-runtime.us-east-1.amazonaws.com\"\n[[upstreams.bedrock.profiles]]\n\
         name = \"p\"\naws_access_key_id_file = \"OTHER\"\naws_secret_access_key_file = \"FILE\"\n",
        FILE,
    ),
    place(
        "upstreams.NAME.profiles[].aws_session_token_file",
        "[upstreams.bedrock]\nurl = \"https://bedrock-runtime.us-east-1.amazonaws.com\"\n[[upstreams.bedrock.profiles]]\n\
         name = \"p\"\naws_access_key_id_file = \"OTHER\"\naws_secret_access_key_file = \"OTHER\"\n\
         aws_session_token_file = \"FILE\"\n",
        FILE,
    ),
    place("ledger.path", "[ledger]\npath = \"FILE\"\n", FILE),
    place("ANTIPHON_ADMIN_TOKEN_FILE", "", FILE),
    place("ANTIPHON_LEDGER_URL_FILE", "[ledger]\nstore = \"postgres\"\n", FILE),
    place(
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "[upstreams.bedrock]\nurl = \"https://bedrock-runtime.us-east-1.amazonaws.com\"\n[[upstreams.bedrock.profiles]]\n\
         name = \"p\"\naws_container_credentials = true\n",
        None,
    ),
    place("SSL_CERT_FILE", "", Some("CA certificates")),
    place("ANTIPHON_CONFIG", "", FILE),
];

impl Place {
    fn is_variable(self) -> bool {
        !self.name.contains('.')
    }

    /// Returns the configuration over these files.
    fn config_with(self, file: &Path, other: &Path) -> String {
        let text = self.config.replace("FILE", &file.display().to_string());
        text.replace("OTHER", &other.display().to_string())
    }

    /// Returns the variables that name the file.
    fn variables(self, file: &str) -> Vec<(&'static str, &str)> {
        let endpoint = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/");
        match self.name {
            // The harness names it by a flag.
            "ANTIPHON_CONFIG" => Vec::new(),
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" => vec![(self.name, file), endpoint],
            name if self.is_variable() => vec![(name, file)],
            _ => Vec::new(),
        }
    }
}

/// A lease on a file. Its drop ends it.
struct Lease {
    holder: Child,
    lines: Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Lease {
    /// Takes a lease. Returns `None` without `python3`.
    async fn take(file: &Path) -> Option<Self> {
        let mut command = Command::new("python3");
        let started = command.args(["-c", LEASE]).arg(file).stdout(Stdio::piped()).spawn();
        if started
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            return None;
        }
        let mut holder = started.unwrap();
        let stdout = tokio::process::ChildStdout::from_std(holder.stdout.take().unwrap()).unwrap();
        let mut lease = Self {
            holder,
            lines: BufReader::new(stdout).lines(),
        };
        assert_eq!(lease.lines.next_line().await.unwrap().as_deref(), Some("held"));
        Some(lease)
    }

    /// Waits until somebody wants to open the file.
    async fn asked(&mut self) {
        assert_eq!(self.lines.next_line().await.unwrap().as_deref(), Some("asked"));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("-V").stdout(Stdio::null()).status().is_ok()
}

/// Adds the paths of all keys whose description tells of a file.
fn find_file_keys(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let description = schema["description"].as_str().unwrap_or_default();
    if description.starts_with("File ") {
        found.insert(path.to_owned());
    }
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        find_file_keys(schema, &below(name), found);
    }
    if schema["additionalProperties"].is_object() {
        find_file_keys(&schema["additionalProperties"], &below("NAME"), found);
    }
    if schema["items"].is_object() {
        find_file_keys(&schema["items"], &format!("{path}[]"), found);
    }
    for schema in schema["anyOf"].as_array().into_iter().flatten() {
        find_file_keys(schema, path, found);
    }
}

#[test]
fn every_key_and_variable_that_names_a_file_is_tried() {
    let mut named = BTreeSet::new();
    find_file_keys(file_schema().as_value(), "", &mut named);
    let variables = VARIABLES
        .iter()
        .filter(|(_, what)| what.starts_with("path of") && what.contains("file"));
    named.extend(variables.map(|(name, _)| (*name).to_owned()));
    // It is read by a library, so that no list of variables has it.
    named.insert("SSL_CERT_FILE".to_owned());
    let tried: BTreeSet<String> = PLACES.iter().map(|place| place.name.to_owned()).collect();
    assert_eq!(tried, named);
}

fn admin_request(path: &str) -> String {
    get_with(path, &[]).replace("Host: localhost", "Host: 127.0.0.1")
}

fn reloading() -> String {
    post("/admin/v1/reload", "").replace("Host: localhost", "Host: 127.0.0.1")
}

/// Checks that health checks are answered.
async fn answers_operators(process: &Process, what: &str) {
    for path in ["/livez", "/readyz"] {
        let answer = process.ask_admin(admin_request(path)).await;
        assert_eq!(answer.status(), 200, "{what}: {path}");
    }
}

/// Reloads while the file does not answer, and stops the proxy meanwhile.
async fn reload_beside(place: Place) {
    let what = place.name;
    if what == "ANTIPHON_LEDGER_URL_FILE" {
        // A start would wait for the database.
        return;
    }
    let install = Install::new("");
    let (file, other) = (install.state().join("the-file"), install.state().join("other"));
    std::fs::write(&other, "other").unwrap();
    std::fs::write(&file, "a-token").unwrap();
    let name = file.display().to_string();
    if place.is_variable() {
        // What a variable names is read at the start already.
        install.write(place.config);
    }
    let process = install.start_with(&place.variables(&name)).await;
    install.write(&place.config_with(&file, &other));
    let held = if what == "ANTIPHON_CONFIG" {
        install.config()
    } else {
        &file
    };
    let mut lease = Lease::take(held).await.unwrap();
    let mut asker = Client::connect(process.admin).await;
    let token = "Host: 127.0.0.1\r\nAuthorization: Bearer a-token";
    asker.send(reloading().replace("Host: 127.0.0.1", token)).await;
    tokio::select! {
        () = lease.asked() => {}
        // Some files are opened by a start only, or by another task.
        _ = asker.response() => {}
    }
    answers_operators(&process, what).await;
    let stopped = tokio::time::timeout(PATIENCE, process.stop()).await;
    stopped.unwrap_or_else(|_| panic!("{what}: SIGTERM has no effect"));
}

#[tokio::test]
async fn a_reload_beside_a_silent_file_keeps_health_checks_and_signals() {
    if !has_python() {
        return;
    }
    stream::iter(PLACES).for_each_concurrent(AT_ONCE, reload_beside).await;
}

/// Starts with a file that does not answer: the start says so, and SIGTERM ends it.
async fn start_beside(place: Place) {
    let Some(waits_for) = place.waits_for else { return };
    let what = place.name;
    let install = Install::new("");
    let (file, other) = (install.state().join("the-file"), install.state().join("other"));
    std::fs::write(&other, "other").unwrap();
    std::fs::write(&file, "content").unwrap();
    install.write(&place.config_with(&file, &other));
    let is_config = what == "ANTIPHON_CONFIG";
    let held = if is_config { install.config() } else { &file };
    let waits_for = if is_config { "antiphon.toml" } else { waits_for };
    let mut lease = Lease::take(held).await.unwrap();
    let name = file.display().to_string();
    let mut child = install.spawn(&place.variables(&name));
    let stderr = tokio::process::ChildStderr::from_std(child.stderr.take().unwrap()).unwrap();
    let mut lines = BufReader::new(stderr).lines();
    lease.asked().await;
    let said = async {
        loop {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("it ended while the file was silent");
            if line.contains("the start waits") {
                return line;
            }
        }
    };
    let line = tokio::time::timeout(2 * PATIENCE, said).await.expect(what);
    assert!(line.contains(waits_for), "{what}: {line}");
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap());
    let status = tokio::time::timeout(PATIENCE, ended).await;
    let status = status
        .unwrap_or_else(|_| panic!("{what}: SIGTERM has no effect"))
        .unwrap();
    assert_eq!(status.code(), Some(0), "{what}");
    let mut said_so = false;
    while let Some(line) = lines.next_line().await.unwrap() {
        said_so |= line.contains("stopped before the start was complete");
    }
    assert!(said_so, "{what}");
}

#[tokio::test]
async fn a_start_beside_a_silent_file_names_it_and_can_be_stopped() {
    if !has_python() {
        return;
    }
    stream::iter(PLACES).for_each_concurrent(AT_ONCE, start_beside).await;
}

fn make_pipe(path: &Path) {
    drop(std::fs::remove_file(path));
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn a_reload_gives_up_after_five_seconds_and_the_next_one_works() {
    let install = Install::new("");
    let process = install.start().await;
    let Some(lease) = Lease::take(install.config()).await else {
        return;
    };
    let answer = process.ask_admin(reloading()).await;
    assert_eq!(answer.status(), 422);
    let name = install.config().display().to_string();
    assert!(answer.text().contains("does not answer within 5s"), "{}", answer.text());
    assert!(answer.text().contains(&name), "{}", answer.text());
    // No thread for each try.
    let answer = process.ask_admin(reloading()).await;
    assert_eq!(answer.status(), 422);
    assert!(answer.text().contains("still waits for"), "{}", answer.text());
    answers_operators(&process, "the configuration").await;
    let log = process.log().join("\n");
    assert!(
        log.contains("the previous one stays in effect") && log.contains(&name),
        "{log}"
    );
    drop(lease);
    let reloaded = async { while process.ask_admin(reloading()).await.status() != 200 {} };
    tokio::time::timeout(PATIENCE, reloaded)
        .await
        .expect("no reload works any more");
    process.stop().await;
}

#[tokio::test]
async fn a_second_sigterm_works_while_a_reload_waits_for_a_file() {
    let provider = Provider::start().await;
    let install = Install::new(&format!("[upstreams.anthropic]\nurl = \"{}\"\n", provider.url()));
    let process = install.start().await;
    // An exchange that does not end keeps the drain going.
    let mut client = Client::connect(process.data).await;
    client
        .send("POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        .await;
    let Some(_lease) = Lease::take(install.config()).await else {
        return;
    };
    process.signal("HUP");
    let mut asker = Client::connect(process.admin).await;
    asker.send(reloading()).await;
    answers_operators(&process, "pipe").await;
    process.signal("TERM");
    let is_draining = async { while process.ask_admin(admin_request("/readyz")).await.status() == 200 {} };
    tokio::time::timeout(PATIENCE, is_draining)
        .await
        .expect("SIGTERM has no effect");
    process.signal("TERM");
    let ended = tokio::time::timeout(PATIENCE, process.exit_code()).await;
    assert_eq!(ended.expect("the second SIGTERM has no effect"), Some(143));
}

/// A pipe is empty once it was read, and an empty file is a valid configuration.
#[tokio::test]
async fn a_pipe_in_the_place_of_the_configuration_is_not_read_again() {
    let install = Install::new("");
    let process = install.start().await;
    make_pipe(install.config());
    let answer = process.ask_admin(reloading()).await;
    assert_eq!(answer.status(), 422);
    assert!(
        answer.text().contains("only a regular file can be read again"),
        "{}",
        answer.text()
    );
    std::fs::remove_file(install.config()).unwrap();
    install.write("");
    assert_eq!(process.ask_admin(reloading()).await.status(), 200);
    process.stop().await;
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_secret_is_refused_at_once() {
    let install = Install::new("");
    let pipe = install.state().join("pipe");
    make_pipe(&pipe);
    let process = install.start().await;
    for place in PLACES
        .iter()
        .filter(|place| !place.is_variable() && place.name != "ledger.path")
    {
        install.write(&place.config_with(&pipe, install.config()));
        let answer = process.ask_admin(reloading()).await;
        assert_eq!(answer.status(), 422, "{}", place.name);
        assert!(
            answer.text().contains("not a regular file"),
            "{}: {}",
            place.name,
            answer.text()
        );
    }
    process.stop().await;
}
