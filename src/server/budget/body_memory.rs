//! The memory of all request bodies: one limit, which bodies wait for while they are read.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{
    BudgetClient, Overloaded, WAIT_MAX,
    body_table::{BodyTable, EVICTION_PAUSE, Eviction, GrowOutcome},
    table_share::ShareKind,
    waiting_shares::ShareId,
};
use crate::clock;

/// Longest wait of a body in all, whatever is evicted for it.
const WAIT_IN_ALL_MAX: Duration = Duration::from_secs(10);
/// Bytes by which a body's share grows at least and at most.
const GROWTH_BYTES: (usize, usize) = (16 * 1024, 1024 * 1024);
/// Size of the least buffer that is mapped: 1 MiB.
const MAPPED_BYTES_MIN: usize = 1024 * 1024;
/// Memory of bodies, used and reserved, above which large buffers are mapped: 64 MiB.
const ALLOCATOR_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Level below which freed memory is left to the allocator for the next bodies: 32 MiB.
const RETURNED_BYTES_MIN: u64 = 32 * 1024 * 1024;

/// Memory of request bodies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BodyMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<MeasuredTable>,
    /// Notified when much memory was freed.
    freed: Notify,
}

#[derive(Debug)]
struct MeasuredTable {
    bodies: BodyTable,
    /// The most bytes since freed memory was last returned to the system.
    peak: u64,
}

/// Use of the memory of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Limit of bytes.
    pub bytes_max: u64,
    /// Bodies that wait for memory.
    pub waiting: usize,
}

/// Share of one body in the memory. Dropping it gives the share back.
#[derive(Debug)]
pub struct BodyShare {
    memory: BodyMemory,
    id: ShareId,
    /// Bytes of the share.
    bytes: usize,
    /// The time that the body has waited for memory.
    waited: Duration,
}

/// Bytes of a body, with their share.
struct SharedBytes<B> {
    bytes: B,
    _share: BodyShare,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for SharedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl BodyMemory {
    /// Creates a memory of `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            table: Mutex::new(MeasuredTable {
                bodies: BodyTable::new(bytes_max),
                peak: 0,
            }),
            freed: Notify::new(),
        }))
    }

    /// Opens the share of a body that `client` sends. A claimed length tells small bodies from large. It takes nothing,
    /// unless the body had to wait: then the rest of it is taken at once.
    pub fn open(&self, client: BudgetClient, claimed: Option<u64>) -> BodyShare {
        self.open_kind(client, ShareKind::Body, claimed)
    }

    /// Opens the share of a copy of a body that has been read, such as the decoded one. It is never evicted.
    pub fn open_copy(&self, client: BudgetClient) -> BodyShare {
        self.open_kind(client, ShareKind::Copy, None)
    }

    /// Opens the share of memory for one pass over a body that has been read. It is never evicted.
    pub fn open_scratch(&self, client: BudgetClient) -> BodyShare {
        self.open_kind(client, ShareKind::Scratch, None)
    }

    fn open_kind(&self, client: BudgetClient, kind: ShareKind, claimed: Option<u64>) -> BodyShare {
        let id = self.lock().bodies.open(client, kind, claimed);
        BodyShare::new(self, id)
    }

    /// Returns the same bytes, which `client` is counted for until the last clone is dropped. Never waits.
    pub fn count_bytes(&self, client: BudgetClient, bytes: Bytes) -> Bytes {
        let mut share = self.open_copy(client);
        share.add(bytes.len());
        Bytes::from_owner(SharedBytes { bytes, _share: share })
    }

    /// Returns the most bytes that large bodies and their processing may use together.
    pub fn processing_bytes_max(&self) -> u64 {
        self.lock().bodies.processing_bytes_max()
    }

    /// Returns the present use.
    pub fn memory_use(&self) -> MemoryUse {
        let table = self.lock();
        MemoryUse {
            bytes: table.bodies.bytes(),
            bytes_max: table.bodies.bytes_max(),
            waiting: table.bodies.waiting_count(),
        }
    }

    /// Waits until most of a large use of memory was freed.
    pub(super) async fn wait_until_freed(&self) {
        self.0.freed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, MeasuredTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table, and wakes the bodies that may continue.
    fn change<T>(&self, change: impl FnOnce(&mut BodyTable) -> T) -> T {
        let mut table = self.lock();
        let changed = change(&mut table.bodies);
        let bytes = table.bodies.bytes();
        table.peak = table.peak.max(bytes);
        let is_freed = table.peak >= RETURNED_BYTES_MIN && bytes <= table.peak / 4;
        if is_freed {
            table.peak = bytes;
        }
        let wakers = table.bodies.next_wakers();
        // Unlocked first: a waker may poll at once.
        drop(table);
        wakers.into_iter().flatten().for_each(std::task::Waker::wake);
        if is_freed {
            self.0.freed.notify_one();
        }
        changed
    }
}

impl BodyShare {
    fn new(memory: &BodyMemory, id: ShareId) -> Self {
        Self {
            memory: memory.clone(),
            id,
            bytes: 0,
            waited: Duration::ZERO,
        }
    }

    /// Makes the share large enough for `wanted` bytes in all. Waits while other bodies use the memory.
    ///
    /// After 5 seconds bodies are evicted, of which this one may be: it then fails. It also fails once all its waits
    /// together have lasted for 10 seconds, and at once if so much can never be free.
    pub async fn grow_to(&mut self, wanted: usize) -> Result<(), Overloaded> {
        if wanted <= self.bytes {
            return Ok(());
        }
        // In large pieces, so that a share is changed only now and then.
        let piece = (self.bytes / 4).clamp(GROWTH_BYTES.0, GROWTH_BYTES.1);
        let more = (wanted - self.bytes).max(piece);
        // Mostly there is room, and nothing to wait for.
        let is_grown = poll_fn(|cx| Poll::Ready(self.poll_grow(more, cx))).await;
        if let Poll::Ready(grown) = is_grown {
            self.bytes = self.bytes.saturating_add(usize::try_from(grown?).unwrap_or(usize::MAX));
            return Ok(());
        }
        let began = clock::now();
        // All waits of the share together have an end, however many pieces it grows by.
        let end = began + WAIT_IN_ALL_MAX.saturating_sub(self.waited);
        let mut until = end.min(began + WAIT_MAX);
        loop {
            let grown = tokio::time::timeout_at(until, poll_fn(|cx| self.poll_grow(more, cx))).await;
            if let Ok(grown) = grown {
                self.waited = self.waited.saturating_add(clock::now().duration_since(began));
                let grown = usize::try_from(grown?).unwrap_or(usize::MAX);
                self.bytes = self.bytes.saturating_add(grown);
                return Ok(());
            }
            let now = clock::now();
            let eviction = self.memory.lock().bodies.evict_for(self.id, now);
            let (wakers, is_evicted) = match eviction {
                Eviction::Others(wakers) => (wakers, false),
                Eviction::Waiter(wakers) => (wakers, true),
                Eviction::Nobody => (Vec::new(), false),
            };
            wakers.into_iter().for_each(std::task::Waker::wake);
            if is_evicted || now >= end {
                return Err(Overloaded::Memory);
            }
            until = end.min(now + EVICTION_PAUSE);
        }
    }

    /// Returns `true` if a buffer of this size should go back to the system as soon as it is freed.
    ///
    /// The allocator keeps freed memory for a second, which is fast, and costs little as long as there is little of it.
    pub fn needs_map(&self, bytes: usize) -> bool {
        if bytes < MAPPED_BYTES_MIN {
            return false;
        }
        let table = self.memory.lock();
        table.bodies.bytes().saturating_add(table.bodies.reserved()) > ALLOCATOR_BYTES_MAX
    }

    /// Reserves address space for `bytes` more than the body has. `false` if too much of it is reserved.
    pub fn reserve(&self, bytes: usize) -> bool {
        self.memory.lock().bodies.reserve(self.id, bytes as u64)
    }

    /// Resolves once this body was evicted for others.
    pub fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.memory.lock().bodies.watch(self.id, cx.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Counts `bytes` more, whether or not they are free.
    pub fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.memory.change(|table| table.add(self.id, bytes as u64));
    }

    /// Keeps `bytes` of a share for a pass as a copy, which stays. Gives back the rest.
    pub fn keep_as_copy(&mut self, bytes: usize) {
        let unused = self.bytes.saturating_sub(bytes);
        self.bytes -= unused;
        self.memory.change(|table| {
            table.give_back(self.id, unused as u64);
            table.keep_as_copy(self.id);
        });
    }

    /// Ends the reading: from now on the body is never evicted. The share shrinks to the bytes that are used.
    ///
    /// Fails if it was evicted before.
    pub fn end_reading(&mut self, used: usize) -> Result<(), Overloaded> {
        let unused = self.bytes.saturating_sub(used);
        self.bytes = self.bytes.min(used);
        let stays = self.memory.change(|table| {
            table.give_back(self.id, unused as u64);
            table.end_reading(self.id)
        });
        stays.then_some(()).ok_or(Overloaded::Memory)
    }

    /// Returns the bytes of a body as a handle. The share is given back when the last clone is dropped.
    pub fn into_bytes(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(SharedBytes { bytes, _share: self })
    }

    /// Returns the bytes by which the share has grown.
    fn poll_grow(&self, more: usize, cx: &mut Context<'_>) -> Poll<Result<u64, Overloaded>> {
        let mut table = self.memory.lock();
        match table.bodies.try_grow(self.id, more as u64) {
            GrowOutcome::Evicted => Poll::Ready(Err(Overloaded::Memory)),
            GrowOutcome::Waiting => {
                table.bodies.watch(self.id, cx.waker());
                Poll::Pending
            }
            GrowOutcome::Grown(bytes) => {
                table.peak = table.peak.max(table.bodies.bytes());
                // The next that waits may fit too.
                let wakers = table.bodies.next_wakers();
                drop(table);
                wakers.into_iter().flatten().for_each(std::task::Waker::wake);
                Poll::Ready(Ok(bytes))
            }
        }
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.memory.change(|table| table.release(self.id));
    }
}
