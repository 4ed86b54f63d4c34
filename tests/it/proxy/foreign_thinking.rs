//! Thinking that another provider has signed: refused once, removed in one resend, and left out from then on.

use std::sync::Arc;

use antiphon::{
    ledger::Ledger,
    repair::{Mode, OnForeignThinking},
};
use serde_json::{Value, json};

use crate::support::{
    kept::durable,
    late::memory as ledger,
    still::{Answer, Step, World, json as reply},
    wire::Message,
};

/// Signatures of the provider of these tests begin like Anthropic's. All others are foreign.
pub(crate) const OWN: &str = "EqQBown";

/// Returns the words in which Anthropic refuses the first foreign block of a body. `None` if there is none.
fn refusal(body: &Value) -> Option<String> {
    for (message, found) in body["messages"].as_array().unwrap().iter().enumerate() {
        let blocks = found["content"].as_array().cloned().unwrap_or_default();
        if found["content"].is_array() && blocks.is_empty() {
            return Some(format!("messages.{message}: all messages must have non-empty content"));
        }
        for (block, found) in blocks.iter().enumerate() {
            let is_foreign = !found["signature"].as_str().unwrap_or_default().starts_with(OWN);
            if found["type"] == "thinking" && is_foreign {
                return Some(format!(
                    "messages.{message}.content.{block}: Invalid `signature` in `thinking` block"
                ));
            }
        }
    }
    None
}

/// Answers as a provider that verifies signatures.
pub(crate) fn judge(request: &Message) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    match refusal(&body) {
        Some(words) => {
            let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
            reply(400, &error.to_string())
        }
        None => reply(
            200,
            r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#,
        ),
    }
}

fn thought(signature: &str) -> Value {
    json!({"type": "thinking", "thinking": format!("thought of {signature}"), "signature": signature})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(blocks: impl IntoIterator<Item = Value>) -> Value {
    json!({"role": "assistant", "content": Vec::from_iter(blocks)})
}

/// Returns an answered tool loop whose thinking has this signature, followed by words of the user.
pub(crate) fn turn(number: usize, signature: &str) -> [Value; 4] {
    let id = format!("toolu_{number:02}");
    [
        assistant([
            thought(signature),
            json!({"type": "tool_use", "id": id, "name": "f", "input": {}}),
        ]),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "r"}]}),
        assistant([thought(&format!("{signature}b")), text("done")]),
        user("go on"),
    ]
}

/// Returns a history that begins with the user.
pub(crate) fn history(turns: impl IntoIterator<Item = [Value; 4]>) -> Vec<Value> {
    let turns = turns.into_iter().flatten();
    std::iter::once(user("go")).chain(turns).collect()
}

pub(crate) fn body(messages: &[Value]) -> String {
    json!({"model": "claude-opus-4-5", "max_tokens": 9, "messages": messages}).to_string()
}

fn request(key: &str, body: &str) -> String {
    format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn ask(world: &World, messages: &[Value]) -> Answer {
    world.ask(request("sk-one", &body(messages))).await
}

/// Returns status, number of sends, and the repair header.
fn notes(answer: &Answer) -> (u16, &str, &str) {
    let note = |name| answer.header(name).unwrap_or("-");
    (answer.status(), note("x-antiphon-attempts"), note("x-antiphon-repair"))
}

fn strict_world() -> World {
    strict_world_over(&ledger())
}

fn strict_world_over(ledger: &Arc<dyn Ledger>) -> World {
    let ledger = Arc::clone(ledger);
    let world = World::with(|builder| builder.ledger = ledger);
    world.otherwise(judge);
    world
}

/// Returns the body of the last request upstream.
fn sent(world: &World) -> String {
    let last = world.requests().pop().unwrap();
    String::from_utf8(last.message.body).unwrap()
}

/// Returns a body up to the end of its last message.
pub(crate) fn prefix_of(body: &str) -> &str {
    body.strip_suffix("]}").unwrap()
}

fn second_repairs(world: &World) -> String {
    let page = world.shared.telemetry.encode_metrics();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("antiphon_second_repairs_total{why=\"foreign\"} "));
    line.expect("the counter").to_owned()
}

#[tokio::test(start_paused = true)]
async fn all_foreign_thinking_goes_in_one_resend_and_stays_away() {
    let world = strict_world();
    let mut messages = history([turn(1, "EqQBother"), turn(2, "EqQBthird")]);
    assert!(refusal(&json!({"messages": messages})).is_some(), "refused directly");
    let answer = ask(&world, &messages).await;
    assert_eq!(notes(&answer), (200, "2", "dropped=4"));
    assert_eq!(second_repairs(&world), "1");
    let [first, second] = world.requests().try_into().unwrap();
    assert_eq!(
        first.message.body,
        body(&messages).as_bytes(),
        "the first send is what came"
    );
    let mended: Value = serde_json::from_slice(&second.message.body).unwrap();
    let mut wanted: Value = serde_json::from_str(&body(&messages)).unwrap();
    for at in [1, 3, 5, 7] {
        wanted["messages"][at]["content"].as_array_mut().unwrap().remove(0);
    }
    assert_eq!(mended, wanted, "nothing but the thinking is gone");

    // The session goes on: the provider's own thinking stays, and the bytes before it do not change.
    let before = sent(&world);
    messages.extend(turn(3, OWN));
    let answer = ask(&world, &messages).await;
    assert_eq!(notes(&answer), (200, "1", "dropped=4"));
    let after = sent(&world);
    assert!(after.starts_with(prefix_of(&before)), "earlier bytes stay");
    assert!(after.contains(OWN));
    // A shorter history of the same session too.
    let answer = ask(&world, &messages[..5]).await;
    assert_eq!(notes(&answer), (200, "1", "dropped=2"));
}

#[tokio::test(start_paused = true)]
async fn later_blocks_go_when_first_refused_and_accepted_ones_stay() {
    let world = strict_world();
    let mut messages = history([turn(1, "EqQBother"), turn(2, OWN)]);
    assert_eq!(
        notes(&ask(&world, &messages).await),
        (200, "2", "dropped=4"),
        "nothing was known"
    );
    // This time the provider's own thinking was accepted before the next foreign block came.
    let world = strict_world();
    let mut messages_before = history([turn(1, "EqQBother")]);
    assert_eq!(notes(&ask(&world, &messages_before).await), (200, "2", "dropped=2"));
    messages_before.extend(turn(2, OWN));
    assert_eq!(notes(&ask(&world, &messages_before).await), (200, "1", "dropped=2"));
    let before = sent(&world);
    messages = messages_before;
    messages.extend(turn(3, "EqQBthird"));
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=4"));
    let after = sent(&world);
    assert!(after.starts_with(prefix_of(&before)), "earlier bytes stay");
    assert!(after.contains(OWN), "accepted thinking stays");
    assert_eq!(second_repairs(&world), "2");
}

/// The provider may have accepted older blocks without a look at them: then the third send goes without all of them.
#[tokio::test(start_paused = true)]
async fn accepted_blocks_go_too_if_nothing_else_helps() {
    let world = strict_world();
    world.script(reply(200, "{}"));
    let mut messages = history([turn(1, "EqQBother")]);
    assert_eq!(
        notes(&ask(&world, &messages).await),
        (200, "1", "none"),
        "not verified this time"
    );
    messages.extend(turn(2, "EqQBthird"));
    assert_eq!(notes(&ask(&world, &messages).await), (200, "3", "dropped=4"));
    assert_eq!(notes(&ask(&world, &messages).await), (200, "1", "dropped=4"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_inside_an_open_tool_loop_is_handed_on() {
    let world = strict_world();
    for before in [vec![], vec![turn(1, OWN)]] {
        let sends = if before.is_empty() { "1" } else { "2" };
        let mut messages = history(before);
        messages.extend_from_slice(&turn(2, "EqQBother")[..2]);
        let answer = ask(&world, &messages).await;
        assert_eq!(notes(&answer).0, 400);
        assert_eq!(notes(&answer).1, sends);
        let words = "Invalid `signature` in `thinking` block";
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    // Nothing was learned from the refusals: the provider's own thinking is sent again.
    let messages = history([turn(1, OWN)]);
    assert_eq!(notes(&ask(&world, &messages).await), (200, "1", "none"));
    assert_eq!(sent(&world), body(&messages));
    // Once the user speaks, the loop is over and its thinking may go.
    let mut messages = history([turn(1, OWN)]);
    messages.extend_from_slice(&turn(2, "EqQBother")[..2]);
    messages.push(user("stop"));
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=1"));
}

/// A client that rewinds into a tool loop keeps the thinking of that loop, whatever was refused before.
#[tokio::test(start_paused = true)]
async fn refused_thinking_stays_in_a_loop_that_is_open_again() {
    let world = strict_world();
    let messages = history([turn(1, "EqQBother")]);
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=2"));
    let rewound = &messages[..3];
    assert_eq!(notes(&ask(&world, rewound).await), (400, "1", "none"));
    assert_eq!(sent(&world), body(rewound));
    assert_eq!(notes(&ask(&world, &messages).await), (200, "1", "dropped=2"));
}

#[tokio::test(start_paused = true)]
async fn impossible_signatures_go_at_once_outside_an_open_tool_loop() {
    for signature in [
        "reasoning_content",
        "gAAAAABo",
        r#"{"id":"rs_1"}"#,
        "",
        "sig with blanks",
    ] {
        let world = strict_world();
        let mut messages = history([turn(1, OWN)]);
        messages[1]["content"][0] = thought(signature);
        assert_eq!(
            notes(&ask(&world, &messages).await),
            (200, "1", "dropped=1"),
            "{signature}"
        );
        assert_eq!(second_repairs(&world), "0");
        // In an open loop the provider has the last word.
        let messages = &messages[..3];
        let answer = ask(&world, messages).await;
        assert_eq!(notes(&answer), (400, "1", "none"), "{signature}");
        assert_eq!(sent(&world), body(messages));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_of_foreign_thinking_alone_stays_valid() {
    let world = strict_world();
    let messages = [user("go"), assistant([thought("EqQBother")]), user("go on")];
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=1"));
    let mended: Value = serde_json::from_str(&sent(&world)).unwrap();
    let note = "[antiphon: this message is empty; it contained only thinking of another model.]";
    assert_eq!(
        mended["messages"][1]["content"],
        json!([{"type": "text", "text": note}])
    );
    assert_eq!(notes(&ask(&world, &messages).await), (200, "1", "dropped=1"));
}

/// Facts of one caller are not used for another one, and none is learned unless the resend succeeds.
#[tokio::test(start_paused = true)]
async fn only_the_caller_whose_resend_succeeded_learns() {
    let world = strict_world();
    let messages = history([turn(1, "EqQBother")]);
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=2"));
    world.script(reply(200, "{}"));
    let other = request("sk-two", &body(&messages));
    let answer = world.ask(&other).await;
    assert_eq!(
        notes(&answer),
        (200, "1", "none"),
        "the second caller's body is untouched"
    );
    assert_eq!(sent(&world), body(&messages));

    let world = strict_world();
    world.script(judge(&Message {
        body: body(&messages).into_bytes(),
        ..empty_message()
    }));
    world.script(reply(
        422,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#,
    ));
    assert_eq!(notes(&ask(&world, &messages).await).0, 422);
    world.script(reply(200, "{}"));
    assert_eq!(
        notes(&ask(&world, &messages).await),
        (200, "1", "none"),
        "nothing was proved"
    );
    assert_eq!(sent(&world), body(&messages));
}

fn empty_message() -> Message {
    Message {
        head: String::new(),
        body: Vec::new(),
        complete: true,
    }
}

#[tokio::test(start_paused = true)]
async fn observe_strict_and_off_send_the_clients_bytes() {
    let foreign = history([turn(1, "EqQBother")]);
    let mut impossible = history([turn(1, OWN)]);
    impossible[1]["content"][0] = thought("reasoning_content");
    for (mode, is_on) in [(Mode::Observe, true), (Mode::Strict, true), (Mode::Repair, false)] {
        let world = World::with(|builder| {
            builder.upstreams.iter_mut().for_each(|upstream| upstream.mode = mode);
            if !is_on {
                builder.proxy.policy.foreign_thinking = OnForeignThinking::Ignore;
            }
        });
        world.otherwise(judge);
        let answer = ask(&world, &foreign).await;
        assert_eq!((notes(&answer).0, notes(&answer).1), (400, "1"), "{mode:?}");
        assert_eq!(sent(&world), body(&foreign));
        let sends = world.requests().len();
        let answer = ask(&world, &impossible).await;
        let page = world.shared.telemetry.encode_metrics();
        let count = "antiphon_findings_total{kind=\"foreign_thinking\",format=\"anthropic\"} ";
        let counted = page.lines().find_map(|line| line.strip_prefix(count)).unwrap();
        assert_eq!(counted, if is_on { "1" } else { "0" }, "{mode:?}");
        match mode {
            Mode::Strict => {
                assert_eq!(world.requests().len(), sends, "never sent");
                assert!(answer.text().contains("foreign_thinking"), "{}", answer.text());
            }
            _ => assert_eq!(sent(&world), body(&impossible)),
        }
    }
}

/// After a restart the removed thinking stays away, and what the provider has accepted meanwhile stays.
#[tokio::test(start_paused = true)]
async fn a_restart_changes_no_bytes() {
    let kept = durable();
    let world = strict_world_over(&kept);
    let mut messages = history([turn(1, "EqQBother")]);
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=2"));
    messages.extend(turn(2, OWN));
    assert_eq!(notes(&ask(&world, &messages).await), (200, "1", "dropped=2"));
    let before = sent(&world);
    world.settle().await;

    let world = strict_world_over(&kept);
    assert_eq!(notes(&ask(&world, &messages).await), (200, "1", "dropped=2"));
    assert_eq!(sent(&world), before, "the same bytes");
    // A new refusal takes the new blocks only.
    messages.extend(turn(3, "EqQBthird"));
    let world = strict_world_over(&kept);
    assert_eq!(notes(&ask(&world, &messages).await), (200, "2", "dropped=4"));
    assert!(sent(&world).starts_with(prefix_of(&before)));

    // Another caller's records are never used, and a lost ledger costs one more resend.
    let world = strict_world_over(&kept);
    let answer = world.ask(request("sk-two", &body(&messages[..5]))).await;
    assert_eq!(notes(&answer), (200, "2", "dropped=2"));
    let world = strict_world();
    assert_eq!(notes(&ask(&world, &messages[..5]).await), (200, "2", "dropped=2"));
}
