//! How a call is named across requests: by what clients keep of it, not by bytes that they move about.

use memchr::memmem;
use serde_json::Value;

use super::call_identity::{CallIdentity, Spelling};
use crate::{digest::Digest as _, wire::json::Json};

/// Letters and digits in a row that chance may have put together.
const CHANCE_MIN: usize = 9;
/// Bytes of a tool's name; with a longer one no id is strong.
const TOOL_BYTES_MAX: usize = 512;

/// The name of a call within its principal: the letters and digits of its id, its tool, its canonical input, and how many
/// of its id stand before it; without an id also its place; where the id may come again, what stands in front of it; and
/// the very id where another id of its body had the same letters and digits before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey([u8; 32]);

impl CallKey {
    /// The name of a call as it stands in a body.
    pub fn of(call: &CallIdentity<'_>) -> Self {
        let mut hash = blake3::Hasher::new();
        let occurrence = (call.occurrence as u64).to_le_bytes();
        let input = input_hash(call.input);
        for part in [&letters(call.id)[..], &call.tool, &input, &occurrence] {
            hash.add(part);
        }
        if let Some(place) = &call.place {
            hash.add(place);
        }
        if let Some(before) = &call.before {
            hash.add(before);
        }
        // The first of them keeps its name whatever comes behind it.
        if call.spelling == Spelling::Again {
            hash.add(call.id);
        }
        Self(hash.finalize().into())
    }

    /// Its name within a conversation, where that is told otherwise than by the call.
    #[must_use]
    pub fn within(&self, conversation: &[u8; 32]) -> Self {
        Self(blake3::keyed_hash(conversation, &self.0).into())
    }

    /// The hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The letters and digits of an id: some clients strip what stands between them (openclaw 2026.9.6).
pub fn letters(id: &[u8]) -> Vec<u8> {
    id.iter().copied().filter(u8::is_ascii_alphanumeric).collect()
}

/// Whether an id names one call among all of a principal: whether part of it looks like chance.
///
/// `call_0`, `functions.read:3` and `read_1763800000000_2` come again; the ids of the providers, of vLLM and of Mistral
/// do not. Chance mixes letters and digits; what counts, or names the tool, does not.
pub fn is_strong(id: &[u8], tool: &[u8]) -> bool {
    // No provider takes a name of such a length, and each piece of the id is searched in it.
    if tool.len() > TOOL_BYTES_MAX {
        return false;
    }
    let own = |piece: &&[u8]| memmem::find(tool, piece).is_none();
    let looks_like_chance = |piece: &&[u8]| {
        let changes = piece.windows(2).filter(|pair| match pair {
            [one, other] => one.is_ascii_digit() != other.is_ascii_digit(),
            _ => false,
        });
        piece.len() >= CHANCE_MIN && changes.count() >= 2
    };
    id.split(|byte| !byte.is_ascii_alphanumeric())
        .filter(looks_like_chance)
        .any(|piece| own(&piece))
}

/// The hash of an input: of what it says where it is JSON, or JSON in a string; else of its text.
pub fn input_hash(raw: &[u8]) -> [u8; 32] {
    let json = Json::new(raw);
    let text = json.root().map(|root| json.decode(root)).unwrap_or_default();
    let text = if raw.first() == Some(&b'"') { &text[..] } else { raw };
    let mut hash = blake3::Hasher::new();
    match serde_json::from_slice::<Value>(text) {
        Ok(value) => canonical(&value, &mut hash),
        Err(_) => hash.add(text),
    }
    hash.finalize().into()
}

/// Members in the order of their keys, numbers by their value, no blanks. The parser bounds the depth.
pub(super) fn canonical(value: &Value, hash: &mut blake3::Hasher) {
    match value {
        Value::Null => hash.add(b"null"),
        Value::Bool(said) => hash.add(if *said { b"true" } else { b"false" }),
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|value| value.fract() == 0.0 && value.abs() < 1e15);
            match whole {
                // 1.0 is 1, and -0 is 0.
                Some(value) => hash.add(format!("{}", value + 0.0).as_bytes()),
                None => hash.add(number.to_string().as_bytes()),
            }
        }
        Value::String(text) => {
            hash.update(b"\"");
            hash.add(text.as_bytes());
        }
        Value::Array(list) => {
            hash.update(b"[");
            hash.add(&(list.len() as u64).to_le_bytes());
            for value in list {
                canonical(value, hash);
            }
        }
        Value::Object(members) => {
            hash.update(b"{");
            hash.add(&(members.len() as u64).to_le_bytes());
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in members {
                hash.add(key.as_bytes());
                canonical(value, hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_of_chance_are_strong() {
        for id in [
            "toolu_01A09q90qw90lq917835lq9",
            "toolu01A09q90qw90lq917835lq9",
            "call_FthC9qRpsL5kBpwwyw6c7j4k",
            "chatcmpl-tool-5f2a9d0c7e1b4a6f8c3d2e1f0a9b8c7d",
            "D681PevK3",
            "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q1",
        ] {
            assert!(is_strong(id.as_bytes(), b"bash"), "{id}");
        }
        for (id, tool) in [
            ("call_0", "bash"),
            ("call0", "bash"),
            ("functions.read2all:3", "read2all"),
            ("functionsgetweather0", "get_weather"),
            ("run_shell_command_1763800000000_2", "run_shell_command"),
            ("toolcall17", "bash"),
            ("", "bash"),
            ("1763800000000", ""),
        ] {
            assert!(!is_strong(id.as_bytes(), tool.as_bytes()), "{id}");
        }
        let strong = b"toolu_01A09q90qw90lq917835lq9";
        assert!(is_strong(strong, &[b'x'; TOOL_BYTES_MAX]));
        assert!(!is_strong(strong, &[b'x'; TOOL_BYTES_MAX + 1]));
    }

    #[test]
    fn an_input_is_what_it_says() {
        let same = [
            r#"{"a":1,"b":["x",1.0,-0.0]}"#,
            r#"{ "b" : [ "x" , 1 , 0 ] , "a" : 1.0 }"#,
            r#""{\"b\":[\"\\u0078\",1,0],\"a\":1}""#,
        ];
        for one in same {
            assert_eq!(input_hash(one.as_bytes()), input_hash(same[0].as_bytes()), "{one}");
        }
        let others = [
            r#"{"a":1,"b":["x",1.0,1]}"#,
            r#"{"a":"1","b":["x",1,0]}"#,
            r#"{"a":1,"b":["x","1",0]}"#,
            r#"{"a":1,"b":["x",1],"":0}"#,
            r"{}",
            "",
            r#""{""#,
            r#"{"a":9007199254740993}"#,
            r#"{"a":9007199254740992}"#,
        ];
        let mut hashes: Vec<_> = others.iter().map(|other| input_hash(other.as_bytes())).collect();
        hashes.push(input_hash(same[0].as_bytes()));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 1);
    }
}
