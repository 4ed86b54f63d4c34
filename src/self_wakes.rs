//! Holding back the wakes that a task gives itself, where nothing waits for them.
//!
//! hyper passes a body on through a channel, and taking a part out of it wakes the connection that put it in. Here the
//! exchange runs in the task of the client's connection, and runs the provider's connection itself. So the task would
//! run once more, for nothing, in every request that has a body.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

thread_local! {
    /// The address of the waker whose task this thread polls. 0 if it polls none.
    static POLLED: Cell<usize> = const { Cell::new(0) };
    static SELF_WAKES: Cell<SelfWakes> = const { Cell::new(SelfWakes::Passed) };
    /// `true` if the task that this thread polls must run once more.
    static RUNS_AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Wakes by the task that this thread polls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SelfWakes {
    /// They have the task run once more.
    Passed,
    /// They are held back. None so far.
    Held,
    /// They are held back, and there was one.
    HeldOne,
}

/// The waker of a task whose own wakes can be held back.
struct TaskWaker(Waker);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Another task may be woken here too, and must be.
        if SELF_WAKES.get() == SelfWakes::Passed || POLLED.get() != Arc::as_ptr(self).addr() {
            self.0.wake_by_ref();
        } else {
            SELF_WAKES.set(SelfWakes::HeldOne);
        }
    }
}

/// Runs `poll`, and holds back the wakes that the task which this thread polls gives itself in it. Returns its result,
/// and `true` if there was such a wake.
///
/// Then the caller calls [`wake_polled_task`], unless the task polls what the wake was for before it waits again.
pub(crate) fn hold_self_wakes<T>(poll: impl FnOnce() -> T) -> (T, bool) {
    /// Restores what was there before, also after a panic.
    struct Restore(SelfWakes);
    impl Drop for Restore {
        fn drop(&mut self) {
            SELF_WAKES.set(self.0);
        }
    }
    let restore = Restore(SELF_WAKES.replace(SelfWakes::Held));
    let polled = poll();
    let has_woken = SELF_WAKES.get() == SelfWakes::HeldOne;
    drop(restore);
    (polled, has_woken)
}

/// Has the task that this thread polls run once more, in place of a wake that was held back.
pub(crate) fn wake_polled_task() {
    RUNS_AGAIN.set(true);
}

/// A task whose own wakes can be held back.
pub(crate) struct WithHeldWakes<F> {
    task: F,
    wakers: Option<Wakers>,
}

/// The waker of a task, and the one made of it.
struct Wakers {
    task: Waker,
    own: Waker,
    /// The address of the [`TaskWaker`].
    address: usize,
}

impl Wakers {
    fn of_task(task: &Waker) -> Self {
        let own = Arc::new(TaskWaker(task.clone()));
        Self {
            task: task.clone(),
            address: Arc::as_ptr(&own).addr(),
            own: Waker::from(own),
        }
    }
}

impl<F> WithHeldWakes<F> {
    pub(crate) const fn new(task: F) -> Self {
        Self { task, wakers: None }
    }
}

impl<F: Future + Unpin> Future for WithHeldWakes<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        /// Restores the task that was polled before, also after a panic.
        struct Restore {
            polled: usize,
            self_wakes: SelfWakes,
            runs_again: bool,
        }
        impl Drop for Restore {
            fn drop(&mut self) {
                POLLED.set(self.polled);
                SELF_WAKES.set(self.self_wakes);
                RUNS_AGAIN.set(self.runs_again);
            }
        }
        let this = &mut *self;
        let wakers = match &mut this.wakers {
            Some(known) if known.task.will_wake(cx.waker()) => known,
            changed => changed.insert(Wakers::of_task(cx.waker())),
        };
        let restore = Restore {
            polled: POLLED.replace(wakers.address),
            self_wakes: SELF_WAKES.replace(SelfWakes::Passed),
            runs_again: RUNS_AGAIN.replace(false),
        };
        let polled = Pin::new(&mut this.task).poll(&mut Context::from_waker(&wakers.own));
        if RUNS_AGAIN.get() {
            wakers.task.wake_by_ref();
        }
        drop(restore);
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts wakes.
    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls `step` once as a task of its own. Returns the number of its wakes.
    fn wakes_of(step: impl FnMut(&Waker)) -> usize {
        let counter = Arc::new(Counter::default());
        let mut step = step;
        let mut task = WithHeldWakes::new(std::future::poll_fn(|cx| {
            step(cx.waker());
            Poll::<()>::Pending
        }));
        let waker = Waker::from(Arc::clone(&counter));
        assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
        counter.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_wake_is_held_back_only_while_it_is_asked_for() {
        assert_eq!(wakes_of(Waker::wake_by_ref), 1);
        assert_eq!(wakes_of(|waker| _ = hold_self_wakes(|| waker.wake_by_ref())), 0);
        let held = |waker: &Waker| {
            let ((), has_woken) = hold_self_wakes(|| waker.wake_by_ref());
            assert!(has_woken);
            waker.wake_by_ref();
        };
        assert_eq!(wakes_of(held), 1);
        let held_and_replaced = |waker: &Waker| {
            let ((), has_woken) = hold_self_wakes(|| waker.wake_by_ref());
            assert!(has_woken);
            wake_polled_task();
        };
        assert_eq!(wakes_of(held_and_replaced), 1);
        assert_eq!(wakes_of(|_| ()), 0, "the wake was for the task before");
        let after = |waker: &Waker| {
            assert!(!hold_self_wakes(|| ()).1);
            waker.wake_by_ref();
        };
        assert_eq!(wakes_of(after), 1);
    }

    #[test]
    fn an_inner_hold_does_not_end_the_outer_one() {
        let nested = |waker: &Waker| {
            let ((), has_woken) = hold_self_wakes(|| {
                assert!(!hold_self_wakes(|| ()).1);
                waker.wake_by_ref();
            });
            assert!(has_woken);
        };
        assert_eq!(wakes_of(nested), 0);
    }

    /// A task that another one polls while it holds its own wakes back.
    #[test]
    fn an_inner_task_holds_back_nothing() {
        let mut inner = 0;
        assert_eq!(
            wakes_of(|_| _ = hold_self_wakes(|| inner = wakes_of(Waker::wake_by_ref))),
            0
        );
        assert_eq!(inner, 1);
    }

    #[test]
    fn another_task_is_woken_meanwhile() {
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(Arc::new(TaskWaker(Waker::from(Arc::clone(&counter)))));
        assert_eq!(wakes_of(|_| _ = hold_self_wakes(|| waker.wake_by_ref())), 0);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn wakes_pass_after_a_panic() {
        let caught = std::panic::catch_unwind(|| hold_self_wakes(|| panic!("a fault")));
        assert!(caught.is_err());
        assert_eq!(wakes_of(Waker::wake_by_ref), 1);
    }
}
