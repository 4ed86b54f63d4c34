//! The timeouts of an exchange, exact to the timer tick, on paused time.

use std::time::Duration;

use crate::support::{
    app::post,
    still::{Answer, Step, World, assert_at, events::anthropic, json, say, secs, sse, wait},
};

/// Pause between the proxy's error event and the cut.
const FAREWELL: Duration = Duration::from_millis(10);

fn ask() -> String {
    post("/anthropic/v1/messages", "{\"messages\":[],\"stream\":true}")
}

/// Returns the type and the message of the error event that ends an answer.
fn error_code(answer: &Answer) -> (String, String) {
    let last = answer.pieces.last().unwrap();
    let data = last.text.trim_start().strip_prefix("event: error\ndata: ").unwrap();
    let error: serde_json::Value = serde_json::from_str(data).unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    (word(&error["error"]["type"]), word(&error["error"]["message"]))
}

#[tokio::test(start_paused = true)]
async fn the_proxy_adds_no_delay_to_a_stream() {
    let world = World::new();
    world.script([
        wait(3),
        sse(),
        say(anthropic::start()),
        wait(239),
        say(anthropic::text(0, "late")),
        wait(239),
        say(anthropic::end("end_turn")),
        Step::End,
    ]);
    let answer = world.ask(ask()).await;
    assert!(answer.complete);
    assert_at(answer.head_at, secs(3));
    let came: Vec<_> = answer.pieces.iter().map(|piece| piece.at).collect();
    assert_eq!(came.len(), 3);
    assert_at(came[0], secs(3));
    assert_at(came[1], secs(242));
    assert_at(came[2], secs(481));
    assert_at(answer.ended_at, secs(481));
    let request = world.request();
    assert_at(request.at, secs(0));
    assert_eq!(request.cancelled, None);
    assert_eq!(request.message.text(), "{\"messages\":[],\"stream\":true}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_head_is_a_504_at_once_for_a_stream_else_after_ten_minutes() {
    for (body, limit) in [("{\"messages\":[],\"stream\":true}", 60), ("{\"messages\":[]}", 600)] {
        let world = World::new();
        world.script([Step::Hang]);
        let answer = world.ask(post("/anthropic/v1/messages", body)).await;
        assert_eq!(
            (answer.status(), answer.header("x-antiphon-phase")),
            (504, Some("headers"))
        );
        assert_at(answer.ended_at, secs(limit));
        assert_at(world.request().cancelled.unwrap(), secs(limit));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_gets_an_error_event_and_a_cut() {
    let world = World::new();
    world.script([
        sse(),
        say(anthropic::start()),
        wait(100),
        say(anthropic::text_start(0)),
        Step::Hang,
    ]);
    let answer = world.ask(ask()).await;
    assert!(!answer.complete);
    let last = answer.pieces.last().unwrap();
    assert_at(last.at, secs(340));
    let (kind, message) = error_code(&answer);
    assert_eq!(kind, "overloaded_error");
    assert!(
        message.starts_with("Overloaded: timeout: the provider fell silent"),
        "{message}"
    );
    assert_at(answer.ended_at, secs(340) + FAREWELL);
    assert_at(world.request().cancelled.unwrap(), secs(340));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_cancels_the_provider_at_once() {
    let world = World::new();
    world.script([sse(), say(anthropic::start()), Step::Hang]);
    let mut client = world.client();
    client.send(ask()).await;
    client.head().await;
    client.piece().await.unwrap();
    world.until(secs(100)).await;
    drop(client);
    world.settle().await;
    assert_at(world.request().cancelled.unwrap(), secs(100));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_cut_after_two_minutes() {
    let world = World::new();
    let flood = (0..100).map(|_| say(anthropic::text(0, &"a".repeat(1000))));
    world.script([sse(), wait(50)].into_iter().chain(flood).chain([Step::Hang]));
    let mut client = world.client();
    client.send(ask()).await;
    client.head().await;
    world.until(secs(1000)).await;
    assert_at(world.request().cancelled.unwrap(), secs(170));
    while let Ok(piece) = client.piece().await {
        assert!(!piece.text.contains("event: error"));
    }
    assert_eq!(client.piece().await, Err(false));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_resumes_reading_in_time_gets_everything() {
    let world = World::new();
    let flood = (0..100).map(|_| say(anthropic::text(0, &"a".repeat(1000))));
    let end = [say(anthropic::end("end_turn")), Step::End];
    world.script([sse()].into_iter().chain(flood).chain(end));
    let mut client = world.client();
    client.send(ask()).await;
    world.until(secs(119)).await;
    let answer = client.answer().await;
    assert!(answer.complete);
    assert!(answer.body.len() > 100 * anthropic::text(0, &"a".repeat(1000)).len());
    assert_at(answer.ended_at, secs(119));
}

#[tokio::test(start_paused = true)]
async fn each_connection_failure_has_its_own_code_and_timeout() {
    for (step, time, code) in [
        (Step::Refuse, 0, "connection_refused"),
        (Step::Dns, 0, "dns_error"),
        (Step::TlsFail, 0, "tls_protocol_error"),
        (Step::ConnectHang, 5, "connection_timeout"),
    ] {
        let world = World::new();
        // A request that was never written is retried once, except after a certificate error.
        let tries = if code == "tls_protocol_error" { 1 } else { 2 };
        world.script([step.clone()]);
        world.script([step]);
        let answer = world.ask(ask()).await;
        assert_eq!(answer.status(), if time > 0 { 504 } else { 502 }, "{code}");
        let wanted = format!("antiphon; error={code}");
        assert_eq!(answer.header("proxy-status"), Some(wanted.as_str()));
        let least = secs(time * tries) + Duration::from_millis(500 * (tries - 1));
        assert!(
            answer.ended_at >= least && answer.ended_at <= least + Duration::from_millis(102),
            "{code}"
        );
        assert_eq!((world.requests().len(), world.connections().len() as u64), (0, tries));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_connection_is_used() {
    let world = World::new();
    world.script([Step::ConnectAfter(secs(4))].into_iter().chain(json(200, "{}")));
    let answer = world.ask(ask()).await;
    assert_eq!((answer.status(), answer.text()), (200, "{}"));
    assert_at(answer.ended_at, secs(4));
    assert_at(world.request().at, secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_read_the_request_is_a_504() {
    let world = World::new();
    world.script([Step::StopReading]);
    let body = format!("{{\"messages\":[],\"x\":\"{}\"}}", "x".repeat(100_000));
    let answer = world.ask(post("/anthropic/v1/messages", &body)).await;
    assert_eq!(answer.status(), 504);
    assert_at(answer.ended_at, secs(30));
    // Without the write timeout, hyper would keep the connection open: it flushes before it closes.
    world.settle().await;
    assert_at(world.connections()[0].closed.unwrap(), secs(30));
    assert!(world.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_is_cut_at_once_without_an_error_event() {
    for last in [Step::Break, Step::Reset] {
        let world = World::new();
        world.script([sse(), say(anthropic::start()), wait(7), last.clone()]);
        let answer = world.ask(ask()).await;
        assert!(!answer.complete, "{last:?}");
        assert_eq!(answer.text(), anthropic::start());
        assert_at(answer.ended_at, secs(7) + FAREWELL);
        assert_eq!(world.request().cancelled, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pooled_connection_is_reused_until_it_is_too_old() {
    let world = World::new();
    world.otherwise(|request| {
        let mut steps = json(200, "{}");
        assert!(request.head.starts_with("POST /v1/messages"), "{}", request.head);
        *steps.last_mut().unwrap() = Step::Keep;
        steps
    });
    for (at, connections) in [(0, 1), (20, 1), (50, 2)] {
        world.until(secs(at)).await;
        assert_eq!(world.ask(ask()).await.text(), "{}");
        assert_eq!(world.connections().len(), connections, "at {at}");
    }
    assert_eq!(world.requests().last().unwrap().connection, 1);
}
