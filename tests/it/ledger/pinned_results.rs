//! Pinned answers stay with their calls: across requests, failures, restarts, replicas and a slow ledger.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use antiphon::{
    auth::{Caller, PrincipalKey, principal::principal_of_credentials},
    clock,
    ledger::{CommitStep, Ledger, Moment, RecordKey, RecordKind},
    recall::{AppendedText, RecallScope, RecallSettings, RecallStore},
    repair::{CallIdentity, CallKey, IdSpelling, LateText, Mode, PinnedResult, Placeholder, RealResult, input_hash},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
    wire::Format,
    writer::{Writer, WriterTask, writer},
};
use http::HeaderMap;

use super::switchable::SwitchableLedger;
use crate::support::{
    late::memory as ledger,
    still::{Answer, World, json, secs},
    wire::spawn,
};

const GOOD: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
const CALL: &str = r#"{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"run","input":{"a":1}}]}"#;

fn post(path: &str, key: &str, messages: &str) -> Vec<u8> {
    let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{messages}]}}"#);
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) async fn ask(world: &World, messages: &str) -> Answer {
    world.ask(post("/anthropic/v1/messages", "sk-one", messages)).await
}

pub(crate) fn hurry() -> String {
    format!(r#"{CALL},{{"role":"user","content":"hurry"}}"#)
}

pub(crate) fn late() -> String {
    format!(
        r#"{},{{"role":"assistant","content":"waiting"}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_01AbC9dE3fG","content":"REAL"}},{{"type":"text","text":"go on"}}]}}"#,
        hurry()
    )
}

/// Returns a batch with an entry for each of these histories.
fn batch_of(histories: &[&str]) -> Vec<u8> {
    let entry = |messages: &&str| {
        format!(r#"{{"custom_id":"a","params":{{"model":"m","max_tokens":9,"messages":[{messages}]}}}}"#)
    };
    let entries: Vec<String> = histories.iter().map(entry).collect();
    let body = format!(r#"{{"requests":[{}]}}"#, entries.join(","));
    format!(
        "POST /anthropic/v1/messages/batches HTTP/1.1\r\nhost: localhost\r\nx-api-key: sk-one\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns the body of the last request upstream.
pub(crate) fn sent(world: &World) -> String {
    let last = world.requests().pop().unwrap();
    String::from_utf8(last.message.body).unwrap()
}

/// Returns the insertion of one record.
fn seen(name: u8, expires_at: Moment) -> CommitStep {
    CommitStep::Insert {
        key: RecordKey {
            kind: RecordKind::ClientResult,
            principal: [1; 32],
            name: [name; 32],
        },
        index: None,
        value: "x".into(),
        expires_at,
    }
}

pub(crate) async fn rows(ledger: &Arc<dyn Ledger>) -> u64 {
    ledger.usage().await.unwrap().records
}

pub(crate) fn over(ledger: &Arc<dyn Ledger>) -> World {
    let kept = Arc::clone(ledger);
    World::with(|builder| builder.ledger = kept)
}

const PLACEHOLDER: &str = "no result was recorded";

/// Sequence 1: a retry after a 529 sends the same bytes. An answer that no provider accepted is rolled back.
#[tokio::test(start_paused = true)]
async fn an_answer_that_no_provider_accepted_is_rolled_back() {
    let kept = ledger();
    let world = over(&kept);
    world.script(json(200, GOOD));
    ask(&world, r#"{"role":"user","content":"hello"}"#).await;
    world.settle().await;
    assert_eq!(rows(&kept).await, 1, "the caller is known");
    for (status, left) in [(529, 1), (400, 1), (200, 2), (200, 2)] {
        world.script(json(status, GOOD));
        let answer = ask(&world, &hurry()).await;
        assert_eq!(answer.status(), status);
        world.settle().await;
        assert_eq!(rows(&kept).await, left, "{status}");
        assert!(sent(&world).contains(PLACEHOLDER));
    }
    let requests = world.requests();
    let bodies: Vec<_> = requests[1..].iter().map(|request| &request.message.body).collect();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Nothing is stored for a credential that no provider has accepted, or for a request without one.
#[tokio::test(start_paused = true)]
async fn nothing_is_stored_for_an_unverified_caller() {
    let kept = ledger();
    let world = over(&kept);
    world.script(json(401, "{}"));
    ask(&world, &hurry()).await;
    world.settle().await;
    assert_eq!(rows(&kept).await, 0);
    world.script(json(200, GOOD));
    ask(&world, &hurry()).await;
    world.settle().await;
    assert_eq!(rows(&kept).await, 2, "the caller, and its answer");
    world.script(json(200, GOOD));
    let body = format!(r#"{{"model":"m","messages":[{}]}}"#, hurry());
    let nobody = format!(
        "POST /anthropic/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(world.ask(nobody).await.status(), 200);
    world.settle().await;
    assert_eq!(rows(&kept).await, 2, "nobody's answers stay in memory");
}

/// Counts, batches, compactions and observed requests read pinned results but write none.
#[tokio::test(start_paused = true)]
async fn requests_without_a_turn_pin_no_answers() {
    let (plain, summary) = (
        hurry(),
        format!(
            r#"{CALL},{{"role":"user","content":"CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Your task is to create a detailed summary: an <analysis> block followed by a <summary> block"}}"#
        ),
    );
    let messages = "/anthropic/v1/messages";
    let count = "/anthropic/v1/messages/count_tokens";
    for (name, mode, request, freezes) in [
        ("turn", Mode::Repair, post(messages, "sk-one", &plain), true),
        ("count", Mode::Repair, post(count, "sk-one", &plain), false),
        ("compaction", Mode::Repair, post(messages, "sk-one", &summary), false),
        ("batch", Mode::Repair, batch_of(&[&hurry()]), false),
        ("observe", Mode::Observe, post(messages, "sk-one", &plain), false),
    ] {
        let kept = ledger();
        let same = Arc::clone(&kept);
        let world = World::with(|builder| {
            builder.ledger = same;
            builder.upstreams.iter_mut().for_each(|upstream| upstream.mode = mode);
        });
        world.script(json(200, GOOD));
        assert_eq!(world.ask(request).await.status(), 200);
        world.settle().await;
        assert_eq!(rows(&kept).await, 1 + u64::from(freezes), "{name}");
        assert_eq!(sent(&world).contains(PLACEHOLDER), mode == Mode::Repair, "{name}");
        // Every kind of request reads an answer that a turn has pinned.
        world.script(json(200, GOOD));
        world.script(json(200, GOOD));
        ask(&world, &hurry()).await;
        world.ask(post(count, "sk-one", &late())).await;
        let counted = sent(&world);
        assert_eq!(counted.contains(PLACEHOLDER), mode == Mode::Repair, "{name}: {counted}");
    }
}

/// The entries of a batch often have one history in common: each of them gets the pinned result of its call.
#[tokio::test(start_paused = true)]
async fn each_entry_of_a_batch_gets_the_pinned_result_of_a_call_that_they_share() {
    let kept = ledger();
    let world = over(&kept);
    world.script(json(200, GOOD));
    let answer = ask(&world, &late()).await;
    assert_eq!(answer.header("x-antiphon-repair").unwrap(), "moved=1");
    world.settle().await;
    let restarted = over(&kept);
    restarted.script(json(200, "{}"));
    let batch = batch_of(&[&hurry(), &hurry(), &hurry()]);
    assert_eq!(restarted.ask(batch).await.status(), 200);
    let batch = sent(&restarted);
    assert_eq!(
        (batch.matches("REAL").count(), batch.matches(PLACEHOLDER).count()),
        (3, 0),
        "{batch}"
    );
}

/// Sequence 2 without thinking, then after a restart, with another credential, and without the ledger.
#[tokio::test(start_paused = true)]
async fn a_placeholder_stays_as_long_as_the_ledger() {
    let kept = ledger();
    let world = over(&kept);
    world.script(json(200, GOOD));
    ask(&world, &hurry()).await;
    world.settle().await;
    for (name, kept, key, stays) in [
        ("the same process", None, "sk-one", true),
        ("restarted", Some(Arc::clone(&kept)), "sk-one", true),
        ("a refreshed token", Some(Arc::clone(&kept)), "sk-two", false),
        ("a lost ledger", Some(ledger()), "sk-one", false),
    ] {
        let fresh = kept.as_ref().map(over);
        let world = fresh.as_ref().unwrap_or(&world);
        world.script(json(200, GOOD));
        let answer = world.ask(post("/anthropic/v1/messages", key, &late())).await;
        assert_eq!(answer.status(), 200, "{name}");
        let done = answer.header("x-antiphon-repair").unwrap();
        let wanted = if stays { "quoted=1, placeholder=1" } else { "moved=1" };
        assert_eq!(done, wanted, "{name}");
        assert_eq!(sent(world).contains("found outside its place"), stays, "{name}");
    }
}

/// A ledger outage fails no exchange and delays it by 250 ms at most. Missed writes are written after the outage.
#[tokio::test(start_paused = true)]
async fn a_ledger_outage_delays_a_request_by_250_ms_at_most() {
    for (stalls, fails) in [(true, false), (false, true)] {
        let switched = SwitchableLedger::new();
        let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&switched);
        let world = over(&kept);
        world.script(json(200, GOOD));
        ask(&world, r#"{"role":"user","content":"hello"}"#).await;
        world.settle().await;
        switched.stalls.store(stalls, Ordering::Relaxed);
        switched.fails.store(fails, Ordering::Relaxed);
        let began = world.now();
        world.script(json(200, GOOD));
        let answer = ask(&world, &hurry()).await;
        assert_eq!(answer.status(), 200);
        let took = world.now().saturating_sub(began);
        assert!(took <= Duration::from_millis(251), "{took:?}");
        assert!(sent(&world).contains(PLACEHOLDER));
        // A healthy body needs no ledger read.
        let began = world.now();
        world.script(json(200, GOOD));
        ask(&world, r#"{"role":"user","content":"hello"}"#).await;
        assert!(world.now().saturating_sub(began) < Duration::from_millis(2));
        // The next request of the session is answered from memory.
        let began = world.now();
        world.script(json(200, GOOD));
        let answer = ask(&world, &late()).await;
        assert_eq!(answer.header("x-antiphon-repair").unwrap(), "quoted=1, placeholder=1");
        assert!(world.now().saturating_sub(began) < Duration::from_millis(2));
        let missed = world.shared.telemetry.encode_metrics();
        assert!(
            // The caller has no records, so nothing was read.
            missed.contains("antiphon_ledger_missed_total{op=\"read\"} 0"),
            "{missed}"
        );
        if fails {
            switched.fails.store(false, Ordering::Relaxed);
            world.until(world.now() + secs(6)).await;
            // The caller, its answer, and that its provider has accepted text beside calls.
            assert_eq!(rows(&kept).await, 3, "written later");
        }
    }
}

/// A resend uses what the first send has left of the ledger deadline.
#[tokio::test(start_paused = true)]
async fn a_resend_shares_the_ledger_deadline() {
    let switched = SwitchableLedger::new();
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&switched);
    let world = over(&kept);
    world.script(json(200, GOOD));
    ask(&world, r#"{"role":"user","content":"hello"}"#).await;
    world.settle().await;
    switched.stalls.store(true, Ordering::Relaxed);
    let message = "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.";
    let refusal = serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    world.script(json(400, &refusal.to_string()));
    world.script(json(200, GOOD));
    let thinks = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"c2ln"},{"type":"tool_use","id":"toolu_01Zz9yX8wV7u","name":"run","input":{}}]}"#;
    let answered =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01Zz9yX8wV7u","content":"r"}]}"#;
    let began = world.now();
    let answer = ask(&world, &format!("{},{thinks},{answered}", hurry())).await;
    assert_eq!(world.requests().len(), 3, "one more send");
    assert_eq!(answer.status(), 200);
    let took = world.now().saturating_sub(began);
    assert!(took <= Duration::from_millis(252), "{took:?}");
}

/// Appended text stays in its message, even if the ledger stalls when a request appends it again.
#[tokio::test(start_paused = true)]
async fn a_repeated_append_does_not_roll_back_the_first() {
    let switched = SwitchableLedger::new();
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&switched);
    let (recall, ..) = replica(&kept);
    let (who, anchor) = (who("sk-one"), [7; 32]);
    let by = || clock::now() + Duration::from_millis(250);
    let text = |text: &str| AppendedText {
        late: LateText::from_text(text.to_owned()),
        calls: vec![[1; 32]],
    };
    let (first, is_new) = recall
        .append_text(who, anchor, text("first"), Vec::new(), by())
        .await
        .unwrap();
    assert_eq!((&*first, is_new), (&text("first"), true));
    switched.stalls.store(true, Ordering::Relaxed);
    let again = recall.append_text(who, anchor, text("second"), Vec::new(), by()).await;
    assert_eq!(again, Some((first, false)));
    let other = recall.append_text(who, [8; 32], text("other"), Vec::new(), by()).await;
    assert_eq!(other, None, "it cannot be kept");
    let standing = recall.texts_at(who, &[anchor, [8; 32]], false, by()).await.unwrap();
    assert_eq!(standing.keys().collect::<Vec<_>>(), [&anchor]);
}

/// A text whose commit was carried out and not answered was never sent: no request reads it before it is removed.
#[tokio::test(start_paused = true)]
async fn a_text_whose_commit_was_not_answered_is_not_read() {
    let switched = SwitchableLedger::shared(false);
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&switched);
    let (recall, writer, _) = replica(&kept);
    let (who, anchor) = (who("sk-one"), [7; 32]);
    let by = || clock::now() + Duration::from_millis(250);
    let text = AppendedText {
        late: LateText::from_text("first".to_owned()),
        calls: vec![[1; 32]],
    };
    switched.answers_no_commit.store(true, Ordering::Relaxed);
    assert_eq!(
        recall.append_text(who, anchor, text.clone(), Vec::new(), by()).await,
        None
    );
    switched.answers_no_commit.store(false, Ordering::Relaxed);
    assert_eq!(rows(&kept).await, 1);
    let read = async || recall.texts_at(who, &[anchor], true, by()).await.unwrap();
    assert!(read().await.is_empty(), "its removal is still on its way");
    drop(spawn(writer.run()));
    tokio::time::sleep(secs(1)).await;
    let (other, ..) = replica(&kept);
    assert!(other.texts_at(who, &[anchor], true, by()).await.unwrap().is_empty());
    let again = recall.append_text(who, anchor, text.clone(), Vec::new(), by()).await;
    assert!(again.is_some_and(|(_, is_new)| is_new));
    assert_eq!(*read().await[&anchor], text);
}

/// The removal of a text whose commit has failed does not remove the text that a later request stores in its place.
#[tokio::test(start_paused = true)]
async fn a_text_outlasts_the_removal_of_an_earlier_one() {
    let switched = SwitchableLedger::new();
    let kept: Arc<dyn Ledger> = Arc::<SwitchableLedger>::clone(&switched);
    let (recall, writer, writes) = replica(&kept);
    let (who, anchor) = (who("sk-one"), [7; 32]);
    let by = || clock::now() + Duration::from_millis(250);
    let text = AppendedText {
        late: LateText::from_text("text".to_owned()),
        calls: vec![[1; 32]],
    };
    let append = || recall.append_text(who, anchor, text.clone(), Vec::new(), by());
    switched.fails_commits.store(true, Ordering::Relaxed);
    assert_eq!(append().await, None);
    switched.fails_commits.store(false, Ordering::Relaxed);
    let late_writer = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(spawn(writer.run()));
    };
    let (stored, ()) = tokio::join!(append(), late_writer);
    let (stored, is_new) = stored.unwrap();
    assert!(is_new);
    recall.accept_text(who, anchor, &stored);
    // Another request with the same text fails after that.
    recall.roll_back_text(who, anchor);
    writes.flush().await;
    let (restarted, ..) = replica(&kept);
    let found = restarted.texts_at(who, &[anchor], true, by()).await.unwrap();
    assert_eq!(*found[&anchor], text);
}

/// A body may have more open calls than one commit can hold.
#[tokio::test(start_paused = true)]
async fn more_calls_than_one_commit_holds_are_all_stored() {
    const CALLS: usize = 2500;
    let kept = ledger();
    let calls: Vec<(CallKey, PinnedResult)> = (0..CALLS)
        .map(|n| {
            (
                call(&format!("toolu_{n}")),
                PinnedResult::Placeholder(Placeholder::OutcomeUnknown),
            )
        })
        .collect();
    let keys: Vec<CallKey> = calls.iter().map(|(call, _)| *call).collect();
    let (one, task, writes) = replica(&kept);
    drop(spawn(task.run()));
    let by = clock::now() + secs(1);
    assert!(one.pin_results(of("sk-one"), &calls, by).await.is_empty());
    writes.flush().await;
    // With the record of the caller.
    assert_eq!(rows(&kept).await, CALLS as u64 + 1);
    let (other, ..) = replica(&kept);
    assert_eq!(other.fetch_results(of("sk-one"), &keys, by).await.unwrap().len(), CALLS);
}

/// Expired records are removed while the process runs.
#[tokio::test(start_paused = true)]
async fn expired_records_are_removed_within_an_hour() {
    let kept = ledger();
    let hours_ago = |hours: u64| clock::unix_time().saturating_sub(secs(hours * 3600));
    let world = over(&kept);
    let steps = vec![seen(1, hours_ago(1)), seen(2, clock::unix_time() + secs(7200))];
    kept.commit(steps, hours_ago(2)).await.unwrap();
    world.until(world.now() + secs(3599)).await;
    assert_eq!(rows(&kept).await, 2);
    world.until(world.now() + secs(2)).await;
    assert_eq!(rows(&kept).await, 1);
}

pub(crate) fn who(secret: &str) -> Caller {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", secret.parse().unwrap());
    Caller::of_account(principal_of_credentials(&PrincipalKey::new([7; 32]), &headers, None))
}

pub(crate) fn of(secret: &str) -> RecallScope {
    RecallScope {
        caller: who(secret),
        format: Format::Anthropic,
        lane: None,
    }
}

pub(crate) fn call(id: &str) -> CallKey {
    CallKey::of(&CallIdentity {
        id: id.as_bytes(),
        tool: b"run".as_slice().into(),
        input_hash: input_hash(b"{}"),
        occurrence: 0,
        spelling: IdSpelling::Alone,
        before: None,
        place: None,
    })
}

/// Returns the answer store of one of several replicas over this ledger, and its background writer.
fn replica(kept: &Arc<dyn Ledger>) -> (RecallStore, WriterTask, Writer) {
    let (writes, task) = writer(Arc::clone(kept), Telemetry::default());
    let parts = TableParts::new(kept, &writes, Telemetry::default());
    let callers = VerifiedCallers::new(&parts);
    callers.mark_verified(who("sk-one"));
    let settings = RecallSettings {
        record_ttl: secs(60),
        stores_client_results: false,
    };
    let recall = RecallStore::new(&parts, callers, Telemetry::default(), settings);
    (recall, task, writes)
}

/// Sequence 7: two replicas at once. The first row wins, and the other replica sends the winner's bytes.
#[tokio::test(start_paused = true)]
pub(crate) async fn of_two_replicas_the_first_row_wins() {
    let kept: Arc<dyn Ledger> = SwitchableLedger::shared(false);
    let ((one, first, _), (other, second, _)) = (replica(&kept), replica(&kept));
    drop((spawn(first.run()), spawn(second.run())));
    let by = clock::now() + secs(1);
    let placeholder = PinnedResult::Placeholder(Placeholder::OutcomeUnknown);
    let real = PinnedResult::Result(RealResult::Block("{}".to_owned()));
    let (a, b) = (call("a"), call("b"));
    assert!(
        one.pin_results(of("sk-one"), &[(a, placeholder.clone())], by)
            .await
            .is_empty()
    );
    let standing = other
        .pin_results(of("sk-one"), &[(b, real.clone()), (a, real.clone())], by)
        .await;
    assert_eq!(standing.len(), 1, "the first row stands");
    assert_eq!(standing[&a], placeholder);
    // It may still be rolled back, so that only its acceptance makes it certain here.
    assert_eq!(other.cached_result(of("sk-one"), a), None);
    let found = one.fetch_results(of("sk-one"), &[a, b], by).await.unwrap();
    assert_eq!((&found[&a], &found[&b]), (&placeholder, &real));
    // A result belongs to its format: in another format the same call has none.
    let elsewhere = RecallScope {
        format: Format::OpenAiChat,
        ..of("sk-one")
    };
    assert_eq!(other.cached_result(elsewhere, b), None);
    assert!(one.fetch_results(elsewhere, &[a, b], by).await.unwrap().is_empty());
    // Equal call names of another caller are other calls.
    assert!(
        other
            .pin_results(of("sk-two"), &[(a, real.clone())], by)
            .await
            .is_empty()
    );
    assert_eq!(other.cached_result(of("sk-two"), a), Some(real));
}

/// An answer that another replica has pinned and rolled back is not the answer of a later request.
#[tokio::test(start_paused = true)]
async fn an_answer_that_another_replica_has_rolled_back_is_forgotten() {
    let kept: Arc<dyn Ledger> = SwitchableLedger::shared(false);
    let ((one, first, _), (other, second, _)) = (replica(&kept), replica(&kept));
    drop((spawn(first.run()), spawn(second.run())));
    let by = || clock::now() + secs(1);
    let placeholder = [(call("a"), PinnedResult::Placeholder(Placeholder::OutcomeUnknown))];
    let real = [(call("a"), PinnedResult::Result(RealResult::Block("{}".to_owned())))];
    let scope = || of("sk-one");
    assert!(one.pin_results(scope(), &placeholder, by()).await.is_empty());
    let first = other.pin_results(scope(), &real, by()).await;
    assert_eq!(first[&call("a")], placeholder[0].1);
    // No provider accepts the request of the first replica, nor that of the other one.
    one.roll_back_results(scope(), &placeholder);
    tokio::time::sleep(secs(1)).await;
    assert!(other.pin_results(scope(), &real, by()).await.is_empty());
    other.roll_back_results(scope(), &real);
    tokio::time::sleep(secs(1)).await;
    assert!(one.pin_results(scope(), &placeholder, by()).await.is_empty());
}

/// A provider has accepted a result while its write was on the way, and another replica has pinned another one that none
/// has accepted: the accepted one is stored.
#[tokio::test(start_paused = true)]
async fn an_accepted_pin_stays_before_one_that_is_not() {
    let kept: Arc<dyn Ledger> = SwitchableLedger::shared(false);
    let ((one, first, _), (other, second, writes)) = (replica(&kept), replica(&kept));
    let by = clock::now() + secs(1);
    let placeholder = [(call("a"), PinnedResult::Placeholder(Placeholder::OutcomeUnknown))];
    let real = [(call("a"), PinnedResult::Result(RealResult::Block("{}".to_owned())))];
    let scope = || of("sk-one");
    drop(spawn(first.run()));
    assert!(one.pin_results(scope(), &placeholder, by).await.is_empty());
    // Too late for the send, which goes on with its own result.
    assert!(other.pin_results(scope(), &real, clock::now()).await.is_empty());
    drop(other.commit_results(scope(), &real));
    drop(spawn(second.run()));
    writes.flush().await;
    let (third, ..) = replica(&kept);
    let found = third.fetch_results(scope(), &[call("a")], clock::now() + secs(1)).await;
    assert_eq!(found.unwrap()[&call("a")], real[0].1);
}

/// The pin of a caller that was not verified is held, and written once another request has verified the caller.
#[tokio::test(start_paused = true)]
async fn a_held_pin_is_written_once_its_caller_is_verified() {
    let kept: Arc<dyn Ledger> = SwitchableLedger::shared(false);
    let (writes, task) = writer(Arc::clone(&kept), Telemetry::default());
    let parts = TableParts::new(&kept, &writes, Telemetry::default());
    let callers = VerifiedCallers::new(&parts);
    let settings = RecallSettings {
        record_ttl: secs(60),
        stores_client_results: false,
    };
    let recall = RecallStore::new(&parts, callers.clone(), Telemetry::default(), settings);
    drop(spawn(task.run()));
    let pins = [(call("a"), PinnedResult::Placeholder(Placeholder::OutcomeUnknown))];
    let by = || clock::now() + secs(1);
    assert!(recall.pin_results(of("sk-one"), &pins, by()).await.is_empty());
    writes.flush().await;
    assert_eq!(rows(&kept).await, 0, "anybody can invent a caller");
    callers.mark_verified(who("sk-one"));
    let began = clock::now();
    assert!(recall.pin_results(of("sk-one"), &pins, by()).await.is_empty());
    assert!(clock::now() < began + secs(1), "the write is not waited for in vain");
    assert_eq!(rows(&kept).await, 2, "the caller and the pin");
}
