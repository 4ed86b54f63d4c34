//! Facts learned from providers' answers, in memory: about rules, calls, thinking, values and lost responses.
//!
//! Their number is bounded, and each read renews the lifetime of its fact. A fact learned from one caller's accepted
//! resends is never used for another's requests. A forgotten fact costs one more send, never a wrong answer. The ledger has
//! them for other processes, whose facts are adopted here.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use moka::sync::Cache;
use tokio::time::Instant;

use super::headers::CLIENT_TOKEN;
use crate::{
    auth::{Caller, principal::is_short_lived},
    digest::{DigestHashBuilder, digest_of},
    ledger::{OwnedRecords, OwnerStamp},
    recall::{NamedFact, ProviderFact},
    repair::{CallKey, DisputedShape, LearnedRules, Placeholder, ThinkingHash},
};

/// Maximum entries of each cache, of 32 bytes and a little more each.
const ENTRIES_MAX: u64 = 20_000;
/// Maximum open calls of one remote response that are remembered.
const DUE_MAX: usize = 128;
/// Time after which an unused entry is forgotten: 24 hours.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time after which a caller's facts are read from the ledger again. Memory may have forgotten some.
const LOADED_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Time between two reads of a caller's facts while it is not known if there are new ones.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// BLAKE3 hash that names a fact without revealing it.
pub(super) type FactKey = [u8; 32];

/// Facts learned from providers' refusals.
#[derive(Debug)]
pub(super) struct ProviderFacts {
    /// Rules that refusals have taught, by caller, upstream and model.
    rules: Cache<FactKey, LearnedRules, DigestHashBuilder>,
    /// `true` once there are such rules. In most processes there are none.
    has_rules: AtomicBool,
    /// Conversations that a provider has accepted in a disputed shape. Their prefix must not change any more. `false` for
    /// those that it has not accepted, or refuses now.
    accepted_shapes: Cache<FactKey, bool, DigestHashBuilder>,
    /// Calls answered by a placeholder although their result is in the body: thinking is bound to the placeholder.
    bound_placeholders: Cache<FactKey, Placeholder, DigestHashBuilder>,
    /// Callers with such a call to which the client has added a result in place since.
    overrides: Cache<Caller, (), DigestHashBuilder>,
    /// Conversations whose bound thinking may be dropped.
    droppable_thinking: Cache<FactKey, (), DigestHashBuilder>,
    /// `true` once one of the three above has an entry. In most processes none ever has.
    has_bound: AtomicBool,
    /// Calls that each remote response left open. A request that continues from it answers them first.
    due_calls: Cache<FactKey, Arc<[String]>, DigestHashBuilder>,
    /// Answered remote calls, with the response that left them open. `None` if that response is not known.
    answered_calls: Cache<FactKey, Option<FactKey>, DigestHashBuilder>,
    /// `true` once one of the two above has an entry.
    has_remote: AtomicBool,
    /// Kinds of values that a provider wants back, by caller, upstream and model.
    wanted_continuity: Cache<FactKey, (), DigestHashBuilder>,
    /// Blocks of thinking that a provider refused as foreign, and accepted the body without.
    refused_thinking: Cache<FactKey, (), DigestHashBuilder>,
    /// Last blocks of thinking of accepted bodies. The thinking up to such a block is accepted, or was removed.
    accepted_thinking: Cache<FactKey, (), DigestHashBuilder>,
    /// `true` once a block was refused.
    has_refused: AtomicBool,
    /// Responses that a provider has lost. It accepted a request without the id.
    dead_responses: Cache<FactKey, (), DigestHashBuilder>,
    /// `true` once a response was lost.
    has_dead: AtomicBool,
    /// Blocks of thinking that were looked for in the ledger, each with the state of the caller's records then.
    looked_up_thinking: Cache<FactKey, OwnerStamp, DigestHashBuilder>,
    /// Callers whose facts were read from the ledger.
    loaded: Cache<Caller, LoadedFacts, DigestHashBuilder>,
    /// `true` once the warning about short-lived credentials was logged.
    has_warned: AtomicBool,
}

impl ProviderFacts {
    /// Creates an empty store.
    pub(super) fn new() -> Self {
        Self {
            rules: new_cache(),
            has_rules: AtomicBool::new(false),
            accepted_shapes: new_cache(),
            bound_placeholders: new_cache(),
            overrides: new_cache(),
            droppable_thinking: new_cache(),
            has_bound: AtomicBool::new(false),
            due_calls: new_cache(),
            answered_calls: new_cache(),
            has_remote: AtomicBool::new(false),
            wanted_continuity: new_cache(),
            refused_thinking: new_cache(),
            accepted_thinking: new_cache(),
            has_refused: AtomicBool::new(false),
            dead_responses: new_cache(),
            has_dead: AtomicBool::new(false),
            looked_up_thinking: new_cache(),
            loaded: Cache::builder()
                .max_capacity(ENTRIES_MAX)
                .time_to_live(LOADED_MAX)
                .build_with_hasher(DigestHashBuilder::new()),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Logs once that records are lost when a short-lived credential expires. Client tokens do not expire.
    pub(super) fn warn_of_short_lived_credential(&self, headers: &HeaderMap) {
        if self.has_warned.load(Ordering::Relaxed) || headers.contains_key(CLIENT_TOKEN) || !is_short_lived(headers) {
            return;
        }
        // Of two requests at once only one logs it.
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "a caller is identified by a short-lived credential: its pinned answers and late results are lost when \
                 the credential expires; send a client token in x-antiphon-client-token to keep them"
            );
        }
    }

    /// Returns `true` if the caller's facts must be read from the ledger, given what is known of its records there.
    pub(super) fn must_load(&self, caller: Caller, records: OwnedRecords, now: Instant) -> bool {
        let loaded = || self.loaded.get(&caller);
        let is_recent = |loaded: LoadedFacts| loaded.stamp.is_none() && now < loaded.at + RELOAD_PAUSE;
        match records {
            OwnedRecords::Nothing => false,
            OwnedRecords::Some(stamp) => !loaded().is_some_and(|at| at.stamp == Some(stamp) || is_recent(at)),
            OwnedRecords::Unknown => !loaded().is_some_and(is_recent),
        }
    }

    /// Stores that the caller's facts were read. `stamp` is their state before. `None` if it was not known, or if the ledger
    /// did not answer.
    pub(super) fn note_loaded(&self, caller: Caller, stamp: Option<OwnerStamp>, now: Instant) {
        self.loaded.insert(caller, LoadedFacts { stamp, at: now });
    }

    /// Stores facts that the provider has just taught. Of two with one name the later counts.
    pub(super) fn learn_facts(&self, caller: Caller, facts: &[NamedFact]) {
        for (name, fact) in facts {
            self.apply_fact(caller, *name, fact, true);
        }
    }

    /// Stores facts from the ledger, the oldest first, unless memory has a later one.
    pub(super) fn adopt_facts(&self, caller: Caller, facts: &[NamedFact]) {
        // The newest first, since the first of two with one name stays.
        for (name, fact) in facts.iter().rev() {
            self.apply_fact(caller, *name, fact, false);
        }
    }

    /// Stores a fact. `is_latest` is `false` if what memory knows is later.
    fn apply_fact(&self, caller: Caller, name: FactKey, fact: &ProviderFact, is_latest: bool) {
        match fact {
            ProviderFact::Rules(rules) => {
                self.has_rules.store(true, Ordering::Relaxed);
                // Atomic: of two successes at once none loses its rule.
                let entry = self.rules.entry(name);
                entry.and_upsert_with(|known| {
                    let known = known.map(moka::Entry::into_value).unwrap_or_default();
                    if is_latest {
                        known.union(*rules)
                    } else {
                        rules.union(known)
                    }
                });
            }
            ProviderFact::BoundPlaceholder(placeholder) => {
                self.has_bound.store(true, Ordering::Relaxed);
                put(&self.bound_placeholders, name, *placeholder, is_latest);
            }
            ProviderFact::HasOverrides => put(&self.overrides, caller, (), false),
            ProviderFact::DroppableThinking => {
                self.has_bound.store(true, Ordering::Relaxed);
                put(&self.droppable_thinking, name, (), false);
            }
            ProviderFact::DueCalls(ids) => {
                self.has_remote.store(true, Ordering::Relaxed);
                put(&self.due_calls, name, ids.as_slice().into(), is_latest);
            }
            ProviderFact::AnsweredCall(origin) => {
                self.has_remote.store(true, Ordering::Relaxed);
                put(&self.answered_calls, name, *origin, is_latest);
            }
            ProviderFact::WantedContinuity => put(&self.wanted_continuity, name, (), false),
            ProviderFact::DeadResponse => {
                self.has_dead.store(true, Ordering::Relaxed);
                put(&self.dead_responses, name, (), false);
            }
            // Response chains use this one.
            ProviderFact::ContinuesById => {}
        }
    }

    /// Returns the rules that refusals have taught this caller at this upstream for `model`, as far as they hold for
    /// the conversation with this first call.
    pub(super) fn learned_rules<'c>(
        &self,
        scope: FactScope<'_>,
        model: Option<&str>,
        first_call: impl FnOnce() -> Option<&'c [u8]>,
    ) -> RulesOfConversation {
        // Without any rule the call need not be searched, nor the key hashed.
        if !self.has_rules.load(Ordering::Relaxed) {
            return RulesOfConversation::default();
        }
        let learned = self.rules.get(&scope.rules_key(model)).unwrap_or_default();
        let mut rules = RulesOfConversation {
            learned,
            forbidden_shapes: Vec::new(),
        };
        let forbidden = DisputedShape::ALL.into_iter().filter(|shape| learned.forbids(*shape));
        let forbidden: Vec<DisputedShape> = forbidden.collect();
        let Some(first_call) = (!forbidden.is_empty()).then(first_call).flatten() else {
            return rules;
        };
        for shape in forbidden {
            let key = scope.shape_key(model, first_call, shape);
            let is_accepted = self.accepted_shapes.get(&key);
            if is_accepted == Some(true) {
                // An edit would change a prefix that the provider has accepted, and may have cached.
                rules.learned = rules.learned.without(shape);
            }
            rules.forbidden_shapes.push((key, is_accepted));
        }
        rules
    }

    /// Stores that the provider has accepted a conversation in a disputed shape, by its [`FactScope::shape_key`]. Returns
    /// `true` if that is new.
    pub(super) fn note_accepted_shape(&self, shape: FactKey) -> bool {
        // Mostly it is known, and a lookup costs a fifth of an insert.
        let is_new = self.accepted_shapes.get(&shape) != Some(true);
        if is_new {
            self.accepted_shapes.insert(shape, true);
        }
        is_new
    }

    /// Stores that the provider has not accepted the conversation in this shape, or refuses it now. Returns `true` if it had
    /// accepted it.
    pub(super) fn note_unaccepted_shape(&self, shape: FactKey) -> bool {
        let was_accepted = self.accepted_shapes.get(&shape) == Some(true);
        self.accepted_shapes.insert(shape, false);
        was_accepted
    }

    /// Returns `true` if the bound thinking of this conversation may be dropped. Calls `key` only if any entry exists.
    pub(super) fn may_drop_thinking(&self, key: impl FnOnce() -> Option<FactKey>) -> bool {
        // The key is a hash over a whole block of thinking.
        self.has_bound.load(Ordering::Relaxed) && key().is_some_and(|key| self.droppable_thinking.get(&key).is_some())
    }

    /// Returns the placeholder of a call to which thinking is bound. It replaces any later result.
    pub(super) fn bound_placeholder(&self, scope: FactScope<'_>, call: CallKey) -> Option<Placeholder> {
        if !self.has_bound.load(Ordering::Relaxed) {
            return None;
        }
        self.bound_placeholders.get(&scope.call_key(call))
    }

    /// Returns `true` if a placeholder overrides a result that this caller's client has added in place since.
    pub(super) fn has_overrides(&self, caller: Caller) -> bool {
        self.has_bound.load(Ordering::Relaxed) && self.overrides.get(&caller).is_some()
    }

    /// Returns `true` if a provider wants a kind of value back, and refused a body without it.
    pub(super) fn wants_continuity(&self, key: FactKey) -> bool {
        self.wanted_continuity.get(&key).is_some()
    }

    /// Returns `true` if any refused block of thinking is known. In most processes none ever is.
    pub(super) fn knows_refused_thinking(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Returns `true` if this block was refused as foreign, so that every body goes without it.
    pub(super) fn is_refused_thinking(&self, block: FactKey) -> bool {
        self.knows_refused_thinking() && self.refused_thinking.get(&block).is_some()
    }

    /// Stores that the provider accepted a body without this block, which it had refused. `true` if that is new.
    pub(super) fn learn_refused_thinking(&self, block: FactKey) -> bool {
        self.has_refused.store(true, Ordering::Relaxed);
        self.refused_thinking.entry(block).or_insert(()).is_fresh()
    }

    /// Returns `true` if an accepted body had this block as its last thinking.
    pub(super) fn is_accepted_thinking(&self, block: FactKey) -> bool {
        self.accepted_thinking.get(&block).is_some()
    }

    /// Stores that the provider accepted a body with this block as its last thinking. `true` if that is new.
    pub(super) fn learn_accepted_thinking(&self, block: FactKey) -> bool {
        // Most blocks are known, and a lookup costs a fifth of an insert.
        !self.is_accepted_thinking(block) && self.accepted_thinking.entry(block).or_insert(()).is_fresh()
    }

    /// Returns `true` if any lost response is known. In most processes none ever is.
    pub(super) fn knows_dead_responses(&self) -> bool {
        self.has_dead.load(Ordering::Relaxed)
    }

    /// Returns `true` if the provider has lost this response, so that bodies with all of its items go without the id.
    pub(super) fn is_dead_response(&self, response: FactKey) -> bool {
        self.knows_dead_responses() && self.dead_responses.get(&response).is_some()
    }

    /// Returns `true` if the ledger was asked for this block in this state of the caller's records, or cannot know more than
    /// memory.
    pub(super) fn is_looked_up(&self, block: FactKey, stamp: OwnerStamp) -> bool {
        self.looked_up_thinking.get(&block) == Some(stamp) || self.refused_thinking.get(&block).is_some()
    }

    /// Stores that the ledger was asked for this block in this state of the caller's records.
    pub(super) fn note_looked_up(&self, block: FactKey, stamp: OwnerStamp) {
        self.looked_up_thinking.insert(block, stamp);
    }

    /// Returns `true` if any remote call is known.
    pub(super) fn knows_remote_calls(&self) -> bool {
        self.has_remote.load(Ordering::Relaxed)
    }

    /// Returns the ids of the calls that a request which continues from `origin` answers first.
    pub(super) fn due_calls(&self, origin: FactKey) -> Vec<String> {
        self.due_calls.get(&origin).map(|ids| ids.to_vec()).unwrap_or_default()
    }

    /// Returns `true` if a remote call has its answer, for a request that continues from `origin`.
    ///
    /// A request that continues from the response which left the call open starts a branch, and must answer it again.
    pub(super) fn is_answered(&self, call: FactKey, origin: Option<FactKey>) -> bool {
        let known = self.answered_calls.get(&call);
        known.is_some_and(|open| open.is_none() || open != origin)
    }
}

/// Facts of a caller that were read from the ledger.
#[derive(Clone, Copy, Debug)]
struct LoadedFacts {
    /// State of the caller's records before the read. `None` if it was not known, or if the ledger did not answer.
    stamp: Option<OwnerStamp>,
    /// Time of the read.
    at: Instant,
}

/// Rules that hold for one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RulesOfConversation {
    /// The rules.
    pub(super) learned: LearnedRules,
    /// The conversation in each shape that a rule forbids, with `true` if the provider has accepted it all the same. `None`
    /// if that is not known.
    pub(super) forbidden_shapes: Vec<(FactKey, Option<bool>)>,
}

/// Stores a value, unless the cache has one and it is the later one.
fn put<K, V>(cache: &Cache<K, V, DigestHashBuilder>, key: K, value: V, is_latest: bool)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    if is_latest || !cache.contains_key(&key) {
        cache.insert(key, value);
    }
}

/// Remote calls that were answered with placeholders.
#[derive(Clone, Debug)]
pub(super) struct AnsweredRemoteCalls {
    /// Response that left them open. `None` if the body names none.
    pub(super) origin: Option<FactKey>,
    /// Id of each call, with its key. The key is `None` if another call may have the same id.
    pub(super) calls: Vec<(Option<FactKey>, String)>,
}

impl AnsweredRemoteCalls {
    /// Returns the facts that their acceptance has proven.
    pub(super) fn into_facts(self) -> Vec<NamedFact> {
        let Self { origin, calls } = self;
        let (names, ids): (Vec<Option<FactKey>>, Vec<String>) = calls.into_iter().unzip();
        let answered = |name| (name, ProviderFact::AnsweredCall(origin));
        let mut facts: Vec<NamedFact> = names.into_iter().flatten().map(answered).collect();
        // A longer list is not worth its memory: the next refusal names the calls again.
        if let Some(origin) = origin.filter(|_| ids.len() <= DUE_MAX) {
            facts.push((origin, ProviderFact::DueCalls(ids)));
        }
        facts
    }
}

/// Creates an empty cache with the limits of this module.
fn new_cache<K, V>() -> Cache<K, V, DigestHashBuilder>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(ENTRIES_MAX)
        .time_to_idle(IDLE_MAX)
        .build_with_hasher(DigestHashBuilder::new())
}

/// Owner of a fact: one caller at one upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactScope<'r> {
    pub(super) upstream: &'r str,
    pub(super) caller: Caller,
}

impl FactScope<'_> {
    fn fact_key(self, parts: &[&[u8]]) -> FactKey {
        // Part of every key, so that no lookup can find a fact of another caller or upstream.
        let principal = self.caller.principal();
        let whose: [&[u8]; 2] = [self.upstream.as_bytes(), principal.as_bytes()];
        digest_of(whose.into_iter().chain(parts.iter().copied()))
    }

    /// Returns the key of the rules for a model.
    pub(super) fn rules_key(self, model: Option<&str>) -> FactKey {
        self.fact_key(&[b"rules", model.unwrap_or_default().as_bytes()])
    }

    /// Returns the key of a conversation in a disputed shape: its first call and the model.
    pub(super) fn shape_key(self, model: Option<&str>, first_call: &[u8], shape: DisputedShape) -> FactKey {
        let (model, shape) = (model.unwrap_or_default().as_bytes(), shape.label().as_bytes());
        self.fact_key(&[b"shape", model, first_call, shape])
    }

    /// Returns the key of the fact that placeholders override results of the caller.
    pub(super) fn overrides_key(self) -> FactKey {
        self.fact_key(&[b"overrides"])
    }

    /// Returns the key of a remote response.
    pub(super) fn origin_key(self, id: &[u8]) -> FactKey {
        self.fact_key(&[b"origin", id])
    }

    /// Returns the key of a response that the provider has lost.
    pub(super) fn dead_response_key(self, id: &str) -> FactKey {
        self.fact_key(&[b"dead_response", id.as_bytes()])
    }

    /// Returns the key of a remote call.
    pub(super) fn remote_call_key(self, id: &[u8]) -> FactKey {
        self.fact_key(&[b"held", id])
    }

    /// Returns the key of a call in a body.
    pub(super) fn call_key(self, call: CallKey) -> FactKey {
        self.fact_key(&[b"call", call.as_bytes()])
    }

    /// Returns the key of a kind of value that a model's answers carry.
    pub(super) fn continuity_key(self, kind: &str, model: &str) -> FactKey {
        self.fact_key(&[b"continuity", kind.as_bytes(), model.as_bytes()])
    }

    /// Returns the key of a block of thinking.
    pub(super) fn thinking_key(self, block: ThinkingHash) -> FactKey {
        self.fact_key(&[b"thinking", &block])
    }

    /// Returns the key of a conversation: its first block of thinking, which all of its requests contain.
    pub(super) fn conversation_key(self, first_thinking: &[u8]) -> FactKey {
        self.fact_key(&[b"conversation", first_thinking])
    }
}
