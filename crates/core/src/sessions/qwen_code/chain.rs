//! The chain of records from the end of the conversation to its beginning, and what is wrong with it.

use std::collections::HashMap;

use super::record::{QwenRecord, mark};
use crate::{
    sessions::{
        damage::{Damage, SessionCode},
        finding::SessionFinding,
        link_id::LinkId,
    },
    work,
};

/// No record.
const NONE: usize = usize::MAX;

/// The records of a session by their ids.
#[derive(Debug)]
pub(super) struct RecordChain<'r> {
    records: &'r [QwenRecord],
    /// The first record of each id that the client reads, and of an id that it does not read the first one of all.
    first: HashMap<LinkId, usize>,
    /// The next fragment of the same record.
    next: Vec<usize>,
    /// `true` for the records of the chain.
    is_member: Vec<bool>,
    /// The records of the chain, from the beginning to the end, with their fragments.
    pub(super) members: Vec<usize>,
    /// Number of the members from the end that the client reaches.
    pub(super) reached: usize,
    pub(super) findings: Vec<SessionFinding>,
}

impl<'r> RecordChain<'r> {
    /// Follows the links from the last record on.
    pub(super) fn walk(records: &'r [QwenRecord]) -> Self {
        let mut chain = Self {
            records,
            first: HashMap::new(),
            next: vec![NONE; records.len()],
            is_member: vec![false; records.len()],
            members: Vec::new(),
            reached: 0,
            findings: Vec::new(),
        };
        chain.index_records();
        let last = (0..records.len()).rev().find(|at| !chain.record(*at).has(mark::LOST));
        let last = last.or_else(|| records.len().checked_sub(1));
        if let Some(last) = last {
            chain.follow_links(last);
        }
        chain.find_branches();
        chain
    }

    /// Returns a record. One without an id if there is none at that place.
    pub(super) fn record(&self, at: usize) -> QwenRecord {
        let none = QwenRecord {
            id: LinkId::default(),
            parent: LinkId::default(),
            byte: 0,
            line: 0,
            len: 0,
            parts: 0,
            marks: 0,
        };
        self.records.get(at).copied().unwrap_or(none)
    }

    fn is_member(&self, at: usize) -> bool {
        self.is_member.get(at).copied().unwrap_or(false)
    }

    /// Joins the fragments of each record. Those that disagree about their parent are two records with one id.
    fn index_records(&mut self) {
        let mut last: HashMap<LinkId, usize> = HashMap::new();
        let (lost, read): (Vec<usize>, Vec<usize>) =
            (0..self.records.len()).partition(|at| self.record(*at).has(mark::LOST));
        for at in read.into_iter().chain(lost) {
            work::count(1);
            let record = self.record(at);
            let Some(before) = last.insert(record.id, at) else {
                self.first.insert(record.id, at);
                continue;
            };
            if let Some(next) = self.next.get_mut(before) {
                *next = at;
            }
            let first = self.first.get(&record.id).copied().unwrap_or(NONE);
            let is_other = self.record(first).parent != record.parent;
            if is_other && !record.has(mark::LOST) && record.has(mark::MESSAGE) {
                let finding = self.finding(Damage::UuidTwice, at, Some(first));
                self.findings.push(finding);
            }
        }
    }

    fn follow_links(&mut self, last: usize) {
        let (mut at, mut backwards, mut is_cut) = (self.first_of(self.record(last).id), Vec::new(), false);
        while at != NONE {
            work::count(1);
            is_cut |= self.record(at).has(mark::LOST);
            let fragments = self.take_fragments(at);
            self.reached = self.reached.saturating_add(if is_cut { 0 } else { fragments.len() });
            backwards.extend(fragments.into_iter().rev());
            let record = self.record(at);
            if record.parent.is_none() {
                break;
            }
            let parent = self.first_of(record.parent);
            if parent != NONE && !self.is_member(parent) {
                at = parent;
                continue;
            }
            // What the link cuts off is judged all the same, so that nothing in it is hidden.
            let before = (0..at).rev().find(|before| {
                work::count(1);
                !self.is_member(*before)
            });
            let is_told = before.is_some() && !record.has(mark::SKIPPED | mark::LOST);
            if parent != NONE {
                let finding = self.finding(Damage::ParentCircle, at, Some(parent));
                self.findings.push(finding);
            } else if is_told {
                let finding = self.finding(Damage::LostParent, at, None);
                self.findings.push(finding);
            }
            is_cut = true;
            at = before.map_or(NONE, |before| self.first_of(self.record(before).id));
            if self.is_member(at) {
                break;
            }
        }
        backwards.reverse();
        self.members = backwards;
    }

    fn first_of(&self, id: LinkId) -> usize {
        self.first.get(&id).copied().unwrap_or(NONE)
    }

    /// Marks a record and its fragments as members.
    fn take_fragments(&mut self, first: usize) -> Vec<usize> {
        let (mut at, mut taken) = (first, Vec::new());
        while at != NONE {
            work::count(1);
            if let Some(is_member) = self.is_member.get_mut(at) {
                *is_member = true;
            }
            taken.push(at);
            at = self.next.get(at).copied().unwrap_or(NONE);
        }
        taken
    }

    /// Finds the messages beside the chain.
    fn find_branches(&mut self) {
        let mut branches: HashMap<usize, Branch> = HashMap::new();
        let mut roots: Vec<usize> = vec![NONE; self.records.len()];
        for at in 0..self.records.len() {
            work::count(1);
            let record = self.record(at);
            if self.is_member(at) || record.has(mark::LOST) {
                continue;
            }
            let parent = self.first_of(record.parent);
            let root = if self.is_member(parent) {
                at
            } else {
                roots.get(parent).copied().unwrap_or(NONE)
            };
            if let Some(place) = roots.get_mut(at) {
                *place = root;
            }
            if root != NONE {
                let branch = branches.entry(root).or_default();
                branch.last = at;
                branch.has_message |= record.has(mark::MESSAGE);
            }
        }
        let mut branches: Vec<(usize, Branch)> =
            branches.into_iter().filter(|(_, branch)| branch.has_message).collect();
        branches.sort_unstable_by_key(|(root, _)| *root);
        let followers = self.followers();
        for (root, branch) in branches {
            let follower = followers.get(&self.record(root).parent).copied();
            // The user went back if the branch had ended before the other one began.
            let damage = match follower {
                Some(follower) if branch.last > follower => Damage::Fork,
                _ => Damage::Rewound,
            };
            let finding = self.finding(damage, root, follower);
            self.findings.push(finding);
        }
    }

    /// Returns the record of the chain that follows each id.
    fn followers(&self) -> HashMap<LinkId, usize> {
        let members = self.members.iter().rev();
        members.map(|at| (self.record(*at).parent, *at)).collect()
    }

    fn finding(&self, damage: Damage, at: usize, other: Option<usize>) -> SessionFinding {
        let record = self.record(at);
        let code = SessionCode::Damage(damage);
        SessionFinding {
            id: record.id.to_uuid(),
            lines: other.map(|other| self.record(other).line).into_iter().collect(),
            ..SessionFinding::told(code, record.line, record.byte, u64::from(record.len))
        }
    }
}

/// Records beside the chain.
#[derive(Clone, Copy, Debug, Default)]
struct Branch {
    /// The last of its records.
    last: usize,
    has_message: bool,
}
