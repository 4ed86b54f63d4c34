//! The files of `tests/reports`: a history that a public thread reports, the server that refuses it, and what is right.

use std::{fs, path::PathBuf};

use antiphon::{
    provider::ProviderKind,
    wire::{Dialect, Format, Wire},
};
use serde::Deserialize;
use serde_json::{Value, json};
use strict_provider::{kept::KeptRules, refusal_rule::RefusalCondition};

use crate::support::{bodies, refusals::ROWS};

/// The number of reports. One that is removed by mistake would not be missed otherwise.
pub(super) const REPORTS: usize = 79;

/// A report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    /// The name of its file. It begins with a number that never changes.
    #[serde(skip)]
    pub(super) name: String,
    /// The fault of the history.
    about: String,
    /// The public threads, with their dates.
    pub(super) seen: String,
    /// The format and dialect of the server.
    wire: String,
    pub(super) path: String,
    pub(super) right: Right,
    /// The reason for which the client gets the refusal.
    why: Option<String>,
    /// What the client gets behind the text of the refusal.
    explained: Option<String>,
    /// The row of `src/refusals/rows.toml` that reads the refusal. None if the fault never reaches a server.
    row: Option<String>,
    /// The sends of the first turn.
    sends: Option<usize>,
    /// Parts of texts. A text with one of them may go.
    #[serde(default)]
    may_lose: Vec<String>,
    /// Texts that stand in the sent bytes.
    #[serde(default)]
    must_keep: Vec<String>,
    /// Top-level members that may differ.
    #[serde(default)]
    may_change: Vec<String>,
    /// The reason why calls and results have other ids or names. None if they have the same.
    pairs: Option<String>,
    /// The client's body. Its history is its last member.
    pub(super) body: String,
    refusal: Vec<ReportedRefusal>,
    /// An exchange before the first turn.
    pub(super) earlier: Option<EarlierExchange>,
    /// The next turn, if it is not sent once with the bytes of the first one at its beginning.
    second_turn: Option<Exception>,
    /// The same body after the first turn, if it is not sent once.
    again: Option<Exception>,
}

/// The right outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Right {
    /// The fault is repaired before the first send: every server refuses it.
    AtOnce,
    /// The refusal is met, and the session goes on.
    Mended,
    /// The client gets the refusal.
    Relayed,
}

/// A refusal of the report's server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportedRefusal {
    shape: String,
    status: u16,
    text: String,
    /// The place of the fault, for shapes that have one beside the text.
    loc: Option<String>,
    /// The conditions that hold together. One alone may be `beta NAME`, for a header with this beta.
    refused_if: Vec<String>,
}

/// An exchange that the proxy has relayed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierExchange {
    pub(super) body: String,
    pub(super) answer: String,
}

/// A difference from the usual course, with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(default = "once")]
    sends: usize,
    #[serde(default = "yes")]
    continues: bool,
    why: String,
}

const fn once() -> usize {
    1
}

const fn yes() -> bool {
    true
}

/// Returns every report, in the order of their numbers.
pub(super) fn all() -> Vec<Report> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut reports: Vec<Report> = files
        .filter_map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            (name != "mangled" && name != "README").then(|| Report {
                name: name.clone(),
                ..toml::from_str(&text).unwrap_or_else(|fault| panic!("{name}: {fault}"))
            })
        })
        .collect();
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    reports
}

impl Report {
    /// Returns a healthy history of this wire as a report that no server has refused yet.
    pub(super) fn healthy(seed: u64, wire: &str) -> Self {
        let talk = bodies::healthy(seed, wire.parse().unwrap());
        Self {
            name: format!("healthy {wire} {seed}"),
            about: String::new(),
            seen: String::new(),
            wire: wire.to_owned(),
            path: match talk.wire.format {
                Format::Anthropic => "/v1/messages",
                Format::OpenAiChat => "/v1/chat/completions",
                Format::OpenAiResponses => "/v1/responses",
                Format::Gemini => "/v1beta/models/gemini-2.5-pro:generateContent",
            }
            .to_owned(),
            right: Right::Mended,
            why: None,
            explained: None,
            row: None,
            sends: None,
            // Thinking and what belongs to a provider's own tools may go.
            may_lose: ["thought-", "query-"].map(str::to_owned).to_vec(),
            must_keep: Vec::new(),
            may_change: Vec::new(),
            pairs: None,
            body: String::from_utf8(talk.bytes()).unwrap(),
            refusal: Vec::new(),
            earlier: None,
            second_turn: None,
            again: None,
        }
    }

    /// Returns the wire of its server.
    pub(super) fn wire(&self) -> Wire {
        self.wire.parse().unwrap()
    }

    /// Returns the API of its upstream.
    pub(super) fn kind(&self) -> ProviderKind {
        let Wire { format, dialect } = self.wire();
        match (dialect, format) {
            (Dialect::Standard, Format::Anthropic) => ProviderKind::Anthropic,
            (Dialect::Standard, Format::OpenAiChat | Format::OpenAiResponses) => ProviderKind::OpenAi,
            (Dialect::Standard, Format::Gemini) => ProviderKind::Gemini,
            (Dialect::Bedrock, _) => ProviderKind::Bedrock,
            (Dialect::DeepSeek, _) => ProviderKind::DeepSeek,
            (Dialect::MiniMax, _) => ProviderKind::MiniMax,
            (Dialect::Mistral, _) => ProviderKind::Mistral,
            (Dialect::Xai, _) => ProviderKind::Xai,
            (Dialect::Compatible, _) => ProviderKind::Compatible,
        }
    }

    /// Returns the differences that a repair may make.
    pub(super) fn kept_rules(&self) -> KeptRules {
        KeptRules {
            may_lose: self.may_lose.clone(),
            must_keep: self.must_keep.clone(),
            may_change: self.may_change.clone(),
            pairs_differ: self.pairs.is_some(),
            only_read_texts: false,
        }
    }

    /// Returns the number of sends of a caller's first request.
    pub(super) fn first_sends(&self) -> usize {
        let usual = match self.right {
            Right::AtOnce | Right::Relayed => 1,
            Right::Mended => 2,
        };
        self.sends.unwrap_or(usual)
    }

    /// Returns the number of sends of the same request, once its rule is learned.
    pub(super) fn later_sends(&self) -> usize {
        self.again.as_ref().map_or(1, |again| again.sends)
    }

    /// Returns the number of sends of the next turn, and `true` if it begins with the bytes of the first one.
    pub(super) fn second_turn(&self) -> (usize, bool) {
        let turn = self.second_turn.as_ref();
        turn.map_or((1, true), |turn| (turn.sends, turn.continues))
    }

    /// Returns the number of sends of the next turn, if it goes on once the client has seen the refusal.
    pub(super) fn sends_once_seen(&self) -> Option<usize> {
        self.second_turn.as_ref().map(|turn| turn.sends)
    }

    /// Returns the body of the next turn: the client has the answer, and its user writes again.
    pub(super) fn grown(&self) -> String {
        let (end, answer, user) = match self.wire().format {
            Format::Anthropic | Format::OpenAiChat => (
                "]}",
                json!({"role": "assistant", "content": ANSWER}),
                json!({"role": "user", "content": NEWEST}),
            ),
            Format::OpenAiResponses => (
                "]}",
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}),
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": NEWEST}]}),
            ),
            Format::Gemini => (
                "]}",
                json!({"role": "model", "parts": [{"text": ANSWER}]}),
                json!({"role": "user", "parts": [{"text": NEWEST}]}),
            ),
        };
        let start = self.body.strip_suffix(end).expect("the history at the end");
        format!("{start},{answer},{user}{end}")
    }

    /// Returns the server's refusal of a request: status and error. `None` if it accepts it.
    pub(super) fn refuse(&self, head: &str, body: &[u8]) -> Option<(u16, String)> {
        let found = self.refusal.iter().find(|refused| refused.holds(head, body));
        found.map(|refused| (refused.status, refused.error()))
    }

    /// Returns the status and the error that the client gets if nothing meets the first refusal.
    pub(super) fn relayed(&self) -> (u16, String) {
        let refused = &self.refusal[0];
        let more = self.explained.as_ref().map(|more| format!(" {more}"));
        let text = format!("{}{}", refused.text, more.unwrap_or_default());
        let loc = refused.loc.as_deref().unwrap_or_default();
        (refused.status, error_in(&refused.shape, refused.status, &text, loc))
    }

    /// Returns the errors of its server, as it sends them.
    pub(super) fn errors(&self) -> Vec<(u16, String)> {
        let errors = self.refusal.iter();
        errors.map(|refused| (refused.status, refused.error())).collect()
    }
}

/// The model's answer, and what the user writes after it.
const ANSWER: &str = "I hear you.";
const NEWEST: &str = "Then go on.";

/// Returns an answer of a server.
pub(super) fn answer(format: Format) -> Value {
    match format {
        Format::Anthropic => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "stop_sequence": null, "content": [{"type": "text", "text": ANSWER}],
            "usage": {"input_tokens": 9, "output_tokens": 3},
        }),
        Format::OpenAiChat => json!({
            "id": "chatcmpl-1", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}],
        }),
        Format::OpenAiResponses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "text": ANSWER, "annotations": []}]},
            ],
        }),
        Format::Gemini => json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": ANSWER}]}, "finishReason": "STOP"}],
        }),
    }
}

/// The shapes of errors, with `TEXT` for the message as a JSON text, and `STATUS`. `PLAIN` is the message inside a text.
pub(super) const SHAPES: [(&str, &str); 12] = [
    (
        "anthropic",
        r#"{"type":"error","error":{"type":"invalid_request_error","message":TEXT},"request_id":"req_1"}"#,
    ),
    (
        "openai",
        r#"{"error":{"message":TEXT,"type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        "openai_param",
        r#"{"error":{"message":TEXT,"type":"invalid_request_error","param":"input","code":null}}"#,
    ),
    (
        "google",
        r#"{"error":{"code":STATUS,"message":TEXT,"status":"INVALID_ARGUMENT"}}"#,
    ),
    (
        "google_list",
        r#"[{"error":{"code":STATUS,"message":TEXT,"status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        "llama",
        r#"{"error":{"code":STATUS,"message":TEXT,"type":"server_error"}}"#,
    ),
    (
        "vllm",
        r#"{"object":"error","message":TEXT,"type":"BadRequestError","param":null,"code":STATUS}"#,
    ),
    (
        "litellm",
        r#"{"error":{"message":"litellm.BadRequestError: BedrockException - PLAIN","type":null,"param":null,"code":"STATUS"}}"#,
    ),
    ("xai", r#"{"code":"Client specified an invalid argument","error":TEXT}"#),
    (
        "mistral",
        r#"{"object":"error","message":TEXT,"type":"invalid_request_message","param":null,"code":"3240"}"#,
    ),
    (
        "pydantic",
        r#"{"detail":[{"type":"value_error","loc":[LOC],"msg":TEXT,"input":null}]}"#,
    ),
    (
        "volc",
        r#"{"error":{"code":"InvalidParameter","message":TEXT,"param":"","type":"BadRequest"}}"#,
    ),
];

/// Returns an error in a shape.
pub(super) fn error_in(shape: &str, status: u16, text: &str, loc: &str) -> String {
    let template = SHAPES.iter().find(|(name, _)| *name == shape);
    let (_, template) = template.unwrap_or_else(|| panic!("no shape is named {shape}"));
    let quoted = Value::from(text).to_string();
    let plain = &quoted[1..quoted.len() - 1];
    // The message last: it may contain one of the other words.
    let template = template.replace("STATUS", &status.to_string()).replace("LOC", loc);
    template.replace("TEXT", &quoted).replace("PLAIN", plain)
}

impl ReportedRefusal {
    fn holds(&self, head: &str, body: &[u8]) -> bool {
        let only = self.refused_if.first().map_or("", String::as_str);
        if let Some(beta) = only.strip_prefix("beta ") {
            return head.contains(beta);
        }
        let mut all = self.refused_if.iter();
        all.all(|text| RefusalCondition::parse(text).unwrap().holds(body))
    }

    fn error(&self) -> String {
        error_in(
            &self.shape,
            self.status,
            &self.text,
            self.loc.as_deref().unwrap_or_default(),
        )
    }
}

/// Every report is whole: its condition is read and holds, its row exists, and what deviates has a reason.
#[test]
fn the_reports_are_whole() {
    let reports = all();
    let numbered: Vec<&str> = reports
        .iter()
        .filter_map(|report| report.name.strip_prefix('r'))
        .collect();
    assert_eq!(numbered.len(), REPORTS);
    for (place, name) in numbered.into_iter().enumerate() {
        assert!(name.starts_with(&format!("{:02}-", place + 1)), "r{name}");
    }
    for report in &reports {
        let name = &report.name;
        assert!(report.about.ends_with('.'), "{name}: {}", report.about);
        // A thread with its month, or a package of the vendor with its version.
        assert!(report.seen.contains(['#', '.']), "{name}: {}", report.seen);
        let head = "anthropic-beta: interleaved-thinking-2025-05-14";
        assert!(
            report.refuse(head, report.body.as_bytes()).is_some(),
            "{name} is not refused"
        );
        if let Some(row) = &report.row {
            assert!(ROWS.iter().any(|known| known.name == *row), "{name}: no row {row}");
        }
        let reasons = [&report.second_turn, &report.again];
        let mut reasons = reasons.into_iter().flatten().map(|exception| exception.why.as_str());
        assert!(reasons.all(|why| why.len() > 10), "{name}");
        assert_eq!(report.why.is_some(), report.right == Right::Relayed, "{name}");
        // A mend has a row. What is repaired at once has none, since no server sees it.
        let is_read = report.row.is_some();
        assert_eq!(is_read, report.right == Right::Mended, "{name}");
    }
}
