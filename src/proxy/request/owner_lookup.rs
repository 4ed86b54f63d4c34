//! Look-up of the profile that owns the objects which a request names.

use std::sync::Arc;

use http::{
    HeaderMap, Method,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use crate::{
    auth::Caller,
    proxy::{
        data_path::DataPath,
        exchange_route::ExchangeRoute,
        owned_ids::{NamedObjects, depends_on_body},
    },
    recall::{LedgerBudget, ObjectScope},
};

/// The look-up for one request.
#[derive(Clone, Copy)]
pub(super) struct OwnerLookup<'x> {
    pub(super) path: &'x DataPath,
    pub(super) route: &'x ExchangeRoute<'x>,
    pub(super) method: &'x Method,
}

impl OwnerLookup<'_> {
    /// Returns `true` if the owner may depend on the body of a request without a history, and that is readable JSON.
    pub(super) fn needs_body(&self, caller: Caller, headers: &HeaderMap) -> bool {
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        kind.starts_with(b"application/json")
            && !headers.contains_key(CONTENT_ENCODING)
            && self.has_profiles()
            && depends_on_body(self.route)
            && self.path.objects.may_have(caller)
    }

    /// Looks up the objects in the path, and in the body if one was read. Waits no longer than the budget allows.
    pub(super) async fn find_objects(
        &self,
        caller: Caller,
        body: &[u8],
        ledger_budget: &mut LedgerBudget,
    ) -> NamedObjects {
        if !self.has_profiles() {
            return NamedObjects::default();
        }
        let (upstream, store) = (self.route.upstream.name.as_str(), &self.path.objects);
        let scope = ObjectScope { caller, upstream };
        // For a caller without objects no body is searched.
        let may_have = store.may_have(caller);
        let body = if may_have { body } else { &[] };
        let mut objects = NamedObjects::read(scope, self.route, self.method, body);
        let names = objects.names();
        if may_have && !names.is_empty() {
            let look = |deadline| store.find_owners(caller, &names, deadline);
            let owners = ledger_budget.spend(look).await;
            // An owner that is no longer configured owns nothing.
            let is_present = |label: &Arc<str>| self.route.pool.find_profile(label).is_some();
            objects.set_owners(owners.into_iter().map(|owner| owner.filter(is_present)));
        }
        objects
    }

    fn has_profiles(&self) -> bool {
        self.route.pool.has_profiles()
    }
}
