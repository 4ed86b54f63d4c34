//! Only answers about a model change a profile's state. Lists, files, counts and administration requests do not.

use antiphon::policy::Class;

use crate::support::{
    app::post_with,
    pool::{
        BROKEN, FORBIDDEN, LIMITED, MESSAGES, OVERLOADED, RESPONSES, UNKNOWN, UNPAID, ask, body, cooldowns, does,
        failures, fine, key, keys, limited, of_session, reached, strangers, untouched, view, world,
    },
    still::{Step, World, error, json, secs},
};

const COUNT: &str = "/anthropic/v1/messages/count_tokens";
const EXHAUSTED: &str = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
const SCOPES: &str = r#"{"error":{"message":"You have insufficient permissions for this operation. Missing scopes: api.responses.write. Check that you have the correct role in your organization.","type":"invalid_request_error","param":null,"code":"missing_scope"}}"#;

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-antiphon-session: s1\r\n\r\n").into_bytes()
}

fn counting(session: &str, number: usize) -> Vec<u8> {
    of_session(session, COUNT, &[], &body(number).replace("\"max_tokens\":16,", ""))
}

/// Returns requests that call no model, and whether they may be resent.
fn quiet() -> Vec<(&'static str, Vec<u8>, bool)> {
    let question = r#"{"model":"m","input":"hi"}"#;
    let contents = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#;
    let post = |path: &str, body: &str| post_with(path, &[("x-antiphon-session", "s1")], body.as_bytes());
    vec![
        ("me", get("/anthropic/v1/organizations/me"), true),
        ("models", get("/anthropic/v1/models"), true),
        ("file", get("/anthropic/v1/files/f_1"), true),
        ("usage", get("/openai/v1/organization/usage/completions"), true),
        ("stored", get("/openai/v1/chat/completions"), true),
        ("stored messages", get("/anthropic/v1/messages"), true),
        (
            "a list that ends like a model's path",
            post("/openai/v1/organization/completions", question),
            false,
        ),
        ("batch of a file", post("/openai/v1/batches", "{}"), false),
        ("upload", post("/anthropic/v1/files", "content"), false),
        ("count", counting("s1", 0), true),
        (
            "input tokens",
            post("/openai/v1/responses/input_tokens", question),
            true,
        ),
        (
            "google's count",
            post("/gemini/v1beta/models/m:countTokens", contents),
            true,
        ),
        (
            "batch",
            post("/anthropic/v1/messages/batches", r#"{"requests":[]}"#),
            true,
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_model_causes_no_cooldown() {
    let refusals: [(Vec<Step>, u16); 6] = [
        (json(401, UNKNOWN), 401),
        (json(403, FORBIDDEN), 403),
        (limited("600"), 429),
        (json(429, LIMITED), 429),
        (json(402, UNPAID), 402),
        (json(429, EXHAUSTED), 429),
    ];
    for (name, request, repeatable) in quiet() {
        for (refused, status) in &refusals {
            let world = world(&strangers("abc"));
            let steps = refused.clone();
            world.otherwise(move |_| steps.clone());
            // One other key may succeed. No third key is tried, and no key cools down.
            let seen = if repeatable { "ab" } else { "a" };
            for turn in 0..6 {
                assert_eq!(
                    reached(&world, &request).await,
                    (seen.to_owned(), *status),
                    "{name} {status} {turn}"
                );
                world.until(world.now() + secs(40)).await;
            }
            assert!(untouched(&world), "{name} {status}");
            world.otherwise(|_| fine());
            assert_eq!(
                reached(&world, ask("s9", 0)).await,
                ("a".into(), 200),
                "{name} {status}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_model_may_use_another_key() {
    for (name, request, repeatable) in quiet() {
        let world = world(&strangers("abc"));
        does(&world, &[("a", json(401, UNKNOWN))]);
        let wanted = if repeatable {
            ("ab".to_owned(), 200)
        } else {
            ("a".to_owned(), 401)
        };
        assert_eq!(reached(&world, &request).await, wanted, "{name}");
        assert!(untouched(&world), "{name}");
        let counts = world.shared.telemetry.encode_metrics();
        let class = format!("class=\"{}\"", Class::Auth.label());
        let counted = counts
            .lines()
            .any(|line| line.starts_with("antiphon_attempts_total") && line.contains(&class));
        assert!(counted, "{name}: each attempt is judged");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_without_a_model_ends_no_cooldown() {
    for (refused, reason) in [
        (json(401, UNKNOWN), "auth"),
        (json(429, LIMITED), "rate_limit"),
        (json(403, FORBIDDEN), "permission"),
    ] {
        // A pool of one profile, so that it is used during its cooldown.
        let world = world(&strangers("a"));
        world.script(refused);
        world.otherwise(|_| fine());
        assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
        world.until(secs(1)).await;
        for (name, request, _) in quiet() {
            assert_eq!(reached(&world, request).await, ("a".into(), 200), "{name}");
            assert_eq!(
                cooldowns(&world, "anthropic", "a").len(),
                usize::from(!name.is_empty()),
                "{name}"
            );
            assert_eq!(cooldowns(&world, "anthropic", "a")[0].0, reason, "{name}");
        }
        // A success of the model ends the cooldown.
        assert_eq!(reached(&world, ask("s1", 1)).await, ("a".into(), 200));
        world.settle().await;
        assert_eq!(cooldowns(&world, "anthropic", "a"), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_between_refusals_does_not_reset_the_count() {
    let world = world(&strangers("a"));
    world.otherwise(|request| {
        if request.line().starts_with("GET") {
            fine()
        } else {
            json(401, UNKNOWN)
        }
    });
    for (number, at) in [0, 40, 120].into_iter().enumerate() {
        world.until(secs(at)).await;
        assert_eq!(reached(&world, get("/anthropic/v1/models")).await, ("a".into(), 200));
        world.until(secs(at + 1)).await;
        assert_eq!(reached(&world, ask("s1", number)).await, ("a".into(), 401));
    }
    let (reason, _, disables, ..) = cooldowns(&world, "anthropic", "a")[0].clone();
    assert!(reason == "auth" && disables);
}

#[tokio::test(start_paused = true)]
async fn token_counts_do_not_affect_the_breaker() {
    let world = world(&strangers("ab"));
    world.otherwise(|_| json(500, BROKEN));
    for number in 0..6 {
        assert_eq!(world.ask(counting("s1", number)).await.status(), 500);
    }
    assert_eq!(failures(&world, "anthropic"), 0);
    for number in 0..3 {
        world.ask(ask("s1", number)).await;
    }
    assert_eq!(failures(&world, "anthropic"), 3);
    world.otherwise(|_| fine());
    assert_eq!(world.ask(counting("s1", 9)).await.status(), 200);
    assert_eq!(failures(&world, "anthropic"), 3);
    assert_eq!(world.ask(ask("s1", 9)).await.status(), 200);
    assert_eq!(failures(&world, "anthropic"), 0);
    world.otherwise(|_| json(529, OVERLOADED));
    assert_eq!(world.ask(get("/anthropic/v1/models")).await.status(), 529);
    assert_eq!(failures(&world, "anthropic"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_count_on_another_key_does_not_move_the_lane() {
    let world = world(&strangers("ab"));
    world.otherwise(|request| {
        let limits = request.line().contains("count_tokens") && key(request) == "a";
        if limits { limited("60") } else { fine() }
    });
    assert_eq!(reached(&world, ask("s1", 0)).await.0, "a");
    assert_eq!(reached(&world, counting("s1", 1)).await, ("ab".into(), 200));
    assert_eq!(reached(&world, ask("s1", 1)).await, ("a".into(), 200));
}

#[tokio::test(start_paused = true)]
async fn a_missing_scope_rotates_without_a_cooldown() {
    let codeless = SCOPES.replace("\"missing_scope\"", "null");
    for (status, said) in [
        (401, SCOPES),
        (403, SCOPES),
        (401, codeless.as_str()),
        (403, codeless.as_str()),
    ] {
        let world = world(&strangers("abc"));
        does(&world, &[("a", json(status, said))]);
        let responses = |number: usize| {
            of_session(
                &format!("s{number}"),
                RESPONSES,
                &[],
                &format!(r#"{{"model":"m","input":"hi {number}"}}"#),
            )
        };
        for number in 0..4 {
            assert_eq!(reached(&world, responses(number)).await, ("ab".into(), 200), "{status}");
            world.until(world.now() + secs(100)).await;
        }
        assert!(untouched(&world), "{status}");
        let counts = world.shared.telemetry.encode_metrics();
        assert!(
            counts.contains("class=\"permission\"") && !counts.contains("class=\"auth\""),
            "{status}"
        );
        // If every key lacks the scope, only one other key is tried.
        let steps = json(status, said);
        world.otherwise(move |_| steps.clone());
        assert_eq!(reached(&world, responses(9)).await, ("ab".into(), status));
        assert!(untouched(&world), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_on_model_paths_cause_a_cooldown() {
    let question =
        r#"{"model":"m","input":"hi","prompt":"hi","max_tokens":16,"messages":[{"role":"user","content":"hi"}]}"#;
    for (upstream, path) in [
        ("anthropic", "/v1/messages"),
        ("openai", "/v1/chat/completions"),
        ("openai", "/v1/responses"),
        ("openai", "/v1/responses/compact"),
        ("openai", "/v1/embeddings"),
        ("openai", "/v1/completions"),
        ("openai", "/v1/images/generations"),
        ("openai", "/v1/audio/transcriptions"),
        ("gemini", "/v1beta/models/m:generateContent"),
        ("gemini", "/v1beta/models/m:streamGenerateContent"),
        ("gemini", "/v1beta/models/m:embedContent"),
        ("bedrock", "/model/m/converse"),
        ("bedrock", "/model/m/invoke"),
    ] {
        let world = world(&strangers("ab"));
        does(&world, &[("a", json(401, UNKNOWN))]);
        world
            .ask(post_with(&format!("/{upstream}{path}"), &[], question.as_bytes()))
            .await;
        assert_eq!(cooldowns(&world, upstream, "a").len(), 1, "{path}");
        assert_eq!(cooldowns(&world, upstream, "a")[0].0, "auth", "{path}");
    }
}

/// A limit for an unknown model applies to all requests without a known model.
#[tokio::test(start_paused = true)]
async fn a_limit_of_an_unknown_model_does_not_affect_known_models() {
    let embeds = |number: usize| {
        let body = format!(r#"{{"model":"e","input":"hi {number}"}}"#);
        of_session("s1", "/openai/v1/embeddings", &[], &body)
    };
    let long = "x".repeat(300);
    let named_at_length = of_session("s1", MESSAGES, &[], &body(0).replace("\"m\"", &format!("\"{long}\"")));
    for (upstream, request, refused) in [
        ("openai", embeds(0), limited("600")),
        ("openai", embeds(0), json(403, FORBIDDEN)),
        ("anthropic", named_at_length, json(403, FORBIDDEN)),
    ] {
        let world = world(&strangers("a"));
        world.script(refused);
        world.otherwise(|_| fine());
        world.ask(&request).await;
        assert_eq!(cooldowns(&world, upstream, "a").len(), 1);
        assert_eq!(cooldowns(&world, upstream, "a")[0].1.as_deref(), Some(""), "{upstream}");
    }
    let world = world(&strangers("ab"));
    does(&world, &[("a", limited("600"))]);
    world.ask(embeds(0)).await;
    // The known model stays with its profile. The next request without a known model uses another.
    world.otherwise(|_| fine());
    let chat = of_session("s2", RESPONSES, &[], r#"{"model":"m","input":"hi"}"#);
    assert_eq!(reached(&world, chat).await, ("a".into(), 200));
    assert_eq!(reached(&world, embeds(1)).await, ("b".into(), 200));
    assert_eq!(keys(&world.requests()), "aab");
    assert_eq!(view(&world, "openai", "b").cooldowns, []);
}

#[tokio::test(start_paused = true)]
async fn many_lists_and_counts_exhaust_no_pool() {
    let world: World = world(&strangers("abc"));
    world.otherwise(|request| match request.line() {
        line if line.contains("/models") => error(429, &[("retry-after", "600")], LIMITED),
        line if line.contains("count_tokens") => json(429, LIMITED),
        line if line.starts_with("GET") => json(401, UNKNOWN),
        _ => fine(),
    });
    for number in 0..30 {
        for path in [
            "/anthropic/v1/organizations/me",
            "/anthropic/v1/models",
            "/anthropic/v1/files/f_1",
        ] {
            world.ask(get(path)).await;
        }
        world.ask(counting("s1", number)).await;
        assert_eq!(reached(&world, ask("s2", number)).await, ("a".into(), 200), "{number}");
        world.until(world.now() + secs(20)).await;
    }
    assert!(untouched(&world));
}
