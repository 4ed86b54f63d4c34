//! A row that an operator has written.

use crate::wire::RowTexts;

/// The fault of rows that have a mend.
pub(super) const DEMAND: &str = "demand";
/// The status of rows that name none.
const BAD_REQUEST: u16 = 400;

/// A row as an operator has written it. Its members mean what they mean in `rows.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnRule {
    /// The name. Empty if it has none.
    pub name: String,
    /// The fault. `None` for `demand`.
    pub fault: Option<String>,
    /// The statuses with which the texts count. Empty for 400.
    pub statuses: Vec<u16>,
    /// The texts, as patterns.
    pub texts: Vec<String>,
    /// Sentences that may follow.
    pub then: Vec<String>,
    /// The mend with its argument.
    pub mend: Option<String>,
    /// The places at which the mend acts.
    pub fits: Option<String>,
    /// The lifetime of what it teaches.
    pub learn: Option<String>,
    /// Messages as a provider sent them.
    pub examples: Vec<RuleExample>,
    /// `true` if `antiphon check` notes bodies that the mend would change.
    pub is_noted: bool,
    /// A body, and what is sent after its refusal.
    pub repair: Option<RuleRepair>,
}

/// A message that a row reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleExample {
    /// The message, or the whole body of the error.
    pub text: String,
    /// The ids that are read from it. Empty if that is not checked.
    pub ids: Vec<String>,
}

/// A body that a server refuses with the first example of its row, and what is sent after that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleRepair {
    /// The format and dialect of the server, by its name.
    pub wire: String,
    /// The body that it refuses.
    pub before: String,
    /// The body that is sent then.
    pub after: String,
}

impl OwnRule {
    /// Returns the statuses with which its texts count.
    pub fn statuses(&self) -> &[u16] {
        if self.statuses.is_empty() {
            &[BAD_REQUEST]
        } else {
            &self.statuses
        }
    }

    /// Returns what the table compiles.
    pub(super) fn row_texts(&self) -> RowTexts {
        RowTexts {
            name: self.name.clone(),
            fault: self.fault.clone().unwrap_or_else(|| DEMAND.to_owned()),
            status: self.statuses().to_vec(),
            text: self.texts.clone(),
            then: self.then.clone(),
            mend: self.mend.clone(),
            fits: self.fits.clone(),
            learn: self.learn.clone(),
            note: self.is_noted,
        }
    }
}
