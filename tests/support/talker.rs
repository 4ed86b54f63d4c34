//! A client whose history it randomly grows, loses and repairs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    bodies::Rng,
    canary::{Call, Canary},
};

/// A client's text for a lost result.
const LOST: &str = "[Tool execution was interrupted]";

/// A turn of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    User {
        results: Vec<(Call, String)>,
        words: Option<String>,
    },
    Model {
        words: String,
        calls: Vec<Call>,
    },
}

/// A successful exchange: the history sent, and the blocks upstream.
pub type Accepted = (Vec<Turn>, Vec<(String, Value)>);

/// A caller.
pub struct Talker {
    pub who: usize,
    /// Number of its label set. Callers with equal numbers share every label.
    pub labels: usize,
    pub key: String,
    pub chat: bool,
    pub owner: Option<String>,
    pub talk: usize,
    pub log: Vec<Turn>,
    /// Every call it received, in all conversations.
    pub calls: Vec<Call>,
    pub accepted: Option<Accepted>,
    /// `true` if words and answers repeat.
    pub repeats: bool,
    /// `true` if calls of one tool have equal inputs.
    pub same_inputs: bool,
    /// Calls with a result posted by a service. `shown`: calls that a request has contained.
    pub settled: BTreeSet<(usize, usize)>,
    pub shown: BTreeSet<(usize, usize)>,
    serial: usize,
    said: usize,
}

impl Talker {
    pub fn new(who: usize, labels: usize, chat: bool) -> Self {
        Self {
            who,
            labels,
            key: format!("sk-{who}"),
            chat,
            owner: None,
            talk: 0,
            log: Vec::new(),
            calls: Vec::new(),
            accepted: None,
            repeats: false,
            same_inputs: false,
            settled: BTreeSet::new(),
            shown: BTreeSet::new(),
            serial: 0,
            said: 0,
        }
    }

    pub const fn path(&self) -> &'static str {
        if self.chat {
            "/openai/v1/chat/completions"
        } else {
            "/anthropic/v1/messages"
        }
    }

    /// Returns the headers with the credential, and a session name that other callers use too.
    pub fn fields(&self) -> [(&'static str, String); 2] {
        let credential = if self.chat {
            ("authorization", format!("Bearer {}", self.key))
        } else {
            ("x-api-key", self.key.clone())
        };
        [credential, ("x-antiphon-session", format!("s{}", self.talk))]
    }

    /// Starts a new conversation.
    pub fn starts(&mut self) {
        self.talk += 1;
        self.log.clear();
        self.accepted = None;
        let words = self.words(&mut Rng::new(0));
        self.says(Vec::new(), Some(words));
    }

    fn words(&mut self, rng: &mut Rng) -> String {
        self.said += 1;
        if self.repeats && rng.chance(90) {
            return (*rng.pick(&["go on", "and now?"])).to_owned();
        }
        format!("words {} of {}", self.said, self.who)
    }

    fn says(&mut self, results: Vec<(Call, String)>, words: Option<String>) {
        self.log.push(Turn::User { results, words });
    }

    /// Returns the calls without a result in the history, with the index of their turn.
    fn unanswered(&self) -> Vec<(usize, Call)> {
        let answered = |call: &Call| {
            let holds = |turn: &Turn| matches!(turn, Turn::User { results, .. } if results.iter().any(|(known, _)| known == call));
            self.log.iter().any(holds)
        };
        let turns = self.log.iter().enumerate();
        let asked = turns.flat_map(|(place, turn)| match turn {
            Turn::Model { calls, .. } => calls.iter().map(|call| (place, call.clone())).collect(),
            Turn::User { .. } => Vec::new(),
        });
        asked.filter(|(_, call)| !answered(call)).collect()
    }

    /// Returns the results that the next request must contain: posted results of unanswered calls in their first
    /// request.
    pub fn due(&mut self) -> Vec<String> {
        let name = |call: &Call| (call.talk, call.serial);
        let open = self.unanswered().into_iter().map(|(_, call)| call);
        let due =
            open.filter(|call| call.strong && self.settled.contains(&name(call)) && !self.shown.contains(&name(call)));
        let due = due.map(|call| call.canary('p')).collect();
        let shown = self.asked();
        self.shown.extend(shown.iter().map(name));
        due
    }

    /// Returns the calls in the history.
    pub fn asked(&self) -> Vec<Call> {
        let calls = self.log.iter().filter_map(|turn| match turn {
            Turn::Model { calls, .. } => Some(calls),
            Turn::User { .. } => None,
        });
        calls.flatten().cloned().collect()
    }

    /// Changes the history before the next request.
    pub fn moves(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..8 => self.resumes(rng),
            8..14 => self.forgets(rng),
            14..18 => self.fills(rng),
            _ => {}
        }
        match self.log.last() {
            Some(Turn::Model { calls, .. }) => {
                let calls = calls.clone();
                self.answers(&calls, rng);
            }
            // After an error, the user repeats the request or adds text.
            _ if rng.chance(30) => {
                let words = self.words(rng);
                self.says(Vec::new(), Some(words));
            }
            _ => {}
        }
    }

    fn answers(&mut self, calls: &[Call], rng: &mut Rng) {
        let (mut results, mut words) = (Vec::new(), rng.chance(30));
        let share = *rng.pick(&[100, 100, 60, 0]);
        for call in calls {
            if rng.chance(share) {
                let lost = rng.chance(10);
                results.push((call.clone(), if lost { LOST.to_owned() } else { call.canary('s') }));
            }
        }
        let place = self.log.len() - 1;
        let before = self
            .unanswered()
            .into_iter()
            .filter(|(turn, call)| *turn < place && call.strong);
        let before: Vec<Call> = before.map(|(_, call)| call).collect();
        if !before.is_empty() && rng.chance(15) {
            let call = rng.pick(&before).clone();
            let said = call.canary('s');
            results.push((call, said));
        }
        words |= results.is_empty();
        let words = words.then(|| self.words(rng));
        self.says(results, words);
    }

    /// Returns to an earlier end of a model turn. The later results are lost.
    fn resumes(&mut self, rng: &mut Rng) {
        let ends: Vec<usize> = (1..self.log.len())
            .filter(|end| matches!(self.log[end - 1], Turn::Model { .. }))
            .collect();
        if !ends.is_empty() {
            self.log.truncate(*rng.pick(&ends));
            if rng.chance(70) {
                let words = self.words(rng);
                self.says(Vec::new(), Some(words));
            }
        }
    }

    /// Loses one real result. Texts for lost results stay, since another test covers them.
    fn forgets(&mut self, rng: &mut Rng) {
        let has =
            |turn: &Turn| matches!(turn, Turn::User { results, .. } if results.iter().any(|(_, said)| said != LOST));
        let places: Vec<usize> = (0..self.log.len()).filter(|place| has(&self.log[*place])).collect();
        if places.is_empty() {
            return;
        }
        let spare = self.words(rng);
        let place = *rng.pick(&places);
        if let Turn::User { results, words } = &mut self.log[place] {
            let real: Vec<usize> = (0..results.len()).filter(|at| results[*at].1 != LOST).collect();
            results.remove(*rng.pick(&real));
            words.get_or_insert(spare);
        }
    }

    /// Finds a missing result and puts it in its place.
    fn fills(&mut self, rng: &mut Rng) {
        let open = self.unanswered();
        let open: Vec<&(usize, Call)> = open.iter().filter(|(place, _)| place + 1 < self.log.len()).collect();
        if open.is_empty() {
            return;
        }
        let (place, call) = (*rng.pick(&open)).clone();
        if let Turn::User { results, .. } = &mut self.log[place + 1] {
            let said = call.canary('s');
            results.insert(0, (call, said));
        }
    }

    /// Returns the call that the provider makes next, since its service may know it first.
    pub fn coming(&self) -> Call {
        Call::new(self.who, self.labels, self.talk, self.serial, 0)
    }

    /// Returns the provider's next turn.
    pub fn reply(&mut self, rng: &mut Rng) -> Turn {
        let count = *rng.pick(&[0, 1, 1, 2, 3]);
        let mut calls = Vec::new();
        for place in 0..count {
            let call = Call::new(self.who, self.labels, self.talk, self.serial, place);
            calls.push(Call {
                same_input: self.same_inputs,
                ..call
            });
            self.serial += 1;
        }
        self.said += 1;
        let words = if self.repeats && rng.chance(90) {
            "fine".to_owned()
        } else {
            format!("said {} to {}", self.said, self.who)
        };
        Turn::Model { words, calls }
    }

    /// Records a successful answer.
    pub fn heard(&mut self, reply: Turn, blocks: Vec<(String, Value)>) {
        self.accepted = Some((self.log.clone(), blocks));
        if let Turn::Model { calls, .. } = &reply {
            self.calls.extend(calls.iter().cloned());
        }
        self.log.push(reply);
    }

    /// Returns the blocks that must come first now, if the history only grew. For an equal history (the user went back
    /// and repeated the words), a new result may be appended to the last block.
    pub fn prefix(&self) -> Option<&[(String, Value)]> {
        let (log, blocks) = self.accepted.as_ref()?;
        let grew = self.log.len() > log.len();
        let certain = blocks.len().saturating_sub(usize::from(!grew));
        self.log.starts_with(log).then(|| &blocks[..certain])
    }

    pub fn owns(&self, canary: Canary) -> bool {
        let is_it = |call: &Call| call.talk == canary.talk && call.serial == canary.serial;
        canary.who == self.who && self.asked().iter().any(is_it)
    }

    pub fn body(&self) -> String {
        let messages: Vec<Value> = self.log.iter().flat_map(|turn| self.written(turn)).collect();
        json!({"model": "m", "max_tokens": 99, "messages": messages}).to_string()
    }

    fn written(&self, turn: &Turn) -> Vec<Value> {
        match turn {
            Turn::User { results, words } if self.chat => {
                let tool =
                    |(call, said): &(Call, String)| json!({"role": "tool", "tool_call_id": call.id, "content": said});
                let user = words.iter().map(|words| json!({"role": "user", "content": words}));
                results.iter().map(tool).chain(user).collect()
            }
            Turn::User { results, words } => {
                let block = |(call, said): &(Call, String)| json!({"type": "tool_result", "tool_use_id": call.id, "content": said});
                let text = words.iter().map(|words| json!({"type": "text", "text": words}));
                let content: Vec<Value> = results.iter().map(block).chain(text).collect();
                vec![json!({"role": "user", "content": content})]
            }
            Turn::Model { words, calls } => vec![self.answer(words, calls)],
        }
    }

    /// Returns a model message.
    pub fn answer(&self, words: &str, calls: &[Call]) -> Value {
        if self.chat {
            let call = |call: &Call| json!({"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.input().to_string()}});
            let calls: Vec<Value> = calls.iter().map(call).collect();
            return if calls.is_empty() {
                json!({"role": "assistant", "content": words})
            } else {
                json!({"role": "assistant", "content": words, "tool_calls": calls})
            };
        }
        let call = |call: &Call| json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": call.input()});
        let text = std::iter::once(json!({"type": "text", "text": words}));
        let content: Vec<Value> = text.chain(calls.iter().map(call)).collect();
        json!({"role": "assistant", "content": content})
    }
}
