//! What providers' refusals have taught, in memory: of an upstream, of a call, of a conversation with bound thinking, of calls
//! that the provider holds.
//!
//! Bounded, and kept by caller: what one credential's refusals taught is never used for another's requests. Forgetting
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
    auth::{self, principal::is_short_lived},
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
pub(super) type Key = [u8; 32];

/// What was learned.
#[derive(Debug)]
pub(super) struct Memory {
    /// For each upstream whether a call id must be the only one of its body.
    unique: BTreeMap<String, AtomicBool>,
    /// Calls that were answered by a placeholder although their result stands in the body: thinking is bound to it.
    turned: Cache<Key, Placeholder>,
    /// Callers of whom one of those calls has a result in its place, put there by the client since.
    overruled: Cache<auth::Principal, ()>,
    /// Conversations whose bound thinking may be dropped.
    unbound: Cache<Key, ()>,
    /// Whether anything is in the two above: most processes never look.
    any: AtomicBool,
    /// For each answer that a provider holds the calls it left open, which whoever goes on from it answers first.
    due: Cache<Key, Arc<[String]>>,
    /// Calls that a provider holds and that have their answer, with the answer that left them open, where that has a name.
    spent: Cache<Key, Option<Key>>,
    /// Whether anything is in the two above.
    any_held: AtomicBool,
    /// Whether it was said that credentials which run out take their memory along.
    told: AtomicBool,
}

impl Memory {
    /// An empty memory for these upstreams.
    pub(super) fn new<'u>(upstreams: impl IntoIterator<Item = &'u Upstream>) -> Self {
        let names = upstreams.into_iter().map(|upstream| upstream.name.clone());
        Self {
            unique: names.map(|name| (name, AtomicBool::new(false))).collect(),
            turned: cache(),
            overruled: cache(),
            unbound: cache(),
            any: AtomicBool::new(false),
            due: cache(),
            spent: cache(),
            any_held: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    /// Says once that what is kept for a credential that runs out ends with it. A client token has no such end.
    pub(super) fn tell_of_short_lives(&self, headers: &HeaderMap) {
        if self.told.load(Ordering::Relaxed) || headers.contains_key(CLIENT_TOKEN) || !is_short_lived(headers) {
            return;
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "a caller is told by a credential that runs out: what is kept for it ends with it; \
                 a client token in x-antiphon-client-token stays"
            );
        }
    }

    /// Whether this upstream insists on ids that are the only ones of their body.
    pub(super) fn wants_unique_ids(&self, upstream: &str) -> bool {
        self.unique
            .get(upstream)
            .is_some_and(|known| known.load(Ordering::Relaxed))
    }

    /// This upstream insists on ids that are the only ones of their body.
    pub(super) fn learn_unique_ids(&self, upstream: &str) {
        if let Some(known) = self.unique.get(upstream) {
            known.store(true, Ordering::Relaxed);
        }
    }

    /// Whether this conversation's bound thinking may be dropped; `key` is asked for only if any is known.
    pub(super) fn is_unbound(&self, key: impl FnOnce() -> Option<Key>) -> bool {
        self.any.load(Ordering::Relaxed) && key().is_some_and(|key| self.unbound.contains_key(&key))
    }

    /// The provider took this conversation with its bound thinking dropped.
    pub(super) fn learn_unbound(&self, key: Key) {
        self.unbound.insert(key, ());
        self.any.store(true, Ordering::Relaxed);
    }

    /// The placeholder that this call has in the place of a later result.
    pub(super) fn turned(&self, principal: Principal<'_>, call: CallKey) -> Option<Placeholder> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.turned.get(&principal.call(call))
    }

    /// Whether a placeholder of any call of this caller's stands where he has put a result since.
    pub(super) fn overrules(&self, caller: auth::Principal) -> bool {
        self.any.load(Ordering::Relaxed) && self.overruled.contains_key(&caller)
    }

    /// The provider took a call with its placeholder in the place of the result that its client has put there since.
    pub(super) fn learn_overruled(&self, caller: auth::Principal) {
        self.overruled.insert(caller, ());
    }

    /// Whether any call is known that a provider holds.
    pub(super) fn knows_held(&self) -> bool {
        self.any_held.load(Ordering::Relaxed)
    }

    /// The calls that a body of the caller's which goes on from `origin` answers first.
    pub(super) fn due(&self, origin: Key) -> Vec<String> {
        self.due.get(&origin).map(|ids| ids.to_vec()).unwrap_or_default()
    }

    /// Whether a call that the provider holds has its answer, for a body that goes on from `origin`. Where it was left open
    /// it may be answered otherwise: that is another branch.
    pub(super) fn is_spent(&self, call: Key, origin: Option<Key>) -> bool {
        let known = self.spent.get(&call);
        known.is_some_and(|open| open.is_none() || open != origin)
    }

    /// The provider took these calls, which it holds, with placeholders.
    pub(super) fn learn_held(&self, held: HeldCalls) {
        let HeldCalls { origin, calls } = held;
        let (names, ids): (Vec<Option<Key>>, Vec<String>) = calls.into_iter().unzip();
        for name in names.into_iter().flatten() {
            self.spent.insert(name, origin);
        }
        if let Some(origin) = origin.filter(|_| ids.len() <= DUE_MAX) {
            self.due.insert(origin, ids.into());
        }
        self.any_held.store(true, Ordering::Relaxed);
    }

    /// The provider took these calls with placeholders in the place of later results.
    pub(super) fn learn_turned(&self, calls: impl IntoIterator<Item = (Key, Placeholder)>) {
        for (key, placeholder) in calls {
            self.turned.insert(key, placeholder);
            self.any.store(true, Ordering::Relaxed);
        }
    }
}

/// Calls that a provider holds and that were answered by placeholders.
#[derive(Clone, Debug)]
pub(super) struct HeldCalls {
    /// The answer that left them open.
    pub(super) origin: Option<Key>,
    /// Each by its id, with its name where no other call can bear the same id.
    pub(super) calls: Vec<(Option<Key>, String)>,
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

/// Who asks, and where: what was learned for one is for nobody else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Principal<'r> {
    pub(super) upstream: &'r str,
    pub(super) caller: auth::Principal,
}

impl Principal<'_> {
    /// The name of something that is this caller's.
    pub(super) fn key(self, parts: &[&[u8]]) -> Key {
        let whose: [&[u8]; 2] = [self.upstream.as_bytes(), self.caller.as_bytes()];
        digest_of(whose.into_iter().chain(parts.iter().copied()))
    }

    /// The name of an answer that the provider holds for this caller.
    pub(super) fn origin(self, id: &[u8]) -> Key {
        self.key(&[b"origin", id])
    }

    /// The name of a call that the provider holds for this caller.
    pub(super) fn held(self, id: &[u8]) -> Key {
        self.key(&[b"held", id])
    }

    /// The name of one of this caller's calls.
    pub(super) fn call(self, call: CallKey) -> Key {
        self.key(&[b"call", call.as_bytes()])
    }
}
