//! Matching in document order: results are matched to calls within the gap of their turn, first in, first out.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::{
    conversation::{
        Call, CallRowId, Conversation, PartId, PartKind, ResultOwner, ResultRowId, Role, Text, TurnId, WithoutResult,
        pairing::{CallRow, Pairing, ResultPosition, ResultRole, ResultRow, ServerHalf, key_of},
        rules::{IdRule, IdScope, MergedRoles, PairingRules, ResultPlace},
    },
    work,
};

/// Turns with more calls than this use a map to find them.
const SEARCHED_CALLS_MAX: usize = 16;

/// The name that a result must contain, and its group.
pub(super) type PairingKey<'c> = (&'c [u8], u8);

/// The calls of one id in the current turn, first in, first out.
#[derive(Default)]
pub(super) struct CallQueue {
    waiting: VecDeque<CallRowId>,
    first: Option<CallRowId>,
    count: usize,
}

/// The raw name and input of a call.
type NameAndInput<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A server call, and the turn of its result once that is seen.
pub(super) struct OpenServerCall {
    pub(super) part: PartId,
    pub(super) turn: TurnId,
    pub(super) known: bool,
    pub(super) resolved: Option<TurnId>,
}

/// The walk over one history and its state.
pub(super) struct PairingWalk<'c, 'a> {
    pub(super) conversation: &'c Conversation<'a>,
    pub(super) rules: PairingRules,
    /// Parts before this one precede the last compaction and are not judged.
    pub(super) begin: PartId,
    pub(super) pairing: Pairing,
    /// Row of the first call of the current turn.
    first: usize,
    /// Calls of the current turn by name, if there are many. Else empty.
    queues: HashMap<PairingKey<'c>, CallQueue>,
    /// Name and input of calls that others repeat, by part. Each is read once, however often it is repeated.
    originals: HashMap<PartId, NameAndInput<'a>>,
    /// Names of calls and server calls before `begin`.
    pub(super) hidden: HashSet<&'c [u8]>,
    pub(super) servers: Vec<OpenServerCall>,
    server_ids: HashMap<&'c [u8], usize>,
}

/// State of the gap that is being walked.
#[derive(Default)]
struct GapState {
    /// Number of messages so far that may contain results.
    users: usize,
    /// `true` if it contains a result.
    has_results: bool,
    /// `true` once the place of results has ended.
    closed: bool,
    /// `true` if only a message border has ended it.
    split: bool,
    /// Results whose id has matched no call.
    unnamed: Vec<ResultRowId>,
}

impl<'c, 'a> PairingWalk<'c, 'a> {
    /// Returns a walk at the beginning. Parts before `begin` precede the last compaction.
    pub(super) fn new(
        conversation: &'c Conversation<'a>,
        rules: PairingRules,
        begin: PartId,
        pairing: Pairing,
    ) -> Self {
        Self {
            conversation,
            rules,
            begin,
            pairing,
            first: 0,
            queues: HashMap::new(),
            originals: HashMap::new(),
            hidden: HashSet::new(),
            servers: Vec::new(),
            server_ids: HashMap::new(),
        }
    }

    /// Walks every turn and its gap once.
    pub(super) fn walk_history(&mut self) {
        let before = self
            .pairing
            .turns
            .first()
            .map_or(self.pairing.units.len(), |turn| turn.units.start);
        // Results before the first turn can answer no call, but they must be recorded.
        self.walk_gap(None, 0..before);
        for turn in TurnId::all(0..self.pairing.turns.len()) {
            self.first = self.pairing.calls.len();
            // Names are matched within one turn only, so each turn begins with empty queues.
            self.queues = HashMap::new();
            let (units, gap) = {
                let found = &self.pairing.turns[turn];
                (found.units.clone(), found.gap.clone())
            };
            for unit in units {
                for part in PartId::all(self.pairing.units[unit].parts.clone()) {
                    self.walk_assistant_part(turn, part);
                }
            }
            self.pairing.turns[turn].calls = self.first..self.pairing.calls.len();
            self.walk_gap(Some(turn), gap);
        }
    }

    fn walk_assistant_part(&mut self, turn: TurnId, part: PartId) {
        let conversation = self.conversation;
        match &conversation.parts[part].kind {
            PartKind::Thinking => self.pairing.turns[turn].thinking |= self.conversation.thinks(part),
            PartKind::Call(call) if part < self.begin => {
                // A result after the compaction may still answer it, so its name must be known.
                self.hidden.insert(call.call_name());
            }
            PartKind::ServerCall(call) if part < self.begin => {
                self.hidden.insert(&call.id);
            }
            PartKind::Call(call) => {
                self.pairing.turns[turn].programmatic |= call.programmatic;
                self.add_call(turn, part, call);
            }
            PartKind::ServerCall(call) => {
                // A later call of the same id takes over, because results follow their call.
                self.server_ids.insert(&call.id, self.servers.len());
                self.servers.push(OpenServerCall {
                    part,
                    turn,
                    known: call.known,
                    resolved: None,
                });
            }
            PartKind::ServerResult(id) if part >= self.begin => self.resolve_server_call(turn, part, id),
            _ => {}
        }
    }

    fn add_call(&mut self, turn: TurnId, part: PartId, call: &'c Call<'_>) {
        let row = CallRowId::new(self.pairing.calls.len());
        let key = (call.call_name(), call.family.group);
        let repeats = if row.index() - self.first <= SEARCHED_CALLS_MAX {
            self.count_repeats(key)
        } else {
            self.queue_call(row, key)
        };
        // One result answers all calls of its id.
        let shares_id = repeats.is_some() && self.rules.id_scope == IdScope::Shared;
        // Where ids are optional or shared, a repeated id is no fault.
        let repeats = repeats.filter(|_| !matches!(self.rules.id_scope, IdScope::Nowhere | IdScope::Shared));
        // An equal repeat may share the result of the first call. A different one needs its own.
        let equal = repeats.is_some_and(|(first, _)| self.same_call(self.pairing.calls[first].part, part));
        let bad_id = !self.rules.ids.accepts(&call.id);
        self.pairing.calls.push(CallRow {
            part,
            turn,
            result: None,
            without_result: if shares_id {
                WithoutResult::Legal
            } else {
                call.without_result
            },
            repeats,
            shares_id,
            equals_first: equal,
            bad_id,
        });
    }

    /// Returns the first call of the current turn with this id, and the ordinal of the next one.
    fn count_repeats(&self, key: PairingKey<'_>) -> Option<(CallRowId, usize)> {
        let mut same =
            CallRowId::all(self.first..self.pairing.calls.len()).filter(|row| is_same_key(self.call_key(*row), key));
        // The call itself is not in the list yet, and the first one is already taken from the iterator.
        same.next().map(|first| (first, same.count() + 2))
    }

    /// Does the same for turns with many calls. Each call waits in the queue of its id.
    fn queue_call(&mut self, row: CallRowId, key: PairingKey<'c>) -> Option<(CallRowId, usize)> {
        if self.queues.is_empty() {
            // The turn has just grown too large to search, so its earlier calls enter the queues too.
            for earlier in CallRowId::all(self.first..row.index()) {
                self.push_queue(earlier, self.call_key(earlier));
            }
        }
        self.push_queue(row, key)
    }

    fn push_queue(&mut self, row: CallRowId, key: PairingKey<'c>) -> Option<(CallRowId, usize)> {
        work::count_bytes(key.0.len());
        let queue = self.queues.entry(key).or_default();
        queue.waiting.push_back(row);
        queue.count += 1;
        let first = *queue.first.get_or_insert(row);
        (queue.count > 1).then_some((first, queue.count))
    }

    /// Returns the next open call of the current turn with this id.
    fn next_open(&mut self, key: PairingKey<'c>) -> Option<CallRowId> {
        if self.queues.is_empty() {
            let is_open =
                |row: &CallRowId| self.pairing.calls[*row].result.is_none() && is_same_key(self.call_key(*row), key);
            CallRowId::all(self.first..self.pairing.calls.len()).find(is_open)
        } else {
            work::count_bytes(key.0.len());
            self.queues.get_mut(&key).and_then(|queue| queue.waiting.pop_front())
        }
    }

    pub(super) fn call_key(&self, row: CallRowId) -> PairingKey<'c> {
        key_of(self.conversation, self.pairing.calls[row].part)
    }

    /// Returns `true` if the calls at two parts have the same name and input.
    fn same_call(&mut self, first: PartId, other: PartId) -> bool {
        let conversation = self.conversation;
        let asked = |part: PartId| -> NameAndInput<'a> {
            let details = conversation.call_details(part);
            let body = conversation.body;
            (
                details.name.map(|span| span.of(body)),
                details.input.map(|span| span.of(body)),
            )
        };
        let original = self.originals.entry(first).or_insert_with(|| asked(first));
        let other = asked(other);
        work::count_bytes(other.1.map_or(0, <[u8]>::len));
        *original == other
    }

    fn resolve_server_call(&mut self, turn: TurnId, part: PartId, id: &'c Text<'_>) {
        let id: &[u8] = id;
        if let Some(server) = self.server_ids.get(id) {
            // The first result counts. In a mixed turn it comes in the next assistant message.
            self.servers[*server].resolved.get_or_insert(turn);
        } else if !self.hidden.contains(id) && !self.conversation.may_have_remote_calls {
            // Thinking in its message is checked after the walk.
            self.pairing.server_halves.push(ServerHalf { part, droppable: true });
        }
    }

    fn walk_gap(&mut self, turn: Option<TurnId>, units: std::ops::Range<usize>) {
        let mut gap = GapState::default();
        let first = units.start;
        for unit in units {
            work::count(1);
            let found = &self.pairing.units[unit];
            let (role, parts) = (found.role, found.parts.clone());
            let may_contain_results = if self.rules.place.is_user_parts() {
                role == Role::User
            } else {
                role == Role::Tool
            };
            if !may_contain_results {
                // Anthropic accepts no system message between a call and its results, so such messages move.
                // Any other message ends the place of results.
                let may_move_after = self.rules.place == ResultPlace::UserTurn && gap.users == 0;
                if let (true, Some(turn)) = (may_move_after, turn) {
                    self.pairing.turns[turn].systems = first..unit + 1;
                }
                gap.closed |= !may_move_after;
                continue;
            }
            if gap.users > 0 && self.rules.place.is_user_parts() && self.rules.merged_roles != MergedRoles::All {
                // Results that only a message border separates are merged later, not moved.
                gap.split |= !gap.closed && gap.has_results;
                gap.closed = true;
            }
            gap.users += 1;
            for part in PartId::all(parts) {
                self.walk_gap_part(turn, unit, part, &mut gap);
            }
        }
        if gap.users == 0
            && let Some(turn) = turn
        {
            // Without an answering message the results are inserted before the system messages, which then stay.
            self.pairing.turns[turn].systems = first..first;
        }
        if let Some(turn) = turn {
            if self.rules.place == ResultPlace::NextContent {
                self.match_by_name(turn, &gap.unnamed);
            } else {
                self.name_the_nameless(turn, &gap.unnamed);
            }
        }
    }

    fn walk_gap_part(&mut self, turn: Option<TurnId>, unit: usize, part: PartId, gap: &mut GapState) {
        if part < self.begin {
            return;
        }
        let conversation = self.conversation;
        let PartKind::Result(result) = &conversation.parts[part].kind else {
            // Text ends the place of results. Only Gemini accepts other parts before and between them.
            if self.rules.place != ResultPlace::NextContent {
                gap.closed = true;
                gap.split = false;
            }
            return;
        };
        gap.has_results = true;
        let row = ResultRowId::new(self.pairing.results.len());
        // A result is an orphan until a call claims it, here or across turns.
        let mut result_role = ResultRole::Orphan;
        if turn.is_some()
            && result.owner == ResultOwner::Unknown
            && let Some(call) = self.next_open((result.call_name(), result.family.group))
        {
            self.pairing.calls[call].result = Some(row);
            result_role = ResultRole::Answers(call);
        }
        let by_name = self.rules.place == ResultPlace::NextContent;
        // Gemini's ids are optional, so a result without one is matched by name and is no fault.
        let nameless = result.id.is_empty() && result_role == ResultRole::Orphan && !by_name;
        // A standalone result belongs to no call, even if one is open.
        if (nameless && !result.standalone) || (by_name && result_role == ResultRole::Orphan) {
            gap.unnamed.push(row);
        }
        let position = match (gap.closed, gap.split) {
            (false, _) => ResultPosition::Leading,
            (true, true) => ResultPosition::Split,
            (true, false) => ResultPosition::Outside,
        };
        self.pairing.results.push(ResultRow {
            part,
            unit,
            turn,
            position,
            nameless,
            role: result_role,
            in_place: false,
        });
    }

    /// Matches calls and results by tool name and order, unless both have an id.
    fn match_by_name(&mut self, turn: TurnId, rows: &[ResultRowId]) {
        if rows.is_empty() {
            return;
        }
        let mut open: HashMap<&[u8], VecDeque<CallRowId>> = HashMap::new();
        for row in CallRowId::all(self.pairing.turns[turn].calls.clone()) {
            if let (PartKind::Call(call), None) = (self.call_kind(row), self.pairing.calls[row].result) {
                open.entry(&call.name).or_default().push_back(row);
            }
        }
        for row in rows {
            let PartKind::Result(result) = &self.conversation.parts[self.pairing.results[*row].part].kind else {
                continue;
            };
            let Some(waiting) = open.get_mut(&*result.name) else {
                continue;
            };
            // Two ids that differ name two calls, even if the tool is the same.
            let one_sided = |call: &CallRowId| result.id.is_empty() || key_has_no_id(self.call_kind(*call));
            if waiting.front().is_some_and(one_sided)
                && let Some(call) = waiting.pop_front()
            {
                self.pairing.calls[call].result = Some(*row);
                self.pairing.results[*row].role = ResultRole::Answers(call);
            }
        }
    }

    fn call_kind(&self, row: CallRowId) -> &'c PartKind<'a> {
        &self.conversation.parts[self.pairing.calls[row].part].kind
    }

    /// Gives a result without an id the only open call of its turn or, if the dialect pairs by position, the next one.
    fn name_the_nameless(&mut self, turn: TurnId, rows: &[ResultRowId]) {
        if rows.is_empty() {
            return;
        }
        work::count(rows.len());
        let calls = CallRowId::all(self.pairing.turns[turn].calls.clone());
        let open: Vec<CallRowId> = calls
            .filter(|call| self.pairing.calls[*call].result.is_none())
            .collect();
        // With several open calls a guess could give one the result of another.
        if open.len() != 1 && self.rules.ids != IdRule::Position {
            return;
        }
        for (row, call) in rows.iter().zip(open) {
            let group = |part: PartId| key_of(self.conversation, part).1;
            // A result of another kind (shell, patch) has the wrong form for this call.
            if group(self.pairing.results[*row].part) != group(self.pairing.calls[call].part) {
                continue;
            }
            self.pairing.calls[call].result = Some(*row);
            self.pairing.results[*row].role = ResultRole::Answers(call);
            // xAI pairs by position itself, so there the missing id is no fault.
            self.pairing.results[*row].nameless = self.rules.ids != IdRule::Position;
        }
    }
}

/// Compares two keys. Only names of one length are compared byte by byte.
fn is_same_key(one: PairingKey<'_>, other: PairingKey<'_>) -> bool {
    if one.0.len() == other.0.len() {
        work::count_bytes(one.0.len());
    }
    one == other
}

fn key_has_no_id(kind: &PartKind<'_>) -> bool {
    matches!(kind, PartKind::Call(call) if call.id.is_empty())
}
