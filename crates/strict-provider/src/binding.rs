//! Thinking that is bound to its prefix, as in Anthropic's newest models.
//!
//! A signature contains a hash of the content before the block and the marks of earlier thinking. So the check needs
//! only the body. Foreign signatures are not checked.

use serde_json::{Value, json};

use crate::judge::{Refusal, Verdict};

/// Prefix of every signature of this provider.
// Base64 like Anthropic's, because no other signature can be its own.
const MADE_HERE: &str = "bound/";
/// Beta header that allows the `block_binding` setting.
pub const CONTROLS: &str = "thinking-binding-controls-2026-08-01";

/// Returns a thinking block that answers `body` and is bound to all of it.
pub fn thinking(body: &Value, words: &str) -> Value {
    let walk = Walk::over(body);
    let mark = mark_of(words);
    let earlier: Vec<String> = walk.blocks.iter().filter_map(|block| block.mark.clone()).collect();
    let signature = format!(
        "{MADE_HERE}{}/{mark}/{}",
        walk.before(walk.blocks.len()),
        earlier.join("-")
    );
    json!({"type": "thinking", "thinking": words, "signature": signature})
}

/// Refuses a body with thinking that is bound to another prefix. Batches, and requests with the drop setting, drop such
/// blocks instead. `controls` is `true` if the request has the beta header.
pub fn check(body: &Value, controls: bool) -> Verdict {
    let setting = body.pointer("/thinking/block_binding/prefix_mismatch_behavior");
    if setting.and_then(Value::as_str) == Some("drop_block") || body.get("requests").is_some() {
        return Ok(());
    }
    let walk = Walk::over(body);
    let mut earlier: Vec<&str> = Vec::new();
    for (at, block) in walk.blocks.iter().enumerate() {
        let Some(mark) = &block.mark else { continue };
        if let Some(bound) = Bound::read(block.value)
            && (bound.content != walk.before(at) || bound.mark != mark || !bound.allows(&earlier))
        {
            return Err(block.refusal(controls));
        }
        earlier.push(mark);
    }
    Ok(())
}

/// The content of a signature.
struct Bound<'a> {
    content: &'a str,
    mark: &'a str,
    earlier: Vec<&'a str>,
}

impl<'a> Bound<'a> {
    fn read(block: &'a Value) -> Option<Self> {
        let signature = block.get("signature")?.as_str()?.strip_prefix(MADE_HERE)?;
        let mut parts = signature.splitn(3, '/');
        let (content, mark, earlier) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            content,
            mark,
            earlier: earlier.split('-').filter(|mark| !mark.is_empty()).collect(),
        })
    }

    /// Reports whether the earlier thinking is allowed: blocks may be missing at the front, never in the middle, and
    /// none may be new.
    fn allows(&self, earlier: &[&str]) -> bool {
        self.earlier.ends_with(earlier)
    }
}

/// A block of the history.
struct Block<'a> {
    value: &'a Value,
    /// Role and content, which enter the hash. Empty for thinking.
    content: String,
    /// Mark of a thinking block. `None` for any other block.
    mark: Option<String>,
    message: usize,
    index: usize,
}

impl Block<'_> {
    fn refusal(&self, controls: bool) -> Refusal {
        let note = if controls {
            String::new()
        } else {
            format!(" This setting requires the beta header `{CONTROLS}`.")
        };
        let message = format!(
            "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a different \
             conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".{note}",
            self.message, self.index
        );
        Refusal::plain(message)
    }
}

/// The content of a body in order. Whitespace, the split into messages and cache markers do not count as content.
struct Walk<'a> {
    opening: String,
    blocks: Vec<Block<'a>>,
}

impl<'a> Walk<'a> {
    fn over(body: &'a Value) -> Self {
        let mut opening = String::new();
        for key in ["system", "tools"] {
            write_canonical(&text_blocks(body.get(key)), &mut opening);
            opening.push('\n');
        }
        let mut blocks = Vec::new();
        let messages = body.get("messages").and_then(Value::as_array);
        for (message, value) in messages.into_iter().flatten().enumerate() {
            let role = value.get("role").and_then(Value::as_str).unwrap_or_default();
            let content = value.get("content");
            let list: Vec<&Value> = match content {
                Some(Value::Array(list)) => list.iter().collect(),
                Some(words) => vec![words],
                None => Vec::new(),
            };
            for (index, value) in list.into_iter().enumerate() {
                let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
                let mut written = format!("{role} ");
                let own = match kind {
                    "thinking" => value.get("thinking"),
                    "redacted_thinking" => value.get("data"),
                    _ => None,
                };
                if own.is_none() {
                    write_canonical(&text_blocks(Some(value)), &mut written);
                }
                blocks.push(Block {
                    value,
                    content: if own.is_some() { String::new() } else { written },
                    mark: own.map(|own| mark_of(own.as_str().unwrap_or_default())),
                    message,
                    index,
                });
            }
        }
        Self { opening, blocks }
    }

    /// Returns the hash of all content before the block at `at`.
    fn before(&self, at: usize) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.opening.as_bytes());
        for block in self.blocks[..at].iter().filter(|block| block.mark.is_none()) {
            hasher.update(block.content.as_bytes());
            hasher.update(b"\0");
        }
        hasher.finalize().to_hex().as_str()[..16].to_owned()
    }
}

fn mark_of(words: &str) -> String {
    blake3::hash(words.as_bytes()).to_hex().as_str()[..8].to_owned()
}

/// Returns content as blocks. A string is one text block.
fn text_blocks(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(words)) => json!({"type": "text", "text": words}),
        Some(Value::Array(list)) if list.len() == 1 => list[0].clone(),
        Some(other) => other.clone(),
        None => Value::Null,
    }
}

/// Writes a value with sorted keys and without cache markers.
fn write_canonical(value: &Value, into: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().filter(|(key, _)| *key != "cache_control").collect();
            members.sort_by_key(|(key, _)| *key);
            into.push('{');
            for (key, value) in members {
                into.push_str(&Value::from(key.as_str()).to_string());
                into.push(':');
                write_canonical(value, into);
                into.push(',');
            }
            into.push('}');
        }
        Value::Array(items) => {
            into.push('[');
            for item in items {
                write_canonical(item, into);
                into.push(',');
            }
            into.push(']');
        }
        other => into.push_str(&other.to_string()),
    }
}
