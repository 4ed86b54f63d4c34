//! Two replicas over one shared ledger, before one strict provider, on paused time.

use std::{fmt::Display, sync::Arc};

use antiphon::{ledger::Ledger, provider::ProviderKind};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::{Builder, post_with},
        judge,
        late::memory,
        provider::{Reply, Settings},
        still::{self, Step, World, secs},
        wire::Message,
    },
};

/// The index of a process with a separate ledger, beside two replicas.
pub(crate) const STRANGER: usize = 2;

/// The words in which a provider refuses a body. `None` if it accepts the body.
pub(crate) type Refuses = fn(&Value) -> Option<&'static str>;

/// The outcome of one request.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) sends: String,
    pub(crate) repair: String,
    /// The answer that the client got.
    pub(crate) answer: String,
    /// The body of the last send.
    pub(crate) last_body: String,
}

impl Sent {
    /// Returns the status, the number of sends, and the repair.
    pub(crate) fn notes(&self) -> (u16, &str, &str) {
        (self.status, &self.sends, &self.repair)
    }

    /// Returns the answer as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.answer).unwrap()
    }

    /// Asserts that this body begins with the bytes of an earlier one, up to the brackets behind its last message.
    #[track_caller]
    pub(crate) fn assert_continues(&self, earlier: &Self, label: &str) {
        let (old, new) = (earlier.last_body.as_bytes(), self.last_body.as_bytes());
        let same = old.iter().zip(new).take_while(|(one, other)| one == other).count();
        let end = String::from_utf8_lossy(&old[same..]).into_owned();
        assert!(
            end.len() <= 2,
            "{label}: {end:?} of the earlier body is not in {}",
            self.last_body
        );
    }
}

/// The processes of one caller. A balancer may choose another for each request.
pub(crate) struct Replicas {
    provider: strict_provider::Provider,
    ledgers: Vec<Arc<SwitchableLedger>>,
    worlds: Vec<World>,
    change: Box<dyn Fn(&mut Builder)>,
}

/// Returns a change to one upstream of this kind, under `/x`.
pub(crate) fn only_upstream(kind: ProviderKind) -> impl Fn(&mut Builder) {
    move |builder| {
        builder.upstreams.truncate(1);
        builder.upstreams[0].name.replace_range(.., "x");
        builder.upstreams[0].kind = kind;
    }
}

impl Replicas {
    /// Starts two replicas over one ledger, which tells each of the other's changes.
    pub(crate) fn new(settings: Settings, change: impl Fn(&mut Builder) + 'static) -> Self {
        let first = SwitchableLedger::shared(true);
        let second = first.replica();
        Self::over(vec![first, second], settings, change)
    }

    /// Starts two replicas over one ledger that get no notifications.
    pub(crate) fn untold(settings: Settings, change: impl Fn(&mut Builder) + 'static) -> Self {
        let first = SwitchableLedger::shared(false);
        let second = first.replica();
        Self::over(vec![first, second], settings, change)
    }

    /// Starts one process over a ledger that outlives it.
    pub(crate) fn durable(settings: Settings, change: impl Fn(&mut Builder) + 'static) -> Self {
        Self::over(vec![SwitchableLedger::new()], settings, change)
    }

    fn over(ledgers: Vec<Arc<SwitchableLedger>>, settings: Settings, change: impl Fn(&mut Builder) + 'static) -> Self {
        let provider = strict_provider::Provider::new(settings);
        let first = World::with(|builder| {
            builder.ledger = Arc::<SwitchableLedger>::clone(&ledgers[0]);
            change(builder);
        });
        let own = provider.clone();
        first.otherwise(move |request| answer_of(&own, request));
        let mut replicas = Self {
            provider,
            worlds: vec![first],
            change: Box::new(change),
            ledgers: Vec::new(),
        };
        for ledger in &ledgers[1..] {
            let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
            let world = replicas.start_process(ledger);
            replicas.worlds.push(world);
        }
        replicas.ledgers = ledgers;
        let stranger = replicas.start_process(memory());
        replicas.worlds.push(stranger);
        replicas
    }

    fn start_process(&self, ledger: Arc<dyn Ledger>) -> World {
        self.worlds[0].replica(|builder| {
            builder.ledger = ledger;
            (self.change)(builder);
        })
    }

    /// Kills the only process, and starts another over its ledger.
    pub(crate) fn restart(&mut self) {
        self.ledgers[0] = self.ledgers[0].restart();
        self.worlds[0] = self.start_process(Arc::<SwitchableLedger>::clone(&self.ledgers[0]));
    }

    /// Restarts the only process with another URL under the name of its upstream.
    pub(crate) fn restart_before_another_server(&mut self) {
        let change = std::mem::replace(&mut self.change, Box::new(|_| {}));
        self.change = Box::new(move |builder| {
            change(builder);
            builder.upstreams[0].base_path.replace_range(.., "/moved");
        });
        self.restart();
    }

    /// Returns a process.
    pub(crate) fn world(&self, at: usize) -> &World {
        &self.worlds[at]
    }

    /// Returns the ledger, as a process reaches it.
    pub(crate) fn ledger(&self, at: usize) -> &SwitchableLedger {
        &self.ledgers[at]
    }

    /// Queues the model's next answer.
    pub(crate) fn reply(&self, reply: Reply) {
        self.provider.reply(reply);
    }

    /// Makes the provider lose every response.
    pub(crate) fn lose_responses(&self) {
        self.provider.remember(judge::ServerMemory::forget_responses);
    }

    /// Makes the provider accept the next body, whatever it is.
    pub(crate) fn accept_next(&self) {
        self.worlds[0].script(still::json(200, "{}"));
    }

    /// Makes the provider refuse the next body, whatever it is.
    pub(crate) fn refuse_next(&self, words: &str) {
        self.worlds[0].script(refusal(words));
    }

    /// Replaces the provider by one that has no other rule than this.
    pub(crate) fn judge_by(&self, refuses: Refuses) {
        self.answer_by(move |request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            refuses(&body).map_or_else(|| still::json(200, "{}"), refusal)
        });
    }

    /// Replaces the provider.
    pub(crate) fn answer_by(&self, answer: impl FnMut(&Message) -> Vec<Step> + Send + 'static) {
        self.worlds[0].otherwise(answer);
    }

    /// Sends a body to a replica, and waits until everything that it stores is stored and told.
    pub(crate) async fn send(&self, at: usize, path: &str, body: impl Display) -> Sent {
        self.send_as("sk-one", at, path, body).await
    }

    /// Returns the same as [`Replicas::send`], for another caller.
    pub(crate) async fn send_as(&self, key: &str, at: usize, path: &str, body: impl Display) -> Sent {
        let (world, bearer) = (&self.worlds[at], format!("Bearer {key}"));
        let fields = [
            ("authorization", bearer.as_str()),
            ("x-api-key", key),
            ("x-goog-api-key", key),
            ("anthropic-beta", "interleaved-thinking-2025-05-14"),
        ];
        let answer = world.ask(post_with(path, &fields, body.to_string().as_bytes())).await;
        // Background writes, and the news of them, take less.
        world.until(world.now() + secs(2)).await;
        let note = |name| answer.header(name).unwrap_or("-").to_owned();
        let last = world.requests().pop().unwrap();
        Sent {
            status: answer.status(),
            sends: note("x-antiphon-attempts"),
            repair: note("x-antiphon-repair"),
            answer: answer.text().to_owned(),
            last_body: String::from_utf8(last.message.body).unwrap(),
        }
    }
}

/// Returns a 400 in these words.
fn refusal(words: &str) -> Vec<Step> {
    let error = json!({"type": "error", "error": {"message": words, "type": "invalid_request_error", "code": null}});
    still::json(400, &error.to_string())
}

/// Returns the answer of the strict provider, which takes no time.
fn answer_of(provider: &strict_provider::Provider, request: &Message) -> Vec<Step> {
    let mut line = request.line().split(' ');
    let mut read = http::Request::builder()
        .method(line.next().unwrap())
        .uri(line.next().unwrap());
    for (name, value) in request.head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
        read = read.header(name, value);
    }
    let read = read.body(Full::new(Bytes::from(request.body.clone()))).unwrap();
    let answer = provider.answer(read).now_or_never().expect("an answer at once");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().now_or_never().expect("a whole body");
    let body = body.expect("a body without an error").to_bytes();
    still::json(status, std::str::from_utf8(&body).unwrap())
}
