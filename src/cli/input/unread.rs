//! Bodies whose messages have nothing that a reader understands. Nothing is known about their calls, so a report must
//! not call them healthy.

use crate::{
    conversation::{Content, Conversation, Message},
    wire::{
        Format, Wire, is_message,
        json::{Json, JsonKind},
    },
};

/// The reason for which nothing of a history was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum UnreadReason {
    /// The format has no history in this body.
    #[error("it has no history in this format")]
    NoHistory,
    /// Messages without content of the format.
    #[error("no message has content in this format")]
    NoContent,
    /// Messages as a user interface stores them, which no provider takes.
    #[error("a message has only the `parts` of a user interface")]
    UserInterface,
    /// A message with the content of another format.
    #[error("a message has content of another format")]
    OtherFormat,
    /// A line of a stream that the agent cannot have written, with its number.
    #[error("line {0} has content of another kind")]
    OtherLine(usize),
    /// Lines of a stream without content.
    #[error("no message has content which this version reads")]
    EmptyStream,
}

impl UnreadReason {
    /// Returns the way to a report nevertheless.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::EmptyStream => "check a request body of the agent instead",
            Self::OtherFormat => "keep messages of one format in one file",
            Self::OtherLine(_) => "keep each kind of line in a file of its own",
            Self::NoHistory | Self::NoContent | Self::UserInterface => {
                "name another format with --wire NAME, or check the body that the provider gets"
            }
        }
    }
}

/// Finds a history of the body of which nothing was read. `None` also for a body that does not follow the format: that
/// error is another one.
pub(super) fn find_unread(body: &[u8], wire: Wire) -> Option<UnreadReason> {
    let whole = wire.read(body).ok()?;
    if whole.array.is_some() {
        return reason_of(&whole, wire);
    }
    let requests = wire.format.nested_requests(body).ok()?;
    if requests.is_empty() {
        return reason_of(&whole, wire);
    }
    requests.iter().find_map(|request| {
        let inside = wire.read(request.span.of(body)).ok()?;
        reason_of(&inside, wire)
    })
}

fn reason_of(conversation: &Conversation<'_>, wire: Wire) -> Option<UnreadReason> {
    // What the provider has, it can read.
    if conversation.may_have_remote_calls {
        return None;
    }
    let json = Json::new(conversation.body);
    if conversation.array.is_none() {
        let is_read = match (conversation.notes.only_text, wire.format) {
            (Some(text), Format::OpenAiResponses) => json.kind(text) == JsonKind::String,
            (Some(content), Format::Anthropic | Format::OpenAiChat | Format::Gemini) => is_message(json, content),
            // The prompt may be stored at the provider.
            (None, Format::OpenAiResponses) => true,
            (None, Format::Anthropic | Format::OpenAiChat | Format::Gemini) => false,
        };
        return (!is_read).then_some(UnreadReason::NoHistory);
    }
    let messages = &conversation.messages;
    let has_parts_only = |message: &Message| {
        json.member(message.span, "parts").is_some() && !has_content(message) && !is_message(json, message.span)
    };
    if messages.iter().any(has_parts_only) {
        return Some(UnreadReason::UserInterface);
    }
    let other_keys: &[&str] = match wire.format {
        Format::Gemini => &["content", "tool_calls"],
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => &["parts"],
    };
    let has_other_content = |message: &Message| {
        let has = |key: &&str| json.member(message.span, key).is_some();
        !has_content(message) && other_keys.iter().any(has) && messages.iter().any(has_content)
    };
    if messages.iter().any(has_other_content) {
        return Some(UnreadReason::OtherFormat);
    }
    let is_read = |message: &Message| has_content(message) && is_message(json, message.span);
    (!messages.is_empty() && !messages.iter().any(is_read)).then_some(UnreadReason::NoContent)
}

fn has_content(message: &Message) -> bool {
    message.content != Content::Opaque || !message.parts.is_empty()
}
