//! Settings of the choice between profiles.

use std::time::Duration;

/// How requests move between the profiles of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationSettings {
    /// How long a lane waits for its own profile while that rests, rather than move to another.
    pub wait: Duration,
    /// What to do where only a profile of another organisation is left.
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

/// What to do about a history that is bound to an organisation, where only another's profile is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOrganisationChange {
    /// Hand the provider's refusal to the client.
    #[default]
    Surface,
    /// Move with the history as it is: Anthropic leaves out reasoning that is not its reader's, or is asked to
    /// (`repair.on_binding_error`); others may refuse it.
    Move,
}
