//! The records beside the chain that a request has too: parallel calls and their results branch off.

use std::collections::{HashMap, HashSet};

use super::{
    branch::RecordSet,
    entry::{EntryList, PartSort, mark},
    links::{LinkIndex, NONE},
};
use crate::work;

/// A call that a request has.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentCall {
    /// Its record.
    pub(super) record: u32,
    /// The record of its result. [`NONE`] if it has none: there is one such call for a few records, so it stays small.
    result: u32,
}

impl SentCall {
    /// Returns the record of its result.
    pub(super) fn result(self) -> Option<u32> {
        Some(self.result).filter(|result| *result != NONE)
    }
}

/// The records of a request, and its calls.
#[derive(Debug)]
pub(super) struct SentRecords {
    /// The chain, what the last compaction has kept, and what stands beside them.
    pub(super) members: RecordSet,
    /// The calls, by the hashes of their ids.
    pub(super) calls: HashMap<u64, SentCall>,
    /// Results beside the chain, by their calls.
    pub(super) joined: HashMap<u64, u32>,
    /// The ids of several calls, or of several results.
    pub(super) repeated: HashSet<u64>,
}

impl SentRecords {
    /// Adds to `members` what stands beside them. Skipped records count only with `reads_skipped`.
    pub(super) fn join(list: &EntryList, index: &LinkIndex, members: RecordSet, reads_skipped: bool) -> Self {
        let is_own = |record: u32| {
            let entry = list.entry(record);
            let is_read = reads_skipped || !entry.has(mark::SKIPPED);
            entry.has(mark::MESSAGE) && is_read && !entry.has(mark::COPY) && !index.is_foreign(list, record)
        };
        let mut sent = Self {
            members,
            calls: HashMap::new(),
            joined: HashMap::new(),
            repeated: HashSet::new(),
        };
        sent.add_blocks(list, index, &is_own);
        for record in 0..list.count() {
            if sent.members.has(record) && list.entry(record).has(mark::ASSISTANT) {
                for part in list.parts_of(record) {
                    work::count(1);
                    if matches!(part.sort, PartSort::Call(_)) && part.id != 0 {
                        let call = SentCall { record, result: NONE };
                        if sent.calls.insert(part.id, call).is_some() {
                            sent.repeated.insert(part.id);
                        }
                    }
                }
            }
        }
        sent.note_results(list, |sent, record| sent.members.has(record));
        // Of the results beside the chain the client takes those whose call has none yet.
        sent.note_results(list, |sent, record| !sent.members.has(record) && is_own(record));
        sent
    }

    /// Adds the other records of the same answers.
    fn add_blocks(&mut self, list: &EntryList, index: &LinkIndex, is_own: &impl Fn(u32) -> bool) {
        let chosen = self.members.clone();
        // Each answer is looked at once, however many of its records were chosen.
        let mut seen = RecordSet::with_room(list.count());
        for record in (0..list.count()).filter(|record| chosen.has(*record)) {
            if !seen.add(record) {
                continue;
            }
            for block in index.other_blocks(record) {
                seen.add(block);
                if is_own(block) {
                    self.members.add(block);
                }
            }
        }
    }

    fn note_results(&mut self, list: &EntryList, is_wanted: impl Fn(&Self, u32) -> bool) {
        for record in 0..list.count() {
            if !list.entry(record).has(mark::RESULTS) || !is_wanted(self, record) {
                continue;
            }
            let is_beside = !self.members.has(record);
            for part in list.parts_of(record) {
                work::count(1);
                let call = self.calls.get_mut(&part.id);
                if !is_beside && call.as_ref().is_some_and(|call| call.result().is_some()) {
                    self.repeated.insert(part.id);
                }
                let is_open = |call: &&mut SentCall| call.result().is_none() && call.record < record;
                if let Some(call) = call.filter(is_open) {
                    call.result = record;
                    // A record may have the results of several calls.
                    if is_beside {
                        self.members.add(record);
                        self.joined.insert(part.id, record);
                    }
                }
            }
        }
    }
}
