//! Observable facts of an exchange, as short texts.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use antiphon::{
    auth::principal::principal_of_credentials,
    keys::profiles::{ObservedAttempt, RetryPayer},
    policy::{Class, LimitHints, Verdict},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    super::{
        log,
        still::{Answer, Request, World, assert_at, secs},
    },
    MODEL,
};

/// Pause between the last byte of an answer and the cut.
const FAREWELL: Duration = Duration::from_millis(10);

/// Returns an answer as text: status, end, author of the error, sends, and time.
pub fn got(answer: &Answer) -> String {
    let status = answer.status();
    let stream = answer.header("content-type") == Some("text/event-stream");
    let sends = answer
        .header("x-antiphon-attempts")
        .map(|sends| format!(" n{sends}"))
        .unwrap_or_default();
    let text = answer.text();
    if !stream {
        assert!(answer.complete, "{text}");
        let mut words = vec![status.to_string()];
        let body: Value = serde_json::from_str(text).unwrap_or_default();
        words.extend(Some(code(&body)).filter(|code| !code.is_empty()));
        match (answer.header("x-antiphon-fault"), answer.header("x-antiphon-phase")) {
            (Some(fault), Some(phase)) => words.push(format!("ours:{fault}/{phase}")),
            ours => assert_eq!(ours, (None, None)),
        }
        for name in ["retry-after", "x-should-retry"] {
            words.extend(answer.header(name).map(|value| format!("{name}={value}")));
        }
        return format!("{}{sends} {}", words.join(" "), at(answer.ended_at));
    }
    let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let data = last
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap_or_default();
    let code = code(&serde_json::from_str(data).unwrap_or_default());
    if answer.complete {
        let how = if code.is_empty() {
            "whole".to_owned()
        } else {
            format!("passed {code}")
        };
        return format!("{status} {how}{sends} {}", at(answer.ended_at));
    }
    for end in ["message_stop", "[DONE]", "response.completed", "finishReason"] {
        assert!(!text.contains(end), "an end was made up: {text}");
    }
    let cut = answer.ended_at.saturating_sub(FAREWELL);
    if !code.is_empty() {
        let typed = text.contains("event: ");
        assert_eq!(last.starts_with("event: error\n"), typed, "{last}");
        assert_at(answer.pieces.last().unwrap().at, cut);
        // The word that clients retry on.
        assert!(last.contains("\"message\":\"Overloaded: "), "{last}");
    }
    let code = if code.is_empty() { "bare" } else { &code };
    format!("{status} cut {code}{sends} {}", at(cut))
}

/// Returns the error code in any provider's shape.
fn code(error: &Value) -> String {
    // Responses puts the error inside the failed response.
    let failed = &error["response"];
    let error = if failed["error"].is_object() { failed } else { error };
    let inner = &error["error"];
    let named = match (error["type"] == "error", inner.is_object()) {
        // Responses has the code at the top level too.
        (true, true) if error["code"].is_string() => &error["code"],
        (true, true) => &inner["type"],
        (true, false) => &error["code"],
        (false, _) => ["status", "code", "type"]
            .iter()
            .map(|key| &inner[*key])
            .find(|value| value.is_string())
            .unwrap_or(&Value::Null),
    };
    named.as_str().unwrap_or_default().to_owned()
}

/// Returns a time as text: `@3` for seconds, `~0.5` for half a second plus the jitter of a retry.
///
/// Both within one timer tick of tokio, which is a millisecond.
pub fn at(time: Duration) -> String {
    let (seconds, behind) = (time.as_secs(), time.subsec_millis());
    match behind {
        0 | 1 => format!("@{seconds}"),
        999 => format!("@{}", seconds + 1),
        499..=820 => format!("~{seconds}.5"),
        _ => format!("@{time:?}"),
    }
}

/// Names profiles A, B and C in the order of their first use, since the first choice is random.
fn letter(keys: &[String], key: &str) -> char {
    let place = keys.iter().position(|known| known == key);
    place.map_or('?', |place| ['A', 'B', 'C'][place])
}

/// Returns the credentials that the provider has seen, in the order of their first use.
pub(super) fn keys(world: &World) -> Vec<String> {
    let mut keys = Vec::new();
    for request in world.requests() {
        let key = key(&request);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Returns the only credential of a request.
fn key(request: &Request) -> String {
    let fields = ["x-api-key", "x-goog-api-key", "authorization"];
    let mut keys = fields.iter().filter_map(|name| request.message.header(name));
    let key = keys.next().unwrap().trim_start_matches("Bearer ").to_owned();
    assert_eq!(keys.next(), None, "{}", request.message.head);
    assert!(key == "own" || key.starts_with("key-"), "{key}");
    key
}

/// Returns the credential and the time of each request that the provider has read.
pub fn sends(world: &World) -> String {
    let keys = keys(world);
    let send = |request: Request| format!("{}{}", letter(&keys, &key(&request)), at(request.at));
    world.requests().into_iter().map(send).collect::<Vec<_>>().join(" ")
}

/// Returns the cooldowns with reason and length.
pub fn cooldowns(world: &World) -> String {
    let keys = keys(world);
    let view = world.shared.profiles.profile_statuses(Instant::now().into_std());
    let mut rests = Vec::new();
    for profile in view.iter().flat_map(|(_, profiles)| profiles) {
        let letter = letter(&keys, &format!("key-{}", profile.label));
        for rest in &profile.cooldowns {
            let length = rest.until.duration_since(rest.since);
            rests.push(format!("{letter}:{} {}", rest.reason.label(), stretched(length)));
        }
    }
    rests.sort_unstable();
    if rests.is_empty() {
        "-".to_owned()
    } else {
        rests.join(", ")
    }
}

/// Returns the complete state of profiles and breakers.
pub fn pool_state(world: &World) -> String {
    let (profiles, now) = (&world.shared.profiles, Instant::now().into_std());
    format!(
        "{:?} {:?}",
        profiles.profile_statuses(now),
        profiles.breaker_statuses(now)
    )
}

/// Returns the consecutive failures of all endpoints.
pub fn failures(world: &World) -> u32 {
    let all = world.shared.profiles.breaker_statuses(Instant::now().into_std());
    all.iter()
        .flat_map(|(_, breakers)| breakers)
        .map(|breaker| breaker.failures)
        .sum()
}

/// Returns the seconds without the jitter, which adds up to a fifth.
fn stretched(length: Duration) -> u64 {
    const KNOWN: [u64; 9] = [8, 12, 30, 45, 60, 300, 600, 1800, 18_000];
    let fits = |known: &&u64| (secs(**known)..=secs(**known).mul_f64(1.2)).contains(&length);
    KNOWN.iter().find(fits).copied().unwrap_or(length.as_secs())
}

/// Returns the credential that the client of every row sends, in one of the headers for it.
fn own_key() -> HeaderMap {
    let name = HeaderName::from_static("x-api-key");
    [(name, HeaderValue::from_static("own"))].into_iter().collect()
}

pub(super) fn note(world: &World, upstream: &str, class: Class, number: u8) {
    let now = Instant::now().into_std();
    let shown = ObservedAttempt {
        profile: None,
        model: Some(MODEL.to_owned()),
        path: None,
        began: now,
        request: number.into(),
        is_first: false,
        asks_model: true,
        jitter: 0.0,
        payer: RetryPayer {
            // The client of every row.
            caller: principal_of_credentials(world.shared.late.principal_key(), &own_key(), None),
            percent: None,
            is_verified: false,
        },
    };
    let (verdict, hints) = (Verdict::from_class(class), LimitHints::default());
    world
        .shared
        .profiles
        .pool(upstream)
        .record_attempt(&shown, verdict, &hints, now);
}

/// Returns the endpoint's change after the one initial failure: `works`, or added failures.
/// A second half failure reveals the first.
pub(super) fn credited(world: &World, upstream: &str) -> String {
    let whole = failures(world);
    note(world, upstream, Class::ClientGaveUp, 1);
    match (whole, failures(world) > whole) {
        (0, false) => "works".to_owned(),
        (whole, false) => format!("+{}", whole - 1),
        (0, true) => "works, then +0.5".to_owned(),
        (whole, true) => format!("+{}.5", whole - 1),
    }
}

/// Returns the counters that a row may change: attempts by class, rotations by reason, stalls by side, exchanges by
/// outcome.
pub(super) fn counted(world: &World) -> BTreeMap<String, u64> {
    let text = world.shared.telemetry.encode_metrics();
    let known = [
        ("antiphon_attempts_total", "class", ""),
        ("antiphon_profile_rotations_total", "reason", "rotated:"),
        ("antiphon_stream_stalls_total", "side", "stall:"),
        ("antiphon_requests_total", "outcome", "outcome:"),
    ];
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        for (name, label, prefix) in known {
            let Some(rest) = line.strip_prefix(name).filter(|rest| rest.starts_with('{')) else {
                continue;
            };
            let (_, value) = rest.split_once(&format!("{label}=\"")).unwrap();
            let (value, _) = value.split_once('"').unwrap();
            let (_, count) = line.rsplit_once(' ').unwrap();
            *counts.entry(format!("{prefix}{value}")).or_default() += count.parse::<u64>().unwrap();
        }
    }
    counts
}

pub(super) fn diff(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> String {
    let more = |(name, count): (&String, &u64)| {
        let more = count - before.get(name).unwrap_or(&0);
        (more > 0).then(|| format!("{name}={more}"))
    };
    after.iter().filter_map(more).collect::<Vec<_>>().join(" ")
}

/// The captured log of this thread.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(super) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || writer.clone())
            .finish();
        log::listen(subscriber)
    }

    /// Returns side, phase and code of the only exchange.
    pub(super) fn words(&self) -> [String; 3] {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut ended = lines.filter(|line| line["target"] == "antiphon::exchange");
        let line = ended.next().expect("an exchange that ended");
        assert!(ended.next().is_none(), "one exchange, one line: {text}");
        ["side", "phase", "code"].map(|key| line[key].as_str().unwrap().to_owned())
    }
}
