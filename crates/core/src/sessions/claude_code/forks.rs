//! Branches of the conversation that a request leaves out.

use super::{
    branch::{RecordSet, SentBranch},
    entry::{RecordEntry, mark},
    joins::SentRecords,
    links::{LinkIndex, NONE},
    reading::ReadLog,
    remedy::{FoundFault, Remedy},
};
use crate::{
    sessions::{
        damage::{Damage, SessionCode},
        finding::{RecordLoss, SessionFinding},
        link_id::LinkId,
    },
    work,
};

/// The search for branches that are not sent.
struct ForkSearch<'l> {
    log: &'l ReadLog,
    index: &'l LinkIndex,
    sent: &'l SentRecords,
    root: u32,
    /// For each record of the chain the one after it.
    next: Vec<u32>,
    seen: RecordSet,
}

/// Returns a fault for each branch with messages that no request has.
pub(super) fn find_forks(log: &ReadLog, index: &LinkIndex, branch: &SentBranch, sent: &SentRecords) -> Vec<FoundFault> {
    let count = log.list.count();
    let mut next = vec![NONE; usize::try_from(count).unwrap_or(0)];
    for (record, after) in branch.chain.iter().zip(branch.chain.iter().skip(1)) {
        let slot = usize::try_from(*record).ok().and_then(|record| next.get_mut(record));
        if let Some(slot) = slot {
            *slot = *after;
        }
    }
    let mut search = ForkSearch {
        log,
        index,
        sent,
        root: branch.chain.first().copied().unwrap_or(NONE),
        next,
        seen: RecordSet::with_room(count),
    };
    (0..count).filter_map(|record| search.fork_at(record)).collect()
}

impl ForkSearch<'_> {
    /// Returns the fault of the branch that begins at a record. `None` if none begins there.
    fn fork_at(&mut self, head: u32) -> Option<FoundFault> {
        let list = &self.log.list;
        let entry = list.entry(head);
        let is_gone = entry.has(mark::SKIPPED) || entry.has(mark::COPY);
        if self.root == NONE || is_gone || self.is_sent(head) || self.index.is_foreign(list, head) {
            return None;
        }
        let parent = self.index.parent(head);
        let is_root = parent == NONE || self.index.is_foreign(list, parent);
        if !is_root && !self.is_sent(parent) {
            return None;
        }
        // What stands before a compaction is left out on purpose.
        let before = if is_root { head } else { parent };
        if list.entry(self.root).has(mark::BOUNDARY) && before < self.root {
            return None;
        }
        let sibling = if is_root { self.root } else { self.next_of(parent) };
        let (messages, newest) = self.count_messages(head);
        if messages == 0 {
            return None;
        }
        let is_prompt =
            |entry: RecordEntry| entry.has(mark::MESSAGE) && !entry.has(mark::ASSISTANT) && !entry.has(mark::RESULTS);
        // The user went back and asked something else, and nobody has gone on with the old branch since.
        let is_rewound = sibling != NONE
            && newest < sibling
            && (!is_root || entry.parent == LinkId::default())
            && is_prompt(entry)
            && is_prompt(list.entry(sibling));
        let damage = if is_rewound { Damage::Rewound } else { Damage::Fork };
        Some(FoundFault {
            finding: SessionFinding {
                code: SessionCode::Damage(damage),
                line: entry.line,
                byte: entry.byte,
                len: u64::from(entry.len),
                id: if entry.has(mark::REAL_UUID) {
                    entry.uuid.to_uuid()
                } else {
                    String::new()
                },
                lines: Some(sibling)
                    .filter(|sibling| *sibling != NONE)
                    .map(|sibling| list.entry(sibling).line)
                    .into_iter()
                    .collect(),
                fix: Remedy::Told.fix_kind(),
                loss: RecordLoss::Any,
            },
            remedy: Remedy::Told,
            place: None,
        })
    }

    fn is_sent(&self, record: u32) -> bool {
        self.sent.members.has(record)
    }

    fn next_of(&self, record: u32) -> u32 {
        let place = usize::try_from(record).unwrap_or(usize::MAX);
        self.next.get(place).copied().unwrap_or(NONE)
    }

    /// Returns `true` if a record has nothing but results of calls that have another one: those are findings of their own.
    fn is_other_result(&self, record: u32) -> bool {
        let entry = self.log.list.entry(record);
        let is_answered = |id: &u64| {
            self.sent
                .calls
                .get(id)
                .is_some_and(|call| call.result().is_some() && call.record < record)
        };
        let mut parts = self.log.list.parts_of(record);
        entry.has(mark::RESULTS) && !entry.has(mark::TEXT) && parts.all(|part| is_answered(&part.id))
    }

    /// Counts the messages of a branch that are not sent, and returns its newest record.
    fn count_messages(&mut self, head: u32) -> (u64, u32) {
        let list = &self.log.list;
        let (mut messages, mut newest, mut waiting) = (0_u64, head, vec![head]);
        while let Some(record) = waiting.pop() {
            work::count(1);
            if self.is_sent(record) || !self.seen.add(record) {
                continue;
            }
            let entry = list.entry(record);
            let is_gone = entry.has(mark::SKIPPED) || entry.has(mark::COPY);
            let is_lost = !is_gone && !self.index.is_foreign(list, record) && !self.is_other_result(record);
            if entry.has(mark::MESSAGE) && is_lost {
                messages = messages.saturating_add(1);
            }
            newest = newest.max(record);
            waiting.extend(self.index.children(record));
        }
        (messages, newest)
    }
}
