//! What a provider insists on: its refusal, turned into stricter rules, and into calls and results that count otherwise.
//!
//! Each is a rule that we did not know. Only ids are believed, never the place that a text names.

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        Conversation, Finding, FindingKind, Flaw, FlawKind, PartId, PartKind, ResultOwner, Text, WithoutResult,
        pairing::{Pairing, ServerHalf, id_of},
        rules::{IdScope, MergedRoles, PairingRules, ResultPlace, WordsPlace},
    },
    repair::{
        known_answers::{RemoteAnswers, RemoteCalls},
        remote_calls,
    },
    wire::{Format, Refusal, RefusalKind, json::Json},
};

/// How a refusal is followed. Readings are tried in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReading {
    /// The format's rules in their strictest form.
    StrictestRules,
    /// The ids that the refusal names, whatever the rules say.
    NamedIds,
}

impl RefusalReading {
    /// Both readings, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::StrictestRules, Self::NamedIds];

    pub(super) const fn constraints(self, refusal: &Refusal) -> RefusalConstraints<'_> {
        RefusalConstraints { refusal, reading: self }
    }

    /// Whether a repair with these findings answers the refusal: it mends something that the refusal names.
    pub fn is_met(self, refusal: &Refusal, findings: &[Finding]) -> bool {
        self.constraints(refusal).is_met(findings)
    }
}

/// A refusal on its way into a repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalConstraints<'r> {
    pub(super) refusal: &'r Refusal,
    pub(super) reading: RefusalReading,
}

impl RefusalConstraints<'_> {
    /// The rules in their strictest reading.
    pub(super) fn strictest_rules(&self, rules: PairingRules) -> PairingRules {
        let place = match rules.place {
            ResultPlace::Anywhere => ResultPlace::ItemRun,
            place => place,
        };
        let repeated = self.refusal.kind == RefusalKind::RepeatedCall && rules.id_scope != IdScope::Nowhere;
        // MiniMax refuses words beside results so, and may stand behind a server of another name.
        let unnamed = self.refusal.kind == RefusalKind::Orphan && self.refusal.ids.is_empty();
        let words = match rules.words {
            WordsPlace::Anywhere if unnamed && place == ResultPlace::UserTurn => WordsPlace::ApartFromResults,
            words => words,
        };
        PairingRules {
            place,
            words,
            merged_roles: match place {
                ResultPlace::UserTurn => MergedRoles::None,
                _ => rules.merged_roles,
            },
            id_scope: if repeated { IdScope::Body } else { rules.id_scope },
            open_end: false,
            ..rules
        }
    }

    /// What is read otherwise: calls behind a compaction are judged; with [`RefusalReading::NamedIds`] what is named is called open,
    /// or nobody's.
    pub(super) fn reclassify_parts(&self, conversation: &mut Conversation<'_>) {
        conversation.compaction = None;
        for part in &mut conversation.parts {
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
            readmit_first_results(conversation);
        }
    }

    /// What is wrong beyond the pairing, by the refusal's word.
    pub(super) fn add_findings(&self, conversation: &Conversation<'_>, pairing: &mut Pairing) {
        if self.reading != RefusalReading::NamedIds {
            return;
        }
        match self.refusal.kind {
            RefusalKind::ServerHalf => self.add_server_halves(conversation, pairing),
            RefusalKind::RepeatedItem => self.add_repeated_items(conversation, pairing, 1),
            RefusalKind::WithoutReasoning => self.add_repeated_items(conversation, pairing, 0),
            _ => {}
        }
    }

    /// Server calls and results that the refusal names; in a turn with thinking the provider's word is final.
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
                let droppable = !turn.thinking && !turn.programmatic;
                pairing
                    .server_halves
                    .extend(named.map(|part| ServerHalf { part, droppable }));
            }
        }
        pairing.server_halves.sort_by_key(|half| half.part);
    }

    /// Items whose item id the refusal names lose it, but for the first `keep` of each id.
    fn add_repeated_items(&self, conversation: &Conversation<'_>, pairing: &mut Pairing, keep: usize) {
        let json = Json::new(conversation.body);
        let mut seen: HashMap<&[u8], usize> = self.refusal.ids.iter().map(|id| (id.as_bytes(), 0)).collect();
        let mut found_in: HashSet<usize> = HashSet::new();
        let mut flaws = Vec::new();
        for (message, found) in conversation.messages.iter().enumerate() {
            let thinks = |part: PartId| matches!(conversation.parts[part].kind, PartKind::Thinking);
            let Some(id) = json.member(found.span, "id").map(|id| json.decode(id)) else {
                continue;
            };
            let Some(count) = seen.get_mut(&*id) else { continue };
            *count += 1;
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
        // What the reader has found of the same items is replaced.
        let is_same = |flaw: &Flaw| flaw.kind == FlawKind::RepeatedItemId && found_in.contains(&flaw.message);
        pairing.flaws.retain(|(known, _)| !is_same(known));
        pairing.flaws.append(&mut flaws);
    }

    /// Returns the remote calls whose results the provider misses. Neither they nor their results are in the body.
    fn remote_calls(&self, conversation: &Conversation<'_>, format: Format) -> Vec<String> {
        let is_unanswered = self.reading == RefusalReading::NamedIds && self.refusal.kind == RefusalKind::Unanswered;
        if !is_unanswered || !format.names_remote_calls() || !conversation.may_have_remote_calls {
            return Vec::new();
        }
        remote_calls::not_in_body(conversation, self.refusal.ids.clone())
    }

    /// Whether the refusal names nothing but results that we have put in for calls which the provider holds.
    pub(super) fn names_only_inserted(&self, conversation: &Conversation<'_>) -> bool {
        let ids = &self.refusal.ids;
        let of_results = matches!(self.refusal.kind, RefusalKind::Orphan | RefusalKind::Duplicate);
        let ours = || remote_calls::not_in_body(conversation, ids.clone()).len() == ids.len();
        of_results && conversation.may_have_remote_calls && !ids.is_empty() && ours()
    }

    /// Whether the repair answers the refusal: something that it names was found, or it names nothing.
    pub(super) fn is_met(&self, findings: &[Finding]) -> bool {
        let by_item = matches!(
            self.refusal.kind,
            RefusalKind::RepeatedItem | RefusalKind::WithoutReasoning
        );
        let named = |finding: &Finding| self.refusal.ids.contains(&finding.id);
        let items = |finding: &Finding| finding.kind == FindingKind::Field;
        match self.refusal.ids.as_slice() {
            [] => !findings.is_empty(),
            _ if by_item => findings.iter().any(items),
            _ => findings.iter().any(named),
        }
    }

    /// Whether every id that the refusal names stood for one call and one result behind it.
    pub(super) fn is_balanced(&self, conversation: &Conversation<'_>) -> bool {
        let count = |id: &String| {
            let (mut calls, mut results) = (0, 0);
            for part in &conversation.parts {
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

    pub(super) fn names_id(&self, id: &[u8]) -> bool {
        self.refusal.ids.iter().any(|named| named.as_bytes() == id)
    }
}

/// Of several results for a call outside the body the first stays.
fn readmit_first_results(conversation: &mut Conversation<'_>) {
    let mut seen = HashSet::new();
    for part in &mut conversation.parts {
        if let PartKind::Result(result) = &mut part.kind
            && result.owner == ResultOwner::NoCall
            && seen.insert(result.id.to_vec())
        {
            result.owner = ResultOwner::Unknown;
        }
    }
}

/// Remote calls that this body answers first, with placeholders.
#[derive(Debug, Default)]
pub(super) struct DueCalls {
    /// Their ids, none of which is in the body.
    pub(super) calls: Vec<String>,
    /// The answers that nobody knew to be due before the provider's refusal named them.
    pub(super) learned: Option<RemoteAnswers>,
}

/// Returns the remote calls that are known to be due, and those that the refusal names.
pub(super) fn due_calls(
    conversation: &Conversation<'_>,
    remote: &RemoteCalls,
    insistence: Option<&RefusalConstraints<'_>>,
    format: Format,
) -> DueCalls {
    if !conversation.may_have_remote_calls {
        return DueCalls::default();
    }
    let (mut calls, mut news) = (remote.due.clone(), None);
    if let Some(insistence) = insistence {
        calls.retain(|id| !insistence.names_id(id.as_bytes()));
        let named = insistence.remote_calls(conversation, format);
        let is_news = !named.is_empty();
        calls.extend(named);
        news = is_news.then(|| RemoteAnswers {
            origin: remote_calls::origin_id(conversation).map(Text::into_owned),
            calls: calls.clone(),
        });
    }
    DueCalls {
        calls: remote_calls::not_in_body(conversation, calls),
        learned: news,
    }
}
