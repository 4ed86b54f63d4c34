//! Calls that a model makes again after their first result was lost: counted once, per caller, within a window.

use std::time::Duration;

use antiphon::{
    api::admin::{AdminService, Readiness},
    auth::Caller,
    repair::Tier,
    session_table::{
        AnswerEnd, LOST_CALLS_MAX, LaneNames, LossKind, REPEAT_WINDOW, RepeatedCall, SessionSettings, SessionTable,
        ShownCall,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::sessions::{asked, calls as emitted, note_request, request, shows, strong, view};
use crate::admin::api::{answer as admin_answer, get};
use crate::support::{
    app::{admin_of, before, post_with},
    door::{A, Door, MESSAGES, blocks, body, calls, go, hurry, result, said, user},
    provider::{Provider, Reply},
};

const B: &str = "toolu_01QrStUvWxYz23456789";
const C: &str = "toolu_01ZyXwVuTsRq98765432";

fn repeated(door: &Door) -> u64 {
    let page = door.app.telemetry.encode_metrics();
    let counts = page
        .lines()
        .filter_map(|line| line.strip_prefix("antiphon_calls_repeated_total{"));
    counts
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum()
}

/// Returns a history in which the call `A` is lost, with `tail` after it.
fn lost_then(tail: &[String]) -> Vec<String> {
    let (log, _) = hurry(calls(&[A]));
    [&log[..], tail].concat()
}

/// Returns a call of the same tool with the same input, and its result.
fn again(id: &str) -> [String; 2] {
    [calls(&[id]), blocks(&[result(id, "done")])]
}

#[tokio::test]
async fn a_call_that_is_made_again_counts_once() {
    let door = Door::to(Provider::start().await).await;
    let log = lost_then(&[]);
    let sent = door.post(MESSAGES, &body(&log)).await;
    assert_eq!(sent.notes(), (200, "placeholder=1", 1));
    assert_eq!(repeated(&door), 0);
    let next = lost_then(&again(B));
    let plain = door.post(MESSAGES, &body(&next)).await;
    assert_eq!(repeated(&door), 1);
    let page = door.app.telemetry.encode_metrics();
    let line = "antiphon_calls_repeated_total{first=\"placeholder\",tier=\"one_way\"} 1";
    assert!(page.contains(line), "{page}");
    // Sent again, and continued: the same bytes, and no further count.
    assert_eq!(door.post(MESSAGES, &body(&next)).await.up, plain.up);
    let later = lost_then(&[&again(B)[..], &again(C)].concat());
    assert_eq!(door.post(MESSAGES, &body(&later)).await.status, 200);
    assert_eq!(repeated(&door), 1);
}

#[tokio::test]
async fn a_client_text_that_reports_a_loss_counts_too() {
    let door = Door::to(Provider::start().await).await;
    let text = "[Tool execution was interrupted]";
    let log = vec![go(), calls(&[A]), blocks(&[result(A, text)])];
    door.post(MESSAGES, &body(&log)).await;
    door.post(MESSAGES, &body(&[&log[..], &again(B)].concat())).await;
    assert_eq!(repeated(&door), 1);
}

#[tokio::test]
async fn answered_and_different_calls_do_not_count() {
    let other_input = calls(&[B]).replace(r#""input":{}"#, r#""input":{"a":1}"#);
    let other_tool = calls(&[B]).replace(r#""name":"f""#, r#""name":"g""#);
    let answered = vec![go(), calls(&[A]), blocks(&[result(A, "real")])];
    let rows = [
        ("answered", answered, again(B).to_vec()),
        ("input", lost_then(&[]), vec![other_input, blocks(&[result(B, "done")])]),
        ("tool", lost_then(&[]), vec![other_tool, blocks(&[result(B, "done")])]),
        ("no call", lost_then(&[]), vec![said("fine"), user(r#""more""#)]),
        ("before the loss", lost_then(&[]), vec![]),
    ];
    for (name, first, tail) in rows {
        let door = Door::to(Provider::start().await).await;
        let first = if name == "before the loss" {
            // An equal call before the lost one is not its repetition.
            [&[go()][..], &again(B), &first[1..]].concat()
        } else {
            first
        };
        for log in [&first, &[&first[..], &tail].concat()] {
            let sent = door.post(MESSAGES, &body(log)).await;
            assert_eq!(sent.status, 200, "{name}: {sent:#?}");
        }
        assert_eq!(repeated(&door), 0, "{name}");
    }
}

#[tokio::test]
async fn a_result_that_comes_later_ends_the_watch() {
    let door = Door::to(Provider::start().await).await;
    door.post(MESSAGES, &body(&lost_then(&[]))).await;
    let brought = vec![go(), calls(&[A]), blocks(&[result(A, "real")])];
    door.post(MESSAGES, &body(&brought)).await;
    door.post(MESSAGES, &body(&[&brought[..], &again(B)].concat())).await;
    assert_eq!(repeated(&door), 0);
}

#[tokio::test]
async fn another_caller_never_counts() {
    let door = Door::to(Provider::start().await).await;
    door.post(MESSAGES, &body(&lost_then(&[]))).await;
    let history = body(&[&[go()][..], &again(B)].concat());
    let fields = [
        ("x-api-key", "sk-two"),
        ("authorization", "Bearer sk-two"),
        ("x-antiphon-session", "one"),
    ];
    let answer = door.app.ask(post_with(MESSAGES, &fields, history.as_bytes())).await;
    assert_eq!((answer.status(), repeated(&door)), (200, 0));
    // The same history of the caller itself, in another conversation.
    door.post(MESSAGES, &history).await;
    assert_eq!(repeated(&door), 1);
}

#[tokio::test]
async fn a_refused_request_leaves_no_trace() {
    let door = Door::to(Provider::start().await).await;
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
    door.provider.reply(Reply::Status(400, error));
    assert_eq!(door.post(MESSAGES, &body(&lost_then(&[]))).await.status, 400);
    door.post(MESSAGES, &body(&[&[go()][..], &again(B)].concat())).await;
    assert_eq!(repeated(&door), 0);
}

/// Nobody waited for the call any more when the lane went on without it: the reason of the loss is another one.
#[tokio::test]
async fn a_call_that_nobody_waited_for_counts_as_detached() {
    let provider = Provider::start().await;
    let (shared, app) = before(provider.address()).start_shared().await;
    let post = async |messages: &[String]| {
        let fields = [("x-api-key", "sk-one"), ("x-antiphon-session", "one")];
        let answer = app.ask(post_with(MESSAGES, &fields, body(messages).as_bytes())).await;
        assert_eq!(answer.status(), 200);
    };
    provider.reply(Reply::call(A, "f", json!({})));
    post(&[go()]).await;
    // Longer than a lane may be silent.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    tokio::time::resume();
    let lost = lost_then(&[]);
    post(&lost).await;
    post(&[&lost[..], &again(B)].concat()).await;
    let page = app.telemetry.encode_metrics();
    let line = "antiphon_calls_repeated_total{first=\"detached\",tier=\"one_way\"} 1";
    assert!(page.contains(line), "{page}");
    let router = AdminService::new(admin_of(&shared, Readiness::new()));
    let (status, _, text) = admin_answer(
        &router,
        get("/admin/v1/sessions", &[("authorization", "Bearer the token")]),
    )
    .await;
    assert_eq!(status, 200, "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    let repeated: Vec<_> = list["latest"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| &lane["repeated_calls"])
        .collect();
    assert_eq!(repeated, [1], "{text}");
}

fn shown(key: u8, intent: u8, loss: Option<LossKind>) -> ShownCall {
    ShownCall {
        key: [key; 32],
        intent: [intent; 32],
        tier: Tier::Read,
        loss,
        is_in_last_turn: true,
    }
}

fn count(table: &SessionTable, caller: &Caller, calls: &[ShownCall], now: Instant) -> Vec<RepeatedCall> {
    table.note_shown_calls(caller, None, calls, now)
}

const ONE: Caller = Caller::of_account(antiphon::auth::Principal::from_bytes([1; 32]));
const LOST: Option<LossKind> = Some(LossKind::Detached);

#[test]
fn the_window_and_the_bounds_hold() {
    let caller = ONE;
    let began = antiphon::clock::now();
    let repeat = [RepeatedCall {
        first: LossKind::Detached,
        tier: Tier::Read,
    }];
    for (after, wanted) in [
        (REPEAT_WINDOW, &repeat[..]),
        (REPEAT_WINDOW + Duration::from_millis(1), &[][..]),
    ] {
        let table = SessionTable::new(SessionSettings::default());
        assert_eq!(count(&table, &caller, &[shown(1, 1, LOST)], began), []);
        // A request that shows the call again does not make it younger.
        let half = began + REPEAT_WINDOW / 2;
        assert_eq!(count(&table, &caller, &[shown(1, 1, LOST)], half), []);
        assert_eq!(count(&table, &caller, &[shown(2, 1, None)], began + after), wanted);
        assert!(!table.has_lost_calls(&caller));
    }
    // The oldest of too many is dropped.
    let table = SessionTable::new(SessionSettings::default());
    for key in 0..=u8::try_from(LOST_CALLS_MAX).unwrap() {
        assert_eq!(count(&table, &caller, &[shown(key, key, LOST)], began), []);
    }
    assert_eq!(count(&table, &caller, &[shown(200, 0, None)], began), []);
    assert_eq!(count(&table, &caller, &[shown(200, 1, None)], began), repeat);
    // Equal parallel calls are no repetitions of each other, however often they are shown.
    let table = SessionTable::new(SessionSettings::default());
    let twins = [shown(1, 1, LOST), shown(2, 1, LOST)];
    for _ in 0..2 {
        assert_eq!(count(&table, &caller, &twins, began), []);
    }
    // Callers without a credential are not told apart.
    let nobody = Caller::of_account(antiphon::auth::Principal::NONE);
    assert_eq!(count(&table, &nobody, &[shown(1, 1, LOST)], began), []);
    assert_eq!(count(&table, &nobody, &[shown(2, 1, None)], began), []);
}

#[test]
fn the_lane_shows_its_repetitions_and_its_unattended_calls() {
    let caller = ONE;
    let table = SessionTable::new(SessionSettings::default());
    let (lane, began) = (strong(&caller, "s"), antiphon::clock::now());
    note_request(&table, lane.id, &shows(1, &[], &[]), began);
    table.note_answer(
        &caller,
        asked(lane, 1),
        &emitted(&[("toolu_1", "f")]),
        AnswerEnd::Complete,
        None,
        began,
    );
    // The lane was silent for longer than its limit, and then went on without the result.
    let late = began + Duration::from_secs(6 * 60);
    let outline = shows(3, &["toolu_1"], &[]);
    let entered = table.enter_lane(lane.id, LaneNames::default(), request(&outline, true), late);
    assert_eq!(entered.unattended, [*blake3::hash(b"toolu_1").as_bytes()]);
    table.note_shown_calls(&caller, Some(lane.id), &[shown(1, 1, LOST)], late);
    assert_eq!(view(&table, lane.id, late).unwrap().repeats, 0);
    table.note_shown_calls(&caller, Some(lane.id), &[shown(2, 1, None)], late);
    assert_eq!(view(&table, lane.id, late).unwrap().repeats, 1);
}
