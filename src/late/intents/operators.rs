//! Intents as operators see them: lists, and the end of an unknown outcome.

use super::{Intents, storing};
use crate::{
    auth::{Caller, Principal, PrincipalHash},
    clock,
    late::{
        LateError,
        page::{ListCursor, Page, PageScan},
        records::{ContentPlace, IntentId, IntentRecord, IntentResult, IntentScope, IntentState, intent_rules},
    },
    ledger::{Moment, ROWS_MAX, Record, RecordKind, retry_conflicts},
    repair::Tier,
    table::RecordValue,
};

/// The finding of an operator about an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The tool ran: the effect has happened.
    Done,
    /// The tool did not run: it may be claimed again.
    NotRun,
}

/// The outcome of a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// The intent has this state now.
    Resolved(IntentState),
    /// The outcome is not unknown: the intent has this state.
    NotUnknown(IntentState),
    /// There is no such intent.
    NotFound,
}

/// An intent in a list for operators. It contains no input and no result.
#[derive(Clone, Debug)]
pub struct ListedIntent {
    /// The id.
    pub id: IntentId,
    /// The principal that owns it.
    pub principal: Principal,
    /// The account whose services may act on it.
    pub account: Principal,
    /// The tool.
    pub tool: Vec<u8>,
    /// The tier of the tool.
    pub tier: Tier,
    /// The conversations that share the intent.
    pub scope: IntentScope,
    /// The state.
    pub state: IntentState,
    /// The service that holds or has settled it.
    pub service: String,
    /// The time of the latest claim, or of the settle if there was no claim.
    pub since: Moment,
}

impl Intents {
    /// Resolves an unknown outcome, for an operator who has found out what happened.
    pub async fn resolve(
        &self,
        id: IntentId,
        resolution: Resolution,
        now: Moment,
    ) -> Result<ResolveOutcome, LateError> {
        retry_conflicts(|| self.try_resolve(id, resolution, now)).await
    }

    /// Resolves an unknown outcome, for its owner.
    pub async fn resolve_own(
        &self,
        owner: Caller,
        id: IntentId,
        resolution: Resolution,
    ) -> Result<ResolveOutcome, LateError> {
        let now = clock::unix_time();
        let found = storing::find_intent(&self.parts, id, now).await?;
        if found.is_some_and(|found| found.record.key.owner() == owner.principal()) {
            self.resolve(id, resolution, now).await
        } else {
            Ok(ResolveOutcome::NotFound)
        }
    }

    /// Resolves an unknown outcome. Returns `None` if another writer was first.
    async fn try_resolve(
        &self,
        id: IntentId,
        resolution: Resolution,
        now: Moment,
    ) -> Result<Option<ResolveOutcome>, LateError> {
        let Some(stored) = storing::find_intent(&self.parts, id, now).await? else {
            return Ok(Some(ResolveOutcome::NotFound));
        };
        if !intent_rules::is_resolvable(&stored.value, now) {
            return Ok(Some(ResolveOutcome::NotUnknown(intent_rules::state_at(
                &stored.value,
                now,
            ))));
        }
        let mut intent = stored.value.clone();
        match resolution {
            Resolution::Done => intent.settle(IntentResult {
                place: ContentPlace::Nowhere,
                failed: false,
                digest: [0; 32],
                settled_at: now,
            }),
            Resolution::NotRun => intent.state = IntentState::Cancelled,
        }
        // The earlier holder must not report any more: a human has decided.
        intent.run.claim = None;
        let is_done = self.parts.intents.replace(&stored.record, &intent, now).await?;
        Ok(is_done.then_some(ResolveOutcome::Resolved(intent.state)))
    }

    /// Returns one page of the intents of every caller that are in one of `states`.
    pub async fn list(
        &self,
        states: &[IntentState],
        after: Option<ListCursor>,
        limit: usize,
        now: Moment,
    ) -> Result<Page<ListedIntent>, LateError> {
        let pick = |record: Record| {
            let intent = IntentRecord::decode(&record.value)?;
            let state = intent_rules::state_at(&intent, now);
            let id = IntentId::of_key(&record.key);
            states
                .contains(&state)
                .then(|| listed(record.key.principal, id, state, intent))
        };
        PageScan::of_everyone(&*self.parts.ledger, (RecordKind::Intent, ROWS_MAX), after, limit, now)
            .list_records(pick)
            .await
    }
}

fn listed(principal: PrincipalHash, id: IntentId, state: IntentState, intent: IntentRecord) -> ListedIntent {
    let settled_at = intent.result.as_ref().map(|result| result.settled_at);
    ListedIntent {
        id,
        principal: Principal::from_bytes(principal),
        account: Principal::from_bytes(intent.account),
        tier: intent.tier,
        scope: intent.scope,
        state,
        since: if intent.run.claim.is_some() {
            intent.run.claimed_at
        } else {
            settled_at.unwrap_or(intent.run.claimed_at)
        },
        tool: intent.tool,
        service: intent.run.service,
    }
}
