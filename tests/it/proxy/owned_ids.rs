//! Ids of a provider's objects: requests that name one use the key that created it.

use std::sync::Arc;

use antiphon::ledger::Ledger;
use serde_json::Value;

use crate::support::{
    app::{get_with, post_with},
    bodies::Rng,
    kept::durable,
    key_stores::{KINDS, KeyStores},
    pool::{pooled, profile},
    seed::seed,
    still::World,
};

const RESPONSES: &str = "/openai/v1/responses";

/// Returns a world before these stores, whose profiles `a`, `b` and `c` have no preference.
fn world_over(stores: &KeyStores, ledger: &Arc<dyn Ledger>) -> World {
    let (stores, ledger) = (stores.clone(), Arc::clone(ledger));
    let world = World::with(|builder| {
        builder.ledger = ledger;
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

#[tokio::test(start_paused = true)]
async fn no_request_of_a_random_walk_is_misdirected() {
    let seed = seed();
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let (stores, ledger) = (KeyStores::default(), durable());
    let mut world = world_over(&stores, &ledger);
    let mut walkers: Vec<Walker> = (0..4)
        .map(|number| Walker {
            caller: format!("Bearer sk-walker-{number}"),
            known: Vec::new(),
        })
        .collect();
    let mut restarts = 0;
    for _ in 0..OPERATIONS {
        if rng.chance(2) {
            world.settle().await;
            world = world_over(&stores, &ledger);
            restarts += 1;
        }
        let at = rng.below(walkers.len());
        let walker = &mut walkers[at];
        let asker = Asker {
            world: &world,
            caller: walker.caller.clone(),
        };
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
            use_of(&id, &mut rng)
        };
        if body.is_empty() {
            let fields = asker.fields(&path, &[]);
            let answer = world.ask(get_with(&path, &fields)).await;
            let output = answer.message.json()["output_file_id"].as_str().map(ToOwned::to_owned);
            walker.known.extend(output);
            continue;
        }
        let session = format!("s{}", rng.below(12));
        let session = if rng.chance(50) { session.as_str() } else { "" };
        let (status, id) = asker.post_in(session, &path, &body).await;
        let is_new = status == 200 && KINDS.iter().any(|(_, begin)| id.starts_with(begin)) && id.len() > 16;
        if is_new && !walker.known.contains(&id) {
            walker.known.push(id);
        }
    }
    let wrong = stores.misdirected();
    assert!(restarts > 5, "{restarts} restarts");
    assert!(
        wrong.is_empty(),
        "SEED={seed}: {} of {OPERATIONS}: {wrong:#?}",
        wrong.len()
    );
}
