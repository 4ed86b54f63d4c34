//! The server: its start, its identity, its end.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    path::Path,
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::{cli::mcp::relay::RunHash, digest::digest_of};

/// Parts of the names of variables that tell one account from another. Two servers that differ in one share no run.
const ACCOUNT_WORDS: [&str; 18] = [
    "TOKEN",
    "KEY",
    "SECRET",
    "PASS",
    "CREDENTIAL",
    "AUTH",
    "ACCOUNT",
    "PROFILE",
    "USER",
    "URL",
    "URI",
    "HOST",
    "ENDPOINT",
    "DATABASE",
    "DSN",
    "REGION",
    "TENANT",
    "PROJECT",
];

/// Parts of the names of variables that a client sets anew for each session, or a system for each login or window,
/// whatever account it is. Claude Code 2.1.332 sets `CLAUDE_CODE_MESSAGING_TOKEN` (seen 2026-12-01).
const SESSION_WORDS: [&str; 14] = [
    // `antiphon run` sets these to a port of its own.
    "ANTHROPIC_BASE_URL",
    "GEMINI_BASE_URL",
    "OPENAI_BASE_URL",
    "ASKPASS",
    "CLAUDE_CODE_",
    "CODEX_",
    "COPILOT_",
    "CURSOR_",
    "GEMINI_CLI_",
    "KEYRING",
    "OPENCODE_",
    "SESSION_ID",
    "SSH_AUTH_SOCK",
    "VSCODE_",
];

/// Starts the server in a process group of its own, without the tokens of Antiphon.
pub(super) fn start_server(program: &OsStr, arguments: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in env::vars_os().filter(|(name, _)| is_own_secret(name)) {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Returns the hash that tells the runs of this server from those of others: command, folder, account.
pub(super) fn server_hash(command: &[OsString]) -> RunHash {
    let mut accounts: Vec<Vec<u8>> = env::vars_os()
        .filter(|(name, _)| is_account(name) && !is_own(name))
        .map(|(name, value)| [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat())
        .collect();
    accounts.sort_unstable();
    let folder = env::current_dir().unwrap_or_default();
    let command_length = command.len().to_le_bytes();
    let parts = [&command_length[..], folder.as_os_str().as_encoded_bytes()].into_iter();
    let parts = parts.chain(command.iter().map(|part| part.as_encoded_bytes()));
    digest_of(parts.chain(accounts.iter().map(Vec::as_slice)))
}

/// Returns the name of a server that has not told its own: that of its program.
pub(super) fn server_name(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name);
    program
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Sends a signal to the server and to what it has started.
pub(super) fn signal_server(process: Option<u32>, signal: Signal) {
    let group = process.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        // An error means that it has ended.
        let _ = kill_process_group(group, signal);
    }
}

fn is_own(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"ANTIPHON_")
}

fn is_own_secret(name: &OsStr) -> bool {
    is_own(name) && name.to_string_lossy().contains("TOKEN")
}

fn is_account(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_uppercase();
    let is_of_session = SESSION_WORDS.iter().any(|word| name.contains(word));
    !is_of_session && ACCOUNT_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claude Code gives each session a token for itself: with it in the identity, no resumed session joined a run.
    #[test]
    fn only_variables_of_an_account_tell_servers_apart() {
        for (name, is_told) in [
            ("GITHUB_TOKEN", true),
            ("database_url", true),
            ("AWS_PROFILE", true),
            ("CLAUDE_CODE_MESSAGING_TOKEN", false),
            ("CLAUDE_CODE_SESSION_ACCESS_TOKEN", false),
            ("ANTHROPIC_BASE_URL", false),
            ("SSH_AUTH_SOCK", false),
            ("PATH", false),
        ] {
            assert_eq!(is_account(OsStr::new(name)), is_told, "{name}");
        }
    }
}
