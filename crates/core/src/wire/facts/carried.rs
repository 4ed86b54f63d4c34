//! Values of an answer that its provider wants back: reasoning, a thought signature, or a container.
//!
//! A container belongs to the first call of code, the rest to the first call of the answer. All of it is noted only if
//! asked for, bounded, and never shown.

use std::fmt;

/// Bytes that are noted of one answer: reasoning, arguments and signature together. Of a longer one nothing is.
pub const CARRIED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the longest id of a container.
const CONTAINER_BYTES_MAX: usize = 256;

/// The values that one answer has carried so far.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CarriedFacts {
    /// Set if the carried values are noted at all.
    is_wanted: bool,
    /// Set if the reasoning is noted too.
    wants_reasoning: bool,
    /// Set once the answer has carried more than [`CARRIED_BYTES_MAX`]. Half a value must not be put back.
    is_too_long: bool,
    bytes: usize,
    reasoning: Vec<u8>,
    call: Option<CarriedCall>,
    code_call: Option<CarriedCall>,
    container: Option<Box<str>>,
}

/// The first call of an answer, or the first that code at the provider makes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CarriedCall {
    /// The id; empty if the provider gave none.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub name: Vec<u8>,
    /// The arguments as JSON text. Empty where the format's ids identify a call without them.
    pub arguments: Vec<u8>,
    /// The thought signature; empty if there is none.
    pub signature: Vec<u8>,
    /// The index under which pieces of this call come.
    pub(crate) index: Option<u64>,
}

impl fmt::Debug for CarriedFacts {
    // All of it is content, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CarriedFacts({} bytes)", self.bytes)
    }
}

impl fmt::Debug for CarriedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CarriedCall({} bytes)", self.arguments.len())
    }
}

impl CarriedCall {
    fn byte_len(&self) -> usize {
        let texts = [&self.id, &self.name, &self.arguments, &self.signature];
        texts.iter().fold(0, |bytes, text| bytes.saturating_add(text.len()))
    }
}

impl CarriedFacts {
    /// Makes the readers note the carried values.
    pub(crate) const fn set_wanted(&mut self) {
        self.is_wanted = true;
    }

    /// Makes the readers note the reasoning too.
    pub(crate) const fn set_reasoning_wanted(&mut self) {
        (self.is_wanted, self.wants_reasoning) = (true, true);
    }

    /// Returns `true` if the readers note the reasoning.
    pub(crate) const fn wants_reasoning(&self) -> bool {
        self.wants_reasoning
    }

    /// Returns `true` if the readers note the carried values.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Drops everything: the answer cannot be read as a whole.
    pub(crate) fn give_up(&mut self) {
        self.is_too_long = true;
        (self.reasoning, self.container) = (Vec::new(), None);
        (self.call, self.code_call) = (None, None);
    }

    /// Returns `true` if `more` bytes may be added, and counts them. Gives up otherwise.
    fn takes_bytes(&mut self, more: usize) -> bool {
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes > CARRIED_BYTES_MAX {
            self.give_up();
        }
        self.is_wanted && !self.is_too_long
    }

    /// Adds a piece of reasoning.
    pub(crate) fn add_reasoning(&mut self, text: &[u8]) {
        if self.wants_reasoning && self.takes_bytes(text.len()) {
            self.reasoning.extend_from_slice(text);
        }
    }

    /// Adds a block of thinking, as JSON. Blocks have commas between them, as in a list.
    pub(crate) fn add_thinking_block(&mut self, block: &str) {
        if !self.reasoning.is_empty() {
            self.add_reasoning(b",");
        }
        self.add_reasoning(block.as_bytes());
    }

    /// Stores the id of the container.
    pub(crate) fn note_container(&mut self, id: &[u8]) {
        if !id.is_empty() && id.len() <= CONTAINER_BYTES_MAX && self.takes_bytes(id.len()) {
            self.container = std::str::from_utf8(id).ok().map(Into::into);
        }
    }

    /// Adds a call, or a piece of one. Only the first call of the answer is stored.
    pub(crate) fn add_call(&mut self, piece: CarriedCall) {
        let Some(call) = &mut self.call else {
            // A piece without a name belongs to no call whose beginning was seen.
            let bytes = piece.byte_len();
            if !piece.name.is_empty() && self.takes_bytes(bytes) {
                self.call = Some(piece);
            }
            return;
        };
        // Some servers send every call with index 0, where only the ids differ.
        let is_its = piece.index == call.index && (piece.id.is_empty() || piece.id == call.id);
        let is_new = piece.index.is_none() && !piece.name.is_empty();
        if !is_its || is_new {
            return;
        }
        if self.takes_bytes(piece.byte_len())
            && let Some(call) = &mut self.call
        {
            call.arguments.extend_from_slice(&piece.arguments);
            call.signature.extend_from_slice(&piece.signature);
        }
    }

    /// Adds a call that code at the provider makes. Only the first one of the answer is stored.
    pub(crate) fn add_code_call(&mut self, call: CarriedCall) {
        if self.code_call.is_none() && self.takes_bytes(call.byte_len()) {
            self.code_call = Some(call);
        }
    }

    /// Returns the first call that code at the provider makes. `None` if there is none, or the answer is too long.
    pub const fn code_call(&self) -> Option<&CarriedCall> {
        self.code_call.as_ref()
    }

    /// Returns the first call. `None` if the answer has none, or is too long.
    pub const fn call(&self) -> Option<&CarriedCall> {
        self.call.as_ref()
    }

    /// Returns the reasoning; empty if there was none. `None` if it is no text that JSON can contain.
    ///
    /// In Messages these are the blocks of thinking as JSON, with commas between them.
    pub fn reasoning(&self) -> Option<&str> {
        // A lone surrogate cannot be written again in the same way.
        std::str::from_utf8(&self.reasoning).ok()
    }

    /// Returns the id of the container.
    pub fn container(&self) -> Option<&str> {
        self.container.as_deref()
    }
}
