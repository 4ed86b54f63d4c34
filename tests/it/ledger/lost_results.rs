//! Results that a client brought and then lost are restored, byte for byte, for the same caller only.
//!
//! F2: <https://github.com/garrytan/gbrain/issues/2273>, <https://github.com/garrytan/gbrain/issues/2274>

use std::sync::Arc;

use crate::support::{
    late::memory,
    still::{World, json},
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
const STRONG: &str = "toolu_01AbC9dE3fG";
const STRIPPED: &str = "toolu01AbC9dE3fG";
const WEAK: &str = "call_0";
const ONE: &str = r#"{"a":1}"#;

/// The history with which the client resumes.
#[derive(Clone, Copy)]
struct Resumed {
    id: &'static str,
    input: &'static str,
    key: &'static str,
    session: &'static str,
    /// Assistant turns after the lost result.
    turns: usize,
}

const SAME: Resumed = Resumed {
    id: STRONG,
    input: ONE,
    key: "sk-one",
    session: "s1",
    turns: 0,
};
const AGAIN: Resumed = Resumed { id: WEAK, ..SAME };

/// Name, id of the brought result, resumed history, and whether the result is restored.
const ROWS: &[(&str, &str, Resumed, bool)] = &[
    ("the same", STRONG, SAME, true),
    ("another session", STRONG, Resumed { session: "s2", ..SAME }, true),
    ("ids stripped", STRONG, Resumed { id: STRIPPED, ..SAME }, true),
    ("another caller", STRONG, Resumed { key: "sk-two", ..SAME }, false),
    ("pruned long ago", STRONG, Resumed { turns: 20, ..SAME }, false),
    ("nearly", STRONG, Resumed { turns: 19, ..SAME }, true),
    (
        "weak id",
        WEAK,
        Resumed {
            input: r#"{ "a": 1.0 }"#,
            ..AGAIN
        },
        true,
    ),
    (
        "weak id, another session",
        WEAK,
        Resumed { session: "s2", ..AGAIN },
        false,
    ),
    (
        "weak id, another input",
        WEAK,
        Resumed {
            input: r#"{"a":2}"#,
            ..AGAIN
        },
        false,
    ),
];

fn call(id: &str, input: &str) -> String {
    let block = format!(r#"{{"type":"tool_use","id":"{id}","name":"run","input":{input}}}"#);
    format!(r#"{{"role":"user","content":"go"}},{{"role":"assistant","content":[{block}]}}"#)
}

fn post(key: &str, session: &str, messages: &str) -> String {
    let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{messages}]}}"#);
    format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nx-antiphon-session: {session}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the repair header of the answer and the body that went upstream.
async fn ask(world: &World, request: &str) -> (String, String) {
    world.script(json(200, GOOD));
    let answer = world.ask(request).await;
    let last = world.requests().pop().unwrap();
    let done = answer.header("x-antiphon-repair").unwrap().to_owned();
    (done, String::from_utf8(last.message.body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_result_that_the_client_lost_is_restored() {
    let result =
        |id: &str, more: &str| format!(r#"{{"type":"tool_result","content":"REAL",{more}"tool_use_id":"{id}"}}"#);
    for (name, id, resumed, restored) in ROWS {
        let world = World::new();
        let brought = result(id, r#""cache_control":{"type":"ephemeral"},"#);
        let history = format!(r#"{},{{"role":"user","content":[{brought}]}}"#, call(id, ONE));
        let (done, _) = ask(&world, &post("sk-one", "s1", &history)).await;
        assert_eq!(done, "none", "{name}");
        let more = r#",{"role":"assistant","content":"a"},{"role":"user","content":"b"}"#.repeat(resumed.turns);
        let call = call(resumed.id, resumed.input);
        let history = format!(r#"{call},{{"role":"user","content":"again"}}{more}"#);
        for round in 0..2 {
            let (done, sent) = ask(&world, &post(resumed.key, resumed.session, &history)).await;
            let wanted = if *restored { "restored=1" } else { "placeholder=1" };
            assert_eq!(done, wanted, "{name} {round}");
            assert_eq!(sent.contains(&result(resumed.id, "")), *restored, "{name}: {sent}");
        }
    }
}

/// A client's own text for a lost result is not a result.
#[tokio::test(start_paused = true)]
async fn a_lost_result_text_is_not_restored() {
    let world = World::new();
    let lost =
        format!(r#"{{"type":"tool_result","tool_use_id":"{STRONG}","content":"[Tool execution was interrupted]"}}"#);
    let history = format!(r#"{},{{"role":"user","content":[{lost}]}}"#, call(STRONG, ONE));
    ask(&world, &post("sk-one", "s1", &history)).await;
    let history = format!(r#"{},{{"role":"user","content":"again"}}"#, call(STRONG, ONE));
    assert_eq!(ask(&world, &post("sk-one", "s1", &history)).await.0, "placeholder=1");
}

/// Brought results survive a restart only if the operator stores client results in the ledger.
#[tokio::test(start_paused = true)]
async fn a_seen_result_survives_a_restart_if_configured() {
    for keeps in [false, true] {
        let kept = memory();
        let over = || {
            let kept = Arc::clone(&kept);
            World::with(|builder| (builder.ledger, builder.keeps_seen) = (kept, keeps))
        };
        let world = over();
        let brought = format!(r#"{{"type":"tool_result","tool_use_id":"{STRONG}","content":"REAL"}}"#);
        let history = format!(r#"{},{{"role":"user","content":[{brought}]}}"#, call(STRONG, ONE));
        ask(&world, &post("sk-one", "s1", &history)).await;
        world.settle().await;
        let world = over();
        for (key, gets) in [("sk-two", false), ("sk-one", keeps)] {
            let history = format!(r#"{},{{"role":"user","content":"again"}}"#, call(STRONG, ONE));
            let (done, sent) = ask(&world, &post(key, "s1", &history)).await;
            assert_eq!(
                (done == "restored=1", sent.contains(&brought)),
                (gets, gets),
                "{keeps} {key}: {sent}"
            );
        }
    }
}

/// Calls of one tool without ids are told apart by their order.
#[tokio::test(start_paused = true)]
async fn results_of_calls_without_ids_go_to_their_own_calls() {
    let world = World::new();
    let calls = r#"{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"read","args":{"f":"a"}}},{"functionCall":{"name":"read","args":{"f":"b"}}}]}"#;
    let results =
        ["A", "B"].map(|said| format!(r#"{{"functionResponse":{{"name":"read","response":{{"output":"{said}"}}}}}}"#));
    let post = |contents: &str| {
        let body = format!(r#"{{"contents":[{contents}]}}"#);
        format!(
            "POST /gemini/v1beta/models/m:generateContent HTTP/1.1\r\nhost: localhost\r\nx-goog-api-key: k\r\nx-antiphon-session: s\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let history = format!(r#"{calls},{{"role":"user","parts":[{}]}}"#, results.join(","));
    let (done, _) = ask(&world, &post(&history)).await;
    assert_eq!(done, "none");
    let again = r#"{"role":"user","parts":[{"text":"again"}]}"#;
    let (done, sent) = ask(&world, &post(&format!("{calls},{again}"))).await;
    assert_eq!(done, "restored=2", "{sent}");
    assert!(sent.contains(&results.join(",")), "{sent}");
}
