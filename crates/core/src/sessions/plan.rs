//! The plan of the edits that mend a session file.

use std::io::{self, ErrorKind, Read, Seek};

use super::{
    client::SessionClient,
    damage::{Damage, SessionCode},
    edits::{EditFault, EditedFile, SessionEdit},
    file_edits,
    finding::{FixKind, SessionFinding},
    scan::{LOGS, LogRow, NotRead, SessionReport, scan_with},
};

/// Most rounds of a plan. In each the edits of one layer are planned, and the file is scanned again. One layer may uncover
/// damage of another one, so each has four.
const ROUNDS_MAX: usize = 12;

/// The reason why a file has no plan. It is the inner error of the error that [`plan_fix`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FixRefused {
    /// Nothing is known about the file.
    #[error("{0}")]
    NotRead(NotRead),
    /// A finding would remain that should be mended.
    #[error("after all edits, {} would remain on line {line}", code.label())]
    Remains {
        /// The finding.
        code: SessionCode,
        /// Its line.
        line: u64,
    },
    /// The client would send less than before.
    #[error("after all edits, the client would send {after} messages, and it sends {before} now")]
    SendsLess {
        /// Messages that it sends now.
        before: u64,
        /// Messages that it would send.
        after: u64,
    },
    /// An edit would move a byte, or is none of this file.
    #[error("the edits for {} on line {line} do not fit: {fault}", code.label())]
    Unfit {
        /// The finding.
        code: SessionCode,
        /// Its line.
        line: u64,
        /// The fault.
        fault: EditFault,
    },
}

impl From<FixRefused> for io::Error {
    fn from(refused: FixRefused) -> Self {
        Self::new(ErrorKind::InvalidData, refused)
    }
}

/// The layers of damage, in the order in which they are mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DamageLayer {
    /// Lines, which brings records back.
    Lines,
    /// Records that get lines of their own, once nothing else is on their line.
    JoinedLines,
    /// Links and numbers of records.
    Chain,
    /// Calls and results.
    Pairs,
}

/// Plans the edits that mend everything that can be mended: disjoint overwrites, then appended records.
///
/// # Errors
///
/// Those of `file`, and a [`FixRefused`] of the kind `InvalidData`.
pub fn plan_fix(file: &mut (impl Read + Seek)) -> io::Result<Vec<SessionEdit>> {
    plan_with(LOGS, file)
}

fn plan_with(logs: &'static [LogRow], file: &mut (impl Read + Seek)) -> io::Result<Vec<SessionEdit>> {
    let mut edited = EditedFile::new(file)?;
    let mut report = scan_view(logs, &mut edited)?;
    let before = report.reachable;
    for _ in 0..ROUNDS_MAX {
        let mendable = || report.findings.iter().filter(|finding| finding.fix != FixKind::Told);
        let Some(layer) = mendable().map(|finding| layer_of(finding.code)).min() else {
            break;
        };
        for finding in mendable().filter(|finding| layer_of(finding.code) == layer) {
            add_edits(logs, report.client, finding, &mut edited)?;
        }
        report = scan_view(logs, &mut edited)?;
    }
    if let Some(finding) = report.findings.iter().find(|finding| finding.fix != FixKind::Told) {
        return Err(FixRefused::Remains {
            code: finding.code,
            line: finding.line,
        }
        .into());
    }
    if report.reachable < before {
        let after = report.reachable;
        return Err(FixRefused::SendsLess { before, after }.into());
    }
    Ok(edited.merged_edits())
}

fn scan_view(logs: &'static [LogRow], edited: &mut EditedFile<impl Read + Seek>) -> io::Result<SessionReport> {
    edited.rewind()?;
    let report = scan_with(logs, None, edited)?;
    report.map_err(|reason| FixRefused::NotRead(reason).into())
}

/// Plans the edits for one finding, in the file as the edits before have left it.
fn add_edits(
    logs: &'static [LogRow],
    client: SessionClient,
    finding: &SessionFinding,
    edited: &mut EditedFile<impl Read + Seek>,
) -> io::Result<()> {
    let edits = match layer_of(finding.code) {
        DamageLayer::Lines | DamageLayer::JoinedLines => file_edits::plan_edits(finding, edited)?,
        DamageLayer::Chain | DamageLayer::Pairs => {
            let row = logs.iter().find(|row| row.client == client);
            row.map_or_else(|| Ok(Vec::new()), |row| (row.plan_edits)(finding, edited))?
        }
    };
    for edit in edits {
        edited.add_edit(edit).map_err(|fault| FixRefused::Unfit {
            code: finding.code,
            line: finding.line,
            fault,
        })?;
    }
    Ok(())
}

/// Returns the layer of a finding.
const fn layer_of(code: SessionCode) -> DamageLayer {
    match code {
        SessionCode::Pairing(_) => DamageLayer::Pairs,
        SessionCode::Damage(damage) => match damage {
            Damage::JoinedRecords => DamageLayer::JoinedLines,
            Damage::NulBytes
            | Damage::ByteOrderMark
            | Damage::InvalidUtf8
            | Damage::LoneSurrogate
            | Damage::TornRecord
            | Damage::RawNewline
            | Damage::RepeatedRecord
            | Damage::LongRecord
            | Damage::EmptyFile => DamageLayer::Lines,
            Damage::LostParent
            | Damage::ParentInSubagent
            | Damage::UuidTwice
            | Damage::ParentCircle
            | Damage::Fork
            | Damage::HiddenResult
            | Damage::OrdinalMissing
            | Damage::OrdinalTwice
            | Damage::SessionMetaMissing
            | Damage::Rewound
            | Damage::ProjectionBehind => DamageLayer::Chain,
            Damage::OpenCall => DamageLayer::Pairs,
        },
    }
}
