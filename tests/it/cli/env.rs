//! `antiphon env`: variables for shells and programs.

use std::process::{Command, Output, Stdio};

use antiphon::config::VARIABLES;
use serde_json::{Value, json};

use crate::support::state;

fn antiphon(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    state::apart(&mut command);
    for (name, _) in VARIABLES.iter() {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    // An address where nothing answers.
    command
        .env("ANTIPHON_LISTEN", "127.0.0.1:9")
        .envs(variables.iter().copied());
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_shell_evaluates_the_output() {
    let proxies = [("HTTP_PROXY", "http://proxy.example"), ("NO_PROXY", "it's $HOME")];
    let output = antiphon(&["env"], &proxies);
    assert_eq!(output.status.code(), Some(0));
    let script = format!(
        "{}\nenv | grep -E '^(ANTHROPIC|OPENAI|GOOGLE|GEMINI|NO)_' | sort",
        text(&output.stdout)
    );
    let seen = Command::new("sh")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert_eq!(
        text(&seen.stdout),
        "ANTHROPIC_BASE_URL=http://127.0.0.1:9/anthropic\n\
         GEMINI_API_BASE=http://127.0.0.1:9/gemini/v1beta\n\
         GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:9/gemini\n\
         NO_PROXY=it's $HOME,127.0.0.1\n\
         OPENAI_BASE_URL=http://127.0.0.1:9/openai/v1\n"
    );
    assert_eq!(
        text(&output.stderr),
        "antiphon: no proxy answers at 127.0.0.1:9 yet; start it with `antiphon serve`\n"
    );
}

#[test]
fn other_shells_and_programs_have_their_syntax() {
    for (arguments, wanted) in [
        (
            &["--shell", "fish"][..],
            "set -gx OPENAI_BASE_URL 'http://127.0.0.1:9/openai/v1'\n",
        ),
        (
            &["--shell", "powershell"],
            "$env:OPENAI_BASE_URL = 'http://127.0.0.1:9/openai/v1'\n",
        ),
        (
            &["--shell", "cmd"],
            "set \"OPENAI_BASE_URL=http://127.0.0.1:9/openai/v1\"\n",
        ),
        (
            &["--listen", "[::]:8"],
            "export OPENAI_BASE_URL='http://[::1]:8/openai/v1'\n",
        ),
    ] {
        let output = antiphon(&[&["env"], arguments].concat(), &[]);
        assert!(text(&output.stdout).contains(wanted), "{arguments:?}: {output:?}");
    }
    let output = antiphon(&["env", "--output", "json"], &[]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["version"], json!(1));
    assert_eq!(
        document["variables"]["OPENAI_BASE_URL"],
        json!("http://127.0.0.1:9/openai/v1")
    );
}
