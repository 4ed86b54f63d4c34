//! The repaired request of one resend, and what follows if the provider accepts it.

use bytes::Bytes;

use crate::{
    auth::Caller,
    ledger::RecordName,
    proxy::{
        data_path::DataPath,
        late_results::LastText,
        mends::BodyMends,
        request::{CallResults, PlannedBody},
    },
    recall::{AppendedText, KeyedFact},
    repair::{Action, Anchor, CallKey, RepairReport},
    splice::Segments,
    wire::Refusal,
};

/// The repaired request of one resend.
pub(super) struct Proposal {
    pub(super) body: Segments,
    /// `true` if the body contains the setting for bound thinking, which needs a header.
    pub(super) needs_binding_beta: bool,
    /// Findings and actions of the repair.
    pub(super) report: RepairReport,
    /// The change that the resend makes to the body that was refused.
    pub(super) step: ResendStep,
    /// Results that the body contains for its calls.
    pub(super) results: CallResults,
    /// Text that the resend appends to a message, with its place. `None` if there is none.
    pub(super) late_text: Option<(Anchor, AppendedText)>,
    /// Facts to learn if the provider accepts the resend.
    pub(super) facts: Vec<KeyedFact>,
    /// `true` for the body before all repairs, which is sent because they may have caused the refusal.
    pub(super) is_fallback: bool,
    /// Set if the change is a guess: only a success counts. Otherwise the change is undone, and the next
    /// recovery is asked.
    pub(super) trial: Option<Trial>,
    /// The mends of the body from now on. `None` if they stay as they are.
    pub(super) mends: Option<BodyMends>,
    /// The refusal whose demand the change meets. `None` for every other change.
    pub(super) met: Option<Refusal>,
}

/// The change that a resend makes to the body that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResendStep {
    /// The change that the refusal of the pairing demands.
    Pairing {
        /// `true` if the refusal has taught a rule.
        taught_rule: bool,
    },
    /// Results before bound thinking became placeholders.
    ResultsReplaced,
    /// A demand of the server was met.
    Mended,
    /// The provider may drop bound thinking.
    ThinkingDropped,
    /// Foreign thinking went.
    ThinkingRemoved,
    /// Values that the client has dropped came back.
    ValuesFilled,
    /// Such values of another organisation went.
    ValuesTakenOut,
    /// The id of a lost response went.
    DeadResponse,
    /// Learned rules are not followed.
    WithoutRules,
    /// Posted results that no provider has accepted went.
    WithoutPosted,
}

impl ResendStep {
    /// Returns `true` if resends are planned from another body after this change, with every result in its place.
    pub(super) const fn starts_over(self) -> bool {
        match self {
            Self::ValuesFilled | Self::ValuesTakenOut | Self::DeadResponse | Self::WithoutPosted => true,
            Self::Pairing { .. }
            | Self::ResultsReplaced
            | Self::ThinkingDropped
            | Self::Mended
            | Self::ThinkingRemoved
            | Self::WithoutRules => false,
        }
    }

    /// Returns the reason of the resend, as a metric label.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Pairing { .. } => "pairing",
            Self::ResultsReplaced | Self::ThinkingDropped => "binding",
            Self::ThinkingRemoved => "foreign",
            Self::ValuesFilled | Self::ValuesTakenOut => "continuity",
            Self::DeadResponse => "dead_response",
            Self::WithoutRules => "rule",
            Self::WithoutPosted => "posted",
            Self::Mended => "demand",
        }
    }
}

/// A resend whose change is a guess, with what its success shows.
pub(super) enum Trial {
    /// The server demands the learned rules no longer.
    WithoutRules,
    /// The provider refuses one of the posted results.
    WithoutPosted(LeftOutResults),
}

/// Posted results that a resend leaves out.
pub(super) struct LeftOutResults {
    /// Results in their places, as calls of the body.
    pub(super) restored: Vec<CallKey>,
    /// The body without the late text.
    pub(super) body: Bytes,
    /// Records of all results.
    pub(super) records: Vec<RecordName>,
    /// The late text that is left out. `None` if there is none.
    pub(super) text: Option<LastText>,
}

impl LeftOutResults {
    /// Returns the number of results in the late text.
    pub(super) fn text_calls(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.appended.calls.len())
    }

    /// Withholds the results, since the provider has accepted the body without them.
    pub(super) fn withhold(self, path: &DataPath, caller: Caller, body: &mut PlannedBody) {
        if let Some(text) = self.text {
            // The accepted body does not contain the text, so that the end of the request must not accept it.
            if let Some(pins) = body.pins.as_mut() {
                pins.last_text = None;
            }
            path.recall.remove_text(caller, text.anchor);
        }
        if let Some(results) = &body.late_results {
            results.withhold_results(self.records);
        }
    }
}

impl Proposal {
    /// Creates a resend without a late text.
    pub(super) fn new(
        body: Segments,
        report: RepairReport,
        step: ResendStep,
        results: CallResults,
        facts: Vec<KeyedFact>,
    ) -> Self {
        Self {
            body,
            needs_binding_beta: report.actions.contains_key(&Action::Unbind),
            report,
            step,
            results,
            late_text: None,
            facts,
            is_fallback: false,
            trial: None,
            mends: None,
            met: None,
        }
    }

    /// Creates the resend of the body before all repairs.
    pub(super) fn fallback(original: Segments) -> Self {
        let (report, results) = (RepairReport::default(), CallResults::default());
        let step = ResendStep::Pairing { taught_rule: false };
        Self {
            is_fallback: true,
            ..Self::new(original, report, step, results, Vec::new())
        }
    }
}
