//! What callers of one upstream share: one of them cannot spend the retries of others, nor open their breakers.

use std::sync::Arc;

use antiphon::{
    auth::{ClientTokens, Credential, Profile, Secret, TokenHash},
    clock,
    keys::profiles::Profiles,
    ledger::{LedgerSettings, MemoryLedger},
    policy::RotationSettings,
};

use crate::support::{
    pool::{
        BROKEN, CANARY, MESSAGES, RESPONSES, UNKNOWN, body, cooldowns, does, failures, fine, key, limited, of_session,
        pooled, profile, reached, strangers, world,
    },
    still::{Step, World, error, json, secs},
};

/// Returns a world whose profile `a` serves the clients with the tokens `one` and `two`.
fn tenants() -> World {
    World::with(|builder| {
        pooled(builder, &strangers("a"));
        let token = |name: &str| (name.to_owned(), TokenHash::hash_token(name.as_bytes()));
        builder.proxy.client_tokens = ClientTokens::new(["one", "two", "new"].map(token).to_vec());
    })
}

/// Returns a request of this client. Different numbers are different logical requests.
fn of_client(client: &str, number: usize) -> Vec<u8> {
    of_session("s1", MESSAGES, &[("x-api-key", client)], &body(number))
}

/// Returns a request for a model of its own, whose breaker no other request can open.
fn of_model(client: &str, number: usize) -> Vec<u8> {
    let body = body(number).replace("\"m\"", &format!("\"m{number}\""));
    of_session("s1", MESSAGES, &[("x-api-key", client)], &body)
}

/// Has a provider accept these clients.
async fn verify(world: &World, clients: &[&str]) {
    does(world, &[]);
    for client in clients {
        assert_eq!(reached(world, of_client(client, 900)).await.1, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_cannot_spend_the_retries_of_another() {
    let world = tenants();
    verify(&world, &["one", "two"]).await;
    does(&world, &[("a", json(500, BROKEN))]);
    for number in 0..120 {
        let seen = reached(&world, of_model("one", number)).await.0;
        assert_eq!(seen, if number < 100 { "aa" } else { "a" }, "{number}");
    }
    assert_eq!(reached(&world, of_model("two", 120)).await.0, "aa");
}

#[tokio::test(start_paused = true)]
async fn one_caller_opens_its_own_breaker_and_two_open_that_of_all() {
    let world = tenants();
    verify(&world, &["one", "two"]).await;
    does(&world, &[("a", json(500, BROKEN))]);
    for number in 0..8 {
        let seen = reached(&world, of_client("one", number)).await.0;
        assert_eq!(seen, if number < 5 { "aa" } else { "a" }, "{number}");
    }
    // Others are retried as before, until a second caller has seen failures too.
    assert_eq!(reached(&world, of_client("new", 20)).await.0, "aa");
    for number in 30..33 {
        assert_eq!(reached(&world, of_client("two", number)).await.0, "aa", "{number}");
    }
    assert_eq!(reached(&world, of_client("two", 33)).await.0, "a");
    assert_eq!(reached(&world, of_client("new", 21)).await.0, "a", "open for all");
    verify(&world, &["two"]).await;
    assert_eq!(failures(&world, "anthropic"), 0);
    does(&world, &[("a", json(500, BROKEN))]);
    assert_eq!(
        reached(&world, of_client("one", 40)).await.0,
        "aa",
        "one success closes all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_no_provider_has_accepted_opens_only_its_own_breaker() {
    let world = tenants();
    verify(&world, &["one"]).await;
    does(&world, &[("a", json(500, BROKEN))]);
    for (client, numbers) in [("two", 0..10), ("new", 10..20)] {
        for number in numbers {
            reached(&world, of_client(client, number)).await;
        }
        assert_eq!(reached(&world, of_client(client, 50)).await.0, "a", "its own is open");
    }
    assert_eq!(reached(&world, of_client("one", 60)).await.0, "aa");
    // Nor does its error close the breaker of another.
    for number in 61..65 {
        reached(&world, of_client("one", number)).await;
    }
    assert_eq!(reached(&world, of_client("one", 66)).await.0, "a");
    does(&world, &[("a", json(400, "{}"))]);
    reached(&world, of_client("new", 67)).await;
    does(&world, &[("a", json(500, BROKEN))]);
    assert_eq!(reached(&world, of_client("one", 68)).await.0, "a");
    assert_eq!(
        reached(&world, of_client("new", 69)).await.0,
        "aa",
        "but it closes its own"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_without_patience_does_not_score_the_endpoint() {
    for (patience, leaves) in [("0.1", false), ("1", true)] {
        let world = world(&strangers("a"));
        let asked = |number: usize| {
            let fields = [("x-api-key", "one"), ("x-stainless-timeout", patience)];
            of_session("s1", MESSAGES, &fields, &body(number))
        };
        // The provider works, and answers after 0.4 s.
        world.otherwise(|_| [vec![Step::Wait(secs(2) / 5)], fine()].concat());
        for number in 0..12 {
            if leaves {
                world.otherwise(|_| vec![Step::Hang]);
                let mut client = world.client();
                client.send(asked(number)).await;
                world.until(world.now() + secs(1) * 9 / 20).await;
                drop(client);
                world.settle().await;
            } else {
                let answer = world.ask(asked(number)).await;
                assert_eq!(answer.status(), 504);
                assert_eq!(answer.header("x-antiphon-phase"), Some("headers"));
            }
        }
        assert_eq!(failures(&world, "anthropic"), 0, "{patience}");
        does(&world, &[("a", json(500, BROKEN))]);
        assert_eq!(reached(&world, of_client("one", 20)).await.0, "aa", "{patience}");
    }
}

/// Without client tokens, and with one client, all is as with one budget and one breaker for an upstream.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_alone_has_the_breaker_of_the_upstream() {
    for fields in [&[][..], &[("x-api-key", "dummy")]] {
        let world = world(&strangers("a"));
        does(&world, &[("a", json(500, BROKEN))]);
        for number in 0..7 {
            let seen = reached(&world, of_session("s1", MESSAGES, fields, &body(number)))
                .await
                .0;
            assert_eq!(seen, if number < 5 { "aa" } else { "a" }, "{fields:?} {number}");
        }
        does(&world, &[]);
        reached(&world, of_session("s1", MESSAGES, fields, &body(8))).await;
        does(&world, &[("a", json(500, BROKEN))]);
        let seen = reached(&world, of_session("s1", MESSAGES, fields, &body(9))).await.0;
        assert_eq!(seen, "aa", "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_old_exchange_learns_after_a_reload_is_kept() {
    let world = world(&strangers("ab"));
    // The provider answers only after the reload.
    world.otherwise(|request| match key(request).as_str() {
        "a" => [vec![Step::Wait(secs(5))], limited("300")].concat(),
        _ => fine(),
    });
    let mut client = world.client();
    client.send(of_client("one", 0)).await;
    world.settle().await;
    let reloaded = |profiles: Vec<Profile>| {
        let all = [("anthropic".to_owned(), profiles)].into();
        let telemetry = world.shared.telemetry.clone();
        Profiles::new(["anthropic"], all, &RotationSettings::default(), telemetry)
    };
    // Two reloads in a row: the second changes the order, and the third the credential.
    let (first, second, third) = (
        reloaded(strangers("ab")),
        reloaded(strangers("ab").into_iter().rev().collect()),
        reloaded(vec![profile_with_key("a", "new"), profile("b", None, 1)]),
    );
    first.inherit_state(&world.shared.profiles);
    second.inherit_state(&first);
    drop(first);
    assert_eq!(client.answer().await.status(), 200);
    let rests = |profiles: &Profiles, label: &str| {
        let statuses = profiles.profile_statuses(clock::std_now());
        let (_, views) = statuses.into_iter().next().unwrap();
        let view = views.into_iter().find(|view| *view.label == *label).unwrap();
        view.cooldowns.len()
    };
    assert_eq!((rests(&second, "a"), rests(&second, "b")), (1, 0));
    assert_eq!(
        cooldowns(&world, "anthropic", "a").len(),
        1,
        "the exchange itself sees it too"
    );
    third.inherit_state(&second);
    assert_eq!(rests(&third, "a"), 0, "another credential");
    // Nothing holds a configuration that no exchange uses.
    drop((second, third));
    does(&world, &[("b", json(401, UNKNOWN))]);
    reached(&world, of_client("one", 1)).await;
}

/// A ledger in memory has another secret after a restart, which names lanes anew.
#[tokio::test(start_paused = true)]
async fn a_restart_moves_no_conversation_to_another_profile() {
    let mut started = Vec::new();
    for secret in [[1; 32], [2; 32]] {
        let world = World::with(|builder| {
            pooled(builder, &["a", "b", "c"].map(|label| profile(label, None, 1)));
            builder.ledger = Arc::new(MemoryLedger::new(LedgerSettings::default(), secret));
        });
        does(&world, &[]);
        let mut seen = String::new();
        for number in 0..30 {
            // Named by the client, and guessed from the beginning.
            let session = if number % 2 == 0 {
                format!("s{number}")
            } else {
                String::new()
            };
            let request = of_session(&session, MESSAGES, &[("x-api-key", "one")], &body(number));
            seen += &reached(&world, request).await.0;
        }
        started.push(seen);
    }
    assert_eq!(started[0], started[1]);
    assert!("abc".chars().all(|label| started[0].contains(label)), "{started:?}");
}

/// Returns a profile with a key of its own.
fn profile_with_key(label: &str, key: &str) -> Profile {
    Profile {
        credential: Credential::Key(Secret::new(format!("{CANARY}{key}"))),
        ..profile(label, None, 1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_creates_something_is_not_sent_twice() {
    let batch = format!(r#"{{"requests":[{{"custom_id":"1","params":{}}}]}}"#, body(0));
    let items = r#"{"items":[{"type":"message","role":"user","content":"hi"}]}"#;
    let gemini = r#"{"batch":{"display_name":"b","input_config":{"requests":{"requests":[]}}}}"#;
    let paths: [(&str, &str); 3] = [
        ("/anthropic/v1/messages/batches", &batch),
        ("/openai/v1/conversations/conv_1/items", items),
        ("/gemini/v1beta/models/m:batchGenerateContent", gemini),
    ];
    // The failure, and the profiles that are used.
    let rows: [(Vec<Step>, &str); 10] = [
        (json(500, BROKEN), "a"),
        (json(529, BROKEN), "a"),
        (json(503, BROKEN), "a"),
        (json(409, "{}"), "a"),
        (error(500, &[("x-should-retry", "true")], BROKEN), "a"),
        (vec![Step::Reset], "a"),
        // A refused key proves that nothing was created.
        (json(401, UNKNOWN), "ab"),
        (json(403, "{}"), "ab"),
        (json(402, "{}"), "ab"),
        (limited("60"), "ab"),
    ];
    for (path, body) in paths {
        for (steps, seen) in &rows {
            let world = world(&strangers("ab"));
            does(&world, &[("a", steps.clone())]);
            let request = of_session("s1", path, &[], body);
            assert_eq!(reached(&world, request).await.0, *seen, "{path} {steps:?}");
        }
        let world = world(&strangers("ab"));
        world.script([Step::Refuse]);
        does(&world, &[]);
        let request = of_session("s1", path, &[], body);
        assert_eq!(
            reached(&world, request).await,
            ("a".into(), 200),
            "{path} never arrived"
        );
    }
    // A count creates nothing.
    for (path, body) in [
        ("/anthropic/v1/messages/count_tokens", body(0)),
        (RESPONSES, body(0).replace("messages", "input")),
    ] {
        let world = world(&strangers("a"));
        does(&world, &[("a", json(500, BROKEN))]);
        assert_eq!(
            reached(&world, of_session("s1", path, &[], &body)).await.0,
            "aa",
            "{path}"
        );
    }
}
