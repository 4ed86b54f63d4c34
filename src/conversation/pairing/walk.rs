//! The walk itself: calls and results in document order, matched within the gap of their turn, first in, first out.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::conversation::{
    Conversation, PartKind, Role, Text,
    pairing::{CallRow, Fate, Half, Pairing, ResultRow, id_of},
    rules::{IdRule, PairingRules, ResultPlace},
};

/// A turn of more calls than these finds them by a map.
const FEW: usize = 16;

/// The calls of one id in the turn at hand, first in, first out.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<usize>,
    first: Option<usize>,
    count: usize,
}

/// A server call on the way to its result.
pub(super) struct Server {
    pub(super) part: usize,
    pub(super) turn: usize,
    pub(super) known: bool,
    pub(super) resolved: Option<usize>,
}

/// The walk over one history and what it has seen so far.
pub(super) struct Walk<'c, 'a> {
    pub(super) conversation: &'c Conversation<'a>,
    pub(super) rules: PairingRules,
    /// Parts before this one stand behind a compaction and are not judged.
    pub(super) begin: usize,
    pub(super) pairing: Pairing,
    /// The first call of the turn at hand.
    first: usize,
    /// The calls of the turn at hand by their ids, where they are many; else empty.
    queues: HashMap<&'c [u8], Queue>,
    /// Ids of calls and server calls before `begin`.
    pub(super) hidden: HashSet<&'c [u8]>,
    pub(super) servers: Vec<Server>,
    server_ids: HashMap<&'c [u8], usize>,
}

/// What has been seen of the gap at hand.
#[derive(Default)]
struct Gap {
    users: usize,
    closed: bool,
    split: bool,
    nameless: Vec<usize>,
}

impl<'c, 'a> Walk<'c, 'a> {
    /// A walk that has not begun; parts before `begin` stand behind a compaction.
    pub(super) fn new(conversation: &'c Conversation<'a>, rules: PairingRules, begin: usize, pairing: Pairing) -> Self {
        Self {
            conversation,
            rules,
            begin,
            pairing,
            first: 0,
            queues: HashMap::new(),
            hidden: HashSet::new(),
            servers: Vec::new(),
            server_ids: HashMap::new(),
        }
    }

    /// Walks every turn and its gap, once.
    pub(super) fn walk(&mut self) {
        let before = self
            .pairing
            .turns
            .first()
            .map_or(self.pairing.units.len(), |turn| turn.units.start);
        self.gap(None, 0..before);
        for turn in 0..self.pairing.turns.len() {
            self.first = self.pairing.calls.len();
            self.queues = HashMap::new();
            let (units, gap) = {
                let found = &self.pairing.turns[turn];
                (found.units.clone(), found.gap.clone())
            };
            for unit in units {
                for part in self.pairing.units[unit].parts.clone() {
                    self.assistant_part(turn, part);
                }
            }
            self.pairing.turns[turn].calls = self.first..self.pairing.calls.len();
            self.gap(Some(turn), gap);
        }
    }

    fn assistant_part(&mut self, turn: usize, part: usize) {
        let conversation = self.conversation;
        match &conversation.parts[part].kind {
            PartKind::Thinking => self.pairing.turns[turn].thinking = true,
            PartKind::Call(call) if part < self.begin => {
                self.hidden.insert(&call.id);
            }
            PartKind::ServerCall(call) if part < self.begin => {
                self.hidden.insert(&call.id);
            }
            PartKind::Call(call) => {
                self.pairing.turns[turn].programmatic |= call.programmatic;
                self.call(turn, part, &call.id);
            }
            PartKind::ServerCall(call) => {
                self.server_ids.insert(&call.id, self.servers.len());
                self.servers.push(Server {
                    part,
                    turn,
                    known: call.known,
                    resolved: None,
                });
            }
            PartKind::ServerResult(id) if part >= self.begin => self.server_result(turn, part, id),
            _ => {}
        }
    }

    fn call(&mut self, turn: usize, part: usize, id: &'c Text<'_>) {
        let row = self.pairing.calls.len();
        let repeats = if row - self.first <= FEW {
            self.repeated(id)
        } else {
            self.queue_up(row, id)
        };
        let equal = repeats.is_some_and(|(first, _)| self.same_call(self.pairing.calls[first].part, part));
        let bad_id = !self.rules.ids.takes(id);
        self.pairing.calls.push(CallRow {
            part,
            turn,
            answer: None,
            repeats,
            equal,
            bad_id,
        });
    }

    /// The first call of the turn at hand with this id, and which one of them the next is.
    fn repeated(&self, id: &[u8]) -> Option<(usize, usize)> {
        let mut same = (self.first..self.pairing.calls.len()).filter(|row| self.call_id(*row) == id);
        same.next().map(|first| (first, same.count() + 2))
    }

    /// As [`Walk::repeated`], for turns of many calls, each of which waits in the queue of its id.
    fn queue_up(&mut self, row: usize, id: &'c [u8]) -> Option<(usize, usize)> {
        if self.queues.is_empty() {
            for earlier in self.first..row {
                self.push_queue(earlier, self.call_id(earlier));
            }
        }
        self.push_queue(row, id)
    }

    fn push_queue(&mut self, row: usize, id: &'c [u8]) -> Option<(usize, usize)> {
        let queue = self.queues.entry(id).or_default();
        queue.waiting.push_back(row);
        queue.count += 1;
        let first = *queue.first.get_or_insert(row);
        (queue.count > 1).then_some((first, queue.count))
    }

    /// The next open call of the turn at hand with this id.
    fn next_open(&mut self, id: &[u8]) -> Option<usize> {
        if self.queues.is_empty() {
            let is_open = |row: &usize| self.pairing.calls[*row].answer.is_none() && self.call_id(*row) == id;
            (self.first..self.pairing.calls.len()).find(is_open)
        } else {
            self.queues.get_mut(id).and_then(|queue| queue.waiting.pop_front())
        }
    }

    fn call_id(&self, row: usize) -> &'c [u8] {
        id_of(self.conversation, self.pairing.calls[row].part)
    }

    fn same_call(&self, one: usize, other: usize) -> bool {
        let body = self.conversation.body;
        let said = |part: usize| {
            let details = self.conversation.details(part);
            (
                details.name.map(|span| span.of(body)),
                details.input.map(|span| span.of(body)),
            )
        };
        said(one) == said(other)
    }

    fn server_result(&mut self, turn: usize, part: usize, id: &'c Text<'_>) {
        let id: &[u8] = id;
        if let Some(server) = self.server_ids.get(id) {
            self.servers[*server].resolved.get_or_insert(turn);
        } else if !self.hidden.contains(id) && !self.conversation.calls_elsewhere {
            self.pairing.halves.push(Half { part, droppable: true });
        }
    }

    fn gap(&mut self, turn: Option<usize>, units: std::ops::Range<usize>) {
        let mut gap = Gap::default();
        let first = units.start;
        for unit in units {
            let found = &self.pairing.units[unit];
            let (role, parts) = (found.role, found.parts.clone());
            let bears_results = match self.rules.place {
                ResultPlace::UserTurn => role == Role::User,
                ResultPlace::ToolRun => role == Role::Tool,
            };
            if !bears_results {
                // Instructions before the answering message move behind it; anything else ends the place of results.
                let ahead = self.rules.place == ResultPlace::UserTurn && gap.users == 0;
                if let (true, Some(turn)) = (ahead, turn) {
                    self.pairing.turns[turn].systems = first..unit + 1;
                }
                gap.closed |= !ahead;
                continue;
            }
            if gap.users > 0 && self.rules.place == ResultPlace::UserTurn && !self.rules.combines {
                gap.split |= !gap.closed;
                gap.closed = true;
            }
            gap.users += 1;
            for part in parts {
                self.gap_part(turn, unit, part, &mut gap);
            }
        }
        if gap.users == 0
            && let Some(turn) = turn
        {
            self.pairing.turns[turn].systems = first..first;
        }
        if let Some(turn) = turn {
            self.name_the_nameless(turn, &gap.nameless);
        }
    }

    fn gap_part(&mut self, turn: Option<usize>, unit: usize, part: usize, gap: &mut Gap) {
        if part < self.begin {
            return;
        }
        let conversation = self.conversation;
        let PartKind::Result(result) = &conversation.parts[part].kind else {
            gap.closed = true;
            gap.split = false;
            return;
        };
        let id: &[u8] = &result.id;
        let row = self.pairing.results.len();
        let mut fate = Fate::Orphan;
        if turn.is_some()
            && let Some(call) = self.next_open(id)
        {
            self.pairing.calls[call].answer = Some(row);
            fate = Fate::Answers(call);
        }
        let nameless = id.is_empty() && fate == Fate::Orphan;
        if nameless {
            gap.nameless.push(row);
        }
        let (leading, split) = (!gap.closed, gap.split);
        self.pairing.results.push(ResultRow {
            part,
            unit,
            turn,
            leading,
            split,
            nameless,
            fate,
        });
    }

    /// A result without id takes the only open call of the turn it follows, or, where the dialect says so, the next.
    fn name_the_nameless(&mut self, turn: usize, rows: &[usize]) {
        if rows.is_empty() {
            return;
        }
        let calls = self.pairing.turns[turn].calls.clone();
        let open: Vec<usize> = calls
            .filter(|call| self.pairing.calls[*call].answer.is_none())
            .collect();
        if open.len() != 1 && self.rules.ids != IdRule::Position {
            return;
        }
        for (row, call) in rows.iter().zip(open) {
            self.pairing.calls[call].answer = Some(*row);
            self.pairing.results[*row].fate = Fate::Answers(call);
            self.pairing.results[*row].nameless = self.rules.ids != IdRule::Position;
        }
    }
}
