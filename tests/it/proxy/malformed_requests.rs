//! A client's malformed requests change no profile, breaker or lane.

use tokio::time::Instant;

use crate::{
    proxy::framing::{AMBIGUOUS, BROKEN},
    support::{
        pool::{UNKNOWN, failures, keys, of_session, strangers, untouched, world},
        still::{World, error, json},
    },
};

const MESSAGES: &str = "/anthropic/v1/messages";
const LINE: &str = "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\n";
const REFUSED: &str =
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"The request body is not valid JSON"}}"#;

/// Heads that are refused, besides the ambiguous ones.
const HEADS: &[&str] = &[
    "POST /anthropic/v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "POST /anthropic/v1/messages HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 2\r\n\r\n{}",
    "POST /anthropic/v1/messages HTTP/3.0\r\nHost: localhost\r\n\r\n",
    "POST anthropic HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
    "POST /anthropic/v1/messages\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
    "POST /anthropic/v1/messages HTTP/1.1\r\nHost: localhost\r\nNo colon here\r\n\r\n",
];

/// Bodies that no provider accepts.
const BODIES: &[&str] = &[
    "",
    "{",
    "[]",
    "null",
    "\"messages\"",
    "{\"messages\":}",
    "{\"messages\":[{]}",
    "{\"messages\":[],}",
    "{\"messages\":[],\"messages\":[]}",
    "{\"messages\":\"\\ud800\"}",
    "{\"model\":5,\"messages\":{\"role\":\"user\"}}",
    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}]}",
    "\u{feff}{\"messages\":[]}",
    "messages=hi",
];

/// Returns the state of all profiles and breakers.
fn state(world: &World) -> String {
    let now = Instant::now().into_std();
    let views = world.shared.profiles.profile_statuses(now);
    format!("{views:?} {:?}", world.shared.profiles.breaker_statuses(now))
}

/// Returns a world with one cooldown and one counted failure of the endpoint.
async fn worn() -> World {
    let world = world(&strangers("abc"));
    let body = |number: u8| format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{number}"}}]}}"#);
    let ask = |number| of_session("s1", MESSAGES, &[("x-stainless-retry-count", "1")], &body(number));
    world.script(error(401, &[], UNKNOWN));
    world.script(json(200, "{}"));
    world.ask(ask(0)).await;
    world.script(json(500, "{}"));
    world.ask(ask(1)).await;
    assert!(!untouched(&world));
    assert_eq!(
        (failures(&world, "anthropic"), keys(&world.requests()).as_str()),
        (1, "abb")
    );
    world
}

#[tokio::test(start_paused = true)]
async fn malformed_client_requests_leave_every_profile_untouched() {
    let world = worn().await;
    let before = state(&world);
    let heads = HEADS.iter().map(ToString::to_string);
    let ambiguous = AMBIGUOUS.iter().map(|row| format!("{LINE}{row}"));
    let broken = BROKEN
        .iter()
        .map(|row| format!("{LINE}Transfer-Encoding: chunked\r\n\r\n{row}"));
    let requests: Vec<String> = heads.chain(ambiguous).chain(broken).collect();
    assert!(requests.len() >= 22);
    for request in &requests {
        let mut client = world.client();
        client.send(request).await;
        let answer = client.answer().await;
        assert!((400..506).contains(&answer.status()), "{request:?}: {answer:?}");
        assert_eq!(answer.header("x-antiphon-profile"), None, "{request:?}");
        assert_eq!(world.requests().len(), 3, "{request:?} went up");
        assert_eq!(state(&world), before, "{request:?}");
    }
    // Requests that never end.
    for cut in [
        "Content-Length: 10\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    ] {
        let mut client = world.client();
        client.send(format!("{LINE}{cut}")).await;
        world.settle().await;
        drop(client);
        world.settle().await;
        assert_eq!(state(&world), before, "{cut:?}");
    }
    // Guards against a vacuous test: a well-formed request does change the state.
    world.script(error(401, &[], UNKNOWN));
    world.otherwise(|_| json(200, "{}"));
    world
        .ask(of_session("s1", MESSAGES, &[], r#"{"model":"m","messages":[]}"#))
        .await;
    assert_ne!(state(&world), before);
}

#[tokio::test(start_paused = true)]
async fn unreadable_bodies_cost_one_send_and_no_cooldown() {
    for body in BODIES {
        let world = world(&strangers("abc"));
        world.otherwise(|_| json(400, REFUSED));
        let answer = world.ask(of_session("s1", MESSAGES, &[], body)).await;
        assert_eq!(answer.status(), 400, "{body:?}: {}", answer.text());
        assert!(world.requests().len() <= 1, "{body:?}");
        assert!(untouched(&world) && failures(&world, "anthropic") == 0, "{body:?}");
    }
}
