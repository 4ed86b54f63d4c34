//! Settings of the choice between profiles.

use std::time::Duration;

/// Rules for moving requests between the profiles of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationSettings {
    /// Longest cooldown that a lane waits out before it moves to another profile. Default 10 s.
    pub wait: Duration,
    /// The action if only a profile of another organisation is left.
    pub on_organisation_change: OnOrganisationChange,
}

impl Default for RotationSettings {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(10),
            on_organisation_change: OnOrganisationChange::default(),
        }
    }
}

/// The action for a history that is bound to an organisation, if only another organisation's profile is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOrganisationChange {
    /// Hand the provider's error to the client.
    #[default]
    Surface,
    /// Move with the history unchanged. Anthropic drops reasoning of another organisation, by itself or if asked to
    /// (`repair.on_binding_error`). If a provider refuses the reasoning, it is removed (`repair.foreign_thinking`).
    Move,
}
