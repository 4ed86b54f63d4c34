//! Cancels of calls whose conversation was left, with the real binary and a receiver that fails.

use std::collections::BTreeSet;

use antiphon::auth::TokenHash;
use serde_json::{Value, json};

use crate::support::{
    app::{get_with, post_with},
    binary::{Install, Process},
    provider::{Provider, Reply, ToolCall},
    receiver::{Answer, Receiver},
    wire::{Client, Message, SSE, Upstream, chunk},
};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const SERVICE: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const FIRST: &str = "toolu_01AaBb9dE3fG7hJ2";
const SECOND: &str = "toolu_01CcDd8eF4gH6jK3";
const THIRD: &str = "toolu_01EeFf7gG5hJ5kL4";

/// Writes the configuration of a proxy whose tool `hold` can be undone.
fn install(upstream: &str, cancel_url: &str, settings: &str) -> Install {
    Install::new(&format!(
        "[upstreams.anthropic]\nurl = \"{upstream}\"\n[ledger]\n{settings}\n\
         [services.tools]\ntoken = \"{}\"\nsecret = \"{SECRET}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n\
         [tools.hold]\ntier = \"revertible\"\nmax_duration = \"10m\"\ncancel_url = \"{cancel_url}\"\n\
         [tools.mail]\ntier = \"one_way\"\n",
        TokenHash::hash_token(b"token of tools"),
    ))
}

/// A proxy whose tool `hold` can be undone, its provider, and the receiver of cancels.
struct Stage {
    provider: Provider,
    receiver: Receiver,
    install: Install,
    process: Option<Process>,
}

impl Stage {
    async fn start(settings: &str) -> Self {
        let (provider, receiver) = (Provider::start().await, Receiver::start().await);
        let install = install(&provider.url(), &receiver.url(), settings);
        let process = Some(install.start().await);
        Self {
            provider,
            receiver,
            install,
            process,
        }
    }

    /// The model calls a tool in a new session. Returns the conversation with the call.
    async fn calls(&self, session: &str, id: &str, tool: &str) -> Vec<Value> {
        let mut log = vec![json!({"role": "user", "content": "hold a seat"})];
        self.provider.reply(Reply::Text("hello".to_owned()));
        self.sends(session, &log).await;
        let input = json!({"seat": "canary"});
        self.provider.reply(Reply::Calls(vec![ToolCall::new(id, tool, input)]));
        let answer = self.sends(session, &log).await;
        log.push(json!({"role": "assistant", "content": answer.json()["content"]}));
        log
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    async fn sends(&self, session: &str, log: &[Value]) -> Message {
        let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", session)];
        let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
        let answer = self
            .process()
            .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
            .await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer
    }

    async fn posts(&self, path: &str, fields: &[(&str, &str)], body: &Value) -> Message {
        let path = format!("/ledger/v1/{path}");
        self.process()
            .ask(post_with(&path, fields, body.to_string().as_bytes()))
            .await
    }

    async fn closes(&self, session: &str) {
        let answer = self
            .posts(
                &format!("sessions/{session}/close"),
                &[("x-api-key", "sk-ann")],
                &json!({}),
            )
            .await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
}

/// R7: the service of a left conversation is asked once it is sure, and a result after its word is evidence.
#[tokio::test]
async fn a_call_of_a_closed_session_is_undone() {
    let stage = Stage::start("cancel_grace = \"1s\"").await;
    stage.calls("one", FIRST, "hold").await;
    let owner = stage.posts("intents", SERVICE, &json!({"call_id": FIRST})).await;
    assert_eq!(owner.status(), 201, "{}", owner.text());
    let intent = owner.json()["intent"].as_str().unwrap().to_owned();
    // Of a failure, a redirect and a success the last one counts, and all have one id.
    let elsewhere = Receiver::start().await;
    stage.receiver.answer([
        Answer::Redirect(elsewhere.url()),
        Answer::Status(200, json!({"state": "cancelled"}).to_string()),
    ]);
    stage.closes("one").await;
    let received = stage.receiver.wait_for(2).await;
    assert_eq!(received[0].id, received[1].id);
    assert!(elsewhere.received().is_empty());
    for message in &received {
        assert!(message.is_signed_with(SECRET));
        let said = message.json();
        assert_eq!(said["type"], "ledger.intent.cancel");
        let data = &said["data"];
        assert_eq!(
            (
                &data["call_id"],
                &data["tool"],
                &data["session"],
                &data["reason"],
                &data["intent"]
            ),
            (
                &json!(FIRST),
                &json!("hold"),
                &json!("one"),
                &json!("closed"),
                &json!(intent)
            )
        );
        assert!(!said.to_string().contains("canary"));
    }
    // The answer is noted after it has arrived.
    let path = format!("/ledger/v1/intents/{intent}");
    let view = loop {
        let view = stage.process().ask(get_with(&path, SERVICE)).await;
        if view.json()["state"] != "cancel_requested" {
            break view;
        }
    };
    assert_eq!(view.json()["state"], "cancelled", "{}", view.text());
    let late = stage
        .posts(&format!("calls/{FIRST}/result"), SERVICE, &json!({"content": "held"}))
        .await;
    assert_eq!(late.status(), 410, "{}", late.text());
}

/// R8: a request that goes on within the grace revokes the cancel.
#[tokio::test]
async fn a_conversation_that_comes_back_is_not_cancelled() {
    let stage = Stage::start("cancel_grace = \"2s\"").await;
    let mut log = stage.calls("one", FIRST, "hold").await;
    stage.closes("one").await;
    log.push(json!({"role": "user", "content": "still there?"}));
    stage.provider.reply(Reply::Text("yes".to_owned()));
    stage.sends("one", &log).await;
    // A later evidence about another call is sent after the first one would have been.
    stage.calls("two", SECOND, "hold").await;
    stage.calls("three", THIRD, "mail").await;
    stage.closes("two").await;
    stage.closes("three").await;
    let received = stage.receiver.wait_for(1).await;
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].json()["data"]["call_id"], SECOND);
}

/// R7: a cancel survives `kill -9`, and so does its revocation by a request.
#[tokio::test]
async fn a_cancel_is_sent_after_a_restart() {
    let mut stage = Stage::start("cancel_grace = \"6s\"").await;
    let mut log = stage.calls("one", FIRST, "hold").await;
    stage.calls("two", SECOND, "hold").await;
    stage.closes("one").await;
    stage.closes("two").await;
    // The evidence is stored in the background.
    loop {
        let stored = std::process::Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .args(["store", "ls", "--kind", "outgoing", "--output", "json", "--path"])
            .arg(stage.install.ledger())
            .output()
            .unwrap();
        let text = String::from_utf8(stored.stdout).unwrap();
        if text.matches("\"row\"").count() == 2 {
            break;
        }
    }
    stage.process.take().unwrap().kill();
    stage.process = Some(stage.install.start().await);
    log.push(json!({"role": "user", "content": "and now?"}));
    stage.provider.reply(Reply::Text("fine".to_owned()));
    stage.sends("one", &log).await;
    let received = stage.receiver.wait_for(1).await;
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].json()["data"]["call_id"], SECOND);
}

/// R8: the owner asks, nobody else can, and a tool that will not undo its effect goes on.
#[tokio::test]
async fn an_owner_cancels_its_own_call() {
    let stage = Stage::start("").await;
    stage.calls("one", FIRST, "hold").await;
    stage.calls("two", SECOND, "mail").await;
    let path = format!("calls/{FIRST}/cancel");
    let foreign = stage.posts(&path, &[("x-api-key", "sk-ben")], &json!({})).await;
    assert_eq!(foreign.status(), 404, "{}", foreign.text());
    // A busy machine records calls a moment after their answer.
    let mail = loop {
        let path = format!("calls/{SECOND}/cancel");
        let answer = stage.posts(&path, &[("x-api-key", "sk-ann")], &json!({})).await;
        if answer.status() != 404 {
            break answer;
        }
    };
    assert_eq!((mail.status(), &mail.json()["code"]), (409, &json!("not_undoable")));
    let asked = stage.posts(&path, &[("x-api-key", "sk-ann")], &json!({})).await;
    assert_eq!(
        (asked.status(), asked.json()),
        (202, json!({"state": "cancel_requested"}))
    );
    let received = stage.receiver.wait_for(1).await;
    assert_eq!(received[0].json()["data"]["reason"], "requested");

    let refused = stage.posts(&path, SERVICE, &json!({"refused": true})).await;
    assert_eq!(
        (refused.status(), refused.json()),
        (200, json!({"state": "cancel_refused"}))
    );
    let result = stage
        .posts(&format!("calls/{FIRST}/result"), SERVICE, &json!({"content": "held"}))
        .await;
    assert_eq!(result.status(), 200, "{}", result.text());
    let ended = stage.posts(&path, &[("x-api-key", "sk-ann")], &json!({})).await;
    assert_eq!(ended.status(), 409, "{}", ended.text());
}

/// Returns the requests of an owner to cancel a call, all at once.
async fn ask_at_once(stage: &Stage, id: &str, count: usize) -> Vec<Message> {
    let path = format!("calls/{id}/cancel");
    let fields = [("x-api-key", "sk-ann")];
    let asked = (0..count).map(async |_| stage.posts(&path, &fields, &json!({})).await);
    futures_util::future::join_all(asked).await
}

/// R8: however often an owner asks at once, the service gets one message.
#[tokio::test]
async fn an_owner_that_asks_many_times_at_once_sends_one_message() {
    let stage = Stage::start("").await;
    let counts = [2, 4, 8, 32, 1];
    for (number, count) in counts.into_iter().enumerate() {
        let (session, id) = (format!("many {number}"), format!("toolu_01AaBb9dE3fG7hJ2k{number}"));
        stage.calls(&session, &id, "hold").await;
        // A busy machine records calls a moment after their answer.
        let open = get_with("/ledger/v1/outstanding?state=open", &[("x-api-key", "sk-ann")]);
        while !stage.process().ask(&open).await.text().contains(&id) {}
        for answer in ask_at_once(&stage, &id, count).await {
            let said = (answer.status(), answer.json());
            assert_eq!(said, (202, json!({"state": "cancel_requested"})), "{}", answer.text());
        }
    }
    stage.receiver.wait_for(counts.len()).await;
    // The service has them, and will report: it is not asked again.
    let again = ask_at_once(&stage, "toolu_01AaBb9dE3fG7hJ2k0", 2).await;
    assert!(again.iter().all(|answer| answer.status() == 202));
    stage.calls("last", THIRD, "hold").await;
    while ask_at_once(&stage, THIRD, 1).await[0].status() != 202 {}
    let received = stage.receiver.wait_for(counts.len() + 1).await;
    let calls: Vec<String> = received
        .iter()
        .map(|message| message.json()["data"]["call_id"].to_string())
        .collect();
    let different: BTreeSet<&String> = calls.iter().collect();
    assert_eq!(calls.len(), different.len(), "{calls:?}");
}

/// A history without the call, and silence, are evidence, too.
#[tokio::test]
async fn a_conversation_that_goes_on_without_its_call_or_falls_silent_is_left() {
    let stage = Stage::start("cancel_grace = \"1s\"\ndetach_after = \"2s\"").await;
    stage.calls("one", FIRST, "hold").await;
    stage.calls("two", SECOND, "hold").await;
    // The call is gone, and the conversation goes on.
    let log = [
        json!({"role": "user", "content": "hold a seat"}),
        json!({"role": "assistant", "content": "which one?"}),
        json!({"role": "user", "content": "none"}),
    ];
    stage.provider.reply(Reply::Text("fine".to_owned()));
    stage.sends("one", &log).await;
    let received = stage.receiver.wait_for(2).await;
    let mut said: Vec<(String, String)> = received
        .iter()
        .map(|message| {
            let data = &message.json()["data"];
            (data["call_id"].to_string(), data["reason"].to_string())
        })
        .collect();
    said.sort();
    let reason = |id: &str, why: &str| (json!(id).to_string(), json!(why).to_string());
    assert_eq!(said, [reason(FIRST, "went_on"), reason(SECOND, "silent")]);
}

/// A client that leaves in the middle of a streamed answer has left its call, unless it comes back within the grace.
#[tokio::test]
async fn a_call_of_a_dropped_stream_is_undone() {
    let streamed = |id: &str| {
        let events = [
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                "model": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "tool_use", "id": id, "name": "hold", "input": {}}}),
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": "{\"seat\":\"canary\"}"}}),
            json!({"type": "content_block_stop", "index": 0}),
        ];
        let events = events.map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        // The answer does not end.
        [SSE.as_bytes().to_vec(), chunk(events.concat())].concat()
    };
    let answer = json!({"id": "msg_2", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "here"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 1}})
    .to_string();
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
        answer.len()
    );
    let upstream = Upstream::answering_each([streamed(FIRST), streamed(SECOND), whole.into_bytes()]).await;
    let receiver = Receiver::start().await;
    let url = format!("http://{}", upstream.address);
    let install = install(&url, &receiver.url(), "cancel_grace = \"2s\"");
    let process = install.start().await;
    let request = |session: &str, log: &[Value]| {
        let body = json!({"model": "m", "max_tokens": 99, "stream": true, "messages": log});
        let fields = [("x-api-key", "sk-ann"), ("x-antiphon-session", session)];
        post_with("/anthropic/v1/messages", &fields, body.to_string().as_bytes())
    };
    let mut log = vec![json!({"role": "user", "content": "hold a seat"})];
    let first_request = log.clone();
    let leave = async |session: &str| {
        let mut client = Client::connect(process.data).await;
        client.send(request(session, &first_request)).await;
        client.until("content_block_stop\",\"index\":0").await;
        drop(client);
    };

    leave("one").await;
    leave("two").await;
    let call = json!({"type": "tool_use", "id": FIRST, "name": "hold", "input": {"seat": "canary"}});
    log.push(json!({"role": "assistant", "content": [call]}));
    log.push(json!({"role": "user", "content": "still there?"}));
    let back = process.ask(request("one", &log)).await;
    assert_eq!(back.status(), 200, "{}", back.text());
    let received = receiver.wait_for(1).await;
    assert_eq!(received.len(), 1);
    let data = &received[0].json()["data"];
    assert_eq!(
        (&data["call_id"], &data["session"], &data["reason"]),
        (&json!(SECOND), &json!("two"), &json!("stream_dropped"))
    );
}
