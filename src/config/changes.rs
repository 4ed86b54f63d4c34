//! What differs between two configurations.

use toml::Value;

use super::{Loaded, read::join};

/// Keys whose values are in force only after a restart, themselves or as the tables they stand in.
const FIXED: [&str; 13] = [
    "server.listen",
    "server.admin_listen",
    "server.admin_token",
    "server.connections_max",
    "server.header_timeout",
    "server.drain_timeout",
    "timeouts.client_stall",
    "ledger",
    "services",
    "tools",
    "principals",
    "log.format",
    "traces",
];

/// Keys that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that may change while the process runs.
    pub free: Vec<String>,
    /// Those that may not.
    pub fixed: Vec<String>,
}

impl Changes {
    /// From `old` to `new`, by their keys. Secrets are not compared.
    pub fn between(old: &Loaded, new: &Loaded) -> Result<Self, toml::ser::Error> {
        let mut keys = Vec::new();
        let values = [&old.effective, &new.effective].map(Value::try_from);
        let [old, new] = values;
        collect(&old?, &new?, "", &mut keys);
        let (fixed, free) = keys.into_iter().partition(|key| is_fixed(key));
        Ok(Self { free, fixed })
    }
}

fn is_fixed(key: &str) -> bool {
    let mut behind = FIXED.iter().filter_map(|fixed| key.strip_prefix(fixed));
    behind.any(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn collect(old: &Value, new: &Value, path: &str, keys: &mut Vec<String>) {
    let (Value::Table(old), Value::Table(new)) = (old, new) else {
        if old != new {
            keys.push(path.to_owned());
        }
        return;
    };
    let nothing = Value::Table(toml::Table::new());
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let (before, after) = (old.get(name), new.get(name));
        let stands_alone = |value: Option<&Value>| !matches!(value, None | Some(Value::Table(_)));
        let path = join(path, name);
        if stands_alone(before) || stands_alone(after) {
            if before != after {
                keys.push(path);
            }
        } else {
            collect(before.unwrap_or(&nothing), after.unwrap_or(&nothing), &path, keys);
        }
    }
}
