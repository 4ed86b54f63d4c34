//! The mends of a body, as operators see them.

use std::borrow::Cow;

use crate::mend::Mend;

/// The beginning of a mend's name that an earlier exchange has taught, in place of the row.
const TAUGHT: &str = "taught:";

/// A mend of the body that was sent last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeMend {
    /// The mend.
    pub mend: Mend,
    /// The number of places that it has changed.
    pub places: usize,
    /// The row whose refusal has demanded it; `None` if that was in an earlier exchange.
    pub row: Option<Box<str>>,
    /// `true` if later bodies get it too.
    pub is_lasting: bool,
}

impl MadeMend {
    /// Returns the name of its row, or the name of the mend if the row is not known: `taught:drop_member`.
    pub fn rule(&self) -> Cow<'_, str> {
        match &self.row {
            Some(row) => Cow::Borrowed(row),
            None => Cow::Owned(format!("{TAUGHT}{}", self.mend.kind.name())),
        }
    }
}
