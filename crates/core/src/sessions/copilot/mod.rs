//! Sessions of GitHub Copilot CLI: one event on each line, in the order of time.
//!
//! The client goes by the order of the file: the links between events (`parentId`) change nothing that it sends. It
//! answers open calls itself at its start. A file that does not begin with `session.start` is not loaded. Tried with
//! Copilot CLI 1.0.102 (2026-11), whose package has the schema of all events.

mod event_form;

use std::collections::HashSet;

use self::event_form::has_form;

use super::{
    call_pairs::{CallPairs, CallPlace},
    client::ClientVersion,
    damage::{Damage, SessionCode},
    finding::{RecordLoss, SessionFinding},
    log::{LogFacts, SessionLog},
    records::{FileLines, SessionRecord},
};
use crate::{
    conversation::FindingKind,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// The newest version whose form of events was measured.
const MEASURED_VERSION: ClientVersion = ClientVersion([1, 0, 102]);

/// The log of a session of Copilot CLI.
#[derive(Debug, Default)]
pub(super) struct CopilotLog {
    version: Option<ClientVersion>,
    session: Option<String>,
    /// Set by the first record that does not begin the session.
    start_missing: Option<SessionFinding>,
    /// Events that the client cannot read.
    invalid_events: Vec<SessionFinding>,
    /// `true` if the client does not load the file.
    is_dead: bool,
    /// `true` once a record was seen.
    has_begun: bool,
    messages: u64,
    /// Lines of the messages that are sent.
    sent: Vec<u64>,
    pairs: CallPairs,
}

/// One event.
#[derive(Clone, Copy)]
struct CopilotEvent<'a> {
    json: Json<'a>,
    data: Span,
    place: CallPlace,
}

impl SessionLog for CopilotLog {
    fn add(&mut self, record: &SessionRecord<'_>) {
        let json = Json::new(record.text);
        let root = Span::new(0, record.text.len());
        let [kind, data, agent] = json.members(root, ["type", "data", "agentId"]);
        let kind_text = kind.and_then(|kind| json.only_string(kind));
        let kind = kind_text.map(|kind| json.decode_string(kind)).unwrap_or_default();
        let place = CallPlace {
            line: record.line,
            byte: record.byte,
            len: u64::try_from(record.text.len()).unwrap_or(u64::MAX),
            is_read: !record.is_skipped,
        };
        self.note_start(&kind, place);
        let event = data.map(|data| CopilotEvent { json, data, place });
        if &*kind == b"session.start" {
            let version = event.map(|event| event.text("copilotVersion")).unwrap_or_default();
            self.version = self.version.max(ClientVersion::parse(&version));
        }
        // The client skips an event with a byte that is no UTF-8, which is told by itself.
        if place.is_read && !record.has_bad_bytes {
            self.note_form((json, place), &kind, kind_text.is_some(), event);
        }
        let Some(event) = event else { return };
        let is_own = agent.is_none_or(|agent| json.kind(agent) == JsonKind::Null);
        // A sub-agent's conversation is not sent with that of the session.
        if is_own && event.text("parentToolCallId").is_empty() {
            self.add_event(&kind, event);
        }
    }

    fn note_lines(&mut self, lines: &FileLines) {
        // The client skips a record with a byte that is no UTF-8.
        let bad = SessionCode::Damage(Damage::InvalidUtf8);
        let findings = lines.findings.iter().filter(|finding| finding.code == bad);
        let bad: HashSet<u64> = findings.map(|finding| finding.line).collect();
        self.sent.retain(|line| !bad.contains(line));
        let is_refused = |finding: &SessionFinding| finding.loss == RecordLoss::Session;
        self.is_dead |= bad.contains(&1) || lines.findings.iter().any(is_refused);
    }

    fn finish(self: Box<Self>) -> LogFacts {
        let sent = u64::try_from(self.sent.len()).unwrap_or(u64::MAX);
        let mut findings = self.pairs.finish();
        findings.extend(self.start_missing);
        findings.extend(self.invalid_events);
        findings.sort_by_key(|finding| (finding.line, finding.byte));
        LogFacts {
            version: self.version,
            session: self.session,
            messages: self.messages,
            reachable: if self.is_dead { 0 } else { sent },
            last_ordinal: None,
            findings,
        }
    }
}

impl CopilotLog {
    /// Notes if the first record begins the session.
    fn note_start(&mut self, kind: &[u8], place: CallPlace) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let is_start = kind == b"session.start";
        self.is_dead = !is_start || !place.is_read;
        if !is_start {
            self.start_missing = Some(told(Damage::SessionMetaMissing, place, RecordLoss::First));
        }
    }

    /// Notes if the client cannot read an event.
    fn note_form(
        &mut self,
        (json, place): (Json<'_>, CallPlace),
        kind: &[u8],
        has_type: bool,
        event: Option<CopilotEvent<'_>>,
    ) {
        // A newer version may write events of another form.
        let is_measured = self.version.is_none_or(|version| version <= MEASURED_VERSION);
        if has_type && is_measured && !json.root_span().is_ok_and(|root| has_form(json, root, kind)) {
            self.is_dead = true;
            self.add_invalid(place, RecordLoss::Session);
        }
        let is_done = |event: CopilotEvent<'_>| kind == b"tool.execution_complete" && event.is_true("success");
        let lacks_result = |event: CopilotEvent<'_>| is_done(event) && json.member(event.data, "result").is_none();
        if !has_type || event.is_some_and(lacks_result) {
            self.add_invalid(place, RecordLoss::Any);
        }
    }

    /// Notes an event that the client cannot read.
    fn add_invalid(&mut self, place: CallPlace, loss: RecordLoss) {
        self.invalid_events.push(told(Damage::InvalidRecord, place, loss));
    }

    fn add_event(&mut self, kind: &[u8], event: CopilotEvent<'_>) {
        match kind {
            b"session.start" => {
                self.session = Some(event.text("sessionId")).filter(|id| !id.is_empty());
            }
            b"assistant.turn_start" => self.pairs.note_message(),
            b"user.message" => {
                self.pairs.note_message();
                self.count_message(event.place.line, event.place.is_read);
            }
            b"assistant.message" => {
                self.count_message(event.place.line, event.place.is_read);
                self.add_calls(event);
            }
            b"tool.user_requested" => {
                let id = event.text("toolCallId");
                self.pairs.add_unsent_call(id.as_bytes(), event.place);
            }
            b"tool.execution_complete" => {
                let id = event.text("toolCallId");
                let is_sent = if id.is_empty() {
                    self.add_fault(FindingKind::NoId, event.place);
                    false
                } else {
                    self.pairs.add_result(id.as_bytes(), event.place)
                };
                self.count_message(event.place.line, is_sent);
            }
            b"session.compaction_complete" if event.is_true("success") && event.place.is_read => self.forget(),
            b"session.context_cleared" if event.place.is_read => self.forget(),
            _ => {}
        }
    }

    /// Forgets what was said: a summary, or nothing, has taken its place.
    fn forget(&mut self) {
        self.pairs.forget_calls();
        self.sent.clear();
    }

    fn count_message(&mut self, line: u64, is_sent: bool) {
        self.messages = self.messages.saturating_add(1);
        if is_sent {
            self.sent.push(line);
        }
    }

    /// Adds a fault with which the client does not load the file.
    fn add_fault(&mut self, kind: FindingKind, place: CallPlace) {
        self.is_dead |= place.is_read;
        self.pairs.add_fault(kind, b"", place);
    }

    fn add_calls(&mut self, event: CopilotEvent<'_>) {
        let (json, place) = (event.json, event.place);
        let Some(list) = json.member(event.data, "toolRequests") else {
            return;
        };
        // One after the other: a hostile list has more places than memory.
        let walked = json.for_each_element(list, |call| {
            let id = json.member_text(call, "toolCallId");
            if id.is_empty() {
                self.add_fault(FindingKind::MalformedCall, place);
            } else {
                self.pairs.add_call(&id, place);
            }
        });
        // Something else than a list has no calls.
        let _ = walked.is_ok();
    }
}

fn told(damage: Damage, place: CallPlace, loss: RecordLoss) -> SessionFinding {
    SessionFinding {
        loss,
        ..SessionFinding::told(SessionCode::Damage(damage), place.line, place.byte, place.len)
    }
}

impl CopilotEvent<'_> {
    fn text(self, name: &str) -> String {
        String::from_utf8_lossy(&self.json.member_text(self.data, name)).into_owned()
    }

    fn is_true(self, name: &str) -> bool {
        let value = self.json.member(self.data, name);
        value.is_some_and(|value| self.json.bytes(value) == b"true")
    }
}

#[cfg(test)]
mod tests {
    use crate::sessions::{SessionClient, scan_session, severity_of};

    const START: &str = concat!(
        r#""session.start","data":{"sessionId":"s","version":1,"producer":"p","copilotVersion":"1.0.102","#,
        r#""startTime":"t"}"#
    );
    const PROMPT: &str = r#""user.message","data":{"content":"x"}"#;
    const CALL: &str =
        r#""assistant.message","data":{"messageId":"m","content":"","toolRequests":[{"toolCallId":"c","name":"n"}]}"#;
    const RESULT: &str =
        r#""tool.execution_complete","data":{"toolCallId":"c","success":true,"result":{"content":"x"}}"#;

    fn event(text: &str) -> String {
        let link =
            r#""id":"5e551001-0000-4000-8000-0000000000aa","timestamp":"2026-11-30T19:29:10.742Z","parentId":null"#;
        format!("{{\"type\":{text},{link}}}\n")
    }

    /// The client refuses what breaks its form, and calls that stand there twice.
    #[test]
    fn events_that_the_client_cannot_read_are_told() {
        let unnamed = PROMPT.replace(r#""user.message""#, "7");
        let (unsaid, no_id) = (
            PROMPT.replace(r#""content":"x""#, ""),
            CALL.replace(r#""messageId":"m","#, ""),
        );
        let no_result = RESULT.replace(r#","result":{"content":"x"}"#, "");
        let later = r#""of.a.later.version","data":7"#;
        let newer = START.replace("1.0.102", "1.1.0").replace(r#""producer":"p","#, "");
        let bare = "7";
        let of_agent = CALL.replace(r#""messageId""#, r#""parentToolCallId":"p","messageId""#);
        let cases: [(&[&str], &[&str], u64); 11] = [
            (&[&newer, PROMPT, CALL, RESULT], &[], 3),
            (&[START, PROMPT, CALL, RESULT, bare], &["5 invalid_record warning"], 3),
            (&[START, PROMPT, &of_agent, &of_agent], &["4 repeated_record note"], 1),
            (&[START, PROMPT, later, CALL, RESULT], &[], 3),
            (&[START, PROMPT, PROMPT, CALL, RESULT], &["3 repeated_record note"], 3),
            (&[START, PROMPT, CALL, RESULT, RESULT], &["5 repeated_record note"], 3),
            (&[START, PROMPT, CALL, CALL, RESULT], &["4 repeated_record error"], 0),
            (&[START, &unsaid, CALL, RESULT], &["2 invalid_record error"], 0),
            (&[START, PROMPT, &no_id, RESULT], &["3 invalid_record error"], 0),
            (&[START, &unnamed, CALL, RESULT], &["2 invalid_record warning"], 2),
            (&[START, PROMPT, CALL, &no_result], &["4 invalid_record warning"], 3),
        ];
        for (events, wanted, reachable) in cases {
            let file: String = events.iter().map(|text| event(text)).collect();
            let report = scan_session(&mut file.as_bytes()).unwrap().unwrap();
            let found = report.findings.iter().map(|finding| {
                let severity = severity_of(finding.code, finding.loss, SessionClient::Copilot, report.version);
                format!("{} {} {}", finding.line, finding.code.label(), severity.label())
            });
            assert_eq!(found.collect::<Vec<_>>(), wanted, "{events:?}");
            assert_eq!(report.reachable, reachable, "{events:?}");
        }
    }
}
