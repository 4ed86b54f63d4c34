//! Pointers into the input of a tool (RFC 6901). Pure.

use std::str::FromStr;

use serde_json::Value;

/// A pointer to a value within JSON, such as `/options/request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(Vec<String>);

/// The error for a text that is not a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a JSON pointer: \"/name\", or \"/outer/inner\", with ~1 for a slash and ~0 for a tilde in a name")]
pub struct JsonPointerParseError;

impl FromStr for JsonPointer {
    type Err = JsonPointerParseError;

    fn from_str(text: &str) -> Result<Self, JsonPointerParseError> {
        // The empty pointer would mean the whole input: every call of the tool would be the same.
        let names = text.strip_prefix('/').ok_or(JsonPointerParseError)?;
        let names = names.split('/').map(unescape);
        names.collect::<Option<_>>().map(Self).ok_or(JsonPointerParseError)
    }
}

impl JsonPointer {
    /// Removes the value from `from`, if it is there. An element of an array becomes null, so that the others keep their
    /// places.
    pub(super) fn remove(&self, from: &mut Value) {
        let Some((last, path)) = self.0.split_last() else {
            return;
        };
        let mut place = from;
        for name in path {
            let next = match place {
                Value::Object(members) => members.get_mut(name),
                Value::Array(list) => list_place(name).and_then(|place| list.get_mut(place)),
                _ => None,
            };
            let Some(next) = next else { return };
            place = next;
        }
        match place {
            Value::Object(members) => drop(members.remove(last)),
            Value::Array(list) => {
                if let Some(element) = list_place(last).and_then(|place| list.get_mut(place)) {
                    *element = Value::Null;
                }
            }
            _ => {}
        }
    }
}

/// Returns the place that a name means in an array: digits without a leading zero.
fn list_place(name: &str) -> Option<usize> {
    let is_place = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    name.parse().ok().filter(|_| is_place)
}

/// Decodes `~0` and `~1`. Returns `None` for another tilde.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('~');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (letter, rest) = match part.split_at_checked(1) {
            Some(("0", rest)) => ('~', rest),
            Some(("1", rest)) => ('/', rest),
            _ => return None,
        };
        plain.push(letter);
        plain.push_str(rest);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pointer_removes_what_it_points_to_and_nothing_else() {
        let input = json!({"a": {"b": [1, {"c": 2}], "c~d/e": 3}, "": 4});
        for (pointer, rest) in [
            ("/a", json!({"": 4})),
            ("/", json!({"a": {"b": [1, {"c": 2}], "c~d/e": 3}})),
            ("/a/b/0", json!({"a": {"b": [null, {"c": 2}], "c~d/e": 3}, "": 4})),
            ("/a/b/1/c", json!({"a": {"b": [1, {}], "c~d/e": 3}, "": 4})),
            ("/a/c~0d~1e", json!({"a": {"b": [1, {"c": 2}]}, "": 4})),
            ("/a/b/00", input.clone()),
            ("/a/b/2", input.clone()),
            ("/a/b/-", input.clone()),
            ("/a/x/y", input.clone()),
            ("//x", input.clone()),
        ] {
            let mut value = input.clone();
            pointer.parse::<JsonPointer>().unwrap().remove(&mut value);
            assert_eq!(value, rest, "{pointer}");
        }
    }

    #[test]
    fn a_text_that_is_no_pointer_is_refused() {
        for text in ["", "a", "#/a", "/a~", "/a~2", "/~x/b"] {
            assert_eq!(text.parse::<JsonPointer>(), Err(JsonPointerParseError), "{text}");
        }
    }
}
