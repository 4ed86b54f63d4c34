//! `Verdict`: the class of one attempt, its stable name, and how far it reaches.

use super::class::{Class, Reason, Rotate, Side};

/// The class of an outcome, with its stable name and its reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// The stable name: the class's own, or a more specific one.
    pub code: &'static str,
    /// The extent of its consequences.
    pub reach: Reach,
}

/// The extent of a verdict's consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All consequences of the class.
    Class,
    /// Like `Class`, but the evidence is a text: the exchange moves to another profile at most once.
    Text,
    /// Only the exchange: it moves to another profile at most once, and no profile's state changes.
    Exchange,
}

impl Verdict {
    /// Creates a verdict under the class's own name.
    pub const fn of(class: Class) -> Self {
        Self::named(class, class.label())
    }

    /// Creates a verdict under a more specific name.
    pub const fn named(class: Class, code: &'static str) -> Self {
        Self {
            class,
            code,
            reach: Reach::Class,
        }
    }

    /// Returns the same verdict with another reach.
    #[must_use]
    pub const fn within(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Returns the side that caused the outcome; `None` for a success.
    pub const fn side(&self) -> Option<Side> {
        self.class.side()
    }

    /// Returns the reason of the profile's cooldown; `None` if the verdict costs the profile nothing.
    pub const fn reason(&self) -> Option<Reason> {
        match self.reach {
            Reach::Class | Reach::Text => self.class.reason(),
            Reach::Exchange => None,
        }
    }

    /// Returns the permission to try another profile.
    pub const fn rotate(&self) -> Rotate {
        match (self.class.rotate(), self.reach) {
            // Weak evidence could otherwise send one request through the whole pool.
            (Rotate::Freely, Reach::Text | Reach::Exchange) => Rotate::Once,
            (rotate, _) => rotate,
        }
    }
}
