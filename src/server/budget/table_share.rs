//! One share in the table of bodies: its bytes, its use, and the sums of its client.

use std::task::Waker;

use super::BudgetClient;

/// Size up to which a body uses the memory that large ones leave free: 256 KiB.
const SMALL_BYTES_MAX: u64 = 256 * 1024;

/// The use of a share. Each has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareUse {
    /// A body or its processing, up to [`SMALL_BYTES_MAX`].
    Small,
    /// A copy of a body that has been read, or scratch memory for reading it. It comes before large bodies, since it lets a
    /// body finish.
    Processing,
    /// A body that is being read.
    LargeBody,
}

/// The memory that a share counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareKind {
    /// A body that is read from its client.
    Body,
    /// A copy of a body, such as the decoded one, which stays for as long as the exchange.
    Copy,
    /// Memory for one pass over a body.
    Scratch,
}

/// The share of one body, or of its processing.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) client: BudgetClient,
    pub(super) kind: ShareKind,
    pub(super) bytes: u64,
    /// The length that the client claims, or 0.
    pub(super) claimed: u64,
    /// Bytes for which it waits.
    pub(super) wanted: u64,
    /// `true` until the whole body has been read. After that it is never evicted.
    pub(super) is_reading: bool,
    pub(super) is_evicted: bool,
    /// `true` once it has waited for 5 s although its memory was free. From then on it waits for memory alone.
    pub(super) skips_queue: bool,
    /// The table's grants of processing when it was last asked whether its queue moves.
    pub(super) grants_seen: u64,
    pub(super) reserved: u64,
    pub(super) waker: Option<Waker>,
}

/// All shares of one client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientTotal {
    pub(super) shares: usize,
    pub(super) bodies: usize,
    pub(super) bytes: u64,
    /// Bytes of scratch memory among them.
    pub(super) scratch_bytes: u64,
    /// Bodies that could be evicted.
    pub(super) evictable: usize,
}

impl Share {
    /// Returns its use with `more` bytes.
    pub(super) fn use_with(&self, more: u64) -> ShareUse {
        if self.claimed.max(self.bytes.saturating_add(more)) <= SMALL_BYTES_MAX {
            ShareUse::Small
        } else if self.kind == ShareKind::Body {
            ShareUse::LargeBody
        } else {
            ShareUse::Processing
        }
    }

    /// Returns its bytes of scratch memory.
    pub(super) const fn scratch_bytes(&self) -> u64 {
        match self.kind {
            ShareKind::Scratch => self.bytes,
            ShareKind::Body | ShareKind::Copy => 0,
        }
    }

    /// Returns `true` if its eviction would free memory.
    pub(super) const fn is_evictable(&self) -> bool {
        self.is_reading && !self.is_evicted && self.bytes > 0
    }
}
