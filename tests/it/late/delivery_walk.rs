//! Random walk over conversations with branches, tabs, retries, aborted answers, overload, compactions, restarts and a
//! slow ledger: every acknowledged result reaches its conversation, once, and stays there.
//!
//! The model knows only what clients and services know. It prints its figures. `STEPS=` sets the number of steps,
//! `SEED=<n>` replays another walk, `SEED=random` takes a new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{ledger::Ledger, proxy::OnOutage};
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::{Builder, post_with},
        bodies::Rng,
        late::{brings, calls, post_to, says, service, tools},
        seed::seed,
        still::{self, World, events::anthropic, say, sse},
    },
};

const STEPS: u64 = 3_000;
/// Steps with one ledger.
const ROUND: u64 = 250;
/// Messages of a conversation before its client starts another.
const MESSAGES_MAX: usize = 16;
const BRANCHES_MAX: usize = 8;
/// Events that a fault is printed with.
const TRACE_MAX: usize = 40;

/// Names of the figures that must be 0.
const FAULTS: [&str; 6] = [
    "to another caller",
    "of a call outside the conversation",
    "twice in a body",
    "prefix changed",
    "settled result contradicted",
    "absent where the user speaks, without a counted reason",
];

/// A conversation as its client has it.
#[derive(Clone, Debug)]
struct Branch {
    caller: usize,
    session: String,
    log: Vec<Value>,
    /// Calls that a compaction has removed from the log, and `true` if it was recorded.
    removed: BTreeMap<String, bool>,
}

/// A call of a caller, by its id.
#[derive(Clone, Debug, Default)]
struct ModelCall {
    session: String,
    /// `true` once the result was acknowledged with 200.
    is_settled: bool,
    /// `true` once an accepted request contained the result.
    is_received: bool,
}

/// What the provider was sent for a history that it has answered.
#[derive(Clone, Debug)]
struct Accepted {
    session: String,
    messages: Vec<Value>,
    /// `true` if the ledger did not answer in time, which was counted: a placeholder in it is not final.
    is_unread: bool,
}

struct Walk {
    trace: Vec<String>,
    rng: Rng,
    on_outage: OnOutage,
    /// Each replica with its handle of the ledger.
    replicas: Vec<(Arc<SwitchableLedger>, World)>,
    /// The replica that gets the next request.
    at: usize,
    owners: [String; 2],
    branches: Vec<Branch>,
    calls: BTreeMap<(usize, String), ModelCall>,
    accepted: BTreeMap<(usize, String), Accepted>,
    sent: BTreeSet<(usize, String)>,
    /// Every last message that the provider was sent for a history. A user may send a message again, in another tab.
    last_messages: BTreeMap<(usize, String), BTreeSet<String>>,
    /// Calls that compactions have removed in each session of a caller, in the order of their history.
    compacted: BTreeMap<(usize, String), Vec<String>>,
    serial: usize,
    figures: BTreeMap<&'static str, u64>,
    faults: Vec<String>,
}

fn settings(ledger: &Arc<SwitchableLedger>, on_outage: OnOutage) -> impl FnOnce(&mut Builder) {
    let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    move |builder| {
        builder.ledger = ledger;
        builder.late.services = vec![service("tools", None, None)];
        builder.proxy.on_outage = on_outage;
    }
}

fn canary(caller: usize, id: &str) -> String {
    format!("RESULT-{caller}-{id}.")
}

/// Returns the ids of the calls in a history.
fn call_ids(log: &[Value]) -> Vec<String> {
    let blocks = log.iter().filter_map(|message| message["content"].as_array()).flatten();
    let calls = blocks.filter(|block| block["type"] == "tool_use");
    calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
}

impl Walk {
    async fn new(seed: u64, on_outage: OnOutage, (replicas, tells): (usize, bool)) -> Self {
        let ledger = if replicas > 1 {
            SwitchableLedger::shared(tells)
        } else {
            SwitchableLedger::new()
        };
        let first = World::with(settings(&ledger, on_outage));
        let mut replicas_of = vec![(ledger, first)];
        for _ in 1..replicas {
            let (ledger, first) = &replicas_of[0];
            let ledger = ledger.replica();
            let world = first.replica(settings(&ledger, on_outage));
            replicas_of.push((ledger, world));
        }
        let mut walk = Self {
            trace: Vec::new(),
            rng: Rng::new(seed),
            on_outage,
            replicas: replicas_of,
            at: 0,
            owners: Default::default(),
            branches: Vec::new(),
            calls: BTreeMap::new(),
            accepted: BTreeMap::new(),
            sent: BTreeSet::new(),
            last_messages: BTreeMap::new(),
            compacted: BTreeMap::new(),
            serial: 0,
            figures: BTreeMap::new(),
            faults: Vec::new(),
        };
        for caller in 0..2 {
            walk.starts(caller);
            let branch = walk.branches.len() - 1;
            walk.speaks(branch).await;
        }
        walk
    }

    fn world(&self) -> &World {
        &self.replicas[self.at].1
    }

    fn ledger(&self) -> &SwitchableLedger {
        &self.replicas[self.at].0
    }

    /// The balancer chooses a replica.
    fn chooses_replica(&mut self) {
        if self.replicas.len() > 1 {
            self.at = self.rng.below(self.replicas.len());
        }
    }

    fn count(&mut self, figure: &'static str) {
        *self.figures.entry(figure).or_default() += 1;
    }

    fn fault(&mut self, figure: usize, told: &str) {
        self.count(FAULTS[figure]);
        let trace = &self.trace[self.trace.len().saturating_sub(TRACE_MAX)..];
        self.faults
            .push(format!("{}: {told}\n{}", FAULTS[figure], trace.join("\n")));
    }

    fn serial(&mut self) -> usize {
        self.serial += 1;
        self.serial
    }

    /// Begins a conversation. Both callers use the same session names.
    fn starts(&mut self, caller: usize) {
        let session = format!("s{}", self.serial());
        self.branches.push(Branch {
            caller,
            session,
            log: Vec::new(),
            removed: BTreeMap::new(),
        });
        if self.branches.len() > BRANCHES_MAX {
            self.branches.remove(0);
        }
    }

    async fn step(&mut self) {
        let branch = self.rng.below(self.branches.len());
        match self.rng.below(100) {
            0..34 => self.speaks(branch).await,
            34..54 => self.posts(branch).await,
            54..60 => self.retries(branch).await,
            60..66 => self.edits(branch),
            66..72 => self.opens_tab(branch),
            72..77 => self.brings_early_answer(branch).await,
            77..82 => self.aborts(branch).await,
            82..86 => self.compacts(branch).await,
            86..92 => self.changes_ledger(),
            92..96 => {
                // The old process ends in the middle of everything.
                self.chooses_replica();
                let ledger = self.ledger().restart();
                let world = self.world().replica(settings(&ledger, self.on_outage));
                self.replicas[self.at] = (ledger, world);
                self.trace.push(format!("restart at={}", self.at));
                self.count("restarts");
            }
            _ => self.starts(self.serial % 2),
        }
    }

    /// The user writes, and the model answers with words or calls.
    async fn speaks(&mut self, branch: usize) {
        if self.branches[branch].log.len() > MESSAGES_MAX {
            self.starts(self.branches[branch].caller);
        }
        let branch = branch.min(self.branches.len() - 1);
        let words = format!("words {}", self.serial());
        self.branches[branch].log.push(says(&words));
        self.sends(branch).await;
    }

    /// The client sends the same history again, which the provider may have answered.
    async fn retries(&mut self, branch: usize) {
        let log = &mut self.branches[branch].log;
        if log.last().is_some_and(|last| last["role"] == "assistant") && log.len() > 2 {
            log.pop();
        }
        if self.branches[branch]
            .log
            .last()
            .is_some_and(|last| last["role"] == "user")
        {
            self.count("retries");
            self.sends(branch).await;
        }
    }

    /// The user goes back to an earlier message, and writes another.
    fn edits(&mut self, branch: usize) {
        let keep = self.rng.below(self.branches[branch].log.len() + 1);
        let log = &mut self.branches[branch].log;
        log.truncate(keep);
        while log.last().is_some_and(|last| last["role"] == "user") {
            log.pop();
        }
        self.count("edits");
    }

    /// A second tab, or a fork, goes on from an earlier message under the same or another session.
    fn opens_tab(&mut self, branch: usize) {
        let mut tab = self.branches[branch].clone();
        tab.log.truncate(self.rng.below(tab.log.len() + 1));
        while tab.log.last().is_some_and(|last| last["role"] == "user") {
            tab.log.pop();
        }
        if self.rng.chance(50) {
            tab.session = format!("s{}", self.serial());
            tab.removed.clear();
        }
        self.branches.push(tab);
        if self.branches.len() > BRANCHES_MAX {
            self.branches.remove(0);
        }
        self.count("tabs");
    }

    /// The client answers its open calls with an early text, as agents do whose tools run in the background.
    async fn brings_early_answer(&mut self, branch: usize) {
        let log = &self.branches[branch].log;
        let Some(last) = log.last().filter(|last| last["role"] == "assistant") else {
            return;
        };
        let ids = call_ids(std::slice::from_ref(last));
        if ids.is_empty() {
            return;
        }
        let answers = ids
            .iter()
            .map(|id| brings(id, &json!(format!("Job started: {id}")))["content"][0].clone());
        let message = json!({"role": "user", "content": answers.collect::<Vec<_>>()});
        self.branches[branch].log.push(message);
        self.count("early answers");
        self.sends(branch).await;
    }

    /// The client goes away in the middle of an answer.
    async fn aborts(&mut self, branch: usize) {
        self.chooses_replica();
        let words = format!("words {}", self.serial());
        let mut aborted = self.branches[branch].clone();
        aborted.log.push(says(&words));
        let begin = format!(
            "{}{}{}",
            anthropic::start(),
            anthropic::text_start(0),
            anthropic::text(0, "half")
        );
        self.world().script([sse(), say(begin), still::wait(60)]);
        let before = self.world().requests().len();
        let mut client = self.world().client();
        client.send(Self::request(&aborted, false)).await;
        self.world().until(self.world().now() + still::secs(8)).await;
        drop(client);
        self.world().settle().await;
        self.world().clear();
        let sent = self.world().requests().len() > before;
        if sent {
            self.checks(&aborted, false, &BTreeSet::new());
        }
        self.count("aborts");
        if self.rng.chance(50) {
            self.branches[branch].log.push(says(&words));
            self.sends(branch).await;
        }
    }

    /// The client replaces the history by a summary.
    async fn compacts(&mut self, branch: usize) {
        self.chooses_replica();
        let removed = call_ids(&self.branches[branch].log);
        if removed.is_empty() || self.branches[branch].log.last().unwrap()["role"] != "assistant" {
            return;
        }
        let mut asked = self.branches[branch].clone();
        asked.log.push(says("summarise"));
        self.world().script(still::json(
            200,
            &answer(&json!([{"type": "text", "text": "a summary"}])),
        ));
        let done = self.world().ask(Self::request(&asked, true)).await;
        self.world().settle().await;
        self.world().clear();
        if done.status() == 200 {
            // The model takes a while to summarise.
            self.world().until(self.world().now() + still::secs(5)).await;
            let is_slow = self.ledger().is_slow();
            let summary = says(&format!("summary {}", self.serial()));
            let branch = &mut self.branches[branch];
            let of_session = self
                .compacted
                .entry((branch.caller, branch.session.clone()))
                .or_default();
            of_session.retain(|id| !removed.contains(id));
            of_session.extend(removed.iter().cloned());
            // A process that is killed before the compaction is recorded has forgotten it.
            branch.removed.extend(removed.into_iter().map(|id| (id, !is_slow)));
            branch.log = vec![summary, json!({"role": "assistant", "content": "I see."})];
            self.trace
                .push(format!("compacted {} {}", branch.caller, branch.session));
            self.count("compactions");
        }
    }

    fn changes_ledger(&mut self) {
        let is_dead = self.on_outage == OnOutage::Refuse && self.rng.chance(30);
        let slow = u64::from(self.rng.chance(50));
        self.ledger().stalls.store(is_dead, Ordering::Relaxed);
        self.ledger().slow_down(Duration::from_secs(slow));
        self.trace.push(format!("ledger dead={is_dead} slow={slow}"));
        self.count(if is_dead { "dead ledger" } else { "slow or quick ledger" });
    }

    /// A tool service posts the result of a call of this branch.
    async fn posts(&mut self, branch: usize) {
        self.chooses_replica();
        let Branch {
            caller, log, removed, ..
        } = &self.branches[branch];
        let (caller, mut ids) = (*caller, call_ids(log));
        ids.extend(removed.keys().cloned());
        if ids.is_empty() {
            return;
        }
        let id = self.rng.pick(&ids).clone();
        let content = json!(canary(caller, &id));
        let posted = post_to(self.world(), &id, &self.owners[caller], &content).await;
        self.trace
            .push(format!("post at={} {caller} {id} {}", self.at, posted.text()));
        match posted.status() {
            200 => {
                let is_first = posted.json()["first"] == true;
                self.count(if is_first { "posts" } else { "repeated posts" });
                self.calls.get_mut(&(caller, id)).unwrap().is_settled = true;
            }
            // Parked until the call is recorded, or not stored at all: no promise to the service, or a later one.
            202 => self.count("parked posts"),
            503 => self.count("failed posts"),
            status => panic!("{id}: {status} {}", posted.text()),
        }
    }

    fn request(branch: &Branch, compacts: bool) -> Vec<u8> {
        let key = format!("sk-{}", branch.caller);
        let mut fields = vec![("x-api-key", &*key), ("x-antiphon-session", &branch.session)];
        if compacts {
            fields.push(("x-claude-code-compaction", "auto"));
        }
        let body = json!({"model": "m", "max_tokens": 99, "messages": branch.log, "tools": tools()}).to_string();
        post_with("/anthropic/v1/messages", &fields, body.as_bytes())
    }

    /// Returns the number of reads of the ledger that came too late.
    fn unread(&self) -> u64 {
        let counts = |(_, world): &(_, World)| world.shared.telemetry.late_result_counts();
        let counts = self.replicas.iter().flat_map(counts);
        counts
            .filter(|(event, _)| *event == "unread")
            .map(|(_, count)| count)
            .sum()
    }

    /// Sends the history of a branch, and checks what the provider received.
    async fn sends(&mut self, branch: usize) {
        self.chooses_replica();
        let sent = self.branches[branch].clone();
        let caller = sent.caller;
        let reply = self.reply(caller);
        let is_overloaded = self.rng.chance(6);
        let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        self.world().script(if is_overloaded {
            still::json(529, overloaded)
        } else {
            still::json(200, &answer(&reply["content"]))
        });
        let settled: BTreeSet<String> = {
            let own = self
                .calls
                .iter()
                .filter(|((of, _), call)| *of == caller && call.is_settled);
            own.map(|((_, id), _)| id.clone()).collect()
        };
        let (before, unread, began) = (self.world().requests().len(), self.unread(), self.world().now());
        let done = self.world().ask(Self::request(&sent, false)).await;
        // A request that used up its time for the ledger, 250 ms or 5 s, has missed a read or a write. Both are counted.
        let took = self.world().now().saturating_sub(began).as_millis();
        let has_missed = (250..260).contains(&took) || took >= 5_000;
        self.world().settle().await;
        self.world().clear();
        self.count("requests");
        let last = sent
            .log
            .last()
            .map(|last| last["content"].to_string())
            .unwrap_or_default();
        self.trace.push(format!(
            "send at={} {} {} n={} last={last} -> {} {:?} unread={} reply={}",
            self.at,
            caller,
            sent.session,
            sent.log.len(),
            done.status(),
            done.header("x-antiphon-repair"),
            self.unread() - unread,
            reply["content"]
        ));
        if let Some(owner) = done.header("x-antiphon-owner") {
            owner.clone_into(&mut self.owners[caller]);
        }
        if self.world().requests().len() == before {
            // Refused here, because the ledger is away.
            assert_eq!(done.status(), 503, "{}", done.text());
            assert_eq!(self.on_outage, OnOutage::Refuse);
            self.count("refused requests");
            return;
        }
        let is_counted = has_missed || self.unread() > unread;
        let body = self.checks(&sent, is_counted, &settled);
        match done.status() {
            200 => self.accepts(branch, &sent, body, is_counted, reply),
            529 => self.count("overloads"),
            status => panic!("{status}: {}\n{}", done.text(), json!(sent.log)),
        }
    }

    /// Notes a history that the provider has accepted, and the model's reply.
    fn accepts(&mut self, branch: usize, sent: &Branch, body: Vec<Value>, is_unread: bool, reply: Value) {
        let key = (sent.caller, json!(sent.log).to_string());
        let text = json!(body).to_string();
        for ((of, id), call) in &mut self.calls {
            call.is_received |= *of == sent.caller && text.contains(&canary(sent.caller, id));
        }
        let accepted = Accepted {
            session: sent.session.clone(),
            messages: body,
            is_unread,
        };
        self.accepted.insert(key, accepted);
        for id in call_ids(std::slice::from_ref(&reply)) {
            let call = ModelCall {
                session: sent.session.clone(),
                ..ModelCall::default()
            };
            self.calls.insert((sent.caller, id), call);
        }
        self.branches[branch].log.push(reply);
    }

    /// Returns the model's next turn: words, or one or two calls.
    fn reply(&mut self, caller: usize) -> Value {
        if self.rng.chance(60) {
            return json!({"role": "assistant", "content": [{"type": "text", "text": format!("reply {}", self.serial())}]});
        }
        // Both callers have calls of the same ids.
        let number = self.calls.keys().filter(|(of, _)| *of == caller).count();
        let mut turn = calls(&format!("toolu_01AbC9dE3fG7hJ2kL4mN{number:04}"));
        if self.rng.chance(30) {
            let second = calls(&format!("toolu_01AbC9dE3fG7hJ2kL4mN{:04}", number + 1));
            turn["content"]
                .as_array_mut()
                .unwrap()
                .push(second["content"][0].clone());
        }
        turn
    }

    /// Checks the last body that the provider received. Returns its messages.
    fn checks(&mut self, sent: &Branch, is_counted: bool, settled: &BTreeSet<String>) -> Vec<Value> {
        let body: Value = serde_json::from_slice(&self.world().requests().pop().unwrap().message.body).unwrap();
        let messages = body["messages"].as_array().unwrap().clone();
        let text = body["messages"].to_string();
        let of_session = self
            .compacted
            .get(&(sent.caller, sent.session.clone()))
            .cloned()
            .unwrap_or_default();
        let shown = call_ids(&sent.log);
        let gone = of_session.into_iter().take_while(|id| !shown.contains(id));
        let may_have: BTreeSet<String> = gone.chain(shown.iter().cloned()).collect();
        let own: BTreeSet<String> = call_ids(&sent.log)
            .into_iter()
            .chain(sent.removed.keys().cloned())
            .collect();
        let before = self.checks_prefix(sent, &messages);
        for (caller, id) in self.calls.keys().cloned().collect::<Vec<_>>() {
            let times = text.matches(&canary(caller, &id)).count();
            if times > 0 && caller != sent.caller {
                self.fault(0, &text);
            } else if times > 0 && !may_have.contains(&id) && !before.contains(&canary(caller, &id)) {
                self.fault(1, &format!("{id} in {text}"));
            } else if times > 1 {
                self.fault(2, &format!("{id} in {text}"));
            }
        }
        let history = (sent.caller, json!(sent.log).to_string());
        let last = messages.last().map(Value::to_string);
        self.last_messages.entry(history.clone()).or_default().extend(last);
        let is_first = self.sent.insert(history);
        let is_retry = !is_first && text.contains("[antiphon: late result of tool call");
        let speaks = sent.log.last().is_some_and(|last| last["content"].is_string());
        for id in own.iter().filter(|id| speaks && settled.contains(*id)) {
            let call = self.calls[&(sent.caller, id.clone())].clone();
            let is_removed = sent.removed.contains_key(id);
            // A summary contains what its model has read, and only the session of the call is compacted with it.
            let is_known = sent.removed.get(id) == Some(&true) && call.session == sent.session;
            let is_due = !is_removed || (is_known && !call.is_received);
            if text.contains(&canary(sent.caller, id)) {
                self.count(if is_removed {
                    "delivered after a compaction"
                } else {
                    "delivered"
                });
            } else if is_due && is_retry {
                self.count("absent, since the message has a text of an earlier request");
            } else if is_due && is_counted {
                self.count("absent, and counted as a missed read or write");
            } else if is_due {
                self.fault(5, &format!("{id} of {sent:?} in {text}"));
            }
        }
        messages
    }

    /// Checks that the body begins with what the provider was sent for the longest history before. Returns that.
    fn checks_prefix(&mut self, sent: &Branch, messages: &[Value]) -> String {
        let key = |length: usize| (sent.caller, json!(sent.log[..length]).to_string());
        let known = (1..sent.log.len())
            .rev()
            .find_map(|length| self.accepted.get(&key(length)));
        let Some(known) = known.cloned() else {
            return String::new();
        };
        self.count("prefixes");
        let (before, now) = (json!(known.messages).to_string(), json!(messages).to_string());
        if messages.starts_with(&known.messages) {
            return before;
        }
        let lost = call_ids(&sent.log).into_iter().any(|id| {
            let canary = canary(sent.caller, &id);
            before.contains(&canary) && !now.contains(&canary)
        });
        if known.is_unread && !lost {
            self.count("prefixes changed by the answer to an unread call");
            return before;
        }
        let changed = known
            .messages
            .iter()
            .zip(messages)
            .position(|(before, now)| before != now);
        let is_resent = changed.is_some_and(|at| {
            let mut sends = (1..sent.log.len()).filter_map(|length| self.last_messages.get(&key(length)));
            sends.any(|accepted| accepted.len() > 1 && accepted.contains(&messages[at].to_string()))
        });
        if is_resent && !lost {
            self.count("prefixes changed by a message that was sent again elsewhere");
            return before;
        }
        // Only the words are known to be the same: the other session may be another conversation.
        if known.session != sent.session && before.contains("before its history was summarised") {
            self.count("prefixes of another session after a compaction");
            return before;
        }
        let told = format!("{} then {}\nwas {before}\n is {now}", known.session, sent.session);
        self.fault(if lost { 4 } else { 3 }, &told);
        before
    }
}

fn answer(content: &Value) -> String {
    let has_calls = content
        .as_array()
        .unwrap()
        .iter()
        .any(|block| block["type"] == "tool_use");
    let stop = if has_calls { "tool_use" } else { "end_turn" };
    json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": stop}).to_string()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The figures of a walk by their names, and what contradicts a promise.
pub(crate) type Walked = (BTreeMap<&'static str, u64>, Vec<String>);

/// Plays a walk with a number of replicas, each of which is told of the others' changes or not.
pub(crate) async fn play_walk(seed: u64, steps: u64, on_outage: OnOutage, replicas: (usize, bool)) -> Walked {
    let (mut figures, mut faults) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for round in 0..steps.div_ceil(ROUND) {
        let mut walk = Walk::new(seed + round, on_outage, replicas).await;
        for step in 0..ROUND.min(steps) {
            walk.step().await;
            let told = walk
                .faults
                .drain(..)
                .map(|told| format!("SEED={} step {step}: {told}", seed + round));
            faults.extend(told);
        }
        for (figure, count) in walk.figures {
            *figures.entry(figure).or_default() += count;
        }
    }
    (figures, faults)
}

/// Plays a walk, prints its figures, and fails if anything contradicts a promise.
async fn walk(on_outage: OnOutage, (replicas, tells): (usize, bool)) {
    let (seed, steps) = (seed(), number("STEPS").unwrap_or(STEPS / 2));
    println!("SEED={seed} STEPS={steps} on_outage={on_outage:?} replicas={replicas} tells={tells}");
    let (mut figures, faults) = play_walk(seed, steps, on_outage, (replicas, tells)).await;
    for figure in FAULTS {
        println!("{figure}: {}", figures.remove(figure).unwrap_or_default());
    }
    for (figure, count) in &figures {
        println!("  {figure}: {count}");
    }
    assert!(faults.is_empty(), "{} faults, the first: {}", faults.len(), faults[0]);
    for wanted in [
        "posts",
        "delivered",
        "delivered after a compaction",
        "prefixes",
        "tabs",
        "overloads",
        "aborts",
    ] {
        assert!(figures.contains_key(wanted), "nothing {wanted}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_result_reaches_its_conversation_once_over_a_slow_ledger() {
    walk(OnOutage::Wait, (1, false)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_ledger_that_refuses_requests_contradicts_nothing() {
    walk(OnOutage::Refuse, (1, false)).await;
}

#[tokio::test(start_paused = true)]
async fn two_replicas_behind_a_random_balancer_keep_every_promise() {
    walk(OnOutage::Wait, (2, true)).await;
}

#[tokio::test(start_paused = true)]
async fn three_replicas_that_refuse_requests_contradict_nothing() {
    walk(OnOutage::Refuse, (3, true)).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_told_of_nothing_keep_every_promise() {
    walk(OnOutage::Wait, (3, false)).await;
}

/// Walks that have contradicted a promise once, each with its fault.
#[tokio::test(start_paused = true)]
async fn walks_that_found_a_fault_find_none() {
    for (seed, replicas, fault) in [(
        32,
        (2, true),
        "reads for a new result used up the time for those of results that were sent before",
    )] {
        let (_, faults) = play_walk(seed, ROUND, OnOutage::Wait, replicas).await;
        assert!(
            faults.is_empty(),
            "SEED={seed}, which found that {fault}: {}",
            faults[0]
        );
    }
}
