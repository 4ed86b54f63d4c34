//! The texts of the proxy's own errors against the words by which clients decide whether to ask again.

use std::time::Duration;

use antiphon::{
    policy::{Class, Verdict, stream_timeouts::RunningTool},
    proxy::{ProxyError, RelayError},
    wire::ErrorShape,
};
use http::StatusCode;

use crate::frozen::errors::errors;

/// What clients compare, each row with its source.
const ROWS: &str = include_str!("../../clients/retry-words.txt");
/// The phrase of every text after which the same request may succeed.
const RETRY_PHRASE: &str = "try again";

/// The words of one client.
struct Words {
    client: &'static str,
    words: Vec<&'static str>,
}

impl Words {
    fn find_in(&self, text: &str) -> Option<&'static str> {
        let text = text.to_lowercase();
        self.words.iter().copied().find(|word| text.contains(word))
    }

    /// Returns the words without statuses, which no text contains by itself.
    fn without_statuses(&self) -> Self {
        let is_status = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        Self {
            client: self.client,
            words: self.words.iter().copied().filter(|word| !is_status(word)).collect(),
        }
    }
}

/// Returns the rows of a kind.
fn rows(kind: &str) -> Vec<Words> {
    let lines = ROWS.lines().filter(|line| !line.starts_with('#'));
    let cells = lines.map(|line| line.split(" | ").collect::<Vec<_>>());
    let found: Vec<Words> = cells
        .filter(|cells| cells[0] == kind)
        .map(|cells| {
            assert!(cells.len() == 4 && cells[2].contains('/'), "{cells:?}");
            Words {
                client: cells[1],
                words: cells[3].split(", ").collect(),
            }
        })
        .collect();
    assert!(!found.is_empty(), "{kind}");
    found
}

/// Returns what is wrong with a text.
fn complaints(name: &str, status: u16, text: &str, is_retryable: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for client in rows("retries") {
        if is_retryable && client.find_in(&format!("{status} {text}")).is_none() {
            wrong.push(format!("{name}: {} does not ask again: {text}", client.client));
        }
        if let Some(word) = client.without_statuses().find_in(text).filter(|_| !is_retryable) {
            wrong.push(format!("{name}: {} asks again for {word:?}: {text}", client.client));
        }
    }
    for client in rows("stops").iter().filter(|_| is_retryable) {
        if let Some(word) = client.find_in(text) {
            wrong.push(format!("{name}: {} stops at {word:?}: {text}", client.client));
        }
    }
    wrong
}

/// Returns the status of an error, and `true` if its answer asks SDKs for no retry.
fn head(error: &ProxyError) -> (StatusCode, bool) {
    let answer = error.to_response(ErrorShape::Anthropic, "ID");
    let is_final = answer.headers().get("x-should-retry").is_some();
    (answer.status(), is_final)
}

#[test]
fn clients_ask_again_after_exactly_the_errors_that_may_pass() {
    let mut wrong = Vec::new();
    for (name, error) in errors() {
        let (status, is_final) = head(&error);
        let text = error.public_message();
        let is_retryable = text.contains(RETRY_PHRASE);
        wrong.extend(complaints(&name, status.as_u16(), &text, is_retryable));
        let is_retried_status =
            status.is_server_error() || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        if is_retryable != (is_retried_status && !is_final) {
            wrong.push(format!("{name}: {} final={is_final}, but: {text}", status.as_u16()));
        }
    }
    assert!(wrong.is_empty(), "{} texts: {wrong:#?}", wrong.len());
}

#[test]
fn clients_ask_again_after_an_answer_that_the_proxy_ends() {
    let tool = RunningTool {
        name: "web_search".to_owned(),
        id: "srvtoolu_1".to_owned(),
        age: Duration::from_secs(9),
    };
    let mut wrong = Vec::new();
    for class in [
        Class::Broken,
        Class::Stalled,
        Class::ServerTool,
        Class::Compaction,
        Class::Parked { queued: false },
        Class::Unavailable,
        Class::Deadline,
    ] {
        for tool in [None, Some(&tool)] {
            let text = RelayError(Verdict::from_class(class)).client_message(tool);
            assert!(text.contains(RETRY_PHRASE), "{text}");
            wrong.extend(complaints(class.label(), 200, &text, true));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
