//! Chains of items: the items that a response stands for, as one hash that can be extended.
//!
//! A client that sends items back drops what the provider only reported: item ids, states, annotations, token
//! probabilities. The hash of an item leaves these out, and anything else counts.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::{Map, Value};

use crate::{
    conversation::Text,
    digest::{HashTexts as _, hash_value},
    splice::{EditList, Span},
    wire::{
        Unreadable,
        json::{Cursor, Json, JsonKind, validate},
    },
};

/// The member with the id of the response that a body continues from.
const PREVIOUS: &str = "previous_response_id";
/// Members that a client may drop or add without a change of the item.
const LABELS: [&str; 5] = ["annotations", "cache_control", "id", "logprobs", "status"];

/// Searchers for what most items of a model contain. Within a text these words have a backslash before their last quote.
static ANSWER_WORDS: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["\"assistant\"", "\"function_call\""].map(Finder::new));

/// The length of a chain in a record, in bytes.
pub const CHAIN_BYTES: usize = 41;

/// One item of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainItem {
    hash: [u8; 32],
    /// `true` for reasoning without encrypted content, which a client can send back only if it is stored.
    is_plain_reasoning: bool,
}

/// The items of a history, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemChain {
    /// Number of the items that count.
    count: u64,
    digest: [u8; 32],
    /// `true` if reasoning without encrypted content counts too. It does where the provider has stored the response.
    has_plain_reasoning: bool,
}

impl ItemChain {
    /// Returns a chain without items.
    const fn empty(has_plain_reasoning: bool) -> Self {
        Self {
            count: 0,
            digest: [0; 32],
            has_plain_reasoning,
        }
    }

    /// Returns the bytes by which a record contains the chain.
    #[must_use]
    pub fn to_bytes(self) -> [u8; CHAIN_BYTES] {
        let mut bytes = [0; CHAIN_BYTES];
        let parts = self.count.to_be_bytes().into_iter().chain(self.digest);
        let parts = parts.chain([u8::from(self.has_plain_reasoning)]);
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        bytes
    }

    /// Returns the chain with these bytes. `None` if no chain has them.
    pub fn from_bytes(bytes: &[u8; CHAIN_BYTES]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (digest, reasoning) = rest.split_first_chunk()?;
        Some(Self {
            count: u64::from_be_bytes(*count),
            digest: *digest,
            has_plain_reasoning: match reasoning {
                [0] => false,
                [1] => true,
                _ => return None,
            },
        })
    }

    /// Adds an item.
    pub fn push_item(&mut self, item: ChainItem) {
        if item.is_plain_reasoning && !self.has_plain_reasoning {
            return;
        }
        let mut hash = blake3::Hasher::new();
        hash.update(&self.digest);
        hash.update(&item.hash);
        self.digest = hash.finalize().into();
        self.count = self.count.saturating_add(1);
    }
}

impl ChainItem {
    /// Reads an item. `None` if it refers to an item that only the provider has.
    pub(crate) fn read(item: &[u8]) -> Option<Self> {
        let (value, is_plain_reasoning) = match serde_json::from_slice(item) {
            Ok(Value::Object(members)) => read_members(members)?,
            Ok(other) => (other, false),
            // Lone surrogates and deep nesting fail this parser, so the bytes identify the item.
            Err(_) => {
                let mut hash = blake3::Hasher::new();
                hash.add_text(item);
                return Some(Self {
                    hash: hash.finalize().into(),
                    is_plain_reasoning: false,
                });
            }
        };
        let mut hash = blake3::Hasher::new();
        hash_value(&value, &mut hash);
        Some(Self {
            hash: hash.finalize().into(),
            is_plain_reasoning,
        })
    }
}

/// Returns the part of an item that counts, and `true` for reasoning without encrypted content.
fn read_members(members: Map<String, Value>) -> Option<(Value, bool)> {
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, has_role) = (text("type"), !text("role").is_empty());
    match kind {
        "item_reference" => return None,
        "" if !has_role => return None,
        "reasoning" => {
            let sealed = text("encrypted_content");
            if !sealed.is_empty() {
                // The provider reads this alone, and clients keep or drop the summary.
                return Some((Value::from(format!("reasoning {sealed}")), false));
            }
            return Some((without_labels(members, false), true));
        }
        _ => {}
    }
    let is_message = matches!(kind, "" | "message");
    Some((without_labels(members, is_message), false))
}

/// Removes labels, and writes a message in one of its spellings.
fn without_labels(members: Map<String, Value>, is_message: bool) -> Value {
    let keep = |(key, value): (String, Value)| {
        let value = match (key.as_str(), value) {
            // An item without a type is a message.
            ("type", _) if is_message => Value::Null,
            ("content", Value::String(text)) if is_message => Value::Array(vec![text_part(text)]),
            ("content", Value::Array(parts)) => Value::Array(parts.into_iter().map(plain_part).collect()),
            // Clients parse arguments and write them again.
            ("arguments", Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            (_, value) => value,
        };
        // Some clients write null for a member that others leave out.
        (!LABELS.contains(&key.as_str()) && !value.is_null()).then_some((key, value))
    };
    Value::Object(members.into_iter().filter_map(keep).collect())
}

fn text_part(text: String) -> Value {
    let mut part = Map::new();
    part.insert("type".to_owned(), Value::from("text"));
    part.insert("text".to_owned(), Value::String(text));
    Value::Object(part)
}

/// Removes the labels of a part of a message. The role tells its direction, so its type need not.
fn plain_part(part: Value) -> Value {
    let Value::Object(members) = part else { return part };
    let keep = |(key, value): (String, Value)| {
        let is_text = key == "type" && matches!(value.as_str(), Some("input_text" | "output_text"));
        let value = if is_text { Value::from("text") } else { value };
        (!LABELS.contains(&key.as_str()) && !value.is_null()).then_some((key, value))
    };
    Value::Object(members.into_iter().filter_map(keep).collect())
}

/// The members of a body from which its chain follows.
#[expect(missing_debug_implementations, reason = "a body is content")]
pub struct ContinuedBody<'a> {
    body: &'a [u8],
    /// The id of the response that the body continues from. Empty if it names none.
    previous: Text<'a>,
    input: Option<Span>,
    /// `true` if the provider adds items to the history that no body has shown.
    has_hidden_items: bool,
    /// `true` unless the body sets `store` to `false`.
    is_stored: bool,
}

impl<'a> ContinuedBody<'a> {
    /// Reads the top of a body. `None` if it is no object, or has two histories.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let mut read = Self {
            body,
            previous: Text::default(),
            input: None,
            has_hidden_items: false,
            is_stored: true,
        };
        let json = Json::new(body);
        let mut inputs = 0_usize;
        let mut cursor = Cursor::new(body, 0);
        let walked = cursor.walk_object(|cursor, key| {
            match key {
                key if key == PREVIOUS.as_bytes() => read.previous = cursor.read_text()?,
                b"input" => {
                    inputs = inputs.saturating_add(1);
                    read.input = Some(cursor.skip_value()?);
                }
                b"store" => read.is_stored = cursor.skip_bytes()? != b"false",
                // Templates, conversations and background answers bring items of their own.
                b"conversation" | b"prompt" | b"background" | b"items" => {
                    let value = cursor.skip_value()?;
                    let is_none = json.kind(value) == JsonKind::Null || json.bytes(value) == b"false";
                    read.has_hidden_items |= !is_none;
                }
                _ => drop(cursor.skip_value()?),
            }
            Ok(())
        });
        (walked.is_ok() && inputs <= 1).then_some(read)
    }

    /// Returns the id of the response that the body continues from. `None` if it names none.
    pub fn previous_id(&self) -> Option<&str> {
        std::str::from_utf8(&self.previous).ok().filter(|id| !id.is_empty())
    }

    /// Returns the number of bytes of the items.
    pub fn input_len(&self) -> usize {
        self.input.map_or(0, |input| input.end.saturating_sub(input.start))
    }

    /// Returns `true` if the input is likely to contain an item of the model: a client that keeps the history itself.
    pub fn has_answers(&self) -> bool {
        let input = self.input.map_or(&[][..], |input| Json::new(self.body).bytes(input));
        ANSWER_WORDS.iter().any(|word| word.find(input).is_some())
    }

    /// Returns the chain of this request after `parent`, the chain of the response that it continues from.
    ///
    /// If the body itself begins with the items of `parent`, they count once. `None` if the chain cannot be known.
    pub fn chain(&self, parent: Option<ItemChain>) -> Option<ItemChain> {
        if self.has_hidden_items || parent.is_some() != self.previous_id().is_some() {
            return None;
        }
        let mut joined = ChainJoin::new(parent, self.is_stored);
        self.for_each_item(|item| joined.push_item(item))?;
        joined.finish()
    }

    /// Returns the items of this request, whose chain follows once that of its parent is known.
    ///
    /// `None` if it names no parent, if its chain cannot be known, or if there are more than `items_max` items.
    pub fn unjoined_items(&self, items_max: usize) -> Option<UnjoinedItems> {
        if self.has_hidden_items || self.previous_id().is_none() {
            return None;
        }
        let (mut items, mut count) = (Vec::new(), 0_usize);
        self.for_each_item(|item| {
            count = count.saturating_add(1);
            if count <= items_max {
                items.push(item);
            }
        })?;
        (count <= items_max).then_some(UnjoinedItems {
            items,
            is_stored: self.is_stored,
        })
    }

    /// Returns `true` if the input is a list that begins with every item of `chain`.
    pub fn begins_with(&self, chain: ItemChain) -> bool {
        let is_list = self
            .input
            .is_some_and(|input| Json::new(self.body).kind(input) == JsonKind::Array);
        if self.has_hidden_items || !is_list || chain.count == 0 {
            return false;
        }
        let mut own = ItemChain::empty(chain.has_plain_reasoning);
        let mut begins = false;
        let walked = self.for_each_item(|item| {
            // Items after the chain may be anything but references.
            if own.count < chain.count {
                own.push_item(item);
                begins = own == chain;
            }
        });
        walked.is_some() && begins
    }

    /// Calls `each` with every item. `None` if one of them refers to an item that only the provider has.
    fn for_each_item(&self, mut each: impl FnMut(ChainItem)) -> Option<()> {
        let json = Json::new(self.body);
        let Some(input) = self.input else { return Some(()) };
        match json.kind(input) {
            JsonKind::Array => {
                let mut is_known = true;
                let walked = json.for_each_element(input, |element| {
                    let item = is_known.then(|| ChainItem::read(json.bytes(element))).flatten();
                    is_known = item.is_some();
                    item.into_iter().for_each(&mut each);
                });
                (walked.is_ok() && is_known).then_some(())
            }
            // A text is the message of a user.
            JsonKind::String => {
                let text = String::from_utf8_lossy(&json.decode_string(input)).into_owned();
                let mut message = Map::new();
                message.insert("role".to_owned(), Value::from("user"));
                message.insert("content".to_owned(), Value::Array(vec![text_part(text)]));
                let mut hash = blake3::Hasher::new();
                hash_value(&Value::Object(message), &mut hash);
                each(ChainItem {
                    hash: hash.finalize().into(),
                    is_plain_reasoning: false,
                });
                Some(())
            }
            _ => None,
        }
    }
}

/// A chain after that of a parent, item by item.
struct ChainJoin {
    parent: Option<ItemChain>,
    extended: Option<ItemChain>,
    own: ItemChain,
    /// `true` if the items so far began with those of the parent. Such a client sends the whole history with each request,
    /// and drops nothing if the id is gone.
    repeats_parent: bool,
}

impl ChainJoin {
    fn new(parent: Option<ItemChain>, is_stored: bool) -> Self {
        let own = ItemChain::empty(is_stored);
        Self {
            parent,
            extended: parent,
            own,
            repeats_parent: parent.is_some_and(|parent| parent == own),
        }
    }

    fn push_item(&mut self, item: ChainItem) {
        self.own.push_item(item);
        if let Some(extended) = &mut self.extended {
            extended.push_item(item);
        }
        self.repeats_parent |= self.parent == Some(self.own);
    }

    fn finish(self) -> Option<ItemChain> {
        match self.extended {
            Some(extended) if !self.repeats_parent => {
                // Reasoning would count in one part of the chain, and not in the other.
                (extended.has_plain_reasoning == self.own.has_plain_reasoning).then_some(extended)
            }
            _ => Some(self.own),
        }
    }
}

/// The items of a request whose parent is not known yet.
#[derive(Clone, Debug)]
pub struct UnjoinedItems {
    items: Vec<ChainItem>,
    is_stored: bool,
}

impl UnjoinedItems {
    /// Returns the chain of the request after `parent`. `None` if it cannot be known.
    pub fn join(&self, parent: ItemChain) -> Option<ItemChain> {
        let mut joined = ChainJoin::new(Some(parent), self.is_stored);
        self.items.iter().for_each(|item| joined.push_item(*item));
        joined.finish()
    }
}

/// Removes the id of the response that a body continues from. Every other byte stays, apart from a comma.
pub fn remove_previous_id(body: &bytes::Bytes) -> Result<bytes::Bytes, Unreadable> {
    // The scan does not validate what it skips, and a broken body is never edited.
    validate(body)?;
    let json = Json::new(body);
    let edits = json.remove_member(json.root_span()?, PREVIOUS);
    let list = EditList::new(edits, body.len()).map_err(|_| Unreadable::Overlap)?;
    Ok(list.apply(body).to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(item: &str) -> [u8; 32] {
        ChainItem::read(item.as_bytes()).unwrap().hash
    }

    #[test]
    fn an_item_is_what_clients_send_back() {
        let same: [&[&str]; 4] = [
            &[
                r#"{"role":"user","content":"go"}"#,
                r#"{"content":[{"text":"go","type":"input_text"}],"type":"message","role":"user"}"#,
            ],
            &[
                r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"so"}]}"#,
                r#"{"role":"assistant","content":[{"type":"output_text","text":"so"}]}"#,
                r#"{"role":"assistant","content":"so"}"#,
            ],
            &[
                r#"{"type":"function_call","id":"fc_1","status":"completed","call_id":"c","name":"f","arguments":"{\"a\": 1}"}"#,
                r#"{"name":"f","arguments":"{\"a\":1}","call_id":"c","type":"function_call"}"#,
            ],
            &[
                r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"gAAA"}"#,
                r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAA","content":null}"#,
            ],
        ];
        let mut all = Vec::new();
        for group in same {
            assert!(group.iter().all(|item| hash(item) == hash(group[0])), "{}", group[0]);
            all.push(hash(group[0]));
        }
        for other in [
            r#"{"role":"assistant","content":"go"}"#,
            r#"{"role":"user","content":"go "}"#,
            r#"{"type":"function_call","call_id":"d","name":"f","arguments":"{\"a\":1}"}"#,
            r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAB"}"#,
            r#"{"role":"user","content":[{"type":"input_text","text":"go"},{"type":"input_image","image_url":"u"}]}"#,
        ] {
            assert!(!all.contains(&hash(other)), "{other}");
        }
        assert_eq!(ChainItem::read(br#"{"type":"item_reference","id":"msg_1"}"#), None);
        assert_eq!(ChainItem::read(br#"{"id":"msg_1"}"#), None);
    }

    #[test]
    fn items_are_joined_with_a_parent_that_is_read_later() {
        let of = |body: &str| ContinuedBody::read(body.as_bytes()).unwrap().chain(None).unwrap();
        let first = r#"{"role":"user","content":"go"}"#;
        let parent = of(&format!(r#"{{"input":[{first}]}}"#));
        assert_eq!(ItemChain::from_bytes(&parent.to_bytes()), Some(parent));
        for input in [
            r#"[{"role":"user","content":"on"}]"#.to_owned(),
            // The client repeats the items of its parent.
            format!(r#"[{first},{{"role":"user","content":"on"}}]"#),
            "[]".to_owned(),
        ] {
            let body = format!(r#"{{"previous_response_id":"r","input":{input}}}"#);
            let read = ContinuedBody::read(body.as_bytes()).unwrap();
            let joined = read.unjoined_items(2).unwrap().join(parent);
            assert_eq!(joined, read.chain(Some(parent)), "{input}");
            assert!(joined.is_some(), "{input}");
        }
        let long = r#"{"previous_response_id":"r","input":["a","b","c"]}"#;
        assert!(
            ContinuedBody::read(long.as_bytes())
                .unwrap()
                .unjoined_items(2)
                .is_none()
        );
        let alone = format!(r#"{{"input":[{first}]}}"#);
        assert!(
            ContinuedBody::read(alone.as_bytes())
                .unwrap()
                .unjoined_items(2)
                .is_none()
        );
    }

    #[test]
    fn an_item_of_a_model_is_noticed_and_a_text_about_one_is_not() {
        for (input, wanted) in [
            (r#""go""#, false),
            (
                r#"[{"role":"user","content":"an \"assistant\" with a \"function_call\""}]"#,
                false,
            ),
            (
                r#"[{"role":"user","content":"go"},{"role":"assistant","content":"so"}]"#,
                true,
            ),
            (
                r#"[{"type" : "function_call","call_id":"c","name":"f","arguments":"{}"}]"#,
                true,
            ),
        ] {
            let body = format!(r#"{{"instructions":"as \"assistant\"","input":{input}}}"#);
            assert_eq!(
                ContinuedBody::read(body.as_bytes()).unwrap().has_answers(),
                wanted,
                "{input}"
            );
        }
    }

    #[test]
    fn the_id_alone_goes() {
        for (body, wanted) in [
            (r#"{"previous_response_id":"r", "input":[]}"#, r#"{"input":[]}"#),
            (r#"{"input":[],"previous_response_id" : "r"}"#, r#"{"input":[]}"#),
            (r#"{"a":1, "previous_response_id":"r" , "b":2}"#, r#"{"a":1 , "b":2}"#),
            (
                r#"{"previous_response_id":"r","a":1,"previous_response_id":"s"}"#,
                r#"{"a":1}"#,
            ),
        ] {
            let found = remove_previous_id(&bytes::Bytes::from_static(body.as_bytes())).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), wanted, "{body}");
        }
    }
}
