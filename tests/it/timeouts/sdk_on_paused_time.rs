//! The official Python SDK through a proxy on paused time, so that minutes of silence take no time.
//!
//! Runs if `ANTIPHON_SDK_PYTHON` names a Python with `anthropic`. `tests/sdk/run.py` sets it.

use std::{env, ffi::OsString, process::Command};

use antiphon::auth::{ClientTokens, TokenHash};
use serde_json::{Value, json};

use crate::support::{
    pool::{cooldowns, failures, keys, pooled, strangers, untouched},
    still::{Step, World, advance, assert_at, error, events::anthropic, say, secs, sse},
};

/// Runs the SDK against these provider steps. `None`, with a printed note, without an SDK.
async fn sdk(world: &World, steps: impl IntoIterator<Item = Step>) -> Option<Value> {
    let Some(python) = env::var_os("ANTIPHON_SDK_PYTHON") else {
        println!("skipped: ANTIPHON_SDK_PYTHON names no Python with the SDK");
        return None;
    };
    world.script(steps);
    run(world, python).await
}

/// Runs one call of the SDK.
async fn run(world: &World, python: OsString) -> Option<Value> {
    let base = format!("http://{}/anthropic", world.listen());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/still.py");
    // A blocking task stops paused time, so only the provider's script advances it.
    let run = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(python);
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command.arg(script).arg(base).output()
    });
    let output = run.await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}")))
}

#[tokio::test(start_paused = true)]
async fn the_sdk_survives_a_long_silence() {
    let world = World::new();
    // Long thinking, with heartbeats only.
    let pings = vec![[advance(80), say(anthropic::ping())]; 5].concat();
    let words = [
        say(anthropic::stop(0)),
        say(anthropic::text_start(1)),
        say(anthropic::text(1, "late, but here")),
        say(anthropic::stop(1)),
        say(anthropic::end("end_turn")),
        Step::End,
    ];
    let begins = [sse(), say(anthropic::start()), say(anthropic::reasoning_start(0))];
    let steps = [begins.to_vec(), pings, words.to_vec()].concat();
    let Some(told) = sdk(&world, steps).await else { return };
    assert_eq!(told, json!({"said": "late, but here"}));
    assert_at(world.now(), secs(400));
}

#[tokio::test(start_paused = true)]
async fn the_sdk_gets_an_error_for_a_stalled_provider() {
    let world = World::new();
    let steps = [
        sse(),
        say(anthropic::start()),
        say(anthropic::text_start(0)),
        say(anthropic::text(0, "so far")),
        advance(300),
        Step::Hang,
    ];
    let Some(told) = sdk(&world, steps).await else { return };
    assert_eq!(told["said"], "so far");
    assert!(told["words"].as_str().unwrap().contains("fell silent"), "{told}");
    assert_at(world.request().cancelled.unwrap(), secs(240));
}

/// Returns a world with profiles for holders of the client token that the SDK uses as its key.
fn with_profiles() -> World {
    World::with(|builder| {
        pooled(builder, &strangers("ab"));
        builder.proxy.client_tokens = ClientTokens::new(vec![("dev".to_owned(), TokenHash::hash_token(b"sk-test"))]);
    })
}

#[tokio::test(start_paused = true)]
async fn the_sdk_waits_five_minutes_for_a_server_tool_without_a_cooldown() {
    let world = with_profiles();
    let steps = [
        sse(),
        say(anthropic::start()),
        say(anthropic::server_tool(0, "srvtoolu_1")),
        advance(300),
        say(anthropic::server_result(1, "srvtoolu_1")),
        say(anthropic::text_start(2)),
        say(anthropic::text(2, "found it")),
        say(anthropic::stop(2)),
        say(anthropic::end("end_turn")),
        Step::End,
    ];
    let Some(told) = sdk(&world, steps).await else { return };
    assert_eq!(told, json!({"said": "found it"}));
    assert_at(world.now(), secs(300));
    assert_eq!(keys(&world.requests()), "a");
    assert!(untouched(&world) && failures(&world, "anthropic") == 0);
}

#[tokio::test(start_paused = true)]
async fn the_sdk_never_sees_a_limit_that_another_key_avoids() {
    let world = with_profiles();
    let limited = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#;
    let fine = || {
        let words = anthropic::text_start(0) + &anthropic::text(0, "hello") + &anthropic::stop(0);
        [
            sse(),
            say(anthropic::start() + &words + &anthropic::end("end_turn")),
            Step::End,
        ]
    };
    world.otherwise(move |_| fine().to_vec());
    let Some(told) = sdk(&world, error(429, &[("retry-after", "120")], limited)).await else {
        return;
    };
    assert_eq!(told, json!({"said": "hello"}));
    assert_eq!(keys(&world.requests()), "ab");
    let of_a = cooldowns(&world, "anthropic", "a");
    let [(reason, model, disables, shared, left)] = of_a.as_slice() else {
        panic!("{of_a:?}")
    };
    assert_eq!(
        (*reason, model.as_deref(), *disables, *shared),
        ("rate_limit", Some("claude"), false, false)
    );
    assert!((118..=144).contains(left), "{left}");
    assert_eq!(cooldowns(&world, "anthropic", "b"), []);
    // The next call uses the profile that succeeded last.
    let python = env::var_os("ANTIPHON_SDK_PYTHON").unwrap();
    assert_eq!(run(&world, python).await, Some(json!({"said": "hello"})));
    assert_eq!(keys(&world.requests()), "abb");
    let sent = world.requests();
    assert!(
        sent.iter().all(|request| !request.message.head.contains("sk-test")),
        "the token went up"
    );
}
