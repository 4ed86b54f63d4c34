//! Facts that one replica has learned from refusals: known to the other replicas, and after a restart.

use antiphon::{provider::ProviderKind, wire::Format};
use serde_json::{Value, json};

use super::pair::{Refuses, Replicas, Sent, only_upstream};
use crate::{
    proxy::{
        continuity::{KIMI, Server, VERTEX},
        openings, refusal_resends,
        refused_histories::{self, Story, call, chat, goes_on, kind, messages, request, result, text},
    },
    support::{
        app::Builder,
        judge::{NoUserWords, ServerRules},
        provider::{Settings, ruled},
    },
};

const MESSAGES: &str = "/x/v1/messages";
const CHAT: &str = "/x/v1/chat/completions";
const UNIQUE: &str = "messages.3.content.0: `tool_use` ids must be unique";
const OPENING: &str = "No user query found in messages.";

/// A server with a rule beyond its dialect's, and a conversation that breaks the rule.
struct Lesson {
    name: &'static str,
    kind: ProviderKind,
    path: &'static str,
    settings: Settings,
    /// The only rule of the server. `None` if the strict provider judges.
    refuses: Option<Refuses>,
    /// A request, and the next one of its conversation.
    bodies: [Value; 2],
    /// The repair, as the header names it.
    repair: &'static str,
}

impl Lesson {
    fn of_story(story: &Story) -> Self {
        let format = story.wire.format;
        Self {
            name: story.name,
            kind: kind(story.wire),
            path: refused_histories::path(format),
            settings: ruled(&[story.wire], story.rules),
            refuses: None,
            bodies: [
                request(format, "m", &story.history, &[]),
                request(format, "m", &story.history, &goes_on()),
            ],
            repair: story.repair,
        }
    }

    /// Returns replicas before the server: two over a shared ledger, or one over a ledger that outlives it.
    fn stage(&self, start: Start) -> Replicas {
        let replicas = start(self.settings.clone(), Box::new(only_upstream(self.kind)));
        if let Some(refuses) = self.refuses {
            replicas.judge_by(refuses);
        }
        replicas
    }

    /// Sends the conversation's first request to a replica, which learns the rule.
    async fn teach(&self, replicas: &Replicas, at: usize) -> Sent {
        let taught = replicas.send(at, self.path, &self.bodies[0]).await;
        assert_eq!(taught.notes(), (200, "2", self.repair), "{}: {taught:#?}", self.name);
        taught
    }

    /// Returns `true` if the conversation's next request follows the rule in its first send, in the same bytes.
    fn is_followed(&self, taught: &Sent, next: &Sent) -> bool {
        assert_eq!(next.status, 200, "{}: {next:#?}", self.name);
        let is_followed = (&*next.sends, &*next.repair) == ("1", self.repair);
        if is_followed {
            next.assert_continues(taught, self.name);
        }
        is_followed
    }
}

/// Starts replicas before a server.
type Start = fn(Settings, Box<dyn Fn(&mut Builder)>) -> Replicas;

/// Returns [`UNIQUE`] for a body with two calls of one id.
fn refuses_twins(body: &Value) -> Option<&'static str> {
    let messages = body["messages"].as_array().unwrap();
    let mut ids: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["content"][0]["id"].as_str())
        .collect();
    ids.sort_unstable();
    ids.windows(2).any(|pair| pair[0] == pair[1]).then_some(UNIQUE)
}

/// Returns one lesson or more for each rule that a refusal can teach.
fn lessons() -> Vec<Lesson> {
    let mut lessons: Vec<Lesson> = refused_histories::stories().iter().map(Lesson::of_story).collect();
    let twins: Value = serde_json::from_str(&refusal_resends::twice("toolu_1")).unwrap();
    let mut more = twins.clone();
    more["messages"].as_array_mut().unwrap().extend(goes_on());
    lessons.push(Lesson {
        name: "an id for two calls",
        kind: ProviderKind::Anthropic,
        path: MESSAGES,
        settings: Settings::default(),
        refuses: Some(refuses_twins),
        bodies: [twins, more],
        repair: "renamed=1",
    });
    let rules = ServerRules {
        no_user: Some(NoUserWords::LmStudio),
        ..ServerRules::default()
    };
    let opening = |history: Vec<Value>| json!({"model": "m", "messages": history});
    lessons.push(Lesson {
        name: "no user at the beginning",
        kind: ProviderKind::Compatible,
        path: CHAT,
        settings: ruled(&["openai-chat-compatible".parse().unwrap()], rules),
        refuses: None,
        bodies: [
            opening(openings::history(openings::ID)),
            opening(openings::grown(openings::ID)),
        ],
        repair: "opened=1",
    });
    lessons
}

#[tokio::test(start_paused = true)]
async fn a_rule_learned_by_one_replica_is_known_to_the_other() {
    let mut unknown = Vec::new();
    for lesson in lessons() {
        let (name, replicas) = (lesson.name, lesson.stage(Replicas::new));
        let taught = lesson.teach(&replicas, 0).await;
        let next = replicas.send(1, lesson.path, &lesson.bodies[1]).await;
        if !lesson.is_followed(&taught, &next) {
            unknown.push((name, next.sends, next.repair));
        }
        // Facts of one caller are never used for another.
        let other = replicas.send_as("sk-two", 1, lesson.path, &lesson.bodies[0]).await;
        assert_eq!(other.notes(), (200, "2", lesson.repair), "{name}: {other:#?}");
    }
    assert!(
        unknown.is_empty(),
        "not in the first send of the other replica: {unknown:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_does_not_hold_for_another_server_of_the_same_name() {
    for lesson in lessons().into_iter().filter(|lesson| lesson.refuses.is_some()) {
        let mut replicas = lesson.stage(Replicas::durable);
        lesson.teach(&replicas, 0).await;
        replicas.restart_before_another_server();
        let next = replicas.send(0, lesson.path, &lesson.bodies[1]).await;
        // It has to teach the rule itself.
        assert_eq!(next.notes(), (200, "2", lesson.repair), "{}: {next:#?}", lesson.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_learned_rule_outlives_a_restart() {
    let mut forgotten = Vec::new();
    for lesson in lessons() {
        let mut process = lesson.stage(Replicas::durable);
        let taught = lesson.teach(&process, 0).await;
        process.restart();
        let next = process.send(0, lesson.path, &lesson.bodies[1]).await;
        if !lesson.is_followed(&taught, &next) {
            forgotten.push((lesson.name, next.sends, next.repair));
        }
    }
    assert!(
        forgotten.is_empty(),
        "not in the first send after the restart: {forgotten:#?}"
    );
}

/// A shape that most servers accept, and the rule against it.
pub(super) struct Dispute {
    pub(super) name: &'static str,
    pub(super) kind: ProviderKind,
    pub(super) path: &'static str,
    /// Returns a conversation whose first call has this id, and the messages `more` at its end.
    pub(super) body: fn(&str, &[Value]) -> Value,
    pub(super) refusal: &'static str,
    pub(super) repair: &'static str,
}

pub(super) const DISPUTES: [Dispute; 3] = [
    Dispute {
        name: "text behind a call",
        kind: ProviderKind::Anthropic,
        path: MESSAGES,
        body: |id, more| {
            let history = messages(&[call(id), text("behind")], &[result(id)]);
            request(Format::Anthropic, "m", &history, more)
        },
        refusal: "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: \
                  toolu_01B19q90qw90lq917835lq9",
        repair: "rearranged=1",
    },
    Dispute {
        name: "a user behind a tool",
        kind: ProviderKind::Compatible,
        path: CHAT,
        body: |id, more| {
            let mut history = chat("bash", &json!("{}"));
            history[1]["tool_calls"][0]["id"] = id.into();
            history[2]["tool_call_id"] = id.into();
            request(Format::OpenAiChat, "m", &history, more)
        },
        refusal: "Unexpected role 'user' after role 'tool'",
        repair: "rearranged=1",
    },
    Dispute {
        name: "an assistant at the beginning",
        kind: ProviderKind::Compatible,
        path: CHAT,
        body: |id, more| request(Format::OpenAiChat, "m", &openings::history(id).into(), more),
        refusal: OPENING,
        repair: "opened=1",
    },
];

/// Ids that belong to one conversation each, unlike a counter.
const OLDER: &str = "toolu_01A09q90qw90lq917835lq9";
const NEWER: &str = "toolu_01B19q90qw90lq917835lq9";
const NEWEST: &str = "toolu_01C29q90qw90lq917835lq9";

/// A prefix that the provider has accepted may be cached. Later conversations follow the rule.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_conversation_that_one_replica_had_accepted_keeps_its_shape_at_the_other() {
    let (once, mut wrong) = ((200, "1", "none"), Vec::new());
    for dispute in DISPUTES {
        for (one, other) in [(0, 1), (1, 0)] {
            let replicas = Replicas::new(Settings::default(), only_upstream(dispute.kind));
            replicas.judge_by(|_| None);
            let (name, path) = (dispute.name, dispute.path);
            let accepted = replicas.send(one, path, (dispute.body)(OLDER, &[])).await;
            assert_eq!(accepted.notes(), once, "{name}");
            replicas.refuse_next(dispute.refusal);
            let taught = replicas.send(other, path, (dispute.body)(NEWER, &[])).await;
            assert_eq!(taught.notes(), (200, "2", dispute.repair), "{name}");
            // The older conversation goes on at either replica, in the bytes that were accepted.
            for at in [other, one] {
                let older = (dispute.body)(OLDER, &goes_on()).to_string();
                let sent = replicas.send(at, path, &older).await;
                assert_eq!((sent.status, &*sent.sends), (200, "1"), "{name}");
                if sent.last_body != older {
                    wrong.push((name, one, at, "the accepted conversation", sent.repair));
                }
            }
            for at in [other, one] {
                let sent = replicas.send(at, path, (dispute.body)(NEWEST, &[])).await;
                assert_eq!((sent.status, &*sent.sends), (200, "1"), "{name}");
                if sent.repair != dispute.repair {
                    wrong.push((name, one, at, "a new conversation", sent.repair));
                }
            }
            // Once the older conversation is refused too, it follows the rule.
            replicas.refuse_next(dispute.refusal);
            let refused = replicas.send(one, path, (dispute.body)(OLDER, &[])).await;
            assert_eq!(refused.status, 200, "{name}: {refused:#?}");
            let after = replicas.send(other, path, (dispute.body)(OLDER, &[])).await;
            if after.notes() != (200, "1", dispute.repair) || after.last_body != refused.last_body {
                wrong.push((name, one, other, "the refused conversation", after.repair));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "shape, accepted at, sent at, conversation, repair: {wrong:#?}"
    );
}

const CALLS: [&str; 3] = [
    "fc-aB3dE5fG7hJ9kL1mN3pQ5rS7",
    "fc-bC4eF6gH8iK0lM2nO4qR6sT8",
    "fc-cD5fG7hI9jL1mN3oP5rS7tU9",
];

/// Starts replicas before a server that wants values back, with a ledger that may contain them.
fn carrying(server: Server) -> Replicas {
    let settings = ruled(&[server.wire.parse().unwrap()], server.rules);
    Replicas::new(settings, move |builder| {
        only_upstream(server.kind)(builder);
        builder.keeps_seen = true;
    })
}

/// Has the model call a tool through a replica. Returns the next request, in which the client has dropped the value.
async fn dropped(replicas: &Replicas, server: Server, at: usize, id: &str) -> String {
    let (user, input) = (server.user(id), json!({"of": id}));
    replicas.reply(server.reply(id, &input));
    let begun = replicas
        .send(at, server.path, server.body(std::slice::from_ref(&user), false))
        .await;
    assert_eq!(begun.notes(), (200, "1", "none"), "{begun:#?}");
    server.body(&[user, server.call(id, &input), server.result(id)], false)
}

#[tokio::test(start_paused = true)]
async fn a_value_that_a_provider_wants_back_is_put_back_at_the_other_replica() {
    let mut unknown = Vec::new();
    for server in [KIMI, VERTEX] {
        // The value of the second conversation came through either replica. The ledger has it.
        for noted_at in [0, 1] {
            let replicas = carrying(server);
            let taught = dropped(&replicas, server, 0, CALLS[0]).await;
            let second = dropped(&replicas, server, noted_at, CALLS[1]).await;
            let taught = replicas.send(0, server.path, taught).await;
            assert_eq!(
                taught.notes(),
                (200, "2", "continued=1"),
                "{}: {taught:#?}",
                server.name
            );
            let sent = replicas.send(1, server.path, second).await;
            assert_eq!((sent.status, &*sent.repair), (200, "continued=1"), "{sent:#?}");
            assert_ne!(
                server.values(&sent.last_body),
                server.neutral.map(str::to_owned).as_slice(),
                "{sent:#?}"
            );
            if sent.sends != "1" {
                unknown.push((server.name, noted_at, sent.sends));
            }
        }
    }
    assert!(unknown.is_empty(), "sends at the other replica, wanted 1: {unknown:?}");
}

/// The provider has accepted the conversation without its value, so that its prefix stays.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_value_that_one_replica_left_out_stays_out_at_the_other() {
    let (server, mut put_back) = (VERTEX, Vec::new());
    // The first replica may have seen values of other conversations, or none.
    for knows_values in [true, false] {
        let replicas = carrying(server);
        if knows_values {
            dropped(&replicas, server, 0, CALLS[2]).await;
        }
        let first = dropped(&replicas, server, 1, CALLS[0]).await;
        replicas.accept_next();
        let without = replicas.send(0, server.path, &first).await;
        assert_eq!(without.notes(), (200, "1", "none"), "{without:#?}");
        let second = dropped(&replicas, server, 1, CALLS[1]).await;
        let taught = replicas.send(1, server.path, second).await;
        assert_eq!(taught.notes(), (200, "2", "continued=1"), "{taught:#?}");
        replicas.accept_next();
        let again = replicas.send(1, server.path, &first).await;
        if again.notes() != (200, "1", "none") || again.last_body != without.last_body {
            put_back.push((knows_values, again.sends, again.repair));
        }
    }
    assert!(put_back.is_empty(), "put back into an accepted prefix: {put_back:?}");
}
