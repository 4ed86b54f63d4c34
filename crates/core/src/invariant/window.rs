//! The end of a history, as far as later messages may change how it is judged, without its texts.

use std::collections::{HashSet, VecDeque};

use crate::{
    conversation::{
        CallFamily, CallRowId, Conversation, Finding, FindingKind, FlawKind, PartId, PartKind, Role, WithoutResult,
        findings,
        pairing::{Pairing, ResultRole, pair_history},
        rules::{IdScope, PairingRules, ResultPlace},
    },
    invariant::pieces::{body_of, short_hash, user_text},
    repair::checked_rules,
    wire::{Unreadable, Wire},
    work,
};

/// Messages for which a call of the provider's own may wait for its result. Later ones find it open.
const SERVER_WAIT_MAX: usize = 64;

/// Calls and results that wait for each other over several turns.
const WAITING_MAX: usize = 256;

/// A message of the window.
#[derive(Clone, Debug)]
struct KeptMessage {
    /// Its place in the history.
    index: usize,
    /// The message without its texts.
    skeleton: Vec<u8>,
    role: Role,
}

/// The last messages of a history: its last turn, the one before, and calls that wait for a result from anywhere.
#[derive(Clone, Debug)]
pub(super) struct Window {
    wire: Wire,
    rules: PairingRules,
    messages: VecDeque<KeptMessage>,
    /// `true` if results may answer calls that the history does not show.
    pub(super) may_have_remote_calls: bool,
    /// Hashes of calls that have left, where a later message may still refer to them.
    left_calls: HashSet<u64>,
}

/// The bytes of a window, to be judged like the body of a request.
#[derive(Debug)]
pub(super) struct WindowBody {
    pub(super) bytes: Vec<u8>,
    /// The place of each message of the body in the history. `None` for a text that stands for messages that have left.
    places: Vec<Option<usize>>,
}

/// A window with its calls and results paired.
#[derive(Debug)]
pub(super) struct JudgedWindow<'w> {
    pub(super) conversation: Conversation<'w>,
    pub(super) pairing: Pairing,
    /// The faults of its pairs, by their places in the history.
    pub(super) findings: Vec<Finding>,
    places: &'w [Option<usize>],
}

impl Window {
    /// Returns the window of an empty history.
    pub(super) fn new(wire: Wire) -> Self {
        // A history that ends with a call is legal at Gemini, and breaks with the next message of the user.
        let rules = PairingRules {
            open_end: false,
            ..checked_rules(wire)
        };
        Self {
            wire,
            rules,
            messages: VecDeque::new(),
            may_have_remote_calls: false,
            left_calls: HashSet::new(),
        }
    }

    /// Adds a message at the end of the history.
    pub(super) fn push(&mut self, index: usize, skeleton: Vec<u8>, role: Role) {
        self.messages.push_back(KeptMessage { index, skeleton, role });
    }

    /// Returns `true` if a message of the assistant after this one begins a new turn.
    pub(super) fn ends_before_assistant(&self) -> bool {
        self.messages.back().is_some_and(|last| last.role != Role::Assistant)
    }

    /// Returns the number of messages of the history up to the last one.
    pub(super) fn end(&self) -> usize {
        self.messages.back().map_or(0, |last| last.index.saturating_add(1))
    }

    /// Returns `true` if the call repeats the id of one that has left, and the provider demands that each occurs once.
    pub(super) fn repeats_left_call(&self, call: u64) -> bool {
        self.rules.id_scope == IdScope::Body && self.left_calls.contains(&call)
    }

    /// Forgets the calls that have left: the provider reads nothing before a summary.
    pub(super) fn forget_left_calls(&mut self) {
        self.left_calls.clear();
    }

    /// Writes the window as a body, with more messages after it.
    pub(super) fn write_body(&self, more: &[String]) -> WindowBody {
        let text = user_text(self.wire.format);
        let (mut messages, mut places) = (Vec::new(), Vec::new());
        let mut next = 0;
        for kept in &self.messages {
            work::count(1);
            // Messages that have left are not forgotten: without them turns would join.
            if kept.index != next {
                messages.push(text.as_bytes());
                places.push(None);
            }
            messages.push(&kept.skeleton);
            places.push(Some(kept.index));
            next = kept.index.saturating_add(1);
        }
        for message in more {
            messages.push(message.as_bytes());
            places.push(Some(next));
            next = next.saturating_add(1);
        }
        WindowBody {
            bytes: body_of(self.wire.format, messages),
            places,
        }
    }

    /// Judges what [`Window::write_body`] has written.
    pub(super) fn judge_body<'w>(&self, body: &'w WindowBody) -> Result<JudgedWindow<'w>, Unreadable> {
        let mut conversation = self.wire.read(&body.bytes)?;
        conversation.may_have_remote_calls |= self.may_have_remote_calls;
        let pairing = pair_history(&conversation, self.rules);
        let all = findings(&pairing, &conversation);
        let further = self.further_results(&conversation, &pairing);
        work::count(all.len());
        let is_fault = |finding: &Finding| {
            let is_further = finding.kind == FindingKind::Orphan && further.contains(&finding.message);
            is_of_pairs(finding) && !is_further
        };
        let placed = all.into_iter().filter(is_fault).filter_map(|finding| {
            let message = (*body.places.get(finding.message)?)?;
            Some(Finding { message, ..finding })
        });
        Ok(JudgedWindow {
            findings: placed.collect(),
            conversation,
            pairing,
            places: &body.places,
        })
    }

    /// Judges the window with the messages that it has.
    pub(super) fn findings(&self) -> Result<Vec<Finding>, Unreadable> {
        let body = self.write_body(&[]);
        self.judge_body(&body).map(|judged| judged.findings)
    }

    /// Returns the messages of the body with results of calls that have left, which the provider takes.
    fn further_results(&self, conversation: &Conversation<'_>, pairing: &Pairing) -> HashSet<usize> {
        // Each result is a message of its own there.
        if self.rules.place != ResultPlace::Anywhere || self.rules.one_result {
            return HashSet::new();
        }
        let orphans = pairing.results.iter().filter(|row| row.role == ResultRole::Orphan);
        let parts = orphans.filter_map(|row| conversation.part(row.part));
        let further = parts.filter(|part| match &part.kind {
            PartKind::Result(result) => self.left_calls.contains(&call_hash(&result.id, result.family)),
            _ => false,
        });
        further.map(|part| part.message).collect()
    }

    /// Lets the turns before the last one leave, and returns their faults, which no later message changes.
    pub(super) fn leave_turns(&mut self) -> Result<Vec<Finding>, Unreadable> {
        let body = self.write_body(&[]);
        let judged = self.judge_body(&body)?;
        let Some(first) = judged.first_kept() else {
            return Ok(Vec::new());
        };
        let waiting = if self.rules.place.is_items() {
            judged.waiting_before(first)
        } else {
            HashSet::new()
        };
        let leaves = |index: usize| index < first && !waiting.contains(&index);
        if self.rules.place.is_items() {
            self.left_calls.extend(judged.call_hashes(leaves));
        }
        work::count(self.messages.len().saturating_add(judged.findings.len()));
        // Of two calls with one id the first leaves before the one that is at fault.
        let is_final = |finding: &Finding| leaves(finding.message) || finding.kind == FindingKind::DuplicateCall;
        let left = judged.findings.into_iter().filter(is_final).collect();
        self.messages.retain(|kept| !leaves(kept.index));
        Ok(left)
    }
}

impl JudgedWindow<'_> {
    /// Returns the place of a part's message in the history.
    pub(super) fn place_of(&self, part: PartId) -> Option<usize> {
        let message = self.conversation.part(part)?.message;
        self.places.get(message).copied().flatten()
    }

    /// Returns the rows of calls without a result that the provider requires, in the order of the history.
    pub(super) fn open_rows(&self) -> impl Iterator<Item = CallRowId> {
        let rows = CallRowId::all(0..self.pairing.calls.len());
        rows.filter(|row| {
            let call = &self.pairing.calls[*row];
            call.result.is_none() && !call.shares_id && call.without_result != WithoutResult::Legal
        })
    }

    /// Returns the place of the first message that stays. `None` if there is no turn yet.
    fn first_kept(&self) -> Option<usize> {
        let last = self.pairing.turns.last()?;
        let unit = self.pairing.units.get(last.units.start)?;
        let turn = self.places.get(unit.message).copied().flatten()?;
        // The result of a call that the provider runs itself comes in a later message of the assistant.
        let waits = |finding: &&Finding| {
            finding.kind == FindingKind::ServerHalf && finding.message.saturating_add(SERVER_WAIT_MAX) > turn
        };
        let server = self.findings.iter().find(waits).map(|finding| finding.message);
        Some(server.map_or(turn, |server| server.min(turn)))
    }

    /// Returns the places before `first` of calls and results that wait for each other, or whose other half stays.
    fn waiting_before(&self, first: usize) -> HashSet<usize> {
        let mut waiting: HashSet<usize> = self.open_rows().filter_map(|row| self.call_place(row)).collect();
        for row in &self.pairing.results {
            work::count(1);
            let result = self.place_of(row.part);
            // Results may come before their call.
            let Some(call) = row.role.call() else {
                waiting.extend(result.filter(|_| row.role == ResultRole::Orphan));
                continue;
            };
            let call = self.call_place(call);
            if result >= Some(first) || call >= Some(first) {
                waiting.extend(result.into_iter().chain(call));
            }
        }
        waiting.retain(|place| *place < first);
        // Too many would be judged again with each turn. They leave as faults.
        if waiting.len() > WAITING_MAX {
            HashSet::new()
        } else {
            waiting
        }
    }

    /// Returns the place of a call's message in the history.
    fn call_place(&self, row: CallRowId) -> Option<usize> {
        self.place_of(self.pairing.calls.get(row.index())?.part)
    }

    /// Returns the hashes of calls in messages that `leaves` accepts.
    fn call_hashes(&self, leaves: impl Fn(usize) -> bool) -> Vec<u64> {
        work::count(self.conversation.parts.len());
        let calls = self.conversation.parts.iter().filter_map(|part| match &part.kind {
            PartKind::Call(call) => Some((part.message, call_hash(&call.id, call.family))),
            _ => None,
        });
        let has_left = |message: usize| self.places.get(message).copied().flatten().is_some_and(&leaves);
        calls
            .filter(|(message, _)| has_left(*message))
            .map(|(_, hash)| hash)
            .collect()
    }
}

/// Returns the hash of the id by which results name a call, and of the kind of results that may do so.
pub(super) fn call_hash(id: &[u8], family: CallFamily) -> u64 {
    short_hash(&[&[family.group], id])
}

/// Returns `true` for faults that need several messages. The others are found when a message is observed.
fn is_of_pairs(finding: &Finding) -> bool {
    if finding.kind == FindingKind::Field {
        // Not of repeated items: the first one may have left.
        let of_several = [FlawKind::SplitTurn, FlawKind::ResultKind];
        return of_several.iter().any(|flaw| finding.detail == Some(flaw.code()));
    }
    !finding.kind.is_of_one_message()
}
