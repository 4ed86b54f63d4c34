//! Secrets of the configuration: their separate store, and the keys that must not be shown with them.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toml::Value;

use super::{
    VariableLookup,
    file::{ConfigFile, Meaning, Written},
    interpolation::interpolate_variables,
    problem::ConfigProblem,
};
use crate::auth::Secret;

/// Text that `config print` shows instead of a secret that is written in the file itself.
const MASK: &str = "***";

/// Name in the schema that marks values which are shown as they were written.
pub(super) const AS_WRITTEN: &str = "x-shown-as-written";

/// Secrets of a file by their key.
#[derive(Debug, Default)]
pub(super) struct FileSecrets {
    values: BTreeMap<String, Secret>,
    /// Keys whose secret is written in the file itself.
    pub(super) literal_keys: Vec<String>,
}

impl FileSecrets {
    /// Stores the secret that `key` contains or names. Returns the text that may be shown instead of it.
    ///
    /// No message repeats any part of the secret.
    pub(super) fn store_secret(
        &mut self,
        key: &str,
        written: &str,
        variable: &VariableLookup<'_>,
    ) -> Result<String, ConfigProblem> {
        // Output of `config print` that is used as a file would send `***` as a key.
        if written == MASK {
            return Err(
                ConfigProblem::of_value("`***` marks where `config print` left a secret out")
                    .with_hint("write ${NAME}"),
            );
        }
        if let Some(name) = referenced_variable(written) {
            let value = variable(name).ok_or_else(|| {
                ConfigProblem::of_value(format!("variable {name} is not set"))
                    .with_hint("set it, or name a file that contains the secret")
            })?;
            self.values.insert(key.to_owned(), Secret::new(value));
            return Ok(written.to_owned());
        }
        // The messages of the interpolation repeat the text between the braces, which may be part of a secret.
        let value = interpolate_variables(written, variable).map_err(|_| {
            ConfigProblem::of_value("names no variable that is set").with_hint("write ${NAME} and nothing else")
        })?;
        self.values.insert(key.to_owned(), Secret::new(value));
        self.literal_keys.push(key.to_owned());
        Ok(MASK.to_owned())
    }

    /// Stores a word of a command with the values of its variables. Returns the text that may be shown instead of it.
    pub(super) fn store_word(
        &mut self,
        key: &str,
        written: &str,
        variable: &VariableLookup<'_>,
    ) -> Result<String, ConfigProblem> {
        // The value of a variable may be a secret, so only the reference is shown.
        let value = interpolate_variables(written, variable)?;
        self.values.insert(key.to_owned(), Secret::new(value));
        Ok(written.to_owned())
    }

    /// Stores a secret from outside the file. Returns the text that may be shown instead of it.
    pub(super) fn set_secret(&mut self, key: &str, secret: Secret) -> String {
        self.values.insert(key.to_owned(), secret);
        self.literal_keys.retain(|literal| literal != key);
        MASK.to_owned()
    }

    /// Returns the secret of `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Secret> {
        self.values.get(key)
    }

    /// Returns `true` if a file's text may contain a secret, judged by the names of keys.
    pub(super) fn may_contain_secret(source: &str) -> bool {
        [
            "profiles",
            "client_tokens",
            "key",
            "bearer",
            "token",
            "secret",
            "postgres",
        ]
        .iter()
        .any(|word| source.contains(word))
    }
}

/// Characters of a token's hash that are shown: enough to tell tokens apart, and too few to try guesses offline.
const HASH_CHARS_SHOWN: usize = "sha256:".len() + 8;

/// Shortens the hashes of all tokens. A token that somebody has chosen could be guessed from its whole hash.
pub(super) fn shorten_token_hashes(file: &mut ConfigFile) {
    let services = file.services.values_mut().map(|service| &mut service.token);
    let optional = services.chain([&mut file.server.admin_token]);
    optional.flatten().for_each(shorten_hash);
    let clients = file.client_tokens.values_mut();
    clients.for_each(|entry| shorten_hash(entry.hash_mut()));
}

fn shorten_hash<M: Meaning>(hash: &mut Written<M>) {
    // A value without such a prefix is no hash, and was refused before.
    let shown = hash.text().get(..HASH_CHARS_SHOWN).unwrap_or_default();
    hash.show_as(format!("{shown}…"));
}

/// Returns the variable of a text that is exactly one `${NAME}`.
fn referenced_variable(written: &str) -> Option<&str> {
    let name = written.strip_prefix("${")?.strip_suffix('}')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(name)
}

/// Returns `true` for a key whose line may contain a secret, also by an operator's mistake.
pub(super) fn is_private(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or_default();
    // A URL may contain a password, and a token is easily pasted where its hash belongs.
    key.contains(".profiles")
        || key.starts_with("client_tokens")
        || is_service_secret(key)
        || matches!(last, "credentials" | "url" | "listen_url" | "endpoint" | "admin_token")
}

/// Returns `true` for the secret keys of a service or a webhook. Their lists of names may be shown.
fn is_service_secret(key: &str) -> bool {
    let has_secrets = ["services.", "webhooks."].iter().any(|table| key.starts_with(table));
    has_secrets && [".token", ".secret"].iter().any(|last| key.ends_with(last))
}

/// Escapes `${` in the values of a file, so that they are read literally.
///
/// Values of secrets and words of commands are skipped: their `${` are references, which must stay references.
pub(super) fn escape_references(value: &mut Value, schema: &Json) {
    match value {
        Value::String(text) if schema.get("writeOnly").is_none() && schema.get(AS_WRITTEN).is_none() => {
            *text = text.replace("${", "$${");
        }
        Value::Array(items) => {
            let schema = schema.get("items").unwrap_or(&Json::Null);
            for item in items {
                escape_references(item, schema);
            }
        }
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                let known = schema.get("properties").and_then(|known| known.get(key));
                let schema = known.or_else(|| schema.get("additionalProperties"));
                escape_references(value, schema.unwrap_or(&Json::Null));
            }
        }
        _ => {}
    }
}
