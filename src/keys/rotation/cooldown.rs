//! One cooldown of a profile.

use std::time::Instant;

use super::shared_cooldown::{SharedCooldown, SharedCooldownState};
use crate::policy::{CooldownReason, KeyEvidence};

/// Bytes of a model's name that are stored.
const MODEL_MAX: usize = 128;

/// One cooldown of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Cooldown {
    /// The recorded reason.
    pub reason: CooldownReason,
    /// The only model that is affected, empty for requests without a model; `None` for every model.
    pub model: Option<Box<str>>,
    /// `true` if the profile is disabled.
    pub disables: bool,
    /// `true` if the provider named the end.
    pub is_named: bool,
    /// The provider's statement that began it.
    pub evidence: Option<KeyEvidence>,
    /// The template of the path that got this answer; `None` if it is unknown.
    pub path: Option<&'static str>,
    /// `true` if another profile of the same organisation caused it.
    pub of_other_profile: bool,
    /// The start.
    pub since: Instant,
    /// The last failure that has begun it or made it longer.
    pub failed_at: Instant,
    /// The end.
    pub until: Instant,
}

impl Cooldown {
    /// Returns `true` if requests for a model, or without one, are concerned.
    pub(super) fn concerns(&self, model: Option<&str>) -> bool {
        self.model.as_deref().is_none_or(|only| only == model_key(model))
    }

    /// Returns the cooldown as processes share it.
    pub(super) fn to_shared(&self) -> SharedCooldown {
        SharedCooldown {
            reason: self.reason,
            model: self.model.clone(),
            state: SharedCooldownState::Lasting {
                disables: self.disables,
                is_named: self.is_named,
                failed_at: self.failed_at,
                until: self.until,
            },
        }
    }

    /// Returns the cooldown that another process has begun. `None` if it has ended one.
    pub(super) fn of_shared(cooldown: &SharedCooldown) -> Option<Self> {
        let SharedCooldownState::Lasting {
            disables,
            is_named,
            failed_at,
            until,
        } = cooldown.state
        else {
            return None;
        };
        Some(Self {
            reason: cooldown.reason,
            model: cooldown.model.clone(),
            disables,
            is_named,
            // What the provider said is known to the process that has asked it.
            evidence: None,
            path: None,
            of_other_profile: false,
            since: failed_at,
            failed_at,
            until,
        })
    }
}

/// Returns the name under which a model's cooldowns are stored. Requests without a known model share the empty name, so
/// that their failures do not block known models.
pub(super) fn model_key(model: Option<&str>) -> &str {
    let model = model.unwrap_or_default();
    let end = (0..=model.len().min(MODEL_MAX))
        .rev()
        .find(|end| model.is_char_boundary(*end));
    model.get(..end.unwrap_or(0)).unwrap_or_default()
}
