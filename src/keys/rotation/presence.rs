//! The presence of a profile's credential, and the evidence that concerns an earlier one.

use std::time::Instant;

use crate::policy::CooldownReason;

/// The presence of a profile's credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialState {
    /// Present, without an end.
    #[default]
    Lasting,
    /// Present until this instant.
    Until(Instant),
    /// Not yet supplied, or expired.
    Missing,
}

impl CredentialState {
    /// Returns `true` if the credential can be sent.
    pub fn is_valid(self, now: Instant) -> bool {
        match self {
            Self::Lasting => true,
            Self::Until(end) => now < end,
            Self::Missing => false,
        }
    }
}

/// The presence of one profile's credential, and its last change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CredentialPresence {
    pub(super) state: CredentialState,
    /// The last renewal by the same source.
    renewed: Option<Instant>,
    /// The last replacement by another key.
    replaced: Option<Instant>,
}

impl CredentialPresence {
    /// Notes a new credential of the same account.
    pub(super) const fn note_renewal(&mut self, now: Instant) {
        self.renewed = Some(now);
    }

    /// Notes another key.
    pub(super) const fn note_replacement(&mut self, now: Instant) {
        self.replaced = Some(now);
    }

    /// Returns `true` if a failure of an attempt that began at `began` concerns an earlier credential.
    pub(super) fn is_outdated(&self, reason: CooldownReason, began: Instant) -> bool {
        let before = |change: Option<Instant>| change.is_some_and(|change| began < change);
        before(self.replaced) || (reason.is_rejection() && before(self.renewed))
    }
}
