//! Rules of rotation over the wire: which profile a request goes up with, what follows a failure, and what never does.

use std::time::{Duration, UNIX_EPOCH};

use antiphon::{clock::since_1970, policy::OnOrganisationChange};

use crate::support::{
    app::post_with,
    pool::{
        failures, family, is_about, key, keys, of_session, pooled, profile, rests, strangers, untouched, view, world,
    },
    still::{
        Step, World, assert_at, error,
        events::{anthropic, responses},
        json, say, secs, sse, wait,
    },
};

const MESSAGES: &str = "/anthropic/v1/messages";
const RESPONSES: &str = "/openai/v1/responses";
const LIMITED: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#;
const UNKNOWN: &str = r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#;
const BROKEN: &str = r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#;
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
const FOREIGN: &str = r#"{"error":{"message":"Encrypted content organization_id did not match the target organization.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#;

/// A question; no two numbers make one logical request.
fn body(number: usize) -> String {
    format!(r#"{{"model":"m","max_tokens":16,"messages":[{{"role":"user","content":"question {number}"}}]}}"#)
}

fn ask(session: &str, number: usize) -> Vec<u8> {
    of_session(session, MESSAGES, &[], &body(number))
}

fn limited(seconds: &str) -> Vec<Step> {
    error(429, &[("retry-after", seconds)], LIMITED)
}

fn fine() -> Vec<Step> {
    json(
        200,
        r#"{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn"}"#,
    )
}

/// What each of these profiles does, whenever it is asked; the others answer well.
fn does(world: &World, table: &[(&'static str, Vec<Step>)]) {
    let table = table.to_vec();
    world.otherwise(move |request| {
        let own = key(request);
        let known = table.iter().find(|(label, _)| *label == own);
        known.map_or_else(fine, |(_, steps)| steps.clone())
    });
}

/// Asks, and gives the profiles that this has reached.
async fn reached(world: &World, request: impl AsRef<[u8]>) -> (String, u16) {
    let before = world.requests().len();
    let answer = world.ask(request).await;
    (keys(&world.requests()[before..]), answer.status())
}

#[tokio::test(start_paused = true)]
async fn a_lane_stays_with_its_profile_however_it_is_named() {
    type Name = fn(usize) -> (&'static str, Vec<(&'static str, String)>, String);
    let plain = |rest: &str| format!(r#"{{"model":"m",{rest}"messages":[{{"role":"user","content":"hi"}}]}}"#);
    let names: [(&str, Name); 7] = [
        ("session", |n| {
            (MESSAGES, vec![("x-antiphon-session", n.to_string())], String::new())
        }),
        ("claude code", |n| {
            (
                MESSAGES,
                vec![("x-claude-code-session-id", n.to_string())],
                String::new(),
            )
        }),
        ("agents of one session", |n| {
            let session = ("x-claude-code-session-id", "s".to_owned());
            (
                MESSAGES,
                vec![session, ("x-claude-code-agent-id", n.to_string())],
                String::new(),
            )
        }),
        ("user id", |n| {
            let id = format!(r#""metadata":{{"user_id":"{{\"device_id\":\"d\",\"session_id\":\"s{n}\"}}"}},"#);
            (MESSAGES, vec![], id)
        }),
        ("codex", |n| {
            (
                RESPONSES,
                vec![("session-id", n.to_string()), ("thread-id", n.to_string())],
                String::new(),
            )
        }),
        ("cache key", |n| {
            (RESPONSES, vec![], format!(r#""prompt_cache_key":"k{n}","#))
        }),
        ("conversation", |n| {
            (RESPONSES, vec![], format!(r#""conversation":"conv_{n}","#))
        }),
    ];
    for (name, request) in names {
        let world = world(&[profile("a", None, 1), profile("b", None, 1)]);
        does(&world, &[]);
        let mut of_lanes = Vec::new();
        for lane in 0..16 {
            let (path, fields, rest) = request(lane);
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut seen = String::new();
            for _ in 0..3 {
                seen += &reached(&world, post_with(path, &fields, plain(&rest).as_bytes()))
                    .await
                    .0;
            }
            assert!(seen == "aaa" || seen == "bbb", "{name} {lane}: {seen}");
            of_lanes.push(seen);
        }
        assert!(
            of_lanes.iter().any(|seen| *seen != of_lanes[0]),
            "{name}: all lanes on one profile"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_had_to_move_stays_where_it_is_and_others_do_not_follow() {
    let world = world(&strangers("ab"));
    world.script(json(401, UNKNOWN));
    does(&world, &[]);
    assert_eq!(reached(&world, ask("s1", 0)).await, ("ab".into(), 200));
    world.until(secs(100)).await;
    assert!(untouched(&world), "the rest is over");
    assert_eq!(reached(&world, ask("s1", 1)).await, ("b".into(), 200));
    assert_eq!(reached(&world, ask("s2", 2)).await, ("a".into(), 200));
    let agent = [("x-claude-code-agent-id", "sub")];
    assert_eq!(
        reached(&world, of_session("s1", MESSAGES, &agent, &body(3))).await.0,
        "a"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_gone_on_from_names_the_lane_of_its_request() {
    let world = world(&strangers("ab"));
    world.script(error(401, &[], UNKNOWN));
    world.script([sse(), say(responses::start() + &responses::end()), Step::End]);
    does(&world, &[]);
    let first = r#"{"model":"m","stream":true,"input":"go"}"#;
    assert_eq!(
        reached(&world, of_session("s1", RESPONSES, &[], first)).await,
        ("ab".into(), 200)
    );
    world.until(secs(100)).await;
    let next = |id: &str| format!(r#"{{"model":"m","previous_response_id":"{id}","input":"on"}}"#);
    assert_eq!(
        reached(&world, of_session("", RESPONSES, &[], &next("resp_1"))).await,
        ("b".into(), 200)
    );
    assert_eq!(
        reached(&world, of_session("", RESPONSES, &[], &next("resp_2"))).await,
        ("a".into(), 200)
    );
    let other = [("authorization", "Bearer somebody-else")];
    assert_eq!(
        reached(&world, of_session("", RESPONSES, &other, &next("resp_1"))).await,
        ("a".into(), 200)
    );
}

#[tokio::test(start_paused = true)]
async fn profiles_that_answers_say_are_of_one_organisation_share_their_limits() {
    for (learned, wanted) in [(true, "ac"), (false, "ab")] {
        let world = world(&strangers("abc"));
        let named = move |request: &crate::support::wire::Message, status: u16, body: &str| {
            let organisation = if key(request) == "c" { "org-2" } else { "org-1" };
            let fields: &[(&str, &str)] = &[("anthropic-organization-id", organisation)];
            error(status, if learned { fields } else { &[] }, body)
        };
        // Everybody answers once.
        world.otherwise(move |request| match key(request).as_str() {
            "c" => named(request, 200, "{}"),
            _ => named(request, 401, UNKNOWN),
        });
        assert_eq!(reached(&world, ask("s1", 0)).await, ("abc".into(), 200));
        world.until(secs(100)).await;
        does(&world, &[("a", limited("60")), ("b", limited("60"))]);
        assert_eq!(
            reached(&world, ask("s2", 1)).await.0.as_bytes()[..2],
            *wanted.as_bytes()
        );
        let shared: Vec<bool> = rests(&world, "anthropic", "b").iter().map(|rest| rest.3).collect();
        assert_eq!(shared, if learned { [true] } else { [false] });
        let name = view(&world, "anthropic", "b").organisation;
        assert_eq!(name.as_deref(), learned.then_some("org-1"));
    }
}

/// A history with reasoning that only its organisation can read.
const REASONED: &str = r#"{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"go"},
 {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"so"}]},
 {"role":"user","content":"on"}]}"#;

#[tokio::test(start_paused = true)]
async fn reasoning_leaves_its_organisation_only_where_the_operator_says_so() {
    let [a, _, c] = family().try_into().unwrap();
    for (change, history, first, next) in [
        (
            OnOrganisationChange::Surface,
            REASONED.to_owned(),
            ("a", 401),
            ("", 503),
        ),
        (OnOrganisationChange::Move, REASONED.to_owned(), ("ac", 200), ("c", 200)),
        (OnOrganisationChange::Surface, body(0), ("ac", 200), ("c", 200)),
    ] {
        let world = World::with(|builder| {
            pooled(builder, &[a.clone(), c.clone()]);
            builder.proxy.rotation.on_organisation_change = change;
        });
        does(&world, &[]);
        assert_eq!(reached(&world, ask("s1", 7)).await, ("a".into(), 200));
        does(&world, &[("a", json(401, UNKNOWN))]);
        let request = of_session("s1", MESSAGES, &[], &history);
        let before = world.requests().len();
        let answer = world.ask(&request).await;
        assert_eq!(
            (keys(&world.requests()[before..]).as_str(), answer.status()),
            first,
            "{change:?}"
        );
        if first.1 == 200 {
            assert_eq!(answer.header("x-antiphon-profile"), Some("c; from=a; reason=auth"));
        } else {
            assert_eq!(answer.text(), UNKNOWN);
        }
        let before = world.requests().len();
        let answer = world.ask(&request).await;
        assert_eq!(
            (keys(&world.requests()[before..]).as_str(), answer.status()),
            next,
            "{change:?}"
        );
        if next.1 == 503 {
            assert!(answer.text().contains("is bound to rests (auth)"), "{}", answer.text());
            let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((30..=36).contains(&seconds), "{seconds}");
        }
        // A profile of the same organisation is no change.
        assert_eq!(rests(&world, "anthropic", "c"), []);
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_the_former_profile_reads_goes_back_to_it_once() {
    let request = |number| of_session("s1", MESSAGES, &[], &body(number));
    for (a, seen, status) in [
        (fine(), "ba", 200),
        (json(400, FOREIGN), "ba", 400),
        (limited("100"), "ba", 429),
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[]);
        assert_eq!(reached(&world, request(0)).await, ("a".into(), 200));
        // Another lane's limit makes it rest.
        world.script(limited("30"));
        assert_eq!(reached(&world, ask("s2", 1)).await.0, "ab");
        does(&world, &[("a", a), ("b", json(400, FOREIGN))]);
        let before = world.requests().len();
        let answer = world.ask(request(2)).await;
        assert_eq!(
            (keys(&world.requests()[before..]).as_str(), answer.status()),
            (seen, status)
        );
        assert_eq!(answer.header("x-antiphon-profile"), Some("a"), "it is where it was");
        assert_eq!(
            rests(&world, "anthropic", "b"),
            [],
            "a refusal of state is no fault of a key"
        );
    }
    // Where nobody was left, there is no way back.
    let world = world(&strangers("ab"));
    does(&world, &[("a", json(400, FOREIGN))]);
    assert_eq!(reached(&world, request(0)).await, ("a".into(), 400));
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_holds_is_never_asked_for_twice() {
    let held: &[(&str, &[(&str, &str)], &str, bool)] = &[
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
        // What never left is sent.
        let world = world(&strangers("ab"));
        world.script([Step::Refuse]);
        does(&world, &[]);
        assert_eq!(reached(&world, &request).await, ("a".into(), 200), "{body}");
        assert_eq!(world.connections().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn who_retries_himself_and_what_the_provider_says_of_retries_counts() {
    let rows: &[(&[(&str, &str)], u16, &[(&str, &str)], &str, &str)] = &[
        (&[], 529, &[], OVERLOADED, "aaa"),
        (&[("x-stainless-retry-count", "0")], 529, &[], OVERLOADED, "aaa"),
        (&[("x-stainless-retry-count", "1")], 529, &[], OVERLOADED, "ab"),
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

#[tokio::test(start_paused = true)]
async fn a_short_limit_is_waited_for_and_a_long_one_is_left() {
    let in_seconds = |seconds: u64| {
        let date = UNIX_EPOCH + Duration::from_secs(since_1970().as_secs() + seconds);
        (
            httpdate::fmt_http_date(date),
            humantime::format_rfc3339_seconds(date).to_string(),
        )
    };
    let (short, long) = (in_seconds(8), in_seconds(40));
    let rows: &[(&[(&str, &str)], &str, Option<u64>)] = &[
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
        let pause = requests[1].at - requests[0].at;
        let wanted = Duration::from_millis(waited.unwrap_or(0));
        assert!(pause <= wanted + Duration::from_millis(1000), "{fields:?}: {pause:?}");
        assert!(pause + Duration::from_millis(1000) >= wanted, "{fields:?}: {pause:?}");
        assert_eq!(
            rests(&world, "anthropic", "a").is_empty(),
            waited.is_some(),
            "a success ends the rest"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_three_attempts_and_one_rotation_for_a_limit() {
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
        (vec![("a", json(403, "{}")), ("b", json(403, "{}"))], "ab", 403),
        (vec![("a", limited("60")), ("b", limited("60"))], "ab", 429),
        // A rotation for a key that is not taken is none for a limit.
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
async fn where_all_rest_the_client_is_told_how_long() {
    for (first, second, status, seconds, retry) in [
        (limited("90"), limited("120"), 429, 90..=108, Some("false")),
        (limited("40"), limited("50"), 429, 40..=48, None),
        (limited("40"), json(401, UNKNOWN), 503, 30..=36, None),
        (json(402, "{}"), json(402, "{}"), 503, 18_000..=21_600, Some("false")),
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[("a", first), ("b", second)]);
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "ab");
        let answer = world.ask(ask("s2", 1)).await;
        assert_eq!(world.requests().len(), 2, "nobody is asked");
        assert_eq!((answer.status(), answer.header("x-should-retry")), (status, retry));
        let told: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds.contains(&told), "{told}");
        assert_eq!(
            (answer.header("x-antiphon-fault"), answer.header("x-antiphon-phase")),
            (Some("proxy"), Some("queue"))
        );
        let words = answer.json()["error"]["type"].clone();
        assert_eq!(
            words,
            if status == 429 { "rate_limit_error" } else { "api_error" },
            "{}",
            answer.text()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_one_is_never_emptied_by_a_rest_but_by_what_disables() {
    for (steps, status) in [(limited("600"), 429), (json(401, UNKNOWN), 401), (json(403, "{}"), 403)] {
        let world = world(&strangers("a"));
        does(&world, &[("a", steps)]);
        for number in 0..3 {
            assert_eq!(reached(&world, ask("s1", number)).await, ("a".into(), status));
        }
    }
    let world = world(&strangers("a"));
    does(&world, &[("a", json(402, "{}"))]);
    assert_eq!(reached(&world, ask("s1", 0)).await, ("a".into(), 402));
    assert_eq!(reached(&world, ask("s1", 1)).await, (String::new(), 503));
    // Three refusals in a row, each behind the rest of the one before.
    let world = self::world(&strangers("a"));
    does(&world, &[("a", json(401, UNKNOWN))]);
    for (number, at) in [0, 40, 120].into_iter().enumerate() {
        world.until(secs(at)).await;
        assert_eq!(reached(&world, ask("s1", number)).await, ("a".into(), 401));
    }
    assert_eq!(reached(&world, ask("s1", 3)).await, (String::new(), 503));
    let (reason, _, disables, _, left) = rests(&world, "anthropic", "a")[0].clone();
    assert!(reason == "auth" && disables && (599..=720).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_breaker_holds_our_retries_back_and_refuses_nobody() {
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
    // An endpoint that is down is not tried with all keys.
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
async fn a_request_that_its_client_sends_again_counts_once() {
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
async fn retries_are_paid_for_until_there_is_nothing_left() {
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
    // Five good answers pay for one.
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
async fn two_who_call_their_session_alike_share_nothing() {
    let world = world(&strangers("ab"));
    does(&world, &[]);
    let of = |who: &'static str, number| of_session("same", MESSAGES, &[("x-api-key", who)], &body(number));
    world.script(json(401, UNKNOWN));
    assert_eq!(reached(&world, of("one", 0)).await.0, "ab");
    world.until(secs(100)).await;
    assert_eq!(reached(&world, of("one", 1)).await.0, "b");
    assert_eq!(reached(&world, of("two", 2)).await.0, "a", "another's pin");
    let totals = world.shared.sessions.totals(tokio::time::Instant::now());
    assert_eq!((totals.lanes, totals.pinned), (2, 2));
    let sent: Vec<bool> = world
        .requests()
        .iter()
        .map(|request| request.message.head.contains("one") || request.message.head.contains("two"))
        .collect();
    assert!(!sent.contains(&true), "a client's own credential went up");
}

#[tokio::test(start_paused = true)]
async fn with_a_clients_own_key_nothing_is_sent_twice_but_what_never_left() {
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
async fn an_answer_is_held_only_while_another_attempt_could_be_made() {
    let streamed = body(0).replace("{\"model\"", "{\"stream\":true,\"model\"");
    let retry: &[(&str, &str)] = &[("x-stainless-retry-count", "1")];
    let held = streamed.replace("{\"stream\"", "{\"container\":\"c_1\",\"stream\"");
    for (profiles, fields, sent, silent, came) in [
        (vec![], &[][..], &streamed, 5, 0),
        (strangers("a"), &[][..], &streamed, 5, 5),
        (strangers("a"), &[][..], &streamed, 60, 10),
        (strangers("a"), retry, &streamed, 5, 0),
        (strangers("ab"), retry, &streamed, 5, 5),
        (strangers("ab"), &[][..], &held, 5, 0),
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
async fn no_silence_and_no_broken_line_costs_a_key() {
    let stream = || vec![sse(), say(anthropic::start() + &anthropic::text_start(0))];
    let with = |last: Step| [stream(), vec![last]].concat();
    let failures: [(&str, Vec<Step>); 8] = [
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
    for (name, steps) in failures {
        let world = world(&strangers("ab"));
        for number in 0..3 {
            // As often as it is tried.
            for _ in 0..2 {
                world.script(steps.clone());
            }
            let answer = world.ask(of_session("s1", MESSAGES, &[], &streamed(number))).await;
            assert!(!answer.complete || answer.status() >= 500, "{name}: {answer:?}");
            world.clear();
        }
        world.settle().await;
        assert!(untouched(&world), "{name}");
        assert_eq!(failures_of(&world), 3, "{name}");
        assert!(!keys(&world.requests()).contains('b'), "{name}: another key was tried");
        does(&world, &[]);
        assert_eq!(reached(&world, ask("s1", 9)).await, ("a".into(), 200), "{name}");
    }
}

fn failures_of(world: &World) -> u32 {
    failures(world, "anthropic")
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_costs_nobody_anything_unless_the_provider_was_slow() {
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
        // Two halves are one, once more than half of our patience of 240 s had passed.
        assert_eq!(failures_of(&world), endpoint + u32::from(stays > 120), "{stays}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_streamed_is_not_asked_for_again_when_no_head_comes() {
    let world = world(&strangers("ab"));
    world.otherwise(|_| vec![Step::Hang]);
    let answer = world.ask(ask("s1", 0)).await;
    assert_eq!((answer.status(), world.requests().len()), (504, 1));
    assert_at(answer.ended_at, secs(600));
    assert!(untouched(&world));
}

#[tokio::test(start_paused = true)]
async fn a_client_without_time_to_wait_is_not_made_to() {
    for (patience, seen, at) in [("600", "a", 8), ("NOT_GIVEN", "a", 8), ("20", "b", 0)] {
        let world = world(&strangers("ab"));
        world.otherwise(|_| fine());
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
        // Another lane meets a short limit, and does not wait for it itself.
        world.script(limited("8"));
        let retries = [("x-stainless-retry-count", "1")];
        assert_eq!(
            reached(&world, of_session("s2", MESSAGES, &retries, &body(1))).await.0,
            "ab"
        );
        let began = world.now();
        let (before, budget) = (world.requests().len(), [("x-stainless-timeout", patience)]);
        let answer = world.ask(of_session("s1", MESSAGES, &budget, &body(2))).await;
        assert_eq!(keys(&world.requests()[before..]), seen, "{patience}");
        let waited = answer.ended_at - began;
        assert!(is_about(waited, secs(at)), "{patience}: {waited:?}");
        let moved = (seen == "b").then_some("b; from=a; reason=rate_limit").unwrap_or("a");
        assert_eq!(answer.header("x-antiphon-profile"), Some(moved));
    }
    // Where nobody is left, the recorded reason is told.
    let world = world(&strangers("ab"));
    world.otherwise(|_| fine());
    assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
    does(&world, &[("a", json(401, UNKNOWN)), ("b", json(401, UNKNOWN))]);
    assert_eq!(reached(&world, ask("s2", 1)).await.0, "ab");
    world.until(secs(27)).await;
    let answer = world
        .ask(of_session("s1", MESSAGES, &[("x-stainless-timeout", "2")], &body(2)))
        .await;
    assert_eq!((answer.status(), world.requests().len()), (503, 3));
    assert!(answer.text().contains("(auth)"), "{}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_model_leaves_the_others_alone() {
    for (fields, seen) in [
        (vec![("retry-after", "100")], "a"),
        (
            vec![
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-7d-status", "rejected"),
            ],
            "b",
        ),
    ] {
        let world = world(&strangers("ab"));
        world.script(error(429, &fields, LIMITED));
        world.otherwise(|_| fine());
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "ab");
        assert_eq!(reached(&world, ask("s2", 1)).await.0, "b", "the model that was limited");
        let other = body(2).replace("\"m\"", "\"n\"");
        assert_eq!(
            reached(&world, of_session("s3", MESSAGES, &[], &other)).await.0,
            seen,
            "{fields:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_binds_a_lane_keeps_it_where_it_is_for_as_long_as_that_lasts() {
    let paused = r#"{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"go"},
 {"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}]}]}"#;
    let container = body(1).replace("{\"model\"", "{\"container\":\"c_1\",\"model\"");
    for (sent, fields, bound) in [
        (paused, &[][..], true),
        (container.as_str(), &[][..], true),
        (&body(1), &[("x-codex-turn-state", "opaque")][..], true),
        (&body(1), &[][..], false),
    ] {
        let world = world(&strangers("ab"));
        world.otherwise(|_| fine());
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
        world.script(limited("100"));
        assert_eq!(reached(&world, ask("s2", 0)).await.0, "ab");
        let request = of_session("s1", MESSAGES, fields, sent);
        let (seen, status) = if bound { ("", 429) } else { ("b", 200) };
        assert_eq!(
            reached(&world, &request).await,
            (seen.to_owned(), status),
            "{sent} {fields:?}"
        );
        world.until(secs(125)).await;
        let seen = if bound { "a" } else { "b" };
        assert_eq!(
            reached(&world, &request).await,
            (seen.to_owned(), 200),
            "{sent} {fields:?}: afterwards"
        );
    }
}
