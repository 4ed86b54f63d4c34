//! Reported failures with the real binary, a strict provider, a tool service, and `kill -9`.

use std::time::Duration;

use antiphon::auth::TokenHash;
use serde_json::{Value, json};

use crate::{
    proxy::bound_thinking_sessions::words,
    support::{
        app::{get_with, post_with},
        binary::{Install, Process},
        provider::{Provider, Reply, ToolCall},
        wire::Message,
    },
};

const ANN: &[(&str, &str)] = &[("x-api-key", "sk-ann"), ("x-antiphon-session", "one")];
const BEN: &[(&str, &str)] = &[("x-api-key", "sk-ben"), ("x-antiphon-session", "one")];
const IDS: [&str; 3] = [
    "toolu_01AaBb9dE3fG7hJ2",
    "toolu_01CcDd8eF4gH6jK3",
    "toolu_01EeFf7gG5hJ5kL4",
];

pub(crate) fn install(provider: &Provider) -> Install {
    Install::new(&format!(
        "[upstreams.anthropic]\nurl = \"{}\"\n[services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n[tools.read]\ntier = \"durable\"\n[tools.render]\ntier = \"durable\"\n",
        provider.url(),
        TokenHash::hash_token(b"token of tools")
    ))
}

/// A client that stores its own history.
struct Log(Vec<Value>);

impl Log {
    fn new() -> Self {
        Self(vec![json!({"role": "user", "content": "go"})])
    }

    fn says(&mut self, words: &str) -> &mut Self {
        self.0.push(json!({"role": "user", "content": words}));
        self
    }

    fn body(&self) -> String {
        json!({"model": "m", "max_tokens": 99, "messages": self.0}).to_string()
    }

    /// Sends the history and appends the answer to it.
    async fn ask(&mut self, process: &Process, who: &[(&str, &str)]) -> Message {
        let answer = process
            .ask(post_with("/anthropic/v1/messages", who, self.body().as_bytes()))
            .await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        self.0
            .push(json!({"role": "assistant", "content": answer.json()["content"]}));
        answer
    }
}

fn call(id: &str, tool: &str) -> ToolCall {
    ToolCall::new(id, tool, json!({"of": id}))
}

/// Posts a result as the tool service does. Repeats while the call is not in the ledger yet.
async fn posts(process: &Process, id: &str, content: &Value, owner: Option<&str>) -> Message {
    let body = json!({"content": content, "owner": owner}).to_string();
    let body = if owner.is_none() {
        json!({"content": content}).to_string()
    } else {
        body
    };
    process
        .ask(post_with(
            &format!("/ledger/v1/calls/{id}/result"),
            &[("authorization", "Bearer token of tools")],
            body.as_bytes(),
        ))
        .await
}

/// Posts a result until it settles a call.
pub(crate) async fn settles(process: &Process, id: &str, content: &Value) {
    let settled = async {
        loop {
            let answer = posts(process, id, content, None).await;
            match answer.status() {
                200 => return,
                202 => tokio::time::sleep(Duration::from_millis(20)).await,
                other => panic!("{other}: {}", answer.text()),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled)
        .await
        .expect("the result settles");
}

fn sent(provider: &Provider) -> Value {
    serde_json::from_slice(&provider.last().body).unwrap()
}

/// F2: client and proxy die while three tools run. Two results are posted, and the client resumes with its old history.
///
/// <https://github.com/garrytan/gbrain/issues/2273>, <https://github.com/garrytan/gbrain/issues/2274>
#[tokio::test]
async fn results_posted_across_crashes_are_restored() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let mut process = install.start().await;
    let mut log = Log::new();
    provider.reply(Reply::Text("hello".to_owned()));
    log.ask(&process, ANN).await;
    log.says("use three tools");
    provider.reply(Reply::Calls(IDS.iter().map(|id| call(id, "read")).collect()));
    log.ask(&process, ANN).await;
    settles(&process, IDS[0], &json!("first result")).await;
    process.kill();

    let mut process = install.start().await;
    settles(&process, IDS[1], &json!([{"type": "text", "text": "second result"}])).await;
    process.kill();

    let mut process = install.start().await;
    log.says("go on");
    let answer = log.ask(&process, ANN).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=2, placeholder=1"));
    let first = sent(&provider);
    let answers = first["messages"][4]["content"].as_array().unwrap();
    assert_eq!(answers[0]["content"], "first result");
    assert_eq!(answers[1]["content"][0]["text"], "second result");
    assert!(
        answers[2]["content"]
            .as_str()
            .unwrap()
            .contains("no result was recorded")
    );
    process.kill();

    // After one more restart, the next request must repeat the same bytes.
    let mut process = install.start().await;
    log.says("and now?");
    let answer = log.ask(&process, ANN).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=2, placeholder=1"));
    let second = sent(&provider);
    assert_eq!(second["messages"][4], first["messages"][4]);
    let raw = |seen: &crate::support::provider::Seen| String::from_utf8(seen.body.to_vec()).unwrap();
    let seen = provider.seen();
    let (before, after) = (raw(&seen[seen.len() - 2]), raw(&seen[seen.len() - 1]));
    let history = before.split_once("go on").unwrap().0;
    assert!(
        history.contains("second result") && after.starts_with(history),
        "{before}\n{after}"
    );

    // The third result is late: it is appended to the user's message once, and stays there.
    settles(&process, IDS[2], &json!("third result")).await;
    log.says("anything new?");
    let answer = log.ask(&process, ANN).await;
    assert_eq!(
        answer.header("x-antiphon-repair"),
        Some("restored=2, placeholder=1, appended=1")
    );
    let told = sent(&provider)["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .to_string();
    assert!(
        told.contains("anything new?") && told.contains("third result"),
        "{told}"
    );
    process.kill();

    let process = install.start().await;
    log.says("thanks");
    log.ask(&process, ANN).await;
    let text = sent(&provider).to_string();
    assert_eq!(text.matches("third result").count(), 1, "{text}");
    assert!(
        sent(&provider)["messages"].to_string().contains(&told),
        "it stays where it was put"
    );
}

/// F5: the user leaves, the render finishes, and the user comes back. The result is appended once, at the end. Another
/// user with the same call id and the same session header never receives it.
#[tokio::test]
async fn a_result_after_a_closed_session_reaches_only_its_user() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let mut process = install.start().await;
    let mut logs = [Log::new(), Log::new()];
    for (log, who) in logs.iter_mut().zip([ANN, BEN]) {
        provider.reply(Reply::Text("hello".to_owned()));
        log.ask(&process, who).await;
        log.says("render it");
        provider.reply(Reply::Calls(vec![call(IDS[0], "render")]));
        log.ask(&process, who).await;
        // The user goes on without the result.
        log.says("never mind, later");
        provider.reply(Reply::Text("fine".to_owned()));
        let answer = log.ask(&process, who).await;
        assert_eq!(answer.header("x-antiphon-repair"), Some("placeholder=1"));
    }
    let owner = {
        let answer = process
            .ask(post_with(
                "/anthropic/v1/messages",
                ANN,
                logs[0].says("hm").body().as_bytes(),
            ))
            .await;
        logs[0].0.push(json!({"role": "assistant", "content": [words("hm")]}));
        answer.header("x-antiphon-owner").unwrap().to_owned()
    };
    process
        .ask(post_with("/ledger/v1/sessions/one/close", ANN, b"{}"))
        .await;

    // A callback without an owner matches two calls, so it is refused and stored for neither caller.
    let answer = posts(&process, IDS[0], &json!("the render"), None).await;
    assert_eq!(answer.status(), 409, "{}", answer.text());
    assert!(answer.text().contains("ambiguous_call"));
    let answer = posts(&process, IDS[0], &json!("the render"), Some(&owner)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    process.kill();
    process = install.start().await;

    for (log, who, gets) in [(1, BEN, false), (0, ANN, true), (1, BEN, false)].map(|(log, who, gets)| (log, who, gets))
    {
        let log = &mut logs[log];
        log.says("is it done?");
        let answer = log.ask(&process, who).await;
        let told = sent(&provider)["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .to_string();
        assert_eq!(told.contains("the render"), gets, "{told}");
        assert_eq!(
            sent(&provider).to_string().matches("the render").count(),
            usize::from(gets)
        );
        assert_eq!(
            answer.header("x-antiphon-pending-results").is_some(),
            gets,
            "{}",
            answer.text()
        );
    }
    logs[0].says("great");
    logs[0].ask(&process, ANN).await;
    assert_eq!(
        sent(&provider).to_string().matches("the render").count(),
        1,
        "once, at the tail"
    );
    wait_until_acknowledged(&process).await;
}

/// Waits until the result is acknowledged, which the proxy does once the client has seen it.
async fn wait_until_acknowledged(process: &Process) {
    let acknowledged = async {
        let get = "GET /ledger/v1/outstanding HTTP/1.1\r\nhost: localhost\r\nx-api-key: sk-ann\r\n\r\n";
        while process.ask(get).await.text().contains(IDS[0]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let acknowledged = tokio::time::timeout(Duration::from_secs(20), acknowledged);
    acknowledged.await.expect("it is acknowledged");
}

/// F1 and F3: the client is killed during a tool, or its user aborts. Its history keeps a call without a result, first
/// at the end, then deep inside. The provider accepts each request and sees the same bytes each time.
///
/// <https://github.com/github/copilot-cli/issues/3183>, <https://github.com/alchemiststudiosDOTai/tunacode/issues/246>
#[tokio::test]
async fn an_interrupted_call_never_breaks_its_session() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let mut log = Log::new();
    let mut process = install.start().await;
    provider.reply(Reply::Calls(vec![call(IDS[0], "shell")]));
    log.ask(&process, ANN).await;
    let mut known: Vec<Value> = Vec::new();
    for round in 0..4 {
        log.says(&format!("words {round}"));
        if round == 2 {
            // A second call is interrupted while the first is deep in the history.
            provider.reply(Reply::Calls(vec![call(IDS[1], "shell")]));
        }
        let answer = log.ask(&process, ANN).await;
        let wanted = if round == 3 { "placeholder=2" } else { "placeholder=1" };
        assert_eq!(answer.header("x-antiphon-repair"), Some(wanted), "{round}");
        let messages = sent(&provider)["messages"].as_array().unwrap().clone();
        assert_eq!(
            messages[..known.len()],
            known,
            "{round}: what the provider saw is what it sees"
        );
        known = messages;
        process.kill();
        process = install.start().await;
    }
}

/// R13: a new session learns of everything that waits for its user in one request, and acknowledges all of it in another.
#[tokio::test]
async fn everything_that_waits_is_read_and_acknowledged_at_once() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let process = install.start().await;
    let mut log = Log::new();
    provider.reply(Reply::Text("hello".to_owned()));
    log.ask(&process, ANN).await;
    log.says("use three tools");
    provider.reply(Reply::Calls(IDS.iter().map(|id| call(id, "read")).collect()));
    log.ask(&process, ANN).await;
    settles(&process, IDS[0], &json!("1.50 \u{e9}")).await;
    settles(&process, IDS[1], &json!([{"type": "text", "text": "x".repeat(9_000)}])).await;
    let list = |query: &str| get_with(&format!("/ledger/v1/outstanding{query}"), ANN);
    let plain = process.ask(list("")).await.json();
    assert_eq!(plain["outstanding"][0].get("content"), None);
    let whole = process.ask(list("?content=true")).await.json();
    let rows = whole["outstanding"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["content"]), (2, &json!("1.50 \u{e9}")));
    assert_eq!(rows[1]["content"][0]["text"].as_str().unwrap().len(), 9_000);

    let mut deliveries: Vec<&str> = rows.iter().map(|row| row["delivery"].as_str().unwrap()).collect();
    let unknown = "0".repeat(64);
    deliveries.push(&unknown);
    let body = json!({ "deliveries": deliveries }).to_string();
    let ack = |who| post_with("/ledger/v1/deliveries/ack", who, body.as_bytes());
    let foreign = process.ask(ack(&[("x-api-key", "sk-nobody")])).await;
    assert_eq!(foreign.status(), 404, "{}", foreign.text());
    assert_eq!(process.ask(ack(ANN)).await.json(), json!({"acknowledged": 2}));
    assert_eq!(process.ask(list("")).await.json()["outstanding"], json!([]));
    let wrong = process
        .ask(post_with("/ledger/v1/deliveries/ack", ANN, br#"{"deliveries": ["x"]}"#))
        .await;
    assert_eq!(wrong.status(), 422, "{}", wrong.text());
}
