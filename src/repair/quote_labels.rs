//! What a quote says of the result it keeps: the call's id, and the tool's name as far as it is certain.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
};

use crate::{
    conversation::{
        Conversation, PartId, PartKind, Text,
        pairing::{Pairing, ResultRole, id_of},
    },
    wire::json::Json,
};

/// Bytes of a tool's name that are kept: a label shows 128 characters at most.
const NAME_BYTES_MAX: usize = 512;

/// The labels of one history's results and calls.
pub(super) struct QuoteLabels<'c> {
    conversation: &'c Conversation<'c>,
    pairing: &'c Pairing,
    /// The tools of calls, once they are asked for: one call may have very many results.
    names: RefCell<HashMap<PartId, Option<Text<'c>>>>,
    /// The calls of each id, once they are asked for.
    calls_by_id: OnceCell<HashMap<&'c [u8], CallsOfId<'c>>>,
}

/// The calls of one id.
struct CallsOfId<'c> {
    first: PartId,
    /// The first one's tool.
    name: Option<Text<'c>>,
    /// The first call of another tool.
    other: Option<PartId>,
}

impl<'c> QuoteLabels<'c> {
    /// The labels of `conversation`.
    pub(super) fn new(conversation: &'c Conversation<'c>, pairing: &'c Pairing) -> Self {
        Self {
            conversation,
            pairing,
            names: RefCell::default(),
            calls_by_id: OnceCell::new(),
        }
    }

    /// The id and the tool's name of a result that is quoted, or of a call that becomes text.
    pub(super) fn label_of(&self, part: PartId) -> (String, Option<String>) {
        let id = non_empty_text(id_of(self.conversation, part)).unwrap_or_default();
        let call = match self.pairing.role_of(part) {
            Some(ResultRole::Answers(call) | ResultRole::Repeats(call)) => Some(self.pairing.calls[call].part),
            _ => None,
        };
        let name = match (&self.conversation.parts[part].kind, call) {
            (PartKind::Call(_), _) => self.tool_name(part),
            (_, Some(call)) => self.tool_name(call),
            (PartKind::Result(result), None) if !result.name.is_empty() => return (id, non_empty_text(&result.name)),
            (_, None) => return (id, self.tool_of_id(part)),
        };
        (id, name.as_deref().and_then(non_empty_text))
    }

    fn tool_name(&self, call: PartId) -> Option<Text<'c>> {
        let mut names = self.names.borrow_mut();
        names.entry(call).or_insert_with(|| self.read_tool_name(call)).clone()
    }

    fn read_tool_name(&self, call: PartId) -> Option<Text<'c>> {
        let json = Json::new(self.conversation.body);
        let name = json.decode(self.conversation.call_details(call).name?);
        let length = name.len().min(NAME_BYTES_MAX);
        Some(match name {
            Text::Borrowed(name) => name.get(..length).unwrap_or_default().into(),
            Text::Owned(mut name) => {
                name.truncate(length);
                name.into()
            }
        })
    }

    /// The tool of the calls in front of the result at `part` that have its id, if it is one tool: an id that comes again
    /// later changes no quote.
    fn tool_of_id(&self, part: PartId) -> Option<String> {
        let id = Some(id_of(self.conversation, part)).filter(|id| !id.is_empty())?;
        let CallsOfId { first, name, other } = self.calls_by_id.get_or_init(|| self.calls_by_id()).get(id)?;
        let one = *first < part && other.is_none_or(|other| other > part);
        let name = name
            .as_deref()
            .filter(|_| one && self.family_group(*first) == self.family_group(part))?;
        non_empty_text(name)
    }

    fn calls_by_id(&self) -> HashMap<&'c [u8], CallsOfId<'c>> {
        let mut found: HashMap<&[u8], CallsOfId<'c>> = HashMap::new();
        for call in self.pairing.calls.iter().map(|call| call.part) {
            let known = found
                .entry(id_of(self.conversation, call))
                .or_insert_with(|| CallsOfId {
                    first: call,
                    name: self.read_tool_name(call),
                    other: None,
                });
            if known.other.is_none() && known.first != call && known.name != self.read_tool_name(call) {
                known.other = Some(call);
            }
        }
        found
    }

    fn family_group(&self, part: PartId) -> Option<u8> {
        match &self.conversation.parts[part].kind {
            PartKind::Call(call) => Some(call.family.group),
            PartKind::Result(result) => Some(result.family.group),
            _ => None,
        }
    }
}

/// A text, if there is one.
fn non_empty_text(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}
