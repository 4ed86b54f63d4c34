//! The log line of a cooldown: what an operator needs without a look at the dashboard.

use std::time::Duration;

use antiphon::clock::{rfc3339_date, unix_time};
use serde_json::Value;

use crate::{
    support::{
        pool::{ask, fine, keys, limited, strangers, world},
        still::{Step, World, error},
    },
    telemetry::metrics::Lines,
};

/// Returns the lines of cooldowns.
fn cooldown_lines(lines: &Lines) -> Vec<Value> {
    let text = lines.text();
    let parsed = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    parsed
        .filter(|line| line["message"] == "profile cooldown started or extended")
        .collect()
}

fn refused() -> Vec<Step> {
    error(
        401,
        &[],
        r#"{"error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
    )
}

async fn ask_once(world: &World, session: &str) -> u16 {
    world.ask(ask(session, 1)).await.status()
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_is_logged_with_its_end_its_model_and_the_profiles_that_are_left() {
    let (lines, _listening) = Lines::listen();
    let world = world(&strangers("abc"));
    world.script(limited("30"));
    world.script(fine());
    assert_eq!(ask_once(&world, "s1").await, 200);
    let of_limit = cooldown_lines(&lines).pop().unwrap();
    let after = |seconds| rfc3339_date(unix_time() + Duration::from_secs(seconds));
    assert_eq!(
        (
            &of_limit["profile"],
            &of_limit["reason"],
            &of_limit["model"],
            &of_limit["left"]
        ),
        (&"a".into(), &"rate_limit".into(), &"m".into(), &2.into()),
        "{of_limit}"
    );
    // The end is a little later than the provider said, and this test takes real time.
    let until = of_limit["until"].as_str().unwrap().to_owned();
    assert!((after(20)..after(60)).contains(&until), "{until}");
    world.script(refused());
    world.script(fine());
    assert_eq!(ask_once(&world, "s2").await, 200);
    let of_key = cooldown_lines(&lines).pop().unwrap();
    assert_eq!(
        (&of_key["profile"], &of_key["reason"], &of_key["left"]),
        (&"b".into(), &"auth".into(), &1.into()),
        "{of_key}"
    );
    assert!(of_key.get("model").is_none(), "{of_key}");
    assert_eq!(keys(&world.requests()), "abbc");
}
