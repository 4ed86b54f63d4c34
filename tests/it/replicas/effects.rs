//! A service whose effects cannot be undone. It claims each before it runs it, and runs it only if that is granted.

use std::{collections::BTreeMap, net::SocketAddr};

use serde_json::{Value, json};

use super::{clients::canary, fleet::ask};
use crate::support::bodies::Rng;

const FIELDS: [(&str, &str); 1] = [("authorization", "Bearer token of tools")];

/// The answer to a claim, as its service acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimReply {
    Granted,
    /// The effect has happened, and its result is in the answer.
    Replayed,
    /// Another claim runs it, or nobody knows if it ran.
    Refused,
    /// The call is on its way to the database, or the database is away.
    Unready,
    /// The connection failed. The claim may have been granted, and is not run.
    Lost,
}

/// An effect that ran, and whose end was not acknowledged yet.
#[derive(Clone, Debug)]
struct GrantedRun {
    caller: usize,
    id: String,
    /// The path of the intent.
    intent: String,
    claim: Value,
}

/// The effects of all callers, by caller and number.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The number of times that each ran.
    runs: BTreeMap<(usize, u64), usize>,
    unreported: Vec<GrantedRun>,
    /// The number of effects that each caller has asked for.
    asked: [u64; 2],
}

impl ClaimReply {
    /// Returns the name of the figure that counts such answers.
    pub(super) const fn figure(self) -> &'static str {
        match self {
            Self::Granted => "claims granted",
            Self::Replayed => "claims answered with the result",
            Self::Refused => "claims refused",
            Self::Unready => "claims to be repeated",
            Self::Lost => "claims without an answer",
        }
    }
}

impl Effects {
    /// Chooses an effect that a model asks for: a new one, or one of the last that is not among those of its conversation.
    pub(super) fn new_or_recent(&mut self, rng: &mut Rng, caller: usize, asked: &[u64]) -> Option<u64> {
        let next = &mut self.asked[caller];
        let back = if rng.chance(60) { 0 } else { rng.within(1, 2) };
        let number = next.saturating_sub(back as u64);
        if number == *next {
            *next += 1;
        }
        (!asked.contains(&number)).then_some(number)
    }

    /// Returns the number of times that an effect ran.
    pub(super) fn runs(&self, caller: usize, number: u64) -> usize {
        self.runs.get(&(caller, number)).copied().unwrap_or_default()
    }

    /// Claims an effect, and runs it if that is granted.
    pub(super) async fn claim(
        &mut self,
        to: SocketAddr,
        (caller, id, number): (usize, &str, u64),
        claim: &Value,
    ) -> ClaimReply {
        let Some(answer) = ask(to, "/ledger/v1/intents", &FIELDS, claim).await else {
            return ClaimReply::Lost;
        };
        let kind = answer.body["type"].as_str().unwrap_or_default();
        match answer.status {
            201 => {
                assert_eq!(answer.body["scope"], "user", "{}", answer.body);
                *self.runs.entry((caller, number)).or_default() += 1;
                self.unreported.push(GrantedRun {
                    caller,
                    id: id.to_owned(),
                    intent: format!("/ledger/v1/intents/{}", answer.body["intent"].as_str().unwrap()),
                    claim: answer.body["claim"].clone(),
                });
                ClaimReply::Granted
            }
            200 => {
                let content = answer.body["result"]["content"].as_str().unwrap_or_default();
                assert!(content.starts_with(&canary(caller, "")[..9]), "{}", answer.body);
                assert_eq!(self.runs(caller, number), 1, "the result of an effect that ran");
                ClaimReply::Replayed
            }
            409 if kind.ends_with(":in-flight") || kind.ends_with(":outcome-unknown") => ClaimReply::Refused,
            404 | 502..=504 => ClaimReply::Unready,
            status => panic!("{id}: {status} {}", answer.body),
        }
    }

    /// Reports the end of an effect, for its claim or as the result of its call. Returns the caller and the call if that was
    /// acknowledged.
    pub(super) async fn report(
        &mut self,
        rng: &mut Rng,
        to: SocketAddr,
        owners: &[String; 2],
    ) -> Option<(usize, String)> {
        if self.unreported.is_empty() {
            return None;
        }
        let at = rng.below(self.unreported.len());
        let GrantedRun {
            caller,
            id,
            intent,
            claim,
        } = self.unreported[at].clone();
        let content = canary(caller, &id);
        let (path, body) = if rng.chance(50) {
            (format!("{intent}/result"), json!({"claim": claim, "content": content}))
        } else {
            (
                format!("/ledger/v1/calls/{id}/result"),
                json!({"content": content, "owner": owners[caller]}),
            )
        };
        let answer = ask(to, &path, &FIELDS, &body).await?;
        match answer.status {
            200 => {
                self.unreported.swap_remove(at);
                Some((caller, id))
            }
            502..=504 => None,
            status => panic!("{id}: {status} {}", answer.body),
        }
    }
}
