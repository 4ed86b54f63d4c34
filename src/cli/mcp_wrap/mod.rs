//! `antiphon mcp wrap` and `antiphon mcp unwrap`: put `antiphon mcp` before the servers in a client's file, and take it
//! away again.
//!
//! [`client_files`] is the table of files. Their servers are found by [`read_json`] and [`read_toml`], and changed by
//! [`entry_edits`], which are splices: every other byte stays.

mod arguments;
mod client_files;
mod client_places;
mod config_change;
mod entry_edits;
mod json_comments;
mod mcp_file;
mod own_program;
mod read_json;
mod read_toml;
mod report;
mod server_entry;

use std::{
    io::{self, Write as _},
    path::{self, Path, PathBuf},
    process::ExitCode,
};

pub(super) use arguments::{AFTER_HELP, ChangeArgs};
pub(super) use client_places::find_wrapped_file;

use super::{EXIT_USAGE, output::write_note, success_if};
use crate::{config::process_environment, printable::printable_text};
use config_change::{ChangeKind, ConfigChange, EntryFate, read_servers};
use mcp_file::{McpFile, McpFileError};
use own_program::own_program;
use report::report_lines;
use server_entry::LaunchFault;

/// Runs `antiphon mcp wrap`.
pub(super) fn run_wrap(args: &ChangeArgs) -> anyhow::Result<ExitCode> {
    run_change(args, ChangeKind::Wrap)
}

/// Runs `antiphon mcp unwrap`.
pub(super) fn run_unwrap(args: &ChangeArgs) -> anyhow::Result<ExitCode> {
    run_change(args, ChangeKind::Unwrap)
}

fn run_change(args: &ChangeArgs, kind: ChangeKind) -> anyhow::Result<ExitCode> {
    let shown = printable_text(&args.file.display().to_string());
    let planned = McpFile::read(&args.file)
        .map_err(|error| error.to_string())
        .and_then(|file| plan_change(args, &file, kind).map(|change| (file, change)));
    let (file, change) = match planned {
        Ok(planned) => planned,
        Err(fault) => {
            write_note(&format!("antiphon: {shown}: {fault}"));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    // The report comes first, so that it is complete even if the reader of stdout stops early.
    for line in report_lines(&shown, &change, kind) {
        write_note(&line);
    }
    if !args.write {
        let mut out = io::stdout().lock();
        out.write_all(change.text.as_bytes())?;
        out.flush()?;
        return Ok(success_if(is_done(args, &change)));
    }
    if change.has_changes()
        && let Err(error) = write_change(&shown, &file, &change)
    {
        write_note(&format!("antiphon: {shown}: {error}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(success_if(is_done(args, &change)))
}

/// Reads the servers of a file, and plans their change. The error names the fault.
fn plan_change(args: &ChangeArgs, file: &McpFile, kind: ChangeKind) -> Result<ConfigChange, String> {
    let path = kind_path(&args.file, &file.target);
    let found = read_servers(&path, &file.text)?;
    let missing = found.missing_names(&args.names);
    if !missing.is_empty() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| printable_text(name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let known: Vec<&str> = found.servers.iter().map(|server| server.name.as_str()).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            names(&known)
        };
        return Err(format!(
            "it has no server {}; its servers: {known}; nothing is changed",
            names(&missing)
        ));
    }
    let search_path = process_environment("PATH").filter(|_| found.kind.has_path_of_shell);
    let program = own_program(search_path.as_deref())?;
    found.plan(&path, &file.text, (kind, &args.names), &program)
}

/// Returns the path by which the kind of a file is known: the given one, or that behind a link if only it is known.
fn kind_path(given: &Path, target: &Path) -> PathBuf {
    // `mcp.json` in the folder `.cursor` is known by both names.
    let given = path::absolute(given).unwrap_or_else(|_| given.to_owned());
    if client_files::is_known_path(&given) {
        given
    } else {
        target.to_owned()
    }
}

fn write_change(shown: &str, file: &McpFile, change: &ConfigChange) -> Result<(), McpFileError> {
    let backup = file.replace(&change.text)?;
    let backup = printable_text(&backup.display().to_string());
    write_note(&format!(
        "antiphon: {shown} is written; its old text is in {backup}; restart {} to use it",
        change.kind.client
    ));
    Ok(())
}

/// Returns `true` if each server that was asked for is changed. Without names, one that needs no change is no finding.
fn is_done(args: &ChangeArgs, change: &ConfigChange) -> bool {
    let is_fine = |fate: EntryFate| match fate {
        EntryFate::Changed => true,
        EntryFate::Unchanged | EntryFate::Unusable(LaunchFault::Remote) => args.names.is_empty(),
        EntryFate::OtherTimeout | EntryFate::NoServer | EntryFate::Unusable(_) => false,
    };
    change.has_changes() && change.servers.iter().all(|server| is_fine(server.fate))
}
