//! Faults of own rows.

/// The fault of an own row, or a remark about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// The index of the row.
    pub rule: usize,
    /// The member with the fault, such as `text[0]`. Empty for the row as a whole.
    pub member: String,
    /// The fault, and what to write instead.
    pub message: String,
}

impl RuleFault {
    pub(super) fn new(rule: usize, member: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule,
            member: member.into(),
            message: message.into(),
        }
    }
}

/// The reason for which a row does not count.
#[derive(Clone, Debug)]
pub(super) enum RowVerdict {
    /// It has these faults.
    Faulty(Vec<RuleFault>),
    /// It is of a later version.
    Skipped(RuleFault),
}
