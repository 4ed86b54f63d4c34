//! Choice of the profile for a first attempt: the lane's own, after a short cooldown if need be, or another.

use tokio::time;

use super::Attempts;
use crate::{
    auth::rotation::{NoneAvailable, ProfileId, ProfileQuery, Selection},
    clock,
    policy::stream_timeouts::within_budget,
    proxy::{error::ProxyError, exchange_log::ExchangeLog},
};

/// Chooses the profile of the first attempt. Waits for the lane's own profile if its cooldown is short.
///
/// Chooses none if the upstream has no profiles: the client's own credential is sent.
pub(super) async fn choose_first_profile(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    // Only a quarter of the client's timeout: the rest is for the provider.
    let queue = within_budget(
        attempts.path.settings.timeouts.queue,
        attempts.outgoing.body.context.client_timeout.map(|budget| budget / 4),
    );
    let until = clock::now() + queue;
    // The lane's own profile, if its cooldown is too long. Counted as tried, so that it is not picked again.
    let mut own: Option<ProfileId> = None;
    loop {
        let ask = ProfileQuery {
            tried: own.as_slice(),
            ..attempts.profile_query(false)
        };
        let pick = attempts
            .path
            .profiles
            .select_profile(attempts.upstream_name(), &ask, clock::std_now());
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
            Some(Selection::Wait { id, .. }) => own = Some(id),
            Some(Selection::NoneAvailable(none)) => {
                let error = no_profile_error(attempts, none);
                if !error.is_awaited() {
                    return Err(error);
                }
                // At the start of the process, and after a change of its configuration, a source may still be running.
                log.enter_queue();
                let credentials = attempts.path.profiles.credentials();
                let upstream = attempts.upstream_name();
                // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
                let change = Box::pin(time::timeout_at(until, credentials.await_credential(upstream)));
                if !change.await.unwrap_or(false) {
                    return Err(error);
                }
            }
        }
    }
}

/// Returns the error for a request that no profile can serve.
fn no_profile_error(attempts: &Attempts<'_>, none: NoneAvailable) -> ProxyError {
    let upstream = attempts.upstream_name().to_owned();
    let credentials = attempts.path.profiles.credentials();
    let lacking = credentials.lacking_profiles(&upstream, &attempts.profile_query(false));
    let wait = none
        .until
        .map(|until| until.saturating_duration_since(clock::std_now()));
    // A lane that is bound to a profile in cooldown could not use the others anyway.
    if !lacking.is_empty() && (!none.is_bound || none.reasons.is_empty()) {
        return ProxyError::NoCredential {
            upstream,
            lacking,
            reasons: none.reasons,
            wait,
        };
    }
    ProxyError::Exhausted {
        upstream,
        reasons: none.reasons,
        wait,
        bound: none.is_bound,
    }
}
