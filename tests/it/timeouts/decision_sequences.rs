//! Rows 2 and 21 to 24 of the decision table: what lies between exchanges, and costs nobody anything.

use std::time::Duration;

use antiphon::{
    policy::{Class, LimitHints, Verdict},
    profiles::ObservedAttempt,
};
use tokio::time::Instant;

use crate::support::{
    still::{Answer, Step, World, error, events::anthropic::*, json, say, secs, sse},
    table::{Ask, MODEL, failures, got, profiled, rests, sends, standing},
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
    json(
        status,
        "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"words\"}}",
    )
}

/// A request of a session with this history, comma in front of each message behind the first.
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

/// Lets a profile rest, as an exchange elsewhere would.
fn rest(world: &World, profile: usize, class: Class, seconds: u64) {
    let now = Instant::now().into_std();
    let hints = LimitHints {
        cooldown: Some(secs(seconds)).filter(|rest| !rest.is_zero()),
        ..LimitHints::default()
    };
    let shown = ObservedAttempt {
        upstream: "anthropic",
        profile: Some(profile),
        verdict: Verdict::from_class(class),
        hints: &hints,
        model: Some(MODEL),
        began: now,
        request: [9; 32],
        is_first: true,
        asks_model: true,
    };
    world.shared.profiles.record_attempt(&shown, 0.0, now);
}

#[tokio::test(start_paused = true)]
async fn with_every_profile_at_rest_the_answer_says_why_and_until_when() {
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
            [(Billing, 0); 3],
            "503 api_error ours:proxy/queue retry-after=18000 x-should-retry=false",
        ),
    ] {
        let world = profiled(|_| ());
        for (profile, (class, seconds)) in rested.into_iter().enumerate() {
            rest(&world, profile, class, seconds);
        }
        let before = standing(&world);
        let answer = ask(&world, &Ask::messages()).await;
        assert_eq!(got(&answer), format!("{wanted} @0"));
        assert_eq!((sends(&world), standing(&world)), (String::new(), before), "{wanted}");
    }
    // One that is well is enough.
    let world = profiled(|_| ());
    rest(&world, 0, RateLimit, 45);
    rest(&world, 1, RateLimit, 45);
    world.script(answers(&text_start(0), "end_turn"));
    assert_eq!(got(&ask(&world, &Ask::messages()).await), "200 whole n1 @0");
    assert_eq!(world.request().message.header("x-api-key"), Some("key-c"));
}

#[tokio::test(start_paused = true)]
async fn a_lane_waits_for_its_own_profile_only_where_that_is_short_and_the_client_has_the_time() {
    for (seconds, budget, wanted, last) in [
        ("8", "NOT_GIVEN", "200 whole n1 @8", "A@8"),
        ("12", "NOT_GIVEN", "200 whole n1 @0", "B@0"),
        ("8", "600", "200 whole n1 @8", "A@8"),
        // A quarter of the client's patience is less than that: it gets another at once.
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
        rest(&world, place, Class::RateLimit, seconds.parse().unwrap());
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
async fn a_tool_call_that_is_answered_an_hour_later_or_never_changes_nothing() {
    let world = profiled(|_| ());
    // Something stands in the books that a sign of any kind would change.
    world.script(failing(504));
    world.script(failing(504));
    ask(&world, &turn(WORDS)).await;
    world.until(secs(10)).await;
    world.script(answers(&call(0, "toolu_1"), "tool_use"));
    assert_eq!(got(&ask(&world, &turn("")).await), "200 whole n1 @10");
    let after = standing(&world);
    for seconds in [60, HOUR - 10, HOUR + 10] {
        world.until(secs(seconds)).await;
        assert_eq!(standing(&world), after, "after {seconds} s");
    }
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &turn(&format!("{CALL}{RESULT}"))).await;
    assert_eq!(got(&answer), format!("200 whole n1 @{}", HOUR + 10));
    assert_eq!(answer.header("x-antiphon-repair"), Some("none"));
    assert_eq!(standing(&world), after);
    // Another one is never answered.
    world.script(answers(&call(0, "toolu_2"), "tool_use"));
    ask(&world, &turn(&format!("{CALL}{RESULT}{WORDS}"))).await;
    world.until(secs(23 * HOUR)).await;
    assert_eq!(standing(&world), after);
    let keys: Vec<_> = world
        .requests()
        .iter()
        .map(|request| request.message.header("x-api-key").unwrap().to_owned())
        .collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    // What does change it: a word of the provider's about the key.
    world.otherwise(|_| failing(401));
    ask(&world, &turn(WORDS)).await;
    assert_ne!(standing(&world), after);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_agent_gave_up_is_mended_and_goes_on_with_the_same_profile() {
    let world = profiled(|_| ());
    // The lane moves to B, so that only its pin tells where it is.
    world.script(limited("45"));
    world.script(answers(&call(0, "toolu_1"), "tool_use"));
    assert_eq!(got(&ask(&world, &turn("")).await), "200 whole n2 @0");
    world.until(secs(100)).await;
    assert_eq!(rests(&world), "-");
    let before = standing(&world);
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &turn(&format!("{CALL}{WORDS}"))).await;
    assert_eq!(got(&answer), "200 whole n1 @100");
    assert_eq!(answer.header("x-antiphon-repair"), Some("placeholder=1"));
    assert_eq!((sends(&world).as_str(), standing(&world)), ("A@0 B@0 B@100", before));
    // With a result it is the same, and nothing is mended.
    world.script(answers(&text_start(0), "end_turn"));
    let answer = ask(&world, &turn(&format!("{CALL}{RESULT}"))).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("none"));
    assert_eq!(sends(&world), "A@0 B@0 B@100 B@100");
    // A lane leaves its profile for what that one lacks.
    world.script(failing(402));
    world.script(answers(&text_start(0), "end_turn"));
    assert_eq!(got(&ask(&world, &turn(WORDS)).await), "200 whole n2 @100");
    assert_eq!(rests(&world), "B:billing 18000");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_client_sends_again_counts_once() {
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
    assert_eq!(rests(&world), "-");
}

/// As Claude Code does where a stream dies before it has begun.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_sent_again_as_no_stream_counts_once() {
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
    // The same words in another session are another request too.
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
async fn a_turn_that_the_provider_paused_goes_on_with_the_same_profile() {
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
        let before = standing(&world);
        world.until(Duration::from_micros(1)).await;
        assert_eq!(standing(&world), before, "a pause is nobody's fault");
        world.script(limited("45"));
        world.script(answers(&text_start(0), "end_turn"));
        assert_eq!(got(&ask(&world, &turn(history)).await), wanted);
        assert_eq!((sends(&world).as_str(), rests(&world).as_str()), (sent, rested));
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
        assert_eq!((failures(&world), rests(&world).as_str()), (0, "-"), "{stop}");
    }
}

/// R14: the breaker keeps back our own retries and moves, never a request, and has nothing to say about keys.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_down_gets_no_retries_of_ours_and_every_request() {
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
    // A word about a key moves the request all the same; one about the endpoint does not.
    world.script(failing(529));
    assert_eq!(sends_of(&ask(&world, &another(9)).await), "1");
    assert_eq!(rests(&world), "-");
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

/// R17: five of five hundred for each retry, and one back for each success at the first attempt.
#[tokio::test(start_paused = true)]
async fn retries_of_ours_are_paid_from_a_purse_that_only_successes_fill() {
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
        // Nine in all: one retry and a rest of four; the second time as much is there again.
        let sent = if successes == 4 { "1" } else { "2" };
        assert_eq!(
            sends_of(&ask(&world, &turn("")).await),
            sent,
            "behind {successes} successes"
        );
    }
    assert_eq!(rests(&world), "-");
}
