//! Arguments of `antiphon doctor`.

use std::{path::PathBuf, time::Duration};

use crate::{cli::output::OutputFlag, labels::Labelled as _, sessions::SessionClient};

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
Without a name, the sessions of every known client are read, newest first:
Claude Code in $CLAUDE_CONFIG_DIR or ~/.claude, Codex in $CODEX_HOME or ~/.codex,
Copilot CLI in $COPILOT_HOME or ~/.copilot, Qwen Code in $QWEN_RUNTIME_DIR,
$QWEN_HOME or ~/.qwen, opencode in $OPENCODE_DB, $XDG_DATA_HOME/opencode or
~/.local/share/opencode. Sessions of the last three are only read.
Reading writes nothing. --fix mends a named session and never moves a byte: it
overwrites bytes with as many others, or appends a record, and --undo takes that
back. No text of a conversation is printed, except on a terminal by
--fix --dry-run: at most 80 bytes of each edit.
  antiphon doctor
  antiphon doctor --fix 8a52
  antiphon doctor --undo 8a52
  antiphon doctor --explain joined_records
docs/doctor.md says what each damage does to each client.

Exit codes:
  0  nothing above a note
  1  findings above a note; after --fix: something remains, or the session is
     in use or could not be written; after --undo and --forget: something
     stays as it is
  2  wrong usage, or a file that was named cannot be read";

/// Days of the sessions that are read if none is named.
const DAYS_READ: u64 = 30;

/// Arguments of `antiphon doctor`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(in crate::cli) struct Args {
    /// Session files, folders, or ids of sessions, of which the first letters are enough
    #[arg(value_name = "FILE|SESSION-ID|FOLDER")]
    pub(super) names: Vec<PathBuf>,
    /// Clients whose sessions are read [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_client)]
    pub(super) client: Vec<SessionClient>,
    /// Read only sessions that were written in this time, such as 30d, or all [default: 30d if nothing is named]
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(super) since: Option<SinceTime>,
    /// Count notes as findings, and show sessions that have nothing else
    #[arg(long)]
    pub(super) strict: bool,
    /// Mend the named sessions in place
    #[arg(long, conflicts_with_all = ["undo", "forget", "explain"])]
    pub(super) fix: bool,
    /// With --fix: show each edit, and write nothing
    #[arg(long, requires = "fix")]
    pub(super) dry_run: bool,
    /// With --fix: go on if only the time of the last write says that the session may be in use
    #[arg(long, requires = "fix")]
    pub(super) force: bool,
    /// Take back the last fix of each named session
    #[arg(long, conflicts_with_all = ["forget", "explain"])]
    pub(super) undo: bool,
    /// With --undo: leave the session alone, and write the file as it was before the fix to this new file
    #[arg(long, value_name = "NEW", requires = "undo")]
    pub(super) to: Option<PathBuf>,
    /// Remove the private copies that --fix has kept, of the named sessions or of all
    #[arg(long, conflicts_with = "explain")]
    pub(super) forget: bool,
    /// Print what a code means, and what each client does about it
    #[arg(long, value_name = "CODE", conflicts_with = "names")]
    pub(super) explain: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

impl Args {
    /// Returns the age up to which sessions are read. `None` for every age.
    pub(super) fn oldest(&self) -> Option<Duration> {
        match self.since {
            Some(SinceTime(age)) => age,
            None if self.names.is_empty() => Some(Duration::from_secs(DAYS_READ * 24 * 3600)),
            None => None,
        }
    }

    /// Returns `true` if sessions of this client are read.
    pub(super) fn includes_client(&self, client: SessionClient) -> bool {
        self.client.is_empty() || self.client.contains(&client)
    }
}

/// The age up to which sessions are read. `None` for every age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SinceTime(Option<Duration>);

fn parse_since(text: &str) -> Result<SinceTime, String> {
    if text == "all" {
        return Ok(SinceTime(None));
    }
    let parsed = humantime::parse_duration(text);
    parsed
        .map(|age| SinceTime(Some(age)))
        .map_err(|_| "write a time such as 12h or 30d, or all".to_owned())
}

fn parse_client(text: &str) -> Result<SessionClient, String> {
    SessionClient::from_label(text).ok_or_else(|| {
        let known: Vec<&str> = SessionClient::ALL.iter().map(|client| client.label()).collect();
        format!("the clients are {}", known.join(", "))
    })
}
