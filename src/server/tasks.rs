//! The owner of all tasks of the process, so that the drain can wait for each of them.

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

use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A signal that is given once, to all tasks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StopSignal {
    token: CancellationToken,
    is_given: Arc<AtomicBool>,
}

impl StopSignal {
    /// Returns `true` if the signal has been given.
    pub fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }

    /// Gives the signal.
    fn give_signal(&self) {
        // Stored first: a task that the token wakes must see it.
        self.is_given.store(true, Ordering::Release);
        self.token.cancel();
    }

    /// Runs `task` until the signal is given. Returns `None` if the signal came first.
    ///
    /// The token is polled only if the waker has changed, because its poll takes a lock that all tasks share.
    pub async fn run_until<F: Future + Unpin>(&self, mut task: F) -> Option<F::Output> {
        let mut cancelled = pin!(self.token.cancelled());
        let mut registered: Option<Waker> = None;
        poll_fn(|cx| {
            let known = registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
            if !known {
                registered = Some(cx.waker().clone());
            }
            // A registered waker is woken by the token, so a read of the flag is enough here.
            let given = if known {
                self.is_given.load(Ordering::Acquire)
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

    /// Runs `task` until one of its polls finds that the signal is given. Returns `None` if the signal came first.
    ///
    /// It registers no waker, which would take a lock that all tasks share. So it ends at once only within a task that
    /// [`Tasks`] wakes: all of them are woken by [`Tasks::closing_signal`].
    pub async fn run_until_noticed<F: Future + Unpin>(&self, mut task: F) -> Option<F::Output> {
        if self.is_given() {
            return None;
        }
        poll_fn(|cx| match Pin::new(&mut task).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Checked only after a poll: an output that is ready comes before the signal.
            Poll::Pending if self.is_given() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

/// Time for answers to end after they were asked to, before their connections are cut.
const CLOSING_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for exchanges on other threads to end after their connections were cut: one step of their work.
const LAST_STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// A task of any type, so that the code which runs tasks is compiled once.
type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a task that can be cut. It is boxed: nested futures store their arguments twice, which cost 9 kB a connection.
async fn run_until_cut(closing: StopSignal, cut: StopSignal, mut task: BoxedTask) {
    // Polled once more when answers are asked to end: they look at the signal in their own poll.
    if closing.run_until(&mut task).await.is_none() {
        cut.run_until(task).await;
    }
}

/// The owner of all tasks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tasks {
    runtime: Handle,
    // Client connections and their exchanges: the drain waits for these.
    connections: TaskTracker,
    // Exchanges, wherever they run: one on a thread for heavy work outlives its connection by a step.
    exchanges: TaskTracker,
    // Accept loops and connection pools: cut once the connections are done.
    background: TaskTracker,
    stop: StopSignal,
    closing: StopSignal,
    cut: StopSignal,
}

impl Tasks {
    /// Creates an owner whose tasks run on `runtime`.
    pub fn on_runtime(runtime: Handle) -> Self {
        Self {
            runtime,
            connections: TaskTracker::new(),
            exchanges: TaskTracker::new(),
            background: TaskTracker::new(),
            stop: StopSignal::default(),
            closing: StopSignal::default(),
            cut: StopSignal::default(),
        }
    }

    /// Creates an owner whose tasks run on the current runtime.
    pub fn on_current_runtime() -> Self {
        Self::on_runtime(Handle::current())
    }

    /// Spawns a client connection. The drain waits for it.
    pub fn spawn_connection(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn_on(self.until_cut(Box::pin(task)), &self.runtime);
    }

    /// Spawns background work. The drain cuts it once the connections are done.
    pub fn spawn_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_background_on(&self.runtime, task);
    }

    /// Spawns background work on another runtime.
    pub fn spawn_background_on(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn_on(self.until_cut(Box::pin(task)), runtime);
    }

    fn until_cut(&self, task: BoxedTask) -> impl Future<Output = ()> + Send + 'static {
        run_until_cut(self.closing.clone(), self.cut.clone(), task)
    }

    /// Returns the executor of connections to providers.
    pub fn pool_tasks(&self) -> PoolTasks {
        PoolTasks {
            runtime: self.runtime.clone(),
            tracker: self.background.clone(),
            cut: self.cut.clone(),
        }
    }

    /// Returns the signal that the drain has begun.
    pub fn stop_signal(&self) -> StopSignal {
        self.stop.clone()
    }

    /// Returns the tracker of exchanges. The drain waits until everything that it tracks has ended and was dropped.
    pub fn exchange_tracker(&self) -> TaskTracker {
        self.exchanges.clone()
    }

    /// Returns the signal that the drain timeout is over: an exchange or an answer that still runs should end now.
    pub fn closing_signal(&self) -> StopSignal {
        self.closing.clone()
    }

    /// Stops accepting, waits up to `timeout` for running connections, then ends the rest.
    ///
    /// Their answers say why they end. What has not ended half a second later is cut. Returns the number of connections
    /// that the drain has ended.
    pub async fn drain(&self, timeout: Duration) -> usize {
        self.stop.give_signal();
        self.connections.close();
        self.exchanges.close();
        self.background.close();
        // Background work continues meanwhile: running exchanges need the connection pools.
        let finished = tokio::time::timeout(timeout, self.connections.wait()).await;
        let left = if finished.is_ok() { 0 } else { self.connections.len() };
        self.closing.give_signal();
        if left > 0 {
            // What is still open then is cut.
            let _ = tokio::time::timeout(CLOSING_TIMEOUT, self.connections.wait()).await;
        }
        self.cut.give_signal();
        // A cut task still drops its state: wait for that too, so that logs and counters are complete.
        self.connections.wait().await;
        self.background.wait().await;
        // Bounded, because a step on another thread cannot be cut.
        if tokio::time::timeout(LAST_STEP_TIMEOUT, self.exchanges.wait())
            .await
            .is_err()
        {
            let exchanges = self.exchanges.len();
            tracing::warn!(
                exchanges,
                "timeout: heavy work has not ended: its log lines and late writes are lost"
            );
        }
        left
    }
}

/// The executor for tasks of connections to providers. The drain cuts them last.
#[derive(Clone, Debug)]
pub struct PoolTasks {
    runtime: Handle,
    tracker: TaskTracker,
    cut: StopSignal,
}

impl<F> hyper::rt::Executor<F> for PoolTasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, task: F) {
        let cut = self.cut.clone();
        // No exchange runs in it, so only the last signal ends it.
        let cuttable = async move {
            cut.run_until(pin!(task)).await;
        };
        self.tracker.spawn_on(cuttable, &self.runtime);
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
        let signal = StopSignal::default();
        assert_eq!(signal.run_until(pin!(async { 1 })).await, Some(1));
        let (ended, ()) = tokio::join!(signal.run_until(std::future::pending::<()>()), async {
            tokio::task::yield_now().await;
            signal.give_signal();
        });
        assert_eq!(ended, None);
        assert_eq!(signal.run_until(pin!(async { 1 })).await, None);
    }

    #[tokio::test]
    async fn a_signal_is_noticed_after_an_output_that_is_ready() {
        let signal = StopSignal::default();
        let given = signal.clone();
        let last = pin!(async move {
            given.give_signal();
            1
        });
        assert_eq!(signal.run_until_noticed(last).await, Some(1));
        assert_eq!(signal.run_until_noticed(pin!(async { 1 })).await, None);
    }
}
