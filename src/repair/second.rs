//! The second repair: a body paired as the provider's refusal of it demands.

use super::{
    Paired, PairingContext, Parsed,
    insist::{Insistence, Step},
};
use crate::{conversation::Finding, wire::Refusal};

/// How a refusal is followed. Readings are tried in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReading {
    /// The format's rules in their strictest form.
    StrictestRules,
    /// The ids that the refusal names, whatever the rules say.
    NamedIds,
}

impl RefusalReading {
    /// Both readings, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::StrictestRules, Self::NamedIds];

    const fn of(self, refusal: &Refusal) -> Insistence<'_> {
        let step = match self {
            Self::StrictestRules => Step::Rules,
            Self::NamedIds => Step::Ids,
        };
        Insistence { refusal, step }
    }

    /// Whether a repair with these findings answers the refusal: it mends something that the refusal names.
    pub fn is_met(self, refusal: &Refusal, findings: &[Finding]) -> bool {
        self.of(refusal).is_met(findings)
    }
}

impl<'b> Parsed<'b> {
    /// Applies the pairing rules as a provider's refusal demands.
    #[must_use]
    pub fn pair_refused(
        self,
        context: PairingContext<'_>,
        refusal: &'b Refusal,
        reading: RefusalReading,
    ) -> Paired<'b> {
        self.pair_as_refused(context, Some(reading.of(refusal)))
    }

    /// Whether the refusal is the fault of our own edits: what it names is balanced in the original, or is not in it.
    pub fn is_blameless(&self, refusal: &Refusal) -> bool {
        let insistence = RefusalReading::StrictestRules.of(refusal);
        self.whole()
            .is_some_and(|whole| insistence.was_balanced(whole) || insistence.names_ours(whole))
    }
}
