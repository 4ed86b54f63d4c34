//! The bytes that the open messages of one server may hold together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Most bytes that are held together.
const TOTAL_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The bytes that are held together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteBudget(Arc<AtomicUsize>);

/// The bytes that one message holds. They are free again once it is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    budget: ByteBudget,
    bytes: usize,
}

impl ByteBudget {
    /// Begins with no byte.
    pub(super) fn hold_none(&self) -> HeldBytes {
        HeldBytes {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl HeldBytes {
    /// Holds this number of bytes in place of those before. Returns `false` if there are not so many.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let total = &self.budget.0;
        if bytes <= before {
            total.fetch_sub(before.saturating_sub(bytes), Ordering::AcqRel);
            return true;
        }
        let more = bytes.saturating_sub(before);
        total.fetch_add(more, Ordering::AcqRel).saturating_add(more) <= TOTAL_BYTES_MAX
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_free_again() {
        let budget = ByteBudget::default();
        let mut first = budget.hold_none();
        let mut second = budget.hold_none();
        assert!(first.set(TOTAL_BYTES_MAX) && !second.set(1));
        assert!(first.set(5) && second.set(TOTAL_BYTES_MAX - 5));
        drop(first);
        assert!(second.set(TOTAL_BYTES_MAX));
        drop(second);
        assert_eq!(budget.0.load(Ordering::Acquire), 0);
    }
}
