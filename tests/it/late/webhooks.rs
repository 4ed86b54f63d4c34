//! Events for the webhooks of callers, with the real binary and receivers that fail, hang, redirect and lie.

use std::{process::Command, time::Duration};

use antiphon::auth::TokenHash;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    binary::{Install, Process},
    late::numbered_id,
    provider::{Provider, Reply, ToolCall},
    receiver::{Answer, Received, Receiver},
    state,
    wire::Message,
};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const OTHER_SECRET: &str = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";
const SERVICE: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const FIRST: &str = "toolu_01AaBb9dE3fG7hJ2";
const SECOND: &str = "toolu_01CcDd8eF4gH6jK3";

/// A proxy with two webhooks: one gets Ann's events, the other everybody's with contents.
struct Stage {
    provider: Provider,
    of_ann: Receiver,
    of_all: Receiver,
    install: Install,
    process: Process,
}

impl Stage {
    async fn start() -> Self {
        let provider = Provider::start().await;
        let (of_ann, of_all) = (Receiver::start().await, Receiver::start().await);
        let install = Install::new(&Self::config(&provider, &of_ann, &of_all));
        let process = install.start().await;
        Self {
            provider,
            of_ann,
            of_all,
            install,
            process,
        }
    }

    fn config(provider: &Provider, of_ann: &Receiver, of_all: &Receiver) -> String {
        let hash = |token: &str| TokenHash::hash_token(token.as_bytes());
        format!(
            "[upstreams.anthropic]\nurl = \"{}\"\n\
             [client_tokens]\nann = \"{}\"\nben = \"{}\"\n\
             [services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\non_behalf = true\n\
             [webhooks.ann]\nurl = \"{}\"\nsecret = \"{SECRET}\"\nprincipals = [\"ann\"]\n\
             [webhooks.all]\nurl = \"{}\"\nsecret = \"{OTHER_SECRET}\"\nprincipals = [\"*\"]\ninclude_content = true\n\
             [tools.render]\ntier = \"durable\"\n[tools.brief]\ntier = \"durable\"\nmax_duration = \"1s\"\n\
             [tools.mail]\ntier = \"one_way\"\n",
            provider.url(),
            hash("ann"),
            hash("ben"),
            hash("token of tools"),
            of_ann.url(),
            of_all.url(),
        )
    }

    /// The model calls a tool in a conversation of this client.
    async fn calls(&self, who: &str, id: &str, tool: &str) {
        let log = [json!({"role": "user", "content": "go"})];
        let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
        let fields = [
            ("x-api-key", "sk-one"),
            ("x-antiphon-client-token", who),
            ("x-antiphon-session", "one"),
        ];
        let call = ToolCall::new(id, tool, json!({"scene": "canary"}));
        for reply in [Reply::Text("hello".to_owned()), Reply::Calls(vec![call])] {
            self.provider.reply(reply);
            let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
            let answer = self.process.ask(request).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
        }
    }

    async fn posts(&self, path: &str, body: &Value) -> Message {
        let path = format!("/ledger/v1/{path}");
        self.process
            .ask(post_with(&path, SERVICE, body.to_string().as_bytes()))
            .await
    }

    /// Runs `antiphon webhooks`. Returns its exit code and its output.
    fn webhooks(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        let url = format!("http://{}", self.process.admin);
        let output = state::apart(&mut command)
            .env_remove("ANTIPHON_ADMIN_TOKEN")
            .arg("webhooks")
            .args(arguments)
            .args(["--url", &url])
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// Waits until no message waits.
    async fn waits_for_nothing(&self) {
        while self.webhooks(&["ls"]) != (Some(0), "no message waits\n".to_owned()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Posts a result until its call is recorded and has it.
    async fn settles(&self, id: &str, content: &Value) {
        let path = format!("calls/{id}/result");
        while self.posts(&path, &json!({"content": content})).await.status() != 200 {}
    }
}

fn said(message: &Received) -> (Value, Value) {
    let said = message.json();
    (said["type"].clone(), said["data"].clone())
}

/// R11: a result and a contradiction are told to the webhooks of their caller, with ids, and with contents only if configured.
#[tokio::test]
async fn the_webhooks_of_a_caller_learn_of_its_results() {
    let stage = Stage::start().await;
    stage.calls("ben", SECOND, "render").await;
    stage.settles(SECOND, &json!("ben's film")).await;
    stage.calls("ann", FIRST, "render").await;
    stage
        .settles(FIRST, &json!([{"type": "text", "text": "1.50\u{e9}"}]))
        .await;
    let refused = stage
        .posts(&format!("calls/{FIRST}/result"), &json!({"content": "another"}))
        .await;
    assert_eq!(refused.status(), 409, "{}", refused.text());

    let of_ann = stage.of_ann.wait_for(2).await;
    let of_all = stage.of_all.wait_for(3).await;
    let types = |messages: &[Received]| {
        let mut types: Vec<(String, String)> = messages
            .iter()
            .map(said)
            .map(|(kind, data)| {
                (
                    data["call_id"].as_str().unwrap().to_owned(),
                    kind.as_str().unwrap().to_owned(),
                )
            })
            .collect();
        types.sort();
        types
    };
    let wanted = |id: &str, kind: &str| (id.to_owned(), format!("ledger.result.{kind}"));
    assert_eq!(types(&of_ann), [wanted(FIRST, "conflict"), wanted(FIRST, "settled")]);
    assert_eq!(
        types(&of_all),
        [
            wanted(FIRST, "conflict"),
            wanted(FIRST, "settled"),
            wanted(SECOND, "settled")
        ]
    );
    for message in &of_ann {
        assert!(message.is_signed_with(SECRET) && !message.is_signed_with(OTHER_SECRET));
        let text = String::from_utf8(message.body.clone()).unwrap();
        assert!(!text.contains("1.50") && !text.contains("canary"), "{text}");
    }
    let settled = of_all.iter().find(|message| {
        let (kind, data) = said(message);
        kind == "ledger.result.settled" && data["call_id"] == FIRST
    });
    let text = String::from_utf8(settled.unwrap().body.clone()).unwrap();
    assert!(
        text.contains(r#""content":[{"type":"text","text":"1.50é"}]"#) || text.contains("\\u00e9"),
        "{text}"
    );
    // Received messages are removed, and the deadlines of settled calls, too.
    stage.waits_for_nothing().await;
}

/// R11: the end of a call's time, and the disappearance of a holder, are told when they are true.
#[tokio::test]
async fn a_deadline_and_an_unknown_outcome_are_told() {
    let stage = Stage::start().await;
    let claim = json!({"user": "u", "tool": "mail", "input": {}, "lease": "1s"});
    let granted = stage.posts("intents", &claim).await;
    assert_eq!(granted.status(), 201, "{}", granted.text());
    stage.calls("ann", FIRST, "brief").await;
    stage.calls("ann", SECOND, "render").await;
    let told = stage.of_ann.wait_for(1).await;
    assert_eq!(told.len(), 1);
    let (kind, data) = said(&told[0]);
    assert_eq!(
        (kind, &data["call_id"]),
        (json!("ledger.result.expired"), &json!(FIRST))
    );
    let all = stage.of_all.wait_for(2).await;
    let unknown = all
        .iter()
        .map(said)
        .find(|(kind, _)| kind == "ledger.result.unknown")
        .unwrap();
    assert_eq!(unknown.1["intent"], granted.json()["intent"]);
}

/// R11: a receiver that fails, redirects, lies or hangs gets the event again, also from the next process.
#[tokio::test]
async fn an_event_is_sent_until_its_receiver_has_it() {
    let mut stage = Stage::start().await;
    let elsewhere = Receiver::start().await;
    stage.of_ann.answer([Answer::Redirect(elsewhere.url()), Answer::Hang]);
    stage.calls("ann", FIRST, "render").await;
    stage.settles(FIRST, &json!("done")).await;
    // The first try fails, and the second hangs when the process dies.
    let first = stage.of_ann.wait_for(2).await;
    stage.process.kill();
    stage.process = stage.install.start().await;
    let told = stage.of_ann.wait_for(3).await;
    assert_eq!(first[0].id, told[2].id);
    assert_eq!(told[0].body, told[2].body);
    assert!(elsewhere.received().is_empty());
    // The other webhook did not wait for this one.
    assert!(!stage.of_all.received().is_empty());
}

/// An operator sees the messages that wait, and has one sent at once.
#[tokio::test]
async fn an_operator_lists_and_resends_messages() {
    let stage = Stage::start().await;
    stage
        .of_ann
        .answer([Answer::Status(500, "no".to_owned()), Answer::Close]);
    stage.calls("ann", FIRST, "render").await;
    stage.settles(FIRST, &json!("canary")).await;
    let id = stage.of_ann.wait_for(1).await[0].id.clone();
    let listed = loop {
        let (code, text) = stage.webhooks(&["ls"]);
        assert_eq!(code, Some(0), "{text}");
        // The failure is noted after the answer.
        if text.contains(&id) && text.contains(" 1 ") {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(
        listed.contains("ledger.result.settled") && !listed.contains("canary"),
        "{listed}"
    );
    let (code, text) = stage.webhooks(&["resend", &id]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(stage.of_ann.wait_for(2).await[1].id, id);
    let (code, text) = stage.webhooks(&["resend", "msg_00000000000000000000000000000000_1"]);
    assert_eq!(code, Some(1), "{text}");
}

/// A receiver that hangs with many messages delays no other.
#[tokio::test]
async fn a_receiver_that_hangs_holds_up_no_other() {
    let stage = Stage::start().await;
    stage.of_ann.answer(vec![Answer::Hang; 200]);
    for number in 0..60 {
        let id = numbered_id(number);
        stage.calls("ann", &id, "render").await;
        stage.settles(&id, &json!("film")).await;
    }
    stage.calls("ben", FIRST, "render").await;
    stage.settles(FIRST, &json!("ben's film")).await;
    let of_all = stage.of_all.wait_for(61).await;
    assert!(of_all.iter().any(|message| message.json()["data"]["call_id"] == FIRST));
}

/// An event that waits is not sent to a webhook that gets no events of its caller any more.
#[tokio::test]
async fn an_event_that_waits_follows_the_configuration() {
    let mut stage = Stage::start().await;
    stage.of_ann.answer([Answer::Status(500, String::new())]);
    stage.calls("ann", FIRST, "render").await;
    stage.settles(FIRST, &json!("film")).await;
    let id = stage.of_ann.wait_for(1).await[0].id.clone();
    // The call has ended in time, which a process that is killed at once may not have noted yet.
    while stage.webhooks(&["ls"]).1.contains("ledger.result.expired") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let config = Stage::config(&stage.provider, &stage.of_ann, &stage.of_all);
    stage
        .install
        .write(&config.replace("principals = [\"ann\"]", "principals = [\"ben\"]"));
    stage.process.kill();
    stage.process = stage.install.start().await;
    // Its next try may have been due already.
    stage.webhooks(&["resend", &id]);
    stage.waits_for_nothing().await;
    assert_eq!(stage.of_ann.received().len(), 1);
}

/// A success is one by its status, whatever its body is.
#[tokio::test]
async fn a_success_counts_as_received_whatever_its_body_is() {
    let stage = Stage::start().await;
    for (id, answer) in [
        (FIRST, Answer::Status(200, "x".repeat(200_000))),
        (SECOND, Answer::Stall),
    ] {
        let before = stage.of_ann.received().len();
        stage.of_ann.answer([answer]);
        stage.calls("ann", id, "render").await;
        stage.settles(id, &json!("film")).await;
        stage.waits_for_nothing().await;
        assert_eq!(stage.of_ann.received().len(), before + 1);
    }
}
