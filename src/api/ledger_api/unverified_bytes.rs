//! The memory of bodies whose signature can be verified only once they are read: anyone may send them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Bytes of all such bodies at once: 64 MiB.
const TOTAL_MAX: usize = 64 * 1024 * 1024;

/// The bytes that all such bodies take up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct UnverifiedBytes(Arc<AtomicUsize>);

/// The share of one body. Dropping it frees its bytes.
#[derive(Debug)]
pub(super) struct UnverifiedShare {
    total: Arc<AtomicUsize>,
    own: usize,
}

impl UnverifiedBytes {
    /// Begins the share of a body.
    pub(super) fn begin_share(&self) -> UnverifiedShare {
        UnverifiedShare {
            total: Arc::clone(&self.0),
            own: 0,
        }
    }
}

impl UnverifiedShare {
    /// Adds bytes that arrived. Returns `false` if all bodies together take up too much.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        self.own = self.own.saturating_add(bytes);
        let before = self.total.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= TOTAL_MAX
    }
}

impl Drop for UnverifiedShare {
    fn drop(&mut self) {
        self.total.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bodies_share_one_budget() {
        let bytes = UnverifiedBytes::default();
        let (mut one, mut other) = (bytes.begin_share(), bytes.begin_share());
        assert!(one.add(TOTAL_MAX));
        assert!(!other.add(1));
        drop((one, other));
        assert!(bytes.begin_share().add(TOTAL_MAX));
    }
}
