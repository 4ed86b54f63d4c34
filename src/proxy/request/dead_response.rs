//! The removal of an id before the send, once the provider has refused it and accepted the request without it.

use bytes::Bytes;

use super::{actions_header, body_repair::BodyRepair, outgoing::OutgoingBody, unedited::report_unedited};
use crate::{
    auth::Caller,
    conversation::Finding,
    proxy::{
        error::ProxyError,
        exchange_log::ExchangeLog,
        headers::is_signed,
        provider_facts::FactScope,
        response_chain::{ChainRequest, WithoutDeadId},
    },
    repair::{Mode, OnForeignThinking, parse},
    session::body_user,
    wire::{Format, Unreadable, Wire},
};

/// A body that continues from a response which its provider has lost.
#[derive(Debug)]
pub(super) struct DeadResponse {
    removed: WithoutDeadId,
    mode: Mode,
    is_signed: bool,
}

impl DeadResponse {
    /// Finds the id in a body that contains every item of its response. `None` if no provider has refused it.
    fn find(repair: &BodyRepair<'_>, caller: Caller, plain: &Bytes) -> Option<Self> {
        // In most processes no id was ever refused, so most bodies are not searched.
        let is_possible = repair.path.facts.knows_dead_responses()
            && repair.wire.format == Format::OpenAiResponses
            && repair.policy.foreign_thinking == OnForeignThinking::Remove;
        if !is_possible {
            return None;
        }
        let caller = narrowed_caller(repair, caller, plain);
        let recall = repair.path.recall.clone();
        let body = plain.clone();
        let removed = ChainRequest {
            recall,
            caller,
            body,
            removed_id: None,
        }
        .remove_dead_id(plain)?;
        let upstream = &repair.route.upstream.name;
        let key = FactScope { upstream, caller }.dead_response_key(&removed.id);
        if !repair.path.facts.is_dead_response(key) {
            return None;
        }
        // Any edit would break the client's own signature.
        let is_signed = is_signed(repair.headers) && !repair.path.profiles.has_profiles(upstream);
        Some(Self {
            removed,
            mode: if is_signed { Mode::Observe } else { repair.mode },
            is_signed,
        })
    }

    /// Removes a dead id from a body, in repair mode. Returns the bytes to send and to read, which else stay the same.
    pub(super) fn remove_from(
        repair: &BodyRepair<'_>,
        caller: Caller,
        raw: Bytes,
        decoded: Result<Bytes, Unreadable>,
    ) -> (Option<Self>, Bytes, Result<Bytes, Unreadable>) {
        let found = decoded
            .as_ref()
            .ok()
            .and_then(|plain| Self::find(repair, caller, plain));
        match &found {
            Some(dead) if dead.mode == Mode::Repair => {
                let edited = dead.removed.body.clone();
                (found, edited.clone(), Ok(edited))
            }
            _ => (found, raw, decoded),
        }
    }

    /// Adds the finding to the report of a body that is not edited, and rejects the request in strict mode.
    fn report_unedited(&self, wire: Wire, log: &mut ExchangeLog) -> Result<(), ProxyError> {
        // Of a body that was rejected already, this finding is one more reason.
        let mut report = log.event.report.take().unwrap_or_default();
        report
            .findings
            .insert(0, Finding::dead_response(self.removed.id.clone()));
        report_unedited(report, self.mode, self.is_signed, wire, log)
    }
}

/// Reports a dead id, and attaches the items of the request, which its answer continues.
pub(super) fn finish_body(
    repair: &BodyRepair<'_>,
    dead: Option<DeadResponse>,
    decoded: &Result<Bytes, Unreadable>,
    outgoing: Result<OutgoingBody, ProxyError>,
    log: &mut ExchangeLog,
) -> Result<OutgoingBody, ProxyError> {
    let removed = dead.as_ref().filter(|dead| dead.mode == Mode::Repair);
    let removed_id = removed.map(|dead| dead.removed.id.clone());
    if let Some(dead) = dead.as_ref().filter(|_| removed_id.is_none()) {
        dead.report_unedited(repair.wire, log)?;
    }
    let mut outgoing = outgoing?;
    // The bytes are not the client's, even if nothing else is repaired.
    outgoing.is_decoded |= removed_id.is_some();
    let (context, route) = (&outgoing.context, repair.route);
    let gets_id = repair.wire.format == Format::OpenAiResponses && route.asks_for_turn() && !context.is_compaction;
    // Nothing is stored for callers without a credential, which anyone may be.
    let is_watched = removed_id.is_some() || (gets_id && context.caller.is_authenticated());
    let Some(body) = decoded.as_ref().ok().filter(|_| is_watched) else {
        return Ok(outgoing);
    };
    let chain = ChainRequest {
        recall: repair.path.recall.clone(),
        caller: context.caller,
        body: body.clone(),
        removed_id,
    };
    if let Some(report) = log.event.report.as_mut().filter(|_| chain.removed_id.is_some()) {
        chain.add_to_report(report);
        log.repair_header = Some(actions_header(report));
    }
    outgoing.chain = Some(chain);
    Ok(outgoing)
}

/// Returns the caller, narrowed to the user that the body names if bodies are trusted with that.
fn narrowed_caller(repair: &BodyRepair<'_>, caller: Caller, plain: &Bytes) -> Caller {
    if !repair.path.settings.principals.trust_body_user {
        return caller;
    }
    let user = parse(plain, repair.wire)
        .ok()
        .and_then(|parsed| body_user(plain, &parsed.outline()));
    user.map_or(caller, |user| {
        caller.with_user(&repair.path.principal_key, user.as_bytes())
    })
}
