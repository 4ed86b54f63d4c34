//! Continuity of one request: which dropped values its body gets back, and what its answer carries.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    answer_note::{AnswerNote, ContinuityOwner},
    catch_core_panic::catch_core_panic,
    data_path::DataPath,
    exchange_route::ExchangeRoute,
    fact_scope::FactScope,
};
use crate::{
    auth::Caller,
    conversation::Finding,
    keys::profiles::ProfilePool,
    keys::rotation::ProfileId,
    provider::{ProviderKind, ServerHash},
    recall::{CarriedValue, FactKey, ValueName, ValueState},
    repair::{
        Action, ContinuityGap, ContinuityKind, ContinuityRules, Insertions, LateText, Paired, PairingContext,
        RepairPolicy, RepairReport, continuity_gaps, last_message_hash, parse,
    },
    telemetry::Telemetry,
    wire::{Wire, is_thinking_off},
};

/// A value with its name.
type NamedValue = (ValueName, CarriedValue);

/// Values that a body gets back.
#[derive(Default)]
pub(super) struct ReturnedValues {
    /// The gaps that are filled, each with its value.
    fills: Vec<(ContinuityGap, CarriedValue)>,
}

impl ReturnedValues {
    /// Writes the values into `body`, and late `texts` to the ends of its messages.
    ///
    /// `None` if there are no values, or the body is not JSON.
    pub(super) fn put_into(&self, paired: &Paired<'_>, body: &Bytes, texts: &[(usize, LateText)]) -> Option<Bytes> {
        if self.fills.is_empty() {
            return None;
        }
        let value = |(gap, value): &'_ (ContinuityGap, CarriedValue)| {
            let text = value.text(gap.kind)?.to_owned();
            Some((gap.message, gap.kind, text))
        };
        let values: Vec<(usize, ContinuityKind, String)> = self.fills.iter().filter_map(value).collect();
        let values: Vec<_> = values
            .iter()
            .map(|(message, kind, text)| (*message, *kind, text.as_str()))
            .collect();
        let insertions = Insertions { texts, values: &values };
        catch_core_panic(|| insertions.put_into(paired, body).ok())
    }
}

/// The parts of a request's context on which its continuity depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContinuityContext<'r> {
    pub(super) caller: Caller,
    pub(super) model: Option<&'r str>,
    /// Lane, guessed or not. `None` if nothing identifies it.
    pub(super) lane: Option<[u8; 32]>,
    /// Label of the lane's profile. `None` if no profile has served it.
    pub(super) pinned_profile: Option<&'r str>,
}

/// Continuity of one request.
///
/// Its pins are rolled back on drop, unless they were committed.
pub(super) struct RequestContinuity {
    owner: ContinuityOwner,
    server: ServerHash,
    telemetry: Telemetry,
    rules: ContinuityRules,
    /// The organisation that will serve the request. `None` if it is not certain yet.
    presumed: Option<String>,
    kinds: &'static [ContinuityKind],
    /// The client's body, decoded. Keys are made from it alone, so that the proxy's own edits never change them.
    client_body: Bytes,
    /// Hash of the client's last message, after which the answer follows.
    last_message: Option<[u8; 32]>,
    /// `true` if the request may pin values: not for a count, a batch or a compaction, nor in strict or observe mode.
    may_pin: bool,
    /// The organisation of the pinned values.
    organisation: String,
    pinned: Vec<NamedValue>,
    left_out: Vec<ValueName>,
    /// Kinds whose refusal this exchange has already answered with a resend.
    resent_kinds: Vec<ContinuityKind>,
    /// Kinds of the values that the present body got back, one for each, with the source of the value.
    filled: Vec<(ContinuityKind, &'static str)>,
    findings: Vec<Finding>,
}

impl RequestContinuity {
    /// Creates the continuity of a request. `None` if its answer carries nothing that any provider wants back.
    pub(super) fn new(
        path: &DataPath,
        route: &ExchangeRoute<'_>,
        wire: Wire,
        context: ContinuityContext<'_>,
        may_pin: bool,
        client_body: &Bytes,
        paired: &Paired<'_>,
    ) -> Option<Self> {
        let rules = ContinuityRules {
            wire,
            is_google: matches!(route.upstream.kind, ProviderKind::Gemini | ProviderKind::Vertex),
        };
        let kinds = rules.kinds();
        // Nothing is stored for callers without a credential, which anyone may be.
        let is_known = path.settings.policy.continuity && context.caller.is_authenticated();
        let model = context.model.filter(|_| is_known && !kinds.is_empty())?;
        // An id that no other call has needs no hash.
        let has_reusable_ids = kinds.iter().any(|kind| kind.has_reusable_ids(wire.format));
        let needs_hash = has_reusable_ids && route.asks_for_turn();
        let last_message = needs_hash
            .then(|| catch_core_panic(|| last_message_hash(paired)))
            .flatten();
        Some(Self {
            owner: ContinuityOwner {
                recall: path.recall.clone(),
                pool: Arc::clone(route.pool),
                caller: context.caller,
                wire,
                upstream: route.upstream.name.clone(),
                model: model.to_owned(),
                lane: context.lane,
            },
            server: route.server,
            telemetry: path.telemetry.clone(),
            rules,
            presumed: presumed_organisation(route.pool, context.pinned_profile),
            kinds,
            client_body: client_body.clone(),
            last_message,
            may_pin,
            organisation: String::new(),
            pinned: Vec::new(),
            left_out: Vec::new(),
            resent_kinds: Vec::new(),
            filled: Vec::new(),
            findings: Vec::new(),
        })
    }

    /// Returns the values that the body gets back at once, and pins those that are new.
    ///
    /// Pinned values go back wherever their call is, unless thinking is turned off. Others only where the rule is
    /// documented, or was learned.
    pub(super) async fn plan_values(
        &mut self,
        path: &DataPath,
        paired: &Paired<'_>,
        deadline: Instant,
    ) -> ReturnedValues {
        let has_rule =
            |kind: ContinuityKind| self.rules.is_documented(&self.owner.model, kind) || self.is_learned(path, kind);
        let ruled: Vec<ContinuityKind> = self.kinds.iter().copied().filter(|kind| has_rule(*kind)).collect();
        let Some(organisation) = self.presumed.clone() else {
            // Several accounts could serve the request: the provider's refusal comes from the one that does.
            return ReturnedValues::default();
        };
        self.organisation = organisation;
        let (scope, store) = (self.owner.scope(&self.organisation), self.owner.recall.continuity());
        // Without a rule only an earlier value could matter, and most callers have none.
        if ruled.is_empty() && !store.has_values() && !store.may_have_pins(scope, deadline).await {
            return ReturnedValues::default();
        }
        let gaps = self.find_gaps(paired, self.kinds);
        if gaps.is_empty() {
            return ReturnedValues::default();
        }
        let names: Vec<ValueName> = gaps.iter().map(|gap| (gap.kind, gap.key)).collect();
        let known = store.find_values(scope, &names, deadline).await;
        let mut fills = Vec::new();
        let mut left_out = Vec::new();
        let mut sent_before = HashSet::new();
        for (gap, known) in gaps.into_iter().zip(known) {
            // Earlier turns are not validated for signatures: only those that were sent must stay.
            let is_due = gap.kind != ContinuityKind::Signature || gap.is_current;
            let goes_back = known.as_ref().is_some_and(|known| match known.state {
                ValueState::Pinned => true,
                ValueState::LeftOut => false,
                ValueState::Noted => is_due && ruled.contains(&gap.kind),
            });
            if known.as_ref().is_some_and(|known| known.state == ValueState::Pinned) {
                sent_before.insert((gap.kind, gap.key));
            }
            match known {
                Some(known) if goes_back => fills.push((gap, known.value)),
                _ if is_due => left_out.push((gap.kind, gap.key)),
                _ => {}
            }
        }
        self.left_out = left_out;
        let fills = self.pin_fills(fills, &sent_before);
        self.note_fills(&fills);
        ReturnedValues { fills }
    }

    /// Returns the values for a refusal that names one kind. Unknown values become the documented neutral one.
    ///
    /// `None` if nothing can be put back, or was put back for this kind before.
    pub(super) async fn plan_refused(
        &mut self,
        kind: ContinuityKind,
        profile: Option<ProfileId>,
        deadline: Instant,
    ) -> Option<ReturnedValues> {
        if !self.may_pin || self.resent_kinds.contains(&kind) || !self.kinds.contains(&kind) {
            return None;
        }
        self.resent_kinds.push(kind);
        // Pins of another account's attempt are of no use to this one.
        let organisation = self.owner.organisation_of(profile);
        if organisation != self.organisation {
            self.cancel();
            self.organisation = organisation;
        }
        let client_body = self.client_body.clone();
        let mut gaps = catch_core_panic(|| {
            let parsed = parse(&client_body, self.owner.wire).ok()?;
            let policy = RepairPolicy::default();
            let paired = parsed.pair(PairingContext::new(&policy));
            Some(self.find_gaps(&paired, &[kind]))
        })?;
        // Only the current turn is validated for signatures. An earlier one stays as it was accepted. If none is
        // current, the refusal can only mean earlier ones.
        if kind == ContinuityKind::Signature && gaps.iter().any(|gap| gap.is_current) {
            gaps.retain(|gap| gap.is_current);
        }
        // What the refused body got back already is in it.
        let pinned: HashSet<ValueName> = self.pinned.iter().map(|(name, _)| *name).collect();
        gaps.retain(|gap| !pinned.contains(&(gap.kind, gap.key)));
        let names: Vec<ValueName> = gaps.iter().map(|gap| (gap.kind, gap.key)).collect();
        let store = self.owner.recall.continuity();
        let known = store
            .find_values(self.owner.scope(&self.organisation), &names, deadline)
            .await;
        let mut fills = Vec::new();
        for (gap, known) in gaps.into_iter().zip(known) {
            let neutral = kind.neutral_value().map(|_| CarriedValue::Neutral);
            if let Some(value) = known.map(|known| known.value).or(neutral) {
                fills.push((gap, value));
            }
        }
        let fills = self.pin_fills(fills, &HashSet::new());
        if fills.is_empty() {
            return None;
        }
        let filled: HashSet<ValueName> = fills.iter().map(|(gap, _)| (gap.kind, gap.key)).collect();
        self.left_out.retain(|name| !filled.contains(name));
        self.note_fills(&fills);
        Some(ReturnedValues { fills })
    }

    /// Pins the values of these gaps. Leaves out those for which the table has no room, unless they were sent before.
    fn pin_fills(
        &mut self,
        fills: Vec<(ContinuityGap, CarriedValue)>,
        sent_before: &HashSet<ValueName>,
    ) -> Vec<(ContinuityGap, CarriedValue)> {
        if !self.may_pin {
            return fills;
        }
        let values: Vec<NamedValue> = fills
            .iter()
            .map(|(gap, value)| ((gap.kind, gap.key), value.clone()))
            .collect();
        let scope = self.owner.scope(&self.organisation);
        let pinned = self.owner.recall.continuity().pin_values(scope, &values);
        let mut kept = Vec::new();
        for ((gap, known), value) in fills.into_iter().zip(pinned) {
            let name = (gap.kind, gap.key);
            match value {
                Some(value) => {
                    self.pinned.push((name, value.clone()));
                    kept.push((gap, value));
                }
                // Earlier requests contained it, and the ledger has it.
                None if sent_before.contains(&name) => kept.push((gap, known)),
                // A value that could be evicted later must not be sent: the prefix would change then.
                None => self.left_out.push(name),
            }
        }
        kept
    }

    fn note_fills(&mut self, fills: &[(ContinuityGap, CarriedValue)]) {
        self.findings.extend(fills.iter().map(|(gap, _)| gap.finding.clone()));
        let filled = |(gap, value): &(ContinuityGap, CarriedValue)| (gap.kind, value.source_label());
        self.filled.extend(fills.iter().map(filled));
    }

    /// Adds what the body got back to a report.
    pub(super) fn add_to_report(&self, report: &mut RepairReport) {
        if self.filled.is_empty() {
            return;
        }
        report.actions.insert(Action::Continue, self.filled.len());
        report.findings.extend(self.findings.iter().cloned());
        // The sort is stable, so the findings of one message keep their order.
        report.findings.sort_by_key(|finding| finding.message);
    }

    /// Returns `true` if the body got a value of this kind back.
    pub(super) fn has_filled(&self, kind: ContinuityKind) -> bool {
        self.filled.iter().any(|(filled, _)| *filled == kind)
    }

    /// Returns `true` if the body got any value back.
    pub(super) const fn is_filled(&self) -> bool {
        !self.filled.is_empty()
    }

    /// Returns `true` if the body may go to the organisation of this profile: it got nothing back from another one.
    pub(super) fn fits_profile(&self, profile: Option<ProfileId>) -> bool {
        !self.is_filled() || self.owner.organisation_of(profile) == self.organisation
    }

    /// Takes everything back: the body could not be changed, or must not contain the values.
    pub(super) fn cancel(&mut self) {
        self.roll_back();
        (self.filled, self.findings) = (Vec::new(), Vec::new());
    }

    /// Returns the gaps of these kinds in the client's body. Thinking that is turned off gets nothing back.
    fn find_gaps(&self, paired: &Paired<'_>, kinds: &[ContinuityKind]) -> Vec<ContinuityGap> {
        let lane = self.owner.lane;
        let mut gaps = catch_core_panic(|| Some(continuity_gaps(paired, kinds, lane))).unwrap_or_default();
        // Searched only if there are gaps: it costs a pass over the body.
        if !gaps.is_empty() && is_thinking_off(self.owner.wire.format, &self.client_body) {
            gaps.retain(|gap| !gap.kind.is_thinking());
        }
        gaps
    }

    fn is_learned(&self, path: &DataPath, kind: ContinuityKind) -> bool {
        path.facts.wants_continuity(self.fact_key(kind))
    }

    /// Returns the name of the fact that this upstream wants a kind of value back for the model.
    pub(super) fn fact_key(&self, kind: ContinuityKind) -> FactKey {
        let scope = FactScope {
            server: self.server,
            caller: self.owner.caller,
        };
        scope.continuity_key(kind.label(), &self.owner.model)
    }

    /// Makes the pins permanent. Call it once the provider has answered the request, sent with `profile`, with success.
    pub(super) fn commit(&mut self, profile: Option<ProfileId>) {
        let pinned = std::mem::take(&mut self.pinned);
        let scope = self.owner.scope(&self.organisation);
        let store = self.owner.recall.continuity();
        store.commit_values(scope, &pinned);
        if !self.may_pin {
            return;
        }
        for (kind, source) in &self.filled {
            self.telemetry.record_continued(kind.label(), source);
        }
        // A body without values may have gone to another organisation than the presumed one.
        if self.owner.organisation_of(profile) == self.organisation {
            store.leave_out(scope, &self.left_out);
        }
    }

    fn roll_back(&mut self) {
        let pinned = std::mem::take(&mut self.pinned);
        let scope = self.owner.scope(&self.organisation);
        self.owner.recall.continuity().roll_back_values(scope, &pinned);
    }

    /// Returns the note of the answer to an attempt with `profile`.
    pub(super) fn answer_note(&self, profile: Option<ProfileId>) -> AnswerNote {
        AnswerNote {
            owner: self.owner.clone(),
            kinds: self.kinds,
            before: self.last_message,
            profile,
        }
    }
}

impl Drop for RequestContinuity {
    // No provider accepted the request. After `commit` nothing is left to roll back.
    fn drop(&mut self) {
        self.roll_back();
    }
}

/// Returns the organisation that will serve the request, as far as it is certain before a profile is chosen.
fn presumed_organisation(pool: &ProfilePool, pinned_profile: Option<&str>) -> Option<String> {
    if !pool.has_profiles() {
        return Some(String::new());
    }
    if let Some(id) = pinned_profile.and_then(|label| pool.find_profile(label)) {
        return Some(pool.organisation_name(id));
    }
    pool.common_organisation()
}
