//! Agents without a user who writes, and answers of a client that are not final.

use std::collections::BTreeMap;

use antiphon::late::{LateSettings, ToolSettings};
use serde_json::{Value, json};

use crate::support::{
    judge,
    kept::durable,
    late::{
        FILM, FINE, ID, MESSAGES, brings, calls, copies, get, messages_body, numbered_id, post, replies, says, send,
        world_over,
    },
    still::{self, World},
};

fn world(change: impl FnOnce(&mut LateSettings)) -> World {
    let world = world_over(&durable(), |builder| change(&mut builder.late));
    world.otherwise(|message| {
        if message.head.contains("/messages") {
            judge::anthropic(&serde_json::from_slice(&message.body).unwrap()).unwrap();
            still::json(200, FINE)
        } else {
            let good = json!({"id": "c_1", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]});
            still::json(200, &good.to_string())
        }
    });
    world
}

async fn ask_by_path(world: &World, path: &str, more: &[(&str, &str)], log: &[Value]) {
    let fields = [&[("x-antiphon-session", "s1")], more].concat();
    let answer = send(world, path, &fields, &messages_body(log)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Returns a call and its result in Messages or in Chat Completions.
fn turn(is_chat: bool, id: &str, result: &str) -> [Value; 2] {
    if is_chat {
        let call = json!({"id": id, "type": "function", "function": {"name": "render", "arguments": "{}"}});
        let answer = json!({"role": "tool", "tool_call_id": id, "content": result});
        [
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            answer,
        ]
    } else {
        [calls(id), brings(id, &json!(result))]
    }
}

/// H7: an agent in a loop of tools never saw its late result, since no user wrote.
#[tokio::test(start_paused = true)]
async fn a_loop_without_words_of_a_user_gets_its_result_if_asked_for() {
    for (delivers, is_chat) in [(true, false), (true, true), (false, false)] {
        let world = world(|settings| settings.delivers_in_loops = delivers);
        let path = if is_chat {
            "/openai/v1/chat/completions"
        } else {
            MESSAGES
        };
        let mut log = vec![says("go")];
        ask_by_path(&world, path, &[], &log).await;
        let [call, started] = turn(is_chat, ID, "Job started: 42");
        log.push(call);
        ask_by_path(&world, path, &[], &log).await;
        log.push(started);
        ask_by_path(&world, path, &[], &log).await;
        assert_eq!(post(&world, ID, &json!(FILM)).await.status(), 200);
        for number in 0..4 {
            log.extend(turn(is_chat, &numbered_id(number), "still running"));
            ask_by_path(&world, path, &[], &log).await;
            assert_eq!(
                copies(&world, FILM),
                usize::from(delivers),
                "turn {number}, chat {is_chat}"
            );
        }
        log.push(replies("done"));
        log.push(says("thanks"));
        ask_by_path(&world, path, &[], &log).await;
        assert_eq!(copies(&world, FILM), 1, "chat {is_chat}");
    }
}

/// An answer that only names a running task, of MCP or of A2A, leaves its call open without any setting. Its result ends it.
#[tokio::test(start_paused = true)]
async fn an_answer_with_a_running_task_is_provisional() {
    let mcp = |status: &str| json!({"task": {"taskId": "786512e2", "status": status, "ttl": 60000}});
    let a2a = |state: &str| json!({"kind": "task", "id": "363422be", "contextId": "c1", "status": {"state": state}});
    for (answer, is_open) in [
        (mcp("working"), true),
        (mcp("completed"), false),
        (a2a("submitted"), true),
        (a2a("completed"), false),
    ] {
        let world = world(|_| {});
        let mut log = vec![says("go")];
        ask_by_path(&world, MESSAGES, &[], &log).await;
        let [call, started] = turn(false, ID, &answer.to_string());
        log.push(call);
        ask_by_path(&world, MESSAGES, &[], &log).await;
        log.push(started);
        ask_by_path(&world, MESSAGES, &[], &log).await;
        let open = get(&world, "outstanding?state=open").await.json()["outstanding"].clone();
        assert_eq!(open[0]["state"].as_str() == Some("open"), is_open, "{answer}: {open}");
        if is_open {
            let mut lines = log.clone();
            assert_eq!(post(&world, ID, &json!(FILM)).await.status(), 200);
            lines.push(says("and now?"));
            ask_by_path(&world, MESSAGES, &[], &lines).await;
            assert_eq!(copies(&world, FILM), 1, "{answer}");
        }
    }
}

/// H1: a client or the operator marks an answer as provisional: the call goes on waiting, and is listed.
#[tokio::test(start_paused = true)]
async fn a_provisional_answer_leaves_its_call_open() {
    for (by_header, by_tool) in [
        (None, false),
        (Some(ID), false),
        (Some("other, *"), false),
        (None, true),
    ] {
        let world = world(|settings| {
            let tool = ToolSettings {
                is_provisional: by_tool,
                ..ToolSettings::default()
            };
            settings.tools = BTreeMap::from([("render".to_owned(), tool)]);
        });
        let provisional: Vec<_> = by_header
            .map(|ids| ("x-antiphon-provisional", ids))
            .into_iter()
            .collect();
        let mut log = vec![says("go")];
        ask_by_path(&world, MESSAGES, &[], &log).await;
        let [call, started] = turn(false, ID, "Job started: 42");
        log.push(call);
        ask_by_path(&world, MESSAGES, &[], &log).await;
        log.push(started);
        ask_by_path(&world, MESSAGES, &provisional, &log).await;
        assert!(
            !String::from_utf8_lossy(&world.requests().pop().unwrap().message.head.into_bytes())
                .contains("provisional")
        );
        let open = get(&world, "outstanding?state=open").await.json()["outstanding"].clone();
        let state = open[0]["state"].as_str();
        let is_marked = by_header.is_some() || by_tool;
        assert_eq!(state == Some("open"), is_marked, "{by_header:?} {by_tool}: {open}");
    }
}
