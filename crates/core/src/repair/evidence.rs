//! The evidence for repairs that are made before any refusal. [`REPAIR_RULES`](super::REPAIR_RULES) has the rows.
//!
//! Three demands are switched off without evidence: one result of each call, an id in results that name their tool, and
//! one call of each id. Their breach is a note of `check`, and is repaired only after the provider has refused it. A
//! source in such a row switches it on.

use super::Action;
use crate::{
    conversation::FindingKind,
    wire::{Dialect, Format, Wire},
};

/// A reason to believe that a provider refuses a fault. Each names its source, and its date or version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A refusal that a public thread quotes.
    Refusal(&'static str),
    /// A document of the provider.
    Document(&'static str),
    /// Code that the provider publishes.
    Code(&'static str),
}

/// The findings of one kind that a rule is about, by their [`Finding::detail`](crate::conversation::Finding::detail).
#[derive(Clone, Copy, Debug)]
pub enum Details {
    /// All findings.
    All,
    /// Those without a detail.
    Without,
    /// Those with one of these details.
    Only(&'static [&'static str]),
}

/// One kind of fault of a format, and its repair.
#[derive(Clone, Copy, Debug)]
pub struct RepairRule {
    /// The format.
    pub format: Format,
    /// The dialects to which the evidence applies.
    pub dialects: &'static [Dialect],
    /// The fault.
    pub finding: FindingKind,
    /// The exact faults.
    pub details: Details,
    /// The actions that may follow.
    pub actions: &'static [Action],
    /// The evidence. Without any the repair is switched off, which is possible for `Duplicate`, `DuplicateCall`, and
    /// `NoId` of results that name their tool.
    pub evidence: &'static [Evidence],
}

impl RepairRule {
    /// Returns `true` if the rule is about this fault of a body of `wire`.
    pub fn covers(&self, wire: Wire, finding: FindingKind, detail: Option<&str>) -> bool {
        self.format == wire.format
            && self.dialects.contains(&wire.dialect)
            && self.finding == finding
            && match self.details {
                Details::All => true,
                Details::Without => detail.is_none(),
                Details::Only(details) => detail.is_some_and(|detail| details.contains(&detail)),
            }
    }

    /// Returns the rule for these faults alone.
    pub(super) const fn of(self, details: Details) -> Self {
        Self { details, ..self }
    }

    /// Returns `true` if the repair is not made before a refusal.
    pub const fn is_switched_off(&self) -> bool {
        self.evidence.is_empty()
    }
}
