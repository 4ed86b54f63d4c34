//! The table of what clients do about each finding, as measured: by damage, client and version.

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
    claude(Damage::LoneSurrogate, Since::Old, Severity::Error, SENT_AND_REFUSED),
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
    claude(Damage::StrayContent, Since::All, Severity::Warning, PASSED_OVER_WHOLE),
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
        FindingKind::Misplaced,
        Since::All,
        Severity::Note,
        "the client puts it right behind its call",
    )
    .at(RecordLoss::Nothing),
    claude_pair(
        FindingKind::Misplaced,
        Since::First,
        Severity::Error,
        "the client sends it where it stands, and the provider refuses every request",
    ),
    claude_pair(
        FindingKind::Misplaced,
        Since::Later,
        Severity::Warning,
        "the client leaves the result out, and answers the call itself",
    ),
    claude_pair(FindingKind::BadId, Since::All, Severity::Error, SENT_AND_REFUSED),
    claude_pair(
        FindingKind::ServerHalf,
        Since::New,
        Severity::Note,
        "the client leaves the call out",
    ),
    claude_pair(FindingKind::ServerHalf, Since::Old, Severity::Error, SENT_AND_REFUSED),
    claude_pair(
        FindingKind::MalformedCall,
        Since::All,
        Severity::Error,
        SENT_AND_REFUSED,
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
        SENT_AND_REFUSED,
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
    codex_damage(Damage::StrayContent, Severity::Warning, PASSED_OVER_WHOLE),
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
    codex_pairing(
        FindingKind::NoId,
        Severity::Error,
        "the client sends it without an id, and the provider refuses every request",
    ),
    codex_pairing(FindingKind::BadId, Severity::Error, SENT_AND_REFUSED),
    codex_pairing(
        FindingKind::Field,
        Severity::Warning,
        "the client leaves a result out, or the provider refuses reasoning in open text",
    ),
    // Copilot CLI, which goes by the order of the file.
    copilot(Damage::NulBytes, Severity::Note, "the client passes over them").at(RecordLoss::Nothing),
    copilot(Damage::NulBytes, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    copilot(
        Damage::NulBytes,
        Severity::Warning,
        "the client skips the record that stands on the same line",
    ),
    copilot(Damage::ByteOrderMark, Severity::Note, READ_ALL_THE_SAME),
    copilot(Damage::InvalidUtf8, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    copilot(Damage::InvalidUtf8, Severity::Warning, "the client skips the record"),
    copilot(
        Damage::LoneSurrogate,
        Severity::Note,
        "the client replaces it before it sends the text",
    ),
    copilot(Damage::TornRecord, Severity::Note, PASSED_OVER).at(RecordLoss::Nothing),
    copilot(Damage::TornRecord, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    copilot(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line, with any record behind the fragment",
    ),
    copilot(Damage::JoinedRecords, Severity::Error, NOT_LOADED).at(RecordLoss::First),
    copilot(
        Damage::JoinedRecords,
        Severity::Warning,
        "the client skips them all, and answers their calls as interrupted",
    ),
    copilot(Damage::RawNewline, Severity::Warning, "the client skips the record"),
    copilot(
        Damage::RepeatedRecord,
        Severity::Error,
        "the client sends the call twice, and the provider refuses every request",
    )
    .at(RecordLoss::Session),
    copilot(
        Damage::RepeatedRecord,
        Severity::Note,
        "the client sends a prompt twice, and a text or a result once",
    ),
    copilot(Damage::InvalidRecord, Severity::Error, NOT_LOADED).at(RecordLoss::Session),
    copilot(Damage::InvalidRecord, Severity::Warning, "the client skips the record"),
    copilot(Damage::StrayContent, Severity::Warning, PASSED_OVER_WHOLE),
    copilot(Damage::EmptyFile, Severity::Error, NOT_FOUND),
    copilot(Damage::SessionMetaMissing, Severity::Error, NOT_LOADED),
    copilot(Damage::OpenCall, Severity::Note, INTERRUPTED),
    copilot_pair(FindingKind::Unanswered, Severity::Note, INTERRUPTED),
    copilot_pair(FindingKind::Orphan, Severity::Warning, LEFT_OUT),
    copilot_pair(FindingKind::Duplicate, Severity::Note, FIRST_RESULT),
    copilot_pair(
        FindingKind::MalformedCall,
        Severity::Error,
        "the client does not load a session with a call that has no id",
    ),
    copilot_pair(FindingKind::NoId, Severity::Error, NOT_LOADED),
    copilot_pair(FindingKind::DuplicateCall, Severity::Error, BOTH_SENT),
    // Qwen Code, which goes back from the last record, link by link.
    qwen(
        Damage::NulBytes,
        Severity::Note,
        "the client takes a record that stands on the same line out of it",
    ),
    qwen(Damage::ByteOrderMark, Severity::Note, READ_ALL_THE_SAME),
    qwen(Damage::InvalidUtf8, Severity::Note, "the client replaces the byte"),
    qwen(Damage::LoneSurrogate, Severity::Error, SENT_AND_REFUSED),
    qwen(Damage::TornRecord, Severity::Note, PASSED_OVER).at(RecordLoss::Nothing),
    qwen(
        Damage::TornRecord,
        Severity::Warning,
        "the client skips the line, and sends nothing of what stands before it",
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
    qwen(Damage::StrayContent, Severity::Warning, PASSED_OVER_WHOLE),
    qwen(Damage::EmptyFile, Severity::Error, NOT_FOUND),
    qwen(Damage::LostParent, Severity::Warning, NOTHING_BEFORE),
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
    qwen(Damage::MixedSessions, Severity::Error, NOT_LOADED),
    qwen(Damage::OpenCall, Severity::Note, UNRECORDED),
    qwen_pair(FindingKind::Unanswered, Severity::Note, UNRECORDED),
    qwen_pair(FindingKind::Orphan, Severity::Warning, LEFT_OUT),
    qwen_pair(FindingKind::Duplicate, Severity::Note, FIRST_RESULT),
    qwen_pair(FindingKind::DuplicateCall, Severity::Error, BOTH_SENT),
    qwen_pair(
        FindingKind::MalformedCall,
        Severity::Note,
        "the client sends another input in its place",
    ),
    // opencode, which keeps its sessions in a database.
    opencode(SessionCode::Damage(Damage::TornRecord), Severity::Error, NOT_LOADED),
    opencode(
        SessionCode::Damage(Damage::LostParent),
        Severity::Warning,
        "the client leaves it out",
    ),
    opencode(SessionCode::Damage(Damage::OpenCall), Severity::Note, INTERRUPTED),
    opencode(
        SessionCode::Pairing(FindingKind::Unanswered),
        Severity::Note,
        INTERRUPTED,
    ),
    opencode(
        SessionCode::Pairing(FindingKind::DuplicateCall),
        Severity::Error,
        BOTH_SENT,
    ),
    opencode(
        SessionCode::Pairing(FindingKind::MalformedCall),
        Severity::Error,
        "the client sends no request of a session with a call that has no id or no state, or the provider refuses it",
    ),
];

/// The effect of a lost record on versions of Claude Code that do not heal the chain. Measured with records of calls, of
/// results and of the user.
const CUT_OFF: &str = "the client skips the line, and sends nothing of what stands before it; if a result comes first then, \
                       the provider refuses every request";

/// The effects that several clients have.
const SENT_AND_REFUSED: &str = "the client sends it as it is, and the provider refuses every request";
const PASSED_OVER_WHOLE: &str = "the client passes over the line, and sends nothing of it";

/// The effect of damage that Codex does not load.
const NOT_LOADED: &str = "the client does not load the session";

/// The effect of damage that costs Codex one record.
const SKIPPED: &str = "the client skips the record, and answers its call with `aborted`";

/// The effects on clients whose sessions are only read, where several rows have the same.
const READ_ALL_THE_SAME: &str = "the client reads the file all the same";
const INTERRUPTED: &str = "the client answers the call itself, with the words that it was interrupted";
const UNRECORDED: &str = "the client answers the call itself, with the words that no result was recorded";
const LEFT_OUT: &str = "the client leaves the result out";
const FIRST_RESULT: &str = "the client sends the first of the results";
const BOTH_SENT: &str = "the client sends both, and the provider refuses every request";
const NOT_FOUND: &str = "the client does not find the session";
const NOTHING_BEFORE: &str = "the client sends nothing of what stands before it";
const PASSED_OVER: &str = "the client passes over the fragment";

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
        SessionClient::OpenCode => "1.18.33, 2026-11",
        // Their rows say it themselves.
        SessionClient::ClaudeCode | SessionClient::Codex => "",
    };
    Measured {
        code,
        client,
        loss: None,
        from: None,
        until: None,
        severity,
        effect,
        measured,
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

    /// Returns `true` if it is about a version.
    pub(super) fn has_version(&self, version: ClientVersion) -> bool {
        self.from.is_none_or(|from| version >= from) && self.until.is_none_or(|until| version < until)
    }
}
