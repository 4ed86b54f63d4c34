//! Calls that get no answer of their server, while the server goes on.

use bytes::Bytes;

use super::{
    events::ClaimOrder,
    message::RpcId,
    outcome::ToolOutcome,
    state::{CallRelay, ToolRun},
};

impl CallRelay {
    /// Ends the run of a call whose outcome nobody knows. `line` is the error for a client that waits for it.
    pub(super) fn lose_call(&mut self, id: &RpcId, line: Option<Bytes>) {
        let number = self.open_run(id);
        if let Some(number) = number {
            self.order(number, ClaimOrder::Lost);
        }
        let run = number.and_then(|number| Some((number, self.runs.get(&number)?)));
        match (run, line) {
            (Some((number, run)), _) if run.is_detached() => {
                self.end_run(number, ToolOutcome::of_ended_server(), true);
            }
            // It has stopped, as the client wanted.
            (Some((number, run)), _) if run.is_cancelled() => drop::<Option<ToolRun>>(self.runs.remove(&number)),
            (_, Some(line)) => self.take_server_line(line),
            (_, None) => {}
        }
    }

    /// Ends the run of a call that has not reached the server. `line` is the error.
    pub(super) fn end_unsent(&mut self, id: &RpcId, line: Bytes) {
        if let Some(number) = self.open_run(id) {
            self.order(number, ClaimOrder::NotRun);
        }
        self.take_server_line(line);
    }
}
