//! `antiphon doctor`: finds, explains and mends damaged session files of coding agents.
//!
//! Sessions are found by [`selection`] and read by [`reading`], those of a database by [`opencode`]; [`survey`] tells
//! their findings. What writes is [`mending`]: [`fix`] plans, keeps the old bytes in a [`journal`] and writes in place,
//! [`undo`] puts them back.

#![cfg_attr(not(unix), expect(dead_code, reason = "elsewhere sessions are only read"))]

mod arguments;
mod codex_list;
mod database;
mod document_stream;
mod explain;
mod file_facts;
mod file_input;
mod given_session;
mod live;
mod opencode;
mod places;
mod progress;
mod reading;
mod reading_ahead;
mod selection;
mod session_doctor;
mod session_documents;
mod session_text;
mod survey;
mod walk;
mod weights;

// Elsewhere sessions are only read.
#[cfg(unix)]
mod changes;
#[cfg(unix)]
mod edit_text;
#[cfg(unix)]
mod file_digest;
#[cfg(unix)]
mod fix;
#[cfg(unix)]
mod journal;
#[cfg(unix)]
mod mending;
#[cfg(unix)]
mod restore;
#[cfg(unix)]
mod undo;

use std::{io::Write as _, process::ExitCode};

pub(super) use arguments::{AFTER_HELP, Args};
pub(super) use given_session::{GivenFile, GivenSession};

use super::{
    EXIT_USAGE,
    output::{ReportOutput, write_document, write_note},
};
use crate::{config::process_environment, sessions::SessionCode};

/// Variable that Claude Code sets for what it starts.
const CHILD_SESSION: &str = "CLAUDE_CODE_CHILD_SESSION";

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(code) = &args.explain {
        return explain_code(code, args);
    }
    if (args.fix || args.undo) && args.names.is_empty() {
        let action = if args.fix { "--fix" } else { "--undo" };
        write_note(&format!(
            "antiphon: {action} needs a session: its file, or the first letters of its id"
        ));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if args.fix || args.undo || args.forget {
        return change_sessions(args);
    }
    tell_surroundings();
    survey::run(args)
}

#[cfg(unix)]
fn change_sessions(args: &Args) -> anyhow::Result<ExitCode> {
    if args.fix {
        mending::fix_sessions(args)
    } else if args.undo {
        mending::undo_fixes(args)
    } else {
        mending::forget(args)
    }
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "other systems can fail")]
fn change_sessions(_args: &Args) -> anyhow::Result<ExitCode> {
    write_note("antiphon: on this system doctor only reads: it cannot know if a session is in use");
    Ok(ExitCode::from(EXIT_USAGE))
}

/// Tells what lies around the sessions that the user may want to know.
fn tell_surroundings() {
    #[cfg(unix)]
    mending::tell_unfinished();
    if process_environment(CHILD_SESSION).is_some() {
        write_note(&format!(
            "antiphon: {CHILD_SESSION} is set here: a Claude Code that starts now saves no session"
        ));
    }
}

/// Prints the explanation of a code.
fn explain_code(name: &str, args: &Args) -> anyhow::Result<ExitCode> {
    let Some(code) = SessionCode::from_label(name) else {
        let known: Vec<&str> = SessionCode::all().map(SessionCode::label).collect();
        let known = known.join(", ");
        write_note(&format!("antiphon: there is no such code; the codes are {known}"));
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    let mut out = ReportOutput::default();
    if args.output.is_json() {
        write_document(&mut out, explain::document(code))?;
    } else {
        explain::write_text(&mut out, code)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
