//! Every task of the process has an owner here, so that the drain can wait for it.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The owner of all tasks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    // Client connections and what runs on them: the drain waits for these.
    connections: TaskTracker,
    // Pool upkeep, accept loops: cut once the connections are done.
    background: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Tasks {
    /// Runs a client connection: the drain waits for it.
    pub fn spawn_connection(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        self.connections.spawn(async move {
            cut.run_until_cancelled(task).await;
        });
    }

    /// Runs upkeep: the drain cuts it when the connections are done.
    pub fn spawn_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        self.background.spawn(async move {
            cut.run_until_cancelled(task).await;
        });
    }

    /// Ready once the drain has begun.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Stops accepting, waits up to `timeout` for what runs, then cuts what is left.
    ///
    /// Returns how many connections were cut.
    pub async fn drain(&self, timeout: Duration) -> usize {
        self.stop.cancel();
        self.connections.close();
        self.background.close();
        let finished = tokio::time::timeout(timeout, self.connections.wait()).await;
        let left = if finished.is_ok() { 0 } else { self.connections.len() };
        self.cut.cancel();
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
