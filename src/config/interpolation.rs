//! Variables inside values: `${NAME}` and `${NAME:-default}`.

use super::{VariableLookup, problem::ConfigProblem};

/// Replaces `${NAME}` and `${NAME:-default}`. `$${` means a literal `${`. Inserted values are not searched again.
pub(super) fn interpolate_variables(text: &str, variable: &VariableLookup<'_>) -> Result<String, ConfigProblem> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        // `$${` is the escape: one dollar sign is dropped and the rest stays literal.
        if let Some(before) = before.strip_suffix('$') {
            whole.push_str(before);
            whole.push_str("${");
            rest = after;
            continue;
        }
        let Some((reference, after)) = after.split_once('}') else {
            return Err(
                ConfigProblem::of_value("`${` without `}`").with_hint("write `$${` for the characters themselves")
            );
        };
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(ConfigProblem::of_value(format!("`${{{reference}}}` names no variable"))
                .with_hint("write `${NAME}` or `${NAME:-default}`, and `$${` for the characters themselves"));
        }
        let Some(value) = variable(name).or_else(|| default.map(ToOwned::to_owned)) else {
            return Err(ConfigProblem::of_value(format!("variable {name} is not set"))
                .with_hint(format!("set it, or write `${{{name}:-default}}`")));
        };
        whole.push_str(before);
        whole.push_str(&value);
        // The search goes on after the reference, so the value of a variable cannot name another variable.
        rest = after;
    }
    whole.push_str(rest);
    Ok(whole)
}
