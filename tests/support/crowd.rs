//! Four callers, two of them with equal labels, before one proxy. Clients and tool services act at random, and every
//! fault in what clients and providers receive is listed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use antiphon::{
    late::{LateSettings, ToolSettings},
    ledger::Ledger,
    repair::Tier,
};
use serde_json::{Value, json};

use super::{
    app::post_with,
    bodies::Rng,
    canary::{Call, Canary, canaries, judged, misplaced},
    judge::{self, Refusal},
    late,
    search::{self, Habits, Wrong},
    still::{self, Answer, World},
    talker::{Talker, Turn},
};

/// The provider's next behaviour, and the requests it received.
#[derive(Default)]
struct Desk {
    fails: Option<Vec<still::Step>>,
    says: Vec<still::Step>,
    heard: Vec<(Value, Option<Refusal>)>,
}

/// Event counts by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// A run of the crowd.
pub struct Run {
    rng: Rng,
    habits: Habits,
    ledger: Arc<dyn Ledger>,
    world: World,
    desk: Arc<Mutex<Desk>>,
    talkers: Vec<Talker>,
    pub counts: Counts,
    pub wrong: Vec<(Wrong, String)>,
}

fn world(ledger: &Arc<dyn Ledger>, desk: &Arc<Mutex<Desk>>) -> World {
    let kept = Arc::clone(ledger);
    let durable = ToolSettings {
        tier: Tier::Durable,
        ..ToolSettings::default()
    };
    let world = World::with(|builder| {
        builder.ledger = kept;
        builder.late = LateSettings {
            settling: std::time::Duration::ZERO,
            services: vec![late::service("tools", None, None)],
            tools: ["bash", "render"].map(|name| (name.to_owned(), durable.clone())).into(),
            ..LateSettings::default()
        };
    });
    let desk = Arc::clone(desk);
    world.otherwise(move |request| {
        let mut desk = desk.lock().unwrap();
        let body = request.json();
        let refused = judged(request.line(), &body).err();
        let words = refused.as_ref().map(|refusal| refusal.message.clone());
        desk.heard.push((body, refused));
        if let Some(words) = words {
            let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
            return still::json(400, &error.to_string());
        }
        desk.fails.clone().unwrap_or_else(|| desk.says.clone())
    });
    world
}

/// Returns failures of a provider.
fn failures() -> [Vec<still::Step>; 3] {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let invalid = r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too large"}}"#;
    [
        still::json(529, overloaded),
        still::json(400, invalid),
        vec![still::Step::Reset],
    ]
}

impl Run {
    /// Starts a run in which each caller has had one successful answer.
    pub async fn new(ledger: Arc<dyn Ledger>, seed: u64, habits: Habits) -> Self {
        let desk = Arc::<Mutex<Desk>>::default();
        let mut run = Self {
            rng: Rng::new(seed),
            habits,
            world: world(&ledger, &desk),
            ledger,
            desk,
            talkers: vec![
                Talker::new(0, 0, false),
                Talker::new(1, 0, false),
                Talker::new(2, 2, false),
                Talker::new(3, 3, true),
            ],
            counts: Counts::new(),
            wrong: Vec::new(),
        };
        for who in 0..run.talkers.len() {
            run.talkers[who].repeats = habits.repeats;
            run.talkers[who].same_inputs = habits.same_inputs;
            run.talkers[who].starts();
            run.exchange(who, false).await;
        }
        run
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn is_wrong(&mut self, wrong: Wrong, told: impl Into<String>) {
        self.wrong.push((wrong, told.into()));
    }

    /// Plays one random event.
    pub async fn step(&mut self) {
        let who = self.rng.below(self.talkers.len());
        match self.rng.below(100) {
            0..55 => {
                if self.talkers[who].log.len() > 16 || self.rng.chance(2) {
                    self.talkers[who].starts();
                } else {
                    self.talkers[who].moves(&mut self.rng);
                }
                let fails = self.rng.chance(8);
                self.exchange(who, fails).await;
            }
            55..85 => self.posts(who).await,
            85..91 => self.looks_up(who).await,
            91..95 => drop(self.outstanding(who).await),
            95..97 => self.acks(who).await,
            97 => {
                let path = format!("sessions/s{}/close", self.talkers[who].talk);
                self.api(who, &path, Some("{}")).await;
            }
            98 => {
                self.world = world(&self.ledger, &self.desk);
                self.count("restarts");
            }
            _ => {
                self.world
                    .until(self.world.now() + still::secs(self.rng.below(600) as u64))
                    .await;
            }
        }
    }

    /// Sends the history of a client.
    async fn exchange(&mut self, who: usize, fails: bool) {
        let talker = &mut self.talkers[who];
        let reply = talker.reply(&mut self.rng);
        let Turn::Model { words, calls } = &reply else {
            panic!("{reply:?}")
        };
        let said = talker.answer(words, calls);
        let stop = if calls.is_empty() { "stop" } else { "tool_calls" };
        let answer = if talker.chat {
            let choice = json!({"index": 0, "finish_reason": stop, "message": said});
            json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]})
        } else {
            let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": said["content"],
                "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}})
        };
        let failures = failures();
        {
            let mut desk = self.desk.lock().unwrap();
            desk.says = still::json(200, &answer.to_string());
            desk.fails = fails.then(|| self.rng.pick(&failures).clone());
            desk.heard.clear();
        }
        let (body, due) = (talker.body(), talker.due());
        let fields = talker.fields();
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let request = post_with(talker.path(), &fields, body.as_bytes());
        let answer = self.world.ask(request).await;
        self.world.settle().await;
        self.count("exchanges");
        let heard = std::mem::take(&mut self.desk.lock().unwrap().heard);
        for (sent, refused) in &heard {
            self.searched(who, &body, sent, refused.as_ref(), &answer);
        }
        if let Some((sent, _)) = heard.first() {
            let text = sent.to_string();
            for canary in due {
                self.count("due");
                if !text.contains(&canary) {
                    self.is_wrong(Wrong::Lost, format!("{canary} is not in {text}"));
                }
            }
        }
        let repaired = answer.header("x-antiphon-repair").unwrap_or_default().to_owned();
        for (name, what) in [
            ("quoted", "quoted"),
            ("moved", "moved"),
            ("placeholder", "placeholders"),
        ] {
            if repaired.contains(name) {
                self.count(what);
            }
        }
        let talker = &mut self.talkers[who];
        if let Some(owner) = answer.header("x-antiphon-owner") {
            talker.owner = Some(owner.to_owned());
        }
        if answer.status() == 200 {
            let blocks = heard.last().map(|(sent, _)| judge::blocks(sent)).unwrap_or_default();
            talker.heard(reply, blocks);
        } else {
            self.count("failed");
            if !fails {
                self.is_wrong(Wrong::Answer, format!("{who}: {} {}", answer.status(), answer.text()));
            }
        }
    }

    /// Searches a sent body for faults.
    fn searched(&mut self, who: usize, body: &str, sent: &Value, refused: Option<&Refusal>, answer: &Answer) {
        let (wrong, counts) = search::searched(&self.talkers[who], body, sent, refused);
        for what in counts {
            self.count(what);
        }
        for (kind, told) in wrong {
            let repaired = answer.header("x-antiphon-repair").unwrap_or_default();
            let told = format!("{told}\n  of caller {who} [{repaired}]\n  came {body}\n  sent {sent}");
            self.is_wrong(kind, told);
        }
    }

    /// Posts a result of a tool service, or repeats an earlier post.
    async fn posts(&mut self, who: usize) {
        let early = self.rng.chance(10);
        let call = if early {
            Some(self.talkers[who].coming()).filter(|call| call.strong)
        } else {
            let calls = &self.talkers[who].calls;
            let recent = &calls[calls.len().saturating_sub(6)..];
            (!recent.is_empty()).then(|| self.rng.pick(recent).clone())
        };
        let Some(call) = call else { return };
        let shared = self
            .talkers
            .iter()
            .filter(|other| other.labels == self.talkers[who].labels)
            .count()
            > 1;
        // The owner must be given if another caller with the same id may already be known.
        let names = (early && shared) || self.rng.chance(55);
        self.post(who, &call, names).await;
    }

    async fn post(&mut self, who: usize, call: &Call, names: bool) {
        let said = call.canary('p');
        let content = if self.rng.chance(50) {
            json!(said)
        } else {
            json!([{"type": "text", "text": said}])
        };
        // A second post with other content for the same call is refused.
        let content = if self.rng.chance(90) { json!(said) } else { content };
        let mut body = json!({"content": content});
        if names && (call.strong || self.habits.weak_owners) {
            body["owner"] = json!(self.talkers[who].owner);
        }
        let path = format!("/ledger/v1/calls/{}/result", call.id);
        let service = [("authorization", "Bearer token of tools")];
        let answer = self
            .world
            .ask(post_with(&path, &service, body.to_string().as_bytes()))
            .await;
        let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        self.count(match (answer.status(), code.as_str()) {
            (200, _) if answer.json()["first"] == true => "settled",
            (200, _) => "replayed",
            (202, _) => "parked",
            (409, "ambiguous_call") => "ambiguous",
            (409, "conflict") => "conflicts",
            (404, _) => "unknown",
            _ => "other posts",
        });
        if answer.status() == 200 {
            self.talkers[who].settled.insert((call.talk, call.serial));
        }
        let known = self.talkers[who].calls.contains(call);
        if known && call.strong && !matches!(answer.status(), 200 | 409) {
            self.is_wrong(
                Wrong::Answer,
                format!("{call:?}: {} {}", answer.status(), answer.text()),
            );
        }
        if !canaries(answer.text()).is_empty() {
            self.is_wrong(Wrong::Crossing, format!("a service was told {}", answer.text()));
        }
    }

    /// Sends a request of an owner to the ledger API.
    async fn api(&mut self, who: usize, path: &str, body: Option<&str>) -> Answer {
        let fields = self.talkers[who].fields();
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let path = format!("/ledger/v1/{path}");
        let request = if let Some(body) = body {
            post_with(&path, &fields, body.as_bytes())
        } else {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", fields.concat()).into_bytes()
        };
        let answer = self.world.ask(request).await;
        for canary in canaries(answer.text()) {
            if canary.who != who {
                let told = format!("{path} told {who} {canary:?}: {}", answer.text());
                self.is_wrong(Wrong::Crossing, told);
            }
        }
        answer
    }

    /// Looks up ids of any caller's calls.
    async fn looks_up(&mut self, who: usize) {
        let all: Vec<Call> = self
            .talkers
            .iter()
            .flat_map(|talker| talker.calls.iter().rev().take(6).cloned())
            .collect();
        if all.is_empty() {
            return;
        }
        let asked: Vec<Call> = (0..6).map(|_| self.rng.pick(&all).clone()).collect();
        let ids: Vec<&str> = asked.iter().map(|call| call.id.as_str()).collect();
        let answer = self
            .api(who, "lookup", Some(&json!({"call_ids": ids}).to_string()))
            .await;
        for row in answer.json()["results"].as_array().into_iter().flatten() {
            self.count("looked up");
            for canary in canaries(&row["content"].to_string()) {
                let mut own = self.talkers[who].calls.iter();
                if !own.any(|call| {
                    call.canary('p') == format!("canary-{}-{}-{}-p.", canary.who, canary.talk, canary.serial)
                        && call.id == row["call_id"]
                }) {
                    self.is_wrong(Wrong::Misplaced, format!("lookup of {who}: {row}"));
                }
            }
        }
    }

    /// Returns the names of outstanding deliveries.
    async fn outstanding(&mut self, who: usize) -> Vec<String> {
        let answer = self.api(who, "outstanding", None).await;
        let json = answer.json();
        let rows = json["outstanding"].as_array().into_iter().flatten();
        let mut names = Vec::new();
        for row in rows {
            self.count("outstanding");
            let id = row["call_id"].as_str().unwrap_or_default();
            let known = self.talkers[who].calls.iter().any(|call| call.id == id);
            if !known {
                self.is_wrong(Wrong::Crossing, format!("{who} waits for {row}"));
            }
            names.push(row["delivery"].as_str().unwrap_or_default().to_owned());
        }
        names
    }

    /// Acknowledges a delivery that another caller also has. The other one must stay outstanding.
    async fn acks(&mut self, who: usize) {
        let other = (who + 1) % self.talkers.len();
        let before = self.outstanding(other).await;
        let own = self.outstanding(who).await;
        let Some(name) = before.iter().chain(&own).next() else {
            return;
        };
        let answer = self.api(who, &format!("deliveries/{name}/ack"), Some("")).await;
        self.count(if answer.status() == 200 { "acked" } else { "not acked" });
        if self.outstanding(other).await != before {
            self.is_wrong(Wrong::Crossing, format!("{who} acknowledged what {other} waits for"));
        }
    }
}
