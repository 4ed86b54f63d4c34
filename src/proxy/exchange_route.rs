//! The route of one exchange, with the profiles that serve it.

use std::{ops::Deref, sync::Arc};

use crate::{keys::profiles::ProfilePool, provider::Route};

/// A route, and the profiles of its upstream: found once, for all that the exchange asks of them.
#[derive(Clone, Debug)]
pub(super) struct ExchangeRoute<'p> {
    pub(super) route: Route<'p>,
    pub(super) pool: &'p Arc<ProfilePool>,
}

impl<'p> Deref for ExchangeRoute<'p> {
    type Target = Route<'p>;

    fn deref(&self) -> &Self::Target {
        &self.route
    }
}
