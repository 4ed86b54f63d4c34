//! The binary set up as in a container: by variables alone, reachable under the name of its service.
#![cfg(unix)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use antiphon::config::VARIABLES;
use serde_json::Value;

use crate::support::state;

const TOKEN: &str = "the-token-of-the-secret-file";

/// A service, so that results may be posted.
const SERVICES: &str = r#"
[services.runner]
token = "sha256:8d969eef6ecad3c29a3a629280e686cf0c3f5d5a86aff3ca12020c923adc6c92"
principals = ["*"]
tools = ["*"]
"#;

/// A running binary that is killed on drop, and the lines that it logged before it was ready.
struct Container {
    child: Child,
    data: SocketAddr,
    admin: SocketAddr,
    lines: Vec<Value>,
}

impl Container {
    fn start(variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        state::apart(&mut command);
        for (name, _) in VARIABLES.iter() {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        let mut child = command
            .env("ANTIPHON_LOG_FORMAT", "json")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            lines.push(serde_json::from_str(&line.unwrap()).unwrap());
            if lines.last().is_some_and(|line: &Value| line["message"] == "serving") {
                break;
            }
        }
        let ready = lines.last().unwrap();
        let port = |key: &str| {
            let address: SocketAddr = ready[key]
                .as_str()
                .unwrap_or_else(|| panic!("{lines:?}"))
                .parse()
                .unwrap();
            // Only loopback is used, although the binary listens on every address.
            SocketAddr::from(([127, 0, 0, 1], address.port()))
        };
        Self {
            data: port("listen"),
            admin: port("admin_listen"),
            child,
            lines,
        }
    }

    fn warnings(&self) -> Vec<&str> {
        let warnings = self.lines.iter().filter(|line| line["level"] == "WARN");
        warnings.filter_map(|line| line["message"].as_str()).collect()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the answer to a GET request: its status, and all of it in lower case.
fn ask(address: SocketAddr, path: &str, host: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let answer = answer.to_ascii_lowercase();
    (answer["http/1.1 ".len()..][..3].to_owned(), answer)
}

#[test]
fn a_container_is_reached_under_its_names_and_with_its_token() {
    let folder = state::directory();
    let secret = folder.join("admin-token");
    fs::write(&secret, format!("{TOKEN}\n")).unwrap();
    let ledger = folder.join("ledger.db");
    let container = Container::start(&[
        ("ANTIPHON_LISTEN", "0.0.0.0:0"),
        ("ANTIPHON_ADMIN_LISTEN", "0.0.0.0:0"),
        ("ANTIPHON_ADMIN_TOKEN_FILE", secret.to_str().unwrap()),
        ("ANTIPHON_ALLOW_HOSTS", "antiphon,antiphon.internal"),
        ("ANTIPHON_LEDGER_PATH", ledger.to_str().unwrap()),
    ]);
    assert_eq!(container.warnings(), Vec::<&str>::new());
    assert!(ledger.exists());
    // No such route: the request was admitted.
    for (host, status) in [
        ("antiphon:4747", "404"),
        ("antiphon.internal", "404"),
        ("localhost:4747", "404"),
        ("other:4747", "403"),
        ("10.0.0.5:4747", "403"),
    ] {
        let (found, answer) = ask(container.data, "/nowhere", host, "");
        assert_eq!(found, status, "{host}: {answer}");
        assert_eq!(answer.contains("server.allow_hosts"), status == "403", "{answer}");
    }
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let open = format!("{bearer}Accept: application/openmetrics-text\r\n");
    for (path, host, headers, status, part) in [
        ("/livez", "10.0.0.5:4748", "", "200", "ok"),
        ("/", "127.0.0.1:4748", "", "200", "<!doctype html>"),
        ("/metrics", "antiphon:4748", "", "401", "www-authenticate: bearer"),
        ("/metrics", "antiphon:4748", &bearer, "200", "text/plain; version=0.0.4"),
        (
            "/metrics",
            "10.0.0.5:4748",
            &open,
            "200",
            "application/openmetrics-text",
        ),
        ("/admin/v1/status", "127.0.0.1:4748", &bearer, "200", "version"),
        ("/metrics", "other:4748", &bearer, "403", "server.allow_hosts"),
    ] {
        let (found, answer) = ask(container.admin, path, host, headers);
        assert_eq!(found, status, "{path} {host}: {answer}");
        assert!(answer.contains(part), "{path} {host}: {answer}");
    }
}

#[test]
fn posted_results_in_memory_are_warned_about() {
    let folder = state::directory();
    let file = folder.join("services.toml");
    fs::write(&file, SERVICES).unwrap();
    let file = file.to_str().unwrap();
    let listen = [
        ("ANTIPHON_LISTEN", "127.0.0.1:0"),
        ("ANTIPHON_ADMIN_LISTEN", "127.0.0.1:0"),
    ];
    let memory = ("ANTIPHON_LEDGER_STORE", "memory");
    for (variables, expected) in [
        (vec![memory], false),
        (vec![("ANTIPHON_CONFIG", file)], false),
        (vec![("ANTIPHON_CONFIG", file), memory], true),
    ] {
        let variables = [&listen[..], &variables].concat();
        let container = Container::start(&variables);
        let warned = container
            .warnings()
            .iter()
            .any(|line| line.contains("posted results are lost"));
        assert_eq!(warned, expected, "{variables:?}: {:?}", container.lines);
    }
}
