//! Facts learned from providers' answers, in memory: about rules, calls, bound thinking, values and lost responses.
//!
//! Their number is bounded, and each read renews the lifetime of its fact. A fact learned from one caller's accepted
//! resends is never used for another's requests. A forgotten fact costs one more send, never a wrong answer. The ledger has
//! them for other processes, whose facts are adopted here.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use tokio::time::Instant;

use super::{fact_scope::FactScope, headers::CLIENT_TOKEN, mend_limits::MendLimits};
use crate::{
    auth::{Caller, principal::is_short_lived},
    digest_cache::{DigestCache, DigestKey, EntryChange, Lifetime},
    ledger::{RecordState, RecordsStamp},
    mend::{BlockHash, Mend},
    recall::{FactKey, KeyedFact, LearnedFact, RecallStore, ShapeVerdict, TaughtMemory},
    repair::{CallKey, DisputedShape, LearnedRules, Placeholder},
};

/// Maximum entries of each cache, of 32 bytes and a little more each.
const ENTRIES_MAX: u64 = 20_000;
/// Time after which an unused entry is forgotten: 24 hours.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time after which a caller's facts are read from the ledger again. Memory may have forgotten some.
const READ_AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Time within which a fact is written to the ledger, unless the ledger fails.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// Time between two reads of a caller's facts while it is not known if there are new ones.
const REREAD_PAUSE: Duration = Duration::from_secs(1);

/// Facts learned from providers' answers.
#[derive(Debug)]
pub(super) struct FactMemory {
    /// Rules that refusals have taught, by caller, server and model.
    rules: DigestCache<FactKey, LearnedRules>,
    /// `true` once there are such rules. In most processes there are none.
    has_rules: AtomicBool,
    /// Mends that refusals have taught, and blocks that servers refuse.
    pub(super) taught: TaughtMemory,
    /// The limits of mends.
    pub(super) mend_limits: MendLimits,
    /// Calls answered by a placeholder although their result is in the body: thinking is bound to the placeholder.
    bound_placeholders: DigestCache<FactKey, Placeholder>,
    /// Callers with such a call to which the client has added a result in place since.
    overrides: DigestCache<Caller, ()>,
    /// Conversations whose bound thinking may be dropped.
    droppable_thinking: DigestCache<FactKey, ()>,
    /// `true` once one of the three above has an entry. In most processes none ever has.
    has_bound: AtomicBool,
    /// Calls that each remote response left open. A request that continues from it answers them first.
    due_calls: DigestCache<FactKey, Arc<[String]>>,
    /// Answered remote calls, with the response that left them open. `None` if that response is not known.
    answered_calls: DigestCache<FactKey, Option<FactKey>>,
    /// `true` once one of the two above has an entry.
    has_remote: AtomicBool,
    /// Kinds of values that a provider wants back, by caller, server and model.
    wanted_continuity: DigestCache<FactKey, ()>,
    /// Responses that a provider has lost. It accepted a request without the id.
    dead_responses: DigestCache<FactKey, ()>,
    /// `true` once a response was lost.
    has_dead: AtomicBool,
    /// Facts that this process has learned a moment ago. The ledger may lack them still.
    just_learned: DigestCache<FactKey, LearnedFact>,
    /// Last read of each caller's facts in the ledger.
    last_reads: DigestCache<Caller, LastRead>,
    /// `true` once the warning about short-lived credentials was logged.
    has_warned: AtomicBool,
}

impl FactMemory {
    /// Creates an empty store beside what servers have taught.
    pub(super) fn new(taught: TaughtMemory) -> Self {
        Self {
            rules: new_cache(),
            has_rules: AtomicBool::new(false),
            taught,
            mend_limits: MendLimits::new(),
            bound_placeholders: new_cache(),
            overrides: new_cache(),
            droppable_thinking: new_cache(),
            has_bound: AtomicBool::new(false),
            due_calls: new_cache(),
            answered_calls: new_cache(),
            has_remote: AtomicBool::new(false),
            wanted_continuity: new_cache(),
            dead_responses: new_cache(),
            has_dead: AtomicBool::new(false),
            just_learned: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(WRITE_TIME_MAX)),
            last_reads: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(READ_AGE_MAX)),
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

    /// Returns `true` if the caller's facts must be read from the ledger, given the state of its records there.
    pub(super) fn must_read(&self, caller: Caller, state: RecordState, now: Instant) -> bool {
        let last = || self.last_reads.get(&caller);
        let is_recent = |last: &LastRead| last.stamp.is_none() && now < last.at + REREAD_PAUSE;
        match state {
            RecordState::Absent => false,
            RecordState::Present(stamp) => !last().is_some_and(|last| last.stamp == Some(stamp) || is_recent(&last)),
            RecordState::Unknown => !last().is_some_and(|last| is_recent(&last)),
        }
    }

    /// Stores that the caller's facts were read. `stamp` is the state of its records before. `None` if that was not known,
    /// or if the ledger did not answer.
    pub(super) fn note_read(&self, caller: Caller, stamp: Option<RecordsStamp>, now: Instant) {
        self.last_reads.insert(&caller, LastRead { stamp, at: now });
    }

    /// Stores facts that the provider has just taught.
    pub(super) fn learn_facts(&self, caller: Caller, facts: &[KeyedFact]) {
        for (key, fact) in facts {
            self.just_learned.insert(key, fact.clone());
            self.apply_fact(caller, *key, fact);
        }
    }

    /// Stores facts from the ledger, in the order of their inserts, which is the same for every process.
    pub(super) fn adopt_facts(&self, caller: Caller, facts: &[KeyedFact]) {
        let stored: HashSet<&KeyedFact> = facts.iter().collect();
        for (key, fact) in facts {
            // What this process has just learned is later, unless the ledger has it already.
            let own = self.just_learned.get(key).map(|own| (*key, own));
            if own.is_none_or(|own| stored.contains(&own)) {
                self.apply_fact(caller, *key, fact);
            }
        }
    }

    /// Stores a fact. It replaces another one with its key.
    fn apply_fact(&self, caller: Caller, key: FactKey, fact: &LearnedFact) {
        match fact {
            LearnedFact::Rules(rules) => {
                self.has_rules.store(true, Ordering::Relaxed);
                // Atomic: of two successes at once none loses its rule.
                self.rules.change(&key, |known| {
                    EntryChange::Put(known.map_or(*rules, |known| known.union(*rules)))
                });
            }
            LearnedFact::RulesRetracted => drop(self.rules.remove(&key)),
            LearnedFact::BoundPlaceholder(placeholder) => {
                self.has_bound.store(true, Ordering::Relaxed);
                self.bound_placeholders.insert(&key, *placeholder);
            }
            LearnedFact::HasOverrides => {
                self.has_bound.store(true, Ordering::Relaxed);
                self.overrides.insert(&caller, ());
            }
            LearnedFact::DroppableThinking => {
                self.has_bound.store(true, Ordering::Relaxed);
                self.droppable_thinking.insert(&key, ());
            }
            LearnedFact::DueCalls(ids) => {
                self.has_remote.store(true, Ordering::Relaxed);
                self.due_calls.insert(&key, ids.as_slice().into());
            }
            LearnedFact::AnsweredCall(origin) => {
                self.has_remote.store(true, Ordering::Relaxed);
                self.answered_calls.insert(&key, *origin);
            }
            LearnedFact::WantedContinuity => self.wanted_continuity.insert(&key, ()),
            LearnedFact::DeadResponse => {
                self.has_dead.store(true, Ordering::Relaxed);
                self.dead_responses.insert(&key, ());
            }
            LearnedFact::Taught(mends) => self.taught.teach(key, mends),
            LearnedFact::RefusedBlock => self.taught.refuse_block(key),
            // `load_facts` passes it to the response chains.
            LearnedFact::ContinuesById => {}
        }
    }

    /// Returns the rules that refusals have taught this caller at this upstream for `model`, as far as they hold for
    /// the conversation with this first call.
    pub(super) fn learned_rules<'c>(
        &self,
        recall: &RecallStore,
        scope: FactScope,
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
            let verdict = recall.shape_verdict(scope.caller, key);
            if verdict == Some(ShapeVerdict::Accepted) {
                // An edit would change a prefix that the provider has accepted, and may have cached.
                rules.learned = rules.learned.without(shape);
            }
            rules.forbidden_shapes.push(ForbiddenShape { key, verdict });
        }
        rules
    }

    /// Returns the mends that refusals have taught this caller at this server for a model.
    pub(super) fn taught_mends(&self, scope: FactScope, model: Option<&str>) -> Vec<Mend> {
        self.taught.mends(|| scope.taught_key(model))
    }

    /// Returns `true` if the server refuses a block of this caller.
    pub(super) fn is_refused_block(&self, scope: FactScope, block: &BlockHash) -> bool {
        self.taught.is_refused(scope.block_key(block))
    }

    /// Returns `true` if the bound thinking of this conversation may be dropped. Calls `key` only if any entry exists.
    pub(super) fn may_drop_thinking(&self, key: impl FnOnce() -> Option<FactKey>) -> bool {
        // The key is a hash over a whole block of thinking.
        self.has_bound.load(Ordering::Relaxed) && key().is_some_and(|key| self.droppable_thinking.get(&key).is_some())
    }

    /// Returns the placeholder of a call to which thinking is bound. It replaces any later result.
    pub(super) fn bound_placeholder(&self, scope: FactScope, call: CallKey) -> Option<Placeholder> {
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

    /// Returns `true` if any lost response is known. In most processes none ever is.
    pub(super) fn knows_dead_responses(&self) -> bool {
        self.has_dead.load(Ordering::Relaxed)
    }

    /// Returns `true` if the provider has lost this response, so that bodies with all of its items go without the id.
    pub(super) fn is_dead_response(&self, response: FactKey) -> bool {
        self.knows_dead_responses() && self.dead_responses.get(&response).is_some()
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

/// Last read of a caller's facts in the ledger.
#[derive(Clone, Copy, Debug)]
struct LastRead {
    /// State of the caller's records before it. `None` if that was not known, or if the ledger did not answer.
    stamp: Option<RecordsStamp>,
    at: Instant,
}

/// A conversation in a shape that a rule forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForbiddenShape {
    /// Its key.
    pub(super) key: FactKey,
    /// The verdict in memory. `None` if there is none.
    pub(super) verdict: Option<ShapeVerdict>,
}

/// Rules that hold for one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RulesOfConversation {
    /// The rules.
    pub(super) learned: LearnedRules,
    /// The conversation in each shape that a rule forbids.
    pub(super) forbidden_shapes: Vec<ForbiddenShape>,
}

/// Creates an empty cache with the limits of this module.
fn new_cache<K: DigestKey, V: Clone + Send + Sync + 'static>() -> DigestCache<K, V> {
    DigestCache::new(ENTRIES_MAX, Lifetime::SinceUse(IDLE_MAX))
}
