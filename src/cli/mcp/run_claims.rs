//! Claims of the runs of tools that run once: of this machine's user, or of a service for its user.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    call_ledger::CONFIGURED,
    relay::{ClaimAnswer, ClaimOrder, RelayEvent, RunClaim, RunHash, RunNumber, ToolOutcome},
};
use crate::{
    auth::Secret,
    cli::{
        claims::{ClaimReply, Claims, HeldClaim, LEASE, NoClaim, REPORT_PAUSES, RunReport, describe_earlier},
        result::service_access,
        sealing::SealingKey,
    },
    digest::keyed_digest_of,
    printable::printable_text,
    repair::Tier,
};

/// Uses of the keys that come from a token. Changing one makes stored results unreadable, or lets runs be repeated.
const RESULT_KEY: &str = "antiphon mcp: claimed result, version 1";
const INPUT_KEY: &str = "antiphon mcp: claimed input, version 1";
/// The members of an input that are not those of the call.
const SERVER_MEMBER: &str = "antiphon:server";
const ARGUMENTS_MEMBER: &str = "antiphon:arguments";
/// The largest input that is sent as it is, in bytes. Of a larger one, its hash is: a claim has 1 MiB at most.
const ARGUMENTS_BYTES_MAX: usize = 512 * 1024;
/// The longest name of a server in a claim, in characters.
const NAME_LENGTH_MAX: usize = 128;
/// The largest sealed result, in bytes: a report has 8 MiB at most.
const SEALED_BYTES_MAX: usize = 8 * 1024 * 1024 - 1024;
/// The pause between later tries to report the end of a run.
const LATER_PAUSE: Duration = Duration::from_secs(30);
/// The way out if the proxy does not know the token.
const UNKNOWN_TOKEN: &str = "ANTIPHON_SERVICE_TOKEN must be that of one of [services] which may run this tool";

/// The terms that the claims of one wrapper share.
#[derive(Clone, Debug)]
struct ServerTerms {
    tiers: BTreeMap<String, Tier>,
    /// The hash that tells this server from others of the same name.
    server: RunHash,
    /// The user for whom a service claims. `None` if the state folder cannot be used.
    user: Option<String>,
}

/// The claims of one wrapper.
pub(super) struct RunClaims {
    terms: ServerTerms,
    orders: BTreeMap<RunNumber, UnboundedSender<ClaimOrder>>,
}

/// A granted claim, with the key for its result.
struct GrantedRun {
    held: HeldClaim,
    /// The name of the tool in the claim.
    tool: String,
    results: SealingKey,
}

impl RunClaims {
    /// Creates the claims of a server.
    pub(super) const fn new(tiers: BTreeMap<String, Tier>, server: RunHash, user: Option<String>) -> Self {
        let terms = ServerTerms { tiers, server, user };
        Self {
            terms,
            orders: BTreeMap::new(),
        }
    }

    /// Returns the work that claims a run, keeps the claim, and reports the end that an order tells.
    pub(super) fn claim(
        &mut self,
        number: RunNumber,
        run: RunClaim,
        answers: UnboundedSender<RelayEvent>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (sender, orders) = unbounded_channel();
        self.orders.retain(|_, sender| !sender.is_closed());
        self.orders.insert(number, sender);
        let terms = self.terms.clone();
        async move {
            // An error means that the keeper has ended.
            let answer = |event| drop(answers.send(event));
            match terms.claim(&run).await {
                Ok(granted) => {
                    answer(RelayEvent::Claimed(number, ClaimAnswer::Granted));
                    if let Some(reported) = granted.await_end(orders).await {
                        answer(RelayEvent::Reported(number, reported.err()));
                    }
                }
                Err(refused) => answer(RelayEvent::Claimed(number, refused)),
            }
        }
    }

    /// Passes an order to the work of its claim.
    pub(super) fn order(&mut self, number: RunNumber, order: ClaimOrder) {
        let sender = match order {
            ClaimOrder::Leave => self.orders.get(&number).cloned(),
            ClaimOrder::Ended(_) | ClaimOrder::NotRun | ClaimOrder::Lost => self.orders.remove(&number),
        };
        // An error means that the work has ended.
        drop(sender.map(|sender| sender.send(order)));
    }
}

impl ServerTerms {
    /// Claims a run. The error is the answer if it is not granted.
    async fn claim(&self, run: &RunClaim) -> Result<GrantedRun, ClaimAnswer> {
        let name = printable_text(&run.tool);
        let refused = |none: &NoClaim| match none {
            NoClaim::InFlight { .. } => ClaimAnswer::InFlight,
            NoClaim::Unusable(_) | NoClaim::OtherInput | NoClaim::UnknownToken => {
                ClaimAnswer::Refused(format!("{}; {name} did not run", none.describe(&name, UNKNOWN_TOKEN)))
            }
            NoClaim::Unavailable(_) | NoClaim::OutcomeUnknown { .. } => {
                ClaimAnswer::Refused(none.describe(&name, UNKNOWN_TOKEN))
            }
        };
        // Found anew for each claim: either may change while a server runs.
        let access = service_access(&CONFIGURED, None).map_err(|error| refused(&NoClaim::from(error)))?;
        let body = self.claim_body(run, &access.token, access.is_user);
        let body = body.map_err(|none| refused(&none))?;
        let results = SealingKey::of_token(RESULT_KEY, &access.token);
        let claims = Claims::new(access.client);
        let tool = tool_name(run);
        match claims.claim(body, HeaderMap::new()).await {
            Ok(ClaimReply::Granted(held)) => Ok(GrantedRun { held, tool, results }),
            Ok(ClaimReply::Ran { sealed, failed, at }) => {
                let head = describe_earlier(&name, failed, at);
                Err(match sealed.map(|sealed| read_sealed(&results, &sealed, &tool)) {
                    Some(Some(outcome)) => ClaimAnswer::Ran(outcome, format!("{head}; this is its result")),
                    Some(None) => ClaimAnswer::RanUnseen(format!("{head}; its result cannot be decrypted")),
                    None => ClaimAnswer::RanUnseen(format!("{head}; its result was never stored, or has been removed")),
                })
            }
            Err(none) => Err(refused(&none)),
        }
    }

    /// Writes a claim. Its input is that of the call, with a member that tells servers of one name apart.
    fn claim_body(&self, run: &RunClaim, token: &Secret, is_user: bool) -> Result<String, NoClaim> {
        // Kept as they are: parsing and writing them would change numbers.
        let Some(members) = run.arguments.trim_ascii_start().strip_prefix('{') else {
            return Err(NoClaim::Unusable("the arguments of the call are no object".to_owned()));
        };
        let key = blake3::derive_key(INPUT_KEY, token.reveal().as_bytes());
        let hash = |part: &[u8]| {
            blake3::Hash::from_bytes(keyed_digest_of(&key, [part]))
                .to_hex()
                .to_string()
        };
        let server = hash(&self.server);
        let input = if run.arguments.len() > ARGUMENTS_BYTES_MAX {
            json!({ SERVER_MEMBER: server, ARGUMENTS_MEMBER: hash(&run.input) }).to_string()
        } else {
            let comma = if members.trim_ascii_start().starts_with('}') {
                ""
            } else {
                ","
            };
            format!(r#"{{"{SERVER_MEMBER}":"{server}"{comma}{members}"#)
        };
        let mut body = json!({ "tool": tool_name(run), "lease": LEASE });
        if let Some(tier) = self.tiers.get(&run.tool) {
            body["tier"] = tier.label().into();
        }
        if !is_user {
            let user = self.user.clone().ok_or_else(|| {
                NoClaim::Unusable(
                    "the state folder, which tells the users of a service apart, cannot be used".to_owned(),
                )
            })?;
            body["user"] = user.into();
        }
        let body = body.to_string();
        let members = body.strip_prefix('{').unwrap_or_default();
        Ok(format!(r#"{{"input":{input},{members}"#))
    }
}

impl GrantedRun {
    /// Keeps the claim until an order says how the run ends, and reports that. `None` if its end is lost.
    async fn await_end(self, mut orders: UnboundedReceiver<ClaimOrder>) -> Option<Result<(), String>> {
        let mut is_kept = true;
        let order = loop {
            tokio::select! {
                order = orders.recv() => match order? {
                    ClaimOrder::Leave => is_kept = false,
                    ClaimOrder::Lost => return None,
                    order => break order,
                },
                () = tokio::time::sleep(self.held.heartbeat_interval), if is_kept => {
                    let claims = service_access(&CONFIGURED, None).map(|access| Claims::new(access.client));
                    // The report of the end says if another claim was granted.
                    if let Ok(claims) = claims {
                        is_kept = !claims.is_superseded(&self.held).await;
                    }
                }
            }
        };
        Some(match order {
            ClaimOrder::Ended(outcome) => match self.seal(&outcome) {
                Some(sealed) => {
                    let report = RunReport::Ended {
                        sealed: &sealed,
                        failed: outcome.has_failed(),
                    };
                    self.report(report).await
                }
                None => Err("the system has no random bytes".to_owned()),
            },
            ClaimOrder::NotRun | ClaimOrder::Leave | ClaimOrder::Lost => self.report(RunReport::NotRun).await,
        })
    }

    /// Reports the end until the proxy has it or refuses it. The proxy is found anew for each try.
    async fn report(&self, report: RunReport<'_>) -> Result<(), String> {
        let mut pauses = REPORT_PAUSES.into_iter();
        loop {
            if let Ok(access) = service_access(&CONFIGURED, None) {
                match Claims::new(access.client).try_report(&self.held, report).await {
                    Ok(()) => return Ok(()),
                    Err(fault) if fault.is_final => return Err(fault.cause),
                    Err(_) => {}
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or(LATER_PAUSE)).await;
        }
    }

    /// Encrypts a result. `None` if the system has no random bytes.
    fn seal(&self, outcome: &ToolOutcome) -> Option<String> {
        let plain = json!({ "is_failure": outcome.is_failure, "body": outcome.body }).to_string();
        let sealed = self.results.seal(plain.into_bytes(), &self.tool)?;
        if sealed.len() <= SEALED_BYTES_MAX {
            return Some(sealed);
        }
        let fault = ToolOutcome::of_large_result();
        let plain = json!({ "is_failure": fault.is_failure, "body": fault.body }).to_string();
        self.results.seal(plain.into_bytes(), &self.tool)
    }
}

/// Returns the name of a tool in claims and in the configuration.
fn tool_name(run: &RunClaim) -> String {
    let server = run.server.chars().filter(|letter| !letter.is_control());
    let server: String = server.take(NAME_LENGTH_MAX).collect();
    format!("mcp:{}:{}", server.trim(), run.tool)
}

fn read_sealed(results: &SealingKey, sealed: &str, tool: &str) -> Option<ToolOutcome> {
    let plain: Value = serde_json::from_slice(&results.open(sealed, tool)?).ok()?;
    Some(ToolOutcome {
        is_failure: plain["is_failure"] == true,
        body: plain["body"].as_str()?.to_owned(),
    })
}
