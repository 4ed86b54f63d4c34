//! The profile of a first attempt: the lane's own, waited for where that is short, else another, else none.

use std::time::Instant;

use tokio::time;

use super::Attempts;
use crate::{
    auth::rotation::{Ask, Pick, ProfileId},
    clock,
    policy::{Reason, course::below},
    proxy::{error::ProxyError, exchange_log::ExchangeLog},
};

/// Chooses the profile of the first attempt. Waits for the lane's own if its cooldown is short.
pub(super) async fn choose_first(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    let queue = below(
        attempts.path.settings.clocks.queue,
        attempts.outgoing.context.budget.map(|budget| budget / 4),
    );
    let until = clock::now() + queue;
    loop {
        let pick = attempts
            .path
            .profiles
            .pick(attempts.upstream(), &attempts.ask(false), clock::instant());
        match pick {
            None => return Ok(()),
            Some(Pick::Use { id, moved }) => {
                attempts.take(id, moved, log);
                return Ok(());
            }
            Some(Pick::Wait { until: rested, .. }) if time::Instant::from_std(rested) <= until => {
                log.queues();
                time::sleep_until(time::Instant::from_std(rested)).await;
            }
            // Longer than this client has time: as if the rest were too long for anybody.
            Some(Pick::Wait { id, .. }) => return choose_other(attempts, id, log),
            Some(Pick::None(stuck)) => return Err(exhausted(attempts, &stuck.reasons, stuck.until, stuck.bound)),
        }
    }
}

/// Chooses the profile of the first attempt if the cooldown of the lane's own is too long.
fn choose_other(attempts: &mut Attempts<'_>, own: ProfileId, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    let ask = Ask {
        tried: &[own],
        ..attempts.ask(false)
    };
    match attempts.path.profiles.pick(attempts.upstream(), &ask, clock::instant()) {
        Some(Pick::Use { id, moved }) => {
            attempts.take(id, moved, log);
            Ok(())
        }
        Some(Pick::None(stuck)) => Err(exhausted(attempts, &stuck.reasons, stuck.until, stuck.bound)),
        Some(Pick::Wait { .. }) | None => Err(exhausted(attempts, &[], None, false)),
    }
}

fn exhausted(attempts: &Attempts<'_>, reasons: &[Reason], until: Option<Instant>, bound: bool) -> ProxyError {
    let wait = until.map(|until| until.saturating_duration_since(clock::instant()));
    ProxyError::Exhausted {
        upstream: attempts.upstream().to_owned(),
        reasons: reasons.to_vec(),
        wait,
        bound,
    }
}
