//! The edits that mend the faults of a session. None moves a byte.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Read as _, SeekFrom},
};

use super::{
    analysis::LogAnalysis,
    entry::{PartEntry, RecordEntry, mark},
    links::NONE,
    quoted::{mended_input, new_input, quote_orphan},
    reading::ReadLog,
    remedy::Remedy,
};
use crate::{
    repair::Placeholder,
    sessions::{
        damage::{Damage, SessionCode},
        edits::SessionEdit,
        file_edits,
        finding::SessionFinding,
        link_id::{LinkId, UUID_CHARS},
        log::SessionFile,
        records::read_records,
    },
    splice::Span,
    wire::json::{Json, JsonKind, quote_string},
    work,
};

/// Members that an appended result has from the record of its call, as they are there.
const COPIED: [&str; 10] = [
    "isSidechain",
    "agentId",
    "userType",
    "entrypoint",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "slug",
    "timestamp",
];

/// Plans the edits for findings of a file, in one pass over it. The edits of one depend on the others.
pub(super) fn plan_findings(findings: &[&SessionFinding], file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    file.seek(SeekFrom::Start(0))?;
    let mut log = ReadLog::default();
    read_records(&mut *file, |record| log.add_record(&record))?;
    let analysis = LogAnalysis::new(log);
    let key = |finding: &SessionFinding| (finding.code, finding.line, finding.byte);
    let wanted: HashSet<_> = findings.iter().map(|finding| key(finding)).collect();
    let mut plan = FaultPlan::new(&analysis, file);
    for fault in analysis
        .faults
        .iter()
        .filter(|fault| wanted.contains(&key(&fault.finding)))
    {
        work::count(1);
        plan.add_remedy(fault.remedy)?;
    }
    plan.add_copies(findings)?;
    Ok(plan.edits)
}

struct FaultPlan<'p> {
    analysis: &'p LogAnalysis,
    file: &'p mut dyn SessionFile,
    edits: Vec<SessionEdit>,
    /// Records that get another parent.
    moved: HashSet<u32>,
    /// Records that get an id of their own.
    renewed: HashSet<u32>,
    /// The calls of each record that get a result.
    answered: HashMap<u32, Vec<u32>>,
    /// The last call for which a record is appended, in the order of the file.
    last_append: Option<(u32, u32)>,
}

impl<'p> FaultPlan<'p> {
    fn new(analysis: &'p LogAnalysis, file: &'p mut dyn SessionFile) -> Self {
        let mut plan = Self {
            analysis,
            file,
            edits: Vec::new(),
            moved: HashSet::new(),
            renewed: HashSet::new(),
            answered: HashMap::new(),
            last_append: None,
        };
        for fault in &analysis.faults {
            work::count(1);
            match fault.remedy {
                Remedy::NewParent { record, .. } => drop(plan.moved.insert(record)),
                Remedy::NewId { record } => drop(plan.renewed.insert(record)),
                Remedy::Rewrite { record, part } => plan.last_append = Some((record, part)),
                Remedy::Answer { record, part } => {
                    plan.answered.entry(record).or_default().push(part);
                    plan.last_append = Some((record, part));
                }
                Remedy::Quote { .. } | Remedy::Input { .. } | Remedy::Told => {}
            }
        }
        plan
    }

    fn add_remedy(&mut self, remedy: Remedy) -> io::Result<()> {
        match remedy {
            Remedy::Told => Ok(()),
            Remedy::NewParent { record, parent } => self.set_parent(record, parent.map(|parent| self.end_of(parent))),
            Remedy::NewId { record } => self.give_new_id(record),
            Remedy::Answer { record, part } => self.add_answer(record, part),
            Remedy::Quote { record, part } => self.replace_block(record, part, |json, block| {
                quote_orphan(json, block).map(|quoted| (block, quoted.write_padded(json, block)))
            }),
            Remedy::Input { record, part } => self.replace_block(record, part, mended_input),
            Remedy::Rewrite { record, part } => self.rewrite_record(record, part),
        }
    }

    fn entry(&self, record: u32) -> RecordEntry {
        self.analysis.log.list.entry(record)
    }

    /// Returns the id that a record has after all mends.
    fn id_of(&self, record: u32) -> LinkId {
        let entry = self.entry(record);
        if self.renewed.contains(&record) {
            entry.uuid.derive_id("record", entry.byte)
        } else {
            entry.uuid
        }
    }

    /// Returns the id of the result that follows a record whose call gets one, or of the record itself.
    fn end_of(&self, record: u32) -> LinkId {
        let last = self.answered.get(&record).and_then(|parts| parts.last());
        last.map_or_else(|| self.id_of(record), |part| self.result_id(record, *part))
    }

    /// Returns the id of the result that a call gets.
    fn result_id(&self, record: u32, part: u32) -> LinkId {
        let entry = self.entry(record);
        entry
            .uuid
            .derive_id("result", u64::from(part.saturating_sub(entry.parts)))
    }

    fn read_bytes(&mut self, byte: u64, len: u64) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(byte))?;
        let mut text = Vec::new();
        (&mut *self.file).take(len).read_to_end(&mut text)?;
        Ok(text)
    }

    fn read_record(&mut self, entry: &RecordEntry) -> io::Result<Vec<u8>> {
        self.read_bytes(entry.byte, u64::from(entry.len))
    }

    /// Overwrites the id in a member of the record at `byte`, if it takes as many bytes as a uuid.
    fn overwrite_id(&mut self, byte: u64, text: &[u8], member: &str, id: LinkId) {
        let (json, root) = (Json::new(text), Span::new(0, text.len()));
        let inside = json.member(root, member).map(|value| json.string_inside(value));
        if let Some(inside) = inside.filter(|inside| inside.len() == UUID_CHARS) {
            self.edits.push(SessionEdit::Overwrite {
                at: byte.saturating_add(inside.start as u64),
                new: id.to_uuid().into_bytes(),
            });
        }
    }

    /// Makes a record follow another one, or none.
    fn set_parent(&mut self, record: u32, parent: Option<LinkId>) -> io::Result<()> {
        let entry = self.entry(record);
        let text = self.read_record(&entry)?;
        if let Some(parent) = parent {
            self.overwrite_id(entry.byte, &text, "parentUuid", parent);
            return Ok(());
        }
        let (json, root) = (Json::new(&text), Span::new(0, text.len()));
        if let Some(value) = json.member(root, "parentUuid").filter(|value| value.len() >= 4) {
            let mut new = b"null".to_vec();
            new.resize(value.len(), b' ');
            self.edits.push(SessionEdit::Overwrite {
                at: entry.byte.saturating_add(value.start as u64),
                new,
            });
        }
        Ok(())
    }

    /// Returns the records that follow another one, and whose link no other mend changes.
    fn followers(&self, record: u32) -> Vec<u32> {
        let children = self.analysis.index.children(record);
        let is_free = |child: &u32| self.entry(*child).has(mark::REAL_PARENT) && !self.moved.contains(child);
        children.filter(is_free).collect()
    }

    fn give_new_id(&mut self, record: u32) -> io::Result<()> {
        let (entry, new) = (self.entry(record), self.id_of(record));
        let text = self.read_record(&entry)?;
        self.overwrite_id(entry.byte, &text, "uuid", new);
        // A call that gets a result too has its followers linked to that one.
        let is_answered = self.answered.contains_key(&record);
        for child in self.followers(record) {
            let child = self.entry(child);
            let text = self.read_record(&child)?;
            if !is_answered {
                self.overwrite_id(child.byte, &text, "parentUuid", new);
            }
            let (json, root) = (Json::new(&text), Span::new(0, text.len()));
            if LinkId::read(&json.member_text(root, "sourceToolAssistantUUID")).0 == entry.uuid {
                self.overwrite_id(child.byte, &text, "sourceToolAssistantUUID", new);
            }
        }
        let Some(last) = self.analysis.log.last_prompt else {
            return Ok(());
        };
        if self
            .analysis
            .index
            .find_near(&self.analysis.log.list, last.leaf, last.after)
            == record
        {
            let text = self.read_bytes(last.byte, last.len)?;
            self.overwrite_id(last.byte, &text, "leafUuid", new);
        }
        Ok(())
    }

    /// Replaces a part of a record with as many bytes.
    fn replace_block(
        &mut self,
        record: u32,
        part: u32,
        new: impl Fn(Json<'_>, Span) -> Option<(Span, Vec<u8>)>,
    ) -> io::Result<()> {
        let entry = self.entry(record);
        let Some(part) = self.analysis.log.list.part(part) else {
            return Ok(());
        };
        let text = self.read_record(&entry)?;
        if let Some((span, new)) = new(Json::new(&text), block_of(&part)) {
            self.edits.push(SessionEdit::Overwrite {
                at: entry.byte.saturating_add(span.start as u64),
                new,
            });
        }
        Ok(())
    }

    /// Appends a record with an object as input, and blanks the old one. An id stays that of one record.
    fn rewrite_record(&mut self, record: u32, part: u32) -> io::Result<()> {
        let entry = self.entry(record);
        let Some(call) = self.analysis.log.list.part(part) else {
            return Ok(());
        };
        let text = self.read_record(&entry)?;
        let json = Json::new(&text);
        if let Some((input, new)) = new_input(json, block_of(&call)) {
            let (head, tail) = (Span::new(0, input.start), Span::new(input.end, text.len()));
            self.edits.push(SessionEdit::Append {
                record: [json.bytes(head), &new, json.bytes(tail)].concat(),
            });
            self.edits.push(SessionEdit::Blank {
                at: entry.byte,
                len: u64::from(entry.len),
            });
        }
        if self.last_append == Some((record, part)) {
            self.add_last_prompt()?;
        }
        Ok(())
    }

    /// Appends a result for a call. What follows the call follows the last result of its record from then on.
    fn add_answer(&mut self, record: u32, part: u32) -> io::Result<()> {
        let entry = self.entry(record);
        let answered = self.answered.get(&record).cloned().unwrap_or_default();
        let place = answered.iter().position(|other| *other == part).unwrap_or(0);
        let before = place.checked_sub(1).and_then(|before| answered.get(before));
        let parent = before.map_or_else(|| self.id_of(record), |before| self.result_id(record, *before));
        let text = self.read_record(&entry)?;
        let Some(call) = self.analysis.log.list.part(part) else {
            return Ok(());
        };
        let id = self.analysis.log.list.id_text(&call);
        let new = self.result_id(record, part);
        self.edits.push(SessionEdit::Append {
            record: result_record(&text, &id, parent, new),
        });
        if answered.last() == Some(&part) {
            for child in self.followers(record) {
                self.set_parent(child, Some(new))?;
            }
        }
        if self.last_append == Some((record, part)) {
            self.add_last_prompt()?;
        }
        Ok(())
    }

    /// Appends the records of joined lines that get no line of their own there. None of them is a new end.
    fn add_copies(&mut self, findings: &[&SessionFinding]) -> io::Result<()> {
        let joined = SessionCode::Damage(Damage::JoinedRecords);
        let mut has_copies = false;
        for finding in findings.iter().filter(|finding| finding.code == joined) {
            self.edits.extend(file_edits::plan_edits(finding, &mut *self.file)?);
            has_copies = true;
        }
        if has_copies { self.add_last_prompt() } else { Ok(()) }
    }

    /// Appends the record that names the end of the conversation once more.
    ///
    /// Without it Claude Code 2.1.332 may take an appended result for the end (2026-11).
    fn add_last_prompt(&mut self) -> io::Result<()> {
        let leaf = self.analysis.leaf;
        if leaf == NONE || !self.entry(leaf).has(mark::REAL_UUID) {
            return Ok(());
        }
        let id = self.id_of(leaf).to_uuid();
        let copied = match self.analysis.log.last_prompt {
            Some(last) => {
                let text = self.read_bytes(last.byte, last.len)?;
                let (json, root) = (Json::new(&text), Span::new(0, text.len()));
                let value = json.member(root, "leafUuid").map(|value| json.string_inside(value));
                value.map(|inside| {
                    let (head, tail) = (Span::new(0, inside.start), Span::new(inside.end, text.len()));
                    [json.bytes(head), id.as_bytes(), json.bytes(tail)].concat()
                })
            }
            None => None,
        };
        let session = self.analysis.log.session.as_deref().unwrap_or_default();
        let made = || {
            let session = quote_string(session);
            format!(r#"{{"type":"last-prompt","lastPrompt":"","leafUuid":"{id}","sessionId":{session}}}"#).into_bytes()
        };
        self.edits.push(SessionEdit::Append {
            record: copied.unwrap_or_else(made),
        });
        Ok(())
    }
}

/// Returns the place of a part in its record.
fn block_of(part: &PartEntry) -> Span {
    let place = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Span::new(place(part.at), place(part.at).saturating_add(place(part.len)))
}

/// Writes the record of a result, for the call in the record `call`.
fn result_record(call: &[u8], id: &str, parent: LinkId, new: LinkId) -> Vec<u8> {
    let (json, root) = (Json::new(call), Span::new(0, call.len()));
    let mut record = format!(r#"{{"parentUuid":"{}""#, parent.to_uuid()).into_bytes();
    for (name, value) in COPIED.iter().zip(json.members(root, COPIED)) {
        let plain = value.filter(|value| matches!(json.kind(*value), JsonKind::String | JsonKind::Other));
        if let Some(value) = plain {
            record.extend(format!(r#","{name}":"#).bytes());
            record.extend_from_slice(json.bytes(value));
        }
    }
    let text = Placeholder::OutcomeUnknown.text();
    let message = format!(
        r#","type":"user","message":{{"role":"user","content":[{{"tool_use_id":{},"type":"tool_result","content":"{text}","is_error":true}}]}},"uuid":"{}"}}"#,
        quote_string(id),
        new.to_uuid()
    );
    record.extend(message.bytes());
    record
}
