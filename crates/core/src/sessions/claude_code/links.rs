//! The links between records: which one each record follows, and which ones follow it.

use super::{
    entry::{EntryList, mark},
    reading::ReadLog,
};
use crate::{sessions::link_id::LinkId, work};

/// No record.
pub(super) const NONE: u32 = u32::MAX;

/// The agent whose conversation a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogOwner {
    /// The main agent. Records of its sub-agents may stand between its own.
    MainAgent,
    /// A sub-agent, with a file of its own.
    SubAgent,
}

/// The links of all records, by their numbers.
#[derive(Debug)]
pub(super) struct LinkIndex {
    /// The agent.
    pub(super) owner: LogOwner,
    /// Numbers of the records with an id, sorted by it, and for one id by their order.
    by_uuid: Vec<u32>,
    parents: Vec<u32>,
    first_children: Vec<u32>,
    next_siblings: Vec<u32>,
}

/// Returns the element at a record's number. [`NONE`] if there is none.
fn at(list: &[u32], index: u32) -> u32 {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    list.get(index).copied().unwrap_or(NONE)
}

fn set(list: &mut [u32], index: u32, value: u32) {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    if let Some(place) = list.get_mut(index) {
        *place = value;
    }
}

impl LinkIndex {
    /// Creates the index, and marks copies among the records.
    pub(super) fn new(log: &mut ReadLog) -> Self {
        let list = &mut log.list;
        let count = list.count();
        let mut by_uuid: Vec<u32> = (0..count).filter(|index| !list.entry(*index).uuid.is_none()).collect();
        work::count(by_uuid.len());
        by_uuid.sort_unstable_by_key(|index| (list.entry(*index).uuid, *index));
        mark_copies(list, &by_uuid);
        // A search must not pass over the copies of one record again and again.
        by_uuid.retain(|index| !list.entry(*index).has(mark::COPY));
        let messages = (0..count)
            .map(|index| list.entry(index))
            .filter(|entry| entry.has(mark::MESSAGE));
        let is_main = |entry: super::entry::RecordEntry| !entry.has(mark::SIDECHAIN);
        let mut messages = messages.peekable();
        let owner = if messages.peek().is_some() && !messages.any(is_main) {
            LogOwner::SubAgent
        } else {
            LogOwner::MainAgent
        };
        let size = usize::try_from(count).unwrap_or(usize::MAX);
        let mut index = Self {
            owner,
            by_uuid,
            parents: Vec::with_capacity(size),
            first_children: vec![NONE; size],
            next_siblings: vec![NONE; size],
        };
        index.parents = (0..count).map(|child| index.find_parent(list, child)).collect();
        // Backwards, so that the children of a record come in the order of the file.
        for child in (0..count).rev() {
            let parent = index.parent(child);
            if parent != NONE && parent != child && !list.entry(child).has(mark::COPY) {
                set(&mut index.next_siblings, child, at(&index.first_children, parent));
                set(&mut index.first_children, parent, child);
            }
        }
        index
    }

    /// Returns the record that another one follows. [`NONE`] if it follows none, or one that is not in the file.
    pub(super) fn parent(&self, child: u32) -> u32 {
        at(&self.parents, child)
    }

    /// Returns the records that follow another one, in the order of the file.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = Some(at(&self.first_children, parent)).filter(|child| *child != NONE);
        std::iter::successors(first, |child| {
            work::count(1);
            Some(at(&self.next_siblings, *child)).filter(|next| *next != NONE)
        })
    }

    /// Returns the first of the records that have this id. [`NONE`] if there is none.
    pub(super) fn find_uuid(&self, list: &EntryList, uuid: LinkId) -> u32 {
        self.of_uuid(list, uuid).first().copied().unwrap_or(NONE)
    }

    /// Returns the record before `before` that has an id. If there is none before it, the first one after it.
    pub(super) fn find_near(&self, list: &EntryList, uuid: LinkId, before: u32) -> u32 {
        let named = self.of_uuid(list, uuid);
        let earlier = named.partition_point(|index| *index < before);
        let (earlier, later) = named.split_at_checked(earlier).unwrap_or_default();
        earlier.last().or_else(|| later.first()).copied().unwrap_or(NONE)
    }

    /// Returns the first and the last of the records with the id of another one. [`NONE`] for records without an id.
    pub(super) fn namesakes(&self, list: &EntryList, index: u32) -> (u32, u32) {
        let entry = list.entry(index);
        // Nearly all ids are those of one record.
        if !entry.has(mark::NAMESAKE) && !entry.uuid.is_none() {
            return (index, index);
        }
        let named = self.of_uuid(list, entry.uuid);
        let (first, last) = (named.first(), named.last());
        (first.copied().unwrap_or(NONE), last.copied().unwrap_or(NONE))
    }

    /// Returns `true` if a record is one of another agent than the owner.
    pub(super) fn is_foreign(&self, list: &EntryList, index: u32) -> bool {
        self.owner == LogOwner::MainAgent && list.entry(index).has(mark::SIDECHAIN)
    }

    fn of_uuid(&self, list: &EntryList, uuid: LinkId) -> &[u32] {
        if uuid.is_none() {
            return &[];
        }
        let start = self.by_uuid.partition_point(|index| list.entry(*index).uuid < uuid);
        let rest = self.by_uuid.get(start..).unwrap_or_default();
        let count = rest.partition_point(|index| list.entry(*index).uuid == uuid);
        rest.get(..count).unwrap_or_default()
    }

    fn find_parent(&self, list: &EntryList, child: u32) -> u32 {
        // Nearly all records follow the one before them in the file.
        let before = child.checked_sub(1).unwrap_or(NONE);
        let (above, parent) = (list.entry(before), list.entry(child).parent);
        if !parent.is_none() && above.uuid == parent && !above.has(mark::NAMESAKE) {
            return before;
        }
        self.find_near(list, list.entry(child).parent, child)
    }
}

/// Marks the copies among records with one id. A client that goes on may write the same records once more.
fn mark_copies(list: &mut EntryList, by_uuid: &[u32]) {
    let mut group: Vec<u32> = Vec::new();
    for index in by_uuid.iter().copied().chain([NONE]) {
        work::count(1);
        let is_same_id = group
            .first()
            .is_some_and(|first| list.entry(*first).uuid == list.entry(index).uuid);
        if !is_same_id || index == NONE {
            mark_group(list, &group);
            group.clear();
        }
        group.push(index);
    }
}

fn mark_group(list: &mut EntryList, group: &[u32]) {
    if group.len() < 2 {
        return;
    }
    let mut seen = std::collections::HashSet::new();
    // A record that the client reads is no copy of one that it skips.
    let (skipped, read): (Vec<u32>, Vec<u32>) = group
        .iter()
        .copied()
        .partition(|index| list.entry(*index).has(mark::SKIPPED));
    for index in read.into_iter().chain(skipped) {
        list.add_marks(index, mark::NAMESAKE);
        if !seen.insert(list.entry(index).content) {
            list.add_marks(index, mark::COPY);
        }
    }
}
