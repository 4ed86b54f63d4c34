//! Attempts after a failure over the wire: retries, their budget, breakers, and the first-event gate.

use std::time::{Duration, UNIX_EPOCH};

use antiphon::clock::unix_time;

use crate::support::{
    pool::{
        BROKEN, FORBIDDEN, FOREIGN, LIMITED, MESSAGES, OVERLOADED, RESPONSES, UNKNOWN, ask, body, cooldowns, does,
        failures, fine, keys, limited, of_session, profile, reached, strangers, untouched, world,
    },
    still::{Step, assert_at, error, events::anthropic, json, say, secs, sse, wait},
};

/// Headers of a request or an answer.
type Fields<'f> = &'f [(&'f str, &'f str)];

#[tokio::test(start_paused = true)]
async fn requests_with_provider_side_state_are_never_retried() {
    let held: &[(&str, Fields<'_>, &str, bool)] = &[
        (RESPONSES, &[], r#""previous_response_id":"resp_1","#, true),
        (RESPONSES, &[], r#""conversation":"conv_1","#, true),
        (RESPONSES, &[], r#""conversation":{"id":"conv_1"},"#, true),
        (RESPONSES, &[], r#""background":true,"#, true),
        (RESPONSES, &[("x-codex-turn-state", "opaque")], "", true),
        (
            MESSAGES,
            &[],
            r#""thread":{"type":"continue","previous_message_id":"msg_1"},"#,
            true,
        ),
        (MESSAGES, &[], r#""container":"container_1","#, true),
        (MESSAGES, &[], r#""container":{"id":"container_1"},"#, true),
        (MESSAGES, &[], r#""container":null,"#, false),
        (
            RESPONSES,
            &[],
            r#""background":false,"previous_response_id":null,"#,
            false,
        ),
        (RESPONSES, &[], "", false),
        (MESSAGES, &[], "", false),
    ];
    let failures: [(Vec<Step>, &str); 6] = [
        (json(529, OVERLOADED), "aaa"),
        (json(500, BROKEN), "aa"),
        (vec![Step::Reset], "aa"),
        (json(409, "{}"), "aa"),
        (limited("5"), "aab"),
        (json(401, UNKNOWN), "ab"),
    ];
    for (path, fields, rest, is_held) in held {
        let history = if *path == MESSAGES { "messages" } else { "input" };
        let body = format!(r#"{{"model":"m",{rest}"{history}":[{{"role":"user","content":"hi"}}]}}"#);
        let request = of_session("s1", path, fields, &body);
        for (steps, free) in &failures {
            let world = world(&strangers("ab"));
            does(&world, &[("a", steps.clone())]);
            let (seen, _) = reached(&world, &request).await;
            assert_eq!(seen, if *is_held { "a" } else { free }, "{body} {fields:?} {steps:?}");
        }
        // A request that was never written is sent again.
        let world = world(&strangers("ab"));
        world.script([Step::Refuse]);
        does(&world, &[]);
        assert_eq!(reached(&world, &request).await, ("a".into(), 200), "{body}");
        assert_eq!(world.connections().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn client_retries_and_the_providers_retry_header_are_respected() {
    let rows: &[(Fields<'_>, u16, Fields<'_>, &str, &str)] = &[
        (&[], 529, &[], OVERLOADED, "aaa"),
        (&[("x-stainless-retry-count", "0")], 529, &[], OVERLOADED, "aaa"),
        (&[("x-stainless-retry-count", "1")], 529, &[], OVERLOADED, "a"),
        (
            &[("x-stainless-retry-count", "1")],
            529,
            &[("retry-after", "30")],
            OVERLOADED,
            "ab",
        ),
        (&[("x-stainless-retry-count", "1")], 500, &[], BROKEN, "a"),
        (&[], 500, &[], BROKEN, "aa"),
        (&[], 500, &[("x-should-retry", "false")], BROKEN, "a"),
        (&[], 529, &[("x-should-retry", "false")], OVERLOADED, "a"),
        (&[], 400, &[("x-should-retry", "true")], FOREIGN, "aa"),
        (&[], 400, &[("x-should-retry", "false")], FOREIGN, "a"),
        (
            &[("x-stainless-retry-count", "2")],
            400,
            &[("x-should-retry", "true")],
            FOREIGN,
            "a",
        ),
        (&[], 404, &[("x-should-retry", "true")], "{}", "aa"),
        (&[], 401, &[("x-should-retry", "true")], UNKNOWN, "ab"),
        (&[], 401, &[("x-should-retry", "false")], UNKNOWN, "ab"),
        (&[], 429, &[("retry-after", "5")], LIMITED, "aab"),
        (
            &[("x-stainless-retry-count", "1")],
            429,
            &[("retry-after", "5")],
            LIMITED,
            "ab",
        ),
        (
            &[],
            429,
            &[("retry-after", "5"), ("x-should-retry", "false")],
            LIMITED,
            "ab",
        ),
    ];
    for (sent, status, fields, said, wanted) in rows {
        let world = world(&strangers("ab"));
        does(&world, &[("a", error(*status, fields, said))]);
        let seen = reached(&world, of_session("s1", MESSAGES, sent, &body(0))).await.0;
        assert_eq!(seen, *wanted, "{sent:?} {status} {fields:?}");
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[tokio::test(start_paused = true)]
async fn a_short_limit_is_awaited_and_a_long_one_rotates() {
    let in_seconds = |seconds: u64| {
        let date = UNIX_EPOCH + Duration::from_secs(unix_time().as_secs() + seconds);
        (
            httpdate::fmt_http_date(date),
            humantime::format_rfc3339_seconds(date).to_string(),
        )
    };
    // The system's clock goes on while the rows are tried, however long that takes on a slow machine.
    let begun = std::time::Instant::now();
    let (short, long) = (in_seconds(8), in_seconds(40));
    let rows: &[(Fields<'_>, &str, Option<u64>)] = &[
        (&[("retry-after", "10")], LIMITED, Some(10_000)),
        (&[("retry-after", "0.5")], LIMITED, Some(500)),
        (&[("retry-after", "10.5")], LIMITED, None),
        (&[("retry-after", "11")], LIMITED, None),
        (&[("retry-after", "-5")], LIMITED, None),
        (&[("retry-after", "soon")], LIMITED, None),
        (&[("retry-after", &short.0)], LIMITED, Some(7_500)),
        (&[("retry-after", &long.0)], LIMITED, None),
        (&[("retry-after-ms", "2500")], LIMITED, Some(2_500)),
        (&[("x-ms-retry-after-ms", "250.0")], LIMITED, Some(250)),
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "120ms"),
            ],
            LIMITED,
            Some(120),
        ),
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "1m0s"),
            ],
            LIMITED,
            None,
        ),
        (
            &[
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-tokens-reset", &short.1),
            ],
            LIMITED,
            Some(7_500),
        ),
        (
            &[
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-tokens-reset", &long.1),
                ("retry-after", "2"),
            ],
            LIMITED,
            None,
        ),
        (
            &[],
            r#"{"error":{"message":"Please try again in 1.5s.","code":"rate_limit_exceeded"}}"#,
            Some(1_500),
        ),
        (
            &[],
            r#"{"error":{"message":"Please try again in 1m3s.","code":"rate_limit_exceeded"}}"#,
            None,
        ),
        (&[], LIMITED, None),
    ];
    for (fields, said, waited) in rows {
        let world = world(&strangers("ab"));
        world.script(error(429, fields, said));
        does(&world, &[]);
        let (seen, status) = reached(&world, ask("s1", 0)).await;
        assert_eq!(
            (seen.as_str(), status),
            (if waited.is_some() { "aa" } else { "ab" }, 200),
            "{fields:?} {said}"
        );
        let requests = world.requests();
        let pause = requests[1].at.saturating_sub(requests[0].at);
        let wanted = Duration::from_millis(waited.unwrap_or(0));
        assert!(pause <= wanted + secs(1), "{fields:?}: {pause:?}");
        assert!(pause + secs(1) + begun.elapsed() >= wanted, "{fields:?}: {pause:?}");
        assert_eq!(
            cooldowns(&world, "anthropic", "a").is_empty(),
            waited.is_some(),
            "a success ends the rest"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_three_attempts_and_one_rotation_for_a_permission() {
    let four = [
        profile("a", None, u32::MAX),
        profile("b", None, 100_000),
        profile("c", None, 100),
        profile("d", None, 1),
    ];
    for (table, seen, status) in [
        (
            vec![
                ("a", json(401, UNKNOWN)),
                ("b", json(401, UNKNOWN)),
                ("c", json(401, UNKNOWN)),
            ],
            "abc",
            401,
        ),
        (vec![("a", json(401, UNKNOWN)), ("b", json(401, UNKNOWN))], "abc", 200),
        (
            vec![("a", json(403, FORBIDDEN)), ("b", json(403, FORBIDDEN))],
            "ab",
            403,
        ),
        (vec![("a", limited("60")), ("b", limited("60"))], "abc", 200),
        (
            vec![("a", limited("60")), ("b", limited("60")), ("c", limited("60"))],
            "abc",
            429,
        ),
        (vec![("a", json(401, UNKNOWN)), ("b", limited("60"))], "abc", 200),
        (vec![("a", limited("60")), ("b", json(401, UNKNOWN))], "abc", 200),
    ] {
        let world = world(&four);
        does(&world, &table);
        assert_eq!(
            reached(&world, ask("s1", 0)).await,
            (seen.to_owned(), status),
            "{table:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_stops_retries_but_refuses_no_request() {
    let world = world(&strangers("ab"));
    does(&world, &[("a", json(500, BROKEN)), ("b", json(500, BROKEN))]);
    let mut seen = Vec::new();
    for number in 0..7 {
        seen.push(reached(&world, ask("s1", number)).await);
    }
    let (open, closed) = (("a".to_owned(), 500), ("aa".to_owned(), 500));
    assert_eq!(seen[..5], vec![closed.clone(); 5]);
    assert_eq!(seen[5..], vec![open.clone(); 2], "open: asked, and not again");
    assert_eq!(failures(&world, "anthropic"), 5);
    assert!(untouched(&world), "no key is at fault");
    // An overloaded endpoint is not tried with every key.
    does(&world, &[("a", json(529, OVERLOADED))]);
    assert_eq!(reached(&world, ask("s1", 7)).await, ("a".into(), 529));
    let other = body(8).replace("\"m\"", "\"other\"");
    does(&world, &[("a", json(500, BROKEN))]);
    assert_eq!(
        reached(&world, of_session("s3", MESSAGES, &[], &other)).await,
        closed,
        "another model"
    );
    world.until(world.now() + secs(301)).await;
    assert_eq!(
        reached(&world, ask("s1", 9)).await,
        open,
        "half open: one send tries it out"
    );
    does(&world, &[]);
    assert_eq!(reached(&world, ask("s1", 10)).await, ("a".into(), 200));
    does(&world, &[("a", json(500, BROKEN))]);
    assert_eq!(reached(&world, ask("s1", 11)).await, closed, "a success closes it");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_client_repeats_counts_once() {
    for (same, count) in [(true, 1), (false, 3)] {
        let world = world(&strangers("a"));
        does(&world, &[("a", json(500, BROKEN))]);
        for number in 0..3 {
            let retries = [("x-stainless-retry-count", if number > 0 { "1" } else { "0" })];
            let request = of_session("s1", MESSAGES, &retries, &body(if same { 0 } else { number }));
            reached(&world, request).await;
        }
        assert_eq!(failures(&world, "anthropic"), count);
    }
}

#[tokio::test(start_paused = true)]
async fn the_retry_budget_is_bounded() {
    let world = world(&strangers("a"));
    does(&world, &[("a", json(500, BROKEN))]);
    let asked = |number: usize| body(number).replace("\"m\"", &format!("\"m{number}\""));
    let mut retried = 0;
    for number in 0..110 {
        let (seen, status) = reached(&world, of_session("s1", MESSAGES, &[], &asked(number))).await;
        assert_eq!(status, 500);
        assert_eq!(seen, if number < 100 { "aa" } else { "a" }, "{number}");
        retried += seen.len() - 1;
    }
    assert_eq!(retried, 100);
    // Five successes pay for one retry.
    does(&world, &[]);
    for number in 0..5 {
        reached(&world, ask("s1", number)).await;
    }
    does(&world, &[("a", json(500, BROKEN))]);
    assert_eq!(
        reached(&world, of_session("s1", MESSAGES, &[], &asked(111))).await.0,
        "aa"
    );
    assert_eq!(
        reached(&world, of_session("s1", MESSAGES, &[], &asked(112))).await.0,
        "a"
    );
}

#[tokio::test(start_paused = true)]
async fn with_a_clients_own_key_only_unsent_requests_are_retried() {
    let failures = [
        limited("1"),
        json(529, OVERLOADED),
        json(500, BROKEN),
        json(409, "{}"),
        error(500, &[("x-should-retry", "true")], BROKEN),
        vec![Step::Reset],
        vec![Step::Break],
    ];
    for steps in failures {
        for (profiles, least) in [(vec![], 1), (strangers("a"), 2)] {
            let world = world(&profiles);
            world.otherwise({
                let steps = steps.clone();
                move |_| steps.clone()
            });
            let answer = world
                .ask(of_session("s1", MESSAGES, &[("x-api-key", "own")], &body(0)))
                .await;
            let sends = world.requests().len();
            assert!(sends == least || (least > 1 && sends > 1), "{steps:?}: {sends}");
            assert_eq!(answer.header("x-antiphon-profile"), profiles.first().map(|_| "a"));
            let own = world.request_at(0).header("x-api-key").map(ToOwned::to_owned);
            assert_eq!(own.as_deref() == Some("own"), profiles.is_empty());
        }
    }
    let world = world(&[]);
    world.script([Step::Refuse]);
    world.otherwise(|_| fine());
    assert_eq!(reached(&world, ask("s1", 0)).await, (String::new(), 200));
    assert_eq!(world.connections().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_stream_of_a_profile_is_held_until_it_begins() {
    let streamed = body(0).replace("{\"model\"", "{\"stream\":true,\"model\"");
    let retry: &[(&str, &str)] = &[("x-stainless-retry-count", "1")];
    let held = streamed.replace("{\"stream\"", "{\"container\":\"c_1\",\"stream\"");
    for (profiles, fields, sent, silent, came) in [
        (vec![], &[][..], &streamed, 5, 0),
        (strangers("a"), &[][..], &streamed, 5, 5),
        (strangers("a"), &[][..], &streamed, 60, 10),
        // No other attempt is possible, but an early error still becomes a status.
        (strangers("a"), retry, &streamed, 5, 5),
        (strangers("ab"), retry, &streamed, 5, 5),
        (strangers("ab"), &[][..], &held, 5, 5),
    ] {
        let world = world(&profiles);
        let words = anthropic::text_start(0) + &anthropic::stop(0) + &anthropic::end("end_turn");
        world.script([sse(), say(anthropic::start()), wait(silent), say(words), Step::End]);
        let answer = world.ask(of_session("s1", MESSAGES, fields, sent)).await;
        assert!(answer.complete);
        assert_at(answer.head_at, secs(came));
        assert_at(answer.ended_at, secs(silent));
    }
}

#[tokio::test(start_paused = true)]
async fn silence_and_broken_connections_cause_no_cooldown() {
    let stream = || vec![sse(), say(anthropic::start() + &anthropic::text_start(0))];
    let with = |last: Step| [stream(), vec![last]].concat();
    let ends: [(&str, Vec<Step>); 8] = [
        ("refused", vec![Step::Refuse]),
        ("no name", vec![Step::Dns]),
        ("no tls", vec![Step::TlsFail]),
        ("no head", vec![Step::Hang]),
        ("reset", vec![Step::Reset]),
        ("silence", with(Step::Hang)),
        ("cut", with(Step::Break)),
        (
            "not http",
            vec![Step::Bytes(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()), Step::End],
        ),
    ];
    let streamed = |number| body(number).replace("{\"model\"", "{\"stream\":true,\"model\"");
    for (name, steps) in ends {
        let world = world(&strangers("ab"));
        for number in 0..3 {
            // One script for each possible attempt.
            for _ in 0..2 {
                world.script(steps.clone());
            }
            let answer = world.ask(of_session("s1", MESSAGES, &[], &streamed(number))).await;
            assert!(!answer.complete || answer.status() >= 500, "{name}: {answer:?}");
            world.clear();
        }
        world.settle().await;
        assert!(untouched(&world), "{name}");
        assert_eq!(failures(&world, "anthropic"), 3, "{name}");
        assert!(!keys(&world.requests()).contains('b'), "{name}: another key was tried");
        does(&world, &[]);
        assert_eq!(reached(&world, ask("s1", 9)).await, ("a".into(), 200), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_causes_no_cooldown() {
    for (stays, endpoint) in [(100, 0), (130, 0)] {
        let world = world(&strangers("ab"));
        world.otherwise(|_| vec![sse(), say(anthropic::start() + &anthropic::text_start(0)), Step::Hang]);
        for number in 0..2 {
            let streamed = body(number).replace("{\"model\"", "{\"stream\":true,\"model\"");
            let mut client = world.client();
            client.send(of_session("s1", MESSAGES, &[], &streamed)).await;
            client.head().await;
            world.until(world.now() + secs(stays)).await;
            drop(client);
            world.settle().await;
        }
        assert!(untouched(&world));
        // After half of the 240 s timeout, a leaving client counts as half a failure. Two halves make one.
        assert_eq!(
            failures(&world, "anthropic"),
            endpoint + u32::from(stays > 120),
            "{stays}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unstreamed_request_without_a_head_is_not_retried() {
    let world = world(&strangers("ab"));
    world.otherwise(|_| vec![Step::Hang]);
    let answer = world.ask(ask("s1", 0)).await;
    assert_eq!((answer.status(), world.requests().len()), (504, 1));
    assert_at(answer.ended_at, secs(600));
    assert!(untouched(&world));
}
