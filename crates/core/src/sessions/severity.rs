//! The effect of each finding on each client, as measured: by damage, client and version.

use super::{
    client::{ClientVersion, SessionClient},
    damage::{Damage, SessionCode},
    finding::RecordLoss,
};
use crate::{conversation::FindingKind, labels::labelled_enum};

labelled_enum! {
    /// The weight of a finding for one client.
    pub enum Severity {
        /// This version of the client copes with it.
        Note = "note",
        /// The client leaves something out, and says nothing.
        Warning = "warning",
        /// The session is not loaded, or its next request is refused.
        Error = "error",
    }
}

/// The effect of one finding on some versions of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The finding.
    pub code: SessionCode,
    /// The client.
    pub client: SessionClient,
    /// The case that it is about. `None` for all that no row before it is about.
    pub loss: Option<RecordLoss>,
    /// The first version that does so. `None` for all before `until`.
    pub from: Option<ClientVersion>,
    /// The first version that no longer does so. `None` if the newest one does.
    pub until: Option<ClientVersion>,
    /// The weight.
    pub severity: Severity,
    /// The effect, as the end of a sentence: "the client skips both".
    pub effect: &'static str,
    /// Versions that were tried, and the month.
    pub measured: &'static str,
}

/// All that was measured. The first row that fits counts.
pub const MEASURED: &[Measured] = &[
    // Claude Code: the file.
    claude(
        Damage::NulBytes,
        Since::All,
        Severity::Note,
        "the client passes over them",
    )
    .at(RecordLoss::Nothing),
    claude(
        Damage::NulBytes,
        Since::New,
        Severity::Warning,
        "the client skips the record behind them, and the call or result that belongs to it",
    ),
    claude(Damage::NulBytes, Since::Old, Severity::Error, CUT_OFF),
    claude(
        Damage::ByteOrderMark,
        Since::All,
        Severity::Note,
        "the client reads the file all the same",
    ),
    claude(
        Damage::InvalidUtf8,
        Since::All,
        Severity::Note,
        "the client replaces the byte",
    ),
    claude(
        Damage::LoneSurrogate,
        Since::New,
        Severity::Note,
        "the client replaces it before it sends the text",
    ),
    claude(
        Damage::LoneSurrogate,
        Since::Old,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    claude(
        Damage::TornRecord,
        Since::All,
        Severity::Note,
        "the client passes over the fragment at the end, and goes on behind it",
    )
    .at(RecordLoss::Nothing),
    claude(
        Damage::TornRecord,
        Since::New,
        Severity::Warning,
        "the client skips the line, with any record behind the fragment, and the call or result that belongs to it",
    ),
    claude(Damage::TornRecord, Since::Old, Severity::Error, CUT_OFF),
    claude(
        Damage::JoinedRecords,
        Since::New,
        Severity::Warning,
        "the client skips them all, and the calls and results that belong to them",
    ),
    claude(Damage::JoinedRecords, Since::Old, Severity::Error, CUT_OFF),
    claude(
        Damage::RawNewline,
        Since::New,
        Severity::Warning,
        "the client skips the record, and the call or result that belongs to it",
    ),
    claude(Damage::RawNewline, Since::Old, Severity::Error, CUT_OFF),
    claude(
        Damage::RepeatedRecord,
        Since::All,
        Severity::Note,
        "the client sends it once",
    ),
    // Claude Code: the links.
    claude(
        Damage::LostParent,
        Since::New,
        Severity::Note,
        "the client goes on with the record before it in the file",
    ),
    claude(
        Damage::LostParent,
        Since::Old,
        Severity::Warning,
        "the client sends nothing of what stands before it",
    ),
    claude(
        Damage::ParentInSubagent,
        Since::All,
        Severity::Warning,
        "the client sends what the sub-agent said instead of what stands before the record",
    ),
    claude(
        Damage::UuidTwice,
        Since::New,
        Severity::Warning,
        "the client sends the last of the two, and leaves the other out",
    ),
    claude(
        Damage::UuidTwice,
        Since::First,
        Severity::Error,
        "the client goes in a circle there, and may never end",
    ),
    claude(
        Damage::UuidTwice,
        Since::Old,
        Severity::Warning,
        "the client goes in a circle there, and sends nothing of what stands before",
    ),
    claude(
        Damage::ParentCircle,
        Since::New,
        Severity::Note,
        "the client goes on with the record before it in the file",
    ),
    claude(
        Damage::ParentCircle,
        Since::First,
        Severity::Error,
        "the client goes in the circle, and never ends",
    ),
    claude(
        Damage::ParentCircle,
        Since::Old,
        Severity::Warning,
        "the client sends nothing of what stands before it",
    ),
    claude(
        Damage::Fork,
        Since::All,
        Severity::Warning,
        "the client sends one of the two branches, and leaves the other out",
    ),
    claude(
        Damage::Rewound,
        Since::All,
        Severity::Note,
        "the client sends the branch that the user went on with",
    ),
    // Claude Code: calls and results.
    claude(
        Damage::HiddenResult,
        Since::All,
        Severity::Warning,
        "the client sends the other one, which says that there is no result",
    ),
    claude(
        Damage::OpenCall,
        Since::New,
        Severity::Note,
        "the client answers the call itself, with the words that its outcome is unknown",
    ),
    claude(
        Damage::OpenCall,
        Since::Old,
        Severity::Warning,
        "the client leaves the call out",
    ),
    claude_pair(
        FindingKind::Unanswered,
        Since::All,
        Severity::Warning,
        "the client leaves the call out",
    ),
    claude_pair(
        FindingKind::Orphan,
        Since::First,
        Severity::Error,
        "the client sends it, and the provider refuses every request",
    ),
    claude_pair(
        FindingKind::Orphan,
        Since::Later,
        Severity::Warning,
        "the client leaves the result out",
    ),
    claude_pair(
        FindingKind::Duplicate,
        Since::New,
        Severity::Note,
        "the client sends the first of the results",
    ),
    claude_pair(
        FindingKind::Duplicate,
        Since::Old,
        Severity::Error,
        "the client may send them all, and then the provider refuses the request",
    ),
    claude_pair(
        FindingKind::MalformedCall,
        Since::All,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    claude_pair(
        FindingKind::ForeignThinking,
        Since::New,
        Severity::Note,
        "the client leaves it out once the provider has refused it",
    ),
    claude_pair(
        FindingKind::ForeignThinking,
        Since::Old,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    // Codex: it does not load a file whose first line is not the record that names the session.
    codex_damage(Damage::NulBytes, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    codex_damage(Damage::NulBytes, Severity::Note, "the client passes over them").at(RecordLoss::Nothing),
    codex_damage(
        Damage::NulBytes,
        Severity::Warning,
        "the client skips the record behind them, and answers its call with `aborted`",
    ),
    codex_damage(Damage::ByteOrderMark, Severity::Error, NOT_LOADED),
    codex_damage(Damage::InvalidUtf8, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    codex_damage(
        Damage::InvalidUtf8,
        Severity::Note,
        "the client passes over the line, which has no whole record",
    )
    .at(RecordLoss::Nothing),
    codex_damage(Damage::InvalidUtf8, Severity::Warning, SKIPPED),
    codex_damage(Damage::LoneSurrogate, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    codex_damage(Damage::LoneSurrogate, Severity::Warning, SKIPPED),
    codex_damage(Damage::TornRecord, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    codex_damage(
        Damage::TornRecord,
        Severity::Note,
        "the client passes over the fragment at the end, and goes on behind it",
    )
    .at(RecordLoss::Nothing),
    codex_damage(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line, with any record behind the fragment, and answers its call with `aborted`",
    ),
    codex_damage(Damage::JoinedRecords, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    codex_damage(
        Damage::JoinedRecords,
        Severity::Warning,
        "the client skips all of them, and answers their calls with `aborted`",
    ),
    codex_damage(Damage::RawNewline, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    codex_damage(Damage::RawNewline, Severity::Warning, SKIPPED),
    codex_damage(
        Damage::RepeatedRecord,
        Severity::Error,
        "the client sends it twice, and the provider refuses a second output",
    ),
    codex_damage(Damage::EmptyFile, Severity::Error, NOT_LOADED),
    codex_damage(
        Damage::OrdinalMissing,
        Severity::Note,
        "the client sends all of it, since a later record has a number",
    )
    .at(RecordLoss::Nothing),
    codex_damage(Damage::OrdinalMissing, Severity::Error, NOT_LOADED),
    codex_damage(
        Damage::OrdinalTwice,
        Severity::Warning,
        "the client sends all of it, and its list of turns may stop there",
    ),
    codex_damage(Damage::LastOrdinal, Severity::Error, NOT_LOADED),
    codex_damage(Damage::SessionMetaMissing, Severity::Error, NOT_LOADED),
    codex_damage(
        Damage::ProjectionAhead,
        Severity::Warning,
        "the client sends all of it, and its list lacks what is written until the numbers meet",
    ),
    codex_pairing(
        FindingKind::Unanswered,
        Severity::Note,
        "the client answers it with `aborted` in each request",
    ),
    codex_pairing(
        FindingKind::Orphan,
        Severity::Warning,
        "the client leaves the result out",
    ),
    codex_pairing(
        FindingKind::Duplicate,
        Severity::Error,
        "the client sends both, and the provider refuses the request",
    ),
    codex_pairing(
        FindingKind::DuplicateCall,
        Severity::Note,
        "the client sends both, which some servers refuse",
    ),
    codex_pairing(
        FindingKind::MalformedCall,
        Severity::Warning,
        "the client leaves the call and its result out, or sends an input that some servers refuse",
    ),
    codex_pairing(FindingKind::NoId, Severity::Warning, "the client leaves the result out"),
    codex_pairing(
        FindingKind::Field,
        Severity::Warning,
        "the client leaves a result out, or the provider refuses reasoning in open text",
    ),
    // Copilot CLI, which goes by the order of the file.
    copilot(
        Damage::NulBytes,
        Severity::Warning,
        "the client skips a record that stands on the same line; with the first one it does not load the session",
    ),
    copilot(
        Damage::ByteOrderMark,
        Severity::Note,
        "the client reads the file all the same",
    ),
    copilot(
        Damage::InvalidUtf8,
        Severity::Warning,
        "the client skips the record; with the first one it does not load the session",
    ),
    copilot(
        Damage::LoneSurrogate,
        Severity::Note,
        "the client replaces it before it sends the text",
    ),
    copilot(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line, with any record behind the fragment; with the first one it does not load the session",
    ),
    copilot(
        Damage::JoinedRecords,
        Severity::Warning,
        "the client skips them all, and answers their calls as interrupted",
    ),
    copilot(Damage::RawNewline, Severity::Warning, "the client skips the record"),
    copilot(
        Damage::RepeatedRecord,
        Severity::Error,
        "the client sends a call twice, and the provider refuses every request; a result it sends once",
    ),
    copilot(
        Damage::EmptyFile,
        Severity::Error,
        "the client does not find the session",
    ),
    copilot(
        Damage::SessionMetaMissing,
        Severity::Error,
        "the client does not load the session",
    ),
    copilot(
        Damage::OpenCall,
        Severity::Note,
        "the client answers the call itself, with the words that it was interrupted",
    ),
    copilot_pair(
        FindingKind::Unanswered,
        Severity::Note,
        "the client answers the call itself, with the words that it was interrupted",
    ),
    copilot_pair(
        FindingKind::Orphan,
        Severity::Warning,
        "the client leaves the result out",
    ),
    copilot_pair(
        FindingKind::Duplicate,
        Severity::Note,
        "the client sends the first of the results",
    ),
    copilot_pair(
        FindingKind::MalformedCall,
        Severity::Error,
        "the client does not load a session with a call that has no id",
    ),
    copilot_pair(
        FindingKind::NoId,
        Severity::Error,
        "the client does not load the session",
    ),
    copilot_pair(
        FindingKind::DuplicateCall,
        Severity::Error,
        "the client sends both, and the provider refuses every request",
    ),
    // Qwen Code, which goes back from the last record, link by link.
    qwen(
        Damage::NulBytes,
        Severity::Note,
        "the client takes a record that stands on the same line out of it",
    ),
    qwen(
        Damage::ByteOrderMark,
        Severity::Note,
        "the client reads the file all the same",
    ),
    qwen(Damage::InvalidUtf8, Severity::Note, "the client replaces the byte"),
    qwen(
        Damage::LoneSurrogate,
        Severity::Error,
        "the client sends it as it is, and the provider refuses every request",
    ),
    qwen(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line; if a record was lost by it, nothing of what stands before it is sent",
    ),
    qwen(Damage::JoinedRecords, Severity::Note, "the client reads all of them"),
    qwen(
        Damage::RawNewline,
        Severity::Warning,
        "the client skips the record, and sends nothing of what stands before it",
    ),
    qwen(
        Damage::RepeatedRecord,
        Severity::Note,
        "the client sends its calls and results once",
    ),
    qwen(
        Damage::EmptyFile,
        Severity::Error,
        "the client does not find the session",
    ),
    qwen(
        Damage::LostParent,
        Severity::Warning,
        "the client sends nothing of what stands before it",
    ),
    qwen(
        Damage::UuidTwice,
        Severity::Warning,
        "the client takes both for one message, and leaves out what stands between them",
    ),
    qwen(
        Damage::ParentCircle,
        Severity::Note,
        "the client ends its way back there, and sends nothing of what stands before it",
    ),
    qwen(
        Damage::Fork,
        Severity::Warning,
        "the client sends the branch of the last record, and leaves the other out",
    ),
    qwen(
        Damage::Rewound,
        Severity::Note,
        "the client sends the branch of the last record",
    ),
    qwen(
        Damage::OpenCall,
        Severity::Note,
        "the client answers the call itself, with the words that no result was recorded",
    ),
    qwen_pair(
        FindingKind::Unanswered,
        Severity::Note,
        "the client answers the call itself, with the words that no result was recorded",
    ),
    qwen_pair(
        FindingKind::Orphan,
        Severity::Warning,
        "the client leaves the result out",
    ),
    qwen_pair(
        FindingKind::Duplicate,
        Severity::Note,
        "the client sends the first of the results",
    ),
    qwen_pair(
        FindingKind::DuplicateCall,
        Severity::Error,
        "the client sends both, and the provider refuses every request",
    ),
    qwen_pair(
        FindingKind::MalformedCall,
        Severity::Note,
        "the client sends another input in its place",
    ),
    // opencode, which keeps its sessions in a database.
    opencode(
        SessionCode::Damage(Damage::TornRecord),
        Severity::Error,
        "the client does not load the session",
    ),
    opencode(
        SessionCode::Damage(Damage::LostParent),
        Severity::Warning,
        "the client leaves it out",
    ),
    opencode(
        SessionCode::Damage(Damage::OpenCall),
        Severity::Note,
        "the client answers it in each request, with the words that it was interrupted",
    ),
    opencode(
        SessionCode::Pairing(FindingKind::Unanswered),
        Severity::Note,
        "the client answers it in each request, with the words that it was interrupted",
    ),
    opencode(
        SessionCode::Pairing(FindingKind::DuplicateCall),
        Severity::Error,
        "the client sends both, and the provider refuses every request",
    ),
    opencode(
        SessionCode::Pairing(FindingKind::MalformedCall),
        Severity::Error,
        "the client does not load a session with a call that has no state",
    ),
];

/// The effect of a lost record on versions of Claude Code that do not heal the chain. Measured with records of calls, of
/// results and of the user.
const CUT_OFF: &str = "the client skips the line, and sends nothing of what stands before it; if a result comes first then, \
                       the provider refuses every request";

/// The effect of damage that Codex does not load.
const NOT_LOADED: &str = "the client does not load the session";

/// The effect of damage that costs Codex one record.
const SKIPPED: &str = "the client skips the record, and answers its call with `aborted`";

/// The versions of Claude Code that a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// All that were tried.
    All,
    /// Those from 2.1.332 on.
    New,
    /// Those before it.
    Old,
    /// Those before 2.1.42. Their rows stand before those of [`Since::Old`].
    First,
    /// Those from 2.1.42 on.
    Later,
}

/// The first version of Claude Code that copes with most damage. Those between 2.1.42 and it were not tried.
const CLAUDE_COPES: ClientVersion = ClientVersion([2, 1, 332]);

/// The version of Claude Code that was tried before it.
const CLAUDE_LATER: ClientVersion = ClientVersion([2, 1, 42]);

const fn claude(damage: Damage, since: Since, severity: Severity, effect: &'static str) -> Measured {
    claude_row(SessionCode::Damage(damage), since, severity, effect)
}

const fn claude_pair(kind: FindingKind, since: Since, severity: Severity, effect: &'static str) -> Measured {
    claude_row(SessionCode::Pairing(kind), since, severity, effect)
}

const fn claude_row(code: SessionCode, since: Since, severity: Severity, effect: &'static str) -> Measured {
    let (from, until, measured) = match since {
        Since::All => (None, None, "2.0.32, 2.1.42 and 2.1.332, 2026-11"),
        Since::New => (Some(CLAUDE_COPES), None, "2.1.332, 2026-11"),
        Since::Old => (None, Some(CLAUDE_COPES), "2.0.32 and 2.1.42, 2026-11"),
        Since::First => (None, Some(CLAUDE_LATER), "2.0.32, 2026-11"),
        Since::Later => (Some(CLAUDE_LATER), None, "2.1.42 and 2.1.332, 2026-11"),
    };
    Measured {
        code,
        client: SessionClient::ClaudeCode,
        loss: None,
        from,
        until,
        severity,
        effect,
        measured,
    }
}

const fn codex_damage(damage: Damage, severity: Severity, effect: &'static str) -> Measured {
    codex_row(SessionCode::Damage(damage), severity, effect)
}

const fn codex_pairing(kind: FindingKind, severity: Severity, effect: &'static str) -> Measured {
    codex_row(SessionCode::Pairing(kind), severity, effect)
}

const fn codex_row(code: SessionCode, severity: Severity, effect: &'static str) -> Measured {
    Measured {
        code,
        client: SessionClient::Codex,
        loss: None,
        from: None,
        until: None,
        severity,
        effect,
        measured: "0.171, 2026-11",
    }
}

impl Measured {
    /// Returns the row for one case alone.
    const fn at(self, loss: RecordLoss) -> Self {
        Self {
            loss: Some(loss),
            ..self
        }
    }

    fn has_version(&self, version: ClientVersion) -> bool {
        self.from.is_none_or(|from| version >= from) && self.until.is_none_or(|until| version < until)
    }
}

const fn copilot(damage: Damage, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::Copilot, SessionCode::Damage(damage), severity, effect)
}

const fn copilot_pair(kind: FindingKind, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::Copilot, SessionCode::Pairing(kind), severity, effect)
}

const fn qwen(damage: Damage, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::QwenCode, SessionCode::Damage(damage), severity, effect)
}

const fn qwen_pair(kind: FindingKind, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::QwenCode, SessionCode::Pairing(kind), severity, effect)
}

const fn opencode(code: SessionCode, severity: Severity, effect: &'static str) -> Measured {
    read_only_row(SessionClient::OpenCode, code, severity, effect)
}

const fn read_only_row(client: SessionClient, code: SessionCode, severity: Severity, effect: &'static str) -> Measured {
    let measured = match client {
        SessionClient::Copilot => "1.0.102, 2026-11",
        SessionClient::QwenCode => "0.24.4, 2026-11",
        _ => "1.18.33, 2026-11",
    };
    Measured {
        code,
        client,
        from: None,
        until: None,
        loss: None,
        severity,
        effect,
        measured,
    }
}

/// Returns the effect of a finding on a version of a client: without a version the gravest one of all. `None` if nothing was
/// measured.
pub fn find_effect(
    code: SessionCode,
    loss: RecordLoss,
    client: SessionClient,
    version: Option<ClientVersion>,
) -> Option<&'static Measured> {
    let has_case = |row: &&Measured| row.loss.is_none_or(|case| case == loss);
    let first = |version: ClientVersion| {
        let mut rows = rows_of(code, client).filter(has_case);
        rows.find(|row| row.has_version(version))
    };
    if let Some(version) = version {
        return first(version);
    }
    // Each row begins or ends the effect of another one.
    let begins = rows_of(code, client).filter_map(|row| row.from);
    let effects = begins.chain([ClientVersion([0, 0, 0])]).filter_map(first);
    effects.max_by_key(|row| row.severity)
}

/// Returns the weight of a finding for a version of a client. What was not measured is at least a warning, and as grave as
/// the gravest that was measured of its code.
pub fn severity_of(
    code: SessionCode,
    loss: RecordLoss,
    client: SessionClient,
    version: Option<ClientVersion>,
) -> Severity {
    let known = find_effect(code, loss, client, version).map(|row| row.severity);
    let gravest = || {
        let own = rows_of(code, client).map(|row| row.severity).max();
        let any = MEASURED.iter().filter(|row| row.code == code);
        let any = own.or_else(|| any.map(|row| row.severity).max());
        any.map_or(Severity::Warning, |severity| severity.max(Severity::Warning))
    };
    known.unwrap_or_else(gravest)
}

fn rows_of(code: SessionCode, client: SessionClient) -> impl Iterator<Item = &'static Measured> {
    MEASURED
        .iter()
        .filter(move |row| row.code == code && row.client == client)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: [RecordLoss; 4] = RecordLoss::ALL;

    #[test]
    fn the_effect_depends_on_the_version() {
        let circle = SessionCode::Damage(Damage::ParentCircle);
        let orphan = SessionCode::Pairing(FindingKind::Orphan);
        for (code, version, wanted) in [
            (circle, "2.0.32", Severity::Error),
            (circle, "2.1.42", Severity::Warning),
            (circle, "2.1.331", Severity::Warning),
            (circle, "2.1.332", Severity::Note),
            (circle, "3.0.0", Severity::Note),
            // Without a version the gravest one is meant.
            (circle, "", Severity::Error),
            (orphan, "2.0.32", Severity::Error),
            (orphan, "", Severity::Error),
        ] {
            let (client, parsed) = (SessionClient::ClaudeCode, ClientVersion::parse(version));
            assert_eq!(severity_of(code, RecordLoss::Any, client, parsed), wanted, "{version}");
        }
    }

    #[test]
    fn the_effect_depends_on_the_record_that_is_lost() {
        use RecordLoss::{Any, First, Last, Nothing};
        use SessionClient::{ClaudeCode, Codex};
        use Severity::{Error, Note, Warning};

        for (damage, client, losses, wanted) in [
            (Damage::NulBytes, ClaudeCode, &[Nothing][..], Note),
            (Damage::NulBytes, ClaudeCode, &[Any, First, Last], Warning),
            (Damage::TornRecord, ClaudeCode, &[Nothing], Note),
            (Damage::TornRecord, ClaudeCode, &[Any, First, Last], Warning),
            (Damage::InvalidUtf8, ClaudeCode, &CASES, Note),
            (Damage::NulBytes, Codex, &[Nothing], Note),
            (Damage::NulBytes, Codex, &[Any, Last], Warning),
            (Damage::NulBytes, Codex, &[First], Error),
            (Damage::TornRecord, Codex, &[Nothing], Note),
            (Damage::TornRecord, Codex, &[Any, Last], Warning),
            (Damage::TornRecord, Codex, &[First], Error),
            (Damage::InvalidUtf8, Codex, &[Nothing], Note),
            (Damage::InvalidUtf8, Codex, &[Any, Last], Warning),
            (Damage::InvalidUtf8, Codex, &[First], Error),
            (Damage::JoinedRecords, Codex, &[First], Error),
            (Damage::OrdinalMissing, Codex, &[Nothing], Note),
            (Damage::OrdinalMissing, Codex, &[Any, First, Last], Error),
        ] {
            for loss in losses {
                let code = SessionCode::Damage(damage);
                let found = severity_of(code, *loss, client, ClientVersion::parse("2.1.332"));
                assert_eq!(found, wanted, "{damage:?} {client:?} {loss:?}");
            }
        }
    }

    /// A version between those that were tried has an effect too.
    #[test]
    fn what_was_measured_covers_every_version_and_case() {
        for row in MEASURED {
            for version in ["0.0.1", "2.0.32", "2.1.42", "2.1.200", "2.1.332", "9.9.9", ""] {
                let version = ClientVersion::parse(version);
                for loss in CASES {
                    let found = find_effect(row.code, loss, row.client, version);
                    assert!(found.is_some(), "{} in {version:?}, {loss:?}", row.code.label());
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_at_least_a_warning() {
        let client = SessionClient::ClaudeCode;
        for (code, wanted) in [
            (SessionCode::Damage(Damage::LongRecord), Severity::Warning),
            // A note for Codex, and an error for others.
            (SessionCode::Pairing(FindingKind::DuplicateCall), Severity::Error),
            // An error for Codex.
            (SessionCode::Damage(Damage::EmptyFile), Severity::Error),
        ] {
            assert_eq!(find_effect(code, RecordLoss::Any, client, None), None);
            assert_eq!(severity_of(code, RecordLoss::Nothing, client, None), wanted, "{code:?}");
        }
    }
}
