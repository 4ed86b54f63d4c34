//! A queue that many handles fill and one worker empties, with the signals between them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

/// Positions of the entries of a queue, which rise by one with each entry.
pub trait Positions {
    /// Returns the position of the next entry.
    fn next_position(&self) -> u64;
    /// Returns the position of the oldest entry that waits, or the next one. Every entry before it has ended, unless the
    /// worker has it.
    fn first_open_position(&self) -> u64;
}

/// The handle that fills a queue. It is cheap to clone.
#[derive(Debug)]
pub struct QueueSender<Q> {
    queue: Arc<Mutex<Q>>,
    wake: mpsc::Sender<()>,
    /// The position before which every entry has ended.
    ended: watch::Receiver<u64>,
}

/// The worker's end of a queue.
#[derive(Debug)]
pub struct QueueReceiver<Q> {
    queue: Arc<Mutex<Q>>,
    woken: mpsc::Receiver<()>,
    ended: watch::Sender<u64>,
}

/// Makes an empty queue.
pub fn worker_queue<Q: Default>() -> (QueueSender<Q>, QueueReceiver<Q>) {
    let queue: Arc<Mutex<Q>> = Arc::default();
    // One signal is enough: the worker looks at all that waits.
    let (wake, woken) = mpsc::channel(1);
    let (end, ended) = watch::channel(0);
    let sender = QueueSender {
        queue: Arc::clone(&queue),
        wake,
        ended,
    };
    let receiver = QueueReceiver {
        queue,
        woken,
        ended: end,
    };
    (sender, receiver)
}

fn lock<Q>(queue: &Mutex<Q>) -> MutexGuard<'_, Q> {
    // Each change leaves a valid queue, so a panic elsewhere need not spread.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Q> Clone for QueueSender<Q> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            wake: self.wake.clone(),
            ended: self.ended.clone(),
        }
    }
}

impl<Q: Positions> QueueSender<Q> {
    /// Locks the queue.
    pub fn lock(&self) -> MutexGuard<'_, Q> {
        lock(&self.queue)
    }

    /// Tells the worker of a change.
    pub fn wake_worker(&self) {
        // A full channel has a signal that the worker has not taken yet.
        let _ = self.wake.try_send(());
    }

    /// Waits until every entry that was added before has ended.
    pub async fn flush(&self) {
        let position = self.lock().next_position();
        let mut ended = self.ended.clone();
        // An error means that the worker has ended: nothing is left to wait for.
        drop(ended.wait_for(|ended| *ended >= position).await);
    }

    /// Waits until `is_met` holds, which is checked whenever entries have ended.
    pub async fn wait_until(&self, is_met: impl Fn(&Q) -> bool) {
        let mut ended = self.ended.clone();
        loop {
            // Marked as seen before the check, so that an end in between is not missed.
            ended.mark_unchanged();
            if is_met(&self.lock()) || ended.changed().await.is_err() {
                return;
            }
        }
    }
}

impl<Q: Positions> QueueReceiver<Q> {
    /// Locks the queue.
    pub fn lock(&self) -> MutexGuard<'_, Q> {
        lock(&self.queue)
    }

    /// Waits for a change. Returns `false` once no handle is left that could make one.
    pub async fn wait_for_change(&mut self) -> bool {
        self.woken.recv().await.is_some()
    }

    /// Tells those that wait for the end of entries which ones have ended.
    pub fn publish_ended(&self) {
        self.ended.send_replace(self.lock().first_open_position());
    }
}
