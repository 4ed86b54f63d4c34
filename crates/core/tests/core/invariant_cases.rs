//! Cases of the invariant: rows of tables, each a history with what the guard says about it.

use antiphon_core::{
    Invariant,
    repair::Placeholder,
    wire::{Unreadable, Wire},
};

/// A history, the ids of its open calls, the messages that close it, and the faults that are left then.
struct Row {
    name: &'static str,
    wire: &'static str,
    history: &'static [&'static str],
    open: &'static [&'static str],
    closed_by: usize,
    left: &'static [&'static str],
}

const fn row(
    name: &'static str,
    wire: &'static str,
    history: &'static [&'static str],
    open: &'static [&'static str],
    closed_by: usize,
    left: &'static [&'static str],
) -> Row {
    Row {
        name,
        wire,
        history,
        open,
        closed_by,
        left,
    }
}

const USER: &str = r#"{"role":"user","content":"go"}"#;
const MODEL: &str = r#"{"role":"assistant","content":"so"}"#;
const A: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}"#;
const A_B: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]}"#;
const OF_A: &str = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}"#;
const CUT: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"{\"x"}]}"#;
const CHAT_A: &str =
    r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
const CHAT_A_B: &str = r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
const CHAT_OF_A: &str = r#"{"role":"tool","tool_call_id":"a","content":"1"}"#;
const ITEM_A: &str = r#"{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}"#;
const ITEM_B: &str = r#"{"type":"custom_tool_call","call_id":"b","name":"f","input":"x"}"#;
const OF_ITEM_A: &str = r#"{"type":"function_call_output","call_id":"a","output":"1"}"#;
const SHELL: &str = r#"{"type":"shell_call","call_id":"s","action":{"commands":["ls"]},"status":"completed"}"#;
const SCREEN: &str = r#"{"type":"computer_call","call_id":"c","id":"cu_1","action":{"type":"screenshot"}}"#;
const NAMED: &str = r#"{"type":"message","id":"msg_1","role":"assistant","content":[]}"#;
const G_USER: &str = r#"{"role":"user","parts":[{"text":"go"}]}"#;
const G_CALLS: &str =
    r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"f","args":{}}}]}"#;
const G_OF: &str = r#"{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"a":1}}},{"functionResponse":{"name":"f","response":{"a":2}}}]}"#;

const ROWS: &[Row] = &[
    row("nothing", "anthropic", &[], &[], 0, &[]),
    row("an abort", "anthropic", &[USER, A], &["a"], 1, &[]),
    row(
        "an abort with two calls",
        "anthropic",
        &[USER, A_B],
        &["a", "b"],
        1,
        &[],
    ),
    row("one of two results", "anthropic", &[USER, A_B, OF_A], &["b"], 1, &[]),
    row(
        "one message for all results",
        "anthropic-bedrock",
        &[USER, A_B, OF_A],
        &[],
        0,
        &["unanswered"],
    ),
    row(
        "the user spoke over it",
        "anthropic",
        &[USER, A, USER],
        &[],
        0,
        &["unanswered"],
    ),
    row(
        "long ago",
        "anthropic",
        &[USER, A, USER, MODEL, USER, MODEL, USER, MODEL],
        &[],
        0,
        &["unanswered"],
    ),
    row(
        "a result without its call",
        "anthropic",
        &[USER, MODEL, OF_A],
        &[],
        0,
        &["orphan"],
    ),
    row(
        "a second result",
        "anthropic",
        &[USER, A, OF_A, OF_A],
        &[],
        0,
        &["duplicate"],
    ),
    row("an id again", "anthropic", &[USER, A, OF_A, A], &["a"], 1, &[]),
    row("a cut input", "anthropic", &[USER, CUT], &["a"], 1, &["malformed_call"]),
    row("no user first", "anthropic", &[A, OF_A], &[], 0, &["headless"]),
    row("an abort", "openai-chat", &[USER, CHAT_A_B], &["a", "b"], 2, &[]),
    row(
        "one of two results",
        "openai-chat",
        &[USER, CHAT_A_B, CHAT_OF_A],
        &["b"],
        1,
        &[],
    ),
    row(
        "the user spoke over it",
        "openai-chat",
        &[USER, CHAT_A, USER, CHAT_A],
        &["a"],
        1,
        &["unanswered"],
    ),
    row(
        "a message before its call",
        "openai-chat",
        &[USER, CHAT_OF_A, CHAT_A],
        &[],
        0,
        &["misplaced"],
    ),
    row(
        "an abort",
        "openai-responses",
        &[USER, ITEM_A, ITEM_B],
        &["a", "b"],
        2,
        &[],
    ),
    row(
        "anywhere",
        "openai-responses",
        &[ITEM_A, USER, ITEM_B, MODEL, USER, MODEL],
        &["a", "b"],
        2,
        &[],
    ),
    row(
        "late",
        "openai-responses",
        &[ITEM_A, USER, MODEL, USER, MODEL, OF_ITEM_A, USER, MODEL],
        &[],
        0,
        &[],
    ),
    row(
        "before its call",
        "openai-responses",
        &[OF_ITEM_A, USER, MODEL, USER, MODEL, ITEM_A],
        &[],
        0,
        &[],
    ),
    row("its own form", "openai-responses", &[USER, SHELL], &["s"], 1, &[]),
    row(
        "a screenshot",
        "openai-responses",
        &[USER, SCREEN],
        &["c"],
        0,
        &["unanswerable"],
    ),
    row(
        "an item twice",
        "openai-responses",
        &[NAMED, USER, MODEL, USER, MODEL, USER, NAMED],
        &[],
        0,
        &["field"],
    ),
    row("an open end", "gemini", &[G_USER, G_CALLS], &["", ""], 1, &[]),
    row(
        "calls without ids",
        "gemini",
        &[G_USER, G_CALLS, G_OF, G_CALLS],
        &["", ""],
        1,
        &[],
    ),
];

#[test]
fn what_is_open_is_closed_and_the_rest_is_told() {
    for Row {
        name,
        wire,
        history,
        open,
        closed_by,
        left,
    } in ROWS
    {
        let name = format!("{wire}: {name}");
        let wire = wire.parse::<Wire>().unwrap();
        let mut invariant = Invariant::load(wire, *history).unwrap();
        let found = invariant.open_calls();
        assert_eq!(
            found.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(),
            *open,
            "{name}"
        );
        assert!(
            found.iter().all(|call| history[call.message].contains(&call.id)),
            "{name}"
        );
        assert!(open.is_empty() || invariant.before_persist().is_err(), "{name}");
        let closing = invariant.close(Placeholder::OutcomeUnknown);
        assert_eq!(closing.len(), *closed_by, "{name}: {closing:?}");
        let broken = invariant.before_persist().err();
        let codes = broken
            .iter()
            .flat_map(|broken| &broken.findings)
            .map(|finding| finding.kind.code());
        assert_eq!(codes.collect::<Vec<_>>(), *left, "{name}");
        assert!(invariant.close(Placeholder::OutcomeUnknown).is_empty(), "{name}");
        let whole = history.iter().map(|message| (*message).to_owned()).chain(closing);
        assert_eq!(
            Invariant::load(wire, whole).unwrap().before_persist().err(),
            broken,
            "{name}"
        );
    }
}

#[test]
fn what_is_no_message_of_the_format_is_refused() {
    let rows = [
        ("anthropic", "", Unreadable::NotJson),
        ("anthropic", r#"{"role":"user","content":"a"#, Unreadable::NotJson),
        ("anthropic", "[]", Unreadable::Shape),
        ("anthropic", r#"{"messages":[]}"#, Unreadable::Shape),
        ("anthropic", ITEM_A, Unreadable::Shape),
        ("anthropic", CHAT_A, Unreadable::OtherFormat),
        ("anthropic", G_CALLS, Unreadable::OtherFormat),
        ("openai-chat", A, Unreadable::OtherFormat),
        ("openai-chat", OF_A, Unreadable::OtherFormat),
        ("openai-chat", G_CALLS, Unreadable::OtherFormat),
        ("openai-chat", ITEM_A, Unreadable::Shape),
        ("openai-responses", CHAT_A, Unreadable::OtherFormat),
        ("openai-responses", CHAT_OF_A, Unreadable::OtherFormat),
        ("openai-responses", A, Unreadable::OtherFormat),
        ("openai-responses", G_CALLS, Unreadable::OtherFormat),
        ("openai-responses", r#"{"input":[]}"#, Unreadable::Shape),
        ("gemini", CHAT_A, Unreadable::OtherFormat),
        ("gemini", A, Unreadable::Shape),
        ("gemini", USER, Unreadable::Shape),
    ];
    for (wire, message, reason) in rows {
        let mut invariant = Invariant::new(wire.parse().unwrap());
        assert_eq!(invariant.observe(message.as_bytes()), Err(reason), "{wire}: {message}");
        // It is not noted.
        assert_eq!(invariant.before_persist(), Ok(()), "{wire}: {message}");
    }
    let array = Invariant::load_array(Wire::ANTHROPIC, br#"{"role":"user"}"#);
    assert_eq!(array.err(), Some(Unreadable::Shape));
}

#[test]
fn the_guard_keeps_no_text_and_little_memory() {
    let canary = "canary-of-a-conversation".repeat(400);
    let bytes = format!("{:?}", canary.as_bytes());
    let seen = |invariant: &Invariant| {
        let told = format!("{invariant:?}");
        let inside = bytes.trim_matches(['[', ']']);
        assert!(
            !told.contains(inside.get(..100).unwrap()) && !told.contains("canary"),
            "{told:.300}"
        );
        told.len()
    };
    let turn = [
        format!(r#"{{"role":"user","content":"{canary}"}}"#),
        format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"{canary}"}},{{"type":"tool_use","id":"a","name":"f","input":{{"{canary}":["{canary}"]}}}}]}}"#
        ),
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":[{{"type":"text","text":"{canary}"}}]}}]}}"#
        ),
    ];
    let few = seen(&Invariant::load(Wire::ANTHROPIC, turn.iter().cycle().take(30)).unwrap());
    let many = seen(&Invariant::load(Wire::ANTHROPIC, turn.iter().cycle().take(900)).unwrap());
    // The two may differ in the digits of indices.
    assert!(many < few + 200, "{few} bytes for 10 turns, {many} for 300");
    let broken = Invariant::load(Wire::ANTHROPIC, [&turn[0], &turn[1], &turn[0]])
        .unwrap()
        .before_persist();
    assert_eq!(
        broken.unwrap_err().to_string(),
        "the history has 1 fault: messages[1].content[1]: unanswered: the tool call has no result where one is due"
    );
}

#[test]
fn the_toolset_of_a_call_is_in_its_result() {
    let call =
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","toolset_name":"t","input":{}}]}"#;
    let mut invariant = Invariant::load(Wire::ANTHROPIC, [USER, call]).unwrap();
    let [result] = invariant.close(Placeholder::ReadInterrupted).try_into().unwrap();
    let text = Placeholder::ReadInterrupted.text();
    let due = format!(
        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","toolset_name":"t","content":"{text}","is_error":true}}]}}"#
    );
    assert_eq!(result, due);
}
