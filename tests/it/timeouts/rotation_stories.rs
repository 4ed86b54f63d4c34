//! Reported failures behind the rotation rules, each replayed with its openclaw issue, and the matching admin pages.

use antiphon::{
    api::admin::{self, Readiness},
    repair::Mode,
};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};

use crate::support::{
    app::admin_of,
    pool::{
        CANARY, LIMITED, MESSAGES, UNKNOWN, UNPAID, cooldowns, failures, fine, key, keys, limited, of_session, pooled,
        profile, reached, strangers, untouched, view, world,
    },
    still::{Step, World, assert_at, events::anthropic, json as whole, say, secs, sse, wait},
};

const POOR: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#;

fn body(words: &str) -> String {
    json!({"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": words}]}).to_string()
}

fn ask(session: &str, words: &str) -> Vec<u8> {
    of_session(session, MESSAGES, &[], &body(words))
}

/// Returns the admin listener's answer.
async fn admin(world: &World, method: Method, path: &str) -> (StatusCode, String) {
    let router = admin::AdminService::new(admin_of(&world.shared, Readiness::new()));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:4748");
    let answer = router
        .answer_request(request.body(Empty::<bytes::Bytes>::new()).unwrap())
        .await;
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn page(world: &World, path: &str) -> Value {
    let (status, text) = admin(world, Method::GET, path).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        !text.contains(CANARY) && !text.contains("canary"),
        "a secret on {path}: {text}"
    );
    serde_json::from_str(&text).unwrap()
}

/// Reported in <https://github.com/openclaw/openclaw/issues/84457>.
#[tokio::test(start_paused = true)]
async fn a_success_that_began_before_a_cooldown_does_not_end_it() {
    for (starts_before, ended) in [(true, false), (false, true)] {
        // A pool of one profile, so that it is used during its cooldown.
        let world = world(&strangers("a"));
        let streamed = body("long").replace("{\"max", "{\"stream\":true,\"max");
        let long = of_session("s1", MESSAGES, &[], &streamed);
        let words = [sse(), say(anthropic::start() + &anthropic::text_start(0)), wait(10)];
        let steps = || {
            words
                .iter()
                .cloned()
                .chain([say(anthropic::end("end_turn")), Step::End])
        };
        let mut client = world.client();
        if starts_before {
            world.script(steps());
            client.send(&long).await;
            client.head().await;
        }
        world.script(whole(429, LIMITED));
        assert_eq!(reached(&world, ask("s2", "short")).await, ("a".into(), 429));
        if !starts_before {
            world.settle().await;
            world.script(steps());
            client.send(&long).await;
            client.head().await;
        }
        // The exchange has not succeeded yet.
        assert_eq!(cooldowns(&world, "anthropic", "a").len(), 1);
        let whole = loop {
            if let Err(whole) = client.piece().await {
                break whole;
            }
        };
        assert!(whole);
        world.settle().await;
        assert_eq!(cooldowns(&world, "anthropic", "a").is_empty(), ended);
    }
}

/// Reported in <https://github.com/openclaw/openclaw/issues/29324>.
#[tokio::test(start_paused = true)]
async fn no_lane_moves_between_a_call_and_its_result() {
    let history = |result: bool| {
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}});
        let mut messages = vec![
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": [call]}),
        ];
        if result {
            let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"});
            messages.push(json!({"role": "user", "content": [result]}));
        }
        json!({"model": "m", "max_tokens": 16, "messages": messages}).to_string()
    };
    // A long limit, a short limit and a refused key, with and without a call in flight.
    for (in_flight, steps, between, with_result) in [
        (true, limited("300"), ("", 429), ("b", 200)),
        (false, limited("300"), ("b", 200), ("b", 200)),
        (true, limited("8"), ("a", 200), ("a", 200)),
        (true, whole(402, UNPAID), ("b", 200), ("b", 200)),
    ] {
        let world = world(&strangers("ab"));
        world.otherwise(|_| fine());
        let streamed = body("go").replace("{\"max", "{\"stream\":true,\"max");
        let call = if in_flight {
            anthropic::call(0, "toolu_1")
        } else {
            anthropic::text_start(0)
        };
        world.script([
            sse(),
            say(anthropic::start() + &call + &anthropic::end("tool_use")),
            Step::End,
        ]);
        assert_eq!(
            reached(&world, of_session("s1", MESSAGES, &[], &streamed)).await,
            ("a".into(), 200)
        );
        // The tool runs for an hour, which is no failure of anything.
        world.until(secs(3600)).await;
        assert!(untouched(&world) && failures(&world, "anthropic") == 0);
        let sessions = page(&world, "/admin/v1/sessions").await;
        assert_eq!(sessions["open_calls"], usize::from(in_flight));
        if in_flight {
            let mut calls = sessions["latest"][0]["open_calls"].clone();
            // A time of the wall clock, while the test's own clock is paused.
            assert!(calls[0].as_object_mut().unwrap().remove("since").unwrap().is_string());
            assert_eq!(
                calls,
                json!([{"tool": "ls", "seconds": 3600, "max_duration_seconds": null, "attached": true, "tentative": false}])
            );
        }
        // Meanwhile another lane gets the limit.
        world.script(steps.clone());
        world.script(whole(404, "{}"));
        reached(&world, ask("s2", "other")).await;
        world.clear();
        // A compaction during the turn: without the result, and with a history of its own.
        let marks = [("x-claude-code-compaction", "auto")];
        let empty = json!({"model": "m", "max_tokens": 16, "messages": []}).to_string();
        assert_eq!(
            reached(&world, of_session("s1", MESSAGES, &marks, &empty)).await,
            (between.0.to_owned(), between.1),
            "{in_flight} {steps:?}"
        );
        assert_eq!(
            reached(&world, of_session("s1", MESSAGES, &[], &history(true))).await,
            (with_result.0.to_owned(), with_result.1)
        );
        assert_eq!(page(&world, "/admin/v1/sessions").await["open_calls"], 0);
    }
}

/// Reported in <https://github.com/openclaw/openclaw/issues/36119>.
#[tokio::test(start_paused = true)]
async fn a_long_limit_rotates_at_once() {
    let world = world(&strangers("ab"));
    world.otherwise(|request| if key(request) == "a" { limited("120") } else { fine() });
    let answer = world.ask(ask("s1", "go")).await;
    assert_eq!((keys(&world.requests()).as_str(), answer.status()), ("ab", 200));
    assert_at(answer.ended_at, secs(0));
    assert_eq!(
        answer.header("x-antiphon-profile"),
        Some("b; from=a; reason=rate_limit")
    );
    for (number, at) in (10..120).step_by(10).enumerate() {
        world.until(secs(at)).await;
        let session = if number % 2 == 0 { "s1" } else { "s2" };
        assert_eq!(
            reached(&world, ask(session, &number.to_string())).await.0,
            "b",
            "at {at} s"
        );
    }
    // A new lane uses the profile again after the cooldown.
    world.until(secs(145)).await;
    world.otherwise(|_| fine());
    assert_eq!(reached(&world, ask("s3", "later")).await.0, "a");
}

/// Reported in <https://github.com/openclaw/openclaw/issues/70903>,
/// <https://github.com/openclaw/openclaw/issues/107671>
#[tokio::test(start_paused = true)]
async fn an_operator_ends_a_long_cooldown() {
    let world = world(&strangers("ab"));
    world.otherwise(|request| {
        if key(request) == "a" {
            whole(402, UNPAID)
        } else {
            fine()
        }
    });
    assert_eq!(reached(&world, ask("s1", "go")).await, ("ab".into(), 200));
    world.otherwise(|_| fine());
    // The bill was paid, which the proxy cannot know.
    assert_eq!(reached(&world, ask("s2", "go")).await.0, "b");
    for (path, status) in [
        ("/admin/v1/profiles/anthropic/x/clear", StatusCode::NOT_FOUND),
        ("/admin/v1/profiles/nobody/a/clear", StatusCode::NOT_FOUND),
        ("/admin/v1/profiles/openai/a/clear", StatusCode::NO_CONTENT),
    ] {
        assert_eq!(admin(&world, Method::POST, path).await.0, status);
        assert_eq!(cooldowns(&world, "anthropic", "a").len(), 1, "{path}");
    }
    let path = "/admin/v1/profiles/anthropic/a/clear";
    assert_eq!(admin(&world, Method::GET, path).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(admin(&world, Method::POST, path).await.0, StatusCode::NO_CONTENT);
    assert!(untouched(&world));
    assert_eq!(reached(&world, ask("s3", "go")).await.0, "a");
    // The failure counter was cleared too: the next cooldown has the initial length.
    world.otherwise(|request| {
        if key(request) == "a" {
            whole(402, UNPAID)
        } else {
            fine()
        }
    });
    assert_eq!(reached(&world, ask("s4", "go")).await.0, "ab");
    let left = cooldowns(&world, "anthropic", "a")[0].4;
    assert!((17_990..=21_600).contains(&left), "{left}");
}

/// Reported in <https://github.com/openclaw/openclaw/issues/5240>.
#[tokio::test(start_paused = true)]
async fn the_reported_reason_is_the_recorded_one() {
    let world = world(&strangers("abc"));
    world.otherwise(|request| {
        if key(request) == "a" {
            whole(400, POOR)
        } else {
            whole(401, UNKNOWN)
        }
    });
    assert_eq!(reached(&world, ask("s1", "go")).await, ("abc".into(), 401));
    let answer = world.ask(ask("s2", "go")).await;
    assert_eq!(answer.status(), 402, "not a limit");
    assert!(
        answer.text().contains("none of this proxy's keys (auth, billing)"),
        "{}",
        answer.text()
    );
    assert!(!answer.text().contains("rate_limit"));
    let page = page(&world, "/admin/v1/profiles").await;
    let told: Vec<Value> = page["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["upstream"] == "anthropic")
        .cloned()
        .collect();
    let [a, b, _] = told.try_into().unwrap();
    assert_eq!((&a["profile"], &a["state"]), (&json!("a"), &json!("disabled")));
    assert_eq!((&b["profile"], &b["state"]), (&json!("b"), &json!("cooling")));
    let (a, b) = (&a["rests"][0], &b["rests"][0]);
    assert_eq!(
        (&a["reason"], &a["model"], &a["shared"]),
        (&json!("billing"), &Value::Null, &json!(false))
    );
    assert_eq!(b["reason"], "auth");
    let own = view(&world, "anthropic", "a").cooldowns.remove(0);
    let left = own
        .until
        .saturating_duration_since(tokio::time::Instant::now().into_std())
        .as_secs();
    assert_eq!(a["seconds_left"], left);
    for date in ["since", "until"] {
        humantime::parse_rfc3339(a[date].as_str().unwrap()).unwrap();
    }
    assert_eq!(page["breakers"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn the_admin_page_shows_breakers_and_models_and_no_secret() {
    let world = World::with(|builder| {
        pooled(
            builder,
            &[profile("a", Some("org-x"), 2), profile("b", Some("org-x"), 1)],
        );
    });
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let mut requests = 0;
    world.otherwise(move |request| {
        requests += 1;
        if requests == 1 {
            return limited("100");
        }
        assert!(!key(request).is_empty());
        whole(529, busy)
    });
    let own = [("x-api-key", "sk-client-canary")];
    world.ask(of_session("s-canary", MESSAGES, &own, &body("go"))).await;
    world
        .ask(of_session(
            "s-canary",
            MESSAGES,
            &own,
            &body("on").replace("\"m\"", "\"n\""),
        ))
        .await;
    let told = page(&world, "/admin/v1/profiles").await;
    let rest = |label: &str| {
        let rows = told["profiles"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["upstream"] == "anthropic" && row["profile"] == label)
            .unwrap();
        (
            row["organisation"].clone(),
            row["rests"][0]["model"].clone(),
            row["rests"][0]["shared"].clone(),
        )
    };
    let shares: Vec<Value> = ["a", "b"].map(|label| rest(label).2).to_vec();
    assert!(
        shares.contains(&json!(true)) && shares.contains(&json!(false)),
        "{told}"
    );
    assert_eq!((rest("a").0, rest("a").1), (json!("org-x"), json!("m")));
    let breaker = &told["breakers"][0];
    assert_eq!(
        (&breaker["model"], &breaker["state"], &breaker["failures"]),
        (&json!("n"), &json!("closed"), &json!(1))
    );
    page(&world, "/admin/v1/sessions").await;
    let (_, metrics) = admin(&world, Method::GET, "/metrics").await;
    assert!(!metrics.contains("canary"), "{metrics}");
    assert!(
        metrics.contains("antiphon_profile_state{upstream=\"anthropic\",profile=\"a\",state=\"cooling\"} 1"),
        "{metrics}"
    );
}

/// Each profile got the same broken body, and each cooled down for it.
///
/// <https://github.com/openclaw/openclaw/issues/8434>, <https://github.com/openclaw/openclaw/issues/8671>,
/// <https://github.com/openclaw/openclaw/issues/14368>, <https://github.com/openclaw/openclaw/issues/18902>
#[tokio::test(start_paused = true)]
async fn a_call_without_a_result_causes_no_cooldown() {
    let history = json!({"model": "m", "max_tokens": 16, "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}]},
        {"role": "user", "content": "are you there?"}]})
    .to_string();
    let refused = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have a corresponding `tool_result` block in the next message."}}"#;
    let server_held = r#"{"model":"m","previous_response_id":"resp_1","input":"hi"}"#;
    let missing = r#"{"error":{"message":"No tool output found for function call call_9.","type":"invalid_request_error","param":"input","code":null}}"#;
    let strict = move |request: &crate::support::wire::Message| {
        let takes = request.text().matches("toolu_1").count() == 2 || request.text().contains("call_9");
        let words = if request.text().contains("messages") {
            refused
        } else {
            missing
        };
        if takes { fine() } else { whole(400, words) }
    };
    for (mode, path, sent, obstinate, sends, status) in [
        // Repaired before the first send.
        (Mode::Repair, MESSAGES, history.as_str(), false, 1, 200),
        // Repaired, but the provider refuses all the same, and nothing more can be repaired.
        (Mode::Repair, MESSAGES, history.as_str(), true, 1, 400),
        // Sent unchanged.
        (Mode::Observe, MESSAGES, history.as_str(), false, 1, 400),
        // Only the provider knows the call: one send, and one more once it has named the call.
        (Mode::Repair, "/openai/v1/responses", server_held, false, 2, 200),
        (Mode::Repair, "/openai/v1/responses", server_held, true, 2, 400),
    ] {
        let world = World::with(|builder| {
            pooled(builder, &strangers("abc"));
            for upstream in &mut builder.upstreams {
                upstream.mode = mode;
            }
        });
        world.otherwise(move |request| match obstinate {
            true if request.text().contains("messages") => whole(400, refused),
            true => whole(400, missing),
            false => strict(request),
        });
        let (seen, answered) = reached(&world, of_session("s1", path, &[], sent)).await;
        assert_eq!(
            (seen.as_str(), answered),
            (&"aa"[..sends], status),
            "{mode:?} {path} {obstinate}"
        );
        assert!(untouched(&world), "{mode:?} {path}: a key rests for a broken body");
        assert_eq!(failures(&world, "anthropic") + failures(&world, "openai"), 0);
    }
}
