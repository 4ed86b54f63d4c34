//! The results that close what is open at the end of a history.

use std::collections::HashSet;

use crate::{
    conversation::{CallRowId, Conversation, PartId, WithoutResult, pairing::id_of},
    invariant::{
        pieces::text_of,
        window::{JudgedWindow, Window, WindowBody},
    },
    repair::Placeholder,
    splice::Piece,
    wire::{AnsweredCall, Unreadable, Wire, json::Json},
    work,
};

/// Most rounds in which results that come too late are left out.
const ROUNDS_MAX: usize = 4;

/// A call that waits for its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnansweredCall {
    /// Its id. Empty if it has none.
    pub id: String,
    /// The name of its tool. For kinds of calls without a name, their type.
    pub tool: String,
    /// The index of its message in the history, from 0.
    pub message: usize,
    /// `false` if nobody can write its result but the client: a screenshot.
    pub can_be_closed: bool,
}

/// A call that gets a result at the end.
#[derive(Debug)]
struct ClosedCall {
    row: CallRowId,
    part: PartId,
    call: UnansweredCall,
}

/// The calls that results at the end of the history can answer.
#[derive(Debug)]
pub(super) struct Closing {
    wire: Wire,
    body: WindowBody,
    closed: Vec<ClosedCall>,
    /// Calls that only the client can answer.
    others: Vec<UnansweredCall>,
}

impl Closing {
    /// Plans results for all open calls, and leaves out those that come too late: after another message.
    pub(super) fn plan(window: &Window, wire: Wire) -> Result<Self, Unreadable> {
        let mut closing = Self::all_open(window, wire)?;
        // A result out of place may push another one out, so that the rest is tried again.
        for _ in 0..ROUNDS_MAX {
            if closing.closed.is_empty() {
                return Ok(closing);
            }
            let results = closing.write_results(|_| Placeholder::OutcomeUnknown)?;
            let (answered, is_sound) = closing.answered_with(window, &results)?;
            if is_sound && answered.len() == closing.closed.len() {
                return Ok(closing);
            }
            work::count(closing.closed.len());
            closing.closed.retain(|closed| answered.contains(&closed.row));
        }
        closing.closed.clear();
        Ok(closing)
    }

    /// Returns every call without a result.
    fn all_open(window: &Window, wire: Wire) -> Result<Self, Unreadable> {
        let body = window.write_body(&[]);
        let (mut closed, mut others) = (Vec::new(), Vec::new());
        {
            let judged = window.judge_body(&body)?;
            for row in judged.open_rows() {
                let part = judged.pairing.calls[row].part;
                let Some(call) = describe_call(&judged, row, part) else {
                    continue;
                };
                if call.can_be_closed {
                    closed.push(ClosedCall { row, part, call });
                } else {
                    others.push(call);
                }
            }
        }
        Ok(Self {
            wire,
            body,
            closed,
            others,
        })
    }

    /// Returns the rows of the calls that `results` answer in their places, and `true` if no result is at fault.
    fn answered_with(&self, window: &Window, results: &[String]) -> Result<(HashSet<CallRowId>, bool), Unreadable> {
        let body = window.write_body(results);
        let judged = window.judge_body(&body)?;
        // The messages of the window come first in both bodies, so that the rows are the same.
        let is_answered = |row: &CallRowId| {
            let result = judged.pairing.calls.get(row.index()).and_then(|call| call.result);
            let result = result.and_then(|row| judged.pairing.results.get(row.index()));
            result.is_some_and(|result| result.in_place)
        };
        work::count(self.closed.len().saturating_add(judged.findings.len()));
        let end = window.end();
        let is_sound = judged.findings.iter().all(|finding| finding.message < end);
        let rows = self.closed.iter().map(|closed| closed.row);
        Ok((rows.filter(is_answered).collect(), is_sound))
    }

    /// Writes the messages with the results.
    pub(super) fn write_results(
        &self,
        reason: impl Fn(&UnansweredCall) -> Placeholder,
    ) -> Result<Vec<String>, Unreadable> {
        let conversation = self.wire.read(&self.body.bytes)?;
        let write = |closed: &ClosedCall| self.write_result(&conversation, closed.part, reason(&closed.call));
        let results: Vec<Vec<Piece>> = self.closed.iter().filter_map(write).collect();
        work::count(results.len());
        let messages = if results.is_empty() {
            Vec::new()
        } else if self.wire.pairing_rules().place.is_user_parts() {
            vec![self.wire.format.write_message(true, results)]
        } else {
            results
        };
        let text = |pieces: Vec<Piece>| text_of(&self.body.bytes, pieces);
        Ok(messages.into_iter().map(text).collect())
    }

    /// Writes the result of the call at `part`.
    fn write_result(&self, conversation: &Conversation<'_>, part: PartId, text: Placeholder) -> Option<Vec<Piece>> {
        let json = Json::new(&self.body.bytes);
        let span = conversation.part(part)?.span;
        let call = AnsweredCall {
            part: span,
            id: self.wire.format.call_id(json, span).map(Piece::Original),
            new_name: None,
            toolset: conversation.call_details(part).toolset,
        };
        Some(self.wire.format.write_placeholder(json, call, text.text()))
    }

    /// Returns the calls that wait for a result, in the order of the history.
    pub(super) fn into_calls(self) -> Vec<UnansweredCall> {
        let mut calls: Vec<UnansweredCall> = self.closed.into_iter().map(|closed| closed.call).collect();
        calls.extend(self.others);
        // The sort is stable, so parallel calls keep their order.
        calls.sort_by_key(|call| call.message);
        calls
    }
}

/// Describes the call of a row.
fn describe_call(judged: &JudgedWindow<'_>, row: CallRowId, part: PartId) -> Option<UnansweredCall> {
    let conversation = &judged.conversation;
    let json = Json::new(conversation.body);
    let tool = conversation
        .call_details(part)
        .name
        .map(|name| json.decode_string(name));
    Some(UnansweredCall {
        id: String::from_utf8_lossy(id_of(conversation, part)).into_owned(),
        tool: String::from_utf8_lossy(&tool.unwrap_or_default()).into_owned(),
        message: judged.place_of(part)?,
        can_be_closed: judged.pairing.calls.get(row.index())?.without_result == WithoutResult::Refused,
    })
}
