//! Rules that servers have taught by refusals: operators see them, every replica forgets them, and two that are taught at
//! once are both kept.

use antiphon::{
    api::admin::{AdminService, Readiness},
    provider::ProviderKind,
};
use futures_util::future::join;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::pair::{Replicas, only_upstream};
use crate::{
    admin::api::{Ask, answer},
    support::{
        app::admin_of,
        provider::Settings,
        still::{self, Step, secs},
    },
};

const CHAT: &str = "/x/v1/chat/completions";
const DEVELOPER: &str = "developer is not one of ['system', 'assistant', 'user', 'tool', 'function']";
const NEIGHBOURS: &str = "Conversation roles must alternate user/assistant/user/assistant/...";

fn says(role: &str) -> Value {
    json!({"role": role, "content": "Hi"})
}

fn body(roles: &[&str]) -> Value {
    let messages: Vec<Value> = roles.iter().map(|role| says(role)).collect();
    json!({"model": "m", "messages": messages})
}

/// Returns the words in which the server refuses a body.
fn refuses(body: &Value) -> Option<&'static str> {
    let messages = body["messages"].as_array().unwrap();
    let is_developer = messages.iter().any(|message| message["role"] == "developer");
    let are_neighbours = messages.windows(2).any(|two| two[0]["role"] == two[1]["role"]);
    is_developer
        .then_some(DEVELOPER)
        .or_else(|| are_neighbours.then_some(NEIGHBOURS))
}

/// Sends a request about what was taught to the admin listener of a process.
async fn taught(replicas: &Replicas, at: usize, method: Method) -> Value {
    let router = AdminService::new(admin_of(&replicas.world(at).shared, Readiness::new()));
    let ask = Ask {
        method,
        path: "/admin/v1/taught",
        fields: &[],
        body: "",
    };
    let (status, _, text) = answer(&router, ask).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_taught_is_forgotten_by_every_replica_and_over_a_restart() {
    let replicas = Replicas::new(Settings::default(), only_upstream(ProviderKind::Compatible));
    replicas.judge_by(refuses);
    let sends = async |at| replicas.send(at, CHAT, body(&["developer", "user"])).await.sends;
    assert_eq!([sends(0).await, sends(1).await, sends(0).await], ["2", "1", "1"]);
    for at in [1, 0] {
        assert_eq!(taught(&replicas, at, Method::DELETE).await, json!({"removed": 1}));
        assert_eq!(taught(&replicas, at, Method::DELETE).await, json!({"removed": 0}));
        assert_eq!([sends(0).await, sends(1).await], ["2", "1"], "{at}");
    }
    let mut durable = Replicas::durable(Settings::default(), only_upstream(ProviderKind::Compatible));
    durable.judge_by(refuses);
    assert_eq!(durable.send(0, CHAT, body(&["developer", "user"])).await.sends, "2");
    taught(&durable, 0, Method::DELETE).await;
    durable.restart();
    durable.judge_by(refuses);
    assert_eq!(durable.send(0, CHAT, body(&["developer", "user"])).await.sends, "2");
}

#[tokio::test(start_paused = true)]
async fn operators_see_what_was_taught_and_how_often_it_was_used() {
    let mut replicas = Replicas::durable(Settings::default(), only_upstream(ProviderKind::Compatible));
    replicas.judge_by(refuses);
    assert_eq!(taught(&replicas, 0, Method::GET).await, json!({"rules": []}));
    for key in ["sk-one", "sk-one", "sk-two"] {
        replicas.send_as(key, 0, CHAT, body(&["developer", "user"])).await;
    }
    let rule = |row: Value, uses: u64, callers: usize| {
        json!({
            "upstream": "x", "model": "m", "mend": "rename_role", "argument": "developer", "of": null,
            "explanation": "messages of this role become system messages", "only_refused": false, "row": row,
            "uses": uses, "callers": callers,
        })
    };
    let shown = async |replicas: &Replicas| {
        let mut rules = taught(replicas, 0, Method::GET).await["rules"].take();
        let mut dates = Vec::new();
        for rule in rules.as_array_mut().unwrap() {
            let members = rule.as_object_mut().unwrap();
            dates.extend(["taught_at", "used_at"].map(|date| members.remove(date).unwrap().is_string()));
        }
        (rules, dates)
    };
    let row = "developer_not_one_of_roles".into();
    assert_eq!(shown(&replicas).await, (json!([rule(row, 3, 2)]), vec![true, true]));
    replicas.restart();
    replicas.judge_by(refuses);
    assert_eq!(taught(&replicas, 0, Method::GET).await, json!({"rules": []}));
    replicas.send(0, CHAT, body(&["developer", "user"])).await;
    assert_eq!(
        shown(&replicas).await,
        (json!([rule(Value::Null, 1, 1)]), vec![false, true])
    );
    // Of the other caller there is a record alone.
    assert_eq!(taught(&replicas, 0, Method::DELETE).await, json!({"removed": 2}));
    assert_eq!(taught(&replicas, 0, Method::GET).await, json!({"rules": []}));
}

#[tokio::test(start_paused = true)]
async fn two_rules_that_are_taught_at_once_are_both_kept() {
    let mut replicas = Replicas::durable(Settings::default(), only_upstream(ProviderKind::Compatible));
    let answer_slowly = |replicas: &Replicas| {
        replicas.answer_by(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let Some(words) = refuses(&body) else {
                // Until the other request is accepted too.
                return [vec![Step::Wait(secs(1))], still::json(200, "{}")].concat();
            };
            still::json(400, &json!({"error": {"message": words}}).to_string())
        });
    };
    answer_slowly(&replicas);
    let (one, other) = (body(&["developer", "user"]), body(&["user", "user"]));
    let (one, other) = join(replicas.send(0, CHAT, one), replicas.send(0, CHAT, other)).await;
    assert_eq!([one.sends, other.sends], ["2", "2"]);
    for restarts in [false, true] {
        if restarts {
            replicas.restart();
            answer_slowly(&replicas);
        }
        let both = replicas.send(0, CHAT, body(&["developer", "user", "user"])).await;
        assert_eq!((both.status, &*both.sends), (200, "1"), "{restarts}");
    }
}
