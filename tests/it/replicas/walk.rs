//! Random walk with real replicas, a balancer that chooses at random, and a database: replicas and the database are
//! killed, replicas are paused, connections are severed. Every acknowledged result reaches its conversation, once, and
//! stays there, and no other caller gets it.
//!
//! The model knows only what clients and services know. `STEPS=` sets the number of steps, `SEED=<n>` plays another walk,
//! `SEED=random` a new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use super::fleet::{Answered, Fleet};
use crate::support::{
    bodies::Rng,
    database::DatabaseServer,
    late::tools,
    provider::{Provider, Reply, ToolCall},
    seed::seed,
    wire::spawn,
};

const STEPS: usize = 150;
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

struct Walk {
    rng: Rng,
    server: Arc<DatabaseServer>,
    provider: Provider,
    fleet: Fleet,
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

impl Walk {
    fn count(&mut self, figure: &'static str) {
        *self.figures.entry(figure).or_default() += 1;
    }

    fn serial(&mut self) -> usize {
        self.serial += 1;
        self.serial
    }

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

    async fn step(&mut self) {
        let talk = self.rng.below(self.talks.len());
        match self.rng.below(100) {
            0..50 => self.speaks(talk).await,
            50..80 => self.posts(talk).await,
            80..86 => {
                // Before, during or after a request.
                let at = self.replica();
                let (id, after) = (self.fleet.replicas[at].id(), self.rng.below(30) as u64);
                let kill = spawn(async move {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    let sent = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                    assert!(sent.unwrap().success());
                });
                self.speaks(talk).await;
                kill.await.unwrap();
                self.fleet.restart(at).await;
                self.count("replicas killed");
            }
            86..88 => {
                self.server.crash();
                let (server, away) = (Arc::clone(&self.server), 200 * self.rng.below(10) as u64);
                let restart = spawn(async move {
                    tokio::time::sleep(Duration::from_millis(away)).await;
                    server.run(&[]).await;
                });
                self.speaks(talk).await;
                restart.await.unwrap();
                self.count("databases killed");
            }
            88..92 => {
                let at = self.replica();
                self.fleet.replicas[at].signal("STOP");
                self.speaks(talk).await;
                self.fleet.replicas[at].signal("CONT");
                self.count("replicas paused");
            }
            92..96 => {
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'antiphon'";
                self.server.execute(end).await;
                self.count("connections severed");
            }
            _ => {
                let caller = self.rng.below(2);
                self.starts(caller);
            }
        }
    }

    fn replica(&mut self) -> usize {
        self.rng.below(self.fleet.replicas.len())
    }

    /// Sends a body through one replica after the other until there is an answer, as clients do behind a balancer. Kills
    /// the first one meanwhile, now and then.
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

    async fn speaks(&mut self, talk: usize) {
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

    /// A tool service posts the result of a call of this conversation.
    async fn posts(&mut self, talk: usize) {
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
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

async fn walk(replicas: usize) {
    let Some(server) = DatabaseServer::start().await else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let (seed, steps) = (seed(), number("STEPS").unwrap_or(STEPS));
    println!("SEED={seed} STEPS={steps} replicas={replicas}");
    let url = server.new_database().await;
    let provider = Provider::start().await;
    // A request that cannot be answered rightly is refused, and its client sends it again.
    let fleet = Fleet::start(&provider, &url, replicas, "[ledger]\non_outage = \"refuse\"\n").await;
    let mut walk = Walk {
        rng: Rng::new(seed),
        server: Arc::new(server),
        provider,
        fleet,
        owners: Default::default(),
        talks: Vec::new(),
        settled: BTreeSet::new(),
        calls: BTreeSet::new(),
        serial: 0,
        figures: BTreeMap::new(),
        faults: Vec::new(),
    };
    for caller in 0..2 {
        let talk = walk.starts(caller);
        walk.speaks(talk).await;
    }
    for step in 0..steps {
        let known = walk.faults.len();
        walk.step().await;
        for told in &mut walk.faults[known..] {
            *told = format!("SEED={seed} step {step}: {told}");
        }
    }
    for talk in 0..walk.talks.len() {
        walk.speaks(talk).await;
    }
    for fault in FAULTS {
        println!("{fault}: {}", walk.figures.remove(fault).unwrap_or_default());
    }
    for (figure, count) in &walk.figures {
        println!("  {figure}: {count}");
    }
    assert!(
        walk.faults.is_empty(),
        "{} faults, the first: {}",
        walk.faults.len(),
        walk.faults[0]
    );
    assert!(walk.figures.contains_key("delivered") && walk.figures.contains_key("posts"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_and_their_database_are_killed_at_random() {
    walk(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_and_their_database_are_killed_at_random() {
    walk(3).await;
}
