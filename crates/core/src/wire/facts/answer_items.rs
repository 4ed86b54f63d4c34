//! Hashes of the items of a Responses answer, in their order. Noted only if asked for.

use crate::wire::item_chain::ChainItem;

/// Largest number of items that are noted. Of a longer answer none is.
const ITEMS_MAX: usize = 1024;

/// The items of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerItems {
    /// Set if the items are noted at all.
    is_wanted: bool,
    /// Set once an item could not be read.
    is_incomplete: bool,
    /// Each item with its index in the answer. `None` if the event named none.
    list: Vec<(Option<u64>, ChainItem)>,
}

impl AnswerItems {
    /// Makes the reader note the items.
    pub(crate) const fn set_wanted(&mut self) {
        self.is_wanted = true;
    }

    /// Returns `true` if the reader notes the items.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Returns the number of items so far.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Drops everything: the answer cannot be read as a whole.
    pub(crate) fn give_up(&mut self) {
        self.is_incomplete = true;
        self.list = Vec::new();
    }

    /// Adds a complete item, as the answer contains it.
    pub(crate) fn add_item(&mut self, index: Option<u64>, item: &[u8]) {
        if !self.is_wanted || self.is_incomplete {
            return;
        }
        match ChainItem::read(item) {
            Some(read) if self.list.len() < ITEMS_MAX => self.list.push((index, read)),
            _ => self.give_up(),
        }
    }

    /// Returns the items in the order of the answer. `None` if not every item is known.
    pub fn in_order(&self) -> Option<Vec<ChainItem>> {
        if !self.is_wanted || self.is_incomplete {
            return None;
        }
        let mut list = self.list.clone();
        // Items may end in another order than they began.
        list.sort_by_key(|(index, _)| *index);
        let is_gapless = list
            .iter()
            .enumerate()
            .all(|(at, (index, _))| index.is_none_or(|index| usize::try_from(index) == Ok(at)));
        is_gapless.then(|| list.into_iter().map(|(_, item)| item).collect())
    }
}
