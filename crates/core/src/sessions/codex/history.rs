//! The history that Codex builds from a rollout: what a summary has replaced, or a rollback removed, is not sent.

use std::collections::HashMap;

use super::item::{CodexItemKind, ItemFlaw};
use crate::{sessions::block_list::BlockList, work};

/// The place of an item in the file, and what is known of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ItemPlace {
    pub(super) line: u64,
    /// Offset of its record.
    pub(super) byte: u64,
    /// Bytes of its record.
    pub(super) len: u64,
    /// `true` if the client skips the line.
    pub(super) is_skipped: bool,
    /// `true` if its record, mended, is not longer.
    pub(super) fits: bool,
    /// `true` if the record holds this item alone, so that it can be rewritten.
    pub(super) is_alone: bool,
}

/// A call, an output, or another item with a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryItem {
    pub(super) kind: CodexItemKind,
    pub(super) flaw: Option<ItemFlaw>,
    /// Index of its id among those of the history.
    pub(super) name: u32,
    /// Messages before it.
    pub(super) spoken: u32,
    /// Messages of the user before it.
    pub(super) asked: u32,
    pub(super) place: ItemPlace,
}

/// The present extent of the history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// Index of the first item.
    pub(super) from: usize,
    /// Items of all kinds, on lines that the client reads.
    pub(super) sent: u64,
    /// Messages.
    pub(super) spoken: u32,
    /// Messages of the user.
    pub(super) asked: u32,
}

/// The beginning of a turn: the history before it.
#[derive(Clone, Copy, Debug)]
struct TurnStart {
    items: usize,
    before: Extent,
}

/// The last uses of an id. A number beyond the items stands for none.
#[derive(Clone, Copy, Debug)]
struct IdUse {
    name: u32,
    call: u32,
    output: u32,
}

/// The history so far.
#[derive(Debug, Default)]
pub(super) struct CodexHistory {
    items: BlockList<HistoryItem>,
    ids: HashMap<Box<[u8]>, IdUse>,
    turns: BlockList<TurnStart>,
    pub(super) extent: Extent,
}

impl CodexHistory {
    /// Adds an item that pairs, or has a fault.
    pub(super) fn add(&mut self, kind: CodexItemKind, id: &[u8], flaw: Option<ItemFlaw>, place: ItemPlace) {
        let next = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let at = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let unused = IdUse {
            name: next,
            call: u32::MAX,
            output: u32::MAX,
        };
        work::count_bytes(id.len());
        // Most ids are known already: those of outputs.
        let found = match self.ids.get_mut(id) {
            Some(found) => found,
            None => self.ids.entry(id.into()).or_insert(unused),
        };
        let last = if kind.is_call() {
            &mut found.call
        } else {
            &mut found.output
        };
        *last = at;
        let name = found.name;
        self.items.push(HistoryItem {
            kind,
            flaw,
            name,
            spoken: self.extent.spoken,
            asked: self.extent.asked,
            place,
        });
    }

    /// Returns `true` if a call with this id has no output so far.
    pub(super) fn awaits_output(&self, id: &[u8]) -> bool {
        work::count_bytes(id.len());
        let Some(found) = self.ids.get(id) else {
            return false;
        };
        let is_there = |at: u32| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let item = self.items.get(at).filter(|_| at >= self.extent.from);
            item.is_some_and(|item| item.name == found.name)
        };
        is_there(found.call) && !is_there(found.output)
    }

    /// Counts an item that is sent, unless its line is skipped.
    pub(super) fn count_item(&mut self, is_skipped: bool) {
        self.extent.sent = self.extent.sent.saturating_add(u64::from(!is_skipped));
    }

    /// Notes a message. One of the user begins a turn, which can be rolled back.
    pub(super) fn note_message(&mut self, begins_turn: bool) {
        if begins_turn {
            self.turns.push(TurnStart {
                items: self.items.len(),
                before: self.extent,
            });
            self.extent.asked = self.extent.asked.saturating_add(1);
        }
        self.extent.spoken = self.extent.spoken.saturating_add(1);
    }

    /// Begins anew: a summary stands for everything before it.
    pub(super) fn replace_all(&mut self) {
        self.extent.from = self.items.len();
        self.extent.sent = 0;
    }

    /// Removes the last turns. A summary inside of them goes too, and what it has replaced comes back.
    pub(super) fn roll_back(&mut self, turns: usize) {
        let kept = self.turns.len().saturating_sub(turns);
        let Some(start) = self.turns.get(kept) else {
            return;
        };
        self.turns.truncate(kept);
        self.items.truncate(start.items);
        self.extent = start.before;
    }

    /// Returns the items that are sent, in their order.
    pub(super) fn items(&self) -> impl Iterator<Item = HistoryItem> {
        self.items.iter_from(self.extent.from)
    }

    /// Returns one of the items that are sent, by its place among them.
    pub(super) fn item(&self, place: usize) -> Option<HistoryItem> {
        self.items.get(self.extent.from.saturating_add(place))
    }

    /// Returns the ids, by their index.
    pub(super) fn ids(&self) -> Vec<&[u8]> {
        let mut ids: Vec<&[u8]> = vec![&[]; self.ids.len()];
        for (id, found) in &self.ids {
            work::count(1);
            let place = usize::try_from(found.name).ok().and_then(|at| ids.get_mut(at));
            if let Some(place) = place {
                *place = id;
            }
        }
        ids
    }
}
