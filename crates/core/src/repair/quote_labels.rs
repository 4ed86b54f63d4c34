//! Labels of quotes: the call's id, and the name of its tool if that is certain.

use std::{
    cell::{OnceCell, RefCell},
    collections::{HashMap, hash_map::Entry},
};

use crate::{
    conversation::{
        Conversation, PartId, PartKind, Text,
        pairing::{Pairing, ResultRole, id_of},
    },
    wire::json::Json,
    work,
};

/// Bytes of a tool's name that are stored. A label shows at most 128 characters.
const NAME_BYTES_MAX: usize = 512;

/// The labels of one history's results and calls.
pub(super) struct QuoteLabels<'c> {
    conversation: &'c Conversation<'c>,
    pairing: &'c Pairing,
    /// Tools of calls, filled on demand, because one call may have very many results.
    names: RefCell<HashMap<PartId, Option<Text<'c>>>>,
    /// Calls by id, filled on demand.
    calls_by_id: OnceCell<HashMap<&'c [u8], CallsOfId>>,
    /// For each id of an orphan, the first call of another tool than the first call's. Filled on demand.
    other_tools: RefCell<HashMap<&'c [u8], Option<PartId>>>,
}

/// The calls of one id.
struct CallsOfId {
    first: PartId,
    /// The others, in document order. Mostly there are none.
    others: Vec<PartId>,
}

impl<'c> QuoteLabels<'c> {
    /// Returns the labels of `conversation`.
    pub(super) fn new(conversation: &'c Conversation<'c>, pairing: &'c Pairing) -> Self {
        Self {
            conversation,
            pairing,
            names: RefCell::default(),
            calls_by_id: OnceCell::new(),
            other_tools: RefCell::default(),
        }
    }

    /// Returns the id and the tool's name of a quoted result, or of a call that becomes text.
    pub(super) fn label_of(&self, part: PartId) -> (String, Option<String>) {
        let id = non_empty_text(id_of(self.conversation, part)).unwrap_or_default();
        let call = self.pairing.role_of(part).and_then(ResultRole::call);
        let call = call.map(|call| self.pairing.calls[call].part);
        let name = match (&self.conversation.parts[part].kind, call) {
            (PartKind::Call(_), _) => self.tool_name(part),
            (_, Some(call)) => self.tool_name(call),
            // An orphan of Gemini names its tool itself.
            (PartKind::Result(result), None) if !result.name.is_empty() => return (id, non_empty_text(&result.name)),
            (_, None) => return (id, self.tool_of_id(part)),
        };
        (id, name.as_deref().and_then(non_empty_text))
    }

    /// Returns the tool of the call at a part, read once.
    fn tool_name(&self, call: PartId) -> Option<Text<'c>> {
        let mut names = self.names.borrow_mut();
        names.entry(call).or_insert_with(|| self.read_tool_name(call)).clone()
    }

    fn read_tool_name(&self, call: PartId) -> Option<Text<'c>> {
        let json = Json::new(self.conversation.body);
        let name = json.decode_string(self.conversation.call_details(call).name?);
        // The name is the client's and may be as long as the body.
        let length = name.len().min(NAME_BYTES_MAX);
        Some(match name {
            Text::Borrowed(name) => name.get(..length).unwrap_or_default().into(),
            Text::Owned(mut name) => {
                name.truncate(length);
                name.into()
            }
        })
    }

    /// Returns the tool of the calls with the id of the result at `part`, if all such calls before it have one tool.
    ///
    /// Later calls are ignored, so that a quote never changes when the history grows.
    fn tool_of_id(&self, part: PartId) -> Option<String> {
        let id = Some(id_of(self.conversation, part)).filter(|id| !id.is_empty())?;
        let CallsOfId { first, others } = self.calls_by_id.get_or_init(|| self.calls_by_id()).get(id)?;
        let name = self.tool_name(*first);
        // Names are read only for ids that an orphan has, and once for each: other calls cost nothing.
        let mut other_tools = self.other_tools.borrow_mut();
        let other = other_tools.entry(id).or_insert_with(|| {
            let mut others = others.iter().copied();
            others.find(|call| {
                work::count(1);
                self.read_tool_name(*call) != name
            })
        });
        let one = *first < part && other.is_none_or(|other| other > part);
        let name = name
            .as_deref()
            // A shell's output never belongs to a function's call, even under one id.
            .filter(|_| one && self.family_group(*first) == self.family_group(part))?;
        non_empty_text(name)
    }

    fn calls_by_id(&self) -> HashMap<&'c [u8], CallsOfId> {
        let mut found: HashMap<&[u8], CallsOfId> = HashMap::with_capacity(self.pairing.calls.len());
        for call in self.pairing.calls.iter().map(|call| call.part) {
            work::count(1);
            match found.entry(id_of(self.conversation, call)) {
                Entry::Vacant(free) => drop(free.insert(CallsOfId {
                    first: call,
                    others: Vec::new(),
                })),
                Entry::Occupied(mut known) => known.get_mut().others.push(call),
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

/// Returns the bytes as text. `None` if they are empty.
fn non_empty_text(bytes: &[u8]) -> Option<String> {
    work::count_bytes(bytes.len());
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}
