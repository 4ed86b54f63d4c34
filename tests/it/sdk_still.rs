//! The official Python SDK through a proxy on paused time: minutes of silence, in no time.
//!
//! Runs where `ANTIPHON_SDK_PYTHON` names a Python that has `anthropic`; `tests/sdk/run.py` sets it.

use std::{env, process::Command};

use serde_json::Value;

use crate::support::still::{Step, World, advance, assert_at, events::anthropic, say, secs, sse};

/// What the SDK makes of what the provider does; none, aloud, where there is no SDK.
async fn sdk(world: &World, steps: impl IntoIterator<Item = Step>) -> Option<Value> {
    let Some(python) = env::var_os("ANTIPHON_SDK_PYTHON") else {
        println!("skipped: ANTIPHON_SDK_PYTHON names no Python with the SDK");
        return None;
    };
    world.script(steps);
    let base = format!("http://{}/anthropic", world.listen().await);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/still.py");
    // A task that blocks holds time: it goes where the provider moves it.
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
async fn the_sdk_hears_the_end_of_a_long_silence() {
    let world = World::new();
    let steps = [
        sse(),
        say(anthropic::start()),
        say(anthropic::text_start(0)),
        say(anthropic::text(0, "late, ")),
        advance(200),
        say(anthropic::ping()),
        advance(200),
        say(anthropic::text(0, "but here")),
        say(anthropic::stop(0)),
        say(anthropic::end("end_turn")),
        Step::End,
    ];
    let Some(told) = sdk(&world, steps).await else { return };
    assert_eq!(told, serde_json::json!({"said": "late, but here"}));
    assert_at(world.now(), secs(400));
}

#[tokio::test(start_paused = true)]
async fn the_sdk_is_told_when_the_provider_falls_silent() {
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
