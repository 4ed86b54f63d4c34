//! Pools whose keys have rate limits, under the load of many conversations, on paused time and seeded.
//!
//! Each key has a token bucket, as providers have. `cargo test --test it limited_pools -- --nocapture` prints, for each
//! run, the answers of those possible, the refused sends and the waits. `SEED=7` repeats a run.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use crate::support::{
    bodies::Rng,
    pool::{LIMITED, MESSAGES, body, key, of_session, pooled, profile},
    seed::seed,
    still::{Step, World, head, secs},
};

/// Conversations of each run.
const CONVERSATIONS: usize = 200;
/// Time of an answer.
const ANSWER: Duration = Duration::from_millis(90);

/// The limit of one key: tokens that are refilled steadily.
#[derive(Clone, Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at: Instant::now(),
        }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let refilled = now.duration_since(self.at).as_secs_f64() * self.rate;
        (self.tokens, self.at) = ((self.tokens + refilled).min(self.burst), now);
    }

    /// Takes a token, if there is one.
    fn take(&mut self) -> bool {
        self.refill();
        let takes = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(takes));
        takes
    }
}

/// The provider's side of a run.
#[derive(Clone, Debug, Default)]
struct Setup {
    /// Keys without a bucket are not limited.
    limits: BTreeMap<&'static str, (f64, f64)>,
    /// Value of `retry-after` of a refusal.
    retry_after: Option<&'static str>,
    /// `true` if successes report the requests that are left.
    reports_remaining: bool,
    /// Time at which the limits end.
    free_from: Option<Duration>,
    weights: [u32; 3],
    /// `true` if clients retry as the official SDKs do.
    retries: bool,
}

/// Sends by key: accepted and refused.
type Sends = Arc<Mutex<Vec<(Duration, String, bool)>>>;

fn provide(world: &World, setup: &Setup, sends: &Sends) {
    let mut buckets: BTreeMap<&str, Bucket> = setup
        .limits
        .iter()
        .map(|(key, (rate, burst))| (*key, Bucket::new(*rate, *burst)))
        .collect();
    let (setup, sends, start) = (setup.clone(), Arc::clone(sends), Instant::now());
    world.otherwise(move |request| {
        let label = key(request);
        let is_free = setup.free_from.is_some_and(|at| start.elapsed() >= at);
        let bucket = buckets.get_mut(label.as_str()).filter(|_| !is_free);
        let (accepts, left) = bucket.map_or((true, None), |bucket| {
            (bucket.take(), Some((bucket.tokens, bucket.rate, bucket.burst)))
        });
        sends.lock().unwrap().push((start.elapsed(), label, accepts));
        let mut fields = vec![("content-type".to_owned(), "application/json".to_owned())];
        if let Some((tokens, rate, burst)) = left.filter(|_| setup.reports_remaining) {
            let reset = (burst - tokens) / rate;
            fields.push(("x-ratelimit-limit-requests".to_owned(), format!("{burst}")));
            fields.push((
                "x-ratelimit-remaining-requests".to_owned(),
                format!("{}", tokens.floor()),
            ));
            fields.push(("x-ratelimit-reset-requests".to_owned(), format!("{reset:.3}s")));
        }
        let fine = r#"{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn"}"#;
        let (status, body) = if accepts { (200, fine) } else { (429, LIMITED) };
        if let Some(seconds) = setup.retry_after.filter(|_| !accepts) {
            fields.push(("retry-after".to_owned(), seconds.to_owned()));
        }
        fields.push(("content-length".to_owned(), body.len().to_string()));
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let pause = if accepts { ANSWER } else { Duration::from_millis(20) };
        vec![
            Step::Wait(pause),
            head(status, &fields),
            Step::Bytes(body.as_bytes().to_vec()),
            Step::End,
        ]
    });
}

/// The figures of a run.
#[derive(Debug)]
struct Figures {
    answers: usize,
    refused_clients: usize,
    sends: usize,
    refused_sends: usize,
    /// Waits of answered requests, sorted.
    waits: Vec<Duration>,
    /// Conversations by the key of their last answer.
    homes: BTreeMap<String, usize>,
}

impl Figures {
    fn print(&self, name: &str) {
        let at = |part: usize| {
            self.waits
                .get(self.waits.len() * part / 100)
                .copied()
                .unwrap_or_default()
                .as_secs_f64()
        };
        let Self {
            answers,
            refused_clients,
            sends,
            refused_sends,
            homes,
            ..
        } = self;
        let share = refused_sends * 100 / (*sends).max(1);
        println!(
            "{name:44} answers {answers:5}  429 to clients {refused_clients:5}  sends {sends:5}  429 from the provider {refused_sends:4} ({:3} %)  p50/p90/p99 {:.2}/{:.2}/{:.2} s  homes {homes:?}",
            share,
            at(50),
            at(90),
            at(99),
        );
    }
}

/// One asked request: its start, its end, its status, and the profile that answered.
type Asked = (Duration, Duration, u16, Option<String>);

async fn ask(world: &World, conversation: usize, number: usize, retries: bool) -> Vec<Asked> {
    let mut asked = Vec::new();
    let request = of_session(&format!("s{conversation}"), MESSAGES, &[], &body(number));
    for retry in 0..3 {
        let began = world.now();
        let answer = world.ask(&request).await;
        let profile = answer
            .header("x-antiphon-profile")
            .map(|label| label.split(';').next().unwrap().to_owned());
        asked.push((began, world.now(), answer.status(), profile));
        let wait = answer.header("retry-after").and_then(|wait| wait.parse().ok());
        if answer.status() != 429 || !retries || retry == 2 || answer.header("x-should-retry") == Some("false") {
            break;
        }
        tokio::time::sleep(wait.map_or(secs(1), secs)).await;
    }
    asked
}

fn figures(asked: Vec<Vec<Asked>>, sends: &Sends, window: std::ops::Range<Duration>) -> Figures {
    let mut homes = BTreeMap::new();
    for conversation in &asked {
        if let Some(label) = conversation
            .iter()
            .rev()
            .find(|(_, _, status, _)| *status == 200)
            .and_then(|one| one.3.clone())
        {
            *homes.entry(label).or_default() += 1;
        }
    }
    let ended: Vec<Asked> = asked
        .into_iter()
        .flatten()
        .filter(|(_, end, ..)| window.contains(end))
        .collect();
    let sends: Vec<bool> = sends
        .lock()
        .unwrap()
        .iter()
        .filter(|(at, ..)| window.contains(at))
        .map(|send| send.2)
        .collect();
    let mut waits: Vec<Duration> = ended
        .iter()
        .filter(|one| one.2 == 200)
        .map(|(began, end, ..)| end.saturating_sub(*began))
        .collect();
    waits.sort_unstable();
    Figures {
        answers: waits.len(),
        refused_clients: ended.iter().filter(|one| one.2 == 429).count(),
        sends: sends.len(),
        refused_sends: sends.iter().filter(|accepted| !**accepted).count(),
        waits,
        homes,
    }
}

fn pool(setup: &Setup) -> (World, Sends) {
    let weights = setup.weights.map(|weight| weight.max(1));
    let profiles: Vec<_> = ["a", "b", "c"]
        .iter()
        .zip(weights)
        .map(|(label, weight)| profile(label, None, weight))
        .collect();
    let world = World::with(|builder| pooled(builder, &profiles));
    let sends = Sends::default();
    provide(&world, setup, &sends);
    (world, sends)
}

/// Conversations that think for 0.5 to 3.5 s between their requests, for this long.
async fn converse(setup: &Setup, seconds: u64) -> Figures {
    let seed = seed();
    let (world, sends) = pool(setup);
    let end = secs(seconds);
    let conversation = |number: usize| {
        let (world, mut rng) = (&world, Rng::new(seed * 1000 + number as u64 + 1));
        async move {
            let mut asked = Vec::new();
            while world.now() < end {
                tokio::time::sleep(Duration::from_millis(500 + rng.below(3000) as u64)).await;
                asked.extend(ask(world, number, asked.len(), setup.retries).await);
            }
            asked
        }
    };
    let asked = join_all((0..CONVERSATIONS).map(conversation)).await;
    figures(asked, &sends, Duration::ZERO..end)
}

/// Requests at a steady pace, whatever becomes of them: 100/s for 70 s. The first 10 s do not count.
async fn press(setup: &Setup) -> Figures {
    let (world, sends) = pool(setup);
    let start = Instant::now();
    let one = |number: usize| {
        let world = &world;
        async move {
            sleep_until(start + Duration::from_millis(10) * u32::try_from(number).unwrap()).await;
            ask(world, number % CONVERSATIONS, number, false).await
        }
    };
    let asked = join_all((0..7000).map(one)).await;
    figures(asked, &sends, secs(10)..secs(70))
}

fn all_limited(rate: f64, burst: f64) -> BTreeMap<&'static str, (f64, f64)> {
    ["a", "b", "c"].map(|label| (label, (rate, burst))).into()
}

#[tokio::test(start_paused = true)]
async fn a_pool_gives_what_its_limits_allow() {
    println!("SEED={}", seed());
    for reports_remaining in [false, true] {
        let setup = Setup {
            limits: all_limited(5.0, 5.0),
            retry_after: Some("1"),
            reports_remaining,
            ..Setup::default()
        };
        let figures = press(&setup).await;
        let name = if reports_remaining {
            "100/s at 3 keys of 5/s, with remaining"
        } else {
            "100/s at 3 keys of 5/s"
        };
        figures.print(name);
        // 15 a second for 60 s.
        assert!(figures.answers * 100 >= 900 * 97, "{name}: {} answers", figures.answers);
        assert!(
            figures.refused_sends * 10 < figures.sends,
            "{name}: {} of {} sends",
            figures.refused_sends,
            figures.sends
        );
    }
}

#[tokio::test(start_paused = true)]
async fn conversations_share_a_limited_pool() {
    println!("SEED={}", seed());
    let one = |retry_after| Setup {
        limits: [("a", (5.0, 5.0))].into(),
        retry_after,
        ..Setup::default()
    };
    // One limited key costs no client an error: the other keys take what it refuses.
    for (name, retry_after) in [
        ("S1 one key of 5/s, retry-after 1", Some("1")),
        ("S2 one key of 5/s, no retry-after", None),
        ("S3 one key of 5/s, retry-after 20", Some("20")),
    ] {
        let figures = converse(&one(retry_after), 30).await;
        figures.print(name);
        assert_eq!(figures.refused_clients, 0, "{name}");
        assert!(figures.refused_sends * 25 < figures.sends, "{name}");
    }
    for (name, retries) in [
        ("S4 all keys of 5/s, retry-after 1", false),
        ("S4r the same, clients retry", true),
    ] {
        let setup = Setup {
            limits: all_limited(5.0, 5.0),
            retry_after: Some("1"),
            retries,
            ..Setup::default()
        };
        let figures = converse(&setup, 30).await;
        figures.print(name);
        // 15 a second, and 15 at once at the start.
        assert!(figures.answers * 100 >= 465 * 90, "{name}: {}", figures.answers);
        assert!(
            figures.refused_sends * 5 < figures.sends,
            "{name}: {}",
            figures.refused_sends
        );
    }
    let setup = Setup {
        limits: all_limited(1.0, 1.0),
        retry_after: Some("8"),
        free_from: Some(secs(10)),
        ..Setup::default()
    };
    let figures = converse(&setup, 30).await;
    figures.print("S5 all keys of 1/s, retry-after 8, free at 10 s");
    assert!(figures.answers > 500, "{}", figures.answers);
    let setup = Setup {
        weights: [1, 2, 3],
        ..Setup::default()
    };
    let figures = converse(&setup, 30).await;
    figures.print("S6 weights 1:2:3");
    for (label, wanted) in [("a", 33), ("b", 67), ("c", 100)] {
        assert!(figures.homes[label].abs_diff(wanted) <= 20, "{:?}", figures.homes);
    }
    let setup = Setup {
        free_from: Some(secs(15)),
        ..one(Some("1"))
    };
    let figures = converse(&setup, 30).await;
    figures.print("S7 one key of 5/s, free at 15 s");
    assert_eq!(figures.refused_clients, 0);
}
