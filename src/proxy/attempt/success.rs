//! Everything that a successful answer settles: the caller, pins, learned facts, and the lane's profile.

use super::{Attempts, large_body::later_pass, unknown_refusal};
use crate::{
    auth::Caller,
    clock,
    proxy::{
        exchange_log::ExchangeLog,
        heavy_body::is_heavy_pass,
        owned_ids::ObjectNote,
        request::{HeadHold, PendingPins},
        response_chain::ChainRequest,
    },
    session,
    session_table::ProfilePin,
};

/// Makes permanent what the accepted request assumed, and notes what its acceptance proves.
///
/// Returns what the answer's head must wait for.
pub(super) async fn settle_success(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Option<HeadHold> {
    // Only a provider can confirm a credential, so a success verifies the caller.
    let caller = attempts.outgoing.body.context.caller;
    attempts.path.callers.mark_verified(caller);
    log.event.record_accepted();
    let mut pins = attempts.outgoing.body.pins.take();
    let hold = pins.as_mut().map(|pins| {
        let (restored, hold) = pins.commit();
        if let Some(reporter) = &mut log.reporter {
            reporter.restored = restored;
        }
        hold
    });
    if let Some(continuity) = &mut attempts.outgoing.body.continuity {
        continuity.commit(attempts.profile);
    }
    // Counters accept histories that the model refuses, so a token count proves nothing.
    if attempts.route.asks_for_turn() {
        store_learned_facts(attempts, log);
    }
    unknown_refusal::report_success(attempts, log);
    bind_lane(attempts, log);
    let context = &attempts.outgoing.body.context;
    if let Some(lane) = context.lane.filter(|_| context.is_compaction) {
        attempts.path.sessions.note_compaction(lane.id, clock::now());
    }
    note_accepted_body(attempts, pins, log).await;
    hold
}

/// Notes what else the accepted body shows: its last turn, and the items that its answer continues.
///
/// Last, because a large body waits for its turn: a client that leaves meanwhile loses nothing but these notes.
async fn note_accepted_body(attempts: &mut Attempts<'_>, pins: Option<Box<PendingPins>>, log: &mut ExchangeLog) {
    let pass = later_pass(attempts, log);
    let body = &mut attempts.outgoing.body;
    let (chain, results) = (body.chain.take(), body.late_results.as_ref());
    let shown_bytes = pins.as_deref().map_or(0, PendingPins::shown_bytes);
    let is_heavy = is_heavy_pass(shown_bytes) || (body.is_heavy && chain.is_some());
    let has_profile = log.event.profile.is_some();
    let read = move || {
        if let Some(pins) = pins {
            pins.record_shown(results);
        }
        // Without its items nothing is known of the request, and providers store answers by default.
        let stores_answer = !has_profile || chain.as_ref().is_none_or(ChainRequest::stores_answer);
        (stores_answer, chain.and_then(ChainRequest::begin_chain))
    };
    let read = if is_heavy {
        let (work, client) = (&attempts.path.budgets.work, body.context.budget_client);
        // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
        work.run(client, pass, Box::pin(async move { read() })).await
    } else {
        Ok(read())
    };
    let (stores_answer, chain) = read.unwrap_or((true, None));
    note_objects(attempts, stores_answer, log);
    if let Some(reporter) = &mut log.reporter {
        reporter.chain = chain;
    }
}

/// Stores the objects that this success shows to be the profile's, and has those noted that the answer names.
fn note_objects(attempts: &Attempts<'_>, stores_answer: bool, log: &mut ExchangeLog) {
    let (Some(profile), Some(reporter)) = (log.event.profile.as_deref(), &mut log.reporter) else {
        return;
    };
    let (path, route, body) = (attempts.path, attempts.route, &attempts.outgoing.body);
    let context = &body.context;
    let caller = context.caller;
    // Later requests without a body cannot name a user of the account that only bodies name.
    let account = Caller::of_account(caller.account()).with_shared_credential(caller.is_shared());
    let is_user = path.settings.principals.trust_body_user && account != caller;
    let callers = [Some(caller), is_user.then_some(account)];
    let note = ObjectNote::begin(&path.objects, callers, route, &context.objects, profile, stores_answer);
    reporter.objects = note.map(Box::new);
}

/// Stores what the provider has proven by its answer to this body.
///
/// A refusal alone proves nothing, since its text may echo what the client wrote. Nor does a status 200 whose first
/// event is an error.
fn store_learned_facts(attempts: &mut Attempts<'_>, log: &ExchangeLog) {
    let path = attempts.path;
    let caller = attempts.outgoing.body.context.caller;
    // Those of all resends, since the last body keeps the repairs of the earlier ones.
    let mut learned = std::mem::take(&mut attempts.learned_facts);
    if let Some(history) = &attempts.history {
        learned.extend(history.mend_facts());
        // They are proven now, or were not needed.
        if let Some(lane) = attempts.outgoing.body.context.lane {
            history.forget_unproven(path, lane.id);
        }
        history.report_mends(caller, log);
    }
    path.facts.learn_facts(caller, &learned);
    path.recall.store_facts(caller, &learned);
    if let Some(history) = &attempts.history {
        history.settle_shapes(path);
        history.settle_thinking(path);
    }
}

/// Binds the lane to the profile that has served it.
fn bind_lane(attempts: &Attempts<'_>, log: &ExchangeLog) {
    // A token count on another profile must not move the conversation there.
    let is_turn = !session::is_token_count(attempts.route.target.path());
    let context = &attempts.outgoing.body.context;
    let pin = context.pinned_profile.as_deref();
    let label = log.event.profile.as_deref();
    let label = label.filter(|label| is_turn && !attempts.is_borrowed && pin != Some(*label));
    if let (Some(lane), Some(label)) = (context.lane, label) {
        let pin = ProfilePin {
            upstream: attempts.upstream_name().into(),
            profile: label.into(),
        };
        attempts.path.sessions.set_profile_pin(lane.id, Some(pin), clock::now());
    }
}
