//! `antiphon repair` on files that wrap bodies: the same as `antiphon check` reads, with every other byte unchanged.

use serde_json::Value;

use super::check_and_repair::{CALL, GO_ON, antiphon, line, text};

/// The same history as a list, as the proxy repairs it.
fn repaired_list(list: &str) -> String {
    let out = antiphon(
        &["repair", "--wire", "anthropic"],
        format!("{{\"messages\":{list}}}").as_bytes(),
    );
    let body = text(&out.stdout);
    let list = body
        .strip_prefix("{\"messages\":")
        .and_then(|body| body.strip_suffix('}'));
    list.unwrap_or_else(|| panic!("{body}")).to_owned()
}

/// Returns a history with an open call, and what becomes of it.
fn open_call() -> (String, String) {
    let list = format!("[{GO_ON}, {CALL}, {GO_ON}]");
    let repaired = repaired_list(&list);
    assert_ne!(list, repaired);
    (list, repaired)
}

#[test]
fn repair_leaves_the_wrapping_of_a_body_as_it_is() {
    let (broken, repaired) = open_call();
    let healthy = format!("{{ \"custom_id\" : \"b\", \"params\": {{\"messages\":[{GO_ON}]}} }}");
    let templates = [
        // A line of a batch file: of OpenAI, of Anthropic and of Bedrock.
        r#" {"custom_id":"a","method":"POST","url":"/v1/messages", "body": {"model":"m", "messages": LIST}, "x":1.50}"#,
        r#"{"custom_id":"a","params":{"messages":LIST}}"#,
        r#"{"recordId":"a","modelInput":{"anthropic_version":"bedrock-2023-05-31","messages":LIST } }"#,
        // A bare list of messages, and a body.
        "\n  LIST\n",
        r#"{"model":"m", "messages" :LIST}"#,
    ];
    for template in templates {
        let with = |list: &str| template.replace("LIST", list);
        let out = antiphon(&["repair"], with(&broken).as_bytes());
        assert_eq!(out.status.code(), Some(0), "{template}: {}", text(&out.stderr));
        assert_eq!(text(&out.stdout), with(&repaired), "{template}");
        // `check` reads the same file, before and after.
        assert_eq!(
            antiphon(&["check"], with(&broken).as_bytes()).status.code(),
            Some(1),
            "{template}"
        );
        assert_eq!(antiphon(&["check"], &out.stdout).status.code(), Some(0), "{template}");
        assert_eq!(
            antiphon(&["repair", "--check"], with(&broken).as_bytes()).status.code(),
            Some(1)
        );
        assert_eq!(antiphon(&["repair"], &out.stdout).stdout, out.stdout, "{template}");
    }
    for template in &templates[..3] {
        let with = |list: &str| format!("{healthy}\r\n\n{}\r\n{healthy}", template.replace("LIST", list));
        let out = antiphon(&["repair"], with(&broken).as_bytes());
        assert_eq!(text(&out.stdout), with(&repaired), "{}", text(&out.stderr));
        let told = text(&out.stderr);
        assert!(
            told.contains("antiphon: -: line 3: 1 finding: placeholder=1\n"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 3, "{told}");
    }
}

#[test]
fn repair_shows_each_line_that_changes() {
    let (broken, _) = open_call();
    let lines = format!("{{\"messages\":[{GO_ON}]}}\n{{\"messages\":{broken}}}\n");
    let out = antiphon(&["repair", "--diff", "--check"], lines.as_bytes());
    let diff = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(diff.starts_with("--- -: line 2\n+++ -: line 2 (repaired)\n"), "{diff}");
    let out = antiphon(&["repair", "--output", "json"], lines.as_bytes());
    let reports = serde_json::Deserializer::from_slice(&out.stderr).into_iter::<Value>();
    let reports: Vec<Value> = reports.map(Result::unwrap).collect();
    let counts = |report: &Value| (report["line"].as_u64(), report["findings"].as_array().unwrap().len());
    assert_eq!(
        reports.iter().map(counts).collect::<Vec<_>>(),
        [(Some(1), 0), (Some(2), 1)]
    );
}

#[test]
fn repair_can_be_quiet() {
    let (broken, _) = open_call();
    let body = format!("{{\"messages\":{broken}}}");
    for flag in ["-q", "--quiet"] {
        let out = antiphon(&["repair", flag], body.as_bytes());
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
        assert_eq!(out.stdout, antiphon(&["repair"], body.as_bytes()).stdout);
        let documents = |arguments: &[&str]| antiphon(arguments, body.as_bytes()).stderr;
        let loud = documents(&["repair", "--output", "json"]);
        assert_eq!(documents(&["repair", flag, "--output", "json"]), loud);
        assert!(loud.starts_with(b"{"), "{}", text(&loud));
        let out = antiphon(&["repair", flag, "no/such/file"], b"");
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains("no/such/file: "), "{}", text(&out.stderr));
    }
}

/// Files in which no body stands in one piece are refused with the way out.
#[test]
fn repair_says_what_to_do_with_messages_on_lines() {
    let messages = format!("{GO_ON}\n{CALL}\n{GO_ON}\n");
    let session = [
        line("user", "u1", "null", GO_ON),
        line("assistant", "a1", "\"u1\"", CALL),
        line("user", "u2", "\"a1\"", GO_ON),
    ];
    let stream = [("user", GO_ON), ("assistant", CALL), ("user", GO_ON)]
        .map(|(kind, message)| format!(r#"{{"type":"{kind}","uuid":"x","message":{message}}}"#));
    for (input, kind, remedy) in [
        (messages, "one message on each line", "jq --slurp ."),
        (
            session.join("\n"),
            "a session of Claude Code, and no request body",
            "antiphon doctor --fix FILE",
        ),
        (
            stream.join("\n"),
            "Claude Code's stream of messages",
            "a request body of the agent",
        ),
    ] {
        assert_eq!(antiphon(&["check"], input.as_bytes()).status.code(), Some(1), "{input}");
        let out = antiphon(&["repair"], input.as_bytes());
        let errors = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{errors}");
        assert!(errors.contains(kind) && errors.contains(remedy), "{errors}");
        assert!(out.stdout.is_empty(), "{}", text(&out.stdout));
    }
}
