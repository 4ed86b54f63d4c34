//! Paths and bodies of requests to the ledger API.

use std::fmt::Write as _;

use super::arguments::{ListArgs, NamedCallArgs, PostArgs, WantedState};
use crate::{api::ledger_api::RESULT_BODY_BYTES_MAX, cli::api_client::ClientError, wire::json::quote_string};

/// Returns the path of an operation on a call.
pub(in crate::cli) fn call_path(call_id: &str, operation: &str) -> String {
    format!("/ledger/v1/calls/{}/{operation}", encode_segment(call_id))
}

/// Returns the path that acknowledges a delivery.
pub(super) fn ack_path(delivery: &str) -> String {
    format!("/ledger/v1/deliveries/{}/ack", encode_segment(delivery))
}

/// Returns the path and query of a page.
pub(super) fn page_path(args: &ListArgs, after: u64) -> String {
    let state = match args.state {
        WantedState::Settled => "settled",
        WantedState::Open => "open",
    };
    let mut path = format!(
        "/ledger/v1/outstanding?state={state}&limit={}&after={after}",
        args.limit
    );
    if let Some(session) = &args.session {
        path.push_str("&session=");
        path.push_str(&encode_segment(session));
    }
    path
}

/// The path of a lookup.
pub(super) const LOOKUP_PATH: &str = "/ledger/v1/lookup";

/// Returns the body of a lookup.
pub(super) fn lookup_body(call_id: &str) -> String {
    format!("{{\"call_ids\":[{}]}}", quote_string(call_id))
}

/// Returns the body of a posted result. `content` is JSON.
pub(super) fn result_body(args: &PostArgs, content: &str) -> Result<String, ClientError> {
    let mut members = call_members(&args.call);
    members.extend(
        args.replaces
            .as_deref()
            .map(|digest| ("replaces", quote_string(digest))),
    );
    members.extend(args.only_if_missing.then(|| ("only_if_missing", true.to_string())));
    members.push(("is_error", args.error.to_string()));
    members.push(("content", content.to_owned()));
    let body = write_object(&members);
    // Checked here, because a server that refuses a head closes the connection, which hides its reason.
    if body.len() > RESULT_BODY_BYTES_MAX {
        let length = body.len();
        return Err(ClientError::Unusable(format!(
            "the result takes {length} bytes as JSON, and the limit is 8 MiB; store it elsewhere, and post its address"
        )));
    }
    Ok(body)
}

/// Returns the body that names a call and nothing else.
pub(super) fn call_body(call: &NamedCallArgs) -> String {
    write_object(&call_members(call))
}

/// Returns the members that tell which call is meant, with their values as JSON.
fn call_members(call: &NamedCallArgs) -> Vec<(&'static str, String)> {
    let texts = [
        ("owner", call.owner.map(|owner| owner.to_string())),
        ("session", call.session.clone()),
        ("tool", call.tool.clone()),
    ];
    let texts = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, quote_string(&text?))));
    // The input is JSON already.
    texts.chain(call.input.clone().map(|input| ("input", input))).collect()
}

/// Writes a JSON object. Values are never parsed, so that they keep the bytes that were given.
fn write_object(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Writes a text as one segment of a path, or as a value of a query.
fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
