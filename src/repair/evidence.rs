//! The evidence for repairs that are made before any refusal. [`REPAIR_RULES`](super::REPAIR_RULES) has the rows.
//!
//! A demand without evidence is switched off: its breach is a note of `check`, and is repaired only after the provider
//! has refused it. A source in such a row switches it on.

use super::Action;
use crate::{
    conversation::FindingKind,
    wire::{Dialect, Format, Wire},
};

/// A reason to believe that a provider refuses a fault. Each names its source and date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A refusal that a public thread quotes.
    Refusal(&'static str),
    /// A document of the provider.
    Document(&'static str),
    /// Code that the provider publishes.
    Code(&'static str),
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
    /// The exact faults, as in [`Finding::detail`](crate::conversation::Finding::detail). Empty for all.
    ///
    /// An empty name stands for findings without a detail.
    pub details: &'static [&'static str],
    /// The actions that may follow.
    pub actions: &'static [Action],
    /// The evidence. Without any the repair is switched off.
    pub evidence: &'static [Evidence],
}

impl RepairRule {
    /// Returns `true` if the rule is about this fault of a body of `wire`.
    pub fn covers(&self, wire: Wire, finding: FindingKind, detail: Option<&str>) -> bool {
        self.format == wire.format
            && self.dialects.contains(&wire.dialect)
            && self.finding == finding
            && (self.details.is_empty() || self.details.contains(&detail.unwrap_or_default()))
    }

    /// Returns the rule for these faults alone.
    pub(super) const fn of(self, details: &'static [&'static str]) -> Self {
        Self { details, ..self }
    }

    /// Returns `true` if the repair is not made before a refusal.
    pub const fn is_switched_off(&self) -> bool {
        self.evidence.is_empty()
    }
}

/// Detail of a result that names its tool and no call.
pub(super) const STANDALONE: &str = "standalone";
