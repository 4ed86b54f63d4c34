//! Conversations that continue from responses by their ids, at either replica: lost responses, and calls left open.

use antiphon::wire::Wire;
use serde_json::{Value, json};

use super::{
    fleet::{Answered, Fleet, ask},
    pair::{Replicas, Sent},
};
use crate::{
    proxy::dead_responses::{DROPPED, PATH, sent_back, user},
    support::{
        app::Builder,
        database::new_database,
        judge::{ServerMemory, ServerRules},
        provider::{Provider, Reply, Settings, ruled},
    },
};

const DROPPED_AT_ONCE: (u16, &str, &str) = (200, "1", "dropped=1");

/// Returns the rules of a provider that knows which responses it can continue.
fn remembering_rules() -> ServerRules {
    ServerRules {
        made_here: true,
        ..ServerRules::default()
    }
}

fn remembering() -> Settings {
    ruled(&[Wire::OPENAI_RESPONSES], remembering_rules())
}

fn replicas() -> Replicas {
    Replicas::new(remembering(), |_: &mut Builder| ())
}

/// Returns a body that continues from `previous`. `None` begins a conversation.
fn body(previous: Option<&str>, input: &[Value]) -> Value {
    let mut body = json!({"model": "m", "store": true});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    body["input"] = input.into();
    body
}

/// A client that continues by ids, and stores its own history too.
#[derive(Default)]
struct Chain {
    items: Vec<Value>,
    last: Option<String>,
}

impl Chain {
    /// Sends only what is new, as the provider has the rest.
    async fn turn(&mut self, replicas: &Replicas, at: usize, new: Value) {
        let sent = replicas
            .send(at, PATH, body(self.last.as_deref(), std::slice::from_ref(&new)))
            .await;
        assert_eq!(sent.notes(), (200, "1", "none"), "{sent:#?}");
        self.items.push(new);
        self.note(&sent);
    }

    fn note(&mut self, sent: &Sent) {
        let response = sent.json();
        self.items
            .extend(response["output"].as_array().unwrap().iter().map(sent_back));
        self.last = response["id"].as_str().map(str::to_owned);
    }

    /// Plays a tool loop of three turns, each at one of these replicas.
    async fn play(replicas: &Replicas, places: [usize; 3]) -> Self {
        let mut chain = Self::default();
        replicas.reply(Reply::call("call_1", "f", json!({"a": [1, "x"]})));
        chain.turn(replicas, places[0], user("go")).await;
        let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "done"});
        chain.turn(replicas, places[1], output).await;
        chain.turn(replicas, places[2], user("on")).await;
        chain
    }

    /// Adds a message, and returns the body with every item, as a client sends it that cannot rely on the provider any more.
    fn push_message(&mut self, words: &str) -> Value {
        self.items.push(user(words));
        body(self.last.as_deref(), &self.items)
    }
}

/// The turns of the conversation came through both replicas.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_lost_response_is_left_out_at_either_replica() {
    let mut wrong = Vec::new();
    for at in [0, 1] {
        let replicas = replicas();
        let mut chain = Chain::play(&replicas, [0, 1, 0]).await;
        replicas.lose_responses();
        let dead = chain.last.clone();
        let mended = replicas.send(at, PATH, chain.push_message("more")).await;
        if mended.notes() != DROPPED {
            wrong.push((at, mended.status, mended.sends, mended.repair));
            continue;
        }
        chain.note(&mended);
        // The client goes on with the dead id, at the other replica.
        chain.last = dead;
        let next = replicas.send(1 - at, PATH, chain.push_message("and now?")).await;
        assert_eq!(next.notes(), DROPPED_AT_ONCE, "at {at}: {next:#?}");
        next.assert_continues(&mended, "without the dead id");
    }
    assert!(
        wrong.is_empty(),
        "the client got the refusal, wanted {DROPPED:?}: {wrong:?}"
    );
}

/// The conversation came through one replica, which has learned of its loss.
#[tokio::test(start_paused = true)]
async fn a_response_that_one_replica_found_lost_is_left_out_at_the_other() {
    let replicas = replicas();
    let mut chain = Chain::play(&replicas, [0, 0, 0]).await;
    replicas.lose_responses();
    let whole = chain.push_message("more");
    let mended = replicas.send(0, PATH, &whole).await;
    assert_eq!(mended.notes(), DROPPED, "{mended:#?}");
    let again = replicas.send(1, PATH, &whole).await;
    assert_eq!(again.notes(), DROPPED_AT_ONCE, "{again:#?}");
    assert_eq!(again.last_body, mended.last_body, "the same bytes");
    // Another caller's body is its own matter.
    let other = replicas.send_as("sk-two", 1, PATH, &whole).await;
    assert_eq!(other.notes(), (400, "1", "none"), "{other:#?}");
}

/// The answer after the removal begins a chain of its own, which both replicas know.
#[tokio::test(start_paused = true)]
async fn a_response_after_a_loss_can_be_lost_too() {
    let replicas = replicas();
    let mut chain = Chain::play(&replicas, [0, 0, 0]).await;
    replicas.lose_responses();
    let mended = replicas.send(0, PATH, chain.push_message("more")).await;
    assert_eq!(mended.notes(), DROPPED, "{mended:#?}");
    chain.note(&mended);
    chain.turn(&replicas, 1, user("on")).await;
    replicas.lose_responses();
    let again = replicas.send(1, PATH, chain.push_message("and now?")).await;
    assert_eq!(again.notes(), DROPPED, "{again:#?}");
}

/// A caller that has continued by an id does so again, however long the first input of a conversation is.
#[tokio::test(start_paused = true)]
async fn a_caller_that_continues_by_ids_is_known_to_both_replicas() {
    let replicas = replicas();
    Chain::play(&replicas, [0, 0, 0]).await;
    let mut chain = Chain::default();
    chain.turn(&replicas, 1, user(&"long ".repeat(20_000))).await;
    replicas.lose_responses();
    let mended = replicas.send(1, PATH, chain.push_message("more")).await;
    assert_eq!(mended.notes(), DROPPED, "{}", mended.answer);
}

/// The provider loses its responses after the restart.
#[tokio::test(start_paused = true)]
async fn the_items_of_a_response_outlive_a_restart() {
    let mut process = Replicas::durable(remembering(), |_: &mut Builder| ());
    let mut chain = Chain::play(&process, [0, 0, 0]).await;
    process.restart();
    chain.turn(&process, 0, user("go on")).await;
    process.lose_responses();
    let mended = process.send(0, PATH, chain.push_message("more")).await;
    assert_eq!(mended.notes(), DROPPED, "{mended:#?}");
}

/// The provider has refused the response before the restart.
#[tokio::test(start_paused = true)]
async fn a_lost_response_outlives_a_restart() {
    let mut process = Replicas::durable(remembering(), |_: &mut Builder| ());
    let mut chain = Chain::play(&process, [0, 0, 0]).await;
    process.lose_responses();
    let whole = chain.push_message("more");
    let mended = process.send(0, PATH, &whole).await;
    assert_eq!(mended.notes(), DROPPED, "{mended:#?}");
    process.restart();
    let again = process.send(0, PATH, &whole).await;
    assert_eq!(again.notes(), DROPPED_AT_ONCE, "{again:#?}");
    assert_eq!(again.last_body, mended.last_body, "the same bytes");
}

/// An id that belongs to one conversation, unlike a counter.
const CALL: &str = "call_aB3dE5fG7hJ9kL1mN3pQ5rS7";

/// Has a call left open by a response through one replica, which answers it with a placeholder after the refusal.
///
/// Returns the body, and its outcome.
async fn open_call(replicas: &Replicas) -> (Value, Sent) {
    replicas.reply(Reply::call(CALL, "f", json!({})));
    let first = replicas.send(0, PATH, json!({"model": "m", "input": "go"})).await;
    let body = json!({"model": "m", "previous_response_id": first.json()["id"], "input": "wait"});
    let taught = replicas.send(0, PATH, &body).await;
    assert_eq!(taught.notes(), (200, "2", "placeholder=1"), "{taught:#?}");
    (body, taught)
}

/// The client continues once more from the response with the open call.
#[tokio::test(start_paused = true)]
async fn a_remote_call_with_a_placeholder_needs_no_refusal_at_the_other_replica() {
    let replicas = Replicas::new(Settings::default(), |_: &mut Builder| ());
    let (body, taught) = open_call(&replicas).await;
    let again = replicas.send(1, PATH, &body).await;
    assert_eq!(again.notes(), (200, "1", "placeholder=1"), "{again:#?}");
    assert_eq!(again.last_body, taught.last_body, "the same bytes");
    // Another caller's request teaches itself.
    let other = replicas.send_as("sk-two", 1, PATH, &body).await;
    assert_eq!(other.notes(), (200, "2", "placeholder=1"), "{other:#?}");
}

/// The result of such a call comes too late for its place. The other replica tells it as text, as the first one does.
#[tokio::test(start_paused = true)]
async fn the_late_result_of_a_remote_call_is_told_at_the_other_replica() {
    let replicas = Replicas::new(Settings::default(), |_: &mut Builder| ());
    let (_, taught) = open_call(&replicas).await;
    let output = json!({"type": "function_call_output", "call_id": CALL, "output": "the result"});
    let body = json!({"model": "m", "previous_response_id": taught.json()["id"], "input": [output, user("on")]});
    let told = replicas.send(1, PATH, &body).await;
    assert_eq!(told.notes(), (200, "1", "quoted=1"), "{told:#?}");
    assert!(
        told.last_body.contains("the result") && !told.last_body.contains("function_call_output"),
        "{}",
        told.last_body
    );
}

const OPEN: &str = "messages.0: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_7. \
                    Each `tool_use` block must have a corresponding `tool_result` block in the next message.";

/// Anthropic's message threads leave calls at the provider too.
#[tokio::test(start_paused = true)]
async fn a_call_of_a_thread_with_a_placeholder_needs_no_refusal_at_the_other_replica() {
    let replicas = Replicas::new(Settings::default(), |_: &mut Builder| ());
    replicas.judge_by(|body| (!body.to_string().contains("toolu_7")).then_some(OPEN));
    let thread = json!({"type": "continue", "previous_message_id": "msg_1"});
    let body = json!({"model": "m", "max_tokens": 9, "thread": thread, "messages": [user("hurry")]});
    let taught = replicas.send(0, "/anthropic/v1/messages", &body).await;
    assert_eq!(taught.notes(), (200, "2", "placeholder=1"), "{taught:#?}");
    let again = replicas.send(1, "/anthropic/v1/messages", &body).await;
    assert_eq!(again.notes(), (200, "1", "placeholder=1"), "{again:#?}");
    assert_eq!(again.last_body, taught.last_body, "the same bytes");
}

/// A remote call is answered without a refusal after a restart, too.
#[tokio::test(start_paused = true)]
async fn a_remote_call_with_a_placeholder_outlives_a_restart() {
    let mut process = Replicas::durable(Settings::default(), |_: &mut Builder| ());
    let (body, taught) = open_call(&process).await;
    process.restart();
    let again = process.send(0, PATH, &body).await;
    assert_eq!(again.notes(), (200, "1", "placeholder=1"), "{again:#?}");
    assert_eq!(again.last_body, taught.last_body, "the same bytes");
}

/// Two processes over a real database.
#[tokio::test]
async fn a_response_whose_items_came_through_two_processes_is_left_out_by_both() {
    let Some(url) = new_database().await else { return };
    let provider = Provider::ruled(&[Wire::OPENAI_RESPONSES], remembering_rules()).await;
    let upstream = format!("[upstreams.openai]\nurl = \"{}\"\n", provider.url());
    let fleet = Fleet::start(&provider, &url, 2, &upstream).await;
    let send = async |at: usize, body: Value| -> Answered {
        let fields = [("authorization", "Bearer sk-ann")];
        ask(fleet.replicas[at].data, PATH, &fields, &body)
            .await
            .expect("an answer")
    };
    let (mut items, mut last) = (Vec::new(), None::<String>);
    for (at, words) in [(0, "go"), (1, "on")] {
        let answer = send(at, body(last.as_deref(), &[user(words)])).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        items.push(user(words));
        items.extend(answer.body["output"].as_array().unwrap().iter().map(sent_back));
        last = answer.body["id"].as_str().map(str::to_owned);
    }
    provider.remember(ServerMemory::forget_responses);
    items.push(user("and now?"));
    for at in [0, 1] {
        // The second process may still be reading what the first one has stored.
        let mut answer = send(at, body(last.as_deref(), &items)).await;
        for _ in 0..50 {
            if answer.status == 200 {
                break;
            }
            assert_eq!(answer.status, 400, "{}", answer.body);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            answer = send(at, body(last.as_deref(), &items)).await;
        }
        assert_eq!((answer.status, &*answer.repair), (200, "dropped=1"), "{}", answer.body);
    }
}
