//! Where words go among the calls and results of a message: in front of calls, or into a message of their own.

use super::{Builder, Item};
use crate::{conversation::PartKind, wire::json::Slot};

impl Builder<'_, '_> {
    /// Writes a user's message; where results stand apart, as two. The client's own message keeps the results that it
    /// has brought, else the words.
    pub(super) fn close_user(&mut self, message: usize, items: Vec<Item>) {
        let stays = |item: &Item| matches!(item, Item::Stay(..));
        let (results, words) = self.apart(items);
        if words.is_empty() {
            self.done.push(Slot::Old(message, self.rewritten(message, results)));
        } else if results.iter().any(stays) {
            self.done.push(Slot::Old(message, self.rewritten(message, results)));
            self.done.push(Slot::New(self.fresh(true, words)));
        } else {
            if !results.is_empty() {
                self.done.push(Slot::New(self.fresh(true, results)));
            }
            self.done.push(Slot::Old(message, self.rewritten(message, words)));
        }
    }

    /// A user's message of our own; where results stand apart, two.
    pub(super) fn push_fresh(&mut self, items: Vec<Item>) {
        let (results, words) = self.apart(items);
        for items in [results, words] {
            if !items.is_empty() {
                self.done.push(Slot::New(self.fresh(true, items)));
            }
        }
    }

    /// The results among these blocks, and the others where they need a message of their own.
    fn apart(&self, items: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
        let kind = |item: &Item| match item {
            Item::Stay(part, _) => Some(&self.layout.conversation.parts[*part].kind),
            Item::Answer(_) | Item::New(_) => None,
        };
        // Nothing moves in front of a compaction.
        let compacts = |item: &Item| matches!(kind(item), Some(PartKind::Compaction));
        if !self.layout.plan.results_apart || items.iter().any(compacts) {
            return (items, Vec::new());
        }
        let is_result =
            |item: &Item| matches!(item, Item::Answer(_)) || matches!(kind(item), Some(PartKind::Result(_)));
        items.into_iter().partition(is_result)
    }

    /// The blocks of an assistant's message, words in front of calls where they must not stand behind.
    pub(super) fn ordered(&self, message: usize, items: Vec<Item>) -> Vec<Item> {
        if !self.layout.plan.arranged.contains(&message) {
            return items;
        }
        let parts = &self.layout.conversation.parts;
        let rank = |item: &Item| match item {
            Item::Stay(part, _) => match parts[*part].kind {
                PartKind::Call(_) => Rank::Call,
                PartKind::Other => Rank::Words,
                PartKind::Thinking | PartKind::Compaction => Rank::Barrier,
                PartKind::ServerCall(_) | PartKind::ServerResult(_) | PartKind::Result(_) => Rank::Server,
            },
            Item::Answer(_) | Item::New(_) => Rank::Words,
        };
        words_in_front(items, rank, |item| item.lifted(parts))
    }
}

/// The role of a block of an assistant's message in the order of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// Moves in front of calls.
    Words,
    /// Stays behind the words of its stretch.
    Call,
    /// Keeps its place among the calls.
    Server,
    /// Ends a stretch: nothing moves over thinking, which may be signed.
    Barrier,
}

/// Puts the words of each stretch in front of its calls; both keep their order. `lift` marks words that move.
fn words_in_front<T>(items: Vec<T>, rank: impl Fn(&T) -> Rank, lift: impl Fn(T) -> T) -> Vec<T> {
    let mut ordered = Vec::with_capacity(items.len());
    let mut calls = Vec::new();
    for item in items {
        match rank(&item) {
            Rank::Words | Rank::Server if calls.is_empty() => ordered.push(item),
            Rank::Words => ordered.push(lift(item)),
            Rank::Call | Rank::Server => calls.push(item),
            Rank::Barrier => {
                ordered.append(&mut calls);
                ordered.push(item);
            }
        }
    }
    ordered.append(&mut calls);
    ordered
}
