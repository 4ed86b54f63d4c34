//! Calls and results that are matched by their ids alone.
//!
//! Clients that answer open calls and drop lone results themselves need no more: the order of the rest does not matter.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hasher as _},
};

use super::{
    damage::{Damage, SessionCode},
    finding::{ID_BYTES_MAX, SessionFinding},
};
use crate::{conversation::FindingKind, work};

/// The place of a call or result in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallPlace {
    /// The line.
    pub(super) line: u64,
    /// Offset of the record or block.
    pub(super) byte: u64,
    /// Its length.
    pub(super) len: u64,
    /// `true` if the client reads it.
    pub(super) is_read: bool,
}

/// A call, and what has become of it.
#[derive(Clone, Debug)]
struct CallState {
    place: CallPlace,
    id: Box<str>,
    /// The line of its result. `None` if it has none yet.
    result: Option<u64>,
    /// Messages before it.
    after: u64,
    /// `true` if it is sent, and so needs a result.
    is_due: bool,
}

/// The calls and results of a session, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct CallPairs {
    calls: Vec<CallState>,
    /// The first call of each id, by the hash of that.
    by_id: HashMap<u64, usize>,
    messages: u64,
    findings: Vec<SessionFinding>,
}

impl CallPairs {
    /// Notes that somebody spoke: calls before that are no longer the last ones.
    pub(super) const fn note_message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }

    /// Notes that nothing before this place is sent. Results for calls from there may still come.
    pub(super) fn forget_calls(&mut self) {
        work::count(self.calls.len());
        for call in &mut self.calls {
            call.is_due = false;
        }
    }

    /// Adds a call.
    pub(super) fn add_call(&mut self, id: &[u8], place: CallPlace) {
        self.add(id, place, true);
    }

    /// Adds a call that is not sent, such as one of the user.
    pub(super) fn add_unsent_call(&mut self, id: &[u8], place: CallPlace) {
        self.add(id, place, false);
    }

    fn add(&mut self, id: &[u8], place: CallPlace, is_due: bool) {
        work::count(1);
        let text = id_text(id);
        match self.by_id.entry(hash_id(id)) {
            Entry::Occupied(earlier) => {
                let earlier = self.calls.get(*earlier.get()).filter(|call| is_due && call.is_due);
                if let Some(earlier) = earlier {
                    let code = SessionCode::Pairing(FindingKind::DuplicateCall);
                    self.findings.push(told(code, place, text, vec![earlier.place.line]));
                }
            }
            Entry::Vacant(free) => {
                free.insert(self.calls.len());
                self.calls.push(CallState {
                    place,
                    id: text,
                    result: None,
                    after: self.messages,
                    is_due,
                });
            }
        }
    }

    /// Adds a result. Returns `true` if the client sends it.
    pub(super) fn add_result(&mut self, id: &[u8], place: CallPlace) -> bool {
        work::count(1);
        let call = self.by_id.get(&hash_id(id)).and_then(|call| self.calls.get_mut(*call));
        let (kind, lines) = match call {
            Some(call) if call.result.is_none() => {
                call.result = Some(place.line);
                return call.place.is_read && place.is_read && call.is_due;
            }
            Some(call) => (FindingKind::Duplicate, call.result.into_iter().collect()),
            None => (FindingKind::Orphan, Vec::new()),
        };
        self.findings
            .push(told(SessionCode::Pairing(kind), place, id_text(id), lines));
        false
    }

    /// Adds a fault that a call or result has by itself.
    pub(super) fn add_fault(&mut self, kind: FindingKind, id: &[u8], place: CallPlace) {
        self.findings
            .push(told(SessionCode::Pairing(kind), place, id_text(id), Vec::new()));
    }

    /// Returns the findings, with those of calls without a result.
    pub(super) fn finish(mut self) -> Vec<SessionFinding> {
        work::count(self.calls.len());
        for call in self.calls {
            if call.result.is_some() || !call.is_due {
                continue;
            }
            let code = if call.after == self.messages {
                SessionCode::Damage(Damage::OpenCall)
            } else {
                SessionCode::Pairing(FindingKind::Unanswered)
            };
            self.findings.push(told(code, call.place, call.id, Vec::new()));
        }
        self.findings.sort_by_key(|finding| (finding.line, finding.byte));
        self.findings
    }
}

fn told(code: SessionCode, place: CallPlace, id: Box<str>, lines: Vec<u64>) -> SessionFinding {
    SessionFinding {
        id: id.into_string(),
        lines,
        ..SessionFinding::told(code, place.line, place.byte, place.len)
    }
}

fn id_text(id: &[u8]) -> Box<str> {
    let kept = id.get(..id.len().min(ID_BYTES_MAX)).unwrap_or_default();
    String::from_utf8_lossy(kept).into()
}

fn hash_id(id: &[u8]) -> u64 {
    // Fixed keys: the same file must give the same findings.
    let mut hash = DefaultHasher::new();
    hash.write(id);
    hash.finish()
}
