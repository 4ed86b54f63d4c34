//! The links between records: which one each record follows, which ones follow it, and which ones are of one answer.

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
    /// For each record of an answer the next one of it, and for the last one the first one.
    next_blocks: Vec<u32>,
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
        let by_uuid = sort_by_uuid(list);
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
            next_blocks: link_blocks(list),
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

    /// Returns the other records of the same answer: those behind it in the file, then those before it.
    pub(super) fn other_blocks(&self, record: u32) -> impl Iterator<Item = u32> {
        let next = move |block: &u32| {
            work::count(1);
            Some(at(&self.next_blocks, *block)).filter(|next| *next != record && *next != NONE)
        };
        std::iter::successors(next(&record), next)
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

/// Links the records of each answer to a circle.
fn link_blocks(list: &EntryList) -> Vec<u32> {
    let size = usize::try_from(list.count()).unwrap_or(usize::MAX);
    let mut next_blocks = vec![NONE; size];
    // Half of the hash is enough for nearly all comparisons, and the list is as small as the one of links.
    let half = |message: u64| u32::try_from(message >> 32).unwrap_or_default();
    let message = |index: u32| list.entry(index).message;
    let mut blocks: Vec<(u32, u32)> = (0..list.count())
        .filter(|index| message(*index) != 0)
        .map(|index| (half(message(index)), index))
        .collect();
    work::count(blocks.len());
    blocks.sort_unstable_by(|(one, at), (other, beside)| {
        let of_halves = one.cmp(other);
        of_halves.then_with(|| (message(*at), at).cmp(&(message(*beside), beside)))
    });
    for alike in blocks.chunk_by(|(one, _), (other, _)| one == other) {
        // Nearly all answers with one half of a hash are one answer.
        for answer in alike.chunk_by(|(_, one), (_, other)| message(*one) == message(*other)) {
            let after = answer.iter().skip(1).chain(answer.first());
            for ((_, block), (_, next)) in answer.iter().zip(after) {
                set(&mut next_blocks, *block, *next);
            }
        }
    }
    next_blocks
}

/// A record with the first half of its id. A sort that looked at each record again would miss the caches of a processor
/// for nearly every comparison.
type NamedRecord = ([u8; 8], u32);

/// Returns the records with an id, sorted by it, and marks copies among them. Copies are left out.
fn sort_by_uuid(list: &mut EntryList) -> Vec<u32> {
    let name = |index: u32| {
        let uuid = list.entry(index).uuid;
        (!uuid.is_none()).then_some((uuid.first_half(), index))
    };
    let mut named: Vec<NamedRecord> = (0..list.count()).filter_map(name).collect();
    work::count(named.len());
    named.sort_unstable_by(|(one, at), (other, beside)| {
        let of_halves = one.cmp(other);
        of_halves.then_with(|| (list.entry(*at).uuid, at).cmp(&(list.entry(*beside).uuid, beside)))
    });
    let has_copies = mark_copies(list, &named);
    let mut by_uuid: Vec<u32> = named.into_iter().map(|(_, index)| index).collect();
    if has_copies {
        // A search must not pass over the copies of one record again and again.
        by_uuid.retain(|index| !list.entry(*index).has(mark::COPY));
    }
    by_uuid
}

/// Marks the copies among records with one id. A client that goes on may write the same records once more. Returns `true`
/// if there are some.
fn mark_copies(list: &mut EntryList, named: &[NamedRecord]) -> bool {
    let mut has_copies = false;
    for alike in named.chunk_by(|(one, _), (other, _)| one == other) {
        work::count(alike.len());
        // Nearly all ids are those of one record.
        if alike.len() < 2 {
            continue;
        }
        let whole: Vec<(LinkId, u32)> = alike.iter().map(|(_, at)| (list.entry(*at).uuid, *at)).collect();
        for group in whole.chunk_by(|(one, _), (other, _)| one == other) {
            has_copies |= mark_group(list, group);
        }
    }
    has_copies
}

fn mark_group(list: &mut EntryList, group: &[(LinkId, u32)]) -> bool {
    if group.len() < 2 {
        return false;
    }
    let (mut seen, mut has_copies) = (std::collections::HashSet::new(), false);
    // A record that the client reads is no copy of one that it skips.
    let (skipped, read): (Vec<u32>, Vec<u32>) = group
        .iter()
        .map(|(_, index)| *index)
        .partition(|index| list.entry(*index).has(mark::SKIPPED));
    for index in read.into_iter().chain(skipped) {
        list.add_marks(index, mark::NAMESAKE);
        if !seen.insert(list.entry(index).content) {
            list.add_marks(index, mark::COPY);
            has_copies = true;
        }
    }
    has_copies
}
