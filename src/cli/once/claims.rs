//! Claims with a running proxy: before the command runs, while it runs, and after its end.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::AUTHORIZATION};
use serde_json::{Value, json};

use super::{arguments::Args, sealed_run::RunKeys};
use crate::{
    api::ledger_api,
    cli::api_client::{ApiClient, ApiReply, ApiUrl, ClientError, RefusedReply, SecretPlace},
    printable::printable_text,
};

const TOKEN: SecretPlace = SecretPlace {
    noun: "the token",
    variable: "ANTIPHON_TOKEN",
    flag: "--token-file",
};
/// The header with a key in place of the input.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header by which the user wants the effect once more.
const REPEAT: HeaderName = HeaderName::from_static(ledger_api::REPEAT_HEADER);
/// The longest wait for an answer of the proxy. An agent that runs the command waits, too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a command counts as gone whose heartbeats stop.
const LEASE: &str = "2m";
/// The time between two heartbeats: a part of the lease.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// The pauses between the tries to report the end of a run.
const REPORT_PAUSES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];

/// The proxy, with the credential of the caller.
pub(super) struct Claims {
    client: ApiClient,
    pub(super) keys: RunKeys,
}

/// The reason why there is no claim.
#[derive(Debug)]
pub(super) enum NoClaim {
    /// The arguments, the token or the payload cannot be used.
    Unusable(String),
    /// The proxy cannot be reached, has no durable ledger or no room in it, or gets too many requests.
    Unavailable(String),
    /// The command is running elsewhere.
    InFlight {
        /// The time of that claim, in seconds since 1970.
        since: Option<u64>,
    },
    /// The command may have run.
    OutcomeUnknown {
        /// The id of the intent.
        intent: String,
    },
}

/// The answer to a claim.
#[derive(Debug)]
pub(super) enum ClaimReply {
    /// The command may run.
    Granted(HeldClaim),
    /// The command ran before.
    Ran {
        /// The stored end of the run. `None` if it has been removed, or was never stored.
        sealed: Option<String>,
        failed: bool,
        /// The time of its end, in seconds since 1970.
        at: u64,
    },
}

/// A granted claim.
#[derive(Debug)]
pub(super) struct HeldClaim {
    intent: String,
    claim: String,
    /// The key for the systems behind the command.
    pub(super) idempotency_key: String,
}

impl Claims {
    /// Finds the proxy and the token.
    pub(super) fn find(args: &Args) -> Result<Self, NoClaim> {
        let url = ApiUrl::of_proxy(&args.proxy)?;
        let token = TOKEN.read_or_local(args.token_file.as_deref(), &url, "a client token")?;
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, TOKEN.bearer_value(&token)?);
        Ok(Self {
            client: ApiClient::new(url, headers)?.with_timeout(ANSWER_TIMEOUT),
            keys: RunKeys::of_token(&token),
        })
    }

    /// Claims the effect of a command, which `command` identifies.
    pub(super) async fn claim(&self, args: &Args, command: &str) -> Result<ClaimReply, NoClaim> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &args.key {
            let value = HeaderValue::from_str(key)
                .map_err(|_| NoClaim::Unusable("--key: expected 1 to 255 printable ASCII characters".to_owned()))?;
            headers.insert(IDEMPOTENCY_KEY, value);
        }
        if args.again {
            headers.insert(REPEAT, HeaderValue::from_static(ledger_api::REPEAT));
        }
        let body = json!({
            "tool": args.tool,
            "input": { "command": command },
            "window": args.window,
            "lease": LEASE,
            "retry_failed": args.retry_failed,
        });
        let reply = self.client.post_with("/ledger/v1/intents", body.to_string(), headers);
        let answer = match reply.await? {
            ApiReply::Refused(refusal) => return Err(no_claim(&refusal)),
            ApiReply::Done(answer) => serde_json::from_slice::<Value>(&answer).unwrap_or_default(),
        };
        read_answer(&answer).ok_or_else(|| NoClaim::from(self.client.foreign_answer()))
    }

    /// Extends a claim again and again. Returns once the proxy has granted another one.
    pub(super) async fn send_heartbeats(&self, held: &HeldClaim) {
        loop {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            let body = json!({ "claim": held.claim });
            let reply = self.client.post(&held.path("heartbeat"), body.to_string()).await;
            // Any other failure is no reason to worry: the next heartbeat, or the report of the end, repairs it.
            if matches!(reply, Ok(ApiReply::Refused(refusal)) if refusal.code == "stale_claim") {
                return;
            }
        }
    }

    /// Reports the end of a command.
    pub(super) async fn report_end(&self, held: &HeldClaim, sealed: &str, failed: bool) -> Result<(), String> {
        let body = json!({ "claim": held.claim, "content": sealed, "is_error": failed });
        self.report(&held.path("result"), body).await
    }

    /// Reports that a command could not be started, so that another run may claim the effect at once.
    pub(super) async fn report_not_run(&self, held: &HeldClaim) -> Result<(), String> {
        self.report(&held.path("cancel"), json!({ "claim": held.claim })).await
    }

    /// Sends a report until the proxy has it. Returns the failure if it never does.
    async fn report(&self, path: &str, body: Value) -> Result<(), String> {
        let mut pauses = REPORT_PAUSES.into_iter();
        loop {
            let failure = match self.client.post(path, body.to_string()).await {
                Ok(ApiReply::Done(_)) => return Ok(()),
                Ok(ApiReply::Refused(refusal)) if !is_temporary(refusal.status) => return Err(refusal.message),
                Ok(ApiReply::Refused(refusal)) => refusal.message,
                Err(error) => error.to_string(),
            };
            let Some(pause) = pauses.next() else {
                return Err(failure);
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl HeldClaim {
    fn path(&self, report: &str) -> String {
        format!("/ledger/v1/intents/{}/{report}", self.intent)
    }
}

impl From<ClientError> for NoClaim {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unusable(_) | ClientError::Config(_) => Self::Unusable(error.to_string()),
            ClientError::NoLocalToken(_)
            | ClientError::Unreachable { .. }
            | ClientError::Foreign { .. }
            | ClientError::Output(_) => Self::Unavailable(error.to_string()),
        }
    }
}

/// Reads a success.
fn read_answer(answer: &Value) -> Option<ClaimReply> {
    let text = |name: &str| answer[name].as_str().map(str::to_owned);
    if let Some(claim) = text("claim") {
        return Some(ClaimReply::Granted(HeldClaim {
            intent: text("intent")?,
            claim,
            idempotency_key: text("idempotency_key")?,
        }));
    }
    Some(ClaimReply::Ran {
        sealed: answer["result"]["content"].as_str().map(str::to_owned),
        failed: answer["state"] == "failed",
        at: answer["settled_at"].as_u64()?,
    })
}

/// Returns `true` if a later request may succeed.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// Reads a refusal.
fn no_claim(refusal: &RefusedReply) -> NoClaim {
    let message = printable_text(&refusal.message);
    match refusal.code.as_str() {
        "in_flight" => NoClaim::InFlight { since: refusal.since },
        "outcome_unknown" => NoClaim::OutcomeUnknown {
            intent: printable_text(&refusal.intent),
        },
        _ if is_temporary(refusal.status) => NoClaim::Unavailable(message),
        "payload_mismatch" => {
            NoClaim::Unusable("--key was used for other arguments, or with an earlier token: choose another key".to_owned())
        }
        "not_found" => NoClaim::Unusable(
            "the proxy does not know this token: ANTIPHON_TOKEN must be one of [client_tokens], or restart a proxy of an \
             earlier version"
                .to_owned(),
        ),
        _ => NoClaim::Unusable(message),
    }
}
