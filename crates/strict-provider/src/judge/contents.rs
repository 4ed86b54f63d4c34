//! The content of a tool result, by each provider's schema.

use serde_json::Value;

/// `Ok` if the content is valid. `Err` contains the provider's words.
pub(super) type Verdict = Result<(), String>;

/// Judges Anthropic content: a string, or a list of text, images, documents, search results and tool references. An
/// error contains only text.
pub(super) fn anthropic(content: Option<&Value>, failed: bool) -> Verdict {
    let blocks = match content {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(".content: Input should be a valid string or list".into()),
    };
    for (at, block) in blocks.iter().enumerate() {
        let kind = kind(block);
        if failed && kind != "text" {
            return Err(": all content must be type \"text\" if `is_error` is true".into());
        }
        let (must, may): (&[&str], &[&str]) = match kind {
            "text" => (&["text"], &["citations"]),
            "image" => (&["source"], &[]),
            "document" => (&["source"], &["title", "context", "citations"]),
            "search_result" => (&["content", "source", "title"], &["citations"]),
            "tool_reference" => (&["tool_name"], &[]),
            _ => {
                return Err(format!(
                    ".content.{at}.type: Input tag '{kind}' found using 'type' does not match"
                ));
            }
        };
        let place = format!(".content.{at}.{kind}");
        check_members(block, must, &[may, &["cache_control"]].concat(), &place)?;
        match kind {
            "text" => spoken(block)?,
            "image" => source(&block["source"], &["base64", "url", "file"], &place)?,
            "document" => source(&block["source"], &["base64", "text", "content", "url", "file"], &place)?,
            "search_result" => match block["content"].as_array().map(Vec::as_slice) {
                Some(texts @ [_, ..]) => texts.iter().try_for_each(spoken)?,
                _ => return Err(format!("{place}.content: List should have at least 1 item")),
            },
            _ => {}
        }
    }
    Ok(())
}

fn kind(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Checks that a block has all required members and no unknown ones.
fn check_members(block: &Value, must: &[&str], may: &[&str], place: &str) -> Verdict {
    let Some(object) = block.as_object() else {
        return Err(format!("{place}: Input should be a valid dictionary"));
    };
    if let Some(missing) = must.iter().find(|key| !object.contains_key(**key)) {
        return Err(format!("{place}.{missing}: Field required"));
    }
    let known = |key: &str| key == "type" || must.contains(&key) || may.contains(&key);
    match object.keys().find(|key| !known(key)) {
        Some(extra) => Err(format!("{place}.{extra}: Extra inputs are not permitted")),
        None => Ok(()),
    }
}

fn spoken(block: &Value) -> Verdict {
    match block["text"].as_str() {
        None => Err(": text: Input should be a valid string".into()),
        Some("") => Err(": text content blocks must be non-empty".into()),
        Some(text) if text.trim().is_empty() => Err(": text content blocks must contain non-whitespace text".into()),
        Some(_) => Ok(()),
    }
}

fn source(source: &Value, kinds: &[&str], place: &str) -> Verdict {
    let kind = kind(source);
    let place = format!("{place}.source.{kind}");
    if !kinds.contains(&kind) {
        return Err(format!("{place}: Input tag does not match any of the expected tags"));
    }
    let must: &[&str] = match kind {
        "base64" | "text" => &["media_type", "data"],
        "url" => &["url"],
        "file" => &["file_id"],
        _ => &["content"],
    };
    check_members(source, must, &[], &place)?;
    let pictures = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    let is_picture = kinds.len() == 3;
    if kind == "base64" && is_picture && !source["media_type"].as_str().is_some_and(|is| pictures.contains(&is)) {
        return Err(format!(
            "{place}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        ));
    }
    if kind == "base64" && !source["data"].as_str().is_some_and(is_base64) {
        return Err(format!("{place}: invalid base64 data"));
    }
    if kind == "url" && !source["url"].as_str().is_some_and(|url| url.starts_with("https://")) {
        return Err(format!("{place}: Only HTTPS URLs are supported."));
    }
    Ok(())
}

fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    let letters = body
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    !body.is_empty() && data.len().is_multiple_of(4) && data.len() - body.len() < 3 && letters
}

/// Judges Chat Completions content: a string, or texts. `pictures` is `true` if the server accepts images too.
pub(super) fn chat(content: Option<&Value>, pictures: bool) -> Verdict {
    let parts = match content {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(parts)) if parts.is_empty() => {
            return Err("empty array. Expected an array with minimum length 1, but got an empty array instead.".into());
        }
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err("expected a string or an array of content parts.".into()),
    };
    parts.iter().try_for_each(|part| match kind(part) {
        "text" if part["text"].is_string() => check_members(part, &["text"], &["prompt_cache_breakpoint"], ""),
        "image_url" if pictures && part["image_url"]["url"].is_string() => check_members(part, &["image_url"], &[], ""),
        kind => Err(format!(
            "content parts of type '{kind}' are not supported for messages of role 'tool'."
        )),
    })
}

/// Judges Responses output: a string, or input texts, images and files.
pub(super) fn responses(output: &Value) -> Verdict {
    let Some(parts) = output.as_array() else {
        return Ok(());
    };
    let cache = "prompt_cache_breakpoint";
    parts.iter().enumerate().try_for_each(|(at, part)| {
        let place = format!("output[{at}]");
        let names = |keys: &[&str]| keys.iter().any(|key| part[key].is_string());
        match kind(part) {
            "input_text" if names(&["text"]) => check_members(part, &["text"], &[cache], &place),
            "input_image" if names(&["image_url", "file_id"]) => {
                let url = part["image_url"].as_str();
                if url.is_some_and(|url| !url.starts_with("http") && !url.starts_with("data:image/")) {
                    return Err(format!("{place}.image_url: expected a valid URL"));
                }
                check_members(part, &[], &["image_url", "file_id", "detail", cache], &place)
            }
            "input_file" if names(&["file_data", "file_id", "file_url"]) => {
                let keys = ["file_data", "file_id", "file_url", "filename", "detail", cache];
                check_members(part, &[], &keys, &place)
            }
            kind => Err(format!(
                "Invalid value: '{kind}' for '{place}'. Supported values are: 'input_text', 'input_image', and 'input_file'."
            )),
        }
    })
}
