//! Facts about thinking, foreign or bound to what was sent: learned by one replica, and known to the other.

use serde_json::{Value, json};

use super::pair::{Replicas, STRANGER, Sent};
use crate::{
    proxy::{
        bound_thinking_sessions::{Session, call, result, words},
        foreign_thinking::{self, OWN, history, judge, prefix_of, turn},
    },
    support::{judge::blocks, provider::Settings},
};

const MESSAGES: &str = "/anthropic/v1/messages";
const ID: &str = "toolu_01Qw9eR7tY5u";

/// Starts replicas before a provider that binds thinking to its prefix.
fn binding() -> Replicas {
    let settings = Settings {
        binds_thinking: true,
        ..Settings::default()
    };
    Replicas::new(settings, |_| ())
}

/// Sends a session's history to a replica, and appends the answer.
async fn ask(session: &mut Session, replicas: &Replicas, at: usize) -> Sent {
    let sent = replicas.send(at, MESSAGES, &session.body).await;
    assert_eq!(sent.status, 200, "{sent:#?}");
    session.push("assistant", sent.json()["content"].clone());
    sent
}

/// Plays a session up to a call that gets a placeholder, since the user speaks before its result comes.
async fn hurried(replicas: &Replicas, at: usize) -> Session {
    let mut session = Session::new();
    replicas.reply(call(ID));
    assert_eq!(ask(&mut session, replicas, at).await.notes(), (200, "1", "none"));
    session.push("user", "hurry");
    assert_eq!(
        ask(&mut session, replicas, at).await.notes(),
        (200, "1", "placeholder=1")
    );
    session
}

/// Returns the blocks of a body.
fn blocks_of(sent: &Sent) -> Vec<(String, Value)> {
    blocks(&serde_json::from_str(&sent.last_body).unwrap())
}

/// Sends three more turns of a session to both replicas, each of which needs one send and keeps the prefix.
async fn assert_goes_on(session: &mut Session, replicas: &Replicas, mut before: Sent) {
    let repair = before.repair.clone();
    for (at, said) in [(1, "more"), (0, "and more"), (1, "even more")] {
        session.push("user", said);
        let sent = ask(session, replicas, at).await;
        assert_eq!(
            sent.notes(),
            (200, "1", &*repair),
            "{said:?} at replica {at}: {sent:#?}"
        );
        let (early, late) = (blocks_of(&before), blocks_of(&sent));
        assert!(
            late.starts_with(&early),
            "{said:?} at replica {at}: {early:#?}\n{late:#?}"
        );
        before = sent;
    }
}

/// Thinking is bound to the placeholder, whose record is lost. The ledger has the result, which was accepted once.
#[tokio::test(start_paused = true)]
async fn a_placeholder_to_which_thinking_is_bound_stays_at_the_other_replica() {
    let replicas = binding();
    let mut session = hurried(&replicas, STRANGER).await;
    session.push("user", json!([result(ID), words("go on")]));
    replicas.accept_next();
    let moved = replicas.send(0, MESSAGES, &session.body).await;
    assert_eq!(moved.notes(), (200, "1", "moved=1"), "{moved:#?}");
    let taught = ask(&mut session, &replicas, 0).await;
    assert_eq!(taught.notes(), (200, "2", "quoted=1, placeholder=1"), "{taught:#?}");
    assert_goes_on(&mut session, &replicas, taught).await;
}

/// The client has filled the gap itself, in front of thinking that is bound to the placeholder.
#[tokio::test(start_paused = true)]
async fn a_placeholder_that_overrides_the_clients_result_stays_at_the_other_replica() {
    let replicas = binding();
    let mut session = hurried(&replicas, 0).await;
    session.body["messages"][2]["content"] = json!([result(ID), words("hurry")]);
    session.push("user", "next");
    let taught = ask(&mut session, &replicas, 0).await;
    assert_eq!(taught.notes(), (200, "2", "placeholder=1, appended=1"), "{taught:#?}");
    assert_goes_on(&mut session, &replicas, taught).await;
}

/// The client has changed the words to which the thinking is bound.
#[tokio::test(start_paused = true)]
async fn a_conversation_whose_thinking_may_be_dropped_is_known_to_the_other_replica() {
    let replicas = binding();
    let mut session = Session::new();
    assert_eq!(ask(&mut session, &replicas, STRANGER).await.notes(), (200, "1", "none"));
    session.push("user", "and now?");
    session.body["messages"][0]["content"] = "stop".into();
    let taught = ask(&mut session, &replicas, 0).await;
    assert_eq!(taught.notes(), (200, "2", "unbound=1"), "{taught:#?}");
    assert_goes_on(&mut session, &replicas, taught).await;
}

/// The other replica has asked the ledger about this caller before there was anything to know.
#[tokio::test(start_paused = true)]
async fn thinking_that_one_replica_found_foreign_is_left_out_at_the_other() {
    let replicas = Replicas::new(Settings::default(), |_| ());
    replicas.answer_by(judge);
    let healthy = foreign_thinking::body(&history([turn(7, OWN)]));
    for _ in 0..2 {
        let asked = replicas.send(1, MESSAGES, &healthy).await;
        assert_eq!(asked.notes(), (200, "1", "none"), "{asked:#?}");
    }
    let mut messages = history([turn(1, "EqQBother")]);
    let taught = replicas.send(0, MESSAGES, foreign_thinking::body(&messages)).await;
    assert_eq!(taught.notes(), (200, "2", "dropped=2"), "{taught:#?}");
    messages.extend(turn(2, OWN));
    let next = replicas.send(1, MESSAGES, foreign_thinking::body(&messages)).await;
    assert_eq!(next.notes(), (200, "1", "dropped=2"), "{next:#?}");
    assert!(
        next.last_body.starts_with(prefix_of(&taught.last_body)),
        "earlier bytes stay"
    );
}

/// The provider has accepted its own thinking at one replica, and refuses what came later at the other.
#[tokio::test(start_paused = true)]
pub(crate) async fn thinking_that_one_replica_had_accepted_stays_at_the_other() {
    let replicas = Replicas::new(Settings::default(), |_| ());
    replicas.answer_by(judge);
    let healthy = foreign_thinking::body(&history([turn(7, OWN)]));
    for _ in 0..2 {
        let asked = replicas.send(1, MESSAGES, &healthy).await;
        assert_eq!(asked.notes(), (200, "1", "none"), "{asked:#?}");
    }
    let mut messages = history([turn(1, "EqQBother")]);
    let taught = replicas.send(0, MESSAGES, foreign_thinking::body(&messages)).await;
    assert_eq!(taught.notes(), (200, "2", "dropped=2"), "{taught:#?}");
    messages.extend(turn(2, OWN));
    let accepted = replicas.send(0, MESSAGES, foreign_thinking::body(&messages)).await;
    assert_eq!(accepted.notes(), (200, "1", "dropped=2"), "{accepted:#?}");
    messages.extend(turn(3, "EqQBthird"));
    let next = replicas.send(1, MESSAGES, foreign_thinking::body(&messages)).await;
    assert_eq!(next.notes(), (200, "2", "dropped=4"), "{next:#?}");
    assert!(
        next.last_body.starts_with(prefix_of(&accepted.last_body)),
        "{}",
        next.last_body
    );
}
