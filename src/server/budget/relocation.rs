//! Relocation of a running exchange to the threads for heavy work, and back.
//!
//! An exchange is one future that borrows from its own state, so its expensive steps cannot be handed to another thread
//! alone. Instead the whole future is polled there for as long as they take. It asks for that in its own poll and is
//! moved before the next one.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::clock;

/// Time on a heavy thread after which a future lets others take their turn. Work that is short goes on, so that it does not
/// wait for a step of a long one at each of its own.
const TURN_MAX: Duration = Duration::from_millis(2);

thread_local! {
    // Set by a future in its poll, taken by its `Relocatable` after the same poll.
    static REQUESTED: Cell<Option<PolledBy>> = const { Cell::new(None) };
    static IS_HEAVY_THREAD: Cell<bool> = const { Cell::new(false) };
    // Set at the beginning of each poll on a heavy thread.
    static TURN_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Threads that poll a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolledBy {
    /// The task that owns it, on a worker of the data path.
    Owner,
    /// A thread for heavy work.
    Heavy,
}

/// Marks the current thread as one for heavy work.
pub fn mark_heavy_thread() {
    IS_HEAVY_THREAD.set(true);
}

/// Returns `true` if the current thread is one for heavy work.
pub(super) fn is_heavy_thread() -> bool {
    IS_HEAVY_THREAD.get()
}

/// Lets other work of a heavy thread take its turn, if this one has lasted for `TURN_MAX`. Work of a client that has left
/// ends here.
///
/// On other threads it does nothing: their steps are short.
pub async fn yield_if_heavy() {
    let is_over = |began: Instant| clock::std_now().duration_since(began) >= TURN_MAX;
    if is_heavy_thread() && TURN_BEGAN.get().is_none_or(is_over) {
        tokio::task::yield_now().await;
    }
}

/// Continues the current future on a heavy thread.
pub(super) async fn move_to_heavy() {
    request_move(PolledBy::Heavy).await;
}

/// Continues the current future in the task that owns it.
pub(super) async fn move_to_owner() {
    request_move(PolledBy::Owner).await;
}

async fn request_move(to: PolledBy) {
    let mut is_requested = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_requested, true) {
            return Poll::Ready(());
        }
        REQUESTED.set(Some(to));
        // A future that no `Relocatable` owns continues where it is.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The future of an exchange.
type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that may ask to be polled by the threads for heavy work. Dropping it cancels the future wherever it is.
pub struct Relocatable<T> {
    state: State<T>,
    heavy: Option<Handle>,
}

enum State<T> {
    Here(BoxedFuture<T>),
    /// On a heavy thread, with the waker of its task there.
    Heavy(AbortOnDropHandle<HeavyEnd<T>>, Arc<AtomicWaker>),
    Ended,
}

/// End of the time on the heavy threads.
enum HeavyEnd<T> {
    Done(T),
    Back(BoxedFuture<T>),
}

/// Task of a future on the heavy threads. It ends when the future ends or asks to go back.
struct HeavyTask<T>(Option<BoxedFuture<T>>, Arc<AtomicWaker>);

impl<T> Future for HeavyTask<T> {
    type Output = HeavyEnd<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HeavyEnd<T>> {
        // Before the poll, so that a wake-up during it is not lost.
        self.1.register(cx.waker());
        let Some(future) = &mut self.0 else {
            return Poll::Pending;
        };
        REQUESTED.set(None);
        TURN_BEGAN.set(Some(clock::std_now()));
        let polled = future.as_mut().poll(cx);
        let is_asked_back = REQUESTED.take() == Some(PolledBy::Owner);
        match polled {
            Poll::Ready(output) => {
                self.0 = None;
                Poll::Ready(HeavyEnd::Done(output))
            }
            Poll::Pending if is_asked_back => match self.0.take() {
                Some(future) => Poll::Ready(HeavyEnd::Back(future)),
                None => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Relocatable<T> {
    /// Wraps a future. Without `heavy` it is never moved.
    pub fn new(future: impl Future<Output = T> + Send + 'static, heavy: Option<Handle>) -> Self {
        Self {
            state: State::Here(Box::pin(future)),
            heavy,
        }
    }
}

impl<T: Send + 'static> Future for Relocatable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            match &mut self.state {
                State::Here(future) => {
                    // A future that nobody moves, polled on this thread before, may have asked in vain.
                    REQUESTED.set(None);
                    let polled = future.as_mut().poll(cx);
                    let is_asked_away = REQUESTED.take() == Some(PolledBy::Heavy);
                    if polled.is_ready() {
                        self.state = State::Ended;
                        return polled;
                    }
                    let Some(heavy) = self.heavy.clone().filter(|_| is_asked_away) else {
                        return Poll::Pending;
                    };
                    if let State::Here(future) = std::mem::replace(&mut self.state, State::Ended) {
                        let waker = Arc::default();
                        let stay = heavy.spawn(HeavyTask(Some(future), Arc::clone(&waker)));
                        self.state = State::Heavy(AbortOnDropHandle::new(stay), waker);
                    }
                }
                State::Heavy(stay, waker) => match Pin::new(stay).poll(cx) {
                    Poll::Pending => {
                        // The owner may be polled because the drain ends, and the future looks at that in its own poll.
                        waker.wake();
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(HeavyEnd::Done(output))) => {
                        self.state = State::Ended;
                        return Poll::Ready(output);
                    }
                    Poll::Ready(Ok(HeavyEnd::Back(future))) => self.state = State::Here(future),
                    Poll::Ready(Err(error)) => {
                        self.state = State::Ended;
                        match error.try_into_panic() {
                            // It ends the task that owns the future, as it would without the move.
                            Ok(panic) => std::panic::resume_unwind(panic),
                            // The heavy threads have ended with the process.
                            Err(_) => return Poll::Pending,
                        }
                    }
                },
                State::Ended => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime(name: &str) -> Runtime {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .on_thread_start(if name == "heavy" { mark_heavy_thread } else { || {} })
            .build()
            .unwrap()
    }

    fn here() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_future_moves_to_the_heavy_threads_and_back_with_all_its_state() {
        let (owner, heavy) = (runtime("owner"), runtime("heavy"));
        let state = String::from("state");
        let future = async move {
            let borrowed = &state;
            let mut seen = vec![here()];
            move_to_heavy().await;
            seen.push(here());
            yield_if_heavy().await;
            seen.push(here());
            move_to_owner().await;
            seen.push(here());
            (seen, borrowed.clone())
        };
        let moved = Relocatable::new(future, Some(heavy.handle().clone()));
        let (seen, state) = owner.block_on(owner.spawn(moved)).unwrap();
        assert_eq!(seen, ["owner", "heavy", "heavy", "owner"]);
        assert_eq!(state, "state");
    }

    #[test]
    fn a_future_without_heavy_threads_stays() {
        let owner = runtime("owner");
        let future = async {
            move_to_heavy().await;
            let seen = here();
            move_to_owner().await;
            seen
        };
        let seen = owner.block_on(owner.spawn(Relocatable::new(future, None))).unwrap();
        assert_eq!(seen, "owner");
    }

    #[test]
    fn a_dropped_future_ends_at_its_next_step_on_a_heavy_thread() {
        let (owner, heavy) = (runtime("owner"), runtime("heavy"));
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let (started, is_started) = std::sync::mpsc::channel();
        let future = async move {
            move_to_heavy().await;
            let _ = started.send(());
            while Arc::strong_count(&held) > 0 {
                yield_if_heavy().await;
            }
        };
        let task = owner.spawn(Relocatable::new(future, Some(heavy.handle().clone())));
        is_started.recv().unwrap();
        task.abort();
        while Arc::strong_count(&alive) > 1 {
            thread::yield_now();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_only_after_two_milliseconds() {
        mark_heavy_thread();
        TURN_BEGAN.set(Some(clock::std_now()));
        let may_go_on = || futures_util::FutureExt::now_or_never(yield_if_heavy()).is_some();
        assert!(may_go_on());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(may_go_on());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!may_go_on());
    }

    #[test]
    fn a_panic_on_a_heavy_thread_ends_the_owning_task() {
        let (owner, heavy) = (runtime("owner"), runtime("heavy"));
        let future = async {
            move_to_heavy().await;
            panic!("a fault");
        };
        let moved = Relocatable::new(future, Some(heavy.handle().clone()));
        assert!(owner.block_on(owner.spawn(moved)).unwrap_err().is_panic());
    }
}
