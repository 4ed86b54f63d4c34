//! Selection of a profile: lanes, organisations, bindings, and pools with many cooldowns.

use antiphon::policy::OnOrganisationChange;

use crate::support::{
    app::post_with,
    pool::{
        FORBIDDEN, FOREIGN, LIMITED, MESSAGES, RESPONSES, UNKNOWN, UNPAID, ask, body, cooldowns, does, family, fine,
        is_about, key, keys, limited, of_session, pooled, profile, reached, strangers, untouched, view, world,
    },
    still::{Step, World, error, events::responses, json, say, secs, sse},
};

#[tokio::test(start_paused = true)]
async fn a_lane_stays_with_its_profile_under_every_kind_of_name() {
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
async fn a_moved_lane_stays_and_other_lanes_do_not_follow() {
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
async fn a_continued_response_selects_the_lane_of_its_request() {
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
async fn profiles_of_a_learned_organisation_share_their_limits() {
    for (learned, wanted) in [(true, "ac"), (false, "ab")] {
        let world = world(&strangers("abc"));
        let named = move |request: &crate::support::wire::Message, status: u16, body: &str| {
            let organisation = if key(request) == "c" { "org-2" } else { "org-1" };
            let fields: &[(&str, &str)] = &[("anthropic-organization-id", organisation)];
            error(status, if learned { fields } else { &[] }, body)
        };
        // Each profile answers once.
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
        let shared: Vec<bool> = cooldowns(&world, "anthropic", "b").iter().map(|rest| rest.3).collect();
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
async fn reasoning_leaves_its_organisation_only_if_configured() {
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
            assert!(
                answer.text().contains("is bound to is in cooldown (auth)"),
                "{}",
                answer.text()
            );
            let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((30..=36).contains(&seconds), "{seconds}");
        }
        // The other profile never cools down.
        assert_eq!(cooldowns(&world, "anthropic", "c"), []);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_state_is_resent_once_to_the_former_profile() {
    let request = |number| of_session("s1", MESSAGES, &[], &body(number));
    for (a, seen, status) in [
        (fine(), "ba", 200),
        (json(400, FOREIGN), "ba", 400),
        (limited("100"), "ba", 429),
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[]);
        assert_eq!(reached(&world, request(0)).await, ("a".into(), 200));
        // The limit of another lane starts a cooldown.
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
            cooldowns(&world, "anthropic", "b"),
            [],
            "a refusal of state is no fault of a key"
        );
    }
    // Without an earlier profile there is nothing to return to.
    let world = world(&strangers("ab"));
    does(&world, &[("a", json(400, FOREIGN))]);
    assert_eq!(reached(&world, request(0)).await, ("a".into(), 400));
}

#[tokio::test(start_paused = true)]
async fn with_all_profiles_cooling_down_the_answer_has_retry_after() {
    for (first, second, status, seconds, retry) in [
        (limited("90"), limited("120"), 429, 90..=108, Some("false")),
        (limited("40"), limited("50"), 429, 40..=48, None),
        (limited("40"), json(401, UNKNOWN), 503, 30..=36, None),
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
async fn a_single_profile_is_unavailable_only_if_disabled_or_until_a_named_time() {
    for (steps, status) in [
        (json(429, LIMITED), 429),
        (json(401, UNKNOWN), 401),
        (json(403, FORBIDDEN), 403),
    ] {
        let world = world(&strangers("a"));
        does(&world, &[("a", steps)]);
        for number in 0..3 {
            assert_eq!(reached(&world, ask("s1", number)).await, ("a".into(), status));
        }
    }
    let world = world(&strangers("a"));
    does(&world, &[("a", json(402, UNPAID))]);
    assert_eq!(reached(&world, ask("s1", 0)).await, ("a".into(), 402));
    assert_eq!(reached(&world, ask("s1", 1)).await, (String::new(), 402));
    // A time that the provider names is kept, and probed every 30 s: the limit may have been raised.
    let world = self::world(&strangers("a"));
    does(&world, &[("a", limited("600"))]);
    for (at, seen) in [(0, "a"), (1, ""), (29, ""), (31, "a"), (32, ""), (62, "a")] {
        world.until(secs(at)).await;
        assert_eq!(reached(&world, ask("s1", 0)).await, (seen.into(), 429), "{at}");
    }
    does(&world, &[]);
    world.until(secs(93)).await;
    assert_eq!(reached(&world, ask("s1", 1)).await, ("a".into(), 200));
    assert_eq!(reached(&world, ask("s1", 2)).await, ("a".into(), 200));
    assert!(untouched(&world));
    // Three refusals in a row, each after the cooldown of the one before.
    let world = self::world(&strangers("a"));
    does(&world, &[("a", json(401, UNKNOWN))]);
    for (number, at) in [0, 40, 120].into_iter().enumerate() {
        world.until(secs(at)).await;
        assert_eq!(reached(&world, ask("s1", number)).await, ("a".into(), 401));
    }
    assert_eq!(reached(&world, ask("s1", 3)).await, (String::new(), 401));
    let (reason, _, disables, _, left) = cooldowns(&world, "anthropic", "a")[0].clone();
    assert!(reason == "auth" && disables && (599..=720).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn equal_session_names_of_two_callers_share_nothing() {
    let world = world(&strangers("ab"));
    does(&world, &[]);
    let of = |who: &'static str, number| of_session("same", MESSAGES, &[("x-api-key", who)], &body(number));
    world.script(json(401, UNKNOWN));
    assert_eq!(reached(&world, of("one", 0)).await.0, "ab");
    world.until(secs(100)).await;
    assert_eq!(reached(&world, of("one", 1)).await.0, "b");
    assert_eq!(reached(&world, of("two", 2)).await.0, "a", "another's pin");
    let totals = world.shared.sessions.lane_totals(tokio::time::Instant::now());
    assert_eq!((totals.lanes, totals.pinned), (2, 2));
    let sent: Vec<bool> = world
        .requests()
        .iter()
        .map(|request| request.message.head.contains("one") || request.message.head.contains("two"))
        .collect();
    assert!(!sent.contains(&true), "a client's own credential went up");
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_short_timeout_does_not_wait() {
    for (patience, seen, at) in [("600", "a", 8), ("NOT_GIVEN", "a", 8), ("20", "b", 0)] {
        let world = world(&strangers("ab"));
        world.otherwise(|_| fine());
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
        // Another lane gets a short limit and does not wait for it.
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
        let waited = answer.ended_at.saturating_sub(began);
        assert!(is_about(waited, secs(at)), "{patience}: {waited:?}");
        let moved = if seen == "b" {
            "b; from=a; reason=rate_limit"
        } else {
            "a"
        };
        assert_eq!(answer.header("x-antiphon-profile"), Some(moved));
    }
    // If no profile is available, the answer contains the recorded reason.
    let world = world(&strangers("ab"));
    world.otherwise(|_| fine());
    assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
    does(&world, &[("a", json(401, UNKNOWN)), ("b", json(401, UNKNOWN))]);
    assert_eq!(reached(&world, ask("s2", 1)).await.0, "ab");
    world.until(secs(27)).await;
    let answer = world
        .ask(of_session("s1", MESSAGES, &[("x-stainless-timeout", "2")], &body(2)))
        .await;
    assert_eq!((answer.status(), world.requests().len()), (401, 3));
    assert!(answer.text().contains("(auth)"), "{}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_model_does_not_affect_others() {
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
async fn a_bound_lane_waits_for_its_profile() {
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

#[tokio::test(start_paused = true)]
async fn a_pool_of_rejected_or_unpaid_keys_says_so_at_once() {
    for (first, second, status, kind) in [
        (json(401, UNKNOWN), json(401, UNKNOWN), 401, "authentication_error"),
        (json(402, UNPAID), json(402, UNPAID), 402, "billing_error"),
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[("a", first), ("b", second)]);
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "ab");
        let answer = world.ask(ask("s2", 1)).await;
        assert_eq!((world.requests().len(), answer.status()), (2, status));
        assert_eq!(
            (answer.header("retry-after"), answer.header("x-should-retry")),
            (None, Some("false"))
        );
        assert_eq!(answer.json()["error"]["type"], kind);
        assert!(answer.text().contains("this proxy's keys"), "{}", answer.text());
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_works_again_is_found_by_a_probe() {
    for (refused, status) in [
        (json(401, UNKNOWN), 401),
        (json(402, UNPAID), 402),
        (json(429, LIMITED), 429),
        (json(403, FORBIDDEN), 403),
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[("a", refused.clone()), ("b", refused.clone())]);
        assert_eq!(reached(&world, ask("s1", 0)).await, ("ab".into(), status));
        // Nothing is sent before the first probe.
        world.until(secs(20)).await;
        assert_eq!(reached(&world, ask("s2", 1)).await.0, "", "{status}");
        // A probe that fails: its client gets the provider's answer. One probe for each key.
        world.until(secs(40)).await;
        let (seen, answered) = reached(&world, ask("s3", 2)).await;
        assert_eq!(answered, status);
        assert!(!seen.is_empty(), "{status}");
        does(&world, &[]);
        world.until(secs(110)).await;
        assert_eq!(reached(&world, ask("s4", 3)).await.1, 200, "{status}");
    }
}

/// Each key has a limit of days, which its provider resets early for one of them.
#[tokio::test(start_paused = true)]
async fn a_key_with_a_named_limit_of_days_is_probed_every_ten_minutes_if_nothing_else_can_serve() {
    const DAYS: &str = "70000";
    let world = world(&strangers("ab"));
    does(&world, &[("a", limited(DAYS)), ("b", limited(DAYS))]);
    assert_eq!(reached(&world, ask("s0", 0)).await, ("ab".into(), 429));
    let (mut seen, mut from_provider) = (String::new(), 0);
    for second in (5..3600).step_by(5) {
        world.until(secs(second)).await;
        let number = usize::try_from(second).unwrap();
        let (keys, status) = reached(&world, ask(&format!("s{}", number % 7), number)).await;
        assert_eq!(status, 429, "{second}");
        from_provider += usize::from(!keys.is_empty());
        seen += &keys;
    }
    // Once in ten minutes one request tries both keys. All others are refused by the proxy.
    assert_eq!((seen.matches('a').count(), seen.matches('b').count()), (5, 5), "{seen}");
    assert_eq!(from_provider, 5);
    // The success of a probe ends the cooldown. From then on the other key is left alone.
    does(&world, &[("b", limited(DAYS))]);
    let mut statuses = Vec::new();
    for second in (3600..6000).step_by(5) {
        world.until(secs(second)).await;
        let number = usize::try_from(second).unwrap();
        let (keys, status) = reached(&world, ask(&format!("s{}", number % 7), number)).await;
        statuses.push(status);
        assert!(keys != "b" || statuses.iter().all(|status| *status == 429), "{second}");
    }
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(refused <= 120 && statuses.ends_with(&[200; 300]), "{refused}");
}

/// A named limit that ends soon is waited for, and a bound conversation is refused as before.
#[tokio::test(start_paused = true)]
async fn a_named_limit_of_minutes_is_not_probed() {
    let world = world(&strangers("ab"));
    does(&world, &[("a", limited("590")), ("b", limited("590"))]);
    assert_eq!(reached(&world, ask("s0", 0)).await, ("ab".into(), 429));
    for second in (5..575).step_by(5) {
        world.until(secs(second)).await;
        let number = usize::try_from(second).unwrap();
        assert_eq!(
            reached(&world, ask("s0", number)).await,
            (String::new(), 429),
            "{second}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_in_cooldown_is_not_probed_while_another_is_ready() {
    let world = world(&strangers("abc"));
    does(&world, &[("a", json(402, UNPAID)), ("b", json(429, LIMITED))]);
    assert_eq!(reached(&world, ask("s1", 0)).await, ("abc".into(), 200));
    for number in 1..40_usize {
        world.until(secs(10) * u32::try_from(number).unwrap()).await;
        // The cooldown of a limit ends after 30 s, and its key is tried again then.
        let (seen, status) = reached(&world, ask("s1", number)).await;
        assert_eq!((seen.contains('a'), status), (false, 200), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_requests_probe_a_key_once_in_thirty_seconds() {
    let world = world(&strangers("ab"));
    does(&world, &[("a", json(402, UNPAID)), ("b", json(402, UNPAID))]);
    reached(&world, ask("s0", 0)).await;
    let before = world.requests().len();
    for number in 1..=300_usize {
        world.until(secs(1) * u32::try_from(number).unwrap()).await;
        reached(&world, ask(&format!("s{number}"), number)).await;
    }
    let probes = world.requests().len() - before;
    assert!((14..=20).contains(&probes), "{probes}");
}
