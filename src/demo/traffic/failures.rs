//! Failures of several sides, with several statuses.

use std::{io, time::Duration};

use serde_json::{Value, json};
use strict_provider::Reply;

use super::{
    agents::{Agent, CODEX, COMPANY_AGENT, GEMINI, OPENCODE, TRIAL, UNREACHABLE},
    scenes::HEALTHY,
};
use crate::{
    demo::{
        client::{Answer, Ask},
        setup::{MAIN_KEY, TRIAL_KEY},
        stage::Stage,
    },
    wire::Format,
};

/// Number of failures that are played in turn.
pub(super) const COUNT: usize = 7;
/// More replies than the proxy sends attempts.
const ATTEMPTS_MAX: usize = 4;
/// Number of sessions that are tried until one is on a certain account: each is on any of the three.
const SESSIONS_MAX: usize = 32;
/// Time after which a client leaves.
const IMPATIENCE: Duration = Duration::from_millis(300);

/// A client of Anthropic whose requests fail.
const UNLUCKY: Agent = Agent {
    session: "review-patch",
    upstream: "anthropic",
    model: "claude-opus-4-7",
    client: "",
    key: "demo-live-6",
    ..COMPANY_AGENT
};

/// Fails in one way, and returns the answer of the proxy.
pub(super) async fn fail_once(stage: &Stage, turn: usize, number: usize, round: usize) -> io::Result<Answer> {
    match turn {
        0 => {
            let error = json!({"type": "overloaded_error", "message": "Overloaded"});
            fail_with(stage, &UNLUCKY, number, 529, json!({"type": "error", "error": error})).await
        }
        1 => {
            let error = json!({"message": "The server had an error.", "type": "server_error", "code": null});
            fail_with(stage, &keyed(CODEX), number, 500, json!({"error": error})).await
        }
        2 => {
            let error = json!({"code": 429, "message": "Resource exhausted.", "status": "RESOURCE_EXHAUSTED"});
            fail_with(stage, &keyed(GEMINI), number, 429, json!({"error": error})).await
        }
        3 => {
            let error = json!({
                "message": "Incorrect API key provided.", "type": "invalid_request_error", "code": "invalid_api_key",
            });
            fail_with(stage, &keyed(OPENCODE), number, 401, json!({"error": error})).await
        }
        4 => UNREACHABLE.send(stage, number, HEALTHY[0], None).await,
        5 => limit_main_account(stage, number).await,
        // An account without credit gets no more requests.
        _ if round > 0 => TRIAL.send(stage, number, HEALTHY[0], None).await,
        _ => use_up_trial(stage, number).await,
    }
}

/// Returns the client with a key of its own, so that no other request gets its replies.
const fn keyed(agent: Agent) -> Agent {
    Agent {
        key: UNLUCKY.key,
        ..agent
    }
}

/// Sends a request to which the provider replies with an error, however often it is sent.
async fn fail_with(stage: &Stage, agent: &Agent, number: usize, status: u16, error: Value) -> io::Result<Answer> {
    for _ in 0..ATTEMPTS_MAX {
        let reply = Reply::Status(status, error.clone());
        stage.provider.reply_to(agent.key, reply);
    }
    let answer = agent.send(stage, number, HEALTHY[0], None).await;
    stage.provider.clear_replies(agent.key);
    answer
}

/// Lets the main account reach its rate limit. Another account answers.
async fn limit_main_account(stage: &Stage, number: usize) -> io::Result<Answer> {
    let error = json!({"type": "rate_limit_error", "message": "Number of requests has exceeded your rate limit."});
    let error = json!({"type": "error", "error": error});
    fail_account(stage, &COMPANY_AGENT, number, ("main-account", MAIN_KEY), (429, error)).await
}

/// Uses up the credit of the trial account. Another account answers.
async fn use_up_trial(stage: &Stage, number: usize) -> io::Result<Answer> {
    let words = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or \
                 purchase credits.";
    let error = json!({"type": "invalid_request_error", "message": words});
    let error = json!({"type": "error", "error": error});
    fail_account(stage, &TRIAL, number, ("trial-account", TRIAL_KEY), (400, error)).await
}

/// Fails once at an account, and returns the answer of another. New sessions are tried until one is on the account.
async fn fail_account(
    stage: &Stage,
    agent: &Agent,
    number: usize,
    (account, key): (&str, &str),
    (status, error): (u16, Value),
) -> io::Result<Answer> {
    stage.provider.reply_to(key, Reply::Status(status, error));
    let body = agent.body(number, HEALTHY[0]).to_string();
    let has_left = |answer: &Answer| {
        let profile = answer.header("x-antiphon-profile");
        profile.contains(&format!("from={account}"))
    };
    let mut answer = agent.send(stage, number, HEALTHY[0], None).await;
    for try_number in 1..SESSIONS_MAX {
        if answer.as_ref().map_or(true, has_left) {
            break;
        }
        let session = format!("{}-{number}-{try_number}", agent.session);
        answer = agent.send_body(stage, &session, &body, None).await;
    }
    // Also after a failure: the next request with this key must not get the error.
    stage.provider.clear_replies(key);
    answer
}

/// Returns a streamed request of a search at the provider.
fn search_body(model: &str) -> String {
    let tools = json!([{"type": "web_search_20260209", "name": "web_search"}]);
    let ask = json!({"role": "user", "content": "What is new today?"});
    json!({"model": model, "max_tokens": 64, "stream": true, "tools": tools, "messages": [ask]}).to_string()
}

/// The client of requests that take long.
const SEARCHING: Agent = Agent {
    session: "search-news",
    model: "claude-sonnet-4-6",
    format: Format::Anthropic,
    key: "demo-live-7",
    ..UNLUCKY
};

/// Sends a request that the provider never answers.
pub(super) async fn end_in_silence(stage: &Stage) -> io::Result<Answer> {
    stage.provider.reply_to(SEARCHING.key, Reply::Silence);
    let body = search_body(SEARCHING.model);
    SEARCHING.send_body(stage, SEARCHING.session, &body, None).await
}

/// Sends a search that never ends.
pub(super) async fn search_forever(stage: &Stage) -> io::Result<Answer> {
    stage.provider.reply_to(SEARCHING.key, Reply::EndlessSearch);
    let body = search_body(SEARCHING.model);
    SEARCHING.send_body(stage, SEARCHING.session, &body, None).await
}

/// Sends a request and leaves before its end.
pub(super) async fn leave_early(stage: &Stage) {
    stage.provider.reply_to(SEARCHING.key, Reply::EndlessSearch);
    let headers = SEARCHING.headers(stage, SEARCHING.session);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (path, body) = (SEARCHING.path(), search_body(SEARCHING.model));
    let ask = Ask {
        patience: IMPATIENCE,
        ..Ask::post(stage.proxy_at, &path, &headers, &body)
    };
    ask.send().await.ok();
}
