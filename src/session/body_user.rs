//! The end user that a body names, for operators who trust the clients that write it.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use super::labels;
use crate::{
    conversation::{BodyField, Outline},
    wire::json::{Json, validate},
};

/// The members of a `metadata.user_id` that do not change with the session. The first one present is used.
const STABLE_MEMBERS: [&str; 2] = ["device_id", "account_uuid"];

/// Returns the end user of a body: `safety_identifier`, or else a part of `metadata.user_id`.
///
/// The whole `metadata.user_id` is never used, since it contains the session.
pub fn body_user(body: &[u8], outline: &Outline) -> Option<String> {
    let json = Json::new(body);
    let named = || labels::string_label(json, json.member(json.root_span().ok()?, "safety_identifier")?);
    let parted = || {
        let user = json.member(outline.field(BodyField::Metadata)?, "user_id")?;
        // Bounds the work on a member that clients fill with anything.
        if user.len() > labels::USER_ID_BYTES_MAX {
            return None;
        }
        stable_part(&json.decode_string(user))
    };
    named().or_else(parted)
}

fn stable_part(user_id: &[u8]) -> Option<String> {
    if user_id.trim_ascii().starts_with(b"{") {
        validate(user_id).ok()?;
        let json = Json::new(user_id);
        let root = json.root_span().ok()?;
        return STABLE_MEMBERS
            .iter()
            .find_map(|name| labels::string_label(json, json.member(root, name)?));
    }
    // Claude Code before 2.1.43: `user_<device>_account_<uuid>_session_<uuid>`.
    let text = std::str::from_utf8(user_id).ok()?.strip_prefix("user_")?;
    let (device, _) = text.split_once("_account_")?;
    // Claude Code's device is a hex number: another text of this shape has no stable part.
    let is_hex = !device.is_empty() && device.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && device.len() <= labels::LABEL_BYTES_MAX).then(|| device.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_change_with_the_session_counts() {
        for (text, user) in [
            (r#"{"device_id":"d1","account_uuid":"","session_id":"s"}"#, Some("d1")),
            (r#"{"device_id":"","account_uuid":"a-1","session_id":"s"}"#, Some("a-1")),
            (r#"{"session_id":"s"}"#, None),
            (r#"{"device_id":7}"#, None),
            ("user_00ff_account_a-1_session_5", Some("00ff")),
            ("user_00fg_account_a-1_session_5", None),
            ("user__account__session_5", None),
            ("ann", None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(stable_part(text.as_bytes()).as_deref(), user, "{text}");
        }
    }
}
