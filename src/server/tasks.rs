//! Every task of the process has an owner here, so that the drain can wait for it.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Something that is said once, to all tasks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Signal {
    token: CancellationToken,
    given: Arc<AtomicBool>,
}

impl Signal {
    fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.token.cancel();
    }

    /// Runs `task` until the signal is given; none if the signal came first.
    ///
    /// The token is asked once a waker: its answer takes a lock that all tasks share, and would on every poll.
    pub async fn until<F: Future + Unpin>(&self, mut task: F) -> Option<F::Output> {
        let mut cancelled = pin!(self.token.cancelled());
        let mut registered: Option<Waker> = None;
        poll_fn(|cx| {
            let known = registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
            if !known {
                registered = Some(cx.waker().clone());
            }
            let given = if known {
                self.given.load(Ordering::Acquire)
            } else {
                cancelled.as_mut().poll(cx).is_ready()
            };
            if given {
                return Poll::Ready(None);
            }
            Pin::new(&mut task).poll(cx).map(Some)
        })
        .await
    }
}

/// A task that can be cut. Boxed, as futures within futures hold what they were given twice: that was 9 kB a connection.
async fn run(cut: Signal, task: Pin<Box<impl Future<Output = ()>>>) {
    cut.until(task).await;
}

/// The owner of all tasks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    // Client connections and what runs on them: the drain waits for these.
    connections: TaskTracker,
    // Pool upkeep, accept loops: cut once the connections are done.
    background: TaskTracker,
    stop: Signal,
    cut: Signal,
}

impl Tasks {
    /// Runs a client connection: the drain waits for it.
    pub fn spawn_connection(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn(run(self.cut.clone(), Box::pin(task)));
    }

    /// Runs upkeep: the drain cuts it when the connections are done.
    pub fn spawn_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(run(self.cut.clone(), Box::pin(task)));
    }

    /// Given once the drain has begun.
    pub fn stopping(&self) -> Signal {
        self.stop.clone()
    }

    /// Stops accepting, waits up to `timeout` for what runs, then cuts what is left.
    ///
    /// Returns how many connections were cut.
    pub async fn drain(&self, timeout: Duration) -> usize {
        self.stop.give();
        self.connections.close();
        self.background.close();
        let finished = tokio::time::timeout(timeout, self.connections.wait()).await;
        let left = if finished.is_ok() { 0 } else { self.connections.len() };
        self.cut.give();
        self.connections.wait().await;
        self.background.wait().await;
        left
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn_background(async move {
            drop(task.await);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_ends_what_waits_and_what_begins_later() {
        let signal = Signal::default();
        assert_eq!(signal.until(pin!(async { 1 })).await, Some(1));
        let (ended, ()) = tokio::join!(signal.until(std::future::pending::<()>()), async {
            tokio::task::yield_now().await;
            signal.give();
        });
        assert_eq!(ended, None);
        assert_eq!(signal.until(pin!(async { 1 })).await, None);
    }
}
