//! Results of earlier calls that stand for the result of a call with the same input.

use super::{late_texts::readable_text, texts};
use crate::{
    splice::Span,
    wire::{
        json::{Json, JsonKind, quote_string},
        readable_blocks,
    },
};

/// Returns a posted content with a mark in front that it is the result of an earlier run. `content` is JSON, `at` the time
/// of that run as RFC 3339.
///
/// A list of blocks gets one more block, so that images stay. Anything else becomes text.
pub fn mark_earlier_run(content: &str, at: &str) -> String {
    let (mark, content) = (texts::earlier_run(at), &*readable_blocks(content));
    match list_interior(content) {
        Some(blocks) => {
            let separator = if blocks.trim().is_empty() { "" } else { "," };
            format!(
                "[{{\"type\":\"text\",\"text\":{}}}{separator}{blocks}]",
                quote_string(&mark)
            )
        }
        None => quote_string(&format!("{mark}\n{}", readable_text(content))),
    }
}

/// Returns the bytes between the brackets of a list of objects.
fn list_interior(content: &str) -> Option<&str> {
    let json = Json::new(content.as_bytes());
    let list = json.root_span().ok()?;
    if json.kind(list) != JsonKind::Array {
        return None;
    }
    let mut are_blocks = true;
    let walked = json.for_each_element(list, |block| are_blocks &= json.kind(block) == JsonKind::Object);
    walked.ok().filter(|()| are_blocks)?;
    let inside = Span::new(list.start.checked_add(1)?, list.end.checked_sub(1)?);
    content.get(inside.start..inside.end)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_form_of_a_content_gets_the_mark_and_stays_whole() {
        let mark = texts::earlier_run("2026-01-01T00:00:00Z");
        let block = format!(r#"{{"type":"text","text":{}}}"#, quote_string(&mark));
        for (content, wanted) in [
            (r#""a\"b""#, quote_string(&format!("{mark}\na\"b"))),
            ("[]", format!("[{block}]")),
            (
                r#"[{"type":"image","data":"A"}]"#,
                format!(r#"[{block},{{"type":"image","data":"A"}}]"#),
            ),
            ("[1]", quote_string(&format!("{mark}\n[1]"))),
            (r#"{"url": "x"}"#, quote_string(&format!("{mark}\n{{\"url\":\"x\"}}"))),
        ] {
            let marked = mark_earlier_run(content, "2026-01-01T00:00:00Z");
            assert_eq!(marked, wanted, "{content}");
            assert!(serde_json::from_str::<Value>(&marked).is_ok(), "{marked}");
        }
    }
}
