//! The binary before a strict provider, restarted for each exchange, so that it knows only its ledger file.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use antiphon::auth::TokenHash;
use serde_json::Value;

use crate::{
    frozen::scenes::{Asker, body},
    late::api::{KEY, base64},
    support::{
        app::post_with,
        binary::{Install, Process},
        provider::{Provider, Reply},
        wire::{Client, Message, Upstream},
    },
};

pub(crate) const TOOLS: (&str, &str) = ("authorization", "Bearer token of tools");
pub(crate) const SINGLE: &str = "[principals]\nmode = \"single\"\n";
pub(crate) const TIERS: &str =
    "[tools.reads]\ntier = \"read\"\n[tools.reverts]\ntier = \"revertible\"\n[tools.keeps]\ntier = \"durable\"\n";
/// Other tiers, so that a newly created placeholder differs from a pinned one.
pub(crate) const OTHER_TIERS: &str = "[tools.keeps]\ntier = \"read\"\n[tools.sends]\ntier = \"read\"\n";

/// Largest number of repeats of an exchange if the machine is too busy for the ledger's 250 ms.
const PLAYS: usize = 20;

/// Returns the configuration of the callers.
pub(crate) fn each() -> String {
    let (token, secret) = (TokenHash::hash_token(b"token of ci"), base64(KEY));
    format!(
        "[principals]\nuser_header = \"x-user\"\n[client_tokens]\nci = \"{token}\"\n\
         [services.hooks]\nsecret = \"whsec_{secret}\"\nprincipals = [\"ci\"]\ntools = [\"*\"]\n"
    )
}

/// The proxy, a strict provider and one that never answers, and the collected notes.
pub(crate) struct Stage {
    provider: Provider,
    silent: Upstream,
    pub(crate) install: Install,
    pub(crate) facts: String,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self {
            provider: Provider::start().await,
            silent: Upstream::script(|mut conn, _| async move { drop(conn.rest().await) }).await,
            install: Install::new(""),
            facts: String::new(),
        }
    }

    /// Sets the configuration of the next process.
    pub(crate) fn configure(&self, callers: &str, tiers: &str) {
        let (url, silent) = (self.provider.url(), self.silent.address);
        let upstreams = ["anthropic", "openai", "gemini"].map(|name| format!("[upstreams.{name}]\nurl = \"{url}\"\n"));
        let token = TokenHash::hash_token(b"token of tools");
        self.install.write(&format!(
            "{}[upstreams.silent]\nkind = \"anthropic\"\nurl = \"http://{silent}\"\n{callers}\
             [ledger]\nttl = \"365d\"\nkeep_seen = \"disk\"\n\
             [services.tools]\ntoken = \"{token}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\n{tiers}",
            upstreams.concat()
        ));
    }

    pub(crate) fn note(&mut self, name: &str, fact: &str) {
        assert!(!fact.contains('\n'), "{fact}");
        self.facts.push_str(&format!("{name}: {}\n", without_ages(fact)));
    }

    /// Sends a history through its own process and notes the body at the provider.
    pub(crate) async fn asks(&mut self, name: &str, who: &Asker, log: &[&str], reply: Reply) -> Message {
        let request = post_with(who.path, who.fields, body(who, log).as_bytes());
        let answer = self.played(&request, reply).await;
        assert_eq!(answer.status(), 200, "{name}: {}", answer.text());
        for field in ["x-antiphon-repair", "x-antiphon-owner"] {
            self.note(name, &format!("{field}: {}", answer.header(field).unwrap()));
        }
        let body = self.provider.last().body;
        self.note(name, std::str::from_utf8(&body).unwrap());
        answer
    }

    /// Plays an exchange. Repeats it from the same file if the ledger was too slow.
    async fn played(&self, request: &[u8], reply: Reply) -> Message {
        let before = Files::of(&self.install.ledger());
        for reply in std::iter::repeat_n(reply, PLAYS) {
            self.provider.reply(reply);
            let process = self.install.start().await;
            let answer = process.ask(request).await;
            let is_known = answer.header("x-antiphon-owner").is_some();
            let is_whole = is_known && !is_slow(&process).await;
            // Background writes must be finished before the process ends.
            process.stop().await;
            if is_whole {
                return answer;
            }
            before.put_back();
        }
        panic!("the ledger did not answer within 250 ms in {PLAYS} plays");
    }

    /// Posts to `/ledger/v1` and notes the answer, without its text for people.
    pub(crate) async fn posts(
        &mut self,
        process: &Process,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Message {
        let request = post_with(&format!("/ledger/v1/{path}"), fields, body.as_bytes());
        let answer = found(process, &request).await;
        let mut said = answer.text().to_owned();
        if let Some(message) = answer.json().get("detail") {
            said = said.replace(&message.to_string(), "\"*\"");
        }
        if let Some(time) = answer.json().get("expires_at") {
            said = said.replace(&time.to_string(), "TIME");
        }
        self.note(&format!("POST {path}"), &format!("{} {said}", answer.status()));
        answer
    }

    pub(crate) async fn result(&mut self, process: &Process, id: &str, body: &Value) {
        let path = format!("calls/{id}/result");
        drop(self.posts(process, &path, &[TOOLS], &body.to_string()).await);
    }

    /// Sends a history to the provider that never answers, and kills the proxy.
    pub(crate) async fn dies(&mut self, who: &Asker, log: &[&str]) {
        let request = post_with(who.path, who.fields, body(who, log).as_bytes());
        let before = Files::of(&self.install.ledger());
        for _ in 0..PLAYS {
            let connections = self.silent.connections();
            let mut process = self.install.start().await;
            let mut client = Client::connect(process.data).await;
            client.send(&request).await;
            let is_sent = async {
                while self.silent.connections() == connections {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), is_sent).await.unwrap();
            // The pins are stored while the provider works.
            let is_stored = async {
                while !has_committed(&process).await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), is_stored).await.unwrap();
            let is_whole = !is_slow(&process).await;
            process.kill();
            if is_whole {
                return;
            }
            before.put_back();
        }
        panic!("the ledger did not answer within 250 ms in {PLAYS} plays");
    }
}

/// Reads the outstanding results of an owner.
pub(crate) async fn outstanding(process: &Process, who: &Asker) -> Message {
    let fields: Vec<String> = who
        .fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let fields = fields.concat();
    let request = format!("GET /ledger/v1/outstanding HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    found(process, request.as_bytes()).await
}

/// Asks until something is found, because a late ledger looks like an unknown caller.
async fn found(process: &Process, request: &[u8]) -> Message {
    let mut answer = process.ask(request).await;
    for _ in 0..PLAYS {
        if answer.status() != 404 {
            break;
        }
        answer = process.ask(request).await;
    }
    answer
}

/// Reports whether an exchange of this process went on without the ledger.
async fn is_slow(process: &Process) -> bool {
    let page = process
        .ask_admin("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    let names = [
        "antiphon_ledger_missed_total{",
        "antiphon_late_results_total{event=\"unread\"}",
    ];
    let is_one = |line: &&str| names.iter().any(|name| line.starts_with(name));
    let counts: Vec<&str> = page.text().lines().filter(is_one).collect();
    assert_eq!(counts.len(), 3, "{counts:?}");
    counts.iter().any(|line| !line.ends_with(" 0"))
}

/// Reports whether this process has committed anything to its ledger.
async fn has_committed(process: &Process) -> bool {
    let page = process
        .ask_admin("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    let count = "antiphon_ledger_op_duration_seconds_count{op=\"commit\"}";
    page.text()
        .lines()
        .any(|line| line.starts_with(count) && !line.ends_with(" 0"))
}

/// The files of a ledger that no process has open.
struct Files(Vec<(PathBuf, Option<Vec<u8>>)>);

impl Files {
    fn of(ledger: &Path) -> Self {
        let paths = ["", "-wal", "-shm"].map(|ending| PathBuf::from(format!("{}{ending}", ledger.display())));
        Self(paths.map(|path| (path.clone(), fs::read(path).ok())).into())
    }

    fn put_back(&self) {
        for (path, bytes) in &self.0 {
            match bytes {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => drop(fs::remove_file(path)),
            }
        }
    }
}

/// Returns a text of the ledger without the ages of its rows, which grow.
pub(crate) fn without_ages(text: &str) -> String {
    const NAME: &str = "\"age\":";
    let mut parts = text.split(NAME);
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |told, part| {
        told + NAME + "AGE" + part.trim_start_matches(|letter: char| letter.is_ascii_digit())
    })
}
