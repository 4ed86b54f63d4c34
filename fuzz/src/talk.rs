//! Conversations drawn from bytes: always JSON, seldom legal.

use antiphon_core::wire::Format;

use super::{feed::Feed, odd};

/// Ids as JSON texts: few, so that calls and results match. Some are refused by providers, and one has two spellings.
const IDS: [&str; 12] = [
    r#""toolu_1""#,
    r#""toolu_2""#,
    r#""toolu_3""#,
    r#""call_0""#,
    r#""call_1""#,
    r#""toolu\u005f1""#,
    r#""""#,
    r#""a b!""#,
    "null",
    r#""abcdefghi""#,
    r#""0123456789012345678901234567890123456789012345678901234567890123456789""#,
    r#""\ud800""#,
];

/// Largest number of messages in one body.
const MESSAGES_MAX: usize = 40;

/// Returns a request body of `format` that the bytes choose.
pub fn body(feed: &mut Feed<'_>, format: Format) -> Vec<u8> {
    let mut members = Vec::new();
    if feed.once_in(4) {
        members.push(("odd", odd::value(feed, 3)));
    }
    if feed.once_in(16) {
        members.push(("thread", r#"{"type":"continue"}"#.to_owned()));
    }
    let mut messages = Vec::new();
    while !feed.is_empty() && messages.len() < MESSAGES_MAX {
        messages.push(match format {
            Format::Anthropic => anthropic(feed),
            Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini => chat(feed),
        });
    }
    members.push(("messages", list(&messages)));
    if let Some((_, odd)) = members.first().filter(|(key, _)| *key == "odd") {
        members.push(("metadata", odd.clone()));
    }
    object(&members).into_bytes()
}

fn object(members: &[(&str, String)]) -> String {
    spaced_object(members, "")
}

fn spaced_object(members: &[(&str, String)], space: &str) -> String {
    let member = |(key, value): &(&str, String)| format!("\"{key}\"{space}:{space}{value}");
    let members: Vec<String> = members.iter().map(member).collect();
    format!("{{{space}{}}}", members.join(","))
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

/// Returns an object with members shuffled, repeated, spaced out, or mixed with an odd one.
fn varied_object(feed: &mut Feed<'_>, mut members: Vec<(&str, String)>) -> String {
    match feed.below(16) {
        12 => members.reverse(),
        13 => members.push(("x", odd::value(feed, 2))),
        14 => {
            let again = members.first().cloned();
            members.extend(again);
        }
        15 => return spaced_object(&members, " \r\n\t"),
        _ => {}
    }
    object(&members)
}

fn id(feed: &mut Feed<'_>) -> String {
    (*feed.pick(&IDS)).to_owned()
}

fn words(feed: &mut Feed<'_>) -> String {
    let known = [r#""so""#, r#""""#, r#"" ""#, r#""[antiphon: quoted]""#, "null"];
    match feed.below(known.len() + 1) {
        5 => odd::value(feed, 1),
        number => known[number].to_owned(),
    }
}

fn anthropic(feed: &mut Feed<'_>) -> String {
    let roles = [
        r#""user""#,
        r#""assistant""#,
        r#""user""#,
        r#""assistant""#,
        r#""assistant""#,
        r#""system""#,
        "1",
    ];
    let role = (*feed.pick(&roles)).to_owned();
    let content = match feed.below(8) {
        0 => words(feed),
        count => list(&(0..count.min(5)).map(|_| block(feed)).collect::<Vec<_>>()),
    };
    let mut members = vec![("role", role), ("content", content)];
    if feed.once_in(32) {
        members.pop();
    }
    varied_object(feed, members)
}

fn block(feed: &mut Feed<'_>) -> String {
    let text = |kind: &str| format!("\"{kind}\"");
    let members = match feed.below(16) {
        0..=4 => {
            let inputs = ["{}", r#"{"a":1}"#, "null", "[]", r#""{\"a\":1""#];
            let mut members = vec![
                ("type", text("tool_use")),
                ("id", id(feed)),
                ("name", text("run")),
                ("input", (*feed.pick(&inputs)).to_owned()),
            ];
            if feed.once_in(8) {
                members.push((
                    "caller",
                    r#"{"type":"code_execution","tool_id":"srvtoolu_1"}"#.to_owned(),
                ));
            }
            members
        }
        5..=9 => {
            let mut members = vec![("type", text("tool_result")), ("tool_use_id", id(feed))];
            if !feed.once_in(4) {
                members.push(("content", words(feed)));
            }
            if feed.once_in(4) {
                members.push(("is_error", "true".to_owned()));
            }
            members
        }
        10 => vec![("type", text("thinking")), ("signature", words(feed))],
        11 => vec![
            ("type", text("server_tool_use")),
            ("id", id(feed)),
            ("name", text("web_search")),
        ],
        12 => vec![
            ("type", text("web_search_tool_result")),
            ("tool_use_id", id(feed)),
            ("content", words(feed)),
        ],
        13 if feed.once_in(4) => vec![("type", text("compaction")), ("content", words(feed))],
        14 => return odd::value(feed, 2),
        _ => vec![("type", text("text")), ("text", words(feed))],
    };
    varied_object(feed, members)
}

fn chat(feed: &mut Feed<'_>) -> String {
    let text = |kind: &str| format!("\"{kind}\"");
    let members = match feed.below(8) {
        0 => vec![("role", text("user")), ("content", words(feed))],
        1..=3 => {
            let mut members = vec![("role", text("assistant")), ("content", words(feed))];
            let count = feed.below(5);
            if count > 0 || feed.once_in(4) {
                members.push(("tool_calls", list(&(0..count).map(|_| call(feed)).collect::<Vec<_>>())));
            }
            members
        }
        7 => vec![
            (
                "role",
                (*feed.pick(&[r#""system""#, r#""developer""#, "null"])).to_owned(),
            ),
            ("content", words(feed)),
        ],
        _ => {
            let mut members = vec![("role", text("tool"))];
            if !feed.once_in(8) {
                members.push(("tool_call_id", id(feed)));
            }
            members.push(("content", words(feed)));
            members
        }
    };
    varied_object(feed, members)
}

fn call(feed: &mut Feed<'_>) -> String {
    let inner = [
        r#"{"name":"run","arguments":"{}"}"#,
        r#"{"name":"run","arguments":null}"#,
        r#"{"name":1}"#,
        "null",
        r#"{"arguments":"{","name":"a\"b"}"#,
    ];
    let kind = *feed.pick(&["function", "function", "custom"]);
    let members = vec![
        ("id", id(feed)),
        ("type", format!("\"{kind}\"")),
        (kind, (*feed.pick(&inner)).to_owned()),
    ];
    varied_object(feed, members)
}
