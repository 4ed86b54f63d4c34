//! Queues of bytes on their way out. Each has a writer of its own, so that no slow reader stops the other direction.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

/// The bytes from which on nothing more is read for a queue. A line may exceed them.
const ROOM: usize = 1024 * 1024;

/// The way into a queue. The writer ends once it is dropped and everything is written.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    sender: UnboundedSender<Bytes>,
    load: Arc<QueueLoad>,
}

/// The load of a queue.
#[derive(Debug, Default)]
pub(super) struct QueueLoad {
    bytes: AtomicUsize,
    written: Notify,
}

/// The way out of a queue.
pub(super) struct OutletEnd {
    receiver: UnboundedReceiver<Bytes>,
    load: Arc<QueueLoad>,
}

impl Outlet {
    /// Creates a queue.
    pub(super) fn open() -> (Self, OutletEnd) {
        let (sender, receiver) = unbounded_channel();
        let load = Arc::new(QueueLoad::default());
        let end = OutletEnd {
            receiver,
            load: Arc::clone(&load),
        };
        (Self { sender, load }, end)
    }

    /// Adds bytes. Returns them if nobody reads there any more.
    pub(super) fn send(&self, bytes: Bytes) -> Result<(), Bytes> {
        let length = bytes.len();
        self.load.bytes.fetch_add(length, Ordering::AcqRel);
        self.sender.send(bytes).map_err(|refused| {
            self.load.take_off(length);
            refused.0
        })
    }

    /// Returns `true` if the queue takes more.
    pub(super) fn has_room(&self) -> bool {
        self.load.bytes.load(Ordering::Acquire) < ROOM
    }

    /// Returns the load, to wait for.
    pub(super) fn load(&self) -> Arc<QueueLoad> {
        Arc::clone(&self.load)
    }
}

impl QueueLoad {
    /// Returns `true` if everything was written.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Waits until something was written.
    pub(super) async fn await_change(&self) {
        self.written.notified().await;
    }

    /// Waits until the queue is empty, for this time at most.
    pub(super) async fn await_empty(&self, limit: Duration) {
        let waiting = async {
            while !self.is_empty() {
                self.await_change().await;
            }
        };
        // Whoever does not read in this time gets the rest no more.
        drop(tokio::time::timeout(limit, waiting).await);
    }

    fn take_off(&self, length: usize) {
        self.bytes.fetch_sub(length, Ordering::AcqRel);
        self.written.notify_one();
    }
}

impl OutletEnd {
    /// Returns the next bytes. `None` once the other end was dropped and everything is taken.
    pub(super) async fn next_bytes(&mut self) -> Option<Bytes> {
        let bytes = self.receiver.recv().await?;
        self.load.take_off(bytes.len());
        Some(bytes)
    }

    /// Takes nothing more.
    pub(super) fn close(&mut self) {
        let unread = self.take_rest();
        self.forget(&unread);
    }

    /// Writes everything to a pipe of a child. Ends early if nobody reads it.
    pub(super) async fn write_all(mut self, mut to: impl AsyncWrite + Unpin) {
        while let Some(bytes) = self.receiver.recv().await {
            let written = to.write_all(&bytes).await;
            self.load.take_off(bytes.len());
            if written.is_err() {
                break;
            }
        }
        self.close();
    }

    /// Writes everything like [`write_all`](Self::write_all), from a thread of its own: the client may use the pipe in its
    /// own mode. Returns what could not be written, which stays a part of the load.
    pub(super) fn write_blocking(&mut self, to: &mut impl Write) -> Vec<Bytes> {
        while let Some(bytes) = self.receiver.blocking_recv() {
            let written = to.write_all(&bytes).and_then(|()| to.flush());
            if written.is_err() {
                return [vec![bytes], self.take_rest()].concat();
            }
            self.load.take_off(bytes.len());
        }
        Vec::new()
    }

    /// Takes what is left, and nothing more.
    fn take_rest(&mut self) -> Vec<Bytes> {
        self.receiver.close();
        std::iter::from_fn(|| self.receiver.try_recv().ok()).collect()
    }

    /// Forgets what nobody reads, so that nobody waits for room.
    pub(super) fn forget(&self, unread: &[Bytes]) {
        self.load.take_off(unread.iter().map(Bytes::len).sum());
    }
}

/// Waits until something of a full queue was written.
pub(super) async fn await_load(load: Option<Arc<QueueLoad>>) {
    match load {
        Some(load) => load.await_change().await,
        None => std::future::pending().await,
    }
}
