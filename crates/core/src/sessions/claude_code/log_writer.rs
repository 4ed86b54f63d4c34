//! Logs for the tests: records of Claude Code from a few words.

/// Returns the id of a record.
pub(super) fn uuid(number: &str) -> String {
    format!("{number:0>8}-0000-4000-8000-000000000000")
}

/// Writes a record: `NUMBER PARENT KIND ARGUMENT…`, or one of the other records of a file.
pub(super) fn record(line: &str, version: &str) -> String {
    let words = line.split(' ').filter(|word| !matches!(*word, "side" | "skipped"));
    let words: Vec<&str> = words.collect();
    other_record(&words, version).unwrap_or_else(|| {
        let [number, follows, words @ ..] = words.as_slice() else {
            panic!("no record: {line}")
        };
        let body = message(words).unwrap_or_else(|| panic!("no message: {line}"));
        let start = start(&link(follows), line.ends_with(" side"), version);
        format!("{start}{body}{}", end(number))
    })
}

fn link(number: &str) -> String {
    match number {
        "-" => "null".to_owned(),
        number => format!("\"{}\"", uuid(number)),
    }
}

fn start(parent: &str, side: bool, version: &str) -> String {
    format!(r#"{{"parentUuid":{parent},"isSidechain":{side},"cwd":"/app","sessionId":"s1","version":"{version}""#)
}

fn end(number: &str) -> String {
    format!(r#","uuid":"{}","timestamp":"2026-11-30T16:27:50.145Z"}}"#, uuid(number))
}

fn call(id: &str, input: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"toolu_01aaaaaaaaaaaaaaaaaaaa{id}","name":"Bash","input":{input}}}"#)
}

/// Writes the members of a message.
fn message(words: &[&str]) -> Option<String> {
    let user = |content: &str| format!(r#","type":"user","message":{{"role":"user","content":{content}}}"#);
    let answer = |id: &str, content: &str| {
        format!(r#","message":{{"id":"{id}","role":"assistant","content":[{content}]}},"type":"assistant""#)
    };
    let result = |id: &str, text: &str| {
        let id = format!("toolu_01aaaaaaaaaaaaaaaaaaaa{id}");
        user(&format!(
            r#"[{{"tool_use_id":"{id}","type":"tool_result","content":"{text}"}}]"#
        ))
    };
    Some(match words {
        ["user"] => user("\"words\""),
        ["text", id] => answer(id, r#"{"type":"text","text":"words"}"#),
        ["thinking", id] => answer(id, r#"{"type":"thinking","thinking":"words","signature":"gAAAAAx"}"#),
        ["call", id, name] => answer(id, &call(name, "{}")),
        ["calls", id, one, two] => answer(id, &format!("{},{}", call(one, "{}"), call(two, "{}"))),
        ["textual", id, name] => answer(id, &call(name, r#""{\"a\":1}""#)),
        ["cut", id, name] => answer(id, &call(name, r#""{\"a\":1""#)),
        ["result", id] => result(id, "out"),
        ["marked", id] => result(id, r"out\n[antiphon: words"),
        ["stopped", id] => result(id, "[Request interrupted by user for tool use]"),
        ["lost", id] => result(
            id,
            "[Tool call interrupted: the session ended before this call's result was recorded",
        ),
        _ => return None,
    })
}

/// Writes a record that is no message. `None` if the words are those of one.
fn other_record(words: &[&str], version: &str) -> Option<String> {
    let boundary = |number: &str, metadata: &str| {
        let kind = format!(r#","type":"system","subtype":"compact_boundary","compactMetadata":{{{metadata}}}"#);
        format!("{}{kind}{}", start("null", false, version), end(number))
    };
    Some(match words {
        ["boundary", number] => boundary(number, ""),
        ["kept", number, ids @ ..] => {
            let ids: Vec<String> = ids.iter().map(|id| link(id)).collect();
            boundary(
                number,
                &format!(r#""preservedMessages":{{"uuids":[{}]}}"#, ids.join(",")),
            )
        }
        ["segment", number, head, tail] => {
            let (head, tail) = (link(head), link(tail));
            boundary(
                number,
                &format!(r#""preservedSegment":{{"headUuid":{head},"tailUuid":{tail}}}"#),
            )
        }
        ["attachment", number, follows] => {
            let start = start(&link(follows), false, version);
            format!(r#"{start},"type":"attachment"{}"#, end(number))
        }
        ["error", number, follows] => {
            let start = start(&link(follows), false, version);
            let said = message(&["text", "m8"])?;
            format!(r#"{start}{said},"isApiErrorMessage":true{}"#, end(number))
        }
        ["last", leaf] => {
            let leaf = link(leaf);
            format!(r#"{{"type":"last-prompt","lastPrompt":"words","leafUuid":{leaf}}}"#)
        }
        ["snapshot", number] => format!(r#"{{"type":"file-history-snapshot","messageId":{}}}"#, link(number)),
        ["request", id] => {
            let call = call("Z", "{}");
            format!(r#"{{"type":"api-request-blob","message":{{"id":"{id}","content":[{call}]}}}}"#)
        }
        ["note"] => r#"{"type":"kind-of-tomorrow","uuid":"none"}"#.to_owned(),
        _ => return None,
    })
}
