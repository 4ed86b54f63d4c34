//! The parts of late results that every feature reads and none changes.

use std::{collections::BTreeSet, sync::Arc};

use super::{matching::Service, settings::LateSettings, webhook::Webhook};
use crate::{
    auth::{OwnerKey, Principal, PrincipalKey},
    ledger::{Ledger, RecordKind, RecordOwners},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::Writer,
};

/// Kinds whose owners are in memory.
const OWNED_KINDS: &[RecordKind] = &[RecordKind::Delivery, RecordKind::Parked, RecordKind::CompactedCalls];

/// The ledger, the configuration, and what follows from both.
pub(super) struct LateParts {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) writer: Writer,
    pub(super) callers: VerifiedCallers,
    /// The callers with posted results or compacted calls, and the services with parked results.
    pub(super) record_owners: RecordOwners,
    pub(super) telemetry: Telemetry,
    pub(super) settings: LateSettings,
    pub(super) services: Vec<Service>,
    /// The receivers of events.
    pub(super) webhooks: Vec<Webhook>,
    /// The accounts that one person uses.
    pub(super) personal: BTreeSet<Principal>,
    pub(super) principals: PrincipalKey,
    pub(super) owners: OwnerKey,
    /// `true` if a tool has a URL for cancels.
    pub(super) has_cancels: bool,
    /// `true` if results of a tool are carried over.
    pub(super) has_carry_over: bool,
}

impl LateParts {
    /// Resolves the configuration over the ledger of `parts`.
    pub(super) fn new(
        parts: &TableParts,
        callers: VerifiedCallers,
        settings: LateSettings,
        telemetry: Telemetry,
    ) -> Self {
        let ledger = Arc::clone(parts.ledger());
        let secret = ledger.secret();
        let principals = PrincipalKey::from_ledger_secret(&secret);
        Self {
            writer: parts.writer().clone(),
            callers,
            record_owners: RecordOwners::new(OWNED_KINDS, ledger.changes()),
            telemetry,
            services: settings.resolve_services(&principals),
            webhooks: settings.resolve_webhooks(&principals),
            personal: settings.resolve_personal(&principals),
            principals,
            owners: OwnerKey::from_ledger_secret(&secret),
            has_cancels: settings.tools.values().any(|tool| tool.cancel_url.is_some()),
            has_carry_over: settings.tools.values().any(|tool| tool.carries_over),
            settings,
            ledger,
        }
    }
}
