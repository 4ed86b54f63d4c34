//! What a provider insists on: its refusal, turned into stricter rules, and into calls and results that count otherwise.
//!
//! Each is a rule that we did not know. Only ids are believed, never the place that a text names.

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        Conversation, Disowned, Finding, FindingKind, Flaw, FlawKind, Open, PartKind, Text,
        pairing::{Half, Pairing, id_of},
        rules::{Combines, PairingRules, ResultPlace, Unique, WordsPlace},
    },
    repair::{
        held,
        known_answers::{RemoteAnswers, RemoteCalls},
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

    pub(super) const fn of(self, refusal: &Refusal) -> Insistence<'_> {
        Insistence { refusal, reading: self }
    }

    /// Whether a repair with these findings answers the refusal: it mends something that the refusal names.
    pub fn is_met(self, refusal: &Refusal, findings: &[Finding]) -> bool {
        self.of(refusal).is_met(findings)
    }
}

/// A refusal on its way into a repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Insistence<'r> {
    pub(super) refusal: &'r Refusal,
    pub(super) reading: RefusalReading,
}

impl Insistence<'_> {
    /// The rules in their strictest reading.
    pub(super) fn rules(&self, rules: PairingRules) -> PairingRules {
        let place = match rules.place {
            ResultPlace::Anywhere => ResultPlace::ItemRun,
            place => place,
        };
        let repeated = self.refusal.kind == RefusalKind::RepeatedCall && rules.unique != Unique::Nowhere;
        // MiniMax refuses words beside results so, and may stand behind a server of another name.
        let unnamed = self.refusal.kind == RefusalKind::Orphan && self.refusal.ids.is_empty();
        let words = match rules.words {
            WordsPlace::Anywhere if unnamed && place == ResultPlace::UserTurn => WordsPlace::ApartFromResults,
            words => words,
        };
        PairingRules {
            place,
            words,
            combines: match place {
                ResultPlace::UserTurn => Combines::Nobody,
                _ => rules.combines,
            },
            unique: if repeated { Unique::Body } else { rules.unique },
            open_end: false,
            ..rules
        }
    }

    /// What is read otherwise: calls behind a compaction are judged; with [`RefusalReading::NamedIds`] what is named is called open,
    /// or nobody's.
    pub(super) fn read_again(&self, conversation: &mut Conversation<'_>) {
        conversation.compaction = None;
        for part in &mut conversation.parts {
            match &mut part.kind {
                PartKind::Call(call) if self.refusal.kind == RefusalKind::Unanswered && self.names(&call.id) => {
                    call.open = match call.open {
                        Open::Legal => Open::Refused,
                        open => open,
                    };
                }
                PartKind::Result(result)
                    if self.reading == RefusalReading::NamedIds
                        && matches!(self.refusal.kind, RefusalKind::Orphan | RefusalKind::Duplicate)
                        && self.names(&result.id) =>
                {
                    result.disowned = Disowned::OfNoCall;
                }
                _ => {}
            }
        }
        if self.reading == RefusalReading::NamedIds && self.refusal.kind == RefusalKind::Duplicate {
            own_the_first(conversation);
        }
    }

    /// What is wrong beyond the pairing, by the refusal's word.
    pub(super) fn judge(&self, conversation: &Conversation<'_>, pairing: &mut Pairing) {
        if self.reading != RefusalReading::NamedIds {
            return;
        }
        match self.refusal.kind {
            RefusalKind::ServerHalf => self.judge_servers(conversation, pairing),
            RefusalKind::RepeatedItem => self.judge_items(conversation, pairing, 1),
            RefusalKind::WithoutReasoning => self.judge_items(conversation, pairing, 0),
            _ => {}
        }
    }

    /// Server calls and results that the refusal names; in a turn with thinking the provider's word is final.
    fn judge_servers(&self, conversation: &Conversation<'_>, pairing: &mut Pairing) {
        let known: HashSet<usize> = pairing.halves.iter().map(|half| half.part).collect();
        for turn in &pairing.turns {
            for unit in &pairing.units[turn.units.clone()] {
                let named = unit.parts.clone().filter(|part| {
                    let server = matches!(
                        conversation.parts[*part].kind,
                        PartKind::ServerCall(_) | PartKind::ServerResult(_)
                    );
                    server && !known.contains(part) && self.names(id_of(conversation, *part))
                });
                let droppable = !turn.thinking && !turn.programmatic;
                pairing.halves.extend(named.map(|part| Half { part, droppable }));
            }
        }
        pairing.halves.sort_by_key(|half| half.part);
    }

    /// Items whose item id the refusal names lose it, but for the first `keep` of each id.
    fn judge_items(&self, conversation: &Conversation<'_>, pairing: &mut Pairing, keep: usize) {
        let json = Json::new(conversation.body);
        let mut seen: HashMap<&[u8], usize> = self.refusal.ids.iter().map(|id| (id.as_bytes(), 0)).collect();
        let mut found_in: HashSet<usize> = HashSet::new();
        let mut flaws = Vec::new();
        for (message, found) in conversation.messages.iter().enumerate() {
            let thinks = |part: usize| matches!(conversation.parts[part].kind, PartKind::Thinking);
            let Some(id) = json.member(found.span, "id").map(|id| json.decode(id)) else {
                continue;
            };
            let Some(count) = seen.get_mut(&*id) else { continue };
            *count += 1;
            if *count <= keep || found.parts.clone().any(thinks) {
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
        if !is_unanswered || !format.names_remote_calls() || !conversation.calls_elsewhere {
            return Vec::new();
        }
        held::absent(conversation, self.refusal.ids.clone())
    }

    /// Whether the refusal names nothing but results that we have put in for calls which the provider holds.
    pub(super) fn names_ours(&self, conversation: &Conversation<'_>) -> bool {
        let ids = &self.refusal.ids;
        let of_results = matches!(self.refusal.kind, RefusalKind::Orphan | RefusalKind::Duplicate);
        let ours = || held::absent(conversation, ids.clone()).len() == ids.len();
        of_results && conversation.calls_elsewhere && !ids.is_empty() && ours()
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
    pub(super) fn was_balanced(&self, conversation: &Conversation<'_>) -> bool {
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

    pub(super) fn names(&self, id: &[u8]) -> bool {
        self.refusal.ids.iter().any(|named| named.as_bytes() == id)
    }
}

/// Of several results for a call outside the body the first stays.
fn own_the_first(conversation: &mut Conversation<'_>) {
    let mut seen = HashSet::new();
    for part in &mut conversation.parts {
        if let PartKind::Result(result) = &mut part.kind
            && result.disowned == Disowned::OfNoCall
            && seen.insert(result.id.to_vec())
        {
            result.disowned = Disowned::No;
        }
    }
}

/// Remote calls that this body answers first, with placeholders.
#[derive(Debug, Default)]
pub(super) struct DueCalls {
    /// Their ids, none of which is in the body.
    pub(super) calls: Vec<String>,
    /// The answers that nobody knew to be due before the provider's refusal named them.
    pub(super) news: Option<RemoteAnswers>,
}

/// Returns the remote calls that are known to be due, and those that the refusal names.
pub(super) fn due_calls(
    conversation: &Conversation<'_>,
    remote: &RemoteCalls,
    insistence: Option<&Insistence<'_>>,
    format: Format,
) -> DueCalls {
    if !conversation.calls_elsewhere {
        return DueCalls::default();
    }
    let (mut calls, mut news) = (remote.due.clone(), None);
    if let Some(insistence) = insistence {
        calls.retain(|id| !insistence.names(id.as_bytes()));
        let named = insistence.remote_calls(conversation, format);
        let is_news = !named.is_empty();
        calls.extend(named);
        news = is_news.then(|| RemoteAnswers {
            origin: held::origin(conversation).map(Text::into_owned),
            calls: calls.clone(),
        });
    }
    DueCalls {
        calls: held::absent(conversation, calls),
        news,
    }
}
