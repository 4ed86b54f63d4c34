//! Commands whose reader has closed the pipe, as `head` does: the exit code tells the verdict nevertheless.

use std::{
    fs,
    io::{self, Write as _},
    process::{Command, Output, Stdio},
};

use antiphon::config::VARIABLES;

use super::check_and_repair::text;
use crate::support::state;

const BROKEN: &str = "tests/cases/anthropic/unanswered_user_talks/request.json";
const REPAIRED: &str = "tests/cases/anthropic/unanswered_user_talks/repaired.json";
const HEALTHY: &str = "tests/cases/openai-chat/healthy_run_in_any_order/request.json";

/// Returns the writing end of a pipe that nobody reads.
pub(super) fn closed_pipe() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Runs a command whose standard output is a closed pipe.
fn unheard(arguments: &[&str]) -> Output {
    command(arguments).stdout(closed_pipe()).output().unwrap()
}

#[test]
fn a_closed_pipe_hides_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = place("bad.toml");
    fs::write(&config, "[upstreams.x]\nurl = 7\n").unwrap();
    let ledger = place("ledger.db");
    fs::File::create(&ledger).unwrap().write_all(b"no database").unwrap();
    // Nobody listens at port 1.
    let nowhere = "http://127.0.0.1:1/livez";
    let rows: &[(&[&str], i32)] = &[
        (&["check", HEALTHY], 0),
        (&["check", BROKEN], 1),
        (&["check", BROKEN, HEALTHY, BROKEN], 1),
        (&["check", "--output", "json", BROKEN], 1),
        (&["check", "--output", "json", "no/such/file"], 2),
        (&["repair", BROKEN], 0),
        (&["repair", "--check", "--diff", HEALTHY], 0),
        (&["repair", "--check", "--diff", BROKEN], 1),
        (&["config", "check", "--output", "json", "--config", &config], 2),
        (&["healthcheck", "--output", "json", "--url", nowhere], 1),
        (&["store", "verify", "--path", &ledger], 2),
        (&["version"], 0),
        (&["man"], 0),
        (&["help", "config", "check"], 0),
        (&["completions", "bash"], 0),
        (&["config", "schema"], 0),
        (&["config", "print", "--defaults"], 0),
    ];
    for (arguments, code) in rows {
        let out = unheard(arguments);
        assert_eq!(out.status.code(), Some(*code), "{arguments:?}: {}", text(&out.stderr));
        assert!(
            !text(&out.stderr).contains("roken pipe"),
            "{arguments:?}: {}",
            text(&out.stderr)
        );
    }
}

/// What cannot be read is named, whatever became of the findings before it.
#[test]
fn a_closed_pipe_hides_no_error_of_a_later_file() {
    let out = unheard(&["check", BROKEN, "no/such/file"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("no/such/file: "), "{}", text(&out.stderr));
}

/// A line for people is lost without an effect on the data and the exit code.
#[test]
fn a_closed_standard_error_changes_nothing() {
    for (arguments, code, wanted) in [
        (&["repair", BROKEN][..], 0, Some(REPAIRED)),
        (&["repair", "--output", "json", BROKEN], 0, Some(REPAIRED)),
        (&["check", BROKEN, HEALTHY], 1, None),
        (&["check", "no/such/file", BROKEN], 2, None),
    ] {
        let out = command(arguments)
            .stdout(Stdio::piped())
            .stderr(closed_pipe())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(code), "{arguments:?}");
        match wanted {
            Some(wanted) => assert_eq!(out.stdout, fs::read(wanted).unwrap(), "{arguments:?}"),
            None => assert!(
                text(&out.stdout).contains("unanswered"),
                "{arguments:?}: {}",
                text(&out.stdout)
            ),
        }
    }
}
