//! A claim or a post right behind an answer with a call, for every kind of answer.
//!
//! A service may get the call id with the last byte of an answer. A ledger that is slow delays no answer for long, so
//! the request of the service waits for the record instead.

use std::{sync::Arc, time::Duration};

use antiphon::{
    late::ToolSettings,
    ledger::{Ledger, RecordKind},
    repair::Tier,
};
use serde_json::{Value, json};

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::post_with,
        late::{FILM, ID, ask, counted, owner, post_body, says, world_over},
        still::{Answer, Step, World, head, say, sse},
    },
};

const ANN: [(&str, &str); 2] = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
const CLOSE: &str = r#"{"role":"user","content":"go"}"#;

/// One kind of answer: the path and body of its request, and the provider's steps.
struct Kind {
    name: &'static str,
    path: &'static str,
    body: String,
    steps: Vec<Step>,
}

/// The framing of a JSON answer.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// A `content-length`, in one piece.
    Length,
    /// A `content-length`, in two pieces.
    TwoPieces,
    /// Chunked, with white space behind the value.
    Chunked,
}

fn framed(framing: Framing, value: &Value) -> Vec<Step> {
    let text = value.to_string();
    let kind = ("content-type", "application/json");
    let length = text.len().to_string();
    let announced = [kind, ("content-length", length.as_str())];
    let (first, last) = text.split_at(text.len() / 2);
    let mut steps = match framing {
        Framing::Length => vec![head(200, &announced), Step::Bytes(text.clone().into_bytes())],
        Framing::TwoPieces => {
            let pause = Step::Wait(Duration::from_millis(1));
            let [first, last] = [first, last].map(|part| Step::Bytes(part.as_bytes().to_vec()));
            vec![head(200, &announced), first, pause, last]
        }
        Framing::Chunked => vec![head(200, &[kind]), say(first), say(last), say("\r\n")],
    };
    steps.push(Step::End);
    steps
}

fn streamed(events: &[Value]) -> Vec<Step> {
    let event = |data: &Value| {
        let name = data["type"].as_str().map(|name| format!("event: {name}\n"));
        say(format!("{}data: {data}\n\n", name.unwrap_or_default()))
    };
    let events = events.iter().map(event);
    [sse()].into_iter().chain(events).chain([Step::End]).collect()
}

fn messages_value(stop: &Value) -> Value {
    json!({"id": "msg_2", "type": "message", "role": "assistant", "stop_reason": stop,
        "content": [{"type": "tool_use", "id": ID, "name": "render", "input": {}}]})
}

fn chat_value(stop: &Value) -> Value {
    let call = json!({"id": ID, "type": "function", "function": {"name": "render", "arguments": "{}"}});
    json!({"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": stop,
        "message": {"role": "assistant", "content": null, "tool_calls": [call]}}]})
}

fn response_value(status: &str) -> Value {
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": ID, "name": "render", "arguments": "{}",
        "status": "completed"});
    json!({"id": "resp_1", "object": "response", "status": status, "output": [call]})
}

fn gemini_value(stop: &Value) -> Value {
    let call = json!({"functionCall": {"id": ID, "name": "render", "args": {}}});
    json!({"responseId": "r1", "candidates": [{"index": 0, "finishReason": stop,
        "content": {"role": "model", "parts": [call]}}]})
}

const MESSAGES: &str = "/anthropic/v1/messages";
const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";
const GEMINI: &str = "/gemini/v1beta/models/m:generateContent";

fn request_body(path: &str, is_stream: bool) -> String {
    match path {
        MESSAGES | CHAT => format!(r#"{{"model":"m","max_tokens":99,"stream":{is_stream},"messages":[{CLOSE}]}}"#),
        RESPONSES => format!(r#"{{"model":"m","stream":{is_stream},"input":[{CLOSE}]}}"#),
        _ => json!({"contents": [{"role": "user", "parts": [{"text": "go"}]}]}).to_string(),
    }
}

/// Returns every kind of answer with the call.
#[expect(clippy::too_many_lines, reason = "a table")]
fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |name, path, is_stream, steps| {
        let body = request_body(path, is_stream);
        kinds.push(Kind {
            name,
            path,
            body,
            steps,
        });
    };
    for framing in [Framing::Length, Framing::TwoPieces, Framing::Chunked] {
        add(
            "messages",
            MESSAGES,
            false,
            framed(framing, &messages_value(&json!("tool_use"))),
        );
        add("chat", CHAT, false, framed(framing, &chat_value(&json!("tool_calls"))));
        add(
            "responses",
            RESPONSES,
            false,
            framed(framing, &response_value("completed")),
        );
        add("gemini", GEMINI, false, framed(framing, &gemini_value(&json!("STOP"))));
        // Gateways leave the reason of the end out. One whole value is a whole answer all the same.
        add(
            "messages, no stop",
            MESSAGES,
            false,
            framed(framing, &messages_value(&Value::Null)),
        );
        add("chat, no stop", CHAT, false, framed(framing, &chat_value(&Value::Null)));
        add(
            "gemini, no stop",
            GEMINI,
            false,
            framed(framing, &gemini_value(&Value::Null)),
        );
        let array = "/gemini/v1beta/models/m:streamGenerateContent";
        add(
            "gemini, array",
            array,
            true,
            framed(framing, &json!([gemini_value(&json!("STOP"))])),
        );
    }
    let block = json!({"type": "tool_use", "id": ID, "name": "render", "input": {}});
    add(
        "messages, stream",
        MESSAGES,
        true,
        streamed(&[
            json!({"type": "message_start", "message": {"id": "msg_2", "type": "message", "role": "assistant",
            "content": [], "usage": {"input_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ]),
    );
    let call = json!([{"index": 0, "id": ID, "type": "function", "function": {"name": "render", "arguments": "{}"}}]);
    let chunk = |delta: Value, stop: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": stop}]})
    };
    let mut chat = streamed(&[
        chunk(json!({"role": "assistant", "tool_calls": call}), Value::Null),
        chunk(json!({}), json!("tool_calls")),
    ]);
    chat.insert(chat.len() - 1, say("data: [DONE]\n\n"));
    add("chat, stream", CHAT, true, chat);
    let whole = response_value("completed");
    add(
        "responses, stream",
        RESPONSES,
        true,
        streamed(&[
            json!({"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]}),
            json!({"type": "response.completed", "response": whole}),
        ]),
    );
    let sse_path = "/gemini/v1beta/models/m:streamGenerateContent?alt=sse";
    add(
        "gemini, stream",
        sse_path,
        true,
        streamed(&[gemini_value(&json!("STOP"))]),
    );
    kinds
}

/// Returns a world with one verified caller, and the ledger.
async fn verified() -> (World, Arc<SwitchableLedger>, String) {
    let ledger = SwitchableLedger::new();
    let shared: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
    let world = world_over(&shared, |builder| {
        let tool = ToolSettings {
            tier: Tier::Durable,
            ..ToolSettings::default()
        };
        builder.late.tools = [("render".to_owned(), tool)].into();
    });
    let owner = owner(&ask(&world, "s0", &[says("hello")]).await);
    (world, ledger, owner)
}

/// Asks for the answer, and returns it with the time that it took. Waits for nothing behind its last byte.
async fn asks(world: &World, kind: &Kind) -> (Answer, Duration) {
    world.script(kind.steps.clone());
    let began = world.now();
    let answer = world.ask(post_with(kind.path, &ANN, kind.body.as_bytes())).await;
    assert_eq!(answer.status(), 200, "{}: {}", kind.name, answer.text());
    (answer, world.now().saturating_sub(began))
}

async fn claims(world: &World, owner: &str) -> Answer {
    let service = [("authorization", "Bearer token of tools")];
    let claim = json!({"call_id": ID, "owner": owner}).to_string();
    world
        .ask(post_with("/ledger/v1/intents", &service, claim.as_bytes()))
        .await
}

/// The call is in the ledger before the client has the last byte, if a commit takes less than 50 ms.
#[tokio::test(start_paused = true)]
async fn the_call_is_recorded_before_the_last_byte_of_every_kind_of_answer() {
    let mut late = Vec::new();
    for kind in kinds() {
        let (world, ledger, _) = verified().await;
        ledger.delay_syncs(Duration::from_millis(20));
        let (_, took) = asks(&world, &kind).await;
        let now = antiphon::clock::unix_time();
        let callers = ledger.list_principals(RecordKind::Call, None, 9).await.unwrap();
        let mut recorded = 0;
        for caller in callers {
            recorded += ledger
                .list_records(RecordKind::Call, caller, 9, now)
                .await
                .unwrap()
                .len();
        }
        if recorded != 1 || took < Duration::from_millis(20) || took > Duration::from_millis(35) {
            late.push(format!("{}: {recorded} recorded after {took:?}", kind.name));
        }
        assert_eq!(counted(&world, "unrecorded"), 0, "{}", kind.name);
    }
    assert!(late.is_empty(), "{late:#?}");
}

/// A ledger that takes longer than that delays the claim or the post, and neither is refused.
#[tokio::test(start_paused = true)]
async fn a_claim_or_a_post_right_behind_an_answer_waits_for_the_record_of_the_call() {
    let mut refused = Vec::new();
    for kind in kinds() {
        let (world, ledger, owner) = verified().await;
        ledger.delay_syncs(Duration::from_millis(300));
        let (_, took) = asks(&world, &kind).await;
        assert!(took < Duration::from_millis(65), "{}: {took:?}", kind.name);
        let claimed = claims(&world, &owner).await;
        if claimed.status() != 201 {
            refused.push(format!("{}: claim {} {}", kind.name, claimed.status(), claimed.text()));
        }
        assert_eq!(counted(&world, "unrecorded"), 1, "{}", kind.name);

        let (world, ledger, owner) = verified().await;
        ledger.delay_syncs(Duration::from_millis(300));
        asks(&world, &kind).await;
        let posted = post_body(&world, ID, &json!({"owner": owner, "content": FILM})).await;
        if posted.status() != 200 {
            refused.push(format!("{}: post {} {}", kind.name, posted.status(), posted.text()));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// So does every other request about a call, of its service and of its owner.
#[tokio::test(start_paused = true)]
async fn any_request_about_a_call_waits_for_its_record() {
    for (operation, is_owner, status) in [
        ("heartbeat", false, 200),
        ("withdraw", false, 409),
        ("cancel", false, 409),
        ("cancel", true, 409),
    ] {
        let (world, ledger, _) = verified().await;
        ledger.delay_syncs(Duration::from_millis(300));
        asks(&world, &kinds()[0]).await;
        let path = format!("/ledger/v1/calls/{ID}/{operation}");
        let credential = if is_owner {
            ANN[0]
        } else {
            ("authorization", "Bearer token of tools")
        };
        let answer = world.ask(post_with(&path, &[credential], b"{}")).await;
        assert_eq!(
            answer.status(),
            status,
            "{operation}, owner {is_owner}: {}",
            answer.text()
        );
    }
}

/// A record that cannot be written delays a request about its call for a second, and no request about another one.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_never_written_delays_a_claim_for_a_second() {
    let (world, ledger, owner) = verified().await;
    *ledger.damaged.lock().unwrap() = Some(|step| step.key().kind == RecordKind::Call);
    asks(&world, &kinds()[0]).await;
    let began = world.now();
    assert_eq!(claims(&world, &owner).await.status(), 404);
    let took = world.now().saturating_sub(began);
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_millis(1100),
        "{took:?}"
    );
    let began = world.now();
    let posted = post_body(
        &world,
        "toolu_01ZzYyXxWwVvUuTtSsRrQqPp",
        &json!({"owner": owner, "content": FILM}),
    )
    .await;
    assert_eq!(posted.status(), 202);
    assert!(world.now().saturating_sub(began) < Duration::from_millis(100));
}
