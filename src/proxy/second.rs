//! The provider has the last word: a 400 about pairing is read, what it names is mended, and the request goes up once
//! more, on the same credential.
//!
//! Never in strict or observe, never for a signed body, never behind the first byte of an answer.

use std::cell::RefCell;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::{
    late,
    memory::{HeldCalls, Key, Memory, Principal},
    recalled::{Known, Notes, Recalled},
    turned::Turned,
};
use crate::{
    auth,
    ledger::ROWS_MAX,
    recall::{Appended, Recall},
    repair::{
        Anchor, CallKey, CallView, Frozen, InBody, Placeholder, RepairPolicy, Repaired, Report, repair_with, second,
        unbound, views,
    },
    splice::{Segments, Span},
    wire::{Refusal, RefusalKind, Wire},
};

/// Sends of one request in all, where thinking is bound.
const SENDS_MAX: u32 = 3;
/// The header with which Anthropic's betas are asked for.
const BETA: &str = "anthropic-beta";
/// What the setting of bound thinking needs (Preserved thinking, 2026-11).
const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// What to do about thinking that the provider has bound to another prefix, where nothing else helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBindingError {
    /// Ask the provider to drop it.
    #[default]
    DropBlock,
    /// Hand the provider's 400 to the client.
    Surface,
}

/// What is needed to send a request again: kept until the head of its answer is there.
#[derive(Debug)]
pub(super) struct Again {
    /// The body that is mended: as it came, decoded, or with what the client says at its end.
    plain: Bytes,
    /// The body as it came, decoded.
    came: Bytes,
    /// Whether its last message ends with late results already.
    ends_with_late: bool,
    /// Whether a placeholder may go back where the client has put a result since.
    overrules: bool,
    wire: Wire,
    /// The body as it was sent last.
    sent: Segments,
    upstream: String,
    caller: auth::Principal,
    /// What was looked up of its calls.
    known: Known,
    /// Whether the ids of a refusal were followed already.
    followed: bool,
    /// How far bound thinking was dealt with.
    binding: Binding,
}

/// A body that went up.
#[derive(Debug)]
pub(super) struct Kept {
    /// As it came, decoded, with late results at the end of messages.
    pub(super) plain: Bytes,
    /// Whether the last message has some.
    pub(super) ends_with_late: bool,
    /// As it was sent.
    pub(super) sent: Segments,
    /// What was known of its calls.
    pub(super) known: Known,
}

/// How far bound thinking was dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Untouched,
    TurnedRound,
    Dropped,
}

/// One more send.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) body: Segments,
    /// Whether the body asks for a setting of bound thinking, which needs a header.
    pub(super) asks_for_binding_controls: bool,
    /// What was found and done.
    pub(super) report: Report,
    /// The label of the counter.
    pub(super) why: &'static str,
    /// What became of its calls.
    pub(super) notes: Notes,
    /// What was put at the end of a message, and where.
    pub(super) late: Option<(Anchor, Appended)>,
    /// What holds from now on if the provider takes it.
    pub(super) lesson: Lesson,
}

/// What an accepted send teaches.
#[derive(Debug)]
pub(super) enum Lesson {
    Nothing,
    Turned {
        calls: Vec<(Key, Placeholder)>,
        /// Whether some of them stand where the client has put a result since.
        overrules: bool,
    },
    Unbound(Key),
    /// Calls that the provider holds were answered.
    Held(HeldCalls),
}

/// A body with its answers turned round.
struct TurnedRound {
    repaired: Repaired,
    calls: Vec<(CallKey, Placeholder)>,
    /// Calls whose placeholder goes back where the client has put a result since.
    overruled: Vec<(CallKey, Placeholder)>,
    notes: Notes,
}

/// Where what is known stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minds<'m> {
    pub(super) memory: &'m Memory,
    pub(super) recall: &'m Recall,
    pub(super) policy: &'m RepairPolicy,
}

impl Lesson {
    /// Keeps it.
    pub(super) fn learn(self, memory: &Memory, caller: auth::Principal) {
        match self {
            Self::Nothing => {}
            Self::Turned { calls, overrules } => {
                memory.learn_turned(calls);
                if overrules {
                    memory.learn_overruled(caller);
                }
            }
            Self::Unbound(key) => memory.learn_unbound(key),
            Self::Held(held) => memory.learn_held(held),
        }
    }
}

impl Again {
    /// Keeps what went up for `principal`.
    pub(super) fn new(kept: Kept, wire: Wire, principal: Principal<'_>) -> Self {
        Self {
            came: kept.plain.clone(),
            plain: kept.plain,
            ends_with_late: kept.ends_with_late,
            overrules: true,
            wire,
            sent: kept.sent,
            upstream: principal.upstream.to_owned(),
            caller: principal.caller,
            known: kept.known,
            followed: false,
            binding: Binding::Untouched,
        }
    }

    /// What to send after `refusal`; none where the provider's word is final. `sends` is how often we have sent.
    pub(super) fn next(
        &mut self,
        refusal: &Refusal,
        minds: Minds<'_>,
        on_binding_error: OnBindingError,
        sends: u32,
    ) -> Option<Next> {
        let bound = matches!(refusal.kind, RefusalKind::Bound { .. });
        if sends >= SENDS_MAX || (!bound && (self.followed || self.binding > Binding::Untouched)) {
            return None;
        }
        if !bound {
            self.followed = true;
            let answers = self.recalled(minds);
            let repaired = second(&self.plain, &self.sent, self.wire, minds.policy, &answers, refusal)?;
            // Of what goes up as it came, nothing was answered.
            let mut notes = if repaired.body.is_original() {
                Notes::default()
            } else {
                answers.notes.into_inner()
            };
            let lesson = notes.held.take().map_or(Lesson::Nothing, Lesson::Held);
            return Some(self.again(repaired, "pairing", notes, lesson));
        }
        if self.binding < Binding::TurnedRound {
            self.binding = Binding::TurnedRound;
            if let Some(next) = self.turned(minds) {
                return Some(next);
            }
        }
        if self.binding < Binding::Dropped && on_binding_error == OnBindingError::DropBlock {
            self.binding = Binding::Dropped;
            return self.dropped(minds);
        }
        None
    }

    /// From now on every result stays where the client has put it.
    pub(super) fn overrules_nothing(&mut self) {
        (self.overrules, self.binding) = (false, Binding::Untouched);
        self.plain = self.came.clone();
    }

    /// The calls of the body that have a result in their place, where it matters what they were given before.
    pub(super) fn answered_calls(&self, policy: &RepairPolicy) -> Vec<CallKey> {
        if self.binding > Binding::Untouched {
            return Vec::new();
        }
        let home = |view: &CallView| matches!(view.answer, InBody::AtHome { .. });
        let views = views(&self.plain, self.wire, policy).calls;
        views
            .iter()
            .filter(|view| home(view))
            .map(|view| view.key)
            .rev()
            .take(ROWS_MAX)
            .collect()
    }

    fn principal(&self) -> Principal<'_> {
        Principal {
            upstream: &self.upstream,
            caller: self.caller,
        }
    }

    fn recalled<'m>(&'m self, minds: Minds<'m>) -> Recalled<'m> {
        Recalled::new(
            minds.memory,
            minds.recall,
            self.principal(),
            self.wire.format,
            &self.known,
        )
    }

    /// The answers turned round: what was moved in front of thinking that never saw it is quoted where it stands; where the
    /// client itself has filled a gap since, the placeholder goes back, and its result to the end of the user's words.
    fn turned(&mut self, minds: Minds<'_>) -> Option<Next> {
        let overruled = self.turned_with(minds, self.overrules)?;
        if overruled.overruled.is_empty() {
            return self.turn(overruled);
        }
        // Behind late results the place would have another name than without them.
        let free = !self.ends_with_late;
        let late = free.then(|| late::at_the_end(&self.plain, self.wire, minds.policy, &overruled.overruled));
        let Some(late) = late.flatten() else {
            // Nowhere to put what the client says: then it stays where it is.
            let turned = self.turned_with(minds, false)?;
            return self.turn(turned);
        };
        self.plain = late.body;
        let turned = self.turned_with(minds, true)?;
        let next = self.turn(turned)?;
        Some(Next {
            late: Some((late.anchor, late.appended)),
            ..next
        })
    }

    fn turned_with(&self, minds: Minds<'_>, overrules: bool) -> Option<TurnedRound> {
        let answers = Turned {
            recalled: self.recalled(minds),
            policy: minds.policy,
            calls: RefCell::default(),
            overrules,
            overruled: RefCell::default(),
        };
        let repaired = repair_with(&self.plain, self.wire, minds.policy, &answers).ok()?;
        Some(TurnedRound {
            repaired,
            calls: answers.calls.into_inner(),
            overruled: answers.overruled.into_inner(),
            notes: answers.recalled.notes.into_inner(),
        })
    }

    fn turn(&mut self, turned: TurnedRound) -> Option<Next> {
        let TurnedRound {
            repaired,
            calls,
            overruled,
            mut notes,
        } = turned;
        if calls.is_empty() && overruled.is_empty() {
            return None;
        }
        let frozen = |(call, placeholder): &(CallKey, Placeholder)| (*call, Frozen::Placeholder(*placeholder));
        notes.given.extend(calls.iter().map(frozen));
        let overrules = !overruled.is_empty();
        let named = calls
            .iter()
            .chain(&overruled)
            .map(|(call, placeholder)| (self.principal().call(*call), *placeholder));
        let calls = named.collect();
        Some(self.again(repaired, "binding", notes, Lesson::Turned { calls, overrules }))
    }

    /// The documented setting, on what was made of the body first.
    fn dropped(&mut self, minds: Minds<'_>) -> Option<Next> {
        // What was put at its end for the send that was refused was in place of what stands there now.
        self.plain = self.came.clone();
        let answers = self.recalled(minds);
        let repaired = unbound(&self.plain, self.wire, minds.policy, &answers)?;
        let notes = answers.notes.into_inner();
        let key = conversation_key(self.principal(), &self.plain, self.wire);
        let lesson = key.map_or(Lesson::Nothing, Lesson::Unbound);
        let next = self.again(repaired, "binding", notes, lesson);
        Some(Next {
            asks_for_binding_controls: true,
            ..next
        })
    }

    fn again(&mut self, repaired: Repaired, why: &'static str, notes: Notes, lesson: Lesson) -> Next {
        let Repaired { body, report, .. } = repaired;
        self.sent = body.clone();
        Next {
            body,
            asks_for_binding_controls: false,
            report,
            why,
            notes,
            late: None,
            lesson,
        }
    }
}

/// Asks for the beta that knows the setting of bound thinking.
pub(super) fn ask_for_binding_controls(headers: &mut HeaderMap) {
    let asks = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(BINDING_BETA));
    if !headers.get_all(BETA).iter().any(asks) {
        headers.append(BETA, HeaderValue::from_static(BINDING_BETA));
    }
}

/// The name of a conversation with bound thinking: its first block of thinking, which it carries in every request.
pub(super) fn conversation_key(principal: Principal<'_>, plain: &[u8], wire: Wire) -> Option<Key> {
    let conversation = wire.read(plain).ok()?;
    let first: Span = conversation.first_thinking()?;
    Some(principal.key(&[b"conversation", first.of(plain)]))
}
