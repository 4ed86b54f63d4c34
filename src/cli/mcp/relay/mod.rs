//! The relay between a client and its server: lines pass as they came, and calls are watched beside them. Pure.

mod client_side;
mod early_answers;
mod events;
mod heartbeats;
#[cfg(test)]
mod join_tests;
mod lost_calls;
mod message;
mod once;
#[cfg(test)]
mod once_tests;
mod outcome;
mod sent_answers;
mod server_side;
mod state;
#[cfg(test)]
mod tests;
mod ticks;

pub(super) use events::{
    ClaimAnswer, ClaimOrder, FoundRun, KeptPlace, KeptResult, OnceTools, PostReply, RelayEffect, RelayEvent,
    RelaySettings, RunClaim, RunHash, RunNumber, WithdrawReply,
};
pub(super) use message::RpcId;
pub(super) use outcome::{RESULT_BYTES_MAX, ToolOutcome};
pub(super) use state::CallRelay;

use std::time::Duration;

use state::ClientPresence;

impl CallRelay {
    /// Takes an event at a time since the start. Returns what is to be done, in this order.
    pub(super) fn handle_event(&mut self, now: Duration, event: RelayEvent) -> Vec<RelayEffect> {
        self.now = self.now.max(now);
        match event {
            RelayEvent::ClientLine(line) => self.take_client_line(line),
            RelayEvent::ClientPiece(_) if self.holds_long_line() => {}
            RelayEvent::ClientPiece(piece) => self.effects.push(RelayEffect::ToServer(piece)),
            RelayEvent::InputEnded => {
                self.presence = self.presence.max(ClientPresence::Reading);
                self.post_unread();
            }
            RelayEvent::ClientGone => self.lose_client(),
            RelayEvent::Unwritten(line) => self.take_unwritten(&line),
            RelayEvent::AllWritten => self.take_all_written(),
            RelayEvent::ServerLine(line) => self.take_server_line(line),
            RelayEvent::ServerPiece(piece, is_last) => self.take_server_piece(piece, is_last),
            RelayEvent::CallLost(id, line) => self.lose_call(&id, line),
            RelayEvent::CallUnsent(id, line) => self.end_unsent(&id, line),
            RelayEvent::ServerGone => self.lose_server(),
            RelayEvent::Tick => self.take_tick(),
            RelayEvent::CallKnown(number, is_known) => self.answer_early(number, is_known),
            RelayEvent::Posted(number, reply) => self.take_post_reply(number, reply),
            RelayEvent::Withdrawn(number, reply) => self.take_withdraw_reply(number, reply),
            RelayEvent::Claimed(number, answer) => self.take_claimed(number, answer),
            RelayEvent::Reported(number, failure) => self.take_reported(number, failure),
            RelayEvent::Found(hash, found) => self.take_found(hash, found),
        }
        std::mem::take(&mut self.effects)
    }
}
