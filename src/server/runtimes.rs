//! The runtimes of the process: one for client connections, and one of low priority for expensive bodies.
//!
//! Signals, the drain and the admin listener are on the runtime of the main thread, which neither of these can delay.

use std::{io, num::NonZero, sync::mpsc, time::Duration};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};

use crate::server::budget::{HeavyWork, mark_heavy_thread};

/// Difference of priority between threads for heavy work and all others, in steps of `nice`.
///
/// A step is about 1.25 times the share of a busy core: five of them leave a quarter to heavy work, so that it never
/// starves.
#[cfg(target_os = "linux")]
const HEAVY_NICENESS: i32 = 5;
/// The lowest priority of a thread.
#[cfg(target_os = "linux")]
const NICENESS_MAX: i32 = 19;

/// Runtimes with their threads.
#[derive(Debug)]
pub struct Runtimes {
    data: DataRuntime,
    heavy: Runtime,
    heavy_threads: usize,
}

/// The runtime of client connections.
#[derive(Debug)]
enum DataRuntime {
    /// One thread for each core.
    Threads(Runtime),
    /// A thread that drives a runtime without threads of its own.
    ///
    /// On a single core the multi-thread scheduler costs 1.25 times the CPU of a small exchange, nearly all of it in
    /// the kernel.
    Single {
        handle: Handle,
        /// Dropped to end the thread.
        stop: oneshot::Sender<()>,
        ended: mpsc::Receiver<()>,
    },
}

/// Handles of the runtimes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RuntimeHandles {
    /// Runtime of client connections and background work.
    pub data: Handle,
    /// Heavy work.
    pub heavy: HeavyWork,
}

impl RuntimeHandles {
    /// Returns handles by which everything runs on the current runtime. For tests, whose clock may stand still.
    pub fn current() -> Self {
        Self {
            data: Handle::current(),
            heavy: HeavyWork::inline(),
        }
    }
}

impl Runtimes {
    /// Starts the threads: one for each core, and one for each core but one for heavy work, at least one.
    ///
    /// `on_park` is called when a thread of the data path has nothing to do.
    pub fn start(on_park: fn()) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let data = if cores == 1 {
            DataRuntime::start_single(on_park)?
        } else {
            let mut builder = Builder::new_multi_thread();
            DataRuntime::Threads(builder.enable_all().on_thread_park(on_park).build()?)
        };
        let heavy_threads = cores.saturating_sub(1).max(1);
        let heavy = Builder::new_multi_thread()
            .worker_threads(heavy_threads)
            .thread_name("heavy")
            .enable_all()
            .on_thread_park(on_park)
            .on_thread_start(|| {
                mark_heavy_thread();
                lower_priority();
            })
            .build()?;
        Ok(Self {
            data,
            heavy,
            heavy_threads,
        })
    }

    /// Returns the handles.
    pub fn handles(&self) -> RuntimeHandles {
        RuntimeHandles {
            data: self.data.handle(),
            heavy: HeavyWork::on_threads(self.heavy.handle().clone(), self.heavy_threads),
        }
    }

    /// Ends the threads. Tasks that do not end within `timeout` are left to the end of the process.
    pub fn shut_down(self, timeout: Duration) {
        self.heavy.shutdown_background();
        match self.data {
            DataRuntime::Threads(runtime) => runtime.shutdown_timeout(timeout),
            DataRuntime::Single { stop, ended, .. } => {
                drop(stop);
                // An error tells that the thread has ended, or that the time is over.
                let _ = ended.recv_timeout(timeout);
            }
        }
    }
}

impl DataRuntime {
    fn start_single(on_park: fn()) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(on_park)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, is_stopped) = oneshot::channel();
        let (alive, ended) = mpsc::channel();
        std::thread::Builder::new().name("data".to_owned()).spawn(move || {
            // It ends with an error when the sender is dropped.
            drop(runtime.block_on(is_stopped));
            // A blocking task, such as a DNS lookup, must not delay the exit.
            runtime.shutdown_background();
            drop(alive);
        })?;
        Ok(Self::Single { handle, stop, ended })
    }

    fn handle(&self) -> Handle {
        match self {
            Self::Threads(runtime) => runtime.handle().clone(),
            Self::Single { handle, .. } => handle.clone(),
        }
    }
}

/// Lowers the priority of the current thread. A system that refuses it runs heavy work at normal priority.
fn lower_priority() {
    // Elsewhere the call is for the whole process.
    #[cfg(target_os = "linux")]
    if let Ok(present) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, present.saturating_add(HEAVY_NICENESS).min(NICENESS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_thread_runs_tasks_and_ends() {
        let runtime = DataRuntime::start_single(|| {}).unwrap();
        let (done, is_done) = mpsc::channel();
        runtime
            .handle()
            .spawn(async move { done.send(std::thread::current().name().map(str::to_owned)) });
        assert_eq!(is_done.recv().unwrap().as_deref(), Some("data"));
        let DataRuntime::Single { stop, ended, .. } = runtime else {
            panic!("a single thread");
        };
        drop(stop);
        assert!(ended.recv().is_err(), "the thread has ended");
    }
}
