//! Variables inside values: `${NAME}` and `${NAME:-default}`.

use super::{Lookup, flaw::Flaw};

/// Replaces `${NAME}` and `${NAME:-default}`; `$${` stands for `${`. Replaced values are not searched again.
pub(super) fn interpolate(text: &str, variable: &Lookup<'_>) -> Result<String, Flaw> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            whole.push_str(before);
            whole.push_str("${");
            rest = behind;
            continue;
        }
        let Some((inside, behind)) = behind.split_once('}') else {
            return Err(Flaw::new("`${` without `}`").hint("write `$${` for the characters themselves"));
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Flaw::new(format!("`${{{inside}}}` names no variable"))
                .hint("write `${NAME}` or `${NAME:-default}`, and `$${` for the characters themselves"));
        }
        let Some(value) = variable(name).or_else(|| default.map(ToOwned::to_owned)) else {
            return Err(Flaw::new(format!("variable {name} is not set"))
                .hint(format!("set it, or write `${{{name}:-default}}`")));
        };
        whole.push_str(before);
        whole.push_str(&value);
        rest = behind;
    }
    whole.push_str(rest);
    Ok(whole)
}
