//! A list in pages: it grows by one page at a time, so that memory follows the number of elements.

/// Elements in a page.
const PAGE: usize = 4096;

/// A list whose elements are never moved, while a vector doubles and copies itself.
#[derive(Debug)]
pub(super) struct PagedList<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for PagedList<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T: Copy> PagedList<T> {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        let last = self.pages.last().map_or(0, Vec::len);
        self.pages
            .len()
            .saturating_sub(1)
            .saturating_mul(PAGE)
            .saturating_add(last)
    }

    /// Returns an element.
    pub(super) fn get(&self, index: usize) -> Option<T> {
        self.pages.get(index / PAGE)?.get(index % PAGE).copied()
    }

    /// Returns the place of an element.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pages.get_mut(index / PAGE)?.get_mut(index % PAGE)
    }

    /// Adds an element at the end.
    pub(super) fn push(&mut self, element: T) {
        if self.pages.last().is_none_or(|page| page.len() >= PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        if let Some(page) = self.pages.last_mut() {
            page.push(element);
        }
    }

    /// Removes the elements from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.pages.truncate(len.div_ceil(PAGE));
        let last = self.pages.len().saturating_sub(1);
        if let Some(page) = self.pages.get_mut(last) {
            page.truncate(len.saturating_sub(last.saturating_mul(PAGE)));
        }
    }

    /// Returns the elements from `first` on.
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = T> {
        let pages = self.pages.get(first / PAGE..).unwrap_or_default();
        pages.iter().flatten().skip(first % PAGE).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_pages_is_as_a_vector() {
        let (mut list, mut vector) = (PagedList::default(), Vec::new());
        for kept in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 2 * PAGE + 5, PAGE, 7, 0] {
            for number in vector.len()..kept {
                list.push(number);
                vector.push(number);
            }
            list.truncate(kept);
            vector.truncate(kept);
            assert_eq!(list.len(), vector.len());
            for first in [0, 1, kept / 2, kept, kept + 1, PAGE, 9 * PAGE] {
                let rest: Vec<usize> = list.iter_from(first).collect();
                assert_eq!(rest, vector.get(first..).unwrap_or_default(), "{kept} from {first}");
                assert_eq!(list.get(first), vector.get(first).copied());
                assert_eq!(list.get_mut(first), vector.get_mut(first));
            }
        }
    }
}
