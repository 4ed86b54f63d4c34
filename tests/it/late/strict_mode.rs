//! Posted results in strict mode, which edits nothing else.

use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late::{answered, ask, brings, calls, last_body, outstanding, post, says, world_over},
    still::{self, Answer, World},
};

const FIRST: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const SECOND: &str = "toolu_01ZzC9dE3fG7hJ2kL4mN6pQ8";
const FILM: &str = "https://e.com/film.mp4";

async fn send(world: &World, log: &[Value]) -> Answer {
    let fields = [
        ("x-api-key", "sk-one"),
        ("x-antiphon-session", "s1"),
        ("x-antiphon-mode", "strict"),
    ];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log}).to_string();
    let request = post_with("/anthropic/v1/messages", &fields, body.as_bytes());
    let answer = world.ask(request).await;
    world.settle().await;
    answer
}

/// A result that a tool service has posted is the tool's own: strict mode invents nothing by restoring it.
#[tokio::test(start_paused = true)]
async fn strict_mode_restores_posted_results_and_nothing_else() {
    let ledger = durable();
    let mut world = world_over(&ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    let called = json!({"id": "msg_2", "type": "message", "role": "assistant", "content": calls(FIRST)["content"], "stop_reason": "tool_use"});
    world.script(still::json(200, &called.to_string()));
    let mut log = vec![says("go")];
    assert_eq!(send(&world, &log).await.status(), 200);
    log.extend([calls(FIRST), says("is it done?")]);
    let refused = send(&world, &log).await;
    assert_eq!(
        (refused.status(), refused.header("x-antiphon-repair")),
        (400, Some("rejected"))
    );
    assert_eq!(post(&world, FIRST, &json!(FILM)).await.json()["state"], "settled");
    let mut calls_two = calls(FIRST);
    calls_two["content"]
        .as_array_mut()
        .unwrap()
        .push(calls(SECOND)["content"][0].clone());
    let both = [says("go"), calls_two, says("is it done?")];
    assert_eq!(send(&world, &both).await.status(), 400, "the second call has no result");
    for round in 0..2 {
        if round == 1 {
            world = world_over(&ledger, |_| ());
        }
        let filled = send(&world, &log).await;
        assert_eq!(
            (filled.status(), filled.header("x-antiphon-repair")),
            (200, Some("restored=1"))
        );
        assert_eq!(last_body(&world).matches(FILM).count(), 1);
        assert_eq!(outstanding(&world).await, json!([]));
        log.extend([answered(), says("thanks")]);
    }
    let dropped = [&log[..2], &[brings(SECOND, &json!("x"))]].concat();
    assert_eq!(send(&world, &dropped).await.status(), 400, "a second finding");
}
