//! The owner of what answers carry, and the note under which one answer's values are stored.

use std::sync::Arc;

use super::catch_core_panic::catch_core_panic;
use crate::{
    auth::Caller,
    keys::profiles::ProfilePool,
    keys::rotation::ProfileId,
    recall::{ContinuityScope, RecallStore},
    repair::{CallKey, CarriedIdentity, ContinuityKind},
    wire::{
        Wire,
        watch::{CarriedCall, Facts},
    },
};

/// The owner of the values of one exchange, apart from the organisation, which may differ between attempts.
#[derive(Clone, Debug)]
pub(super) struct ContinuityOwner {
    pub(super) recall: RecallStore,
    pub(super) pool: Arc<ProfilePool>,
    pub(super) caller: Caller,
    pub(super) wire: Wire,
    pub(super) upstream: String,
    pub(super) model: String,
    /// The lane, guessed or not: it only narrows what is found.
    pub(super) lane: Option<[u8; 32]>,
}

impl ContinuityOwner {
    /// Returns the scope of values of an organisation.
    pub(super) fn scope<'o>(&'o self, organisation: &'o str) -> ContinuityScope<'o> {
        ContinuityScope {
            caller: self.caller,
            format: self.wire.format,
            upstream: &self.upstream,
            model: &self.model,
            organisation,
        }
    }

    /// Returns the organisation of a profile. Empty for the client's own credential.
    pub(super) fn organisation_of(&self, profile: Option<ProfileId>) -> String {
        let name = profile.map(|id| self.pool.organisation_name(id));
        name.unwrap_or_default()
    }
}

/// Everything that the values of one answer are stored under.
#[derive(Debug)]
pub(super) struct AnswerNote {
    pub(super) owner: ContinuityOwner,
    pub(super) kinds: &'static [ContinuityKind],
    /// Hash of the message before the answer. `None` if no key needs it.
    pub(super) before: Option<[u8; 32]>,
    /// Profile of the attempt. `None` for the client's own credential.
    pub(super) profile: Option<ProfileId>,
}

impl AnswerNote {
    /// Stores what a complete answer carries.
    pub(super) fn store_values(self, facts: &Facts) {
        let organisation = self.owner.organisation_of(self.profile);
        let (scope, store) = (self.owner.scope(&organisation), self.owner.recall.continuity());
        let carried = &facts.carried;
        for kind in self.kinds {
            let call = match kind {
                ContinuityKind::Reasoning | ContinuityKind::Signature => carried.call(),
                ContinuityKind::Container => carried.code_call(),
            };
            let Some(key) = call.and_then(|call| self.call_key(*kind, call)) else {
                continue;
            };
            let text = match kind {
                ContinuityKind::Reasoning => carried.reasoning(),
                ContinuityKind::Signature => {
                    let call = carried.call();
                    call.and_then(|call| std::str::from_utf8(&call.signature).ok())
                }
                ContinuityKind::Container => carried.container(),
            };
            let text = text.filter(|text| !text.is_empty());
            store.note_value(scope, (*kind, key), text);
        }
    }

    /// Returns the key under which a value of the call is stored.
    fn call_key(&self, kind: ContinuityKind, call: &CarriedCall) -> Option<CallKey> {
        let has_reusable_ids = kind.has_reusable_ids(self.owner.wire.format);
        let identity = CarriedIdentity {
            id: &call.id,
            tool: &call.name,
            input: has_reusable_ids.then_some(&call.arguments),
            before: self.before,
            lane: self.owner.lane,
        };
        catch_core_panic(|| identity.call_key())
    }
}
