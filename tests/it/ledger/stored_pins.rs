//! Pins are stored while the provider works: the send never waits for the disk, and the answer's head does.
//!
//! `CYCLES=` sets the number of killed processes (default 12), `SEED=<n>` kills at other times.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of cycles comes from the environment, and a kill needs no exact time"
)]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::ledger::Ledger;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    pinned_results::{ask, hurry, late, over, rows, sent},
    switchable::SwitchableLedger,
};
use crate::support::{
    binary::{Install, Process},
    bodies::Rng,
    seed::seed,
    still::{Step, World, assert_at, json, secs, sse},
    wire::{Upstream, spawn},
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
const PLACEHOLDER: &str = "no result was recorded";
const QUOTED: &str = "found outside its place";
const HELLO: &str = r#"{"role":"user","content":"hello"}"#;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a world over a ledger of a caller that a provider has accepted.
async fn known(ledger: &Arc<SwitchableLedger>) -> World {
    let world = switched(ledger);
    world.script(json(200, GOOD));
    ask(&world, HELLO).await;
    world.settle().await;
    world
}

fn switched(ledger: &Arc<SwitchableLedger>) -> World {
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
    over(&kept)
}

/// Returns an answer that begins after this time.
fn answer_after(provider: Duration, is_stream: bool) -> Vec<Step> {
    let mut steps = vec![Step::Wait(provider)];
    if is_stream {
        steps.extend([sse(), Step::Event(r#"{"type":"message_stop"}"#.to_owned()), Step::End]);
    } else {
        steps.extend(json(200, GOOD));
    }
    steps
}

fn missed_writes(world: &World) -> u64 {
    let page = world.shared.telemetry.encode_metrics();
    let mut lines = page.lines();
    let counted = lines.find_map(|line| line.strip_prefix("antiphon_ledger_missed_total{op=\"write\"} "));
    counted.unwrap().parse().unwrap()
}

/// Every time in milliseconds: the disk, the provider, and then the expected send and head.
struct Timing {
    name: &'static str,
    is_shared: bool,
    disk: u64,
    provider: u64,
    send: u64,
    head: u64,
    missed: u64,
}

const ALONE: Timing = Timing {
    name: "",
    is_shared: false,
    disk: 250,
    provider: 1000,
    send: 0,
    head: 1000,
    missed: 0,
};

const TIMINGS: &[Timing] = &[
    Timing {
        name: "the disk is faster than the provider",
        ..ALONE
    },
    Timing {
        name: "the provider is faster than the disk",
        provider: 100,
        head: 250,
        ..ALONE
    },
    Timing {
        name: "the provider answers at once",
        disk: 200,
        provider: 0,
        head: 200,
        ..ALONE
    },
    Timing {
        name: "the disk is late",
        disk: 2000,
        provider: 100,
        head: 350,
        missed: 1,
        ..ALONE
    },
    Timing {
        name: "a shared ledger decides before the send",
        is_shared: true,
        disk: 200,
        provider: 100,
        send: 200,
        head: 300,
        ..ALONE
    },
];

#[tokio::test(start_paused = true)]
async fn the_head_waits_for_the_disk_and_the_send_does_not() {
    for timing in TIMINGS {
        for is_stream in [false, true] {
            let ledger = if timing.is_shared {
                SwitchableLedger::shared(false)
            } else {
                SwitchableLedger::new()
            };
            let world = known(&ledger).await;
            ledger.delay_syncs(millis(timing.disk));
            let began = world.now();
            world.script(answer_after(millis(timing.provider), is_stream));
            let answer = ask(&world, &hurry()).await;
            let name = format!("{}, stream {is_stream}", timing.name);
            assert_eq!(answer.status(), 200, "{name}");
            assert!(sent(&world).contains(PLACEHOLDER), "{name}");
            let last = world.requests().pop().unwrap();
            // The caller's own record is written with the first pin, at the same time.
            assert_at(last.at.checked_sub(began).unwrap(), millis(timing.send));
            assert_at(answer.head_at.checked_sub(began).unwrap(), millis(timing.head));
            assert_eq!(missed_writes(&world), timing.missed, "{name}");
            // A healthy request waits for nothing.
            let began = world.now();
            world.script(answer_after(millis(10), is_stream));
            let answer = ask(&world, HELLO).await;
            assert_at(answer.head_at.checked_sub(began).unwrap(), millis(10));
            // A late write is carried out all the same.
            world.until(world.now() + secs(3)).await;
            let stored = rows(&(Arc::<SwitchableLedger>::clone(&ledger) as Arc<dyn Ledger>)).await;
            assert_eq!(stored, 2, "{name}");
            let next = switched(&ledger.restart());
            next.script(json(200, GOOD));
            ask(&next, &late()).await;
            assert!(sent(&next).contains(QUOTED), "{name}");
        }
    }
}

/// The second use of a pin waits for nothing: the ledger has the answer, if not yet the mark that it was accepted.
#[tokio::test(start_paused = true)]
async fn a_stored_pin_is_not_awaited_again() {
    for pause in [0, 1000] {
        let ledger = SwitchableLedger::new();
        let world = known(&ledger).await;
        ledger.delay_syncs(millis(250));
        for head in [250, 10] {
            let began = world.now();
            world.script(answer_after(millis(10), false));
            let answer = ask(&world, &hurry()).await;
            assert_at(answer.head_at.checked_sub(began).unwrap(), millis(head));
            world.until(world.now() + millis(pause)).await;
        }
    }
}

/// A failed request takes its pin back at once, even while its write is on its way.
#[tokio::test(start_paused = true)]
async fn a_rollback_overtakes_a_running_write() {
    for provider in [0, 100, 249, 250, 251, 400] {
        for again in [true, false] {
            let ledger = SwitchableLedger::new();
            let world = known(&ledger).await;
            ledger.delay_syncs(millis(250));
            let mut steps = vec![Step::Wait(millis(provider))];
            steps.extend(json(529, GOOD));
            world.script(steps);
            assert_eq!(ask(&world, &hurry()).await.status(), 529);
            let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
            if again {
                // Without the pin the result moves to its place.
                world.script(answer_after(millis(1), false));
                let answer = ask(&world, &late()).await;
                assert_eq!(answer.header("x-antiphon-repair"), Some("moved=1"), "{provider}");
            }
            world.until(world.now() + secs(2)).await;
            // The last one says that the provider has accepted text beside calls.
            assert_eq!(rows(&kept).await, 1 + 2 * u64::from(again), "{provider}");
            let next = switched(&ledger.restart());
            next.script(json(200, GOOD));
            ask(&next, &late()).await;
            assert!(!sent(&next).contains(PLACEHOLDER), "{provider}");
        }
    }
}

/// Of two requests at once the first decides, although neither decision is stored yet.
#[tokio::test(start_paused = true)]
async fn of_two_requests_at_once_the_first_decides() {
    for order in [[hurry(), late()], [late(), hurry()]] {
        let ledger = SwitchableLedger::new();
        let first = known(&ledger).await;
        // The caller has records, so that both requests look for the call in the ledger before they decide.
        first.script(json(200, GOOD));
        ask(&first, &hurry().replace("AbC9", "ZzZ9")).await;
        first.settle().await;
        let ledger = ledger.restart();
        let world = switched(&ledger);
        world.settle().await;
        ledger.slow_down(millis(20));
        ledger.delay_syncs(millis(150));
        for _ in 0..2 {
            world.script(answer_after(millis(300), false));
        }
        let (one, two) = tokio::join!(ask(&world, &order[0]), ask(&world, &order[1]));
        assert_eq!((one.status(), two.status()), (200, 200));
        let bodies: Vec<String> = world
            .requests()
            .iter()
            .map(|request| String::from_utf8(request.message.body.clone()).unwrap())
            .collect();
        let placeholders = bodies.iter().filter(|body| body.contains(PLACEHOLDER)).count();
        assert!(placeholders == 0 || placeholders == 2, "{bodies:#?}");
    }
}

/// A failing store delays nothing after its first error, and gets what was decided meanwhile.
#[tokio::test(start_paused = true)]
async fn a_failing_store_holds_no_head() {
    let ledger = SwitchableLedger::new();
    let world = known(&ledger).await;
    ledger.fails_commits.store(true, Ordering::Relaxed);
    for id in ["AbC0", "AbC1", "AbC2"] {
        let began = world.now();
        world.script(answer_after(millis(10), false));
        let answer = ask(&world, &hurry().replace("AbC9", id)).await;
        assert_eq!(answer.status(), 200);
        assert_at(answer.head_at.checked_sub(began).unwrap(), millis(10));
    }
    assert_eq!(missed_writes(&world), 3);
    ledger.fails_commits.store(false, Ordering::Relaxed);
    world.until(world.now() + secs(6)).await;
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&ledger);
    assert_eq!(rows(&kept).await, 4);
}

/// A caller for which the ledger has no room is given up: it delays no pin, and an outage still ends.
#[tokio::test(start_paused = true)]
async fn a_caller_without_room_delays_nothing() {
    let ledger = SwitchableLedger::new();
    ledger.has_no_room_for_callers.store(true, Ordering::Relaxed);
    let world = known(&ledger).await;
    let repaired = async |id: &str, disk: u64| {
        ledger.delay_syncs(millis(disk));
        let began = world.now();
        world.script(answer_after(millis(10), false));
        let answer = ask(&world, &hurry().replace("AbC9", id)).await;
        assert_eq!(answer.status(), 200);
        answer.head_at.checked_sub(began).unwrap()
    };
    assert_at(repaired("AbC0", 50).await, millis(50));
    world.until(world.now() + secs(10)).await;
    let commits = ledger.commits.load(Ordering::Relaxed);
    world.until(world.now() + secs(60)).await;
    assert_eq!(
        ledger.commits.load(Ordering::Relaxed),
        commits,
        "commits of an idle proxy"
    );
    // After an outage the heads wait for the disk again.
    ledger.fails_commits.store(true, Ordering::Relaxed);
    repaired("AbC1", 0).await;
    ledger.fails_commits.store(false, Ordering::Relaxed);
    world.until(world.now() + secs(10)).await;
    assert_at(repaired("AbC2", 50).await, millis(50));
}

/// The request before the kill, and the one after it whose bytes depend on the pin.
struct Killed {
    name: &'static str,
    /// `true` if a provider has accepted the caller before.
    is_known: bool,
    before: fn() -> String,
    after: fn() -> String,
    /// Text of the second request if the pin is stored.
    stays: &'static str,
}

/// Returns the history of a client that has lost a result which was moved.
fn lost() -> String {
    late().replace(
        r#"{"type":"tool_result","tool_use_id":"toolu_01AbC9dE3fG","content":"REAL"},"#,
        "",
    )
}

const KILLED: &[Killed] = &[
    Killed {
        name: "placeholder",
        is_known: true,
        before: hurry,
        after: late,
        stays: QUOTED,
    },
    Killed {
        name: "moved result",
        is_known: true,
        before: late,
        after: lost,
        stays: "REAL",
    },
    Killed {
        name: "placeholder of a new caller",
        is_known: false,
        before: hurry,
        after: late,
        stays: QUOTED,
    },
];

/// What became of the killed processes of one case.
pub(crate) struct KillOutcomes {
    case: &'static Killed,
    /// `true` if the client has seen an answer, and `true` if the pin stayed.
    found: Vec<(bool, bool)>,
    /// The kills that changed bytes for which the client has seen an answer.
    pub(crate) contradictions: Vec<String>,
}

/// Kills a process at times that are `pace` milliseconds apart, in each case.
pub(crate) async fn kill_processes(pace: usize) -> Vec<KillOutcomes> {
    let mut outcomes = Vec::new();
    for case in KILLED {
        let (mut found, mut contradictions) = (Vec::new(), Vec::new());
        for (provider, killed_at) in [20, 120, 300]
            .into_iter()
            .flat_map(|provider| (0..420).step_by(pace).map(move |at| (provider, at)))
        {
            let ledger = SwitchableLedger::new();
            let world = if case.is_known {
                known(&ledger).await
            } else {
                switched(&ledger)
            };
            ledger.delay_syncs(millis(150));
            world.script(answer_after(millis(provider), false));
            let messages = (case.before)();
            let is_seen = timeout(millis(killed_at), ask(&world, &messages)).await.is_ok();
            let next = ledger.restart();
            next.delay_syncs(Duration::ZERO);
            let world = switched(&next);
            world.script(json(200, GOOD));
            ask(&world, &(case.after)()).await;
            let stayed = sent(&world).contains(case.stays);
            if is_seen && !stayed {
                contradictions.push(format!("{}: {provider} ms, killed at {killed_at} ms", case.name));
            }
            found.push((is_seen, stayed));
        }
        outcomes.push(KillOutcomes {
            case,
            found,
            contradictions,
        });
    }
    outcomes
}

/// A process that is killed at any time changes no byte for which its client has seen an answer.
#[tokio::test(start_paused = true)]
async fn a_kill_changes_no_byte_that_was_answered() {
    for outcomes in kill_processes(10).await {
        assert!(outcomes.contradictions.is_empty(), "{:#?}", outcomes.contradictions);
        for outcome in [(false, false), (false, true), (true, true)] {
            // Nothing of a new caller is written before the provider's answer.
            let may_be_early = outcomes.case.is_known || outcome != (false, true);
            assert!(
                !may_be_early || outcomes.found.contains(&outcome),
                "{}: {outcome:?} never came",
                outcomes.case.name
            );
        }
    }
}

/// Returns a request with these messages.
fn request(messages: &str) -> String {
    let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{messages}]}}"#);
    format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: sk-one\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the bytes that came before the connection ended.
async fn read_all(process: &Process, messages: String) -> tokio::task::JoinHandle<Vec<u8>> {
    let mut stream = TcpStream::connect(process.data).await.unwrap();
    stream.write_all(request(&messages).as_bytes()).await.unwrap();
    spawn(async move {
        let mut read = Vec::new();
        // A reset is an end too.
        drop(stream.read_to_end(&mut read).await);
        read
    })
}

/// As [`a_kill_changes_no_byte_that_was_answered`], with real processes and a real disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_changes_no_byte_that_was_answered() {
    let cycles: u64 = std::env::var("CYCLES")
        .ok()
        .and_then(|cycles| cycles.parse().ok())
        .unwrap_or(12);
    let seed = seed();
    println!("SEED={seed} (times only)");
    let mut rng = Rng::new(seed);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{GOOD}",
        GOOD.len()
    );
    let provider = Upstream::answering(answer).await;
    let install = Install::new(&format!(
        "[upstreams.anthropic]\nurl = \"http://{}\"\n",
        provider.address
    ));
    let count = || provider.requests().len();
    let (mut seen, mut stayed) = (0, 0);
    for cycle in 0..cycles {
        let id = format!("toolu_{cycle:02}AbC9dE3fG");
        let of_cycle = |messages: String| messages.replace("toolu_01AbC9dE3fG", &id);
        let mut process = install.start().await;
        let before = count();
        let reading = read_all(&process, of_cycle(hurry())).await;
        while count() == before {
            tokio::task::yield_now().await;
        }
        // Between the send and what follows.
        std::thread::sleep(Duration::from_micros(rng.next() % 25_000));
        process.kill();
        let is_seen = reading.await.unwrap().starts_with(b"HTTP/1.1 200");
        let process = install.start().await;
        let answered = process.ask(request(&of_cycle(late()))).await;
        assert_eq!(answered.status(), 200);
        let body = String::from_utf8(provider.requests().pop().unwrap().body).unwrap();
        let is_pinned = body.contains(QUOTED);
        assert!(is_pinned || !is_seen, "cycle {cycle}: {body}");
        (seen, stayed) = (seen + u32::from(is_seen), stayed + u32::from(is_pinned));
        process.stop().await;
    }
    println!("{cycles} cycles, {seen} answers seen, {stayed} pins stored");
}
