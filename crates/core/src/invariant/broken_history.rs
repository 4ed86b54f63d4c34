//! The faults of a history that must not be saved or sent as it is.

use std::fmt;

use crate::{conversation::Finding, wire::Format};

/// Most findings that a [`BrokenHistory`] lists. Further ones are only counted.
pub const FINDINGS_MAX: usize = 1000;

/// Findings that the text of a [`BrokenHistory`] names.
const NAMED_MAX: usize = 3;

/// The faults of a history, by their places in it. Nothing of its texts is among them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BrokenHistory {
    /// The format of the history, which gives the places their names.
    pub format: Format,
    /// The faults, in the order of the history: the first [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Faults beyond those.
    pub left_out: usize,
}

impl fmt::Display for BrokenHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.findings.len().saturating_add(self.left_out);
        write!(f, "the history has {count} fault{}", if count == 1 { "" } else { "s" })?;
        for (index, finding) in self.findings.iter().take(NAMED_MAX).enumerate() {
            let path = self.format.finding_path(finding);
            let start = if index == 0 { ": " } else { "; " };
            write!(
                f,
                "{start}{path}: {}: {}",
                finding.kind.code(),
                finding.kind.explanation()
            )?;
        }
        let unnamed = count.saturating_sub(self.findings.len().min(NAMED_MAX));
        if unnamed > 0 {
            write!(f, "; and {unnamed} more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_are_not_listed_are_counted() {
        let listed = |findings: usize, left_out| BrokenHistory {
            format: Format::Anthropic,
            findings: vec![Finding::repeated_item(0); findings],
            left_out,
        };
        for (history, start, end) in [
            (listed(1, 0), "the history has 1 fault: ", None),
            (listed(1, 1), "the history has 2 faults: ", Some("; and 1 more")),
            (listed(0, 1), "the history has 1 fault", Some("; and 1 more")),
            (listed(5, 0), "the history has 5 faults: ", Some("; and 2 more")),
        ] {
            let text = history.to_string();
            assert!(text.starts_with(start), "{text}");
            assert_eq!(end.is_some(), text.contains(" more"), "{text}");
            assert!(text.ends_with(end.unwrap_or_default()), "{text}");
        }
    }
}
