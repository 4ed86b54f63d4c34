//! Stand-ins of tests: logs of clients that do not exist, and dice.

use super::{
    damage::{Damage, SessionCode},
    finding::{FixKind, SessionFinding},
    log::{LogFacts, SessionLog},
    records::SessionRecord,
};

/// A log that does the same with each record.
pub(super) struct StandInLog {
    facts: LogFacts,
    on_record: fn(&mut LogFacts, &SessionRecord<'_>),
}

impl StandInLog {
    pub(super) fn new_log(on_record: fn(&mut LogFacts, &SessionRecord<'_>)) -> Box<dyn SessionLog> {
        let facts = LogFacts::default();
        Box::new(Self { facts, on_record })
    }
}

impl SessionLog for StandInLog {
    fn add(&mut self, record: &SessionRecord<'_>) {
        (self.on_record)(&mut self.facts, record);
    }

    fn finish(self: Box<Self>) -> LogFacts {
        self.facts
    }
}

/// Counts a record as a message that is sent, if the client reads it.
pub(super) fn count_record(facts: &mut LogFacts, record: &SessionRecord<'_>) {
    facts.messages += 1;
    facts.reachable += u64::from(!record.is_skipped);
}

/// Finds that the parent of a record is lost.
pub(super) fn find_lost_parent(facts: &mut LogFacts, record: &SessionRecord<'_>) {
    let code = SessionCode::Damage(Damage::LostParent);
    facts.findings.push(SessionFinding {
        fix: FixKind::InPlace,
        ..SessionFinding::told(code, record.line, record.byte, 1)
    });
}

/// Numbers that go the same way for a seed.
pub(super) struct SeededDice(pub(super) u64);

impl SeededDice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }
}
