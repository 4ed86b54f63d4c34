//! The parts that all features of late results share: the ledger, its writer, the configuration.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    records::{IntentRecord, OutgoingRecord, ParkedResult, RecordedCall, RefusedResult},
    service::Service,
    settings::LateSettings,
    webhook::Webhook,
};
use crate::{
    auth::{Caller, Owner, OwnerKey, Principal, PrincipalKey},
    ledger::{
        CommitOutcome, CommitStep, Ledger, LedgerError, Moment, Record, RecordKey, RecordKind, RecordOwners, Unread,
        read_by,
    },
    session::SessionStrength,
    table::{Records, TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::Writer,
};

/// Kinds whose owners are in memory.
const OWNED_KINDS: &[RecordKind] = &[RecordKind::Delivery, RecordKind::Parked, RecordKind::CompactedCalls];

/// The ledger, the configuration, and what follows from both.
#[derive(Debug)]
pub(super) struct LateParts {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) calls: Records<RecordedCall>,
    pub(super) parked: Records<ParkedResult>,
    pub(super) refused: Records<RefusedResult>,
    pub(super) intents: Records<IntentRecord>,
    pub(super) messages: Records<OutgoingRecord>,
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
            calls: Records::new(&ledger, settings.ttl),
            parked: Records::new(&ledger, settings.ttl),
            refused: Records::new(&ledger, settings.ttl),
            intents: Records::new(&ledger, settings.ttl),
            messages: Records::new(&ledger, settings.ttl),
            settings,
            ledger,
        }
    }

    /// Returns `true` if there is a tool service. Without one nothing is recorded.
    pub(super) const fn is_used(&self) -> bool {
        !self.services.is_empty()
    }

    /// Returns the name by which services refer to a principal.
    pub(super) fn owner_of(&self, principal: Principal) -> Owner {
        Owner::of_principal(&self.owners, principal)
    }

    /// Returns `true` if the principal is known to be one person, and not everybody who has the account's credential.
    pub(super) fn is_strong_user(&self, principal: Principal, account: Principal) -> bool {
        // A user within an account has a principal of its own.
        self.settings.principals.is_single || principal != account || self.personal.contains(&account)
    }

    /// Returns the longest run of a tool.
    pub(super) fn run_limit(&self, tool: &[u8]) -> Duration {
        let limit = self.settings.tool_settings(tool).max_duration;
        limit.unwrap_or(self.settings.ttl)
    }

    /// Returns `true` if a service answers calls of this tool for the caller.
    pub(super) fn is_served(&self, caller: Caller, tool: &[u8]) -> bool {
        let mut services = self.services.iter();
        services.any(|service| service.may_answer(caller.account(), tool))
    }

    /// Returns `true` if a service that the operator has configured answers calls of this tool for the caller.
    pub(super) fn is_served_by_configured(&self, caller: Caller, tool: &[u8]) -> bool {
        let mut services = self.services.iter().filter(|service| !service.is_local);
        services.any(|service| service.may_answer(caller.account(), tool))
    }

    /// Returns `true` if the result of a call reaches the next conversation of its user. That needs a known user and a
    /// named session: two conversations that are known by their beginning alone may be the same one.
    pub(super) fn reaches_next(&self, principal: Principal, call: &RecordedCall) -> bool {
        self.settings.tool_settings(&call.tool).carries_over
            && call.strength == SessionStrength::Strong
            && self.is_strong_user(principal, Principal::from_bytes(call.account))
    }

    /// Commits steps. Returns `false` if another writer was first.
    pub(super) async fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> Result<bool, LedgerError> {
        Ok(self.ledger.commit(steps, now).await? == CommitOutcome::Done)
    }

    /// Reads one record.
    pub(super) async fn read_record(&self, key: RecordKey, now: Moment) -> Result<Option<Record>, LedgerError> {
        Ok(self.ledger.read(vec![key], now).await?.into_iter().flatten().next())
    }

    /// Reads records, in the order of their keys, if the ledger returns them before the deadline.
    pub(super) async fn read_by(&self, keys: Vec<RecordKey>, by: Instant) -> Result<Vec<Option<Record>>, Unread> {
        self.count_unread(read_by(&*self.ledger, keys, by).await)
    }

    /// Counts a read that failed or came too late.
    pub(super) fn count_unread<T>(&self, read: Result<T, Unread>) -> Result<T, Unread> {
        read.inspect_err(|_| self.telemetry.record_late_event("unread"))
    }
}
