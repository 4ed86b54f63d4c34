//! Constraints from a provider's refusal: stricter rules, and other roles for the calls and results that it names.
//!
//! A refusal reveals an unknown rule. Only its ids are trusted, never an index in its text.

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        Conversation, Finding, FindingKind, Flaw, FlawKind, PartId, PartKind, ResultOwner, Text, WithoutResult,
        pairing::{Pairing, ServerHalf, id_of},
        rules::{MergedRoles, PairingRules, ResultPlace, WordsPlace},
    },
    repair::{
        LearnedRules, RepairPolicy,
        known_results::{RemoteCalls, RemoteResults},
        remote_calls,
    },
    wire::{Format, Refusal, RefusalKind, Wire, json::Json},
    work,
};

/// The interpretation of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReading {
    /// The format's rules in their strictest form.
    StrictestRules,
    /// The ids named by the refusal, whatever the rules say.
    NamedIds,
}

impl RefusalReading {
    /// Both readings, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::StrictestRules, Self::NamedIds];

    /// Returns the constraints of `refusal` under this reading.
    pub(super) const fn constraints(self, refusal: &Refusal) -> RefusalConstraints<'_> {
        RefusalConstraints { refusal, reading: self }
    }

    /// Returns the rules that `refusal` has taught if the provider accepts a repair with these findings.
    pub fn proven_rules(refusal: &Refusal, wire: Wire, findings: &[Finding]) -> LearnedRules {
        let taught = Self::StrictestRules
            .constraints(refusal)
            .taught_rules(wire.pairing_rules());
        let has = |kind: FindingKind| findings.iter().any(|finding| finding.kind == kind);
        // A rule that changed nothing in the body is not proven by its acceptance.
        LearnedRules {
            unique_ids: taught.unique_ids && has(FindingKind::DuplicateCall),
            strict_calls: taught.strict_calls && (has(FindingKind::MalformedCall) || has(FindingKind::BadId)),
            user_first: taught.user_first && has(FindingKind::Headless),
            one_result: taught.one_result && has(FindingKind::Duplicate),
            named_results: taught.named_results && has(FindingKind::NoId),
            words: taught.words.filter(|_| has(FindingKind::MisplacedWords)),
        }
    }

    /// Returns `true` if a repair with these findings fixes something that the refusal names.
    pub fn is_met(self, refusal: &Refusal, findings: &[Finding]) -> bool {
        self.constraints(refusal).is_met(findings)
    }
}

/// A refusal together with its interpretation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalConstraints<'r> {
    pub(super) refusal: &'r Refusal,
    pub(super) reading: RefusalReading,
}

impl RefusalConstraints<'_> {
    /// Returns the rules that the refusal teaches if a resend that follows them is accepted.
    fn taught_rules(&self, rules: PairingRules) -> LearnedRules {
        let (kind, of_users) = (self.refusal.kind, rules.place == ResultPlace::UserTurn);
        let words = match kind {
            RefusalKind::UserAfterResults => Some(WordsPlace::Bridged),
            _ if !of_users || rules.words != WordsPlace::Anywhere => None,
            // MiniMax refuses text beside results in these words, and may be behind a server with another name.
            RefusalKind::AnyFault => Some(WordsPlace::ApartFromResults),
            RefusalKind::Orphan if self.refusal.ids.is_empty() => Some(WordsPlace::ApartFromResults),
            // Text after a call is refused as if the call had no result (BerriAI/litellm#22946, 2026-03; Bedrock:
            // evalstate/fast-agent#668, 2026-02).
            RefusalKind::Unanswered => Some(WordsPlace::BeforeCalls),
            _ => None,
        };
        // A text about a result without an id names none.
        let is_nameless = kind == RefusalKind::Orphan && self.refusal.ids.is_empty();
        LearnedRules {
            // Two calls with one id have two results with that id (NousResearch/hermes-agent#102629, 2026-09).
            unique_ids: kind == RefusalKind::RepeatedCall || (kind == RefusalKind::Duplicate && rules.place.is_items()),
            strict_calls: kind == RefusalKind::MalformedCall,
            user_first: matches!(kind, RefusalKind::NoUserTurn | RefusalKind::AnyFault),
            one_result: matches!(kind, RefusalKind::Duplicate | RefusalKind::AnyFault),
            named_results: kind == RefusalKind::AnyFault || is_nameless,
            words,
        }
    }

    /// Returns the rules in their strictest form, as far as `policy` permits.
    pub(super) fn strictest_rules(&self, rules: PairingRules, policy: &RepairPolicy) -> PairingRules {
        let rules = self.taught_rules(rules).permitted(policy).tighten(rules);
        let place = match rules.place {
            // A result directly after its call satisfies both servers that match by id and those that match by order.
            ResultPlace::Anywhere => ResultPlace::ItemRun,
            place => place,
        };
        PairingRules {
            place,
            merged_roles: match place {
                // Bedrock and strict clones combine no messages, so results split over two are refused.
                ResultPlace::UserTurn => MergedRoles::None,
                _ => rules.merged_roles,
            },
            // The provider saw the open calls at the end, and may have refused exactly these.
            open_end: false,
            ..rules
        }
    }

    /// Changes parts as the refusal demands, before they are paired.
    ///
    /// Parts before a compaction are judged too, and calls named as unanswered need a result. With
    /// [`RefusalReading::NamedIds`] the named results count as orphans.
    pub(super) fn reclassify_parts(&self, conversation: &mut Conversation<'_>) {
        // The provider judged the whole body, so nothing may be hidden from the rules.
        conversation.compaction = None;
        for part in &mut conversation.parts {
            work::count(1);
            match &mut part.kind {
                PartKind::Call(call) if self.refusal.kind == RefusalKind::Unanswered && self.names_id(&call.id) => {
                    call.without_result = match call.without_result {
                        WithoutResult::Legal => WithoutResult::Refused,
                        open => open,
                    };
                }
                PartKind::Result(result)
                    if self.reading == RefusalReading::NamedIds
                        && matches!(self.refusal.kind, RefusalKind::Orphan | RefusalKind::Duplicate)
                        && self.names_id(&result.id) =>
                {
                    result.owner = ResultOwner::NoCall;
                }
                _ => {}
            }
        }
        if self.reading == RefusalReading::NamedIds && self.refusal.kind == RefusalKind::Duplicate {
            // One result of the call is right, and the refusal is about the others.
            readmit_first_results(conversation);
        }
    }

    /// Adds findings beyond the pairing that the refusal names.
    pub(super) fn add_findings(&self, conversation: &Conversation<'_>, pairing: &mut Pairing) {
        if self.reading != RefusalReading::NamedIds {
            return;
        }
        match self.refusal.kind {
            RefusalKind::ServerHalf => self.add_server_halves(conversation, pairing),
            RefusalKind::RepeatedItem => self.add_repeated_items(conversation, pairing, 1),
            // An item without an id needs no reasoning item (continuedev/continue#11785).
            RefusalKind::WithoutReasoningItem => self.add_repeated_items(conversation, pairing, 0),
            _ => {}
        }
    }

    /// Adds the server calls and results that the refusal names. In a turn with thinking they cannot be dropped.
    fn add_server_halves(&self, conversation: &Conversation<'_>, pairing: &mut Pairing) {
        let known: HashSet<PartId> = pairing.server_halves.iter().map(|half| half.part).collect();
        for turn in &pairing.turns {
            for unit in &pairing.units[turn.units.clone()] {
                let named = PartId::all(unit.parts.clone()).filter(|part| {
                    let server = matches!(
                        conversation.parts[*part].kind,
                        PartKind::ServerCall(_) | PartKind::ServerResult(_)
                    );
                    server && !known.contains(part) && self.names_id(id_of(conversation, *part))
                });
                // Dropping a part of a signed turn would break its signature.
                let droppable = !turn.thinking && !turn.programmatic;
                pairing
                    .server_halves
                    .extend(named.map(|part| ServerHalf { part, droppable }));
            }
        }
        work::count(pairing.server_halves.len());
        pairing.server_halves.sort_by_key(|half| half.part);
    }

    /// Adds a flaw for each item whose item id the refusal names, except the first `keep` of each id.
    ///
    /// The fix removes the item id.
    fn add_repeated_items(&self, conversation: &Conversation<'_>, pairing: &mut Pairing, keep: usize) {
        let json = Json::new(conversation.body);
        let mut seen: HashMap<&[u8], usize> = self.refusal.ids.iter().map(|id| (id.as_bytes(), 0)).collect();
        let mut found_in: HashSet<usize> = HashSet::new();
        let mut flaws = Vec::new();
        for (message, found) in conversation.messages.iter().enumerate() {
            work::count(1);
            let thinks = |part: PartId| matches!(conversation.parts[part].kind, PartKind::Thinking);
            let Some(id) = json.member(found.span, "id").map(|id| json.decode_string(id)) else {
                continue;
            };
            let Some(count) = seen.get_mut(&*id) else { continue };
            *count += 1;
            // Reasoning items are never edited.
            if *count <= keep || PartId::all(found.parts.clone()).any(thinks) {
                continue;
            }
            let flaw = Flaw {
                message,
                part: None,
                kind: FlawKind::RepeatedItemId,
            };
            found_in.insert(message);
            flaws.push((flaw, true));
        }
        // Replaces flaws that the reader has found in the same items.
        let is_same = |flaw: &Flaw| flaw.kind == FlawKind::RepeatedItemId && found_in.contains(&flaw.message);
        work::count(pairing.flaws.len());
        pairing.flaws.retain(|(known, _)| !is_same(known));
        pairing.flaws.append(&mut flaws);
    }

    /// Returns the remote calls whose results the provider misses. Neither they nor their results are in the body.
    fn remote_calls(&self, conversation: &Conversation<'_>, format: Format) -> Vec<String> {
        // The first reading may already explain the refusal by calls of the body.
        let is_unanswered = self.reading == RefusalReading::NamedIds && self.refusal.kind == RefusalKind::Unanswered;
        if !is_unanswered || !format.names_remote_calls() || !conversation.may_have_remote_calls {
            return Vec::new();
        }
        remote_calls::not_in_body(conversation, self.refusal.ids.clone())
    }

    /// Returns `true` if the refusal names only results that the proxy inserted for remote calls.
    pub(super) fn names_only_inserted(&self, conversation: &Conversation<'_>) -> bool {
        let ids = &self.refusal.ids;
        let of_results = matches!(self.refusal.kind, RefusalKind::Orphan | RefusalKind::Duplicate);
        let ours = || remote_calls::not_in_body(conversation, ids.clone()).len() == ids.len();
        of_results && conversation.may_have_remote_calls && !ids.is_empty() && ours()
    }

    /// Returns `true` if the repair addresses the refusal: a finding has a named id, or the refusal names none.
    pub(super) fn is_met(&self, findings: &[Finding]) -> bool {
        let by_item = matches!(
            self.refusal.kind,
            RefusalKind::RepeatedItem | RefusalKind::WithoutReasoningItem
        );
        work::count(findings.len().saturating_mul(self.refusal.ids.len().max(1)));
        let of_kind = |kind: FindingKind| findings.iter().any(|finding| finding.kind == kind);
        match self.refusal.kind {
            RefusalKind::MalformedCall => {
                return of_kind(FindingKind::MalformedCall) || of_kind(FindingKind::BadId);
            }
            RefusalKind::NoUserTurn => return of_kind(FindingKind::Headless),
            // The provider names the calls that the text separates from their results, or only some of them.
            RefusalKind::Unanswered if of_kind(FindingKind::MisplacedWords) => return true,
            _ => {}
        }
        let named = |finding: &Finding| self.refusal.ids.contains(&finding.id);
        // Such a refusal names item ids, but findings contain call ids.
        let items = |finding: &Finding| finding.kind == FindingKind::Field;
        match self.refusal.ids.as_slice() {
            [] => !findings.is_empty(),
            _ if by_item => findings.iter().any(items),
            _ => findings.iter().any(named),
        }
    }

    /// Returns `true` if each named id has exactly one call and one result after it.
    pub(super) fn is_balanced(&self, conversation: &Conversation<'_>) -> bool {
        let count = |id: &String| {
            let (mut calls, mut results) = (0, 0);
            for part in &conversation.parts {
                work::count(1);
                match &part.kind {
                    PartKind::Call(call) if *call.id == *id.as_bytes() => calls += 1,
                    PartKind::Result(result) if *result.id == *id.as_bytes() => results += usize::from(calls > 0),
                    _ => {}
                }
            }
            (calls, results)
        };
        !self.refusal.ids.is_empty() && self.refusal.ids.iter().all(|id| count(id) == (1, 1))
    }

    /// Returns `true` if the refusal names this id.
    pub(super) fn names_id(&self, id: &[u8]) -> bool {
        self.refusal.ids.iter().any(|named| {
            work::count(1);
            named.as_bytes() == id
        })
    }
}

/// Lets the first result of each named id answer its call again.
fn readmit_first_results(conversation: &mut Conversation<'_>) {
    let mut seen = HashSet::new();
    for part in &mut conversation.parts {
        work::count(1);
        if let PartKind::Result(result) = &mut part.kind
            && result.owner == ResultOwner::NoCall
            && seen.insert(result.id.to_vec())
        {
            result.owner = ResultOwner::Unknown;
        }
    }
}

/// Remote calls that this body must answer first, with placeholders.
#[derive(Debug, Default)]
pub(super) struct DueCalls {
    /// Ids of the calls. None of them is in the body.
    pub(super) calls: Vec<String>,
    /// Calls that only the provider's refusal revealed.
    pub(super) learned: Option<RemoteResults>,
}

/// Returns the remote calls that are known to be due, and those that the refusal names.
pub(super) fn due_calls(
    conversation: &Conversation<'_>,
    remote: &RemoteCalls,
    constraints: Option<&RefusalConstraints<'_>>,
    format: Format,
) -> DueCalls {
    if !conversation.may_have_remote_calls {
        return DueCalls::default();
    }
    let (mut calls, mut news) = (remote.due.clone(), None);
    if let Some(constraints) = constraints {
        // A named call comes from the refusal below, in the provider's order.
        calls.retain(|id| !constraints.names_id(id.as_bytes()));
        let named = constraints.remote_calls(conversation, format);
        let is_news = !named.is_empty();
        calls.extend(named);
        news = is_news.then(|| RemoteResults {
            origin: remote_calls::origin_id(conversation).map(Text::into_owned),
            calls: calls.clone(),
        });
    }
    DueCalls {
        // The client may have sent a result for a due call by now.
        calls: remote_calls::not_in_body(conversation, calls),
        learned: news,
    }
}
