//! A row of the decision table: a still world with one exchange, and its observable facts as short texts.

mod seen;

use std::fmt::Write as _;

use antiphon::{
    auth::{Credential, Profile, Secret},
    policy::Class,
};

pub use seen::{at, cooldowns, failures, got, pool_state, sends};

use self::seen::{Log, counted, credited, diff, keys, note};
use super::{
    app::{Builder, post_with},
    still::{Step, World, secs},
};

/// Model of every request.
pub const MODEL: &str = "m";

/// Source of the credential upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footing {
    /// One of three profiles: a, b, c.
    Profiles,
    /// The client's own credential.
    Passthrough,
}

/// Behaviour of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Sends everything, reads everything.
    Stays,
    /// Leaves at this second.
    Leaves(u64),
    /// Reads nothing after the head.
    StopsReading,
    /// Stops in the middle of its request.
    StopsSending,
    /// Leaves at this second, in the middle of its request.
    BreaksOff(u64),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    pub path: &'static str,
    pub fields: Vec<(&'static str, &'static str)>,
    pub body: String,
}

impl Ask {
    /// Returns a Messages stream request.
    pub fn messages() -> Self {
        Self::of("/anthropic/v1/messages")
    }

    /// Returns a stream request for this path.
    pub fn of(path: &'static str) -> Self {
        let history = if path.contains("/messages") || path.contains("/chat/") {
            "\"messages\":[{\"role\":\"user\",\"content\":\"go\"}]"
        } else if path.contains("/responses") {
            "\"input\":\"go\""
        } else {
            "\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"go\"}]}]"
        };
        Self {
            path,
            fields: Vec::new(),
            body: format!("{{\"model\":\"{MODEL}\",\"stream\":true,{history}}}"),
        }
    }

    /// Adds a header.
    pub fn field(mut self, name: &'static str, value: &'static str) -> Self {
        self.fields.push((name, value));
        self
    }

    /// Replaces the body.
    pub fn body(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// Returns the request's bytes, with the client's own credential.
    pub fn bytes(&self) -> Vec<u8> {
        let credential = match self.upstream() {
            "anthropic" => ("x-api-key", "own"),
            "gemini" => ("x-goog-api-key", "own"),
            _ => ("authorization", "Bearer own"),
        };
        let fields: Vec<_> = self.fields.iter().copied().chain([credential]).collect();
        post_with(self.path, &fields, self.body.as_bytes())
    }

    fn upstream(&self) -> &'static str {
        self.path.split('/').nth(1).unwrap()
    }
}

/// A row.
pub struct Row {
    pub name: &'static str,
    pub ask: Ask,
    pub scripts: Vec<Vec<Step>>,
    pub client: Client,
    pub settings: fn(&mut Builder),
    /// Expected facts with profiles, and with the client's own credential.
    pub want: [Seen; 2],
}

/// Facts of an exchange: the answer, the sends, side/phase/code of the log line, counters, changed profiles, and the
/// change of the endpoint.
pub type Seen = [&'static str; 6];

impl Row {
    /// Returns a row with equal facts for both credentials.
    pub fn new(name: &'static str, scripts: impl IntoIterator<Item = Vec<Step>>, want: Seen) -> Self {
        Self {
            name,
            ask: Ask::messages(),
            scripts: scripts.into_iter().collect(),
            client: Client::Stays,
            settings: |_| (),
            want: [want, want],
        }
    }

    /// Sets other facts for the client's own credential.
    pub fn own(mut self, want: Seen) -> Self {
        self.want[1] = want;
        self
    }

    pub fn ask(self, ask: Ask) -> Self {
        Self { ask, ..self }
    }

    pub fn client(self, client: Client) -> Self {
        Self { client, ..self }
    }

    pub fn settings(self, settings: fn(&mut Builder)) -> Self {
        Self { settings, ..self }
    }
}

/// Plays every row with both credentials, and lists all differences.
pub async fn play(rows: Vec<Row>) {
    let mut wrong = String::new();
    for row in rows {
        for (footing, want) in [Footing::Profiles, Footing::Passthrough].into_iter().zip(row.want) {
            let seen = see(&row, footing).await;
            if seen.each_ref().map(String::as_str) != want {
                let name = row.name;
                writeln!(wrong, "{name}, {footing:?}\n  want {want:?}\n  seen {seen:?}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Adds profiles a, b and c to every upstream.
pub fn with_profiles(builder: &mut Builder) {
    let profile = |label: &str| Profile {
        label: label.to_owned(),
        credential: Credential::Key(Secret::new(format!("key-{label}"))),
        weight: 1,
        organisation: None,
        models: Vec::new(),
        max_concurrent: None,
    };
    for upstream in ["anthropic", "openai", "gemini"] {
        builder
            .profiles
            .insert(upstream.to_owned(), ["a", "b", "c"].map(profile).to_vec());
    }
}

async fn see(row: &Row, footing: Footing) -> [String; 6] {
    let log = Log::default();
    let guard = log.listen();
    let world = World::with(|builder| {
        if footing == Footing::Profiles {
            with_profiles(builder);
        }
        (row.settings)(builder);
    });
    for script in &row.scripts {
        world.script(script.clone());
    }
    let upstream = row.ask.upstream();
    // One counted failure in advance: a success resets it, and a neutral event does not.
    note(&world, upstream, Class::Overloaded, 0);
    let before = counted(&world);
    let answer = meet(&world, row).await;
    world.settle().await;
    drop(guard);
    let sends = sends(&world);
    assert!(
        keys(&world)
            .iter()
            .all(|key| (key == "own") == (footing == Footing::Passthrough))
    );
    let counts = diff(&before, &counted(&world));
    let [side, phase, code] = log.words();
    let outcome = if side == "-" { "ok" } else { &side };
    assert!(
        counts.contains(&format!("outcome:{outcome}=1")),
        "{}: {counts}",
        row.name
    );
    let counts = counts.split(' ').filter(|count| !count.starts_with("outcome:"));
    let counts = counts.collect::<Vec<_>>().join(" ");
    let profiles = cooldowns(&world);
    let endpoint = credited(&world, upstream);
    [
        answer,
        sends,
        format!("{side} {phase} {code}"),
        counts,
        profiles,
        endpoint,
    ]
}

/// Plays the client and returns its view of the answer.
async fn meet(world: &World, row: &Row) -> String {
    let bytes = row.ask.bytes();
    let half = &bytes[..bytes.len() - 5];
    let mut client = world.client();
    let left = || {
        let cancelled = world.requests().last().and_then(|request| request.cancelled);
        cancelled.map_or_else(|| "left".to_owned(), |time| format!("left, cancelled {}", at(time)))
    };
    match row.client {
        Client::Stays => {
            client.send(&bytes).await;
            got(&client.answer().await)
        }
        Client::StopsSending => {
            client.send(half).await;
            got(&client.answer().await)
        }
        Client::BreaksOff(second) => {
            client.send(half).await;
            world.until(secs(second)).await;
            drop(client);
            world.settle().await;
            left()
        }
        Client::Leaves(second) => {
            client.send(&bytes).await;
            world.until(secs(second)).await;
            drop(client);
            world.settle().await;
            left()
        }
        Client::StopsReading => {
            client.send(&bytes).await;
            client.head().await;
            world.until(secs(4000)).await;
            left()
        }
    }
}

/// Returns a world with profiles a, b and c.
pub fn profiled(settings: impl FnOnce(&mut Builder)) -> World {
    World::with(|builder| {
        with_profiles(builder);
        settings(builder);
    })
}
