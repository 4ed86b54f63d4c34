//! The worked sequences of the repair design, 1 to 8, through the whole proxy: exact bytes upstream, number of sends,
//! and stability. `worked_sequences_more` has the rest.

use serde_json::json;

use crate::{
    ledger::switchable::SwitchableLedger,
    support::{
        door::{
            A, Door, MESSAGES, blocks, body, calls, go, hurry, list, model, placeholder, quote, result, said, text,
            user,
        },
        provider::{Provider, Reply},
    },
};

const B: &str = "toolu_01BcD8eF4gH6jK3lM";
const C: &str = "toolu_01CdE7fG5hJ5kL4mN";

fn asks(id: &str) -> Reply {
    Reply::call(id, "f", json!({}))
}

/// Returns the model's answer to a history that needs one send.
async fn answered(door: &Door, log: &[String], repair: &str) -> String {
    let sent = door.post(MESSAGES, &body(log)).await;
    assert_eq!(sent.notes(), (200, repair, 1), "{sent:#?}");
    model(&sent.content)
}

#[tokio::test]
async fn sequence_1_interrupted_call_and_user_text() {
    let mut door = Door::to(Provider::start().await).await;
    let (log, out) = hurry(calls(&[A]));
    door.provider.reply(Reply::Status(
        529,
        json!({"type": "error", "error": {"type": "overloaded_error"}}),
    ));
    let refused = door.post(MESSAGES, &body(&log)).await;
    assert_eq!(refused.notes(), (529, "placeholder=1", 1));
    assert_eq!(refused.messages(), out.join(","));
    let taken = door.assert_sent(&log, "placeholder=1", 1, &out).await;
    assert_eq!(taken.up, refused.up, "after 529 the same bytes");
    door.restart().await;
    door.assert_repeats(&log, "placeholder=1", &out).await;
}

/// Plays up to the late result. Returns the history with it, and the messages upstream while the gap keeps its
/// placeholder.
async fn late_result(door: &Door) -> (Vec<String>, Vec<String>) {
    door.provider.reply(asks(A));
    let (mut log, mut out) = hurry(answered(door, &[go()], "none").await);
    door.provider.reply(Reply::Text("waiting".to_owned()));
    log.push(answered(door, &log, "placeholder=1").await);
    out.push(log[3].clone());
    log.push(blocks(&[result(A, "REAL"), text("go on")]));
    out.push(blocks(&[quote(A, " (f)", "REAL"), text("go on")]));
    (log, out)
}

#[tokio::test]
async fn sequence_2_late_result_after_the_models_turn() {
    for binds in [false, true] {
        let provider = if binds {
            Provider::binding().await
        } else {
            Provider::start().await
        };
        let mut door = Door::to(provider).await;
        let (log, out) = late_result(&door).await;
        assert_eq!(log[3].contains("thinking"), binds);
        door.assert_sent(&log, "quoted=1, placeholder=1", 1, &out).await;
        door.restart().await;
        door.assert_repeats(&log, "quoted=1, placeholder=1", &out).await;
    }
}

fn moved(log: &[String]) -> Vec<String> {
    let mut out = log.to_vec();
    out[2] = blocks(&[result(A, "REAL"), text("hurry")]);
    out[4] = blocks(&[text("go on")]);
    out
}

#[tokio::test]
async fn sequence_2b_lost_ledger_with_bound_thinking() {
    let mut door = Door::to(Provider::binding().await).await;
    let (log, out) = late_result(&door).await;
    door.lose_ledger().await;
    let sent = door.assert_sent(&log, "quoted=1, placeholder=1", 2, &out).await;
    assert_eq!(list(&sent.up[0]), moved(&log).join(","), "first it is moved");
    assert!(!sent.up[1].contains("block_binding"), "no setting");
    assert_eq!(door.provider.seen().iter().filter(|seen| seen.status == 400).count(), 1);
}

/// A placeholder that replaced a result after a refusal is pinned like any other, so it survives a restart.
#[tokio::test]
async fn sequence_2b_a_replacing_placeholder_is_pinned() {
    let mut door = Door::to(Provider::binding().await).await;
    let (log, out) = late_result(&door).await;
    door.lose_ledger().await;
    door.assert_sent(&log, "quoted=1, placeholder=1", 2, &out).await;
    door.restart().await;
    door.assert_repeats(&log, "quoted=1, placeholder=1", &out).await;
}

#[tokio::test]
async fn sequence_2b_lost_ledger_without_bound_thinking() {
    let mut door = Door::to(Provider::start().await).await;
    let (log, _) = late_result(&door).await;
    door.lose_ledger().await;
    door.assert_sent(&log, "moved=1", 1, &moved(&log)).await;
    door.restart().await;
    door.assert_repeats(&log, "moved=1", &moved(&log)).await;
}

/// Returns the history in which the client itself has filled the gap.
async fn filled(door: &Door) -> Vec<String> {
    let (mut log, _) = late_result(door).await;
    log[2] = blocks(&[result(A, "REAL"), text("hurry")]);
    log[4] = user(r#""next""#);
    log
}

#[tokio::test]
async fn sequence_3_the_client_fills_the_gap_itself() {
    let mut door = Door::to(Provider::start().await).await;
    let log = filled(&door).await;
    door.assert_unchanged(&log).await;
    door.restart().await;
    door.assert_unchanged(&log).await;
}

#[tokio::test]
async fn sequence_3_with_bound_thinking_the_placeholder_returns() {
    let door = Door::to(Provider::binding().await).await;
    let log = filled(&door).await;
    let sent = door.post(MESSAGES, &body(&log)).await;
    assert_eq!((sent.status, sent.up.len()), (200, 2), "{sent:#?}");
    assert_eq!(list(&sent.up[0]), log.join(","), "first as it came");
    let mut kept = log.clone();
    kept[2] = blocks(&[placeholder(A), text("hurry")]);
    let out = sent.messages();
    assert!(
        out.starts_with(&kept[..4].join(",")),
        "the gap keeps what stood there: {out}"
    );
    let tail = &out[kept[..4].join(",").len()..];
    assert!(tail.find("next") < tail.find("REAL"), "at the tail: {tail}");
    assert_eq!(
        (out.matches("REAL").count(), sent.up[1].contains("block_binding")),
        (1, false)
    );
    // The text stays there, and later requests need one send.
    for tail in [vec![], vec![said("fine"), user(r#""more""#)]] {
        let again = door.post(MESSAGES, &body(&[&log[..], &tail].concat())).await;
        assert_eq!((again.status, again.up.len()), (200, 1), "{again:#?}");
        let wanted = [&[out.to_owned()], &tail[..]].concat().join(",");
        assert_eq!(again.messages(), wanted);
    }
}

#[tokio::test]
async fn sequence_4_synthetic_text_then_the_real_output() {
    let synthetic = "[Tool execution was interrupted]";
    let log = |text: &str| vec![go(), calls(&[A]), blocks(&[result(A, text)])];
    let door = Door::to(Provider::start().await).await;
    for text in [synthetic, "REAL"] {
        door.assert_unchanged(&log(text)).await;
    }
    // The synthetic text settles no call.
    let door = Door::to(Provider::start().await).await;
    door.assert_unchanged(&log(synthetic)).await;
    let (log, out) = hurry(calls(&[A]));
    door.assert_sent(&log, "placeholder=1", 1, &out).await;
}

fn forks(door: &Door) -> String {
    let page = door.app.telemetry.encode_metrics();
    let mut lines = page.lines();
    let found = lines.find_map(|line| line.strip_prefix("antiphon_session_forks_total "));
    found.expect("the counter").to_owned()
}

#[tokio::test]
async fn sequence_5_killed_and_resumed_in_two_processes() {
    let door = Door::to(Provider::binding().await).await;
    door.provider.reply(asks(A));
    let asked = answered(&door, &[go()], "none").await;
    let (mut d, out) = hurry(asked.clone());
    let mut e = vec![go(), asked, blocks(&[result(A, "REAL"), text("hurry")])];
    // Each loop continues twice, in turns.
    for (round, wanted) in ["0", "1"].into_iter().enumerate() {
        for (name, log, repair) in [("d", &mut d, "placeholder=1"), ("e", &mut e, "none")] {
            let id = format!("toolu_01{name}{round}QrStUvWxYz");
            door.provider.reply(asks(&id));
            log.push(answered(&door, log, repair).await);
            log.push(blocks(&[result(&id, "done")]));
            let sent = door.post(MESSAGES, &body(log)).await;
            assert_eq!(sent.notes(), (200, repair, 1), "{name} {round}: {sent:#?}");
            let own = if name == "d" {
                [&out[..3], &log[3..]].concat()
            } else {
                log.clone()
            };
            assert_eq!(sent.messages(), own.join(","), "{name} {round}");
            if name == "d" {
                assert_eq!(forks(&door), wanted, "{name} {round}");
            }
        }
    }
    assert_eq!(forks(&door), "1");
    // The merged history is balanced, but its thinking has two prefixes.
    let merged = [&e[..], &d[3..]].concat();
    let sent = door.post(MESSAGES, &body(&merged)).await;
    assert_eq!(sent.status, 200, "{sent:#?}");
    assert_eq!(
        (sent.repair.as_str(), sent.messages()),
        ("unbound=1", &*merged.join(","))
    );
    assert!((2..=3).contains(&sent.up.len()) && sent.up.last().unwrap().contains("drop_block"));
    assert_eq!(forks(&door), "1");
}

#[tokio::test]
async fn sequence_6_parallel_calls_with_one_result() {
    let mut door = Door::to(Provider::start().await).await;
    let mut log = vec![go(), calls(&[A, B, C]), blocks(&[result(A, "1"), text("status?")])];
    let mut out = log.clone();
    out[2] = blocks(&[result(A, "1"), placeholder(B), placeholder(C), text("status?")]);
    door.assert_sent(&log, "placeholder=2", 1, &out).await;
    log.extend([said("two run"), blocks(&[result(B, "2"), result(C, "3"), text("ok")])]);
    let quotes = [quote(B, " (f)", "2"), quote(C, " (f)", "3"), text("ok")];
    out.extend([said("two run"), blocks(&quotes)]);
    door.assert_sent(&log, "quoted=2, placeholder=2", 1, &out).await;
    door.restart().await;
    door.assert_repeats(&log, "quoted=2, placeholder=2", &out).await;
}

#[tokio::test]
async fn sequence_7_of_two_replicas_the_first_row_wins() {
    let (log, placed) = hurry(calls(&[A]));
    let mut restored = log.clone();
    restored[2] = blocks(&[result(A, "REAL"), text("hurry")]);
    // One of the two replicas has seen the result and would restore it.
    for (knows_first, out, repair) in [(false, placed, "placeholder=1"), (true, restored, "restored=1")] {
        let door = Door::over(Provider::start().await, SwitchableLedger::shared(false)).await;
        let other = door.replica().await;
        let (first, second) = if knows_first {
            (&other, &door.app)
        } else {
            (&door.app, &other)
        };
        let seen = body(&[go(), calls(&[A]), blocks(&[result(A, "REAL")])]);
        assert_eq!(door.via(&other, MESSAGES, &seen).await.notes(), (200, "none", 1));
        for app in [first, second, first, second] {
            let sent = door.via(app, MESSAGES, &body(&log)).await;
            assert_eq!(sent.notes(), (200, repair, 1), "{sent:#?}");
            assert_eq!(sent.messages(), out.join(","));
        }
    }
    // With concurrent requests, either may win, but both send the same bytes.
    let door = Door::over(Provider::start().await, SwitchableLedger::shared(false)).await;
    let other = door.replica().await;
    let seen = body(&[go(), calls(&[A]), blocks(&[result(A, "REAL")])]);
    door.via(&other, MESSAGES, &seen).await;
    let request = body(&log);
    tokio::join!(
        door.via(&door.app, MESSAGES, &request),
        door.via(&other, MESSAGES, &request)
    );
    let seen = door.provider.seen();
    let [.., one, two] = seen.as_slice() else { panic!() };
    assert_eq!(one.body, two.body);
}

#[tokio::test]
async fn sequence_8_a_repeated_id_and_one_late_result() {
    let mut door = Door::to(Provider::start().await).await;
    let id = "call_0";
    let mut log = vec![go(), calls(&[id]), user(r#""hm""#)];
    let mut out = vec![go(), calls(&[id]), blocks(&[placeholder(id), text("hm")])];
    door.assert_sent(&log, "placeholder=1", 1, &out).await;
    log.extend([calls(&[id]), user(r#""well""#)]);
    out.extend([calls(&[id]), blocks(&[placeholder(id), text("well")])]);
    door.assert_sent(&log, "placeholder=2", 1, &out).await;
    log.extend([said("waiting"), blocks(&[result(id, "REAL"), text("go on")])]);
    out.extend([said("waiting"), blocks(&[quote(id, " (f)", "REAL"), text("go on")])]);
    door.assert_sent(&log, "quoted=1, placeholder=2", 1, &out).await;
    door.restart().await;
    door.assert_repeats(&log, "quoted=1, placeholder=2", &out).await;
    // The same in a single request, with nothing known before.
    let door = Door::to(Provider::start().await).await;
    door.assert_sent(&log, "quoted=1, placeholder=2", 1, &out).await;
}
