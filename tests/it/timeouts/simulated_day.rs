//! A simulated day of a busy team on paused time, seeded. Each cooldown of a key must have a cause in the provider's
//! record.
//!
//! `SEED=7` repeats that day, `SEED=random` plays a new one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::support::{
    bodies::Rng,
    pool::{key, of_session, pooled, profile, view},
    seed::seed,
    still::{Step, World, error, events::anthropic, json, say, secs, sse, wait},
    wire::Message,
};

const MESSAGES: &str = "/anthropic/v1/messages";
/// Number of turns of each lane.
const TURNS: u32 = 250;
const DAY: Duration = secs(24 * 3600);
const LANES: usize = 12;
const LABELS: [&str; 3] = ["a", "b", "c"];

/// The provider's behaviour for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Reset,
    Stall,
    ShortLimit,
    LongLimit,
    Overloaded,
    Refused,
    ServerTool,
    Silence,
    Compaction,
    Call,
    Fine,
}

/// The provider's record: behaviour, time, key and model of each request.
type Ledger = Arc<Mutex<Vec<(Deed, Duration, String, String)>>>;

/// Returns the organisation of a key.
fn organisation(label: &str) -> &'static str {
    if label == "c" { "org-y" } else { "org-x" }
}

fn stream(words: Vec<Step>) -> Vec<Step> {
    let begins = [
        sse(),
        say(anthropic::start() + &anthropic::text_start(0) + &anthropic::text(0, "so")),
    ];
    begins.into_iter().chain(words).collect()
}

fn ends(stop: &str) -> Vec<Step> {
    vec![say(anthropic::stop(0) + &anthropic::end(stop)), Step::End]
}

/// Returns the wire form of a behaviour.
fn steps(deed: Deed, rng: &mut Rng, number: usize) -> Vec<Step> {
    let limited = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Error"}}"#;
    let limit = |seconds: &str| error(429, &[("retry-after", seconds)], limited);
    match deed {
        Deed::Reset if rng.below(2) == 0 => vec![Step::Reset],
        Deed::Reset => stream(vec![wait(1), Step::Reset]),
        Deed::Stall if rng.below(2) == 0 => vec![Step::Hang],
        Deed::Stall => stream(vec![Step::Hang]),
        Deed::ShortLimit => limit("3"),
        Deed::LongLimit => limit("90"),
        Deed::Overloaded => json(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ),
        Deed::Refused => json(
            401,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid"}}"#,
        ),
        Deed::ServerTool => {
            let (starts, result) = (
                anthropic::server_tool(1, "srvtoolu_1"),
                anthropic::server_result(2, "srvtoolu_1"),
            );
            stream([vec![say(starts), wait(600), say(result)], ends("end_turn")].concat())
        }
        Deed::Compaction => {
            let starts = anthropic::compaction_start(1);
            let sum = anthropic::compaction(1, "sum") + &anthropic::stop(1);
            stream([vec![say(starts), wait(360), say(sum)], ends("end_turn")].concat())
        }
        Deed::Silence => stream(vec![wait(20), say(anthropic::text(0, "late")), Step::Hang]),
        Deed::Call => stream(
            [
                vec![say(anthropic::call(1, &format!("toolu_{number}")))],
                ends("tool_use"),
            ]
            .concat(),
        ),
        Deed::Fine => stream([vec![wait(1 + rng.below(5) as u64)], ends("end_turn")].concat()),
    }
}

/// Chooses the behaviour for one request.
fn choose(rng: &mut Rng, label: &str, now: Duration) -> Deed {
    // For half an hour of the day, the key of `b` is refused.
    if label == "b" && (secs(30_000)..secs(31_800)).contains(&now) {
        return Deed::Refused;
    }
    match rng.below(1000) {
        0..10 => Deed::Reset,
        10..20 => Deed::Stall,
        20..30 => Deed::ShortLimit,
        30..40 => Deed::LongLimit,
        40..50 => Deed::Overloaded,
        50..60 => Deed::ServerTool,
        60..70 => Deed::Silence,
        70..80 => Deed::Compaction,
        80..300 => Deed::Call,
        _ => Deed::Fine,
    }
}

fn provide(world: &World, ledger: &Ledger, mut rng: Rng) {
    let (ledger, start, mut number) = (Arc::clone(ledger), Instant::now(), 0);
    world.otherwise(move |request: &Message| {
        number += 1;
        let label = key(request);
        let deed = choose(&mut rng, &label, start.elapsed());
        let model = request.json()["model"].as_str().unwrap().to_owned();
        ledger
            .lock()
            .unwrap()
            .push((deed, start.elapsed(), label.clone(), model));
        let mut steps = steps(deed, &mut rng, number);
        if let Step::Head(_, fields) = &mut steps[0] {
            fields.push(("anthropic-organization-id".to_owned(), organisation(&label).to_owned()));
        }
        steps
    });
}

/// An observed cooldown: upstream and profile, reason, model and start, and whether another profile caused it.
type Seen = BTreeMap<(String, &'static str, Option<String>, Duration), bool>;

/// Records every current cooldown.
fn poll(world: &World, start: Instant, seen: &mut Seen) {
    for label in LABELS {
        for rest in view(world, "anthropic", label).cooldowns {
            let since = rest.since.saturating_duration_since(start.into_std());
            let model = rest.model.map(String::from);
            seen.insert(
                (label.to_owned(), rest.reason.label(), model, since),
                rest.of_other_profile,
            );
        }
    }
}

/// Reports whether the record contains the cause of a cooldown at its start.
fn has_cause(
    ledger: &[(Deed, Duration, String, String)],
    rest: (&(String, &'static str, Option<String>, Duration), &bool),
) -> bool {
    let ((label, reason, model, since), shared) = rest;
    ledger.iter().any(|(deed, at, own, asked)| {
        let whose = if *shared {
            own != label && organisation(own) == organisation(label)
        } else {
            own == label
        };
        let fits = match *reason {
            "auth" => *deed == Deed::Refused && model.is_none(),
            "rate_limit" => matches!(deed, Deed::ShortLimit | Deed::LongLimit) && model.as_ref() == Some(asked),
            _ => false,
        };
        whose && fits && since.abs_diff(*at) <= Duration::from_millis(5)
    })
}

/// Plays one lane through the day. Returns the number of answers by status, with 0 for a client that left.
async fn live(
    world: &World,
    lane: usize,
    mut rng: Rng,
    start: Instant,
    seen: &Mutex<Seen>,
) -> BTreeMap<(u16, bool), usize> {
    let mut told = BTreeMap::new();
    let mut history = vec![serde_json::json!({"role": "user", "content": "go"})];
    for turn in 0..TURNS {
        let due = DAY / TURNS * turn + secs(rng.below(300) as u64);
        tokio::time::sleep_until(start + due.max(start.elapsed())).await;
        let model = ["m", "n"][rng.below(2)];
        let body = serde_json::json!({"model": model, "max_tokens": 16, "stream": true, "messages": history});
        let request = of_session(&format!("s{lane}"), MESSAGES, &[], &body.to_string());
        let mut client = world.client();
        client.send(request).await;
        // One client in a hundred leaves before the end.
        let answer = if rng.below(100) == 0 {
            tokio::time::timeout(secs(rng.below(30) as u64), client.answer())
                .await
                .ok()
        } else {
            // A behaviour that never ends is cut by the proxy's timeouts.
            Some(client.answer().await)
        };
        drop(client);
        poll(world, start, &mut seen.lock().unwrap());
        let Some(answer) = answer else {
            *told.entry((0, false)).or_default() += 1;
            continue;
        };
        assert!(
            [200, 401, 429, 502, 503, 504, 529].contains(&answer.status()),
            "lane {lane}, turn {turn}: {} {}",
            answer.status(),
            answer.text()
        );
        // Without an error event, only a provider's broken connection cuts an answer, and never after its last event.
        let defined = answer.complete
            || answer.text().contains("event: error\n")
            || !answer.text().contains("event: message_stop\n");
        assert!(defined, "lane {lane}, turn {turn}: cut at the end: {}", answer.text());
        *told.entry((answer.status(), answer.complete)).or_default() += 1;
        let called = answer
            .text()
            .split("\"id\":\"toolu_")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .map(ToOwned::to_owned);
        history = match called {
            // Most tools answer minutes later. Some never do, and the client continues.
            Some(id) => {
                let id = format!("toolu_{id}");
                let call = serde_json::json!({"type": "tool_use", "id": id, "name": "ls", "input": {}});
                let result = serde_json::json!({"type": "tool_result", "tool_use_id": id, "content": "a"});
                let next = if rng.below(10) == 0 {
                    serde_json::json!("never mind")
                } else {
                    serde_json::json!([result])
                };
                vec![
                    history[0].clone(),
                    serde_json::json!({"role": "assistant", "content": [call]}),
                    serde_json::json!({"role": "user", "content": next}),
                ]
            }
            None => vec![serde_json::json!({"role": "user", "content": format!("{lane}, {turn}")})],
        };
    }
    told
}

#[tokio::test(start_paused = true)]
async fn every_cooldown_of_a_day_has_a_cause() {
    let seed = seed();
    println!("SEED={seed}");
    let began = std::time::Instant::now();
    let profiles = LABELS.map(|label| profile(label, None, 1));
    let world = World::with(|builder| pooled(builder, &profiles));
    let (ledger, start, seen) = (Ledger::default(), Instant::now(), Mutex::new(Seen::new()));
    provide(&world, &ledger, Rng::new(seed));
    let lanes = (0..LANES).map(|lane| live(&world, lane, Rng::new(seed * 1000 + lane as u64 + 1), start, &seen));
    let mut told: BTreeMap<(u16, bool), usize> = BTreeMap::new();
    for of_lane in futures_util::future::join_all(lanes).await {
        for (kind, count) in of_lane {
            *told.entry(kind).or_default() += count;
        }
    }
    // After the longest exchange timeout, every exchange has ended.
    world.until(world.now() + secs(3700)).await;
    poll(&world, start, &mut seen.lock().unwrap());
    let (ledger, seen) = (ledger.lock().unwrap(), seen.into_inner().unwrap());
    let mut deeds: BTreeMap<Deed, usize> = BTreeMap::new();
    for (deed, ..) in ledger.iter() {
        *deeds.entry(*deed).or_default() += 1;
    }
    println!("sends by what was done: {deeds:?}");
    println!("answers by status and whether they were whole: {told:?}");
    println!("rests: {}, in {:?}", seen.len(), began.elapsed());
    for rest in &seen {
        assert!(
            has_cause(&ledger, rest),
            "SEED={seed}: {rest:?} rests for nothing that was done to it"
        );
    }
    let of = |reason: &str| seen.keys().filter(|(_, other, ..)| *other == reason).count();
    assert!(
        of("auth") >= 2 && of("rate_limit") >= 10,
        "a day on which nothing happens proves nothing"
    );
    assert!(deeds.len() == 11 && deeds[&Deed::ServerTool] > 10 && deeds[&Deed::Compaction] > 10);
    assert_eq!(told.values().sum::<usize>(), LANES * TURNS as usize);
    let page = world.shared.telemetry.encode_metrics();
    assert!(page.lines().any(|line| line == "antiphon_streams_active 0"), "{page}");
    for sent in world.requests() {
        assert!(LABELS.contains(&key(&sent.message).as_str()));
    }
}
