//! `Verdict`: the class of one attempt, its stable name, and how far it reaches.

use super::class::{Class, Reason, Rotate, Side};

/// What happened, whose doing it was, and the stable name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// The stable name: the class's, or a closer one.
    pub code: &'static str,
    /// How far it reaches.
    pub reach: Reach,
}

/// The reach of a verdict: beyond its exchange it changes the state of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything that the class allows.
    Class,
    /// As `Class`, but the verdict came from a text: the exchange moves to another profile once at most.
    Text,
    /// The exchange alone: it moves to another profile once at most, and no profile's state changes.
    Exchange,
}

impl Verdict {
    /// Makes a verdict under the class's own name.
    pub const fn of(class: Class) -> Self {
        Self::named(class, class.label())
    }

    /// Makes a verdict under a closer name.
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

    /// Returns whose doing it was; `None` for a success.
    pub const fn side(&self) -> Option<Side> {
        self.class.side()
    }

    /// Returns what the profile rests for; `None` if the verdict costs the profile nothing.
    pub const fn reason(&self) -> Option<Reason> {
        match self.reach {
            Reach::Class | Reach::Text => self.class.reason(),
            Reach::Exchange => None,
        }
    }

    /// Returns how often another profile may be asked.
    pub const fn rotate(&self) -> Rotate {
        match (self.class.rotate(), self.reach) {
            (Rotate::Freely, Reach::Text | Reach::Exchange) => Rotate::Once,
            (rotate, _) => rotate,
        }
    }
}
