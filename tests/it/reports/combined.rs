//! Two reports in one history: each refusal leads to its own mend, and both stay. The clients name no session.
//!
//! `SEED=<n>` takes other pairs, `STEPS` their number.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use antiphon::wire::Format;
use serde_json::{Map, Value};
use strict_provider::kept::{KeptRules, judge_kept};

use super::files::{self, Report, Right, answer};
use crate::{
    replicas::pair::only_upstream,
    support::{
        app::post_with,
        bodies::Rng,
        judge,
        seed::{number, seed},
        still::{self, World, secs},
    },
};

static REPORTS: LazyLock<Vec<Report>> = LazyLock::new(files::all);
/// Ids of calls in the reports. Those of the second one are replaced, so that no call has two results.
const IDS: [&str; 3] = ["call_1", "call_7", "toolu_01"];

/// Reports that cannot stand beside each other, with the reason.
const CONTRADICTIONS: [(&str, &str, &str); 5] = [
    ("r04", "r01", "of several images nobody can tell which one is broken"),
    ("r04", "r02", "of several images nobody can tell which one is broken"),
    ("r04", "r03", "of several images nobody can tell which one is broken"),
    ("r04", "r05", "of several images nobody can tell which one is broken"),
    ("r50", "r54", "a result gets the name of its call once it has its id"),
];
/// Pairs that are told, of more than 600.
const PAIRS: usize = 150;

/// A history with two faults, and its server.
struct Combined {
    reports: [&'static Report; 2],
    body: String,
    /// The number of messages of the second report.
    later: usize,
}

impl Combined {
    /// Returns one history after the other. `None` if one of them is no JSON.
    fn new(one: &'static Report, other: &'static Report) -> Option<Self> {
        let member = history_member(one);
        let first: Map<String, Value> = serde_json::from_str(&one.body).ok()?;
        let renamed = IDS
            .iter()
            .fold(other.body.clone(), |body, id| body.replace(id, &format!("{id}b")));
        let second: Map<String, Value> = serde_json::from_str(&renamed).ok()?;
        let mut history = first[member].as_array()?.clone();
        let more = second[member].as_array()?.clone();
        let later = more.len();
        history.extend(more);
        let mut body = first;
        body.remove(member);
        let own: BTreeSet<String> = tools(&body);
        for (name, value) in second.into_iter().filter(|(name, _)| name != member) {
            match (body.get_mut(&name).and_then(Value::as_array_mut), value) {
                (Some(tools), Value::Array(more)) if name == "tools" => {
                    tools.extend(more.into_iter().filter(|tool| !own.contains(&tool["name"].to_string())));
                }
                (_, value) => drop(body.entry(name).or_insert(value)),
            }
        }
        body.insert(member.to_owned(), history.into());
        Some(Self {
            reports: [one, other],
            body: Value::from(body).to_string(),
            later,
        })
    }

    fn name(&self) -> String {
        self.reports.map(|report| report.name.as_str()).join(" and ")
    }

    /// Returns the refusal of the server.
    fn refuse(&self, body: &[u8]) -> Option<(u16, String)> {
        let [one, other] = self.reports;
        one.refuse("", body).or_else(|| {
            let own = IDS.iter().fold(String::from_utf8_lossy(body).into_owned(), |body, id| {
                body.replace(&format!("{id}b"), id)
            });
            let (status, error) = other.refuse("", own.as_bytes())?;
            let error = IDS.iter().fold(error, |error, id| error.replace(id, &format!("{id}b")));
            let read: Value = serde_json::from_slice(body).ok()?;
            let before = read[history_member(one)].as_array()?.len().saturating_sub(self.later);
            Some((status, moved(error, before)))
        })
    }

    /// Returns what may be lost of both.
    fn rules(&self) -> KeptRules {
        let [one, other] = self.reports.map(Report::kept_rules);
        KeptRules {
            may_lose: [one.may_lose, other.may_lose].concat(),
            may_change: [one.may_change, other.may_change].concat(),
            pairs_differ: one.pairs_differ || other.pairs_differ,
            ..KeptRules::default()
        }
    }

    /// Sends the history until the server accepts it. Returns the fault, if there is one.
    async fn tell(self: Arc<Self>) -> Option<String> {
        let report = self.reports[0];
        let (format, world) = (report.wire().format, World::with(only_upstream(report.kind())));
        let server = Arc::clone(&self);
        world.otherwise(move |request| match server.refuse(&request.body) {
            Some((status, error)) => still::json(status, &error),
            None => still::json(200, &answer(format).to_string()),
        });
        let path = format!("/x{}", report.path);
        let request = post_with(&path, &[("authorization", "Bearer one")], self.body.as_bytes());
        let mut accepted: Option<Vec<u8>> = None;
        for attempt in 0..3 {
            let before = world.requests().len();
            let got = world.ask(&request).await;
            world.until(world.now() + secs(1)).await;
            let sends = world.requests().split_off(before);
            let last = sends.last()?.message.body.clone();
            if sends.len() > 3 {
                return Some(format!("{} sends", sends.len()));
            }
            match (&accepted, got.status()) {
                (Some(accepted), 200) if *accepted != last => {
                    return Some(format!(
                        "other bytes\n  {}\n  {}",
                        String::from_utf8_lossy(accepted),
                        String::from_utf8_lossy(&last)
                    ));
                }
                (_, 200) => accepted = Some(last),
                // The third fault is met by the next try.
                (None, _) if attempt == 0 => {}
                (_, status) => {
                    return Some(format!(
                        "status {status}: {}\n  {}",
                        got.text(),
                        String::from_utf8_lossy(&last)
                    ));
                }
            }
        }
        let (kept, _) = judge::reading(report.wire());
        judge_kept(kept, self.body.as_bytes(), &accepted?, &self.rules()).err()
    }
}

fn tools(body: &Map<String, Value>) -> BTreeSet<String> {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    tools.map(|tool| tool["name"].to_string()).collect()
}

fn history_member(report: &Report) -> &'static str {
    match report.wire().format {
        Format::Anthropic | Format::OpenAiChat => "messages",
        Format::OpenAiResponses => "input",
        Format::Gemini => "contents",
    }
}

/// Moves the places of an error behind these messages.
fn moved(error: String, by: usize) -> String {
    let starts = [
        "messages.",
        "messages[",
        "input[",
        "input.",
        "contents[",
        "\"messages\",",
        "position ",
    ];
    let mut error = error;
    for start in starts {
        for index in (0..9).rev() {
            error = error.replace(&format!("{start}{index}"), &format!("{start}{}", index + by));
        }
    }
    error
}

/// Any two reports of one wire.
#[tokio::test(start_paused = true)]
async fn two_faults_of_one_history_are_both_met() {
    let is_plain = |report: &&Report| report.right == Right::Mended && report.earlier.is_none();
    let plain: Vec<&'static Report> = REPORTS.iter().filter(is_plain).collect();
    let is_known = |one: &Report, other: &Report| {
        let mut known = CONTRADICTIONS.iter();
        known.any(|(first, second, _)| one.name.starts_with(first) && other.name.starts_with(second))
    };
    let mut pairs = Vec::new();
    for (one, other) in plain
        .iter()
        .flat_map(|one| plain.iter().map(move |other| (*one, *other)))
    {
        let is_pair = one.name != other.name && one.wire() == other.wire();
        if is_pair && !is_known(one, other) && !is_known(other, one) {
            pairs.push((one, other));
        }
    }
    let seed = seed();
    println!(
        "SEED={seed} STEPS={} of {}",
        number("STEPS").unwrap_or(PAIRS),
        pairs.len()
    );
    Rng::new(seed).shuffle(&mut pairs);
    let mut faults = Vec::new();
    for (one, other) in pairs.into_iter().take(number("STEPS").unwrap_or(PAIRS)) {
        let combined = Combined::new(one, other).filter(|both| both.refuse(both.body.as_bytes()).is_some());
        let Some(combined) = combined else { continue };
        let name = combined.name();
        let fault = Arc::new(combined).tell().await;
        faults.extend(fault.map(|fault| format!("{name}: {fault}")));
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
}
