//! From the text of the file to [`File`]: every problem at once, each with its line. Never stops at the first.
//!
//! Walks the parsed text along the JSON Schema of [`File`]; what is wrong is reported and left out, so that one mistake
//! hides no other.

use std::{collections::BTreeMap, ops::Range};

use serde_json::Value as Json;
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use super::{
    Lookup,
    file::{self, File},
    flaw::Flaw,
    hidden::{Hidden, is_private},
    interpolation::interpolate,
    problem::{Place, Problem, nearest},
};

/// What the file said, as far as it could be understood.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The values; defaults where nothing, or nothing usable, was said.
    pub(super) file: File,
    /// Where each value stands, by its key with its tables.
    pub(super) places: BTreeMap<String, Place>,
    /// The secrets, by their key.
    pub(super) hidden: Hidden,
    /// What is wrong so far.
    pub(super) problems: Vec<Problem>,
}

/// Reads the file's text. `variable` answers `${NAME}`.
pub(super) fn read(source: &str, variable: &Lookup<'_>) -> Reading {
    let mut walk = Walk {
        source,
        variable,
        places: BTreeMap::new(),
        hidden: Hidden::default(),
        problems: Vec::new(),
    };
    let (root, errors) = DeTable::parse_recoverable(source);
    for error in &errors {
        let place = error.span().map(|span| Place::of(source, &span));
        let problem = syntax(error.message()).at(place);
        // Of text that is not TOML nobody can say where a secret stands.
        walk.problems.push(if Hidden::may_be_in(source) {
            problem.concealed()
        } else {
            problem
        });
    }
    let schema = file::schema();
    // Text that is not TOML was recovered by guessing: what follows from the guess would only confuse.
    let table = if errors.is_empty() {
        walk.table(root.get_ref(), schema.as_value(), "")
    } else {
        Table::new()
    };
    let file = Value::Table(table).try_into().unwrap_or_else(|error: toml::de::Error| {
        walk.problems.push(Problem::new("", error.message()));
        File::default()
    });
    Reading {
        file,
        places: walk.places,
        hidden: walk.hidden,
        problems: walk.problems,
    }
}

/// `key` behind the tables it stands in, as TOML writes it.
pub(super) fn join(tables: &str, key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if tables.is_empty() {
        key
    } else {
        format!("{tables}.{key}")
    }
}

struct Walk<'s> {
    source: &'s str,
    variable: &'s Lookup<'s>,
    places: BTreeMap<String, Place>,
    hidden: Hidden,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, schema: &Json, path: &str) -> Table {
        let mut values = Table::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let full = join(path, name);
            let properties = schema.get("properties").and_then(Json::as_object);
            let free = schema.get("additionalProperties").filter(|free| free.is_object());
            if let Some(schema) = properties.and_then(|known| known.get(name)).or(free) {
                if let Some(value) = self.value(value.get_ref(), &value.span(), schema, &full) {
                    values.insert(name.to_owned(), value);
                }
            } else {
                let known = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                let section = section_of(name, properties).map(|section| format!("it belongs under [{section}]"));
                // What stands behind a mistyped key may be meant to be secret.
                let place = self.place(&key.span()).map(Place::alone);
                let mut problem = unknown(&full, name, known).at(place);
                problem.hint = section.or(problem.hint);
                self.problems.push(problem);
            }
        }
        values
    }

    fn value(&mut self, value: &DeValue<'_>, span: &Range<usize>, schema: &Json, path: &str) -> Option<Value> {
        let place = self.place(span);
        let place = place.map(|place| if is_private(path) { place.concealed() } else { place });
        if let Some(place) = &place {
            self.places.insert(path.to_owned(), place.clone());
        }
        let choices = choices(schema);
        let expected = if choices.is_empty() {
            schema.get("type").and_then(Json::as_str)
        } else {
            Some("string")
        };
        let understood = match (value, expected) {
            (DeValue::Table(table), Some("object")) => return Some(Value::Table(self.table(table, schema, path))),
            (DeValue::String(text), Some("string")) if schema.get("writeOnly").is_some() => {
                self.hidden.take(path, text, self.variable).map(Value::String)
            }
            (DeValue::String(text), Some("string")) => interpolate(text, self.variable)
                .and_then(|text| {
                    one_of(text, &choices).map_err(|flaw| if is_private(path) { flaw.quiet() } else { flaw })
                })
                .map(Value::String),
            (DeValue::Boolean(value), Some("boolean")) => Ok(Value::Boolean(*value)),
            (DeValue::Integer(number), Some("integer")) => {
                let number = i64::from_str_radix(number.as_str(), number.radix())
                    .ok()
                    .filter(|number| *number >= 0);
                number
                    .map(Value::Integer)
                    .ok_or_else(|| Flaw::new("expected a whole number from 0 up"))
            }
            (DeValue::Array(items), Some("array")) => {
                let schema = schema.get("items").unwrap_or(&Json::Null);
                let stand_in = if schema.get("properties").is_some() {
                    Value::Table(Table::new())
                } else {
                    Value::String(String::new())
                };
                let mut values = Vec::new();
                for (i, item) in items.iter().enumerate() {
                    let value = self.value(item.get_ref(), &item.span(), schema, &format!("{path}[{i}]"));
                    // Something stands in for an unusable item, so that the others keep their numbers.
                    values.push(value.unwrap_or_else(|| stand_in.clone()));
                }
                return Some(Value::Array(values));
            }
            (_, expected) => Err(wrong_type(value, schema, expected.unwrap_or_default())),
        };
        match understood {
            Ok(value) => Some(value),
            Err(Flaw { message, hint }) => {
                self.problems.push(Problem {
                    key: path.to_owned(),
                    message,
                    hint,
                    place,
                });
                None
            }
        }
    }

    fn place(&self, span: &Range<usize>) -> Option<Place> {
        (span.end <= self.source.len()).then(|| Place::of(self.source, span))
    }
}

/// What the TOML reader says, and what to do where that is plain.
fn syntax(message: &str) -> Problem {
    match message {
        "duplicate key" => Problem::new("", "the same key or table stands twice").hint("keep one of them"),
        message => Problem::new("", format!("not TOML: {message}")),
    }
}

fn unknown<'k>(full: &str, name: &str, known: impl Iterator<Item = &'k str>) -> Problem {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", known.join(", ")),
    };
    Problem::new(full, "unknown key").hint(hint)
}

/// The table among `properties` that has a key of this name.
fn section_of<'k>(name: &str, properties: Option<&'k serde_json::Map<String, Json>>) -> Option<&'k String> {
    let has = |schema: &Json| schema.get("properties").is_some_and(|inner| inner.get(name).is_some());
    properties?
        .iter()
        .find(|(_, schema)| has(schema))
        .map(|(section, _)| section)
}

/// The words that a schema allows; none if it is not a closed list.
fn choices(schema: &Json) -> Vec<&str> {
    let listed = |key: &str| schema.get(key).and_then(Json::as_array).into_iter().flatten();
    let constants = listed("oneOf").filter_map(|choice| choice.get("const"));
    listed("enum").chain(constants).filter_map(Json::as_str).collect()
}

/// `text` if it is one of `choices`, or if there are none.
pub(super) fn one_of(text: String, choices: &[&str]) -> Result<String, Flaw> {
    if choices.is_empty() || choices.contains(&text.as_str()) {
        return Ok(text);
    }
    let flaw = Flaw::new(format!("expected one of {}; found {text:?}", choices.join(", ")));
    match nearest(&text, choices.iter().copied()) {
        Some(near) => Err(flaw.hint(format!("did you mean `{near}`?"))),
        None => Err(flaw),
    }
}

fn wrong_type(value: &DeValue<'_>, schema: &Json, expected: &str) -> Flaw {
    let tables = schema.pointer("/items/properties").is_some();
    let named = |name: &str| match name {
        "integer" => "a whole number".to_owned(),
        "object" => "a table".to_owned(),
        "array" if tables => "an array of tables".to_owned(),
        "array" => "an array of strings".to_owned(),
        name => format!("a {name}"),
    };
    let found = match value {
        DeValue::Integer(_) => "a whole number".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        value => named(value.type_str()),
    };
    let flaw = Flaw::new(format!("expected {}, found {found}", named(expected)));
    match (expected, value) {
        ("string", DeValue::Integer(_) | DeValue::Float(_)) => {
            flaw.hint("write it in quotes, with its unit if it has one")
        }
        ("boolean" | "integer", DeValue::String(_)) => flaw.hint("write it without quotes"),
        ("array", _) if tables => flaw.hint("write its name in two pairs of brackets: [[…]]"),
        ("array", _) => flaw.hint("write it in brackets: [\"…\"]"),
        _ => flaw,
    }
}
