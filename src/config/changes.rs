//! Differences between two configurations, for a reload.

use toml::Value;

use super::{
    Config, LoadedConfig,
    file::{ConfigFile, Row, join_key},
    rules::RULES_FILE,
};

/// Keys that differ between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// Keys that may change while the process runs.
    pub reloadable: Vec<String>,
    /// Keys that take effect only after a restart.
    pub needs_restart: Vec<String>,
}

impl ConfigChanges {
    /// Compares two configurations key by key. Of a profile whose secret alone differs, only the name is listed.
    pub fn compare_configs(old: &LoadedConfig, new: &LoadedConfig) -> Result<Self, toml::ser::Error> {
        let mut keys = Vec::new();
        // Effective files spell out every default, so a key that was written out with its default is no change.
        let [old_file, new_file] = [&old.effective, &new.effective].map(Value::try_from);
        collect_changes(&old_file?, &new_file?, "", &mut keys);
        // The rows of a file may change while the configuration names the same one.
        if old.config.rules.rows != new.config.rules.rows && !keys.iter().any(|key| key.starts_with("repair.rules")) {
            keys.push(RULES_FILE.to_owned());
        }
        collect_new_secrets(&old.config, &new.config, &mut keys);
        let rows = ConfigFile::rows();
        let (fixed, free) = keys.into_iter().partition(|key| needs_restart(&rows, key));
        Ok(Self {
            reloadable: free,
            needs_restart: fixed,
        })
    }
}

fn needs_restart(rows: &[Row], key: &str) -> bool {
    let fixed = rows.iter().filter(|row| row.needs_restart);
    // A dot must follow the prefix: `log.format` covers itself but no key such as `log.formatter`.
    let mut behind = fixed.filter_map(|row| key.strip_prefix(&row.key));
    behind.any(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Adds every profile whose credential differs. Files and variables may change while the file names the same ones.
fn collect_new_secrets(old: &Config, new: &Config, keys: &mut Vec<String>) {
    for (upstream, profiles) in &new.profiles {
        let before = old.profiles.get(upstream).map_or(&[][..], Vec::as_slice);
        for profile in profiles {
            let known = before.iter().find(|known| known.label == profile.label);
            if known.is_some_and(|known| known.credential != profile.credential) {
                let table = join_key(&join_key("upstreams", upstream), "profiles");
                keys.push(join_key(&table, &profile.label));
            }
        }
    }
}

fn collect_changes(old: &Value, new: &Value, path: &str, keys: &mut Vec<String>) {
    let (Value::Table(old), Value::Table(new)) = (old, new) else {
        if old != new {
            keys.push(path.to_owned());
        }
        return;
    };
    // A table that only one side has is compared with an empty one, so that each of its keys is listed.
    let nothing = Value::Table(toml::Table::new());
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let (before, after) = (old.get(name), new.get(name));
        let stands_alone = |value: Option<&Value>| !matches!(value, None | Some(Value::Table(_)));
        let path = join_key(path, name);
        if stands_alone(before) || stands_alone(after) {
            if before != after {
                keys.push(path);
            }
        } else {
            collect_changes(before.unwrap_or(&nothing), after.unwrap_or(&nothing), &path, keys);
        }
    }
}
