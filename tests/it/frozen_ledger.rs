//! Pins the ledger: today's proxy writes the records of `ledger-v1.db`, and goes on with the conversations in that file.
//!
//! `ledger-v1.db` was written by version 0.1 and stays as it is: operators keep files like it. `FREEZE=ledger` writes a
//! new one. Do that only together with a new layout, under a new name, and keep a test that reads the old file.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use antiphon::{
    auth::TokenHash,
    ledger::{Key, Kind, Ledger as _, LedgerSettings, MOMENT_MAX, Moment, Outcome, SqliteLedger, Step},
};
use bytes::Bytes;
use serde_json::json;

use crate::{
    frozen::{freeze, path, same},
    frozen_records::{lines, rows, schema},
    frozen_scenes as scene,
    frozen_scenes::{Asker, body, one, several, without, words},
    ledger_api::{KEY, base64, signature},
    support::{
        app::post_with,
        binary::{Install, Process},
        provider::{Provider, Reply},
        state,
        wire::{Client, Message, Upstream},
    },
};

/// The secret of the file. Names in it are hashes under this key.
const SECRET: [u8; 32] = *b"the secret of a frozen ledger v1";

const TOOLS: (&str, &str) = ("authorization", "Bearer token of tools");

/// A proxy that is started for each exchange, in front of a strict provider and of one that never answers.
pub(crate) struct Stage {
    provider: Provider,
    silent: Upstream,
    pub(crate) install: Install,
    pub(crate) facts: String,
}

/// Returns the part of the configuration that says who asks.
pub(crate) fn each() -> String {
    let (token, secret) = (TokenHash::of(b"token of ci"), base64(KEY));
    format!(
        "[principals]\nuser_header = \"x-user\"\n[client_tokens]\nci = \"{token}\"\n\
         [services.hooks]\nsecret = \"whsec_{secret}\"\nprincipals = [\"ci\"]\ntools = [\"*\"]\n"
    )
}

pub(crate) const SINGLE: &str = "[principals]\nmode = \"single\"\n";
const TIERS: &str =
    "[tools.reads]\ntier = \"read\"\n[tools.reverts]\ntier = \"revertible\"\n[tools.keeps]\ntier = \"durable\"\n";
/// With these a placeholder that is made anew has another text than one that is remembered.
pub(crate) const OTHER_TIERS: &str = "[tools.keeps]\ntier = \"read\"\n[tools.sends]\ntier = \"read\"\n";

impl Stage {
    pub(crate) async fn new() -> Self {
        Self {
            provider: Provider::start().await,
            silent: Upstream::script(|mut conn, _| async move { drop(conn.rest().await) }).await,
            install: Install::new(""),
            facts: String::new(),
        }
    }

    /// Sets what the next process is configured by.
    pub(crate) fn configure(&self, callers: &str, tiers: &str) {
        let (url, silent) = (self.provider.url(), self.silent.address);
        let upstreams = ["anthropic", "openai", "gemini"].map(|name| format!("[upstreams.{name}]\nurl = \"{url}\"\n"));
        let token = TokenHash::of(b"token of tools");
        self.install.write(&format!(
            "{}[upstreams.silent]\nkind = \"anthropic\"\nurl = \"http://{silent}\"\n{callers}\
             [ledger]\nttl = \"365d\"\nkeep_seen = \"disk\"\n\
             [services.tools]\ntoken = \"{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n{tiers}",
            upstreams.concat()
        ));
    }

    pub(crate) fn note(&mut self, name: &str, fact: &str) {
        assert!(!fact.contains('\n'), "{fact}");
        self.facts.push_str(&format!("{name}: {fact}\n"));
    }

    /// Sends a history through a process of its own. Notes what the provider got.
    pub(crate) async fn asks(&mut self, name: &str, who: &Asker, log: &[&str], reply: Reply) -> Message {
        self.provider.reply(reply);
        let process = self.install.start().await;
        let answer = process
            .ask(post_with(who.path, who.fields, body(who, log).as_bytes()))
            .await;
        // What nobody waits for is written before the process ends.
        process.stop().await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.text());
        for field in ["x-antiphon-repair", "x-antiphon-owner"] {
            self.note(name, &format!("{field}: {}", answer.header(field).unwrap()));
        }
        self.note(name, &String::from_utf8(self.provider.last().body.to_vec()).unwrap());
        answer
    }

    /// Posts something to `/ledger/v1`. Notes what was answered.
    pub(crate) async fn posts(
        &mut self,
        process: &Process,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Message {
        let answer = process
            .ask(post_with(&format!("/ledger/v1/{path}"), fields, body.as_bytes()))
            .await;
        let mut said = answer.text().to_owned();
        if let Some(message) = answer.json().pointer("/error/message") {
            said = said.replace(&message.to_string(), "\"*\"");
        }
        self.note(&format!("POST {path}"), &format!("{} {said}", answer.status()));
        answer
    }

    pub(crate) async fn result(&mut self, process: &Process, id: &str, body: &serde_json::Value) {
        let path = format!("calls/{id}/result");
        drop(self.posts(process, &path, &[TOOLS], &body.to_string()).await);
    }

    /// Sends a history to the provider that never answers, and kills the proxy.
    async fn is_killed(&mut self, who: &Asker, log: &[&str]) {
        let process = self.install.start().await;
        let mut client = Client::connect(process.data).await;
        client
            .send(post_with(who.path, who.fields, body(who, log).as_bytes()))
            .await;
        let is_sent = async {
            while self.silent.connections() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), is_sent).await.unwrap();
        process.kill();
    }
}

/// Leaves every kind of record in the ledger.
async fn writes(stage: &mut Stage) {
    let secret = SECRET;
    drop(SqliteLedger::open(&stage.install.ledger(), LedgerSettings::default(), secret).unwrap());
    stage.configure(&each(), TIERS);
    of_ann(stage).await;
    of_other_sessions(stage).await;
    of_ben(stage).await;
    of_tokens(stage).await;
    of_gem(stage).await;
    of_erin(stage).await;
    stage.configure(SINGLE, TIERS);
    of_frank(stage).await;
}

/// Results that were posted in time and late, one that failed, and placeholders of both numbers.
async fn of_ann(stage: &mut Stage) {
    let (who, log) = (&scene::ANN, scene::ANN_LOG);
    stage.asks("ann 1", who, &log[..1], words()).await;
    let calls = [
        (scene::KEEP_ID, "keeps"),
        (scene::FAIL_ID, "reverts"),
        (scene::READ_ID, "reads"),
        (scene::SEND_ID, "sends"),
    ];
    stage.asks("ann 2", who, &log[..3], several(&calls)).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::KEEP_ID, &json!({"content": "kept \"é\""}))
        .await;
    let failed = json!({"content": [{"type": "text", "text": "it failed"}], "is_error": true});
    stage.result(&process, scene::FAIL_ID, &failed).await;
    stage
        .result(&process, scene::KEEP_ID, &json!({"content": "another"}))
        .await;
    process.stop().await;
    stage.asks("ann 3", who, &log[..5], words()).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::SEND_ID, &json!({"content": "sent at last"}))
        .await;
    process.stop().await;
    stage.asks("ann 4", who, &log[..7], words()).await;
    stage.asks("ann 5", who, &log[..9], one(scene::LAST_ID, "keeps")).await;
    stage.asks("ann 6", who, &log[..11], words()).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::LAST_ID, &json!({"content": {"url": "x"}}))
        .await;
    process.stop().await;
}

/// Calls of an agent, one of whose ids comes again; a result that was moved; an answer that nobody confirmed.
async fn of_other_sessions(stage: &mut Stage) {
    let calls = [(scene::AGENT_ID, "keeps"), ("call_0", "keeps")];
    stage
        .asks("agent 1", &scene::AGENT, &scene::AGENT_LOG[..1], several(&calls))
        .await;
    stage
        .asks("agent 2", &scene::AGENT, &scene::AGENT_LOG[..3], words())
        .await;
    let process = stage.install.start().await;
    let path = format!("calls/{}/heartbeat", scene::AGENT_ID);
    let beat = process
        .ask(post_with(&format!("/ledger/v1/{path}"), &[TOOLS], b""))
        .await;
    assert_eq!(beat.status(), 200);
    stage.result(&process, "call_0", &json!({"content": "of whom?"})).await;
    process.stop().await;
    stage.asks("moved", &scene::MOVED, scene::MOVED_LOG, words()).await;
    stage.is_killed(&scene::SILENT, scene::SILENT_LOG).await;
}

/// Results that a client brought, of a unique id and of one that comes again, and what is restored of them.
async fn of_ben(stage: &mut Stage) {
    let (who, log) = (&scene::BEN, scene::BEN_LOG);
    stage.asks("ben 1", who, &log[..1], words()).await;
    stage.asks("ben 2", who, &log[..3], one(scene::SEEN_ID, "reads")).await;
    stage.asks("ben 3", who, &log[..5], words()).await;
    stage.asks("ben 4", who, &log[..7], one("call_0", "reads")).await;
    stage.asks("ben 5", who, &log[..9], words()).await;
    stage.asks("ben 6", who, &log[..11], one("call_1", "reads")).await;
    stage.asks("ben 7", who, &log[..13], words()).await;
    stage.asks("ben 8", who, &without(&log[..15], &[4]), words()).await;
}

/// Calls of a client token and of a user within it: a signed result that its owner has acknowledged, and one by owner.
async fn of_tokens(stage: &mut Stage) {
    let (who, log) = (&scene::CAROL, scene::CAROL_LOG);
    stage.asks("carol 1", who, &log[..1], words()).await;
    stage
        .asks("carol 2", who, &log[..3], one(scene::CAROL_ID, "keeps"))
        .await;
    stage.asks("carol 3", who, &log[..5], words()).await;
    let (user, log) = (&scene::DAVE, scene::DAVE_LOG);
    stage.asks("dave 1", user, &log[..1], words()).await;
    let answer = stage
        .asks("dave 2", user, &log[..3], one(scene::DAVE_ID, "keeps"))
        .await;
    let process = stage.install.start().await;
    let signed = json!({"call_id": scene::CAROL_ID, "content": "signed"}).to_string();
    let now = antiphon::clock::since_1970().as_secs();
    let (at, mac) = (now.to_string(), signature(KEY, "m1", now, &signed));
    let fields = [
        ("webhook-id", "m1"),
        ("webhook-timestamp", &at),
        ("webhook-signature", &mac),
    ];
    let path = format!("calls/{}/result", scene::CAROL_ID);
    drop(stage.posts(&process, &path, &fields, &signed).await);
    let waiting = outstanding(&process, who).await;
    let delivery = waiting.json()["outstanding"][0]["delivery"]
        .as_str()
        .unwrap()
        .to_owned();
    drop(
        stage
            .posts(&process, &format!("deliveries/{delivery}/ack"), who.fields, "")
            .await,
    );
    let owner = answer.header("x-antiphon-owner").unwrap();
    let owned = json!({"owner": owner, "content": [{"type": "text", "text": "for dave"}]});
    stage.result(&process, scene::DAVE_ID, &owned).await;
    process.stop().await;
}

/// Calls without ids: a result that was brought, and a placeholder.
async fn of_gem(stage: &mut Stage) {
    let (who, log) = (&scene::GEM, scene::GEM_LOG);
    stage.asks("gem 1", who, &log[..1], words()).await;
    stage.asks("gem 2", who, &log[..3], one("", "reads")).await;
    stage.asks("gem 3", who, &log[..5], words()).await;
    stage.asks("gem 4", who, &log[..7], one("", "keeps")).await;
    stage.asks("gem 5", who, &log[..9], words()).await;
}

/// A call of a session that nobody names, and results that came before their calls.
async fn of_erin(stage: &mut Stage) {
    let (who, log) = (&scene::ERIN, scene::ERIN_LOG);
    stage.asks("erin 1", who, &log[..1], words()).await;
    let answer = stage.asks("erin 2", who, &log[..3], one(scene::ERIN_ID, "keeps")).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::PARKED_ID, &json!({"content": "too early"}))
        .await;
    let owner = answer.header("x-antiphon-owner").unwrap();
    let owned = json!({"owner": owner, "content": "early, for erin", "is_error": true});
    stage.result(&process, scene::OWNED_ID, &owned).await;
    process.stop().await;
}

/// A call of the only caller.
async fn of_frank(stage: &mut Stage) {
    let (who, log) = (&scene::FRANK, scene::FRANK_LOG);
    stage.asks("frank 1", who, &log[..1], words()).await;
    stage
        .asks("frank 2", who, &log[..3], one(scene::FRANK_ID, "keeps"))
        .await;
    stage.asks("frank 3", who, &log[..5], words()).await;
    let process = stage.install.start().await;
    stage
        .result(&process, scene::FRANK_ID, &json!({"content": "for the only one"}))
        .await;
    process.stop().await;
}

pub(crate) async fn outstanding(process: &Process, who: &Asker) -> Message {
    let fields: Vec<String> = who
        .fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!(
        "GET /ledger/v1/outstanding HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        fields.concat()
    );
    process.ask(head).await
}

/// Writes the records of a file into a new one, in which nothing expires. Everything else stays.
async fn preserve(from: &Path, to: &Path) {
    let folder = state::directory();
    let rough = folder.join("ledger-v1.db");
    let ledger = SqliteLedger::open(&rough, LedgerSettings::default(), SECRET).unwrap();
    for row in rows(from) {
        let key = Key {
            kind: Kind::ALL[usize::from(row.kind) - 1],
            principal: row.principal,
            name: row.name,
        };
        let (value, now) = (Bytes::from(row.value), Moment::from_nanos(row.made_at));
        let (index, expires_at) = (row.index, MOMENT_MAX);
        let mut steps = vec![Step::Insert {
            key,
            index,
            value: value.clone(),
            expires_at,
        }];
        let replace = |version| Step::Replace {
            key,
            version,
            value: value.clone(),
            expires_at,
        };
        steps.extend((1..row.version).map(replace));
        assert_eq!(ledger.commit(steps, now).await.unwrap(), Outcome::Done);
    }
    // Its log is moved into the file.
    drop(ledger);
    fs::copy(rough, to).unwrap();
}

fn facts_of(path: &Path, lives: bool) -> String {
    let facts = schema(path).into_iter().chain(lines(path, lives));
    facts.map(|line| line + "\n").collect()
}

#[tokio::test]
async fn the_proxy_writes_these_records() {
    let mut stage = Stage::new().await;
    writes(&mut stage).await;
    let written: PathBuf = stage.install.ledger();
    if freeze() == "ledger" {
        preserve(&written, &path("ledger-v1.db")).await;
    }
    same("ledger-v1-written.txt", &stage.facts);
    same("ledger-v1-records.txt", &facts_of(&written, true));
}

#[test]
fn the_frozen_file_holds_the_records_that_are_written() {
    if !freeze().is_empty() {
        // Another test is writing what is compared here.
        return;
    }
    let records = fs::read_to_string(path("ledger-v1-records.txt")).unwrap();
    let without_life = |line: &str| {
        let (before, rest) = line.split_once(" lives=").unwrap_or((line, ""));
        let said = rest.split_once(' ').map_or("", |(_, said)| said);
        format!("{before} {said}").trim_end().to_owned()
    };
    let records: Vec<String> = records.lines().map(without_life).collect();
    // A copy: SQLite writes files beside the one that it opens.
    let copy = state::directory().join("ledger.db");
    fs::copy(path("ledger-v1.db"), &copy).unwrap();
    let frozen = facts_of(&copy, false);
    assert_eq!(
        frozen.lines().collect::<Vec<_>>(),
        records,
        "today's proxy writes other records than tests/frozen/ledger-v1.db holds: a ledger of version 0.1 cannot be read"
    );
}
