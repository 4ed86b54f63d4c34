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

impl Tier {
    /// Every tier, which are the values of the metric label.
    pub const ALL: [Self; 4] = [Self::Read, Self::Revertible, Self::Durable, Self::OneWay];

    /// Returns the name in configuration and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Revertible => "revertible",
            Self::Durable => "durable",
            Self::OneWay => "one_way",
        }
    }
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
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the configuration")]
pub struct RepairPolicy {
    /// The least safe class of actions that is applied.
    pub least_safe: Applicability,
    /// `true` if `Field` findings are reported and fixed.
    pub hygiene: bool,
    /// `true` if text moves out of places where the provider accepts none.
    pub shapes: bool,
    /// `true` if malformed calls are reported and fixed.
    pub malformed_calls: bool,
    /// `true` if values of earlier answers that the client has dropped are put back.
    pub continuity: bool,
    /// Tiers by tool name.
    pub tiers: BTreeMap<String, Tier>,
    /// Treatment of a real result in the body whose call was given a placeholder in an earlier request.
    pub late: OnLate,
    /// Treatment of thinking that another provider, account or organisation signed.
    pub foreign_thinking: OnForeignThinking,
}

impl RepairPolicy {
    /// Returns the placeholder for a call of this tool.
    pub fn placeholder(&self, tool: &[u8]) -> Placeholder {
        Placeholder::for_tier(self.tier_of(tool))
    }

    /// Returns the tier of this tool.
    pub fn tier_of(&self, tool: &[u8]) -> Tier {
        // A tool that is not configured may be irreversible, so the model must not be told to run it again.
        let tier = self.tiers.get(String::from_utf8_lossy(tool).as_ref()).copied();
        tier.unwrap_or_default()
    }
}

impl Default for RepairPolicy {
    fn default() -> Self {
        Self {
            least_safe: Applicability::Lossy,
            hygiene: true,
            shapes: true,
            malformed_calls: true,
            continuity: true,
            tiers: BTreeMap::new(),
            late: OnLate::Keep,
            foreign_thinking: OnForeignThinking::default(),
        }
    }
}
