//! What repair may do: the settings that its output is a function of.

use std::collections::BTreeMap;

use super::texts::Placeholder;

/// What a route does about findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Mend what can be mended and forward.
    #[default]
    Repair,
    /// Answer 400 in the provider's shape, naming every finding.
    Strict,
    /// Forward unchanged and count.
    Observe,
}

impl Mode {
    /// The name in configuration, headers and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Strict => "strict",
            Self::Observe => "observe",
        }
    }
}

/// How safe an action is, from the least safe: policy is one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Applicability {
    /// Removes bytes that said nothing of their own.
    #[default]
    Lossy,
    /// Writes a result that nobody gave.
    Inventive,
    /// Keeps a result as marked text.
    Salvage,
    /// Everything real is where it belongs.
    Lossless,
}

/// How far a tool's effect can be taken back; it picks the words of a placeholder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Reads only: safe to run again.
    Read,
    /// Can be undone.
    Revertible,
    /// Stays.
    Durable,
    /// Cannot be undone. Tools that nobody configured are of this tier.
    #[default]
    OneWay,
}

/// What to do about a real result that stands elsewhere, where its call was given a placeholder before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLate {
    /// The placeholder stays, and the result is quoted where it stands.
    #[default]
    Keep,
    /// The result goes to its call.
    Move,
}

/// What repair may do. Part of what its output is a function of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    /// The least safe class of action that is still applied.
    pub least_safe: Applicability,
    /// Whether `Field` findings are looked for and mended.
    pub hygiene: bool,
    /// Tiers by tool name.
    pub tiers: BTreeMap<String, Tier>,
    /// What to do about a real result in the body whose call was given a placeholder in an earlier request.
    pub late: OnLate,
    /// Whether a call id must be the only one of the whole body, whatever the format says: learned from a refusal.
    pub unique_ids: bool,
}

impl RepairPolicy {
    /// Returns the placeholder for a call of this tool.
    pub fn placeholder(&self, tool: &[u8]) -> Placeholder {
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
        }
    }
}
