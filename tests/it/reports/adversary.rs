//! A server that refuses in the words of random rows, with random statuses and shapes, and echoes names of the body.
//!
//! `SEED=<n>` replays another walk, `SEED=random` takes a new one. `STEPS` sets the number of exchanges.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex},
};

use antiphon::{provider::ProviderKind, wire::Format};
use futures_util::future::join_all;
use serde_json::Value;
use strict_provider::kept::{KeptRules, judge_kept};

use super::files::{self, Report, Right, SHAPES, answer, error_in};
use crate::{
    replicas::pair::only_upstream,
    support::{
        app::post_with,
        bodies::Rng,
        judge,
        refusals::{DocumentedRow, ROWS},
        seed::{number, seed},
        still::{self, Answer, World, secs},
        wire::Message,
    },
};

static REPORTS: LazyLock<Vec<Report>> = LazyLock::new(files::all);
/// The header that tells the exchanges apart.
const TAG: &str = "x-tag: ";
/// The most sends of an exchange.
const SENDS_MAX: usize = 3;
/// The most resends with a mend of a caller in a minute.
const RESENDS_MAX: usize = 60;
const BURST: usize = 64;
/// The wires of generated histories.
const WIRES: [&str; 6] = [
    "anthropic",
    "anthropic-compatible",
    "openai-chat",
    "openai-chat-compatible",
    "openai-responses",
    "gemini",
];
const STATUSES: [u16; 9] = [400, 400, 400, 400, 404, 413, 422, 429, 500];

/// One send as the server has seen it: the exchange, the body, and the answer.
#[derive(Clone, Debug)]
struct SeenSend {
    tag: String,
    body: Vec<u8>,
    status: u16,
    answer: String,
}

/// The rows that the adversary speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// Those of demands.
    Demands,
    /// Those of every row.
    All,
}

/// The walk: a proxy for each kind of upstream, before one adversary.
struct Walk {
    rng: Rng,
    words: Words,
    worlds: BTreeMap<String, World>,
    seen: Arc<Mutex<Vec<SeenSend>>>,
    exchanges: usize,
}

impl Walk {
    fn new(seed: u64, words: Words) -> Self {
        Self {
            rng: Rng::new(seed),
            words,
            worlds: BTreeMap::new(),
            seen: Arc::default(),
            exchanges: 0,
        }
    }

    /// Returns the proxy before a server of the report's kind. It refuses with a probability of `percent`.
    fn world(&mut self, report: &Report, percent: usize) -> &World {
        let (format, kind) = (report.wire().format, report.kind());
        let name = format!("{kind:?} {format:?} {percent}");
        let seed = self.rng.next();
        let (words, seen) = (self.words, Arc::clone(&self.seen));
        self.worlds.entry(name).or_insert_with(|| {
            let world = World::with(only_upstream(kind));
            let mut rng = Rng::new(seed);
            world.otherwise(move |request| {
                let (status, answer) = if rng.chance(percent) {
                    refusal(&mut rng, words, &request.body)
                } else {
                    (200, answer(format).to_string())
                };
                seen.lock().unwrap().push(SeenSend {
                    tag: tag_of(request),
                    body: request.body.clone(),
                    status,
                    answer: answer.clone(),
                });
                still::json(status, &answer)
            });
            world
        })
    }

    /// Returns a new tag.
    fn next_tag(&mut self) -> String {
        self.exchanges += 1;
        format!("exchange-{}.", self.exchanges)
    }

    /// Sends a report's body, and checks everything that always holds. Returns the sends.
    async fn exchange(&mut self, report: &Report, key: &str, percent: usize) -> Vec<SeenSend> {
        let tag = self.next_tag();
        let request = request(report, key, &tag);
        let world = self.world(report, percent);
        let got = world.ask(request).await;
        // Background writes take less.
        world.until(world.now() + secs(1)).await;
        self.check(report, &tag, &got)
    }

    /// Checks an exchange: its number of sends, its bodies, and the client's answer.
    fn check(&self, report: &Report, tag: &str, got: &Answer) -> Vec<SeenSend> {
        let seen = self.seen.lock().unwrap();
        let sends: Vec<SeenSend> = seen.iter().filter(|send| send.tag == tag).cloned().collect();
        let name = &report.name;
        assert!((1..=SENDS_MAX).contains(&sends.len()), "{name}: {sends:#?}");
        // The last answer, or the one before a trial that did not help. A replaced id is the client's own in it, and an
        // explained error has a sentence more.
        let is_got = |send: &SeenSend| send.status == got.status() && send.answer == got.text();
        let has_own_ids = got
            .header("x-antiphon-repair")
            .is_some_and(|text| text.contains("renamed"));
        let is_explained = got.header("x-antiphon-explained").is_some();
        assert!(
            has_own_ids || is_explained || sends.iter().any(is_got),
            "{name}: the client got {} {}\nthe provider said {sends:#?}",
            got.status(),
            got.text()
        );
        let accepted = sends.iter().position(|send| send.status == 200);
        assert!(
            accepted.is_none_or(|at| at + 1 == sends.len()),
            "{name}: resent after a success"
        );
        assert_eq!(accepted.is_some(), got.status() == 200, "{name}: {sends:#?}");
        for send in &sends {
            self.check_kept(report, send);
        }
        sends
    }

    /// Checks that nothing is lost that no row may take.
    fn check_kept(&self, report: &Report, send: &SeenSend) {
        let (format, _) = judge::reading(report.wire());
        let mut rules = KeptRules {
            only_read_texts: true,
            may_change: ["max_tokens", "thinking", "context_management", "prompt_cache_retention"]
                .map(str::to_owned)
                .to_vec(),
            must_keep: Vec::new(),
            ..report.kept_rules()
        };
        rules.pairs_differ |= self.words == Words::All;
        match judge_kept(format, report.body.as_bytes(), &send.body, &rules) {
            // The repair of a pairing fault moves results.
            Err(fault) if self.words == Words::All && fault.starts_with("a message is not in its order") => {}
            Err(fault) => panic!(
                "{}: {fault}\nclient {}\nsent {}",
                report.name,
                report.body,
                String::from_utf8_lossy(&send.body)
            ),
            Ok(()) => {}
        }
    }

    /// Checks that a caller without a refusal gets nothing that others were taught.
    async fn check_stranger(&mut self, report: &'static Report) {
        let tag = self.next_tag();
        // One for each report: the others would be taught by their own refusals.
        let request = request(report, &format!("stranger-{}", report.name), &tag);
        let world = self.world(report, 80);
        world.ask(request).await;
        let seen = self.seen.lock().unwrap();
        let first = seen.iter().find(|send| send.tag == tag).unwrap();
        let same = String::from_utf8_lossy(&first.body) == *report.body;
        assert!(
            same || report.right == Right::AtOnce,
            "{}: {}",
            report.name,
            String::from_utf8_lossy(&first.body)
        );
    }
}

fn request(report: &Report, key: &str, tag: &str) -> Vec<u8> {
    let bearer = format!("Bearer {key}");
    let fields = [
        ("authorization", bearer.as_str()),
        ("x-api-key", key),
        ("x-goog-api-key", key),
        ("x-tag", tag),
    ];
    post_with(&format!("/x{}", report.path), &fields, report.body.as_bytes())
}

fn tag_of(request: &Message) -> String {
    let line = request.head.lines().find_map(|line| line.strip_prefix(TAG));
    line.expect("a tag").to_owned()
}

/// Returns a refusal in the words of a report that is like the body, or in those of a random row, which names what is in it.
fn refusal(rng: &mut Rng, words: Words, body: &[u8]) -> (u16, String) {
    if rng.chance(40) {
        // Words that fit the body, so that resends are accepted too.
        let errors: Vec<(u16, String)> = REPORTS.iter().filter_map(|report| report.refuse("", body)).collect();
        if !errors.is_empty() {
            return rng.pick(&errors).clone();
        }
    }
    let rows: Vec<&DocumentedRow> = ROWS
        .iter()
        .filter(|row| words == Words::All || row.fault == "demand")
        .collect();
    let row = *rng.pick(&rows);
    let text = if row.example.is_empty() || rng.chance(60) {
        let pattern = rng.pick(&row.text);
        filled(rng, pattern, body)
    } else {
        rng.pick(&row.example).text.clone()
    };
    let status = if rng.chance(70) {
        row.status[0]
    } else {
        *rng.pick(&STATUSES)
    };
    let (shape, _) = *rng.pick(&SHAPES);
    let loc = format!("\"body\",\"messages\",{},\"content\"", rng.below(4));
    (status, error_in(shape, status, &text, &loc))
}

/// Returns a pattern with names of the body for its variables.
fn filled(rng: &mut Rng, pattern: &str, body: &[u8]) -> String {
    let mut names = BTreeSet::new();
    let mut texts = BTreeSet::new();
    if let Ok(body) = serde_json::from_slice::<Value>(body) {
        collect_names(&body, &mut names, &mut texts);
    }
    let (names, texts): (Vec<String>, Vec<String>) = (names.into_iter().collect(), texts.into_iter().collect());
    let pick = |rng: &mut Rng, list: &[String]| {
        if list.is_empty() || rng.chance(5) {
            "zz".to_owned()
        } else {
            rng.pick(list).clone()
        }
    };
    let mut text = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((variable, behind)) = after.split_once('>').filter(|_| !after.starts_with('<')) else {
            text.push_str(before);
            text.push('<');
            rest = after.trim_start_matches('<');
            continue;
        };
        text.push_str(before);
        text += &match variable {
            "member" => pick(rng, &names),
            "ids" | "name" | "word" | "words" => pick(rng, &texts),
            "number" => rng.below(300_000).to_string(),
            _ => format!("{}.content.{}", rng.below(6), rng.below(3)),
        };
        rest = behind;
    }
    text + rest
}

/// Collects the names of members and the short texts of a body.
fn collect_names(value: &Value, names: &mut BTreeSet<String>, texts: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                names.insert(name.clone());
                collect_names(value, names, texts);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect_names(element, names, texts)),
        Value::String(text) if text.len() < 40 && !text.contains('\n') => {
            texts.insert(text.clone());
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn steps() -> usize {
    number("STEPS").unwrap_or(300)
}

/// Walks over random reports before an adversary.
async fn walk(words: Words) {
    let seed = seed();
    println!("SEED={seed} STEPS={}", steps());
    let mut walk = Walk::new(seed, words);
    let (mut resent, mut accepted, mut generated) = (0, 0, 0);
    for _ in 0..steps() {
        let key = *walk.rng.pick(&["one", "two"]);
        let percent = if walk.rng.chance(80) { 80 } else { 100 };
        let sends = if walk.rng.chance(30) {
            let (seed, wire) = (walk.rng.next(), *walk.rng.pick(&WIRES));
            let healthy = Report::healthy(seed, wire);
            let sends = walk.exchange(&healthy, key, percent).await;
            generated += usize::from(sends.iter().any(|send| send.body != healthy.body.as_bytes()));
            sends
        } else {
            let at = walk.rng.below(REPORTS.len());
            walk.exchange(&REPORTS[at], key, percent).await
        };
        resent += usize::from(sends.len() > 1);
        accepted += usize::from(sends.len() > 1 && sends.last().unwrap().status == 200);
    }
    // A walk that changes nothing would prove nothing.
    assert!(resent > steps() / 50, "{resent} of {} exchanges were resent", steps());
    assert!(accepted > 0, "no resend was accepted");
    assert!(generated > 0, "no generated history was changed");
    for report in &*REPORTS {
        walk.check_stranger(report).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_demands_at_random_loses_nothing_of_a_body() {
    walk(Words::Demands).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_at_random_gets_three_sends() {
    walk(Words::All).await;
}

/// Bursts within one minute: a caller has 60 resends with a mend at most, however many requests it sends at once.
#[tokio::test(start_paused = true)]
async fn bursts_cost_few_resends() {
    let seed = seed();
    println!("SEED={seed}");
    let mut walk = Walk::new(seed, Words::Demands);
    let is_one = |report: &&Report| report.right == Right::Mended && report.kind() == ProviderKind::Compatible;
    let is_chat = |report: &&Report| report.wire().format == Format::OpenAiChat;
    let mended: Vec<&'static Report> = REPORTS.iter().filter(is_one).filter(is_chat).collect();
    let world = World::with(only_upstream(ProviderKind::Compatible));
    refuse_always(&world, &walk.seen, mended.clone());
    let began = world.now();
    for _ in 0..4 {
        let mut asked = Vec::new();
        for _ in 0..BURST {
            let report = *walk.rng.pick(&mended);
            let tag = walk.next_tag();
            asked.push((report, request(report, "one", &tag), tag));
        }
        let answers = join_all(asked.iter().map(|(_, request, _)| world.ask(request))).await;
        for ((report, _, tag), got) in asked.iter().zip(&answers) {
            walk.check(report, tag, got);
        }
    }
    assert!(
        world.now().saturating_sub(began) < secs(60),
        "the bursts took longer than a minute"
    );
    // A 500 may be sent twice with the same bytes. That is no mend.
    let seen = walk.seen.lock().unwrap();
    let bodies: BTreeSet<(&str, &[u8])> = seen.iter().map(|send| (&*send.tag, &*send.body)).collect();
    let mends = bodies.len() - BURST * 4;
    assert!(
        (RESENDS_MAX / 2..=RESENDS_MAX).contains(&mends),
        "{mends} resends with a mend in a minute"
    );
}

/// Makes the server refuse every body: one with a fault of these reports in its words, each other in those of any.
fn refuse_always(world: &World, seen: &Arc<Mutex<Vec<SeenSend>>>, reports: Vec<&'static Report>) {
    let (seen, mut rng) = (Arc::clone(seen), Rng::new(seed()));
    world.otherwise(move |request| {
        let at_fault = reports
            .iter()
            .find_map(|report| report.refuse(&request.head, &request.body));
        let (status, answer) = at_fault.unwrap_or_else(|| rng.pick(&reports).errors().swap_remove(0));
        seen.lock().unwrap().push(SeenSend {
            tag: tag_of(request),
            body: request.body.clone(),
            status,
            answer: answer.clone(),
        });
        still::json(status, &answer)
    });
}
