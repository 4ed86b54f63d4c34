//! The time for which an answer waits for the ledger: it is the proxy's, and operators are told of a slow ledger.

use std::{sync::Arc, time::Duration};

use antiphon::{ledger::Ledger, telemetry::dashboard::LatencyKind};
use serde_json::Value;

use super::{
    pinned_results::{ask, hurry, over},
    switchable::SwitchableLedger,
};
use crate::{
    support::{
        late::{ID, calls, script_call, world_over},
        still::{Step, World, head, secs, sse},
    },
    telemetry::metrics::Lines,
};

const HELLO: &str = r#"{"role":"user","content":"hello"}"#;
const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn known(ledger: &Arc<SwitchableLedger>) -> World {
    let world = over(&(Arc::<SwitchableLedger>::clone(ledger) as Arc<dyn Ledger>));
    world.otherwise(|_| answer(Duration::ZERO, Duration::ZERO, false));
    ask(&world, HELLO).await;
    world.settle().await;
    world
}

/// Returns an answer with its head after a time, and its body after another.
fn answer(to_head: Duration, to_body: Duration, is_stream: bool) -> Vec<Step> {
    let length = GOOD.len().to_string();
    let fields = [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ];
    let (head, body) = if is_stream {
        (sse(), Step::Event(r#"{"type":"message_stop"}"#.to_owned()))
    } else {
        (head(200, &fields), Step::Bytes(GOOD.as_bytes().to_vec()))
    };
    vec![Step::Wait(to_head), head, Step::Wait(to_body), body, Step::End]
}

/// Returns a value of the metrics page, in milliseconds.
fn millis_of(world: &World, name: &str) -> f64 {
    let page = world.shared.telemetry.encode_metrics();
    let value = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    let seconds: f64 = value.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap();
    seconds * 1000.0
}

#[track_caller]
fn assert_about(found: f64, wanted: f64, name: &str) {
    assert!((found - wanted).abs() <= 3.0, "{name}: {found} ms, not {wanted} ms");
}

/// The head waits for 240 ms. The provider needs 10 ms for its head, and a few more for its first byte.
#[tokio::test(start_paused = true)]
async fn the_wait_for_pins_is_booked_to_the_proxy() {
    for is_stream in [false, true] {
        // In the second case the first byte arrives while the head waits, in the last one long after it.
        for to_body in [0, 20, 1000] {
            let (lines, _listening) = Lines::listen();
            let ledger = SwitchableLedger::new();
            let world = known(&ledger).await;
            let sum = |phase: &str| {
                let name = format!("antiphon_upstream_duration_seconds_sum{{phase=\"{phase}\"}}");
                millis_of(&world, &name)
            };
            let before = (sum("first_byte"), sum("body"));
            ledger.delay_syncs(millis(250));
            world.script(answer(millis(10), millis(to_body), is_stream));
            let answer = ask(&world, &hurry()).await;
            let name = format!("stream {is_stream}, body after {to_body} ms");
            let held = answer.head_at;
            assert!(held >= millis(250), "{name}: {held:?}");
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let wanted = to_body as f64;
            assert_about(sum("first_byte") - before.0, wanted, &name);
            if to_body < 240 {
                assert!(
                    sum("body") - before.1 <= wanted + 3.0,
                    "{name}: {}",
                    sum("body") - before.1
                );
            }
            assert_about(millis_of(&world, "antiphon_ledger_hold_seconds_sum"), 240.0, &name);
            assert_about(millis_of(&world, "antiphon_overhead_seconds_sum"), 240.0, &name);
            let lines = lines.text();
            let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
            let logged = last["ledger_hold_ms"].as_u64().unwrap_or_default();
            assert!((239..=241).contains(&logged), "{last}");
            assert_eq!(last["head_ms"], 10, "{last}");
            assert!(last["overhead_us"].as_u64().unwrap() < 3000, "{last}");
            // On the dashboard the same is added latency.
            let steps = world.shared.telemetry.dashboard_feed().history_steps();
            let worst = |kind| {
                steps
                    .iter()
                    .filter_map(|step| step.percentile_us(kind, 1.0))
                    .max()
                    .unwrap()
            };
            assert!(worst(LatencyKind::RepairedOverhead) >= 240_000, "{name}");
            assert!(
                worst(LatencyKind::FirstByte) <= (10 + to_body) * 1250 + 3000,
                "{name}: {}",
                worst(LatencyKind::FirstByte)
            );
        }
    }
}

/// The end of an answer with a call waits for its record, for 50 ms at most.
#[tokio::test(start_paused = true)]
async fn the_wait_for_the_record_of_a_call_is_booked_to_the_proxy() {
    let ledger = SwitchableLedger::new();
    let shared: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
    let world = world_over(&shared, |_| ());
    ask(&world, HELLO).await;
    world.settle().await;
    ledger.delay_syncs(millis(30));
    script_call(&world, &calls(ID));
    ask(&world, HELLO).await;
    assert_about(millis_of(&world, "antiphon_ledger_hold_seconds_sum"), 30.0, "hold");
    let body = millis_of(&world, "antiphon_upstream_duration_seconds_sum{phase=\"body\"}");
    assert_about(body, 0.0, "body");
    let own = millis_of(&world, "antiphon_overhead_seconds_sum");
    assert_about(own, 30.0, "overhead");
}

/// One warning while answers are sent before what belongs to them is stored, and one line when none was for a minute.
#[tokio::test(start_paused = true)]
async fn a_slow_ledger_is_told_once() {
    let (lines, _listening) = Lines::listen();
    let ledger = SwitchableLedger::new();
    let world = known(&ledger).await;
    let told = |words: &str| lines.text().lines().filter(|line| line.contains(words)).count();
    for (round, delay) in [(1, 400), (2, 1500)] {
        ledger.delay_syncs(millis(delay));
        for number in 0..30 {
            ask(&world, &hurry().replace("dE3fG", &format!("dE3fG{round}x{number}"))).await;
            world.until(world.now() + secs(5)).await;
        }
        assert_eq!(told("the ledger is slow"), round, "{}", lines.text());
        assert_eq!(told("the ledger is no longer slow"), round - 1);
        ledger.delay_syncs(Duration::ZERO);
        for _ in 0..30 {
            ask(&world, HELLO).await;
            world.until(world.now() + secs(5)).await;
        }
        assert_eq!(told("the ledger is slow"), round);
        assert_eq!(told("the ledger is no longer slow"), round);
    }
}
