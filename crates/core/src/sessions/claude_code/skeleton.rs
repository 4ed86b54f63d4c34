//! The request as a body without its texts, so that the rules for bodies can judge its calls and results.

use std::collections::{HashMap, HashSet};

use super::{
    branch::SentBranch,
    entry::{EntryList, InputForm, PartEntry, PartSort, mark},
    joins::SentRecords,
};
use crate::{
    conversation::Finding,
    repair::{RepairPolicy, check},
    wire::Wire,
    work,
};

/// A part of the body, and its place in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartPlace {
    /// The record.
    pub(super) record: u32,
    /// The number of the part among those of all records.
    pub(super) part: u32,
}

/// A finding of the body, with its place in the file.
#[derive(Debug)]
pub(super) struct PlacedFinding {
    /// The finding.
    pub(super) finding: Finding,
    /// Its place.
    pub(super) place: PartPlace,
    /// `true` if its call is the last thing that was said: the client may still answer it.
    pub(super) is_last: bool,
}

/// The body, as it is being written.
#[derive(Debug, Default)]
struct Skeleton {
    body: Vec<u8>,
    /// For each message the number of the first of its parts.
    starts: Vec<usize>,
    places: Vec<PartPlace>,
    /// Texts since the last message with calls or results: of the user, and of the model.
    texts: (bool, bool),
    /// The last message of the model. `None` if only text of it came last.
    last_answer: Option<usize>,
}

/// Judges the calls and results of a request.
pub(super) fn judge_pairs(list: &EntryList, branch: &SentBranch, sent: &SentRecords) -> Vec<PlacedFinding> {
    let skeleton = Skeleton::of_request(list, branch, sent);
    let found = check(&skeleton.body, Wire::ANTHROPIC, &RepairPolicy::default()).unwrap_or_default();
    let last = skeleton.last_answer;
    let placed = found.into_iter().filter_map(|finding| {
        let start = skeleton.starts.get(finding.message)?;
        let place = *skeleton.places.get(start.saturating_add(finding.part?))?;
        // A text has no part of its own in the list of parts.
        let end = skeleton.starts.get(finding.message.saturating_add(1)).copied();
        let is_part = start.saturating_add(finding.part?) < end.unwrap_or(skeleton.places.len());
        let is_last = last == Some(finding.message);
        is_part.then_some(PlacedFinding {
            finding,
            place,
            is_last,
        })
    });
    placed.collect()
}

impl Skeleton {
    fn of_request(list: &EntryList, branch: &SentBranch, sent: &SentRecords) -> Self {
        let mut answers: HashMap<u64, Vec<u32>> = HashMap::new();
        for record in (0..list.count()).filter(|record| sent.members.has(*record)) {
            work::count(1);
            let message = list.entry(record).message;
            if message != 0 {
                answers.entry(message).or_default().push(record);
            }
        }
        let mut skeleton = Self {
            body: b"{\"messages\":[".to_vec(),
            ..Self::default()
        };
        for record in branch.kept.iter().chain(&branch.chain) {
            let entry = list.entry(*record);
            if !entry.has(mark::MESSAGE) {
                continue;
            }
            if !entry.has(mark::ASSISTANT) {
                skeleton.add_message(list, false, &[*record]);
            } else if entry.message == 0 {
                skeleton.add_answer(list, sent, &[*record]);
            } else if let Some(records) = answers.remove(&entry.message) {
                // The client sends all records of an answer where the first one stands.
                skeleton.add_answer(list, sent, &records);
            }
        }
        skeleton.flush_texts();
        skeleton.body.extend_from_slice(b"]}");
        skeleton
    }

    /// Adds an answer, and the results beside the chain that belong to it.
    fn add_answer(&mut self, list: &EntryList, sent: &SentRecords, records: &[u32]) {
        self.add_message(list, true, records);
        let (mut seen, mut results) = (HashSet::new(), Vec::new());
        for part in records.iter().flat_map(|record| list.parts_of(*record)) {
            work::count(1);
            let joined = sent.joined.get(&part.id).filter(|record| seen.insert(**record));
            results.extend(joined);
        }
        if !results.is_empty() {
            self.add_message(list, false, &results);
        }
    }

    fn add_message(&mut self, list: &EntryList, is_answer: bool, records: &[u32]) {
        let has_text = records.iter().any(|record| list.entry(*record).has(mark::TEXT));
        let is_judged = |part: &PartEntry| part.sort != PartSort::ForeignThinking;
        let has_parts = records
            .iter()
            .flat_map(|record| list.parts_of(*record))
            .any(|part| is_judged(&part));
        if !has_parts {
            // Only who spoke since the last call or result matters, however often.
            if is_answer {
                self.texts.1 = true;
            } else {
                self.texts.0 = true;
            }
            self.last_answer = None;
            return;
        }
        self.flush_texts();
        let message = self.starts.len();
        self.open_message(is_answer);
        let mut separator = "";
        for record in records {
            for number in list.part_numbers(*record) {
                let Some(part) = list.part(number).filter(is_judged) else {
                    continue;
                };
                work::count(1);
                self.body.extend_from_slice(separator.as_bytes());
                self.write_part(&part);
                self.places.push(PartPlace {
                    record: *record,
                    part: number,
                });
                separator = ",";
            }
        }
        if has_text {
            self.body.extend_from_slice(separator.as_bytes());
            self.body.extend_from_slice(br#"{"type":"text","text":"x"}"#);
        }
        self.body.extend_from_slice(b"]}");
        if is_answer {
            self.last_answer = Some(message);
        } else if has_text {
            self.last_answer = None;
        }
    }

    /// Writes the texts since the last message as one message.
    fn flush_texts(&mut self) {
        let (user, model) = std::mem::take(&mut self.texts);
        if user || model {
            self.open_message(!user);
            self.body.extend_from_slice(br#"{"type":"text","text":"x"}]}"#);
        }
    }

    fn open_message(&mut self, is_answer: bool) {
        if !self.starts.is_empty() {
            self.body.push(b',');
        }
        self.starts.push(self.places.len());
        let role = if is_answer { "assistant" } else { "user" };
        self.body.extend(format!(r#"{{"role":"{role}","content":["#).bytes());
    }

    fn write_part(&mut self, part: &PartEntry) {
        let id = match part.id {
            0 => String::new(),
            id if part.is_legal_id => format!("h{id:016x}"),
            id => format!("!{id:016x}"),
        };
        let call = |name, input| format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}"#);
        let text = match part.sort {
            PartSort::Call(InputForm::Sound) => call("f", "{}"),
            PartSort::Call(InputForm::Text) => call("f", "\"x\""),
            PartSort::Call(InputForm::Empty) => call("f", "null"),
            PartSort::Call(InputForm::Other) => call("f", "1"),
            PartSort::Call(InputForm::BadName) => call("!", "{}"),
            PartSort::Result | PartSort::LostResult => {
                format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"x"}}"#)
            }
            PartSort::ServerCall => {
                format!(r#"{{"type":"server_tool_use","id":"{id}","name":"web_search","input":{{}}}}"#)
            }
            PartSort::ServerResult => {
                format!(r#"{{"type":"web_search_tool_result","tool_use_id":"{id}","content":[]}}"#)
            }
            PartSort::ForeignThinking => String::new(),
        };
        self.body.extend(text.bytes());
    }
}
