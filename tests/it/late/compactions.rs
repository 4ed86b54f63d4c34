//! Results of calls that a compaction has removed from their conversation.

use serde_json::{Value, json};

use crate::support::{
    kept::durable,
    late::{
        FILM, FINE, MESSAGES, answered, ask, ask_as, ask_with, calls, copies, last_body, numbered_id, outstanding,
        post, says, send, verified_world,
    },
    still::{self, World},
};

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
    assert_eq!(copies(world, FILM), 0, "a compaction gets no late result");
}

async fn compact(world: &World, session: &str, log: &[Value]) {
    let fields = [("x-antiphon-session", session), ("x-claude-code-compaction", "auto")];
    ask_with(world, &fields, log).await;
}

fn summary() -> Vec<Value> {
    vec![says("This is a summary of a conversation in which a film is rendered.")]
}

/// The call is gone, so the result has no place of its own: it stands once behind the user's words, also after a restart.
#[tokio::test(start_paused = true)]
async fn a_result_follows_its_conversation_over_a_compaction() {
    for (number, (is_posted_first, restarts)) in [(true, false), (false, false), (false, true)].into_iter().enumerate()
    {
        let ledger = durable();
        let mut now = verified_world(&ledger).await;
        let (id, session) = (numbered_id(number), format!("s{number}"));
        compacted(&now, &session, &id, is_posted_first).await;
        if restarts {
            now = verified_world(&ledger).await;
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
            now = verified_world(&ledger).await;
        }
        log.extend([answered(), says("is it done?")]);
        for _ in 0..2 {
            ask(&now, &session, &log).await;
            assert_eq!(copies(&now, FILM), 1);
            let (history, _) = first.rsplit_once(']').unwrap();
            assert!(last_body(&now).starts_with(history), "{}", last_body(&now));
        }
        assert_eq!(outstanding(&now).await, json!([]), "it is acknowledged");
        // The next compaction contains it already.
        log.push(says("summarise"));
        compact(&now, &session, &log).await;
        ask(&now, &session, &[says("another summary")]).await;
        assert_eq!(copies(&now, FILM), 0);
    }
}

/// A call of a lane that was not compacted belongs to another branch, and so does one of another session.
#[tokio::test(start_paused = true)]
async fn only_the_compacted_conversation_gets_the_result() {
    let ledger = durable();
    let world = verified_world(&ledger).await;
    let log = [says("go"), calls(&numbered_id(1)), says("hurry")];
    ask(&world, "s1", &log).await;
    assert_eq!(post(&world, &numbered_id(1), &json!(FILM)).await.status(), 200);
    ask(&world, "s1", &summary()).await;
    assert_eq!(copies(&world, FILM), 0, "nothing was compacted");
    compacted(&world, "s2", &numbered_id(2), false).await;
    assert_eq!(post(&world, &numbered_id(2), &json!(FILM)).await.status(), 200);
    for fields in [&[("x-antiphon-session", "s3")][..], &[]] {
        ask_with(&world, fields, &summary()).await;
        assert_eq!(copies(&world, FILM), 0, "{fields:?}");
    }
    ask_as(&world, "sk-two", "s2", &summary()).await;
    assert_eq!(copies(&world, FILM), 0);
    assert_eq!(outstanding(&world).await.as_array().unwrap().len(), 2);
    ask(&world, "s2", &summary()).await;
    assert_eq!(copies(&world, FILM), 1);
}

/// The compaction failed, or its client went on with the whole history: the result belongs to the call that stands there.
#[tokio::test(start_paused = true)]
async fn a_history_that_was_not_compacted_gets_the_result_as_before() {
    let ledger = durable();
    let world = verified_world(&ledger).await;
    compacted(&world, "s1", &numbered_id(1), false).await;
    assert_eq!(post(&world, &numbered_id(1), &json!(FILM)).await.status(), 200);
    let log = [
        says("go"),
        calls(&numbered_id(1)),
        says("hurry"),
        answered(),
        says("is it done?"),
    ];
    ask(&world, "s1", &log).await;
    assert_eq!(copies(&world, FILM), 1);
    assert!(last_body(&world).contains("in place of the answer that stands with the call"));
    ask(&world, "s1", &summary()).await;
    assert_eq!(
        copies(&world, FILM),
        1,
        "not yet acknowledged, and the summary may lack it"
    );
}

/// The provider compacts by itself, or the client asks it to: no words of the client show it.
#[tokio::test(start_paused = true)]
async fn a_compaction_by_the_provider_keeps_the_result() {
    let ledger = durable();
    let world = verified_world(&ledger).await;
    let send_to = async |path: &str, session: &str, body: Value| {
        let answer = send(&world, path, &[("x-antiphon-session", session)], &body).await;
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    };
    let messages = json!({"model": "m", "max_tokens": 99, "messages": [says("go"), calls(&numbered_id(1)), says("hurry")],
        "context_management": {"edits": [{"type": "compact_20260112"}]}});
    send_to(MESSAGES, "s1", messages).await;
    assert_eq!(post(&world, &numbered_id(1), &json!(FILM)).await.status(), 200);
    let compaction = json!({"role": "assistant", "content": [{"type": "compaction", "content": "a film is rendered"}]});
    let later = json!({"model": "m", "max_tokens": 99,
        "messages": [says("go"), calls(&numbered_id(1)), says("hurry"), compaction, says("is it done?")],
        "context_management": {"edits": [{"type": "compact_20260112"}]}});
    send_to(MESSAGES, "s1", later).await;
    assert_eq!(copies(&world, FILM), 1, "{}", last_body(&world));

    world.otherwise(|_| {
        still::json(
            200,
            r#"{"id":"resp_1","object":"response","status":"completed","output":[]}"#,
        )
    });
    let call = json!({"type": "function_call", "call_id": "call_AbC9dE3fG7hJ2kL4mN6pQ8rS", "name": "render", "arguments": "{}"});
    let user = |words: &str| json!({"type": "message", "role": "user", "content": words});
    let history = json!([user("go"), call, user("hurry")]);
    send_to("/openai/v1/responses", "s2", json!({"model": "m", "input": history})).await;
    send_to(
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
    send_to(
        "/openai/v1/responses",
        "s2",
        json!({"model": "m", "input": [item, user("is it done?")]}),
    )
    .await;
    assert_eq!(copies(&world, FILM), 1, "{}", last_body(&world));
    world.otherwise(|_| still::json(200, FINE));
}
