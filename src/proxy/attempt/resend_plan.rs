//! The repaired request of a resend, and what the provider proves if it accepts it.

use crate::{
    proxy::{
        provider_facts::{AnsweredRemoteCalls, FactKey, FactScope},
        request::CallAnswers,
    },
    recall::{AppendedText, NamedFact, ProviderFact},
    repair::{Action, Anchor, LearnedRules, Placeholder, RepairReport},
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
    pub(super) facts: Vec<LearnedFact>,
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
        facts: Vec<LearnedFact>,
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

/// A fact that an accepted resend proves.
#[derive(Debug)]
pub(super) enum LearnedFact {
    /// Thinking is bound to placeholders of these calls.
    BoundPlaceholders {
        calls: Vec<(FactKey, Placeholder)>,
        /// `true` if some of them override results that the client has added in place since.
        overrides: bool,
    },
    /// The bound thinking of this conversation may be dropped.
    ThinkingMayBeDropped(FactKey),
    /// Placeholders answer these remote calls.
    RemoteCallsAnswered(AnsweredRemoteCalls),
    /// The upstream demands more than its dialect, for this model.
    Rules(LearnedRules, Option<String>),
    /// The provider has lost this response.
    DeadResponse(FactKey),
    /// The upstream wants a kind of value back that the model's answers carry.
    WantsContinuity(FactKey),
}

impl LearnedFact {
    /// Returns the fact, with its name for this caller, as it is stored.
    pub(super) fn into_facts(self, scope: FactScope<'_>) -> Vec<NamedFact> {
        match self {
            Self::BoundPlaceholders { calls, overrides } => {
                let bound = |(call, placeholder)| (call, ProviderFact::BoundPlaceholder(placeholder));
                let overrides = overrides.then(|| (scope.overrides_key(), ProviderFact::HasOverrides));
                calls.into_iter().map(bound).chain(overrides).collect()
            }
            Self::ThinkingMayBeDropped(key) => vec![(key, ProviderFact::DroppableThinking)],
            Self::RemoteCallsAnswered(calls) => calls.into_facts(),
            Self::Rules(rules, model) => vec![(scope.rules_key(model.as_deref()), ProviderFact::Rules(rules))],
            Self::DeadResponse(key) => vec![(key, ProviderFact::DeadResponse)],
            Self::WantsContinuity(key) => vec![(key, ProviderFact::WantedContinuity)],
        }
    }
}
