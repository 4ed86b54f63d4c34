//! The profile of a first attempt: the lane's own, waited for where that is short, else another, else none.

use std::time::Instant;

use tokio::time;

use super::{attempt::Attempts, error::ProxyError, record::Record};
use crate::{
    auth::rotation::{Ask, Pick, ProfileId},
    clock,
    policy::{Reason, course::below},
};

impl Attempts<'_> {
    /// The profile of the first attempt, waited for if it is the lane's own and rests only for a while.
    pub(super) async fn choose(&mut self, record: &mut Record) -> Result<(), ProxyError> {
        let queue = below(
            self.inner.settings.clocks.queue,
            self.prepared.asked.budget.map(|budget| budget / 4),
        );
        let until = clock::now() + queue;
        loop {
            let pick = self
                .inner
                .profiles
                .pick(self.upstream(), &self.ask(false), clock::instant());
            match pick {
                None => return Ok(()),
                Some(Pick::Use { id, moved }) => {
                    self.take(id, moved, record);
                    return Ok(());
                }
                Some(Pick::Wait { until: rested, .. }) if time::Instant::from_std(rested) <= until => {
                    record.queues();
                    time::sleep_until(time::Instant::from_std(rested)).await;
                }
                // Longer than this client has time: as if the rest were too long for anybody.
                Some(Pick::Wait { id, .. }) => return self.choose_other(id, record),
                Some(Pick::None(stuck)) => return Err(self.exhausted(&stuck.reasons, stuck.until, stuck.bound)),
            }
        }
    }

    /// The profile of the first attempt, where the lane's own rests for too long.
    fn choose_other(&mut self, own: ProfileId, record: &mut Record) -> Result<(), ProxyError> {
        let ask = Ask {
            tried: &[own],
            ..self.ask(false)
        };
        match self.inner.profiles.pick(self.upstream(), &ask, clock::instant()) {
            Some(Pick::Use { id, moved }) => {
                self.take(id, moved, record);
                Ok(())
            }
            Some(Pick::None(stuck)) => Err(self.exhausted(&stuck.reasons, stuck.until, stuck.bound)),
            Some(Pick::Wait { .. }) | None => Err(self.exhausted(&[], None, false)),
        }
    }

    fn exhausted(&self, reasons: &[Reason], until: Option<Instant>, bound: bool) -> ProxyError {
        let wait = until.map(|until| until.saturating_duration_since(clock::instant()));
        ProxyError::Exhausted {
            upstream: self.upstream().to_owned(),
            reasons: reasons.to_vec(),
            wait,
            bound,
        }
    }
}
