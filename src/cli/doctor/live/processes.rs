//! The processes of this machine, as far as signs of live sessions need them.

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
    /// Device and inode of the logs that it may write to.
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

/// Returns `true` if the words of a command line are those of Claude Code.
#[cfg(unix)]
fn runs_claude<'w>(name: &str, mut words: impl Iterator<Item = &'w str>) -> bool {
    let is_claude = |word: &str| {
        let file = word.rsplit('/').next().unwrap_or(word);
        file == "claude" || word.contains("/claude-code/")
    };
    // The program itself, or the script that node runs.
    name == "claude" || words.next().is_some_and(is_claude) || words.next().is_some_and(is_claude)
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
            ("vim", &["vim", "notes", "/w/claude"], false),
            ("claudette", &["claudette"], false),
            ("sh", &[], false),
        ] {
            assert_eq!(runs_claude(name, words.iter().copied()), is_claude, "{name} {words:?}");
        }
    }
}
