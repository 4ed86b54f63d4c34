//! Settings of the choice between profiles.

use std::time::Duration;

use crate::labels::labelled_enum;

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

labelled_enum! {
    /// The action for a history that is bound to an organisation, if only another organisation's profile is left.
    ///
    /// After a move Anthropic drops reasoning of another organisation, by itself or if asked to
    /// (`repair.on_binding_error`). If a provider refuses the reasoning, it is removed (`repair.foreign_thinking`).
    pub enum OnOrganisationChange = Surface {
        /// Return the refusal to the client.
        Surface = "surface",
        /// Move to it with the unchanged history.
        Move = "move",
    }
}
