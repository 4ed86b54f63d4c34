//! A text of the file whose meaning is read with it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::section::{FileValue, FromOutside};
use crate::config::problem::Problem;

/// A value that is written as a text.
pub trait ParseText: Sized {
    /// Reads the text. The problem has no key yet.
    fn parse_text(text: &str) -> Result<Self, Problem>;
}

/// A text of the file, and the value that it means. `config print` shows it as it was written.
#[derive(Clone, Debug)]
pub struct Written<T> {
    written: String,
    // Boxed, since a configuration has many values, and hardly ever a problem.
    value: Result<T, Box<Problem>>,
}

impl<T: ParseText> Written<T> {
    /// Reads a text.
    pub fn new(written: impl Into<String>) -> Self {
        let written = written.into();
        let value = T::parse_text(&written).map_err(Box::new);
        Self { written, value }
    }
}

impl<T> Written<T> {
    /// Returns the text.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the value. `None` if the text has a problem, which the check of all values reports.
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref().ok()
    }

    /// Returns the value, or a stand-in if the text has a problem: such a configuration is never used.
    pub fn value_or_default(&self) -> T
    where
        T: Clone + Default,
    {
        self.value().cloned().unwrap_or_default()
    }

    /// Shows another text in its place.
    pub fn show_as(&mut self, shown: String) {
        self.written = shown;
    }
}

impl<T: ParseText> From<&str> for Written<T> {
    fn from(written: &str) -> Self {
        Self::new(written)
    }
}

impl<T: ParseText> Default for Written<T> {
    fn default() -> Self {
        Self::new("")
    }
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl<'de, T: ParseText> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A problem is no error here: every other value is still read, and each problem gets the line of its key.
        String::deserialize(deserializer).map(Self::new)
    }
}

impl<T> JsonSchema for Written<T> {
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

impl<T> FileValue for Written<T> {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, Problem)) {
        if let Err(flaw) = &self.value {
            report(key, Problem::clone(flaw));
        }
    }
}

impl<T: ParseText> FromOutside for Written<T> {
    fn from_outside(text: &str) -> Result<Self, Problem> {
        // Checked with the other values, under the name of the variable or flag.
        Ok(Self::new(text))
    }
}
