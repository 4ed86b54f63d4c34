//! An exchange whose request was refused, as a recovery sees it.

use http::HeaderMap;

use super::{base::RecoveryContext, sent_history::SentHistory};
use crate::proxy::{
    continuity::ReturnedValues, data_path::DataPath, exchange_route::ExchangeRoute, request::PlannedBody,
};

/// An exchange whose request was refused, as a recovery sees it.
pub(super) struct RefusedExchange<'s> {
    pub(super) path: &'s DataPath,
    pub(super) route: &'s ExchangeRoute<'s>,
    /// `true` if the lane has left another profile.
    pub(super) profile_left: bool,
    pub(super) history: &'s mut SentHistory,
    pub(super) body: &'s mut PlannedBody,
    /// Headers of the request, as they were sent.
    pub(super) headers: &'s HeaderMap,
    /// Values that the provider wants back, once they were looked up.
    pub(super) carried: Option<ReturnedValues>,
}

impl<'s> RefusedExchange<'s> {
    /// Returns what a plan depends on besides the body.
    pub(super) fn context(&self) -> RecoveryContext<'s> {
        RecoveryContext {
            path: self.path,
            policy: &self.path.settings.policy,
        }
    }
}
