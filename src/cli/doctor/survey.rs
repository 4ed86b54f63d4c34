//! `antiphon doctor` without an action: reads sessions and says what is damaged, as the results come.

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use serde_json::{Map, Value, json};

use super::{
    arguments::Args,
    codex_list::CodexLists,
    document_stream::DocumentStream,
    live::{LiveSigns, LiveState, LiveTarget},
    places::shown_path,
    reading::{SessionReading, UnreadFile},
    reading_ahead::{ReadOutcome, read_files},
    selection::SessionSelection,
    session_documents::{session_document, unread_document},
    session_text::{ToldSession, count_of, describe_counts},
    walk::FoundFile,
    weights::{WeightCounts, count_weights},
};
use crate::{
    cli::{
        EXIT_USAGE,
        output::{ReportOutput, write_note},
        style::Painter,
        success_if,
    },
    clock,
};

/// The totals of what was read so far.
#[derive(Clone, Copy, Debug, Default)]
struct SurveyTotals {
    sessions: usize,
    /// Those with something above a note.
    damaged: usize,
    /// Those with notes alone.
    noted: usize,
    /// Findings of the damaged sessions.
    findings: WeightCounts,
    /// Files that no known client wrote.
    foreign: usize,
    /// Files of known clients without a message.
    without_content: usize,
    not_read: usize,
    has_unread_name: bool,
}

/// The output, as its entries come.
enum SurveyOutput {
    Text(ReportOutput),
    Json(DocumentStream<ReportOutput>),
}

/// Reads the sessions that the arguments mean.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let now = clock::system_time();
    let selection = SessionSelection::of_arguments(args, now);
    let out = ReportOutput::default();
    let output = if args.output.is_json() {
        SurveyOutput::Json(DocumentStream::begin(out, "files")?)
    } else {
        SurveyOutput::Text(out)
    };
    let mut survey = Survey {
        args,
        selection: &selection,
        now,
        signs: LiveSigns::gather(),
        codex_lists: CodexLists::default(),
        painter: Painter::of_stdout(),
        output,
        totals: SurveyTotals::default(),
    };
    for (path, told) in &selection.unknown {
        survey.tell_unread(path, told, true)?;
    }
    for (path, told) in &selection.faults {
        survey.tell_unread(path, told, false)?;
    }
    for (path, note) in &selection.notes {
        write_note(&format!("antiphon: {}: {note}", shown_path(path)));
    }
    let read_stored = |path: &Path, id: &str| selection.read_stored(path, id);
    read_files(&selection.files, read_stored, |file, read| survey.tell_file(file, read))?;
    survey.finish()
}

/// A survey that is under way.
struct Survey<'s> {
    args: &'s Args,
    selection: &'s SessionSelection,
    now: Duration,
    signs: LiveSigns,
    codex_lists: CodexLists,
    painter: Painter,
    output: SurveyOutput,
    totals: SurveyTotals,
}

impl Survey<'_> {
    /// Tells a file with what was read of it.
    fn tell_file(&mut self, file: &FoundFile, read: ReadOutcome) -> io::Result<()> {
        match read {
            Ok(mut reading) => {
                if self.selection.is_named(file) || self.args.includes_client(reading.report.client) {
                    let ahead = self.codex_lists.compare(&file.path, &reading.report);
                    let ahead = ahead.filter(|_| self.live_state(file, &reading) == LiveState::Idle);
                    reading.report.findings.extend(ahead);
                    self.tell_session(file, &reading)?;
                }
                Ok(())
            }
            Err(UnreadFile::Foreign(_)) if !file.is_named => {
                self.totals.foreign += 1;
                Ok(())
            }
            Err(UnreadFile::NoContent) if !file.is_named => {
                self.totals.without_content += 1;
                Ok(())
            }
            Err(fault) => self.tell_unread(&file.path, &fault.to_string(), file.is_named),
        }
    }

    fn live_state(&self, file: &FoundFile, reading: &SessionReading) -> LiveState {
        let session = reading.report.session.as_deref();
        self.signs
            .state_of(&LiveTarget::of_file(reading.report.client, &file.path, session))
    }

    fn tell_session(&mut self, file: &FoundFile, reading: &SessionReading) -> io::Result<()> {
        let (path, counts) = (&file.path, count_weights(&reading.report));
        let totals = &mut self.totals;
        totals.sessions += 1;
        if counts.has_findings(false) {
            totals.damaged += 1;
            totals.findings.errors += counts.errors;
            totals.findings.warnings += counts.warnings;
            totals.findings.notes += counts.notes;
        } else {
            totals.noted += usize::from(counts.notes > 0);
        }
        // A list of everything that is well would hide the rest.
        let is_shown = file.is_named || counts.has_findings(self.args.strict);
        if matches!(self.output, SurveyOutput::Text(_)) && !is_shown {
            return Ok(());
        }
        let live = self.live_state(file, reading);
        match &mut self.output {
            SurveyOutput::Json(stream) => stream.write_entry(&session_document(path, reading, Some(&live))),
            SurveyOutput::Text(out) => {
                let told = ToldSession {
                    path,
                    command_name: Some(self.selection.name_of(file)),
                    reading,
                    live: Some(&live),
                };
                told.write(out, self.now, self.painter)?;
                out.flush()
            }
        }
    }

    /// Tells a file that was not read.
    fn tell_unread(&mut self, path: &Path, told: &str, is_named: bool) -> io::Result<()> {
        self.totals.not_read += 1;
        self.totals.has_unread_name |= is_named;
        match &mut self.output {
            SurveyOutput::Json(stream) => stream.write_entry(&unread_document(path, told)),
            SurveyOutput::Text(_) => {
                write_note(&format!("antiphon: {}: {told}", shown_path(path)));
                Ok(())
            }
        }
    }

    /// Writes the totals. Returns the exit code.
    fn finish(self) -> anyhow::Result<ExitCode> {
        let (totals, selection) = (self.totals, self.selection);
        match self.output {
            SurveyOutput::Json(stream) => stream.finish(&totals_document(totals, selection))?,
            SurveyOutput::Text(mut out) => {
                writeln!(out, "{}", describe_totals(totals, selection, self.args))?;
                out.flush()?;
            }
        }
        Ok(if totals.has_unread_name {
            ExitCode::from(EXIT_USAGE)
        } else {
            success_if(totals.damaged == 0 && !(self.args.strict && totals.noted > 0))
        })
    }
}

fn totals_document(totals: SurveyTotals, selection: &SessionSelection) -> Map<String, Value> {
    let members = json!({
        "sessions": totals.sessions,
        "damaged": totals.damaged,
        "foreign": totals.foreign,
        "without_content": totals.without_content,
        "not_read": totals.not_read,
        "older": selection.older,
        "links": selection.links,
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Says in one line what was read, and what was not.
fn describe_totals(totals: SurveyTotals, selection: &SessionSelection, args: &Args) -> String {
    let mut parts = vec![format!("{} read", count_of(totals.sessions, "session"))];
    let found = describe_counts(totals.findings);
    parts.push(match (totals.damaged, found.as_str()) {
        (0, "") if totals.sessions == 0 => "so nothing is known".to_owned(),
        (0, _) => "none damaged".to_owned(),
        (damaged, found) => format!("{damaged} damaged ({found})"),
    });
    if totals.noted > 0 {
        let hint = if args.strict { "" } else { " (--strict shows them)" };
        parts.push(format!("{} with notes alone{hint}", totals.noted));
    }
    let counts = [
        (selection.older, "older, which --since all reads too"),
        (totals.foreign, "of other programs"),
        (totals.without_content, "without a message"),
        (selection.links, "behind links, which are not followed"),
        (totals.not_read, "not read"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(counts.map(|(count, what)| format!("{} {what}", count_of(count, "file"))));
    parts.join(", ")
}
