//! Agents without a user who writes, and answers of a client that are not final.

use std::{collections::BTreeMap, sync::Arc};

use antiphon::late::{LateSettings, ToolSettings};
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    judge,
    kept::durable,
    late,
    still::{self, Answer, World},
};

const ID: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const FILM: &str = "https://e.com/film.mp4";

fn world(change: impl FnOnce(&mut LateSettings)) -> World {
    let ledger = durable();
    let world = World::with(|builder| {
        builder.ledger = Arc::clone(&ledger);
        builder.late = LateSettings {
            services: vec![late::service("tools", None, None)],
            ..LateSettings::default()
        };
        change(&mut builder.late);
    });
    world.otherwise(|message| {
        let good = if message.head.contains("/messages") {
            judge::anthropic(&serde_json::from_slice(&message.body).unwrap()).unwrap();
            json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"})
        } else {
            json!({"id": "c_1", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]})
        };
        still::json(200, &good.to_string())
    });
    world
}

async fn send(world: &World, path: &str, more: &[(&str, &str)], body: &Value) -> Answer {
    let fields = [&[("x-api-key", "sk-one"), ("x-antiphon-session", "s1")], more].concat();
    let answer = world.ask(post_with(path, &fields, body.to_string().as_bytes())).await;
    world.settle().await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer
}

async fn post(world: &World) {
    let service = [("authorization", "Bearer token of tools")];
    let path = format!("/ledger/v1/calls/{ID}/result");
    let body = json!({"content": FILM}).to_string();
    assert_eq!(
        world.ask(post_with(&path, &service, body.as_bytes())).await.status(),
        200
    );
}

fn films(world: &World) -> usize {
    let body = String::from_utf8(world.requests().pop().unwrap().message.body).unwrap();
    body.matches(FILM).count()
}

fn messages(log: &[Value]) -> Value {
    json!({"model": "m", "max_tokens": 99, "messages": log})
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
        let call = json!({"type": "tool_use", "id": id, "name": "render", "input": {}});
        let answer = json!({"type": "tool_result", "tool_use_id": id, "content": result});
        [
            json!({"role": "assistant", "content": [call]}),
            json!({"role": "user", "content": [answer]}),
        ]
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
            "/anthropic/v1/messages"
        };
        let mut log = vec![json!({"role": "user", "content": "go"})];
        send(&world, path, &[], &messages(&log)).await;
        let [call, started] = turn(is_chat, ID, "Job started: 42");
        log.push(call);
        send(&world, path, &[], &messages(&log)).await;
        log.push(started);
        send(&world, path, &[], &messages(&log)).await;
        post(&world).await;
        for number in 0..4 {
            log.extend(turn(
                is_chat,
                &format!("toolu_01XyZ9dE3fG7hJ2kL4mN6p{number:02}"),
                "still running",
            ));
            send(&world, path, &[], &messages(&log)).await;
            assert_eq!(films(&world), usize::from(delivers), "turn {number}, chat {is_chat}");
        }
        log.push(json!({"role": "assistant", "content": "done"}));
        log.push(json!({"role": "user", "content": "thanks"}));
        send(&world, path, &[], &messages(&log)).await;
        assert_eq!(films(&world), 1, "chat {is_chat}");
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
        let more: Vec<(&str, &str)> = by_header
            .map(|ids| ("x-antiphon-provisional", ids))
            .into_iter()
            .collect();
        let mut log = vec![json!({"role": "user", "content": "go"})];
        send(&world, "/anthropic/v1/messages", &[], &messages(&log)).await;
        let [call, started] = turn(false, ID, "Job started: 42");
        log.push(call);
        send(&world, "/anthropic/v1/messages", &[], &messages(&log)).await;
        log.push(started);
        send(&world, "/anthropic/v1/messages", &more, &messages(&log)).await;
        assert!(
            !String::from_utf8_lossy(&world.requests().pop().unwrap().message.head.into_bytes())
                .contains("provisional")
        );
        let request = "GET /ledger/v1/outstanding?state=open HTTP/1.1\r\nHost: localhost\r\nx-api-key: sk-one\r\n\r\n";
        let open = world.ask(request).await.json()["outstanding"].clone();
        let state = open[0]["state"].as_str();
        let is_marked = by_header.is_some() || by_tool;
        assert_eq!(state == Some("open"), is_marked, "{by_header:?} {by_tool}: {open}");
    }
}
