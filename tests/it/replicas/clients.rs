//! Clients and tool services in front of several replicas, with a balancer that chooses at random: what they send, and what
//! they were promised.
//!
//! They know only what clients and services know. Every acknowledged result reaches its conversation, once, and stays
//! there, and no other caller gets it. Whatever else happens is counted as a fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use antiphon::auth::TokenHash;
use serde_json::{Value, json};

use super::{
    effects::{ClaimReply, Effects},
    fleet::{Answered, Fleet, ask},
};
use crate::support::{
    app::get_with,
    bodies::Rng,
    provider::{Provider, Reply, ToolCall},
};

const TALKS_MAX: usize = 4;
const MESSAGES_MAX: usize = 20;
/// Tries of a client whose request was not answered.
const TRIES: usize = 60;

/// Names of the figures that must be 0.
const FAULTS: [&str; 5] = [
    "to another caller",
    "acknowledged and lost",
    "twice in a body",
    "prefix changed",
    "one_way twice",
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
    /// Those whose result was not in a request after that.
    missed: BTreeSet<(usize, String)>,
    effects: Effects,
    serial: usize,
    figures: BTreeMap<&'static str, usize>,
    faults: Vec<String>,
}

/// Returns the content of the result of a call.
pub(super) fn canary(caller: usize, id: &str) -> String {
    format!("RESULT-{caller}-{id}.")
}

/// Returns the calls of a conversation: their tools, ids and inputs.
fn calls_of(log: &[Value]) -> impl Iterator<Item = (&str, &str, &Value)> {
    let blocks = log.iter().filter_map(|message| message["content"].as_array()).flatten();
    let calls = blocks.filter(|block| block["type"] == "tool_use");
    calls.map(|call| {
        (
            call["name"].as_str().unwrap(),
            call["id"].as_str().unwrap(),
            &call["input"],
        )
    })
}

/// Returns the ids of the calls that send mails, each with the number of its mail.
fn mails_of(log: &[Value]) -> impl Iterator<Item = (&str, u64)> {
    let mails = calls_of(log).filter(|(tool, ..)| *tool == "mail");
    mails.map(|(_, id, input)| (id, input["mail"].as_u64().unwrap()))
}

/// Returns the configuration of the replicas.
fn configuration() -> String {
    let token = |caller| TokenHash::hash_token(client_token(caller).as_bytes());
    let client = |caller| {
        format!(
            "caller-{caller} = {{ token = \"{}\", personal = true }}\n",
            token(caller)
        )
    };
    // A request that cannot be answered rightly is refused, and its client sends it again.
    format!(
        "[ledger]\non_outage = \"refuse\"\n[tools.mail]\ntier = \"one_way\"\nintent = \"user\"\n[client_tokens]\n{}{}",
        client(0),
        client(1)
    )
}

fn client_token(caller: usize) -> String {
    format!("token of caller {caller}")
}

impl Clients {
    /// Starts replicas over a database, and begins a conversation of each caller.
    pub(super) async fn start(seed: u64, url: &str, replicas: usize) -> Self {
        let provider = Provider::start().await;
        let fleet = Fleet::start(&provider, url, replicas, &configuration()).await;
        let mut clients = Self {
            rng: Rng::new(seed),
            fleet,
            provider,
            owners: Default::default(),
            talks: Vec::new(),
            settled: BTreeSet::new(),
            calls: BTreeSet::new(),
            missed: BTreeSet::new(),
            effects: Effects::default(),
            serial: 0,
            figures: BTreeMap::new(),
            faults: Vec::new(),
        };
        for caller in 0..2 {
            let talk = clients.starts(caller);
            clients.speaks_in(talk).await;
            clients.looks_at_results(caller).await;
        }
        clients
    }

    /// Lists the results of a caller: mails are sent only for those who look at them elsewhere, too.
    async fn looks_at_results(&self, caller: usize) {
        let (key, token) = (format!("sk-{caller}"), client_token(caller));
        let fields = [("x-api-key", &*key), ("x-antiphon-client-token", &*token)];
        for _ in 0..TRIES {
            let request = get_with("/ledger/v1/outstanding", &fields);
            match self.fleet.replicas[0].ask(request).await.status() {
                200 => return,
                // That the caller is known is on its way to the database.
                404 => tokio::time::sleep(Duration::from_millis(50)).await,
                status => panic!("{status}"),
            }
        }
        panic!("the caller stays unknown");
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
        let tools = ["render", "mail"].map(|name| json!({"name": name, "input_schema": {"type": "object"}}));
        let body = json!({"model": "m", "max_tokens": 99, "messages": talk.log, "tools": tools});
        let (key, token) = (format!("sk-{}", talk.caller), client_token(talk.caller));
        let fields = [
            ("x-api-key", &*key),
            ("x-antiphon-client-token", &*token),
            ("x-antiphon-session", &*talk.session),
        ];
        for _ in 0..TRIES {
            let at = self.replica();
            let to = self.fleet.replicas[at].data;
            let answer = ask(to, "/anthropic/v1/messages", &fields, &body).await;
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
            let id = |number| format!("toolu_01AbC9dE3fG7hJ2kL4mN{number:04}");
            let mut calls = vec![ToolCall::new(&id(number), "render", json!({}))];
            if self.rng.chance(30) {
                calls.push(ToolCall::new(&id(number + 1), "render", json!({})));
            } else if self.rng.chance(75) {
                let asked: Vec<_> = mails_of(&sent.log).map(|(_, mail)| mail).collect();
                if let Some(mail) = self.effects.new_or_recent(&mut self.rng, sent.caller, &asked) {
                    calls = vec![ToolCall::new(&id(number), "mail", json!({"mail": mail}))];
                }
            }
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
        for (_, id, _) in calls_of(std::slice::from_ref(&reply)) {
            self.calls.insert((sent.caller, id.to_owned()));
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
        let shown: Vec<&str> = calls_of(&sent.log).map(|(_, id, _)| id).collect();
        for id in settled.iter().filter(|id| shown.contains(&&***id)) {
            let call = (sent.caller, id.clone());
            if !text.contains(&canary(sent.caller, id)) {
                faults.push((1, format!("{id} in {text}")));
                self.missed.insert(call);
            } else if self.missed.remove(&call) {
                self.count("delivered by a later request only");
            } else {
                self.count("delivered");
            }
        }
        if !got.starts_with(&sent.accepted) {
            faults.push((3, format!("was {}\n is {text}", json!(sent.accepted))));
        }
        for (fault, told) in faults {
            self.tell(fault, &told);
        }
    }

    fn tell(&mut self, fault: usize, told: &str) {
        self.count(FAULTS[fault]);
        self.faults.push(format!("{}: {told}", FAULTS[fault]));
    }

    /// Posts the result of a call of one of the conversations, as its tool service does.
    pub(super) async fn posts(&mut self) {
        let talk = self.rng.below(self.talks.len());
        let Talk { caller, log, .. } = &self.talks[talk];
        let renders = calls_of(log).filter(|(tool, ..)| *tool == "render");
        let (caller, ids): (_, Vec<String>) = (*caller, renders.map(|(_, id, _)| id.to_owned()).collect());
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

    /// Claims a mail of one of the conversations, as the service does before it sends it.
    pub(super) async fn claims(&mut self) {
        let of_talk = |talk: &Talk| {
            let mails = mails_of(&talk.log).map(|(id, mail)| (talk.caller, id.to_owned(), mail));
            mails.collect::<Vec<_>>()
        };
        let mails: Vec<(usize, String, u64)> = self.talks.iter().flat_map(of_talk).collect();
        if mails.is_empty() {
            return;
        }
        let (caller, id, mail) = self.rng.pick(&mails).clone();
        let to = self.fleet.replicas[self.rng.below(self.fleet.replicas.len())].data;
        let mut claim = json!({"call_id": id, "owner": self.owners[caller]});
        if self.rng.chance(30) {
            // Its outcome is soon unknown if the answer is lost.
            claim["lease"] = json!("1s");
        }
        let outcome = self.effects.claim(to, (caller, &id, mail), &claim).await;
        self.count(outcome.figure());
        if self.effects.runs(caller, mail) > 1 && outcome == ClaimReply::Granted {
            self.tell(4, &format!("mail {mail} of caller {caller} by {id}"));
        }
    }

    /// Reports the end of a mail that was sent.
    pub(super) async fn reports(&mut self) {
        let to = self.fleet.replicas[self.rng.below(self.fleet.replicas.len())].data;
        if let Some((caller, id)) = self.effects.report(&mut self.rng, to, &self.owners).await {
            self.count("mails reported");
            self.settled.insert((caller, id));
        }
    }

    /// Does what clients and services do all the time, while something fails.
    pub(super) async fn acts(&mut self) {
        match self.rng.below(10) {
            0..6 => self.speaks().await,
            6..9 => self.claims().await,
            _ => self.reports().await,
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
