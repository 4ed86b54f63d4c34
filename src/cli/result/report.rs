//! Sentences about answers: the outcome of a post, refusals, and the next step for the user.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde_json::Value;

use super::rows::{ListedRow, describe_state};
use crate::{
    cli::{api_client::RefusedReply, time_format::format_time},
    clock::rfc3339_date,
    printable::printable_text,
};

/// The request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedRequest {
    /// A service's post.
    Post,
    /// A service's withdrawal.
    Withdraw,
    /// A service's heartbeat.
    Heartbeat,
    /// A request of a caller.
    OfCaller,
}

/// Returns the state that an answer reports. `None` if the answer is not one of the ledger API.
pub(super) fn answer_state(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    answer["state"].as_str().map(printable_text)
}

/// Returns the line about a posted result. `None` if the answer is not one of the ledger API.
pub(super) fn describe_post(answer: &[u8]) -> Option<String> {
    let state = answer_state(answer)?;
    let answer: Value = serde_json::from_slice(answer).ok()?;
    if state == "parked" {
        let until = rfc3339_date(Duration::from_secs(answer["expires_at"].as_u64()?));
        return Some(format!(
            "parked until {until}: its call is not recorded yet, or not certain; the result settles by itself"
        ));
    }
    let digest = printable_text(answer["digest"].as_str()?);
    Some(if answer["first"].as_bool()? {
        format!("{state}: stored with its call, and Antiphon delivers it to the conversation; digest {digest}")
    } else {
        format!("already known: the call has this result and is {state}, so nothing has changed; digest {digest}")
    })
}

/// Returns the line about a call that waits longer. `None` if the answer is not one of the ledger API.
pub(super) fn describe_heartbeat(answer: &[u8]) -> Option<String> {
    let state = answer_state(answer)?;
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let until = rfc3339_date(Duration::from_secs(answer["deadline"].as_u64()?));
    Some(format!("{state}: the call waits for its result until {until}"))
}

/// Returns the line about a posted result whose content is shown.
pub(super) fn describe_result(row: &ListedRow) -> String {
    format!(
        "{}: {} bytes, from {}, {}, posted {} ago",
        printable_text(&row.call_id),
        row.bytes.unwrap_or_default(),
        printable_text(&row.tool),
        printable_text(&describe_state(row)),
        format_time(row.age),
    )
}

/// Reports the refusal of a request about `subject` on standard error, with the next step if there is one.
pub(super) fn report_refusal(refusal: &RefusedReply, request: RefusedRequest, subject: &str) {
    let mut err = io::stderr().lock();
    let message = match refusal.message.as_str() {
        "" => "the answer has no message: it may come from another server, so check the URL of the proxy".to_owned(),
        message => printable_text(message),
    };
    let (subject, status) = (printable_text(subject), refusal.status.as_u16());
    // A closed standard error must not change the exit code.
    drop(writeln!(err, "antiphon: {subject}: refused with {status}: {message}"));
    if let Some(step) = next_step(&refusal.code, request) {
        drop(writeln!(err, "{step}"));
    }
}

/// Returns the next step after a refusal. `None` if the server's message says enough.
fn next_step(code: &str, request: RefusedRequest) -> Option<&'static str> {
    use RefusedRequest::{Heartbeat, OfCaller, Post, Withdraw};
    Some(match (code, request) {
        ("not_found", OfCaller) => {
            "check the key: it is known once a provider has answered a request with it, and finds its own calls only"
        }
        ("not_found", _) => {
            "check the token, the call id, and the service's section in the configuration of the proxy: its token, \
             principals and tools; the token of this machine counts on loopback, unless [services.local] denies it"
        }
        ("conflict", Post) => "to correct a result that no request contains yet, add --replaces with its digest",
        ("conflict", Heartbeat) => "the call has a result, and waits no longer",
        ("conflict", Withdraw) => "only a result that no request contains yet can be withdrawn",
        ("ambiguous_call", _) => "add --owner, and for a reusable id also --session, or --tool and --input",
        ("busy" | "unavailable", _) => "repeat the command: what the proxy has already stored counts once",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProblemCode;

    #[test]
    fn next_steps_are_for_codes_that_exist() {
        for code in ["not_found", "conflict", "ambiguous_call", "busy", "unavailable"] {
            assert!(ProblemCode::ALL.iter().any(|known| known.label() == code), "{code}");
            assert!(next_step(code, RefusedRequest::Post).is_some(), "{code}");
        }
        assert_eq!(next_step("conflict", RefusedRequest::OfCaller), None);
    }

    #[test]
    fn a_post_is_described_in_one_line() {
        for (answer, wanted) in [
            (
                r#"{"state":"settled","first":true,"digest":"ab"}"#,
                Some("settled: stored with its call"),
            ),
            (
                r#"{"state":"acked","first":false,"digest":"ab"}"#,
                Some("already known: the call has this result and is acked"),
            ),
            (
                r#"{"state":"parked","expires_at":1767225600}"#,
                Some("parked until 2026-01-01T00:00:00Z: "),
            ),
            (
                r#"{"state":"parked","expires_at":18446744073709551615}"#,
                Some("parked until 9999-12-31T23:59:59Z: "),
            ),
            (r#"{"status":"ok"}"#, None),
            ("[]", None),
        ] {
            let line = describe_post(answer.as_bytes());
            assert_eq!(line.is_some(), wanted.is_some(), "{answer}");
            assert!(
                line.unwrap_or_default().starts_with(wanted.unwrap_or_default()),
                "{answer}"
            );
        }
    }
}
