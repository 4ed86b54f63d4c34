//! Stories of intents with the real binary: a user who starts over, and a holder that disappears.

use std::{process::Command, time::Duration};

use antiphon::auth::TokenHash;
use serde_json::{Value, json};

use super::stories::settles;
use crate::support::{
    app::{get_with, post_with},
    binary::{Install, Process},
    provider::{Provider, Reply, ToolCall},
    state,
    wire::Message,
};

const SERVICE: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const FIRST: &str = "toolu_01AaBb9dE3fG7hJ2";
const SECOND: &str = "toolu_01CcDd8eF4gH6jK3";
const THIRD: &str = "toolu_01EeFf7gG5hJ5kL4";
const FOURTH: &str = "toolu_01GgHh6hJ3kL3mN5";
const FIFTH: &str = "toolu_01JjKk5jL1mN1pQ6";
const SIXTH: &str = "toolu_01LlMm4kN9pQ8rS7";

fn install(provider: &Provider) -> Install {
    let hash = |token: &str| TokenHash::hash_token(token.as_bytes());
    Install::new(&format!(
        "[upstreams.anthropic]\nurl = \"{}\"\n\
         [client_tokens]\nann = {{ token = \"{}\", personal = true }}\nben = {{ token = \"{}\", personal = true }}\n\
         [services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\non_behalf = true\n\
         [tools.render]\ntier = \"durable\"\nintent = \"user\"\n\
         [tools.mail]\ntier = \"one_way\"\nintent = \"user\"\n",
        provider.url(),
        hash("ann"),
        hash("ben"),
        hash("token of tools")
    ))
}

async fn sends(process: &Process, who: &str, session: &str, more: &[(&str, &str)], log: &[Value]) -> Message {
    let fields = [
        ("x-api-key", "sk-one"),
        ("x-antiphon-client-token", who),
        ("x-antiphon-session", session),
    ];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let fields = [&fields[..], more].concat();
    let answer = process
        .ask(post_with("/anthropic/v1/messages", &fields, body.as_bytes()))
        .await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer
}

/// The model calls `render` in a new session. Returns the conversation with the call, and the owner.
async fn calls(
    process: &Process,
    provider: &Provider,
    (who, session): (&str, &str),
    id: &str,
    input: &Value,
) -> (Vec<Value>, String) {
    let mut log = vec![json!({"role": "user", "content": "render it"})];
    provider.reply(Reply::Text("hello".to_owned()));
    let answer = sends(process, who, session, &[], &log).await;
    let owner = answer.header("x-antiphon-owner").unwrap().to_owned();
    provider.reply(Reply::Calls(vec![ToolCall::new(id, "render", input.clone())]));
    let answer = sends(process, who, session, &[], &log).await;
    log.push(json!({"role": "assistant", "content": answer.json()["content"]}));
    log.push(json!({"role": "user", "content": "and now?"}));
    (log, owner)
}

/// Returns what the provider got as the result of a call.
fn result_of(provider: &Provider, id: &str) -> String {
    let body: Value = serde_json::from_slice(&provider.last().body).unwrap();
    let messages = body["messages"].as_array().unwrap().clone();
    let mut blocks = messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let result = blocks.rfind(|block| block["tool_use_id"] == id).unwrap();
    result["content"].to_string()
}

async fn claims(process: &Process, body: &Value) -> Message {
    let body = body.to_string();
    process
        .ask(post_with("/ledger/v1/intents", SERVICE, body.as_bytes()))
        .await
}

/// Runs `antiphon intents` against a process. Returns its exit code and its output.
fn intents(process: &Process, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    let url = format!("http://{}", process.admin);
    let output = state::apart(&mut command)
        .env_remove("ANTIPHON_ADMIN_TOKEN")
        .arg("intents")
        .args(arguments)
        .args(["--url", &url])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// R1, R4, R5: the user starts over while a render runs, and the world sees one render.
#[tokio::test]
async fn a_user_who_starts_over_gets_the_result_of_the_first_run() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let process = install.start().await;
    let film = json!({"scene": 1, "size": {"w": 2, "h": 1}});
    let (_, owner) = calls(&process, &provider, ("ann", "one"), FIRST, &film).await;
    let granted = claims(&process, &json!({"call_id": FIRST, "owner": owner})).await;
    assert_eq!(granted.status(), 201, "{}", granted.text());
    assert_eq!(granted.json()["scope"], "user");

    // Another conversation, and the same input in another form.
    let again = json!({"size": {"h": 1.0, "w": 2}, "scene": 1});
    let (log, owner) = calls(&process, &provider, ("ann", "two"), SECOND, &again).await;
    let refused = claims(&process, &json!({"call_id": SECOND, "owner": owner})).await;
    assert_eq!(
        (refused.status(), refused.json()["type"].as_str()),
        (409, Some("urn:antiphon:intent:in-flight"))
    );
    sends(&process, "ann", "two", &[], &log).await;
    assert!(
        result_of(&provider, SECOND).contains("no result was recorded"),
        "it still runs"
    );

    settles(&process, FIRST, &json!("the film")).await;
    let replayed = claims(&process, &json!({"call_id": SECOND, "owner": owner})).await;
    assert_eq!(
        (replayed.status(), &replayed.json()["result"]["content"]),
        (200, &json!("the film"))
    );
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
    let page = process.ask_admin(get_with("/metrics", &[])).await;
    for answer in ["granted", "in_flight", "replayed"] {
        let line = format!("antiphon_ledger_claims_total{{answer=\"{answer}\"}} 1\n");
        assert!(page.text().contains(&line), "{line}");
    }

    // A third conversation loses the result of its call, and gets that of the first.
    let (log, _) = calls(&process, &provider, ("ann", "three"), THIRD, &film).await;
    let answer = sends(&process, "ann", "three", &[], &log).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=1"));
    let got = result_of(&provider, THIRD);
    assert!(
        got.contains("result of an earlier call with the same input, from 20") && got.contains("the film"),
        "{got}"
    );
    // The answer is final, so that every later request has the same bytes.
    let mut later = log.clone();
    later.push(json!({"role": "assistant", "content": "fine"}));
    later.push(json!({"role": "user", "content": "thanks"}));
    sends(&process, "ann", "three", &[("x-antiphon-intent", "new")], &later).await;
    assert_eq!(result_of(&provider, THIRD), got);

    // The user wants it twice; another user wants the same; the input is another one.
    let (log, _) = calls(&process, &provider, ("ann", "four"), FOURTH, &film).await;
    sends(&process, "ann", "four", &[("x-antiphon-intent", "new")], &log).await;
    assert!(result_of(&provider, FOURTH).contains("no result was recorded"));
    let (log, _) = calls(&process, &provider, ("ben", "one"), FIFTH, &film).await;
    sends(&process, "ben", "one", &[], &log).await;
    assert!(result_of(&provider, FIFTH).contains("no result was recorded"));
}

/// A client that loses the result of its own call gets that one back, and not that of an earlier run.
#[tokio::test]
async fn a_result_that_the_client_has_brought_comes_before_that_of_an_earlier_run() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let process = install.start().await;
    let film = json!({"scene": 1});
    calls(&process, &provider, ("ann", "one"), FIRST, &film).await;
    settles(&process, FIRST, &json!("the first film")).await;

    let (mut log, _) = calls(&process, &provider, ("ann", "two"), SIXTH, &film).await;
    let mut whole = log.clone();
    whole[2] = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": SIXTH, "content": "the second film"},
        {"type": "text", "text": "and now?"},
    ]});
    provider.reply(Reply::Text("fine".to_owned()));
    sends(&process, "ann", "two", &[], &whole).await;
    log.push(json!({"role": "assistant", "content": "fine"}));
    log.push(json!({"role": "user", "content": "thanks"}));
    let answer = sends(&process, "ann", "two", &[], &log).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=1"));
    assert_eq!(result_of(&provider, SIXTH), "\"the second film\"");
}

/// R9: a mail is not sent for a session alone, but for a caller that reads its results elsewhere, also after a restart.
#[tokio::test]
async fn an_effect_that_cannot_be_undone_needs_a_surface_of_its_caller() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let process = install.start().await;
    let log = [json!({"role": "user", "content": "mail it"})];
    provider.reply(Reply::Text("hello".to_owned()));
    let answer = sends(&process, "ann", "one", &[], &log).await;
    let owner = answer.header("x-antiphon-owner").unwrap().to_owned();
    let mail = ToolCall::new(FIRST, "mail", json!({"to": "ben"}));
    provider.reply(Reply::Calls(vec![mail]));
    sends(&process, "ann", "one", &[], &log).await;
    let claim = json!({"call_id": FIRST, "owner": owner});
    let refused = loop {
        let answer = claims(&process, &claim).await;
        // A busy machine records calls a moment after their answer.
        if answer.status() != 404 {
            break answer;
        }
    };
    assert_eq!(
        (refused.status(), refused.json()["type"].as_str()),
        (403, Some("urn:antiphon:intent:tier-forbids")),
        "{}",
        refused.text()
    );
    // The list of another caller is no surface.
    for (who, status) in [("ben", 403), ("ann", 201)] {
        provider.reply(Reply::Text("hello".to_owned()));
        sends(&process, who, "two", &[], &log).await;
        let fields = [("x-api-key", "sk-one"), ("x-antiphon-client-token", who)];
        let listed = process.ask(get_with("/ledger/v1/outstanding", &fields)).await;
        assert_eq!(listed.status(), 200, "{}", listed.text());
        let answer = claims(&process, &claim).await;
        assert_eq!(answer.status(), status, "{who} {}", answer.text());
    }
    process.stop().await;

    let process = install.start().await;
    let mail = ToolCall::new(SECOND, "mail", json!({"to": "cat"}));
    provider.reply(Reply::Calls(vec![mail]));
    sends(&process, "ann", "three", &[], &log).await;
    let claim = json!({"call_id": SECOND, "owner": owner});
    let granted = loop {
        let answer = claims(&process, &claim).await;
        if answer.status() != 404 {
            break answer;
        }
    };
    assert_eq!(granted.status(), 201, "{}", granted.text());
}

/// R2, R3: the machine dies while a mail is sent. No claim is granted again until an operator has looked.
#[tokio::test]
async fn a_claim_survives_kill_9_and_an_unknown_outcome_waits_for_an_operator() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let mut process = install.start().await;
    let mail = json!({"user": "u1", "tool": "mail", "input": {"to": "canary-of-input"}, "lease": "1s"});
    let granted = claims(&process, &mail).await;
    assert_eq!(granted.status(), 201, "{}", granted.text());
    process.kill();

    let process = install.start().await;
    let id = granted.json()["intent"].as_str().unwrap().to_owned();
    let unknown = async {
        loop {
            let answer = claims(&process, &mail).await;
            assert_eq!(answer.status(), 409, "{}", answer.text());
            if answer.json()["type"] == "urn:antiphon:intent:outcome-unknown" {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), unknown).await.unwrap();
    assert!(
        answer.json()["detail"]
            .as_str()
            .unwrap()
            .contains("antiphon intents resolve"),
        "{}",
        answer.text()
    );
    // Not even a request for one more mail overrides it.
    let fields = [SERVICE, &[("x-antiphon-intent", "new")]].concat();
    let body = mail.to_string();
    let answer = process
        .ask(post_with("/ledger/v1/intents", &fields, body.as_bytes()))
        .await;
    assert_eq!(answer.status(), 409);

    let (code, listed) = intents(&process, &["ls", "--state", "unknown"]);
    assert!(
        code == Some(0) && listed.contains(&id) && listed.contains("mail"),
        "{listed}"
    );
    assert!(!listed.contains("canary"), "{listed}");
    let (code, said) = intents(&process, &["resolve", &id, "done"]);
    assert_eq!(
        (code, &said[..]),
        (Some(0), "settled: the tool is not run again until the window ends\n")
    );
    let (code, said) = intents(&process, &["resolve", &id, "not-run"]);
    assert!(code == Some(1) && said.contains("the outcome is not unknown"), "{said}");
    let (code, said) = intents(&process, &["resolve", &format!("int_{}", "0".repeat(32)), "done"]);
    assert!(code == Some(1) && said.contains("no such intent"), "{said}");
    let (code, said) = intents(&process, &["ls", "--after", "x&y"]);
    assert!(code == Some(2) && said.contains("--after"), "{said}");
    let (code, listed) = intents(&process, &["ls", "--output", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((code, &listed["intents"][0]["state"]), (Some(0), &json!("settled")));

    let replayed = claims(&process, &mail).await;
    assert_eq!(
        (replayed.status(), &replayed.json()["result"]["content"]),
        (200, &Value::Null)
    );
    // The holder from before the crash may not report any more.
    let report = json!({"claim": granted.json()["claim"], "content": "sent"}).to_string();
    let path = format!("/ledger/v1/intents/{id}/result");
    let answer = process.ask(post_with(&path, SERVICE, report.as_bytes())).await;
    assert_eq!(
        (answer.status(), answer.json()["type"].as_str()),
        (409, Some("urn:antiphon:intent:stale-claim"))
    );
}
