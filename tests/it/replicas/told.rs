//! What a replica does because of what another one has stored: over a shared ledger in memory, on paused time.

use std::{sync::Arc, time::Duration};

use antiphon::{
    auth::{Caller, Principal},
    clock,
    late::{
        CancelOutcome, Dispatcher, LateSettings, LateStore, ObservedCall, TaskLink, ToolSettings,
        records::RecordedCallState,
    },
    ledger::Ledger,
    repair::{Tier, input_hash},
    session::{CallEvidence, LaneId, SessionStrength, session_hash},
    telemetry::Telemetry,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::shared_cooldowns::sharing;
use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        app::{Builder, get_with, post_with},
        late::{
            FILM, ID, answered, ask, ask_with, brings, calls, copies, get, over, owner, post, post_to, says,
            script_call, service, undoing, world_over,
        },
        pool::{self, UNKNOWN, does, pooled, reached, strangers},
        still::{self, World, secs},
        wire::spawn,
    },
};

/// Starts replicas over one ledger, which tells each of the others' changes. Every one has seen the caller.
async fn replicas<const COUNT: usize>() -> ([World; COUNT], [Arc<SwitchableLedger>; COUNT]) {
    replicas_with(|_| ()).await
}

/// As [`replicas`], with changed settings.
async fn replicas_with<const COUNT: usize>(
    change: fn(&mut Builder),
) -> ([World; COUNT], [Arc<SwitchableLedger>; COUNT]) {
    let first = SwitchableLedger::shared(true);
    let ledgers: [Arc<SwitchableLedger>; COUNT] =
        std::array::from_fn(|at| if at == 0 { Arc::clone(&first) } else { first.replica() });
    let one = world_over(&(first as Arc<dyn Ledger>), change);
    let others = ledgers[1..].iter().map(|ledger| {
        let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
        one.replica(|builder| {
            builder.ledger = ledger;
            builder.late.services = vec![service("tools", None, None)];
            change(builder);
        })
    });
    let mut worlds: Vec<World> = others.collect();
    worlds.insert(0, one);
    for world in &worlds {
        ask(world, "s0", &[says("hello")]).await;
        world.until(world.now() + secs(2)).await;
    }
    (worlds.try_into().unwrap_or_else(|_| panic!("as many worlds")), ledgers)
}

/// The replica that answered with the call died with it. Another one gets the result, and dies once it has acknowledged
/// that. A third one gets the next request.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_result_parked_at_one_replica_meets_its_call_at_the_other() {
    let ([dying, one, other], ledgers) = replicas().await;
    let owner = owner(&ask(&one, "s1", &[says("hello")]).await);
    // From now on nothing reaches the ledger any more.
    drop(ledgers[0].restart());
    script_call(&dying, &calls(ID));
    ask(&dying, "s1", &[says("go")]).await;
    assert_eq!(post_to(&one, ID, &owner, &json!(FILM)).await.status(), 202);
    drop(ledgers[1].restart());
    one.until(one.now() + secs(2)).await;
    let mut log = vec![says("go"), calls(ID), brings(ID, &json!("job started"))];
    let mut copied = 0;
    for _ in 0..3 {
        ask(&other, "s1", &log).await;
        copied += copies(&other, FILM);
        log.extend([answered(), says("is it done?")]);
    }
    assert!(copied > 0, "no request had the result");
}

/// One replica passes a compaction on, and dies with its answer. The other one gets the result and the next request.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_result_follows_its_conversation_to_the_replica_after_a_compaction() {
    let ([one, other], ledgers) = replicas().await;
    let mut log = vec![says("go")];
    script_call(&one, &calls(ID));
    ask(&one, "s1", &log).await;
    log.extend([calls(ID), says("hurry")]);
    ask(&one, "s1", &log).await;
    log.extend([answered(), says("summarise")]);
    let fields = [("x-antiphon-session", "s1"), ("x-claude-code-compaction", "auto")];
    ask_with(&one, &fields, &log).await;
    drop(ledgers[0].restart());
    other.until(other.now() + secs(2)).await;
    assert_eq!(post(&other, ID, &json!(FILM)).await.status(), 200);
    ask(&other, "s1", &[says("This is a summary.")]).await;
    assert_eq!(copies(&other, FILM), 1, "the result of the compacted call");
}

/// A result that is too long for the record of its call.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_long_result_that_one_replica_got_is_in_the_next_request_of_the_other() {
    let ([one, other], _) = replicas().await;
    let content = "a long result, ".repeat(200);
    script_call(&one, &calls(ID));
    ask(&one, "s1", &[says("go")]).await;
    assert_eq!(post(&one, ID, &json!(content)).await.status(), 200);
    ask(&other, "s1", &[says("go"), calls(ID), says("hurry")]).await;
    assert_eq!(copies(&other, &content), 1, "the long result");
}

/// A tool that cannot be undone runs for a conversation only if its caller learns of the result without it.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_reader_of_one_replica_is_known_to_the_other() {
    let ([one, other], _) = replicas_with(|builder| {
        let tool = ToolSettings {
            tier: Tier::OneWay,
            ..ToolSettings::default()
        };
        builder.late.tools = [("render".to_owned(), tool)].into();
    })
    .await;
    script_call(&one, &calls(ID));
    let owner = owner(&ask(&one, "s1", &[says("go")]).await);
    assert_eq!(get(&one, "outstanding").await.status(), 200);
    one.until(one.now() + secs(2)).await;
    let service = [("authorization", "Bearer token of tools")];
    let claim = json!({"call_id": ID, "owner": owner}).to_string();
    let request = post_with("/ledger/v1/intents", &service, claim.as_bytes());
    let granted = other.ask(request).await;
    assert_eq!(
        granted.status(),
        201,
        "the caller reads its results: {}",
        granted.text()
    );
}

/// Whoever listens at one replica learns of a result that another one got.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_feed_tells_of_a_result_that_another_replica_got() {
    let ([one, other], _) = replicas().await;
    script_call(&one, &calls(ID));
    ask(&one, "s1", &[says("go")]).await;
    let mut client = other.client();
    client
        .send(get_with("/ledger/v1/feed", &[("x-api-key", "sk-one")]))
        .await;
    client.head().await;
    assert_eq!(post(&one, ID, &json!(FILM)).await.status(), 200);
    let told = async {
        let mut read = String::new();
        while !read.contains(ID) {
            read += &client.piece().await.unwrap().text;
        }
    };
    assert!(timeout(secs(10), told).await.is_ok(), "the feed tells nothing");
}

/// The provider rejects a key at one replica, and the other one uses the next key.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_cooldown_of_one_replica_holds_at_the_other() {
    let ledger = SwitchableLedger::shared(true);
    let one = sharing(&ledger, |ledger| {
        World::with(|builder| {
            builder.ledger = ledger;
            pooled(builder, &strangers("ab"));
        })
    });
    let other = sharing(&ledger.replica(), |ledger| {
        one.replica(|builder| {
            builder.ledger = ledger;
            pooled(builder, &strangers("ab"));
        })
    });
    one.until(one.now() + secs(2)).await;
    does(&one, &[("a", still::json(401, UNKNOWN))]);
    assert_eq!(reached(&one, pool::ask("s1", 1)).await, ("ab".into(), 200));
    one.until(one.now() + secs(1)).await;
    assert_eq!(
        reached(&other, pool::ask("s2", 2)).await,
        ("b".into(), 200),
        "the key has a cooldown"
    );
}

/// A store of late results and its messages, as one replica has them.
struct Store {
    late: LateStore,
    dispatcher: Dispatcher,
}

impl Store {
    async fn over(ledger: &Arc<SwitchableLedger>) -> Self {
        let ledger: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(ledger);
        let settings = LateSettings {
            // The records have times of the real clock, which does not wait for a grace here.
            cancel_grace: Duration::ZERO,
            personal_tokens: ["ann".to_owned()].into(),
            ..undoing()
        };
        let (late, writer) = over(&ledger, settings, Telemetry::default());
        drop((spawn(writer.run()), spawn(late.clone().run_upkeep())));
        let dispatcher = late.dispatcher();
        let store = Self { late, dispatcher };
        store.late.callers().mark_verified(store.caller());
        store.late.flush_updates().await;
        store.dispatcher.load().await;
        store
    }

    fn caller(&self) -> Caller {
        Caller::of_account(Principal::of_token(self.late.principal_key(), "ann"))
    }

    fn lane(&self) -> LaneId {
        LaneId::main_lanes(&self.caller(), "s1")[0]
    }

    /// Records a call that can be undone.
    async fn calls(&self) {
        let call = ObservedCall {
            lane: Some(self.lane()),
            session: Some(session_hash(self.caller().principal(), b"s1")),
            session_label: None,
            strength: SessionStrength::Strong,
            id: ID.as_bytes().to_vec(),
            tool: b"hold".to_vec(),
            input: Some(input_hash(b"{}")),
            intent_input: None,
            origin: None,
            is_emitted: true,
        };
        self.late.calls().record_calls(self.caller(), [call]);
        self.late.flush_updates().await;
    }

    /// Returns the message that is sent within this time. `None` if none is.
    async fn sent_within(&self, time: Duration) -> Option<Value> {
        let message = timeout(time, self.dispatcher.next_message()).await.ok()??;
        Some(serde_json::from_str(&message.body).unwrap())
    }
}

/// One replica has seen evidence that the conversation was left, and the other one its next request.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_conversation_that_goes_on_at_the_other_replica_is_not_cancelled() {
    for goes_on in [true, false] {
        let ledger = SwitchableLedger::shared(true);
        let (one, other) = (Store::over(&ledger).await, Store::over(&ledger.replica()).await);
        one.calls().await;
        one.late.calls().note_session_closed(one.caller(), "s1");
        one.late.flush_updates().await;
        if goes_on {
            let request = (other.caller(), other.lane());
            let shows = |_: &[u8], _: &dyn Fn() -> bool| CallEvidence::GoesOn;
            other.late.cancels().note_request(request, ID.as_bytes(), true, shows);
            other.late.flush_updates().await;
        }
        let is_cancelled = one.sent_within(secs(10)).await.is_some();
        assert_eq!(is_cancelled, !goes_on, "a conversation that goes on: {goes_on}");
    }
}

/// The replica that was asked to undo a call dies before it sends the message.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_message_of_a_replica_that_died_is_sent_by_the_other_soon() {
    let first = SwitchableLedger::shared(true);
    let (one, other) = (Store::over(&first).await, Store::over(&first.replica()).await);
    one.calls().await;
    let asked = one.late.cancels().request(one.caller(), ID.as_bytes()).await.unwrap();
    assert_eq!(asked, CancelOutcome::State(RecordedCallState::CancelRequested));
    drop(first.restart());
    let sent = other.sent_within(secs(10)).await;
    assert!(sent.is_some(), "the message is late or lost");
}

/// Two conversations begin at two replicas, and one result of a conversation that was left waits.
#[tokio::test(start_paused = true)]
pub(crate) async fn one_of_two_new_conversations_gets_the_result() {
    let ledger = SwitchableLedger::shared(true);
    let mut takers = Vec::new();
    for (session, store) in [
        ("s1", Store::over(&ledger).await),
        ("s2", Store::over(&ledger.replica()).await),
    ] {
        let (caller, by) = (store.caller(), clock::now() + secs(1));
        let lane = LaneId::main_lanes(&caller, session)[0];
        let reserved = store.late.carry_over().reserve(caller, lane, &[[7; 32]], by).await;
        takers.push(reserved.map(|names| names.len()));
    }
    assert_eq!(takers, [Ok(1), Ok(0)], "conversations that take the result");
}

/// A link to the task page is made at one replica. It opens the page at the other, until it is revoked.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_task_link_of_one_replica_opens_the_page_of_the_other() {
    let ledger = SwitchableLedger::shared(true);
    let (one, other) = (Store::over(&ledger).await, Store::over(&ledger.replica()).await);
    let link = TaskLink {
        owner: one.caller(),
        may_resolve: false,
        expires_at: clock::unix_time() + secs(3_600),
    };
    let made = one.late.tasks().make_link(link).await.unwrap().unwrap();
    let tasks = other.late.tasks();
    let opens = async || tasks.find_link(&made.secret).await.unwrap().is_some();
    assert!(opens().await, "the link opens nothing");
    let revoked = one.late.tasks().revoke_link(None, made.link).await;
    assert!(revoked.unwrap() && !opens().await, "the link was revoked");
}
