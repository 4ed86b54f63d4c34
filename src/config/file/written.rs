//! A text of the file whose meaning is read with it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::section::{FileValue, FromOutside};
use crate::config::problem::ConfigProblem;

/// The meaning of a text.
pub trait Meaning {
    /// The value that the text stands for.
    type Value: Clone + std::fmt::Debug;

    /// Reads the text. The problem has no key yet.
    fn parse_text(text: &str) -> Result<Self::Value, ConfigProblem>;
}

/// A text of the file, and its value. `config print` shows the text as it was written.
#[derive(Clone, Debug)]
pub struct Written<M: Meaning> {
    text: String,
    // Boxed, since a configuration has many values, and hardly ever a problem.
    value: Result<M::Value, Box<ConfigProblem>>,
}

impl<M: Meaning> Written<M> {
    /// Reads a text.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let value = M::parse_text(&text).map_err(Box::new);
        Self { text, value }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the value. `None` if the text has a problem, which the check of all values reports.
    pub fn value(&self) -> Option<M::Value> {
        self.value.clone().ok()
    }

    /// Returns the value, or a stand-in if the text has a problem: such a configuration is never used.
    pub fn value_or_default(&self) -> M::Value
    where
        M::Value: Default,
    {
        self.value().unwrap_or_default()
    }

    /// Shows another text in its place.
    pub fn show_as(&mut self, shown: String) {
        self.text = shown;
    }
}

impl<M: Meaning> From<&str> for Written<M> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<M: Meaning> Default for Written<M> {
    fn default() -> Self {
        Self::new("")
    }
}

impl<M: Meaning> Serialize for Written<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, M: Meaning> Deserialize<'de> for Written<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A problem is no error here: every other value is still read, and each problem gets the line of its key.
        String::deserialize(deserializer).map(Self::new)
    }
}

impl<M: Meaning> JsonSchema for Written<M> {
    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl<M: Meaning> FileValue for Written<M> {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, ConfigProblem)) {
        if let Err(flaw) = &self.value {
            report(key, ConfigProblem::clone(flaw));
        }
    }
}

impl<M: Meaning> FromOutside for Written<M> {
    fn from_outside(text: &str) -> Result<Self, ConfigProblem> {
        // Checked with the other values, under the name of the variable or flag.
        Ok(Self::new(text))
    }
}
