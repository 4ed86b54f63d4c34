//! Results of calls that a compaction has removed from their conversation.

use std::sync::Arc;

use antiphon::ledger::Ledger;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late::{FINE, answered, ask, ask_with, calls, last_body, outstanding, post, says, service, tools, world_over},
    still::{self, World},
};

const FILM: &str = "https://e.com/film.mp4";

fn id(number: usize) -> String {
    format!("toolu_01AbC9dE3fG7hJ2kL4mN6p{number:02}")
}

async fn world(ledger: &Arc<dyn Ledger>) -> World {
    let world = world_over(ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    world
}

/// Returns how often the film stands in the last request upstream.
fn films(world: &World) -> usize {
    last_body(world).matches(FILM).count()
}

/// Sends a conversation whose call has no result, and the request that compacts it. The result comes between them if
/// `posts` is set.
async fn compacted(world: &World, session: &str, id: &str, posts: bool) {
    let mut log = vec![says("go"), calls(id), says("hurry")];
    ask(world, session, &log).await;
    if posts {
        assert_eq!(post(world, id, &json!(FILM)).await.status(), 200);
    }
    log.extend([answered(), says("summarise")]);
    compact(world, session, &log).await;
    assert_eq!(films(world), 0, "a compaction gets no late result");
}

async fn compact(world: &World, session: &str, log: &[Value]) {
    let fields = [("x-antiphon-session", session), ("x-claude-code-compaction", "auto")];
    ask_with(world, &fields, log).await;
}

fn summary() -> Vec<Value> {
    vec![says("This is a summary of a conversation in which a film is rendered.")]
}

/// The call is gone, so the result has no place of its own: it stands once after the user's words, also after a restart.
#[tokio::test(start_paused = true)]
async fn a_result_follows_its_conversation_over_a_compaction() {
    for (number, (is_posted_first, restarts)) in [(true, false), (false, false), (false, true)].into_iter().enumerate()
    {
        let ledger = durable();
        let mut now = world(&ledger).await;
        let (id, session) = (id(number), format!("s{number}"));
        compacted(&now, &session, &id, is_posted_first).await;
        if restarts {
            now = world(&ledger).await;
        }
        if !is_posted_first {
            assert_eq!(post(&now, &id, &json!(FILM)).await.status(), 200);
        }
        let mut log = summary();
        ask(&now, &session, &log).await;
        let first = last_body(&now);
        assert_eq!(first.matches(FILM).count(), 1, "{first}");
        assert!(
            first.contains(&format!(
                "[antiphon: late result of tool call {id} (render), a call of this conversation"
            )),
            "{first}"
        );
        if restarts {
            now = world(&ledger).await;
        }
        log.extend([answered(), says("is it done?")]);
        for _ in 0..2 {
            ask(&now, &session, &log).await;
            assert_eq!(films(&now), 1);
            let (history, _) = first.split_once("],\"tools\"").unwrap();
            assert!(last_body(&now).starts_with(history), "{}", last_body(&now));
        }
        assert_eq!(outstanding(&now).await, json!([]), "it is acknowledged");
        // The next compaction contains it already.
        log.push(says("summarise"));
        compact(&now, &session, &log).await;
        ask(&now, &session, &[says("another summary")]).await;
        assert_eq!(films(&now), 0);
    }
}

/// A call of a lane that was not compacted belongs to another branch, and so does one of another session.
#[tokio::test(start_paused = true)]
async fn only_the_compacted_conversation_gets_the_result() {
    let ledger = durable();
    let world = world(&ledger).await;
    let log = [says("go"), calls(&id(1)), says("hurry")];
    ask(&world, "s1", &log).await;
    assert_eq!(post(&world, &id(1), &json!(FILM)).await.status(), 200);
    ask(&world, "s1", &summary()).await;
    assert_eq!(films(&world), 0, "nothing was compacted");
    compacted(&world, "s2", &id(2), false).await;
    assert_eq!(post(&world, &id(2), &json!(FILM)).await.status(), 200);
    for fields in [&[("x-antiphon-session", "s3")][..], &[]] {
        ask_with(&world, fields, &summary()).await;
        assert_eq!(films(&world), 0, "{fields:?}");
    }
    let other_caller = [("x-api-key", "sk-two"), ("x-antiphon-session", "s2")];
    let body = json!({"model": "m", "max_tokens": 99, "messages": summary()}).to_string();
    world
        .ask(post_with("/anthropic/v1/messages", &other_caller, body.as_bytes()))
        .await;
    assert_eq!(films(&world), 0);
    assert_eq!(outstanding(&world).await.as_array().unwrap().len(), 2);
    ask(&world, "s2", &summary()).await;
    assert_eq!(films(&world), 1);
}

/// The compaction failed, or its client went on with the whole history: the result belongs to the call that stands there.
#[tokio::test(start_paused = true)]
async fn a_history_that_was_not_compacted_gets_the_result_as_before() {
    let ledger = durable();
    let world = world(&ledger).await;
    compacted(&world, "s1", &id(1), false).await;
    assert_eq!(post(&world, &id(1), &json!(FILM)).await.status(), 200);
    let log = [
        says("go"),
        calls(&id(1)),
        says("hurry"),
        answered(),
        says("is it done?"),
    ];
    ask(&world, "s1", &log).await;
    assert_eq!(films(&world), 1);
    assert!(last_body(&world).contains("in place of the answer that stands with the call"));
    ask(&world, "s1", &summary()).await;
    assert_eq!(films(&world), 1, "not yet acknowledged, and the summary may lack it");
}

/// The provider compacts by itself, or the client asks it to: no words of the client show it.
#[tokio::test(start_paused = true)]
async fn a_compaction_by_the_provider_keeps_the_result() {
    let ledger = durable();
    let world = world(&ledger).await;
    let send = async |path: &str, session: &str, body: Value| {
        let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", session)];
        let answer = world.ask(post_with(path, &fields, body.to_string().as_bytes())).await;
        world.settle().await;
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    };
    let messages = json!({"model": "m", "max_tokens": 99, "tools": tools(), "messages": [says("go"), calls(&id(1)), says("hurry")],
        "context_management": {"edits": [{"type": "compact_20260112"}]}});
    send("/anthropic/v1/messages", "s1", messages).await;
    assert_eq!(post(&world, &id(1), &json!(FILM)).await.status(), 200);
    let compaction = json!({"role": "assistant", "content": [{"type": "compaction", "content": "a film is rendered"}]});
    let rewound = json!({"model": "m", "max_tokens": 99, "tools": tools(), "messages": [says("another way")],
        "context_management": {"edits": [{"type": "compact_20260112"}]}});
    send("/anthropic/v1/messages", "s1", rewound).await;
    assert_eq!(films(&world), 0, "nothing was compacted");
    let later = json!({"model": "m", "max_tokens": 99, "tools": tools(),
        "messages": [says("go"), calls(&id(1)), says("hurry"), compaction, says("is it done?")],
        "context_management": {"edits": [{"type": "compact_20260112"}]}});
    send("/anthropic/v1/messages", "s1", later).await;
    assert_eq!(films(&world), 1, "{}", last_body(&world));

    world.otherwise(|_| {
        still::json(
            200,
            r#"{"id":"resp_1","object":"response","status":"completed","output":[]}"#,
        )
    });
    let call = json!({"type": "function_call", "call_id": "call_AbC9dE3fG7hJ2kL4mN6pQ8rS", "name": "render", "arguments": "{}"});
    let user = |words: &str| json!({"type": "message", "role": "user", "content": words});
    let history = json!([user("go"), call, user("hurry")]);
    send("/openai/v1/responses", "s2", json!({"model": "m", "input": history})).await;
    send(
        "/openai/v1/responses/compact",
        "s2",
        json!({"model": "m", "input": history}),
    )
    .await;
    assert_eq!(
        post(&world, "call_AbC9dE3fG7hJ2kL4mN6pQ8rS", &json!(FILM))
            .await
            .status(),
        200
    );
    let item = json!({"type": "compaction", "encrypted_content": "abc"});
    send(
        "/openai/v1/responses",
        "s2",
        json!({"model": "m", "tools": tools(), "input": [item, user("is it done?")]}),
    )
    .await;
    assert_eq!(films(&world), 1, "{}", last_body(&world));
    world.otherwise(|_| still::json(200, FINE));
}

/// Clients ask for titles and topics under the session of the conversation: such requests declare no tools.
#[tokio::test(start_paused = true)]
async fn a_request_without_tools_gets_no_result_of_a_compacted_conversation() {
    let ledger = durable();
    let world = world(&ledger).await;
    compacted(&world, "s1", &id(1), false).await;
    assert_eq!(post(&world, &id(1), &json!(FILM)).await.status(), 200);
    let body = json!({"model": "m", "max_tokens": 9, "messages": [says("Write a title for: a film is rendered")]});
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let request = post_with("/anthropic/v1/messages", &fields, body.to_string().as_bytes());
    assert_eq!(world.ask(request).await.status(), 200);
    assert_eq!(films(&world), 0);
    ask(&world, "s1", &summary()).await;
    assert_eq!(films(&world), 1);
}

/// Clients with one key of everybody may choose the same session name.
#[tokio::test(start_paused = true)]
async fn a_session_of_a_shared_key_gets_no_result_after_a_compaction() {
    for (listen, wanted) in [("127.0.0.1:0", 1), ("0.0.0.0:0", 0)] {
        let ledger = durable();
        let world = World::with(|builder| {
            builder.ledger = ledger;
            builder.late.services = vec![service("tools", None, None)];
            builder.server.listen = listen.parse().unwrap();
        });
        world.otherwise(|_| still::json(200, FINE));
        let send = async |fields: &[(&str, &str)], log: &[Value]| {
            let fields = [
                &[("authorization", "Bearer EMPTY"), ("x-antiphon-session", "job")],
                fields,
            ]
            .concat();
            let body = json!({"model": "m", "max_tokens": 99, "messages": log, "tools": tools()}).to_string();
            let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
            assert_eq!(world.ask(request).await.status(), 200);
            world.settle().await;
        };
        send(&[], &[says("hello")]).await;
        let log = [says("go"), calls(&id(1)), says("hurry"), answered(), says("summarise")];
        send(&[], &log[..3]).await;
        send(&[("x-claude-code-compaction", "auto")], &log).await;
        assert_eq!(post(&world, &id(1), &json!(FILM)).await.status(), 200);
        send(&[], &summary()).await;
        assert_eq!(films(&world), wanted, "{listen}");
    }
}
