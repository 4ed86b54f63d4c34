//! The way from the end of the conversation back to its beginning, and the faults of its links.

use std::collections::{HashMap, HashSet};

use super::{
    entry::{EntryList, RecordEntry, mark},
    links::{LinkIndex, NONE},
    reading::ReadLog,
};
use crate::{sessions::damage::Damage, work};

/// A fault of the link of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkFault {
    /// The record.
    pub(super) record: u32,
    /// The kind.
    pub(super) damage: Damage,
    /// The record that it should follow. [`NONE`] if nothing stands before it.
    pub(super) target: u32,
}

/// The records that a request would have, if every link were sound.
#[derive(Debug, Default)]
pub(super) struct SentBranch {
    /// The chain, from the beginning to the end.
    pub(super) chain: Vec<u32>,
    /// Messages from before the compaction at its beginning.
    pub(super) kept: Vec<u32>,
    /// Faults, from the end to the beginning.
    pub(super) faults: Vec<LinkFault>,
    /// Records of chain and kept messages.
    pub(super) members: RecordSet,
}

/// A set of records: one bit each.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordSet {
    bits: Vec<u64>,
}

impl RecordSet {
    /// Creates an empty set with room for so many records.
    pub(super) fn with_room(count: u32) -> Self {
        let words = usize::try_from(count).unwrap_or(0).div_ceil(64);
        Self { bits: vec![0; words] }
    }

    /// Returns `true` if the set has a record.
    pub(super) fn has(&self, index: u32) -> bool {
        let (word, bit) = Self::place(index);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Adds a record. Returns `true` if it was not in the set.
    pub(super) fn add(&mut self, index: u32) -> bool {
        let (word, bit) = Self::place(index);
        let Some(bits) = self.bits.get_mut(word) else {
            return false;
        };
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, index: u32) {
        let (word, bit) = Self::place(index);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits &= !bit;
        }
    }

    fn place(index: u32) -> (usize, u64) {
        (usize::try_from(index / 64).unwrap_or(usize::MAX), 1_u64 << (index % 64))
    }
}

/// The records that a chain may go on with where a link leads nowhere: for each place the nearest one before it.
struct FreeRecords {
    /// One more than the number of the nearest free record at or before a place, or a shorter way to it.
    nearest: Vec<u32>,
}

impl FreeRecords {
    fn new(list: &EntryList, index: &LinkIndex) -> Self {
        let is_free = |record: u32| {
            let entry = list.entry(record);
            let is_gone = entry.has(mark::COPY) || entry.has(mark::SKIPPED);
            entry.has(mark::REAL_UUID) && !is_gone && !index.is_foreign(list, record)
        };
        let nearest = (0..list.count()).map(|record| {
            if is_free(record) {
                record.saturating_add(1)
            } else {
                record
            }
        });
        Self {
            nearest: [0].into_iter().chain(nearest).collect(),
        }
    }

    fn take(&mut self, record: u32) {
        self.point(record.saturating_add(1), record);
    }

    /// Returns the nearest free record before another one. [`NONE`] if there is none.
    fn find_before(&mut self, record: u32) -> u32 {
        let mut place = record;
        loop {
            work::count(1);
            let next = self.get(place);
            if next == place {
                break;
            }
            // Half of the way is cut off for the next search.
            let beyond = self.get(next);
            self.point(place, beyond);
            place = beyond;
        }
        place.checked_sub(1).unwrap_or(NONE)
    }

    fn get(&self, place: u32) -> u32 {
        let slot = usize::try_from(place).unwrap_or(usize::MAX);
        self.nearest.get(slot).copied().unwrap_or(0)
    }

    fn point(&mut self, place: u32, to: u32) {
        let slot = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(slot) = self.nearest.get_mut(slot) {
            *slot = to;
        }
    }
}

/// Returns the record at the end of the conversation: the newest one that follows the end which the client has noted.
pub(super) fn find_leaf(log: &ReadLog, index: &LinkIndex) -> u32 {
    let list = &log.list;
    let is_own = |record: u32| {
        let entry = list.entry(record);
        entry.has(mark::MESSAGE) && !entry.uuid.is_none() && !entry.has(mark::COPY) && !index.is_foreign(list, record)
    };
    let noted = log.last_prompt.map(|last| index.find_near(list, last.leaf, last.after));
    let noted = noted.filter(|leaf| *leaf != NONE && !index.is_foreign(list, *leaf));
    let last = || (0..list.count()).rev().find(|record| is_own(*record));
    let Some(start) = noted.or_else(last) else { return NONE };
    let (mut found, mut waiting) = (Vec::new(), vec![start]);
    let mut seen = RecordSet::with_room(list.count());
    while let Some(record) = waiting.pop() {
        work::count(1);
        if !seen.add(record) || index.is_foreign(list, record) {
            continue;
        }
        found.extend(Some(record).filter(|record| is_own(*record)));
        waiting.extend(index.children(record));
    }
    // A record that others follow is no end, even if it stands behind them in the file, as appended ones do.
    let mut followed = RecordSet::with_room(list.count());
    for record in &found {
        let mut above = index.parent(*record);
        while above != NONE && seen.has(above) && followed.add(above) {
            work::count(1);
            above = index.parent(above);
        }
    }
    let ends = found.iter().copied().filter(|record| !followed.has(*record));
    ends.max().or_else(|| found.iter().copied().max()).unwrap_or(start)
}

/// Returns the branch that ends at `leaf`.
pub(super) fn walk_back(log: &ReadLog, index: &LinkIndex, leaf: u32) -> SentBranch {
    let list = &log.list;
    let mut branch = SentBranch {
        members: RecordSet::with_room(list.count()),
        ..SentBranch::default()
    };
    if leaf == NONE {
        return branch;
    }
    let mut walk = BackWalk {
        list,
        index,
        free: FreeRecords::new(list, index),
        owners: owners_of_calls(list, index),
        lost_ways: RecordSet::with_room(list.count()),
    };
    let mut record = leaf;
    while record != NONE && branch.members.add(record) {
        work::count(1);
        branch.chain.push(record);
        walk.free.take(record);
        let entry = list.entry(record);
        if entry.has(mark::BOUNDARY) {
            break;
        }
        record = match walk.fault_of(record, &entry, &branch.members) {
            None => index.parent(record),
            Some(damage) => {
                let target = walk.target_of(record, &entry, &branch.members);
                // Where nothing stands before the record, nothing is lost. A circle keeps some clients from loading.
                if target != NONE || damage == Damage::ParentCircle {
                    branch.faults.push(LinkFault { record, damage, target });
                }
                target
            }
        };
    }
    branch.chain.reverse();
    add_kept(log, index, &mut branch);
    branch
}

struct BackWalk<'l> {
    list: &'l EntryList,
    index: &'l LinkIndex,
    free: FreeRecords,
    owners: HashMap<u64, u32>,
    /// Records of sub-agents from which no way leads back to the main agent.
    lost_ways: RecordSet,
}

impl BackWalk<'_> {
    fn fault_of(&mut self, record: u32, entry: &RecordEntry, seen: &RecordSet) -> Option<Damage> {
        if entry.parent.is_none() {
            return None;
        }
        let parent = self.index.parent(record);
        if parent == NONE {
            return Some(Damage::LostParent);
        }
        if seen.has(parent) {
            return Some(Damage::ParentCircle);
        }
        let (list, index) = (self.list, self.index);
        let is_foreign = |record: u32| index.is_foreign(list, record);
        if !is_foreign(parent) || is_foreign(record) {
            return None;
        }
        // A way through a sub-agent's records that comes back to the main agent's loses nothing.
        let mut above = parent;
        while above != NONE && !seen.has(above) && self.lost_ways.add(above) {
            work::count(1);
            above = index.parent(above);
            if above != NONE && !is_foreign(above) && !seen.has(above) {
                return None;
            }
        }
        Some(Damage::ParentInSubagent)
    }

    /// Returns the record that another one should follow: that of its call, or the one before it in the file.
    fn target_of(&mut self, record: u32, entry: &RecordEntry, seen: &RecordSet) -> u32 {
        if entry.has(mark::RESULTS) {
            let mut owners = self
                .list
                .parts_of(record)
                .filter_map(|part| self.owners.get(&part.id).copied());
            let is_before =
                |owner: &u32| *owner < record && !seen.has(*owner) && self.list.entry(*owner).has(mark::REAL_UUID);
            if let Some(owner) = owners.find(is_before) {
                return owner;
            }
        }
        self.free.find_before(record)
    }
}

/// Returns the record of each call, by the hash of its id. Of two calls with one id the last one counts.
pub(super) fn owners_of_calls(list: &EntryList, index: &LinkIndex) -> HashMap<u64, u32> {
    let mut owners = HashMap::new();
    for record in 0..list.count() {
        let entry = list.entry(record);
        let is_own = entry.has(mark::ASSISTANT | mark::MESSAGE) && !entry.has(mark::COPY);
        if !is_own || index.is_foreign(list, record) {
            continue;
        }
        for part in list.parts_of(record) {
            work::count(1);
            if matches!(part.sort, super::entry::PartSort::Call(_)) && part.id != 0 {
                owners.insert(part.id, record);
            }
        }
    }
    owners
}

/// Adds the messages that the compaction at the beginning of the chain has kept.
fn add_kept(log: &ReadLog, index: &LinkIndex, branch: &mut SentBranch) {
    let (list, kept) = (&log.list, &log.kept);
    let is_beginning = branch.chain.first() == Some(&kept.boundary);
    if !is_beginning || !list.entry(kept.boundary).has(mark::BOUNDARY) {
        return;
    }
    let named: Vec<u32> = kept.ids.iter().map(|id| index.find_uuid(list, *id)).collect();
    let found = if let (true, Some((head, tail))) = (named.is_empty(), kept.segment) {
        let (head, mut record) = (index.find_uuid(list, head), index.find_uuid(list, tail));
        let (mut segment, mut seen) = (Vec::new(), HashSet::new());
        while record != NONE && seen.insert(record) {
            work::count(1);
            segment.push(record);
            record = if record == head { NONE } else { index.parent(record) };
        }
        segment.reverse();
        segment
    } else {
        named
    };
    for record in found {
        if record != NONE && branch.members.add(record) {
            branch.kept.push(record);
        }
    }
}
