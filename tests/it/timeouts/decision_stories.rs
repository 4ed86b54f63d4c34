//! Failures that users of openclaw reported, each with its issue.

use crate::support::{
    app::Builder,
    still::{Answer, Step, World, events::anthropic::*, json, say, secs, sse, wait},
    table::{Ask, cooldowns, failures, got, pool_state, profiled, sends},
};

type Script = fn() -> Vec<Step>;

fn alive(seconds: u64) -> Vec<Step> {
    (0..seconds / 10).flat_map(|_| [wait(10), say(ping())]).collect()
}

fn served() -> Vec<Step> {
    vec![sse(), say(start()), say(text_start(0)), say(end("end_turn")), Step::End]
}

async fn ask(world: &World, ask: Ask) -> Answer {
    world.ask(ask.bytes()).await
}

/// Returns a request of this session.
fn session(number: u64) -> Ask {
    let history = format!("[{{\"role\":\"user\",\"content\":\"go {number}\"}}]");
    Ask::messages().body(&format!("{{\"model\":\"m\",\"stream\":true,\"messages\":{history}}}"))
}

/// Compactions died at fixed limits: at 301 s, at 60.0 s, and at 180 s.
///
/// <https://github.com/openclaw/openclaw/issues/86019>, <https://github.com/openclaw/openclaw/issues/116122>,
/// <https://github.com/openclaw/openclaw/issues/92043>
#[tokio::test(start_paused = true)]
async fn a_compaction_of_many_minutes_succeeds() {
    let summary = || {
        [
            say(compaction_start(0)),
            say(compaction(0, "sum")),
            say(stop(0)),
            say(end("compaction")),
            Step::End,
        ]
    };
    for seconds in [60, 61, 180, 181, 300, 301, 600, 890] {
        for (name, script) in [
            (
                "silent until the head",
                [vec![wait(seconds), sse()], summary().to_vec()].concat(),
            ),
            (
                "silent until the first block",
                [vec![sse(), wait(seconds)], summary().to_vec()].concat(),
            ),
            (
                "pings until the first block",
                [
                    vec![sse()],
                    alive(seconds),
                    vec![wait(seconds % 10)],
                    summary().to_vec(),
                ]
                .concat(),
            ),
            (
                "silent within the block",
                [
                    vec![sse(), say(start()), say(compaction_start(0)), wait(seconds)],
                    summary()[1..].to_vec(),
                ]
                .concat(),
            ),
            (
                "pings within the block",
                [
                    vec![sse(), say(compaction_start(0))],
                    alive(seconds),
                    vec![wait(seconds % 10)],
                    summary()[1..].to_vec(),
                ]
                .concat(),
            ),
        ] {
            let world = profiled(|_| ());
            world.script(script);
            let answer = ask(&world, Ask::messages().field("x-claude-code-compaction", "auto")).await;
            assert_eq!(got(&answer), format!("200 whole n1 @{seconds}"), "{name}");
            assert_eq!((cooldowns(&world).as_str(), failures(&world)), ("-", 0), "{name}");
        }
    }
    // On the compaction endpoint a plain answer may take as long. Other endpoints have ten minutes.
    for (path, wanted) in [
        ("/openai/v1/responses/compact", "200 n1 @890"),
        (
            "/openai/v1/responses",
            "504 headers_timeout ours:provider/headers n1 @600",
        ),
    ] {
        let world = profiled(|_| ());
        world.script([vec![wait(890)], json(200, "{\"id\":\"r\",\"output\":[]}")].concat());
        let answer = ask(&world, Ask::of(path).body("{\"model\":\"m\",\"input\":\"go\"}")).await;
        assert_eq!(got(&answer), wanted);
    }
}

/// A compaction that never ends is blamed neither on the key nor on the endpoint, however often it is repeated.
///
/// <https://github.com/openclaw/openclaw/issues/92043>
#[tokio::test(start_paused = true)]
async fn an_endless_compaction_changes_no_state() {
    let world = profiled(|_| ());
    world.otherwise(|_| [vec![sse(), say(compaction_start(0))], alive(4000)].concat());
    let before = pool_state(&world);
    for number in 0..6 {
        world.until(secs(1000 * number)).await;
        let answer = ask(&world, session(number)).await;
        assert_eq!(
            got(&answer),
            format!("200 cut overloaded_error n1 @{}", 1000 * number + 900)
        );
        assert_eq!(pool_state(&world), before);
    }
}

/// One slow request led to "no available profile". No number of timeouts starts a cooldown.
///
/// <https://github.com/openclaw/openclaw/issues/23317>
#[tokio::test(start_paused = true)]
async fn slow_requests_never_exhaust_the_profiles() {
    let slow: [(&str, Script); 5] = [
        ("no head", || vec![Step::Hang]),
        ("parked", || [vec![sse()], alive(4000)].concat()),
        ("silent", || vec![sse(), say(text_start(0)), Step::Hang]),
        ("signs of life", || {
            [vec![sse(), say(text_start(0))], alive(4000)].concat()
        }),
        ("a tool", || {
            [vec![sse(), say(server_tool(0, "s"))], alive(4000)].concat()
        }),
    ];
    for (name, script) in slow {
        let world = profiled(|_| ());
        world.otherwise(move |_| script());
        for number in 0..8 {
            let answer = ask(&world, session(number)).await;
            let ours = answer.header("x-antiphon-fault");
            assert!(ours.is_none_or(|fault| fault == "provider"), "{name}: {ours:?}");
            assert_eq!(cooldowns(&world), "-", "{name}");
        }
        assert_eq!(world.requests().len(), 8, "{name}: each was sent, once");
        // The breaker may be open by now. It stops retries, but never a request.
        world.otherwise(|_| served());
        let at = world.now();
        let answer = ask(&world, session(9)).await;
        assert_eq!((answer.status(), answer.complete), (200, true), "{name}");
        crate::support::still::assert_at(answer.ended_at, at);
        assert_eq!(failures(&world), 0, "{name}: it works again");
    }
    // In contrast, a refused key does start a cooldown.
    let world = profiled(|_| ());
    let body = "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"words\"}}";
    world.otherwise(move |_| json(401, body));
    assert_eq!(got(&ask(&world, session(0)).await), "401 authentication_error n3 @0");
    let answer = ask(&world, session(1)).await;
    assert_eq!(
        got(&answer),
        "401 authentication_error ours:proxy/queue x-should-retry=false @0"
    );
}

/// A run's own timeout fired, and the provider was blamed. A client that leaves counts only after half of the proxy's
/// timeout, and never against a key.
///
/// <https://github.com/openclaw/openclaw/issues/60388>
#[tokio::test(start_paused = true)]
async fn a_clients_own_timeout_causes_no_cooldown() {
    let leave = |seconds: u64| async move {
        let world = profiled(|_| ());
        world.otherwise(|_| vec![Step::Hang]);
        // Two requests, since half a failure shows only together with another half.
        for number in 0..2 {
            let begin = world.now();
            let mut client = world.client();
            client.send(session(number).bytes()).await;
            world.until(begin + secs(seconds)).await;
            drop(client);
            world.settle().await;
        }
        assert_eq!((cooldowns(&world).as_str(), world.requests().len()), ("-", 2));
        failures(&world)
    };
    for (seconds, failures) in [(5, 0), (29, 0), (31, 1), (59, 1)] {
        assert_eq!(leave(seconds).await, failures, "after {seconds} s");
    }
}

/// The client sends its timeout in a header, and the answer with the right blame arrives before it expires.
///
/// <https://github.com/openclaw/openclaw/issues/60388>
#[tokio::test(start_paused = true)]
async fn a_timeout_in_a_header_is_answered_in_time() {
    for (budget, wanted, count) in [
        // Within half of the configured timeout the endpoint has not failed.
        ("30", "504 timeout_error ours:provider/headers n1 @25", 0),
        ("60", "504 timeout_error ours:provider/headers n1 @55", 1),
        ("NOT_GIVEN", "504 timeout_error ours:provider/headers n1 @60", 1),
    ] {
        let world = profiled(|_| ());
        world.script([Step::Hang]);
        let answer = ask(&world, Ask::messages().field("x-stainless-timeout", budget)).await;
        assert_eq!(got(&answer), wanted);
        assert_eq!((cooldowns(&world).as_str(), failures(&world)), ("-", count));
    }
}

/// A stalled request was treated as a rate limit. Here only a reported limit is one.
///
/// <https://github.com/openclaw/openclaw/issues/14824>, <https://github.com/openclaw/openclaw/issues/20946>
#[tokio::test(start_paused = true)]
async fn a_stall_is_not_a_rate_limit() {
    let world = profiled(|builder: &mut Builder| builder.proxy.timeouts.gate = secs(0));
    world.script(vec![sse(), say(text_start(0)), Step::Hang]);
    assert_eq!(got(&ask(&world, session(0)).await), "200 cut overloaded_error n1 @240");
    assert_eq!(cooldowns(&world), "-");
    world.until(secs(300)).await;
    world.script(vec![
        sse(),
        say(text_start(0)),
        say(error("rate_limit_error")),
        Step::End,
    ]);
    assert_eq!(
        got(&ask(&world, session(0)).await),
        "200 passed rate_limit_error n1 @300"
    );
    assert_eq!(cooldowns(&world), "A:rate_limit 30");
    assert_eq!(sends(&world).split(' ').count(), 2);
}
