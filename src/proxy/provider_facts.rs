//! Facts that providers' refusals have taught, in memory: about an upstream, a call, a conversation with bound thinking,
//! remote calls.
//!
//! Bounded, and stored by caller: a fact from one caller's refusals is never used for another's requests. A forgotten fact
//! costs one more send, never a wrong answer.

use std::{
    collections::BTreeMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use moka::sync::Cache;

use super::headers::CLIENT_TOKEN;
use crate::{
    auth::{Caller, principal::is_short_lived},
    digest::digest_of,
    provider::Upstream,
    repair::{CallKey, Placeholder},
};

/// Calls and conversations that are remembered, each 32 bytes and a little more.
const ENTRIES_MAX: u64 = 20_000;
/// Open calls of one answer that are remembered.
const DUE_MAX: usize = 128;
/// How long something unused is remembered.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A BLAKE3 hash: a name that tells nothing.
pub(super) type FactKey = [u8; 32];

/// The facts.
#[derive(Debug)]
pub(super) struct ProviderFacts {
    /// For each upstream whether a call id must be the only one of its body.
    unique: BTreeMap<String, AtomicBool>,
    /// Calls that were answered by a placeholder although their result stands in the body: thinking is bound to it.
    bound: Cache<FactKey, Placeholder>,
    /// Callers with such a call in whose place the client has put a result since.
    overrides: Cache<Caller, ()>,
    /// Conversations whose bound thinking may be dropped.
    droppable: Cache<FactKey, ()>,
    /// Whether the three above contain anything: most processes never look.
    has_bound: AtomicBool,
    /// For each remote response the calls it left open, which a request that continues from it answers first.
    due: Cache<FactKey, Arc<[String]>>,
    /// Remote calls that have their answer, with the response that left them open. `None` if that has no name.
    answered: Cache<FactKey, Option<FactKey>>,
    /// Whether the two above contain anything.
    has_remote: AtomicBool,
    /// Whether the warning about short-lived credentials was logged.
    has_warned: AtomicBool,
}

impl ProviderFacts {
    /// Creates an empty store for these upstreams.
    pub(super) fn new<'u>(upstreams: impl IntoIterator<Item = &'u Upstream>) -> Self {
        let names = upstreams.into_iter().map(|upstream| upstream.name.clone());
        Self {
            unique: names.map(|name| (name, AtomicBool::new(false))).collect(),
            bound: cache(),
            overrides: cache(),
            droppable: cache(),
            has_bound: AtomicBool::new(false),
            due: cache(),
            answered: cache(),
            has_remote: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Logs once that everything stored for a short-lived credential ends with it. Client tokens do not expire.
    pub(super) fn warn_of_short_lived_credential(&self, headers: &HeaderMap) {
        if self.has_warned.load(Ordering::Relaxed) || headers.contains_key(CLIENT_TOKEN) || !is_short_lived(headers) {
            return;
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "a caller is identified by a credential that expires: everything stored for this caller ends with it; \
                 use a client token in x-antiphon-client-token to keep it"
            );
        }
    }

    /// Whether this upstream demands call ids that are unique in their body.
    pub(super) fn wants_unique_ids(&self, upstream: &str) -> bool {
        self.unique
            .get(upstream)
            .is_some_and(|known| known.load(Ordering::Relaxed))
    }

    /// Stores that this upstream demands call ids that are unique in their body.
    pub(super) fn learn_unique_ids(&self, upstream: &str) {
        if let Some(known) = self.unique.get(upstream) {
            known.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the bound thinking of this conversation may be dropped. `key` is computed only if any such is known.
    pub(super) fn may_drop_thinking(&self, key: impl FnOnce() -> Option<FactKey>) -> bool {
        self.has_bound.load(Ordering::Relaxed) && key().is_some_and(|key| self.droppable.contains_key(&key))
    }

    /// Stores that the provider took this conversation with its bound thinking dropped.
    pub(super) fn learn_droppable_thinking(&self, key: FactKey) {
        self.droppable.insert(key, ());
        self.has_bound.store(true, Ordering::Relaxed);
    }

    /// Returns the placeholder that this call keeps in the place of a later result, because thinking is bound to it.
    pub(super) fn bound_placeholder(&self, scope: FactScope<'_>, call: CallKey) -> Option<Placeholder> {
        if !self.has_bound.load(Ordering::Relaxed) {
            return None;
        }
        self.bound.get(&scope.call(call))
    }

    /// Stores that the provider took these calls with placeholders in the place of later results.
    pub(super) fn learn_bound_placeholders(&self, calls: impl IntoIterator<Item = (FactKey, Placeholder)>) {
        for (key, placeholder) in calls {
            self.bound.insert(key, placeholder);
            self.has_bound.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a placeholder of any call of this caller replaces a result that the client has put in its place since.
    pub(super) fn has_overrides(&self, caller: Caller) -> bool {
        self.has_bound.load(Ordering::Relaxed) && self.overrides.contains_key(&caller)
    }

    /// Stores that the provider took such a call.
    pub(super) fn learn_overrides(&self, caller: Caller) {
        self.overrides.insert(caller, ());
    }

    /// Whether any remote call is known.
    pub(super) fn knows_remote_calls(&self) -> bool {
        self.has_remote.load(Ordering::Relaxed)
    }

    /// Returns the ids of the calls that a request which continues from `origin` answers first.
    pub(super) fn due_calls(&self, origin: FactKey) -> Vec<String> {
        self.due.get(&origin).map(|ids| ids.to_vec()).unwrap_or_default()
    }

    /// Whether a remote call has its answer, for a request that continues from `origin`.
    ///
    /// A request that continues from the response which left the call open is another branch: it answers anew.
    pub(super) fn is_answered(&self, call: FactKey, origin: Option<FactKey>) -> bool {
        let known = self.answered.get(&call);
        known.is_some_and(|open| open.is_none() || open != origin)
    }

    /// Stores that the provider took these remote calls with placeholders.
    pub(super) fn learn_answered(&self, remote: AnsweredRemoteCalls) {
        let AnsweredRemoteCalls { origin, calls } = remote;
        let (names, ids): (Vec<Option<FactKey>>, Vec<String>) = calls.into_iter().unzip();
        for name in names.into_iter().flatten() {
            self.answered.insert(name, origin);
        }
        if let Some(origin) = origin.filter(|_| ids.len() <= DUE_MAX) {
            self.due.insert(origin, ids.into());
        }
        self.has_remote.store(true, Ordering::Relaxed);
    }
}

/// Remote calls that were answered with placeholders.
#[derive(Clone, Debug)]
pub(super) struct AnsweredRemoteCalls {
    /// The response that left them open. `None` if the body names none.
    pub(super) origin: Option<FactKey>,
    /// The id of each call, with its name unless another call may have the same id.
    pub(super) calls: Vec<(Option<FactKey>, String)>,
}

fn cache<K, V>() -> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(ENTRIES_MAX)
        .time_to_idle(IDLE_MAX)
        .build()
}

/// The owner of a fact: one caller at one upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactScope<'r> {
    pub(super) upstream: &'r str,
    pub(super) caller: Caller,
}

impl FactScope<'_> {
    fn key(self, parts: &[&[u8]]) -> FactKey {
        let principal = self.caller.principal();
        let whose: [&[u8]; 2] = [self.upstream.as_bytes(), principal.as_bytes()];
        digest_of(whose.into_iter().chain(parts.iter().copied()))
    }

    /// Names a remote response.
    pub(super) fn origin(self, id: &[u8]) -> FactKey {
        self.key(&[b"origin", id])
    }

    /// Names a remote call.
    pub(super) fn remote_call(self, id: &[u8]) -> FactKey {
        self.key(&[b"held", id])
    }

    /// Names a call of a body.
    pub(super) fn call(self, call: CallKey) -> FactKey {
        self.key(&[b"call", call.as_bytes()])
    }

    /// Names a conversation by its first block of thinking, which every request of it contains.
    pub(super) fn conversation(self, first_thinking: &[u8]) -> FactKey {
        self.key(&[b"conversation", first_thinking])
    }
}
