//! The worked sequences of the repair design, 9 to 13. `worked_sequences` has the first eight.

use antiphon::repair::Mode;
use serde_json::{Value, json};

use crate::{
    late::stories::{install, settles},
    support::{
        app::{before, post, post_with},
        binary::Process,
        door::{
            A, Door, MESSAGES, PLACEHOLDER, blocks, body, calls, go, hurry, list, placeholder, quote, result, said,
            text, user,
        },
        provider::{Provider, Reply},
    },
};

const STRIPPED: &str = "toolu01AbC9dE3fG7hJ2kL";

#[tokio::test]
async fn sequence_9_a_pinned_answer_is_found_for_the_stripped_id() {
    let mut door = Door::to(Provider::start().await).await;
    let (log, out) = hurry(calls(&[A]));
    door.assert_sent(&log, "placeholder=1", 1, &out).await;
    let late = [said("waiting"), blocks(&[result(STRIPPED, "REAL"), text("go on")])];
    let log = [vec![go(), calls(&[STRIPPED]), user(r#""hurry""#)], late.to_vec()].concat();
    let mut out = log.clone();
    out[2] = blocks(&[placeholder(STRIPPED), text("hurry")]);
    out[4] = blocks(&[quote(STRIPPED, " (f)", "REAL"), text("go on")]);
    for _ in 0..2 {
        door.assert_repeats(&log, "quoted=1, placeholder=1", &out).await;
        door.restart().await;
    }
}

#[tokio::test]
async fn sequence_9_a_seen_result_is_restored_for_the_stripped_id() {
    let door = Door::to(Provider::start().await).await;
    door.assert_unchanged(&[go(), calls(&[A]), blocks(&[result(A, "REAL")])])
        .await;
    let log = [go(), calls(&[STRIPPED]), user(r#""hurry""#)];
    let mut out = log.clone();
    out[2] = blocks(&[result(STRIPPED, "REAL"), text("hurry")]);
    door.assert_sent(&log, "restored=1", 1, &out).await;
}

const EMITTED: &str = "toolu_01AaBb9dE3fG7hJ2";
const BARE: &str = "toolu01AaBb9dE3fG7hJ2";

/// Returns the answers of a turn with these calls. Only `owner` has a real result.
fn answers(shown: &[&str], owner: Option<&str>) -> String {
    let answer = |id: &&str| {
        if Some(*id) == owner {
            result(id, "REAL")
        } else {
            placeholder(id)
        }
    };
    let answers: Vec<String> = shown.iter().map(answer).chain([text("hurry")]).collect();
    blocks(&answers)
}

/// A service posts a result for the emitted id. The client shows these calls, and only `owner` gets the result.
async fn posted(shown: &[&str], owner: Option<&str>) {
    let provider = Provider::start().await;
    let process = install(&provider).start().await;
    send(&provider, &process, &[user(r#""hello""#)]).await;
    provider.reply(call(EMITTED));
    send(&provider, &process, &[go()]).await;
    settles(&process, EMITTED, &json!("REAL")).await;
    let log = [go(), reads(shown), user(r#""hurry""#)];
    let wanted = [go(), reads(shown), answers(shown, owner)].join(",");
    for _ in 0..2 {
        let (repair, up) = send(&provider, &process, &log).await;
        assert_eq!(list(&up), wanted, "{repair}");
    }
}

/// As [`posted`], but the client itself brought the result once, for the emitted id.
async fn brought(shown: &[&str], owner: Option<&str>) {
    let door = Door::to(Provider::start().await).await;
    door.assert_unchanged(&[go(), calls(&[EMITTED]), blocks(&[result(EMITTED, "REAL")])])
        .await;
    let log = [go(), calls(shown), user(r#""hurry""#)];
    let sent = door.post(MESSAGES, &body(&log)).await;
    let wanted = [go(), calls(shown), answers(shown, owner)].join(",");
    assert_eq!(sent.messages(), wanted, "{}", sent.repair);
}

#[tokio::test]
async fn sequence_9_a_posted_result_goes_to_the_stripped_id() {
    posted(&[EMITTED], Some(EMITTED)).await;
    posted(&[BARE], Some(BARE)).await;
}

#[tokio::test]
async fn sequence_9_a_posted_result_goes_to_the_exact_id_first() {
    posted(&[BARE, EMITTED], Some(EMITTED)).await;
    posted(&[EMITTED, BARE], Some(EMITTED)).await;
}

#[tokio::test]
async fn sequence_9_an_ambiguous_posted_result_is_not_restored() {
    posted(&[BARE, "toolu_01_AaBb9dE3fG7hJ2"], None).await;
}

#[tokio::test]
async fn sequence_9_a_brought_result_goes_to_the_exact_id_first() {
    brought(&[EMITTED, BARE], Some(EMITTED)).await;
    brought(&[BARE, EMITTED], Some(EMITTED)).await;
}

#[tokio::test]
async fn sequence_9_an_ambiguous_brought_result_is_not_restored() {
    brought(&[BARE, "toolu_01_AaBb9dE3fG7hJ2"], None).await;
}

const ANN: &[(&str, &str)] = &[("x-api-key", "sk-ann"), ("x-antiphon-session", "one")];

/// Returns the repair header and the body upstream.
async fn send(provider: &Provider, process: &Process, messages: &[String]) -> (String, String) {
    let sent = process.ask(post_with(MESSAGES, ANN, body(messages).as_bytes())).await;
    assert_eq!(sent.status(), 200, "{}", sent.text());
    let up = String::from_utf8(provider.last().body.to_vec()).unwrap();
    (sent.header("x-antiphon-repair").unwrap().to_owned(), up)
}

/// Starts a process in front of a provider that has answered the first message with the call `A`.
async fn start_with_call() -> (Provider, Process) {
    let provider = Provider::start().await;
    let process = install(&provider).start().await;
    send(&provider, &process, &[user(r#""hello""#)]).await;
    provider.reply(call(A));
    send(&provider, &process, &[go()]).await;
    (provider, process)
}

/// Returns a call of a durable tool.
fn call(id: &str) -> Reply {
    Reply::call(id, "read", json!({}))
}

/// Returns a history entry with these calls.
fn reads(ids: &[&str]) -> String {
    calls(ids).replace(r#""name":"f""#, r#""name":"read""#)
}

#[tokio::test]
async fn sequence_10_a_continued_thread_with_a_single_result() {
    let door = Door::to(Provider::start().await).await;
    let body = r#"{"model":"m","max_tokens":9,"thread":{"type":"continue","previous_message_id":"msg_1"},
      "messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"r"}]}]}"#;
    let gone = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "thread",
        "details": {"error_code": "thread_already_continued"}}});
    for (status, repair) in [(200, "none"), (400, "none"), (529, "none")] {
        if status != 200 {
            door.provider.reply(Reply::Status(status, gone.clone()));
        }
        let sent = door.post(MESSAGES, body).await;
        assert_eq!(sent.notes(), (status, repair, 1), "{sent:#?}");
        assert_eq!(sent.up, [body]);
    }
}

const RESPONSES: &str = "/openai/v1/responses";

fn goes_on(from: &Value, input: &str) -> String {
    format!(r#"{{"model":"m","previous_response_id":{from},"input":{input}}}"#)
}

/// Returns a door whose server has an open call, and the id of that response.
async fn open_call() -> (Door, Value) {
    let door = Door::to(Provider::start().await).await;
    door.provider.reply(Reply::call("call_9Xk2LmQ7aB31", "f", json!({})));
    let asked = door.post(RESPONSES, r#"{"model":"m","input":"go"}"#).await;
    assert_eq!(asked.notes(), (200, "none", 1));
    let id = serde_json::from_str::<Value>(&asked.answer).unwrap()["id"].clone();
    (door, id)
}

#[tokio::test]
async fn sequence_11_an_open_call_at_the_server() {
    let (door, id) = open_call().await;
    let came = goes_on(&id, r#""x""#);
    let sent = door.post(RESPONSES, &came).await;
    assert_eq!(sent.notes(), (200, "placeholder=1", 2), "{sent:#?}");
    assert_eq!(sent.up[0], came);
    let output = format!(r#"{{"type":"function_call_output","call_id":"call_9Xk2LmQ7aB31","output":"{PLACEHOLDER}"}}"#);
    let words = r#"{"type":"message","role":"user","content":"x"}"#;
    assert_eq!(sent.up[1], goes_on(&id, &format!("[{output},{words}]")));
    // The call is answered, so the next request is sent once and unchanged.
    let next = serde_json::from_str::<Value>(&sent.answer).unwrap()["id"].clone();
    let came = goes_on(&next, r#""y""#);
    let sent = door.post(RESPONSES, &came).await;
    assert_eq!(sent.notes(), (200, "none", 1), "{sent:#?}");
    assert_eq!(sent.up, [came]);
}

#[tokio::test]
async fn sequence_11_the_same_request_again_gives_the_same_bytes() {
    let (mut door, id) = open_call().await;
    let came = goes_on(&id, r#""x""#);
    let first = door.post(RESPONSES, &came).await;
    for restarts in [false, true] {
        if restarts {
            door.restart().await;
        }
        let again = door.post(RESPONSES, &came).await;
        assert_eq!(
            (again.status, again.repair.as_str()),
            (200, "placeholder=1"),
            "{again:#?}"
        );
        assert_eq!(again.up.last(), first.up.last());
    }
}

/// The learned fact holds: the second request needs no refusal.
#[tokio::test]
async fn sequence_11_the_same_request_again_is_sent_once() {
    let (door, id) = open_call().await;
    let came = goes_on(&id, r#""x""#);
    let first = door.post(RESPONSES, &came).await;
    let again = door.post(RESPONSES, &came).await;
    assert_eq!(again.up, first.up[1..]);
}

#[tokio::test]
async fn sequence_11_a_result_that_comes_later_is_quoted() {
    let (door, id) = open_call().await;
    let sent = door.post(RESPONSES, &goes_on(&id, r#""x""#)).await;
    let next = serde_json::from_str::<Value>(&sent.answer).unwrap()["id"].clone();
    let late = r#"[{"type":"function_call_output","call_id":"call_9Xk2LmQ7aB31","output":"REAL"},{"role":"user","content":"y"}]"#;
    let sent = door.post(RESPONSES, &goes_on(&next, late)).await;
    assert_eq!((sent.status, sent.repair.as_str()), (200, "quoted=1"), "{sent:#?}");
    let up = sent.up.last().unwrap();
    assert!(
        !up.contains("function_call_output") && up.contains("found outside its place"),
        "{up}"
    );
}

/// The client may still answer the call itself from the response that left it open. That is another branch.
#[tokio::test]
async fn sequence_11_the_real_result_in_another_branch_is_sent_unchanged() {
    let (door, id) = open_call().await;
    door.post(RESPONSES, &goes_on(&id, r#""x""#)).await;
    let real = r#"[{"type":"function_call_output","call_id":"call_9Xk2LmQ7aB31","output":"REAL"}]"#;
    let came = goes_on(&id, real);
    let sent = door.post(RESPONSES, &came).await;
    assert_eq!(sent.notes(), (200, "none", 1), "{sent:#?}");
    assert_eq!(sent.up, [came]);
}

/// A conversation id continues to grow. Once the call is answered there, nothing is due.
#[tokio::test]
async fn sequence_11_an_answered_conversation_needs_no_placeholder() {
    let door = Door::to(Provider::start().await).await;
    let missing = json!({"error": {"message": "No tool output found for function call call_9Xk2LmQ7aB31.",
        "type": "invalid_request_error", "param": "input", "code": null}});
    let came = r#"{"model":"m","previous_response_id":null,"conversation":"conv_1","input":"x"}"#;
    door.provider.reply(Reply::Status(400, missing));
    door.provider.reply(Reply::Text("fine".into()));
    let sent = door.post(RESPONSES, came).await;
    assert_eq!(sent.notes(), (200, "placeholder=1", 2), "{sent:#?}");
    door.provider.reply(Reply::Text("fine".into()));
    let sent = door.post(RESPONSES, came).await;
    assert_eq!(sent.notes(), (200, "none", 1), "{sent:#?}");
    assert_eq!(sent.up, [came]);
}

/// If the provider refuses the remembered answer, the request is resent as it came.
#[tokio::test]
async fn sequence_11_a_refused_answer_is_left_out() {
    let (door, id) = open_call().await;
    let came = goes_on(&id, r#""x""#);
    door.post(RESPONSES, &came).await;
    let message = "No tool call found for function call output with call_id call_9Xk2LmQ7aB31.";
    door.provider.reply(Reply::Status(
        400,
        json!({"error": {"message": message, "type": "invalid_request_error", "param": "input", "code": null}}),
    ));
    let sent = door.post(RESPONSES, &came).await;
    assert_eq!(sent.up.last(), Some(&came), "{sent:#?}");
}

const SUMMARY: &str = r#""CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Your task is to create a detailed summary: an <analysis> block followed by a <summary> block""#;

#[tokio::test]
async fn sequence_12_a_compaction_reads_rows_and_writes_none() {
    const B: &str = "toolu_01BcD8eF4gH6jK3lM";
    let mut door = Door::to(Provider::start().await).await;
    let (log, out) = hurry(calls(&[A]));
    door.assert_sent(&log, "placeholder=1", 1, &out).await;
    // The row of A is used although its result has come. B gets a placeholder for this request only.
    let late = blocks(&[result(A, "REAL"), text("go on")]);
    let more = [said("waiting"), late, calls(&[B])];
    let quoted = blocks(&[quote(A, " (f)", "REAL"), text("go on")]);
    let sees = [said("waiting"), quoted, calls(&[B])];
    let (log, out) = ([&log[..], &more].concat(), [&out[..], &sees].concat());
    let summary = SUMMARY.trim_matches('"');
    for _ in 0..2 {
        let asks = [&log[..], &[user(SUMMARY)]].concat();
        let sent = door.post(MESSAGES, &body(&asks)).await;
        assert_eq!(sent.notes(), (200, "quoted=1, placeholder=2", 1), "{sent:#?}");
        let tail = blocks(&[placeholder(B), text(summary)]);
        assert_eq!(sent.messages(), [&out[..], &[tail]].concat().join(","));
        door.restart().await;
    }
    // So the late result of B is still accepted as its own.
    let rest = [user(r#""again""#), said("hm"), blocks(&[result(B, "2"), text("so")])];
    let own = [
        blocks(&[result(B, "2"), text("again")]),
        said("hm"),
        blocks(&[text("so")]),
    ];
    let (log, out) = ([&log[..], &rest].concat(), [&out[..], &own].concat());
    door.assert_sent(&log, "moved=1, quoted=1, placeholder=1", 1, &out)
        .await;
}

#[tokio::test]
async fn sequence_12_a_compaction_gets_no_late_result() {
    let (provider, process) = start_with_call().await;
    let send = async |messages: &[String]| send(&provider, &process, messages).await;
    let (mut log, mut out) = hurry(reads(&[A]));
    assert_eq!(send(&log).await.0, "placeholder=1");
    settles(&process, A, &json!("REAL")).await;
    log.push(said("waiting"));
    out.push(said("waiting"));
    for _ in 0..2 {
        let (repair, up) = send(&[&log[..], &[user(SUMMARY)]].concat()).await;
        let wanted = [&out[..], &[user(SUMMARY)]].concat().join(",");
        assert_eq!((repair.as_str(), list(&up)), ("placeholder=1", &*wanted));
    }
    let (repair, up) = send(&[&log[..], &[user(r#""news?""#)]].concat()).await;
    assert_eq!(repair, "placeholder=1, appended=1");
    assert!(
        list(&up).starts_with(&out.join(",")) && up.matches("REAL").count() == 1,
        "{up}"
    );
}

/// The header of a resend names the late results that the body still contains.
#[tokio::test]
async fn a_resend_reports_its_late_results() {
    let (provider, process) = start_with_call().await;
    let send = async |messages: &[String]| send(&provider, &process, messages).await;
    let mut log = vec![
        go(),
        reads(&[A]).replace("}]}", r#"},{"type":"text","text":"soon"}]}"#),
        user(r#""hurry""#),
    ];
    assert_eq!(send(&log).await.0, "placeholder=1");
    settles(&process, A, &json!("REAL")).await;
    log.extend([said("waiting"), user(r#""news?""#)]);
    // The provider objects to the text after the call.
    let message = format!("messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {A}");
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    provider.reply(Reply::Status(400, error));
    let (repair, up) = send(&log).await;
    assert_eq!(up.matches("REAL").count(), 1, "{up}");
    assert_eq!(repair, "placeholder=1, rearranged=1, appended=1");
}

#[tokio::test]
async fn sequence_13_one_entry_of_a_batch_is_broken() {
    let provider = Provider::start().await;
    let healthy = r#"{"model":"m","max_tokens":9,"messages":[ {"role":"user","content":"hi"} ]}"#;
    let (log, out) = hurry(calls(&[A]));
    let batch = |messages: &[String]| {
        let broken = format!(r#"{{"model":"m","max_tokens":9,"messages":[{}]}}"#, messages.join(","));
        let entry = |id: &str, params: &str| format!(r#"{{"custom_id":"{id}","params":{params}}}"#);
        let entries = [entry("a", healthy), entry("b", &broken), entry("c", healthy)];
        format!(r#"{{"requests": [{}]}}"#, entries.join(", "))
    };
    let path = "/anthropic/v1/messages/batches";
    let app = before(provider.address()).start().await;
    for _ in 0..2 {
        let sent = app.ask(post(path, &batch(&log))).await;
        assert_eq!(
            (sent.status(), sent.header("x-antiphon-repair")),
            (200, Some("placeholder=1"))
        );
        assert_eq!(provider.last().body, batch(&out));
    }
    assert_eq!(provider.seen().len(), 2);
    let strict = before(provider.address()).mode(Mode::Strict).start().await;
    let sent = strict.ask(post(path, &batch(&log))).await;
    assert_eq!((sent.status(), provider.seen().len()), (400, 2));
    let place = "requests[1].params.messages[1].content[0]";
    assert!(sent.text().contains(place), "{}", sent.text());
    assert!(!sent.text().contains("requests[0]") && !sent.text().contains("requests[2]"));
}
