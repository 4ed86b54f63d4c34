//! A list in blocks: it grows by one block at a time, so that memory follows the number of elements.

/// Elements in a block.
const BLOCK: usize = 4096;

/// A list whose elements are never moved, while a vector doubles and copies itself.
#[derive(Debug)]
pub(super) struct BlockList<T> {
    blocks: Vec<Vec<T>>,
}

impl<T> Default for BlockList<T> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<T: Copy> BlockList<T> {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        let last = self.blocks.last().map_or(0, Vec::len);
        self.blocks
            .len()
            .saturating_sub(1)
            .saturating_mul(BLOCK)
            .saturating_add(last)
    }

    /// Returns an element.
    pub(super) fn get(&self, index: usize) -> Option<T> {
        self.blocks.get(index / BLOCK)?.get(index % BLOCK).copied()
    }

    /// Returns the place of an element.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.blocks.get_mut(index / BLOCK)?.get_mut(index % BLOCK)
    }

    /// Adds an element at the end.
    pub(super) fn push(&mut self, element: T) {
        if self.blocks.last().is_none_or(|block| block.len() >= BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(element);
        }
    }

    /// Removes the elements from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.blocks.truncate(len.div_ceil(BLOCK));
        let last = self.blocks.len().saturating_sub(1);
        if let Some(block) = self.blocks.get_mut(last) {
            block.truncate(len.saturating_sub(last.saturating_mul(BLOCK)));
        }
    }

    /// Returns the elements from `first` on.
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = T> {
        let blocks = self.blocks.get(first / BLOCK..).unwrap_or_default();
        blocks.iter().flatten().skip(first % BLOCK).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_blocks_is_as_a_vector() {
        let (mut list, mut vector) = (BlockList::default(), Vec::new());
        for kept in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 2 * BLOCK + 5, BLOCK, 7, 0] {
            for number in vector.len()..kept {
                list.push(number);
                vector.push(number);
            }
            list.truncate(kept);
            vector.truncate(kept);
            assert_eq!(list.len(), vector.len());
            for first in [0, 1, kept / 2, kept, kept + 1, BLOCK, 9 * BLOCK] {
                let rest: Vec<usize> = list.iter_from(first).collect();
                assert_eq!(rest, vector.get(first..).unwrap_or_default(), "{kept} from {first}");
                assert_eq!(list.get(first), vector.get(first).copied());
                assert_eq!(list.get_mut(first), vector.get_mut(first));
            }
        }
    }
}
