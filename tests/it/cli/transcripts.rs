//! `antiphon check` on transcripts of agents, and on files in which nothing can be read.

use antiphon::wire::{Format, Wire};
use serde_json::{Value, json};

use super::check_and_repair::{CALL, GO_ON, antiphon, line, text};

/// Returns a line of Qwen Code's transcript: Claude Code's links around Gemini's contents.
fn qwen(kind: &str, uuid: &str, parent: &str, parts: &str) -> String {
    let role = if kind == "assistant" { "model" } else { "user" };
    line(kind, uuid, parent, &format!(r#"{{"role":"{role}","parts":[{parts}]}}"#))
}

/// Returns the messages of a body in which no reader of the format finds content.
fn empty_messages(format: Format) -> (&'static str, Value) {
    match format {
        // The parts of a user interface.
        Format::Anthropic | Format::OpenAiChat => (
            "messages",
            json!([{"role": "user", "parts": [{"type": "text", "text": "go"}]},
                   {"role": "assistant", "parts": [{"type": "tool-f", "toolCallId": "c1", "state": "input-available"}]}]),
        ),
        Format::OpenAiResponses => ("input", json!([{"kind": "call", "call": "c1"}])),
        Format::Gemini => (
            "contents",
            json!([{"role": "model", "content": [{"functionCall": {"name": "f"}}]}]),
        ),
    }
}

/// Runs `check` and `repair` on a file in which messages were found and nothing was read.
fn assert_unread(arguments: &[&str], input: &str) {
    for command in ["check", "repair"] {
        // `repair` takes one body, and refuses other files for other reasons.
        if command == "repair" && input.contains('\n') {
            continue;
        }
        let out = antiphon(&[&[command], arguments].concat(), input.as_bytes());
        let errors = text(&out.stderr);
        assert_eq!(
            out.status.code(),
            Some(2),
            "{command} {arguments:?} {input}: {}{errors}",
            text(&out.stdout)
        );
        assert!(errors.starts_with("antiphon: -: "), "{command} {input}: {errors}");
        if command == "check" {
            assert!(errors.contains("-: not read as "), "{arguments:?} {input}: {errors}");
        }
        assert!(out.stdout.is_empty(), "{command} {input}: {}", text(&out.stdout));
    }
}

/// A reader that finds messages and no content knows nothing of their calls: a false "healthy" is the worst fault.
#[test]
fn a_file_in_which_nothing_can_be_read_is_not_called_healthy() {
    for (name, wire) in Wire::NAMES {
        let (key, messages) = empty_messages(wire.format);
        let body = json!({ key: messages }).to_string();
        assert_unread(&["--wire", name], &body);
        // One body on each line.
        assert_unread(&["--wire", name], &format!("{body}\n{body}"));
    }
    let bodies = [Format::OpenAiChat, Format::OpenAiResponses, Format::Gemini].map(|format| {
        let (key, messages) = empty_messages(format);
        json!({ key: messages })
    });
    for body in &bodies {
        assert_unread(&[], &body.to_string());
        // A line of a batch file.
        assert_unread(&[], &format!("{body}\n{}", json!({"custom_id": "a", "body": body})));
    }
    // A session of gemini-cli, an export of opencode, a batch without requests, a batch of requests without content.
    for whole in [
        json!({"sessionId": "s", "messages": [{"type": "user", "content": "go"}, {"type": "gemini", "toolCalls": [{}]}]}),
        json!({"info": {}, "messages": [{"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]}]}),
        json!({"requests": [{"custom_id": "a"}]}),
        json!({"requests": [{"params": {"messages": [{"role": "user"}]}}]}),
        json!({"request": {"contents": [{"role": "user", "content": "go"}]}}),
        json!({"input": {"text": "go"}}),
    ] {
        assert_unread(&[], &whole.to_string());
    }
    // One message on each line, and a list of messages.
    assert_unread(&[], "{\"role\":\"user\"}\n{\"role\":\"assistant\"}");
    assert_unread(
        &[],
        "{\"type\":\"message\",\"message\":{}}\n{\"type\":\"message\",\"message\":{}}",
    );
    let out = antiphon(&["check"], b"[{\"role\":\"user\"}]");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    // Transcripts: of Qwen Code, of Claude Code with errors alone, and of Codex without a known item.
    let open_call = [
        qwen("user", "a", "null", r#"{"text":"go"}"#),
        qwen(
            "assistant",
            "b",
            "\"a\"",
            r#"{"functionCall":{"id":"c1","name":"f","args":{}}}"#,
        ),
        qwen("user", "c", "\"b\"", r#"{"text":"go on"}"#),
    ];
    assert_unread(&[], &open_call.join("\n"));
    assert_unread(&["--wire", "anthropic"], &open_call.join("\n"));
    let shown = line("assistant", "a", "null", CALL).replace("\"type\"", "\"isApiErrorMessage\":true,\"type\"");
    assert_unread(&[], &format!("{shown}\n{shown}"));
    let meta = r#"{"type":"session_meta","payload":{"id":"s"}}"#;
    assert_unread(
        &[],
        &format!("{meta}\n{{\"type\":\"event_msg\",\"payload\":{{\"type\":\"user_message\"}}}}"),
    );
    assert_unread(
        &[],
        &format!("{meta}\n{{\"type\":\"response_item\",\"payload\":{{\"kind\":\"call\"}}}}"),
    );
    // The error names the file, the reason and the way out.
    let out = antiphon(&["check"], open_call.join("\n").as_bytes());
    assert_eq!(
        text(&out.stderr),
        "antiphon: -: not read as Claude Code's transcript: no message that would be sent has content which this version \
         reads, so nothing is known about its calls; check a request body of the agent instead\n"
    );
}

/// A batch is healthy only if each of its requests was read.
#[test]
fn a_batch_with_an_unreadable_request_is_not_called_healthy() {
    let batch = |second: &str| {
        format!(
            r#"{{"requests":[{{"custom_id":"a","params":{{"messages":[{GO_ON}]}}}},{{"custom_id":"b","params":{second}}}]}}"#
        )
    };
    let healthy = format!(r#"{{"messages":[{GO_ON}]}}"#);
    assert_eq!(antiphon(&["check"], batch(&healthy).as_bytes()).status.code(), Some(0));
    let unreadable = batch(r#"{"messages":7}"#);
    let out = antiphon(&["check"], unreadable.as_bytes());
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    let errors = text(&out.stderr);
    assert!(errors.contains("-: an entry is unreadable as anthropic: "), "{errors}");
    // The other requests are repaired, and the report names the lack.
    let out = antiphon(&["repair"], unreadable.as_bytes());
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), unreadable));
    let errors = text(&out.stderr);
    assert!(errors.contains("; an entry could not be read: "), "{errors}");
}
