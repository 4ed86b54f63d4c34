//! Heavy work: the steps of large or badly broken bodies, on a few threads of low priority.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    BudgetClient, Overloaded, Relocatable, WAIT_MAX,
    fair_places::{FairPlaces, PlaceOutcome, PlaceUse, QueueTicket},
    relocation::{is_heavy_thread, move_to_heavy, move_to_owner},
};
use crate::clock;

/// Bodies in work at the same time, for each thread. More than one, so that a short pass need not wait for a long one.
const PLACES_PER_THREAD: usize = 4;
/// Time for which a body keeps its place while it waits for something else, such as the ledger.
const PLACE_KEPT: Duration = Duration::from_millis(20);
/// Most bodies that wait for their first place.
const QUEUE_MAX: usize = 1024;

/// Places for heavy work, and the threads that do it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HeavyWork {
    places: Places,
    /// `None` if the work is done by the task that owns the body.
    threads: Option<Handle>,
}

/// A pass over a body, as far as it decides where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPass {
    /// Short: done at once, where it is. A step of every request that is short needs no call at all.
    Short,
    /// Heavy, and the first one over its body. It waits for 5 seconds, and fails at once if too many bodies wait.
    First,
    /// Heavy, over a body whose bytes are in memory already. However many bodies wait, it waits for its turn.
    Later {
        /// End of the wait, and of the exchange.
        deadline: Instant,
    },
}

impl BodyPass {
    /// Returns the same pass if it is heavy, else [`BodyPass::Short`].
    #[must_use]
    pub const fn if_heavy(self, is_heavy: bool) -> Self {
        if is_heavy { self } else { Self::Short }
    }
}

/// The places, and the channels of the bodies that wait for one.
#[derive(Clone, Debug)]
struct Places(Arc<Mutex<FairPlaces<oneshot::Sender<HeavyPlace>>>>);

/// A place in heavy work. Dropping it gives the place to the next body that waits.
#[derive(Debug)]
pub struct HeavyPlace {
    places: Places,
    client: BudgetClient,
}

/// The wait of a body for its place. Dropping it ends the wait.
#[derive(Debug)]
struct PlaceWait {
    places: Places,
    client: BudgetClient,
    ticket: QueueTicket,
    receiver: oneshot::Receiver<HeavyPlace>,
}

/// The state of the place of a body in work.
#[derive(Debug)]
enum PlaceState {
    Held(HeavyPlace),
    /// It waits for something else, and asks for a place when it goes on.
    Released,
    Waiting(PlaceWait),
}

impl Places {
    /// Takes a place, or waits for one.
    fn ask(&self, client: BudgetClient, place_use: PlaceUse) -> Option<PlaceState> {
        let (sender, receiver) = oneshot::channel();
        let outcome = self.lock().take_or_wait(client, place_use, sender);
        match outcome {
            PlaceOutcome::Taken => Some(PlaceState::Held(self.counted_place(client))),
            PlaceOutcome::Full => None,
            // The drop of the other's sender ends its wait.
            PlaceOutcome::Waiting(ticket, _displaced) => Some(PlaceState::Waiting(PlaceWait {
                places: self.clone(),
                client,
                ticket,
                receiver,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairPlaces<oneshot::Sender<HeavyPlace>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place of `client`, which is counted already.
    fn counted_place(&self, client: BudgetClient) -> HeavyPlace {
        HeavyPlace {
            places: self.clone(),
            client,
        }
    }
}

impl Drop for HeavyPlace {
    fn drop(&mut self) {
        let mut freed = self.client;
        loop {
            let next = self.places.lock().free_place(freed);
            let Some((client, sender)) = next else { return };
            freed = client;
            // The body may leave just now. A place that it does not take any more is dropped, and frees itself.
            if !sender.is_closed() {
                drop(sender.send(self.places.counted_place(client)));
                return;
            }
        }
    }
}

impl Future for PlaceWait {
    type Output = Option<HeavyPlace>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(cx).map(Result::ok)
    }
}

impl Drop for PlaceWait {
    fn drop(&mut self) {
        let sender = self.places.lock().leave_queue(self.client, self.ticket);
        // Unlocked first: dropping the sender wakes the receiver.
        drop(sender);
    }
}

impl HeavyWork {
    /// Creates the places for `threads` threads of the runtime `heavy`.
    pub fn on_threads(heavy: Handle, threads: usize) -> Self {
        Self::with_places(PLACES_PER_THREAD.saturating_mul(threads), Some(heavy))
    }

    /// Lets each body be handled by its own task. For tests, whose clock may stand still.
    pub fn inline() -> Self {
        Self::with_places(PLACES_PER_THREAD, None)
    }

    fn with_places(places: usize, threads: Option<Handle>) -> Self {
        Self {
            places: Places(Arc::new(Mutex::new(FairPlaces::new(places, QUEUE_MAX)))),
            threads,
        }
    }

    /// Wraps an exchange, whose heavy work is then done on the threads for it.
    pub fn relocatable<T>(&self, exchange: impl Future<Output = T> + Send + 'static) -> Relocatable<T>
    where
        T: Send + 'static,
    {
        Relocatable::new(exchange, self.threads.clone())
    }

    /// Does `work`, a pass over a body of `client`, and returns its result. This is the only way to heavy work.
    ///
    /// A pass that is heavy waits for a place, and fails if it gets none. It then runs on the heavy threads, and lets
    /// others take its place while it waits for something else. Inside of other heavy work it has a place already.
    ///
    /// The caller must be a part of the exchange in [`HeavyWork::relocatable`]. It polls the returned future to its end, or
    /// drops the whole exchange: one that is cancelled in between, for example by a timeout around it, would leave the
    /// exchange on the heavy threads.
    ///
    /// `work` is held inside of the returned future. Pin a large one outside of it.
    pub async fn run<T>(
        &self,
        client: BudgetClient,
        pass: BodyPass,
        work: impl Future<Output = T>,
    ) -> Result<T, Overloaded> {
        if pass == BodyPass::Short || is_heavy_thread() {
            return Ok(work.await);
        }
        // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
        Box::pin(async {
            let place = self.take_place(client, pass).await?;
            Ok(self.run_at(place, work).await)
        })
        .await
    }

    /// Takes a place for a pass that is heavy, or waits for one.
    pub async fn take_place(&self, client: BudgetClient, pass: BodyPass) -> Result<HeavyPlace, Overloaded> {
        let (place_use, deadline) = match pass {
            BodyPass::Short | BodyPass::First => (PlaceUse::FirstPass, clock::now() + WAIT_MAX),
            BodyPass::Later { deadline } => (PlaceUse::LaterPass, deadline),
        };
        let place = self.wait_for_place(client, place_use, deadline).await;
        place.ok_or(Overloaded::Work)
    }

    async fn run_at<T>(&self, place: HeavyPlace, work: impl Future<Output = T>) -> T {
        if self.threads.is_some() {
            move_to_heavy().await;
        }
        // It returns before the move back, so that the next body need not wait for a worker of the data path.
        let done = self.do_work(place, work).await;
        if self.threads.is_some() {
            move_to_owner().await;
        }
        done
    }

    /// Does `work`, which has a place whenever it is polled. While it waits for something else the place goes to others:
    /// a ledger that does not answer must not keep all of them.
    async fn do_work<T>(&self, place: HeavyPlace, work: impl Future<Output = T>) -> T {
        let client = place.client;
        let mut state = PlaceState::Held(place);
        let (mut work, mut kept) = (pin!(work), pin!(tokio::time::sleep(PLACE_KEPT)));
        poll_fn(|cx| {
            if let PlaceState::Released = state {
                // A later pass is never refused.
                state = self
                    .places
                    .ask(client, PlaceUse::LaterPass)
                    .unwrap_or(PlaceState::Released);
                kept.as_mut().reset(clock::now() + PLACE_KEPT);
            }
            if let PlaceState::Waiting(wait) = &mut state {
                match Pin::new(wait).poll(cx) {
                    Poll::Ready(Some(place)) => {
                        state = PlaceState::Held(place);
                        kept.as_mut().reset(clock::now() + PLACE_KEPT);
                    }
                    // The places are gone, and with them their limit.
                    Poll::Ready(None) => state = PlaceState::Released,
                    Poll::Pending => return Poll::Pending,
                }
            }
            let is_waiting_long = kept.as_mut().poll(cx).is_ready();
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if is_waiting_long {
                state = PlaceState::Released;
            } else {
                kept.as_mut().reset(clock::now() + PLACE_KEPT);
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the number of bodies that wait for a place.
    pub fn waiting(&self) -> usize {
        self.places.lock().waiting()
    }

    /// Waits for a place. `None` if there is none until `deadline`, or too many bodies wait for their first one.
    async fn wait_for_place(&self, client: BudgetClient, place_use: PlaceUse, deadline: Instant) -> Option<HeavyPlace> {
        match self.places.ask(client, place_use)? {
            PlaceState::Held(place) => Some(place),
            PlaceState::Waiting(wait) => timeout_at(deadline, wait).await.ok().flatten(),
            PlaceState::Released => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, task::Waker, time::Duration};

    use super::*;

    /// Time limit of an exchange.
    const TOTAL: Duration = Duration::from_secs(60);

    fn client(last: u8) -> BudgetClient {
        BudgetClient::Address(IpAddr::from([192, 0, 2, last]))
    }

    fn later(deadline: Instant) -> BodyPass {
        BodyPass::Later { deadline }
    }

    /// Takes a place that is free.
    async fn held_place(work: &HeavyWork) -> HeavyPlace {
        work.wait_for_place(client(1), PlaceUse::FirstPass, clock::now())
            .await
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_five_seconds_for_a_place() {
        let work = HeavyWork::with_places(1, None);
        let held = held_place(&work).await;
        let began = clock::now();
        assert_eq!(
            work.run(client(2), BodyPass::First, async { 1 }).await,
            Err(Overloaded::Work)
        );
        assert_eq!(clock::now() - began, Duration::from_secs(5));
        drop(held);
        assert_eq!(work.run(client(2), BodyPass::First, async { 2 }).await, Ok(2));
    }

    /// A body that got its place again, after a long wait for something else, keeps it through a short one.
    #[tokio::test(start_paused = true)]
    async fn a_place_is_kept_through_short_waits() {
        let work = HeavyWork::with_places(1, None);
        let milliseconds = Duration::from_millis;
        let waits = work.run(client(1), BodyPass::First, async {
            tokio::time::sleep(milliseconds(30)).await;
            tokio::time::sleep(milliseconds(10)).await;
        });
        let other = async {
            tokio::time::sleep(milliseconds(35)).await;
            let began = clock::now();
            work.run(client(2), BodyPass::First, async {}).await.unwrap();
            clock::now() - began
        };
        let (done, waited) = tokio::join!(waits, other);
        assert_eq!((done, waited), (Ok(()), milliseconds(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_freed_place_goes_to_the_next_that_still_waits() {
        let work = HeavyWork::with_places(1, None);
        let held = held_place(&work).await;
        let mut context = Context::from_waker(Waker::noop());
        let mut left = Box::pin(work.run(client(2), BodyPass::First, async {}));
        assert!(left.as_mut().poll(&mut context).is_pending());
        let mut waits = Box::pin(work.run(client(3), BodyPass::First, async { "done" }));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert_eq!(work.waiting(), 2);
        drop(left);
        assert_eq!(work.waiting(), 1, "it left while no place was free");
        drop(held);
        assert_eq!(waits.await, Ok("done"));
        assert_eq!(
            work.run(client(1), BodyPass::First, async { "free again" }).await,
            Ok("free again")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_was_given_to_a_client_that_left_is_free_again() {
        let work = HeavyWork::with_places(1, None);
        let held = held_place(&work).await;
        let mut waits = Box::pin(work.wait_for_place(client(2), PlaceUse::FirstPass, clock::now() + TOTAL));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        // The place is sent, and never received.
        drop(held);
        drop(waits);
        assert!(
            work.wait_for_place(client(3), PlaceUse::FirstPass, clock::now())
                .await
                .is_some()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_pass_keeps_its_turn_for_longer_than_five_seconds() {
        let work = HeavyWork::with_places(1, None);
        let held = held_place(&work).await;
        let order = Mutex::new(Vec::new());
        let note = |name| order.lock().unwrap().push(name);
        let later_pass = work.run(client(2), later(clock::now() + TOTAL), async { note("later pass") });
        let other = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            work.run(client(3), BodyPass::First, async { note("other") })
                .await
                .unwrap();
        };
        let free = async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            drop(held);
        };
        let (later_pass, (), ()) = tokio::join!(later_pass, other, free);
        assert_eq!(later_pass, Ok(()));
        assert_eq!(*order.lock().unwrap(), ["later pass", "other"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_no_later_pass() {
        let work = HeavyWork::with_places(1, None);
        let held = held_place(&work).await;
        let mut context = Context::from_waker(Waker::noop());
        let mut queue = Vec::new();
        for last in [2, 4] {
            for _ in 0..QUEUE_MAX / 2 {
                queue.push(Box::pin(work.run(client(last), BodyPass::First, async {})));
                assert!(queue.last_mut().unwrap().as_mut().poll(&mut context).is_pending());
            }
        }
        assert_eq!(
            work.run(client(2), BodyPass::First, async {}).await,
            Err(Overloaded::Work)
        );
        let mut later_pass = Box::pin(work.run(client(3), later(clock::now() + TOTAL), async { "done" }));
        assert!(later_pass.as_mut().poll(&mut context).is_pending());
        assert_eq!(work.waiting(), QUEUE_MAX + 1);
        drop((queue, held));
        assert_eq!(work.waiting(), 0, "it has the place");
        assert_eq!(later_pass.await, Ok("done"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_pass_waits_until_the_end_of_its_exchange() {
        let work = HeavyWork::with_places(1, None);
        let held = held_place(&work).await;
        let deadline = clock::now() + TOTAL;
        assert_eq!(
            work.run(client(2), later(deadline), async {}).await,
            Err(Overloaded::Work)
        );
        assert_eq!((clock::now(), work.waiting()), (deadline, 0));
        drop(held);
        assert_eq!(work.run(client(2), later(deadline), async { "free" }).await, Ok("free"));
    }
}
