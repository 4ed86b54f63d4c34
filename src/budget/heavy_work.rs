//! Heavy work: the steps of large or badly broken bodies, on a few threads of low priority.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{
    BudgetClient, Overloaded, Relocatable, WAIT_MAX,
    fair_places::{FairPlaces, Taken},
    relocation::{is_heavy_thread, move_to_heavy, move_to_owner},
};

/// Bodies in work at the same time, for each thread. More than one, since a body may wait for the ledger meanwhile.
const PLACES_PER_THREAD: usize = 4;
/// Most bodies that wait for a place.
const WAITING_MAX: usize = 1024;
/// Pause before a body that was admitted before asks for a place again.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(100);

/// Places for heavy work, and the threads that do it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HeavyWork {
    places: Places,
    /// `None` if the work is done by the task that owns the body.
    threads: Option<Handle>,
}

/// The places, and the channels of those who wait for one.
#[derive(Clone, Debug)]
struct Places(Arc<Mutex<FairPlaces<oneshot::Sender<HeavyPlace>>>>);

/// A place in heavy work. Dropping it gives the place to the next body that waits.
#[derive(Debug)]
struct HeavyPlace {
    places: Places,
    client: BudgetClient,
}

impl Places {
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
            let Some((client, waiter)) = next else { return };
            freed = client;
            // The client may have left. A place that it does not take any more is dropped, and frees itself.
            if !waiter.is_closed() {
                drop(waiter.send(self.places.counted_place(client)));
                return;
            }
        }
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
            places: Places(Arc::new(Mutex::new(FairPlaces::new(places, WAITING_MAX)))),
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

    /// Does `work` as soon as there is a place for it. It is part of an exchange in [`HeavyWork::relocatable`].
    ///
    /// The caller must poll the returned future to its end or drop the whole exchange: one that is cancelled in between,
    /// for example by a timeout around it, would leave the exchange on the heavy threads.
    ///
    /// Fails after 5 seconds without a place. Work inside of other heavy work has a place already.
    pub async fn run<T>(&self, client: BudgetClient, work: impl Future<Output = T>) -> Result<T, Overloaded> {
        if is_heavy_thread() {
            return Ok(work.await);
        }
        let place = self.take_place(client).await?;
        Ok(self.run_at(place, work).await)
    }

    async fn run_at<T>(&self, place: HeavyPlace, work: impl Future<Output = T>) -> T {
        if self.threads.is_none() {
            return work.await;
        }
        move_to_heavy().await;
        let done = work.await;
        // Before the move, so that the next body need not wait for a worker of the data path.
        drop(place);
        move_to_owner().await;
        done
    }

    /// Does `work` for a body that was admitted before, as soon as there is a place for it. Waits as long as its client.
    pub async fn run_admitted<T>(&self, client: BudgetClient, work: impl Future<Output = T>) -> T {
        if is_heavy_thread() {
            return work.await;
        }
        let place = loop {
            match self.take_place(client).await {
                Ok(place) => break place,
                // The queue may be full, which ends the wait at once.
                Err(_) => tokio::time::sleep(FULL_QUEUE_PAUSE).await,
            }
        };
        self.run_at(place, work).await
    }

    /// Returns the number of bodies that wait for a place.
    pub fn waiting(&self) -> usize {
        self.places.lock().waiting()
    }

    /// Waits for a place.
    async fn take_place(&self, client: BudgetClient) -> Result<HeavyPlace, Overloaded> {
        let (told, is_told) = oneshot::channel();
        let taken = {
            let mut places = self.places.lock();
            if places.waiting() >= WAITING_MAX {
                places.remove_left(oneshot::Sender::is_closed);
            }
            places.take_or_wait(client, told)
        };
        match taken {
            Taken::Place => Ok(self.places.counted_place(client)),
            Taken::Full => Err(Overloaded::Work),
            Taken::Waiting => match tokio::time::timeout(WAIT_MAX, is_told).await {
                Ok(Ok(place)) => Ok(place),
                _ => Err(Overloaded::Work),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::IpAddr,
        task::{Context, Waker},
    };

    use super::*;
    use crate::clock;

    fn client(last: u8) -> BudgetClient {
        BudgetClient::Address(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_five_seconds_for_a_place() {
        let work = HeavyWork::with_places(1, None);
        let held = work.take_place(client(1)).await.unwrap();
        let began = clock::now();
        assert_eq!(work.run(client(2), async { 1 }).await, Err(Overloaded::Work));
        assert_eq!(clock::now() - began, Duration::from_secs(5));
        drop(held);
        assert_eq!(work.run(client(2), async { 2 }).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_freed_place_goes_to_the_next_that_still_waits() {
        let work = HeavyWork::with_places(1, None);
        let held = work.take_place(client(1)).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut left = Box::pin(work.run(client(2), async {}));
        assert!(left.as_mut().poll(&mut context).is_pending());
        let mut waits = Box::pin(work.run(client(3), async { "done" }));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert_eq!(work.waiting(), 2);
        drop(left);
        drop(held);
        assert_eq!(waits.await, Ok("done"));
        assert_eq!(work.run(client(1), async { "free again" }).await, Ok("free again"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_was_given_to_a_client_that_left_is_free_again() {
        let work = HeavyWork::with_places(1, None);
        let held = work.take_place(client(1)).await.unwrap();
        let mut waits = Box::pin(work.take_place(client(2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        // The place is sent, and never received.
        drop(held);
        drop(waits);
        assert!(work.take_place(client(3)).await.is_ok());
    }
}
