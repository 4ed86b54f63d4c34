//! The state of profiles as operators see it.

use std::sync::Arc;

use super::cooldown::Cooldown;
use crate::policy::{CooldownReason, ProfileState};

/// The state of one profile, for the admin API.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileStatus {
    /// The profile's name.
    pub label: Arc<str>,
    /// The organisation, if it is known.
    pub organisation: Option<Arc<str>>,
    /// The state over all models.
    pub state: ProfileState,
    /// `true` if it has a valid credential.
    pub has_credential: bool,
    /// The cooldowns in force.
    pub cooldowns: Vec<Cooldown>,
}

impl ProfileStatus {
    /// Returns `true` if the profile may serve requests for a model.
    pub fn serves(&self, model: Option<&str>) -> bool {
        self.has_credential && !self.cooldowns.iter().any(|cooldown| cooldown.concerns(model))
    }

    /// Returns the cooldown that ends last, of those with this reason that concern a model.
    pub fn cooldown_of(&self, reason: CooldownReason, model: Option<&str>) -> Option<&Cooldown> {
        let those = self.cooldowns.iter().filter(|cooldown| cooldown.reason == reason);
        those
            .filter(|cooldown| cooldown.concerns(model))
            .max_by_key(|cooldown| cooldown.until)
    }
}

/// Returns the state of a profile with these cooldowns: that of the most severe one.
pub(super) fn state_of_profile(cooldowns: &[Cooldown], has_credential: bool) -> ProfileState {
    if !has_credential || cooldowns.iter().any(|cooldown| cooldown.disables) {
        ProfileState::Disabled
    } else if cooldowns.is_empty() {
        ProfileState::Ready
    } else {
        ProfileState::Cooling
    }
}
