//! The answers about intents, as types: the `OpenAPI` document is derived from what is written.

use serde::Serialize;
use utoipa::{ToSchema, openapi::schema::Object};

use super::answers::VerbatimJson;
use crate::{
    api::json::name_schema,
    late::{self, GrantedClaim, IntentScope, IntentState, ReplayedResult},
};

/// The answer to a claim that is granted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Claimed)]
pub(super) struct ClaimedView {
    /// The id of the intent
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    intent: String,
    /// The secret of the holder: every report needs it
    #[schema(pattern = "^claim_[0-9a-f]{32}$")]
    claim: String,
    /// The key of this run for the systems behind the tool. A holder that takes the run over gets the same
    #[schema(pattern = "^[0-9a-f]{32}$")]
    idempotency_key: String,
    /// The time from which the holder counts as gone, in seconds since 1970
    lease_until: u64,
    /// The end of the window if the result were settled now, in seconds since 1970
    window_until: u64,
    #[schema(schema_with = scope_schema)]
    scope: &'static str,
}

impl ClaimedView {
    /// Returns the view of a granted claim.
    pub(super) fn of_claim(granted: &GrantedClaim) -> Self {
        Self {
            intent: granted.intent.to_string(),
            claim: granted.claim.as_str().to_owned(),
            idempotency_key: granted.idempotency_key.clone(),
            lease_until: granted.lease_until.as_secs(),
            window_until: granted.window_until.as_secs(),
            scope: granted.scope.label(),
        }
    }
}

/// The result of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunResult)]
struct RunResultView<'c> {
    /// The content: any JSON, in the bytes that were posted
    #[schema(value_type = serde_json::Value)]
    content: VerbatimJson<'c>,
    /// `true` if the tool reported an error
    is_error: bool,
}

impl<'c> RunResultView<'c> {
    fn of_content(content: Option<&'c str>, is_error: bool) -> Option<Self> {
        content.map(|content| Self {
            content: VerbatimJson::of_content(content),
            is_error,
        })
    }
}

/// The answer to a claim of an intent whose tool ran before.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Replayed)]
pub(super) struct ReplayedView<'c> {
    /// The id of the intent
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    intent: String,
    /// `settled`, or `failed` if the tool reported an error
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// The result; null if its content was never stored, or has been removed
    #[schema(required)]
    result: Option<RunResultView<'c>>,
    /// The time of the result, in seconds since 1970
    settled_at: u64,
    #[schema(schema_with = scope_schema)]
    scope: &'static str,
}

impl<'c> ReplayedView<'c> {
    /// Returns the view of an earlier result.
    pub(super) fn of_result(result: &'c ReplayedResult) -> Self {
        Self {
            intent: result.intent.to_string(),
            state: if result.failed {
                IntentState::Failed.label()
            } else {
                IntentState::Settled.label()
            },
            result: RunResultView::of_content(result.content.as_deref(), result.failed),
            settled_at: result.settled_at.as_secs(),
            scope: result.scope.label(),
        }
    }
}

/// An intent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Intent)]
pub(super) struct IntentStatusView<'c> {
    /// The id of the intent
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    intent: String,
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// The name of the tool
    tool: String,
    #[schema(schema_with = scope_schema)]
    scope: &'static str,
    /// The time of the latest claim, in seconds since 1970; null if the tool ran without one, or a person has
    /// resolved its outcome
    #[schema(required)]
    claimed_at: Option<u64>,
    /// The time from which the holder counts as gone, in seconds since 1970; null if no holder runs the tool
    #[schema(required)]
    lease_until: Option<u64>,
    /// The time of the result, in seconds since 1970; null without a result
    #[schema(required)]
    settled_at: Option<u64>,
    /// The end of the window in which claims get the result, in seconds since 1970; null without a result
    #[schema(required)]
    window_until: Option<u64>,
    /// The result; null without one, or if its content was never stored or has been removed
    #[schema(required)]
    result: Option<RunResultView<'c>>,
}

impl<'c> IntentStatusView<'c> {
    /// Returns the view of an intent.
    pub(super) fn of_intent(intent: &'c late::IntentView) -> Self {
        Self {
            intent: intent.id.to_string(),
            state: intent.state.label(),
            tool: String::from_utf8_lossy(&intent.tool).into_owned(),
            scope: intent.scope.label(),
            claimed_at: intent.claimed_at.map(|at| at.as_secs()),
            lease_until: intent.lease_until.map(|until| until.as_secs()),
            settled_at: intent.settled_at.map(|at| at.as_secs()),
            window_until: intent.window_until.map(|until| until.as_secs()),
            result: RunResultView::of_content(intent.content.as_deref(), intent.failed),
        }
    }
}

/// The answer to a heartbeat or a cancel.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Held)]
pub(super) struct HeldView {
    /// The id of the intent
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    pub(super) intent: String,
    #[schema(schema_with = state_schema)]
    pub(super) state: &'static str,
    /// The time from which the holder counts as gone, in seconds since 1970; null if no holder runs the tool
    #[schema(required)]
    pub(super) lease_until: Option<u64>,
}

/// The answer to the result of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettledIntent)]
pub(super) struct SettledIntentView {
    /// The id of the intent
    #[schema(pattern = "^int_[0-9a-f]{32}$")]
    pub(super) intent: String,
    #[schema(schema_with = state_schema)]
    pub(super) state: &'static str,
    /// `false` if the same result was posted before
    pub(super) first: bool,
}

fn scope_schema() -> Object {
    let description = "The conversations that share the intent: all of the `user`, or only those of the `session` where \
        no user is known";
    name_schema(description, IntentScope::ALL.map(IntentScope::label))
}

fn state_schema() -> Object {
    let description = "`claimed` while a holder runs the tool, `settled` or `failed` with its result, \
        `cancel_requested`, `cancelled` or `cancel_refused` if its conversation was left; after a lease has ended, \
        `unknown` for tools whose effect cannot be undone, otherwise `expired`";
    name_schema(description, IntentState::ALL.map(IntentState::label))
}
