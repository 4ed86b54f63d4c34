//! Claims: a holder asks if its tool may run.

use std::time::Duration;

use super::{
    Holder, Intents,
    replaying::{self, ReplayedResult},
};
use crate::{
    auth::{Caller, Principal},
    clock,
    late::{
        LateError,
        changes::LateChange,
        matching::NamedCall,
        named_calls::MatchedCall,
        records::{
            ClaimSecret, IntentId, IntentRecord, IntentRun, IntentScope, IntentState, IntentSubject, RecordedCall,
            idempotency_key, intent_name,
            intent_rules::{self, ClaimRuling, ClaimTerms},
        },
        service::Service,
    },
    ledger::{Moment, RecordKey, RecordName, retry_conflicts},
    repair::Tier,
    table::{RecordValue, Stored},
    upstream::random_bytes,
};

/// The time until a holder without heartbeats counts as gone, for tools without a `max_duration`.
const LEASE_DEFAULT: Duration = Duration::from_secs(10 * 60);

/// A claim of a holder.
#[derive(Clone, Copy, Debug)]
pub struct IntentClaim<'c> {
    /// The side effect.
    pub subject: ClaimSubject<'c>,
    /// The key that the holder has chosen in place of the input.
    pub chosen_key: Option<&'c [u8]>,
    /// The least tier. One that is easier to undo than the tool's has no effect.
    pub tier: Option<Tier>,
    /// The least window. A shorter one than the tool's has no effect.
    pub window: Option<Duration>,
    /// The time until the holder counts as gone, unless it sends a heartbeat. `None` for the tool's `max_duration`.
    pub lease: Option<Duration>,
    /// `true` if the user wants the effect once more.
    pub run_again: bool,
    /// `true` if a run that failed may be repeated although its effect cannot be undone.
    pub retry_failed: bool,
}

/// The effect that a claim is about.
#[derive(Clone, Copy, Debug)]
pub enum ClaimSubject<'c> {
    /// That of a recorded call.
    Call {
        /// The call.
        named: NamedCall<'c>,
        /// The input as JSON. `None` if the service does not send it.
        input: Option<&'c [u8]>,
    },
    /// One that the service wants for a user of its own.
    OnBehalf {
        /// The service.
        service: &'c Service,
        /// The name of the user, within the service.
        user: &'c [u8],
        /// The tool.
        tool: &'c [u8],
        /// The input as JSON.
        input: &'c [u8],
    },
    /// One that a caller has itself, without a conversation.
    Own {
        /// The caller.
        caller: Caller,
        /// The tool.
        tool: &'c [u8],
        /// The input as JSON.
        input: &'c [u8],
    },
}

impl<'c> ClaimSubject<'c> {
    /// Returns the holder that sends the claim.
    const fn holder(&self) -> Holder<'c> {
        match self {
            Self::Call { named, .. } => Holder::Service(named.service),
            Self::OnBehalf { service, .. } => Holder::Service(service),
            Self::Own { caller, .. } => Holder::Caller(*caller),
        }
    }
}

/// The outcome of a claim.
#[derive(Clone, Debug)]
pub enum ClaimOutcome {
    /// The sender holds the intent: the tool may run.
    Granted(Box<GrantedClaim>),
    /// The tool ran before.
    Replayed(ReplayedResult),
    /// Another holder runs the tool.
    InFlight {
        /// The intent.
        intent: IntentId,
        /// The time of that claim.
        since: Moment,
        /// The time from which the holder counts as gone.
        lease_until: Moment,
        /// `true` if the same service has claimed it.
        is_own: bool,
    },
    /// The tool may have run, and its effect cannot be undone.
    OutcomeUnknown {
        /// The intent.
        intent: IntentId,
        /// The time of the claim whose holder has disappeared.
        since: Moment,
    },
    /// The key was used for another input, or the sent input is not that of the recorded call.
    PayloadMismatch,
    /// The effect cannot be undone, and no surface but the session could take its result.
    TierForbids,
    /// No such call is recorded, or the service may not run the tool.
    NotFound,
    /// The id does not identify one call.
    AmbiguousCall,
    /// The input of the recorded call is not known yet.
    InputUnknown,
}

impl ClaimOutcome {
    /// Returns the label of the outcome in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Replayed(_) => "replayed",
            Self::InFlight { .. } => "in_flight",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::PayloadMismatch => "payload_mismatch",
            Self::TierForbids => "tier_forbids",
            Self::NotFound => "not_found",
            Self::AmbiguousCall => "ambiguous_call",
            Self::InputUnknown => "input_unknown",
        }
    }
}

/// A granted claim.
#[derive(Clone, Debug)]
pub struct GrantedClaim {
    /// The intent.
    pub intent: IntentId,
    /// The secret of the holder.
    pub claim: ClaimSecret,
    /// The key for the systems behind the tool.
    pub idempotency_key: String,
    /// The time from which the holder counts as gone.
    pub lease_until: Moment,
    /// The end of the window, if the result were settled now.
    pub window_until: Moment,
    /// The conversations that share the intent.
    pub scope: IntentScope,
}

/// An effect with its owner: what the name of an intent is made of.
struct ResolvedSubject {
    principal: Principal,
    /// The account whose services may act on the intent.
    account: Principal,
    tool: Vec<u8>,
    tier: Tier,
    scope: IntentScope,
    /// The session. `None` for the scope of the whole user.
    session: Option<[u8; 32]>,
    input: [u8; 32],
    /// The recorded call, with its record.
    call: Option<Box<Stored<RecordedCall>>>,
}

impl Intents {
    /// Claims an intent. A grant is durable on return.
    pub async fn claim(&self, claim: &IntentClaim<'_>, now: Moment) -> Result<ClaimOutcome, LateError> {
        // A lease that another replica has granted would seem to have ended.
        if !self.parts.ledger.is_exclusive() && !clock::is_steady() {
            return Err(LateError::ClockStep);
        }
        if let ClaimSubject::Call { named, .. } = &claim.subject {
            self.parts.await_call(named.call_id).await;
        }
        retry_conflicts(|| self.try_claim(claim, now)).await
    }

    /// Claims an intent as of `now`. Returns `None` if another claim was granted first.
    async fn try_claim(&self, claim: &IntentClaim<'_>, now: Moment) -> Result<Option<ClaimOutcome>, LateError> {
        let mut subject = match self.resolve_subject(claim, now).await? {
            Ok(subject) => subject,
            Err(outcome) => return Ok(Some(outcome)),
        };
        // The holder may know of an effect that the configuration does not name, and never takes protection away.
        subject.tier = claim.tier.map_or(subject.tier, |tier| tier.max(subject.tier));
        let Some(name) = self.find_name(claim, &subject, now).await? else {
            return Ok(Some(ClaimOutcome::PayloadMismatch));
        };
        let key = IntentRecord::key(subject.principal, name);
        let existing = self.parts.intents.read(key, now).await?;
        if let Some(outcome) = self.replay_of_call(&subject, key, existing.as_ref(), now).await? {
            return Ok(Some(outcome));
        }
        let window = self.window_of(&subject, claim.window);
        let terms = ClaimTerms {
            input: &subject.input,
            window,
            run_again: claim.run_again,
            retry_failed: claim.retry_failed,
        };
        let ruling = intent_rules::judge_claim(existing.as_ref().map(|existing| &existing.value), terms, now);
        let outcome = match (ruling, &existing) {
            (ClaimRuling::Granted(started_at), _) => {
                if !self.may_run(&subject, now).await? {
                    return Ok(Some(ClaimOutcome::TierForbids));
                }
                let about = (key, started_at, window);
                // On a conflict another claim was first: the next try judges this one anew.
                let Some(granted) = self.grant(claim, &subject, about, existing.as_ref(), now).await? else {
                    return Ok(None);
                };
                ClaimOutcome::Granted(Box::new(granted))
            }
            (_, None) => return Err(LateError::Busy),
            (ClaimRuling::Replayed, Some(existing)) => {
                let replayed = replaying::read_result(&self.parts, existing, now).await?;
                // Without room for it, the result is stored for its own window only.
                if let Err(error) = replaying::keep_result(&self.parts, existing, window, now).await {
                    tracing::debug!(%error, "a result is not stored for the longer window of a claim");
                }
                ClaimOutcome::Replayed(replayed)
            }
            (ClaimRuling::InFlight, Some(existing)) => {
                let run = &existing.value.run;
                ClaimOutcome::InFlight {
                    intent: IntentId::of_key(&existing.record.key),
                    since: run.claimed_at,
                    lease_until: run.lease_until,
                    is_own: run.service == claim.subject.holder().name(),
                }
            }
            (ClaimRuling::OutcomeUnknown, Some(existing)) => ClaimOutcome::OutcomeUnknown {
                intent: IntentId::of_key(&existing.record.key),
                since: existing.value.run.claimed_at,
            },
            (ClaimRuling::PayloadMismatch, Some(_)) => ClaimOutcome::PayloadMismatch,
        };
        Ok(Some(outcome))
    }

    /// Returns the name of the intent that a claim is about. `None` if its call was claimed under another key.
    async fn find_name(
        &self,
        claim: &IntentClaim<'_>,
        subject: &ResolvedSubject,
        now: Moment,
    ) -> Result<Option<RecordName>, LateError> {
        let about = match claim.chosen_key {
            Some(key) => IntentSubject::ChosenKey(key),
            None => IntentSubject::Input(&subject.input),
        };
        let name = intent_name(subject.session.as_ref(), &subject.tool, about);
        // A call has one intent: under a second one its tool could run once more.
        let Some(linked) = subject.call.as_ref().and_then(|found| found.value.intent) else {
            return Ok(Some(name));
        };
        if claim.chosen_key.is_none() || linked == name {
            return Ok(Some(linked));
        }
        let key = IntentRecord::key(subject.principal, linked);
        let earlier = self.parts.intents.read(key, now).await?;
        let is_free = earlier.is_none_or(|earlier| earlier.value.state == IntentState::Cancelled);
        Ok(is_free.then_some(name))
    }
}

impl ResolvedSubject {
    /// Returns the subject of a claim without a call, by its principal and account.
    fn of_user((principal, account): (Principal, Principal), tool: &[u8], tier: Tier, input: [u8; 32]) -> Self {
        Self {
            principal,
            account,
            tool: tool.to_vec(),
            tier,
            scope: IntentScope::User,
            session: None,
            input,
            call: None,
        }
    }

    /// Returns the record of a run that begins.
    fn claimed_record(&self, window: Duration, run: IntentRun) -> IntentRecord {
        IntentRecord {
            account: *self.account.as_bytes(),
            tool: self.tool.clone(),
            tier: self.tier,
            scope: self.scope,
            input: self.input,
            window_seconds: window.as_secs(),
            state: IntentState::Claimed,
            run,
            result: None,
        }
    }
}

impl Intents {
    /// Returns `false` if the tool of a call must not run: its effect cannot be undone, and only a session waits for it.
    async fn may_run(&self, subject: &ResolvedSubject, now: Moment) -> Result<bool, LateError> {
        // The users of a service, and the user of a command, wait at a surface of their own.
        match &subject.call {
            Some(found) if subject.tier == Tier::OneWay => {
                self.readers.has_surface(subject.principal, &found.value, now).await
            }
            _ => Ok(true),
        }
    }

    /// Grants a claim. Returns `None` if another writer changed the intent or its call first.
    async fn grant(
        &self,
        claim: &IntentClaim<'_>,
        subject: &ResolvedSubject,
        (key, started_at, window): (RecordKey, Moment, Duration),
        existing: Option<&Stored<IntentRecord>>,
        now: Moment,
    ) -> Result<Option<GrantedClaim>, LateError> {
        let secret = ClaimSecret::from_random(&random_bytes()?);
        let max_duration = self.parts.settings.tool_settings(&subject.tool).max_duration;
        let lease = claim.lease.or(max_duration).unwrap_or(LEASE_DEFAULT);
        let run = IntentRun {
            started_at,
            claim: Some(ClaimSecret::hash_text(secret.as_str().as_bytes())),
            service: claim.subject.holder().name().to_owned(),
            call: subject.call.as_ref().map(|call| call.record.key.name),
            claimed_at: now,
            lease_until: now.saturating_add(lease),
            lease_seconds: lease.as_secs(),
        };
        let intent = subject.claimed_record(window, run);
        let mut steps = vec![match existing {
            Some(existing) => self.parts.intents.replace_step(&existing.record, &intent),
            None => self.parts.intents.insert_step(key, &intent, now),
        }];
        if let Some(Stored { record, value: call }) = subject.call.as_deref() {
            // The settle of the call finds its intent by this name.
            let linked = RecordedCall {
                intent: Some(key.name),
                ..call.clone()
            };
            steps.push(self.parts.calls.replace_step(record, &linked));
        }
        let change = LateChange::Claimed(key, &intent);
        steps.extend(self.participants.join(change, now).await?.steps);
        if !self.parts.commit(steps, now).await? {
            return Ok(None);
        }
        self.participants.note(change, now);
        Ok(Some(GrantedClaim {
            intent: IntentId::of_key(&key),
            claim: secret,
            idempotency_key: idempotency_key(&key, started_at),
            lease_until: intent.run.lease_until,
            window_until: now.saturating_add(window),
            scope: subject.scope,
        }))
    }

    /// Returns the window of a claim: that of the tool, or a longer one that the holder wants.
    fn window_of(&self, subject: &ResolvedSubject, wanted: Option<Duration>) -> Duration {
        let settings = self.parts.settings.tool_settings(&subject.tool);
        intent_rules::tool_window(settings, subject.tier).max(wanted.unwrap_or_default())
    }

    /// Finds the owner, the tool and the input of a claim.
    async fn resolve_subject(
        &self,
        claim: &IntentClaim<'_>,
        now: Moment,
    ) -> Result<Result<ResolvedSubject, ClaimOutcome>, LateError> {
        let (named, sent_input) = match claim.subject {
            ClaimSubject::Call { named, input } => (named, input),
            ClaimSubject::OnBehalf {
                service,
                user,
                tool,
                input,
            } => {
                let account = service.principal;
                // The service vouches for its user.
                let principal = Principal::of_user(&self.parts.principals, account, user);
                let tier = self.parts.settings.tool_settings(tool).tier;
                let owner = (principal, account);
                let input = self.input_digest(tool, input);
                return Ok(Ok(ResolvedSubject::of_user(owner, tool, tier, input)));
            }
            ClaimSubject::Own { caller, tool, input } => {
                let owner = (caller.principal(), caller.account());
                // Whoever waits for the command gets its result, so that no conversation has to.
                let tier = self.parts.settings.configured_tier(tool).unwrap_or(Tier::Durable);
                let input = self.input_digest(tool, input);
                return Ok(Ok(ResolvedSubject::of_user(owner, tool, tier, input)));
            }
        };
        let found = match self.parts.find_call(&named, None, now).await? {
            MatchedCall::None => return Ok(Err(ClaimOutcome::NotFound)),
            MatchedCall::Several => return Ok(Err(ClaimOutcome::AmbiguousCall)),
            MatchedCall::One(found) => found,
        };
        let Stored { record, value: call } = &*found;
        let sent = sent_input.map(|input| self.input_digest(&call.tool, input));
        let input = match (call.intent_input, sent) {
            (Some(recorded), Some(sent)) if recorded != sent => return Ok(Err(ClaimOutcome::PayloadMismatch)),
            (Some(input), _) | (None, Some(input)) => input,
            (None, None) => return Ok(Err(ClaimOutcome::InputUnknown)),
        };
        let principal = record.key.owner();
        let (scope, session) = self.parts.scope_of_call(principal, record.key.name, call);
        Ok(Ok(ResolvedSubject {
            principal,
            account: Principal::from_bytes(call.account),
            tool: call.tool.clone(),
            tier: call.tier,
            scope,
            session,
            input,
            call: Some(found),
        }))
    }

    /// Returns the result of a call that has one already: its tool ran, whatever the intent says.
    async fn replay_of_call(
        &self,
        subject: &ResolvedSubject,
        key: RecordKey,
        existing: Option<&Stored<IntentRecord>>,
        now: Moment,
    ) -> Result<Option<ClaimOutcome>, LateError> {
        let Some(Stored { record, value: call }) = subject.call.as_deref() else {
            return Ok(None);
        };
        let Some(posted) = &call.posted else {
            return Ok(None);
        };
        if existing.is_none() {
            // The id of the answer must be one that can be read. Another writer may be first, which is as good.
            let mut settled =
                subject.claimed_record(self.window_of(subject, None), IntentRun::of_call(record.key.name));
            settled.settle_by_call(record.key.name, posted);
            let insert = self.parts.intents.insert_step(key, &settled, now);
            let inserted = self.parts.ledger.commit(vec![insert], now);
            if let Err(error) = inserted.await {
                tracing::debug!(%error, "the intent of a call with a result is not stored");
            }
        }
        let content = self
            .parts
            .posted_content(subject.principal, record.key.name, now)
            .await?;
        Ok(Some(ClaimOutcome::Replayed(ReplayedResult {
            intent: IntentId::of_key(&key),
            content,
            failed: posted.failed,
            settled_at: posted.posted_at,
            scope: subject.scope,
        })))
    }
}
