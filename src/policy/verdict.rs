//! `Verdict`: the class of one attempt, its stable name, and how far it reaches.

use super::class::{Class, CooldownReason, RotationLimit};

/// The class of an outcome, with its stable name and its reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// The stable name: the class's own, or a more specific one.
    pub code: &'static str,
    /// The extent of its consequences.
    pub scope: VerdictScope,
    /// The provider's statement about the credential; `None` if the answer is about something else.
    pub evidence: Option<KeyEvidence>,
}

/// The part of an answer that says something about the credential. Never text of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEvidence {
    /// The HTTP status, or the status of an error in a stream.
    pub status: u16,
    /// The known type or code, or the kind of statement.
    pub statement: &'static str,
}

/// The extent of a verdict's consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictScope {
    /// All consequences of the class.
    Class,
    /// Like `Class`, but the evidence is a text: the exchange moves to another profile at most once.
    Text,
    /// Like `Class`, but the error does not name the limit: only a wait in a header counts, up to a minute.
    UnnamedLimit,
    /// Only the exchange: it moves to another profile at most once, and no profile's state changes.
    Exchange,
    /// Nothing: the client gets the answer, since every profile would get the same one.
    Nothing,
    /// Only the client: its own timeout was too short, or a text that it may have written says that its request is wrong.
    /// Neither proves anything about a profile or an endpoint.
    Client,
}

impl Verdict {
    /// Creates a verdict under the class's own name.
    pub const fn from_class(class: Class) -> Self {
        Self::with_code(class, class.label())
    }

    /// Creates a verdict under a more specific name.
    pub const fn with_code(class: Class, code: &'static str) -> Self {
        Self {
            class,
            code,
            scope: VerdictScope::Class,
            evidence: None,
        }
    }

    /// Returns the same verdict with another reach.
    #[must_use]
    pub const fn with_scope(self, reach: VerdictScope) -> Self {
        Self { scope: reach, ..self }
    }

    /// Returns the same verdict for an error after the first output of an answer.
    ///
    /// Its text cannot be compared with the request any more. It may be an echo, so it costs no profile anything.
    #[must_use]
    pub const fn after_output(self) -> Self {
        match self.scope {
            VerdictScope::Text => self.with_scope(VerdictScope::Exchange),
            _ => self,
        }
    }

    /// Returns the same verdict with the evidence for it.
    #[must_use]
    pub const fn with_evidence(self, evidence: KeyEvidence) -> Self {
        Self {
            evidence: Some(evidence),
            ..self
        }
    }

    /// Returns the reason of the profile's cooldown; `None` if the verdict costs the profile nothing.
    pub const fn cooldown_reason(&self) -> Option<CooldownReason> {
        match self.scope {
            VerdictScope::Class | VerdictScope::Text | VerdictScope::UnnamedLimit => self.class.cooldown_reason(),
            VerdictScope::Exchange | VerdictScope::Nothing | VerdictScope::Client => None,
        }
    }

    /// Returns the permission to try another profile.
    pub const fn rotation_limit(&self) -> RotationLimit {
        match (self.class.rotation_limit(), self.scope) {
            (_, VerdictScope::Nothing) => RotationLimit::Never,
            // Weak evidence could otherwise send one request through the whole pool.
            (RotationLimit::Freely, VerdictScope::Text | VerdictScope::Exchange | VerdictScope::Client) => {
                RotationLimit::Once
            }
            (rotate, _) => rotate,
        }
    }

    /// Returns the number of half failures for the endpoint; `None` if the verdict proves nothing about it.
    pub const fn endpoint_half_failures(&self) -> Option<u32> {
        match self.scope {
            VerdictScope::Client => None,
            _ => self.class.endpoint_half_failures(),
        }
    }
}
