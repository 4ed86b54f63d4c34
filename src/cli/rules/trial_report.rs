//! The report of `antiphon rules try`.

use std::io::{self, Write};

use bytes::Bytes;
use serde_json::{Value, json};

use super::row_text::{effect_of, statuses_of};
use crate::{
    cli::{
        diff::{diff_lines, write_diff_lines},
        input::BodyInput,
        style::{Painter, TextStyle},
    },
    printable::printable_line,
    refusals::describe_outcome,
    wire::{RefusalRow, RowTrial, TrialOutcome},
};

/// Lines of context around a change.
const CONTEXT: usize = 1;

/// The outcome of a trial.
pub(super) struct TrialReport<'t> {
    /// The row that reads the text. `None` if none does.
    pub(super) row: Option<&'t RefusalRow>,
    /// The ids that it reads.
    pub(super) ids: Vec<String>,
    pub(super) bodies: Vec<BodyTrial<'t>>,
    /// The rows that are nearest, if none reads the text.
    pub(super) near: Vec<NearRow>,
}

/// A row that nearly reads a text.
pub(super) struct NearRow {
    pub(super) name: String,
    is_own: bool,
    why: String,
}

impl NearRow {
    pub(super) fn new(row: &RowTrial<'_>, text: &[u8]) -> Self {
        let why = match row.outcome {
            TrialOutcome::OtherStatus => format!("the text matches, with the status {} alone", statuses_of(row.row)),
            outcome @ (TrialOutcome::Differs { .. } | TrialOutcome::GoesOn { .. } | TrialOutcome::Reads { .. }) => {
                describe_outcome(outcome, text)
            }
        };
        Self {
            name: row.row.name.clone(),
            is_own: row.row.is_own,
            why: printable_line(&why),
        }
    }
}

/// The outcome of a trial for one body.
pub(super) struct BodyTrial<'b> {
    input: &'b BodyInput,
    change: BodyChange,
}

enum BodyChange {
    /// The mend changes the body as it would be sent.
    Mended { before: Bytes, after: Bytes, stays: bool },
    /// The mend fits nowhere.
    Unfit,
    /// The mend changes a header.
    Header,
    /// The text is about a known fault.
    Fault,
}

impl<'b> BodyTrial<'b> {
    /// Creates the trial of a body in which the mend was made. `stays` is `true` if it is made after a second refusal only.
    pub(super) fn of_mend(input: &'b BodyInput, before: Bytes, after: Bytes, stays: bool) -> Self {
        let change = if before == after {
            BodyChange::Unfit
        } else {
            BodyChange::Mended { before, after, stays }
        };
        Self { input, change }
    }

    /// Creates the trial of a body for a row whose effect is not a mend of bodies.
    pub(super) const fn of_other(input: &'b BodyInput, is_header: bool) -> Self {
        let change = if is_header {
            BodyChange::Header
        } else {
            BodyChange::Fault
        };
        Self { input, change }
    }

    fn has_effect(&self) -> bool {
        !matches!(self.change, BodyChange::Unfit)
    }

    /// Says what happens, in a line.
    fn summary(&self) -> &'static str {
        match &self.change {
            BodyChange::Mended { stays: false, .. } => "the mend changes this body",
            BodyChange::Mended { stays: true, .. } => {
                "what the user has written newly stays, and the client gets the refusal; a later request is changed"
            }
            BodyChange::Unfit => "the mend fits nowhere in this body: the client gets the refusal",
            BodyChange::Header => "the mend changes the header anthropic-beta, and no body",
            BodyChange::Fault => {
                "the text is about a known fault, which the proxy repairs: antiphon repair --diff shows it"
            }
        }
    }
}

impl TrialReport<'_> {
    /// Returns `true` if a row reads the text and something would change.
    pub(super) fn has_effect(&self) -> bool {
        self.row.is_some() && self.bodies.iter().any(BodyTrial::has_effect)
    }
}

/// Writes the report for people.
pub(super) fn write_text(out: &mut impl Write, report: &TrialReport<'_>, painter: Painter) -> io::Result<()> {
    let Some(row) = report.row else {
        writeln!(out, "{}", painter.paint(TextStyle::Red, "no row reads this text"))?;
        for near in &report.near {
            let kind = if near.is_own { "own" } else { "built-in" };
            writeln!(out, "  {} ({kind}): {}", near.name, near.why)?;
        }
        return Ok(());
    };
    let kind = if row.is_own { "own" } else { "built-in" };
    let name = painter.paint(TextStyle::Green, &row.name);
    writeln!(out, "{name} ({kind}) reads this text: {}", effect_of(row))?;
    if !report.ids.is_empty() {
        writeln!(out, "  ids: {}", printable_line(&report.ids.join(", ")))?;
    }
    for body in &report.bodies {
        writeln!(out, "{}: {}", body.input.title(), body.summary())?;
        if let BodyChange::Mended { before, after, .. } = &body.change {
            let lines = diff_lines(body.input.wire, before, after, CONTEXT);
            write_diff_lines(out, &body.input.title(), "mended", &lines, painter)?;
        }
    }
    Ok(())
}

/// Returns the report as JSON.
pub(super) fn document(report: &TrialReport<'_>) -> Value {
    let near = report
        .near
        .iter()
        .map(|near| json!({ "name": near.name, "own": near.is_own, "why": near.why }));
    let bodies = report.bodies.iter().map(|body| {
        let lines = match &body.change {
            BodyChange::Mended { before, after, .. } => diff_lines(body.input.wire, before, after, CONTEXT),
            BodyChange::Unfit | BodyChange::Header | BodyChange::Fault => Vec::new(),
        };
        json!({
            "file": body.input.name,
            "line": body.input.line(),
            "wire": body.input.wire.to_string(),
            "has_effect": body.has_effect(),
            "text": body.summary(),
            "diff": lines,
        })
    });
    json!({
        "row": report.row.map(|row| json!({ "name": row.name, "own": row.is_own, "effect": effect_of(row) })),
        "ids": report.ids,
        "bodies": bodies.collect::<Vec<_>>(),
        "near": near.collect::<Vec<_>>(),
    })
}
