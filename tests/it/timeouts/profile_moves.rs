//! Conversations that leave their profile and come home, and requests that use no profile in particular.

use std::collections::BTreeMap;

use antiphon::auth::Profile;

use crate::support::{
    app::post_with,
    pool::{
        LIMITED, MESSAGES, OVERLOADED, RESPONSES, UNKNOWN, UNPAID, ask, body, cooldowns, does, family, fine, key, keys,
        limited, of_session, profile, reached, strangers, untouched, world,
    },
    still::{Step, World, error, events::anthropic, json, say, secs, sse, wait},
};

/// Moves the lane `s1` from `a` to `b` and ends the cooldown of `a`.
async fn moved_to_b(profiles: &[Profile]) -> World {
    let world = world(profiles);
    does(&world, &[("a", limited("60"))]);
    assert_eq!(reached(&world, ask("s1", 0)).await, ("ab".into(), 200));
    does(&world, &[]);
    world.until(secs(70)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_conversation_comes_home_when_its_cache_has_expired() {
    let longer = |value: &str| {
        body(2).replace(
            "\"max_tokens\"",
            &format!("\"cache_control\":{{\"type\":\"ephemeral\",\"ttl\":\"{value}\"}},\"max_tokens\""),
        )
    };
    let kept = body(2).replace("\"max_tokens\"", "\"prompt_cache_retention\":\"24h\",\"max_tokens\"");
    for (request, idle, seen) in [
        (body(2), 100, "b"),
        (body(2), 290, "b"),
        (body(2), 310, "a"),
        (longer("5m"), 310, "a"),
        (longer("1h"), 310, "b"),
        (longer("1h"), 3500, "b"),
        (longer("1h"), 3700, "a"),
        (kept.clone(), 3700, "b"),
    ] {
        let world = moved_to_b(&strangers("ab")).await;
        let of_lane = of_session("s1", MESSAGES, &[], &request);
        assert_eq!(reached(&world, &of_lane).await.0, "b", "still warm");
        world.until(world.now() + secs(idle)).await;
        let answer = world.ask(&of_lane).await;
        let used = keys(&world.requests()).pop().unwrap().to_string();
        assert_eq!(used, seen, "{request} {idle}");
        let note = if seen == "a" {
            "a; from=b; reason=cold_cache"
        } else {
            "b"
        };
        assert_eq!(answer.header("x-antiphon-profile"), Some(note));
        // It stays at home from now on.
        assert_eq!(reached(&world, &of_lane).await.0, seen);
    }
}

#[tokio::test(start_paused = true)]
async fn a_compaction_brings_a_conversation_home() {
    let marks = [("x-claude-code-compaction", "auto")];
    let compacted = [("x-claude-code-context-compacted", "1")];
    for (fields, seen) in [(&marks, "ba"), (&compacted, "aa")] {
        let world = moved_to_b(&strangers("ab")).await;
        // The compaction itself reads the old history, whose cache is warm.
        let first = reached(&world, of_session("s1", MESSAGES, fields, &body(2))).await.0;
        let second = reached(&world, of_session("s1", MESSAGES, &[], &body(3))).await.0;
        assert_eq!(first + &second, seen, "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn state_of_a_key_or_organisation_keeps_a_cold_conversation() {
    let signed = r#"{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"x"}]},{"role":"user","content":"go on"}]}"#;
    let container = body(2).replace("{\"model\"", "{\"container\":\"c_1\",\"model\"");
    // `a` and `b` are of one organisation in the second pool.
    let mut strange = strangers("ab");
    strange[0].organisation = Some("org-x".to_owned());
    strange[1].organisation = Some("org-y".to_owned());
    for (profiles, request, seen) in [
        (strange.clone(), signed.to_owned(), "b"),
        (strangers("ab"), container.clone(), "b"),
        (strange.clone(), body(2), "a"),
    ] {
        let world = moved_to_b(&profiles).await;
        world.until(world.now() + secs(7200)).await;
        let of_lane = of_session("s1", MESSAGES, &[], &request);
        assert_eq!(reached(&world, &of_lane).await, (seen.into(), 200), "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cold_conversation_waits_for_no_profile() {
    let world = moved_to_b(&strangers("ab")).await;
    world.until(world.now() + secs(600)).await;
    does(&world, &[("a", limited("300"))]);
    // Another lane finds out that its home is limited again.
    assert_eq!(reached(&world, ask("s2", 5)).await.0, "ab");
    assert_eq!(reached(&world, ask("s1", 6)).await, ("b".into(), 200));
}

#[tokio::test(start_paused = true)]
async fn an_overload_moves_no_conversation() {
    for (count, wait, seen) in [
        ("0", None, "aaa"),
        ("1", None, "a"),
        ("0", Some("5"), "aaa"),
        ("0", Some("120"), "ab"),
        ("1", Some("120"), "ab"),
    ] {
        for status in [503, 529] {
            let world = world(&strangers("ab"));
            does(&world, &[]);
            assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
            let fields: Vec<(&str, &str)> = wait.map(|seconds| ("retry-after", seconds)).into_iter().collect();
            does(&world, &[("a", error(status, &fields, OVERLOADED))]);
            let retried = [("x-stainless-retry-count", count)];
            let request = of_session("s1", MESSAGES, &retried, &body(1));
            let before = world.requests().len();
            let answer = world.ask(request).await;
            assert_eq!(keys(&world.requests()[before..]), seen, "{count} {wait:?}");
            let note = if seen == "ab" {
                "b; from=a; reason=overloaded"
            } else {
                "a"
            };
            assert_eq!(answer.header("x-antiphon-profile"), Some(note));
            assert!(untouched(&world));
            // The next request is at home again, where its cache is.
            does(&world, &[]);
            assert_eq!(reached(&world, ask("s1", 2)).await.0, "a", "{count} {wait:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_conversation_are_spread_by_weight() {
    let weighted = [profile("a", None, 1), profile("b", None, 2), profile("c", None, 3)];
    for (path, request) in [
        ("/openai/v1/embeddings", r#"{"model":"e","input":"hi"}"#),
        ("/openai/v1/completions", r#"{"model":"e","prompt":"hi"}"#),
        ("/openai/v1/images/generations", r#"{"model":"e","prompt":"hi"}"#),
        (
            "/gemini/v1beta/models/e:embedContent",
            r#"{"content":{"parts":[{"text":"hi"}]}}"#,
        ),
    ] {
        let world = world(&weighted);
        world.otherwise(|_| fine());
        for _ in 0..300 {
            world.ask(post_with(path, &[], request.as_bytes())).await;
        }
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for letter in keys(&world.requests()).chars() {
            *counts.entry(letter).or_default() += 1;
        }
        for (letter, wanted) in [('a', 50_usize), ('b', 100), ('c', 150)] {
            assert!(counts[&letter].abs_diff(wanted) <= 35, "{path}: {counts:?}");
        }
    }
    // A conversation stays where it is.
    let world = world(&weighted);
    world.otherwise(|_| fine());
    for number in 0..20 {
        world
            .ask(of_session(
                "s1",
                RESPONSES,
                &[],
                &format!(r#"{{"model":"m","input":"hi {number}"}}"#),
            ))
            .await;
    }
    let used = keys(&world.requests());
    assert!(used.chars().all(|letter| used.starts_with(letter)), "{used}");
}

/// Returns one profile that serves two requests at once, or two of them.
fn narrow(labels: &str) -> Vec<Profile> {
    let mut profiles = strangers(labels);
    for profile in &mut profiles {
        profile.max_concurrent = Some(2);
    }
    profiles
}

/// Returns an answer that takes this long.
fn slow(seconds: u64) -> Vec<Step> {
    let words = anthropic::start() + &anthropic::text_start(0) + &anthropic::text(0, "so");
    vec![
        sse(),
        say(words),
        wait(seconds),
        say(anthropic::stop(0) + &anthropic::end("end_turn")),
        Step::End,
    ]
}

#[tokio::test(start_paused = true)]
async fn more_requests_than_allowed_wait_for_a_place() {
    let world = world(&narrow("a"));
    world.otherwise(|_| slow(4));
    let one = |number: usize| world.ask(ask(&format!("s{number}"), number));
    let answers = futures_util::future::join_all((0..6).map(one)).await;
    // Two at once: at 0, 4 and 8 s.
    let mut ends: Vec<u64> = answers.iter().map(|answer| answer.ended_at.as_secs()).collect();
    ends.sort_unstable();
    assert_eq!(ends, [4, 4, 8, 8, 12, 12]);
    assert!(answers.iter().all(|answer| answer.status() == 200 && answer.complete));
    assert!(untouched(&world));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gets_no_place_in_time_gets_a_429() {
    let world = world(&narrow("a"));
    world.otherwise(|_| slow(60));
    let one = |number: usize| world.ask(ask(&format!("s{number}"), number));
    let answers = futures_util::future::join_all((0..3).map(one)).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 429).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].ended_at.as_secs(), 10);
    assert!(refused[0].text().contains("max_concurrent"), "{}", refused[0].text());
    assert!(refused[0].header("retry-after").is_some());
    assert_eq!(world.requests().len(), 2);
    // Another profile takes what is too much for the first.
    let world = self::world(&narrow("ab"));
    world.otherwise(|_| slow(60));
    let one = |number: usize| world.ask(ask(&format!("s{number}"), number));
    let answers = futures_util::future::join_all((0..4).map(one)).await;
    assert!(answers.iter().all(|answer| answer.status() == 200));
    let mut used: Vec<char> = keys(&world.requests()).chars().collect();
    used.sort_unstable();
    assert_eq!(used, ['a', 'a', 'b', 'b']);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_place() {
    let world = world(&narrow("a"));
    world.otherwise(|_| slow(100));
    let mut clients = Vec::new();
    for number in 0..2 {
        let mut client = world.client();
        client.send(ask(&format!("s{number}"), number)).await;
        client.head().await;
        clients.push(client);
    }
    let waiting = world.ask(ask("s9", 9));
    let leaving = async {
        world.until(secs(3)).await;
        clients.pop();
        world.until(secs(4)).await;
    };
    let (answer, ()) = futures_util::future::join(waiting, leaving).await;
    assert_eq!((answer.status(), answer.ended_at.as_secs()), (200, 103));
}

#[tokio::test(start_paused = true)]
async fn a_used_up_limit_is_known_before_it_is_refused() {
    let left = |requests: &str, reset: &str| {
        let fields = [
            ("x-ratelimit-remaining-requests", requests),
            ("x-ratelimit-reset-requests", reset),
        ];
        error(200, &fields, r#"{"type":"message","content":[]}"#)
    };
    // The wait is that of the next request: 6 s, or a share of the whole reset, or nothing.
    for (answer, waited) in [(left("0", "6s"), 6), (left("1", "6s"), 0), (left("0", "90s"), 10)] {
        let world = world(&strangers("a"));
        world.script(answer);
        world.otherwise(|_| fine());
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
        assert_eq!(world.ask(ask("s1", 1)).await.status(), 200);
        assert_eq!(world.requests()[1].at.as_secs(), waited);
        assert!(untouched(&world), "nothing was refused");
    }
    // Another key is used at once by what has no conversation there.
    let world = world(&strangers("ab"));
    world.script(left("0", "6s"));
    world.otherwise(|_| fine());
    assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
    assert_eq!(reached(&world, ask("s2", 1)).await, ("b".into(), 200));
    assert_eq!(world.requests()[1].at.as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_never_longer_than_that_of_the_pool() {
    // `b` shares the quota of `a`, so that only `c` could serve. It is refused itself.
    let world = world(&family());
    does(
        &world,
        &[
            ("a", limited("300")),
            ("b", limited("300")),
            (
                "c",
                error(429, &[("retry-after", "90"), ("retry-after-ms", "90000")], LIMITED),
            ),
        ],
    );
    let answer = world.ask(ask("s1", 0)).await;
    assert_eq!(keys(&world.requests()), "ac");
    assert_eq!((answer.status(), answer.header("retry-after")), (429, Some("90")));
    // A refused key, and one that is limited for longer than the cooldown of the first.
    let world = self::world(&strangers("ab"));
    does(&world, &[("a", json(401, UNKNOWN)), ("b", limited("300"))]);
    let answer = world.ask(ask("s1", 0)).await;
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((30..=36).contains(&seconds), "{seconds}");
    assert_eq!(cooldowns(&world, "anthropic", "b")[0].4, 300);
    assert_eq!(key(&world.requests()[1].message), "b");
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_give_their_slots_back() {
    let world = world(&strangers("a"));
    // Five requests a second, with a refusal of everything beyond.
    let mut taken: Vec<tokio::time::Instant> = Vec::new();
    world.otherwise(move |_| {
        let now = tokio::time::Instant::now();
        taken.retain(|at| now.duration_since(*at) < secs(1));
        if taken.len() >= 5 {
            return limited("1");
        }
        taken.push(now);
        fine()
    });
    let request = |number: usize| ask(&format!("s{number}"), number);
    // Clients that give up after 3 s, again and again, twenty at once.
    let impatient = async {
        for round in 0..20 {
            let one = |number: usize| {
                let world = &world;
                async move {
                    let mut client = world.client();
                    client.send(request(round * 100 + number)).await;
                    drop(tokio::time::timeout(secs(1), client.answer()).await);
                }
            };
            futures_util::future::join_all((0..20).map(one)).await;
        }
    };
    // A client that waits as long as it takes.
    let patient = async {
        let mut answered = 0;
        for number in 0..15 {
            world.until(secs(5 + number)).await;
            let status = world
                .ask(request(9000 + usize::try_from(number).unwrap()))
                .await
                .status();
            answered += u32::from(status == 200);
        }
        answered
    };
    let ((), answered) = futures_util::future::join(impatient, patient).await;
    assert!(answered >= 12, "{answered} of 15");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_repeats_the_key_does_not_show_it() {
    let world = world(&strangers("a"));
    let said = UNKNOWN.replace("invalid x-api-key", "invalid x-api-key: sk-canary-a");
    world.otherwise(move |_| json(401, &said));
    let answer = world.ask(ask("s1", 0)).await;
    let masked = UNKNOWN.replace("invalid x-api-key", "invalid x-api-key: ***********");
    assert_eq!((answer.status(), answer.text()), (401, masked.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_key_beside_a_busy_one_is_no_reason_for_a_401() {
    let mut profiles = narrow("ab");
    profiles[0].max_concurrent = None;
    let world = world(&profiles);
    does(&world, &[("a", json(402, UNPAID)), ("b", slow(60))]);
    let one = |number: usize| world.ask(ask(&format!("s{number}"), number));
    let answers = futures_util::future::join_all((0..3).map(one)).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() != 200).collect();
    assert_eq!(refused.len(), 1);
    assert_ne!(
        refused[0].header("x-should-retry"),
        Some("false"),
        "{}",
        refused[0].text()
    );
    assert!(![401, 402].contains(&refused[0].status()) || keys(&world.requests()).matches('a').count() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_cold_conversation_returns_from_a_home_that_refuses_it() {
    let world = moved_to_b(&strangers("ab")).await;
    world.until(world.now() + secs(600)).await;
    // Nothing in the answer is about the key, so no cooldown keeps the lane away.
    does(&world, &[("a", json(401, "<html>sign in</html>"))]);
    assert_eq!(reached(&world, ask("s1", 6)).await, ("ab".into(), 200));
}

#[tokio::test(start_paused = true)]
async fn a_short_limit_of_a_path_without_a_model_is_waited_for() {
    let world = world(&strangers("a"));
    world.script(limited("5"));
    world.otherwise(|_| fine());
    let count = of_session(
        "s1",
        "/anthropic/v1/messages/count_tokens",
        &[],
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#,
    );
    assert_eq!(reached(&world, count).await, ("aa".into(), 200));
    assert_eq!(world.requests()[1].at.as_secs(), 5);
    // The provider's own wait reaches the client, because no key of the pool is in cooldown.
    let list = b"GET /anthropic/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    world.otherwise(|_| limited("20"));
    let answer = world.ask(list).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (429, Some("20")));
}

#[tokio::test(start_paused = true)]
async fn downloads_take_no_place_of_a_model() {
    let world = world(&narrow("a"));
    world.otherwise(|request| {
        if request.line().starts_with("GET") {
            slow(50)
        } else {
            fine()
        }
    });
    let list = |_| async {
        let mut client = world.client();
        client
            .send(b"GET /anthropic/v1/files/f_1/content HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        client.head().await;
        client
    };
    let downloads = futures_util::future::join_all((0..5).map(list)).await;
    assert_eq!(reached(&world, ask("s1", 1)).await, ("a".into(), 200));
    assert_eq!((downloads.len(), world.now().as_secs()), (5, 0));
}
