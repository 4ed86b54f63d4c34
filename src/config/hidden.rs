//! Secrets of the configuration: kept apart from what may be shown, and what must not be shown with them.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toml::Value;

use super::{Lookup, flaw::Flaw, interpolation::interpolate};
use crate::auth::Secret;

/// What is shown in place of a secret that stands in the file itself.
const MASK: &str = "***";

/// The secrets of a file, by their key.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    values: BTreeMap<String, Secret>,
    /// Keys whose secret stands in the file itself.
    pub(super) literal: Vec<String>,
}

impl Hidden {
    /// Keeps what was written at `key`; gives what may be shown of it. No message repeats any of it.
    pub(super) fn take(&mut self, key: &str, written: &str, variable: &Lookup<'_>) -> Result<String, Flaw> {
        if written == MASK {
            return Err(Flaw::new("`***` stands where `config print` left a secret out").hint("write ${NAME}"));
        }
        if let Some(name) = reference(written) {
            let value = variable(name).ok_or_else(|| {
                Flaw::new(format!("variable {name} is not set")).hint("set it, or name a file that holds the secret")
            })?;
            self.values.insert(key.to_owned(), Secret::new(value));
            return Ok(written.to_owned());
        }
        let value = interpolate(written, variable)
            .map_err(|_| Flaw::new("names no variable that is set").hint("write ${NAME} and nothing else"))?;
        self.values.insert(key.to_owned(), Secret::new(value));
        self.literal.push(key.to_owned());
        Ok(MASK.to_owned())
    }

    /// The secret of `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Secret> {
        self.values.get(key)
    }

    /// Whether a file's text may hold a secret somewhere.
    pub(super) fn may_be_in(source: &str) -> bool {
        ["profiles", "client_tokens", "key", "bearer", "token", "secret"]
            .iter()
            .any(|word| source.contains(word))
    }
}

/// The variable that a text names, if it does nothing else.
fn reference(written: &str) -> Option<&str> {
    let name = written.strip_prefix("${")?.strip_suffix('}')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(name)
}

/// Whether the value of a key is, or stands beside, a secret or what may be one by mistake.
pub(super) fn is_private(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or_default();
    key.contains(".profiles")
        || key.starts_with("client_tokens")
        || is_of_service(key)
        || matches!(last, "credentials" | "url" | "endpoint" | "admin_token")
}

/// Of a service only the lists may be shown: a token may stand where its hash belongs.
fn is_of_service(key: &str) -> bool {
    key.starts_with("services.") && [".token", ".secret"].iter().any(|last| key.ends_with(last))
}

/// Escapes `${` in the values of a file, so that they are read as they stand; of secrets only references are left, and
/// they stay such.
pub(super) fn escape(value: &mut Value, schema: &Json) {
    match value {
        Value::String(text) if schema.get("writeOnly").is_none() => *text = text.replace("${", "$${"),
        Value::Array(items) => {
            let schema = schema.get("items").unwrap_or(&Json::Null);
            for item in items {
                escape(item, schema);
            }
        }
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                let known = schema.get("properties").and_then(|known| known.get(key));
                let schema = known.or_else(|| schema.get("additionalProperties"));
                escape(value, schema.unwrap_or(&Json::Null));
            }
        }
        _ => {}
    }
}
