//! Rows of keys: everything about a key stands in its row, and what differs by type in [`FileValue`].

use std::collections::BTreeMap;

use crate::config::problem::ConfigProblem;

/// A key of the file, apart from its type and its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key with its tables: `server.listen`.
    pub key: String,
    /// `true` if a change takes effect only after a restart, also of the keys below it.
    pub needs_restart: bool,
    /// Variable that overrides the key.
    pub variable: Option<&'static str>,
    /// The advice to whoever still sets an old key, which the next version will not read. `None` for any other key.
    pub old: Option<&'static str>,
}

/// Values from outside the file that override its keys.
pub trait Overrides {
    /// Returns the text for a key: that of the flag, else that of the variable.
    fn text_for(&mut self, key: &str, variable: &'static str, flag: Option<&'static str>) -> Option<String>;

    /// Reports a text that is no value of the key.
    fn report(&mut self, key: &str, flaw: ConfigProblem);
}

/// A value of the file, or a table of values.
pub trait FileValue {
    /// Hands every problem that a value has by itself to `report`, with the key of the value.
    fn check(&self, _key: &str, _report: &mut dyn FnMut(&str, ConfigProblem)) {}

    /// Replaces what variables and flags override.
    fn override_with(&mut self, _key: &str, _overrides: &mut dyn Overrides) {}

    /// Adds the rows of a table. A value has none, and neither have tables with free names.
    fn collect_rows(_key: &str, _rows: &mut Vec<Row>) {}
}

/// A value that a variable or a flag can give.
pub trait FromOutside: Sized {
    /// Reads the text of the variable or flag.
    fn from_outside(text: &str) -> Result<Self, ConfigProblem>;
}

/// Appends `key` to the path of its tables, in the syntax of TOML.
pub fn join_key(tables: &str, key: &str) -> String {
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

/// Hands the problem that `check` finds in a value to `report`.
pub(super) fn report_flaw<T>(
    value: &T,
    check: impl FnOnce(&T) -> Result<(), ConfigProblem>,
    key: &str,
    report: &mut dyn FnMut(&str, ConfigProblem),
) {
    if let Err(flaw) = check(value) {
        report(key, flaw);
    }
}

/// Replaces a value by that of the variable or flag, if one is given.
pub fn replace_value<T: FromOutside>(
    value: &mut T,
    key: &str,
    overrides: &mut dyn Overrides,
    (variable, flag): (&'static str, Option<&'static str>),
) {
    if let Some(text) = overrides.text_for(key, variable, flag) {
        match T::from_outside(&text) {
            Ok(given) => *value = given,
            Err(flaw) => overrides.report(key, flaw),
        }
    }
}

/// Declares a section. A row has the meaning of a key, its name, its type and its default, and if there is one:
///
/// * `check(FUNCTION)`, which returns the problem of a value that its type allows
/// * `needs(restart)`, if a reload cannot apply a change of the key, nor of any key below it
/// * `given(VARIABLE, FLAG)`, which override the key; the flag is optional
/// * `old(ADVICE)`, for a key that this version still reads, with a warning; the schema no longer has it
macro_rules! section {
    ($(#[$doc:meta])+ $name:ident { $(
        $(#[$meta:meta])+
        pub $key:ident: $type:ty = $default:expr $(, $marker:ident($($argument:tt)+))*;
    )+ }) => {
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$doc])+
        pub struct $name { $($(#[$meta])+ pub $key: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl $crate::config::file::FileValue for $name {
            fn check(&self, table: &str, report: &mut dyn FnMut(&str, $crate::config::ConfigProblem)) {
                $(
                    let key = $crate::config::file::join_key(table, stringify!($key));
                    self.$key.check(&key, report);
                    $(section!(@check $marker($($argument)+) &self.$key, &key, report);)*
                )+
            }

            fn override_with(&mut self, table: &str, overrides: &mut dyn $crate::config::file::Overrides) {
                $(
                    let key = $crate::config::file::join_key(table, stringify!($key));
                    self.$key.override_with(&key, overrides);
                    $(section!(@override $marker($($argument)+) &mut self.$key, &key, overrides);)*
                )+
            }

            fn collect_rows(table: &str, rows: &mut Vec<$crate::config::file::Row>) {
                $(
                    let key = $crate::config::file::join_key(table, stringify!($key));
                    <$type>::collect_rows(&key, rows);
                    rows.push($crate::config::file::Row {
                        key,
                        needs_restart: [false $(, section!(@restart $marker($($argument)+)))*].contains(&true),
                        variable: [None $(, section!(@variable $marker($($argument)+)))*].into_iter().flatten().next(),
                        old: [None $(, section!(@old $marker($($argument)+)))*].into_iter().flatten().next(),
                    });
                )+
            }
        }
    };
    (@check check($check:expr) $value:expr, $key:expr, $report:expr) => {
        $crate::config::file::section::report_flaw($value, $check, $key, $report)
    };
    (@override given($variable:literal $(, $flag:literal)?) $value:expr, $key:expr, $overrides:expr) => {
        $crate::config::file::section::replace_value($value, $key, $overrides, ($variable, section!(@flag $($flag)?)))
    };
    (@restart needs(restart)) => { true };
    (@variable given($variable:literal $($flag:tt)*)) => { Some($variable) };
    (@old old($advice:literal)) => { Some($advice) };
    (@flag $flag:literal) => { Some($flag) };
    (@flag) => { None };
    // The other markers of the row.
    (@check $($other:tt)+) => {};
    (@override $($other:tt)+) => {};
    (@restart $($other:tt)+) => { false };
    (@variable $($other:tt)+) => { None };
    (@old $($other:tt)+) => { None };
}

impl FileValue for bool {}
impl FileValue for usize {}
impl FileValue for u64 {}
impl FileValue for String {}

impl<T: FileValue> FileValue for Option<T> {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, ConfigProblem)) {
        if let Some(value) = self {
            value.check(key, report);
        }
    }

    fn collect_rows(key: &str, rows: &mut Vec<Row>) {
        T::collect_rows(key, rows);
    }
}

impl<T: FileValue> FileValue for Vec<T> {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, ConfigProblem)) {
        for (i, item) in self.iter().enumerate() {
            item.check(&format!("{key}[{i}]"), report);
        }
    }
}

impl<T: FileValue> FileValue for BTreeMap<String, T> {
    fn check(&self, key: &str, report: &mut dyn FnMut(&str, ConfigProblem)) {
        for (name, value) in self {
            value.check(&join_key(key, name), report);
        }
    }
}

impl FromOutside for String {
    fn from_outside(text: &str) -> Result<Self, ConfigProblem> {
        Ok(text.to_owned())
    }
}

impl<T: FromOutside> FromOutside for Option<T> {
    fn from_outside(text: &str) -> Result<Self, ConfigProblem> {
        T::from_outside(text).map(Some)
    }
}

impl<T: FromOutside> FromOutside for Vec<T> {
    /// Reads a list that is separated by commas.
    fn from_outside(text: &str) -> Result<Self, ConfigProblem> {
        split_list(text).map(T::from_outside).collect()
    }
}

/// Returns the items of a list that is separated by commas.
pub fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}
