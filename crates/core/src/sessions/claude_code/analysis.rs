//! The faults of a session, and the messages that its client would send.

use std::collections::{HashMap, HashSet};

use super::{
    branch::{RecordSet, SentBranch, find_leaf, walk_back},
    entry::{EntryList, InputShape, PartEntry, PartSort, mark},
    forks::find_forks,
    joins::SentRecords,
    links::{LinkIndex, NONE},
    reading::ReadLog,
    remedy::{FoundFault, Remedy},
    skeleton::{PlacedFinding, judge_pairs},
};
use crate::{
    conversation::FindingKind,
    sessions::{
        client::SessionClient,
        damage::{Damage, SessionCode},
        finding::{RecordLoss, SessionFinding},
        measured::Severity,
        severity::find_effect,
    },
    work,
};

/// A session, as it was judged.
#[derive(Debug)]
pub(super) struct LogAnalysis {
    /// Its records.
    pub(super) log: ReadLog,
    /// Their links.
    pub(super) index: LinkIndex,
    /// The record at the end of the conversation. [`NONE`] if there is none.
    pub(super) leaf: u32,
    /// The faults, in the order of the file.
    pub(super) faults: Vec<FoundFault>,
    /// Messages of the conversation in the file.
    pub(super) messages: u64,
    /// Those of them that the client sends.
    pub(super) reachable: u64,
}

impl LogAnalysis {
    /// Judges a session.
    pub(super) fn new(mut log: ReadLog) -> Self {
        let index = LinkIndex::new(&mut log);
        let leaf = find_leaf(&log, &index);
        let branch = walk_back(&log, &index, leaf);
        let judge = Judge {
            log: &log,
            index: &index,
            branch: &branch,
        };
        // Damage is judged as if every link and line were sound: what a lost link cuts off must not hide what is open.
        let sent = SentRecords::join(&log.list, &index, branch.members.clone(), true);
        let mut faults = judge.link_faults(&sent);
        let judged = judge_pairs(&log.list, &index, &branch, &sent);
        let placed = judged.as_deref().unwrap_or_default();
        faults.extend(judge.unjudged_calls(judged.is_some(), &sent));
        faults.extend(judge.pair_faults(placed, &sent));
        faults.extend(judge.other_results(&sent));
        faults.extend(judge.foreign_thinking(&sent));
        faults.extend(find_forks(&log, &index, &branch, &sent));
        judge.rewrite_calls(&mut faults);
        faults.sort_by_key(|fault| (fault.finding.line, fault.finding.byte));
        let messages = (0..log.list.count()).filter(|record| judge.is_message(*record)).count() as u64;
        let reachable = judge.count_reachable(placed, sent);
        Self {
            log,
            index,
            leaf,
            faults,
            messages,
            reachable,
        }
    }
}

struct Judge<'l> {
    log: &'l ReadLog,
    index: &'l LinkIndex,
    branch: &'l SentBranch,
}

impl Judge<'_> {
    fn list(&self) -> &EntryList {
        &self.log.list
    }

    /// Returns `true` if a record is a message of the owner, and no copy.
    fn is_message(&self, record: u32) -> bool {
        let entry = self.list().entry(record);
        // A record of a sub-agent in the chain is sent like the others.
        let is_own = !self.index.is_foreign(self.list(), record) || self.branch.members.has(record);
        entry.has(mark::MESSAGE) && !entry.has(mark::COPY) && is_own
    }

    /// Returns `true` if the version that wrote the file loses nothing by a damage.
    fn copes_with(&self, damage: Damage) -> bool {
        let (code, client) = (SessionCode::Damage(damage), SessionClient::ClaudeCode);
        let known = find_effect(code, RecordLoss::Any, client, self.log.version);
        known.is_some_and(|row| row.severity == Severity::Note)
    }

    /// Returns the fault of a record as a whole.
    fn record_fault(&self, damage: Damage, record: u32, others: &[u32], remedy: Remedy) -> FoundFault {
        let entry = self.list().entry(record);
        let id = if entry.has(mark::REAL_UUID) {
            entry.uuid.to_uuid()
        } else {
            String::new()
        };
        let lines = others.iter().map(|other| self.list().entry(*other).line).collect();
        FoundFault {
            finding: SessionFinding {
                code: SessionCode::Damage(damage),
                line: entry.line,
                byte: entry.byte,
                len: u64::from(entry.len),
                id,
                lines,
                fix: remedy.fix_kind(),
                loss: RecordLoss::Any,
            },
            remedy,
            place: None,
        }
    }

    fn part_fault(
        &self,
        code: SessionCode,
        record: u32,
        part: &PartEntry,
        lines: Vec<u64>,
        remedy: Remedy,
    ) -> FoundFault {
        let entry = self.list().entry(record);
        FoundFault {
            finding: SessionFinding {
                code,
                line: entry.line,
                byte: entry.byte.saturating_add(u64::from(part.at)),
                len: u64::from(part.len),
                id: self.list().id_text(part),
                lines,
                fix: remedy.fix_kind(),
                loss: RecordLoss::Any,
            },
            remedy,
            place: None,
        }
    }

    /// Returns the faults of links and ids, of what a request has.
    fn link_faults(&self, sent: &SentRecords) -> Vec<FoundFault> {
        let mut faults = Vec::new();
        for fault in &self.branch.faults {
            let entry = self.list().entry(fault.record);
            let target = Some(fault.target).filter(|target| *target != NONE);
            let has_place = entry.has(mark::REAL_PARENT);
            // The line is named already, and its link is sound once it is mended.
            if entry.has(mark::SKIPPED) {
                continue;
            }
            let remedy = if has_place {
                Remedy::NewParent {
                    record: fault.record,
                    parent: target,
                }
            } else {
                Remedy::Told
            };
            let others: Vec<u32> = target.into_iter().collect();
            faults.push(self.record_fault(fault.damage, fault.record, &others, remedy));
        }
        for record in 0..self.list().count() {
            work::count(1);
            let entry = self.list().entry(record);
            let is_own = !entry.uuid.is_none() && !entry.has(mark::SKIPPED) && self.is_linked(record);
            if is_own {
                faults.extend(self.twice_fault(record, sent));
                faults.extend(self.side_fault(record, sent));
            }
        }
        faults
    }

    fn is_linked(&self, record: u32) -> bool {
        !self.list().entry(record).has(mark::COPY) && !self.index.is_foreign(self.list(), record)
    }

    /// Returns `true` if a later record has the same id: that one counts.
    fn is_shadowed(&self, record: u32) -> bool {
        let (_, last) = self.index.namesakes(self.list(), record);
        last != NONE && last > record
    }

    /// Returns the fault of a record whose id another one before it has.
    fn twice_fault(&self, record: u32, sent: &SentRecords) -> Option<FoundFault> {
        let (first, _) = self.index.namesakes(self.list(), record);
        let is_message = |record: u32| self.list().entry(record).has(mark::MESSAGE);
        let is_sent = sent.members.has(first) || sent.members.has(record);
        if first >= record || !is_sent || !(is_message(first) || is_message(record)) {
            return None;
        }
        let remedy = if self.list().entry(record).has(mark::REAL_UUID) {
            Remedy::NewId { record }
        } else {
            Remedy::Told
        };
        Some(self.record_fault(Damage::UuidTwice, record, &[first], remedy))
    }

    /// Returns the fault of a result beside the chain whose link leads nowhere.
    fn side_fault(&self, record: u32, sent: &SentRecords) -> Option<FoundFault> {
        let entry = self.list().entry(record);
        let is_lost = !entry.parent.is_none() && self.index.parent(record) == NONE;
        if !is_lost || self.branch.members.has(record) || !sent.members.has(record) {
            return None;
        }
        let calls = self.list().parts_of(record).filter_map(|part| sent.calls.get(&part.id));
        let owner = calls
            .map(|call| call.record)
            .find(|owner| self.list().entry(*owner).has(mark::REAL_UUID));
        let remedy = match owner {
            Some(owner) if entry.has(mark::REAL_PARENT) => Remedy::NewParent {
                record,
                parent: Some(owner),
            },
            _ => Remedy::Told,
        };
        let others: Vec<u32> = owner.into_iter().collect();
        Some(self.record_fault(Damage::LostParent, record, &others, remedy))
    }

    /// Returns a fault for each result beside the chain whose call has another one that is sent.
    fn other_results(&self, sent: &SentRecords) -> Vec<FoundFault> {
        // Of several results this version sends the first one of the file, and older ones may send that of the chain.
        let takes_first = self.copes_with(Damage::LostParent);
        let mut faults = Vec::new();
        for record in (0..self.list().count()).filter(|record| self.is_message(*record)) {
            if sent.members.has(record) || self.list().entry(record).has(mark::SKIPPED) {
                continue;
            }
            for part in self.list().parts_of(record) {
                work::count(1);
                let call = sent.calls.get(&part.id).filter(|call| call.record < record);
                if let Some(result) = call.and_then(|call| call.result()) {
                    faults.extend(self.other_result(record, &part, result, takes_first));
                }
            }
        }
        faults
    }

    /// Returns the fault of a result whose call has `chained` in the chain. `None` if nothing is lost by it.
    fn other_result(&self, record: u32, part: &PartEntry, chained: u32, takes_first: bool) -> Option<FoundFault> {
        let mut answers = self.list().parts_of(chained).filter(|answer| answer.id == part.id);
        let answer = answers.next()?;
        let is_first = record < chained;
        let line = |record: u32| vec![self.list().entry(record).line];
        let hidden = SessionCode::Damage(Damage::HiddenResult);
        match (part.sort, answer.sort) {
            (PartSort::Result, PartSort::LostResult) if !(takes_first && is_first) => {
                Some(self.part_fault(hidden, record, part, line(chained), Remedy::Told))
            }
            // 2.0.32 and 2.1.42 were seen to send the first one of the file too.
            (PartSort::LostResult, PartSort::Result) if is_first => {
                Some(self.part_fault(hidden, chained, &answer, line(record), Remedy::Told))
            }
            (PartSort::Result, PartSort::Result) => {
                let code = SessionCode::Pairing(FindingKind::Duplicate);
                Some(self.part_fault(code, record, part, line(chained), Remedy::Told))
            }
            _ => None,
        }
    }

    /// Returns the further results of the chain whose call has one that says that there is none.
    fn hidden_results(&self, sent: &SentRecords) -> HashMap<(u32, u64), u64> {
        let mut hidden = HashMap::new();
        for record in (0..self.list().count()).filter(|record| sent.members.has(*record)) {
            for part in self
                .list()
                .parts_of(record)
                .filter(|part| part.sort == PartSort::Result)
            {
                work::count(1);
                let result = sent.calls.get(&part.id).and_then(|call| call.result());
                let Some(result) = result.filter(|result| *result != record) else {
                    continue;
                };
                let is_lost = |sent: PartEntry| sent.id == part.id && sent.sort == PartSort::LostResult;
                if self.list().parts_of(result).any(is_lost) {
                    hidden.insert((record, part.id), self.list().entry(result).line);
                }
            }
        }
        hidden
    }

    /// Returns a fault for each part of a request whose calls and results could not be judged: none may pass for sound.
    fn unjudged_calls(&self, is_judged: bool, sent: &SentRecords) -> Vec<FoundFault> {
        if is_judged {
            return Vec::new();
        }
        let code = SessionCode::Pairing(FindingKind::Field);
        let records = (0..self.list().count()).filter(|record| sent.members.has(*record));
        let parts = records.flat_map(|record| self.list().parts_of(record).map(move |part| (record, part)));
        parts
            .map(|(record, part)| self.part_fault(code, record, &part, Vec::new(), Remedy::Told))
            .collect()
    }

    fn pair_faults(&self, placed: &[PlacedFinding], sent: &SentRecords) -> Vec<FoundFault> {
        let hidden = self.hidden_results(sent);
        let doubled = placed
            .iter()
            .filter(|found| found.finding.kind == FindingKind::DuplicateCall);
        let doubled: HashSet<u64> = doubled
            .filter_map(|found| Some(self.list().part(found.place.part)?.id))
            .collect();
        let mut faults = Vec::new();
        for found in placed {
            let (record, number) = (found.place.record, found.place.part);
            let Some(part) = self.list().part(number) else { continue };
            let mut lines = Vec::new();
            let code = match found.finding.kind {
                FindingKind::Unanswered if found.is_last => SessionCode::Damage(Damage::OpenCall),
                FindingKind::Headless | FindingKind::Field | FindingKind::MisplacedWords => continue,
                FindingKind::Duplicate if hidden.contains_key(&(record, part.id)) => {
                    lines.extend(hidden.get(&(record, part.id)));
                    SessionCode::Damage(Damage::HiddenResult)
                }
                kind => SessionCode::Pairing(kind),
            };
            // The line is named already.
            if self.list().entry(record).has(mark::SKIPPED) {
                continue;
            }
            // Of two calls of one turn with one id the other one would get the result.
            let remedy = match code {
                SessionCode::Pairing(FindingKind::Unanswered) if doubled.contains(&part.id) => Remedy::Told,
                code => self.pair_remedy(code, record, number, &part),
            };
            let mut fault = self.part_fault(code, record, &part, lines, remedy);
            fault.place = Some((record, number));
            if found.finding.kind == FindingKind::Misplaced && !found.is_late {
                fault.finding.loss = RecordLoss::Nothing;
            }
            faults.push(fault);
        }
        faults
    }

    fn pair_remedy(&self, code: SessionCode, record: u32, number: u32, part: &PartEntry) -> Remedy {
        let entry = self.list().entry(record);
        match code {
            SessionCode::Pairing(FindingKind::Unanswered) if entry.has(mark::REAL_UUID) && part.is_legal_id => {
                Remedy::Answer { record, part: number }
            }
            SessionCode::Pairing(FindingKind::Orphan) if part.fits => Remedy::Quote { record, part: number },
            SessionCode::Pairing(FindingKind::MalformedCall) if part.fits => Remedy::Input { record, part: number },
            _ => Remedy::Told,
        }
    }

    /// Lets the records of malformed calls be written anew where the mended input does not fit.
    ///
    /// Only as the last mend of a file: the others overwrite bytes of records that would be blanked.
    fn rewrite_calls(&self, faults: &mut [FoundFault]) {
        work::count(faults.len());
        if faults.iter().any(|fault| fault.remedy != Remedy::Told) {
            return;
        }
        let mut rewritten = RecordSet::with_room(self.list().count());
        for fault in faults {
            let is_malformed = fault.finding.code == SessionCode::Pairing(FindingKind::MalformedCall);
            let Some((record, part)) = fault.place.filter(|_| is_malformed) else {
                continue;
            };
            let sort = self.list().part(part).map(|part| part.sort);
            let has_input = matches!(sort, Some(PartSort::Call(InputShape::Text | InputShape::Other)));
            // One call at a time: each of them changes the whole record.
            if has_input && self.list().entry(record).has(mark::REAL_UUID) && rewritten.add(record) {
                fault.remedy = Remedy::Rewrite { record, part };
                fault.finding.fix = fault.remedy.fix_kind();
            }
        }
    }

    fn foreign_thinking(&self, sent: &SentRecords) -> Vec<FoundFault> {
        let mut faults = Vec::new();
        for record in (0..self.list().count()).filter(|record| sent.members.has(*record)) {
            if self.list().entry(record).has(mark::SKIPPED) {
                continue;
            }
            for part in self.list().parts_of(record) {
                work::count(1);
                if part.sort == PartSort::ForeignThinking {
                    let code = SessionCode::Pairing(FindingKind::ForeignThinking);
                    faults.push(self.part_fault(code, record, &part, Vec::new(), Remedy::Told));
                }
            }
        }
        faults
    }

    /// Counts the messages that this version of the client sends. `whole` is what it would send if all were sound.
    fn count_reachable(&self, placed: &[PlacedFinding], whole: SentRecords) -> u64 {
        let list = self.list();
        let dropped = self.dropped_records(placed, &whole);
        // Its tables of calls are as large as those of the records that are really sent.
        drop(whole);
        let mut members = RecordSet::with_room(list.count());
        let sent_chain = self.branch.chain.get(self.stop_place()..).unwrap_or_default();
        for record in sent_chain {
            members.add(*record);
        }
        // Only what stands right behind the compaction has its messages.
        if sent_chain.len() == self.branch.chain.len() {
            for record in &self.branch.kept {
                members.add(*record);
            }
        }
        let sent = SentRecords::join(list, self.index, members, false);
        let mut members = sent.members;
        for record in dropped {
            members.remove(record);
        }
        let is_sent = |record: &u32| {
            let is_shadowed = self.is_shadowed(*record);
            members.has(*record) && !list.entry(*record).has(mark::SKIPPED) && !is_shadowed
        };
        (0..list.count())
            .filter(|record| self.is_message(*record))
            .filter(is_sent)
            .count() as u64
    }

    /// Returns the place in the chain from which on this version sends it.
    fn stop_place(&self) -> usize {
        let (heals, heals_circles) = (
            self.copes_with(Damage::LostParent),
            self.copes_with(Damage::ParentCircle),
        );
        let stops: HashMap<u32, Damage> = self
            .branch
            .faults
            .iter()
            .map(|fault| (fault.record, fault.damage))
            .collect();
        let mut stop = 0;
        let mut before = NONE;
        for (place, record) in self.branch.chain.iter().enumerate() {
            work::count(1);
            let is_cut = match stops.get(record) {
                Some(Damage::LostParent) => !heals,
                Some(Damage::ParentCircle) => !heals_circles,
                Some(_) => true,
                None => false,
            };
            let list = self.list();
            // The record before it is not read: its line is skipped, or the last one with its id counts.
            let is_gone = before != NONE && (list.entry(before).has(mark::SKIPPED) || self.is_shadowed(before));
            if is_cut || (is_gone && !heals) {
                stop = place;
            }
            before = *record;
        }
        stop
    }

    /// Returns the records of which the client drops every block, because its call or result has no other half.
    fn dropped_records(&self, placed: &[PlacedFinding], sent: &SentRecords) -> Vec<u32> {
        let answers = self.copes_with(Damage::OpenCall);
        let (late, client) = (SessionCode::Pairing(FindingKind::Misplaced), SessionClient::ClaudeCode);
        let late = find_effect(late, RecordLoss::Any, client, self.log.version);
        let leaves_late = late.is_some_and(|row| row.severity == Severity::Warning);
        let mut dropped: HashMap<u32, u32> = HashMap::new();
        for found in placed {
            work::count(1);
            let is_dropped = match found.finding.kind {
                FindingKind::Unanswered => !(found.is_last && answers),
                FindingKind::Orphan | FindingKind::Duplicate => true,
                FindingKind::Misplaced => found.is_late && leaves_late,
                _ => false,
            };
            if is_dropped {
                let count = dropped.entry(found.place.record).or_default();
                *count = count.saturating_add(1);
            }
        }
        // Where the client skips the line of one half, it drops the other.
        let is_skipped = |record: u32| self.list().entry(record).has(mark::SKIPPED);
        for call in sent.calls.values() {
            let Some(result) = call.result() else { continue };
            let half = match (is_skipped(call.record), is_skipped(result)) {
                (true, false) => result,
                (false, true) => call.record,
                _ => continue,
            };
            let count = dropped.entry(half).or_default();
            *count = count.saturating_add(1);
        }
        let is_whole = |(record, count): &(u32, u32)| {
            let parts = self.list().part_numbers(*record).len();
            u32::try_from(parts).is_ok_and(|parts| parts == *count) && !self.list().entry(*record).has(mark::TEXT)
        };
        dropped.into_iter().filter(is_whole).map(|(record, _)| record).collect()
    }
}
