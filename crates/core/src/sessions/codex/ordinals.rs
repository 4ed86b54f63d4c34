//! The numbers of records, which a rollout of the mode `paginated` counts from 0.

use std::collections::BTreeMap;

use crate::{
    sessions::{
        damage::{Damage, SessionCode},
        finding::{FixKind, RecordLoss, SessionFinding},
        records::RECORD_BYTES_MAX,
    },
    work,
};

/// The highest number behind which further ones are written: many more must follow.
const ORDINAL_MAX: u64 = u64::MAX / 2;

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedPlace {
    pub(super) line: u64,
    pub(super) byte: u64,
    pub(super) len: u64,
}

/// Numbers on lines that follow one another, each one higher than the one before it.
#[derive(Clone, Copy, Debug)]
struct OrdinalRun {
    first: u64,
    line: u64,
    count: u64,
}

impl OrdinalRun {
    /// Returns the line of a number. `None` if it is not in the run.
    fn line_of(&self, ordinal: u64) -> Option<u64> {
        let place = ordinal.checked_sub(self.first).filter(|place| *place < self.count)?;
        Some(self.line.saturating_add(place))
    }

    /// Returns its highest number.
    const fn last(&self) -> u64 {
        self.first.saturating_add(self.count.saturating_sub(1))
    }

    /// Adds a number. Returns `false` if it, or its line, does not follow the last one.
    fn extend(&mut self, ordinal: u64, line: u64) -> bool {
        let follows =
            self.first.checked_add(self.count) == Some(ordinal) && self.line.checked_add(self.count) == Some(line);
        self.count = self.count.saturating_add(u64::from(follows));
        follows
    }
}

/// Records without a number, one after the other.
#[derive(Debug)]
struct UnnumberedRun {
    lines: Vec<u64>,
    byte: u64,
    end: u64,
}

/// The numbers of the records so far.
#[derive(Debug, Default)]
pub(super) struct OrdinalLog {
    /// Numbers that rise, as nearly all do.
    rising: Vec<OrdinalRun>,
    /// Those that were lower than an earlier one, and their lines.
    falling: BTreeMap<u64, u64>,
    run: Option<UnnumberedRun>,
    /// The last record with a number, and its number.
    last: Option<(u64, NumberedPlace)>,
    findings: Vec<SessionFinding>,
}

impl OrdinalLog {
    /// Adds the number of a record that the client reads.
    pub(super) fn add(&mut self, ordinal: Option<u64>, place: NumberedPlace) {
        let Some(ordinal) = ordinal else {
            return self.add_unnumbered(place);
        };
        // Codex goes on counting from the last record, so nothing is lost that could be appended.
        self.end_run(FixKind::Told, RecordLoss::Nothing);
        self.last = Some((ordinal, place));
        let last = self.rising.last_mut();
        if last.is_some_and(|last| last.extend(ordinal, place.line)) {
            return;
        }
        work::count(64);
        if self.rising.last().is_none_or(|last| last.last() < ordinal) {
            self.rising.push(OrdinalRun {
                first: ordinal,
                line: place.line,
                count: 1,
            });
            return;
        }
        let above = self.rising.partition_point(|run| run.first <= ordinal);
        let run = above.checked_sub(1).and_then(|run| self.rising.get(run));
        let first = run.and_then(|run| run.line_of(ordinal));
        match first.or_else(|| self.falling.get(&ordinal).copied()) {
            Some(first) => self.findings.push(finding(
                Damage::OrdinalTwice,
                [place.line, place.byte, place.len],
                vec![first],
                (FixKind::Told, RecordLoss::Nothing),
            )),
            None => drop(self.falling.insert(ordinal, place.line)),
        }
    }

    fn add_unnumbered(&mut self, place: NumberedPlace) {
        let run = self.run.get_or_insert_with(|| UnnumberedRun {
            lines: Vec::new(),
            byte: place.byte,
            end: place.byte,
        });
        run.lines.push(place.line);
        run.end = place.byte.saturating_add(place.len);
    }

    /// Reports the records without a number that came last.
    fn end_run(&mut self, fix: FixKind, loss: RecordLoss) {
        let Some(mut run) = self.run.take() else {
            return;
        };
        let others = run.lines.split_off(run.lines.len().min(1));
        let first = run.lines.first().copied().unwrap_or_default();
        let len = run.end.saturating_sub(run.byte);
        let place = [first, run.byte, len];
        self.findings
            .push(finding(Damage::OrdinalMissing, place, others, (fix, loss)));
    }

    /// Returns the highest number. `None` if there is none.
    pub(super) fn highest(&self) -> Option<u64> {
        self.rising.last().map(OrdinalRun::last)
    }

    /// Returns the findings of a file with numbers.
    pub(super) fn finish(mut self) -> Vec<SessionFinding> {
        let fix = if self.can_number_last() {
            FixKind::Append
        } else {
            FixKind::Told
        };
        self.end_run(fix, RecordLoss::Last);
        if let Some((_, place)) = self.last.filter(|_| self.is_full()) {
            let place = [place.line, place.byte, place.len];
            let told = (FixKind::Told, RecordLoss::Last);
            self.findings
                .push(finding(Damage::LastOrdinal, place, Vec::new(), told));
        }
        self.findings
    }

    /// Returns `false` if the last records have no number, and can get none.
    pub(super) fn can_number_last(&self) -> bool {
        // Without a number before them there is none to count from. Copies of more than the longest line are not held.
        let is_bounded = |run: &UnnumberedRun| {
            let len = run.end.saturating_sub(run.byte);
            usize::try_from(len).is_ok_and(|len| len <= RECORD_BYTES_MAX)
        };
        let has_room = self.last.is_none_or(|(ordinal, _)| ordinal <= ORDINAL_MAX);
        has_room && self.run.as_ref().is_none_or(|run| is_bounded(run) && self.has_any())
    }

    /// Returns `true` if no number follows that of the last record. Codex 0.171 does not load such a file (2026-11).
    pub(super) fn is_full(&self) -> bool {
        self.run.is_none() && self.last.is_some_and(|(ordinal, _)| ordinal == u64::MAX)
    }

    /// Returns `true` if the last record has no number.
    pub(super) const fn lacks_last(&self) -> bool {
        self.run.is_some()
    }

    /// Returns `true` if any record has a number.
    pub(super) const fn has_any(&self) -> bool {
        !self.rising.is_empty()
    }
}

fn finding(
    damage: Damage,
    [line, byte, len]: [u64; 3],
    lines: Vec<u64>,
    (fix, loss): (FixKind, RecordLoss),
) -> SessionFinding {
    SessionFinding {
        lines,
        fix,
        loss,
        ..SessionFinding::told(SessionCode::Damage(damage), line, byte, len)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::sessions::seed::seed;

    /// The numbers that were seen, in runs, are those of a map of all.
    #[test]
    fn numbers_in_runs_are_found_like_those_of_a_map() {
        println!("SEED={}", seed());
        let mut state = seed() | 1;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for round in 0..200 {
            let (mut log, mut seen, mut wanted) = (OrdinalLog::default(), HashMap::new(), Vec::new());
            let (mut ordinal, mut line) = ([0, 5, u64::MAX - 60][usize::try_from(round % 3).unwrap()], 1);
            for _ in 0..60 {
                line += 1 + u64::from(below(8) == 0);
                ordinal = match below(10) {
                    0 => below(40),
                    1 => ordinal.saturating_add(below(9)),
                    2 => ordinal,
                    _ => ordinal.saturating_add(1),
                };
                let (byte, len) = (line * 100, 50);
                log.add(Some(ordinal), NumberedPlace { line, byte, len });
                match seen.get(&ordinal) {
                    Some(first) => wanted.push((line, vec![*first])),
                    None => drop(seen.insert(ordinal, line)),
                }
            }
            let found = log.finish().into_iter().map(|found| (found.line, found.lines));
            assert_eq!(found.collect::<Vec<_>>(), wanted, "round {round}");
        }
    }
}
