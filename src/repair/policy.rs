//! Settings of repair, on which its output depends.

use std::collections::BTreeMap;

use super::texts::Placeholder;

/// The treatment of findings on a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Repairs what can be repaired and forwards the request.
    #[default]
    Repair,
    /// Returns 400 in the provider's error shape, with every finding.
    Strict,
    /// Forwards the request unchanged and counts its findings.
    Observe,
}

impl Mode {
    /// Returns the name in configuration, headers and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Strict => "strict",
            Self::Observe => "observe",
        }
    }
}

/// The safety class of an action, from the least to the most safe.
///
/// A policy allows every class from its least safe one upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Applicability {
    /// Removes bytes without content of their own.
    #[default]
    Lossy,
    /// Writes an invented result.
    Inventive,
    /// Turns a result into marked text.
    Salvage,
    /// Moves real results to their places.
    Lossless,
}

/// The reversibility of a tool's effects. It selects the text of a placeholder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Reads only: safe to run again.
    Read,
    /// Can be undone.
    Revertible,
    /// Persists.
    Durable,
    /// Cannot be undone. The tier of tools that are not configured.
    #[default]
    OneWay,
}

/// The treatment of a real result elsewhere whose call was given a placeholder earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLate {
    /// Keeps the placeholder and quotes the result in its place.
    #[default]
    Keep,
    /// Moves the result to its call.
    Move,
}

/// Treatment of foreign thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnForeignThinking {
    /// No finding and no repair.
    Ignore,
    /// Findings only.
    Report,
    /// Findings, and removal before the current turn.
    #[default]
    Remove,
}

/// Settings of repair. Its output depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    /// The least safe class of actions that is applied.
    pub least_safe: Applicability,
    /// `true` if `Field` findings are reported and fixed.
    pub hygiene: bool,
    /// Tiers by tool name.
    pub tiers: BTreeMap<String, Tier>,
    /// Treatment of a real result in the body whose call was given a placeholder in an earlier request.
    pub late: OnLate,
    /// `true` if call ids must be unique in the whole body, whatever the format says. Learned from a refusal.
    pub unique_ids: bool,
    /// Treatment of thinking that another provider, account or organisation signed.
    pub foreign_thinking: OnForeignThinking,
}

impl RepairPolicy {
    /// Returns the placeholder for a call of this tool.
    pub fn placeholder(&self, tool: &[u8]) -> Placeholder {
        // A tool that is not configured may be irreversible, so the model must not be told to run it again.
        let tier = self.tiers.get(String::from_utf8_lossy(tool).as_ref()).copied();
        Placeholder::for_tier(tier.unwrap_or_default())
    }
}

impl Default for RepairPolicy {
    fn default() -> Self {
        Self {
            least_safe: Applicability::Lossy,
            hygiene: true,
            tiers: BTreeMap::new(),
            late: OnLate::Keep,
            unique_ids: false,
            foreign_thinking: OnForeignThinking::default(),
        }
    }
}
