//! Steps that the readers of several formats share: parts, flaws and messages of the conversation that is read.

use crate::{
    conversation::{Content, Conversation, Flaw, FlawKind, Message, Part, PartId, PartKind, Role},
    splice::Span,
};

/// Returns the role of an author in the formats of Anthropic and OpenAI.
pub(crate) fn role_of(name: &[u8]) -> Role {
    match name {
        b"user" => Role::User,
        b"assistant" => Role::Assistant,
        _ => Role::System,
    }
}

/// Adds a part to the message that is being read.
pub(crate) fn push_part<'a>(conversation: &mut Conversation<'a>, span: Span, kind: PartKind<'a>) {
    let message = conversation.messages.len();
    conversation.push_part(Part { span, message, kind });
}

/// Adds a flaw of the message that is being read, or of its `part`.
pub(crate) fn push_flaw(conversation: &mut Conversation<'_>, part: Option<PartId>, kind: FlawKind) {
    let message = conversation.messages.len();
    conversation.flaws.push(Flaw { message, part, kind });
}

/// Ends the message that is being read. Its parts are those from `first` on.
pub(crate) fn push_message(
    conversation: &mut Conversation<'_>,
    span: Span,
    role: Role,
    content: Content,
    first: usize,
) {
    let parts = first..conversation.parts.len();
    conversation.messages.push(Message {
        span,
        role,
        content,
        parts,
    });
}
