//! The request as a body without its texts, so that the rules for bodies can judge its calls and results.

use std::collections::{HashMap, HashSet};

use super::{
    branch::{RecordSet, SentBranch},
    entry::{EntryList, InputShape, PartEntry, PartSort, mark},
    joins::SentRecords,
    links::LinkIndex,
};
use crate::{
    conversation::{Finding, FindingKind},
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
    /// `true` for a result that stands behind a further answer of the model. Clients put others in their place.
    pub(super) is_late: bool,
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
    /// The turn that is being read. `None` outside of turns with calls.
    turn: Option<PlainTurn>,
}

/// A turn whose calls have had nothing but their results so far. Once it has them all there is nothing to judge.
///
/// Nearly all turns of a session end so, and the body would be much larger with them.
#[derive(Debug, Default)]
struct PlainTurn {
    /// Its messages: of the model or not, and their records.
    messages: Vec<(bool, Vec<u32>)>,
    /// The calls that have no result yet.
    open: HashSet<u64>,
}

/// Judges the calls and results of a request. `None` if they could not be judged, which a body of this form allows for no
/// file.
pub(super) fn judge_pairs(
    list: &EntryList,
    index: &LinkIndex,
    branch: &SentBranch,
    sent: &SentRecords,
) -> Option<Vec<PlacedFinding>> {
    let skeleton = Skeleton::of_request(list, index, branch, sent);
    let found = check(&skeleton.body, Wire::ANTHROPIC, &RepairPolicy::default()).ok()?;
    let last = skeleton.last_answer;
    let is_misplaced = |finding: &Finding| finding.kind == FindingKind::Misplaced;
    let answers = if found.iter().any(is_misplaced) {
        count_answers(list, index, branch)
    } else {
        HashMap::new()
    };
    let is_late = |place: PartPlace| {
        let part = list.part(place.part);
        let call = part.and_then(|part| sent.calls.get(&part.id)).map(|call| call.record);
        let before_call = call.and_then(|call| answers.get(&call));
        before_call.is_none() || before_call != answers.get(&place.record)
    };
    let placed = found.into_iter().filter_map(|finding| {
        let start = skeleton.starts.get(finding.message)?;
        let place = *skeleton.places.get(start.saturating_add(finding.part?))?;
        // A text has no part of its own in the list of parts.
        let end = skeleton.starts.get(finding.message.saturating_add(1)).copied();
        let is_part = start.saturating_add(finding.part?) < end.unwrap_or(skeleton.places.len());
        let is_last = last == Some(finding.message);
        is_part.then(|| PlacedFinding {
            is_late: is_misplaced(&finding) && is_late(place),
            finding,
            place,
            is_last,
        })
    });
    Some(placed.collect())
}

/// Counts, for each record of the chain and each other record of its answer, the answers of the model up to it.
fn count_answers(list: &EntryList, index: &LinkIndex, branch: &SentBranch) -> HashMap<u32, u32> {
    let (mut counts, mut count, mut last) = (HashMap::new(), 0_u32, 0);
    for record in branch.kept.iter().chain(&branch.chain) {
        work::count(1);
        let entry = list.entry(*record);
        if entry.has(mark::MESSAGE | mark::ASSISTANT) && (entry.message == 0 || entry.message != last) {
            count = count.saturating_add(1);
            last = entry.message;
        }
        // The other records of an answer may stand beside the chain. All are counted with the first one.
        if !counts.contains_key(record) {
            for block in index.other_blocks(*record) {
                counts.entry(block).or_insert(count);
            }
        }
        counts.insert(*record, count);
    }
    counts
}

impl Skeleton {
    fn of_request(list: &EntryList, index: &LinkIndex, branch: &SentBranch, sent: &SentRecords) -> Self {
        let mut added = RecordSet::with_room(list.count());
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
                skeleton.take_message(list, sent, false, &[*record]);
            } else if entry.message == 0 {
                skeleton.add_answer(list, sent, &[*record]);
            } else {
                // The client sends all records of an answer where the first one stands.
                if added.add(*record) {
                    let others = index.other_blocks(*record).inspect(|other| _ = added.add(*other));
                    let mut blocks: Vec<u32> = others.filter(|other| sent.members.has(*other)).collect();
                    blocks.push(*record);
                    blocks.sort_unstable();
                    skeleton.add_answer(list, sent, &blocks);
                }
            }
        }
        skeleton.end_turn(list);
        skeleton.flush_texts();
        skeleton.body.extend_from_slice(b"]}");
        skeleton
    }

    /// Adds an answer, and the results beside the chain that belong to it.
    fn add_answer(&mut self, list: &EntryList, sent: &SentRecords, records: &[u32]) {
        self.take_message(list, sent, true, records);
        let (mut seen, mut results) = (HashSet::new(), Vec::new());
        for part in records.iter().flat_map(|record| list.parts_of(*record)) {
            work::count(1);
            let joined = sent.joined.get(&part.id).filter(|record| seen.insert(**record));
            results.extend(joined);
        }
        if !results.is_empty() {
            self.take_message(list, sent, false, &results);
        }
    }

    /// Adds a message, unless it belongs to a turn in which there is nothing to judge.
    fn take_message(&mut self, list: &EntryList, sent: &SentRecords, is_answer: bool, records: &[u32]) {
        let parts = || records.iter().flat_map(|record| list.parts_of(*record));
        if let Some(turn) = &mut self.turn {
            let is_plain =
                |record: &u32| list.entry(*record).has(mark::RESULTS) && !list.entry(*record).has(mark::TEXT);
            let is_result =
                !is_answer && records.iter().all(is_plain) && parts().all(|part| turn.open.remove(&part.id));
            if is_result {
                turn.messages.push((false, records.to_vec()));
                if turn.open.is_empty() {
                    (self.turn, self.last_answer, self.texts) = (None, None, (true, true));
                }
                return;
            }
            self.end_turn(list);
        }
        let is_plain = |part: &PartEntry| match part.sort {
            PartSort::Call(InputShape::Sound) => part.is_legal_id && !sent.repeated.contains(&part.id),
            PartSort::ForeignThinking => true,
            _ => false,
        };
        let open: HashSet<u64> = parts().map(|part| part.id).filter(|id| *id != 0).collect();
        work::count(open.len());
        if is_answer && !open.is_empty() && parts().all(|part| is_plain(&part)) {
            let messages = vec![(true, records.to_vec())];
            self.turn = Some(PlainTurn { messages, open });
        } else {
            self.add_message(list, is_answer, records);
        }
    }

    /// Adds the messages of a turn that has ended without all of its results.
    fn end_turn(&mut self, list: &EntryList) {
        for (is_answer, records) in self.turn.take().unwrap_or_default().messages {
            self.add_message(list, is_answer, &records);
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
            PartSort::Call(InputShape::Sound) => call("f", "{}"),
            PartSort::Call(InputShape::Text) => call("f", "\"x\""),
            PartSort::Call(InputShape::Empty) => call("f", "null"),
            PartSort::Call(InputShape::Other) => call("f", "1"),
            PartSort::Call(InputShape::BadName) => call("!", "{}"),
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

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use crate::sessions::{RecordLoss, claude_code::log_writer::record, scan_session};

    /// A log, with its loss and the messages that two versions send.
    type MisplacedResult<'l> = (&'l [&'l str], RecordLoss, [u64; 2]);

    #[test]
    fn a_result_is_late_behind_a_further_answer() {
        let cases: [MisplacedResult<'_>; 3] = [
            (
                &["1 - user", "2 1 call m1 A", "3 2 user", "4 3 result A", "5 4 text m2"],
                RecordLoss::Nothing,
                [5, 5],
            ),
            (
                &[
                    "1 - user",
                    "2 1 call m1 A",
                    "3 2 text m1",
                    "4 3 user",
                    "5 4 result A",
                    "6 5 text m2",
                ],
                RecordLoss::Nothing,
                [6, 6],
            ),
            (
                &[
                    "1 - user",
                    "2 1 call m1 A",
                    "3 2 text m2",
                    "4 3 user",
                    "5 4 result A",
                    "6 5 text m3",
                ],
                RecordLoss::Any,
                [6, 5],
            ),
        ];
        for (lines, loss, reachable) in cases {
            for (version, reachable) in ["2.0.32", "2.1.332"].into_iter().zip(reachable) {
                let file: String = lines.iter().map(|line| record(line, version) + "\n").collect();
                let report = scan_session(&mut Cursor::new(file)).unwrap().unwrap();
                let found = report
                    .findings
                    .iter()
                    .map(|finding| (finding.code.label(), finding.loss));
                assert_eq!(found.collect::<Vec<_>>(), [("misplaced", loss)], "{lines:?}");
                assert_eq!(report.reachable, reachable, "{lines:?} in {version}");
            }
        }
    }
}
