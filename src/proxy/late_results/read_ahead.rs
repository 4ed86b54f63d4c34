//! The first reads for a patient request, side by side.

use super::{before_send::BeforeSend, open_calls::OpenCallRecords};
use crate::{
    ledger::Unread,
    repair::{BodyCall, Paired},
};

impl BeforeSend<'_> {
    /// Reads what the ledger knows about the body, side by side. Returns the records of its open calls, and [`Unread`] if it is
    /// not known in time which results were posted.
    ///
    /// For patient requests: over a slow ledger, one read after the other would use up their time.
    pub(in crate::proxy) async fn read_ahead(&self, paired: &Paired<'_>) -> (OpenCallRecords, Result<(), Unread>) {
        let (results, recall, deadline) = (self.results, &self.path.recall, self.deadline);
        let (caller, mut records) = (results.caller, OpenCallRecords::default());
        // Each of the reads needs to know it.
        if !matches!(self.path.callers.verify(caller, deadline).await, Ok(true)) {
            return (records, Ok(()));
        }
        let is_in_memory = |call: &BodyCall| recall.cached_result(self.scope, call.key).is_some();
        let open: Vec<&BodyCall> = paired.open_calls().filter(|call| !is_in_memory(call)).collect();
        // What else stays unknown is noticed, and counted, where it is needed.
        let (_, _, (), posted) = tokio::join!(
            recall.load_texts(caller, deadline),
            results.noted_calls(deadline),
            // What was sent in the place of a call must be sent again, so it does not wait until new results are found.
            records.read(&open, *self),
            results.late.calls().load_posted(caller, true, deadline),
        );
        (records, posted)
    }
}
