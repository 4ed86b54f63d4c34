//! The recorded call that a service names in a request.

use super::{
    LateError,
    matching::{self, CallMatch, CandidateCall, NamedCall},
    parts::LateParts,
    records::{RecordedCall, call_names::call_index},
};
use crate::{
    ledger::{Moment, ROWS_MAX, RecordKind},
    table::Stored,
};

/// The recorded call that a service names, with its record.
pub(super) enum MatchedCall {
    One(Box<Stored<RecordedCall>>),
    Several,
    None,
}

impl LateParts {
    /// Finds the recorded call that a service names. What is queued about it is not waited for.
    ///
    /// `digest` is that of the posted result. `None` for a request without one.
    pub(super) async fn find_call(
        &self,
        named: &NamedCall<'_>,
        digest: Option<&[u8; 32]>,
        now: Moment,
    ) -> Result<MatchedCall, LateError> {
        let records = self
            .ledger
            .find_by_index(RecordKind::Call, call_index(named.call_id), ROWS_MAX, now)
            .await?;
        // The list may be cut off: a call that it does not contain could be meant as well.
        if records.len() >= ROWS_MAX {
            return Ok(MatchedCall::Several);
        }
        let mut calls: Vec<Stored<RecordedCall>> = records.into_iter().filter_map(Stored::from_record).collect();
        let candidates: Vec<CandidateCall<'_>> = calls
            .iter()
            .map(|call| CandidateCall {
                principal: call.record.key.owner(),
                call: &call.value,
            })
            .collect();
        Ok(match matching::choose_call(named, &self.owners, &candidates, digest) {
            CallMatch::One(index) if index < calls.len() => MatchedCall::One(Box::new(calls.swap_remove(index))),
            CallMatch::Several => MatchedCall::Several,
            CallMatch::One(_) | CallMatch::None => MatchedCall::None,
        })
    }
}
