//! `antiphon doctor --explain CODE`: the meaning of a code, what each client does, and what `--fix` does about it.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::{
    conversation::FindingKind,
    labels::Labelled as _,
    sessions::{Damage, MEASURED, Measured, SessionCode},
};

/// Codes of calls and results that session files are searched for.
const PAIRINGS: [FindingKind; 6] = [
    FindingKind::Unanswered,
    FindingKind::Orphan,
    FindingKind::Duplicate,
    FindingKind::MalformedCall,
    FindingKind::ForeignThinking,
    FindingKind::LostContinuity,
];

/// Returns the code of a name. `None` if there is none.
pub(super) fn find_code(name: &str) -> Option<SessionCode> {
    let pairing = || FindingKind::ALL.into_iter().find(|kind| kind.code() == name);
    Damage::from_label(name)
        .map(SessionCode::Damage)
        .or_else(|| pairing().map(SessionCode::Pairing))
}

/// Lists the codes that are explained.
pub(super) fn list_codes() -> Vec<&'static str> {
    let damages = Damage::ALL.into_iter().map(SessionCode::Damage);
    let pairings = PAIRINGS.into_iter().map(SessionCode::Pairing);
    damages.chain(pairings).map(SessionCode::label).collect()
}

/// Says what `--fix` does about a code.
const fn advice_of(code: SessionCode) -> &'static str {
    match code {
        SessionCode::Damage(damage) => advice_of_damage(damage),
        SessionCode::Pairing(kind) => advice_of_pairing(kind),
    }
}

const fn advice_of_damage(damage: Damage) -> &'static str {
    match damage {
        Damage::NulBytes => "--fix overwrites the NUL bytes by spaces.",
        Damage::ByteOrderMark => "--fix overwrites the mark by three spaces.",
        Damage::InvalidUtf8 => "--fix overwrites each such byte by a question mark.",
        Damage::LoneSurrogate => "--fix overwrites the half of a character by the replacement character.",
        Damage::TornRecord => "--fix overwrites the fragment by spaces; what is behind it stays in its place.",
        Damage::JoinedRecords => {
            "Claude Code: --fix appends copies of all records but the first, and overwrites them in their line by spaces. \
             Codex: only told, because its records have numbers."
        }
        Damage::RawNewline => "--fix overwrites the line feed by a space.",
        Damage::RepeatedRecord => "--fix overwrites the second one by spaces.",
        Damage::LongRecord => "Only told: a line of more than 64 MiB is not read.",
        Damage::EmptyFile => "Only told: nothing is left to be mended. A backup may have the session.",
        Damage::LostParent | Damage::ParentInSubagent => {
            "--fix overwrites the id of the record that it follows by that of the record before it in the same chain."
        }
        Damage::UuidTwice => "--fix gives the second record another id.",
        Damage::ParentCircle => "--fix has the earliest record of the circle follow none.",
        Damage::Fork => "Only told: you choose the branch, in the client's own list.",
        Damage::Rewound => "Only told: the user went back on purpose, and what was left stays in the file.",
        Damage::OpenCall => "Only told: the call may still run, and the client answers it at its next start.",
        Damage::HiddenResult => "Only told: the lines of both results are named.",
        Damage::OrdinalMissing => "--fix appends a record with the next number, if the last record lacks one.",
        Damage::ProjectionAhead => {
            "Only told: the client's database is never written. The turns are in the file, whatever the list shows."
        }
        Damage::OrdinalTwice | Damage::SessionMetaMissing => "Only told: records are never numbered anew.",
    }
}

const fn advice_of_pairing(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Unanswered => {
            "--fix appends a result that says that the outcome is unknown, where the client does not answer the call itself."
        }
        FindingKind::Orphan => "--fix has the result become a text that quotes it.",
        FindingKind::MalformedCall => "--fix puts the input into an object, as {\"INVALID_JSON\": \"…\"}.",
        FindingKind::Duplicate
        | FindingKind::Misplaced
        | FindingKind::DuplicateCall
        | FindingKind::NoId
        | FindingKind::BadId
        | FindingKind::ServerHalf
        | FindingKind::Unanswerable
        | FindingKind::Headless
        | FindingKind::MisplacedWords
        | FindingKind::Field
        | FindingKind::DeadResponse => "Only told: the proxy repairs it in each request.",
        FindingKind::ForeignThinking | FindingKind::LostContinuity => {
            "Only told: thinking is never removed from a file. The client or the proxy leaves it out of a request."
        }
    }
}

/// Writes the explanation for people.
pub(super) fn write_text(out: &mut impl Write, code: SessionCode) -> io::Result<()> {
    writeln!(out, "{}: {}", code.label(), code.explanation())?;
    writeln!(out, "{}", advice_of(code))?;
    let mut rows = rows_of(code).peekable();
    if rows.peek().is_none() {
        return writeln!(out, "No client was measured with it, so it counts as a warning.");
    }
    for row in rows {
        let versions = versions_of(row);
        let (client, severity) = (row.client.name(), row.severity.label());
        writeln!(
            out,
            "  {client}, {versions}: {severity}: {} (measured: {})",
            row.effect, row.measured
        )?;
    }
    Ok(())
}

/// Returns the explanation as JSON.
pub(super) fn document(code: SessionCode) -> Value {
    let rows: Vec<Value> = rows_of(code)
        .map(|row| {
            json!({
                "client": row.client.label(),
                "from": row.from.map(|version| version.to_string()),
                "until": row.until.map(|version| version.to_string()),
                "severity": row.severity.label(),
                "effect": row.effect,
                "measured": row.measured,
            })
        })
        .collect();
    json!({ "code": code.label(), "explanation": code.explanation(), "fix": advice_of(code), "clients": rows })
}

fn rows_of(code: SessionCode) -> impl Iterator<Item = &'static Measured> {
    MEASURED.iter().filter(move |row| row.code == code)
}

fn versions_of(row: &Measured) -> String {
    match (row.from, row.until) {
        (None, None) => "every version".to_owned(),
        (Some(from), None) => format!("from {from} on"),
        (None, Some(until)) => format!("before {until}"),
        (Some(from), Some(until)) => format!("from {from} on, before {until}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_and_explained() {
        for name in list_codes() {
            let code = find_code(name).unwrap();
            assert_eq!(code.label(), name);
            assert!(!code.explanation().is_empty(), "{name}");
            let mut text = Vec::new();
            write_text(&mut text, code).unwrap();
            assert!(String::from_utf8(text).unwrap().lines().count() >= 3, "{name}");
            assert_eq!(document(code)["code"], name);
        }
        assert_eq!(find_code("no_such_code"), None);
    }
}
