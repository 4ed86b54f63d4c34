//! Posted results in strict mode, which edits nothing else.

use serde_json::{Value, json};

use crate::support::{
    kept::durable,
    late::{
        FILM, ID, MESSAGES, answered, ask, brings, calls, copies, messages_body, outstanding, post, says, script_call,
        send, world_over,
    },
    still::{Answer, World},
};

const SECOND: &str = "toolu_01ZzC9dE3fG7hJ2kL4mN6pQ8";

async fn ask_strictly(world: &World, log: &[Value]) -> Answer {
    let fields = [("x-antiphon-session", "s1"), ("x-antiphon-mode", "strict")];
    send(world, MESSAGES, &fields, &messages_body(log)).await
}

/// A result that a tool service has posted is the tool's own: strict mode invents nothing by restoring it.
#[tokio::test(start_paused = true)]
async fn strict_mode_restores_posted_results_and_nothing_else() {
    let ledger = durable();
    let mut world = world_over(&ledger, |_| ());
    ask(&world, "s0", &[says("hello")]).await;
    script_call(&world, &calls(ID));
    let mut log = vec![says("go")];
    assert_eq!(ask_strictly(&world, &log).await.status(), 200);
    log.extend([calls(ID), says("is it done?")]);
    let refused = ask_strictly(&world, &log).await;
    assert_eq!(
        (refused.status(), refused.header("x-antiphon-repair")),
        (400, Some("rejected"))
    );
    assert_eq!(post(&world, ID, &json!(FILM)).await.json()["state"], "settled");
    let mut calls_two = calls(ID);
    calls_two["content"]
        .as_array_mut()
        .unwrap()
        .push(calls(SECOND)["content"][0].clone());
    let both = [says("go"), calls_two, says("is it done?")];
    assert_eq!(
        ask_strictly(&world, &both).await.status(),
        400,
        "the second call has no result"
    );
    for round in 0..2 {
        if round == 1 {
            world = world_over(&ledger, |_| ());
        }
        let filled = ask_strictly(&world, &log).await;
        assert_eq!(
            (filled.status(), filled.header("x-antiphon-repair")),
            (200, Some("restored=1"))
        );
        assert_eq!(copies(&world, FILM), 1);
        assert_eq!(outstanding(&world).await, json!([]));
        log.extend([answered(), says("thanks")]);
    }
    let dropped = [&log[..2], &[brings(SECOND, &json!("x"))]].concat();
    assert_eq!(ask_strictly(&world, &dropped).await.status(), 400, "a second finding");
}
