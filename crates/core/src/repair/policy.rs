//! Settings of repair, on which its output depends.

use std::collections::BTreeMap;

use super::texts::Placeholder;
use crate::{labels::labelled_enum, wire::MendKind};

// Operators read the meanings of these values in the schema of the configuration.

labelled_enum! {
    /// The treatment of findings on a route.
    pub enum Mode = Repair {
        /// Repair the body as far as possible and forward it.
        Repair = "repair",
        /// Answer 400 in the provider's format, with every finding.
        Strict = "strict",
        /// Forward the body unchanged and count the findings.
        Observe = "observe",
    }
}

labelled_enum! {
    /// The safety class of an action, from the least to the most safe.
    ///
    /// A policy allows every class from its least safe one upwards.
    pub enum Applicability = Lossy {
        /// Also remove redundant bytes, such as an equal duplicate.
        Lossy = "lossy",
        /// At most write a marked placeholder for a missing result.
        Inventive = "inventive",
        /// At most keep a result as marked text.
        Salvage = "salvage",
        /// Only move real results to their calls.
        Lossless = "lossless",
    }
}

labelled_enum! {
    /// The reversibility of a tool's effects. It selects the text of a placeholder.
    pub enum Tier = OneWay {
        /// Reads only, safe to run again.
        Read = "read",
        /// Can be undone.
        Revertible = "revertible",
        /// Permanent.
        Durable = "durable",
        /// Cannot be undone.
        OneWay = "one_way",
    }
}

labelled_enum! {
    /// The treatment of a real result elsewhere whose call was given a placeholder earlier.
    pub enum OnLate = Keep {
        /// Keep the placeholder and quote the result in place.
        Keep = "keep",
        /// Move the result to its call.
        Move = "move",
    }
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
    /// Mends that are never made, whatever a server demands.
    pub mends_off: Vec<MendKind>,
}

impl RepairPolicy {
    /// Returns `true` if mends of this kind are made.
    pub fn makes(&self, kind: MendKind) -> bool {
        !self.mends_off.contains(&kind)
    }

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
            mends_off: Vec::new(),
        }
    }
}
