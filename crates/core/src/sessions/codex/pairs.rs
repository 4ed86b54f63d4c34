//! The faults of calls and outputs: the engine of request bodies judges those that do not simply follow each other.

use super::{
    history::{CodexHistory, HistoryItem},
    item::{CodexItemKind, ItemFlaw},
};
use crate::{
    conversation::{Finding, FindingKind},
    repair::{self, RepairPolicy},
    sessions::{
        damage::SessionCode,
        finding::{FixKind, SessionFinding},
    },
    wire::{Unreadable, Wire, json::quote_string},
    work,
};

/// Facts about the session that decide what counts as a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTraits {
    /// `true` if the history begins in the file of another session: calls may be there.
    pub(super) has_base: bool,
    /// `true` if its provider refuses reasoning in open text.
    pub(super) refuses_open_reasoning: bool,
    /// `true` if a record can be appended, with the number that it needs.
    pub(super) can_append: bool,
}

/// The faults of a history.
#[derive(Debug, Default)]
pub(super) struct HistoryFaults {
    pub(super) findings: Vec<SessionFinding>,
    /// Items that the client leaves out.
    pub(super) dropped: u64,
}

/// The facts about one id.
#[derive(Clone, Copy, Debug, Default)]
struct IdCount {
    calls: u64,
    outputs: u64,
    call: Option<CodexItemKind>,
    output: Option<CodexItemKind>,
    /// `true` if the client skips a call with it.
    is_unread: bool,
}

impl IdCount {
    fn is_answered_once(&self) -> bool {
        let answer = self.call.and_then(CodexItemKind::answer);
        (self.calls, self.outputs) == (1, 1) && answer == self.output
    }
}

/// Finds the faults of all that is sent.
pub(super) fn find_faults(history: &CodexHistory, traits: SessionTraits) -> HistoryFaults {
    let ids = history.ids();
    let mut faults = PairFaults {
        history,
        traits,
        counts: count_ids(history, ids.len()),
        ids,
        found: HistoryFaults::default(),
    };
    for item in history.items() {
        work::count(1);
        faults.add_own(&item);
    }
    for (at, kind) in faults.judge_pairs() {
        if let Some(item) = history.item(at) {
            faults.add_pairing(&item, kind);
        }
    }
    faults.found
}

/// Counts the calls and outputs of each id.
fn count_ids(history: &CodexHistory, ids: usize) -> Vec<IdCount> {
    let mut counts = vec![IdCount::default(); ids];
    for item in history.items() {
        work::count(1);
        let Some(count) = usize::try_from(item.name).ok().and_then(|at| counts.get_mut(at)) else {
            continue;
        };
        if item.kind.is_call() {
            count.calls = count.calls.saturating_add(1);
            count.call = Some(item.kind);
            count.is_unread |= item.flaw == Some(ItemFlaw::UnreadCall);
        } else if item.kind != CodexItemKind::Reasoning {
            count.outputs = count.outputs.saturating_add(1);
            count.output = Some(item.kind);
        }
    }
    counts
}

struct PairFaults<'h> {
    history: &'h CodexHistory,
    traits: SessionTraits,
    counts: Vec<IdCount>,
    ids: Vec<&'h [u8]>,
    found: HistoryFaults,
}

impl<'h> PairFaults<'h> {
    fn count(&self, item: &HistoryItem) -> IdCount {
        let at = usize::try_from(item.name).unwrap_or(usize::MAX);
        self.counts.get(at).copied().unwrap_or_default()
    }

    fn id(&self, item: &HistoryItem) -> &'h [u8] {
        let at = usize::try_from(item.name).unwrap_or(usize::MAX);
        self.ids.get(at).copied().unwrap_or_default()
    }

    /// Adds the fault that an item has by itself.
    fn add_own(&mut self, item: &HistoryItem) {
        if item.place.is_skipped {
            return;
        }
        let is_output = !item.kind.is_call() && item.kind != CodexItemKind::Reasoning;
        // An output goes with its call.
        let is_dropped = is_output && self.count(item).is_unread;
        let kind = match item.flaw {
            Some(ItemFlaw::UnreadCall) => Some((FindingKind::MalformedCall, true)),
            Some(ItemFlaw::OddCall) => Some((FindingKind::MalformedCall, false)),
            Some(ItemFlaw::UnreadOutput) => Some((FindingKind::Field, true)),
            Some(ItemFlaw::NamelessOutput) => Some((FindingKind::NoId, false)),
            Some(ItemFlaw::OpenReasoning) if self.traits.refuses_open_reasoning => Some((FindingKind::Field, false)),
            Some(ItemFlaw::OpenReasoning) | None => None,
        };
        if is_dropped || kind.is_some_and(|(_, is_dropped)| is_dropped) {
            self.found.dropped = self.found.dropped.saturating_add(1);
        }
        if let Some((kind, _)) = kind {
            let fix = match kind {
                FindingKind::MalformedCall => in_place(item),
                FindingKind::NoId => quote_fix(item),
                _ => FixKind::Told,
            };
            self.push(item, kind, fix);
        }
    }

    /// Returns the faults of pairs, as the engine lists them: index of the item, and kind.
    fn judge_pairs(&self) -> Vec<(usize, FindingKind)> {
        let mut body = String::from(r#"{"input":["#);
        let mut places = Vec::new();
        let mut asked = 0;
        for (at, item) in self.history.items().enumerate() {
            work::count(1);
            let id = self.id(&item);
            let is_plain = self.count(&item).is_answered_once() && !id.is_empty() && id.len() <= PLAIN_ID_MAX;
            if item.kind == CodexItemKind::Reasoning || item.flaw == Some(ItemFlaw::NamelessOutput) || is_plain {
                continue;
            }
            if item.asked != asked {
                asked = item.asked;
                body.push_str(r#"{"type":"message","role":"user","content":[]},"#);
                places.push(usize::MAX);
            }
            let (kind, id) = (item.kind.type_name(), quote_string(&String::from_utf8_lossy(id)));
            body.push_str(r#"{"type":""#);
            body.push_str(kind);
            body.push_str(r#"","call_id":"#);
            body.push_str(&id);
            body.push_str(r#","name":"tool","output":""},"#);
            places.push(at);
        }
        if places.is_empty() {
            return Vec::new();
        }
        body.pop();
        body.push_str("]}");
        let place = |message: usize| places.get(message).copied();
        match judge(body.as_bytes()) {
            Ok(found) => {
                let found = found.into_iter();
                found
                    .filter_map(|finding| Some((place(finding.message)?, finding.kind)))
                    .collect()
            }
            // Cannot fail in a body of this form. If it does, nothing in it may pass for sound.
            Err(_) => places.into_iter().map(|at| (at, FindingKind::Field)).collect(),
        }
    }

    /// Adds a fault of a pair.
    fn add_pairing(&mut self, item: &HistoryItem, kind: FindingKind) {
        // The damage of the line is told, and mending it may bring the other half back.
        if item.place.is_skipped || item.flaw == Some(ItemFlaw::UnreadCall) {
            return;
        }
        match kind {
            FindingKind::Unanswered => self.push(item, kind, self.answer_fix(item)),
            FindingKind::Orphan if self.traits.has_base => {}
            FindingKind::Orphan => {
                self.found.dropped = self.found.dropped.saturating_add(1);
                self.push(item, kind, quote_fix(item));
            }
            // An output of another kind than its call: the client looks for one of the same kind.
            FindingKind::Field => {
                self.found.dropped = self.found.dropped.saturating_add(1);
                self.push(item, kind, FixKind::Told);
            }
            FindingKind::Duplicate => self.push(item, kind, quote_fix(item)),
            kind => self.push(item, kind, FixKind::Told),
        }
    }

    /// Returns the way in which an open call is mended. At the end of the log an output can be appended.
    fn answer_fix(&self, item: &HistoryItem) -> FixKind {
        let is_last = item.spoken == self.history.extent.spoken;
        // Which of several calls a further output would answer is not certain.
        let is_only = matches!(
            self.count(item),
            IdCount {
                calls: 1,
                outputs: 0,
                ..
            }
        );
        if is_last && is_only && item.place.is_alone && self.traits.can_append {
            FixKind::Append
        } else {
            FixKind::Told
        }
    }

    fn push(&mut self, item: &HistoryItem, kind: FindingKind, fix: FixKind) {
        let (code, place) = (SessionCode::Pairing(kind), &item.place);
        self.found.findings.push(SessionFinding {
            id: String::from_utf8_lossy(self.id(item)).into_owned(),
            fix,
            ..SessionFinding::told(code, place.line, place.byte, place.len)
        });
    }
}

/// Asks the engine about a body. What only some servers refuse counts if it is about an id that is used twice: `OpenAI`
/// refuses a second output (2026-11).
fn judge(body: &[u8]) -> Result<Vec<Finding>, Unreadable> {
    let policy = RepairPolicy::default();
    let mut found = repair::check(body, Wire::OPENAI_RESPONSES, &policy)?;
    let possible = repair::possible_findings(body, Wire::OPENAI_RESPONSES, &policy)?.into_iter();
    found
        .extend(possible.filter(|finding| matches!(finding.kind, FindingKind::Duplicate | FindingKind::DuplicateCall)));
    Ok(found)
}

/// Longest id that needs no judgement, in bytes. The provider takes 64 characters.
const PLAIN_ID_MAX: usize = 64;

/// Returns the way in which the record of an item is mended.
const fn in_place(item: &HistoryItem) -> FixKind {
    if item.place.fits && item.place.is_alone {
        FixKind::InPlace
    } else {
        FixKind::Told
    }
}

/// Returns the way in which an output is mended, by a message of the user that quotes it.
const fn quote_fix(item: &HistoryItem) -> FixKind {
    // The message would be the first turn of the file, and a rollback of all turns would now begin there.
    if item.asked == 0 { FixKind::Told } else { in_place(item) }
}
