//! The queue as its handles and its task share it, with the signals between them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool};

use tokio::sync::{Notify, mpsc, watch};

use super::queue::UpdateQueue;

/// The end of a queue that fills it. It is cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SharedQueue {
    queue: Arc<Mutex<UpdateQueue>>,
    wake: mpsc::Sender<()>,
    /// Changed whenever updates have ended or failed.
    ended: watch::Receiver<()>,
    /// `true` while the store fails.
    pub(super) is_failing: Arc<AtomicBool>,
    /// Ends a pause of the task.
    pub(super) end_pause: Arc<Notify>,
}

/// The task's end of a queue.
#[derive(Debug)]
pub(super) struct QueueOfTask {
    queue: Arc<Mutex<UpdateQueue>>,
    woken: mpsc::Receiver<()>,
    ended: watch::Sender<()>,
    pub(super) is_failing: Arc<AtomicBool>,
    pub(super) end_pause: Arc<Notify>,
}

/// Makes an empty queue.
pub(super) fn shared_queue() -> (SharedQueue, QueueOfTask) {
    let queue: Arc<Mutex<UpdateQueue>> = Arc::default();
    let (is_failing, end_pause) = (Arc::default(), Arc::default());
    // One signal is enough: the task looks at all that waits.
    let (wake, woken) = mpsc::channel(1);
    let (end, ended) = watch::channel(());
    let handle = SharedQueue {
        queue: Arc::clone(&queue),
        wake,
        ended,
        is_failing: Arc::clone(&is_failing),
        end_pause: Arc::clone(&end_pause),
    };
    let of_task = QueueOfTask {
        queue,
        woken,
        ended: end,
        is_failing,
        end_pause,
    };
    (handle, of_task)
}

fn lock(queue: &Mutex<UpdateQueue>) -> MutexGuard<'_, UpdateQueue> {
    // Each change leaves a valid queue, so a panic elsewhere need not spread.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedQueue {
    pub(super) fn lock(&self) -> MutexGuard<'_, UpdateQueue> {
        lock(&self.queue)
    }

    /// Tells the task of a change.
    pub(super) fn wake_task(&self) {
        // A full channel has a signal that the task has not taken yet.
        let _ = self.wake.try_send(());
    }

    /// Waits until `is_met` holds, which is checked whenever updates have ended or failed.
    pub(super) async fn wait_until(&self, is_met: impl Fn() -> bool) {
        let mut ended = self.ended.clone();
        loop {
            // Marked as seen before the check, so that an end in between is not missed.
            ended.mark_unchanged();
            // An error means that the task has ended: nothing is left to wait for.
            if is_met() || ended.changed().await.is_err() {
                return;
            }
        }
    }
}

impl QueueOfTask {
    pub(super) fn lock(&self) -> MutexGuard<'_, UpdateQueue> {
        lock(&self.queue)
    }

    /// Waits for a new update. Returns `false` once no handle is left that could queue one.
    pub(super) async fn wait_for_updates(&mut self) -> bool {
        self.woken.recv().await.is_some()
    }

    /// Tells those that wait that updates have ended or failed.
    pub(super) fn publish_ended(&self) {
        self.ended.send_replace(());
    }
}
