//! `antiphon rules try`: which row reads a refusal, and what would change in a body.

use std::{io::Write as _, process::ExitCode};

use bytes::Bytes;

use super::{
    arguments::TryArgs,
    tests_of_rows::read_rules,
    trial_report::{self, BodyTrial, NearRow, TrialReport},
};
use crate::{
    cli::{
        EXIT_USAGE,
        config::load_chosen,
        input::{self, BodyInput, InputError},
        output::{OutputFormat, ReportOutput, write_document, write_note},
        style::Painter,
        success_if,
    },
    refusals::{self, RefusalReader, mend_offline},
    wire::{FoundRefusal, MendKind, Refusal, RefusalTable, TrialOutcome},
};

/// Fewest bytes at which the text of a built-in row counts as near.
const NEAR_BYTES: usize = 16;
/// Rows that are shown if none reads the text.
const NEAR_ROWS: usize = 3;

/// Tries the text and the bodies.
pub(super) fn run(args: &TryArgs) -> anyhow::Result<ExitCode> {
    let Some(reader) = own_rows(args)? else {
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    let text = args.text.trim().as_bytes();
    let found = match args.status {
        Some(status) => reader.read_with_status(status, text),
        None => reader.read(None, text),
    };
    let bodies = input::read_input(&args.body, args.wire)?
        .into_bodies(&args.body)?
        .bodies;
    let report = match &found {
        Some(found) => TrialReport {
            row: Some(found.row),
            ids: found.refusal.ids.clone(),
            bodies: bodies
                .iter()
                .map(|body| try_body(body, found))
                .collect::<Result<_, _>>()?,
            near: Vec::new(),
        },
        None => TrialReport {
            row: None,
            ids: Vec::new(),
            bodies: Vec::new(),
            near: near_rows(&reader, args.status, text),
        },
    };
    let mut out = ReportOutput::default();
    match args.output.format() {
        OutputFormat::Text => trial_report::write_text(&mut out, &report, Painter::of_stdout())?,
        OutputFormat::Json => write_document(&mut out, trial_report::document(&report))?,
    }
    out.flush()?;
    Ok(success_if(report.has_effect()))
}

/// Returns the reader with the own rows that are tried. `None` if some have a fault, which is reported.
fn own_rows(args: &TryArgs) -> anyhow::Result<Option<RefusalReader>> {
    let Some(path) = &args.rules else {
        return Ok(Some(load_chosen(args.config.clone())?.config.proxy.refusals));
    };
    let problems = match read_rules(path) {
        Ok((rules, problems)) if problems.is_empty() => return Ok(Some(rules.checked.reader)),
        Ok((_, problems)) => problems,
        Err(problem) => vec![problem],
    };
    for problem in problems {
        write_note(&format!("antiphon: {problem}"));
    }
    Ok(None)
}

/// Makes the mend in one body.
fn try_body<'b>(input: &'b BodyInput, found: &FoundRefusal<'_>) -> Result<BodyTrial<'b>, InputError> {
    let unreadable = |cause| InputError::Unreadable {
        name: input.name.clone(),
        wire: input.wire,
        cause,
    };
    let demand = found.refusal.demand.as_deref();
    let Some(demand) = demand.filter(|demand| demand.kind != MendKind::DropBeta) else {
        return Ok(BodyTrial::of_other(input, demand.is_some()));
    };
    let attempt = |refusal: &Refusal, was_told: bool| mend_offline(&input.body, input.wire, demand, refusal, was_told);
    let first = attempt(&found.refusal, false).map_err(unreadable)?;
    let stays = !first.mended.kept.is_empty();
    // What the user has written newly goes once the client has seen the refusal.
    let made = if stays {
        attempt(&found.refusal, true).map_err(unreadable)?
    } else {
        first
    };
    let (before, after): (Bytes, Bytes) = (made.sent, made.mended.body);
    Ok(BodyTrial::of_mend(input, before, after, stays))
}

/// Returns the rows that are nearest to a text that none reads, the nearest first.
fn near_rows(reader: &RefusalReader, status: Option<u16>, text: &[u8]) -> Vec<NearRow> {
    let tables: Vec<&RefusalTable> = reader.own().into_iter().chain([refusals::table()]).collect();
    let trials = tables.into_iter().flat_map(|table| table.try_rows(status, text));
    let mut near: Vec<(TrialOutcome, bool, NearRow)> = Vec::new();
    for trial in trials {
        for row in &trial.rows {
            let known = near.iter_mut().find(|(_, _, known)| known.name == row.row.name);
            let said = NearRow::new(row, &trial.text);
            match known {
                Some(known) if known.0 < row.outcome => *known = (row.outcome, row.row.is_own, said),
                Some(_) => {}
                None => near.push((row.outcome, row.row.is_own, said)),
            }
        }
    }
    // A built-in row that shares a few letters is no help.
    let is_near = |(outcome, is_own): (&TrialOutcome, &bool)| match outcome {
        TrialOutcome::Differs { after } => *is_own || *after >= NEAR_BYTES,
        TrialOutcome::GoesOn { .. } | TrialOutcome::OtherStatus | TrialOutcome::Reads { .. } => true,
    };
    near.retain(|(outcome, is_own, _)| is_near((outcome, is_own)));
    near.sort_by_key(|(outcome, is_own, _)| (std::cmp::Reverse(*outcome), !is_own));
    near.into_iter().take(NEAR_ROWS).map(|(_, _, row)| row).collect()
}
