//! Clients and tool services in front of several replicas, with a balancer that chooses at random: what they send, and what
//! they were promised.
//!
//! They know only what clients and services know. Every acknowledged result reaches its conversation, once, and stays
//! there, and no other caller gets it. Whatever else happens is counted as a fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use super::fleet::{Answered, Fleet};
use crate::support::{
    bodies::Rng,
    late::tools,
    provider::{Provider, Reply, ToolCall},
};

const TALKS_MAX: usize = 4;
const MESSAGES_MAX: usize = 20;
/// Tries of a client whose request was not answered.
const TRIES: usize = 60;

/// Names of the figures that must be 0.
const FAULTS: [&str; 4] = [
    "to another caller",
    "acknowledged and lost",
    "twice in a body",
    "prefix changed",
];

/// A conversation as its client has it.
#[derive(Clone, Debug)]
struct Talk {
    caller: usize,
    session: String,
    log: Vec<Value>,
    /// What the provider got for the longest history that the client has an answer to.
    accepted: Vec<Value>,
}

/// The clients and services of two callers.
pub(super) struct Clients {
    pub(super) rng: Rng,
    pub(super) fleet: Fleet,
    provider: Provider,
    owners: [String; 2],
    talks: Vec<Talk>,
    /// The callers' calls whose result was acknowledged, by their ids.
    settled: BTreeSet<(usize, String)>,
    /// The ids of each caller's calls.
    calls: BTreeSet<(usize, String)>,
    serial: usize,
    figures: BTreeMap<&'static str, usize>,
    faults: Vec<String>,
}

fn canary(caller: usize, id: &str) -> String {
    format!("RESULT-{caller}-{id}.")
}

fn call_ids(log: &[Value]) -> Vec<String> {
    let blocks = log.iter().filter_map(|message| message["content"].as_array()).flatten();
    let calls = blocks.filter(|block| block["type"] == "tool_use");
    calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
}

impl Clients {
    /// Begins a conversation of each caller.
    pub(super) async fn start(seed: u64, provider: Provider, fleet: Fleet) -> Self {
        let mut clients = Self {
            rng: Rng::new(seed),
            fleet,
            provider,
            owners: Default::default(),
            talks: Vec::new(),
            settled: BTreeSet::new(),
            calls: BTreeSet::new(),
            serial: 0,
            figures: BTreeMap::new(),
            faults: Vec::new(),
        };
        for caller in 0..2 {
            let talk = clients.starts(caller);
            clients.speaks_in(talk).await;
        }
        clients
    }

    /// Adds one to a figure.
    pub(super) fn count(&mut self, figure: &'static str) {
        *self.figures.entry(figure).or_default() += 1;
    }

    fn serial(&mut self) -> usize {
        self.serial += 1;
        self.serial
    }

    /// Begins a conversation of a caller, and forgets the oldest one if there are too many.
    fn starts(&mut self, caller: usize) -> usize {
        let session = format!("s{}", self.serial());
        self.talks.push(Talk {
            caller,
            session,
            log: Vec::new(),
            accepted: Vec::new(),
        });
        if self.talks.len() > TALKS_MAX {
            self.talks.remove(0);
        }
        self.talks.len() - 1
    }

    /// Begins a conversation of a caller that is chosen at random.
    pub(super) fn starts_another(&mut self) {
        let caller = self.rng.below(2);
        self.starts(caller);
    }

    /// Returns a replica that the balancer could choose.
    pub(super) fn replica(&mut self) -> usize {
        self.rng.below(self.fleet.replicas.len())
    }

    /// Sends a body through one replica after the other until there is an answer, as clients do behind a balancer.
    async fn answer(&mut self, talk: &Talk) -> Answered {
        let body = json!({"model": "m", "max_tokens": 99, "messages": talk.log, "tools": tools()});
        let key = format!("sk-{}", talk.caller);
        for _ in 0..TRIES {
            let at = self.replica();
            let answer = self.fleet.send(at, &key, &talk.session, &body).await;
            match answer {
                Some(answer) if answer.status == 200 => return answer,
                Some(answer) if matches!(answer.status, 502..=504 | 529) => self.count("requests refused"),
                Some(answer) => panic!("{}: {}", answer.status, answer.body),
                None => self.count("requests without an answer"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no answer to {body}");
    }

    /// Says something in one of the conversations.
    pub(super) async fn speaks(&mut self) {
        let talk = self.rng.below(self.talks.len());
        self.speaks_in(talk).await;
    }

    async fn speaks_in(&mut self, talk: usize) {
        let talk = match &self.talks[talk] {
            long if long.log.len() > MESSAGES_MAX => self.starts(long.caller),
            _ => talk,
        };
        let words = format!("words {}", self.serial());
        self.talks[talk].log.push(json!({"role": "user", "content": words}));
        let sent = self.talks[talk].clone();
        if self.rng.chance(45) {
            // Both callers have calls of the same ids.
            let number = self.calls.iter().filter(|(caller, _)| *caller == sent.caller).count();
            let call = |number| ToolCall::new(&format!("toolu_01AbC9dE3fG7hJ2kL4mN{number:04}"), "render", json!({}));
            let mut calls = vec![call(number)];
            calls.extend(self.rng.chance(30).then(|| call(number + 1)));
            self.provider.reply(Reply::Calls(calls));
        }
        let settled: Vec<String> = {
            let own = self.settled.iter().filter(|(caller, _)| *caller == sent.caller);
            own.map(|(_, id)| id.clone()).collect()
        };
        let answer = self.answer(&sent).await;
        self.count("answers");
        self.owners[sent.caller].clone_from(&answer.owner);
        let got = self.got(&words);
        self.check(&sent, &got, &settled);
        let reply = json!({"role": "assistant", "content": answer.body["content"]});
        for id in call_ids(std::slice::from_ref(&reply)) {
            self.calls.insert((sent.caller, id));
        }
        let talk = &mut self.talks[talk];
        talk.accepted = got;
        talk.log.push(reply);
    }

    /// Returns the messages of the last request that ends with these words.
    fn got(&self, words: &str) -> Vec<Value> {
        let bodies = self.provider.seen().into_iter().rev();
        let mut bodies = bodies.map(|seen| serde_json::from_slice::<Value>(&seen.body).unwrap());
        let quoted = [format!("{words}\""), format!("{words}\\n")];
        let is_its = |body: &Value| {
            let last = body["messages"].as_array().unwrap().last().unwrap().to_string();
            quoted.iter().any(|words| last.contains(words))
        };
        let body = bodies.find(is_its).expect("the provider got the request");
        body["messages"].as_array().unwrap().clone()
    }

    fn check(&mut self, sent: &Talk, got: &[Value], settled: &[String]) {
        let text = json!(got).to_string();
        let mut faults = Vec::new();
        for (caller, id) in &self.calls {
            let times = text.matches(&canary(*caller, id)).count();
            if times > 0 && *caller != sent.caller {
                faults.push((0, format!("{id} in {text}")));
            }
            if times > 1 {
                faults.push((2, format!("{id} in {text}")));
            }
        }
        let shown = call_ids(&sent.log);
        for id in settled.iter().filter(|id| shown.contains(id)) {
            if text.contains(&canary(sent.caller, id)) {
                self.count("delivered");
            } else {
                faults.push((1, format!("{id} in {text}")));
            }
        }
        if !got.starts_with(&sent.accepted) {
            faults.push((3, format!("was {}\n is {text}", json!(sent.accepted))));
        }
        for (fault, told) in faults {
            self.count(FAULTS[fault]);
            self.faults.push(format!("{}: {told}", FAULTS[fault]));
        }
    }

    /// Posts the result of a call of one of the conversations, as its tool service does.
    pub(super) async fn posts(&mut self) {
        let talk = self.rng.below(self.talks.len());
        let Talk { caller, log, .. } = &self.talks[talk];
        let (caller, ids) = (*caller, call_ids(log));
        if ids.is_empty() {
            return;
        }
        let id = self.rng.pick(&ids).clone();
        let body = json!({"content": canary(caller, &id), "owner": self.owners[caller]});
        let at = self.replica();
        match self.fleet.post(at, &id, &body).await {
            Some(answer) if answer.status == 200 => {
                self.count(if answer.body["first"] == true {
                    "posts"
                } else {
                    "repeated posts"
                });
                self.settled.insert((caller, id));
            }
            // Parked until the call is recorded, or not stored at all: no promise to the service, or a later one.
            Some(answer) if matches!(answer.status, 202 | 502..=504) => self.count("posts without a promise yet"),
            Some(answer) => panic!("{id}: {} {}", answer.status, answer.body),
            None => self.count("posts without an answer"),
        }
    }

    /// Returns the number of faults so far.
    pub(super) fn known_faults(&self) -> usize {
        self.faults.len()
    }

    /// Adds the place of a walk to the faults after those that were known.
    pub(super) fn place_faults(&mut self, known: usize, place: &str) {
        for told in &mut self.faults[known..] {
            *told = format!("{place}: {told}");
        }
    }

    /// Says something in each conversation, prints the figures, and panics if one of those that must be 0 is not.
    pub(super) async fn finish(mut self) -> BTreeMap<&'static str, usize> {
        for talk in 0..self.talks.len() {
            self.speaks_in(talk).await;
        }
        for fault in FAULTS {
            println!("{fault}: {}", self.figures.remove(fault).unwrap_or_default());
        }
        for (figure, count) in &self.figures {
            println!("  {figure}: {count}");
        }
        assert!(
            self.faults.is_empty(),
            "{} faults, the first: {}",
            self.faults.len(),
            self.faults[0]
        );
        assert!(self.figures.contains_key("delivered") && self.figures.contains_key("posts"));
        self.figures
    }
}
