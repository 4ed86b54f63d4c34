//! A value of a closed list, which is one word in the file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, json};

use super::section::{FileValue, FromOutside};
use crate::{
    config::problem::{ConfigProblem, nearest_word},
    labels::Labelled,
};

/// A value that is written as its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<T> FileValue for Word<T> {}

impl<T: Labelled + PartialEq> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = T::LABELS.iter().find(|(_, value, _)| *value == self.0);
        serializer.serialize_str(named.map_or("", |(word, ..)| word))
    }
}

impl<'de, T: Labelled> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let value = T::from_label(&word).ok_or_else(|| D::Error::custom("unknown word"))?;
        Ok(Self(value))
    }
}

impl<T: Labelled> JsonSchema for Word<T> {
    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let choice = |(word, _, meaning): &(&str, T, &str)| {
            json!({
                "type": "string",
                "const": word,
                "description": meaning.trim(),
            })
        };
        let choices: Vec<Value> = T::LABELS.iter().map(choice).collect();
        json_schema!({ "oneOf": choices })
    }
}

impl<T: Labelled> FromOutside for Word<T> {
    fn from_outside(text: &str) -> Result<Self, ConfigProblem> {
        let words: Vec<&str> = T::LABELS.iter().map(|(word, ..)| *word).collect();
        let word = one_of(text.to_owned(), &words)?;
        T::from_label(&word)
            .map(Self)
            .ok_or_else(|| ConfigProblem::of_value("unknown word"))
    }
}

/// Returns `text` if it is one of `choices`, or if there are no choices.
pub fn one_of(text: String, choices: &[&str]) -> Result<String, ConfigProblem> {
    if choices.is_empty() || choices.contains(&text.as_str()) {
        return Ok(text);
    }
    let flaw = ConfigProblem::of_value(format!("expected one of {}; found {text:?}", choices.join(", ")));
    match nearest_word(&text, choices.iter().copied()) {
        Some(near) => Err(flaw.with_hint(format!("did you mean `{near}`?"))),
        None => Err(flaw),
    }
}
