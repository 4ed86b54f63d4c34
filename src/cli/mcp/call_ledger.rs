//! Requests about calls to the running proxy, as a tool service: its token, else that of this machine's proxy.

use std::time::Duration;

use http::StatusCode;

use super::{
    relay::{PostReply, WithdrawReply},
    run_folder::{KeptFile, KeptUse, POST_TIME},
};
use crate::{
    cli::{
        api_client::{ApiClient, ApiReply, ClientError, ProxyFlags},
        result::{call_path, service_client},
    },
    clock,
};

/// The proxy that the environment or the configuration of the user names.
pub(super) const CONFIGURED: ProxyFlags = ProxyFlags {
    url: None,
    config: None,
};
/// The longest wait for an answer of the proxy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait before an early answer.
const QUICK_TIMEOUT: Duration = Duration::from_secs(2);
/// The pauses between the tries to post a result: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Asks if the proxy knows a call, in time for an early answer.
pub(super) async fn is_known_soon(call_id: &str) -> bool {
    let asked = tokio::time::timeout(QUICK_TIMEOUT, report_running(call_id)).await;
    asked.is_ok_and(|known| known == Ok(true))
}

/// Reports that a call is still running. Returns `true` if the proxy knows it, and an error without an answer.
pub(super) async fn report_running(call_id: &str) -> Result<bool, ()> {
    let call = send_heartbeat(&CONFIGURED, call_id).await?;
    Ok(call != ReportedCall::Unknown)
}

/// Posts a result until the proxy has it or refuses it. `failed` is called after the first try, if that fails.
///
/// Waits while another process gives the result or posts it, and ends early once that has given it.
pub(super) async fn post_result(
    call_id: &str,
    body: &str,
    kept: Option<&KeptFile>,
    failed: impl Fn() + Send,
) -> PostReply {
    let began = clock::now();
    let mut pause = FIRST_PAUSE;
    let mut is_held = false;
    loop {
        if !is_held && let Some(reply) = try_post(&CONFIGURED, call_id, body).await {
            return reply;
        }
        if pause == FIRST_PAUSE {
            failed();
        }
        if began.elapsed() > POST_TIME {
            return PostReply::Refused;
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        let used = kept.map_or(KeptUse::Free, KeptFile::look);
        if used == KeptUse::Gone {
            return PostReply::Taken;
        }
        is_held = used == KeptUse::Held;
    }
}

/// Tries to post a result. `None` if a later try may succeed.
pub(super) async fn try_post(proxy: &ProxyFlags, call_id: &str, body: &str) -> Option<PostReply> {
    // A result of a call that the proxy does not know would wait there for nothing.
    match send_heartbeat(proxy, call_id).await {
        Ok(ReportedCall::Open | ReportedCall::Closed) => {}
        Ok(ReportedCall::Unknown) => return Some(PostReply::Refused),
        Err(()) => return None,
    }
    let client = find_proxy(proxy).ok()?;
    match client.post(&call_path(call_id, "result"), body.to_owned()).await.ok()? {
        ApiReply::Done(answer) => {
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
            (answer["state"] != "parked").then_some(PostReply::Settled)
        }
        ApiReply::Refused(refusal) if refusal.is_temporary() => None,
        ApiReply::Refused(_) => Some(PostReply::Refused),
    }
}

/// Takes a posted result back.
pub(super) async fn withdraw_result(call_id: &str) -> WithdrawReply {
    let Ok(client) = find_proxy(&CONFIGURED) else {
        return WithdrawReply::Unclear;
    };
    match client.post(&call_path(call_id, "withdraw"), String::new()).await {
        Ok(ApiReply::Done(_)) => WithdrawReply::Withdrawn,
        // A request contains the result, or the call has none: then it is open.
        Ok(ApiReply::Refused(refusal)) if refusal.status == StatusCode::CONFLICT => {
            match send_heartbeat(&CONFIGURED, call_id).await {
                Ok(ReportedCall::Open) => WithdrawReply::Withdrawn,
                Ok(ReportedCall::Closed) => WithdrawReply::Delivered,
                Ok(ReportedCall::Unknown) | Err(()) => WithdrawReply::Unclear,
            }
        }
        _ => WithdrawReply::Unclear,
    }
}

/// A call as the proxy knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedCall {
    /// It waits for its result.
    Open,
    /// It has its result.
    Closed,
    /// The proxy does not know it, or not for this token.
    Unknown,
}

async fn send_heartbeat(proxy: &ProxyFlags, call_id: &str) -> Result<ReportedCall, ()> {
    let client = find_proxy(proxy).map_err(|_| ())?;
    match client.post(&call_path(call_id, "heartbeat"), String::new()).await {
        Ok(ApiReply::Done(_)) => Ok(ReportedCall::Open),
        Ok(ApiReply::Refused(refusal)) if refusal.is_temporary() => Err(()),
        Ok(ApiReply::Refused(refusal)) if refusal.status == StatusCode::CONFLICT => Ok(ReportedCall::Closed),
        // Any other refusal is one of somebody who knows nothing of it.
        Ok(ApiReply::Refused(_)) => Ok(ReportedCall::Unknown),
        Err(_) => Err(()),
    }
}

/// Finds the proxy and the token, anew for each request: either may change while a run goes on.
fn find_proxy(proxy: &ProxyFlags) -> Result<ApiClient, ClientError> {
    Ok(service_client(proxy, None)?.with_timeout(ANSWER_TIMEOUT))
}
