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
        T::from_label(text).map(Self).ok_or_else(|| {
            let words: Vec<&str> = T::LABELS.iter().map(|(word, ..)| *word).collect();
            unknown_word(text, &words)
        })
    }
}

/// Returns the problem of a text that is none of `choices`.
pub fn unknown_word(text: &str, choices: &[&str]) -> ConfigProblem {
    let flaw = ConfigProblem::of_value(format!("expected one of {}; found {text:?}", choices.join(", ")));
    match nearest_word(text, choices.iter().copied()) {
        Some(near) => flaw.with_hint(format!("did you mean `{near}`?")),
        None => flaw,
    }
}
