//! The paces of one quota, by model.

use std::{collections::BTreeMap, time::Instant};

use super::{cooldown::model_key, pace::Pace};

/// Models of one quota with a pace of their own. Further models have none.
const PACES_MAX: usize = 64;

/// The paces of one quota. The first profile that shares the quota has them.
#[derive(Clone, Debug, Default)]
pub(super) struct QuotaPaces(BTreeMap<Box<str>, Pace>);

impl QuotaPaces {
    /// Returns the pace for a model; `None` if it has none yet.
    pub(super) fn pace_of(&self, model: Option<&str>) -> Option<&Pace> {
        self.0.get(model_key(model))
    }

    /// Returns the pace for a model, which is created; `None` if there are too many models.
    pub(super) fn pace_mut(&mut self, model: Option<&str>, now: Instant) -> Option<&mut Pace> {
        let (paces, model) = (&mut self.0, model_key(model));
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
}
