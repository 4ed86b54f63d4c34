//! Ids of a provider's objects: requests that name one use the key that created it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    keys::profiles::Profiles,
    ledger::{Ledger, RecordKind},
    policy::RotationSettings,
    telemetry::Telemetry,
};
use serde_json::Value;

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::{Builder, get_with, post_with},
        bodies::Rng,
        kept::durable,
        key_stores::{KINDS, KeyStores},
        pool::{LIMITED, OVERLOADED, UNKNOWN, cooldowns, keys, of_session, pooled, profile},
        seed::seed,
        still::{Step, World, error, json},
    },
};

const RESPONSES: &str = "/openai/v1/responses";

/// Returns a world before these stores, whose profiles `a`, `b` and `c` have no preference.
fn world_over(stores: &KeyStores, ledger: &Arc<dyn Ledger>) -> World {
    world_with(stores, ledger, |_| ())
}

/// As [`world_over`], with changed settings.
fn world_with(stores: &KeyStores, ledger: &Arc<dyn Ledger>, change: impl FnOnce(&mut Builder)) -> World {
    let (stores, ledger) = (stores.clone(), Arc::clone(ledger));
    let world = World::with(|builder| {
        builder.ledger = ledger;
        change(builder);
        pooled(builder, &["a", "b", "c"].map(|label| profile(label, None, 1)));
    });
    world.otherwise(move |request| stores.answer(request));
    world
}

/// One client, with a key of its own.
struct Asker<'w> {
    world: &'w World,
    caller: String,
}

impl Asker<'_> {
    fn fields<'f>(&'f self, path: &str, more: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
        let version = path
            .starts_with("/anthropic")
            .then_some(("anthropic-version", "2023-06-01"));
        let own = [("authorization", self.caller.as_str())];
        own.into_iter().chain(version).chain(more.iter().copied()).collect()
    }

    async fn get(&self, path: &str) -> u16 {
        self.world.ask(get_with(path, &self.fields(path, &[]))).await.status()
    }

    /// Sends a POST. Returns the status, and the id that the answer names.
    async fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.post_in("", path, body).await
    }

    /// Sends a POST of a session.
    async fn post_in(&self, session: &str, path: &str, body: &str) -> (u16, String) {
        let session = [("x-antiphon-session", session)];
        let session = if session[0].1.is_empty() { &[][..] } else { &session };
        let request = post_with(path, &self.fields(path, session), body.as_bytes());
        let answer = self.world.ask(request).await;
        (answer.status(), id_of(answer.text()))
    }
}

/// Returns the id in an answer, or in the first event of a stream.
fn id_of(text: &str) -> String {
    let event = text.lines().find_map(|line| line.strip_prefix("data: "));
    let value: Value = serde_json::from_str(event.unwrap_or(text)).unwrap_or_default();
    let places = ["/file/id", "/file/name", "/response/id", "/name", "/id"];
    let found = places.iter().find_map(|place| value.pointer(place)?.as_str());
    found.unwrap_or_default().to_owned()
}

/// Tries of each case: of three keys, a third would be right by chance.
const TRIES: usize = 20;

#[tokio::test(start_paused = true)]
async fn the_request_that_names_an_object_uses_its_key() {
    type Case = (
        &'static str,
        &'static str,
        fn(usize) -> String,
        fn(&str) -> (String, String),
    );
    let turn = |_| r#"{"model":"m","input":"go","background":true}"#.to_owned();
    let cases: [Case; 5] = [
        ("a response is read", RESPONSES, turn, |id| {
            (format!("{RESPONSES}/{id}"), String::new())
        }),
        ("a response is cancelled", RESPONSES, turn, |id| {
            (format!("{RESPONSES}/{id}/cancel"), "{}".to_owned())
        }),
        (
            "a conversation is used",
            "/openai/v1/conversations",
            |_| "{}".to_owned(),
            |id| {
                let body = format!(r#"{{"model":"m","input":"go","conversation":"{id}"}}"#);
                (RESPONSES.to_owned(), body)
            },
        ),
        (
            "a file is used",
            "/openai/v1/files",
            |_| "{}".to_owned(),
            |id| {
                let file = format!(r#"{{"type":"input_file","file_id":"{id}"}}"#);
                let body = format!(r#"{{"model":"m","input":[{{"role":"user","content":[{file}]}}]}}"#);
                (RESPONSES.to_owned(), body)
            },
        ),
        (
            "an Anthropic file is used",
            "/anthropic/v1/files",
            |_| "{}".to_owned(),
            |id| {
                let file = format!(r#"{{"type":"document","source":{{"type":"file","file_id":"{id}"}}}}"#);
                let body =
                    format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[{file}]}}]}}"#);
                ("/anthropic/v1/messages".to_owned(), body)
            },
        ),
    ];
    let mut wrong = Vec::new();
    for (name, creates, body, uses) in cases {
        let (stores, ledger) = (KeyStores::default(), durable());
        let world = world_over(&stores, &ledger);
        for number in 0..TRIES {
            let asker = Asker {
                world: &world,
                caller: format!("Bearer sk-caller-{number}"),
            };
            let (status, id) = asker.post(creates, &body(number)).await;
            assert_eq!(status, 200, "{name}");
            let (path, body) = uses(&id);
            if body.is_empty() {
                asker.get(&path).await;
            } else {
                asker.post(&path, &body).await;
            }
        }
        wrong.push((name, stores.misdirected().len()));
    }
    assert!(
        wrong.iter().all(|(_, count)| *count == 0),
        "misdirected of {TRIES}: {wrong:?}"
    );
}

/// A client of the walk: its key, and the ids that it knows.
struct Walker {
    caller: String,
    known: Vec<String>,
}

/// Returns a request that uses an object: its path, and its body, empty for a GET.
fn use_of(id: &str, rng: &mut Rng) -> (String, String) {
    let stream = if rng.chance(50) { r#""stream":true,"# } else { "" };
    let turn = |rest: &str| (RESPONSES.to_owned(), format!(r#"{{"model":"m",{stream}{rest}}}"#));
    let part = |part: String| format!(r#""input":[{{"role":"user","content":[{part}]}}]"#);
    let get = |path: String| (path, String::new());
    let begin = id.split_inclusive(['-', '_', '/']).next().unwrap_or_default();
    let of_openai = |rest: &str| format!("/openai/v1/{rest}");
    match (begin, rng.below(3)) {
        ("msgbatch_", 0) => get(format!("/anthropic/v1/messages/batches/{id}/results")),
        ("msgbatch_", 1) => (format!("/anthropic/v1/messages/batches/{id}/cancel"), "{}".to_owned()),
        ("msgbatch_", _) => get(format!("/anthropic/v1/messages/batches/{id}")),
        ("file_", 0) => get(format!("/anthropic/v1/files/{id}/content")),
        ("file_", _) => {
            let file = format!(r#"{{"type":"document","source":{{"type":"file","file_id":"{id}"}}}}"#);
            let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[{file}]}}]}}"#);
            ("/anthropic/v1/messages".to_owned(), body)
        }
        ("file-", 0) => get(of_openai(&format!("files/{id}/content"))),
        ("file-", 1) => turn(&part(format!(r#"{{"type":"input_file","file_id":"{id}"}}"#))),
        ("file-", _) => {
            let body = format!("{{\n \"input_file_id\": \"{id}\",\n \"endpoint\": \"/v1/responses\"}}");
            (of_openai("batches"), body)
        }
        ("conv_", 0) => get(of_openai(&format!("conversations/{id}/items"))),
        ("conv_", 1) => turn(&format!(r#""input":"go","conversation":"{id}""#)),
        ("conv_", _) => turn(&format!(r#""input":"go","conversation":{{"id":"{id}"}}"#)),
        ("resp_", 0) => get(format!("{RESPONSES}/{id}")),
        ("resp_", 1) => (format!("{RESPONSES}/{id}/cancel"), "{}".to_owned()),
        ("resp_", _) => turn(&format!(r#""input":"go","previous_response_id":"{id}""#)),
        ("vs_", 0) => turn(&format!(
            r#""input":"go","tools":[{{"type":"file_search","vector_store_ids":["{id}"]}}]"#
        )),
        ("vs_", 1) => (
            of_openai(&format!("vector_stores/{id}/search")),
            r#"{"query":"q"}"#.to_owned(),
        ),
        ("upload_", 0) => (
            of_openai(&format!("uploads/{id}/complete")),
            r#"{"part_ids":[]}"#.to_owned(),
        ),
        ("cntr_", 0) => turn(&format!(
            r#""input":"go","tools":[{{"type":"code_interpreter","container":"{id}"}}]"#
        )),
        ("thread_", 0) => (
            of_openai(&format!("threads/{id}/runs")),
            r#"{"assistant_id":"x"}"#.to_owned(),
        ),
        ("asst_", 0) => (of_openai("threads/runs"), format!(r#"{{"assistant_id":"{id}"}}"#)),
        ("ftjob-", 0) => get(of_openai(&format!("fine_tuning/jobs/{id}/events"))),
        ("files/", 0 | 1) => {
            let part = format!(r#"{{"fileData":{{"fileUri":"https://gen.test/v1beta/{id}"}}}}"#);
            let body = format!(r#"{{"contents":[{{"role":"user","parts":[{part}]}}]}}"#);
            ("/gemini/v1beta/models/m:generateContent".to_owned(), body)
        }
        ("cachedContents/", 0 | 1) => {
            let body = format!(r#"{{"cachedContent":"{id}","contents":[{{"role":"user","parts":[{{"text":"x"}}]}}]}}"#);
            ("/gemini/v1beta/models/m:generateContent".to_owned(), body)
        }
        ("files/" | "cachedContents/" | "batches/", _) => get(format!("/gemini/v1beta/{id}")),
        _ => {
            let (path, _) = KINDS.iter().find(|(_, known)| *known == begin).unwrap();
            get(format!("{path}/{id}"))
        }
    }
}

/// Operations of the walk.
const OPERATIONS: usize = 1000;

impl Asker<'_> {
    /// Creates an object, or sends a request about one that the walker knows. The walker knows those that answers name.
    async fn creates_or_names(&self, walker: &mut Walker, rng: &mut Rng) {
        let creates = walker.known.is_empty() || rng.chance(30);
        let (path, body) = if creates {
            let (path, begin) = *rng.pick(&KINDS);
            let body = match begin {
                "resp_" => r#"{"model":"m","input":"go"}"#,
                _ => "{}",
            };
            (path.to_owned(), body.to_owned())
        } else {
            let id = rng.pick(&walker.known).clone();
            use_of(&id, rng)
        };
        if body.is_empty() {
            let fields = self.fields(&path, &[]);
            let answer = self.world.ask(get_with(&path, &fields)).await;
            let output = answer.message.json()["output_file_id"].as_str().map(ToOwned::to_owned);
            walker.known.extend(output);
            return;
        }
        let session = format!("s{}", rng.below(12));
        let session = if rng.chance(50) { session.as_str() } else { "" };
        let (status, id) = self.post_in(session, &path, &body).await;
        let is_new = status == 200 && KINDS.iter().any(|(_, begin)| id.starts_with(begin)) && id.len() > 16;
        if is_new && !walker.known.contains(&id) {
            walker.known.push(id);
        }
    }
}

/// What became of a walk.
pub(crate) struct OwnerWalk {
    restarts: usize,
    /// The number of keys that the provider refused.
    moved: usize,
    /// The requests that reached a key which does not have their object.
    pub(crate) misdirected: Vec<String>,
}

/// Plays a walk.
pub(crate) async fn play_walk(seed: u64, operations: usize) -> OwnerWalk {
    let mut rng = Rng::new(seed);
    let (stores, mut ledger) = (KeyStores::default(), SwitchableLedger::new());
    let open = |ledger: &Arc<SwitchableLedger>| {
        let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
        world_over(&stores, &ledger)
    };
    let mut world = open(&ledger);
    let mut walkers: Vec<Walker> = (0..4)
        .map(|number| Walker {
            caller: format!("Bearer sk-walker-{number}"),
            known: Vec::new(),
        })
        .collect();
    let (mut restarts, mut moved) = (0, 0);
    for _ in 0..operations {
        if rng.chance(2) {
            world.settle().await;
            ledger = ledger.restart();
            world = open(&ledger);
            restarts += 1;
        }
        // Cooldowns move lanes and uploads to other keys.
        match rng.below(20) {
            0 => {
                let (status, refusal) = *rng.pick(&[(401, UNKNOWN), (429, LIMITED)]);
                world.script(json(status, refusal));
                moved += 1;
            }
            1 => clear(&world),
            _ => {}
        }
        let at = rng.below(walkers.len());
        let walker = &mut walkers[at];
        let asker = Asker {
            world: &world,
            caller: walker.caller.clone(),
        };
        asker.creates_or_names(walker, &mut rng).await;
    }
    let misdirected = stores.misdirected().into_iter();
    OwnerWalk {
        restarts,
        moved,
        misdirected: misdirected.map(|wrong| format!("misdirected: {wrong}")).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_of_a_random_walk_is_misdirected() {
    let seed = seed();
    println!("SEED={seed}");
    let OwnerWalk {
        restarts,
        moved,
        misdirected,
    } = play_walk(seed, OPERATIONS).await;
    assert!(restarts > 5 && moved > 20, "{restarts} restarts, {moved} refusals");
    assert!(
        misdirected.is_empty(),
        "SEED={seed}: {} of {OPERATIONS}: {misdirected:#?}",
        misdirected.len()
    );
}

/// A message that names a file of Anthropic.
fn message_with(files: &[&str]) -> String {
    let file = |id: &&str| format!(r#"{{"type":"document","source":{{"type":"file","file_id":"{id}"}}}}"#);
    let files: Vec<String> = files.iter().map(file).collect();
    let files = files.join(",");
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[{files}]}}]}}"#)
}

const MESSAGES: &str = "/anthropic/v1/messages";
const FILES: &str = "/anthropic/v1/files";

/// One world with one client, its stores, and the ledger behind it.
struct Stage {
    stores: KeyStores,
    ledger: Arc<dyn Ledger>,
    world: World,
}

impl Stage {
    fn new() -> Self {
        let (stores, ledger) = (KeyStores::default(), durable());
        let world = world_over(&stores, &ledger);
        Self { stores, ledger, world }
    }

    async fn restart(&mut self) {
        self.world.settle().await;
        self.world = world_over(&self.stores, &self.ledger);
    }

    fn asker(&self, name: &str) -> Asker<'_> {
        Asker {
            world: &self.world,
            caller: format!("Bearer sk-{name}"),
        }
    }

    /// Creates a file, and returns its id and the key that owns it.
    async fn file(&self, name: &str) -> (String, String) {
        let (_, id) = self.asker(name).post(FILES, "{}").await;
        let owner = self.stores.owner(&id);
        (id, owner)
    }

    /// Returns the keys of the requests since the first `before`.
    fn keys_since(&self, before: usize) -> String {
        keys(&self.world.requests()[before..])
    }

    /// Asks in a session. Returns the keys that were used, and the status.
    async fn reach(&self, name: &str, session: &str, path: &str, body: &str) -> (String, u16) {
        let before = self.world.requests().len();
        let (status, _) = self.asker(name).post_in(session, path, body).await;
        (self.keys_since(before), status)
    }
}

/// The owner is stored for its caller only: another one is served as if nothing were known.
#[tokio::test(start_paused = true)]
async fn another_caller_is_not_steered_by_the_id() {
    let (mut steered, mut free) = (0, 0);
    for number in 0..TRIES {
        let mut stage = Stage::new();
        let name = format!("ann-{number}");
        let (id, _) = stage.file(&name).await;
        let body = message_with(&[&id]);
        let stranger = format!("eve-{number}");
        let alone = Stage::new().reach(&stranger, "", MESSAGES, &body).await.0;
        // Before and after a restart, which reads the ledger.
        for _ in 0..2 {
            let with_owner = stage.reach(&stranger, "", MESSAGES, &body).await.0;
            assert_eq!(with_owner, alone, "{number}");
            stage.restart().await;
        }
        steered += usize::from(stage.stores.owner(&id) == alone);
        free += usize::from(stage.stores.owner(&id) != alone);
    }
    assert!(steered > 0 && free > 0, "{steered} {free}");
}

#[tokio::test(start_paused = true)]
async fn with_two_owners_the_pinned_one_or_the_first_is_used() {
    let stage = Stage::new();
    let (first, owner) = stage.file("ann").await;
    // The other file is noted by a use, since a caller's own uploads go to one key.
    let (_, other) = stage.asker("ann").post(FILES, "{}").await;
    assert_eq!(stage.stores.owner(&other), owner, "uploads of one caller");
    let another = ["a", "b", "c"].into_iter().find(|key| *key != owner).unwrap();
    let moved = "file_00000000000moved";
    stage.stores.add(moved, another);
    // Only the key of the file can read it, so its success names the owner.
    rest(&stage.world, &owner).await;
    for number in 0..9 {
        let path = format!("{FILES}/{moved}?n={number}");
        if stage.asker("ann").get(&path).await == 200 {
            break;
        }
        let used = keys(&stage.world.requests());
        rest(&stage.world, &used[used.len() - 1..]).await;
    }
    clear(&stage.world);
    // Both orders, in new sessions and in sessions that are pinned to one of the two.
    for (session, bodies, wanted) in [
        ("s1", vec![message_with(&[&first, moved])], owner.as_str()),
        ("s2", vec![message_with(&[moved, &first])], another),
        (
            "s3",
            vec![message_with(&[&first]), message_with(&[moved, &first])],
            &owner,
        ),
        (
            "s4",
            vec![message_with(&[moved]), message_with(&[&first, moved])],
            another,
        ),
    ] {
        for (number, body) in bodies.iter().enumerate() {
            let (used, status) = stage.reach("ann", session, MESSAGES, body).await;
            let is_mixed = body.contains(moved) && body.contains(&first);
            assert_eq!(
                (used.as_str(), status),
                (wanted, if is_mixed { 404 } else { 200 }),
                "{session} {number}"
            );
        }
    }
}

/// Puts a profile into cooldown, by a refusal of its key.
async fn rest(world: &World, label: &str) {
    rest_on(world, "anthropic", label).await;
}

/// Puts a profile of an upstream into cooldown, by a refusal of its key.
async fn rest_on(world: &World, upstream: &str, label: &str) {
    let path = match upstream {
        "gemini" => "/gemini/v1beta/models/m:generateContent",
        _ => MESSAGES,
    };
    for number in 0..60 {
        let session = format!("rest-{label}-{number}");
        let ask = || {
            of_session(
                &session,
                path,
                &[],
                r#"{"model":"m","max_tokens":9,"messages":[],"contents":[]}"#,
            )
        };
        let before = world.requests().len();
        drop(world.ask(ask()).await);
        // Only a session whose key it is can bring its refusal.
        if keys(&world.requests()[before..]) == label {
            world.script(json(401, UNKNOWN));
            drop(world.ask(ask()).await);
            assert!(!cooldowns(world, upstream, label).is_empty(), "{label} rests");
            return;
        }
    }
    panic!("no session uses {label}")
}

/// Ends all cooldowns.
fn clear(world: &World) {
    for upstream in ["anthropic", "openai", "gemini"] {
        for label in ["a", "b", "c"] {
            world.shared.profiles.clear_cooldowns(upstream, label);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resting_owner_answers_itself() {
    let stage = Stage::new();
    let (id, owner) = stage.file("ann").await;
    rest(&stage.world, &owner).await;
    let body = message_with(&[&id]);
    for session in ["s1", "s2", "s3", "s4", "s5"] {
        assert_eq!(stage.reach("ann", session, MESSAGES, &body).await, (owner.clone(), 200));
    }
    clear(&stage.world);
    for session in ["s1", "s2", "s3", "s4", "s5"] {
        let (used, _) = stage.reach("ann", session, MESSAGES, &message_with(&[])).await;
        assert_eq!(used, owner, "the lane is pinned");
    }
    rest(&stage.world, &owner).await;
    // Its refusals are the client's. A retry may follow on the same key, and never on another one.
    for (status, error, sends) in [
        (429, LIMITED, 1),
        (401, UNKNOWN, 1),
        (529, OVERLOADED, 3),
        (404, "{}", 1),
    ] {
        stage.world.clear();
        for _ in 0..sends {
            stage.world.script(json(status, error));
        }
        let (used, came) = stage.reach("ann", "t", MESSAGES, &body).await;
        assert_eq!((used, came), (owner.repeat(sends), status));
    }
    // A failed connection proves that nothing arrived, and still no other key has the object.
    stage.world.clear();
    stage.world.script([Step::Refuse]);
    assert_eq!(stage.reach("ann", "u", MESSAGES, &body).await, (owner, 200));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_a_reload_removes_is_forgotten() {
    let stage = Stage::new();
    let (id, owner) = stage.file("ann").await;
    let body = message_with(&[&id]);
    let others: Vec<_> = ["c", "b", "a"].into_iter().filter(|label| *label != owner).collect();
    let profiles = |labels: &[&str]| {
        let profiles: Vec<_> = labels.iter().map(|label| profile(label, None, 1)).collect();
        let upstreams = ["anthropic", "openai", "gemini", "bedrock"];
        let all = upstreams.map(|name| (name.to_owned(), profiles.clone())).into();
        Profiles::new(upstreams, all, &RotationSettings::default(), Telemetry::default())
    };
    // In another order, so that the places of the profiles change.
    stage.world.reload(profiles(&[&owner, others[0], others[1]]));
    assert_eq!(stage.reach("ann", "s1", MESSAGES, &body).await, (owner.clone(), 200));
    stage.world.reload(profiles(&others));
    let (used, status) = stage.reach("ann", "s2", MESSAGES, &body).await;
    assert!(status == 404 && used != owner && used.len() == 1, "{used} {status}");
    // The record outlives a reload by mistake.
    stage.world.reload(profiles(&["a", "b", "c"]));
    assert_eq!(stage.reach("ann", "s3", MESSAGES, &body).await, (owner, 200));
}

/// A slow ledger delays only requests with unknown ids, and only by what every exchange may wait for it.
#[tokio::test(start_paused = true)]
async fn a_dead_ledger_delays_a_request_for_a_moment() {
    let switch = SwitchableLedger::new();
    let mut stage = Stage::new();
    stage.ledger = Arc::<SwitchableLedger>::clone(&switch);
    stage.restart().await;
    let (id, owner) = stage.file("ann").await;
    stage.restart().await;
    let body = message_with(&[&id]);
    assert_eq!(
        stage.reach("ann", "", MESSAGES, &body).await,
        (owner, 200),
        "the ledger knows it"
    );
    stage.restart().await;
    stage.world.settle().await;
    switch.stalls.store(true, Ordering::Relaxed);
    let began = stage.world.now();
    let (_, id_too) = stage.asker("ann").post(FILES, "{}").await;
    assert_eq!(
        stage.world.now().saturating_sub(began),
        Duration::ZERO,
        "an upload names no object"
    );
    stage.reach("ann", "s", MESSAGES, &body).await;
    let waited = stage.world.now().saturating_sub(began);
    assert!(
        waited <= Duration::from_millis(260) && waited >= Duration::from_millis(240),
        "{waited:?}"
    );
    let began = stage.world.now();
    let owner = stage.stores.owner(&id_too);
    let known = stage.reach("ann", "s", MESSAGES, &message_with(&[&id_too])).await;
    assert_eq!(known, (owner, 200));
    assert_eq!(
        stage.world.now().saturating_sub(began),
        Duration::ZERO,
        "memory knows it"
    );
}

/// A user that only bodies name creates for the account: its requests without a body find the object, and another
/// user's body does not.
#[tokio::test(start_paused = true)]
async fn an_object_of_a_user_is_found_by_its_account() {
    for number in 0..TRIES {
        let (stores, ledger) = (KeyStores::default(), durable());
        let with_users = |stores: &KeyStores, ledger: &Arc<dyn Ledger>| {
            world_with(stores, ledger, |builder| {
                builder.proxy.principals.trust_body_user = true;
            })
        };
        let world = with_users(&stores, &ledger);
        let asker = Asker {
            world: &world,
            caller: format!("Bearer sk-{number}"),
        };
        let turn = |user: &str, rest: &str| format!(r#"{{"model":"m","user":"{user}","input":"go"{rest}}}"#);
        let (_, id) = asker.post(RESPONSES, &turn("ann", "")).await;
        assert_eq!(asker.get(&format!("{RESPONSES}/{id}")).await, 200);
        let on = format!(r#","previous_response_id":"{id}""#);
        assert_eq!(asker.post(RESPONSES, &turn("ann", &on)).await.0, 200);
        // Another user reaches whatever an account without the object would.
        asker.post(RESPONSES, &turn("eve", &on)).await;
        let used = keys(&world.requests()).pop();
        let (none, apart) = (KeyStores::default(), durable());
        let world = with_users(&none, &apart);
        let alone = Asker {
            world: &world,
            caller: asker.caller.clone(),
        };
        alone.post(RESPONSES, &turn("eve", &on)).await;
        assert_eq!(used, keys(&world.requests()).pop(), "{number}");
    }
}

/// A resumable upload goes on at the key that began it, also for a client whose uploads would go elsewhere now.
#[tokio::test(start_paused = true)]
async fn an_upload_goes_on_at_its_key() {
    for number in 0..TRIES {
        let stage = Stage::new();
        let name = format!("ann-{number}");
        let address = "https://gen.test/upload/v1beta/files?upload_id=U-1&upload_protocol=resumable";
        stage.world.script(error(200, &[("x-goog-upload-url", address)], ""));
        let (began, _) = stage.reach(&name, "", "/gemini/upload/v1beta/files", "{}").await;
        rest_on(&stage.world, "gemini", &began).await;
        let path = "/gemini/upload/v1beta/files?upload_id=U-1&upload_protocol=resumable";
        assert_eq!(stage.reach(&name, "", path, "bytes").await.0, began);
        let (elsewhere, _) = stage.reach(&name, "", "/gemini/upload/v1beta/files", "{}").await;
        assert_ne!(elsewhere, began);
    }
}

/// An answer that the provider does not store is not worth a record.
#[tokio::test(start_paused = true)]
async fn only_stored_answers_have_an_owner() {
    for (rest, is_stored) in [
        ("", true),
        (r#","store":true"#, true),
        (r#","store":false"#, false),
        (r#","metadata":{"store":false}"#, true),
        (r#","store" : false,"stream":true"#, false),
    ] {
        let stage = Stage::new();
        let body = format!(r#"{{"model":"m","input":"go"{rest}}}"#);
        stage.reach("ann", "", RESPONSES, &body).await;
        stage.world.settle().await;
        let size = stage
            .ledger
            .list_principals(RecordKind::ObjectOwner, None, 9)
            .await
            .unwrap();
        assert_eq!(size.len(), usize::from(is_stored), "{rest}");
    }
}

/// The read of an object is retried on its key, as any other read.
#[tokio::test(start_paused = true)]
async fn a_read_is_retried_on_the_same_key() {
    let stage = Stage::new();
    let (_, id) = stage
        .asker("ann")
        .post(RESPONSES, r#"{"model":"m","input":"go"}"#)
        .await;
    let before = stage.world.requests().len();
    stage.world.script(json(529, OVERLOADED));
    let status = stage.asker("ann").get(&format!("{RESPONSES}/{id}")).await;
    assert_eq!(
        (stage.keys_since(before), status),
        (stage.stores.owner(&id).repeat(2), 200)
    );
    // A cancellation is sent once.
    let before = stage.world.requests().len();
    stage.world.script(json(529, OVERLOADED));
    let (status, _) = stage.asker("ann").post(&format!("{RESPONSES}/{id}/cancel"), "{}").await;
    assert_eq!((stage.keys_since(before).len(), status), (1, 529));
}

/// Files that a model's tools have made are read with the key of the answer that names them.
#[tokio::test(start_paused = true)]
async fn a_file_that_an_answer_mentions_has_the_key_of_the_answer() {
    for number in 0..TRIES {
        let stage = Stage::new();
        let name = format!("ann-{number}");
        let made = format!("file_0000000000made{number:02}");
        let block = format!(r#"{{"type":"code_execution_output","file_id":"{made}"}}"#);
        let answer = format!(r#"{{"id":"msg_1","type":"message","content":[{block}],"stop_reason":"end_turn"}}"#);
        stage.world.script(json(200, &answer));
        let session = format!("s{number}");
        let (used, _) = stage.reach(&name, &session, MESSAGES, &message_with(&[])).await;
        stage.stores.add(&made, &used);
        assert_eq!(stage.asker(&name).get(&format!("{FILES}/{made}/content")).await, 200);
    }
}
