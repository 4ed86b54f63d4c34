//! `serve` and `config` through the built binary.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use antiphon::{cli::banner, config::VARIABLES, provider::Routes};

use crate::support::binary::Install;

/// Returns a command for the binary without Antiphon's own variables.
fn antiphon(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    crate::support::state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    output(&antiphon(arguments).stdin(Stdio::null()).output().unwrap())
}

fn output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn help_and_version() {
    let (code, help, _) = run(&["serve", "--help"]);
    assert_eq!(code, 0);
    for flag in [
        "--config",
        "--listen",
        "--admin-listen",
        "--upstream",
        "--log-format",
        "--verbose",
        "--quiet",
    ] {
        assert!(help.contains(flag), "{flag} in {help}");
    }
    for (name, _) in VARIABLES.iter().filter(|(name, _)| name.starts_with("ANTIPHON_")) {
        assert!(help.contains(name), "{name} in {help}");
    }
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, 0);
    assert!(
        help.contains("Exit codes:") && help.contains("serve") && help.contains("config"),
        "{help}"
    );
    let (code, version, _) = run(&["-V"]);
    assert_eq!(
        (code, version.trim()),
        (0, concat!("antiphon ", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn wrong_usage_exits_with_2_and_writes_to_stderr() {
    let wrong: [&[&str]; 6] = [
        &["--frobnicate"],
        &["serve", "-v", "-q"],
        &["nothing"],
        &["config"],
        &["serve", "--log-format", "xml"],
        &["config", "print", "--defaults", "-c", "x"],
    ];
    for arguments in wrong {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(!err.is_empty(), "{arguments:?}");
    }
}

#[test]
fn config_check_prints_ok_or_every_problem() {
    let good = file("[server]\nlisten = \"127.0.0.1:9\"\n");
    let (code, out, err) = run(&["config", "check", "-c", good.path().to_str().unwrap()]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "ok: 9 upstreams, listening on 127.0.0.1:9\n", "")
    );

    let bad = file("[server]\nlisen = 1\nlisten = \"x\"\n");
    let (code, out, err) = run(&["config", "check", "-c", bad.path().to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.starts_with("antiphon: 2 configuration problems in ") && err.contains("line 2") && err.contains("line 3"),
        "{err}"
    );

    let (code, _, err) = run(&["config", "check", "-c", "/nowhere/antiphon.toml"]);
    assert_eq!(code, 2);
    assert!(err.contains("--config: cannot read /nowhere/antiphon.toml"), "{err}");
}

#[test]
fn variables_reach_the_binary() {
    let given = file("[repair]\nmode = \"${MODE}\"\n");
    let mut command = antiphon(&["config", "print"]);
    command
        .env("ANTIPHON_CONFIG", given.path())
        .env("MODE", "strict")
        .env("ANTIPHON_LISTEN", "127.0.0.1:7");
    let (code, out, err) = output(&command.output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.contains("listen = \"127.0.0.1:7\"") && out.contains("mode = \"strict\""),
        "{out}"
    );
    let (_, defaults, _) = output(
        &antiphon(&["config", "print", "--defaults"])
            .env("ANTIPHON_LISTEN", "x")
            .output()
            .unwrap(),
    );
    assert!(defaults.contains("listen = \"127.0.0.1:4747\""), "{defaults}");
    let printed = file(&defaults);
    assert_eq!(run(&["config", "check", "-c", printed.path().to_str().unwrap()]).0, 0);
}

#[test]
fn config_schema_is_json() {
    let (code, out, _) = run(&["config", "schema"]);
    assert_eq!(code, 0);
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(schema["properties"]["server"]["properties"]["listen"].is_object());
}

#[test]
fn config_token_prints_a_token_and_a_config_line_for_each_use() {
    let (code, token, lines) = run(&["config", "token", "ci.2"]);
    assert_eq!(code, 0);
    let random = token.strip_prefix("antiphon_").unwrap().strip_suffix('\n').unwrap();
    assert!(
        random.len() == 64 && random.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{token}"
    );
    let hash = antiphon::auth::TokenHash::hash_token(token.trim_end().as_bytes());
    let uses = [
        format!("#[client_tokens]\n#\"ci.2\" = \"{hash}\"\n"),
        format!("#[services.\"ci.2\"]\n#token = \"{hash}\"\n"),
        format!("#admin_token = \"{hash}\"\n"),
    ];
    for wanted in uses {
        assert!(lines.contains(&wanted), "{lines}");
        let table = if wanted.contains("admin") { "[server]\n" } else { "" };
        let only = table.to_owned()
            + &wanted.replace('#', "")
            + if wanted.contains("services") {
                "principals = [\"*\"]\ntools = [\"*\"]\n"
            } else {
                ""
            };
        let given = file(&only);
        let (code, _, err) = run(&["config", "check", "-c", given.path().to_str().unwrap()]);
        assert_eq!(code, 0, "{only}\n{err}");
    }
    // Pasted as they are, the lines change nothing.
    assert!(lines.lines().all(|line| line.starts_with('#')), "{lines}");
    assert_ne!(run(&["config", "token", "ci.2"]).1, token);
    let (code, out, err) = run(&["config", "token", "C I"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("lower-case"), "{err}");
}

#[test]
fn profiles_without_client_tokens_are_not_served_to_other_machines() {
    let given =
        file("[server]\nlisten = \"0.0.0.0:0\"\n[[upstreams.openai.profiles]]\nname = \"p\"\napi_key = \"canary\"\n");
    let (code, out, err) = run(&["serve", "-c", given.path().to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("server.listen") && err.contains("config token") && !err.contains("canary"),
        "{err}"
    );
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let mut child = antiphon(&["config", "schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn serve_with_a_bad_configuration_exits_with_2() {
    let (code, _, err) = run(&[
        "serve",
        "--listen",
        "nowhere",
        "--admin-listen",
        "0.0.0.0:0",
        "--upstream",
        "a=ftp://h",
    ]);
    assert_eq!(code, 2);
    for name in ["--listen: ", "--admin-listen: ", "--upstream: "] {
        assert!(err.contains(name), "{name} in {err}");
    }
}

#[test]
fn a_taken_port_exits_with_2_and_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, err) = run(&[
        "--listen",
        &address,
        "--admin-listen",
        "127.0.0.1:0",
        "--log-format",
        "text",
    ]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&address), "{err}");
}

/// A running proxy that is stopped on drop.
struct Serving {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    data: SocketAddr,
    admin: SocketAddr,
}

impl Serving {
    fn start(variables: &[(&str, &str)]) -> Self {
        let arguments = [
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ];
        let mut command = antiphon(&arguments);
        command
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let ready = loop {
            let line = next_line(&mut lines).expect("the proxy ended before it was ready");
            if line["message"] == "serving" {
                break line;
            }
        };
        let address = |key: &str| ready[key].as_str().unwrap().parse().unwrap();
        Self {
            data: address("listen"),
            admin: address("admin_listen"),
            child,
            lines,
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn next_line(lines: &mut impl BufRead) -> Option<serde_json::Value> {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a JSON line: {line}")))
}

#[test]
fn serve_logs_its_addresses_and_stops_on_sigterm() {
    let mut serving = Serving::start(&[]);
    assert!(TcpStream::connect(serving.data).is_ok());
    assert_ne!(serving.data, serving.admin);
    assert!(TcpStream::connect(serving.admin).is_ok());
    serving.signal("TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    let mut said = Vec::new();
    while let Some(line) = next_line(&mut serving.lines) {
        said.push(line["message"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(said.last().map(String::as_str), Some("stopped"), "{said:?}");
}

#[test]
fn the_log_line_of_an_exchange_is_written_at_its_end() {
    let mut serving = Serving::start(&[]);
    for _ in 0..3 {
        let mut client = TcpStream::connect(serving.data).unwrap();
        client
            .write_all(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let line = next_line(&mut serving.lines).unwrap();
        assert_eq!(
            (&line["target"], &line["path"]),
            (&"antiphon::exchange".into(), &"/nowhere".into())
        );
    }
}

#[test]
fn a_second_signal_exits_at_once_and_its_code_tells_which() {
    for (first, second, code) in [
        ("INT", "INT", 130),
        ("TERM", "INT", 130),
        ("TERM", "TERM", 143),
        ("INT", "TERM", 143),
    ] {
        assert_eq!(code_after_signals(first, second), Some(code), "{first}, {second}");
    }
}

/// Returns the exit code of a proxy that gets two signals while an exchange waits for its provider.
fn code_after_signals(first: &str, second: &str) -> Option<i32> {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("silent=http://{}", silent.local_addr().unwrap());
    let mut serving = Serving::start(&[("ANTIPHON_UPSTREAM", &upstream)]);
    let mut client = TcpStream::connect(serving.data).unwrap();
    client
        .write_all(b"GET /silent/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let _held = silent.accept().unwrap();
    serving.signal(first);
    while let Some(line) = next_line(&mut serving.lines) {
        if line["message"].as_str().unwrap_or_default().starts_with("draining") {
            break;
        }
    }
    serving.signal(second);
    serving.child.wait().unwrap().code()
}

#[test]
fn at_trace_level_only_the_proxys_own_lines_are_detailed() {
    let mut serving = Serving::start(&[("ANTIPHON_LOG", "trace,hyper=trace,h2=trace")]);
    for address in [serving.data, serving.admin] {
        let mut stream = TcpStream::connect(address).unwrap();
        // The answer does not matter here, only the log lines.
        drop(stream.write_all(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hunter2\r\nConnection: close\r\n\r\n",
        ));
        drop(stream.set_read_timeout(Some(std::time::Duration::from_millis(200))));
        drop(stream.read(&mut [0; 64]));
    }
    serving.signal("TERM");
    while let Some(line) = next_line(&mut serving.lines) {
        assert!(!line.to_string().contains("hunter2"), "{line}");
        let detailed = matches!(line["level"].as_str(), Some("DEBUG" | "TRACE"));
        assert!(
            !detailed || line["target"].as_str().unwrap().starts_with("antiphon"),
            "{line}"
        );
    }
}

#[test]
fn missing_host_names_and_unencrypted_upstreams_are_warned_about() {
    let arguments = [
        "--listen",
        "0.0.0.0:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--upstream",
        "lan=http://llm.lan:8000",
    ];
    let mut child = antiphon(&arguments)
        .env("ANTIPHON_LOG_FORMAT", "json")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = Vec::new();
    while let Some(line) = next_line(&mut lines).filter(|line| line["message"] != "serving") {
        said.push(line["message"].as_str().unwrap_or_default().to_owned());
    }
    drop(child.kill());
    drop(child.wait());
    assert!(said.iter().any(|line| line.contains("server.allow_hosts")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("unencrypted")), "{said:?}");
}

#[test]
fn the_banner_points_each_client_at_its_upstream() {
    let loaded = antiphon::config::build_config(None, &antiphon::config::Flags::default(), &|_| None, &|_| {
        Err(std::io::ErrorKind::NotFound.into())
    })
    .unwrap();
    let routes = Routes::new(loaded.config.upstreams);
    let text = banner::render_banner(
        &routes,
        &banner::listener_url("0.0.0.0:4747".parse().unwrap(), None),
        &banner::listener_url("127.0.0.1:4748".parse().unwrap(), None),
        Some("/state/antiphon/ledger.db"),
    );
    assert_eq!(text.matches("ANTHROPIC_BASE_URL").count(), 1, "{text}");
    for line in [
        "dashboard         http://127.0.0.1:4748/\n",
        "ledger            /state/antiphon/ledger.db\n",
        "Claude Code, SDKs ANTHROPIC_BASE_URL=http://127.0.0.1:4747/anthropic\n",
        "OpenAI SDKs       OPENAI_BASE_URL=http://127.0.0.1:4747/openai/v1\n",
        "base_url = \"http://127.0.0.1:4747/openai/v1\"\n",
        "COPILOT_PROVIDER_BASE_URL=http://127.0.0.1:4747/openai/v1\n",
        "Gemini CLI        GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:4747/gemini\n",
        "deepseek          http://127.0.0.1:4747/deepseek\n",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    let text = banner::render_banner(&routes, "http://127.0.0.1:4747", "http://127.0.0.1:4748", None);
    assert!(
        text.contains("ledger            memory: nothing is stored after the end\n"),
        "{text}"
    );
}

/// A home directory with a configuration at its default path.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("antiphon").join("antiphon.toml")
    }

    fn write(&self, text: &str) {
        std::fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        std::fs::write(self.path(), text).unwrap();
        Self::allow(&self.path(), 0o600);
        Self::allow(self.path().parent().unwrap(), 0o700);
    }

    fn allow(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = antiphon(arguments);
        command.env("XDG_CONFIG_HOME", self.0.path());
        output(&command.stdin(Stdio::null()).output().unwrap())
    }
}

#[test]
fn init_writes_every_key_commented_out_once() {
    use std::os::unix::fs::PermissionsExt as _;

    let home = Home::new();
    let (code, out, err) = home.run(&["config", "init"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with(&format!("wrote {}: ", home.path().display())), "{out}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&home.path()), mode(home.path().parent().unwrap())),
        (0o600, 0o700)
    );
    let text = std::fs::read_to_string(home.path()).unwrap();
    assert!(text.contains("\n#listen = \"127.0.0.1:4747\"\n"), "{text}");
    // The headers of tables remain, so that a key needs one edit.
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with(['#', '['])));
    let listening = text.replace("\n#listen = \"127.0.0.1:4747\"", "\nlisten = \"127.0.0.1:9\"");
    let changed = file(&listening);
    let (code, out, _) = home.run(&["config", "check", "-c", changed.path().to_str().unwrap()]);
    assert!(code == 0 && out.ends_with("listening on 127.0.0.1:9\n"), "{out}");
    let (_, defaults, _) = home.run(&["config", "print", "--defaults"]);
    assert_eq!(home.run(&["config", "print"]).1, defaults);
    let (code, _, err) = home.run(&["config", "init"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("exists and stays as it is"), "{err}");
    assert_eq!(std::fs::read_to_string(home.path()).unwrap(), text);
}

#[test]
fn a_default_path_is_used_unless_others_may_write_it() {
    let home = Home::new();
    home.write("[server]\nlisten = \"127.0.0.1:9\"\n");
    let (code, out, err) = home.run(&["config", "check"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.ends_with(&format!("listening on 127.0.0.1:9 ({})\n", home.path().display())),
        "{out}"
    );
    let other = file("[server]\nlisten = \"127.0.0.1:8\"\n");
    let (_, out, _) = home.run(&["config", "check", "-c", other.path().to_str().unwrap()]);
    assert!(out.ends_with("listening on 127.0.0.1:8\n"), "{out}");
    for (path, mode) in [(home.path(), 0o620), (home.path().parent().unwrap().to_owned(), 0o777)] {
        Home::allow(&path, mode);
        for command in [&["config", "check"][..], &["serve"], &["run", "--", "true"], &["env"]] {
            let (code, _, err) = home.run(command);
            assert_eq!(code, 2, "{command:?}: {err}");
            assert!(
                err.contains("is not used: other users may write") && err.contains("chmod go-w"),
                "{command:?}: {err}"
            );
        }
        // A named file is not checked.
        let named = home.path();
        assert_eq!(home.run(&["config", "check", "-c", named.to_str().unwrap()]).0, 0);
        Home::allow(&home.path(), 0o600);
        Home::allow(home.path().parent().unwrap(), 0o700);
    }
}

#[test]
fn the_working_directory_has_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "antiphon.toml",
        "antiphon/antiphon.toml",
        ".config/antiphon/antiphon.toml",
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "nonsense").unwrap();
    }
    let mut command = antiphon(&["config", "check"]);
    command
        .current_dir(folder.path())
        .env("XDG_CONFIG_HOME", ".")
        .env("HOME", ".");
    let (code, _, err) = output(&command.output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn check_warns_of_secrets_and_has_a_document() {
    let home = Home::new();
    home.write("[[upstreams.anthropic.profiles]]\nname = \"a\"\napi_key = \"sk-literal\"\n");
    let (code, _, err) = home.run(&["config", "check"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        err.starts_with("warning: ") && err.contains("contains this secret"),
        "{err}"
    );
    let document = |arguments: &[&str]| {
        let (code, out, _) = home.run(arguments);
        (code, serde_json::from_str::<serde_json::Value>(&out).unwrap())
    };
    let (code, report) = document(&["config", "check", "--output", "json"]);
    assert_eq!((code, &report["version"], &report["ok"]), (0, &1.into(), &true.into()));
    assert_eq!(report["warnings"].as_array().unwrap().len(), 1);
    assert!(!report.to_string().contains("sk-literal"));
    let (_, printed) = document(&["config", "print", "--output", "json"]);
    assert_eq!(printed["config"]["server"]["listen"], "127.0.0.1:4747");
    assert!(!printed.to_string().contains("sk-literal"));
    home.write("[server]\nlisen = 1\n");
    let (code, report) = document(&["config", "check", "--output", "json"]);
    assert_eq!(
        (code, &report["ok"], &report["problems"][0]["line"]),
        (2, &false.into(), &2.into())
    );
}

#[tokio::test]
async fn old_keys_are_warned_of_at_the_start_and_by_check() {
    const OLD: &str = "the next version does not read this key: ";
    let install = Install::new(include_str!("old_keys.toml"));
    let log = install.start().await.stop_with_log().await;
    let warned = log
        .iter()
        .filter(|line| line.contains(OLD) && line.contains("\"WARN\""));
    assert_eq!(warned.count(), 10, "{log:?}");
    let path = install.config().to_str().unwrap();
    let checked = antiphon(&["config", "check", "-c", path]).output().unwrap();
    let (code, _, err) = output(&checked);
    assert_eq!((code, err.matches(OLD).count()), (0, 10), "{err}");
    let tls = format!("warning: timeouts.tls: {OLD}remove it, or set timeouts.connect");
    assert!(err.contains(&tls), "{err}");
}

#[test]
fn help_and_version_are_commands_too() {
    for (arguments, wanted) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "config", "check"], &["config", "check", "--help"]),
    ] {
        // A long help and a short one differ in their layout, but begin alike.
        let (one, other) = (run(arguments), run(wanted));
        assert_eq!((one.0, one.1.lines().next()), (0, other.1.lines().next()));
    }
    let version = run(&["--version"]).1;
    assert_eq!(run(&["version"]).1, version);
    let document: serde_json::Value = serde_json::from_str(&run(&["version", "--output", "json"]).1).unwrap();
    assert_eq!(document["antiphon"], version.trim().strip_prefix("antiphon ").unwrap());
    let (code, _, err) = run(&["help", "nothing"]);
    assert_eq!(code, 2);
    assert!(
        err.contains("there is no command \"nothing\"; the commands are serve, run, "),
        "{err}"
    );
    // People look for exit codes where the command is explained.
    for command in [
        "serve",
        "run",
        "env",
        "check",
        "repair",
        "config",
        "store",
        "result",
        "healthcheck",
    ] {
        assert!(run(&[command, "--help"]).1.contains("Exit codes:"), "{command}");
    }
}
