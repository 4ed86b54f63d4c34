//! Pins the command line: subcommands, flags, values, defaults, variables, exit codes, and machine-readable output.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use antiphon::{
    cli,
    config::VARIABLES,
    ledger::{Ledger as _, LedgerSettings, SqliteLedger},
};
use clap::{Arg, ArgAction};
use serde_json::Value;

use crate::{
    frozen::golden::{keys, same, same_lines, without_prose},
    ledger::conformance::{NOW, SECRET, call, insert},
    support::state,
};

const BROKEN: &str = "tests/cases/anthropic/unanswered_user_talks/request.json";
const HEALTHY: &str = "tests/cases/openai-chat/healthy_run_in_any_order/request.json";

/// Returns everything about an argument except its help.
fn argument(arg: &Arg) -> String {
    let mut facts = vec![match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("--{long} -{short}"),
        (Some(long), None) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => "positional".to_owned(),
    }];
    facts.push(match arg.get_action() {
        ArgAction::Set => "one".to_owned(),
        ArgAction::Append => "many".to_owned(),
        action => format!("{action:?}").to_lowercase(),
    });
    let list = |name: &str, items: Vec<String>| (!items.is_empty()).then(|| format!("{name}={}", items.join("|")));
    let text = |text: &clap::builder::OsStr| text.to_str().unwrap_or_default().to_owned();
    let aliases = arg.get_all_aliases().unwrap_or_default().into_iter().map(str::to_owned);
    facts.extend(list("aliases", aliases.collect()));
    if arg.get_action().takes_values() {
        let names = arg
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string);
        let values = arg.get_possible_values().into_iter();
        facts.extend(list("value", names.collect()));
        facts.extend(list(
            "values",
            values.map(|value| value.get_name().to_owned()).collect(),
        ));
        facts.extend(list("default", arg.get_default_values().iter().map(text).collect()));
    }
    facts.extend(arg.get_env().map(|name| format!("env={}", name.display())));
    facts.extend(arg.is_required_set().then(|| "required".to_owned()));
    facts.extend(arg.is_hide_set().then(|| "hidden".to_owned()));
    facts.join(" ")
}

fn commands(at: &str, command: &clap::Command, facts: &mut Vec<String>) {
    facts.push(format!("command {at}"));
    for arg in command.get_arguments() {
        facts.push(format!("argument {at}: {}", argument(arg)));
        let conflicts = command
            .get_arg_conflicts_with(arg)
            .into_iter()
            .filter_map(Arg::get_long);
        for other in conflicts {
            let name = arg.get_long().unwrap_or("positional");
            facts.push(format!("conflict {at}: --{name} with --{other}"));
        }
    }
    for below in command.get_subcommands() {
        commands(&format!("{at} {}", below.get_name()), below, facts);
        for alias in below.get_all_aliases() {
            facts.push(format!("command {at} {alias}: alias of {}", below.get_name()));
        }
    }
}

#[test]
fn command_line_arguments_and_variables_are_pinned() {
    let mut command = cli::command();
    command.build();
    let mut facts = Vec::new();
    commands(command.get_name(), &command, &mut facts);
    facts.extend(VARIABLES.iter().map(|(name, _)| format!("variable {name}")));
    same_lines("cli.txt", facts);
}

/// Runs the binary with its own state directory and environment.
fn antiphon(arguments: &[&str], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    state::apart(&mut command)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A child that reads no input closes the pipe.
    drop(child.stdin.take().unwrap().write_all(stdin));
    child.wait_with_output().unwrap()
}

/// Files that the tables below name in capitals.
struct Files {
    folder: PathBuf,
}

impl Files {
    async fn new() -> Self {
        let folder = state::directory();
        fs::write(folder.join("good.toml"), "[server]\nlisten = \"127.0.0.1:9\"\n").unwrap();
        fs::write(folder.join("bad.toml"), "[server]\nlisen = 1\n").unwrap();
        fs::write(folder.join("plain"), "no program\n").unwrap();
        for name in ["sound.db", "damaged.db"] {
            let ledger = SqliteLedger::open(&folder.join(name), LedgerSettings::default(), SECRET).unwrap();
            let record = vec![insert(call(1), "needle in the file")];
            ledger.commit(record, NOW).await.unwrap();
        }
        let damaged = folder.join("damaged.db");
        let mut bytes = fs::read(&damaged).unwrap();
        let at = bytes.windows(6).position(|window| window == b"needle").unwrap();
        bytes[at] ^= 0x10;
        fs::write(damaged, bytes).unwrap();
        Self { folder }
    }

    fn run(&self, arguments: &str, stdin: &[u8]) -> Output {
        let at = |name: &str| self.folder.join(name).to_str().unwrap().to_owned();
        let named = |word: &str| match word {
            "GOOD" => at("good.toml"),
            "BAD" => at("bad.toml"),
            "PLAIN" => at("plain"),
            "SOUND" => at("sound.db"),
            "DAMAGED" => at("damaged.db"),
            "MISSING" => at("missing"),
            "BROKEN" => BROKEN.to_owned(),
            "HEALTHY" => HEALTHY.to_owned(),
            word => word.replace('+', " "),
        };
        let words: Vec<String> = arguments.split_whitespace().map(named).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        antiphon(&words, stdin)
    }
}

/// Command lines that end by themselves. `+` stands for a space inside a word.
const COMMAND_LINES: &[&str] = &[
    "--version",
    "--help",
    "--frobnicate",
    "nothing",
    "check BROKEN",
    "check HEALTHY",
    "check MISSING",
    "check --wire latin HEALTHY",
    "check --output xml HEALTHY",
    "completions bash",
    "completions nothing",
    "config",
    "config check -c GOOD",
    "config check -c BAD",
    "config check -c MISSING",
    "config print --defaults",
    "config print --defaults -c GOOD",
    "config schema",
    "config token ci",
    "config token C+I",
    "demo --keep --provider-only",
    "doctor",
    "doctor MISSING",
    "doctor --explain joined_records",
    "doctor --explain nothing",
    "doctor --fix",
    "doctor --fix MISSING",
    "doctor --undo MISSING",
    "doctor --forget",
    "healthcheck --url http://127.0.0.1:1/livez",
    "healthcheck --url ftp://127.0.0.1:1/livez",
    "healthcheck -c BAD",
    "help",
    "help config check",
    "help nothing",
    "config init --path PLAIN",
    "env",
    "version",
    "man",
    "repair BROKEN",
    "repair --check BROKEN",
    "repair --check HEALTHY",
    "repair --diff BROKEN",
    "repair --least lossy BROKEN",
    "repair --least inventive BROKEN",
    "repair --least salvage BROKEN",
    "repair --least lossless BROKEN",
    "repair --least nothing BROKEN",
    "repair MISSING",
    "result",
    "result post c1 --text x --url http://127.0.0.1:1 --token-file PLAIN",
    "result post c1 --text x --input {",
    "result ls --url http://127.0.0.1:1 --key-file PLAIN",
    "result ls --key-file MISSING",
    "run --upstream a=http://127.0.0.1:1 -- true",
    "run --upstream a=http://127.0.0.1:1 -- sh -c exit+7",
    "run --upstream a=http://127.0.0.1:1 -- sh -c kill+-TERM+$$",
    "run --upstream a=http://127.0.0.1:1 -- MISSING",
    "run --upstream a=http://127.0.0.1:1 -- PLAIN",
    "run -c BAD -- true",
    "run",
    "serve -c BAD",
    "serve -v -q",
    "serve --upstream a=ftp://h",
    "store ls --path SOUND",
    "store ls --path MISSING",
    "store ls --path PLAIN",
    "store verify --path SOUND",
    "store verify --path DAMAGED",
    "store gc --path SOUND",
    "store gc --path PLAIN",
];

#[tokio::test]
async fn exit_codes_of_subcommands_are_pinned() {
    let files = Files::new().await;
    let facts = COMMAND_LINES.iter().map(|line| {
        let output = files.run(line, b"");
        let code = output
            .status
            .code()
            .map_or_else(|| "none".to_owned(), |code| code.to_string());
        let out = if output.stdout.is_empty() { "-" } else { "stdout" };
        let err = if output.stderr.is_empty() { "-" } else { "stderr" };
        format!("{code} {out} {err} antiphon {line}\n")
    });
    let unreadable = files.run("check", b"{\"messages\":[").status.code().unwrap();
    let facts: String = facts
        .chain([format!("{unreadable} antiphon check < unreadable\n")])
        .collect();
    same("exit-codes.txt", &facts);
}

/// Returns the keys of a JSON output, under the name of its command line.
fn output_keys(name: &str, bytes: &[u8]) -> Vec<String> {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    keys(name, &value)
}

#[tokio::test]
async fn machine_readable_output_is_pinned() {
    let files = Files::new().await;
    let mut facts = Vec::new();
    for line in [
        "check --output json BROKEN HEALTHY MISSING",
        "config check --output json -c GOOD",
        "config check --output json -c BAD",
        "doctor --output json MISSING",
        "doctor --output json --explain joined_records",
        "doctor --output json --fix MISSING",
        "doctor --output json --undo MISSING",
        "doctor --output json --forget",
        "env --output json",
        "healthcheck --output json --url http://127.0.0.1:1/livez",
        "version --output json",
        "store ls --output json --path DAMAGED",
    ] {
        facts.extend(output_keys(line, &files.run(line, b"").stdout));
    }
    for line in [
        "store verify --output json --path DAMAGED",
        "store gc --output json --path SOUND",
    ] {
        facts.extend(output_keys(line, &files.run(line, b"").stdout));
    }
    // The report goes to standard error, beside the body on standard output.
    facts.extend(output_keys(
        "repair --output json BROKEN",
        &files.run("repair --output json BROKEN", b"").stderr,
    ));
    let field = b"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" \"},{\"type\":\"text\",\"text\":\"go\"}]}]}";
    facts.extend(output_keys(
        "repair of a field",
        &files.run("repair --wire anthropic --output json", field).stderr,
    ));
    let token = String::from_utf8(files.run("config token ci", b"").stdout).unwrap();
    let digits = token.trim_end().strip_prefix("antiphon_").map(str::len);
    facts.push(format!("config token: antiphon_ and {digits:?} hexadecimal digits"));
    facts.extend(variables_of_run(&files));
    same_lines("machine-output.txt", facts);
}

/// Returns the variables that `run` sets for its command, without the port.
fn variables_of_run(files: &Files) -> Vec<String> {
    let output = files.run("run --upstream a=http://127.0.0.1:1 -- sh -c env", b"");
    let said = String::from_utf8(output.stdout).unwrap();
    let set = said.lines().filter(|line| line.contains("_BASE_URL=http://127.0.0.1:"));
    let without_port = |line: &str| {
        let (name, url) = line.split_once('=').unwrap();
        let path = url.splitn(4, '/').nth(3).unwrap_or_default().to_owned();
        format!("run sets {name}=http://127.0.0.1:PORT/{path}")
    };
    set.map(without_port).collect()
}

#[test]
fn configuration_keys_and_defaults_are_pinned() {
    let schema = antiphon(&["config", "schema"], b"").stdout;
    same(
        "config-schema.json",
        &without_prose(serde_json::from_slice(&schema).unwrap()),
    );
    let defaults = antiphon(&["config", "print", "--defaults"], b"").stdout;
    same("config-defaults.toml", &String::from_utf8(defaults).unwrap());
}
