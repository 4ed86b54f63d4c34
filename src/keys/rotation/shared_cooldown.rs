//! A cooldown as several processes share it: it belongs to a credential, whatever each of them calls its profile.

use std::time::Instant;

use crate::policy::CooldownReason;

/// A cooldown of a credential that a provider's answer or an operator began or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCooldown {
    /// The reason.
    pub reason: CooldownReason,
    /// The only model that is affected, empty for requests without a model; `None` for every model.
    pub model: Option<Box<str>>,
    /// Its times.
    pub state: SharedCooldownState,
}

/// The state of a shared cooldown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedCooldownState {
    /// It lasts.
    Lasting {
        /// `true` if it disables the profile.
        disables: bool,
        /// `true` if the provider named its end.
        is_named: bool,
        /// The refusal that has begun it or made it longer.
        failed_at: Instant,
        /// The end.
        until: Instant,
    },
    /// A success or an operator has ended it.
    Ended {
        /// The time before which the refusal must have been.
        began_before: Instant,
    },
}
