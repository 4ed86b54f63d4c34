//! The repaired request of a resend, and what the provider proves if it accepts it.

use crate::{
    proxy::request::CallAnswers,
    recall::{AppendedText, KeyedFact},
    repair::{Action, Anchor, RepairReport},
    splice::Segments,
};

/// The repaired request of one resend.
pub(super) struct Resend {
    pub(super) body: Segments,
    /// `true` if the body contains the setting for bound thinking, which needs a header.
    pub(super) needs_binding_beta: bool,
    /// Findings and actions of the repair.
    pub(super) report: RepairReport,
    /// Reason of the resend, as a metric label.
    pub(super) reason: &'static str,
    /// Answers that the body contains for its calls.
    pub(super) answers: CallAnswers,
    /// Text that the resend appends to a message, with its place. `None` if there is none.
    pub(super) late_text: Option<(Anchor, AppendedText)>,
    /// Facts to learn if the provider accepts the resend.
    pub(super) facts: Vec<KeyedFact>,
    /// `true` for the body before all repairs, which is sent because they may have caused the refusal.
    pub(super) is_fallback: bool,
}

impl Resend {
    /// Creates a resend without a late text.
    pub(super) fn new(
        body: Segments,
        report: RepairReport,
        reason: &'static str,
        answers: CallAnswers,
        facts: Vec<KeyedFact>,
    ) -> Self {
        Self {
            body,
            needs_binding_beta: report.actions.contains_key(&Action::Unbind),
            report,
            reason,
            answers,
            late_text: None,
            facts,
            is_fallback: false,
        }
    }

    /// Creates the resend of the body before all repairs.
    pub(super) fn fallback(original: Segments) -> Self {
        let (report, answers) = (RepairReport::default(), CallAnswers::default());
        Self {
            is_fallback: true,
            ..Self::new(original, report, "pairing", answers, Vec::new())
        }
    }
}
