//! What a row says about itself, as text.

use crate::{
    mend::action_of,
    wire::{RefusalKind, RefusalRow, RowMend},
};

/// Returns the mend of a row with its argument, or its fault.
pub(super) fn effect_of(row: &RefusalRow) -> String {
    match &row.mend {
        Some(mend) => mend_text(mend),
        None => format!("fault {}", fault_of(row)),
    }
}

/// Returns a mend with its argument, as a row writes it.
pub(super) fn mend_text(mend: &RowMend) -> String {
    let name = mend.kind.name();
    match (mend.word(), mend.variable()) {
        (Some(word), _) => format!("{name} {word}"),
        (None, Some(variable)) => format!("{name} <{}>", variable.name()),
        (None, None) => name.to_owned(),
    }
}

/// Returns the name of a row's fault.
pub(super) fn fault_of(row: &RefusalRow) -> &'static str {
    let mut named = RefusalKind::LABELS.iter().filter(|(_, kind)| *kind == row.kind);
    named.next().map_or("", |(label, _)| label)
}

/// Returns the word of `x-antiphon-repair` for a row's mend. `None` if its fault decides.
pub(super) fn action_word(row: &RefusalRow) -> Option<&'static str> {
    row.mend.as_ref().map(|mend| action_of(mend.kind).label())
}

/// Returns what an accepted resend teaches. `None` if its fault decides.
pub(super) fn learning_of(row: &RefusalRow) -> Option<&'static str> {
    row.mend.as_ref().map(|mend| mend.learning.name())
}

/// Returns the statuses of a row, separated by commas.
pub(super) fn statuses_of(row: &RefusalRow) -> String {
    let statuses: Vec<String> = row.statuses.iter().map(u16::to_string).collect();
    statuses.join(",")
}
