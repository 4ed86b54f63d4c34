//! A rule of a server as data: the text of its refusal, and the condition under which it refuses a body.
//!
//! The condition is what the provider's words forbid. It knows nothing of how a proxy meets it.

use serde_json::Value;

use crate::judge::Refusal;

/// A rule of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRule {
    /// The status of the refusal.
    pub status: u16,
    /// The provider's words.
    pub text: String,
    /// The condition under which the server refuses a body.
    pub refused_if: RefusalCondition,
}

impl RefusalRule {
    /// Judges the bytes of a body. Fails in the provider's words if the condition holds.
    pub fn judge(&self, body: &[u8]) -> Result<(), Refusal> {
        if self.refused_if.holds(body) {
            return Err(Refusal {
                status: self.status,
                ..Refusal::plain(self.text.clone())
            });
        }
        Ok(())
    }
}

/// A condition on a request body, as a text.
///
/// | text | holds |
/// |---|---|
/// | `present PATH` | the path leads to a value |
/// | `none PATH` | it leads to none |
/// | `missing PATH` | a value before the last step lacks that member |
/// | `unparsed PATH` | a text at the path is no JSON object |
/// | `repeated PATH` | two values at the path are equal |
/// | `neighbours PATH FIRST SECOND` | a message with the second role directly follows one with the first |
/// | `equals PATH TEXT` | a value at the path is this text, which may have blanks |
/// | `empty PATH` | a value at the path is an empty text, list or object |
/// | `type PATH KIND` | a value at the path is a `null`, `text`, `list` or `object` |
/// | `untrimmed PATH` | a text at the path ends with a blank |
/// | `blank PATH` | a text at the path has nothing but blanks |
/// | `lacks PATH TYPE` | a list at the path has no element of this type |
/// | `more_than PATH NUMBER` | the path leads to more values than that |
/// | `lone_surrogate` | a text of the body has half of a character: `\ud83d` alone |
///
/// A path is a list of members with dots between them: `messages[role=assistant].content[type=thinking]`. `[*]` stands
/// for every element of a list, `[-1]` for the last one, `[1-]` for every one but the first, `[NAME=TEXT]` for those with
/// such a member, `[NAME]` for those that have it, and `[!NAME]` for those that have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCondition {
    verb: Verb,
    path: Vec<PathStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verb {
    Present,
    None,
    Missing,
    Unparsed,
    Repeated,
    Neighbours(String, String),
    Equals(String),
    Empty,
    Type(ValueKind),
    Untrimmed,
    Blank,
    Lacks(String),
    MoreThan(usize),
    LoneSurrogate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Null,
    Text,
    List,
    Object,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathStep {
    member: String,
    filter: Option<Filter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    Every,
    Last,
    AfterFirst,
    Has(String),
    HasNone(String),
    Equals(String, String),
}

impl RefusalCondition {
    /// Parses a condition. Fails with the part that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().map(str::to_owned);
        let verb = next().unwrap_or_default();
        // A condition on the bytes of the body, which no parser reads.
        if verb == "lone_surrogate" {
            return match next() {
                None => Ok(Self {
                    verb: Verb::LoneSurrogate,
                    path: Vec::new(),
                }),
                Some(rest) => Err(format!("what follows the verb is not understood: {rest}")),
            };
        }
        let path = next().ok_or("a condition needs a path")?;
        let verb = match verb.as_str() {
            "present" => Verb::Present,
            "none" => Verb::None,
            "missing" => Verb::Missing,
            "unparsed" => Verb::Unparsed,
            "repeated" => Verb::Repeated,
            "neighbours" => {
                let (first, second) = (next(), next());
                Verb::Neighbours(
                    first.ok_or("two roles are needed")?,
                    second.ok_or("two roles are needed")?,
                )
            }
            "equals" => {
                let text: Vec<String> = std::iter::from_fn(next).collect();
                Verb::Equals(text.join(" "))
            }
            "empty" => Verb::Empty,
            "type" => {
                let kind = next().ok_or("a kind is needed")?;
                Verb::Type(ValueKind::parse(&kind).ok_or_else(|| format!("unknown kind: {kind}"))?)
            }
            "untrimmed" => Verb::Untrimmed,
            "blank" => Verb::Blank,
            "lacks" => Verb::Lacks(next().ok_or("a type is needed")?),
            "more_than" => {
                let number = next().and_then(|number| number.parse().ok());
                Verb::MoreThan(number.ok_or("a number is needed")?)
            }
            other => return Err(format!("unknown condition: {other}")),
        };
        if let Some(rest) = words.next() {
            return Err(format!("what follows the path is not understood: {rest}"));
        }
        let path = path.split('.').map(PathStep::parse).collect::<Result<_, _>>()?;
        Ok(Self { verb, path })
    }

    /// Returns `true` if the body is to be refused. A condition on values holds for none that is no JSON.
    pub fn holds(&self, body: &[u8]) -> bool {
        match &self.verb {
            Verb::LoneSurrogate => has_lone_surrogate(body),
            _ => serde_json::from_slice(body).is_ok_and(|body| self.holds_for(&body)),
        }
    }

    fn holds_for(&self, body: &Value) -> bool {
        match &self.verb {
            // Told by the bytes.
            Verb::LoneSurrogate => false,
            Verb::Present => !self.values(body).is_empty(),
            Verb::None => self.values(body).is_empty(),
            Verb::Missing => {
                let Some((last, before)) = self.path.split_last() else {
                    return false;
                };
                let lacks = |value: &&Value| value.get(&last.member).is_none();
                values_at(before, body).iter().any(lacks)
            }
            Verb::Unparsed => self.values(body).iter().any(|value| {
                let text = value.as_str().unwrap_or_default();
                !serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed.is_object())
            }),
            Verb::Repeated => {
                let values = self.values(body);
                let later = |at: usize| values.iter().skip(at.saturating_add(1));
                values
                    .iter()
                    .enumerate()
                    .any(|(at, value)| later(at).any(|other| other == value))
            }
            Verb::Neighbours(first, second) => {
                let values = self.values(body);
                let role = |value: &Value, role: &str| value.get("role").and_then(Value::as_str) == Some(role);
                let mut pairs = values.iter().zip(values.iter().skip(1));
                pairs.any(|(one, other)| role(one, first) && role(other, second))
            }
            Verb::Equals(text) => self.values(body).iter().any(|value| match value {
                Value::String(value) => value == text,
                Value::Number(value) => value.to_string() == *text,
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
            }),
            Verb::Empty => self.values(body).iter().any(|value| match value {
                Value::String(text) => text.is_empty(),
                Value::Array(elements) => elements.is_empty(),
                Value::Object(members) => members.is_empty(),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            }),
            Verb::Type(kind) => self.values(body).iter().any(|value| kind.is_of(value)),
            Verb::Untrimmed => self.values(body).iter().any(|value| {
                let text = value.as_str().unwrap_or_default();
                text.trim_end().len() < text.len()
            }),
            Verb::Blank => self.values(body).iter().any(|value| {
                let text = value.as_str().unwrap_or("not blank");
                text.trim().is_empty()
            }),
            Verb::Lacks(kind) => self.values(body).iter().any(|value| {
                let is_of_kind = |element: &Value| element.get("type").and_then(Value::as_str) == Some(kind);
                value.as_array().is_some_and(|list| !list.iter().any(is_of_kind))
            }),
            Verb::MoreThan(limit) => self.values(body).len() > *limit,
        }
    }

    fn values<'b>(&self, body: &'b Value) -> Vec<&'b Value> {
        values_at(&self.path, body)
    }
}

impl ValueKind {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "text" => Self::Text,
            "list" => Self::List,
            "object" => Self::Object,
            _ => return None,
        })
    }

    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Text => value.is_string(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

impl PathStep {
    fn parse(text: &str) -> Result<Self, String> {
        let Some((member, rest)) = text.split_once('[') else {
            return Ok(Self {
                member: text.to_owned(),
                filter: None,
            });
        };
        let inner = rest
            .strip_suffix(']')
            .ok_or_else(|| format!("{text} lacks a closing bracket"))?;
        let filter = match inner.split_once('=') {
            Some((name, value)) => Filter::Equals(name.to_owned(), value.to_owned()),
            None if inner == "*" => Filter::Every,
            None if inner == "-1" => Filter::Last,
            None if inner == "1-" => Filter::AfterFirst,
            None => match inner.strip_prefix('!') {
                Some(name) => Filter::HasNone(name.to_owned()),
                None => Filter::Has(inner.to_owned()),
            },
        };
        Ok(Self {
            member: member.to_owned(),
            filter: Some(filter),
        })
    }
}

/// Returns `true` if the escapes of a JSON text contain half of a character.
fn has_lone_surrogate(text: &[u8]) -> bool {
    // The code unit of the escape at the beginning of a text.
    let unit = |text: &[u8]| {
        let digits = text.strip_prefix(b"\\u")?.get(..4)?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = rest.get(at..).unwrap_or_default();
        let length = match unit(rest) {
            Some(0xD800..=0xDBFF) => match rest.get(6..).and_then(unit) {
                Some(0xDC00..=0xDFFF) => 12,
                _ => return true,
            },
            Some(0xDC00..=0xDFFF) => return true,
            Some(_) => 6,
            None => 2,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

/// Returns the values that the steps lead to.
fn values_at<'b>(path: &[PathStep], body: &'b Value) -> Vec<&'b Value> {
    let mut values = vec![body];
    for step in path {
        let members = values.iter().filter_map(|value| value.get(&step.member));
        values = match &step.filter {
            None => members.collect(),
            Some(filter) => members
                .filter_map(Value::as_array)
                .flat_map(|elements| filter.choose(elements))
                .collect(),
        };
    }
    values
}

impl Filter {
    /// Returns the elements of a list that this filter lets pass.
    fn choose<'b>(&self, elements: &'b [Value]) -> Vec<&'b Value> {
        let lets = |value: &&Value| match self {
            Self::Every | Self::Last | Self::AfterFirst => true,
            Self::Has(name) => value.get(name).is_some(),
            Self::HasNone(name) => value.get(name).is_none(),
            Self::Equals(name, text) => value.get(name).and_then(Value::as_str) == Some(text),
        };
        match self {
            Self::Last => elements.last().into_iter().collect(),
            Self::AfterFirst => elements.iter().skip(1).collect(),
            Self::Every | Self::Has(_) | Self::HasNone(_) | Self::Equals(..) => elements.iter().filter(lets).collect(),
        }
    }
}
