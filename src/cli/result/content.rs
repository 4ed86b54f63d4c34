//! The content of a posted result: from a flag, a file or standard input, as JSON.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read},
    path::Path,
};

use serde::de::IgnoredAny;

use super::arguments::ContentArgs;
use crate::{
    api::ledger_api::RESULT_BODY_BYTES_MAX,
    cli::api_client::ClientError,
    wire::json::{quote_string, validate},
};

/// Name of standard input as a file.
const STDIN: &str = "-";

/// Returns the content as JSON. Text becomes a JSON string, and JSON stays as it was written.
pub(super) fn read_content(args: &ContentArgs) -> Result<String, ClientError> {
    if let Some(text) = &args.text {
        return Ok(quote_string(text));
    }
    let name = args.file.as_deref().unwrap_or_else(|| Path::new(STDIN));
    // A person who forgot the content would wait for a command that waits for a person.
    if args.file.is_none() && io::stdin().is_terminal() {
        return Err(ClientError::Unusable(
            "the content is missing: give it with --text or --file, or pipe it in (--file - reads the terminal)"
                .to_owned(),
        ));
    }
    let shown = if name == Path::new(STDIN) {
        "standard input".to_owned()
    } else {
        name.display().to_string()
    };
    let unusable = |cause: String| ClientError::Unusable(format!("{shown}: {cause}"));
    let bytes = read_limited(name).map_err(|error| unusable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unusable(format!(
            "not UTF-8, from its byte {at} on; encode binary data first, for example with base64"
        ))
    })?;
    if !args.as_json {
        return Ok(quote_string(&text));
    }
    match validate(text.as_bytes()) {
        Ok(()) => Ok(text.trim().to_owned()),
        Err(_) => Err(unusable(format!("not JSON{}", fault_place(&text)))),
    }
}

/// Reads a file or standard input, as much as a result may contain.
fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(RESULT_BODY_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let mut read = |from: &mut dyn Read| from.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    if path == Path::new(STDIN) {
        read(&mut io::stdin().lock())?;
    } else {
        read(&mut File::open(path)?)?;
    }
    if bytes.len() > RESULT_BODY_BYTES_MAX {
        return Err(io::Error::other(
            "longer than 8 MiB, which is the limit of a result; store it elsewhere, and post its address",
        ));
    }
    Ok(bytes)
}

/// Returns the place of the first fault in a text that is not JSON. Empty if it is not known.
fn fault_place(text: &str) -> String {
    let fault = serde_json::from_str::<IgnoredAny>(text).err();
    fault.map_or_else(String::new, |fault| format!(": {fault}"))
}
