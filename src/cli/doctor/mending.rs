//! The actions of `antiphon doctor` that write: their output and their exit codes.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Value, json};

use super::{
    arguments::Args,
    changes::FileChanges,
    codex_list::CodexLists,
    edit_text::write_edits,
    fix::{FixDone, FixFault, FixJob, UnmendedSession},
    journal::list_stopped,
    places::shown_path,
    selection::SessionSelection,
    session_doctor::CoreDoctor,
    session_documents::{findings_document, session_id},
    session_text::{count_of, describe_counts, format_bytes, write_findings},
    undo::{UndoneFix, forget_fixes, undo_fix},
    walk::FoundFile,
    weights::count_weights,
};
use crate::{
    cli::{
        EXIT_USAGE,
        output::{ReportOutput, write_document, write_note},
        style::Painter,
        success_if,
    },
    config::{default_fixes_path, process_environment},
    sessions::{FixRefused, SessionClient},
};

/// Returns the folder of all fixes. Tells the user if there is none.
fn fixes_root() -> Option<PathBuf> {
    let root = default_fixes_path(&process_environment);
    if root.is_none() {
        write_note("antiphon: there is no folder for the copies: set HOME or XDG_STATE_HOME");
    }
    root
}

/// Tells fixes that were stopped midway.
pub(super) fn tell_unfinished() {
    let Some(root) = default_fixes_path(&process_environment) else {
        return;
    };
    for journal in list_stopped(&root) {
        let path = journal.read_manifest().map(|manifest| shown_path(&manifest.path));
        let path = path.unwrap_or_else(|_| shown_path(&journal.folder));
        write_note(&format!(
            "antiphon: a fix of {path} was stopped midway: antiphon doctor --undo {} takes it back",
            journal.id()
        ));
    }
}

/// Mends the named sessions, or shows how.
pub(super) fn fix_sessions(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(root) = fixes_root() else {
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    let selection = SessionSelection::of_names(&args.names);
    let (mut results, lists) = (FixResults::new(args), CodexLists::default());
    let mut refused = None;
    for (path, told) in &selection.unknown {
        let fault = FixFault::Unknown(told.clone());
        results.add_unmended(
            path,
            &UnmendedSession {
                fault,
                client: None,
                session: None,
            },
        );
    }
    for FoundFile {
        path, stored, is_named, ..
    } in &selection.files
    {
        if stored.is_some() {
            // A database is refused once, and not for each of its sessions.
            if refused.replace(path) == Some(path) {
                continue;
            }
            let client = SessionClient::OpenCode;
            results.add_unmended(
                path,
                &UnmendedSession {
                    fault: FixFault::Refused(FixRefused::OnlyRead(client).to_string()),
                    client: Some(client),
                    session: stored.clone().filter(|_| *is_named),
                },
            );
            continue;
        }
        let name = selection.command_name(path);
        let job = FixJob {
            doctor: &CoreDoctor,
            root: &root,
            path,
            name: &name,
            is_dry_run: args.dry_run,
            is_forced: args.force,
        };
        match job.run() {
            Ok(mut done) => {
                // The client does not run, or nothing would have been written.
                for report in [&mut done.before.report, &mut done.after] {
                    let ahead = lists.compare(path, report);
                    report.findings.extend(ahead);
                }
                results.add_done(path, &name, &done)?;
            }
            Err(unmended) => results.add_unmended(path, &unmended),
        }
    }
    results.finish()
}

/// The results of fixes, as they come.
struct FixResults<'a> {
    args: &'a Args,
    out: ReportOutput,
    documents: Vec<Value>,
    has_unread: bool,
    has_rest: bool,
}

impl<'a> FixResults<'a> {
    fn new(args: &'a Args) -> Self {
        Self {
            args,
            out: ReportOutput::default(),
            documents: Vec::new(),
            has_unread: false,
            has_rest: false,
        }
    }

    /// Tells a session that was not mended.
    fn add_unmended(&mut self, path: &Path, unmended: &UnmendedSession) {
        let fault = &unmended.fault;
        self.has_unread |= fault.is_unread();
        self.has_rest = true;
        if self.args.output.is_json() {
            let status = if fault.is_unread() { "not_read" } else { "refused" };
            self.documents.push(json!({
                "file": path.display().to_string(),
                "client": unmended.client.map(SessionClient::label),
                "session": unmended.session,
                "status": status,
                "edits": [],
                "appended_bytes": 0,
                "journal": null,
                "findings": [],
                "error": fault.to_string(),
            }));
        } else {
            write_note(&format!("antiphon: {}: {fault}", shown_path(path)));
        }
    }

    /// Tells a session that was mended, or that has nothing to mend.
    fn add_done(&mut self, path: &Path, name: &str, done: &FixDone) -> anyhow::Result<()> {
        let present = if self.args.dry_run {
            &done.before.report
        } else {
            &done.after
        };
        self.has_rest |= count_weights(present).has_findings(self.args.strict);
        if self.args.output.is_json() {
            self.documents.push(Self::done_document(path, done));
            return Ok(());
        }
        let (painter, shown) = (Painter::of_stdout(), shown_path(path));
        let found = count_of(done.before.report.findings.len(), "finding");
        if done.changes.is_empty() {
            writeln!(self.out, "{shown}: {found}, nothing to mend")?;
        } else {
            let verb = if self.args.dry_run {
                "would be changed"
            } else {
                "mended"
            };
            writeln!(
                self.out,
                "{shown}: {verb}: {found} before, {}",
                describe_changes(&done.changes)
            )?;
        }
        if self.args.dry_run {
            write_edits(&mut self.out, &done.changes, painter)?;
        }
        let rest = describe_counts(count_weights(&done.after));
        let when = if self.args.dry_run { "would remain" } else { "remain" };
        match rest.as_str() {
            "" if done.changes.is_empty() => {}
            "" => writeln!(self.out, "  no findings {when}")?,
            rest => {
                let lead = if self.args.dry_run { when } else { "still there" };
                writeln!(self.out, "  {lead}: {rest}")?;
                write_findings(&mut self.out, &done.after, painter)?;
            }
        }
        if let Some(journal) = &done.journal {
            let journal = shown_path(journal);
            writeln!(self.out, "  to take this back: antiphon doctor --undo {name}")?;
            writeln!(
                self.out,
                "  the old bytes are in {journal}, until antiphon doctor --forget {name}"
            )?;
        }
        Ok(self.out.flush()?)
    }

    fn done_document(path: &Path, done: &FixDone) -> Value {
        let status = match (&done.journal, done.changes.is_empty()) {
            (_, true) => "unchanged",
            (Some(_), false) => "mended",
            (None, false) => "planned",
        };
        let edits = done.changes.overwrites.iter();
        let edits = edits.map(|change| json!({ "byte": change.at, "bytes": change.new.count_bytes() }));
        json!({
            "file": path.display().to_string(),
            "client": done.after.client.label(),
            "session": session_id(&done.after),
            "status": status,
            "edits": edits.collect::<Vec<_>>(),
            "appended_bytes": done.changes.appended.len(),
            "journal": done.journal.as_ref().map(|path| path.display().to_string()),
            "findings": findings_document(&done.after),
            "error": null,
        })
    }

    fn finish(mut self) -> anyhow::Result<ExitCode> {
        if self.args.output.is_json() {
            write_document(&mut self.out, json!({ "fixes": self.documents }))?;
        }
        self.out.flush()?;
        Ok(if self.has_unread {
            ExitCode::from(EXIT_USAGE)
        } else {
            success_if(!self.has_rest)
        })
    }
}

fn describe_changes(changes: &FileChanges) -> String {
    let appended = u64::try_from(changes.appended.len()).unwrap_or(u64::MAX);
    format!(
        "{} overwritten in {}, {} appended",
        format_bytes(changes.count_overwritten()),
        count_of(changes.overwrites.len(), "place"),
        format_bytes(appended)
    )
}

/// Takes the last fix of each named session back.
pub(super) fn undo_fixes(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(root) = fixes_root() else {
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    if args.to.is_some() && args.names.len() > 1 {
        write_note("antiphon: --to writes one file: name one session");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let (mut out, mut documents, mut is_done) = (ReportOutput::default(), Vec::new(), true);
    for name in &args.names {
        let undone = undo_fix(&root, name, args.to.as_deref());
        is_done &= undone.is_ok();
        if args.output.is_json() {
            documents.push(undone_document(name, &undone));
            continue;
        }
        match undone {
            Ok(UndoneFix { path, made_at, new }) => {
                let path = shown_path(&path);
                match new {
                    Some(new) => writeln!(
                        out,
                        "{}: {path} as it was before the fix of {made_at}",
                        shown_path(&new)
                    )?,
                    None => writeln!(out, "{path}: as it was before the fix of {made_at}")?,
                }
            }
            Err(told) => write_note(&format!("antiphon: {}: {told}", shown_path(name))),
        }
    }
    if args.output.is_json() {
        write_document(&mut out, json!({ "undone": documents }))?;
    }
    out.flush()?;
    Ok(success_if(is_done))
}

fn undone_document(name: &Path, undone: &Result<UndoneFix, String>) -> Value {
    let done = undone.as_ref().ok();
    json!({
        "name": name.display().to_string(),
        "file": done.map(|done| done.path.display().to_string()),
        "fixed_at": done.map(|done| done.made_at.clone()),
        "to": done.and_then(|done| done.new.as_ref()).map(|new| new.display().to_string()),
        "error": undone.as_ref().err(),
    })
}

/// Removes what is kept of fixes.
pub(super) fn forget(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(root) = fixes_root() else {
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    let forgotten = match forget_fixes(&root, &args.names) {
        Ok(forgotten) => forgotten,
        Err(told) => {
            write_note(&format!("antiphon: {told}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut out = ReportOutput::default();
    if args.output.is_json() {
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let members = json!({ "removed": paths(&forgotten.removed), "kept": paths(&forgotten.kept) });
        write_document(&mut out, members)?;
    } else {
        for kept in &forgotten.kept {
            let told = "kept, because this fix was stopped midway: antiphon doctor --undo takes it back first";
            write_note(&format!("antiphon: {}: {told}", shown_path(kept)));
        }
        writeln!(out, "removed the copies of {}", count_fixes(forgotten.removed.len()))?;
    }
    out.flush()?;
    Ok(success_if(forgotten.kept.is_empty()))
}

fn count_fixes(count: usize) -> String {
    if count == 1 {
        "1 fix".to_owned()
    } else {
        format!("{count} fixes")
    }
}
