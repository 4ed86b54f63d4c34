//! Reader of the configuration file: from its text to the types of `file`, with every problem and its line.
//!
//! The reader walks the parsed text along their JSON Schema. It reports an unusable value and leaves it out,
//! so that one mistake hides no other.

use std::{collections::BTreeMap, ops::Range};

use schemars::Schema;
use serde_json::Value as Json;
use toml::{
    Table, Value,
    de::{DeArray, DeTable, DeValue},
};

use super::{
    VariableLookup,
    file::{self, ConfigFile, RuleSection, RulesFile, join_key, unknown_word},
    interpolation::interpolate_variables,
    lowering::Lowering,
    problem::{ConfigProblem, FilePlace, nearest_word},
    secrets::{AS_WRITTEN, FileSecrets, is_private},
};

/// Most syntax errors that are reported.
const SYNTAX_ERRORS_MAX: usize = 50;

/// Reads the file's text. `variable` returns the value of `${NAME}`.
pub(super) fn read(source: &str, variable: &VariableLookup<'_>) -> Lowering {
    let rows = ConfigFile::rows().into_iter();
    let walk = SchemaWalk {
        source,
        variable: Some(variable),
        old: rows.filter_map(|row| Some((row.key, row.old?))).collect(),
        reading: Lowering::default(),
    };
    let (table, mut reading) = walk.read_file(&file::reader_schema());
    // The walk lets only valid values through, so a failure here means a schema that differs from the types.
    match Value::Table(table).try_into::<ConfigFile>() {
        Ok(file) => reading.file = file,
        Err(error) => reading.problems.push(ConfigProblem::new("", error.message())),
    }
    reading
}

/// A file of rows that was read.
#[derive(Debug, Default)]
pub(super) struct RulesReading {
    /// The rows, as far as their values are usable.
    pub(super) rows: Vec<RuleSection>,
    /// Places of the file's values, by key.
    pub(super) places: BTreeMap<String, FilePlace>,
    pub(super) problems: Vec<ConfigProblem>,
}

/// Reads the text of a file of rows. `${` has no meaning there: bodies may contain it.
pub(super) fn read_rules(source: &str) -> RulesReading {
    let walk = SchemaWalk {
        source,
        variable: None,
        old: BTreeMap::new(),
        reading: Lowering::default(),
    };
    let (table, mut reading) = walk.read_file(&file::rules_schema());
    let rows = match Value::Table(table).try_into::<RulesFile>() {
        Ok(file) => file.row,
        Err(error) => {
            reading.problems.push(ConfigProblem::new("", error.message()));
            Vec::new()
        }
    };
    RulesReading {
        rows,
        places: reading.places,
        problems: reading.problems,
    }
}

impl SchemaWalk<'_> {
    /// Reads the whole file. Returns its usable values, and what was found out about them.
    fn read_file(mut self, schema: &Schema) -> (Table, Lowering) {
        let source = self.source;
        // The recovering parser reports every syntax error, not only the first.
        let (root, errors) = DeTable::parse_recoverable(source);
        for error in errors.iter().take(SYNTAX_ERRORS_MAX) {
            let place = error.span().map(|span| FilePlace::from_span(source, &span));
            let problem = syntax_problem(error.message()).with_place(place);
            // In text that is not TOML the lines of secrets are unknown, so no line is shown if there may be one.
            self.reading.problems.push(if FileSecrets::may_contain_secret(source) {
                problem.without_line_text()
            } else {
                problem
            });
        }
        // The parser recovers from a syntax error by guessing. Problems that follow from a guess would only confuse.
        let table = if errors.is_empty() {
            self.read_table(root.get_ref(), schema.as_value(), "")
        } else {
            Table::new()
        };
        (table, self.reading)
    }
}

/// Walk over the parsed text along the schema.
struct SchemaWalk<'s> {
    source: &'s str,
    /// The lookup of variables in texts. `None` if texts have none.
    variable: Option<&'s VariableLookup<'s>>,
    /// Advice of each old key.
    old: BTreeMap<String, &'static str>,
    reading: Lowering,
}

impl SchemaWalk<'_> {
    /// Reads a table. Leaves out unknown keys and unusable values.
    fn read_table(&mut self, table: &DeTable<'_>, schema: &Json, path: &str) -> Table {
        let mut values = Table::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let full = join_key(path, name);
            let properties = schema.get("properties").and_then(Json::as_object);
            // A table with free names, such as `[upstreams.NAME]`, has one schema for all entries.
            let free = schema.get("additionalProperties").filter(|free| free.is_object());
            if let Some(schema) = properties.and_then(|known| known.get(name)).or(free) {
                let advice = self.old.get(&full).copied();
                self.reading
                    .old_keys
                    .extend(advice.map(|advice| (full.clone(), advice)));
                if let Some(value) = self.read_value(value.get_ref(), &value.span(), schema, &full) {
                    values.insert(name.to_owned(), value);
                }
            } else {
                let known = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                let known = known.filter(|known| !self.old.contains_key(&join_key(path, known)));
                let section = section_of(name, properties).map(|section| format!("it belongs under [{section}]"));
                // The value of a mistyped key may be a secret, so only the key itself is shown.
                let place = self.place_of(&key.span()).map(FilePlace::cut_to_range);
                let mut problem = unknown_key(&full, name, known).with_place(place);
                // A key that exists in another section was most likely put into the wrong one.
                problem.hint = section.map(Into::into).or(problem.hint);
                self.reading.problems.push(problem);
            }
        }
        values
    }

    /// Reads a value, or reports its problem and returns `None`.
    fn read_value(&mut self, value: &DeValue<'_>, span: &Range<usize>, schema: &Json, path: &str) -> Option<Value> {
        let place = self.place_of(span);
        let place = place.map(|place| if is_private(path) { place.without_text() } else { place });
        // Recorded also for unusable values, so that later checks can tell "unusable" from "missing".
        if let Some(place) = &place {
            self.reading.places.insert(path.to_owned(), place.clone());
        }
        let schema = fitting_schema(schema, value);
        let choices = allowed_words(schema);
        let expected = if choices.is_empty() {
            schema.get("type").and_then(Json::as_str)
        } else {
            Some("string")
        };
        let understood = match (value, expected) {
            (DeValue::Table(table), Some("object")) => return Some(Value::Table(self.read_table(table, schema, path))),
            (DeValue::String(text), Some("string")) if schema.get("writeOnly").is_some() => {
                // Only the reference or a mask becomes a value of the file; the secret is stored apart.
                let secrets = &mut self.reading.secrets;
                secrets
                    .store_secret(path, text, &|name| self.variable.and_then(|variable| variable(name)))
                    .map(Value::String)
            }
            (DeValue::String(text), Some("string")) if schema.get(AS_WRITTEN).is_some() => {
                let secrets = &mut self.reading.secrets;
                secrets
                    .store_word(path, text, &|name| self.variable.and_then(|variable| variable(name)))
                    .map(Value::String)
            }
            (DeValue::String(text), Some("string")) => self
                .variable
                .map_or_else(
                    || Ok(text.to_string()),
                    |variable| interpolate_variables(text, variable),
                )
                .and_then(|text| {
                    if choices.is_empty() || choices.contains(&text.as_str()) {
                        return Ok(text);
                    }
                    let flaw = unknown_word(&text, &choices);
                    Err(if is_private(path) { flaw.without_value() } else { flaw })
                })
                .map(Value::String),
            (DeValue::Boolean(value), Some("boolean")) => Ok(Value::Boolean(*value)),
            (DeValue::Integer(number), Some("integer")) => {
                // TOML integers may be hexadecimal, octal or binary. No key takes a negative number.
                let number = i64::from_str_radix(number.as_str(), number.radix())
                    .ok()
                    .filter(|number| *number >= 0);
                number
                    .map(Value::Integer)
                    .ok_or_else(|| ConfigProblem::of_value("expected a whole number from 0 up"))
            }
            (DeValue::Array(items), Some("array")) if exceeds(items.len(), schema) => {
                Err(too_many_items(items.len(), schema))
            }
            (DeValue::Array(items), Some("array")) => return Some(self.read_list(items, schema, path)),
            (_, expected) => Err(wrong_type(value, schema, expected.unwrap_or_default())),
        };
        match understood {
            Ok(value) => Some(value),
            Err(flaw) => {
                let key = path.to_owned();
                self.reading.problems.push(ConfigProblem { key, place, ..flaw });
                None
            }
        }
    }

    /// Reads a list. A stand-in replaces an unusable item, so that the other items keep their numbers.
    fn read_list(&mut self, items: &DeArray<'_>, schema: &Json, path: &str) -> Value {
        let schema = schema.get("items").unwrap_or(&Json::Null);
        let stand_in = match schema.get("type").and_then(Json::as_str) {
            Some("object") => Value::Table(Table::new()),
            Some("integer") => Value::Integer(0),
            _ => Value::String(String::new()),
        };
        let mut values = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let value = self.read_value(item.get_ref(), &item.span(), schema, &format!("{path}[{i}]"));
            values.push(value.unwrap_or_else(|| stand_in.clone()));
        }
        Value::Array(values)
    }

    /// Returns the place of a byte range, or `None` if the range is outside the text.
    fn place_of(&self, span: &Range<usize>) -> Option<FilePlace> {
        (span.end <= self.source.len()).then(|| FilePlace::from_span(self.source, span))
    }
}

/// Returns `true` if a list has more items than its schema allows.
fn exceeds(count: usize, schema: &Json) -> bool {
    items_max(schema).is_some_and(|most| u64::try_from(count).is_ok_and(|count| count > most))
}

fn items_max(schema: &Json) -> Option<u64> {
    schema.get("maxItems").and_then(Json::as_u64)
}

fn too_many_items(count: usize, schema: &Json) -> ConfigProblem {
    let most = items_max(schema).unwrap_or_default();
    ConfigProblem::of_value(format!("there are {count} of them, and at most {most} are allowed"))
}

/// Converts a message of the TOML parser to a problem, with a hint if the fix is clear.
fn syntax_problem(message: &str) -> ConfigProblem {
    match message {
        "duplicate key" => ConfigProblem::new("", "the same key or table appears twice").with_hint("keep one of them"),
        message if message.contains("escape") || message.contains("unicode value") => {
            ConfigProblem::new("", format!("not TOML: {message}"))
                .with_hint(r"write a text with backslashes in single quotes: 'C:\rules.toml'")
        }
        message => ConfigProblem::new("", format!("not TOML: {message}")),
    }
}

/// Returns the problem of an unknown key. The hint is the nearest known key, or all of them.
fn unknown_key<'k>(full: &str, name: &str, known: impl Iterator<Item = &'k str>) -> ConfigProblem {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let hint = match nearest_word(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", known.join(", ")),
    };
    ConfigProblem::new(full, "unknown key").with_hint(hint)
}

/// Returns the table among `properties` that has a key of this name.
fn section_of<'k>(name: &str, properties: Option<&'k serde_json::Map<String, Json>>) -> Option<&'k String> {
    let has = |schema: &Json| schema.get("properties").is_some_and(|inner| inner.get(name).is_some());
    properties?
        .iter()
        .find(|(_, schema)| has(schema))
        .map(|(section, _)| section)
}

/// Returns the schema for a value among those that a schema permits: a table or a text. Any other value gets the first.
fn fitting_schema<'j>(schema: &'j Json, value: &DeValue<'_>) -> &'j Json {
    let Some(permitted) = schema.get("anyOf").and_then(Json::as_array) else {
        return schema;
    };
    let wanted = if matches!(value, DeValue::Table(_)) {
        "object"
    } else {
        "string"
    };
    let is_it = |schema: &&Json| schema.get("type").is_some_and(|name| name == wanted);
    permitted
        .iter()
        .find(is_it)
        .or_else(|| permitted.first())
        .unwrap_or(schema)
}

/// Returns the words that a schema allows. Empty if it is not a closed list.
fn allowed_words(schema: &Json) -> Vec<&str> {
    // The schema generator writes `oneOf` if the variants have descriptions, and `enum` if not.
    let listed = |key: &str| schema.get(key).and_then(Json::as_array).into_iter().flatten();
    let constants = listed("oneOf").filter_map(|choice| choice.get("const"));
    listed("enum").chain(constants).filter_map(Json::as_str).collect()
}

/// Describes a value of the wrong type. Names types as operators know them.
fn wrong_type(value: &DeValue<'_>, schema: &Json, expected: &str) -> ConfigProblem {
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
    let flaw = ConfigProblem::of_value(format!("expected {}, found {found}", named(expected)));
    match (expected, value) {
        ("string", DeValue::Integer(_) | DeValue::Float(_)) => {
            flaw.with_hint("write it in quotes, with its unit if it has one")
        }
        ("boolean" | "integer", DeValue::String(_)) => flaw.with_hint("write it without quotes"),
        ("array", _) if tables => flaw.with_hint("write its name in two pairs of brackets: [[…]]"),
        ("array", _) => flaw.with_hint("write it in brackets: [\"…\"]"),
        _ => flaw,
    }
}
