//! Calls whose connection to the server has ended before their answer, while the server goes on.

use bytes::Bytes;

use super::{
    message::RpcId,
    outcome::ToolOutcome,
    state::{CallRelay, ToolRun},
};

impl CallRelay {
    /// Ends the run of a call that gets no answer any more. `line` is the error for a client that waits for it.
    pub(super) fn lose_call(&mut self, id: &RpcId, line: Option<Bytes>) {
        let run = self
            .runs
            .iter()
            .find(|(_, run)| run.is_open() && run.server_id == *id)
            .map(|(number, run)| (*number, run.is_detached(), run.is_stopped()));
        match (run, line) {
            (Some((number, true, _)), _) => self.end_run(number, ToolOutcome::of_ended_server(), true),
            // It has stopped, as the client wanted.
            (Some((number, _, true)), _) => drop::<Option<ToolRun>>(self.runs.remove(&number)),
            (_, Some(line)) => self.take_server_line(line),
            (_, None) => {}
        }
    }
}
