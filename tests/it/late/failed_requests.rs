//! Late texts of requests that fail: they leave no trace, unless a provider accepts the same text in another request.

use std::sync::Arc;

use antiphon::ledger::Ledger;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    kept::durable,
    late::{FINE, answered, ask, calls, last_body, post, says, tools, world_over},
    still::{self, Step, World},
};

const ID: &str = "toolu_01AbC9dE3fG7hJ2kL4mN6pQ8";
const FILM: &str = "https://e.com/film.mp4";

/// Returns a conversation that a provider has answered without the result, which came after that.
async fn conversation(world: &World) -> Vec<Value> {
    ask(world, "s0", &[says("hello")]).await;
    let mut log = vec![says("go"), calls(ID), says("hurry")];
    ask(world, "s1", &log).await;
    log.extend([answered(), says("is it done?")]);
    ask(world, "s1", &log).await;
    assert_eq!(post(world, ID, &json!(FILM)).await.status(), 200);
    log
}

fn request(log: &[Value]) -> Vec<u8> {
    let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "s1")];
    let body = json!({"model": "m", "max_tokens": 99, "messages": log, "tools": tools()}).to_string();
    post_with("/anthropic/v1/messages", &fields, body.as_bytes())
}

fn overloaded() -> Vec<Step> {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    still::json(529, &error.to_string())
}

/// The user sends the message again, which fails, and goes on from the old answer: its model has not seen the result.
#[tokio::test(start_paused = true)]
async fn a_failed_request_leaves_no_text_in_an_answered_message() {
    for restarts in [false, true] {
        let ledger = durable();
        let mut world = world_over(&ledger, |_| ());
        let mut log = conversation(&world).await;
        world.otherwise(|_| overloaded());
        assert_eq!(world.ask(request(&log)).await.status(), 529);
        assert_eq!(last_body(&world).matches(FILM).count(), 1);
        world.settle().await;
        if restarts {
            world = world_over(&ledger, |_| ());
        }
        world.otherwise(|_| still::json(200, FINE));
        log.extend([answered(), says("and now?")]);
        ask(&world, "s1", &log).await;
        let body = last_body(&world);
        let (before, behind) = body.split_once("and now?").unwrap();
        assert!(!before.contains(FILM) && behind.contains(FILM), "{restarts}: {body}");
    }
}

/// Two requests with the same message at once: one fails, before or after the other is accepted.
#[tokio::test(start_paused = true)]
async fn a_text_that_a_provider_accepted_survives_the_failure_of_another_request() {
    for (first, second) in [(5, 20), (20, 5)] {
        let ledger: Arc<dyn Ledger> = durable();
        let world = world_over(&ledger, |_| ());
        let mut log = conversation(&world).await;
        let after = |seconds: u64, steps: Vec<Step>| [vec![still::wait(seconds)], steps].concat();
        // An error that is not retried.
        let error =
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: too large"}});
        world.script(after(first, still::json(400, &error.to_string())));
        world.script(after(second, still::json(200, FINE)));
        let (mut failing, mut accepted) = (world.client(), world.client());
        failing.send(request(&log)).await;
        world.settle().await;
        accepted.send(request(&log)).await;
        let (failing, accepted) = tokio::join!(failing.answer(), accepted.answer());
        assert_eq!((failing.status(), accepted.status()), (400, 200));
        world.settle().await;
        log.extend([answered(), says("and now?")]);
        for world in [world, world_over(&ledger, |_| ())] {
            ask(&world, "s1", &log).await;
            let body = last_body(&world);
            let (before, behind) = body.split_once("and now?").unwrap();
            assert!(before.contains(FILM) && !behind.contains(FILM), "{first}: {body}");
        }
    }
}
