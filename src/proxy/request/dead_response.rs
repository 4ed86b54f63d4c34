//! The removal of an id before the send, once the provider has refused it and accepted the request without it.

use bytes::Bytes;
use http::HeaderMap;

use super::{actions_header, planned_body::PlannedBody, received_body::ReceivedBody, unedited::report_unedited};
use crate::{
    auth::Caller,
    conversation::Finding,
    ledger::Unread,
    proxy::{
        data_path::DataPath,
        error::ProxyError,
        exchange_log::ExchangeLog,
        exchange_route::ExchangeRoute,
        fact_scope::FactScope,
        headers::forbids_edits,
        response_chain::{ChainRequest, WithoutDeadId},
    },
    recall::LedgerBudget,
    repair::{Mode, OnForeignThinking},
    wire::Wire,
};

/// The removal of dead ids from the body of one request.
pub(super) struct DeadIdRemoval<'x> {
    pub(super) path: &'x DataPath,
    pub(super) route: &'x ExchangeRoute<'x>,
    pub(super) headers: &'x HeaderMap,
    pub(super) wire: Wire,
    /// Mode of the request. The body of a signed request is observed only, whatever the mode.
    pub(super) mode: Mode,
}

/// A body that continues from a response which its provider has lost.
#[derive(Debug)]
pub(super) struct DeadResponse {
    removed: WithoutDeadId,
    mode: Mode,
    is_signed: bool,
}

impl DeadIdRemoval<'_> {
    /// Finds a dead id in a body, and what is sent without it. `caller` returns the caller that its facts belong to.
    pub(super) async fn find_dead(
        &self,
        caller: impl FnOnce() -> Caller,
        plain: Option<&Bytes>,
        ledger_budget: &mut LedgerBudget,
    ) -> Option<DeadResponse> {
        let plain = plain?;
        let dead_id = self.find_dead_id(caller, plain)?;
        // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
        Box::pin(self.remove_id(dead_id, plain, ledger_budget)).await
    }

    /// Returns the id that a body continues from, with its caller. `None` if no provider has refused it.
    fn find_dead_id(&self, caller: impl FnOnce() -> Caller, plain: &Bytes) -> Option<(Caller, String)> {
        let path = self.path;
        // In most processes no id was ever refused, so most bodies are not searched.
        let is_possible = path.facts.knows_dead_responses()
            && self.wire.format.continues_by_id()
            && path.settings.policy.foreign_thinking == OnForeignThinking::Remove;
        if !is_possible {
            return None;
        }
        let caller = caller();
        let request = self.chain_request(caller, plain, None);
        let server = self.route.server;
        let scope = FactScope { server, caller };
        // Comparing the items hashes all of them, so the id is looked up first.
        let is_dead = |id: &String| path.facts.is_dead_response(scope.dead_response_key(id));
        Some((caller, request.previous_id().filter(is_dead)?))
    }

    /// Removes a dead id. `None` if the body lacks an item of its response, or if the items are not known.
    async fn remove_id(
        &self,
        (caller, id): (Caller, String),
        plain: &Bytes,
        ledger_budget: &mut LedgerBudget,
    ) -> Option<DeadResponse> {
        let path = self.path;
        let chains = path.recall.response_chains();
        // Unless it is read, the provider refuses the id once more.
        let load = |deadline| chains.load_chain(caller, &id, deadline);
        let _: Result<(), Unread> = ledger_budget.spend(load).await;
        let request = self.chain_request(caller, plain, None);
        let removed = request.remove_dead_id(plain).filter(|removed| removed.id == id)?;
        // Any edit would break the client's own signature.
        let has_profile = self.route.pool.has_profiles();
        let is_signed = forbids_edits(self.headers, self.route.target.query(), has_profile);
        Some(DeadResponse {
            removed,
            mode: if is_signed { Mode::Observe } else { self.mode },
            is_signed,
        })
    }

    /// Reports a dead id, and attaches the items of the request, which its answer continues.
    pub(super) fn finish_body(
        &self,
        dead: Option<&DeadResponse>,
        received: &ReceivedBody,
        planned: Result<Box<PlannedBody>, ProxyError>,
        log: &mut ExchangeLog,
    ) -> Result<Box<PlannedBody>, ProxyError> {
        let removed = dead.filter(|dead| dead.mode == Mode::Repair);
        let removed_id = removed.map(|dead| dead.removed.id.clone());
        if let Some(dead) = dead.filter(|_| removed_id.is_none()) {
            dead.report_finding(self.wire, log)?;
        }
        let mut planned = planned?;
        // The bytes are not the client's, even if nothing else is repaired.
        planned.is_decoded |= removed_id.is_some();
        let context = &planned.context;
        let gets_id = self.wire.format.continues_by_id() && self.route.asks_for_turn() && !context.is_compaction;
        // Nothing is stored for callers without a credential, which anyone may be.
        let is_watched = removed_id.is_some() || (gets_id && context.caller.is_authenticated());
        let Some(body) = received.plain.as_ref().ok().filter(|_| is_watched) else {
            return Ok(planned);
        };
        let chain = self.chain_request(context.caller, body, removed_id);
        if let Some(report) = log.event.report.as_mut().filter(|_| chain.removed_id.is_some()) {
            chain.add_to_report(report);
            log.repair_header = Some(actions_header(report));
        }
        planned.chain = Some(chain);
        Ok(planned)
    }

    fn chain_request(&self, caller: Caller, body: &Bytes, removed_id: Option<String>) -> ChainRequest {
        ChainRequest {
            recall: self.path.recall.clone(),
            caller,
            body: body.clone(),
            removed_id,
        }
    }
}

impl DeadResponse {
    /// Returns the body without the dead id, to be read and sent in place of `received`. `None` if the mode forbids edits.
    pub(super) fn edit_body(&self, received: &ReceivedBody) -> Option<ReceivedBody> {
        let edited = &self.removed.body;
        (self.mode == Mode::Repair).then(|| ReceivedBody {
            raw: edited.clone(),
            plain: Ok(edited.clone()),
            coding: received.coding,
            reading_bytes: received.reading_bytes,
            // The bytes that came hold it.
            reading: None,
        })
    }

    /// Adds the finding to the report of a body that is not edited, and rejects the request in strict mode.
    fn report_finding(&self, wire: Wire, log: &mut ExchangeLog) -> Result<(), ProxyError> {
        // Of a body that was rejected already, this finding is one more reason.
        let mut report = log.event.report.take().unwrap_or_default();
        let finding = Finding::dead_response(self.removed.id.clone());
        report.findings.insert(0, finding);
        report_unedited(report, self.mode, self.is_signed, wire, log)
    }
}
