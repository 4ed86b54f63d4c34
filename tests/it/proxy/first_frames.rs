//! Answers whose body breaks before its first byte, and heads that no client has asked for.

use std::time::Duration;

use crate::support::{
    app::post,
    pool::{failures, keys, strangers, world},
    still::{Answer, Step, World, assert_at, head, json, say, secs, sse, wait},
};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: ";
/// Paths of a known format, of another one, and without a model.
const PATHS: [&str; 3] = [
    "/anthropic/v1/messages",
    "/openai/v1/chat/completions",
    "/anthropic/v1/files",
];

/// Returns a script of an answer with this content type, whose body is malformed from its first byte on.
fn broken(content_type: &str) -> Vec<Step> {
    vec![
        Step::Bytes(format!("{CHUNKED}{content_type}\r\n\r\nzz\r\n").into_bytes()),
        Step::Hang,
    ]
}

fn assert_bad_gateway(answer: &Answer, why: &str) {
    let error = answer.json()["error"]["message"].as_str().map(ToOwned::to_owned);
    assert_eq!(
        (
            answer.status(),
            answer.header("x-antiphon-fault"),
            answer.header("x-antiphon-phase"),
            answer.header("proxy-status"),
            error.as_deref(),
        ),
        (
            502,
            Some("network"),
            Some("body"),
            Some("antiphon; error=http_response_incomplete"),
            Some("connection reset before the answer began; try again"),
        ),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_broken_from_the_start_is_a_502_in_the_providers_shape() {
    for path in PATHS {
        for content_type in ["application/json", "text/event-stream", "application/octet-stream"] {
            let world = World::new();
            world.script(broken(content_type));
            let answer = world.ask(post(path, "{\"messages\":[]}")).await;
            assert_bad_gateway(&answer, &format!("{path} {content_type}"));
            assert_at(world.now(), Duration::ZERO);
            assert_eq!(world.requests().len(), 1, "{path} {content_type} was sent again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_sends_it_again_as_after_every_break_before_the_answer() {
    let world = world(&strangers("ab"));
    world.script(broken("application/json"));
    world.script(json(200, "{}"));
    let body = r#"{"model":"m","messages":[]}"#;
    assert_eq!(world.ask(post(PATHS[0], body)).await.status(), 200);
    assert_eq!(keys(&world.requests()), "aa");
    for _ in 0..2 {
        world.script(broken("application/json"));
    }
    assert_bad_gateway(&world.ask(post(PATHS[0], body)).await, "both sends broke");
    assert_eq!(keys(&world.requests()), "aaaa");
}

#[tokio::test(start_paused = true)]
async fn the_head_of_an_answer_does_not_wait_for_a_slow_body() {
    for content_type in ["application/json", "text/event-stream"] {
        let world = World::new();
        world.script([
            head(200, &[("content-type", content_type)]),
            wait(60),
            say("{}"),
            Step::End,
        ]);
        let answer = world.ask(post("/anthropic/v1/files", "{}")).await;
        assert_eq!((answer.status(), answer.text(), answer.complete), (200, "{}", true));
        assert_at(answer.head_at, Duration::ZERO);
        assert_at(answer.pieces[0].at, secs(60));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_later_still_breaks_the_clients_connection() {
    let world = World::new();
    world.script([sse(), wait(1), Step::Break]);
    let answer = world
        .ask(post("/anthropic/v1/messages", "{\"messages\":[],\"stream\":true}"))
        .await;
    assert_eq!((answer.status(), answer.text(), answer.complete), (200, "", false));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_nobody_asked_for_is_a_502_and_sent_once() {
    let switching = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nraw bytes".to_vec();
    for path in PATHS {
        let world = world(&strangers("abc"));
        world.script([Step::Bytes(switching.clone()), Step::Hang]);
        let answer = world.ask(post(path, r#"{"model":"m","messages":[]}"#)).await;
        assert_eq!(
            (
                answer.status(),
                answer.header("x-antiphon-fault"),
                answer.header("upgrade")
            ),
            (502, Some("network"), None),
            "{path}: {answer:?}"
        );
        assert!(answer.json()["error"]["message"].is_string(), "{path}");
        assert_eq!(world.requests().len(), 1, "{path}");
    }
    let world = world(&strangers("abc"));
    world.script([Step::Bytes(switching), Step::Hang]);
    world.ask(post(PATHS[0], r#"{"model":"m","messages":[]}"#)).await;
    assert_eq!(
        failures(&world, "anthropic"),
        1,
        "an endpoint that speaks no HTTP is at fault"
    );
}
