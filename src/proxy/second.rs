//! The provider has the last word: a 400 about pairing is read, what it names is mended, and the request goes up once
//! more, on the same credential.
//!
//! Never in strict or observe, never for a signed body, never behind the first byte of an answer.

use std::cell::RefCell;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::memory::{Key, Memory, Principal, Recalled, Turned};
use crate::{
    auth,
    repair::{Placeholder, RepairPolicy, Repaired, Report, repair_with, second, unbound},
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
    /// The body as it came, decoded.
    plain: Bytes,
    wire: Wire,
    /// The body as it was sent last.
    sent: Segments,
    upstream: String,
    caller: auth::Principal,
    /// Whether the ids of a refusal were followed already.
    followed: bool,
    /// How far bound thinking was dealt with.
    binding: Binding,
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
    /// What holds from now on if the provider takes it.
    pub(super) lesson: Lesson,
}

/// What an accepted send teaches.
#[derive(Debug)]
pub(super) enum Lesson {
    Nothing,
    Turned(Vec<(Key, Placeholder)>),
    Unbound(Key),
}

impl Lesson {
    /// Keeps it.
    pub(super) fn learn(self, memory: &Memory) {
        match self {
            Self::Nothing => {}
            Self::Turned(calls) => memory.learn_turned(calls),
            Self::Unbound(key) => memory.learn_unbound(key),
        }
    }
}

impl Again {
    /// Keeps what went up as `sent`, made of `plain` for `principal`.
    pub(super) fn new(plain: Bytes, sent: Segments, wire: Wire, principal: Principal<'_>) -> Self {
        Self {
            plain,
            wire,
            sent,
            upstream: principal.upstream.to_owned(),
            caller: principal.caller,
            followed: false,
            binding: Binding::Untouched,
        }
    }

    /// What to send after `refusal`; none where the provider's word is final. `sends` is how often we have sent.
    pub(super) fn next(
        &mut self,
        refusal: &Refusal,
        memory: &Memory,
        policy: &RepairPolicy,
        on_binding_error: OnBindingError,
        sends: u32,
    ) -> Option<Next> {
        let bound = matches!(refusal.kind, RefusalKind::Bound { .. });
        if sends >= SENDS_MAX || (!bound && (self.followed || self.binding > Binding::Untouched)) {
            return None;
        }
        if !bound {
            self.followed = true;
            let answers = self.recalled(memory);
            let repaired = second(&self.plain, &self.sent, self.wire, policy, &answers, refusal)?;
            return Some(self.again(repaired, "pairing", Lesson::Nothing));
        }
        if self.binding < Binding::TurnedRound {
            self.binding = Binding::TurnedRound;
            if let Some(next) = self.turned(memory, policy) {
                return Some(next);
            }
        }
        if self.binding < Binding::Dropped && on_binding_error == OnBindingError::DropBlock {
            self.binding = Binding::Dropped;
            return self.dropped(memory, policy);
        }
        None
    }

    fn principal(&self) -> Principal<'_> {
        Principal {
            upstream: &self.upstream,
            caller: self.caller,
        }
    }

    fn recalled<'m>(&'m self, memory: &'m Memory) -> Recalled<'m> {
        let principal = self.principal();
        Recalled { memory, principal }
    }

    /// The answers turned round: what was moved in front of thinking that never saw it is quoted where it stands.
    fn turned(&mut self, memory: &Memory, policy: &RepairPolicy) -> Option<Next> {
        let answers = Turned {
            recalled: self.recalled(memory),
            policy,
            calls: RefCell::default(),
        };
        let repaired = repair_with(&self.plain, self.wire, policy, &answers).ok()?;
        let calls = answers.calls.into_inner();
        (!calls.is_empty()).then(|| self.again(repaired, "binding", Lesson::Turned(calls)))
    }

    /// The documented setting, on what was made of the body first.
    fn dropped(&mut self, memory: &Memory, policy: &RepairPolicy) -> Option<Next> {
        let answers = self.recalled(memory);
        let repaired = unbound(&self.plain, self.wire, policy, &answers)?;
        let key = conversation_key(self.principal(), &self.plain, self.wire);
        let lesson = key.map_or(Lesson::Nothing, Lesson::Unbound);
        let next = self.again(repaired, "binding", lesson);
        Some(Next {
            asks_for_binding_controls: true,
            ..next
        })
    }

    fn again(&mut self, repaired: Repaired, why: &'static str, lesson: Lesson) -> Next {
        let Repaired { body, report, .. } = repaired;
        self.sent = body.clone();
        Next {
            body,
            asks_for_binding_controls: false,
            report,
            why,
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
