//! The pairing algorithm, once for all formats: which result answers which call, and what breaks the rules.
//!
//! Walks the history once in document order; every step is linear, whatever ids a stranger sends. Never edits.

use std::collections::{HashMap, HashSet};

use crate::conversation::{
    Conversation, Flaw, PartKind, Role, Text,
    rules::{PairingRules, ResultPlace},
    turns::{self, Anchor, Turn, Unit},
};

/// What was found out about one history.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    /// Messages, or pieces of them, in document order.
    pub units: Vec<Unit>,
    /// Assistant turns in document order.
    pub turns: Vec<Turn>,
    /// Client calls in document order; those behind which a compaction stands are left out.
    pub calls: Vec<CallRow>,
    /// Client results in document order; likewise.
    pub results: Vec<ResultRow>,
    /// Server calls and server results that lack their other half.
    pub halves: Vec<Half>,
    /// Fields that may be mended.
    pub flaws: Vec<Flaw>,
    /// Whether the history begins with an assistant turn where the user is wanted.
    pub headless: bool,
}

/// One client call.
#[derive(Clone, Debug)]
pub struct CallRow {
    /// Index of the part.
    pub part: usize,
    /// Index of the turn.
    pub turn: usize,
    /// The result that answers it, as an index into [`Pairing::results`].
    pub answer: Option<usize>,
    /// The first call of the turn with the same id, and how many stand before this one, itself included.
    pub repeats: Option<(usize, usize)>,
    /// Whether name and input equal those of the call it repeats.
    pub equal: bool,
    /// Whether the target rejects the id.
    pub bad_id: bool,
}

/// One client result.
#[derive(Clone, Debug)]
pub struct ResultRow {
    /// Index of the part.
    pub part: usize,
    /// Index of the unit.
    pub unit: usize,
    /// The turn in whose gap it stands.
    pub turn: Option<usize>,
    /// Whether it stands where results of that turn belong.
    pub leading: bool,
    /// Whether only a message border keeps it from leading.
    pub split: bool,
    /// Whether it names no call.
    pub nameless: bool,
    /// What it turned out to be.
    pub fate: Fate,
}

/// What a result turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The answer of this call.
    Answers(usize),
    /// A further result of this call, which has another answer.
    Repeats(usize),
    /// Nobody's: no call of this history can own it for certain.
    Orphan,
    /// Its call lives outside the body, or behind a compaction: not ours to judge.
    Elsewhere,
}

/// A server call without result in a closed turn, or a server result without call.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    /// Index of the part.
    pub part: usize,
    /// Whether it may be dropped: not in a turn with thinking, not under a programmatic call.
    pub droppable: bool,
}

/// The calls of one id in the turn at hand, first in, first out.
#[derive(Clone, Copy)]
struct Queue {
    turn: usize,
    first: usize,
    next: Option<usize>,
    last: usize,
    count: usize,
}

/// A server call on the way to its result.
struct Server {
    part: usize,
    turn: usize,
    known: bool,
    resolved: Option<usize>,
}

/// Pairs the calls and results of `conversation`.
pub fn pair(conversation: &Conversation<'_>, rules: PairingRules) -> Pairing {
    let units = turns::units(conversation);
    let turns = turns::turns(&units, rules);
    let compaction = conversation
        .parts
        .iter()
        .rposition(|part| matches!(part.kind, PartKind::Compaction));
    let mut walk = Walk {
        conversation,
        rules,
        begin: compaction.unwrap_or(0),
        pairing: Pairing {
            units,
            turns,
            ..Pairing::default()
        },
        queues: HashMap::new(),
        chain: Vec::new(),
        hidden: HashSet::new(),
        servers: Vec::new(),
        server_ids: HashMap::new(),
        last_seen: Vec::new(),
    };
    walk.walk();
    walk.match_far();
    walk.judge_servers();
    walk.place_anchors();
    walk.keep_flaws();
    let pairing = &mut walk.pairing;
    let assistant_first = pairing.units.first().is_some_and(|unit| unit.role == Role::Assistant);
    let whole = compaction.is_none() && !conversation.calls_elsewhere;
    pairing.headless = rules.user_first && whole && assistant_first;
    walk.pairing
}

struct Walk<'c, 'a> {
    conversation: &'c Conversation<'a>,
    rules: PairingRules,
    /// Parts before this one stand behind a compaction and are not judged.
    begin: usize,
    pairing: Pairing,
    queues: HashMap<&'c [u8], Queue>,
    /// For each call the next one of the same id and turn.
    chain: Vec<Option<usize>>,
    /// Ids of calls and server calls before `begin`.
    hidden: HashSet<&'c [u8]>,
    servers: Vec<Server>,
    server_ids: HashMap<&'c [u8], usize>,
    /// For each result the call of its id that was the last before it.
    last_seen: Vec<Option<usize>>,
}

/// What has been seen of the gap at hand.
#[derive(Default)]
struct Gap {
    users: usize,
    closed: bool,
    split: bool,
    nameless: Vec<usize>,
}

impl<'c> Walk<'c, '_> {
    fn walk(&mut self) {
        let before = self
            .pairing
            .turns
            .first()
            .map_or(self.pairing.units.len(), |turn| turn.units.start);
        self.gap(None, 0..before);
        for turn in 0..self.pairing.turns.len() {
            let first = self.pairing.calls.len();
            let (units, gap) = {
                let found = &self.pairing.turns[turn];
                (found.units.clone(), found.gap.clone())
            };
            for unit in units {
                for part in self.pairing.units[unit].parts.clone() {
                    self.assistant_part(turn, part);
                }
            }
            self.pairing.turns[turn].calls = first..self.pairing.calls.len();
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
        let mut repeats = None;
        let queue = self.queues.entry(id).or_insert(Queue {
            turn,
            first: row,
            next: Some(row),
            last: row,
            count: 0,
        });
        if queue.turn == turn && queue.count > 0 {
            queue.count += 1;
            repeats = Some((queue.first, queue.count));
            self.chain[queue.last] = Some(row);
            queue.last = row;
        } else {
            *queue = Queue {
                turn,
                first: row,
                next: Some(row),
                last: row,
                count: 1,
            };
        }
        self.chain.push(None);
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

    fn same_call(&self, one: usize, other: usize) -> bool {
        let body = self.conversation.body;
        let said = |part: usize| match &self.conversation.parts[part].kind {
            PartKind::Call(call) => (
                call.name.map(|span| span.of(body)),
                call.input.map(|span| span.of(body)),
            ),
            _ => (None, None),
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
        let queue = self.queues.get_mut(id);
        self.last_seen.push(queue.as_ref().map(|queue| queue.last));
        if let Some(queue) = queue
            && Some(queue.turn) == turn
            && let Some(call) = queue.next
        {
            queue.next = self.chain[call];
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
        if open.len() != 1 && !self.rules.positional {
            return;
        }
        for (row, call) in rows.iter().zip(open) {
            self.pairing.calls[call].answer = Some(*row);
            self.pairing.results[*row].fate = Fate::Answers(call);
            self.pairing.results[*row].nameless = !self.rules.positional;
        }
    }

    /// Results outside the gap of their call: only where one open call of the id remains.
    fn match_far(&mut self) {
        if self
            .pairing
            .results
            .iter()
            .all(|row| matches!(row.fate, Fate::Answers(_)))
        {
            return;
        }
        let mut open: HashMap<&[u8], (usize, usize)> = HashMap::new();
        for (call, row) in self.pairing.calls.iter().enumerate() {
            if row.answer.is_none() && !row.equal {
                let entry = open.entry(id_of(self.conversation, row.part)).or_insert((0, call));
                entry.0 += 1;
            }
        }
        for row in 0..self.pairing.results.len() {
            if self.pairing.results[row].fate == Fate::Orphan {
                let fate = self.far_fate(row, &mut open);
                if let Fate::Answers(call) = fate {
                    self.pairing.calls[call].answer = Some(row);
                }
                self.pairing.results[row].fate = fate;
            }
        }
    }

    fn far_fate(&self, row: usize, open: &mut HashMap<&'c [u8], (usize, usize)>) -> Fate {
        let found = &self.pairing.results[row];
        let id = id_of(self.conversation, found.part);
        if id.is_empty() {
            return Fate::Orphan;
        }
        if self.hidden.contains(id) {
            return Fate::Elsewhere;
        }
        if let Some((count, call)) = open.get_mut(id)
            && *count > 0
        {
            let begins = self.pairing.turns[self.pairing.calls[*call].turn].units.start;
            // A counter starts anew with every run: what stands before the call belongs to a call that is gone.
            if *count > 1 || (found.unit < begins && is_counter(id)) {
                return Fate::Orphan;
            }
            *count = 0;
            return Fate::Answers(*call);
        }
        match self.last_seen[row].or_else(|| self.queues.get(id).map(|queue| queue.last)) {
            Some(call) if self.pairing.calls[call].answer.is_some() => Fate::Repeats(call),
            Some(_) => Fate::Orphan,
            None if self.conversation.calls_elsewhere => Fate::Elsewhere,
            None => Fate::Orphan,
        }
    }

    /// An open server call is legal in a pause, in a mixed turn and under running code; elsewhere it is a half.
    fn judge_servers(&mut self) {
        let last = self.pairing.turns.len().saturating_sub(1);
        for index in 0..self.servers.len() {
            let Server {
                part,
                turn,
                known,
                resolved,
            } = self.servers[index];
            if !known || resolved == Some(turn) {
                continue;
            }
            let closed = turn != last || self.user_spoke(turn);
            let found = &mut self.pairing.turns[turn];
            let droppable = !found.thinking && !found.programmatic;
            if resolved.is_none() && closed {
                self.pairing.halves.push(Half { part, droppable });
                found.only_results |= !droppable;
            } else {
                found.only_results = true;
            }
        }
        for half in &mut self.pairing.halves {
            let message = self.conversation.parts[half.part].message;
            let thinks = |part: &crate::conversation::Part<'_>| matches!(part.kind, PartKind::Thinking);
            let parts = self
                .conversation
                .messages
                .get(message)
                .map(|found| self.conversation.parts_of(found));
            half.droppable &= !parts.unwrap_or_default().iter().any(thinks);
        }
        self.pairing.halves.sort_by_key(|half| half.part);
    }

    /// Whether the gap holds words of the user, or anything at all where the turn has no client call to answer.
    fn user_spoke(&self, turn: usize) -> bool {
        let found = &self.pairing.turns[turn];
        let says = |part: usize| !matches!(self.conversation.parts[part].kind, PartKind::Result(_));
        self.pairing.units[found.gap.clone()]
            .iter()
            .filter(|unit| unit.role == Role::User)
            .any(|unit| found.calls.is_empty() || unit.parts.clone().any(says))
    }

    fn place_anchors(&mut self) {
        for row in &self.pairing.results {
            let Some(turn) = row.turn else { continue };
            let stays = match row.fate {
                Fate::Answers(call) => self.pairing.calls[call].turn == turn,
                Fate::Elsewhere => true,
                Fate::Repeats(_) | Fate::Orphan => false,
            };
            if row.leading && stays {
                self.pairing.turns[turn].anchor = Some(Anchor {
                    unit: row.unit,
                    behind: Some(row.part),
                });
            }
        }
        if self.rules.place == ResultPlace::UserTurn {
            for turn in self.pairing.turns.iter_mut().filter(|turn| turn.anchor.is_none()) {
                let user = turn
                    .gap
                    .clone()
                    .find(|unit| self.pairing.units[*unit].role == Role::User);
                turn.anchor = user.map(|unit| Anchor { unit, behind: None });
            }
        }
    }

    /// Hygiene never touches a turn with thinking, nor what stands behind a compaction.
    fn keep_flaws(&mut self) {
        if self.conversation.flaws.is_empty() {
            return;
        }
        let mut thinking = HashSet::new();
        for turn in self.pairing.turns.iter().filter(|turn| turn.thinking) {
            thinking.extend(self.pairing.units[turn.units.clone()].iter().map(|unit| unit.message));
        }
        let begin = self.conversation.parts.get(self.begin).map_or(0, |part| part.message);
        let judged = |flaw: &&Flaw| {
            !thinking.contains(&flaw.message)
                && (self.begin == 0 || flaw.message > begin || flaw.part.is_some_and(|part| part >= self.begin))
        };
        self.pairing.flaws = self.conversation.flaws.iter().filter(judged).copied().collect();
    }
}

/// The call id that a call or a result part bears; empty for any other part.
pub fn id_of<'c>(conversation: &'c Conversation<'_>, part: usize) -> &'c [u8] {
    match conversation.parts.get(part).map(|found| &found.kind) {
        Some(PartKind::Call(call)) => &call.id,
        Some(PartKind::Result(result)) => &result.id,
        Some(PartKind::ServerCall(call)) => &call.id,
        Some(PartKind::ServerResult(id)) => id,
        _ => b"",
    }
}

/// Whether an id is a counter (`call_0`, `functions.Bash:12`, `7`): the same one comes again in another run.
fn is_counter(id: &[u8]) -> bool {
    let digits = id.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let name = &id[..id.len() - digits];
    let separated = name.last().is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (1..=4).contains(&digits) && separated && !name.iter().any(u8::is_ascii_digit)
}
