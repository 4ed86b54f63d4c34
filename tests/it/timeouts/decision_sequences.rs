//! Rows 2 and 21 to 24 of the decision table: events between exchanges, which change no profile.

use std::time::Duration;

use antiphon::{
    auth::Principal,
    keys::profiles::{ObservedAttempt, RetryPayer},
    policy::{Class, LimitHints, Verdict},
};
use tokio::time::Instant;

use crate::support::{
    still::{Answer, Step, World, error, events::anthropic::*, json, say, secs, sse},
    table::{Ask, MODEL, cooldowns, failures, got, pool_state, profiled, sends},
};

const HOUR: u64 = 3600;

fn answers(event: &str, stop: &str) -> Vec<Step> {
    vec![sse(), say(start()), say(event), say(end(stop)), Step::End]
}

fn limited(seconds: &str) -> Vec<Step> {
    let body = "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"words\"}}";
    error(429, &[("retry-after", seconds)], body)
}

fn failing(status: u16) -> Vec<Step> {
    let kind = if status == 401 {
        "authentication_error"
    } else {
        "api_error"
    };
    json(
        status,
        &format!("{{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"words\"}}}}"),
    )
}

/// Returns a request of a session with this history. Each further message is preceded by a comma.
fn turn(history: &str) -> Ask {
    let first = "{\"role\":\"user\",\"content\":\"go\"}";
    Ask::messages()
        .field("x-claude-code-session-id", "d2e70091-3007-41a3-a916-cb8b0d3098de")
        .body(&format!(
            "{{\"model\":\"{MODEL}\",\"stream\":true,\"messages\":[{first}{history}]}}"
        ))
}

const CALL: &str =
    ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"ls\",\"input\":{}}]}";
const RESULT: &str =
    ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\",\"content\":\"a\"}]}";
const WORDS: &str = ",{\"role\":\"user\",\"content\":\"never mind\"}";

async fn ask(world: &World, ask: &Ask) -> Answer {
    world.ask(ask.bytes()).await
}

/// Starts a cooldown of a profile, as another exchange would.
fn start_cooldown(world: &World, profile: usize, class: Class, seconds: u64) {
    let now = Instant::now().into_std();
    let hints = LimitHints {
        cooldown: Some(secs(seconds)).filter(|rest| !rest.is_zero()),
        ..LimitHints::default()
    };
    let shown = ObservedAttempt {
        profile: Some(profile),
        model: Some(MODEL.to_owned()),
        path: None,
        began: now,
        request: 9,
        is_first: true,
        asks_model: true,
        jitter: 0.0,
        payer: RetryPayer {
            caller: Principal::NONE,
            percent: None,
            is_verified: false,
        },
    };
    let verdict = Verdict::from_class(class);
    world
        .shared
        .profiles
        .pool("anthropic")
        .record_attempt(&shown, verdict, &hints, now);
}

#[tokio::test(start_paused = true)]
async fn with_every_profile_cooling_down_the_answer_has_reason_and_retry_after() {
    use Class::{Auth, Billing, Quota, RateLimit, SpendLimit};
    for (rested, wanted) in [
        (
            [(RateLimit, 45); 3],
            "429 rate_limit_error ours:proxy/queue retry-after=45",
        ),
        (
            [(RateLimit, 50), (RateLimit, 12), (RateLimit, 300)],
            "429 rate_limit_error ours:proxy/queue retry-after=12",
        ),
        (
            [(RateLimit, 90); 3],
            "429 rate_limit_error ours:proxy/queue retry-after=90 x-should-retry=false",
        ),
        ([(Quota, 60); 3], "429 rate_limit_error ours:proxy/queue retry-after=60"),
        (
            [(SpendLimit, 60); 3],
            "429 rate_limit_error ours:proxy/queue retry-after=60",
        ),
        (
            [(RateLimit, 45), (RateLimit, 45), (Auth, 0)],
            "503 api_error ours:proxy/queue retry-after=30",
        ),
        (
            [(Auth, 0); 3],
            "401 authentication_error ours:proxy/queue x-should-retry=false",
        ),
        (
            [(Billing, 0); 3],
            "402 billing_error ours:proxy/queue x-should-retry=false",
        ),
    ] {
        let world = profiled(|_| ());
        for (profile, (class, seconds)) in rested.into_iter().enumerate() {
            start_cooldown(&world, profile, class, seconds);
        }
        let before = pool_state(&world);
        let answer = ask(&world, &Ask::messages()).await;
        assert_eq!(got(&answer), format!("{wanted} @0"));
        assert_eq!((sends(&world), pool_state(&world)), (String::new(), before), "{wanted}");
    }
    // One available profile is enough.
    let world = profiled(|_| ());
    start_cooldown(&world, 0, RateLimit, 45);
    start_cooldown(&world, 1, RateLimit, 45);
    world.script(answers(&text_start(0), "end_turn"));
    assert_eq!(got(&ask(&world, &Ask::messages()).await), "200 whole n1 @0");
    assert_eq!(world.request().message.header("x-api-key"), Some("key-c"));
}

#[tokio::test(start_paused = true)]
async fn a_lane_waits_for_its_profile_only_if_the_wait_is_short() {
    for (seconds, budget, wanted, last) in [
        ("8", "NOT_GIVEN", "200 whole n1 @8", "A@8"),
        ("12", "NOT_GIVEN", "200 whole n1 @0", "B@0"),
        ("8", "600", "200 whole n1 @8", "A@8"),
        // The wait would exceed a quarter of the client's timeout, so the request rotates at once.
        ("8", "20", "200 whole n1 @0", "B@0"),
    ] {
        let world = profiled(|_| ());
        world.otherwise(|_| answers(&text_start(0), "end_turn"));
        assert_eq!(got(&ask(&world, &turn("")).await), "200 whole n1 @0");
        let label = world.request().message.header("x-api-key").unwrap().to_owned();
        let place = ["key-a", "key-b", "key-c"]
            .iter()
            .position(|key| *key == label)
            .unwrap();
        start_cooldown(&world, place, Class::RateLimit, seconds.parse().unwrap());
        let answer = ask(&world, &turn("").field("x-stainless-timeout", budget)).await;
        assert_eq!(got(&answer), wanted, "{seconds} s with {budget}");
        assert_eq!(
            sends(&world),
            format!("A@0 {last}").trim_end(),
            "{seconds} s with {budget}"
        );
    }
}

/// Row 21, and the test of R1.
#[tokio::test(start_paused = true)]
async fn a_late_or_missing_tool_result_changes_no_state() {
    let world = profiled(|_| ());
    // A counted failure, so that any further event would be visible.
    world.script(failing(504));
    world.script(failing(504));
    ask(&world, &turn(WORDS)).await;
    world.until(secs(10)).await;
    world.script(answers(&call(0, "toolu_1"), "tool_use"));
    assert_eq!(got(&ask(&world, &turn("")).await), "200 whole n1 @10");
    let after = pool_state(&world);
    for seconds in [60, HOUR - 10, HOUR + 10] {
        world.until(secs(seconds)).await;
        assert_eq!(pool_state(&world), after, "after {seconds} s");
    }
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &turn(&format!("{CALL}{RESULT}"))).await;
    assert_eq!(got(&answer), format!("200 whole n1 @{}", HOUR + 10));
    assert_eq!(answer.header("x-antiphon-repair"), Some("none"));
    assert_eq!(pool_state(&world), after);
    // A second call is never answered.
    world.script(answers(&call(0, "toolu_2"), "tool_use"));
    ask(&world, &turn(&format!("{CALL}{RESULT}{WORDS}"))).await;
    world.until(secs(23 * HOUR)).await;
    assert_eq!(pool_state(&world), after);
    let keys: Vec<_> = world
        .requests()
        .iter()
        .map(|request| request.message.header("x-api-key").unwrap().to_owned())
        .collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    // Guards against a vacuous test: a provider error about the key does change the state.
    world.otherwise(|_| failing(401));
    ask(&world, &turn(WORDS)).await;
    assert_ne!(pool_state(&world), after);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_repaired_and_stays_on_its_profile() {
    let world = profiled(|_| ());
    // The lane moves to B, so that only its pin can bring it back there.
    world.script(limited("45"));
    world.script(answers(&call(0, "toolu_1"), "tool_use"));
    assert_eq!(got(&ask(&world, &turn("")).await), "200 whole n2 @0");
    world.until(secs(100)).await;
    assert_eq!(cooldowns(&world), "-");
    let before = pool_state(&world);
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &turn(&format!("{CALL}{WORDS}"))).await;
    assert_eq!(got(&answer), "200 whole n1 @100");
    assert_eq!(answer.header("x-antiphon-repair"), Some("placeholder=1"));
    assert_eq!((sends(&world).as_str(), pool_state(&world)), ("A@0 B@0 B@100", before));
    // With a result, nothing is repaired and the profile is the same.
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &turn(&format!("{CALL}{RESULT}"))).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("none"));
    assert_eq!(sends(&world), "A@0 B@0 B@100 B@100");
    // The lane leaves its profile only for a fault of the key.
    world.script(failing(402));
    world.script(answers(&text_start(0), "end_turn"));
    assert_eq!(got(&ask(&world, &turn(WORDS)).await), "200 whole n2 @100");
    assert_eq!(cooldowns(&world), "B:billing 18000");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_client_repeats_counts_once() {
    let world = profiled(|_| ());
    world.otherwise(|_| failing(500));
    ask(&world, &turn("")).await;
    assert_eq!((sends(&world).as_str(), failures(&world)), ("A@0 A~0.5", 1));
    for (retries, sent) in [("1", 3), ("2", 4), ("3", 5)] {
        world.until(world.now() + secs(1)).await;
        ask(&world, &turn("").field("x-stainless-retry-count", retries)).await;
        assert_eq!((world.requests().len(), failures(&world)), (sent, 1), "retry {retries}");
    }
    ask(&world, &turn(WORDS)).await;
    assert_eq!((world.requests().len(), failures(&world)), (7, 2), "another request");
    assert_eq!(cooldowns(&world), "-");
}

/// Claude Code repeats a request this way when a stream dies before its first event.
#[tokio::test(start_paused = true)]
async fn a_stream_repeated_without_streaming_counts_once() {
    let world = profiled(|_| ());
    world.otherwise(|_| failing(500));
    let plain = |body: &str| {
        let ask = turn("");
        let body = ask.body.replace("\"stream\":true,", body);
        ask.body(&body)
    };
    ask(&world, &turn("")).await;
    assert_eq!(failures(&world), 1);
    for body in ["\"stream\":false,", "", "\"max_tokens\":64000,"] {
        ask(&world, &plain(body)).await;
        assert_eq!(failures(&world), 1, "{body:?}");
    }
    let body = turn(WORDS).body.replace("\"stream\":true,", "");
    ask(&world, &turn("").body(&body)).await;
    assert_eq!(failures(&world), 2, "another request");
    // The same body in another session is another request.
    ask(
        &world,
        &Ask {
            fields: Vec::new(),
            ..turn(WORDS)
        },
    )
    .await;
    assert_eq!(failures(&world), 3, "another session");
}

#[tokio::test(start_paused = true)]
async fn a_paused_turn_stays_on_its_profile() {
    let paused = ",{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\",\"id\":\"srvtoolu_1\",\"name\":\"web_search\",\"input\":{}}]}";
    for (history, wanted, sent, rested) in [
        (
            paused,
            "429 rate_limit_error retry-after=45 n1 @0",
            "A@0 A@0",
            "A:rate_limit 45",
        ),
        (WORDS, "200 whole n2 @0", "A@0 A@0 B@0", "A:rate_limit 45"),
    ] {
        let world = profiled(|_| ());
        world.script(answers(&server_tool(0, "srvtoolu_1"), "pause_turn"));
        assert_eq!(got(&ask(&world, &turn("")).await), "200 whole n1 @0");
        let before = pool_state(&world);
        world.until(Duration::from_micros(1)).await;
        assert_eq!(pool_state(&world), before, "a pause is nobody's fault");
        world.script(limited("45"));
        world.script(answers(&text_start(0), "end_turn"));
        assert_eq!(got(&ask(&world, &turn(history)).await), wanted);
        assert_eq!((sends(&world).as_str(), cooldowns(&world).as_str()), (sent, rested));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_ends_early_on_purpose_is_a_success() {
    for stop in ["pause_turn", "compaction", "max_tokens", "refusal"] {
        let world = profiled(|_| ());
        world.script(failing(504));
        world.script(failing(504));
        ask(&world, &turn(WORDS)).await;
        assert_eq!(failures(&world), 1);
        world.script(answers(&text_start(0), stop));
        ask(&world, &turn("")).await;
        assert_eq!((failures(&world), cooldowns(&world).as_str()), (0, "-"), "{stop}");
    }
}

/// R14: an open breaker stops retries and rotations, but refuses no request, and does not affect keys.
#[tokio::test(start_paused = true)]
async fn a_failing_endpoint_gets_every_request_but_no_retries() {
    let world = profiled(|_| ());
    world.otherwise(|_| failing(500));
    let another = |number: u64| turn(&format!(",{{\"role\":\"user\",\"content\":\"{number}\"}}"));
    for number in 0..5 {
        let answer = ask(&world, &another(number)).await;
        assert!(got(&answer).starts_with("500 api_error n2"), "{number}");
    }
    let since = world.now();
    let sends_of = |answer: &Answer| answer.header("x-antiphon-attempts").unwrap().to_owned();
    for (seconds, number) in [(1, 5), (29, 6), (31, 7), (60, 8)] {
        world.until(since + secs(seconds)).await;
        let answer = ask(&world, &another(number)).await;
        assert_eq!(
            (answer.status(), sends_of(&answer).as_str()),
            (500, "1"),
            "after {seconds} s"
        );
    }
    // An error about the key still rotates. One about the endpoint does not.
    world.script(failing(529));
    assert_eq!(sends_of(&ask(&world, &another(9)).await), "1");
    assert_eq!(cooldowns(&world), "-");
    world.script(failing(401));
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &another(10)).await;
    assert_eq!((answer.status(), sends_of(&answer).as_str()), (200, "2"));
    assert_eq!(failures(&world), 0);
    assert_eq!(
        sends_of(&ask(&world, &another(11)).await),
        "2",
        "it works, so that it is tried again"
    );
}

/// R17: a retry costs five of five hundred tokens, and each success at the first attempt returns one.
#[tokio::test(start_paused = true)]
async fn retries_are_paid_from_a_budget_that_successes_refill() {
    let world = profiled(|_| ());
    world.otherwise(|_| failing(409));
    let sends_of = |answer: &Answer| answer.header("x-antiphon-attempts").unwrap().to_owned();
    for number in 0..100 {
        assert_eq!(sends_of(&ask(&world, &turn("")).await), "2", "{number}");
    }
    assert_eq!(sends_of(&ask(&world, &turn("")).await), "1");
    for successes in [4, 5] {
        for _ in 0..successes {
            world.script(answers(&text_start(0), "end_turn"));
            ask(&world, &turn("")).await;
        }
        // Nine successes pay for one retry and leave four. Five more pay for the next.
        let sent = if successes == 4 { "1" } else { "2" };
        assert_eq!(
            sends_of(&ask(&world, &turn("")).await),
            sent,
            "after {successes} successes"
        );
    }
    assert_eq!(cooldowns(&world), "-");
}
