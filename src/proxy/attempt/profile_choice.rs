//! Choice of the profile for each attempt: the lane's own, after a short wait if need be, or another.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use http::StatusCode;
use tokio::{
    sync::futures::Notified,
    time::{Instant, sleep_until},
};

use super::{Attempts, large_body};
use crate::{
    clock,
    keys::profiles::ReservedSlot,
    keys::rotation::{ChangeCause, NoneAvailable, ProfileChange, ProfileId, ProfileQuery, QueryWait, Selection},
    policy::{
        Class, EmptyQuota, RotationLimit, Verdict,
        retry::{self, CredentialBinding},
        stream_timeouts::within_budget,
    },
    provider::Route,
    proxy::{
        error::ProxyError,
        exchange_log::ExchangeLog,
        exhausted_pool::{ExhaustedPool, whole_seconds},
        request::OutgoingRequest,
        response::ProviderAnswer,
    },
};

/// Shortest lifetime of a provider's prompt cache (Anthropic and OpenAI, 2026-10).
const CACHE_LIFETIME_MIN: Duration = Duration::from_secs(5 * 60);
/// Longer lifetimes, longest first, and the value by which a body asks for each.
const CACHE_LIFETIMES: [(Duration, &str); 2] = [
    (Duration::from_secs(24 * 3600), "\"24h\""),
    (Duration::from_secs(3600), "\"1h\""),
];

/// Chooses the profile of the first attempt. Waits for a profile that will be ready soon.
///
/// Chooses none if the upstream has no profiles: the client's own credential is sent.
pub(super) async fn choose_first_profile(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    attempts.is_cold = is_cold_lane(attempts, log).await;
    let chosen = choose_when_ready(attempts, None, log).await;
    // A conversation comes home before its first send, and not after a failure there.
    attempts.is_cold = false;
    chosen
}

/// Waits until the present profile takes another request. Returns `false` if that is too late, or no profile does.
pub(super) async fn wait_for_own(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> bool {
    let (own, retries) = (attempts.profile, attempts.retries_on_key);
    attempts.is_cold = false;
    // The profile serves others while this request waits.
    log.profile_place = None;
    let is_chosen = choose_when_ready(attempts, own, log).await.is_ok();
    if attempts.profile == own {
        attempts.retries_on_key = retries;
    }
    is_chosen
}

/// Chooses a profile, and waits for one if it will be ready soon. `own` replaces the profile of the lane.
async fn choose_when_ready(
    attempts: &mut Attempts<'_>,
    own: Option<ProfileId>,
    log: &mut ExchangeLog,
) -> Result<(), ProxyError> {
    // Only a quarter of the client's timeout: the rest is for the provider.
    let queue = within_budget(
        attempts.path.settings.timeouts.queue,
        attempts.outgoing.body.context.client_timeout.map(|budget| budget / 4),
    );
    let began = clock::std_now();
    let wait = QueryWait {
        since: Some(began),
        until: Some(began + queue),
        slot: None,
    };
    // Given back if the client leaves, or if no profile can serve the request after all.
    let mut reserved: Option<ReservedSlot> = None;
    let pool = attempts.route.pool;
    loop {
        // Created before the choice, so that no change is missed.
        let mut changed = pin!(pool.await_change());
        let ask = query(attempts, false);
        let ask = ProfileQuery {
            wait: QueryWait {
                slot: reserved.as_ref().map(ReservedSlot::slot),
                ..wait
            },
            pinned: own.or(ask.pinned),
            ..ask
        };
        let Some(selected) = pool.select_profile(&ask, clock::std_now()) else {
            // The upstream has no profiles.
            return Ok(());
        };
        match selected.selection {
            Selection::Use { id, moved, .. } => {
                if let Some(held) = reserved.as_mut().filter(|held| held.slot().0 == id) {
                    held.mark_used();
                }
                attempts.use_profile(id, selected.place, moved, log);
                return Ok(());
            }
            Selection::Wait { until, .. } => {
                reserve_slot(&mut reserved, selected.slot);
                log.enter_queue();
                // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
                Box::pin(wait_for_change(changed, until)).await;
            }
            Selection::NoneAvailable(none) => {
                // A credential may have come since this choice.
                if changed.as_mut().enable() {
                    continue;
                }
                let error = no_profile_error(attempts, none);
                if !error.is_awaited() || clock::std_now() >= began + queue {
                    return Err(error);
                }
                // At the start of the process, and after a change of its configuration, a source may still be running.
                log.enter_queue();
                Box::pin(wait_for_change(changed, began + queue)).await;
            }
        }
    }
}

/// Replaces the slot that a request has reserved. The former one is given back, unless it is the same.
fn reserve_slot(reserved: &mut Option<ReservedSlot>, next: Option<ReservedSlot>) {
    let is_same = |held: &&mut ReservedSlot| next.as_ref().is_some_and(|next| next.slot() == held.slot());
    if let Some(held) = reserved.as_mut().filter(is_same) {
        held.mark_used();
    }
    *reserved = next;
}

/// Waits until `until`, or until the profiles have changed.
async fn wait_for_change(changed: Pin<&mut Notified<'_>>, until: std::time::Instant) {
    // Asked again in both cases: other exchanges may have extended a cooldown, or use the profile.
    tokio::select! {
        () = sleep_until(Instant::from_std(until)) => {}
        () = changed => {}
    }
}

/// Returns the error for a request that no profile can serve.
fn no_profile_error(attempts: &Attempts<'_>, none: NoneAvailable) -> ProxyError {
    let upstream = attempts.upstream_name().to_owned();
    let lacking = attempts.route.pool.lacking_profiles(&query(attempts, false));
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
    ProxyError::Exhausted(ExhaustedPool { upstream, none, wait })
}

/// Moves the exchange to another profile, if one can serve it now.
pub(super) fn rotate(attempts: &mut Attempts<'_>, verdict: Verdict, other_quota: bool, log: &mut ExchangeLog) -> bool {
    let now = clock::std_now();
    let ask = ProfileQuery {
        // A request that has failed once waits for no other profile.
        wait: QueryWait {
            until: Some(now),
            ..QueryWait::default()
        },
        ..query(attempts, other_quota)
    };
    let selected = attempts.route.pool.select_profile(&ask, now);
    let Some((Selection::Use { id, moved, .. }, profile_place)) = selected.map(|one| (one.selection, one.place)) else {
        return false;
    };
    // The fault of an endpoint moves one exchange. The conversation keeps its profile and its cache.
    attempts.is_borrowed |= verdict.cooldown_reason().is_none();
    let moved = moved.map(|moved| match verdict.class {
        Class::Overloaded => ProfileChange {
            cause: ChangeCause::Overloaded,
            ..moved
        },
        _ => moved,
    });
    attempts.use_profile(id, profile_place, moved, log);
    attempts.rotations += u32::from(verdict.rotation_limit() != RotationLimit::Freely);
    true
}

/// Moves the exchange back to the profile that the lane has left, if only that profile accepts this history. Works once.
pub(super) fn return_to_former(attempts: &mut Attempts<'_>, class: Class, log: &mut ExchangeLog) -> bool {
    let Some(left) = attempts.former_profile.filter(|_| class == Class::Affinity) else {
        return false;
    };
    if log.event.sends >= retry::SENDS_MAX
        || attempts.outgoing.body.context.credential_binding != CredentialBinding::Unbound
    {
        return false;
    }
    // Tried once: another error of this class is final.
    attempts.former_profile = None;
    let (pool, ask) = (attempts.route.pool, query(attempts, false));
    let former = pool.former_profile(left, &ask, clock::std_now());
    let Some(former) = former else { return false };
    attempts.tried_profiles.extend(attempts.profile);
    let profile_place = pool.take_place(former);
    attempts.use_profile(former, profile_place, None, log);
    true
}

/// Describes the request to the choice of a profile.
pub(super) fn query<'a>(attempts: &'a Attempts<'_>, other_quota: bool) -> ProfileQuery<'a> {
    let context = &attempts.outgoing.body.context;
    let find_profile = |label: &str| attempts.route.pool.find_profile(label);
    ProfileQuery {
        lane: attempts.choice_hash,
        asks_no_model: !attempts.route.asks_model,
        model: context.model.as_deref(),
        pinned: context.pinned_profile.as_deref().and_then(find_profile),
        tried: &attempts.tried_profiles,
        other_quota,
        bound: context.lane_binding,
        is_cold: attempts.is_cold,
        owner: context.owner.as_deref().and_then(find_profile),
        wait: QueryWait::default(),
    }
}

/// Returns the value by which a request's profile is chosen. Requests with the same value prefer the same profile.
pub(super) fn choice_hash(outgoing: &OutgoingRequest, route: &Route<'_>, request_id: &str) -> [u8; 32] {
    let context = &outgoing.body.context;
    if context.lane.is_none() && route.asks_model {
        // An embedding has no cache to stay with: such requests are spread over all profiles by their weights.
        return *blake3::hash(request_id.as_bytes()).as_bytes();
    }
    context.choice_hash
}

/// Returns `true` if the provider's prompt cache of the lane has expired or is of no use.
async fn is_cold_lane(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> bool {
    let context = &attempts.outgoing.body.context;
    if context.pinned_profile.is_none() || context.is_compaction {
        return false;
    }
    let Some(idle) = context.lane_idle else { return true };
    // The body is searched only if the shortest lifetime is over.
    if idle <= CACHE_LIFETIME_MIN {
        return false;
    }
    let words = CACHE_LIFETIMES.map(|(_, words)| words);
    // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
    let found = Box::pin(large_body::find_phrase(attempts, &words, log)).await;
    let longer = CACHE_LIFETIMES.iter().find(|(_, words)| found == Some(*words));
    idle > longer.map_or(CACHE_LIFETIME_MIN, |(lifetime, _)| *lifetime)
}

/// Replaces the wait that a rate limit of one key names, if another key of the pool can serve the client sooner.
pub(super) fn correct_retry_after(attempts: &Attempts<'_>, answer: &mut ProviderAnswer) {
    if answer.status() != StatusCode::TOO_MANY_REQUESTS || attempts.profile.is_none() {
        return;
    }
    let ask = ProfileQuery {
        pinned: attempts.profile,
        tried: &[],
        ..query(attempts, false)
    };
    if let Some(wait) = attempts.route.pool.soonest_use(&ask, clock::std_now()) {
        answer.shorten_retry_after(whole_seconds(wait));
    }
}

/// Records a limit that a success reports as used up, before the next request meets it.
pub(super) fn record_empty_quota(attempts: &Attempts<'_>, answer: &ProviderAnswer) {
    // Other paths have limits of their own.
    let Some(id) = attempts.profile.filter(|_| attempts.route.asks_model) else {
        return;
    };
    if let Some(empty) = EmptyQuota::read(answer.headers(), clock::system_time()) {
        let model = attempts.outgoing.body.context.model.as_deref();
        attempts.route.pool.record_empty(id, model, empty, clock::std_now());
    }
}
