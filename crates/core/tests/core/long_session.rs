//! A long session: 465 messages, two tool loops in one log, an orphan deep inside, and a result 24 messages late. Three
//! requests grow from it.
//!
//! The shape of <https://github.com/github/copilot-cli/issues/3183>.

use antiphon_core::repair::{RepairPolicy, Repaired};
use antiphon_core::wire::{Format, Wire};
use bytes::Bytes;
use serde_json::Value;

use crate::support::{
    bodies::{Block, CallKind, Conversation, Message, Role, Said, Style, object, text},
    judge,
};

/// Number of messages when the session breaks.
const LENGTH: usize = 465;
/// Round whose result is lost.
const LOST: usize = 61;
/// Round whose result comes 24 messages late.
const LATE: usize = 83;
/// Rounds in which a second loop writes into the same log.
const CROSSED: std::ops::Range<usize> = 40..52;

fn call(name: &str, round: usize) -> Block {
    let input = object([
        ("path", text(&format!("input-{name}-{round}"))),
        ("note", text("\"tool_use_id\":\"x\"")),
    ]);
    Block::Call {
        id: format!("toolu_{name}_{round:04}"),
        name: "read_file",
        input,
        kind: CallKind::Function,
    }
}

fn result(name: &str, round: usize) -> Block {
    let said = Said::Text(format!("result-{name}-{round} of the tool\nwith a second line"));
    Block::Result {
        id: Some(format!("toolu_{name}_{round:04}")),
        name: "read_file",
        kind: CallKind::Function,
        said,
        is_error: false,
    }
}

/// Returns one round of a loop: the message of the call and that of the result.
fn round(talk: &Conversation, name: &str, round: usize) -> [Message; 2] {
    let words = Block::Text(format!("assistant-{name}-{round}"), false);
    let asks = Message {
        plain: true,
        ..Message::new(Role::Assistant, vec![words, call(name, round)])
    };
    [asks, Message::new(talk.answering(), vec![result(name, round)])]
}

/// Returns the session as the client wrote it.
fn session(format: Format) -> Conversation {
    let (wire, model) = match format {
        Format::Anthropic => (Wire::ANTHROPIC, "claude-opus-4-5"),
        Format::OpenAiChat => (Wire::OPENAI_CHAT, "gpt-4.1"),
        Format::OpenAiResponses => (Wire::OPENAI_RESPONSES, "gpt-5"),
        Format::Gemini => (Wire::GEMINI, "gemini-3-pro-preview"),
    };
    let mut talk = Conversation {
        wire,
        model,
        messages: Vec::new(),
        style: Style {
            ids: true,
            ..Style::default()
        },
        tags: 0,
        seed: 0,
        held: false,
    };
    talk.messages.push(Message::say(Role::User, "user-begin"));
    let mut late = None;
    for number in 0.. {
        if talk.messages.len() + 4 > LENGTH {
            break;
        }
        let [asks, answers] = round(&talk, "main", number);
        talk.messages.push(asks);
        if CROSSED.contains(&number) {
            // The second loop speaks and calls before the first one's result is written, and answers after it.
            let [other, answered] = round(&talk, "other", number);
            talk.messages
                .push(Message::say(Role::User, format!("user-other-{number}")));
            talk.messages.extend([other, answers, answered]);
            continue;
        }
        if number == LATE {
            talk.messages.push(Message::say(Role::User, "user-hurry"));
            late = Some((talk.messages.len() + 24, answers));
        } else if number == LOST {
            talk.messages
                .push(Message::say(Role::User, "user-resumed after a hard kill"));
        } else {
            talk.messages.push(answers);
        }
        if number % 10 == 9 {
            talk.messages
                .push(Message::say(Role::Assistant, format!("assistant-done-{number}")));
            talk.messages
                .push(Message::say(Role::User, format!("user-next-{number}")));
        }
    }
    let (at, answers) = late.expect("the late result");
    talk.messages.insert(at, answers);
    while talk.messages.len() < LENGTH {
        let last = talk.messages.last().map(|message| message.role);
        let role = if last == Some(Role::Assistant) {
            Role::User
        } else {
            Role::Assistant
        };
        let number = talk.messages.len();
        talk.messages.push(Message::say(role, format!("filler-{number}")));
    }
    talk
}

/// Returns the session one exchange later.
fn later(talk: &Conversation, number: usize) -> Conversation {
    let mut talk = talk.clone();
    if talk
        .messages
        .last()
        .is_some_and(|message| message.role == Role::Assistant)
    {
        talk.messages
            .push(Message::say(Role::User, format!("user-opening-{number}")));
    }
    let [asks, answers] = round(&talk, "new", number);
    talk.messages.extend([asks, answers]);
    talk.messages
        .push(Message::say(Role::Assistant, format!("assistant-new-{number}")));
    talk.messages
        .push(Message::say(Role::User, format!("user-new-{number}")));
    talk
}

fn mend(body: &[u8], wire: Wire) -> Repaired {
    antiphon_core::repair(&Bytes::copy_from_slice(body), wire, &RepairPolicy::default()).expect("a readable body")
}

/// The generated session has exactly the intended damage.
#[test]
fn the_session_has_the_intended_damage() {
    for format in Format::ALL {
        let talk = session(format);
        assert_eq!(talk.messages.len(), LENGTH);
        let calls = talk.messages.iter().flat_map(Message::calls).count();
        let answers = talk.messages.iter().filter(|message| message.answers()).count();
        assert_eq!(calls, answers + 1, "one result was lost");
        let id = format!("toolu_main_{LATE:04}");
        let at = |wanted: &dyn Fn(&Message) -> bool| talk.messages.iter().position(wanted).expect("it is there");
        let asked = at(&|message| message.calls().any(|call| call == id));
        let answered = at(&|message| message.blocks.contains(&result("main", LATE)));
        assert_eq!(answered - asked, 26, "24 messages late");
        let value: Value = serde_json::from_slice(&talk.bytes()).expect("JSON");
        let refusal = judge::of(talk.wire)(&value).expect_err("a broken session");
        assert!(refusal.ids[0].starts_with("toolu_main_"), "{refusal:?}");
    }
}

/// Sends three requests, each grown from the one before: all are accepted, nothing is lost, and the prefix stays.
fn survives(format: Format) {
    let mut talk = session(format);
    let mut sent: Vec<(String, Value)> = Vec::new();
    for request in 0..3 {
        let body = talk.bytes();
        let before: Value = serde_json::from_slice(&body).expect("JSON");
        let judge = judge::of(talk.wire);
        judge(&before).expect_err("a broken session");
        let mended = mend(&body, talk.wire);
        let out = mended.body.to_vec();
        let after: Value = serde_json::from_slice(&out).expect("JSON");
        judge(&after).unwrap_or_else(|refusal| panic!("request {request}: {refusal:?}"));
        assert!(
            mend(&out, talk.wire).body.is_original(),
            "request {request}: not stable"
        );
        assert_eq!(judge::lost(&before, &after), [], "request {request}");
        let report = &mended.report;
        assert_eq!((report.unrepairable, report.deferred), (0, 0), "request {request}");
        let now = judge::blocks(&after);
        let same = sent.iter().zip(&now).take_while(|(a, b)| a == b).count();
        assert_eq!(
            same,
            sent.len(),
            "request {request} differs from the one before at block {same}"
        );
        sent = now;
        talk = later(&talk, request);
    }
}

#[test]
fn a_long_messages_session_survives() {
    survives(Format::Anthropic);
}

#[test]
fn a_long_chat_session_survives() {
    survives(Format::OpenAiChat);
}

#[test]
fn a_long_responses_session_survives() {
    survives(Format::OpenAiResponses);
}

#[test]
fn a_long_gemini_session_survives() {
    survives(Format::Gemini);
}

/// Returns the id and the text of a result.
fn answer(block: &Value) -> Option<(&str, &str)> {
    let pointers = [
        ("/tool_use_id", "/content"),
        ("/tool_call_id", "/content"),
        ("/call_id", "/output"),
        ("/functionResponse/id", "/functionResponse/response/result"),
    ];
    let (id, words) = pointers.iter().find(|(id, words)| {
        // A Responses call has a `call_id` too, but no output.
        block.pointer(id).is_some() && (*id != "/call_id" || block.pointer(words).is_some())
    })?;
    let words = block.pointer(words).and_then(Value::as_str).unwrap_or_default();
    Some((block.pointer(id)?.as_str()?, words))
}

/// One result is a placeholder. All others are the client's own, each under the id of its call.
#[test]
fn real_results_answer_their_calls() {
    for format in Format::ALL {
        let talk = session(format);
        let out = mend(&talk.bytes(), talk.wire).body.to_vec();
        let after: Value = serde_json::from_slice(&out).expect("JSON");
        judge::of(talk.wire)(&after).expect("a mended session");
        let calls = talk.messages.iter().flat_map(Message::calls).count();
        let mut real = 0;
        for (_, block) in judge::blocks(&after) {
            let Some((id, said)) = answer(&block) else { continue };
            let (_, name) = id.split_once('_').expect("an id of ours");
            let (name, number) = name.split_once('_').expect("a name and a number");
            let number: usize = number.parse().expect("a number");
            if said.starts_with(&format!("result-{name}-{number} ")) {
                real += 1;
            } else {
                assert_eq!((name, number), ("main", LOST), "{format:?}: {id} answered by {said}");
            }
        }
        assert_eq!(real, calls - 1, "{format:?}");
    }
}
