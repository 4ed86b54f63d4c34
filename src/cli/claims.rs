//! Claims of runs with a running proxy, for commands and for tools of MCP servers: before a run, during it, and after it.

use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};

use super::{
    api_client::{ApiClient, ApiReply, ClientError, RefusedReply},
    time_format::format_time,
};
use crate::{clock, printable::printable_text};

/// The longest wait for an answer of the proxy. An agent that runs the command waits, too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a run counts as gone whose heartbeats stop.
pub(super) const LEASE: &str = "2m";
/// The time between two heartbeats: a quarter of the lease, as long as that is plausible. Clocks of two machines differ.
const HEARTBEAT_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The pauses between the tries to report the end of a run.
pub(super) const REPORT_PAUSES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];

/// The proxy, with the credential of the one that runs.
pub(super) struct Claims {
    client: ApiClient,
}

/// The reason why there is no claim.
#[derive(Debug)]
pub(super) enum NoClaim {
    /// The key was used for another input.
    OtherInput,
    /// The proxy does not know the token.
    UnknownToken,
    /// The arguments, the token or the payload cannot be used.
    Unusable(String),
    /// The proxy cannot be reached, has no durable ledger or no room in it, or gets too many requests.
    Unavailable(String),
    /// It is running elsewhere.
    InFlight {
        /// The time of that claim, in seconds since 1970.
        since: Option<u64>,
    },
    /// It may have run.
    OutcomeUnknown {
        /// The id of the intent.
        intent: String,
    },
}

/// The answer to a claim.
#[derive(Debug)]
pub(super) enum ClaimReply {
    /// It may run.
    Granted(HeldClaim),
    /// It ran before.
    Ran {
        /// The stored end of the run. `None` if it has been removed, or was never stored.
        sealed: Option<String>,
        failed: bool,
        /// The time of its end, in seconds since 1970.
        at: u64,
    },
}

/// A report of the end of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunReport<'r> {
    /// It has ended, with this sealed end.
    Ended { sealed: &'r str, failed: bool },
    /// It did not run, so that another one may claim the effect at once.
    NotRun,
}

/// A report that the proxy does not have.
#[derive(Debug)]
pub(super) struct ReportFault {
    pub(super) cause: String,
    /// No later try can succeed.
    pub(super) is_final: bool,
}

/// A granted claim.
#[derive(Debug)]
pub(super) struct HeldClaim {
    intent: String,
    claim: String,
    /// The time between two heartbeats.
    pub(super) heartbeat_interval: Duration,
    /// The key for the systems behind it.
    pub(super) idempotency_key: String,
}

impl Claims {
    /// Creates the claims of a credential, which the client sends.
    pub(super) fn new(client: ApiClient) -> Self {
        Self {
            client: client.with_timeout(ANSWER_TIMEOUT),
        }
    }

    /// Claims an effect.
    pub(super) async fn claim(&self, body: String, headers: HeaderMap) -> Result<ClaimReply, NoClaim> {
        let answer = match self.client.post_with("/ledger/v1/intents", body, headers).await? {
            ApiReply::Refused(refusal) => return Err(no_claim(&refusal)),
            ApiReply::Done(answer) => serde_json::from_slice::<Value>(&answer).unwrap_or_default(),
        };
        read_answer(&answer).ok_or_else(|| NoClaim::from(self.client.foreign_answer()))
    }

    /// Extends a claim again and again. Returns once the proxy has granted another one.
    pub(super) async fn send_heartbeats(&self, held: &HeldClaim) {
        loop {
            tokio::time::sleep(held.heartbeat_interval).await;
            if self.is_superseded(held).await {
                return;
            }
        }
    }

    /// Extends a claim. Returns `true` if the proxy has granted another one.
    pub(super) async fn is_superseded(&self, held: &HeldClaim) -> bool {
        let body = json!({ "claim": held.claim });
        let reply = self.client.post(&held.path("heartbeat"), body.to_string()).await;
        // Any other failure is no reason to worry: the next heartbeat, or the report of the end, repairs it.
        matches!(reply, Ok(ApiReply::Refused(refusal)) if refusal.code == "stale_claim")
    }

    /// Reports the end of a run until the proxy has it. Returns the failure if it never does.
    pub(super) async fn report(&self, held: &HeldClaim, report: RunReport<'_>) -> Result<(), String> {
        let mut pauses = REPORT_PAUSES.into_iter();
        loop {
            let Err(fault) = self.try_report(held, report).await else {
                return Ok(());
            };
            let Some(pause) = pauses.next().filter(|_| !fault.is_final) else {
                return Err(fault.cause);
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reports the end of a run once.
    pub(super) async fn try_report(&self, held: &HeldClaim, report: RunReport<'_>) -> Result<(), ReportFault> {
        let (operation, body) = match report {
            RunReport::Ended { sealed, failed } => {
                let body = json!({ "claim": held.claim, "content": sealed, "is_error": failed });
                ("result", body)
            }
            RunReport::NotRun => ("cancel", json!({ "claim": held.claim })),
        };
        match self.client.post(&held.path(operation), body.to_string()).await {
            Ok(ApiReply::Done(_)) => Ok(()),
            Ok(ApiReply::Refused(refusal)) => Err(ReportFault {
                is_final: !refusal.is_temporary(),
                cause: refusal.message,
            }),
            Err(error) => Err(ReportFault {
                is_final: false,
                cause: error.to_string(),
            }),
        }
    }
}

impl NoClaim {
    /// Describes why `name` did not run, and who can change that. `unknown_token` says which token the proxy must know.
    pub(super) fn describe(&self, name: &str, unknown_token: &str) -> String {
        match self {
            Self::OtherInput => {
                "--key was used for other arguments, or with an earlier token: choose another key".to_owned()
            }
            Self::UnknownToken => format!("the proxy does not know this token: {unknown_token}"),
            Self::Unusable(why) => why.clone(),
            Self::Unavailable(why) => format!("{why}; {name} did not run"),
            Self::InFlight { since } => {
                let since = since.map_or_else(String::new, |since| format!(" for {}", format_age(since)));
                format!("{name} has been running elsewhere{since}; it did not run again")
            }
            Self::OutcomeUnknown { intent } => format!(
                "{name} may have run, and did not run again; find out if its effect happened, then: antiphon intents \
                 resolve {intent} done|not-run"
            ),
        }
    }
}

/// Describes a run that has ended before.
pub(super) fn describe_earlier(name: &str, failed: bool, at: u64) -> String {
    let verb = if failed { "failed" } else { "ran" };
    format!("{name} {verb} {} ago and did not run again", format_age(at))
}

/// Formats the time since a moment, which is in seconds since 1970.
fn format_age(since_1970: u64) -> String {
    format_time(clock::unix_time().saturating_sub(Duration::from_secs(since_1970)))
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
            heartbeat_interval: heartbeat_interval(answer["lease_until"].as_u64()),
            idempotency_key: text("idempotency_key")?,
        }));
    }
    Some(ClaimReply::Ran {
        sealed: answer["result"]["content"].as_str().map(str::to_owned),
        failed: answer["state"] == "failed",
        at: answer["settled_at"].as_u64()?,
    })
}

/// Returns the time between two heartbeats of a claim with this end.
fn heartbeat_interval(lease_until: Option<u64>) -> Duration {
    let (shortest, longest) = HEARTBEAT_INTERVALS;
    let until = lease_until.map_or(Duration::MAX, Duration::from_secs);
    let lease = until.saturating_sub(clock::unix_time());
    lease.checked_div(4).unwrap_or(longest).clamp(shortest, longest)
}

/// Reads a refusal.
fn no_claim(refusal: &RefusedReply) -> NoClaim {
    let message = printable_text(&refusal.message);
    match refusal.code.as_str() {
        "in_flight" => NoClaim::InFlight { since: refusal.since },
        "outcome_unknown" => NoClaim::OutcomeUnknown {
            intent: printable_text(&refusal.intent),
        },
        _ if refusal.is_temporary() => NoClaim::Unavailable(message),
        "payload_mismatch" => NoClaim::OtherInput,
        "not_found" => NoClaim::UnknownToken,
        _ => NoClaim::Unusable(message),
    }
}
