//! The paces of all quotas of a pool, by model.

use std::{collections::BTreeMap, time::Instant};

use super::{ProfileId, cooldowns::model_key, pace::Pace};

/// Models of one quota with a pace of their own. Further models have none.
const PACES_MAX: usize = 64;

/// The paces of each quota, under the first profile that shares it.
#[derive(Clone, Debug)]
pub(super) struct QuotaPaces(Vec<BTreeMap<Box<str>, Pace>>);

impl QuotaPaces {
    /// Creates the paces of a pool with this number of profiles.
    pub(super) fn new(profiles: usize) -> Self {
        Self(vec![BTreeMap::new(); profiles])
    }

    /// Returns the pace of a quota for a model; `None` if it has none yet.
    pub(super) fn pace_of(&self, first: ProfileId, model: Option<&str>) -> Option<&Pace> {
        self.0.get(first)?.get(model_key(model))
    }

    /// Returns the pace of a quota for a model, which is created; `None` if there are too many models.
    pub(super) fn pace_mut(&mut self, first: ProfileId, model: Option<&str>, now: Instant) -> Option<&mut Pace> {
        let paces = self.0.get_mut(first)?;
        let model = model_key(model);
        if !paces.contains_key(model) {
            // Clients choose model names, so memory must be bounded.
            if paces.len() >= PACES_MAX {
                paces.retain(|_, pace| !pace.is_over(now));
            }
            if paces.len() >= PACES_MAX {
                return None;
            }
            paces.insert(model.into(), Pace::new(now));
        }
        paces.get_mut(model)
    }

    /// Removes the paces of a quota.
    pub(super) fn forget_paces(&mut self, first: ProfileId) {
        if let Some(paces) = self.0.get_mut(first) {
            paces.clear();
        }
    }
}
