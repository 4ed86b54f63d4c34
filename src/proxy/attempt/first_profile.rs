//! Choice of the profile for a first attempt: the lane's own, after a short cooldown if need be, or another.

use std::time::Instant;

use tokio::time;

use super::Attempts;
use crate::{
    auth::rotation::{ProfileId, ProfileQuery, Selection},
    clock,
    policy::{Reason, stream_timeouts::within_budget},
    proxy::{error::ProxyError, exchange_log::ExchangeLog},
};

/// Chooses the profile of the first attempt. Waits for the lane's own profile if its cooldown is short.
///
/// Chooses none if the upstream has no profiles: the client's own credential is sent.
pub(super) async fn choose_first_profile(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    // Only a quarter of the client's timeout: the rest is for the provider.
    let queue = within_budget(
        attempts.path.settings.timeouts.queue,
        attempts.outgoing.context.client_timeout.map(|budget| budget / 4),
    );
    let until = clock::now() + queue;
    loop {
        let pick = attempts.path.profiles.select_profile(
            attempts.upstream_name(),
            &attempts.profile_query(false),
            clock::std_now(),
        );
        match pick {
            // The upstream has no profiles.
            None => return Ok(()),
            Some(Selection::Use { id, moved }) => {
                attempts.use_profile(id, moved, log);
                return Ok(());
            }
            Some(Selection::Wait { until: end, .. }) if time::Instant::from_std(end) <= until => {
                log.enter_queue();
                time::sleep_until(time::Instant::from_std(end)).await;
                // Picked again: other exchanges may have extended the cooldown meanwhile.
            }
            // The cooldown is longer than this client waits: another profile must serve the request now.
            Some(Selection::Wait { id, .. }) => return choose_other_profile(attempts, id, log),
            Some(Selection::NoneAvailable(none)) => {
                return Err(exhausted_error(attempts, &none.reasons, none.until, none.is_bound));
            }
        }
    }
}

/// Chooses another profile for the first attempt, because the cooldown of the lane's own is too long.
fn choose_other_profile(attempts: &mut Attempts<'_>, own: ProfileId, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    // Counted as tried, so that the lane's own profile is not picked again.
    let ask = ProfileQuery {
        tried: &[own],
        ..attempts.profile_query(false)
    };
    match attempts
        .path
        .profiles
        .select_profile(attempts.upstream_name(), &ask, clock::std_now())
    {
        Some(Selection::Use { id, moved }) => {
            attempts.use_profile(id, moved, log);
            Ok(())
        }
        Some(Selection::NoneAvailable(none)) => {
            Err(exhausted_error(attempts, &none.reasons, none.until, none.is_bound))
        }
        // Only the lane's own profile is worth a wait, and an upstream with a cooldown has profiles.
        Some(Selection::Wait { .. }) | None => Err(exhausted_error(attempts, &[], None, false)),
    }
}

/// Builds the error for a request that no profile can serve.
fn exhausted_error(attempts: &Attempts<'_>, reasons: &[Reason], until: Option<Instant>, bound: bool) -> ProxyError {
    let wait = until.map(|until| until.saturating_duration_since(clock::std_now()));
    ProxyError::Exhausted {
        upstream: attempts.upstream_name().to_owned(),
        reasons: reasons.to_vec(),
        wait,
        bound,
    }
}
