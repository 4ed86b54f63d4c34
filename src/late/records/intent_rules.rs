//! Pure decisions about an intent: who may run the tool, and what a holder's report changes.

use std::time::Duration;

use super::{ContentPlace, IntentRecord, IntentState};
use crate::{
    late::settings::ToolSettings,
    ledger::{MOMENT_MAX, Moment, RecordName},
    repair::Tier,
};

/// The time that a record outlives its last use, so that a late request gets a clear answer: 24 hours.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the window of a tool: the configured one, or that of its tier. It begins when the result is settled.
pub(in crate::late) fn tool_window(settings: &ToolSettings, tier: Tier) -> Duration {
    settings.window.unwrap_or(match tier {
        Tier::Read => Duration::ZERO,
        Tier::Revertible => Duration::from_secs(10 * 60),
        Tier::Durable => Duration::from_secs(60 * 60),
        Tier::OneWay => Duration::from_secs(24 * 60 * 60),
    })
}

/// Returns the state of an intent at `now`: a holder whose lease has ended counts as gone.
pub(in crate::late) fn state_at(intent: &IntentRecord, now: Moment) -> IntentState {
    match intent.tier {
        _ if !intent.state.is_in_flight() || now < intent.run.lease_until => intent.state,
        // Nobody knows if the effect has happened, and it must not happen twice.
        Tier::OneWay => IntentState::Unknown,
        Tier::Read | Tier::Revertible | Tier::Durable => IntentState::Expired,
    }
}

/// Returns the end of the window in which the result is replayed. `None` without a result.
pub(in crate::late) fn window_until(intent: &IntentRecord) -> Option<Moment> {
    let result = intent.result.as_ref()?;
    Some(
        result
            .settled_at
            .saturating_add(Duration::from_secs(intent.window_seconds)),
    )
}

/// Returns `true` if the result of an earlier run is replayed at `now`: within its window, or within one of the length
/// `least`.
pub(in crate::late) fn is_replayed(intent: &IntentRecord, least: Duration, now: Moment) -> bool {
    let is_settled = matches!(intent.state, IntentState::Settled | IntentState::Failed);
    let window = Duration::from_secs(intent.window_seconds).max(least);
    let result = intent.result.as_ref().filter(|_| is_settled);
    result.is_some_and(|result| now < result.settled_at.saturating_add(window))
}

/// Returns the time until which the record is stored.
pub(in crate::late) fn retained_until(intent: &IntentRecord) -> Moment {
    let is_open = !matches!(
        intent.state,
        IntentState::Settled | IntentState::Failed | IntentState::Cancelled
    );
    // One that is in flight or unknown never ages out: the effect could happen a second time.
    if is_open && intent.tier == Tier::OneWay {
        return MOMENT_MAX;
    }
    let window = Duration::from_secs(intent.window_seconds);
    let last_use = window_until(intent).unwrap_or_else(|| intent.run.lease_until.saturating_add(window));
    last_use.max(intent.run.lease_until).saturating_add(GRACE)
}

/// The part of a claim that decides if the tool may run.
#[derive(Clone, Copy, Debug)]
pub(in crate::late) struct ClaimTerms<'c> {
    /// The digest of the canonical input.
    pub(in crate::late) input: &'c [u8; 32],
    /// The least window.
    pub(in crate::late) window: Duration,
    /// `true` if the user wants the effect once more.
    pub(in crate::late) run_again: bool,
    /// `true` if a run that failed may be repeated although its effect cannot be undone.
    pub(in crate::late) retry_failed: bool,
}

/// The decision on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::late) enum ClaimRuling {
    /// The tool may run, as the run that began at this time.
    Granted(Moment),
    /// The tool ran before: its result is returned.
    Replayed,
    /// Another holder runs the tool.
    InFlight,
    /// The tool may have run, and its effect cannot be undone.
    OutcomeUnknown,
    /// The key was used for another input.
    PayloadMismatch,
}

/// Judges a claim.
pub(in crate::late) fn judge_claim(existing: Option<&IntentRecord>, terms: ClaimTerms<'_>, now: Moment) -> ClaimRuling {
    let Some(intent) = existing else {
        return ClaimRuling::Granted(now);
    };
    // A clock that was set back must not lead to the name of the run before.
    let next_run = now.max(intent.run.started_at.saturating_add(Duration::from_nanos(1)));
    let is_over = match intent.state {
        IntentState::Settled | IntentState::Failed => !is_replayed(intent, terms.window, now),
        IntentState::Cancelled => true,
        _ => false,
    };
    if is_over {
        return ClaimRuling::Granted(next_run);
    }
    if intent.input != *terms.input {
        return ClaimRuling::PayloadMismatch;
    }
    match state_at(intent, now) {
        IntentState::Claimed | IntentState::CancelRequested | IntentState::CancelRefused => ClaimRuling::InFlight,
        IntentState::Unknown => ClaimRuling::OutcomeUnknown,
        // The same run, so that the systems behind the tool recognise what the first holder has done already.
        IntentState::Expired => ClaimRuling::Granted(intent.run.started_at),
        IntentState::Settled if terms.run_again => ClaimRuling::Granted(next_run),
        // Half of an effect may have happened: only its own flag permits the rest.
        IntentState::Failed if intent.tier != Tier::OneWay || terms.retry_failed => ClaimRuling::Granted(next_run),
        IntentState::Settled | IntentState::Failed => ClaimRuling::Replayed,
        IntentState::Cancelled => ClaimRuling::Granted(next_run),
    }
}

/// Returns `true` if the posted result of a call settles the intent.
///
/// A result never ends the run of another call, never resolves its unknown outcome, and never replaces a success.
pub(in crate::late) fn is_settled_by(intent: &IntentRecord, call: &RecordName, failed: bool, now: Moment) -> bool {
    let is_own = intent.run.call.as_ref() == Some(call);
    let place = intent.result.as_ref().map(|result| &result.place);
    match state_at(intent, now) {
        IntentState::Claimed | IntentState::CancelRequested | IntentState::CancelRefused | IntentState::Unknown => {
            is_own
        }
        IntentState::Settled if is_replayed(intent, Duration::ZERO, now) => match place {
            Some(ContentPlace::Call(settled_by)) => settled_by == call,
            // A person knows that the tool ran. The result of its call says more, unless it denies that.
            Some(ContentPlace::Nowhere) => is_own && !failed,
            Some(ContentPlace::Own(_)) | None => false,
        },
        IntentState::Failed => is_own || !failed,
        IntentState::Settled | IntentState::Expired => true,
        // The tool did not run: a failure agrees with that.
        IntentState::Cancelled => !failed,
    }
}

/// Takes back the result of an intent: its holder goes on, with a new lease.
pub(in crate::late) fn reopen(intent: &mut IntentRecord, now: Moment) {
    let lease = Duration::from_secs(intent.run.lease_seconds);
    intent.state = IntentState::Claimed;
    intent.result = None;
    intent.run.lease_until = intent.run.lease_until.max(now.saturating_add(lease));
}

/// The decision on a report of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::late) enum HolderRuling {
    /// The report changes the intent.
    Accepted,
    /// The same report came before.
    Repeated,
    /// The claim is not the latest one.
    StaleClaim,
    /// The intent was settled otherwise.
    Conflict,
    /// The effect was undone, so that there can be no result.
    Cancelled,
}

/// The report of a holder.
#[derive(Clone, Copy, Debug)]
pub(in crate::late) enum HolderReport<'r> {
    /// The tool still runs.
    Heartbeat,
    /// The tool has ended, with a result of this digest.
    Result(&'r [u8; 32]),
    /// The tool did not run, or its effect was undone.
    Cancelled,
    /// The effect will not be undone.
    CancelRefused,
}

/// Judges a report by the hash of its claim.
///
/// A holder whose lease has ended may still report, as long as no other one has claimed the intent: what it knows is the
/// truth.
pub(in crate::late) fn judge_report(intent: &IntentRecord, claim: &[u8; 32], report: HolderReport<'_>) -> HolderRuling {
    if intent.run.claim.as_ref() != Some(claim) {
        return HolderRuling::StaleClaim;
    }
    match (intent.state, report) {
        (IntentState::Settled | IntentState::Failed, HolderReport::Result(digest)) => {
            if intent.result.as_ref().is_some_and(|result| result.digest == *digest) {
                HolderRuling::Repeated
            } else {
                HolderRuling::Conflict
            }
        }
        (IntentState::Settled | IntentState::Failed, _) => HolderRuling::Conflict,
        (IntentState::Cancelled, HolderReport::Cancelled)
        | (IntentState::CancelRefused, HolderReport::CancelRefused) => HolderRuling::Repeated,
        (IntentState::Cancelled, _) => HolderRuling::Cancelled,
        // Nobody has asked for a cancel.
        (state, HolderReport::CancelRefused) if state != IntentState::CancelRequested => HolderRuling::Conflict,
        _ => HolderRuling::Accepted,
    }
}

/// Returns `true` if an operator may resolve the intent.
pub(in crate::late) fn is_resolvable(intent: &IntentRecord, now: Moment) -> bool {
    state_at(intent, now) == IntentState::Unknown
}
