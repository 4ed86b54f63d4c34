//! The next record in a line that has a fragment: a record was cut off, and the next one stands right behind it.

use memchr::memmem;

use super::{
    marks::{has_type, is_like_record},
    object_scan::{ObjectScan, ScanEnd},
};

/// The work on one line, in multiples of its length. A fragment is scanned once for each level of its nesting.
const SCANS_MAX: usize = 16;
/// The work on a short line, in bytes.
const WORK_MIN: usize = 64 * 1024;

/// The work that is left for the fragments of a line, so that no line costs more than a multiple of its length.
#[derive(Debug)]
pub(super) struct SearchBudget(usize);

impl SearchBudget {
    /// Returns the budget of a line.
    pub(super) const fn of_line(bytes: usize) -> Self {
        Self(bytes.saturating_mul(SCANS_MAX).saturating_add(WORK_MIN))
    }

    /// Returns the offset up to which a scan from `start` may go, which is at most `end`.
    pub(super) fn limit(&self, start: usize, end: usize) -> usize {
        start.saturating_add(self.0).min(end)
    }

    /// Takes the bytes of a scan that found no record.
    pub(super) const fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextRecord {
    /// A record begins at this offset.
    At(usize),
    /// There is none.
    Nowhere,
    /// The budget is spent. There may be one.
    Unknown,
}

/// Finds the first whole record behind the beginning of a fragment at `from`, whose scan ended with `end`.
pub(super) fn find_next_record(text: &[u8], from: usize, end: ScanEnd, budget: &mut SearchBudget) -> NextRecord {
    let broken = match end {
        ScanEnd::Broken(at) => Some(at),
        _ => None,
    };
    let behind = from.saturating_add(1);
    let mut skipped = behind;
    for found in memmem::find_iter(text.get(behind..).unwrap_or_default(), b"{\"") {
        let start = behind.saturating_add(found);
        // What is inside of a whole object is a part of it.
        if start < skipped {
            continue;
        }
        if budget.0 == 0 {
            return NextRecord::Unknown;
        }
        let limit = budget.limit(start, text.len());
        match ObjectScan::new(start).run(text.get(..limit).unwrap_or_default()) {
            ScanEnd::Whole(end) => {
                let object = text.get(start..end).unwrap_or_default();
                budget.spend(object.len().saturating_mul(2));
                // No part of the fragment reaches over the place where the fragment is broken off.
                let reaches_over = broken.is_some_and(|broken| start < broken && broken < end);
                if is_like_record(object) || (reaches_over && has_type(object)) {
                    return NextRecord::At(start);
                }
                skipped = end;
            }
            ScanEnd::Broken(at) => budget.spend(at.saturating_sub(start).saturating_add(1)),
            ScanEnd::Open { .. } => budget.spend(limit.saturating_sub(start)),
        }
    }
    NextRecord::Nowhere
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(text: &str) -> NextRecord {
        let end = ObjectScan::new(0).run(text.as_bytes());
        find_next_record(text.as_bytes(), 0, end, &mut SearchBudget::of_line(text.len()))
    }

    #[test]
    fn records_behind_fragments_are_found() {
        for (fragment, wanted) in [
            (r#"{"type":"user","message":{"content":"x"#, true),
            (r#"{"type":"user","message":{"content":["#, true),
            (
                r#"{"type":"user","message":{"content":[{"type":"text","text":"a"},"#,
                true,
            ),
            (
                r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a{}"#,
                true,
            ),
            ("lt\"}", true),
        ] {
            for record in [
                r#"{"type":"assistant","sessionId":"s"}"#,
                // Some forks write no session.
                r#"{"type":"assistant","parentUuid":null,"uuid":"a","message":{"content":[]}}"#,
            ] {
                let text = format!("{fragment}{record}");
                assert_eq!(find_in(&text) == NextRecord::At(fragment.len()), wanted, "{text}");
                // A second fragment behind it changes nothing.
                assert_eq!(find_in(&(text.clone() + fragment)), find_in(&text), "{text}");
            }
            assert_eq!(find_in(fragment), NextRecord::Nowhere, "{fragment}");
        }
        // Without members that only records have, the place of the break decides.
        assert_eq!(
            find_in(r#"{"type":"user","text":"x{"type":"mode"}"#),
            NextRecord::At(24)
        );
        assert_eq!(
            find_in(r#"{"type":"user","list":[{"type":"mode"}"#),
            NextRecord::Nowhere
        );
    }

    #[test]
    fn a_hostile_line_spends_its_budget() {
        let text = r#"{"a":["#.repeat(100_000);
        let mut budget = SearchBudget::of_line(text.len());
        let end = ScanEnd::Open { in_string: false };
        assert_eq!(
            find_next_record(text.as_bytes(), 0, end, &mut budget),
            NextRecord::Unknown
        );
        assert_eq!(find_in(&r#"{""#.repeat(100_000)), NextRecord::Nowhere);
    }
}
