//! `antiphon completions`, `man` and `healthcheck` through the built binary.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use antiphon::{
    api::admin::{AdminService, Readiness},
    config::VARIABLES,
};

use crate::support::ports::CLOSED;

const SUBCOMMANDS: [&str; 12] = [
    "serve",
    "env",
    "help",
    "version",
    "check",
    "repair",
    "config",
    "store",
    "result",
    "healthcheck",
    "completions",
    "man",
];

fn antiphon(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    crate::support::state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

fn out(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs `program` over a script on standard input. `None` if the program is not installed.
fn checked_by(program: &str, arguments: &[&str], script: &str) -> Option<Output> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: {program} is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn every_shell_has_a_script_that_knows_every_subcommand_and_parses() {
    let parsers: [(&str, &str, &[&str]); 5] = [
        ("bash", "bash", &["-n"]),
        ("zsh", "zsh", &["-n"]),
        ("fish", "fish", &["--no-execute"]),
        ("powershell", "", &[]),
        ("elvish", "", &[]),
    ];
    for (shell, program, arguments) in parsers {
        let (code, script, err) = out(&antiphon(&["completions", shell]).output().unwrap());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{shell}");
        for word in SUBCOMMANDS.iter().chain(&["admin-listen", "wire", "schema"]) {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
        let judgement = Some(program)
            .filter(|program| !program.is_empty())
            .and_then(|program| checked_by(program, arguments, &script));
        if let Some(judgement) = judgement {
            assert!(judgement.status.success(), "{shell}: {judgement:?}");
        }
    }
    assert_eq!(
        antiphon(&["completions", "csh"]).output().unwrap().status.code(),
        Some(2)
    );
    assert_eq!(antiphon(&["completions"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn the_completions_of_bash_complete() {
    let (_, script, _) = out(&antiphon(&["completions", "bash"]).output().unwrap());
    let asked = format!(
        "{script}\nCOMP_WORDS=(antiphon heal); COMP_CWORD=1; _antiphon antiphon heal antiphon; echo \"${{COMPREPLY[@]}}\"\n"
    );
    if let Some(answer) = checked_by("bash", &[], &asked) {
        assert_eq!(
            String::from_utf8_lossy(&answer.stdout).trim(),
            "healthcheck",
            "{answer:?}"
        );
    }
}

#[test]
fn the_manual_page_has_every_subcommand_and_its_flags() {
    let (code, page, err) = out(&antiphon(&["man"]).output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for name in SUBCOMMANDS {
        let heading = format!(".SH \"ANTIPHON {}\"", name.to_uppercase());
        assert!(page.contains(&heading), "{heading} is missing");
    }
    for text in [
        ".TH antiphon 1",
        ".SH \"ANTIPHON CONFIG SCHEMA\"",
        "\\-\\-admin\\-listen",
        "\\-\\-diff",
        "Exit codes:",
        "ANTIPHON_UPSTREAM",
    ] {
        assert!(page.contains(text), "{text:?} is missing");
    }
    assert!(page.is_ascii());
    if let Some(set) = checked_by("groff", &["-man", "-Tutf8", "-ww"], &page) {
        let warnings = String::from_utf8_lossy(&set.stderr).into_owned();
        assert_eq!((set.status.code(), warnings.as_str()), (Some(0), ""));
        let text = String::from_utf8_lossy(&set.stdout).into_owned();
        assert!(text.contains("  130  stopped at once"), "{text}");
    }
}

/// Returns the arguments of every command's help.
fn help_arguments(command: &clap::Command, before: &[String], found: &mut Vec<Vec<String>>) {
    for below in command.get_subcommands() {
        let path = [before, &[below.get_name().to_owned()]].concat();
        help_arguments(below, &path, found);
        found.push(path);
    }
}

/// A line that is longer than the terminal is broken in the middle of words and columns.
#[test]
fn help_fits_into_a_terminal_of_80_columns() {
    let mut commands = vec![Vec::new()];
    help_arguments(&antiphon::cli::command(), &[], &mut commands);
    assert!(commands.len() > 30, "{commands:?}");
    for path in commands {
        let mut command = antiphon(&[]);
        command.args(&path).arg("--help").env("COLUMNS", "80");
        let (code, help, _) = out(&command.output().unwrap());
        assert_eq!(code, Some(0), "{path:?}");
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{path:?}: {long:#?}");
    }
}

/// Values that are cut off in the help, or missing in completions, have to be looked up elsewhere.
#[test]
fn every_value_of_a_closed_list_is_in_the_help_and_in_completions() {
    let (_, script, _) = out(&antiphon(&["completions", "bash"]).output().unwrap());
    let names: Vec<&str> = antiphon::wire::Wire::NAMES.iter().map(|(name, _)| *name).collect();
    assert_eq!(script.matches(&names.join(" ")).count(), 3, "check, repair, rules try");
    for command in ["check", "repair"] {
        let (_, help, _) = out(&antiphon(&[command, "--help"]).output().unwrap());
        for name in &names {
            assert!(help.contains(name), "{command}: {name} is missing: {help}");
        }
        assert!(!help.contains('…'), "{help}");
        // Spellings that are not listed.
        for other in ["OpenAI_Chat", "messages"] {
            let output = antiphon(&[command, "--wire", other, "no/such/file"]).output().unwrap();
            let (_, _, err) = out(&output);
            assert!(err.starts_with("antiphon: no/such/file: "), "{err}");
        }
    }
    for word in ["inventive salvage", "delivery", "evidence"] {
        assert!(script.contains(word), "{word}");
    }
}

/// Another program, a missing privilege and a wrong address need different steps.
#[test]
fn each_failure_to_listen_has_its_own_remedy() {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, OutOfMemory, PermissionDenied};
    for (kind, address, said, remedy) in [
        (
            AddrInUse,
            "127.0.0.1:80",
            "address 127.0.0.1:80 is already in use",
            "another antiphon may be running; ",
        ),
        (
            PermissionDenied,
            "127.0.0.1:80",
            "cannot listen on 127.0.0.1:80: ",
            "ports below 1024 need a privilege: ",
        ),
        (
            PermissionDenied,
            "127.0.0.1:4747",
            "cannot listen on ",
            "permission denied by the system; ",
        ),
        (
            AddrNotAvailable,
            "192.0.2.1:4747",
            "cannot listen on ",
            "no interface of this machine has this address; ",
        ),
        (
            OutOfMemory,
            "127.0.0.1:4747",
            "cannot listen on ",
            "choose other addresses ",
        ),
    ] {
        let error = antiphon::server::BindError {
            address: address.parse().unwrap(),
            source: kind.into(),
        };
        assert!(error.to_string().starts_with(said), "{kind:?}: {error}");
        assert!(error.remedy().starts_with(remedy), "{kind:?}: {}", error.remedy());
        assert!(
            error.remedy().contains("--listen and --admin-listen"),
            "{kind:?}: {}",
            error.remedy()
        );
    }
    // An address for documentation, which no machine has.
    let there = ["serve", "--listen", "192.0.2.1:0", "--admin-listen", "127.0.0.1:0"];
    let (code, _, err) = out(&antiphon(&there).output().unwrap());
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("\nno interface of this machine has this address; "),
        "{err}"
    );
    assert!(!err.contains("another antiphon"), "{err}");
}

/// Runs `antiphon healthcheck` against the admin listener of a draining proxy.
async fn checked(path: &str, flags: Option<&[&str]>) -> (Option<i32>, String, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}{path}");
    let mut command = antiphon(&["healthcheck"]);
    command.args(flags.unwrap_or(&["--url", &url]));
    command.env("ANTIPHON_ADMIN_LISTEN", address.to_string());
    let readiness = Readiness::new();
    readiness.start_drain();
    let router = AdminService::new(crate::support::app::admin(readiness));
    let mut command = tokio::process::Command::from(command);
    tokio::select! {
        () = crate::support::app::serve_admin(listener, router) => panic!("the server ended"),
        output = command.output() => out(&output.unwrap()),
    }
}

#[tokio::test]
async fn only_a_live_proxy_is_healthy() {
    let (code, said, err) = checked("/livez", None).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(said.starts_with("ok: http://127.0.0.1:"), "{said}");
    let (code, said, _) = checked("", Some(&[])).await;
    assert_eq!(code, Some(0));
    assert!(said.ends_with("/livez\n"), "{said}");
    for (path, flags) in [("/readyz", None), ("", Some(&["--ready"][..]))] {
        let (code, said, err) = checked(path, flags).await;
        assert_eq!((code, said.as_str()), (Some(1), ""));
        assert!(err.contains("/readyz: answered 503"), "{err}");
    }
    assert_eq!(checked("/nothing", None).await.0, Some(1));
}

#[test]
fn without_a_listener_the_check_fails() {
    let mut command = antiphon(&["healthcheck"]);
    command.env("ANTIPHON_ADMIN_LISTEN", CLOSED.to_string());
    let (code, said, err) = out(&command.output().unwrap());
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(err.starts_with(&format!("antiphon: http://{CLOSED}/livez: ")), "{err}");
    command.env("ANTIPHON_ADMIN_LISTEN", "nonsense");
    assert_eq!(command.output().unwrap().status.code(), Some(1));
    for url in ["ftp://127.0.0.1/livez", "/livez", "http://", ""] {
        let output = antiphon(&["healthcheck", "--url", url]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{url}");
    }
}

/// A server that accepts the connection but does not answer with HTTP.
#[test]
fn another_program_on_the_port_is_not_healthy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/livez", listener.local_addr().unwrap());
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9\r\n").unwrap();
    });
    let (code, said, _) = out(&antiphon(&["healthcheck", "--url", &url]).output().unwrap());
    assert_eq!((code, said.as_str()), (Some(1), ""));
    stranger.join().unwrap();
}

/// A server whose connections break while the check writes its request: a broken pipe, but not that of standard output.
#[test]
fn a_port_that_resets_connections_is_not_healthy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/livez", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            socket2::SockRef::from(&stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
        }
    });
    for form in ["text", "json"] {
        let output = antiphon(&["healthcheck", "--url", &url, "--output", form])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{form}");
    }
}
