//! The state that all handles of the store share.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    awaited_calls::AwaitedTable, cancels::WatchedLanes, compactions::Compactions, feed::FeedSender,
    match_queue::MatchQueue, matching::Service, outbox::Outbox, posted_results::PostedResults, readers::Readers,
    settings::LateSettings, webhook::Webhook,
};
use crate::{
    auth::{OwnerKey, Principal, PrincipalKey},
    digest_cache::{DigestCache, DigestKey, Lifetime},
    ledger::{Ledger, LedgerChanges, Moment, RecordKey, RecordKind, RecordOwners},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::Writer,
};

/// Entries of each cache. A forgotten entry costs a redundant write, or a wrong `attached` flag.
const CACHE_ENTRIES_MAX: u64 = 100_000;
/// Lifetime of an entry in these caches: 24 hours.
const CACHE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Kinds whose owners are in memory.
const OWNED_KINDS: &[RecordKind] = &[RecordKind::Delivery, RecordKind::Parked, RecordKind::CompactedCalls];

/// State that all handles share.
pub(super) struct LateStoreInner {
    pub(super) ledger: Arc<dyn Ledger>,
    /// The changes of other processes, by which caches know that they are out of date.
    pub(super) changes: LedgerChanges,
    pub(super) callers: VerifiedCallers,
    pub(super) telemetry: Telemetry,
    pub(super) settings: LateSettings,
    pub(super) services: Vec<Service>,
    /// The receivers of events.
    pub(super) webhooks: Vec<Webhook>,
    /// The accounts that one person uses.
    pub(super) personal: BTreeSet<Principal>,
    pub(super) principals: PrincipalKey,
    pub(super) owners: OwnerKey,
    /// Hashes of the observations of calls that are recorded, or on their way to the ledger.
    pub(super) recorded: DigestCache<[u8; 32], ()>,
    /// Hashes of lanes and sessions that were left, with the time.
    pub(super) left_at: DigestCache<[u8; 32], Moment>,
    pub(super) posted: PostedResults,
    /// The callers with posted results or compacted calls, and the services with parked results.
    pub(super) record_owners: RecordOwners,
    pub(super) feed: FeedSender,
    pub(super) readers: Readers,
    /// Calls whose posted results were put into a request while the ledger failed, with the digests of the results.
    pub(super) in_requests: DigestCache<RecordKey, [u8; 32]>,
    /// Calls that compactions may have removed from the history of their lane.
    pub(super) compactions: Compactions,
    /// Parked results of known owners.
    pub(super) awaited: AwaitedTable,
    /// Parked results whose matches settle at a known time.
    pub(super) match_queue: Arc<MatchQueue>,
    /// `true` if a tool has a URL for cancels.
    pub(super) has_cancels: bool,
    /// `true` if results of a tool are carried over.
    pub(super) has_carry_over: bool,
    /// Lanes whose calls can be cancelled.
    pub(super) watched_lanes: WatchedLanes,
    /// Messages that are to be sent.
    pub(super) outbox: Outbox,
    pub(super) writer: Writer,
}

impl LateStoreInner {
    /// Creates the state over the ledger of `parts`.
    pub(super) fn new(
        parts: &TableParts,
        callers: VerifiedCallers,
        settings: LateSettings,
        telemetry: Telemetry,
    ) -> Self {
        let ledger = Arc::clone(parts.ledger());
        let secret = ledger.secret();
        let principals = PrincipalKey::from_ledger_secret(&secret);
        let has_cancels = settings.tools.values().any(|tool| tool.cancel_url.is_some());
        let has_carry_over = settings.tools.values().any(|tool| tool.carries_over);
        let record_owners = RecordOwners::new(OWNED_KINDS, ledger.changes());
        let compacted = (callers.clone(), record_owners.clone());
        let posted = PostedResults::new(parts, &callers, record_owners.clone());
        let of_calls = (settings.ttl, !settings.services.is_empty());
        Self {
            compactions: Compactions::new(parts, compacted, telemetry.clone(), of_calls),
            readers: Readers::new(parts, telemetry.clone()),
            callers,
            outbox: Outbox::new(parts, telemetry.clone()),
            telemetry,
            services: settings.resolve_services(&principals),
            webhooks: settings.resolve_webhooks(&principals),
            personal: settings.resolve_personal(&principals),
            settings,
            owners: OwnerKey::from_ledger_secret(&secret),
            principals,
            recorded: bounded_cache(),
            left_at: bounded_cache(),
            posted,
            record_owners,
            changes: ledger.changes(),
            feed: FeedSender::default(),
            in_requests: bounded_cache(),
            awaited: AwaitedTable::default(),
            match_queue: Arc::default(),
            has_cancels,
            has_carry_over,
            watched_lanes: WatchedLanes::default(),
            writer: parts.writer().clone(),
            ledger,
        }
    }
}

/// Creates a bounded cache whose entries expire.
fn bounded_cache<K: DigestKey, V: Clone + Send + Sync + 'static>() -> DigestCache<K, V> {
    DigestCache::new(CACHE_ENTRIES_MAX, Lifetime::SinceWrite(CACHE_TTL))
}
