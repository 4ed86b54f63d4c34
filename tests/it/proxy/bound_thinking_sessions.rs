//! Whole sessions before a provider that binds thinking: every accepted body begins with the accepted one before.

use std::sync::Arc;

use antiphon::{proxy::OnBindingError, repair::Applicability};
use serde_json::{Value, json};

use crate::{
    proxy::refusal_resends::{notes, second_repairs},
    support::{
        app::{App, before, post_with},
        judge,
        late::memory as ledger,
        provider::{Provider, Reply, Seen, binding},
        wire::Message,
    },
};

const KEY: &[(&str, &str)] = &[
    ("x-api-key", "sk-one"),
    ("anthropic-beta", "interleaved-thinking-2025-05-14"),
];
const OTHER_KEY: &[(&str, &str)] = &[
    ("x-api-key", "sk-two"),
    ("anthropic-beta", "interleaved-thinking-2025-05-14"),
];

/// A client that stores its own history.
pub(crate) struct Session {
    pub(crate) body: Value,
}

impl Session {
    pub(crate) fn new() -> Self {
        let tools = json!([{"name": "f", "input_schema": {"type": "object"}}]);
        let thinking = json!({"type": "enabled", "budget_tokens": 1024});
        Self {
            body: json!({"model": "m", "max_tokens": 2048, "system": "rules", "tools": tools, "thinking": thinking,
                "messages": [{"role": "user", "content": "go"}]}),
        }
    }

    pub(crate) fn push(&mut self, role: &str, content: impl Into<Value>) {
        let content: Value = content.into();
        let messages = self.body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": role, "content": content}));
    }

    /// Sends the history.
    async fn send(&self, app: &App, key: &[(&str, &str)]) -> Message {
        let body = self.body.to_string();
        app.ask(post_with("/anthropic/v1/messages", key, body.as_bytes())).await
    }

    /// Sends the history, appends the answer, and returns the number of sends.
    pub(crate) async fn ask(&mut self, app: &App) -> u16 {
        let answer = self.send(app, KEY).await;
        assert_eq!(answer.status(), 200, "{}\n{}", answer.text(), self.body);
        self.push("assistant", answer.json()["content"].clone());
        answer.header("x-antiphon-attempts").unwrap().parse().unwrap()
    }
}

pub(crate) fn call(id: &str) -> Reply {
    Reply::call(id, "f", json!({"of": id}))
}

pub(crate) fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": format!("result of {id}")})
}

pub(crate) fn words(said: &str) -> Value {
    json!({"type": "text", "text": said})
}

fn json_of(seen: &Seen) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

pub(crate) fn accepted(provider: &Provider) -> Vec<Value> {
    let seen = provider.seen();
    seen.iter().filter(|seen| seen.status == 200).map(json_of).collect()
}

/// Asserts that each accepted body begins with the blocks of the one before.
pub(crate) fn assert_stable(provider: &Provider, told: &str) {
    let taken = accepted(provider);
    for pair in taken.windows(2) {
        let (early, late) = (judge::blocks(&pair[0]), judge::blocks(&pair[1]));
        let same = early.iter().zip(&late).take_while(|(one, other)| one == other).count();
        assert!(
            late.starts_with(&early),
            "{told}: differs at block {same}\n{}\n{}",
            pair[0],
            pair[1]
        );
    }
}

/// Plays sequence 2b up to the request with the late result, unsent. Returns the session and an app without the ledger.
async fn late_and_forgotten(provider: &Provider) -> (Session, App) {
    let app = before(provider.address()).start().await;
    let session = late(provider, &app).await;
    (session, before(provider.address()).start().await)
}

/// Plays sequence 2 up to the request with the late result, unsent.
async fn late(provider: &Provider, app: &App) -> Session {
    let mut session = Session::new();
    provider.reply(call("toolu_01Qw9eR7tY5u"));
    assert_eq!(session.ask(app).await, 1);
    session.push("user", "hurry");
    assert_eq!(session.ask(app).await, 1);
    session.push("user", json!([result("toolu_01Qw9eR7tY5u"), words("go on")]));
    session
}

/// Sequence 2: the gap keeps its placeholder in the first send, with and without a restart.
#[tokio::test]
async fn a_late_result_after_thinking_is_quoted() {
    for restarts in [false, true] {
        let (provider, kept) = (Provider::binding().await, ledger());
        let start = || {
            let kept = Arc::clone(&kept);
            before(provider.address()).with(|builder| builder.ledger = kept).start()
        };
        let mut app = start().await;
        let mut session = late(&provider, &app).await;
        if restarts {
            app.running.drain().await;
            app = start().await;
        }
        let answer = session.send(&app, KEY).await;
        assert_eq!(
            notes(&answer),
            (200, "1", "quoted=1, placeholder=1"),
            "{}",
            answer.text()
        );
        session.push("assistant", answer.json()["content"].clone());
        session.push("user", "more");
        assert_eq!(session.ask(&app).await, 1);
        assert_stable(&provider, "2");
    }
}

/// Sequence 2b: the ledger is lost.
#[tokio::test]
async fn a_late_result_after_thinking_is_quoted_after_a_refusal() {
    let provider = Provider::binding().await;
    let (mut session, app) = late_and_forgotten(&provider).await;
    let answer = session.send(&app, KEY).await;
    assert_eq!(
        notes(&answer),
        (200, "2", "quoted=1, placeholder=1"),
        "{}",
        answer.text()
    );
    assert_eq!(
        (second_repairs(&app, "binding"), second_repairs(&app, "pairing")),
        ("1".into(), "0".into())
    );
    let seen = provider.seen();
    assert_eq!(seen.len(), 4);
    let (moved, turned) = (json_of(&seen[2]), json_of(&seen[3]));
    assert_eq!(
        moved["messages"][2]["content"][0]["content"],
        "result of toolu_01Qw9eR7tY5u"
    );
    assert_eq!(
        turned["messages"][2],
        json_of(&seen[1])["messages"][2],
        "the gap keeps what stood there"
    );
    let tail = turned["messages"][4]["content"].as_array().unwrap();
    assert!(
        tail.iter().all(|block| block["type"] == "text") && tail.last() == Some(&words("go on")),
        "{turned}"
    );
    assert!(
        turned["messages"][4]
            .to_string()
            .contains("result of toolu_01Qw9eR7tY5u"),
        "{turned}"
    );
    assert_eq!(turned["thinking"], session.body["thinking"], "no setting");

    session.push("assistant", answer.json()["content"].clone());
    for round in 0..3 {
        session.push("user", format!("more {round}"));
        assert_eq!(session.ask(&app).await, 1, "what was learned holds at once");
    }
    assert_stable(&provider, "2b");
}

/// A fact learned from a refusal is valid only for the same credential.
#[tokio::test]
async fn learned_facts_are_per_credential() {
    let provider = Provider::binding().await;
    let (session, app) = late_and_forgotten(&provider).await;
    for (key, sends) in [(KEY, "2"), (KEY, "1"), (OTHER_KEY, "2"), (OTHER_KEY, "1"), (KEY, "1")] {
        assert_eq!(
            notes(&session.send(&app, key).await),
            (200, sends, "quoted=1, placeholder=1")
        );
    }
}

#[tokio::test]
async fn counts_and_streams_are_resent_too() {
    for (path, streams) in [
        ("/anthropic/v1/messages/count_tokens", false),
        ("/anthropic/v1/messages", true),
    ] {
        let provider = Provider::binding().await;
        let (mut session, app) = late_and_forgotten(&provider).await;
        session.body["stream"] = streams.into();
        let body = session.body.to_string();
        let answer = app.ask(post_with(path, KEY, body.as_bytes())).await;
        assert_eq!(
            notes(&answer),
            (200, "2", "quoted=1, placeholder=1"),
            "{}",
            answer.text()
        );
        assert_eq!(
            answer
                .text()
                .ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
            streams
        );
    }
}

/// Returns a session with thinking whose first words the client changed.
async fn rewritten(provider: &Provider, app: &App, with_late: bool) -> Session {
    let mut session = if with_late {
        late(provider, app).await
    } else {
        let mut session = Session::new();
        session.ask(app).await;
        session.push("user", "and now?");
        session
    };
    session.body["messages"][0]["content"] = "stop".into();
    session
}

fn asks_to_drop(seen: &Seen) -> (bool, bool) {
    let betas = seen.headers.get_all("anthropic-beta").iter();
    let betas: Vec<&str> = betas.map(|value| value.to_str().unwrap()).collect();
    assert!(betas.join(",").contains("interleaved-thinking-2025-05-14"), "{betas:?}");
    let setting = json!({"prefix_mismatch_behavior": "drop_block"});
    (
        json_of(seen)["thinking"]["block_binding"] == setting,
        betas.join(",").contains(binding::CONTROLS),
    )
}

#[tokio::test]
async fn a_changed_prefix_drops_only_the_thinking() {
    for (with_late, sends, done) in [(false, "2", "unbound=1"), (true, "3", "moved=1, unbound=1")] {
        let provider = Provider::binding().await;
        let knows = before(provider.address()).start().await;
        let mut session = rewritten(&provider, &knows, with_late).await;
        let app = before(provider.address()).start().await;
        let before_it = provider.seen().len();
        let answer = session.send(&app, KEY).await;
        assert_eq!(notes(&answer), (200, sends, done), "{}", answer.text());
        let seen = provider.seen();
        assert_eq!((seen.len() - before_it).to_string(), sends);
        assert_eq!(asks_to_drop(&seen[before_it]), (false, false));
        assert_eq!(asks_to_drop(seen.last().unwrap()), (true, true));
        assert_eq!(json_of(seen.last().unwrap())["thinking"]["budget_tokens"], 1024);
        assert_eq!(
            second_repairs(&app, "binding"),
            (seen.len() - before_it - 1).to_string()
        );

        session.push("assistant", answer.json()["content"].clone());
        for round in 0..2 {
            session.push("user", format!("more {round}"));
            assert_eq!(session.ask(&app).await, 1);
            assert_eq!(asks_to_drop(&provider.last()), (true, true));
        }
        // The fact is learned per conversation, recognized by its thinking. Another conversation is sent unchanged.
        let mut other = Session::new();
        other.ask(&app).await;
        other.push("user", "fine");
        assert_eq!(other.ask(&app).await, 1);
        assert_eq!(asks_to_drop(&provider.last()), (false, false));
    }
}

#[tokio::test]
async fn the_surface_setting_returns_the_refusal() {
    for (with_late, sends) in [(false, "1"), (true, "2")] {
        let provider = Provider::binding().await;
        let app = before(provider.address())
            .with(|builder| builder.proxy.on_binding_error = OnBindingError::Surface)
            .start()
            .await;
        let knows = before(provider.address()).start().await;
        let session = rewritten(&provider, &knows, with_late).await;
        let answer = session.send(&app, KEY).await;
        assert_eq!((answer.status(), notes(&answer).1), (400, sends), "{}", answer.text());
        assert!(answer.text().contains("bound to a different conversation"));
        assert!(provider.seen().iter().all(|seen| asks_to_drop(seen) == (false, false)));
    }
}

#[tokio::test]
async fn a_body_with_its_own_binding_setting_is_not_changed() {
    for setting in [json!({"prefix_mismatch_behavior": "error"}), Value::Null, json!({})] {
        let provider = Provider::binding().await;
        let app = before(provider.address()).start().await;
        let mut session = rewritten(&provider, &app, false).await;
        session.body["thinking"]["block_binding"] = setting;
        let answer = session.send(&app, KEY).await;
        assert_eq!(notes(&answer), (400, "1", "none"), "{}", answer.text());
        assert_eq!(provider.last().body, session.body.to_string());
    }
}

/// If the policy forbids inventions, no placeholder replaces a late result.
#[tokio::test]
async fn without_inventions_the_thinking_is_dropped() {
    let provider = Provider::binding().await;
    let app = before(provider.address()).start().await;
    let session = late(&provider, &app).await;
    let careful = before(provider.address())
        .with(|builder| builder.proxy.policy.least_safe = Applicability::Salvage)
        .start()
        .await;
    let answer = session.send(&careful, KEY).await;
    assert_eq!(notes(&answer), (200, "2", "moved=1, unbound=1"), "{}", answer.text());
    assert_eq!(asks_to_drop(&provider.last()), (true, true));
}

/// Parallel calls of one turn, one answered at once, two late and in another order: sequence 6 with bound thinking.
#[tokio::test]
async fn late_results_of_one_turn_are_quoted_together() {
    let provider = Provider::binding().await;
    let app = before(provider.address()).start().await;
    let mut session = Session::new();
    let thought = binding::thinking(&session.body, "three at once");
    let calls = ["a", "b", "c"].map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {}}));
    session.push("assistant", [vec![thought], calls.to_vec()].concat());
    session.push("user", json!([result("a"), words("status?")]));
    assert_eq!(session.ask(&app).await, 1);
    session.push("user", json!([result("c"), result("b"), words("ok")]));
    let answer = session.send(&app, KEY).await;
    assert_eq!(
        notes(&answer),
        (200, "1", "quoted=2, placeholder=2"),
        "{}",
        answer.text()
    );
    let gap = &json_of(&provider.last())["messages"][2]["content"];
    assert_eq!((&gap[0], &gap[3]), (&result("a"), &words("status?")));
    assert_stable(&provider, "sequence 6");
    // A client may remove its oldest thinking. The calls must still be recognized.
    session.push("assistant", answer.json()["content"].clone());
    session.push("user", "more");
    session.body["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    assert_eq!(
        notes(&session.send(&app, KEY).await),
        (200, "1", "quoted=2, placeholder=2")
    );
}

/// Sequence 3: the client fills the gap itself, after thinking. The placeholder returns to the gap, and the client's
/// result follows at the end of the user's message. Both stay in every later request.
#[tokio::test]
async fn a_gap_filled_by_the_client_keeps_its_placeholder_with_bound_thinking() {
    for restarts in [false, true] {
        let (provider, kept) = (Provider::binding().await, ledger());
        let start = || {
            let kept = Arc::clone(&kept);
            before(provider.address()).with(|builder| builder.ledger = kept).start()
        };
        let mut app = start().await;
        let mut session = Session::new();
        provider.reply(call("toolu_01Qw9eR7tY5u"));
        session.ask(&app).await;
        session.push("user", "hurry");
        assert_eq!(session.ask(&app).await, 1);
        let gap = json_of(&provider.last())["messages"][2].clone();
        session.body["messages"][2]["content"] = json!([result("toolu_01Qw9eR7tY5u"), words("hurry")]);
        session.push("user", "next");
        if restarts {
            app.running.drain().await;
            app = start().await;
        }
        let answer = session.send(&app, KEY).await;
        assert_eq!(
            notes(&answer),
            (200, "2", "placeholder=1, appended=1"),
            "{}",
            answer.text()
        );
        let sent = json_of(&provider.last());
        assert_eq!(sent["messages"][2], gap);
        let told = sent["messages"][4].clone();
        // The answer is lost on its way: the client asks again, and its provider is overloaded meanwhile.
        provider.reply(Reply::Status(529, json!({"type": "error"})));
        assert_eq!(session.send(&app, KEY).await.status(), 529);
        assert!(
            told.to_string().contains("late result of tool call toolu_01Qw9eR7tY5u")
                && told.to_string().contains("result of toolu_01Qw9eR7tY5u"),
            "{told}"
        );
        assert!(
            sent.get("thinking")
                .is_some_and(|thinking| thinking.get("block_binding").is_none())
        );
        session.push("assistant", answer.json()["content"].clone());
        for round in 0..3 {
            session.push("user", format!("more {round}"));
            assert_eq!(session.ask(&app).await, 1, "what was learned holds at once");
            let sent = json_of(&provider.last());
            assert_eq!((&sent["messages"][2], &sent["messages"][4]), (&gap, &told));
        }
        assert_stable(&provider, "3");
    }
}
