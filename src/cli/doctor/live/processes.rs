//! The processes of this machine, as far as signs of sessions in use need them.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(target_os = "macos", all(test, unix)))]
mod macos;

use std::{path::PathBuf, time::Duration};

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessFacts {
    pub(super) pid: u32,
    /// Its start, in a form that differs between two processes of one id.
    pub(super) start: String,
    /// Its start since 1970. `None` if only `start` is known.
    pub(super) started_at: Option<Duration>,
    /// `true` if it is Claude Code.
    pub(super) is_claude: bool,
    /// Its working folder. `None` if that cannot be read.
    pub(super) working_folder: Option<PathBuf>,
    /// Device and inode of the files that it may write to.
    pub(super) written_files: Vec<(u64, u64)>,
}

/// Lists the processes of this user. Fails with the reason.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn list_processes() -> Result<Vec<ProcessFacts>, String> {
    system::list_processes()
}

/// Lists the processes of this user. Fails with the reason.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) fn list_processes() -> Result<Vec<ProcessFacts>, String> {
    Err("this system does not tell which programs run".to_owned())
}

/// Programs that run scripts, and words of their command lines in which the script may stand behind options.
#[cfg(unix)]
const INTERPRETERS: [&str; 3] = ["node", "bun", "deno"];
#[cfg(unix)]
const SCRIPT_WORDS: usize = 8;

/// Returns `true` if the words of a command line are those of Claude Code.
#[cfg(unix)]
fn runs_claude<'w>(name: &str, words: impl Iterator<Item = &'w str>) -> bool {
    let last = |word: &'w str| word.rsplit('/').next().unwrap_or(word);
    let is_claude = |word: &'w str| last(word) == "claude" || word.contains("/claude-code/");
    let mut words = words.peekable();
    let is_interpreter = words.peek().is_some_and(|word| INTERPRETERS.contains(&last(word)));
    // A program's own name may stand before that of its script, as `env` and the kernel write it.
    let looked_at = if is_interpreter { SCRIPT_WORDS } else { 2 };
    name == "claude" || words.take(looked_at).any(is_claude)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn claude_code_is_told_by_its_program_or_script() {
        for (name, words, is_claude) in [
            ("claude", &["claude", "--resume"][..], true),
            (
                "node",
                &["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"],
                true,
            ),
            ("node", &["/home/u/.local/bin/claude"], true),
            (
                "node",
                &["node", "--no-warnings", "-r", "x", "/w/claude-code/cli.js"],
                true,
            ),
            ("vim", &["vim", "notes", "/w/claude"], false),
            ("claudette", &["claudette"], false),
            ("sh", &[], false),
        ] {
            assert_eq!(runs_claude(name, words.iter().copied()), is_claude, "{name} {words:?}");
        }
    }
}
